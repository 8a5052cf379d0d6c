"""What an event's page tells of a context event beside the event itself: its chain, its delivery, who recalled it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from django.urls import reverse
from django.utils.safestring import SafeString

from ledger.domain.chain import Edge
from ledger.domain.events import CORRECTION_RETRACT, CORRECTION_SUPERSEDE, DELIVERED
from ledger.domain.instants import UnixMs, format_instant
from ledger.models import ContextEvent, OutboxEntry
from ledger.queries import Chain, chain_of, heads_of, outbox_entries, successors_of
from ledger.wording import in_words
from recall.models import RecallRecord
from recall.pages.charts import Arrow, ChainNode, succession
from recall.pages.templatetags.audit import instant
from vault.domain.access import Reach

UNMADE = "this correction"  # in a preview, which has no id yet
SHOWN = 20  # recalls in the timeline; their number is told beside


class Moment(NamedTuple):
    """One line of a timeline: when, what, and where it leads."""

    at: UnixMs
    what: str
    id: str
    href: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Rationale:
    """A context event as its page shows it. `sentence` is what an auditor would write of it first."""

    sentence: str
    drawing: SafeString | None
    chain: Chain
    delivery: OutboxEntry | None
    erasure: OutboxEntry | None  # of what was delivered, at the bank
    timeline: list[Moment]
    recalls: int


def rationale_of(event: ContextEvent, reach: Reach) -> Rationale | None:
    """What there is to tell of a context or correction event; None of any other."""
    if event.kind not in DELIVERED:
        return None
    chain = chain_of(event.id)
    entries = {entry.kind: entry for entry in outbox_entries(None, event_id=event.id)}
    delivery = entries.get("context")
    records = RecallRecord.objects.visible_to(reach).filter(events__event=event).order_by("-seq")
    return Rationale(
        sentence=_sentence(event, chain),
        drawing=drawing_of(event.id, chain, uid="chain"),
        chain=chain,
        delivery=delivery,
        erasure=entries.get("erasure"),
        timeline=_timeline(event, chain, delivery, list(records[:SHOWN])),
        recalls=records.count(),
    )


def _successor(event_id: str, chain: Chain) -> Edge | None:
    return next((edge for edge in chain.edges if edge.old == event_id and edge.effective), None)


def _sentence(event: ContextEvent, chain: Chain) -> str:
    about = f" about item {event.item_id}" if event.item_id else ""
    edge = _successor(event.id, chain)
    if edge is None:
        undone = next((e for e in chain.edges if e.event_id == event.id and not e.effective), None)
        if undone is not None and undone.voided_at is not None:
            return f"This correction was undone by {undone.voided_by} on {instant(undone.voided_at)}."
        if event.kind == CORRECTION_RETRACT:
            return f"This retracts {event.subject_id}{about}: nothing stands in its place."
        if event.kind not in ("context_added", CORRECTION_SUPERSEDE):
            return f"This is a remark on {event.subject_id}{about}."
        return f"This is the current word{about}: nothing has superseded it."
    known = {one.id: one for one in chain.events}
    new = known.get(edge.new)
    when = instant(edge.created_at)
    if new is not None and new.kind == CORRECTION_RETRACT:
        return f"This was retracted by {new.id} on {when}: “{new.reason}”"
    head = heads_of([event.id])[event.id].id
    further = "" if head == edge.new else f"; the current word is {head}"
    return f"This was superseded by {edge.new} on {when}{further}."


def drawing_of(event_id: str, chain: Chain, *, uid: str) -> SafeString | None:
    """A chain of events as boxes; None where there is but one. An event that is still to be made has no id, and leads
    nowhere."""
    if len(chain.events) < 2:
        return None
    arrows = [
        Arrow(edge.old or UNMADE, edge.new or UNMADE, voided=not edge.effective) for edge in chain.edges
    ]
    cycle = chain.walk(chain.events[0].id).cycle
    return succession(nodes=nodes_of(event_id, chain), arrows=arrows, uid=uid, cycle=cycle)


def nodes_of(event_id: str, chain: Chain) -> list[ChainNode]:
    """The events of a chain, oldest first, each with its state; `event_id` is the one that is looked at."""
    replaced = {edge.old for edge in chain.edges if edge.effective}
    if chain.truncated:  # the next of some is not among those shown
        replaced |= successors_of(one.id for one in chain.events).keys()
    undone = {edge.event_id for edge in chain.edges if not edge.effective}
    return [
        ChainNode(
            id=one.id or UNMADE,
            href=reverse("event", args=[one.id]) if one.id else "",
            when=format_instant(one.occurred_at)[:10],
            label="(erased)" if one.erased else one.text or one.reason or in_words(one.kind),
            current=one.id not in replaced | undone and one.kind != CORRECTION_RETRACT,
            marked=one.id == event_id,
            state=_state(one, replaced, undone),
        )
        for one in chain.events
    ]


def _state(event: ContextEvent, replaced: set[str], undone: set[str]) -> str:
    if event.id in replaced:
        return "superseded"
    if event.id in undone:
        return "undone"
    return "a retraction"


def _timeline(
    event: ContextEvent, chain: Chain, delivery: OutboxEntry | None, records: list[RecallRecord]
) -> list[Moment]:
    """What became of the event, oldest first."""
    told = [Moment(event.recorded_at, "Recorded", "", "", f"by {event.actor_label}")]
    if delivery is not None and delivery.delivered_at is not None:
        told.append(Moment(delivery.delivered_at, "Delivered", "", "", delivery.remote_id))
    for edge in chain.edges:
        if event.id not in (edge.old, edge.new):
            continue
        other, what = (edge.new, "Superseded by") if edge.old == event.id else (edge.old, "Took the place of")
        told.append(Moment(edge.created_at, what, other, reverse("event", args=[other])))
        if edge.voided_by is not None and edge.voided_at is not None:
            href = reverse("event", args=[edge.voided_by])
            told.append(Moment(edge.voided_at, "That was undone by", edge.voided_by, href))
    for one in chain.corrections:
        if one.subject_id == event.id:
            href = reverse("event", args=[one.id])
            told.append(Moment(one.recorded_at, in_words(one.kind), one.id, href, one.reason))
    told += [Moment(one.created_at, "Recalled", one.id, reverse("recall", args=[one.id])) for one in records]
    return sorted(told, key=lambda moment: (moment.at, moment.id))
