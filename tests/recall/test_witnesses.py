"""Records remember the ledger's head: a tail that was cut off, or a chain that was made anew, is found by them."""

from __future__ import annotations

from collections.abc import Callable

from django.db import connection

from ledger import triggers
from ledger.domain import hashchain
from ledger.models import ContextEvent
from ledger.queries import verify
from recall.domain.request import RecallRequest
from recall.services import recall
from vault.models import Memory
from vault.services import Caller


def asked(caller: Caller, now: int) -> None:
    recall(RecallRequest(query="bell"), caller=caller, surface="api", at=now)


def behind_the_guards(*statements: tuple[str, list[object]]) -> None:
    triggers.lift()
    with connection.cursor() as cursor:
        for statement, values in statements:
            cursor.execute(statement, values)
    triggers.install()


def test_a_ledger_that_records_looked_at_is_intact(
    remember: Callable[..., Memory], caller: Caller, now: int
) -> None:
    asked(caller, now)
    for text in ("one bell", "two bells"):
        remember(text)
        asked(caller, now)
    assert verify().ok


def test_a_tail_that_was_cut_off_is_found(remember: Callable[..., Memory], caller: Caller, now: int) -> None:
    remember("one bell")
    remember("two bells")
    asked(caller, now)

    behind_the_guards(("DELETE FROM ledger_contextevent WHERE seq = 2", []))

    found = verify()
    assert not found.ok
    assert found.first_broken == hashchain.Break(
        2, "", "the ledger ends before event 2, which was its head when something was recalled"
    )


def test_a_chain_that_was_recomputed_is_found(
    remember: Callable[..., Memory], caller: Caller, now: int
) -> None:
    remember("one bell")
    asked(caller, now)
    event = ContextEvent.objects.get(seq=1)
    forged = hashchain.payload_hash(salt=event.salt or "", text="no bell", before=None, after=event.after)
    hash_ = hashchain.event_hash(
        seq=1, metadata=event.chained_metadata, payload_hash=forged, prev_hash=event.prev_hash
    )

    behind_the_guards(
        (
            "UPDATE ledger_contextevent SET text = 'no bell', payload_hash = %s, hash = %s WHERE seq = 1",
            [forged, hash_],
        )
    )

    found = verify().first_broken
    assert found is not None
    assert (found.seq, found.id) == (1, event.id)
    assert "was the head when something was recalled" in found.reason
