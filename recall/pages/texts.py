"""The beginnings of texts as they are now, of memories and events, for lists that would otherwise show bare ids."""

from __future__ import annotations

from collections.abc import Iterable

from django.db.models.functions import Substr

from ledger.models import ContextEvent
from vault.domain.access import Reach
from vault.models import Memory

LENGTH = 160
ERASED = "(erased)"


def beginnings(ids: Iterable[str], reach: Reach) -> dict[str, str]:
    """The first words of each memory that the viewer may read: one query; the others are left out."""
    wanted = sorted(set(ids) - {""})
    if not wanted:
        return {}
    rows = Memory.objects.readable_by(reach).filter(id__in=wanted)
    return {
        id_: _cut(text) if erased_at is None else ERASED
        for id_, erased_at, text in rows.values_list("id", "erased_at", Substr("text", 1, LENGTH + 1))
    }


def event_beginnings(ids: Iterable[str], reach: Reach) -> dict[str, str]:
    """The same of events: of one without a text, such as a retraction, the reason."""
    wanted = sorted(set(ids) - {""})
    if not wanted:
        return {}
    rows = ContextEvent.objects.filter(id__in=wanted)  # by workspace too, SQLite would walk through all of it
    return {event.id: beginning_of(event) for event in rows if reach.reads(event.workspace)}


def beginning_of(event: ContextEvent) -> str:
    return ERASED if event.erased else _cut(event.text or event.reason)


def _cut(text: str) -> str:
    return text if len(text) <= LENGTH else f"{text[: LENGTH - 1].rstrip()}…"
