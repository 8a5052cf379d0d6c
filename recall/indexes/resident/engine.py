"""Search over resident workspaces: exact BM25 and exact cosines, with filters and state tested on columns.

The words are scored as SQLite's own bm25() scores them (k1 = 1.2, b = 0.75), from posting lists that come out of its
index: same terms, same counts, same scores. Everything is summed in one order, so the same database gives the same
answer, whether it was read at once or has caught up change by change.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from django.db import connection
from numpy.typing import NDArray

from ledger.domain.instants import UnixMs
from recall.domain.fusion import BM25_SCALE, idf
from recall.domain.validity import Lifts
from recall.domain.words import worth_asking
from recall.indexes import FALLEN, LINKED, OPEN, Found, Measured, Question, Submit, Vector, pools_of, sqlite
from recall.indexes.resident import nearest
from recall.indexes.resident.files import Ahead
from recall.indexes.resident.flat import Flat, Scores
from recall.indexes.resident.nearest import Near
from recall.indexes.resident.postings import Holding
from recall.indexes.resident.segment import REPLACED, Rows, Segment
from recall.indexes.resident.shelf import Shelf
from vault import vectors
from vault.domain.access import Scope
from vault.domain.facts import ASSERTED, PROVENANCE_CLASSES, Facts
from vault.fulltext import TOKENIZER, terms_of_word
from vault.models import Workspace
from vault.queries import snapshot, workspaces_in

K1, B = 1.2, 0.75
LOOKED_AT_MOST = 30_000
HEAD = 16  # pools: so many of the best matches are looked at before the others


class ResidentIndex:
    """One per process. Questions take turns: an index changes only between two of them."""

    version = f"resident bm25({K1}, {B}) {TOKENIZER}"

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._kept: dict[int, Shelf] = {}
        self._open: dict[int, Shelf] = {}
        self._asked: dict[tuple[int, tuple[str, ...]], Asked] = {}
        self._scored: dict[int, Future[Scored | None]] = {}

    @contextmanager
    def opened(self, scope: Scope) -> Iterator[tuple[Workspace, ...]]:
        """Hold one state of database and index.

        Inside somebody's transaction, what is read may still be rolled back: then nothing of it is kept.
        """
        kept = not connection.in_atomic_block
        with self._turn:
            patient = True
            while True:
                with snapshot():
                    workspaces = tuple(workspaces_in(scope))
                    if self._caught_up(workspaces, kept=kept, patient=patient):
                        try:
                            yield workspaces
                        except Exception:
                            self._kept.clear()  # whatever failed, it may be what was kept: read it anew
                            raise
                        return
                patient = False  # files that were ahead of the last snapshot must not be ahead of the next

    def _caught_up(self, workspaces: Sequence[Workspace], *, kept: bool, patient: bool) -> bool:
        """False: there are files that are ahead of the caller's snapshot."""
        model = vectors.known_model() or vectors.NO_MODEL
        self._open = self._kept if kept else {}
        self._asked, self._scored = {}, {}
        try:
            for workspace in workspaces:
                shelf = self._open.get(workspace.pk)
                if shelf is None or shelf.model != model:
                    shelf = self._open[workspace.pk] = Shelf(workspace, model, filed=kept, patient=patient)
                shelf.catch_up(workspace, patient=patient)
        except Ahead:
            return False
        return True

    def look_ahead(self, question: Question, vector: Callable[[], Vector | None], submit: Submit) -> None:
        """Scan the files of large workspaces while the words are looked up."""
        if question.request.sort != "score":
            return
        for shelf in self._shelves(question):
            if isinstance(shelf.base.vectors, Flat):
                self._scored[shelf.workspace.pk] = submit(partial(_scored, shelf.base.vectors, vector))

    def _scores(self, shelf: Shelf, segment: Segment, question: Question) -> Scores | None:
        """What a scan ahead found, if there was one for this vector."""
        if segment is not shelf.base or shelf.workspace.pk not in self._scored:
            return None
        scored = self._scored[shelf.workspace.pk].result()
        return None if scored is None or scored.vector is not question.vector else scored.scores

    def unembedded(self, question: Question) -> int:
        return sum(shelf.unembedded for shelf in self._shelves(question))

    def _shelves(self, question: Question) -> list[Shelf]:
        return [self._open[workspace.pk] for workspace in question.workspaces]

    def _asked_of(self, shelf: Shelf, question: Question) -> Asked:
        """The question's words in a workspace: looked up once while the index is open."""
        known = (shelf.workspace.pk, question.words)
        if known not in self._asked:
            self._asked[known] = _asked(shelf, question.words)
        return self._asked[known]

    # ------------------------------------------------------------------------------------------- strategies

    def lexical(self, question: Question) -> list[Found]:
        found: list[Found] = []
        for shelf in self._shelves(question):
            asked = self._asked_of(shelf, question)
            for place, segment in enumerate(shelf.segments):
                rows, scores = _matches(segment, place, asked)
                found += _best_pooled(shelf, segment, rows, question, scores=scores)
        return pools_of(found, question)

    def dense(self, question: Question, *, floor: float) -> list[Found]:
        found: list[Found] = []
        for shelf in self._shelves(question):
            for segment in shelf.segments:
                scores = self._scores(shelf, segment, question)
                found += _nearest(shelf, segment, question, floor, scores)
        return pools_of(found, question)

    def by_time(self, question: Question, start: UnixMs | None, end: UnixMs | None) -> list[Found]:
        found: list[Found] = []
        for shelf in self._shelves(question):
            for segment in shelf.segments:
                found += _pooled(shelf, segment, None, question, scores=-_distance(segment, start, end))
        return pools_of(found, question)

    def by_filters(self, question: Question) -> list[Found]:
        found: list[Found] = []
        for shelf in self._shelves(question):
            for segment in shelf.segments:
                found += _pooled(shelf, segment, None, question, scores=None)
        return pools_of(found, question, by_time=True)

    def by_validity(self, question: Question, lifts: Lifts) -> list[Found]:
        found: list[Found] = []
        for shelf in self._shelves(question):
            exact = lifts.exact_scope if shelf.workspace.name == question.request.workspace else 0.0
            for segment in shelf.segments:
                scores = _lifted(segment, question.anchor.at, lifts) + exact
                found += _pooled(shelf, segment, None, question, scores=scores)
        return pools_of(found, question)

    def standing(self, question: Question, seqs: Sequence[int]) -> list[Found]:
        found: list[Found] = []
        for shelf in self._shelves(question):
            for segment, rows, _ in shelf.places_of(seqs):
                rows = rows[segment.fit(question.request, rows, categories=shelf.categories)]
                pools = segment.pools(question.anchor, rows)
                found += _found(shelf, segment, rows, question, np.zeros(len(rows)), pools)
        return found

    def measured(self, question: Question, candidates: Sequence[Facts]) -> dict[str, Measured]:
        measured: dict[str, Measured] = {}
        for shelf in self._shelves(question):
            asked = self._asked_of(shelf, question)
            here = [facts for facts in candidates if facts.workspace == shelf.workspace.name]
            for place, (segment, rows, which) in enumerate(shelf.places_of([facts.seq for facts in here])):
                lexical, matched = _word_scores(segment, place, rows, asked)
                cosines = _cosines(segment, rows, question)
                for n, score, words, cosine in zip(which, lexical, matched, cosines, strict=True):
                    measured[here[n].id] = Measured(score, words, cosine)
        return measured

    def matching(self, question: Question, ids: Iterable[str]) -> set[str]:
        return sqlite.matching(question, ids)


