"""The beginnings of memories' texts as they are now, for lists that would otherwise show bare ids."""

from __future__ import annotations

from collections.abc import Iterable

from django.db.models.functions import Substr

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


def _cut(text: str) -> str:
    return text if len(text) <= LENGTH else f"{text[: LENGTH - 1].rstrip()}…"
