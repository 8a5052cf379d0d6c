"""Reading the ledger."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from django.conf import settings
from django.db import connection
from django.utils.module_loading import import_string

from ledger.domain import hashchain
from ledger.models import ContextEvent, Tombstone


def head() -> tuple[int, str]:
    """The newest event's (seq, hash); (0, genesis) for an empty ledger. Plain SQL: every recall asks for it."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT seq, hash FROM ledger_contextevent ORDER BY seq DESC LIMIT 1")
        newest: tuple[int, str] | None = cursor.fetchone()
    return newest or (0, hashchain.GENESIS)


@dataclass(frozen=True, slots=True)
class Verification:
    """What a walk over the whole chain found."""

    events: int
    head_hash: str
    first_broken: hashchain.Break | None

    @property
    def ok(self) -> bool:
        return self.first_broken is None


def verify(*, progress: Callable[[int], object] | None = None) -> Verification:
    """Walk the chain from the first event to the last, in constant memory, past every head that somebody recorded.

    The chain alone cannot show that its tail was cut off; settings.LEDGER_WITNESSES names who remembers heads.
    """
    events, head_hash = 0, hashchain.GENESIS
    witnesses = _witnesses()
    witness = next(witnesses, None)
    for step in hashchain.first_break(_links()):
        if isinstance(step, hashchain.Break):
            return Verification(events, head_hash, step)
        events, head_hash = events + 1, step.hash
        while witness is not None and witness[0] == step.seq:
            if witness[1] != step.hash:
                reason = "it is not the event that was the head when something was recalled"
                return Verification(events, head_hash, hashchain.Break(step.seq, step.id, reason))
            witness = next(witnesses, None)
        if progress is not None and events % 1000 == 0:
            progress(1000)
    if witness is not None:
        reason = f"the ledger ends before event {witness[0]}, which was its head when something was recalled"
        return Verification(events, head_hash, hashchain.Break(events + 1, "", reason))
    return Verification(events, head_hash, None)


def _witnesses() -> Iterator[tuple[int, str]]:
    """Recorded heads, in ascending order of seq."""
    return heapq.merge(*(import_string(path)() for path in settings.LEDGER_WITNESSES))


def _links() -> Iterator[hashchain.Link]:
    buried: set[object] = set(Tombstone.objects.values_list("event_id", flat=True))
    for event in ContextEvent.objects.order_by("seq").iterator(chunk_size=1000):
        yield hashchain.Link(
            seq=event.seq,
            id=event.id,
            metadata=event.chained_metadata,
            payload=None if event.erased else (event.salt or "", event.text, event.before, event.after),
            payload_hash=event.payload_hash,
            prev_hash=event.prev_hash,
            hash=event.hash,
            erased=event.id in buried,
        )