# ------------------------------------------------------------------------------------------------- pools


def _pooled(
    shelf: Shelf,
    segment: Segment,
    rows: Rows | None,
    question: Question,
    *,
    scores: NDArray[Any] | None,
) -> list[Found]:
    """Of rows that matched (None: all), those that fit the caller's filters, each pool cut to its size by what it is
    sorted by."""
    among = slice(None) if rows is None else rows
    fit = np.flatnonzero(segment.fit(question.request, among, categories=shelf.categories))
    rows = fit.astype(np.int32) if rows is None else rows[fit]
    if not len(rows):
        return []
    by_score = scores is not None and question.request.sort == "score"
    scores = np.zeros(len(rows)) if scores is None else scores[fit]
    created = segment.column("created_at")[rows]
    keys = -scores if by_score else created if question.request.sort == "time_asc" else -created
    pools = segment.pools(question.anchor, rows)
    chosen = _drawn(segment, rows, keys, pools, question, by_score=by_score)
    return _found(shelf, segment, rows[chosen], question, scores[chosen], pools[chosen])


def _drawn(
    segment: Segment,
    rows: Rows,
    keys: NDArray[Any],
    pools: NDArray[np.int8],
    question: Question,
    *,
    by_score: bool,
) -> NDArray[np.int64]:
    """The places of the first of each pool by their keys; by score, the doubtful end where a full open pool does."""
    if not question.request.current_only:
        return _first(segment, rows, keys, question.pool)
    drawn: list[NDArray[np.int64]] = []
    last = None
    for pool in (OPEN, LINKED, FALLEN):
        members = np.flatnonzero(pools == pool if last is None else (pools == pool) & (keys <= last))
        drawn.append(members[_first(segment, rows[members], keys[members], question.pool)])
        if pool == OPEN and by_score and len(drawn[0]) == question.pool:
            last = keys[drawn[0][-1]]
    return np.concatenate(drawn)


