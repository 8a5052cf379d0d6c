"""The ledger: what happened, newest first, and one event."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from django.db.models import Count
from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_safe

from ledger.domain.events import DELIVERED, KINDS, LINK_CREATED, LINK_REMOVED
from ledger.domain.refusals import NotFound
from ledger.models import ContextEvent, ContextEventQuerySet
from ledger.wording import in_words
from recall.pages.access import show, signed_in
from recall.pages.rationale import rationale_of
from recall.pages.texts import beginnings
from recall.paging import page_of, parse_cursor
from vault.domain import values
from vault.domain.access import Reach
from vault.services import Caller


@dataclass(frozen=True, slots=True)
class Link:
    """A link as the ledger tells it: from the event's own memory to another."""

    source: str
    type: str
    target_id: str
    target: str


def readable(reach: Reach) -> ContextEventQuerySet:
    rows = ContextEvent.objects.all()
    return rows if reach.readable is None else rows.filter(workspace__in=sorted(reach.readable))


@require_safe
@signed_in
def ledger_list(request: HttpRequest, *, caller: Caller) -> HttpResponse:
    kind = request.GET.get("kind", "")
    rows = readable(caller.reach)
    counts = dict(rows.values_list("kind").annotate(Count("seq")).order_by())
    if kind:
        values.check_choice(kind, KINDS, field="kind")
        rows = rows.filter(kind=kind)
    page = page_of(rows, cursor=parse_cursor(request.GET.get("cursor")), limit=50)
    context = {
        "section": "ledger",
        "kind": kind,
        "facets": [(name, in_words(name), counts[name]) for name in KINDS if name in counts],
        "total": sum(counts.values()),
        "page": page,
        "rows": _told(page.rows, caller.reach),
        "sees_all": caller.reach.sees_all,
    }
    return show(request, "ledger.html", context, part="results")


def _told(events: Sequence[ContextEvent], reach: Reach) -> list[tuple[ContextEvent, str, Link | str]]:
    """Each event with its kind in words, and the text it is about; for a link both ends."""
    texts = beginnings([id_ for event in events for id_ in (event.subject_id, event.object_id)], reach)
    return [(event, in_words(event.kind), _about(event, texts)) for event in events]


def _about(event: ContextEvent, texts: Mapping[str, str]) -> Link | str:
    here = texts.get(event.subject_id, event.subject_id)
    if event.kind not in (LINK_CREATED, LINK_REMOVED):
        return here
    type_ = str((event.values_after or event.values_before).get("type", "linked to"))
    return Link(here, type_, event.object_id, texts.get(event.object_id, event.object_id))


@require_safe
@signed_in
def event_page(request: HttpRequest, event_id: str, *, caller: Caller) -> HttpResponse:
    event = readable(caller.reach).filter(id=event_id).first()
    if event is None:
        raise NotFound(f"no event {event_id}", hint="ids begin with evt_")
    context = {
        "section": "ledger",
        "event": event,
        "words": in_words(event.kind),
        "before": _pretty(event.values_before),
        "after": _pretty(event.values_after),
        "about": _told([event], caller.reach)[0][2],
        "sees_all": caller.reach.sees_all,
        "rationale": rationale_of(event, caller.reach),
        "may_correct": event.kind in DELIVERED and caller.reach.writes(event.workspace),
    }
    return show(request, "event.html", context)


def _pretty(values: dict[str, object]) -> str:
    return json.dumps(values, indent=2, ensure_ascii=False, sort_keys=True) if values else ""
