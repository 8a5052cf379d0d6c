"""A workspace in memory: a base that was read at once, a tail of what changed since, and how far that is.

A small workspace is read from the database into memory. A large one (`FILED` rows) is read from files that all
processes share; the first that finds none writes them.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

import numpy as np

from recall.indexes.resident import files, reading
from recall.indexes.resident.files import Generation
from recall.indexes.resident.nearest import Matrix
from recall.indexes.resident.postings import TailPostings
from recall.indexes.resident.reading import Changed
from recall.indexes.resident.segment import Rows, Segment
from vault.models import EmbeddingModel, Workspace

log = logging.getLogger(__name__)

# Rows from which a workspace is kept as files: processes share them, and scan half as much memory.
FILED = 2_000
# Changes after which a base is read or written anew, or a quarter of its rows if that is more.
LONG_TAIL = 2_000
STEP = 1_000


def long_tail(rows: int) -> int:
    return max(LONG_TAIL, rows // 4)


class Shelf:
    """One workspace as two segments; `catch_up` brings it to the database's present state."""

    def __init__(
        self, workspace: Workspace, model: EmbeddingModel, *, filed: bool = True, patient: bool = True
    ) -> None:
        """Raises Ahead if `patient`."""
        self.workspace = workspace
        self.model = model
        self._filed = filed
        self._read(patient=patient)

    def _read(self, *, patient: bool) -> None:
        """Read the base, from files if the workspace is large, and begin an empty tail."""
        large = self._filed and self.workspace.memories >= FILED
        found = self._from_files(patient=patient) if large else None
        if found is None:
            self.watermark = reading.watermark(self.workspace.pk)
            whole = reading.everything(self.workspace.pk, model_id=self.model.pk)
            vectors = Matrix(self.model.dim)
            taken = 0
            for block in reading.vector_blocks(self.workspace.pk, model_id=self.model.pk, dim=self.model.dim):
                vectors.extend(whole.owners[taken : taken + len(block)], block)
                taken += len(block)
            self.categories = whole.categories
            self.base = Segment(whole.columns, terms=whole.terms, tags=whole.tags, vectors=vectors)
        else:
            self.base, self.categories, self.watermark = found
        self._then = reading.moment(self.workspace.pk)
        self._base_mark = self.watermark
        self._tail_terms, self._tail_tags = TailPostings(), TailPostings()
        self._tail_vectors = Matrix(self.model.dim)
        self.tail = Segment.empty(terms=self._tail_terms, tags=self._tail_tags, vectors=self._tail_vectors)
        self._tail_row: dict[int, int] = {}

    def _from_files(self, *, patient: bool) -> Generation | None:
        """Files that are not too far behind, written now if there are none; None where the disk refuses."""
        found = self._recent(patient=patient)
        if found is not None:
            return found
        try:
            with files.sole_writer(self.workspace):
                found = self._recent(patient=patient)  # by whoever was waited for
                if found is None:
                    files.write(self.workspace, self.model)
                    found = files.newest(self.workspace, self.model, patient=patient)
        except OSError as reason:
            log.warning("index files cannot be written (%s); this process keeps its own index", reason)
        return found

    def _recent(self, *, patient: bool) -> Generation | None:
        found = files.newest(self.workspace, self.model, patient=patient)
        if found is None:
            return None
        behind = reading.outstanding(self.workspace.pk, after=found.watermark)
        return found if behind <= long_tail(found.segment.size) else None

    @property
    def segments(self) -> list[Segment]:
        """Base and tail, as far as there is anything in them."""
        return [segment for segment in (self.base, self.tail) if segment.size]

    @property
    def living(self) -> int:
        return self.base.living + self.tail.living

    @property
    def words(self) -> int:
        return self.base.words + self.tail.words

    @property
    def unembedded(self) -> int:
        return self.base.unembedded + self.tail.unembedded

    def catch_up(self, workspace: Workspace, *, patient: bool = True) -> None:
        """Take in what changed; a database that is not the one this was read from is read anew.

        Raises Ahead if `patient`.
        """
        self.workspace = workspace
        now, same_history = reading.moment_after(self._then, self.workspace.pk)
        present = now.watermark
        if not same_history or self.watermark > present or self._is_worth_reading_anew(present):
            self._read(patient=patient)
        while self.watermark < present:
            changed = reading.changes(
                self.workspace.pk,
                after=self.watermark,
                limit=STEP,
                model_id=self.model.pk,
                dim=self.model.dim,
                categories=self.categories,
            )
            for change in changed:
                self._take(change)
            self.watermark = changed[-1].change
        self._then = now

    def _is_worth_reading_anew(self, present: int) -> bool:
        """The tail is too long; or half as long, and somebody wrote newer files."""
        limit = long_tail(self.base.size)
        if present == self.watermark or self.tail.size <= limit // 2:
            return False
        return self.tail.size > limit or files.newest_mark(self.workspace) > self._base_mark

    def _take(self, change: Changed) -> None:
        self._bury(change.seq)
        if change.values is None:
            return
        first_vector = len(self._tail_vectors.owners)
        row = self.tail.append({**change.values, "first_vector": first_vector})
        if change.vectors is not None:
            self._tail_vectors.add(row, change.vectors)
        for term, count in change.terms:
            self._tail_terms.add(term, row, count)
        for tag in change.tags:
            self._tail_tags.add(tag, row, 1)
        self._tail_row[change.seq] = row

    def _bury(self, seq: int) -> None:
        if seq in self._tail_row:
            self.tail.bury(self._tail_row.pop(seq))
            return
        seqs = self.base.column("seq")
        place = int(np.searchsorted(seqs, seq))
        if place < len(seqs) and seqs[place] == seq:
            self.base.bury(place)

    def places_of(self, seqs: Sequence[int]) -> list[tuple[Segment, Rows, list[int]]]:
        """Living memories as rows: for each segment those it holds, and which of `seqs` they are."""
        wanted = np.array(seqs, np.int64)
        held = self.base.column("seq")
        rows = np.searchsorted(held, wanted)
        there = rows < len(held)
        there[there] = (held[rows[there]] == wanted[there]) & self.base.column("alive")[rows[there]]
        in_base = np.flatnonzero(there)
        in_tail = [which for which, seq in enumerate(seqs) if seq in self._tail_row] if self._tail_row else []
        tail_rows = np.array([self._tail_row[seqs[which]] for which in in_tail], np.int32)
        places = {
            self.base: (rows[in_base].astype(np.int32), in_base.tolist()),
            self.tail: (tail_rows, in_tail),
        }
        return [(segment, *places[segment]) for segment in self.segments]