def _best_pooled(
    shelf: Shelf, segment: Segment, rows: Rows, question: Question, *, scores: NDArray[np.float64]
) -> list[Found]:
    """The same, looking at the best first: they nearly always fill the open pool, and then nothing below them counts.
    Testing filters and state of every match would take longer than finding them."""
    head = HEAD * question.pool
    if len(rows) > 2 * head and question.request.current_only and question.request.sort == "score":
        best = np.flatnonzero(scores >= np.partition(scores, -head)[-head])
        found = _pooled(shelf, segment, rows[best], question, scores=scores[best])
        if sum(hit.open for hit in found) >= question.pool:
            return found
    return _pooled(shelf, segment, rows, question, scores=scores)


def _first(segment: Segment, rows: Rows, keys: NDArray[Any], k: int) -> NDArray[np.int64]:
    """The places of the `k` rows that come first by their keys, ties by id."""
    places = np.arange(len(rows))
    if k < len(rows):
        places = np.flatnonzero(keys <= np.partition(keys, k - 1)[k - 1])
    order = np.lexsort((segment.column("id")[rows[places]], keys[places]))
    return places[order][:k]


def _found(
    shelf: Shelf,
    segment: Segment,
    rows: Rows,
    question: Question,
    scores: NDArray[Any],
    pools: NDArray[np.int8],
) -> list[Found]:
    facts = segment.facts(rows, shelf.workspace.name)
    counts = REPLACED if question.request.current_only else 0
    joined = (segment.column("joined")[rows] > counts).tolist()
    return [Found(*one) for one in zip(facts, scores.tolist(), pools.tolist(), joined, strict=True)]


# ------------------------------------------------------------------------------------------------- words


class Term(NamedTuple):
    """A term of the question: the word as it was written, its weight (idf), and who holds it, segment by segment."""

    word: str
    weight: float
    held: tuple[Holding, ...]


@dataclass(frozen=True, slots=True)
class Asked:
    """A question's words as one workspace knows them: those worth asking, and what a whole match would score."""

    terms: tuple[Term, ...]
    scale: float
    mean_words: float

    def weights(self, counts: NDArray[Any], words: NDArray[Any], weight: float) -> NDArray[np.float64]:
        """What a term adds to the score of texts that hold it `counts` times in `words` words (bm25):

        weight · frequency · (K1 + 1) / (frequency + K1 · (1 - B + B · words / mean)), in place, without copies.
        """
        scores = counts.astype(np.float64)
        below: NDArray[np.float64] = B * words
        below /= self.mean_words
        below += 1 - B
        below *= K1
        below += scores
        scores *= K1 + 1
        scores /= below
        scores *= weight
        return scores


