"""Banks beside their contract: what is delivered of an event, how faults on the wire count, what is told of a bank."""

from __future__ import annotations

import json
import logging
import re
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import FrozenInstanceError, replace
from typing import Any

import pytest
from django.test import Client
from hindsight_fake import FakeHindsight, fake_hindsight
from hindsight_peer import API_KEY, Peer
from hypothesis import given
from hypothesis import strategies as st

from ledger import outbox
from ledger.domain.actors import SYSTEM
from ledger.domain.context import NewContext
from ledger.domain.instants import UnixMs
from ledger.domain.refusals import Invalid
from ledger.models import ContextEvent, OutboxEntry
from ledger.outbox import DeliveryFailed
from ledger.services import add_context, correct, enqueue
from recall import banks
from recall.banks import BankUnavailable, deliver, document_id_of, installed_bank, note_of
from recall.banks import hindsight as hindsight_bank
from recall.banks.hindsight import HindsightBank, bank_of, item_of, operation_id_of
from recall.domain.context import BankQuery, ItemQuery
from recall.management.commands.serve import Command as Serve
from vault.domain.items import GENERAL_TAG, item_tag
from vault.models import Memory

QUERY = BankQuery(text="report", workspace="")
Record = Callable[..., ContextEvent]


@pytest.fixture
def record(db: None, now: UnixMs) -> Record:
    """`record("a text", item_id="itm_1")`: a context event, as it waits to be delivered."""
    keys = iter(range(1_000))

    def recorded(text: str, **fields: Any) -> ContextEvent:
        added = add_context(NewContext(text, **fields), key=f"key {next(keys)}", actor=SYSTEM, at=now)
        return ContextEvent.objects.get(id=added.event_id)

    return recorded


def entry_of(event: ContextEvent) -> OutboxEntry:
    return OutboxEntry.objects.select_related("event").get(event=event)


@contextmanager
def installed(
    settings: Any, url: str, *, prefix: str = "banks", timeout_ms: int = 5000
) -> Iterator[HindsightBank]:
    """The Hindsight bank at an address as the installed one."""
    settings.MEMORY_BANK = "hindsight"
    settings.HINDSIGHT = {"url": url, "api_key": API_KEY, "bank_prefix": prefix, "timeout_ms": timeout_ms}
    banks._made.clear()
    bank = installed_bank()
    assert isinstance(bank, HindsightBank)
    yield bank
    bank.close()
    banks._made.clear()


@pytest.fixture
def fake(settings: Any) -> Iterator[tuple[Peer, FakeHindsight]]:
    with fake_hindsight() as (peer, fake), installed(settings, peer.url):
        peer.create("banks")
        yield peer, fake


# ---- questions


def test_a_question_about_an_item_has_its_tag_and_matches_it_strictly() -> None:
    query = ItemQuery.about("itm_1", text="why", workspace="")
    assert query.tags == (item_tag("itm_1"),)
    assert query.tags_match == "all_strict"
    assert re.fullmatch(r"life-item:[0-9a-f]{64}", query.tags[0])


def test_no_question_about_an_item_can_be_built_without_its_tag() -> None:
    query = ItemQuery.about("itm_1", text="why", workspace="")
    for name in ("tags", "tags_match"):
        with pytest.raises(TypeError):
            ItemQuery(item_id="itm_1", text="why", workspace="", **{name: ()})
        with pytest.raises((FrozenInstanceError, AttributeError, TypeError)):
            setattr(query, name, ())
    with pytest.raises(FrozenInstanceError):
        query.item_id = ""  # type: ignore[misc]
    with pytest.raises(TypeError):
        ItemQuery(text="why", workspace="")  # type: ignore[call-arg]
    for item_id in ("", "x" * 257):
        for build in (
            lambda i: ItemQuery.about(i, text="", workspace=""),
            lambda i: replace(query, item_id=i),
        ):
            with pytest.raises(Invalid) as refused:
                build(item_id)
            assert refused.value.field == "item_id"


