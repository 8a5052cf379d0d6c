"""Somebody drops the guards, changes rows by SQL, and puts the guards back: verification names the first broken event.

He has to get past foreign keys as well, which are off for whoever opens the file with another client.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from django.db import connection, models

from ledger import triggers
from ledger.domain.actors import SYSTEM
from ledger.domain.instants import UnixMs
from ledger.models import ContextEvent, OutboxEntry, Supersession
from ledger.queries import Verification, verify
from ledger.services import NewContext, add_context, correct, erase_event

pytestmark = pytest.mark.django_db(transaction=True)

EVENTS = "ledger_contextevent"
ROWS = "ledger_supersession"
COLUMNS = ", ".join(f'"{field.column}"' for field in ContextEvent._meta.concrete_fields)
REASON = "it was decided otherwise"
Tamper = Callable[..., Verification]


@pytest.fixture
def ids(now: UnixMs) -> list[str]:
    """Events 1 to 6: three of one chain, one alone, its retraction, and the restore that undoes it."""
    made: list[str] = []
    for text, supersedes in (("one", None), ("two", 0), ("three", 1), ("alone", None)):
        new = NewContext(text, supersedes=None if supersedes is None else made[supersedes])
        made.append(add_context(new, key=text, actor=SYSTEM, at=now).event_id)
    made.append(correct(made[3], kind="retract", reason=REASON, actor=SYSTEM, at=now).id)
    made.append(correct(made[4], kind="restore", reason=REASON, actor=SYSTEM, at=now).id)
    assert verify().ok
    return made


@pytest.fixture
def tamper(ids: list[str]) -> Iterator[Tamper]:
    def tampered(*statements: str) -> Verification:
        _foreign_keys(on=False)
        triggers.lift()
        with connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement.format(*ids))
        triggers.install()
        assert triggers.missing() == [], "he put everything back"
        return verify()

    yield tampered
    triggers.lift()
    with connection.cursor() as cursor:  # what is left contradicts the foreign keys
        for table in ("ledger_outboxentry", "ledger_operation", ROWS, EVENTS):
            cursor.execute(f"DELETE FROM {table}")
    _foreign_keys(on=True)


def _foreign_keys(*, on: bool) -> None:
    with connection.cursor() as cursor:
        if connection.vendor == "sqlite":
            cursor.execute(f"PRAGMA foreign_keys = {'ON' if on else 'OFF'}")
        else:
            cursor.execute(f"SET session_replication_role = {'DEFAULT' if on else 'replica'}")


def _broken(found: Verification) -> tuple[int, str, str]:
    assert found.first_broken is not None
    return found.first_broken.seq, found.first_broken.id, found.first_broken.reason


# ---- events


def test_an_update_is_named(tamper: Tamper, ids: list[str]) -> None:
    found = tamper(f"UPDATE {EVENTS} SET text = 'forged' WHERE seq = 2")
    assert _broken(found) == (2, ids[1], "text, before or after was changed")


@pytest.mark.parametrize("column", ["subject_id", "object_id", "item_id", "metadata", "recorded_at", "kind"])
def test_an_update_of_what_an_event_is_about_is_named(tamper: Tamper, ids: list[str], column: str) -> None:
    found = tamper(f"UPDATE {EVENTS} SET {column} = '7' WHERE seq = 5")
    seq, id_, reason = _broken(found)
    assert (seq, id_) == (5, ids[4])
    assert reason.startswith("metadata or hash was changed")


def test_a_deletion_in_the_middle_is_named(tamper: Tamper, ids: list[str]) -> None:
    found = tamper(f"DELETE FROM {EVENTS} WHERE seq = 4")
    assert _broken(found) == (5, ids[4], "event 4 is missing")


def test_a_deletion_that_is_closed_up_is_named(tamper: Tamper, ids: list[str]) -> None:
    found = tamper(
        f"DELETE FROM {EVENTS} WHERE seq = 4",
        *(f"UPDATE {EVENTS} SET seq = {n - 1} WHERE seq = {n}" for n in (5, 6)),
    )
    assert _broken(found) == (4, ids[4], "prev_hash is not the hash of the event before it")


def test_an_insertion_is_named(tamper: Tamper) -> None:
    values = COLUMNS.replace('"seq"', "7").replace('"id"', "'evt_forged'").replace('"hash"', "'forged'")
    found = tamper(f"INSERT INTO {EVENTS} ({COLUMNS}) SELECT {values} FROM {EVENTS} WHERE seq = 6")
    assert _broken(found)[:2] == (7, "evt_forged")


def test_two_events_that_changed_places_are_named(tamper: Tamper, ids: list[str]) -> None:
    found = tamper(
        f"UPDATE {EVENTS} SET seq = 99 WHERE seq = 2",
        f"UPDATE {EVENTS} SET seq = 2 WHERE seq = 3",
        f"UPDATE {EVENTS} SET seq = 3 WHERE seq = 99",
    )
    assert _broken(found) == (2, ids[2], "prev_hash is not the hash of the event before it")


@pytest.mark.parametrize("cut", [1, 2, 5])
def test_a_tail_that_was_cut_off_is_found_by_what_cites_it(tamper: Tamper, ids: list[str], cut: int) -> None:
    found = tamper(f"DELETE FROM {EVENTS} WHERE seq > {6 - cut}")
    seq, id_, reason = _broken(found)
    assert seq == 6 - cut + 1
    assert id_ in ids[6 - cut :]
    assert "the ledger ends before it, but" in reason


# ---- supersessions


def test_a_supersession_that_no_event_states_is_named(tamper: Tamper, ids: list[str]) -> None:
    columns = "old_id, new_id, event_id, created_at"
    found = tamper(f"INSERT INTO {ROWS} ({columns}) VALUES ('{{2}}', '{{3}}', '{{3}}', 1)")
    assert _broken(found) == (4, ids[3], "a supersession cites it that it does not state")


def test_a_supersession_that_was_removed_is_named(tamper: Tamper, ids: list[str]) -> None:
    found = tamper(f"DELETE FROM {ROWS} WHERE old_id = '{{1}}'")
    assert _broken(found)[:2] == (3, ids[2])
    assert "missing from the table of supersessions" in _broken(found)[2]


@pytest.mark.parametrize("change", ["new_id = '{3}'", "created_at = 1", "old_id = '{3}'"])
def test_a_supersession_that_was_changed_is_named(tamper: Tamper, ids: list[str], change: str) -> None:
    found = tamper(f"UPDATE {ROWS} SET {change} WHERE event_id = '{{2}}'")
    assert _broken(found)[:2] == (3, ids[2])
    assert "was changed in the table of supersessions" in _broken(found)[2]


def test_a_supersession_that_was_voided_without_a_word_is_named(tamper: Tamper, ids: list[str]) -> None:
    found = tamper(f"UPDATE {ROWS} SET voided_by_id = '{{3}}', voided_at = 1 WHERE event_id = '{{1}}'")
    assert _broken(found) == (4, ids[3], "a voided supersession cites it that it does not state")


def test_a_supersession_whose_voiding_was_taken_back_is_named(tamper: Tamper, ids: list[str]) -> None:
    found = tamper(f"UPDATE {ROWS} SET voided_by_id = NULL, voided_at = NULL WHERE event_id = '{{4}}'")
    assert _broken(found)[:2] == (6, ids[5])
    assert "the voided supersession that it states is missing" in _broken(found)[2]


def test_a_supersession_that_cites_an_event_nobody_has_is_named(tamper: Tamper) -> None:
    found = tamper(
        f"INSERT INTO {ROWS} (old_id, new_id, event_id, created_at) VALUES ('{{2}}', '{{3}}', 'evt_nobody', 1)"
    )
    assert _broken(found) == (7, "evt_nobody", f"the ledger ends before it, but {ROWS} cites it")


# ---- what a migration may do


@pytest.mark.skipif(connection.vendor != "sqlite", reason="only SQLite rebuilds tables")
@pytest.mark.parametrize("model", [ContextEvent, Supersession], ids=["events", "supersessions"])
def test_a_table_that_a_migration_rebuilds_keeps_its_guards(
    model: type[models.Model], ids: list[str]
) -> None:
    from django.core.management import call_command

    with connection.schema_editor() as editor:
        editor._remake_table(model)
    lost = triggers.missing()
    assert {name.rsplit("_", 1)[1] for name in lost} == {"delete", "replace", "update"}
    call_command("migrate", verbosity=0)
    assert triggers.missing() == []
    assert verify().ok
    assert OutboxEntry.objects.count() == 6


# ---- erasures that nobody made

BLANKED = 'text = NULL, "before" = NULL, "after" = NULL, salt = NULL'
TOMBSTONE = (
    "INSERT INTO ledger_tombstone (event_id, payload_hash, actor_kind, actor_id, actor_label, reason, erased_at) "
    "SELECT id, {what}, 'user', '1', 'somebody', 'a reason', 0 FROM ledger_contextevent WHERE seq = 2"
)


@pytest.fixture
def bury(tamper: Tamper) -> Iterator[Tamper]:
    yield tamper
    triggers.lift()
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM ledger_tombstone")


@pytest.mark.parametrize(
    ("what", "told"),
    [
        ("'nonsense'", "its tombstone is of another payload"),
        ("payload_hash", "a tombstone stands for it, and no event says that it was erased so"),
    ],
)
def test_a_forged_tombstone_erases_nothing_unseen(bury: Tamper, what: str, told: str) -> None:
    statements = (
        TOMBSTONE.replace("{what}", what),
        f"UPDATE ledger_contextevent SET {BLANKED} WHERE seq = 2",
    )
    seq, _, reason = _broken(bury(*statements))
    assert (seq, reason) == (2, told)


def test_a_tombstone_beside_a_text_that_still_stands_is_named(bury: Tamper) -> None:
    seq, _, reason = _broken(bury(TOMBSTONE.replace("{what}", "payload_hash")))
    assert (seq, reason) == (2, "a tombstone stands for it, and its text is there")


@pytest.mark.parametrize("column", ["reason", "actor_label", "payload_hash"])
def test_a_real_tombstone_that_was_rewritten_is_named(
    bury: Tamper, ids: list[str], now: UnixMs, column: str
) -> None:
    erase_event(ids[1], actor=SYSTEM, reason="asked for", at=now)
    assert verify().ok
    seq, id_, _ = _broken(bury(f"UPDATE ledger_tombstone SET {column} = 'x'"))
    assert (seq, id_) == (2, ids[1])


# ---- rows that cannot be read


@pytest.mark.skipif(connection.vendor != "sqlite", reason="PostgreSQL stores none of these")
@pytest.mark.parametrize("change", ["text = CAST(x'ff41' AS TEXT)", "text = x'ff'", "occurred_at = 9e999"])
def test_a_row_that_cannot_be_read_is_named(tamper: Tamper, ids: list[str], change: str) -> None:
    seq, id_, reason = _broken(tamper(f"UPDATE ledger_contextevent SET {change} WHERE seq = 3"))
    assert (seq, id_) == (3, ids[2])
    assert reason