def _asked(shelf: Shelf, words: Sequence[str]) -> Asked:
    """The question's words as terms of this workspace: the frequent ones dropped, the rest weighed."""
    segments = list(shelf.segments)
    spelt: dict[str, str] = {}
    for word in words:
        for term in terms_of_word(word):
            spelt.setdefault(term, word)
    held = {term: tuple(segment.terms.of(term) for segment in segments) for term in spelt}
    holding = {
        term: sum(_living(segment, rows) for segment, (rows, _) in zip(segments, held[term], strict=True))
        for term in spelt
    }
    living = shelf.living
    terms = tuple(
        Term(spelt[term], idf(living, holding[term]), held[term]) for term in worth_asking(holding, living)
    )
    scale = BM25_SCALE * sum(term.weight for term in terms)
    return Asked(terms, scale, shelf.words / living if living else 0.0)


def _living(segment: Segment, rows: Rows) -> int:
    if segment.living == segment.size:
        return len(rows)
    return int(np.count_nonzero(segment.column("alive")[rows]))


def _matches(segment: Segment, place: int, asked: Asked) -> tuple[Rows, NDArray[np.float64]]:
    """Every row that holds one of the words, with its score as a share of the question's information."""
    scores = np.zeros(segment.size)
    words = segment.column("words")
    for term in asked.terms:
        rows, counts = term.held[place]
        np.add.at(scores, rows, asked.weights(counts, words.take(rows), term.weight))
    rows = np.flatnonzero(scores != 0).astype(np.int32)  # of numbers it would take five times as long
    return rows, scores[rows] / asked.scale if asked.terms else scores[rows]


def _word_scores(
    segment: Segment, place: int, rows: Rows, asked: Asked
) -> tuple[list[float], list[tuple[str, ...]]]:
    """The same score for given rows, and the words each of them holds."""
    scores = np.zeros(len(rows))
    words = segment.column("words")[rows]
    matched: list[tuple[str, ...]] = [()] * len(rows)
    for word, weight, held in asked.terms:
        holders, counts = held[place]
        if not len(holders):
            continue
        at = np.minimum(np.searchsorted(holders, rows), len(holders) - 1)
        there = np.flatnonzero(holders[at] == rows)
        scores[there] += asked.weights(counts[at[there]], words[there], weight)
        for n in there.tolist():
            if word not in matched[n]:
                matched[n] = (*matched[n], word)
    if asked.terms:
        scores /= asked.scale
    return scores.tolist(), matched


# ------------------------------------------------------------------------------------------------- vectors


class Scored(NamedTuple):
    """What a scan of a workspace's file gave for a vector."""

    vector: Vector
    scores: Scores


def _scored(vectors: Flat, awaited: Callable[[], Vector | None]) -> Scored | None:
    vector = awaited()
    return None if vector is None else Scored(vector, vectors.scores(vector))


def _nearest(
    shelf: Shelf, segment: Segment, question: Question, floor: float, scores: Scores | None
) -> list[Found]:
    """The nearest rows of each pool. One scan brings all of them, unless what is nearest hardly ever stands."""
    vector = question.vector
    if vector is None or not len(segment.vectors.owners):
        return []
    vectors, size = segment.vectors, question.pool
    if question.request.sort != "score":  # the newest of all that are near, not the nearest by age
        return _newest_near(shelf, segment, question, vector, floor)
    fit = segment.fit(question.request, slice(None), categories=shelf.categories)
    scan = vectors.scan(vector, scores) if isinstance(vectors, Flat) else vectors.scan(vector)

    def found(near: Near) -> list[Found]:
        pools = segment.pools(question.anchor, near.rows)
        chosen = _drawn(segment, near.rows, -near.cosines, pools, question, by_score=True)
        return _found(shelf, segment, near.rows[chosen], question, near.cosines[chosen], pools[chosen])

    if not question.request.current_only:
        return found(nearest.nearest(vectors, scan, vector, eligible=fit, k=size, floor=floor))
    tried = nearest.attempt(vectors, scan, vector, eligible=fit, fetch=2 * size, floor=floor)
    pools = segment.pools(question.anchor, tried.near.rows)
    stand = np.count_nonzero((pools == OPEN) & (tried.near.cosines > tried.bound))
    if tried.complete or stand >= size:
        return found(tried.near)
    pools = segment.pools(question.anchor, slice(None))
    return [
        hit
        for pool in (OPEN, LINKED, FALLEN)
        for hit in found(
            nearest.nearest(vectors, scan, vector, eligible=fit & (pools == pool), k=size, floor=floor)
        )
    ]


