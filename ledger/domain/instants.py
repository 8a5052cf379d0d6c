"""Instants: integers of milliseconds since 1970-01-01T00:00:00Z, and their one spelling.

Everything is stored, compared and computed as such an integer (`UnixMs`), so that half-open ranges are exact
in Python and in SQL alike. Text is RFC 3339 (https://www.rfc-editor.org/rfc/rfc3339); it is read and written
only at the edge, here.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

UnixMs: TypeAlias = int

SECOND: UnixMs = 1_000
MINUTE: UnixMs = 60 * SECOND
HOUR: UnixMs = 60 * MINUTE
DAY: UnixMs = 24 * HOUR

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NAIVE_EPOCH = datetime(1970, 1, 1)
EARLIEST: UnixMs = -62_135_596_800_000  # 0001-01-01T00:00:00Z
LATEST: UnixMs = 253_402_300_799_999  # 9999-12-31T23:59:59.999Z

_BARE_DATE = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_RFC3339 = re.compile(
    r"\d{4}-\d{2}-\d{2}[Tt ](?!24)\d{2}:\d{2}(:\d{2}(\.\d{1,9})?)?(?P<offset>[Zz]|[+-]\d{2}:\d{2})?", re.ASCII
)


class NotAnInstant(ValueError):
    """A text or number that names no instant; `str()` of it says what is wrong, in words for the caller."""


def parse_instant(text: str) -> UnixMs:
    """Read an RFC 3339 instant, or a bare date (midnight UTC); a time without an offset is refused.

    Fractions are cut to the millisecond. Raises NotAnInstant.
    """
    text = text.strip()
    if _BARE_DATE.fullmatch(text):
        return _from_iso(text + "T00:00:00+00:00", text)
    match = _RFC3339.fullmatch(text)
    if match is None:
        raise NotAnInstant(f"{_shown(text)} is not an RFC 3339 time such as 2026-11-30T13:58:02Z")
    if match["offset"] is None:
        raise NotAnInstant(f"{_shown(text)} has no offset: end it with Z for UTC, or with +01:00")
    return _from_iso(re.sub(r"[Zz]$", "+00:00", text), text)


def check_instant(value: int) -> UnixMs:
    """Return the integer when it lies in the years 1 to 9999; raises NotAnInstant."""
    if not EARLIEST <= value <= LATEST:
        raise NotAnInstant(f"{value} ms lies outside the years 1 to 9999")
    return value


def format_instant(at: UnixMs) -> str:
    """Spell an instant as RFC 3339 in UTC with `Z`, with milliseconds only where there are any."""
    moment = _NAIVE_EPOCH + timedelta(milliseconds=at)
    return f"{moment.isoformat(timespec='milliseconds' if at % 1000 else 'seconds')}Z"


def utc(at: UnixMs) -> datetime:
    """The instant as an aware datetime in UTC."""
    return EPOCH + timedelta(milliseconds=at)


def from_datetime(moment: datetime) -> UnixMs:
    """The instant of an aware datetime, cut to the millisecond."""
    return (moment - EPOCH) // timedelta(milliseconds=1)


def _from_iso(iso: str, said: str) -> UnixMs:
    iso = re.sub(r"(\.\d{6})\d+", r"\1", iso.upper())
    try:
        moment = datetime.fromisoformat(iso)
        return check_instant(from_datetime(moment))
    except (ValueError, OverflowError) as error:
        raise NotAnInstant(f"{_shown(said)} is not a time that exists: {error}") from error


def _shown(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:39] + "…")
