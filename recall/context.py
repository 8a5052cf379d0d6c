"""Context: what happened and why, recorded in the ledger, delivered to a bank, and searched there (behaviour.md, 7-8).

The bank finds; the ledger decides. One request goes to the bank, and none after it: an empty answer is an answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from django.db.models import Q

from ledger import queries, services, wording
from ledger.domain.context import NewContext
from ledger.domain.instants import UnixMs, format_instant
from ledger.models import ContextEvent, Supersession
from ledger.queries import Coverage, Head
from ledger.services import Added
from recall import records
from recall.banks import Bank, BankUnavailable, Recalled, document_id_of, installed_bank, tags_of
from recall.banks.local import fitting
from recall.domain.context import Query
from recall.domain.fusion import Sighting
from recall.domain.rationale import (
    ContextSearch,
    Fault,
    Placed,
    Source,
    Standing,
    arranged,
    fault_of,
    labels_of,
)
from recall.domain.request import RecallRequest
from recall.domain.state import Anchor
from recall.domain.validity import Judgement, grade
from recall.indexes import Question
from recall.pipeline import Candidate, Run, timed
from recall.records import ServedEvent
from recall.services import engine_of, installed_index
from vault.domain.access import Reach, Scope
from vault.domain.facts import Facts
from vault.models import Memory
from vault.services import Caller

UNAVAILABLE, STALE = "context_unavailable", "context_stale"
UNTRACED = Judgement(
    "source", 1.0, "source:unverified", reason="No event of the ledger is known as its source"
)
REWORDED = Judgement(
    "source", 1.0, "source:unverified", reason="It names an event of the ledger, whose words are others"
)
_DROPPED: dict[Fault, tuple[str, str]] = {
    "scope_violation": ("scope_violation", "is not of the scope that was asked for"),
    "untraced": ("untraced_dropped", "comes from no event of the ledger that you may read"),
    "erased": ("erased_dropped", "comes from an event that was erased"),
}


def add(new: NewContext, *, workspace: str | None, key: str, caller: Caller, at: UnixMs) -> Added:
    """Record a context event in `workspace`, or where the caller is at home; raises Refused."""
    home = caller.reach.home if workspace is None else workspace
    caller.reach.require_writable(home)
    return services.add_context(replace(new, workspace=home), key=key, actor=caller.actor, at=at)


def search(asked: ContextSearch, *, caller: Caller, surface: str, at: UnixMs) -> dict[str, Any]:
    """Ask the bank of one workspace, check what it returns, and leave the record; raises Refused.

    A bank that cannot be asked is an answer too: `context_unavailable`, and the outcome says why.
    """
    workspace = caller.reach.home if asked.workspace is None else asked.workspace
    caller.reach.require_readable(workspace)
    query, bank = asked.question(workspace), installed_bank()
    looked = _Looked(asked, query, bank.name)
    run = Run(_as_question(asked, query, at=at))
    with timed(run.timings_us, "bank"):
        recalled = _recalled(bank, looked)
    with timed(run.timings_us, "ledger"):
        _check(looked, recalled, reach=caller.reach)
        _arrange(looked, run)
    return records.write(
        run,
        caller=caller,
        surface=surface,
        at=at,
        engine=_engine(bank),
        answer_of=partial(_answer_json, looked=looked),
        asked=asked.as_dict(),
        events=_served_events(looked),
    )


@dataclass(slots=True)
class _Seen:
    """One memory that the bank returned, or the head of a chain that it did not return (`recalled` None)."""

    candidate: Candidate
    recalled: Recalled | None
    source: Source | None
    stale: bool = False
    head: Head | None = None
    own: ContextEvent | None = None  # the event whose own words are shown in place of what the bank returned
    current: bool = False
    reworded: bool = False  # a memory here that names the event as its source, and says something else

    @property
    def traced(self) -> bool:
        """Whether the ledger vouches for it: an event is its source, and the words are that event's."""
        return self.source is not None and (not self.reworded or self.own is not None)

    @property
    def standing(self) -> Standing:
        return Standing(
            event_id=None if self.source is None else self.source.id,
            speaks=self.source is not None and self.source.speaks and not self.reworded,
            stale=self.stale,
            text_event_id=None if self.head is None else self.head.text_event_id,
        )


@dataclass(slots=True)
class _Looked:
    """A search under way: what was asked, and what became of what the bank returned."""

    asked: ContextSearch
    query: Query
    bank: str
    unavailable: str | None = None
    returned: int = 0
    found: list[_Seen] = field(default_factory=list)
    hits: list[_Seen] = field(default_factory=list)
    dropped: list[tuple[Fault, Candidate]] = field(default_factory=list)
    coverage: Coverage | None = None