# ---- notes


def test_a_note_of_an_event_about_an_item_has_the_items_tag_first(record: Record) -> None:
    note = note_of(record("Tom is ill", item_id="itm_1", tags=("report", "call"), reason="a call"))
    assert note.tags == (item_tag("itm_1"), "call", "report")
    assert note.context == "a call"
    assert note.metadata == {"source_event_id": note.event_id, "kind": "context_added"}


def test_a_note_is_never_untagged(record: Record) -> None:
    assert note_of(record("Tom is ill")).tags == (GENERAL_TAG,)


def test_a_tag_in_the_form_of_an_items_does_not_put_a_note_under_that_item(record: Record) -> None:
    event = record("Tom is ill", item_id="itm_1", tags=(item_tag("another"), GENERAL_TAG, "report"))
    assert note_of(event).tags == (item_tag("itm_1"), "report")


def test_a_superseding_note_begins_with_a_statement_that_names_the_old_event(record: Record) -> None:
    old = record("Tom is ill", item_id="itm_1")
    note = note_of(record("Tom is back", item_id="itm_1", supersedes=old.id))
    assert note.text == f"This supersedes context event {old.id} of 2026-11-30T12:00:00Z: Tom is back"
    assert note.metadata["names_event_id"] == old.id


def test_metadata_are_strings_whatever_the_event(record: Record, now: UnixMs) -> None:
    old = record("Tom is ill", item_id="itm_1", occurrence="20261102T090000")
    retraction = correct(old.id, kind="retract", reason="he was never ill", actor=SYSTEM, at=now)
    for event in (old, retraction):
        note = note_of(event)
        assert note.metadata["source_event_id"] == event.id
        assert note.metadata["occurrence"] == "20261102T090000"
        assert all(isinstance(value, str) and value for value in note.metadata.values())
        assert note.tags == (item_tag("itm_1"),)


def test_the_same_event_is_the_same_note_and_operation_again(record: Record) -> None:
    event = record("Tom is ill", item_id="itm_1", tags=("b", "a"))
    again = ContextEvent.objects.get(id=event.id)
    assert note_of(event) == note_of(again)
    ids = {operation_id_of("bank", event.id, item_of(note_of(one))) for one in (event, again)}
    assert len(ids) == 1


def test_operations_differ_by_bank_event_and_every_part_of_the_payload(record: Record) -> None:
    note = note_of(record("Tom is ill", item_id="itm_1"))
    item = item_of(note)
    changed = [
        replace(item, content="Tom is back"),
        replace(item, timestamp=item.timestamp + 1),
        replace(item, context="a call"),
        replace(item, metadata={}),
        replace(item, document_id="evt_x"),
        replace(item, tags=("a",)),
    ]
    ids = [operation_id_of("bank", "evt_1", one) for one in (item, *changed)]
    ids += [operation_id_of("another", "evt_1", item), operation_id_of("bank", "evt_2", item)]
    assert len(set(ids)) == len(ids)


@given(st.lists(st.text(max_size=128), unique=True, max_size=20))
def test_no_two_workspaces_share_a_bank(workspaces: list[str]) -> None:
    names = [bank_of(workspace, prefix="recall-ledger") for workspace in workspaces]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"recall-ledger([.~][A-Za-z0-9_.-]{1,64})?", name) for name in names)


# ---- delivery to this vault


def test_a_delivered_event_is_a_memory_that_names_its_source(record: Record) -> None:
    event = record(
        "Tom is ill", item_id="itm_1", workspace="red", tags=("report",), occurred_at=1_700_000_000_000
    )
    remote = deliver(entry_of(event)).remote_id
    memory = Memory.objects.get(id=remote)
    assert memory.workspace.name == "red"
    assert memory.text == "Tom is ill"
    assert memory.tag_names == sorted([item_tag("itm_1"), "report"])
    assert (memory.source_event_id, memory.external_id) == (event.id, event.id)
    assert (memory.created_at, memory.t_valid, memory.t_invalid) == (1_700_000_000_000, None, None)
    assert memory.provenance_class == "candidate"
    made = ContextEvent.objects.get(kind="memory_created", subject_id=memory.id)
    assert made.actor_kind == "system"


