"""From a question to ranked hits, in a fixed order of stages, each one line of `run` and one line of the trace.

    retrieve -> fuse -> current state -> rerank -> validity -> limit -> token budget

A stage takes the run, decides about candidates, and leaves on each candidate what it decided and why: the record
stores exactly that. Nothing here reads the clock, except to time the stages, or writes anything.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from ledger.domain.instants import UnixMs
from recall import rerankers
from recall.domain import policy
from recall.domain.fusion import WORTH_KEEPING, Sighting, fused_score, match_score
from recall.domain.policy import Weights
from recall.domain.projecting import tokens_in
from recall.domain.request import RERANKED
from recall.domain.state import (
    CURRENT,
    LONG_CHAIN,
    REASONS,
    Reason,
    State,
    Successions,
    standing_reason,
    state_of,
    states_of,
)
from recall.domain.validity import Validity, grader
from recall.indexes import FALLEN, LINKED, OPEN, Index, Measured, Question, Vector
from recall.rerankers import RerankerUnavailable
from recall.strategies import IN_ORDER, Asking, Sighted, looks_by_meaning, said
from vault.domain.facts import Facts
from vault.domain.links import Edge
from vault.models import Memory
from vault.queries import Chains, chains_from, memories_by_id

FALLEN_FOR: Mapping[Reason | None, State] = {
    reason: CURRENT if reason is None else State(current=False, reason=reason) for reason in (None, *REASONS)
}
# A vector, and the strategies that lack one, with the reason.
Embedded: TypeAlias = tuple[Vector | None, dict[str, str]]
NOTHING_MEASURED = Measured(0.0, (), None)


@dataclass(slots=True)
class Candidate:
    """A memory that was considered: what each stage found, and in the end its one verdict."""

    facts: Facts
    id: str = field(init=False)
    sightings: dict[str, Sighting] = field(default_factory=dict)
    measured: Measured | None = None
    match: float = 0.0  # the fused score without the signals of links and time
    fused: float = 0.0
    pool: int = OPEN
    state: State = CURRENT
    replaces: list[str] = field(default_factory=list)
    came_by: Edge | None = None
    injected: bool = False
    reranked: float | None = None
    validity: Validity | None = None
    base: float = 0.0
    final: float = 0.0
    pool_rank: int | None = None  # its place after current state, from 0
    position: int | None = None  # its place in the answer, from 1
    verdict: str = "below_limit"
    detail: str = ""

    def __post_init__(self) -> None:
        self.id = self.facts.id  # asked for thousands of times in a recall

    @property
    def graded(self) -> Validity:
        assert self.validity is not None, "the validity stage grades every candidate"
        return self.validity


@dataclass(slots=True)
class Run:
    """One recall under way. `pool` is what still may be served, in order; `considered` is everything ever seen."""

    question: Question
    weights: Weights = policy.DEFAULT
    considered: dict[str, Candidate] = field(default_factory=dict)
    pool: list[Candidate] = field(default_factory=list)
    served: list[Candidate] = field(default_factory=list)
    memories: dict[str, Memory] = field(default_factory=dict)
    found: dict[str, list[Sighted]] = field(default_factory=dict)
    measured: dict[str, Measured] = field(default_factory=dict)
    pending: Callable[[], Embedded] | None = (
        None  # how to come by the question's vector, where it is still made
    )
    missing: dict[str, str] = field(default_factory=dict)  # a strategy that could not look, and why
    unembedded: int = 0
    reranked: bool = False
    outside_filters: set[str] = field(default_factory=set)
    warnings: dict[str, str] = field(default_factory=dict)
    timings_us: dict[str, int] = field(default_factory=dict)
    strategy_us: dict[str, int] = field(default_factory=dict)

    def widened(self) -> Run:
        """The same question begun anew with larger pools."""
        return Run(
            self.question.widened(),
            self.weights,
            missing=self.missing,
            timings_us=self.timings_us,
            strategy_us=self.strategy_us,
        )

    @property
    def suppressed(self) -> list[Candidate]:
        return [c for c in self.considered.values() if c.verdict in ("suppressed", "replaced_by")]

    @property
    def injected(self) -> list[Candidate]:
        return [c for c in self.considered.values() if c.injected]


def run(
    question: Question,
    *,
    index: Index,
    weights: Weights = policy.DEFAULT,
    pending: Callable[[], Embedded] | None = None,
) -> Run:
    """Answer a question; the caller holds the index open around it. `pending` gives the question's vector.

    One that asks for a reranker is answered only when the index has been let go, by `rerank_and_finish`.
    """
    return settle(gather(Run(question, weights, pending=pending), index), index)


def run_together(runs: Sequence[Run], *, index: Index) -> list[Run]:
    """Answer several questions like `run`. Their chains of replacements are walked together: once for each instant
    that links are seen at."""
    for run in runs:
        find(run, index)
    by_instant: dict[UnixMs | None, list[Run]] = {}
    for run in runs:
        by_instant.setdefault(run.question.anchor.until, []).append(run)
    for members in by_instant.values():
        chains = chains_of(members)
        for run in members:
            hold(run, index, chains)
    return [settle(run, index) for run in runs]


def settle(run: Run, index: Index) -> Run:
    """What needs the index held open: the last candidates, and every text that may be served."""
    while _short_of_candidates(run):
        run = gather(run.widened(), index)
    _stage(run, "state", lambda: leave_out_the_weak(run))
    if not run.question.request.rerank:
        return finish(run)
    _stage(run, "rerank", lambda: read_ahead(run))
    return run


def rerank_and_finish(runs: Sequence[Run]) -> None:
    """The rest for those that asked for a reranker. It takes its time, so nobody holds the index meanwhile; and one
    that failed is not asked again for these questions."""
    failure = ""
    for run in runs:
        if not run.question.request.rerank:
            continue
        with timed(run.timings_us, "rerank"):
            failure = failure or rerank(run)
        if failure and run.pool:
            run.warnings["rerank_unavailable"] = f"The reranker gave no scores, so none count: {failure}"
        finish(run)


def finish(run: Run) -> Run:
    """The stages from an ordered pool to hits."""
    _stage(run, "validity", lambda: judge(run))
    _stage(run, "limit", lambda: cut(run))
    _stage(run, "budget", lambda: pack(run))
    return run


def gather(run: Run, index: Index) -> Run:
    """The stages that bring candidates and leave those that hold."""
    find(run, index)
    hold(run, index)
    return run


def find(run: Run, index: Index) -> None:
    _stage(run, "retrieve", lambda: retrieve(run, index))
    _stage(run, "fuse", lambda: fuse(run))


def hold(run: Run, index: Index, chains: Chains | None = None) -> None:
    """Current state. `chains` are those of its candidates, where they were walked already."""
    _stage(run, "state", lambda: keep_what_holds(run, index, chains_of([run]) if chains is None else chains))


def _short_of_candidates(run: Run) -> bool:
    """The limit is not reached although linked ones were cut off, which may stand or bring in what does."""
    request = run.question.request
    if not request.current_only or len(run.pool) >= request.limit:
        return False
    return any(
        sum(sighted.found.pool == LINKED for sighted in found) >= run.question.pool
        for found in run.found.values()
    )


def _stage(run: Run, name: str, stage: Callable[[], None]) -> None:
    with timed(run.timings_us, name):
        stage()


@contextmanager
def timed(timings_us: dict[str, int], name: str) -> Iterator[None]:
    started = time.perf_counter_ns()
    yield
    timings_us[name] = timings_us.get(name, 0) + (time.perf_counter_ns() - started) // 1000


# --------------------------------------------------------------------------------------------------- retrieve


def retrieve(run: Run, index: Index) -> None:
    """Ask each strategy for its candidates; an empty query lists what matches the filters."""
    question = run.question
    if question.request.by_tag_only:
        run.found["filters"] = [Sighted(f, 0.0, "matches the filters") for f in index.by_filters(question)]
        return
    asking = Asking(question, index)
    for name, strategy in IN_ORDER.items():
        if name in question.request.strategies:
            if name in ("dense", "links"):
                asking.question = await_vector(run)
            if name not in run.missing:
                with timed(run.strategy_us, name):
                    asking.found[name] = strategy(asking)
    run.found, run.measured = asking.found, asking.measured()
    if looks_by_meaning(question.request.strategies) and not run.missing:
        run.unembedded = index.unembedded(question)


def await_vector(run: Run) -> Question:
    """Take the question's vector, which was made while its words were looked up; gives the question that has it."""
    if run.pending is not None:
        waited: dict[str, int] = {}
        with timed(waited, "embed"):
            vector, missing = run.pending()
        run.question, run.pending = replace(run.question, vector=vector), None
        run.missing |= missing
        for stage, us in (("embed", waited["embed"]), ("retrieve", -waited["embed"])):
            run.timings_us[stage] = run.timings_us.get(stage, 0) + us
    return run.question


