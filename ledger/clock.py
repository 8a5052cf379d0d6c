"""The clock. It is read at the edges only (views, commands) and passed in from there: no rule reads it."""

from __future__ import annotations

import time

from ledger.domain.instants import UnixMs


def now_ms() -> UnixMs:
    """This instant."""
    return time.time_ns() // 1_000_000
