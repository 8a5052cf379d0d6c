"""Delivering the outbox: claim one entry, hand it to its handler outside every transaction, settle what came of it.

A handler is named in settings.OUTBOX_HANDLERS by the kind of entry; it answers Delivered or raises DeliveryFailed.
"""

from __future__ import annotations

import logging
import os
import random
import secrets
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from django.conf import settings
from django.db import DatabaseError, connection
from django.utils.module_loading import import_string

from ledger.domain import outbox as rules
from ledger.domain.instants import SECOND, UnixMs
from ledger.domain.outbox import Outcome, Waiting
from ledger.models import OutboxEntry, OutboxPause

log = logging.getLogger(__name__)

IDLE: UnixMs = SECOND  # how often an empty queue is looked at
LONGEST_REST: UnixMs = 30 * SECOND  # between attempts, while the bank does not answer
GIVE_UP_AFTER = 10  # attempts in a row that failed, for a worker that runs once


@dataclass(frozen=True, slots=True)
class Delivered:
    """The bank has it, under this id."""

    remote_id: str


class DeliveryFailed(Exception):
    """A handler's facts about a failure: whether another attempt can help, when, and whether all should wait."""

    def __init__(
        self,
        code: str,
        message: str,
        *,
        permanent: bool = False,
        retry_after_ms: int | None = None,
        pause: bool = False,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.permanent = permanent
        self.retry_after_ms = retry_after_ms
        self.pause = pause


Handler: TypeAlias = Callable[[OutboxEntry], Delivered]
Clock: TypeAlias = Callable[[], UnixMs]


def claim(*, at: UnixMs, lease_ms: UnixMs, token: str) -> OutboxEntry | None:
    """Take the entry that has been due longest, for the time of a lease; None where nothing is due.

    A conditional UPDATE decides between workers: whoever comes second changes no row, and looks for the next.
    """
    kinds = _going()
    if not kinds:
        return None
    while (found := _soonest(kinds, at=at)) is not None:
        id_, attempts, next_attempt_at = found
        if _take(id_, seen=Waiting(attempts, next_attempt_at), until=at + lease_ms, token=token):
            return OutboxEntry.objects.select_related("event").get(id=id_)
    return None


# The partial index outbox_claim serves these: its condition must stand in them literally, not as parameters.
_OPEN = "state IN ('pending', 'delivering')"
_IN_TIME = "next_attempt_at <= %(at)s"
_WHATEVER_THE_CLOCK = "(attempts = 0 OR next_attempt_at > %(beyond)s)"  # domain/outbox.py, rules 2 and 3


def claim_query(condition: str, kinds: int) -> str:
    """The query behind a claim; a test holds it to its index."""
    named = ", ".join(f"%(kind{n})s" for n in range(kinds))
    return (
        f"SELECT id, attempts, next_attempt_at FROM ledger_outboxentry WHERE {_OPEN} AND {condition} "
        f"AND kind IN ({named}) ORDER BY next_attempt_at, id LIMIT 1"
    )


def _soonest(kinds: list[str], *, at: UnixMs) -> tuple[int, int, UnixMs] | None:
    said: dict[str, int | str] = {"at": at, "beyond": at + rules.LONGEST_WAIT}
    said |= {f"kind{n}": kind for n, kind in enumerate(kinds)}
    with connection.cursor() as cursor:
        for condition in (_IN_TIME, _WHATEVER_THE_CLOCK):
            cursor.execute(claim_query(condition, len(kinds)), said)
            found: tuple[int, int, UnixMs] | None = cursor.fetchone()
            if found is not None:
                return found
    return None


def _take(id_: int, *, seen: Waiting, until: UnixMs, token: str) -> bool:
    with connection.cursor() as cursor:
        cursor.execute(
            f"UPDATE ledger_outboxentry SET state = 'delivering', attempts = attempts + 1, lease_until = %s, "
            f"next_attempt_at = %s, lease_token = %s WHERE id = %s AND {_OPEN} AND attempts = %s "
            f"AND next_attempt_at = %s",
            [until, until, token, id_, seen.attempts, seen.next_attempt_at],
        )
        return bool(cursor.rowcount == 1)


def deliver_one(*, clock: Clock, lease_ms: UnixMs, token: str) -> OutboxEntry | None:
    """Claim one entry, deliver it and settle it; the entry as it stands then, or None where nothing was due."""
    entry = claim(at=clock(), lease_ms=lease_ms, token=token)
    if entry is None:
        return None
    try:
        handler: Handler = import_string(settings.OUTBOX_HANDLERS[entry.kind])
        delivered = handler(entry)
    except DeliveryFailed as failure:
        _settle_failure(entry, failure, at=clock())
    except Exception as error:  # a bug of a handler must not lose an entry, nor end the worker
        log.exception("the handler of outbox entry %s failed", entry.id)
        told = f"{type(error).__name__}: see the log of the worker"
        _settle_failure(entry, DeliveryFailed("handler_failed", told), at=clock())
    else:
        _settle_success(entry, delivered, at=clock())
    return entry


@dataclass(slots=True)
class Tally:
    """What a worker did. `gave_up` says that it ended because the bank did not answer."""

    delivered: int = 0
    failed: int = 0
    postponed: int = 0
    gave_up: bool = False


def run(
    stop: threading.Event,
    *,
    clock: Clock,
    lease_ms: UnixMs,
    once: bool = False,
) -> Tally:
    """Deliver until told to stop, or with `once` until nothing is due and no other worker is at it (nor killed: its
    lease is waited for). What has begun is finished first.

    Where attempt after attempt fails it rests for longer and longer, so that a bank that is down is not beaten;
    with `once` it gives up. A database that does not answer ends nothing: leases see to what was under way.
    """
    tally, in_a_row = Tally(), 0
    token = f"{socket.gethostname()[:24]}:{os.getpid()}:{secrets.token_hex(8)}"
    while not stop.is_set():
        try:
            entry = deliver_one(clock=clock, lease_ms=lease_ms, token=token)
            if entry is None and once and not _others_deliver():
                break
        except DatabaseError as error:
            log.warning("the outbox waits for the database: %s", error)
            connection.close()
            in_a_row += 1
        else:
            if entry is None:
                stop.wait(IDLE / SECOND)
                continue
            in_a_row = in_a_row + 1 if _counted(tally, entry) == rules.PENDING else 0
        if in_a_row and once and in_a_row >= GIVE_UP_AFTER:
            tally.gave_up = True
            break
        if in_a_row and not once:
            stop.wait(min(rules.backoff(in_a_row, jitter=random.random()), LONGEST_REST) / SECOND)  # noqa: S311
    return tally


def _others_deliver() -> bool:
    return OutboxEntry.objects.filter(state=rules.DELIVERING, kind__in=_going()).exists()


def _going() -> list[str]:
    """The kinds that somebody handles and that are not paused."""
    return sorted(set(settings.OUTBOX_HANDLERS) - set(OutboxPause.objects.values_list("kind", flat=True)))


def _counted(tally: Tally, entry: OutboxEntry) -> str:
    if entry.state == rules.DELIVERED:
        tally.delivered += 1
    elif entry.state == rules.FAILED:
        tally.failed += 1
    else:
        tally.postponed += 1
    return entry.state


def _settle_success(entry: OutboxEntry, delivered: Delivered, *, at: UnixMs) -> None:
    _settle(
        entry,
        state=rules.DELIVERED,
        delivered_at=at,
        remote_id=delivered.remote_id,
        error_code="",
        error="",
    )


def _settle_failure(entry: OutboxEntry, failure: DeliveryFailed, *, at: UnixMs) -> None:
    outcome: Outcome = rules.refused(
        code=failure.code,
        message=failure.message,
        permanent=failure.permanent,
        pause=failure.pause,
        retry_after_ms=failure.retry_after_ms,
        attempts=entry.attempts,
        jitter=random.random(),  # noqa: S311  it spreads retries, it guards nothing
        at=at,
    )
    if failure.pause:
        OutboxPause.objects.get_or_create(kind=entry.kind, defaults={"reason": failure.message, "since": at})
        log.error("delivery of %s is paused: %s", entry.kind, failure.message)
    _settle(
        entry,
        state=outcome.state,
        attempts=outcome.attempts,
        next_attempt_at=outcome.next_attempt_at,
        error_code=outcome.error_code[:64],
        error=outcome.error,
    )


def _settle(entry: OutboxEntry, **fields: object) -> None:
    """Write what came of an attempt, unless its lease ended and somebody else has it: then theirs counts."""
    mine = OutboxEntry.objects.filter(id=entry.id, state=rules.DELIVERING, lease_token=entry.lease_token)
    if not mine.update(**fields, lease_until=None, lease_token=""):
        log.warning("outbox entry %s was claimed by another worker: its lease had ended", entry.id)
    for name, value in fields.items():
        setattr(entry, name, value)