# --------------------------------------------------------------------------------------------------- fuse


def fuse(run: Run) -> None:
    """One list out of all strategies': by fused score, ties by id; without words, in the order listed."""
    request, considered = run.question.request, run.considered
    for strategy, found in run.found.items():
        for rank, sighted in enumerate(found, start=1):
            hit = sighted.found
            candidate = considered.get(hit.facts.id)
            if candidate is None:
                measured = run.measured.get(hit.facts.id)
                candidate = considered[hit.facts.id] = Candidate(hit.facts, measured=measured, pool=hit.pool)
            reason = said(sighted, candidate.measured or NOTHING_MEASURED)
            candidate.sightings[strategy] = Sighting(rank, sighted.score, reason)
    weights = request.strategy_weights
    for candidate in considered.values():
        words, _, cosine = candidate.measured or NOTHING_MEASURED
        candidate.match = match_score(ran=run.found, words=words, cosine=cosine, weights=weights)
        candidate.fused = fused_score(
            candidate.sightings,
            ran=run.found,
            match=candidate.match,
            method=request.fusion,
            weights=weights,
        )
    run.pool = list(run.considered.values())
    if not request.by_tag_only:
        run.pool.sort(key=lambda c: (-c.fused, c.id))


# --------------------------------------------------------------------------------------------------- state


