"""Nearness: how close to the time that a question names a memory was written."""

from __future__ import annotations

from ledger.domain.instants import DAY, HOUR, UnixMs

HALF_DISTANCE_OF_AN_OPEN_BOUND: UnixMs = 7 * DAY
_UNITS = (("month", 30 * DAY), ("week", 7 * DAY), ("day", DAY), ("hour", HOUR))


def nearness(created_at: UnixMs, *, start: UnixMs | None, end: UnixMs | None) -> tuple[float, str]:
    """A score in [0, 1] and its reason: 1 inside [start, end), halving with each of its widths away from it.

    Where a bound is open the span has no width, and the score halves with each week. The reason tells the
    distance in the largest unit that it fills, rounded down.
    """
    distance = _distance(created_at, start, end)
    if distance == 0:
        return 1.0, "written in the named time"
    half = HALF_DISTANCE_OF_AN_OPEN_BOUND
    if start is not None and end is not None:
        half = max(end - start, 1)
    return 0.5 ** min(distance / half, 2_000.0), f"written {_in_words(distance)} from the named time"


def _distance(created_at: UnixMs, start: UnixMs | None, end: UnixMs | None) -> UnixMs:
    """Milliseconds to the nearest instant of the span, 0 inside; the end is not in the span."""
    if start is not None and created_at < start:
        return start - created_at
    if end is not None and created_at >= end:
        return created_at - end + 1
    return 0


def _in_words(distance: UnixMs) -> str:
    for name, unit in _UNITS:
        if distance >= unit:
            count = distance // unit
            return f"{count} {name}" if count == 1 else f"{count} {name}s"
    return "less than an hour"
