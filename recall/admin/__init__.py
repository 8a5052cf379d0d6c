"""The administration, one file for each thing that is done there; Django finds the registrations by this import."""

from recall.admin import corrections, erasure, people

__all__ = ["corrections", "erasure", "people"]
