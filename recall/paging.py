"""Keyset paging over a table's ascending number: a page stays right while rows are added."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from django.db.models import Model, QuerySet

from ledger.domain.refusals import Invalid
from recall.domain.request import MAX_LIMIT

M = TypeVar("M", bound=Model)


@dataclass(frozen=True, slots=True)
class Cursor:
    """Where a page begins: rows older than `seq` (next) or newer (previous)."""

    older: bool
    seq: int

    def __str__(self) -> str:
        return f"{'o' if self.older else 'n'}{self.seq}"


@dataclass(frozen=True, slots=True)
class Page(Generic[M]):
    rows: Sequence[M]
    next: Cursor | None
    previous: Cursor | None


def parse_cursor(text: str | None) -> Cursor | None:
    if not text:
        return None
    digits = text[1:]
    if text[0] not in "on" or not digits.isascii() or not digits.isdigit() or len(digits) > 18:
        raise Invalid("cursor is not one that this server gave out", field="cursor")
    return Cursor(text[0] == "o", int(digits))


def parse_limit(text: str | None, *, default: int = 50) -> int:
    if text is None:
        return default
    if not text.isascii() or not text.isdigit() or not 1 <= int(text[:6]) <= MAX_LIMIT:
        raise Invalid(f"limit must be a number from 1 to {MAX_LIMIT}", field="limit")
    return int(text)


def page_of(rows: QuerySet[M], *, cursor: Cursor | None, limit: int, key: str = "seq") -> Page[M]:
    """One page, newest first: one query, whatever the size of the table."""
    if cursor is None or cursor.older:
        narrowed = rows if cursor is None else rows.filter(**{f"{key}__lt": cursor.seq})
        found: list[Any] = list(narrowed.order_by(f"-{key}")[: limit + 1])
        shown, more_older, more_newer = found[:limit], len(found) > limit, cursor is not None
    else:
        found = list(rows.filter(**{f"{key}__gt": cursor.seq}).order_by(key)[: limit + 1])
        shown, more_older, more_newer = found[:limit][::-1], True, len(found) > limit
    return Page(
        shown,
        Cursor(True, getattr(shown[-1], key)) if shown and more_older else None,
        Cursor(False, getattr(shown[0], key)) if shown and more_newer else None,
    )
