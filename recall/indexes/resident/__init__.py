"""The resident engine: every workspace as arrays in memory, fed by the vault's changes (`ResidentIndex`)."""

from recall.indexes.resident.engine import ResidentIndex

__all__ = ["ResidentIndex"]