def _newest_near(
    shelf: Shelf, segment: Segment, question: Question, vector: Vector, floor: float
) -> list[Found]:
    """Of each pool the newest (or oldest) rows that are near, whatever is nearer and further away in time."""
    fit = segment.fit(question.request, slice(None), categories=shelf.categories)
    rows = np.flatnonzero(fit & (segment.column("vectors") > 0)).astype(np.int32)
    pools = segment.pools(question.anchor, rows)
    if not question.request.current_only:
        pools[:] = OPEN  # all in one
    found: list[Found] = []
    for pool in (OPEN, LINKED, FALLEN):
        members = rows[pools == pool]
        near = _first_near(segment, members, question, vector, floor)
        found += _pooled(shelf, segment, near.rows, question, scores=near.cosines)
    return found


def _first_near(segment: Segment, rows: Rows, question: Question, vector: Vector, floor: float) -> Near:
    """At least the first `pool` of these rows by time that are near; a look at few is mostly enough."""
    created = segment.column("created_at")[rows]
    keys = created if question.request.sort == "time_asc" else -created
    looked = 8 * question.pool
    while True:
        chosen = rows[_first(segment, rows, keys, looked)]
        near = nearest.best_of_each_row(segment.vectors, segment.vectors_of(chosen), vector)
        near = near.where(near.cosines >= floor)
        if len(near.rows) >= question.pool or looked >= len(rows):
            return near
        if looked > LOOKED_AT_MOST:  # so few are near that a scan finds them faster
            near = nearest.within(segment.vectors, vector, floor=floor)
            return near.where(np.isin(near.rows, rows))
        looked *= 8


def _cosines(segment: Segment, rows: Rows, question: Question) -> list[float | None]:
    """The exact cosine of each row; None: it has no vector, or the question none."""
    if question.vector is None or not len(segment.vectors.owners):
        return [None] * len(rows)
    known = nearest.cosines_of(segment.vectors, segment.vectors_of(rows), question.vector)
    return [known.get(row) for row in rows.tolist()]


def _distance(segment: Segment, start: UnixMs | None, end: UnixMs | None) -> NDArray[np.int64]:
    """How far each row was written from a span of time, in ms; 0 within."""
    created = segment.column("created_at")
    distance = np.zeros(segment.size, np.int64)
    if start is not None:
        distance = np.maximum(distance, start - created)
    if end is not None:
        distance = np.maximum(distance, created - (end - 1))
    return distance


_ASSERTED = [PROVENANCE_CLASSES.index(name) for name in sorted(ASSERTED)]


def _lifted(segment: Segment, at: UnixMs, lifts: Lifts) -> NDArray[np.float64]:
    """When each row was written, moved by what speaks for or against it beside its age."""
    written: NDArray[np.float64] = np.minimum(segment.column("created_at"), at).astype(np.float64)
    written += np.where(np.isin(segment.column("provenance"), _ASSERTED), lifts.asserted, 0.0)
    left = np.minimum(segment.column("t_invalid"), segment.column("expires_at")) - at
    written += np.where((left >= 1) & (left <= lifts.half_life), lifts.expiring, 0.0)
    return written
