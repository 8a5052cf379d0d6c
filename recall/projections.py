"""Projection: what an agent should have before it starts, without a question (rules: domain/projecting.py).

The work is bounded whatever the size of a workspace: as many candidates are graded as the budget may hold, by what the
index knows of their validity; if that was too few, once more `MOST` of them. Of a task, what a recall would consider.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from ledger.domain.instants import UnixMs
from recall import records
from recall.answers import hit_json, outcome_json
from recall.domain.projecting import LISTS, List, base_of, list_of, order, packed, tokens_in
from recall.domain.request import ProjectionRequest, RecallRequest
from recall.domain.state import Anchor
from recall.domain.validity import Lifts
from recall.domain.words import words_of
from recall.indexes import LINKED, Index, Question
from recall.pipeline import (
    Candidate,
    Run,
    anchored,
    fuse,
    hold,
    judge,
    leave_out_the_weak,
    mark_served,
    retrieve,
    timed,
)
from recall.services import embedded, engine_of, installed_index
from recall.strategies import Sighted
from vault.domain.access import scope_of
from vault.queries import memories_by_id, sizes_of
from vault.services import Caller

MOST = 2000  # candidates that hold, and as many others: the most that a pool takes
BRIEF = 10  # tokens of a text so short that a budget rarely holds more of them


def project(asked: ProjectionRequest, *, caller: Caller, surface: str, at: UnixMs) -> dict[str, Any]:
    """What holds, within the token budget, and the record of it; the answer is the JSON of api.md. Raises Refused."""
    request = RecallRequest(
        query=asked.task or "",
        workspace=asked.workspace,
        mode="projection",
        profile="validity",
        query_time_unix_ms=asked.query_time_unix_ms,
        categories=asked.categories,
        max_tokens=asked.max_tokens,
    )
    index, scope = installed_index(), scope_of(asked.workspace, caller.reach)
    anchor = Anchor(*anchored(asked.query_time_unix_ms, now=at))
    timings_us: dict[str, int] = {}
    with timed(timings_us, "embed"):
        ((vector, missing),) = embedded([request])
    with index.opened(scope) as workspaces:
        question = Question(request, scope, workspaces, anchor, tuple(words_of(request.query)), vector)
        run, filled = chosen(question, asked, index, missing=missing, timings_us=timings_us)
    # Current state was decided for all; what the record says of the view is what was asked for.
    run.question = replace(question, request=replace(request, current_only=not asked.include_history))
    return records.write(
        run,
        caller=caller,
        surface=surface,
        at=at,
        engine=engine_of(index),
        answer_of=partial(_answer_json, asked=asked, filled=filled),
        asked=asked.as_dict(),
    )


@dataclass(frozen=True, slots=True)
class Filled:
    """Which list each candidate belongs to, by id, and the tokens that those served take.

    `short`: more candidates might have changed the answer, for some were left and the budget reached beyond `current`.
    """

    lists: dict[str, List]
    spent: int
    short: bool


def chosen(
    question: Question,
    asked: ProjectionRequest,
    index: Index,
    *,
    missing: dict[str, str],
    timings_us: dict[str, int],
) -> tuple[Run, Filled]:
    """The run, out of as many candidates as it takes; where even `MOST` may be too few, it says so."""
    for candidates in (min(MOST, asked.max_tokens // BRIEF), MOST):
        run = Run(question, missing=missing, timings_us=timings_us)
        filled = chosen_from(run, asked, index, candidates=candidates)
        if not filled.short or candidates == MOST:
            break
    if filled.short:
        run.warnings["candidates_cut"] = f"Only the first {MOST:,} were considered; there may be more"
    return run, filled


def chosen_from(run: Run, asked: ProjectionRequest, index: Index, *, candidates: int) -> Filled:
    """Gather, grade, weigh and serve, out of so many candidates of each pool."""
    left_some = gather(run, index, candidates=candidates, include_history=asked.include_history)
    with timed(run.timings_us, "validity"):
        judge(run)
        lists = weighed(run, asked)
    with timed(run.timings_us, "budget"):
        spent = fill(run, lists, budget=asked.max_tokens)
    enough = any(lists.get(c.id) == "current" for c in run.considered.values() if c.verdict == "over_budget")
    return Filled(lists, spent, short=left_some and not enough)


def gather(run: Run, index: Index, *, candidates: int, include_history: bool) -> bool:
    """What the task's words and vector find, and what matches the filters by validity; then its state.

    Gives whether some may have been left that a list could hold.
    """
    question = run.question
    with timed(run.timings_us, "retrieve"):
        if not question.request.by_tag_only:
            retrieve(run, index)
        wide = replace(question, request=replace(question.request, query="", limit=candidates // 5))
        listed = index.by_validity(wide, Lifts.of(run.weights))
        run.found["filters"] = [Sighted(found, 0.0, "matches the filters") for found in listed]
    with timed(run.timings_us, "fuse"):
        fuse(run)
    hold(run, index)
    others = [found for found in listed if not found.open and (include_history or found.pool == LINKED)]
    return max(sum(found.open for found in listed), len(others)) >= wide.pool


def weighed(run: Run, asked: ProjectionRequest) -> dict[str, List]:
    """Score every candidate, and order the pool; gives the list that each candidate belongs to, by id."""
    near = _near(run) if asked.task is not None else {}
    for candidate in run.considered.values():
        place = near.get(candidate.id)
        candidate.base = base_of(place, near=len(near), has_task=asked.task is not None)
        candidate.final = candidate.base * candidate.graded.multiplier
    run.pool.sort(key=lambda c: (c.id not in near, near.get(c.id, 0), -c.graded.multiplier, c.id))
    for rank, candidate in enumerate(run.pool):
        candidate.pool_rank = rank
    lists: dict[str, List] = {}
    for candidate in run.considered.values():
        name = list_of(candidate.graded.grade, candidate.state, include_history=asked.include_history)
        if name is not None:
            lists[candidate.id] = name
    return lists


def _near(run: Run) -> dict[str, int]:
    """What a recall of the task would keep, by id its place: the rest of the pool is not near."""
    pool = run.pool
    leave_out_the_weak(run)
    near = [candidate.id for candidate in run.pool if candidate.fused > 0]
    run.pool = pool
    return {memory_id: place for place, memory_id in enumerate(near)}


def fill(run: Run, lists: Mapping[str, List], *, budget: int) -> int:
    """Serve in order until the budget is full; gives the tokens spent."""

    def place(candidate: Candidate) -> tuple[Any, ...]:
        by_validity = order(
            candidate.final, candidate.graded.multiplier, candidate.facts.created_at, candidate.id
        )
        return LISTS.index(lists[candidate.id]), *by_validity

    offered = sorted((run.considered[memory_id] for memory_id in lists), key=place)
    within_reach = offered[: budget + 1]  # no text takes less than one token
    sizes = sizes_of([candidate.id for candidate in within_reach])
    count, spent = packed((tokens_in(sizes[candidate.id]) for candidate in within_reach), budget=budget)
    for candidate in offered[count:]:
        candidate.verdict, candidate.detail = "over_budget", ""
    run.served = offered[:count]
    run.memories = memories_by_id([candidate.id for candidate in run.served], run.question.workspaces)
    mark_served(run)
    return spent


def _answer_json(run: Run, *, recall_id: str, asked: ProjectionRequest, filled: Filled) -> dict[str, Any]:
    lists = filled.lists
    holding = [candidate for candidate in run.served if lists[candidate.id] != "history"]
    return {
        "recall_id": recall_id,
        "workspace": asked.workspace,
        "anchor_unix_ms": run.question.anchor.at,
        "task": asked.task,
        "outcome": outcome_json(replace(run, served=holding)),
        "tokens": {"budget": asked.max_tokens, "spent": filled.spent},
        **{name: [_hit_json(c, run) for c in run.served if lists[c.id] == name] for name in LISTS},
        "warnings": [{"code": code, "message": text} for code, text in sorted(run.warnings.items())],
    }


def _hit_json(candidate: Candidate, run: Run) -> dict[str, Any]:
    """A hit as a recall tells it, with all of its score, and by what it came: the task, or being there."""
    score = {
        "base": candidate.base,
        "multiplier": candidate.graded.multiplier,
        "final": candidate.final,
    }
    match_type = "task" if run.question.request.query and candidate.base > 0 else "listed"
    if candidate.injected:
        match_type = "state_replacement"
    return {**hit_json(candidate, run), "score": score, "match_type": match_type}
