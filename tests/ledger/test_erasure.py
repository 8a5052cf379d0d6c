"""Erasing an event of context in the ledger itself: on SQLite, and on PostgreSQL (test_on_postgresql.py)."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.core.management import call_command
from django.db import DatabaseError, connection, transaction

from ledger import erasure
from ledger.domain.actors import Actor
from ledger.domain.context import NewContext
from ledger.domain.instants import UnixMs
from ledger.models import ContextEvent, OutboxEntry, Tombstone
from ledger.queries import heads_of, verify
from ledger.services import add_context, correct, erase_event
from ledger.wording import in_words

ADA = Actor("user", "1", "ada")
WHY = "asked for by its subject"
SECRET = "zanzibarquux"


@pytest.fixture
def told(db: None, now: UnixMs) -> Callable[..., str]:
    def recorded(text: str = f"the {SECRET}", **fields: Any) -> str:
        new = NewContext(text, **fields)
        return add_context(new, key=secrets.token_hex(8), actor=ADA, at=now).event_id

    return recorded


def test_an_erased_event_has_a_tombstone_an_event_and_an_entry_for_the_bank(
    told: Callable[..., str], now: UnixMs
) -> None:
    event_id = told(item_id="itm_1", workspace="red")
    assert erase_event(event_id, actor=ADA, reason=WHY, at=now + 1)
    event = ContextEvent.objects.get(id=event_id)
    assert (event.erased, event.text, event.salt) == (True, None, None)
    tombstone = Tombstone.objects.get()
    assert (tombstone.event_id, tombstone.payload_hash, tombstone.reason) == (
        event_id,
        event.payload_hash,
        WHY,
    )
    said = ContextEvent.objects.order_by("-seq")[0]
    assert (said.subject_id, said.item_id, said.workspace, said.text) == (event_id, "itm_1", "red", None)
    assert in_words(said.kind) == "Context erased"
    entries = OutboxEntry.objects.order_by("id").values_list("kind", "state", "error_code", "workspace")
    assert list(entries) == [("context", "failed", "erased", "red"), ("erasure", "pending", "", "red")]
    assert verify().ok


def test_an_event_is_erased_once(told: Callable[..., str], now: UnixMs) -> None:
    event_id = told()
    assert erase_event(event_id, actor=ADA, reason=WHY, at=now)
    before = ContextEvent.objects.count()
    assert not erase_event(event_id, actor=ADA, reason="again", at=now)
    assert (ContextEvent.objects.count(), Tombstone.objects.get().reason) == (before, WHY)


def test_a_delivery_that_is_under_way_keeps_its_lease(told: Callable[..., str], now: UnixMs) -> None:
    event_id = told()
    OutboxEntry.objects.update(state="delivering", attempts=1, lease_token="w", lease_until=now + 60_000)
    erase_event(event_id, actor=ADA, reason=WHY, at=now)
    entry = OutboxEntry.objects.get(kind="context")
    assert (entry.state, entry.lease_token, entry.error_code) == ("delivering", "w", "")


def test_the_chain_of_an_erased_head_has_no_current_text(told: Callable[..., str], now: UnixMs) -> None:
    first = told("first")
    second = told("second", supersedes=first)
    note = correct(second, kind="annotate", reason="a note that stays", text="noted", actor=ADA, at=now)
    erase_event(second, actor=ADA, reason=WHY, at=now)
    head = heads_of([first])[first]
    assert (head.id, head.superseded, head.text_event_id) == (second, True, None)
    assert ContextEvent.objects.get(id=note.id).text == "noted"
    third = told("third", supersedes=second)
    assert heads_of([first])[first].text_event_id == third
    assert verify().ok


def test_an_erased_event_can_still_not_be_changed(told: Callable[..., str], now: UnixMs) -> None:
    event_id = told()
    erase_event(event_id, actor=ADA, reason=WHY, at=now)
    for change in ("text = 'x'", "reason = 'x'", "hash = 'x'"):
        with pytest.raises(DatabaseError), transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(f"UPDATE ledger_contextevent SET {change} WHERE id = %s", [event_id])


def test_the_places_of_a_text_are_counted_and_named_up_to_a_bound(
    told: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    events = tuple(sorted(told() for _ in range(3)))
    monkeypatch.setattr(erasure, "SHOWN", 2)
    found = {place.name: place for place in erasure.places(erasure.Subject(events, ()))}
    event = found["ledger: the event"]
    assert (event.count, len(event.ids)) == (3, 2)
    assert found["ledger: answers stored under an idempotency key"].count == 3
    assert found["outbox: deliveries of the event"].count == 3
    assert found["ledger: events of the memory"].count == 0


@pytest.mark.django_db(transaction=True)
def test_several_who_erase_one_event_at_once_erase_it_once(told: Callable[..., str], now: UnixMs) -> None:
    event_id = told()
    together = threading.Barrier(4)

    def act(_: int) -> bool:
        try:
            together.wait(10)
            return erase_event(event_id, actor=ADA, reason=WHY, at=now)
        finally:
            connection.close()

    with ThreadPoolExecutor(4) as pool:
        assert sorted(pool.map(act, range(4))) == [False, False, False, True]
    assert OutboxEntry.objects.filter(kind="erasure").count() == 1
    assert verify().ok


@pytest.mark.django_db(transaction=True)
def test_the_storage_is_rewritten_and_the_ledger_stays_whole_and_guarded(
    told: Callable[..., str], now: UnixMs
) -> None:
    event_id, kept = told(), told("what stays")
    erase_event(event_id, actor=ADA, reason=WHY, at=now)
    assert erasure.size_of_storage() > 0
    erasure.rewrite_storage()
    assert ContextEvent.objects.get(id=kept).text == "what stays"
    call_command("verify_ledger")  # which refuses where a guard is missing


def test_the_storage_is_not_rewritten_inside_a_transaction(db: None) -> None:
    with pytest.raises(AssertionError, match="kept open"):
        erasure.rewrite_storage()
