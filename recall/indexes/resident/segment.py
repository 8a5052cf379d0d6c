"""A segment: rows of one workspace as columns, with their posting lists and vectors.

A row is one version of a memory. A memory that changes gets a new row, and its old one dies; nothing else of a row ever
changes. So every list of rows only grows at its end.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from recall.domain.request import RecallRequest
from recall.domain.state import Anchor
from recall.indexes import FALLEN, LINKED, OPEN
from recall.indexes.resident.nearest import Vectors
from recall.indexes.resident.postings import Holding
from vault.domain.facts import DEPRECATED, PROVENANCE_CLASSES, STATUSES, Facts

Rows = NDArray[np.int32]
Mask = NDArray[np.bool_]
Columns = dict[str, NDArray[Any]]

ALWAYS = np.iinfo(np.int64).min  # the bounds of a window that has none
NEVER = np.iinfo(np.int64).max
ID_LENGTH = 32
REPLACED, RELATED = 1, 2  # joined by replacing links only; by others
COLUMNS: dict[str, str] = {
    "seq": "i8",
    "id": f"S{ID_LENGTH}",
    "created_at": "i8",
    "t_valid": "i8",
    "t_invalid": "i8",
    "expires_at": "i8",
    "replaced_since": "i8",
    "archived": "?",
    "joined": "u1",  # by which links: none, REPLACED, RELATED
    "status": "u1",
    "provenance": "u1",
    "category": "i4",
    "tags": "i4",  # how many
    "words": "i4",  # how many
    "vectors": "i4",  # how many
    "first_vector": "i4",
    "alive": "?",
}
_DEPRECATED = STATUSES.index(DEPRECATED)


class Lists(Protocol):
    """Posting lists of either form."""

    def of(self, key: str) -> Holding: ...


class Segment:
    """Rows as columns. `grow` makes room; the arrays that callers see end with the last row."""

    def __init__(self, columns: Columns, *, terms: Lists, tags: Lists, vectors: Vectors) -> None:
        self._columns = columns
        self.size = len(columns["seq"])
        self.terms = terms
        self.tags = tags
        self.vectors = vectors
        alive = columns["alive"][: self.size]
        self.living = int(alive.sum())
        self.words = int(columns["words"][: self.size][alive].sum())
        self.unembedded = int((columns["vectors"][: self.size][alive] == 0).sum())

    @classmethod
    def empty(cls, *, terms: Lists, tags: Lists, vectors: Vectors) -> Segment:
        return cls(no_rows(), terms=terms, tags=tags, vectors=vectors)

    def column(self, name: str) -> NDArray[Any]:
        return self._columns[name][: self.size]

    def append(self, values: dict[str, Any]) -> int:
        """Add a living row; returns its place."""
        if self.size == len(self._columns["seq"]):
            for name, old in self._columns.items():
                self._columns[name] = np.concatenate([old, np.zeros(max(64, len(old)), old.dtype)])
        row = self.size
        for name, value in values.items():
            self._columns[name][row] = value
        self._columns["alive"][row] = True
        self.size += 1
        self.living += 1
        self.words += values["words"]
        self.unembedded += values["vectors"] == 0
        return row

    def bury(self, row: int) -> None:
        """A row's memory changed or is gone."""
        columns = self._columns
        if columns["alive"][row]:
            columns["alive"][row] = False
            self.living -= 1
            self.words -= int(columns["words"][row])
            self.unembedded -= int(columns["vectors"][row] == 0)

    # ------------------------------------------------------------------------------------------- which rows

    def pools(self, anchor: Anchor, rows: Rows | slice) -> NDArray[np.int8]:
        """The pool of each row: whether a replacing edge leads out, then the tests of `standing_reason`."""
        if (
            not isinstance(rows, slice) and len(rows) * 4 > self.size
        ):  # all in a row take less time than many apart
            return self.pools(anchor, slice(None))[rows]
        column, at = self.column, anchor.at
        since = column("replaced_since")[rows]
        replaced = since <= at if anchor.past else since != NEVER
        stands = ~column("archived")[rows]
        stands &= column("status")[rows] != _DEPRECATED
        stands &= column("t_valid")[rows] <= at
        stands &= column("t_invalid")[rows] > at
        stands &= column("expires_at")[rows] > at
        if anchor.past:
            stands &= column("created_at")[rows] <= at
        pools = np.where(stands, np.int8(OPEN), np.int8(FALLEN))
        pools[replaced] = LINKED
        return pools

    def fit(self, request: RecallRequest, rows: Rows | slice, *, categories: dict[str, int]) -> Mask:
        """Which rows are alive and match the caller's filters."""
        fit: Mask = self.column("alive")[rows].copy()
        if request.category is not None:
            fit &= self.column("category")[rows] == categories.get(request.category, -1)
        if request.categories:
            wanted = [categories.get(name, -1) for name in request.categories]
            fit &= np.isin(self.column("category")[rows], wanted)
        if request.provenance_class is not None:
            fit &= self.column("provenance")[rows] == PROVENANCE_CLASSES.index(request.provenance_class)
        if request.start is not None:
            fit &= self.column("created_at")[rows] >= request.start
        if request.end is not None:
            fit &= self.column("created_at")[rows] < request.end
        if request.exclude_tags:
            fit &= ~self._any_of(request.exclude_tags)[rows]
        if request.tags or request.tags_match == "exact":
            fit &= self._tagged(request.tags, request.tags_match, rows)
        return fit

    def _tagged(self, tags: Sequence[str], match: str, rows: Rows | slice) -> Mask:
        """`tags_match` as measured on Hindsight (behaviour.md, section 5)."""
        count = self.column("tags")[rows]
        wanted = tuple(dict.fromkeys(tags))
        matched: Mask
        match match:
            case "exact" if not wanted:
                matched = count == 0
            case "any":
                matched = self._any_of(wanted)[rows] | (count == 0)
            case "all":
                matched = self._all_of(wanted)[rows] | (count == 0)
            case "any_strict":
                matched = self._any_of(wanted)[rows]
            case "all_strict":
                matched = self._all_of(wanted)[rows]
            case _:
                matched = self._all_of(wanted)[rows] & (count == len(wanted))
        return matched

    def _any_of(self, tags: Sequence[str]) -> Mask:
        mask = np.zeros(self.size, np.bool_)
        for tag in tags:
            mask[self.tags.of(tag).rows] = True
        return mask

    def _all_of(self, tags: Sequence[str]) -> Mask:
        held = np.zeros(self.size, np.int16)
        for tag in tags:
            held[self.tags.of(tag).rows] += 1
        mask: Mask = held == len(tags)
        return mask

    # ------------------------------------------------------------------------------------------- what rows say

    def facts(self, rows: Rows, workspace: str) -> list[Facts]:
        columns = [self.column(name)[rows].tolist() for name in _OF_FACTS]
        return [
            Facts(
                id_.decode(),
                workspace,
                created_at,
                None if t_valid == ALWAYS else t_valid,
                None if t_invalid == NEVER else t_invalid,
                None if expires_at == NEVER else expires_at,
                STATUSES[status],
                archived,
                False,
                PROVENANCE_CLASSES[provenance],
                seq,
            )
            for id_, created_at, t_valid, t_invalid, expires_at, status, archived, provenance, seq in zip(
                *columns, strict=True
            )
        ]

    def vectors_of(self, rows: Rows) -> NDArray[np.int64]:
        """The places of all vectors of these rows."""
        counts = self.column("vectors")[rows]
        starts: NDArray[np.int64] = self.column("first_vector")[rows].astype(np.int64)
        steps = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
        places: NDArray[np.int64] = np.repeat(starts, counts) + steps
        return places


_OF_FACTS = "id created_at t_valid t_invalid expires_at status archived provenance seq".split()


def no_rows() -> Columns:
    return {name: np.empty(0, kind) for name, kind in COLUMNS.items()}
