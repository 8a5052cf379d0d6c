"""Posting lists: for each key (a term, a tag) the rows that hold it, and how often.

Two forms with one look-up. `Postings` is made once, in one pass, and is nothing but arrays, so that it can be a file
that several processes share. `TailPostings` grows row by row.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

CHUNK = 4_000_000  # occurrences put together at once while building: a bound on memory


class Holding(NamedTuple):
    """The rows that hold a key, ascending, and how often each does."""

    rows: NDArray[np.int32]
    counts: NDArray[np.uint16]


NOTHING = Holding(np.empty(0, np.int32), np.empty(0, np.uint16))


@dataclass(frozen=True, slots=True)
class Postings:
    """Keys in byte order, each with its slice of `rows` and `counts`."""

    keys: NDArray[np.uint8]  # the keys' UTF-8, one after the other
    key_ends: NDArray[np.int64]
    ends: NDArray[np.int64]
    rows: NDArray[np.int32]
    counts: NDArray[np.uint16]

    def of(self, key: str) -> Holding:
        place = self._place(key.encode())
        if place is None:
            return NOTHING
        start = int(self.ends[place - 1]) if place else 0
        end = int(self.ends[place])
        return Holding(self.rows[start:end], self.counts[start:end])

    def _place(self, wanted: bytes) -> int | None:
        low, high = 0, len(self.key_ends)
        while low < high:
            middle = (low + high) // 2
            if self._key(middle) < wanted:
                low = middle + 1
            else:
                high = middle
        return low if low < len(self.key_ends) and self._key(low) == wanted else None

    def _key(self, place: int) -> bytes:
        start = int(self.key_ends[place - 1]) if place else 0
        return self.keys[start : int(self.key_ends[place])].tobytes()

    def occurrences(self, rows: int) -> NDArray[np.int32]:
        """For each row, how many occurrences of all keys it holds."""
        return np.bincount(self.rows, weights=self.counts, minlength=rows).astype(np.int32)


def built(groups: Iterable[tuple[str, str, int]], seqs: NDArray[np.int64]) -> Postings:
    """Posting lists out of (key, memories' seqs with commas between, how many): one seq an occurrence.

    `seqs` are the rows' seqs, ascending; occurrences in other memories are left out.
    """
    keys: list[bytes] = []
    ends: list[NDArray[np.int64]] = []
    rows: list[NDArray[np.int32]] = []
    counts: list[NDArray[np.uint16]] = []
    held = 0
    for names, texts, sizes in _chunks(groups):
        keys += names
        occurring = np.fromstring(",".join(texts), dtype=np.int64, sep=",")
        part = _counted(np.repeat(np.arange(len(names)), sizes), occurring, seqs)
        rows.append(part.rows)
        counts.append(part.counts)
        ends.append(held + np.cumsum(part.per_key))
        held += len(part.rows)
    if any(one >= other for one, other in pairwise(keys)):
        raise ValueError("keys must come in byte order, each once")
    return Postings(
        np.frombuffer(b"".join(keys), np.uint8),
        np.cumsum([len(key) for key in keys], dtype=np.int64),
        np.concatenate(ends) if ends else np.empty(0, np.int64),
        np.concatenate(rows) if rows else NOTHING.rows,
        np.concatenate(counts) if counts else NOTHING.counts,
    )


class _Part(NamedTuple):
    rows: NDArray[np.int32]
    counts: NDArray[np.uint16]
    per_key: NDArray[np.int64]


def _chunks(groups: Iterable[tuple[str, str, int]]) -> Iterator[tuple[list[bytes], list[str], list[int]]]:
    names: list[bytes] = []
    texts: list[str] = []
    sizes: list[int] = []
    gathered = 0
    for key, occurring, size in groups:
        names.append(key.encode())
        texts.append(occurring)
        sizes.append(size)
        gathered += size
        if gathered > CHUNK:
            yield names, texts, sizes
            names, texts, sizes, gathered = [], [], [], 0
    if names:
        yield names, texts, sizes


def _counted(key_of: NDArray[np.int64], occurring: NDArray[np.int64], seqs: NDArray[np.int64]) -> _Part:
    """Occurrences (key, seq) as rows with counts, by key, then row."""
    keys = int(key_of[-1]) + 1
    row_of = np.searchsorted(seqs, occurring)
    there = row_of < len(seqs)
    there[there] = seqs[row_of[there]] == occurring[there]
    pair = np.sort((key_of[there] << 32) | row_of[there])
    pairs, counts = np.unique(pair, return_counts=True)
    per_key = np.bincount(pairs >> 32, minlength=keys)
    rows = (pairs & 0xFFFFFFFF).astype(np.int32)
    return _Part(rows, np.minimum(counts, 0xFFFF).astype(np.uint16), per_key)


class TailPostings:
    """Posting lists that grow: rows come in ascending order."""

    def __init__(self) -> None:
        self._held: dict[str, tuple[array[int], array[int]]] = {}

    def add(self, key: str, row: int, count: int) -> None:
        rows, counts = self._held.setdefault(key, (array("i"), array("H")))
        rows.append(row)
        counts.append(min(count, 0xFFFF))

    def of(self, key: str) -> Holding:
        """A copy: the arrays may not grow while somebody looks into them."""
        if key not in self._held:
            return NOTHING
        rows, counts = self._held[key]
        return Holding(np.array(rows, np.int32), np.array(counts, np.uint16))