def test_a_repeated_delivery_leaves_what_somebody_changed_since(record: Record) -> None:
    event = record("Tom is ill", item_id="itm_1")
    remote = deliver(entry_of(event)).remote_id
    Memory.objects.filter(id=remote).update(archived=True)
    assert deliver(entry_of(event)).remote_id == remote
    assert Memory.objects.count() == 1
    assert Memory.objects.get(id=remote).archived


def test_a_memory_that_only_claims_the_events_id_does_not_count_as_delivered(
    record: Record, remember: Callable[..., Memory]
) -> None:
    event = record("Tom is ill")
    remember("something else", external_id=document_id_of(event.id))
    with pytest.raises(DeliveryFailed) as failed:
        deliver(entry_of(event))
    assert (failed.value.code, failed.value.permanent) == ("external_id_conflict", True)


def test_an_event_of_the_largest_size_with_all_its_tags_is_delivered(record: Record) -> None:
    old = record("Tom is ill", item_id="itm_1")
    tags = tuple(f"tag {n:02}" for n in range(64))
    event = record("ü" * 32_768, item_id="itm_1", tags=tags, supersedes=old.id)
    memory = Memory.objects.get(id=deliver(entry_of(event)).remote_id)
    assert memory.text.startswith(f"This supersedes context event {old.id}")
    assert 65_500 < len(memory.text.encode()) <= 65_536
    assert item_tag("itm_1") in memory.tag_names


def test_staleness_is_not_the_local_banks_affair(record: Record) -> None:
    old = record("Tom is ill", item_id="itm_1")
    new = record("Tom is back", item_id="itm_1", supersedes=old.id)
    for event in (old, new):
        deliver(entry_of(event))
    found = installed_bank().recall(ItemQuery.about("itm_1", text="Tom", workspace=""))
    assert {one.source_event_id for one in found} == {old.id, new.id}


def test_what_was_erased_before_it_was_delivered_is_never_sent(
    record: Record, fake: tuple[Peer, FakeHindsight], now: UnixMs
) -> None:
    peer, _ = fake
    event = record("Tom is ill")
    entry = entry_of(event)
    assert entry.event is not None
    entry.event.text = entry.event.salt = entry.event.before = entry.event.after = None
    with pytest.raises(DeliveryFailed) as failed:
        deliver(entry)
    assert (failed.value.code, failed.value.permanent) == ("erased", True)
    assert peer.asked == []


@pytest.mark.parametrize("bank", ["local", "hindsight"])
def test_an_erasure_removes_what_was_delivered_and_a_repeat_is_harmless(
    record: Record, settings: Any, now: UnixMs, bank: str
) -> None:
    with fake_hindsight() as (peer, _), installed(settings, peer.url):
        peer.create("banks")
        settings.MEMORY_BANK = bank
        event, other = record("Tom is ill", item_id="itm_1"), record("Tom was ill", item_id="itm_1")
        for one in (event, other):
            deliver(entry_of(one))
        enqueue("erasure", event=event, operation=None, at=now)
        erasure = OutboxEntry.objects.select_related("event").get(kind="erasure")
        assert deliver(erasure).remote_id == deliver(erasure).remote_id == document_id_of(event.id)
        found = installed_bank().recall(ItemQuery.about("itm_1", text="Tom ill", workspace=""))
        assert [one.text for one in found] == ["Tom was ill"]


# ---- delivery to Hindsight


def deliver_next(now: UnixMs) -> OutboxEntry:
    entry = outbox.deliver_one(clock=lambda: now, lease_ms=60_000, token="a test")
    assert entry is not None
    return entry