def _as_question(asked: ContextSearch, query: Query, *, at: UnixMs) -> Question:
    """The search as a record keeps a question: the view is history's, for what is stale is shown and marked."""
    request = RecallRequest(
        query=asked.query,
        workspace=query.workspace,
        limit=asked.limit,
        mode="context",
        strategies=(),
        current_only=False,
        temporal=asked.temporal,
    )
    return Question(request, Scope((query.workspace,)), (), Anchor(at))


def _engine(bank: Bank) -> dict[str, str]:
    if bank.name == "local":
        return engine_of(installed_index())
    return {"lexical": f"the bank {bank.name}", "dense": "", "reranker": ""}


def _recalled(bank: Bank, looked: _Looked) -> tuple[Recalled, ...]:
    try:
        recalled = bank.recall(looked.query)
    except BankUnavailable as error:
        looked.unavailable = error.reason
        return ()
    looked.returned = len(recalled)
    return recalled


# ----------------------------------------------------------------------------------------------- against the ledger


def _check(looked: _Looked, recalled: Sequence[Recalled], *, reach: Reach) -> None:
    """Drop what may not be shown, and tell the standing of the rest: a fixed number of queries for any page."""
    query = looked.query
    events = _events(recalled, reach)
    sources = {event.id: _source(event) for event in events}
    facts = _facts(recalled, query.workspace)
    told = _told_here(events) if facts else {}
    for place, one in enumerate(recalled, start=1):
        source = sources.get(one.source_event_id or "")
        candidate = _candidate(
            one, source, facts.get(one.memory_id or ""), place=place, workspace=query.workspace
        )
        fault = fault_of(one.tags, source, merged=one.merged, query=query, sees_all=reach.sees_all)
        if fault is None:
            reworded = one.memory_id in facts and source is not None and one.text != told[source.id]
            looked.found.append(_Seen(candidate, one, source, reworded=reworded))
        else:
            candidate.verdict, candidate.detail = "filtered", _DROPPED[fault][1]
            looked.dropped.append((fault, candidate))
    _judge_standing(looked.found)
    looked.coverage = queries.coverage(workspaces=[query.workspace], item_id=looked.asked.item_id)


def _events(recalled: Sequence[Recalled], reach: Reach) -> list[ContextEvent]:
    """The events that the bank names as sources, where they exist and the caller reads them."""
    ids = {one.source_event_id for one in recalled if one.source_event_id}
    events = ContextEvent.objects.filter(id__in=ids).defer("before", "after") if ids else ()
    return [event for event in events if reach.reads(event.workspace)]


def _told_here(events: Sequence[ContextEvent]) -> dict[str, str]:
    """What this vault was given of each event. Whoever may write can name any event as the source of other words."""
    named = queries.all_named_in(events)
    return {event.id: fitting(wording.delivered_text(event, named.get(event.id))) for event in events}


def _source(event: ContextEvent) -> Source:
    return Source(
        id=event.id,
        kind=event.kind,
        workspace=event.workspace,
        item_id=event.item_id,
        occurrence=event.occurrence,
        occurred_at=event.occurred_at,
        object_id=event.object_id,
        erased=event.salt is None,
    )


def _facts(recalled: Sequence[Recalled], workspace: str) -> dict[str, Facts]:
    """The vault's own facts of those that are its memories."""
    ids = {one.memory_id for one in recalled if one.memory_id and one.memory_id.startswith("mem_")}
    if not ids:
        return {}
    rows = Memory.objects.select_related("workspace").filter(id__in=ids, workspace__name=workspace)
    return {memory.id: memory.facts for memory in rows}


def _candidate(
    one: Recalled, source: Source | None, facts: Facts | None, *, place: int, workspace: str
) -> Candidate:
    """What the record keeps of it. Whose time nobody knows counts as old."""
    if facts is None:
        written = one.timestamp if source is None else source.occurred_at
        trust = "unknown" if source is None else "candidate"
        named = one.memory_id or f"hit {place}"
        facts = Facts(named, workspace, 0 if written is None else written, provenance_class=trust)
    score = one.score or 0.0
    sighting = Sighting(place, score, "the bank returned it")
    return Candidate(facts, {"bank": sighting}, fused=score, base=score, final=score, pool_rank=place - 1)


