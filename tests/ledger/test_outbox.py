"""The outbox on a real database: claims, leases, what becomes of an attempt, pauses, and who may ask again."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import DatabaseError, connection

from ledger import outbox, queries
from ledger.domain import outbox as rules
from ledger.domain.actors import SYSTEM, Actor
from ledger.domain.instants import DAY, HOUR, MINUTE, SECOND, UnixMs
from ledger.domain.refusals import Conflict, NotFound, Refused
from ledger.models import ContextEvent, OutboxEntry, OutboxPause
from ledger.outbox import Delivered, DeliveryFailed, claim, deliver_one, run
from ledger.queries import verify
from ledger.services import NewContext, add_context, enqueue, resume_delivery, retry_delivery

pytestmark = pytest.mark.django_db

ADA = Actor(kind="user", id="1", label="ada")
LEASE = 60 * SECOND


class Bank:
    """What the handler below does with an entry, and what it has been given."""

    def __init__(self) -> None:
        self.given: list[int] = []
        self.answers: Callable[[OutboxEntry], Delivered] = lambda entry: Delivered(f"doc {entry.event_id}")
        self.lock = threading.Lock()

    def take(self, entry: OutboxEntry) -> Delivered:
        with self.lock:
            self.given.append(entry.id)
        return self.answers(entry)

    def fails(self, *failures: Exception) -> None:
        waiting = iter(failures)

        def answer(entry: OutboxEntry) -> Delivered:
            failure = next(waiting, None)
            if failure is not None:
                raise failure
            return Delivered("doc")

        self.answers = answer


class Clock:
    def __init__(self, at: UnixMs) -> None:
        self.at = at

    def __call__(self) -> UnixMs:
        return self.at


_bank = Bank()


def handle(entry: OutboxEntry) -> Delivered:
    assert not connection.in_atomic_block or _inside_test_transaction(), (
        "a bank is asked outside transactions"
    )
    return _bank.take(entry)


def _inside_test_transaction() -> bool:
    return len(connection.savepoint_ids) == 0


@pytest.fixture
def bank(settings: Any) -> Iterator[Bank]:
    global _bank
    settings.OUTBOX_HANDLERS = {"context": f"{__name__}.handle"}
    _bank = Bank()
    return _bank


@pytest.fixture
def clock(now: UnixMs) -> Clock:
    return Clock(now)


@pytest.fixture
def add(now: UnixMs) -> Callable[..., OutboxEntry]:
    keys = iter(range(1_000_000))

    def added(text: str = "a rationale", *, at: UnixMs = now, **fields: Any) -> OutboxEntry:
        done = add_context(NewContext(text, **fields), key=f"key {next(keys)}", actor=SYSTEM, at=at)
        return OutboxEntry.objects.get(event__id=done.event_id)

    return added


@pytest.fixture
def deliver(bank: Bank, clock: Clock) -> Callable[[], OutboxEntry | None]:
    return lambda: deliver_one(clock=clock, lease_ms=LEASE, token="a worker")


Add = Callable[..., OutboxEntry]
Deliver = Callable[[], OutboxEntry | None]


# ---- claims


def test_the_entry_that_was_written_first_is_delivered_first(add: Add, deliver: Deliver, bank: Bank) -> None:
    entries = [add(str(number)).id for number in range(5)]
    while deliver():
        pass
    assert bank.given == entries
    assert set(OutboxEntry.objects.values_list("state", flat=True)) == {"delivered"}


def test_a_delivered_entry_says_when_and_under_which_id(add: Add, deliver: Deliver, clock: Clock) -> None:
    event_id = add().event_id
    clock.at += 5
    deliver()
    entry = OutboxEntry.objects.get()
    assert (entry.state, entry.attempts, entry.delivered_at) == ("delivered", 1, clock.at)
    assert (entry.remote_id, entry.lease_until, entry.lease_token) == (f"doc {event_id}", None, "")


def test_a_claimed_entry_is_nobody_elses_until_its_lease_ends(
    add: Add, bank: Bank, clock: Clock, now: UnixMs
) -> None:
    entry = add()
    mine = claim(at=now, lease_ms=LEASE, token="one")
    assert mine is not None
    assert (mine.id, mine.state, mine.lease_until) == (entry.id, "delivering", now + LEASE)
    assert claim(at=now + LEASE - 1, lease_ms=LEASE, token="two") is None
    reclaimed = claim(at=now + LEASE, lease_ms=LEASE, token="two")
    assert reclaimed is not None
    assert (reclaimed.id, reclaimed.attempts, reclaimed.lease_token) == (entry.id, 2, "two")


def test_whoever_lost_the_lease_does_not_settle_what_another_has(
    add: Add, bank: Bank, clock: Clock, now: UnixMs, caplog: pytest.LogCaptureFixture
) -> None:
    add()

    def slow(entry: OutboxEntry) -> Delivered:
        if entry.attempts == 1:
            clock.at += LEASE
            assert claim(at=clock.at, lease_ms=LEASE, token="another") is not None
            raise DeliveryFailed("http_422", "refused", permanent=True)
        return Delivered("doc")

    bank.answers = slow
    deliver_one(clock=clock, lease_ms=LEASE, token="one")
    entry = OutboxEntry.objects.get()
    assert (entry.state, entry.lease_token, entry.error) == ("delivering", "another", "")
    assert "was claimed by another worker" in caplog.text


def test_a_claim_that_comes_second_changes_nothing(add: Add, bank: Bank, now: UnixMs) -> None:
    entry = add()
    seen = rules.Waiting(entry.attempts, entry.next_attempt_at)
    assert outbox._take(entry.id, seen=seen, until=now + LEASE, token="one")
    assert not outbox._take(entry.id, seen=seen, until=now + LEASE, token="two")
    assert OutboxEntry.objects.get().lease_token == "one"


def test_an_entry_of_a_kind_that_nobody_handles_waits(add: Add, bank: Bank, now: UnixMs) -> None:
    enqueue("unheard of", at=now, payload={"a": 1})
    assert claim(at=now + 10 * DAY, lease_ms=LEASE, token="t") is None
    assert add().id == getattr(claim(at=now, lease_ms=LEASE, token="t"), "id", None)


@pytest.mark.parametrize("attempts", [0, 1, 9])
@pytest.mark.parametrize("wait", [-DAY, -1, 0, 1, HOUR, DAY, DAY + 1, 400 * DAY])
def test_the_claim_takes_exactly_what_the_rules_call_due(
    bank: Bank, now: UnixMs, attempts: int, wait: int
) -> None:
    OutboxEntry.objects.create(
        kind="context", attempts=attempts, next_attempt_at=now + wait, created_at=now, state="pending"
    )
    taken = claim(at=now, lease_ms=LEASE, token="t") is not None
    assert taken == rules.due(rules.Waiting(attempts, now + wait), at=now)


@pytest.mark.django_db(transaction=True)
def test_workers_at_once_deliver_each_entry_exactly_once_while_none_is_killed(
    add: Add, bank: Bank, clock: Clock
) -> None:
    entries = {add(str(number)).id for number in range(60)}
    stop, tallies = threading.Event(), []

    def work() -> None:
        try:
            tallies.append(run(stop, clock=clock, lease_ms=LEASE, once=True))
        finally:
            connection.close()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert sorted(bank.given) == sorted(entries)
    assert sum(tally.delivered for tally in tallies) == 60
    assert OutboxEntry.objects.filter(state="delivered").count() == 60


@pytest.mark.skipif(connection.vendor != "sqlite", reason="how SQLite spells its plan")
@pytest.mark.parametrize("condition", [outbox._IN_TIME, outbox._WHATEVER_THE_CLOCK])
def test_the_claim_stays_on_its_partial_index_however_much_was_delivered(
    bank: Bank, now: UnixMs, condition: str
) -> None:
    OutboxEntry.objects.bulk_create(
        OutboxEntry(kind="context", state=state, next_attempt_at=now, created_at=now)
        for state in ["delivered"] * 3_000 + ["failed"] * 100 + ["pending"] * 20
    )
    said = {"at": now, "beyond": now + DAY, "kind0": "context"}
    with connection.cursor() as cursor:
        for analysed in (False, True):
            if analysed:
                cursor.execute("ANALYZE")
            cursor.execute(f"EXPLAIN QUERY PLAN {outbox.claim_query(condition, 1)}", said)
            plan = [row[3] for row in cursor.fetchall()]
            assert len(plan) == 1, plan
            assert "USING INDEX outbox_claim" in plan[0], plan


# ---- what becomes of an attempt


@pytest.mark.parametrize("code", ["http_400", "http_404", "http_409", "http_422"])
def test_a_permanent_failure_fails_at_once_and_says_why(
    add: Add, deliver: Deliver, bank: Bank, code: str
) -> None:
    add()
    bank.fails(DeliveryFailed(code, "the bank refuses it", permanent=True))
    deliver()
    entry = OutboxEntry.objects.get()
    assert (entry.state, entry.error_code, entry.error) == ("failed", code, "the bank refuses it")
    assert deliver() is None


def test_a_temporary_failure_is_tried_again_after_a_growing_wait(
    add: Add, deliver: Deliver, bank: Bank, clock: Clock
) -> None:
    add()
    bank.fails(*[DeliveryFailed("unavailable", "down")] * 4)
    waits = []
    for attempt in range(1, 5):
        deliver()
        entry = OutboxEntry.objects.get()
        assert (entry.state, entry.attempts, entry.error_code) == ("pending", attempt, "unavailable")
        waits.append(entry.next_attempt_at - clock.at)
        assert deliver() is None, "nothing is due yet"
        clock.at = entry.next_attempt_at
    assert all(2**n * SECOND <= wait <= 2 ** (n + 1) * SECOND for n, wait in enumerate(waits)), waits
    deliver()
    entry = OutboxEntry.objects.get()
    assert (entry.state, entry.attempts, entry.error) == ("delivered", 5, "")


def test_retry_after_is_waited_for(add: Add, deliver: Deliver, bank: Bank, clock: Clock) -> None:
    add()
    bank.fails(DeliveryFailed("http_503", "busy", retry_after_ms=7 * MINUTE))
    deliver()
    assert OutboxEntry.objects.get().next_attempt_at == clock.at + 7 * MINUTE


def test_a_wait_begins_when_the_bank_has_answered(
    add: Add, deliver: Deliver, bank: Bank, clock: Clock
) -> None:
    add()

    def slow(entry: OutboxEntry) -> Delivered:
        clock.at += 30 * SECOND
        raise DeliveryFailed("timeout", "no answer after 30 s")

    bank.answers = slow
    deliver()
    assert OutboxEntry.objects.get().next_attempt_at >= clock.at + SECOND


def test_an_exception_of_a_handler_is_temporary_and_names_its_type_and_no_text(
    add: Add, deliver: Deliver, bank: Bank, caplog: pytest.LogCaptureFixture
) -> None:
    add("a text that is nobody's business")
    bank.fails(ZeroDivisionError("a text that is nobody's business"))
    deliver()
    entry = OutboxEntry.objects.get()
    assert (entry.state, entry.error_code) == ("pending", "handler_failed")
    assert entry.error == "ZeroDivisionError: see the log of the worker"
    assert "ZeroDivisionError" in caplog.text


def test_one_failure_does_not_hold_up_the_others(add: Add, deliver: Deliver, bank: Bank) -> None:
    first, second = add("first"), add("second")
    bank.fails(DeliveryFailed("unavailable", "down"))
    deliver()
    deliver()
    assert bank.given == [first.id, second.id]
    assert OutboxEntry.objects.get(id=second.id).state == "delivered"


# ---- a clock that steps back


def test_what_was_never_tried_is_delivered_though_the_clock_stepped_back(
    add: Add, deliver: Deliver, clock: Clock
) -> None:
    add()
    clock.at -= 10 * HOUR
    entry = deliver()
    assert entry is not None
    assert entry.state == "delivered"


def test_a_wait_written_by_a_clock_that_was_ahead_ends_within_a_day(
    add: Add, deliver: Deliver, bank: Bank, clock: Clock
) -> None:
    add()
    clock.at += 400 * DAY  # somebody sets the date wrongly, and then right again
    bank.fails(DeliveryFailed("unavailable", "down"))
    deliver()
    clock.at -= 400 * DAY
    entry = deliver()
    assert entry is not None
    assert entry.state == "delivered"


def test_a_lease_written_by_a_clock_that_was_ahead_is_reclaimed(add: Add, bank: Bank, now: UnixMs) -> None:
    add()
    assert claim(at=now + 400 * DAY, lease_ms=LEASE, token="gone") is not None
    assert claim(at=now, lease_ms=LEASE, token="two") is not None


# ---- pauses


def test_a_refused_credential_pauses_delivery_with_an_alert_and_counts_against_no_entry(
    add: Add, deliver: Deliver, bank: Bank, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    add("one")
    add("two")
    bank.fails(DeliveryFailed("http_401", "the bank refuses our key", pause=True))
    deliver()
    assert deliver() is None, "nothing is delivered while it is paused"
    (pause,) = queries.paused()
    assert (pause.kind, pause.reason, pause.since) == ("context", "the bank refuses our key", clock.at)
    assert [record.levelno for record in caplog.records] == [logging.ERROR]
    assert set(OutboxEntry.objects.values_list("state", "attempts")) == {("pending", 0)}
    clock.at += 10 * DAY
    assert deliver() is None


def test_resuming_is_recorded_and_everything_goes_on(
    add: Add, deliver: Deliver, bank: Bank, clock: Clock
) -> None:
    add("one")
    bank.fails(DeliveryFailed("http_401", "the bank refuses our key", pause=True))
    deliver()
    assert resume_delivery(actor=ADA, at=clock.at, reason="a new key") == ["context"]
    event = ContextEvent.objects.newest_first()[0]
    assert (event.kind, event.actor_label, event.reason) == ("delivery_resumed", "ada", "a new key")
    assert event.values_of_metadata == {"context": "the bank refuses our key"}
    assert queries.paused() == ()
    entry = deliver()
    assert entry is not None
    assert entry.state == "delivered"
    assert verify().ok


def test_resuming_what_is_not_paused_records_nothing(bank: Bank, now: UnixMs) -> None:
    assert resume_delivery(actor=ADA, at=now) == []
    assert ContextEvent.objects.count() == 0


# ---- asking again


def test_a_failed_entry_may_be_asked_for_again_and_that_is_recorded(
    add: Add, deliver: Deliver, bank: Bank, clock: Clock
) -> None:
    entry = add(workspace="red", item_id="i")
    bank.fails(DeliveryFailed("http_422", "refused", permanent=True))
    deliver()
    retried = retry_delivery(entry.id, actor=ADA, at=clock.at, reason="the bank was mended")
    assert (retried.state, retried.attempts) == ("pending", 0)
    event = ContextEvent.objects.newest_first()[0]
    assert (event.kind, event.workspace, event.subject_id) == ("delivery_retried", "red", entry.event_id)
    assert (event.actor_label, event.item_id) == ("ada", "i")
    assert event.values_of_metadata == {"entry": str(entry.id), "failed_with": "http_422"}
    again = deliver()
    assert again is not None
    assert (again.state, again.error) == ("delivered", "")
    assert queries.coverage(workspaces=None).events == 1, "asking again is no context"


def test_asking_again_lifts_the_pause_of_its_kind(
    add: Add, deliver: Deliver, bank: Bank, clock: Clock
) -> None:
    entry = add()
    bank.fails(DeliveryFailed("http_401", "the bank refuses our key", pause=True))
    deliver()
    retry_delivery(entry.id, actor=ADA, at=clock.at)
    assert OutboxPause.objects.count() == 0
    assert deliver() is not None


def test_what_is_delivered_or_under_way_or_unknown_is_not_asked_for_again(
    add: Add, deliver: Deliver, bank: Bank, clock: Clock
) -> None:
    done, held = add("done"), add("held")
    deliver()
    assert claim(at=clock.at, lease_ms=LEASE, token="t") is not None
    for entry_id, code, kind in (
        (done.id, "already_delivered", Conflict),
        (held.id, "in_delivery", Conflict),
        (10**6, "not_found", NotFound),
    ):
        with pytest.raises(Refused) as refused:
            retry_delivery(entry_id, actor=ADA, at=clock.at)
        assert (refused.value.code, type(refused.value)) == (code, kind)
    assert ContextEvent.objects.filter(kind="delivery_retried").count() == 0


# ---- the queue at a glance


def test_the_summary_counts_what_the_caller_may_see(
    add: Add, deliver: Deliver, bank: Bank, clock: Clock, now: UnixMs
) -> None:
    add("first", workspace="red")
    deliver()
    failed = add("second", workspace="red")
    bank.fails(DeliveryFailed("http_422", "refused", permanent=True))
    deliver()
    waiting = add("third", workspace="red", at=now + 5)
    add("fourth", workspace="blue", at=now + 1)
    found = queries.outbox_summary(("red", ""))
    assert (found.pending, found.delivering, found.delivered, found.failed) == (1, 0, 1, 1)
    assert (found.oldest, found.oldest_age(at=now + 65), found.paused) == (now + 5, 60, ())
    assert found.oldest_age(at=now) == 0, "a clock that stepped back gives no negative age"
    assert queries.outbox_summary(None).pending == 2
    assert [entry.id for entry in queries.outbox_entries(("red",))] == [waiting.id, failed.id, failed.id - 1]
    assert [entry.id for entry in queries.outbox_entries(None, state="failed")] == [failed.id]
    assert [entry.id for entry in queries.outbox_entries(("red",), before=failed.id)] == [failed.id - 1]
    assert [entry.id for entry in queries.outbox_entries(None, event_id=waiting.event_id)] == [waiting.id]


# ---- the loop


def test_a_worker_that_is_told_to_stop_finishes_what_it_has_begun(add: Add, bank: Bank, clock: Clock) -> None:
    add("one")
    add("two")
    stop = threading.Event()

    def answer(entry: OutboxEntry) -> Delivered:
        stop.set()
        return Delivered("doc")

    bank.answers = answer
    tally = run(stop, clock=clock, lease_ms=LEASE)
    assert (tally.delivered, OutboxEntry.objects.filter(state="delivered").count()) == (1, 1)


def test_a_worker_that_runs_once_gives_up_on_a_bank_that_does_not_answer(
    add: Add, bank: Bank, clock: Clock
) -> None:
    for number in range(30):
        add(str(number))
    bank.fails(*[DeliveryFailed("unavailable", "down")] * 100)
    tally = run(threading.Event(), clock=clock, lease_ms=LEASE, once=True)
    assert (tally.gave_up, tally.postponed) == (True, outbox.GIVE_UP_AFTER)


def test_a_worker_rests_between_failures_and_not_between_successes(
    add: Add, bank: Bank, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(8):
        add(str(number))
    bank.fails(*[DeliveryFailed("unavailable", "down")] * 3)
    rests: list[float] = []

    class Told(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            rests.append(timeout or 0.0)
            if len(bank.given) == 8:
                self.set()
            return self.is_set()

    run(Told(), clock=clock, lease_ms=LEASE)
    failures = rests[:3]
    assert [1 <= failures[0] <= 2, 2 <= failures[1] <= 4, 4 <= failures[2] <= 8] == [True] * 3, rests
    assert rests[3:] == [outbox.IDLE / SECOND], rests


def test_a_database_that_does_not_answer_ends_no_worker(
    add: Add, bank: Bank, clock: Clock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    add()
    troubles = iter([DatabaseError("database is locked"), DatabaseError("database is locked")])
    real = outbox.claim

    def troubled(**arguments: Any) -> OutboxEntry | None:
        trouble = next(troubles, None)
        if trouble is not None:
            raise trouble
        return real(**arguments)

    monkeypatch.setattr(outbox, "claim", troubled)
    monkeypatch.setattr(connection, "close", lambda: None)  # it would end the test's own transaction
    tally = run(threading.Event(), clock=clock, lease_ms=LEASE, once=True)
    assert tally.delivered == 1
    assert caplog.text.count("the outbox waits for the database") == 2


def test_ten_thousand_entries_are_delivered_and_the_claim_does_not_slow_down(
    bank: Bank, clock: Clock, now: UnixMs
) -> None:
    OutboxEntry.objects.bulk_create(
        OutboxEntry(kind="context", state="pending", next_attempt_at=now, created_at=now)
        for _ in range(10_000)
    )
    began, marks = time.monotonic(), []
    for number in range(10_000):
        deliver_one(clock=clock, lease_ms=LEASE, token="t")
        if number % 2_500 == 2_499:
            marks.append(time.monotonic() - began)
    assert OutboxEntry.objects.filter(state="delivered").count() == 10_000
    quarters = [after - before for before, after in zip([0.0, *marks], marks, strict=False)]
    print(f"\n10,000 entries in {marks[-1]:.1f} s, {10_000 / marks[-1]:,.0f} a second; quarters {quarters}")
    assert max(quarters) < 3 * min(quarters), quarters
