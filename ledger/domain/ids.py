"""Typed, time-sortable ids: a prefix and a lower-case ULID (https://github.com/ulid/spec).

Ids made by one process in the same millisecond still sort in the order in which they were made: "the newest
by (created_at, id)" decides between links, and an import of day-granular history must keep its order.
"""

from __future__ import annotations

import re
import secrets
import threading
from collections.abc import Callable

from ledger.domain.instants import UnixMs

PREFIXES = ("mem", "lnk", "evt", "rcl", "why", "vdt", "op", "key", "run")
_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_SHAPE = re.compile(rf"(?P<prefix>[a-z]+)_[{_ALPHABET}]{{26}}")
_RANDOM_BITS = 80


def _encode(number: int) -> str:
    return "".join(_ALPHABET[(number >> shift) & 31] for shift in range(125, -1, -5))


def _sequence() -> Callable[[UnixMs], int]:
    lock = threading.Lock()
    last = 0

    def after(at: UnixMs) -> int:
        nonlocal last
        with lock:
            fresh = (max(at, 0) << _RANDOM_BITS) | secrets.randbits(_RANDOM_BITS - 1)
            # Same or earlier millisecond: step on from the last id, so that order of making is order of ids.
            last = fresh if fresh >> _RANDOM_BITS > last >> _RANDOM_BITS else last + 1 + secrets.randbits(32)
            return last

    return after


_next = _sequence()


def new_id(prefix: str, at: UnixMs) -> str:
    """A fresh id such as `mem_01jd…`, sortable by the instant and by the order of making."""
    assert prefix in PREFIXES, prefix
    return f"{prefix}_{_encode(_next(at))}"


def is_id(text: str, prefix: str) -> bool:
    """Whether the text has the form of an id of that type."""
    match = _SHAPE.fullmatch(text)
    return match is not None and match["prefix"] == prefix