def _judge_standing(found: Sequence[_Seen]) -> None:
    """Which events are superseded, and by what: the ledger tells, at any distance."""
    traced = [seen for seen in found if seen.source is not None]
    ids = {seen.source.id for seen in traced if seen.source is not None}
    undone = undone_corrections(ids)
    heads = queries.heads_of(ids | set(undone.values()))
    for seen in traced:
        assert seen.source is not None
        head = heads[seen.source.id]
        if not head.superseded and seen.source.id in undone:
            seen.stale, seen.head = True, heads[undone[seen.source.id]]
        elif head.superseded:
            seen.stale, seen.head = True, head


def undone_corrections(event_ids: set[str]) -> dict[str, str]:
    """Which of these events are corrections that a later one undid, each with the event that it spoke about.

    Nothing supersedes them, and yet what they say no longer holds.
    """
    if not event_ids:
        return {}
    rows = Supersession.objects.filter(voided_by__isnull=False)
    rows = rows.filter(Q(event__id__in=event_ids) | Q(voided_by__id__in=event_ids))
    voided = [queries.edge_of(row) for row in rows]
    holding = Supersession.objects.effective().filter(old__id__in={edge.old for edge in voided})
    in_force = {(edge.old, edge.new) for edge in map(queries.edge_of, holding)} if voided else set()
    losers = [edge.voided_by if (edge.old, edge.new) in in_force else edge.event_id for edge in voided]
    return {
        loser: edge.old for loser, edge in zip(losers, voided, strict=True) if loser and loser in event_ids
    }


# ----------------------------------------------------------------------------------------------- in order, and graded


def _arrange(looked: _Looked, run: Run) -> None:
    """Put the hits in order, heads in their own words among them, and grade everything by the one policy."""
    placed = arranged([seen.standing for seen in looked.found])
    own = _texts({one.head for one in placed if one.head is not None})
    shown = [_shown(one, looked.found, own, workspace=looked.query.workspace) for one in placed]
    looked.hits = [seen for seen in shown if seen is not None]
    for position, seen in enumerate(looked.hits, start=1):
        seen.candidate.position, seen.candidate.verdict = position, "served"
    _spell_out_the_rest(looked)
    candidates = [seen.candidate for seen in looked.hits]
    candidates += [seen.candidate for seen in looked.found if seen.candidate.position is None]
    candidates += [candidate for _, candidate in looked.dropped]
    stale = {id(seen.candidate) for seen in looked.found if seen.stale}
    traced = {id(seen.candidate) for seen in looked.hits if seen.traced}
    reworded = {id(seen.candidate) for seen in looked.hits if seen.source is not None and not seen.traced}
    for candidate in candidates:
        candidate.validity = grade(
            candidate.facts,
            at=run.question.anchor.at,
            workspace=looked.asked.workspace,
            superseded_by="ledger" if id(candidate) in stale else None,
            notes=() if id(candidate) in traced else (REWORDED if id(candidate) in reworded else UNTRACED,),
        )
        run.considered[_unused(candidate.id, run.considered)] = candidate
    run.served = [seen.candidate for seen in looked.hits]
    run.missing = {} if looked.unavailable is None else {"bank": looked.unavailable}
    run.warnings = {warning["code"]: warning["message"] for warning in _warnings(looked)}


def _texts(event_ids: set[str]) -> dict[str, ContextEvent]:
    """Events whose own words are to be shown; what was erased a moment ago is not among them."""
    events = ContextEvent.objects.filter(id__in=event_ids, text__isnull=False) if event_ids else ()
    return {event.id: event for event in events}


def _shown(
    one: Placed, found: Sequence[_Seen], own: dict[str, ContextEvent], *, workspace: str
) -> _Seen | None:
    if one.head is None:
        assert one.index is not None
        return replace(found[one.index], current=one.current)
    event = own.get(one.head)
    if event is None:
        return None
    if one.index is not None:
        return replace(found[one.index], own=event, current=True)
    facts = Facts(event.id, workspace, event.occurred_at)
    replaced = [
        seen.candidate.id for seen in found if seen.head is not None and seen.head.text_event_id == event.id
    ]
    candidate = Candidate(facts, replaces=replaced, injected=True)
    return _Seen(candidate, None, _source(event), own=event, current=True)


def _spell_out_the_rest(looked: _Looked) -> None:
    """Other pieces of an event that is shown in its own words tell nothing more."""
    for seen in looked.found:
        if seen.candidate.position is None:
            seen.candidate.verdict = "filtered"
            seen.candidate.detail = "is a part of an event that is shown in its own words"


def _unused(id_: str, taken: dict[str, Candidate]) -> str:
    while id_ in taken:
        id_ += "'"
    return id_


def _served_events(looked: _Looked) -> list[ServedEvent]:
    served: dict[str, ServedEvent] = {}
    for seen in looked.hits:
        if seen.source is not None:
            c = seen.candidate
            told = ServedEvent(seen.source.id, c.graded.grade, c.position or 0, seen.stale)
            served.setdefault(seen.source.id, told)
    return [*served.values()]