def chains_of(runs: Sequence[Run]) -> Chains:
    """The chains behind the candidates that a replacing edge leaves, of questions that see the same links."""
    linked = {c.id for run in runs for c in run.pool if c.pool == LINKED}
    return chains_from(linked, until=runs[0].question.anchor.until) if linked else Chains((), {})


def keep_what_holds(run: Run, index: Index, chains: Chains) -> None:
    """Take out what is not current, and put what replaced it in its place (behaviour.md, section 3)."""
    successions = _resolve(run, chains)
    replacements = {c.state.replacement_id for c in run.pool if c.state.replacement_id is not None}
    allowed = index.matching(run.question, replacements)
    run.outside_filters = replacements - allowed
    if run.question.request.current_only:
        _suppress(run, chains, successions, allowed)
    _sort_as_asked(run)
    for rank, candidate in enumerate(run.pool):
        candidate.pool_rank = rank


def _resolve(run: Run, chains: Chains) -> Successions:
    """The state of every candidate: an open one is current, and a fallen one is what its own fields say."""
    anchor = run.question.anchor
    linked = [c for c in run.pool if c.pool == LINKED]
    successions = Successions(chains.edges, anchor)
    states = states_of((c.id for c in linked), chains.facts, successions, anchor)
    for candidate in linked:
        candidate.state = states[candidate.id]
        _warn_of_state(run, candidate)
    for candidate in run.pool:
        if candidate.pool == FALLEN:
            candidate.state = FALLEN_FOR[standing_reason(candidate.facts, anchor)]
    return successions


def _suppress(run: Run, chains: Chains, successions: Successions, allowed: set[str]) -> None:
    anchor = run.question.anchor
    places: dict[str, int] = {c.id: place for place, c in enumerate(run.pool) if c.state.current}
    for place, old in enumerate(list(run.pool)):
        state = old.state
        if state.current:
            continue
        old.verdict, old.detail = "suppressed", state.reason or ""
        if state.reason == "archived" or state.replacement_id is None or state.replacement_id not in allowed:
            continue
        new = run.considered.get(state.replacement_id)
        if new is None:
            new_state = state_of(state.replacement_id, chains.facts, successions, anchor)
            new = Candidate(chains.facts[state.replacement_id], state=new_state, injected=True, pool=LINKED)
        if not new.state.current:
            continue
        run.considered[new.id] = new
        _put_in_place(old, new, place, places)
    run.pool = sorted((run.considered[id_] for id_ in places), key=lambda c: (places[c.id], c.id))


def _put_in_place(old: Candidate, new: Candidate, place: int, places: dict[str, int]) -> None:
    """The better of the two places counts, and the score that goes with it."""
    old.verdict, old.detail = "replaced_by", new.id
    new.replaces.append(old.id)
    if new.came_by is None:
        new.came_by = old.state.edge
    if place < places.get(new.id, place + 1):
        places[new.id] = place
        new.fused = old.fused


def leave_out_the_weak(run: Run) -> None:
    """Where validity will decide the order: leave out what matches less than half as well as the best that holds.

    A base by rank makes much of noise: out of sixty, the thirtieth counts half, and comes before a good match that is
    a month older. Only meaning and words together tell noise. What links brought in, or holds every word of the
    question, is none; and a replacement is as good as what it replaced.
    """
    request = run.question.request
    if not (request.reorders and request.fusion == "score" and request.current_only):
        return
    if not {"lexical", "dense"} <= run.found.keys():
        return
    stood_for = {c.id: [c, *(run.considered[old] for old in c.replaces)] for c in run.pool}
    matches = {id_: max(c.match for c in same) for id_, same in stood_for.items()}
    least = WORTH_KEEPING * max(matches.values(), default=0.0)
    kept: list[Candidate] = []
    for candidate in run.pool:
        if matches[candidate.id] >= least or any(_no_noise(c, run) for c in stood_for[candidate.id]):
            candidate.pool_rank = len(kept)
            kept.append(candidate)
        else:
            candidate.pool_rank = None
            candidate.verdict, candidate.detail = "filtered", "matches less than half as well as the best"
    run.pool = kept


