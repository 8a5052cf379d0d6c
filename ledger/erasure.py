"""Erasing a text for good: what holds a part of it, and how the database's file is rid of what was deleted.

The ledger blanks its own events (services.erase_event). Whatever else keeps texts names an Eraser in
settings.LEDGER_ERASERS: it tells where they are, and takes them out within the same transaction.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from django.apps import apps
from django.conf import settings
from django.db import connection
from django.utils.module_loading import import_string

from ledger.models import ContextEvent, Operation, OutboxEntry

PATIENCE = 30.0  # seconds that readers are waited for: they hold the write-ahead log
SHOWN = 50  # ids that are named of one place


@dataclass(frozen=True, slots=True)
class Subject:
    """What is erased together, because it is one text: context events, and memories."""

    event_ids: tuple[str, ...]
    memory_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Place:
    """One kind of place that holds the text, how many of it, the first of their ids, and what becomes of them."""

    name: str
    count: int
    becomes: str
    ids: tuple[str, ...] = ()

    @classmethod
    def of(cls, name: str, ids: Iterable[str], becomes: str) -> Place:
        found = tuple(ids)
        return cls(name, len(found), becomes, found[:SHOWN])


@dataclass(frozen=True, slots=True)
class Eraser:
    """Somebody who keeps texts of events or memories.

    `places` reads only. `blank` runs in the transaction of the erasure, when tombstones and marks are set; what is
    blank already it leaves alone.
    """

    places: Callable[[Subject], Iterable[Place]]
    blank: Callable[[Subject], object]


def erasers() -> Iterator[Eraser]:
    """Those that settings.LEDGER_ERASERS names."""
    for path in settings.LEDGER_ERASERS:
        eraser: Eraser = import_string(path)
        yield eraser


def places(subject: Subject) -> list[Place]:
    """Where the ledger holds the text."""
    events = ContextEvent.objects.filter(id__in=subject.event_ids, salt__isnull=False)
    changes = ContextEvent.objects.filter(subject_id__in=subject.memory_ids, salt__isnull=False)
    about = {"event__id__in": subject.event_ids}
    entries = OutboxEntry.objects.filter(**about).order_by("id")
    return [
        Place.of("ledger: the event", _ids(events), "blanked, with a tombstone"),
        Place.of("ledger: events of the memory", _ids(changes), "blanked, with a tombstone each"),
        Place.of(
            "ledger: answers stored under an idempotency key",
            Operation.objects.filter(**about).order_by("id").values_list("id", flat=True),
            "kept: a salted hash, whose salt is erased",
        ),
        Place.of(
            "outbox: deliveries of the event",
            (str(id_) for id_ in entries.values_list("id", flat=True)),
            "payload and error blanked; what waits is not delivered",
        ),
        Place.of(
            "upstream: documents in the memory bank",
            entries.filter(kind="context").values_list("event__id", flat=True),
            "removed by a delivery of its own, manage.py deliver",
        ),
    ]


def _ids(events: Iterable[ContextEvent]) -> Iterator[str]:
    return (event.id for event in events)


class StillRead(Exception):
    """Somebody goes on reading an old state of the database, so the write-ahead log still holds it."""


def rewrite_storage() -> None:
    """Write the database's files anew, so that nothing that was deleted is left in them; raises StillRead.

    SQLite: VACUUM, and an empty write-ahead log. PostgreSQL: VACUUM FULL of every table of ours.
    """
    assert not connection.in_atomic_block, "a transaction would be kept open over it"
    deadline = time.monotonic() + PATIENCE
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            for table in _tables():
                cursor.execute(f'VACUUM (FULL) "{table}"')
            return
        cursor.execute("VACUUM")
        while True:
            cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            if not cursor.fetchone()[0]:
                return
            if time.monotonic() > deadline:
                raise StillRead("a reader of an older state keeps the write-ahead log from being emptied")
            time.sleep(0.1)


def _tables() -> list[str]:
    ours = ("ledger", "vault", "recall")
    there = set(connection.introspection.table_names())
    models = (model for model in apps.get_models() if model._meta.app_label in ours)
    return sorted({model._meta.db_table for model in models} & there)


def size_of_storage() -> int:
    """Bytes that the database takes."""
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute("SELECT pg_database_size(current_database())")
        else:
            cursor.execute("SELECT page_count * page_size FROM pragma_page_count, pragma_page_size")
        size: int = cursor.fetchone()[0]
    return size