def test_the_outbox_delivers_to_hindsight_and_keeps_the_operation(
    record: Record, fake: tuple[Peer, FakeHindsight], now: UnixMs
) -> None:
    peer, server = fake
    event = record("Tom is ill", item_id="itm_1", workspace="red")
    entry = deliver_next(now)
    assert (entry.state, entry.error_code) == ("delivered", "")
    assert server.operations[entry.remote_id].status == "completed"
    assert peer.document("banks.red", event.id)["original_text"] == "Tom is ill"


def test_an_operation_that_failed_is_set_going_again_since_sending_it_again_does_nothing(
    record: Record, fake: tuple[Peer, FakeHindsight], now: UnixMs
) -> None:
    peer, server = fake
    server.failing = 1
    event = record("Tom is ill", item_id="itm_1")
    assert deliver_next(now).state == "delivered"
    assert [one.path for one in peer.asked if one.method == "POST"][1].endswith("/retry")
    assert peer.document("banks", event.id) is not None


def test_an_operation_that_fails_again_waits_for_the_next_attempt_which_succeeds(
    record: Record, fake: tuple[Peer, FakeHindsight], now: UnixMs
) -> None:
    peer, server = fake
    server.failing = 2
    event = record("Tom is ill", item_id="itm_1")
    entry = deliver_next(now)
    assert (entry.state, entry.error_code) == ("pending", "bank_operation_failed")
    assert deliver_next(now + 3_600_000).state == "delivered"
    assert peer.document("banks", event.id) is not None