# ----------------------------------------------------------------------------------------------- the answer


def _answer_json(run: Run, *, recall_id: str, looked: _Looked) -> dict[str, Any]:
    asked = looked.asked
    return {
        "recall_id": recall_id,
        "scope": "bank" if asked.item_id is None else "item",
        "workspace": looked.query.workspace,
        "item_id": asked.item_id,
        "query": asked.query,
        "bank": looked.bank,
        "anchor_unix_ms": run.question.anchor.at,
        "outcome": _outcome(looked),
        "count": len(looked.hits),
        "hits": [_hit_json(seen, asked=asked) for seen in looked.hits],
        "warnings": _warnings(looked),
        "coverage": coverage_json(looked.coverage),
    }


def _hit_json(seen: _Seen, *, asked: ContextSearch) -> dict[str, Any]:
    source, candidate = seen.source, seen.candidate
    hit: dict[str, Any] = {
        "rank": candidate.position,
        **_words(seen),
        "source_event_id": None if source is None else source.id,
        "kind": None if source is None else source.kind,
        "occurrence": _occurrence(seen),
        "is_stale": seen.stale,
        "superseded_by": None if seen.head is None else seen.head.id,
        "provenance": "verified" if seen.traced else "unverified",
        "interpretation": not seen.traced,
        "current_rationale": seen.current,
        "labels": list(labels_of(asked.occurrence, _occurrence(seen))),
        "memory_id": candidate.id if candidate.facts.seq else None,
        "match_type": "bank" if seen.recalled is not None else "head",
        "score": None if seen.recalled is None else seen.recalled.score,
        "validity": candidate.graded.block(),
    }
    if candidate.graded.grade == "context_invalid":
        hit["context_invalid"] = True
    return hit


def _words(seen: _Seen) -> dict[str, Any]:
    """The text with what stands beside it: the ledger's own, or the bank's."""
    if seen.own is not None:
        event = seen.own
        return {
            "content": event.text,
            "context": event.reason,
            "document_id": document_id_of(event.id),
            "timestamp": format_instant(event.occurred_at),
            "tags": list(tags_of(event)),
        }
    assert seen.recalled is not None
    one, source = seen.recalled, seen.source
    written = one.timestamp if one.timestamp is not None or source is None else source.occurred_at
    return {
        "content": one.text,
        "context": one.context,
        "document_id": one.document_id,
        "timestamp": None if written is None else format_instant(written),
        "tags": list(one.tags),
    }


def _occurrence(seen: _Seen) -> str | None:
    if seen.source is not None:
        return seen.source.occurrence
    return None if seen.recalled is None else seen.recalled.metadata.get("occurrence")


def _outcome(looked: _Looked) -> dict[str, Any]:
    if looked.unavailable is not None:
        return {"status": "unavailable", "reason": looked.unavailable}
    if not looked.hits:
        nothing = "the bank returned nothing" if not looked.returned else "nothing it returned may be shown"
        return {"status": "empty", "reason": nothing}
    if not any(seen.current and seen.candidate.graded.grade == "valid" for seen in looked.hits):
        return {"status": "stale", "reason": "no hit is a current rationale that is graded valid"}
    return {"status": "fresh", "reason": None}


def _warnings(looked: _Looked) -> list[dict[str, str]]:
    """Each superseded event once, in the order of the hits; of what was dropped, how many and why."""
    told: list[tuple[str, str]] = []
    if looked.unavailable is not None:
        told.append((UNAVAILABLE, looked.unavailable))
    told += [
        (STALE, f"Recalled context from event {seen.source.id} was superseded by {seen.head.id}")
        for seen in looked.hits
        if seen.head is not None and seen.source is not None
    ]
    for fault, (code, why) in _DROPPED.items():
        count = sum(dropped == fault for dropped, _ in looked.dropped)
        if count:
            told.append((code, f"{count} of {looked.returned} recalled memories left out: each {why}"))
    return [{"code": code, "message": message} for code, message in dict.fromkeys(told)]


def coverage_json(coverage: Coverage | None) -> dict[str, Any]:
    """What the ledger knows of the scope; a bank's answer says nothing about that."""
    assert coverage is not None, "counted before anything is answered"
    return {
        "events": coverage.events,
        "superseded": coverage.superseded,
        "pending": coverage.pending,
        "delivered": coverage.delivered,
        "failed": coverage.failed,
        "first": None if coverage.first is None else format_instant(coverage.first),
        "last": None if coverage.last is None else format_instant(coverage.last),
    }
