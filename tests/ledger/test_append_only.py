"""The ledger refuses UPDATE and DELETE: in the models, and in the database for whoever goes around them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.conf import settings
from django.core.management import call_command
from django.db import DatabaseError, connection, models, transaction
from django.utils.module_loading import import_string

from ledger import triggers
from ledger.domain.actors import SYSTEM
from ledger.domain.events import MEMORY_CREATED, MEMORY_ERASED, NewEvent
from ledger.domain.instants import UnixMs
from ledger.models import AppendOnly, ContextEvent, Tombstone
from ledger.queries import head, verify
from ledger.services import append_event, append_events, erase_payloads

pytestmark = pytest.mark.django_db
on_sqlite = pytest.mark.skipif(connection.vendor != "sqlite", reason="this way around is SQLite's alone")
on_postgresql = pytest.mark.skipif(
    connection.vendor != "postgresql", reason="PostgreSQL's alone: tests/ledger/test_on_postgresql.py"
)

Append = Callable[..., ContextEvent]


@pytest.fixture
def append(now: UnixMs) -> Append:
    def appended(text: str = "a text", *, subject_id: str = "mem_a", **fields: Any) -> ContextEvent:
        event = NewEvent(
            kind=MEMORY_CREATED,
            actor=SYSTEM,
            workspace="",
            subject_id=subject_id,
            occurred_at=now,
            text=text,
            after={"tags": ["t"]},
            **fields,
        )
        with transaction.atomic():
            return append_event(event, at=now)

    return appended


def _refused(statement: str, parameters: list[Any] | None = None) -> str:
    with pytest.raises(DatabaseError) as refused, transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(statement, parameters)
    return str(refused.value)


# ---- the models


def test_an_event_cannot_be_saved_again(append: Append) -> None:
    event = append()
    event.reason = "another"
    with pytest.raises(AppendOnly):
        event.save()
    with pytest.raises(AppendOnly):
        event.save(update_fields=["reason"])


def test_an_event_cannot_be_deleted(append: Append) -> None:
    with pytest.raises(AppendOnly):
        append().delete()


def test_a_set_of_events_can_be_neither_updated_nor_deleted(append: Append) -> None:
    append()
    with pytest.raises(AppendOnly):
        ContextEvent.objects.update(reason="another")
    with pytest.raises(AppendOnly):
        ContextEvent.objects.all().delete()


def test_bulk_ways_around_the_model_end_at_the_models_or_at_the_database(append: Append) -> None:
    event = append()
    event.reason = "another"
    with pytest.raises((AppendOnly, DatabaseError)), transaction.atomic():
        ContextEvent.objects.bulk_update([event], ["reason"])
    with pytest.raises((AppendOnly, DatabaseError)), transaction.atomic():
        ContextEvent.objects.bulk_create(
            [event], update_conflicts=True, unique_fields=["seq"], update_fields=["reason"]
        )
    with pytest.raises((AppendOnly, DatabaseError)), transaction.atomic():
        models.QuerySet(ContextEvent).filter(seq=event.seq).update(reason="another")
    with pytest.raises((AppendOnly, DatabaseError)), transaction.atomic():
        models.QuerySet(ContextEvent).filter(seq=event.seq)._raw_delete(using="default")
    assert ContextEvent.objects.get(seq=event.seq).reason == ""


# ---- the database


@pytest.mark.parametrize("column", [field.column for field in ContextEvent._meta.concrete_fields])
def test_no_column_of_an_event_can_be_updated_by_sql(append: Append, column: str) -> None:
    append()
    message = _refused(f'UPDATE ledger_contextevent SET "{column}" = %s', ["9"])
    assert "ledger_contextevent is append-only" in message


def test_no_event_can_be_deleted_by_sql(append: Append) -> None:
    append()
    assert "append-only" in _refused("DELETE FROM ledger_contextevent")
    assert "append-only" in _refused("DELETE FROM ledger_contextevent WHERE seq = 1")
    assert verify().events == 1


@on_sqlite
def test_no_event_can_be_replaced_by_an_insert(append: Append) -> None:
    append()
    assert "append-only" in _refused("REPLACE INTO ledger_contextevent SELECT * FROM ledger_contextevent")
    assert verify().ok


def test_an_update_that_changes_nothing_is_refused_too(append: Append) -> None:
    append()
    assert "append-only" in _refused("UPDATE ledger_contextevent SET reason = reason")


BLANKED = 'text = NULL, "before" = NULL, "after" = NULL, salt = NULL'


def _bury(event: ContextEvent, now: UnixMs) -> None:
    Tombstone.objects.create(
        event=event,
        payload_hash=event.payload_hash,
        actor_kind="user",
        actor_id="1",
        actor_label="ada",
        reason="asked for",
        erased_at=now,
    )


def test_a_payload_cannot_be_blanked_without_a_tombstone(append: Append) -> None:
    append()
    assert "append-only" in _refused(f"UPDATE ledger_contextevent SET {BLANKED}")


def test_a_tombstone_of_one_event_does_not_open_another(append: Append, now: UnixMs) -> None:
    _bury(append(), now)
    append("another")
    assert "append-only" in _refused(f"UPDATE ledger_contextevent SET {BLANKED} WHERE seq = 2")


@pytest.mark.parametrize(
    "change",
    [
        'text = NULL, "before" = NULL, "after" = NULL',
        'text = \'\', "before" = NULL, "after" = NULL, salt = NULL',
        f"{BLANKED}, reason = 'x'",
        f"{BLANKED}, payload_hash = 'x'",
        f"{BLANKED}, seq = 7",
        f"{BLANKED}, item_id = 'x'",
    ],
)
def test_with_a_tombstone_exactly_the_four_payload_columns_may_become_null(
    append: Append, now: UnixMs, change: str
) -> None:
    _bury(append(), now)
    assert "append-only" in _refused(f"UPDATE ledger_contextevent SET {change}")
    with connection.cursor() as cursor:
        cursor.execute(f"UPDATE ledger_contextevent SET {BLANKED}")
    event = ContextEvent.objects.get()
    assert (event.text, event.before, event.after, event.salt) == (None, None, None, None)
    assert event.erased
    broken = verify().first_broken
    assert broken is not None  # whoever erased it so left no event of it
    assert broken.reason == "a tombstone stands for it, and no event says that it was erased so"


def test_a_tombstone_is_for_good(append: Append, now: UnixMs) -> None:
    _bury(append(), now)
    assert "ledger_tombstone is append-only" in _refused("DELETE FROM ledger_tombstone")
    assert "ledger_tombstone is append-only" in _refused("UPDATE ledger_tombstone SET reason = 'x'")


@on_sqlite
def test_a_tombstone_cannot_be_replaced_by_an_insert(append: Append, now: UnixMs) -> None:
    _bury(append(), now)
    assert "append-only" in _refused("REPLACE INTO ledger_tombstone SELECT * FROM ledger_tombstone")


@on_postgresql
@pytest.mark.parametrize("table", ["ledger_contextevent", "ledger_tombstone"])
def test_a_guarded_table_cannot_be_truncated(table: str, append: Append) -> None:
    append()
    assert "append-only" in _refused(f"TRUNCATE {table} CASCADE")


def test_erasing_blanks_every_event_about_a_memory_and_no_other(append: Append, now: UnixMs) -> None:
    mine, other = append("mine"), append("other", subject_id="mem_b")
    assert erase_payloads("mem_a", actor=SYSTEM, reason="asked for", at=now) == [mine.id]
    assert ContextEvent.objects.get(id=mine.id).erased
    assert ContextEvent.objects.get(id=other.id).text == "other"
    assert Tombstone.objects.get().payload_hash == mine.payload_hash
    with transaction.atomic():
        erased = NewEvent(
            kind=MEMORY_ERASED,
            actor=SYSTEM,
            workspace="",
            subject_id="mem_a",
            reason="asked for",
            occurred_at=now,
        )
        append_event(erased, at=now)
    assert verify().ok
    assert mine.id not in erase_payloads("mem_a", actor=SYSTEM, reason="again", at=now)


# ---- the guards


def test_a_missing_guard_is_named() -> None:
    assert triggers.missing() == []
    on_table = " ON ledger_contextevent" if connection.vendor == "postgresql" else ""
    with connection.cursor() as cursor:
        cursor.execute(f"DROP TRIGGER ledger_contextevent_no_update{on_table}")
    assert triggers.missing() == ["ledger_contextevent_no_update"]


@on_sqlite
def test_a_guard_that_does_nothing_is_missing_and_is_put_back(append: Append) -> None:
    append()
    name = "ledger_contextevent_no_update"
    with connection.cursor() as cursor:
        cursor.execute(f"DROP TRIGGER {name}")
        cursor.execute(
            f"CREATE TRIGGER {name} BEFORE UPDATE ON ledger_contextevent WHEN 0 BEGIN SELECT 1; END"
        )
    assert triggers.missing() == [name]
    triggers.install()
    assert triggers.missing() == []
    assert "append-only" in _refused("UPDATE ledger_contextevent SET reason = 'x'")


def test_migrate_puts_missing_guards_back() -> None:
    triggers.lift()
    guarded = {name.rsplit("_no_", 1)[0] for name in triggers.missing()}
    assert guarded == {import_string(path).table for path in settings.GUARDS}
    written_once = "contextevent", "tombstone", "supersession", "operation"
    assert guarded >= {f"ledger_{table}" for table in written_once}
    call_command("migrate", verbosity=0)
    assert triggers.missing() == []


@on_sqlite
def test_a_table_that_sqlite_rebuilds_is_guarded_again_after_migrate(
    transactional_db: None, append: Append
) -> None:
    append()
    field = models.CharField(max_length=77, default="")
    field.set_attributes_from_name("added_by_a_test")
    with connection.schema_editor() as editor:
        editor._remake_table(ContextEvent, create_field=field)
    try:
        assert [name.rsplit("_", 1)[1] for name in triggers.missing()] == ["delete", "replace", "update"]
        call_command("migrate", verbosity=0)
        assert triggers.missing() == []
        assert "append-only" in _refused("DELETE FROM ledger_contextevent")
        assert verify().ok
    finally:
        triggers.lift()
        with connection.schema_editor() as editor:
            editor._remake_table(ContextEvent)
        triggers.install()


# ---- the chain


def test_the_chain_begins_at_genesis_and_each_event_holds_the_hash_before_it(append: Append) -> None:
    assert head() == (0, "0" * 64)
    one, two = append("one"), append("two")
    assert (one.seq, one.prev_hash) == (1, "0" * 64)
    assert (two.seq, two.prev_hash) == (2, one.hash)
    assert head() == (2, two.hash)
    found = verify()
    assert (found.ok, found.events, found.head_hash) == (True, 2, two.hash)


def test_an_event_cannot_be_appended_outside_a_transaction(transactional_db: None, now: UnixMs) -> None:
    with pytest.raises(AssertionError, match="in one transaction"):
        append_events([], at=now)


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("UPDATE ledger_contextevent SET text = 'forged' WHERE seq = 2", "text, before or after was changed"),
        ("UPDATE ledger_contextevent SET reason = 'forged' WHERE seq = 2", "metadata or hash was changed"),
        ("UPDATE ledger_contextevent SET actor_label = 'eve' WHERE seq = 2", "metadata or hash was changed"),
        ("UPDATE ledger_contextevent SET salt = 'zz' WHERE seq = 2", "salt was changed"),
        (f"UPDATE ledger_contextevent SET {BLANKED} WHERE seq = 2", "no tombstone says why"),
        ("UPDATE ledger_contextevent SET salt = NULL WHERE seq = 2", "salt was changed"),
        ("DELETE FROM ledger_contextevent WHERE seq = 2", "event 2 is missing"),
    ],
)
def test_somebody_who_lifts_the_guards_and_edits_is_found_by_verify(
    append: Append, statement: str, reason: str
) -> None:
    for text in ("one", "two", "three"):
        append(text)
    triggers.lift()
    with connection.cursor() as cursor:
        cursor.execute(statement)
    found = verify()
    assert not found.ok
    assert found.first_broken is not None
    assert found.first_broken.seq == (3 if "DELETE" in statement else 2)
    assert reason in found.first_broken.reason


def test_a_text_written_into_an_erased_event_is_found_by_verify(append: Append, now: UnixMs) -> None:
    append()
    erase_payloads("mem_a", actor=SYSTEM, reason="asked for", at=now)
    triggers.lift()
    with connection.cursor() as cursor:
        cursor.execute("UPDATE ledger_contextevent SET text = 'put into a dead mouth'")
    found = verify()
    assert found.first_broken is not None
    assert found.first_broken.reason == "salt was changed"


def test_verifying_reports_its_progress(append: Append, now: UnixMs) -> None:
    event = NewEvent(kind=MEMORY_CREATED, actor=SYSTEM, workspace="", subject_id="m", occurred_at=now)
    with transaction.atomic():
        append_events([event] * 2_001, at=now)
    told: list[int] = []
    assert verify(progress=told.append).events == 2_001
    assert told == [1000, 1000]
