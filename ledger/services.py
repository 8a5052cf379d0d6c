"""Writing the ledger. Callers open the transaction: the event and what it is about are written together."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from django.db import connection, transaction

from ledger.domain import hashchain
from ledger.domain.actors import Actor
from ledger.domain.events import NewEvent
from ledger.domain.ids import new_id
from ledger.domain.instants import UnixMs
from ledger.models import ContextEvent, Tombstone
from ledger.queries import head

_CHAIN_LOCK = 0x5EC0_4D1E  # any constant: it names this chain among PostgreSQL's advisory locks


def append_events(events: Sequence[NewEvent], *, at: UnixMs) -> list[ContextEvent]:
    """Append events in order, each chained to the one before it.

    Must run inside a transaction that holds the write lock: `BEGIN IMMEDIATE` on SQLite (settings.DATABASES),
    an advisory lock taken here on PostgreSQL. So `seq` has no gaps and no two writers see the same head.
    """
    assert connection.in_atomic_block, "append_events writes beside what happened, in one transaction"
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", [_CHAIN_LOCK])
    seq, prev_hash = head()
    rows = []
    for event in events:
        seq += 1
        row = _row(event, seq=seq, prev_hash=prev_hash, at=at)
        prev_hash = row.hash
        rows.append(row)
    ContextEvent.objects.bulk_create(rows, batch_size=500)
    return rows


def append_event(event: NewEvent, *, at: UnixMs) -> ContextEvent:
    """Append one event; see append_events."""
    return append_events([event], at=at)[0]


def _row(event: NewEvent, *, seq: int, prev_hash: str, at: UnixMs) -> ContextEvent:
    row = ContextEvent(
        seq=seq,
        id=new_id("evt", at),
        kind=event.kind,
        workspace=event.workspace,
        actor_kind=event.actor.kind,
        actor_id=event.actor.id,
        actor_label=event.actor.label,
        subject_id=event.subject_id,
        object_id=event.object_id,
        item_id=event.item_id,
        reason=event.reason,
        metadata=_json(event.metadata),
        occurred_at=event.occurred_at,
        recorded_at=at,
        text=event.text,
        before=None if event.before is None else _json(event.before),
        after=None if event.after is None else _json(event.after),
        salt=secrets.token_hex(16),
        prev_hash=prev_hash,
    )
    row.payload_hash = hashchain.payload_hash(
        salt=row.salt or "", text=row.text, before=row.before, after=row.after
    )
    row.hash = hashchain.event_hash(
        seq=seq, metadata=row.chained_metadata, payload_hash=row.payload_hash, prev_hash=prev_hash
    )
    return row


def _json(value: Mapping[str, Any]) -> str:
    return hashchain.canonical(value).decode()


def erase_payloads(subject_id: str, *, actor: Actor, reason: str, at: UnixMs) -> list[str]:
    """Blank text, before, after and salt of every event about a memory, leaving a tombstone for each.

    The chain still verifies: it covers the payload's hash, which stays. Returns the ids of the events.
    """
    with transaction.atomic():
        events = [e for e in ContextEvent.objects.about(subject_id) if not e.erased]
        Tombstone.objects.bulk_create(
            Tombstone(
                event=event,
                payload_hash=event.payload_hash,
                actor_kind=actor.kind,
                actor_id=actor.id,
                actor_label=actor.label,
                reason=reason,
                erased_at=at,
            )
            for event in events
        )
        with connection.cursor() as cursor:  # not through the ORM, which refuses every UPDATE of an event
            cursor.executemany(
                'UPDATE ledger_contextevent SET text = NULL, "before" = NULL, "after" = NULL, salt = NULL '
                "WHERE seq = %s",
                [(event.seq,) for event in events],
            )
    return [event.id for event in events]
