"""Vectors in files that processes share: whole ones (half precision), and a byte a dimension for faiss to scan.

A scan takes its time for reading, and bytes are half as long as halves. They only propose: how far vector and query lie
from their bytes says how far a score may lie from the cosine, so that a scan knows what it may have left out, and the
whole vectors decide. Whatever the size of a workspace, the answer is exact.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.format import header_data_from_array_1_0, write_array_header_1_0
from numpy.typing import NDArray

from recall.indexes.resident.nearest import BLOCK, ROUNDING, Half, Proposed, Scan

CODES = 127  # the bytes reach from -127 to 127
DOUBTED = 5  # how many times what is wanted a scan fetches: some lie nearer than their bytes say
HEADER = 128  # bytes of an .npy file before its array
VECTORS, BYTES, SCALES = "vectors.npy", "bytes.faiss", "scales.npy"


def load_library() -> None:
    _faiss()


def _faiss() -> Any:
    import faiss  # only where a workspace is large: it costs 45 MB

    faiss.omp_set_num_threads(1)  # spinning threads would slow everything beside them
    return faiss


def write(folder: Path, blocks: Iterable[NDArray[np.float16]], *, count: int, dim: int) -> None:
    """Write the files of `count` vectors that come in blocks, in the order of their owners."""
    faiss = _faiss()
    highest = np.zeros(dim, np.float32)
    with (folder / VECTORS).open(
        "wb"
    ) as file:  # not through a map, which ends the process where the disk is full
        header = header_data_from_array_1_0(np.empty((0, dim), np.float16))
        write_array_header_1_0(file, {**header, "shape": (count, dim)})
        for block in blocks:
            file.write(block.tobytes())
            highest = np.maximum(highest, np.abs(block.astype(np.float32)).max(axis=0, initial=0))
    halves = _halves(folder)
    scales = np.where(highest > 0, highest / CODES, 1).astype(np.float32)
    codes = faiss.IndexScalarQuantizer(
        dim, faiss.ScalarQuantizer.QT_8bit_direct_signed, faiss.METRIC_INNER_PRODUCT
    )
    furthest = longest = 0.0
    for start in range(0, len(halves), BLOCK):
        block = halves[start : start + BLOCK].astype(np.float32)
        code = np.rint(block / scales)
        away = np.linalg.norm(block.astype(np.float64) - code.astype(np.float64) * scales, axis=1)
        furthest = max(furthest, float(away.max()))
        longest = max(longest, float(np.linalg.norm(code, axis=1).max()))
        codes.add(code)
    np.save(folder / SCALES, np.array([*scales, furthest, longest]))
    try:
        faiss.write_index(codes, str(folder / BYTES))
    except RuntimeError as error:  # faiss knows no other: the disk is full, say
        raise OSError(str(error)) from error


def _halves(folder: Path) -> NDArray[np.float16]:
    empty = (folder / VECTORS).stat().st_size <= HEADER
    return np.asarray(
        np.load(folder / VECTORS, mmap_mode=None if empty else "r")
    )  # no bytes cannot be mapped


class Asked(NamedTuple):
    """A query as bytes; what one of their product counts as a cosine, and how far that may lie from the true one."""

    code: NDArray[np.float32]
    unit: float
    slack: float  # by Cauchy and Schwarz


class Flat:
    """The files, mapped; raises RuntimeError where they are not what was written."""

    def __init__(self, folder: Path, owners: NDArray[np.int32]) -> None:
        faiss = _faiss()
        self._owners = owners
        self._halves = _halves(folder)
        self._codes = faiss.read_index(str(folder / BYTES), faiss.IO_FLAG_MMAP_IFC)
        told = np.load(folder / SCALES)
        if not len(owners) == len(self._halves) == self._codes.ntotal or len(told) != self._codes.d + 2:
            raise RuntimeError(f"{folder.name} holds another number of vectors than of owners")
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
        return Asked(code.astype(np.float32)[None], unit, by_query + by_vector + ROUNDING)

    def scan(self, query: Half) -> Scan:
        faiss = _faiss()
        asked, unit, slack = self._asked(query)

        def propose(eligible: NDArray[np.bool_], k: int) -> Proposed:
            among = eligible[: len(self.owners)] if self._one_each else eligible[self.owners]
            count = int(np.count_nonzero(among))
            wanted = k * DOUBTED
            if count <= wanted:  # to look at them is less work than to scan for them
                return Proposed(np.flatnonzero(among), None)
            how = None
            if count < len(among):
                bits = np.packbits(among, bitorder="little")
                how = faiss.SearchParameters(sel=faiss.IDSelectorBitmap(len(among), faiss.swig_ptr(bits)))
            (scores,), (places,) = self._codes.search(asked, wanted, params=how)
            cosines = scores.astype(np.float64) * unit
            certain = float(cosines[k - 1]) - slack  # what the first k reach
            if cosines[-1] + slack < certain:
                return Proposed(places[cosines + slack >= certain], certain)
            return Proposed(places, float(cosines[-1]) + slack)

        return propose

    def above(self, query: Half, floor: float) -> NDArray[np.int64]:
        asked, unit, slack = self._asked(query)
        _, _, places = self._codes.range_search(asked, (floor - slack) / unit)
        return np.sort(places)

    def at(self, places: NDArray[np.int64]) -> NDArray[np.float64]:
        vectors: NDArray[np.float64] = self._halves[places].astype(np.float64)
        return vectors
