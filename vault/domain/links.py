"""Typed edges between memories, and which of them take a memory's place."""

from __future__ import annotations

from typing import NamedTuple

from ledger.domain.instants import UnixMs

INVALIDATED_BY = "INVALIDATED_BY"
EVOLVED_INTO = "EVOLVED_INTO"
CONTRADICTS = "CONTRADICTS"

REPLACING = (INVALIDATED_BY, EVOLVED_INTO)
LINK_TYPES = (
    *REPLACING,
    CONTRADICTS,
    "RELATES_TO",
    "DERIVED_FROM",
    "LEADS_TO",
    "OCCURRED_BEFORE",
    "PREFERS_OVER",
    "EXEMPLIFIES",
    "REINFORCES",
    "PART_OF",
)
SUPERSEDED_BY = "SUPERSEDED_BY"  # an edge of the ledger's, between the events two memories came from


class Edge(NamedTuple):
    """A replacing edge: `source` was replaced by `target` at `created_at`. A named tuple: every recall makes many."""

    id: str
    source: str
    target: str
    relation: str
    created_at: UnixMs
