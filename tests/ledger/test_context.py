"""Context events: one request is one event, one supersession, one operation and one outbox entry, or nothing."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from django.db import DatabaseError, connection, transaction

from ledger import queries
from ledger.domain.actors import SYSTEM, Actor
from ledger.domain.context import tags_in
from ledger.domain.instants import MINUTE, UnixMs
from ledger.domain.refusals import NotFound, Refused, Unavailable
from ledger.models import ContextEvent, Operation, OutboxEntry, Supersession
from ledger.queries import verify
from ledger.services import Added, NewContext, add_context, erase_event
from ledger.triggers import missing

pytestmark = pytest.mark.django_db

ANOTHER = Actor(kind="key", id="key_other", label="another agent")
Add = Callable[..., Added]


@pytest.fixture
def add(now: UnixMs) -> Add:
    keys = iter(range(1_000_000))

    def added(text: str = "a rationale", *, key: str | None = None, at: UnixMs = now, **fields: Any) -> Added:
        actor = fields.pop("actor", SYSTEM)
        new = NewContext(text, **{"item_id": "itm_demo", **fields})
        return add_context(new, key=f"key {next(keys)}" if key is None else key, actor=actor, at=at)

    return added


def _refused(call: Callable[[], object]) -> Refused:
    with pytest.raises(Refused) as refused:
        call()
    return refused.value


def _rows() -> tuple[int, int, int, int]:
    return (
        ContextEvent.objects.count(),
        Supersession.objects.count(),
        Operation.objects.count(),
        OutboxEntry.objects.count(),
    )


# ---- one request


def test_a_post_is_an_event_an_operation_and_an_outbox_entry(add: Add, now: UnixMs) -> None:
    added = add("we deferred it", reason="no time", occurrence="2026-12-01", tags=("b", "a", "b"))
    event = ContextEvent.objects.get(id=added.event_id)
    assert (event.kind, event.text, event.item_id) == ("context_added", "we deferred it", "itm_demo")
    assert (event.reason, event.occurrence, event.occurred_at) == ("no time", "2026-12-01", now)
    assert tags_in(event.values_of_metadata) == ("a", "b")
    assert all(isinstance(value, str) for value in json.loads(event.metadata).values())
    entry = OutboxEntry.objects.get()
    assert (entry.kind, entry.state, entry.event_id) == ("context", "pending", added.event_id)
    assert entry.operation_id == added.operation_id
    state = queries.operation(added.operation_id, "system:system")
    assert (state.state, state.attempts, state.event_id) == ("pending", 0, added.event_id)
    assert verify().ok


def test_an_operation_is_its_callers_alone(add: Add) -> None:
    added = add()
    assert isinstance(_refused(lambda: queries.operation(added.operation_id, "key:key_other")), NotFound)
    assert queries.operation(added.operation_id, None).id == added.operation_id


def test_the_text_lies_in_the_event_and_nowhere_else(add: Add) -> None:
    added = add("a text that may have to be erased")
    for table in ("ledger_operation", "ledger_outboxentry", "ledger_supersession"):
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT * FROM {table}")
            assert "may have to be erased" not in repr(cursor.fetchall())
    assert ContextEvent.objects.get(id=added.event_id).text == "a text that may have to be erased"


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"text": "  "}, "text"),
        ({"text": "\x00"}, "text"),
        ({"text": "\ud800"}, "text"),
        ({"text": "ä" * 40_000}, "text"),
        ({"item_id": ""}, "item_id"),
        ({"item_id": "x" * 257}, "item_id"),
        ({"item_id": None, "occurrence": "2026-12-01"}, "occurrence"),
        ({"occurrence": "x" * 65}, "occurrence"),
        ({"workspace": "x" * 129}, "workspace"),
        ({"reason": "x" * 2001}, "reason"),
        ({"tags": ("",)}, "tags"),
        ({"tags": tuple(map(str, range(65)))}, "tags"),
        ({"occurred_at": 10**15}, "occurred_at"),
    ],
)
def test_what_does_not_fit_is_refused_and_its_field_is_named(
    add: Add, fields: dict[str, Any], field: str
) -> None:
    refusal = _refused(lambda: add(**fields))
    assert (refusal.status, refusal.field) == (400, field)
    assert _rows() == (0, 0, 0, 0)


def test_what_happened_may_be_told_late_and_not_ahead_of_time(add: Add, now: UnixMs) -> None:
    told = add(occurred_at=now - 10**9)
    assert ContextEvent.objects.get(id=told.event_id).occurred_at == now - 10**9
    assert add(occurred_at=now + 5 * MINUTE).created
    assert _refused(lambda: add(occurred_at=now + 5 * MINUTE + 1)).field == "occurred_at"


# ---- the same request again


def test_the_same_key_and_payload_give_the_first_answer(add: Add, now: UnixMs) -> None:
    first = add("once", key="k", tags=("a", "b"))
    again = add("once", key="k", tags=("b", "a"), at=now + 10**9)
    assert (first.created, again) == (True, replace(first, created=False))
    assert _rows() == (1, 0, 1, 1)


@pytest.mark.parametrize(
    "change",
    [
        {"text": "twice"},
        {"item_id": None},
        {"item_id": "itm_other"},
        {"occurrence": "1"},
        {"reason": "because"},
        {"tags": ("a",)},
        {"workspace": "red"},
        {"occurred_at": 1},
        {"supersedes": "evt_1"},
    ],
)
def test_the_same_key_with_another_payload_is_a_conflict(add: Add, change: dict[str, Any]) -> None:
    add("once", key="k")
    refusal = _refused(lambda: add(**{"text": "once", "key": "k", **change}))
    assert (refusal.status, refusal.code) == (409, "idempotency_conflict")
    assert _rows() == (1, 0, 1, 1)


def test_the_first_answer_is_given_again_after_the_event_was_superseded(add: Add) -> None:
    old = add("old")
    first = add("new", key="k", supersedes=old.event_id)
    add("newest", supersedes=first.event_id)
    assert add("new", key="k", supersedes=old.event_id) == replace(first, created=False)


def test_a_key_is_its_callers_alone(add: Add) -> None:
    mine, other = add("mine", key="k"), add("other", key="k", actor=ANOTHER)
    assert mine.event_id != other.event_id
    assert _rows() == (2, 0, 2, 2)


def test_a_post_needs_a_key(add: Add) -> None:
    refusal = _refused(lambda: add(key=""))
    assert (refusal.status, refusal.code) == (400, "idempotency_key_required")
    assert _refused(lambda: add(key="x" * 201)).field == "Idempotency-Key"
    assert _refused(lambda: add(key="a\nb")).field == "Idempotency-Key"


def test_a_key_whose_text_was_erased_does_not_bring_the_text_back(add: Add, now: UnixMs) -> None:
    added = add("to be forgotten", key="k")
    operation = Operation.objects.get()
    assert erase_event(added.event_id, actor=SYSTEM, reason="asked for", at=now)
    assert ContextEvent.objects.get(id=added.event_id).erased
    refusal = _refused(lambda: add("to be forgotten", key="k"))
    assert (refusal.code, "was erased since" in refusal.message) == ("idempotency_conflict", True)
    assert Operation.objects.get().payload_hash == operation.payload_hash
    assert verify().ok


@pytest.mark.django_db(transaction=True)
def test_posts_at_once_with_one_key_give_one_event(now: UnixMs) -> None:
    """Eight threads, one key: on SQLite the write lock decides, on PostgreSQL the chain's lock."""
    answers: list[Added] = []
    failures: list[BaseException] = []
    together = threading.Barrier(8)

    def post() -> None:
        try:
            together.wait(timeout=20)
            answers.append(add_context(NewContext("once"), key="k", actor=SYSTEM, at=now))
        except BaseException as failure:
            failures.append(failure)
        finally:
            connection.close()

    threads = [threading.Thread(target=post) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert failures == []
    assert len({(answer.event_id, answer.operation_id) for answer in answers}) == 1
    assert [answer.created for answer in answers].count(True) == 1
    assert _rows() == (1, 0, 1, 1)


@pytest.mark.django_db(transaction=True)
def test_successors_at_once_of_one_event_give_one_successor(now: UnixMs) -> None:
    old = add_context(NewContext("old"), key="old", actor=SYSTEM, at=now)
    outcomes: list[str] = []
    together = threading.Barrier(6)

    def supersede(number: int) -> None:
        try:
            together.wait(timeout=20)
            new = NewContext(f"new {number}", supersedes=old.event_id)
            add_context(new, key=f"new {number}", actor=SYSTEM, at=now)
            outcomes.append("created")
        except Refused as refusal:
            outcomes.append(refusal.code)
        finally:
            connection.close()

    threads = [threading.Thread(target=supersede, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert sorted(outcomes) == [*["already_superseded"] * 5, "created"]
    assert _rows() == (2, 1, 2, 2)
    assert verify().ok


# ---- supersession


def test_a_superseding_event_takes_the_place_of_the_old_one(add: Add) -> None:
    old = add("old")
    new = add("new", supersedes=old.event_id)
    found = queries.heads_of([old.event_id, new.event_id])
    assert (found[old.event_id].id, found[old.event_id].superseded) == (new.event_id, True)
    assert (found[new.event_id].id, found[new.event_id].superseded) == (new.event_id, False)
    row = Supersession.objects.get()
    assert (row.old_id, row.new_id, row.event_id) == (old.event_id, new.event_id, new.event_id)


def test_a_clock_that_stepped_back_changes_neither_the_chain_nor_the_order(add: Add, now: UnixMs) -> None:
    old = add("old")
    new = add("new", supersedes=old.event_id, at=now - 10**8)
    newest = add("newest", supersedes=new.event_id, at=now - 10**9)
    assert queries.heads_of([old.event_id])[old.event_id].id == newest.event_id
    assert [event.id for event in queries.chain_of(old.event_id).events] == [
        old.event_id,
        new.event_id,
        newest.event_id,
    ]
    assert verify().ok


def test_an_event_that_was_superseded_already_is_refused_and_the_head_is_named(add: Add) -> None:
    first = add("1")
    second = add("2", supersedes=first.event_id)
    third = add("3", supersedes=second.event_id)
    refusal = _refused(lambda: add("4", supersedes=first.event_id))
    assert (refusal.status, refusal.code) == (409, "already_superseded")
    assert refusal.field == "supersedes_context_id"
    assert third.event_id in refusal.message
    assert third.event_id in (refusal.hint or "")
    assert _rows() == (3, 2, 3, 3)


def test_an_unknown_and_a_foreign_event_are_refused_alike(add: Add) -> None:
    foreign = add("red", workspace="red")
    unknown = _refused(lambda: add(supersedes="evt_00000000000000000000000000"))
    other = _refused(lambda: add(supersedes=foreign.event_id))
    for refusal in (unknown, other):
        assert (refusal.status, refusal.code, refusal.field) == (
            422,
            "unknown_event",
            "supersedes_context_id",
        )
    assert other.message == unknown.message.replace("evt_00000000000000000000000000", foreign.event_id)


def test_an_event_about_another_item_is_refused(add: Add) -> None:
    old = add("about the demo")
    for item_id in ("itm_other", None):
        refusal = _refused(lambda item_id=item_id: add(item_id=item_id, supersedes=old.event_id))
        assert (refusal.status, refusal.code) == (422, "other_item")
    about_none = add("about none", item_id=None)
    assert add("about none either", item_id=None, supersedes=about_none.event_id).created


def test_a_change_of_a_memory_cannot_be_superseded(add: Add, memory_event: ContextEvent) -> None:
    refusal = _refused(lambda: add(item_id=None, supersedes=memory_event.id))
    assert (refusal.status, refusal.code) == (422, "unknown_event")


def test_a_hook_is_told_in_the_transaction_whose_standing_changed(
    add: Add, now: UnixMs, settings: Any
) -> None:
    settings.LEDGER_SUPERSESSION_HOOKS = [f"{__name__}.remember_call"]
    old = add("old")
    told.clear()
    new = add("new", supersedes=old.event_id)
    assert told == [((old.event_id, new.event_id), now, True)]


told: list[tuple[tuple[str, ...], UnixMs, bool]] = []


def remember_call(event_ids: tuple[str, ...], *, at: UnixMs) -> None:
    told.append((tuple(event_ids), at, connection.in_atomic_block))


def test_a_hook_that_fails_leaves_nothing_behind(add: Add, settings: Any) -> None:
    old = add("old")
    settings.LEDGER_SUPERSESSION_HOOKS = [f"{__name__}.fail"]
    with pytest.raises(RuntimeError):
        add("new", supersedes=old.event_id)
    assert _rows() == (1, 0, 1, 1)


def fail(event_ids: tuple[str, ...], *, at: UnixMs) -> None:
    raise RuntimeError("the index cannot be told")


# ---- the database's own refusal


def _refused_by_the_database(statement: str) -> str:
    with pytest.raises(DatabaseError) as refused, transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(statement)
    return str(refused.value)


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM ledger_supersession",
        "UPDATE ledger_supersession SET created_at = 1",
        "UPDATE ledger_supersession SET new_id = old_id",
        "UPDATE ledger_supersession SET voided_at = 1",
        "UPDATE ledger_supersession SET voided_by_id = new_id, voided_at = 1, created_at = 1",
        "DELETE FROM ledger_operation",
        "UPDATE ledger_operation SET key = 'another'",
    ],
)
def test_supersessions_and_operations_are_written_once(add: Add, statement: str) -> None:
    old = add("old")
    add("new", supersedes=old.event_id)
    assert "append-only" in _refused_by_the_database(statement)
    assert missing() == []


def test_a_supersession_is_voided_once_and_for_good(add: Add) -> None:
    old = add("old")
    add("new", supersedes=old.event_id)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE ledger_supersession SET voided_by_id = new_id, voided_at = 1")
    for undo in ("voided_by_id = NULL, voided_at = NULL", "voided_by_id = old_id, voided_at = 2"):
        assert "append-only" in _refused_by_the_database(f"UPDATE ledger_supersession SET {undo}")


@pytest.mark.skipif(connection.vendor != "sqlite", reason="this way around is SQLite's alone")
@pytest.mark.parametrize("table", ["ledger_supersession", "ledger_operation"])
def test_neither_is_replaced_by_an_insert(add: Add, table: str) -> None:
    old = add("old")
    add("new", supersedes=old.event_id)
    assert "append-only" in _refused_by_the_database(f"REPLACE INTO {table} SELECT * FROM {table}")
    columns = "old_id, new_id, event_id, created_at"
    again = f"REPLACE INTO ledger_supersession ({columns}) SELECT old_id, new_id, old_id, 1 FROM ledger_supersession"
    assert "append-only" in _refused_by_the_database(again)


# ---- faults


@pytest.mark.skipif(connection.vendor != "sqlite", reason="a page limit is SQLite's alone")
@pytest.mark.django_db(transaction=True)
def test_a_full_disk_is_told_clearly_and_leaves_nothing_half_written(now: UnixMs) -> None:
    old = add_context(NewContext("old"), key="old", actor=SYSTEM, at=now)
    before = _rows()
    new = NewContext("x" * 60_000, supersedes=old.event_id)
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA page_count")
        pages = cursor.fetchone()[0]
        cursor.execute(f"PRAGMA max_page_count = {pages}")
        try:
            refusal = _refused(lambda: add_context(new, key="new", actor=SYSTEM, at=now))
        finally:
            cursor.execute("PRAGMA max_page_count = 1073741823")
    assert isinstance(refusal, Unavailable)
    assert (refusal.code, refusal.status) == ("storage_full", 503)
    assert "nothing was written" in refusal.message
    assert _rows() == before
    assert not queries.heads_of([old.event_id])[old.event_id].superseded
    assert verify().ok
    assert add_context(new, key="new", actor=SYSTEM, at=now).created, (
        "the same request works once there is space"
    )


@pytest.mark.skipif(connection.vendor != "sqlite", reason="PostgreSQL's writers wait in line")
@pytest.mark.django_db(transaction=True)
def test_a_locked_database_is_told_clearly(now: UnixMs) -> None:
    import sqlite3

    other = sqlite3.connect(connection.settings_dict["NAME"], isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    try:
        with connection.cursor() as cursor:
            cursor.execute("PRAGMA busy_timeout = 50")
        refusal = _refused(lambda: add_context(NewContext("x"), key="k", actor=SYSTEM, at=now))
    finally:
        other.execute("ROLLBACK")
        other.close()
        connection.close()
    assert (refusal.status, refusal.code) == (503, "database_locked")
    assert add_context(NewContext("x"), key="k", actor=SYSTEM, at=now).created