def test_a_text_that_is_not_worked_in_soon_is_looked_at_again_and_not_sent_twice(
    record: Record,
    fake: tuple[Peer, FakeHindsight],
    now: UnixMs,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, server = fake
    monkeypatch.setattr(hindsight_bank, "WATCHED_SECONDS", 0.01)
    record("Tom is ill", item_id="itm_1")
    entry = deliver_next(now)
    assert (entry.state, entry.error_code) == ("pending", "bank_accepted")
    time.sleep(0.1)
    assert deliver_next(now + 3_600_000).state == "delivered"
    assert len(server.operations) == 1


def test_an_operation_that_the_server_lost_is_sent_again(
    record: Record,
    fake: tuple[Peer, FakeHindsight],
    now: UnixMs,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, server = fake
    monkeypatch.setattr(server, "failing", 2)
    record("Tom is ill", item_id="itm_1")
    deliver_next(now)
    server.operations.clear()
    assert deliver_next(now + 3_600_000).state == "delivered"


# ---- faults on the wire

Reply = Callable[[], Iterable[bytes]]
FOUND = json.dumps({"bank_id": "banks", "config": {}, "overrides": {}}).encode()


def response(status: int, body: bytes, **headers: str) -> bytes:
    told = {"Content-Length": str(len(body)), "Connection": "close", **headers}
    lines = [f"HTTP/1.1 {status} Whatever", *(f"{name}: {value}" for name, value in told.items())]
    return "\r\n".join([*lines, "", ""]).encode() + body


@contextmanager
def faulty(reply: Reply, *, also_when_checked: bool = False) -> Iterator[str]:
    """A server on a socket that finds the bank when it is asked for, and answers everything else as the test says."""
    over = threading.Event()

    def serve() -> None:
        while not over.is_set():
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            with connection:
                asked = _read_request(connection)
                checked = asked.startswith(b"GET") and b"/config " in asked.partition(b"\r\n")[0]
                pieces = [response(200, FOUND)] if checked and not also_when_checked else reply()
                try:
                    for piece in pieces:
                        if over.is_set():
                            return
                        connection.sendall(piece)
                except OSError:
                    continue  # it hung up, as it should

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            over.set()
            listening.shutdown(socket.SHUT_RDWR)
            thread.join()


def _read_request(connection: socket.socket) -> bytes:
    received = b""
    while b"\r\n\r\n" not in received:
        received += connection.recv(65536)
    head, _, body = received.partition(b"\r\n\r\n")
    length = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
    while length is not None and len(body) < int(length[1]):
        body += connection.recv(65536)
    return received


def drip(head: bytes, each: bytes) -> Reply:
    def pieces() -> Iterator[bytes]:
        yield head
        for _ in range(200):
            time.sleep(0.05)
            yield each

    return pieces


def once(answer: bytes) -> Reply:
    return lambda: [answer]


def results(*entries: Any) -> bytes:
    return response(200, json.dumps({"results": entries}).encode())


WHOLE = {"id": "m", "text": "Tom is ill"}
UNREADABLE = [
    ("something that is not JSON", once(response(200, b"<html>hello</html>"))),
    ("something that is not JSON", once(response(200, b"[" * 100_000))),
    ("JSON that is not an object", once(response(200, b"[]"))),
    ("without a list of results", once(response(200, b"{}"))),
    ("a result that is not an object", once(results("Tom"))),
    ("a result without text", once(results({"id": "m"}))),
    ("a result without id", once(results({"text": "Tom"}))),
    ("text is not a string", once(results({**WHOLE, "text": 1}))),
    ("metadata is not an object of strings", once(results({**WHOLE, "metadata": {"n": 1}}))),
    ("metadata is not an object of strings", once(results({**WHOLE, "metadata": []}))),
    ("tags are not a list of strings", once(results({**WHOLE, "tags": "a"}))),
    ("tags are not a list of strings", once(results({**WHOLE, "tags": [1]}))),
    ("mentioned_at is not an instant", once(results({**WHOLE, "mentioned_at": "yesterday"}))),
    ("document_id is not a string", once(results({**WHOLE, "document_id": 7}))),
    (
        "does not understand tags_match",
        once(response(200, b'{"results": []}', **{"X-Ignored-Params": "tags_match"})),
    ),
    ("no answer: RemoteProtocolError", once(response(200, b'{"results": []}')[:-4])),
    ("no answer: RemoteProtocolError", once(b"HTTP/1.1 200 OK\r\nContent-Le")),
    ("no answer: RemoteProtocolError", once(b"SSH-2.0-OpenSSH_9.2\r\n")),
    ("no answer: RemoteProtocolError", once(b"")),
    ("status 302", once(response(302, b"", Location="http://127.0.0.1:1/"))),
]


@pytest.mark.parametrize(("reason", "reply"), UNREADABLE)
def test_an_answer_that_cannot_be_read_is_unavailable_and_never_empty(
    settings: Any, reason: str, reply: Reply
) -> None:
    with faulty(reply) as url, installed(settings, url) as bank, pytest.raises(BankUnavailable, match=reason):
        bank.recall(QUERY)


def test_fields_that_a_later_server_adds_are_no_fault(settings: Any) -> None:
    answer = {"results": [{**WHOLE, "new": {}, "scores": {"final": 0.5}}], "new": 1}
    with faulty(once(response(200, json.dumps(answer).encode()))) as url, installed(settings, url) as bank:
        (found,) = bank.recall(QUERY)
    assert (found.text, found.score, found.source_event_id, found.tags) == ("Tom is ill", 0.5, None, ())


STATUSES = [  # status, headers; code of a search, and of a delivery: permanent, pause, Retry-After in ms
    (401, {}, "bank_unauthorized", "bank_unauthorized", False, True, None),
    (403, {}, "bank_unauthorized", "bank_unauthorized", False, False, None),
    (400, {}, "bank_unavailable", "bank_answered_400", True, False, None),
    (404, {}, "bank_misplaced", "bank_answered_404", True, False, None),
    (409, {}, "bank_unavailable", "bank_answered_409", True, False, None),
    (413, {}, "bank_unavailable", "bank_answered_413", True, False, None),
    (422, {}, "bank_unavailable", "bank_answered_422", True, False, None),
    (429, {}, "bank_unavailable", "bank_unavailable", False, False, None),
    (429, {"Retry-After": "7"}, "bank_unavailable", "bank_unavailable", False, False, 7_000),
    (500, {}, "bank_unavailable", "bank_unavailable", False, False, None),
    (503, {"Retry-After": "120"}, "bank_unavailable", "bank_unavailable", False, False, 120_000),
    (
        503,
        {"Retry-After": "Mon, 30 Nov 2026 12:01:30 GMT", "Date": "Mon, 30 Nov 2026 12:00:00 GMT"},
        "bank_unavailable",
        "bank_unavailable",
        False,
        False,
        90_000,
    ),
    (503, {"Retry-After": "soon"}, "bank_unavailable", "bank_unavailable", False, False, None),
    (503, {"Retry-After": "-5"}, "bank_unavailable", "bank_unavailable", False, False, None),
    (504, {}, "bank_unavailable", "bank_unavailable", False, False, None),
]


@pytest.mark.parametrize(
    ("status", "headers", "searched", "delivered", "permanent", "pause", "retry_after_ms"), STATUSES
)
def test_each_status_counts_as_what_it_means(
    record: Record,
    settings: Any,
    status: int,
    headers: dict[str, str],
    searched: str,
    delivered: str,
    permanent: bool,
    pause: bool,
    retry_after_ms: int | None,
) -> None:
    entry = entry_of(record("Tom is ill"))
    reply = once(response(status, b'{"detail": "the text was: Tom is ill"}', **headers))
    with faulty(reply) as url, installed(settings, url) as bank:
        with pytest.raises(BankUnavailable, match=f"status {status}") as unavailable:
            bank.recall(QUERY)
        with pytest.raises(DeliveryFailed) as failed:
            deliver(entry)
    assert unavailable.value.code == searched
    told = failed.value
    assert (told.code, told.permanent, told.pause) == (delivered, permanent, pause)
    assert told.retry_after_ms == retry_after_ms
    assert "Tom" not in told.message


def test_a_refused_key_pauses_delivery_and_leaves_the_entry_as_it_was(
    record: Record, settings: Any, now: UnixMs
) -> None:
    record("Tom is ill")
    with faulty(once(response(401, b"{}")), also_when_checked=True) as url, installed(settings, url):
        entry = deliver_next(now)
        assert (entry.state, entry.attempts) == ("pending", 0)
        assert outbox.deliver_one(clock=lambda: now, lease_ms=60_000, token="a test") is None


SLOW = {
    "never": drip(b"", b""),
    "in its headers": drip(b"HTTP/1.1 200 OK\r\nX-Slow: ", b"a"),
    "in its body": drip(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n", b" "),
    "in its chunks": drip(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
    "packed": drip(
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 1000\r\n\r\n\x1f\x8b\x08\x08\0\0\0\0\0\0",
        b"a",
    ),
}


@pytest.mark.parametrize("slowness", SLOW)
def test_a_server_that_is_slow_in_whatever_way_is_given_up_in_time(
    record: Record, settings: Any, slowness: str
) -> None:
    entry = entry_of(record("Tom is ill"))
    with faulty(SLOW[slowness]) as url, installed(settings, url, timeout_ms=400) as bank:
        began = time.monotonic()
        with pytest.raises(BankUnavailable, match="no answer in time"):
            bank.recall(QUERY)
        assert 0.35 < time.monotonic() - began < 1.5
        with pytest.raises(DeliveryFailed) as failed:
            deliver(entry)
    assert (failed.value.code, failed.value.permanent) == ("bank_unavailable", False)


def test_a_server_that_is_down_is_unavailable_and_delivery_waits(
    record: Record, settings: Any, now: UnixMs
) -> None:
    record("Tom is ill")
    with socket.create_server(("127.0.0.1", 0)) as closed:
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
    with installed(settings, url) as bank:
        with pytest.raises(BankUnavailable, match="no answer: ConnectError"):
            bank.recall(QUERY)
        entry = deliver_next(now)
    assert (entry.state, entry.attempts, entry.error_code) == ("pending", 1, "bank_unavailable")
    assert entry.next_attempt_at > now


def test_an_answer_without_end_is_given_up_by_its_size(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vault.hindsight.ANSWER_BYTES", 10_000)
    endless = drip(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n", b" " * 20_000)
    with (
        faulty(endless) as url,
        installed(settings, url) as bank,
        pytest.raises(BankUnavailable, match="more than 10000"),
    ):
        bank.recall(QUERY)


def test_half_an_answer_to_a_retain_is_tried_again(record: Record, settings: Any) -> None:
    entry = entry_of(record("Tom is ill"))
    for told in (b'{"success": true}', b'{"success": false, "operation_id": "x"}', b"[]", b"{"):
        with faulty(once(response(200, told))) as url, installed(settings, url):
            with pytest.raises(DeliveryFailed) as failed:
                deliver(entry)
            assert (failed.value.code, failed.value.permanent) == ("bank_unavailable", False)


def test_nothing_of_question_answer_key_or_address_is_logged_or_told(
    settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    secret = "the surgeon's verdict"
    traced = {"results": "wrong", "trace": {"query": secret, "embedding": [0.1]}}
    replies = [response(200, json.dumps(traced).encode()), response(500, secret.encode()), b""]
    for reply in replies:
        with faulty(once(reply)) as url, installed(settings, url) as bank:
            with pytest.raises(BankUnavailable) as caught:
                bank.recall(BankQuery(text=secret, workspace=""))
            told = f"{caught.value} {caught.value.reason} {caught.value.__cause__}"
            for hidden in (secret, API_KEY, url.removeprefix("http://")):
                assert hidden not in told
    assert caplog.records
    assert secret not in caplog.text
    assert API_KEY not in caplog.text


# ---- what is told of a bank


def test_readyz_names_the_bank_and_is_ready_without_it(
    fake: tuple[Peer, FakeHindsight], client: Client, settings: Any, db: None
) -> None:
    assert client.get("/readyz").json()["parts"]["bank"] == {"ok": True, "bank": "hindsight"}
    with installed(settings, fake[0].url, prefix="misspelt"):
        answer = client.get("/readyz")
    assert answer.status_code == 200
    told = answer.json()["parts"]["bank"]
    assert (told["ok"], told["bank"], told["code"]) == (False, "hindsight", "bank_missing")
    assert "misspelt" in told["reason"]


def test_readyz_names_the_local_bank(client: Client, db: None) -> None:
    assert client.get("/readyz").json()["parts"]["bank"] == {"ok": True, "bank": "local"}


@pytest.mark.slow
def test_serve_refuses_to_start_where_the_bank_is_missing(manage: Callable[..., Any]) -> None:
    with fake_hindsight() as (peer, _):
        env = {"MEMORY_BANK": "hindsight", "HINDSIGHT_URL": peer.url, "HINDSIGHT_API_KEY": API_KEY}
        assert manage("migrate", "-v", "0", env=env).returncode == 0
        refused = manage("serve", "--port", "0", env=env, timeout=60)
        assert refused.returncode == 1
        assert "the memory bank cannot be used: there is no bank recall-ledger" in refused.stderr
        assert not peer.exists("recall-ledger")


def test_serve_starts_without_a_bank_that_may_be_back_any_time(
    settings: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    with faulty(once(response(503, b"{}")), also_when_checked=True) as url, installed(settings, url):
        Serve().require_bank()
    assert "does not answer now (answered with status 503)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"MEMORY_BANK": "hindsight"}, "HINDSIGHT_URL"),
        ({"MEMORY_BANK": "hindsigt"}, "MEMORY_BANK"),
        ({"HINDSIGHT_BANK_PREFIX": "a/b"}, "HINDSIGHT_BANK_PREFIX"),
        ({"HINDSIGHT_TIMEOUT_MS": "0"}, "HINDSIGHT_TIMEOUT_MS"),
    ],
)
@pytest.mark.slow
def test_a_wrong_setting_is_named(manage: Callable[..., Any], wrong: dict[str, str], named: str) -> None:
    refused = manage("check", env=wrong)
    assert refused.returncode != 0
    assert named in refused.stderr
