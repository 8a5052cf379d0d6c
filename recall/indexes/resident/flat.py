"""Vectors in a file that processes share, scanned by faiss: what serves a large workspace.

Up to `SKETCHED` vectors the scan reads every half-precision vector (exact). Above, it reads one bit a dimension
(RaBitQ: Gao and Long, 2024) and proposes many more than wanted; their true vectors decide. A sketch depends on its
vector alone (nothing is trained on the others), so the same vectors give the same proposals, whenever they were
indexed.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recall.indexes.resident.nearest import ROUNDING, Half, Proposed, Scan

SKETCHED = 250_000
OVERSAMPLED = 32  # of a million real vectors, .995 of the nearest ten were among the proposals; with 16, .989
QUERY_BITS = 4  # a fifth faster than 8 on a million, and as good
SKETCH_ERROR = 0.1  # three standard deviations of a sketch's estimate at 384 dimensions
VECTORS, SKETCHES = "vectors.faiss", "sketches.faiss"


def _faiss() -> Any:
    import faiss  # only where a workspace is large: it costs 45 MB

    faiss.omp_set_num_threads(1)  # spinning threads would slow everything beside them
    return faiss


def write(folder: Path, blocks: Iterable[NDArray[np.float32]], *, dim: int) -> None:
    """Write the scan files of vectors that come in blocks, in the order of their owners."""
    faiss = _faiss()
    full = faiss.IndexScalarQuantizer(dim, faiss.ScalarQuantizer.QT_fp16, faiss.METRIC_INNER_PRODUCT)
    sketch = faiss.IndexRaBitQ(dim, faiss.METRIC_INNER_PRODUCT)
    sketch.train(np.zeros((1, dim), np.float32))
    for block in blocks:
        full.add(block)
        sketch.add(block)
    try:
        faiss.write_index(full, str(folder / VECTORS))
        if full.ntotal > SKETCHED:
            faiss.write_index(sketch, str(folder / SKETCHES))
    except RuntimeError as error:  # faiss knows no other: the disk is full, say
        raise OSError(str(error)) from error


class Flat:
    """The scan files, mapped; raises RuntimeError where they are not what was written."""

    def __init__(self, folder: Path, owners: NDArray[np.int32]) -> None:
        faiss = _faiss()
        self._owners = owners
        self._full = faiss.read_index(str(folder / VECTORS), faiss.IO_FLAG_MMAP_IFC)
        sketches = folder / SKETCHES
        self._sketch = faiss.read_index(str(sketches), faiss.IO_FLAG_MMAP_IFC) if sketches.exists() else None
        if self._full.ntotal != len(owners) or (self._sketch and self._sketch.ntotal != len(owners)):
            raise RuntimeError(f"{folder.name} holds another number of vectors than of owners")
        self.exact = self._sketch is None
        self.slack = ROUNDING if self.exact else SKETCH_ERROR
        self._halves = self._mapped_halves(faiss)
        self._one_each = bool((owners == np.arange(len(owners))).all())

    def _mapped_halves(self, faiss: Any) -> NDArray[np.float16]:
        codes, count = self._full.codes, len(self._owners)
        if not count:
            return np.empty((0, self._full.d), np.float16)
        halves: NDArray[np.float16] = faiss.rev_swig_ptr(codes.data(), codes.size()).view(np.float16)
        return halves.reshape(count, -1)

    @property
    def owners(self) -> NDArray[np.int32]:
        return self._owners

    def scan(self, query: Half) -> Scan:
        faiss = _faiss()
        asked = query.astype(np.float32)[None]

        def propose(eligible: NDArray[np.bool_], k: int) -> Proposed:
            among = eligible[: len(self.owners)] if self._one_each else eligible[self.owners]
            count = int(np.count_nonzero(among))
            wanted = k if self._sketch is None else k * OVERSAMPLED
            if count <= wanted:  # to look at them is less work than to scan for them
                return Proposed(np.flatnonzero(among), None)
            selector = None
            if count < len(among):
                bits = np.packbits(among, bitorder="little")
                selector = faiss.IDSelectorBitmap(len(among), faiss.swig_ptr(bits))
            if self._sketch is None:
                index, how = self._full, faiss.SearchParameters(sel=selector)
            else:
                index, how = self._sketch, faiss.RaBitQSearchParameters(sel=selector, qb=QUERY_BITS)
            scores, places = index.search(asked, wanted, params=how)
            return Proposed(places[0], float(scores[0, -1]))

        return propose

    def above(self, query: Half, floor: float) -> NDArray[np.int64]:
        _faiss()
        _, _, places = self._full.range_search(query.astype(np.float32)[None], floor - ROUNDING)
        return np.sort(places)

    def at(self, places: NDArray[np.int64]) -> NDArray[np.float64]:
        vectors: NDArray[np.float64] = self._halves[places].astype(np.float64)
        return vectors
