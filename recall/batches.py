"""Several questions at once: each answered on its own terms and recorded by itself; on request, one answer of theirs.

What can be shared is: one call of the embedder, one transaction for all records, and for each ten questions one state
of database and index, and one walk over the chains of all that see the same links.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from ledger.domain.instants import UnixMs
from ledger.domain.refusals import located
from recall import records
from recall.domain.fusion import Sighting
from recall.domain.merging import Merged, merged
from recall.domain.request import BatchRequest, RecallRequest
from recall.domain.state import Anchor
from recall.domain.words import words_of
from recall.indexes import Index, Question
from recall.pipeline import Candidate, Run, anchored, rerank_and_finish, run_together, timed
from recall.records import Draft
from recall.services import embedded, engine_of, installed_index, require_runnable
from vault.domain.access import Scope, scope_of
from vault.services import Caller

TURN = 10  # questions at a time: others wait for the index meanwhile
SHOWN = 1000  # characters of the questions that stand in a list of records


def recall_batch(batch: BatchRequest, *, caller: Caller, surface: str, at: UnixMs) -> dict[str, Any]:
    """Answer every question, or refuse the whole batch before anything is recorded. Raises Refused."""
    scopes = []
    for number, request in enumerate(batch.queries):
        with located(f"queries.{number}"):
            require_runnable(request)
            scopes.append(scope_of(request.workspace, caller.reach))
    index, scope = installed_index(), _union(scopes)
    runs = _answered(batch.queries, scopes, scope, index=index, at=at)
    draft = partial(records.draft, caller=caller, surface=surface, at=at, engine=engine_of(index))
    members = [draft(run) for run in runs]
    if not batch.fuse:
        return {"answers": records.keep(members)}
    whole = fused(batch, runs, scope, at=at)
    answer_of = partial(_fused_json, members=members)
    return records.keep([*members, draft(whole, answer_of=answer_of, asked=batch.as_dict())])[-1]


def _union(scopes: Sequence[Scope]) -> Scope:
    names: set[str] = set()
    for scope in scopes:
        if scope.workspaces is None:
            return scope
        names |= {*scope.workspaces}
    return Scope(tuple(sorted(names)))


def _answered(
    queries: Sequence[RecallRequest], scopes: Sequence[Scope], union: Scope, *, index: Index, at: UnixMs
) -> list[Run]:
    """Each question over its own workspaces and at its own anchor; without one, all at the same instant."""
    timings_us: dict[str, int] = {}
    with timed(timings_us, "embed"):
        vectors = embedded(queries)
    runs: list[Run] = []
    asked = list(zip(queries, scopes, vectors, strict=True))
    for start in range(0, len(asked), TURN):
        with index.opened(union) as workspaces:
            begun = []
            for request, scope, (vector, missing) in asked[start : start + TURN]:
                homes = tuple(workspace for workspace in workspaces if scope.covers(workspace.name))
                anchor = Anchor(*anchored(request.query_time_unix_ms, now=at))
                question = Question(request, scope, homes, anchor, tuple(words_of(request.query)), vector)
                begun.append(Run(question, missing=missing))
            runs += run_together(begun, index=index)
    rerank_and_finish(runs)
    for run in runs:
        run.timings_us = timings_us | run.timings_us
    return runs


# ---------------------------------------------------------------------------------------------------- one answer


def fused(batch: BatchRequest, runs: Sequence[Run], scope: Scope, *, at: UnixMs) -> Run:
    """One run out of several finished ones: whatever they served, by one reciprocal rank fusion.

    A memory stands on the terms of the first question that served it; that another one suppressed it, at another
    anchor say, takes nothing away.
    """
    whole = Run(Question(_request_of(batch), scope, (), _anchor_of(runs, at)))
    with timed(whole.timings_us, "fuse"):
        for place, one in enumerate(merged([[c.id for c in run.served] for run in runs])):
            run = runs[min(one.ranks)]
            whole.considered[one.id] = _candidate(run.considered[one.id], one, place)
            whole.memories[one.id] = run.memories[one.id]
        whole.pool = list(whole.considered.values())
        whole.served = whole.pool[: batch.limit]
        for position, candidate in enumerate(whole.served, start=1):
            candidate.position, candidate.verdict = position, "served"
        for run in reversed(runs):
            whole.warnings |= run.warnings
    return whole


def _request_of(batch: BatchRequest) -> RecallRequest:
    """What a list of records says of the whole batch: where its questions agree, that."""
    text = " · ".join(dict.fromkeys(request.query for request in batch.queries if not request.by_tag_only))
    workspaces = {request.workspace for request in batch.queries}
    return RecallRequest(
        query=text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}…",
        workspace=workspaces.pop() if len(workspaces) == 1 else None,
        limit=batch.limit,
        mode="batch",
        current_only=all(request.current_only for request in batch.queries),
    )


def _anchor_of(runs: Sequence[Run], at: UnixMs) -> Anchor:
    """The anchor of all questions if they have one, else now: the members' records tell theirs."""
    anchors = {run.question.anchor for run in runs}
    return anchors.pop() if len(anchors) == 1 else Anchor(at)


def _candidate(served: Candidate, one: Merged, place: int) -> Candidate:
    """A memory as one question served it, with its place among all: `base` is its score there."""
    return replace(
        served,
        sightings={str(n): Sighting(rank, served.final, f"query {n}") for n, rank in one.ranks.items()},
        fused=one.score,
        base=served.final,
        final=one.score,
        pool_rank=place,
        position=None,
        verdict="below_limit",
    )


def _fused_json(run: Run, *, recall_id: str, members: Sequence[Draft]) -> dict[str, Any]:
    """The fused answer: each hit as its first query told it, with its own rank, score and sources."""
    told: dict[str, dict[str, Any]] = {}
    for member in members:
        for hit in member.answer["results"]:
            told.setdefault(hit["memory"]["id"], hit)
    return {
        "recall_id": recall_id,
        "queries": [member.answer["recall_id"] for member in members],
        "mode": "batch",
        "anchor_unix_ms": run.question.anchor.at,
        "outcome": _outcome([member.answer["outcome"] for member in members], run.served),
        "count": len(run.served),
        "results": [
            {
                **told[c.id],
                "rank": c.position,
                "score": {"base": c.base, "final": c.final},
                "sources": {number: sighting.rank for number, sighting in c.sightings.items()},
            }
            for c in run.served
        ],
        "warnings": [{"code": code, "message": text} for code, text in sorted(run.warnings.items())],
    }


def _outcome(members: Sequence[Mapping[str, Any]], served: Sequence[Candidate]) -> dict[str, Any]:
    """The first that holds of unavailable (to every query), partial (to any), empty, stale, fresh."""
    unseen = [(n, one) for n, one in enumerate(members) if one["status"] in ("partial", "unavailable")]
    if unseen:
        blind = all(one["status"] == "unavailable" for one in members)
        reason = "; ".join(f"query {n}: {one['reason']}" for n, one in unseen)
        return {"status": "unavailable" if blind else "partial", "reason": reason}
    if not served:
        return {"status": "empty", "reason": "no query served anything"}
    if not any(candidate.graded.grade == "valid" for candidate in served):
        return {"status": "stale", "reason": "no hit is graded valid"}
    return {"status": "fresh", "reason": None}
