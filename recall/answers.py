"""Answers: a finished run, and the things of the vault and the ledger, as the JSON of api.md."""

from __future__ import annotations

from typing import Any

from ledger.domain.context import tags_in
from ledger.domain.events import CONTEXT_ADDED
from ledger.domain.instants import UnixMs, format_instant
from ledger.models import ContextEvent
from recall.domain.fusion import CHANCE, MEANING, RRF_K, SIGNALS, WORTH_KEEPING
from recall.domain.policy import NAME
from recall.domain.state import State
from recall.domain.validity import GRADES
from recall.pipeline import Candidate, Run
from vault.domain.access import Reach
from vault.models import Memory, MemoryLink

_INSTANTS = ("created_at", "updated_at", "t_valid", "t_invalid", "expires_at", "verified_at")


def memory_json(
    memory: Memory, state: State | None = None, *, hide: frozenset[str] = frozenset()
) -> dict[str, Any]:
    """A memory as the API shows it; `state` where it was decided. `hide` holds ids that must not be named."""
    shown: dict[str, Any] = {
        "id": memory.id,
        "version": memory.version,
        "text": memory.text,
        "workspace": memory.workspace.name,
        "tags": memory.tag_names,
        "category": memory.category,
        "provenance_class": memory.provenance_class,
        "status": memory.status,
        "archived": memory.archived,
        "erased": memory.erased_at is not None,
    }
    for name in _INSTANTS:
        at: UnixMs | None = getattr(memory, name)
        shown[name] = None if at is None else format_instant(at)
        shown[f"{name}_unix_ms"] = at
    shown["source_event_id"] = memory.source_event_id
    shown["external_id"] = memory.external_id
    shown["metadata"] = memory.metadata
    if state is not None:
        shown["state"] = state_json(state, hide=hide)
    return shown


def state_json(state: State, *, hide: frozenset[str] = frozenset()) -> dict[str, Any]:
    shown: dict[str, Any] = {"current": state.current}
    if state.reason is not None:
        shown["reason"] = state.reason
    if state.replacement_id is not None and state.replacement_id not in hide:
        shown["replacement_id"] = state.replacement_id
    if state.inactive:
        shown["replacement_inactive"] = True
    return shown


def link_json(link: MemoryLink) -> dict[str, Any]:
    return {
        "id": link.id,
        "from": link.source.id,
        "to": link.target.id,
        "type": link.type,
        "strength": link.strength,
        "created_at": format_instant(link.created_at),
        "created_at_unix_ms": link.created_at,
    }


def event_json(event: ContextEvent, *, reach: Reach) -> dict[str, Any]:
    """An event. Its place in the hash chain only for who may read all of it: the numbers count everybody's events.

    `subject_id` is what it is about: a memory (then `memory_id` too), or the event that it corrects.
    """
    place = {"seq": event.seq, "prev_hash": event.prev_hash} if reach.sees_all else {}
    return {
        **place,
        "id": event.id,
        "kind": event.kind,
        "workspace": event.workspace,
        "actor": {"kind": event.actor_kind, "id": event.actor_id, "label": event.actor_label},
        "subject_id": event.subject_id or None,
        "memory_id": event.subject_id if event.subject_id.startswith("mem_") else None,
        "object_id": event.object_id or None,
        "item_id": event.item_id,
        "occurrence": event.occurrence,
        "tags": list(tags_in(event.values_of_metadata)) if event.kind == CONTEXT_ADDED else [],
        "reason": event.reason,
        "text": event.text,
        "before": event.values_before or None,
        "after": event.values_after or None,
        "erased": event.erased,
        "occurred_at": format_instant(event.occurred_at),
        "recorded_at": format_instant(event.recorded_at),
        "hash": event.hash,
    }


def answer_json(run: Run, *, recall_id: str) -> dict[str, Any]:
    """The answer to a recall; timings of the stages in milliseconds."""
    request = run.question.request
    answer: dict[str, Any] = {
        "recall_id": recall_id,
        "query": request.query,
        "profile": request.profile,
        "mode": request.mode,
        "anchor_unix_ms": run.question.anchor.at,
        "outcome": outcome_json(run),
        "count": len(run.served),
        "results": [hit_json(candidate, run) for candidate in run.served],
    }
    if request.current_only:
        answer["state_filter"] = _state_filter_json(run)
    if request.mode == "fused" and (request.trace or request.profile == "validity"):
        answer["fused_trace"] = _trace_json(run)
    answer["warnings"] = [{"code": code, "message": text} for code, text in sorted(run.warnings.items())]
    answer["timings_ms"] = {name: us / 1000 for name, us in run.timings_us.items()}
    return answer


def outcome_json(run: Run) -> dict[str, Any]:
    """The first that holds of unavailable, partial, empty, stale, fresh, with its reason.

    Whatever could not be looked at comes first: "nothing known" is not "could not look".
    """
    if run.missing and not run.found:
        return {"status": "unavailable", "reason": _why_missing(run)}
    if run.missing or run.unembedded:
        return {"status": "partial", "reason": _why_missing(run)}
    if not run.served:
        return {"status": "empty", "reason": _why_empty(run)}
    if not any(candidate.graded.grade == "valid" for candidate in run.served):
        return {"status": "stale", "reason": "no hit is graded valid"}
    return {"status": "fresh", "reason": None}


def _why_missing(run: Run) -> str:
    reasons = [f"{name} could not look: {why}" for name, why in sorted(run.missing.items())]
    if run.unembedded:
        whose = "1 memory has" if run.unembedded == 1 else f"{run.unembedded:,} memories have"
        reasons.append(f"{whose} no vector yet, and can be found by words only")
    return "; ".join(reasons)


