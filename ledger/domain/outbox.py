"""The outbox's states, as pure rules: who may be claimed, and what becomes of an attempt.

    pending → delivering → delivered
                         → failed      the bank refused for good; somebody may ask for it again
                         → pending     the bank was down or slow: again after a growing wait

1. A claim is a lease. Whoever is killed in the middle is reclaimed when the lease ends, so every entry is delivered at
   least once; the document's id upstream is derived from the entry, so that twice is harmless.
2. What was never tried is due at once, whatever its time says: a clock that stepped back must not hold it up.
3. Nothing waits longer than LONGEST_WAIT; a time further ahead was written by a clock that has stepped back since.
4. Temporary failures are tried again for ever, with waits that double from 2 s to an hour, half of each by chance, so
   that workers do not come back all at once. `Retry-After` makes a wait longer, never shorter.
"""

from __future__ import annotations

from dataclasses import dataclass

from ledger.domain.instants import DAY, HOUR, SECOND, UnixMs

PENDING, DELIVERING, DELIVERED, FAILED = "pending", "delivering", "delivered", "failed"
STATES = (PENDING, DELIVERING, DELIVERED, FAILED)
OPEN = (PENDING, DELIVERING)  # the claim's partial index spells these two in this order
ERASED = "erased"  # the code of what failed because its text was erased before it was delivered

FIRST_WAIT: UnixMs = 2 * SECOND
LAST_WAIT: UnixMs = HOUR
LONGEST_WAIT: UnixMs = DAY


@dataclass(frozen=True, slots=True)
class Waiting:
    """An open entry as the claim sees it."""

    attempts: int
    next_attempt_at: UnixMs


@dataclass(frozen=True, slots=True)
class Outcome:
    """What an attempt leads to: the entry's next state, and when it may be claimed again."""

    state: str
    next_attempt_at: UnixMs
    attempts: int
    error_code: str = ""
    error: str = ""


def due(entry: Waiting, *, at: UnixMs) -> bool:
    """Whether an open entry may be claimed now (rules 1 to 3)."""
    return entry.attempts == 0 or entry.next_attempt_at <= at or entry.next_attempt_at > at + LONGEST_WAIT


def backoff(attempts: int, *, jitter: float) -> UnixMs:
    """The wait after so many attempts, in ms; `jitter` is a number from 0 to 1, by chance."""
    whole = min(FIRST_WAIT << min(attempts - 1, 30), LAST_WAIT)
    return whole // 2 + round(whole / 2 * jitter)


def refused(
    *,
    code: str,
    message: str,
    permanent: bool,
    pause: bool,
    retry_after_ms: int | None,
    attempts: int,
    jitter: float,
    at: UnixMs,
) -> Outcome:
    """What a failed attempt leads to; `attempts` counts it already.

    A pause is nobody's failure: the entry is pending as it was before, and due when delivery goes on.
    """
    if pause:
        return Outcome(PENDING, at, attempts - 1, code, message)
    if permanent:
        return Outcome(FAILED, at, attempts, code, message)
    wait = max(backoff(attempts, jitter=jitter), min(retry_after_ms or 0, LONGEST_WAIT))
    return Outcome(PENDING, at + wait, attempts, code, message)
