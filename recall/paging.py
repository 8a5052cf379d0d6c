"""Keyset paging over a table's ascending number: a page stays right while rows are added."""

from __future__ import annotations

import hmac
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from django.conf import settings
from django.db.models import Model, QuerySet

from ledger.domain.refusals import Invalid
from recall.domain.request import MAX_LIMIT

M = TypeVar("M", bound=Model)
_SEALED = re.compile(r"[A-Za-z0-9_-]{22}")


@dataclass(frozen=True, slots=True)
class Cursor:
    """Where a page begins: rows older than `seq` (next) or newer (previous).

    Its spelling is sealed: numbers count the rows of every workspace, which not every reader may know.
    """

    older: bool
    seq: int

    def __str__(self) -> str:
        number = (2 * self.seq + self.older).to_bytes(8, "big")
        tag = _keyed(b"tag", number)
        return urlsafe_b64encode(tag + _masked(number, tag)).decode().rstrip("=")


@dataclass(frozen=True, slots=True)
class Page(Generic[M]):
    rows: Sequence[M]
    next: Cursor | None
    previous: Cursor | None


def parse_cursor(text: str | None) -> Cursor | None:
    if not text:
        return None
    sealed = urlsafe_b64decode(text + "==") if _SEALED.fullmatch(text) else b""
    tag, number = sealed[:8], _masked(sealed[8:], sealed[:8])
    if not sealed or not hmac.compare_digest(tag, _keyed(b"tag", number)):
        raise Invalid("cursor is not one that this server gave out", field="cursor")
    return Cursor(bool(number[-1] & 1), int.from_bytes(number, "big") >> 1)


def _keyed(purpose: bytes, data: bytes) -> bytes:
    return hmac.digest(settings.SECRET_KEY.encode(), b"cursor " + purpose + b" " + data, "sha256")[:8]


def _masked(number: bytes, tag: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(number, _keyed(b"mask", tag), strict=False))


def parse_limit(text: str | None, *, default: int = 50) -> int:
    if text is None:
        return default
    if not text.isascii() or not text.isdigit() or len(text) > 6 or not 1 <= int(text) <= MAX_LIMIT:
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
