"""Vectors in files that processes share: whole ones (half precision), and a byte a dimension to scan.

A scan takes its time for reading, and bytes are half as long as halves. They only propose: how far vector and query lie
from their bytes says how far a score may lie from the cosine, so that a scan knows what it may have left out, and the
whole vectors decide. Whatever the size of a workspace, the answer is exact.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any, NamedTuple

import numkong
import numpy as np
from numpy.lib.format import header_data_from_array_1_0, write_array_header_1_0
from numpy.typing import NDArray

from recall.indexes.resident.nearest import BLOCK, ROUNDING, Half, Proposed, Scan

CODES = 127  # the bytes reach from -127 to 127
DOUBTED = 5  # how many times what is wanted a scan proposes: some lie nearer than their bytes say
RANKS = 64  # a scan's scores are laid out in so many ranks; the best of each file along them is a peak
VECTORS, BYTES, SCALES = "vectors.npy", "bytes.npy", "scales.npy"
Scores = NDArray[np.float32]


def write(folder: Path, blocks: Iterable[NDArray[np.float16]], *, count: int, dim: int) -> None:
    """Write the files of `count` vectors that come in blocks, in the order of their owners."""
    highest = np.zeros(dim, np.float32)
    # Not through a map, which ends the process where the disk is full.
    with (folder / VECTORS).open("wb") as file:
        _write_header(file, np.float16, (count, dim))
        for block in blocks:
            file.write(block.tobytes())
            highest = np.maximum(highest, np.abs(block.astype(np.float32)).max(axis=0, initial=0))
    halves = _mapped(folder / VECTORS)
    scales = np.where(highest > 0, highest / CODES, 1).astype(np.float32)
    furthest = longest = 0.0
    with (folder / BYTES).open("wb") as file:
        _write_header(file, np.int8, (count, dim))
        for start in range(0, len(halves), BLOCK):
            block = halves[start : start + BLOCK].astype(np.float32)
            code = np.rint(block / scales)
            away = np.linalg.norm(block.astype(np.float64) - code.astype(np.float64) * scales, axis=1)
            furthest = max(furthest, float(away.max()))
            longest = max(longest, float(np.linalg.norm(code, axis=1).max()))
            file.write(code.astype(np.int8).tobytes())
    np.save(folder / SCALES, np.array([*scales, furthest, longest]))


def _write_header(file: IO[bytes], dtype: Any, shape: tuple[int, int]) -> None:
    header = header_data_from_array_1_0(np.empty((0, shape[1]), dtype))
    write_array_header_1_0(file, {**header, "shape": shape})


def _mapped(path: Path) -> NDArray[Any]:
    """A file's array, as a plain one; no bytes cannot be mapped."""
    with path.open("rb") as file:
        empty = 0 in _shape(file)
    return np.asarray(np.load(path, mmap_mode=None if empty else "r"))


def _shape(file: IO[bytes]) -> tuple[int, ...]:
    np.lib.format.read_magic(file)
    shape, _, _ = np.lib.format.read_array_header_1_0(file)
    return shape


class Asked(NamedTuple):
    """A query as bytes; what one of their product counts as a cosine, and how far that may lie from the true one."""

    code: NDArray[np.int8]
    unit: float
    slack: float  # by Cauchy and Schwarz


class Flat:
    """The files, mapped; raises ValueError where they are not what was written."""

    def __init__(self, folder: Path, owners: NDArray[np.int32]) -> None:
        self._owners = owners
        self._halves = _mapped(folder / VECTORS)
        self._bytes = _mapped(folder / BYTES)
        told = np.load(folder / SCALES)
        if not len(owners) == len(self._halves) == len(self._bytes) or len(told) != self._bytes.shape[1] + 2:
            raise ValueError(f"{folder.name} holds another number of vectors than of owners")
        self._scales, self._furthest, self._longest = told[:-2], float(told[-2]), float(told[-1])
        self._one_each = bool((owners == np.arange(len(owners))).all())

    @property
    def owners(self) -> NDArray[np.int32]:
        return self._owners

    def _asked(self, query: Half) -> Asked:
        whole = query.astype(np.float64)
        weighed = whole * self._scales
        unit = float(np.abs(weighed).max(initial=0)) / CODES or 1.0
        code = np.rint(weighed / unit)
        by_query = float(np.linalg.norm(weighed - code * unit)) * self._longest
        by_vector = float(np.linalg.norm(whole)) * self._furthest
        return Asked(code.astype(np.int8), unit, by_query + by_vector + ROUNDING)

    def scores(self, query: Half) -> Scores:
        """The product of the query's bytes with those of each vector.

        It reads all of the file without holding the interpreter's lock: other threads go on meanwhile.
        """
        if not len(self._bytes):
            return np.empty(0, np.float32)
        code = self._asked(query).code
        products: Scores = np.asarray(numkong.cdist(code[None], self._bytes, "dot", out_dtype="float32"))[0]
        return products

    def scan(self, query: Half, scores: Scores | None = None) -> Scan:
        _, unit, slack = self._asked(query)
        every = self.scores(query) if scores is None else scores

        def propose(eligible: NDArray[np.bool_], k: int) -> Proposed:
            among = eligible[: len(self.owners)] if self._one_each else eligible[self.owners]
            count = int(np.count_nonzero(among))
            wanted = k * DOUBTED
            if count <= wanted:  # to look at them is less work than to choose among them
                return Proposed(np.flatnonzero(among), None)
            scores = every if count == len(among) else np.where(among, every, np.float32(-np.inf))
            least = _least_of_the_best(scores, wanted)
            places = np.flatnonzero(scores >= least)
            cosines = scores[places].astype(np.float64) * unit
            certain = float(np.partition(cosines, -k)[-k]) - slack  # what the first k reach
            bound = float(least) * unit + slack
            if bound < certain:
                return Proposed(places[cosines + slack >= certain], certain)
            return Proposed(places, bound)

        return propose

    def above(self, query: Half, floor: float) -> NDArray[np.int64]:
        _, unit, slack = self._asked(query)
        return np.flatnonzero(self.scores(query) >= (floor - slack) / unit)

    def at(self, places: NDArray[np.int64]) -> NDArray[np.float64]:
        vectors: NDArray[np.float64] = self._halves[places].astype(np.float64)
        return vectors


def _least_of_the_best(scores: Scores, wanted: int) -> np.float32:
    """A score that at least `wanted` reach, and not many more: found among the peaks, which are few."""
    files = len(scores) // RANKS
    if files >= wanted:
        peaks = scores[: files * RANKS].reshape(RANKS, files).max(axis=0)
        least = np.float32(np.partition(peaks, -wanted)[-wanted])
        if least > -np.inf:
            return least
    return np.float32(np.partition(scores, -wanted)[-wanted])
