"""Which vectors lie nearest: a fast scan proposes, exact arithmetic decides.

Vectors are half-precision, and so is the query. The product of two halves is a multiple of 2^-48, so a sum of some
hundreds of them fits a double without rounding: the cosine of a pair is exact, the same in whatever order, block or
thread it was summed. The scan (single precision, or bytes) only proposes, and proves that it left nothing out: it knows
below which cosine everything lies that it did not propose.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

ROUNDING = 1e-4  # far above that of a single-precision sum of some hundreds of products
SPARE = 32
BLOCK = 4_096  # vectors made double at once: a bound on memory
Half = NDArray[np.float16]


class Near(NamedTuple):
    """Rows with the exact cosine of their best vector, in no order."""

    rows: NDArray[np.int32]
    cosines: NDArray[np.float64]

    def where(self, mask: NDArray[np.bool_]) -> Near:
        return Near(self.rows[mask], self.cosines[mask])


class Proposed(NamedTuple):
    """Places of vectors that a scan proposes; what it left out has a cosine of `bound` at the most (None: nothing)."""

    places: NDArray[np.int64]
    bound: float | None


Scan = Callable[[NDArray[np.bool_], int], Proposed]


class Vectors(Protocol):
    """The vectors of a segment, each of one row; a row may have several (chunks) or none."""

    @property
    def owners(self) -> NDArray[np.int32]:
        """The row of each vector."""
        ...

    def scan(self, query: Half) -> Scan:
        """How to propose the nearest `k` among eligible rows."""
        ...

    def above(self, query: Half, floor: float) -> NDArray[np.int64]:
        """The places of all vectors whose cosine is `floor` or more, and of some a little below."""
        ...

    def at(self, places: NDArray[np.int64]) -> NDArray[np.float64]:
        """The vectors at these places, in double precision."""
        ...


def nearest(
    vectors: Vectors, scan: Scan, query: Half, *, eligible: NDArray[np.bool_], k: int, floor: float
) -> Near:
    """At least the `k` eligible rows nearest to the query (all that tie with the last), none below `floor`."""
    fetch = k + SPARE
    while True:
        tried = attempt(vectors, scan, query, eligible=eligible, fetch=fetch, floor=floor)
        certain = int((tried.near.cosines > tried.bound).sum())
        if tried.complete or certain >= k:
            return tried.near
        fetch *= 4


class Attempt(NamedTuple):
    """What one scan gave: what it left out lies at `bound` or below; `complete`: nothing above the floor."""

    near: Near
    bound: float
    complete: bool


def attempt(
    vectors: Vectors, scan: Scan, query: Half, *, eligible: NDArray[np.bool_], fetch: int, floor: float
) -> Attempt:
    """The rows among some proposals, none below `floor`, and what that says of the rest."""
    proposed = scan(eligible, fetch)
    near = best_of_each_row(vectors, proposed.places, query)
    near = near.where(near.cosines >= floor)
    if proposed.bound is None:
        return Attempt(near, floor, complete=True)
    return Attempt(near, proposed.bound, complete=proposed.bound < floor)


def within(vectors: Vectors, query: Half, *, floor: float) -> Near:
    """All rows whose cosine is `floor` or more."""
    near = best_of_each_row(vectors, vectors.above(query, floor), query)
    return Near(near.rows[near.cosines >= floor], near.cosines[near.cosines >= floor])


def best_of_each_row(vectors: Vectors, places: NDArray[np.int64], query: Half) -> Near:
    """The rows that own these vectors, each with the exact cosine of its best."""
    rows = vectors.owners[places]
    asked = query.astype(np.float64)
    blocks = [vectors.at(places[start : start + BLOCK]) @ asked for start in range(0, len(places), BLOCK)]
    cosines = np.concatenate(blocks) if blocks else np.empty(0)
    order = np.lexsort((-cosines, rows))
    rows, cosines = rows[order], cosines[order]
    first = np.ones(len(rows), np.bool_)
    first[1:] = rows[1:] != rows[:-1]
    return Near(rows[first], cosines[first])


def cosines_of(vectors: Vectors, places: NDArray[np.int64], query: Half) -> dict[int, float]:
    """The exact cosine of each row that owns one of these vectors: its best."""
    near = best_of_each_row(vectors, places, query)
    return dict(zip(near.rows.tolist(), near.cosines.tolist(), strict=True))


def best(scores: NDArray[np.float32], k: int) -> NDArray[np.int64]:
    """The places of the `k` highest scores, best first."""
    if k < len(scores):
        places = np.argpartition(-scores, k - 1)[:k]
    else:
        places = np.arange(len(scores))
    return places[np.argsort(-scores[places], kind="stable")]


class Matrix:
    """Vectors in memory that may grow: every cosine is computed."""

    def __init__(self, dim: int) -> None:
        self._vectors = np.empty((0, dim), np.float32)  # what is half-precision is single-precision too
        self._owners = np.empty(0, np.int32)
        self._held = 0

    @property
    def owners(self) -> NDArray[np.int32]:
        return self._owners[: self._held]

    def add(self, row: int, vectors: Half) -> None:
        self.extend(np.full(len(vectors), row, np.int32), vectors)

    def extend(self, owners: NDArray[np.int32], vectors: Half) -> None:
        needed = self._held + len(vectors)
        if needed > len(self._vectors):
            size = max(needed, 2 * self._held)
            self._vectors = _grown(self._vectors, size, self._held)
            self._owners = _grown(self._owners, size, self._held)
        self._vectors[self._held : needed] = vectors
        self._owners[self._held : needed] = owners
        self._held = needed

    def scan(self, query: Half) -> Scan:
        scores = self._vectors[: self._held] @ query.astype(np.float32)

        def propose(eligible: NDArray[np.bool_], k: int) -> Proposed:
            places = np.flatnonzero(eligible[self.owners])
            if len(places) <= k:
                return Proposed(places, None)
            chosen = places[best(scores[places], k)]
            return Proposed(chosen, float(scores[chosen[-1]]) + ROUNDING)

        return propose

    def above(self, query: Half, floor: float) -> NDArray[np.int64]:
        scores = self._vectors[: self._held] @ query.astype(np.float32)
        return np.flatnonzero(scores >= floor - ROUNDING)

    def at(self, places: NDArray[np.int64]) -> NDArray[np.float64]:
        return self._vectors[places].astype(np.float64)


def _grown(old: NDArray[Any], size: int, held: int) -> NDArray[Any]:
    new = np.empty((size, *old.shape[1:]), old.dtype)
    new[:held] = old[:held]
    return new
