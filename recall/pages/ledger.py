"""The ledger: what happened, newest first, by kind, standing, delivery and source, and one event."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.views.decorators.http import require_safe

from ledger.domain.events import CONTEXT_ADDED, DELIVERED, LINK_CREATED, LINK_REMOVED
from ledger.domain.ids import is_id
from ledger.domain.refusals import NotFound
from ledger.models import ContextEvent, ContextEventQuerySet
from ledger.queries import (
    FACETS,
    Cell,
    Standing,
    browse,
    cells,
    chosen,
    standings_of,
    workspaces_of_events,
)
from ledger.wording import choice_in_words, in_words
from recall.pages.access import show, signed_in
from recall.pages.forms import ANY_WORKSPACE, GLOBAL_WORKSPACE, LedgerFilter
from recall.pages.rationale import rationale_of
from recall.pages.texts import beginning_of, beginnings, event_beginnings
from recall.paging import page_of, parse_cursor
from vault.domain import values
from vault.domain.access import Reach
from vault.services import Caller

PAGE = 50
TITLES = {"kind": "What happened", "standing": "Standing", "delivery": "Delivery", "source": "Source"}
LABELS = {
    "kind": "Kinds of events",
    "standing": "How context stands",
    "delivery": "States of deliveries",
    "source": "Who wrote it",
}


@dataclass(frozen=True, slots=True)
class Link:
    """A link as the ledger tells it: from the event's own memory to another."""

    source: str
    type: str
    target_id: str
    target: str


@dataclass(frozen=True, slots=True)
class Spoken:
    """An event that another one is about, and how it begins."""

    event_id: str
    text: str


class Row(NamedTuple):
    """One event of the list: `standing` only of what goes to a bank."""

    event: ContextEvent
    words: str
    about: Link | Spoken | str
    standing: Standing | None


class Option(NamedTuple):
    """One value of a facet: how many events it would show with the other facets as they are, and its address."""

    words: str
    number: int
    address: str
    chosen: bool


class Facet(NamedTuple):
    """A facet with its values; the first shows everything."""

    title: str
    label: str
    options: list[Option]


def readable(reach: Reach) -> ContextEventQuerySet:
    return browse(reach.workspaces).rows


@require_safe
@signed_in
def ledger_list(request: HttpRequest, *, caller: Caller) -> HttpResponse:
    form = LedgerFilter(request.GET, workspaces=workspaces_of_events(caller.reach.workspaces))
    choices = _choices(request)
    asked = _asked(form)
    browsed = browse(_within(form, caller.reach), words=asked.get("q", ""))
    counted = cells(browsed)
    page = page_of(chosen(browsed, choices), cursor=parse_cursor(request.GET.get("cursor")), limit=PAGE)
    context = {
        "section": "ledger",
        "form": form,
        "choices": choices,
        "facets": _facets(counted, choices, asked),
        "filtered": bool(form.errors or choices or asked),
        "matching": sum(cell.events for cell in counted if _shown(cell, choices)),
        "searched": browsed.searched,
        "total": readable(caller.reach).count,  # asked for by the whole page only
        "page": page,
        "rows": _told(page.rows, caller.reach),
        "sees_all": caller.reach.sees_all,
    }
    return show(request, "ledger.html", context, part="results")


def _choices(request: HttpRequest) -> dict[str, str]:
    """The value chosen in each facet; a value that there is not is refused."""
    given = {name: request.GET.get(name, "") for name in FACETS}
    return {
        name: values.check_choice(value, FACETS[name], field=name) for name, value in given.items() if value
    }


def _asked(form: LedgerFilter) -> dict[str, str]:
    """What the form narrows by; what it refuses stands in its errors."""
    if not form.is_valid():
        return {}
    return {name: value for name, value in form.cleaned_data.items() if value not in ("", ANY_WORKSPACE)}


def _within(form: LedgerFilter, reach: Reach) -> list[str] | None:
    """The workspaces that are looked into: none where the form was refused, so never more than was asked for."""
    if form.errors:
        return []
    workspace = _asked(form).get("workspace")
    if workspace is None:
        return reach.workspaces
    return ["" if workspace == GLOBAL_WORKSPACE else workspace]  # the form knows those that may be read


def _shown(cell: Cell, choices: Mapping[str, str]) -> bool:
    return all(cell.shows(facet, value) for facet, value in choices.items())


def _facets(counted: Sequence[Cell], choices: Mapping[str, str], asked: Mapping[str, str]) -> list[Facet]:
    """Each facet that has something to choose, counted with the other facets' choices in force."""
    found = []
    for name, all_values in FACETS.items():
        others = {facet: value for facet, value in choices.items() if facet != name}
        rest = [cell for cell in counted if _shown(cell, others)]
        options = [Option("Everything", _sum(rest), _address(asked, others), name not in choices)]
        for value in all_values:
            number, is_chosen = _sum(c for c in rest if c.shows(name, value)), choices.get(name) == value
            if number or is_chosen:
                address = _address(asked, {**others, name: value})
                options.append(Option(choice_in_words(name, value), number, address, is_chosen))
        if len(options) > 1:
            found.append(Facet(TITLES[name], LABELS[name], options))
    return found


def _sum(counted: Iterable[Cell]) -> int:
    return sum(cell.events for cell in counted)


def _address(asked: Mapping[str, str], choices: Mapping[str, str]) -> str:
    query = urlencode({**asked, **choices})
    return f"{reverse('ledger')}?{query}" if query else reverse("ledger")


def _told(events: Sequence[ContextEvent], reach: Reach) -> list[Row]:
    """Each event with its kind in words, the text it is about (for a link both ends), and how it stands."""
    named = {id_ for event in events for id_ in (event.subject_id, event.object_id)}
    texts = beginnings(named, reach) | event_beginnings(filter(_is_event, named), reach)
    standings = standings_of(event.id for event in events if event.kind in DELIVERED)
    return [
        Row(event, in_words(event.kind), _about(event, texts), standings.get(event.id)) for event in events
    ]


def _is_event(id_: str) -> bool:
    return is_id(id_, "evt")


def _about(event: ContextEvent, texts: Mapping[str, str]) -> Link | Spoken | str:
    if event.kind == CONTEXT_ADDED:
        return beginning_of(event)
    here = texts.get(event.subject_id, event.subject_id)
    if _is_event(event.subject_id):
        return Spoken(event.subject_id, here)
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
        "about": _told([event], caller.reach)[0].about,
        "sees_all": caller.reach.sees_all,
        "rationale": rationale_of(event, caller.reach),
        "may_correct": event.kind in DELIVERED and caller.reach.writes(event.workspace),
    }
    return show(request, "event.html", context)


def _pretty(values: dict[str, object]) -> str:
    return json.dumps(values, indent=2, ensure_ascii=False, sort_keys=True) if values else ""
