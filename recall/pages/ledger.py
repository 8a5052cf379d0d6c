"""The ledger: what happened, newest first, and one event."""

from __future__ import annotations

import json

from django.db.models import Count
from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_safe

from ledger.domain.events import KINDS
from ledger.domain.refusals import NotFound
from ledger.models import ContextEvent, ContextEventQuerySet
from ledger.wording import in_words
from recall.pages.access import show, signed_in
from recall.paging import page_of, parse_cursor
from vault.domain.access import Reach
from vault.services import Caller


def readable(reach: Reach) -> ContextEventQuerySet:
    rows = ContextEvent.objects.all()
    return rows if reach.readable is None else rows.filter(workspace__in=sorted(reach.readable))


@require_safe
@signed_in
def ledger_list(request: HttpRequest, *, caller: Caller) -> HttpResponse:
    kind = request.GET.get("kind", "")
    rows = readable(caller.reach)
    counts = dict(rows.values_list("kind").annotate(Count("seq")).order_by())
    if kind in KINDS:
        rows = rows.filter(kind=kind)
    page = page_of(rows, cursor=parse_cursor(request.GET.get("cursor")), limit=50)
    context = {
        "section": "ledger",
        "kind": kind,
        "facets": [(name, in_words(name), counts[name]) for name in KINDS if name in counts],
        "total": sum(counts.values()),
        "page": page,
        "rows": [(event, in_words(event.kind)) for event in page.rows],
    }
    return show(request, "ledger.html", context, part="results")


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
    }
    return show(request, "event.html", context)


def _pretty(values: dict[str, object]) -> str:
    return json.dumps(values, indent=2, ensure_ascii=False, sort_keys=True) if values else ""