def _why_empty(run: Run) -> str:
    if not run.considered and run.question.request.strategies == ("temporal",):
        return "the question names no time, or nothing was written near it"
    if not run.considered:
        return "no memory in scope matches"
    if not run.pool:
        return f"{len(run.considered)} matched, and none of them is current"
    return "the first hit alone is larger than max_tokens"


def hit_json(candidate: Candidate, run: Run) -> dict[str, Any]:
    request = run.question.request
    score: dict[str, float] = {"base": candidate.base, "final": candidate.final}
    if request.reorders:
        score = {
            "base": candidate.base,
            "multiplier": candidate.graded.multiplier,
            "final": candidate.final,
        }
    came_by = candidate.came_by
    hit: dict[str, Any] = {
        "rank": candidate.position,
        "memory": memory_json(
            run.memories[candidate.id], candidate.state, hide=frozenset(run.outside_filters)
        ),
        "score": score,
        "match_type": match_type(candidate, request.mode),
        "sources": {name: sighting.rank for name, sighting in sorted(candidate.sightings.items())},
        "state_replaces": candidate.replaces,
        "relation": None if came_by is None else {"link_id": came_by.id, "type": came_by.relation},
    }
    if request.annotates:
        hit["validity"] = candidate.graded.block()
        if candidate.graded.grade == "context_invalid":
            hit["context_invalid"] = True
    return hit


def match_type(candidate: Candidate, mode: str) -> str:
    if candidate.injected:
        return "state_replacement"
    return "tag" if "filters" in candidate.sightings else mode


def _state_filter_json(run: Run) -> dict[str, Any]:
    suppressed = run.suppressed
    brought = {c.state.replacement_id for c in suppressed if c.state.reason != "archived"}
    shown: dict[str, Any] = {
        "current_only": True,
        "suppressed_count": len(suppressed),
        "replacement_count": len(run.injected),
        "replacement_filtered_count": len(brought & run.outside_filters),
    }
    if run.question.request.state_debug:
        shown["suppressed"] = [_suppressed_json(c, run) for c in sorted(suppressed, key=lambda c: c.id)]
        shown["replacements"] = [
            {"id": c.id, "replaces_id": old, "relation_type": _relation_of(run, old)}
            for c in sorted(run.considered.values(), key=lambda c: c.id)
            for old in c.replaces
        ]
    return shown


def _suppressed_json(candidate: Candidate, run: Run) -> dict[str, Any]:
    state = candidate.state
    shown: dict[str, Any] = {"id": candidate.id, "reason": state.reason}
    if state.replacement_id is not None and state.replacement_id not in run.outside_filters:
        shown["replacement_id"] = state.replacement_id
        shown["relation_type"] = None if state.edge is None else state.edge.relation
    return shown


def _relation_of(run: Run, old_id: str) -> str | None:
    edge = run.considered[old_id].state.edge
    return None if edge is None else edge.relation


def _trace_json(run: Run) -> dict[str, Any]:
    """Where the served hits came from: only of them, and of what matched the caller's filters, does it tell."""
    request = run.question.request
    trace: dict[str, Any] = {
        "fusion": request.fusion,
        "parameters": _parameters(request.fusion),
        "strategies": {
            name: {
                "candidates": len(found),
                "weight": request.strategy_weights.get(name, 1.0),
                "time_ms": run.strategy_us.get(name, run.timings_us["retrieve"]) / 1000,
            }
            for name, found in run.found.items()
        },
        "stages": [
            {"stage": "retrieve", "candidates": sum(len(found) for found in run.found.values())},
            {"stage": "fuse", "candidates": len(run.considered) - len(run.injected)},
            {
                "stage": "state",
                "candidates": len(run.pool),
                "suppressed": len(run.suppressed),
                "filtered": sum(c.verdict == "filtered" for c in run.considered.values()),
            },
            {"stage": "rerank", "ran": run.reranked},
            {"stage": "validity", "reordered": request.reorders},
            {"stage": "limit", "limit": request.limit},
            {"stage": "budget", "max_tokens": request.max_tokens, "served": len(run.served)},
        ],
        "placement": [
            {
                "id": c.id,
                "rank": c.position,
                "pool_rank": c.pool_rank,
                "fused": c.fused,
                "reranked": c.reranked,
                "words": None if c.measured is None else c.measured.lexical,
                "cosine": None if c.measured is None else c.measured.cosine,
                "sources": {
                    name: {"rank": s.rank, "score": s.score, "reason": s.reason}
                    for name, s in sorted(c.sightings.items())
                },
            }
            for c in run.served
        ],
    }
    if request.profile == "validity":
        trace["validity"] = {
            "profile": request.profile,
            "method": NAME,
            "weights": run.weights.as_dict(),
            "grade_counts": grade_counts(run.pool),
            "flagged_context_invalid": sum(c.graded.grade == "context_invalid" for c in run.served),
        }
    return trace


def _parameters(fusion: str) -> dict[str, float]:
    """The numbers of the fusion that was used, beside the caller's weights (recall/domain/fusion.py)."""
    if fusion == "rrf":
        return {"k": RRF_K}
    return {"a": MEANING, "chance": CHANCE, **SIGNALS, "worth_keeping": WORTH_KEEPING}


def grade_counts(candidates: list[Candidate]) -> dict[str, int]:
    return {name: sum(c.graded.grade == name for c in candidates) for name in GRADES}