def _no_noise(candidate: Candidate, run: Run) -> bool:
    _, held, _ = candidate.measured or NOTHING_MEASURED
    return len(held) == len(run.question.words) or "links" in candidate.sightings


def _sort_as_asked(run: Run) -> None:
    sort = run.question.request.sort
    if sort != "score":
        sign = 1 if sort == "time_asc" else -1
        run.pool.sort(key=lambda c: (sign * c.facts.created_at, c.id))


def _warn_of_state(run: Run, candidate: Candidate) -> None:
    state = candidate.state
    if state.ignored is not None:
        run.warnings["supersession_cycle"] = "Replacing links form a cycle; its oldest link was ignored"
    if state.steps > LONG_CHAIN:
        run.warnings["chain_too_long"] = f"A chain of more than {LONG_CHAIN} replacements was walked"


# --------------------------------------------------------------------------------------------------- rerank


def read_ahead(run: Run) -> None:
    """Texts for the reranker, and for the answer if it fails: from the same state of the database as the pool."""
    run.memories = memories_by_id([c.id for c in run.pool], run.question.workspaces)


def rerank(run: Run) -> str:
    """Let the reranker order the first candidates, all on its scale; or, if it fails, none: then gives back why."""
    first, rest = run.pool[:RERANKED], run.pool[RERANKED:]
    if not first:
        return ""
    try:
        scores = rerankers.scores(run.question.request.query, [run.memories[c.id].text for c in first])
    except RerankerUnavailable as error:
        return str(error)
    for candidate, score in zip(first, scores, strict=True):
        candidate.reranked = score
    for candidate in rest:
        candidate.detail = f"beyond the {RERANKED} that were reranked"
    run.pool = first if run.question.request.sort != "score" else sorted(first, key=_by_reranker)
    run.reranked = True
    return ""


def _by_reranker(candidate: Candidate) -> tuple[float, str]:
    return -(candidate.reranked or 0.0), candidate.id


# --------------------------------------------------------------------------------------------------- validity


def judge(run: Run) -> None:
    """Grade every candidate; under the validity profile in fused mode, order the pool by base × multiplier."""
    request, at = run.question.request, run.question.anchor.at
    graded = grader(at=at, workspace=request.workspace, weights=run.weights)
    for candidate in run.considered.values():
        candidate.validity = graded(candidate.facts, candidate.state)
    size = len(run.pool)
    for rank, candidate in enumerate(run.pool):
        if request.reorders:
            candidate.base = (size - rank) / size if candidate.reranked is None else candidate.reranked
            candidate.final = candidate.base * candidate.graded.multiplier
        else:
            score = candidate.fused if candidate.reranked is None else candidate.reranked
            candidate.base = candidate.final = score
    if request.reorders:
        run.pool.sort(key=lambda c: (-c.final, c.id))


# --------------------------------------------------------------------------------------------------- limit, budget


def cut(run: Run) -> None:
    """Serve the first `limit`; the rest stays on record as below it."""
    run.served = run.pool[: run.question.request.limit]
    if not run.question.request.rerank:  # those were read ahead
        run.memories = memories_by_id([c.id for c in run.served], run.question.workspaces)


def pack(run: Run) -> None:
    """Serve in order until the token budget is full; never skip to a shorter one further down."""
    budget = run.question.request.max_tokens
    spent = 0
    for place, candidate in enumerate(run.served):
        spent += tokens_of(run.memories[candidate.id].text)
        if budget is not None and spent > budget:
            for left_out in run.served[place:]:
                left_out.verdict = "over_budget"
            run.served = run.served[:place]
            break
    mark_served(run)


def mark_served(run: Run) -> None:
    """Number what is served, and say what is odd about it."""
    for position, candidate in enumerate(run.served, start=1):
        candidate.position, candidate.verdict, candidate.detail = position, "served", ""
        if candidate.state.inactive:
            run.warnings["replacement_inactive"] = (
                "A hit was replaced by something that is itself not current"
            )


def tokens_of(text: str) -> int:
    """An estimate, without a model's tokenizer."""
    return tokens_in(len(text.encode()))


def anchored(given: UnixMs | None, *, now: UnixMs) -> tuple[UnixMs, bool]:
    """The anchor, and whether it lies in the past (a default anchor never does)."""
    return (now, False) if given is None else (given, given < now)
