"""Context over REST: recording it once, reading events and deliveries, correcting, verifying; and each its refusals."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.db import OperationalError, connection

from ledger import outbox, triggers
from ledger.clock import now_ms
from ledger.models import ContextEvent, Operation, OutboxEntry, Supersession
from recall.api import context as endpoints
from recall.models import ApiKey
from recall.services import create_api_key

Api = Any
Added = Callable[..., str]
UNKNOWN = "evt_00000000000000000000000000"
WHY = "somebody mixed two things up"


def add(api: Api, text: str = "Tom is ill", *, key: str = "", **fields: Any) -> tuple[int, Any]:
    answer: tuple[int, Any] = api.post(
        "/v1/context", {"text": text, **fields}, **{"Idempotency-Key": key or f"{text} {fields}"}
    )
    return answer


def added(api: Api, text: str = "Tom is ill", **fields: Any) -> str:
    status, told = add(api, text, **fields)
    assert status == 201, told
    return str(told["event_id"])


def error_of(answer: tuple[int, Any]) -> tuple[int, str, str | None]:
    status, told = answer
    return status, told["error"]["code"], told["error"].get("field")


def deliver() -> None:
    outbox.run(threading.Event(), clock=now_ms, lease_ms=60_000, once=True)


# ------------------------------------------------------------------------------------------- recording


def test_context_is_recorded_and_waits_for_its_delivery(api: Api) -> None:
    status, told = add(
        api,
        "Tom is ill",
        key="one",
        item_id="itm/1 ü",
        occurrence="20261102T090000",
        reason="a call",
        occurred_at="2026-11-02T10:00:00+01:00",
        tags=["report", "call", "call"],
        workspace="red",
    )
    assert (status, told.keys()) == (201, {"operation_id", "event_id", "context_delivery"})
    assert told["context_delivery"] == "pending"
    event = ContextEvent.objects.get()
    assert (event.id, event.kind, event.workspace, event.text) == (
        told["event_id"],
        "context_added",
        "red",
        "Tom is ill",
    )
    assert (event.actor_kind, event.actor_id) == ("key", api.key_id)
    assert OutboxEntry.objects.get().operation_id == Operation.objects.get().id == told["operation_id"]
    _, shown = api.get(f"/v1/events/{event.id}")
    assert {name: shown[name] for name in ("item_id", "occurrence", "reason", "occurred_at", "tags")} == {
        "item_id": "itm/1 ü",
        "occurrence": "20261102T090000",
        "reason": "a call",
        "occurred_at": "2026-11-02T09:00:00Z",
        "tags": ["call", "report"],
    }


def test_the_same_key_and_payload_again_is_the_first_answer(api: Api) -> None:
    status, first = add(api, key="k", item_id="itm_1")
    assert status == 201
    deliver()
    assert add(api, key="k", item_id="itm_1") == (200, first), "as it was, though it has been delivered since"
    assert ContextEvent.objects.filter(kind="context_added").count() == 1


def test_the_same_key_with_another_payload_is_a_conflict(api: Api) -> None:
    first = added(api, key="k")
    status, told = add(api, "Tom is back", key="k")
    assert error_of((status, told)) == (409, "idempotency_conflict", "Idempotency-Key")
    assert first in told["error"]["message"]
    assert error_of(add(api, key="k", workspace="red")) == (409, "idempotency_conflict", "Idempotency-Key")
    assert ContextEvent.objects.count() == OutboxEntry.objects.count() == 1


def test_without_a_key_nothing_is_recorded(api: Api) -> None:
    for headers in ({}, {"Idempotency-Key": ""}):
        answer = api.post("/v1/context", {"text": "Tom is ill"}, **headers)
        assert error_of(answer) == (400, "idempotency_key_required", "Idempotency-Key")
    assert not ContextEvent.objects.exists()


def test_a_key_is_the_callers_own(api: Api, api_for: Callable[..., Api]) -> None:
    other = api_for()
    assert added(api, key="k") != added(other, key="k")


def test_what_takes_an_older_ones_place_must_be_of_its_kind(api: Api) -> None:
    elsewhere, of_another = added(api, workspace="red"), added(api, item_id="itm_2")
    memory = api.stored("a memory")
    (created,) = api.get(f"/v1/memories/{memory['id']}/history")[1]["results"]
    for old, code in (
        (UNKNOWN, "unknown_event"),
        ("", "unknown_event"),
        ("x" * 5_000, "unknown_event"),
        (elsewhere, "unknown_event"),
        (created["id"], "unknown_event"),
        (of_another, "other_item"),
    ):
        answer = add(api, "new", key=f"{old[:40]}", item_id="itm_1", supersedes_context_id=old)
        assert error_of(answer) == (422, code, "supersedes_context_id"), old[:40]
    assert not Supersession.objects.exists()


def test_a_second_successor_is_refused_and_the_head_is_named(api: Api) -> None:
    first = added(api, "one")
    second = added(api, "two", supersedes_context_id=first)
    third = added(api, "three", supersedes_context_id=second)
    status, told = add(api, "four", supersedes_context_id=first)
    assert error_of((status, told)) == (409, "already_superseded", "supersedes_context_id")
    assert third in told["error"]["message"]
    assert third in told["error"]["hint"]


def test_a_bound_key_writes_its_own_workspace_and_no_other(api_for: Callable[..., Api]) -> None:
    red = api_for("read,write", workspace="red")
    assert ContextEvent.objects.get(id=added(red, "by default")).workspace == "red"
    assert ContextEvent.objects.get(id=added(red, "by name", workspace="red")).workspace == "red"
    assert ContextEvent.objects.get(id=added(red, "null", workspace=None)).workspace == "red"
    for workspace in ("", "blue"):
        assert error_of(add(red, "elsewhere", workspace=workspace)) == (403, "forbidden", "workspace")


def test_reading_does_not_suffice_to_write_and_writing_does_not_suffice_to_correct(
    api: Api, api_for: Callable[..., Api]
) -> None:
    event = added(api)
    reader, writer = api_for("read"), api_for("read,write")
    assert error_of(add(reader))[:2] == (403, "permission_denied")
    assert reader.post("/v1/context/search", {"query": "Tom"})[0] == 200
    correction = {"kind": "retract", "reason": WHY}
    assert error_of(writer.post(f"/v1/events/{event}/corrections", correction))[:2] == (
        403,
        "permission_denied",
    )


@pytest.mark.django_db(transaction=True)
def test_many_posts_at_once_with_one_key_are_one_event(live_server: Any) -> None:
    _, secret = create_api_key("agent", scopes=["read", "write"], at=now_ms())
    start = threading.Barrier(8)

    def post(_: int) -> tuple[int, Any]:
        start.wait(timeout=30)
        http = HTTPConnection(urlsplit(live_server.url).netloc, timeout=30)
        headers = {
            "Authorization": f"Bearer {secret}",
            "Content-Type": "application/json",
            "Idempotency-Key": "the one",
        }
        http.request("POST", "/v1/context", body=json.dumps({"text": "Tom is ill"}), headers=headers)
        response = http.getresponse()
        told = response.status, json.loads(response.read())
        http.close()
        return told

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(post, range(8)))
    assert sorted(status for status, _ in answers) == [200] * 7 + [201]
    assert len({json.dumps(told, sort_keys=True) for _, told in answers}) == 1
    assert ContextEvent.objects.count() == OutboxEntry.objects.count() == Operation.objects.count() == 1


# ------------------------------------------------------------------------------------------- what is refused

LONG = "x" * 200_000
BAD_CONTEXT: list[tuple[dict[str, Any], str | None, str]] = [
    ({}, "text", "required"),
    ({"text": ""}, "text", "invalid"),
    ({"text": " \n"}, "text", "invalid"),
    ({"text": "a\0b"}, "text", "invalid"),
    ({"text": None}, "text", "invalid"),
    ({"text": 1}, "text", "invalid"),
    ({"text": ["a"]}, "text", "invalid"),
    ({"text": "é" * (32 * 1024 + 1)}, "text", "too_large"),
    ({"text": "a", "txet": "a"}, "txet", "unknown_field"),
    ({"text": "a", "actor": "root"}, "actor", "unknown_field"),
    ({"text": "a", "item_id": ""}, "item_id", "invalid"),
    ({"text": "a", "item_id": "\0"}, "item_id", "invalid"),
    ({"text": "a", "item_id": "x" * 257}, "item_id", "too_large"),
    ({"text": "a", "item_id": 1}, "item_id", "invalid"),
    ({"text": "a", "occurrence": "20261102"}, "occurrence", "invalid"),
    ({"text": "a", "item_id": "i", "occurrence": ""}, "occurrence", "invalid"),
    ({"text": "a", "item_id": "i", "occurrence": LONG}, "occurrence", "too_large"),
    ({"text": "a", "workspace": "x" * 129}, "workspace", "too_large"),
    ({"text": "a", "workspace": "a\nb"}, "workspace", "invalid"),
    ({"text": "a", "workspace": 3}, "workspace", "invalid"),
    ({"text": "a", "reason": "\0"}, "reason", "invalid"),
    ({"text": "a", "reason": "x" * 2_001}, "reason", "too_large"),
    ({"text": "a", "supersedes_context_id": "\0"}, "supersedes_context_id", "invalid"),
    ({"text": "a", "supersedes_context_id": 7}, "supersedes_context_id", "invalid"),
    ({"text": "a", "occurred_at": "yesterday"}, "occurred_at", "invalid"),
    ({"text": "a", "occurred_at": "2026-11-02T10:00:00"}, "occurred_at", "invalid"),
    ({"text": "a", "occurred_at": "2999-01-01T00:00:00Z"}, "occurred_at", "invalid"),
    ({"text": "a", "occurred_at": 1}, "occurred_at", "invalid"),
    ({"text": "a", "occurred_at_unix_ms": 10**18}, "occurred_at_unix_ms", "invalid"),
    (
        {"text": "a", "occurred_at": "2026-01-01T00:00:00Z", "occurred_at_unix_ms": 1},
        "occurred_at_unix_ms",
        "invalid",
    ),
    ({"text": "a", "tags": "t"}, "tags", "invalid"),
    ({"text": "a", "tags": None}, "tags", "invalid"),
    ({"text": "a", "tags": [""]}, "tags", "invalid"),
    ({"text": "a", "tags": [1]}, "tags.0", "invalid"),
    ({"text": "a", "tags": ["\0"]}, "tags", "invalid"),
    ({"text": "a", "tags": ["x" * 129]}, "tags", "too_large"),
    ({"text": "a", "tags": [str(n) for n in range(65)]}, "tags", "too_large"),
]


def test_bad_context_is_refused_by_field_and_nothing_is_recorded(api: Api) -> None:
    for body, field, code in BAD_CONTEXT:
        answer = api.post("/v1/context", body, **{"Idempotency-Key": "k"})
        assert error_of(answer) == (400, code, field), body
        assert len(json.dumps(answer[1])) < 2_000
    for raw in (b"", b"[]", b'"a"', b"{", b'{"text": NaN}', b'{"text": "\xff"}', b'{"text": "\\ud800"}'):
        status, told = api.post("/v1/context", raw, **{"Idempotency-Key": "k"})
        assert status == 400, (raw, told)
    for key in ("x" * 201, "a\x01b", "a\tb"):
        answer = api.post("/v1/context", {"text": "a"}, **{"Idempotency-Key": key})
        assert error_of(answer) == (400, "invalid", "Idempotency-Key")
    assert not ContextEvent.objects.exists()
    assert not Operation.objects.exists()


BAD_SEARCH: list[tuple[dict[str, Any], str | None, str]] = [
    ({}, "query", "required"),
    ({"query": ""}, "query", "query_required"),
    ({"query": " ", "item_id": "itm_1"}, "query", "query_required"),
    ({"query": "a\0"}, "query", "invalid"),
    ({"query": None}, "query", "invalid"),
    ({"query": "x" * 4_097}, "query", "too_large"),
    ({"query": "a", "item_id": ""}, "item_id", "invalid"),
    ({"query": "a", "item_id": "\0"}, "item_id", "invalid"),
    ({"query": "a", "item_id": "x" * 257}, "item_id", "too_large"),
    ({"query": "a", "item_id": []}, "item_id", "invalid"),
    ({"query": "a", "occurrence": "20261102"}, "occurrence", "invalid"),
    ({"query": "a", "workspace": "x" * 129}, "workspace", "too_large"),
    ({"query": "a", "limit": 0}, "limit", "invalid"),
    ({"query": "a", "limit": 201}, "limit", "invalid"),
    ({"query": "a", "limit": "3"}, "limit", "invalid"),
    ({"query": "a", "limit": True}, "limit", "invalid"),
    ({"query": "a", "temporal": {}}, "temporal", "invalid"),
    ({"query": "a", "temporal": "last week"}, "temporal", "invalid"),
    ({"query": "a", "temporal": {"start": "soon"}}, "temporal.start", "invalid"),
    ({"query": "a", "temporal": {"begin": "2026-01-01"}}, "temporal.begin", "unknown_field"),
    ({"query": "a", "temporal": {"start": "2026-02-01", "end": "2026-01-01"}}, "temporal.end", "invalid"),
    ({"query": "a", "tags": ["life-item:x"]}, "tags", "unknown_field"),
    ({"query": "a", "tags_match": "any"}, "tags_match", "unknown_field"),
]


def test_a_bad_search_is_refused_by_field_and_leaves_no_record(api: Api) -> None:
    for body, field, code in BAD_SEARCH:
        assert error_of(api.post("/v1/context/search", body)) == (400, code, field), body
    assert api.get("/v1/recalls")[1]["results"] == []


# ------------------------------------------------------------------------------------------- events


def test_events_are_listed_newest_first_and_by_kind_item_workspace_and_memory(api: Api) -> None:
    one = added(api, "one", item_id="itm_1")
    two = added(api, "two", item_id="itm_1", workspace="red")
    three = added(api, "three")
    memory = api.stored("a memory")["id"]

    def ids(**asked: Any) -> list[str]:
        status, told = api.get("/v1/events", **asked)
        assert status == 200, told
        return [event["id"] for event in told["results"]]

    assert ids(kind="context_added") == [three, two, one]
    assert ids(item_id="itm_1") == [two, one]
    assert ids(item_id="itm_1", workspace="red") == [two, one], "a workspace, and the global one"
    assert ids(item_id="itm_1", workspace="") == [one]
    assert ids(item_id="itm_9") == []
    assert len(ids(memory=memory)) == 1
    for asked, field in (({"item_id": ""}, "item_id"), ({"kind": "gossip"}, "kind"), ({"itm": "1"}, "itm")):
        assert error_of(api.get("/v1/events", **asked))[2] == field


def test_a_list_of_events_is_paged_by_a_cursor_in_both_directions(api: Api) -> None:
    made = [added(api, f"number {n}", item_id="itm_1") for n in range(5)]
    seen, url = [], "/v1/events?item_id=itm_1&limit=2"
    while url:
        status, page = api.call("GET", url)
        assert status == 200
        seen += [event["id"] for event in page["results"]]
        back, url = page["previous"], page["next"]
    assert seen == made[::-1]
    _, before = api.call("GET", back)
    assert [event["id"] for event in before["results"]] == [made[2], made[1]]


def test_one_event_tells_its_chain_and_its_delivery(api: Api) -> None:
    first = added(api, "one", item_id="itm_1")
    second = added(api, "two", item_id="itm_1", supersedes_context_id=first)
    third = added(api, "three", item_id="itm_1", supersedes_context_id=second)
    status, told = api.get(f"/v1/events/{second}")
    assert (status, told["supersedes"], told["superseded_by"]) == (200, first, third)
    assert [(one["id"], one["superseded_by"], one["is_head"]) for one in told["chain"]] == [
        (first, second, False),
        (second, third, False),
        (third, None, True),
    ]
    assert [(one["old"], one["new"], one["voided"]) for one in told["supersessions"]] == [
        (first, second, False),
        (second, third, False),
    ]
    assert told["delivery"]["state"] == "pending"
    assert api.get(f"/v1/events/{first}")[1]["superseded_by"] == third, "the head, and not the next one"
    assert api.get(f"/v1/events/{third}")[1]["superseded_by"] is None
    deliver()
    delivery = api.get(f"/v1/events/{second}")[1]["delivery"]
    assert (delivery["state"], delivery["attempts"], delivery["last_error"]) == ("delivered", 1, None)
    assert delivery["remote_id"].startswith("mem_")


def test_an_event_about_a_memory_has_no_chain_and_no_delivery(api: Api) -> None:
    memory = api.stored("a memory")["id"]
    (created,) = api.get(f"/v1/memories/{memory}/history")[1]["results"]
    _, told = api.get(f"/v1/events/{created['id']}")
    assert (told["subject_id"], told["memory_id"]) == (memory, memory)
    assert [told[name] for name in ("supersedes", "superseded_by", "chain", "delivery")] == [
        None,
        None,
        [],
        None,
    ]


def test_an_unknown_event_and_an_unknown_operation_are_not_found(api: Api) -> None:
    for path in (f"/v1/events/{UNKNOWN}", "/v1/operations/op_00000000000000000000000000"):
        assert error_of(api.get(path))[:2] == (404, "not_found")
    correction = {"kind": "retract", "reason": WHY}
    assert error_of(api.post(f"/v1/events/{UNKNOWN}/corrections", correction))[:2] == (404, "not_found")


# ------------------------------------------------------------------------------------------- operations


def test_an_operation_whose_outbox_entry_was_taken_out_by_hand_says_so(api: Api) -> None:
    _, made = add(api)
    OutboxEntry.objects.filter(event_id=made["event_id"]).delete()
    status, told = api.get(f"/v1/operations/{made['operation_id']}")
    assert (status, told["event_id"], told["state"]) == (200, made["event_id"], "failed")
    assert (told["last_error"]["code"], told["next_attempt_at"]) == ("entry_missing", None)
    assert "whether it was delivered is not known" in told["last_error"]["message"]


@pytest.mark.parametrize(
    ("fault", "code", "retry_after"),
    [
        ("database is locked", "database_locked", "1"),
        ("database or disk is full", "storage_full", None),
        ("disk I/O error", "unavailable", "1"),
    ],
)
def test_a_fault_of_the_database_is_a_503_with_one_code_for_memories_and_context_alike(
    api: Api, monkeypatch: pytest.MonkeyPatch, fault: str, code: str, retry_after: str | None
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise OperationalError(fault)

    monkeypatch.setattr("ledger.services.head", fails)
    for path, body in (("/v1/memories", {"text": "tea"}), ("/v1/context", {"text": "tea"})):
        answer = api.raw("POST", path, body, **{"Idempotency-Key": "one"})
        assert (answer.status_code, answer.headers.get("Retry-After")) == (503, retry_after), path
        assert error_of((503, answer.json()))[:2] == (503, code), path
        assert "nothing was written" in answer.json()["error"]["message"]


def test_an_operation_tells_how_its_delivery_stands(
    api: Api, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, made = add(api, workspace="red")
    path = f"/v1/operations/{made['operation_id']}"
    status, told = api.get(path)
    assert (status, told["event_id"], told["workspace"]) == (200, made["event_id"], "red")
    assert (told["state"], told["attempts"], told["last_error"], told["delivered_at"]) == (
        "pending",
        0,
        None,
        None,
    )
    assert told["next_attempt_at"] == told["created_at"]
    settings.OUTBOX_HANDLERS = {"context": "recall.nothing.here"}
    outbox.deliver_one(clock=now_ms, lease_ms=60_000, token="one")
    told = api.get(path)[1]
    assert (told["state"], told["attempts"], told["last_error"]["code"]) == ("pending", 1, "handler_failed")
    assert told["next_attempt_at"] > told["created_at"]
    settings.OUTBOX_HANDLERS = {"context": "recall.banks.deliver"}
    OutboxEntry.objects.update(next_attempt_at=0)
    deliver()
    told = api.get(path)[1]
    assert (told["state"], told["attempts"], told["next_attempt_at"]) == ("delivered", 2, None)
    assert told["delivered_at"] is not None


# ------------------------------------------------------------------------------------------- corrections


def corrected(api: Api, event: str, kind: str, **fields: Any) -> dict[str, Any]:
    status, told = api.post(f"/v1/events/{event}/corrections", {"kind": kind, "reason": WHY, **fields})
    assert status == 201, told
    return dict(told)


def test_a_correction_is_a_new_event_that_takes_the_old_ones_place(api: Api) -> None:
    event = added(api, "Tom is ill", item_id="itm_1")
    told = corrected(api, event, "supersede", text="Tim is ill")
    assert (told["kind"], told["text"], told["reason"]) == ("correction_supersede", "Tim is ill", WHY)
    assert (told["subject_id"], told["memory_id"], told["item_id"]) == (event, None, "itm_1")
    assert (told["supersedes"], told["superseded_by"]) == (event, None)
    assert api.get(f"/v1/events/{event}")[1]["superseded_by"] == told["id"]
    undo = corrected(api, told["id"], "restore")
    assert api.get(f"/v1/events/{event}")[1]["superseded_by"] is None
    (edge,) = api.get(f"/v1/events/{event}")[1]["supersessions"]
    assert (edge["voided"], edge["voided_by"]) == (True, undo["id"])


def test_a_correction_under_a_key_happens_once(api: Api) -> None:
    event = added(api)
    path, body = f"/v1/events/{event}/corrections", {"kind": "annotate", "reason": WHY}
    (made, first), (again, second) = (api.post(path, body, **{"Idempotency-Key": "k"}) for _ in range(2))
    assert (made, again, first) == (201, 200, second)
    conflict = api.post(path, {**body, "reason": "another reason"}, **{"Idempotency-Key": "k"})
    assert error_of(conflict) == (409, "idempotency_conflict", "Idempotency-Key")


def test_a_dry_run_shows_what_would_be_and_writes_nothing(api: Api) -> None:
    event = added(api, "Tom is ill", item_id="itm_1")
    deliver()
    _, answer = api.post("/v1/context/search", {"query": "Tom is ill", "item_id": "itm_1"})
    plain = api.recalled("Tom is ill")["recall_id"]
    before = ContextEvent.objects.count()
    body = {"kind": "supersede", "reason": WHY, "text": "Tim is ill", "dry_run": True}
    status, told = api.post(f"/v1/events/{event}/corrections", body)
    assert (status, told["dry_run"], told["refused"], told["warnings"]) == (200, True, False, [])
    assert [one["id"] for one in told["chain_before"]["chain"]] == [event]
    assert [(one["id"], one["is_head"]) for one in told["chain_after"]["chain"]] == [
        (event, False),
        (None, True),
    ]
    assert told["delivered_text"].startswith(f"This supersedes context event {event}")
    assert told["recalls"] == {"count": 2, "newest": [plain, answer["recall_id"]]}
    assert ContextEvent.objects.count() == before
    assert not Supersession.objects.exists()


def test_a_dry_run_tells_which_records_called_stale_what_would_be_current_again(api: Api) -> None:
    event = added(api, "Tom is ill", item_id="itm_1")
    deliver()
    api.post("/v1/context/search", {"query": "Tom is ill", "item_id": "itm_1"})
    wrong = corrected(api, event, "retract")
    _, marked = api.post("/v1/context/search", {"query": "Tom is ill", "item_id": "itm_1"})
    body = {"kind": "restore", "reason": WHY, "dry_run": True}
    _, told = api.post(f"/v1/events/{wrong['id']}/corrections", body)
    assert told["recalls"] == {"count": 1, "newest": [marked["recall_id"]]}
    note = {"kind": "annotate", "reason": WHY, "dry_run": True}
    assert api.post(f"/v1/events/{event}/corrections", note)[1]["recalls"] == {"count": 0, "newest": []}


def test_what_would_be_refused_is_a_warning_of_a_dry_run_and_a_refusal_without(api: Api) -> None:
    first = added(api, "one", item_id="itm_1")
    second = added(api, "two", item_id="itm_1", supersedes_context_id=first)
    other = added(api, "other", item_id="itm_1")
    for event, body, code, status in (
        (first, {"kind": "retract"}, "already_superseded", 409),
        (second, {"kind": "link", "successor": first}, "supersession_cycle", 409),
        (other, {"kind": "link", "successor": UNKNOWN}, "unknown_event", 422),
        (other, {"kind": "restore"}, "nothing_to_restore", 409),
        (other, {"kind": "retract", "reason": "short"}, "reason_required", 400),
    ):
        path, sent = f"/v1/events/{event}/corrections", {"reason": WHY, **body}
        told = api.post(path, {**sent, "dry_run": True})
        assert (told[0], told[1]["refused"]) == (200, True)
        assert code in [warning["code"] for warning in told[1]["warnings"]]
        assert error_of(api.post(path, sent))[:2] == (status, code)


@pytest.mark.parametrize(
    ("body", "field", "code"),
    [
        ({"reason": WHY}, "kind", "required"),
        ({"kind": "retract"}, "reason", "required"),
        ({"kind": "forget", "reason": WHY}, "kind", "invalid"),
        ({"kind": "retract", "reason": ["a"]}, "reason", "invalid"),
        ({"kind": "retract", "reason": WHY + "\0"}, "reason", "invalid"),
        ({"kind": "retract", "reason": "x" * 2_001}, "reason", "too_large"),
        ({"kind": "retract", "reason": WHY, "text": "a"}, "text", "invalid"),
        ({"kind": "supersede", "reason": WHY, "text": " "}, "text", "invalid"),
        ({"kind": "supersede", "reason": WHY, "text": "x" * (64 * 1024 + 1)}, "text", "too_large"),
        ({"kind": "annotate", "reason": WHY, "successor": UNKNOWN}, "successor", "invalid"),
        ({"kind": "link", "reason": WHY}, "successor", "required"),
        ({"kind": "link", "reason": WHY, "successor": "\0"}, "successor", "invalid"),
        ({"kind": "retract", "reason": WHY, "dry_run": "yes"}, "dry_run", "invalid"),
        ({"kind": "retract", "reason": WHY, "actor": "root"}, "actor", "unknown_field"),
    ],
)
def test_a_bad_correction_is_refused_by_field(api: Api, body: dict[str, Any], field: str, code: str) -> None:
    event = added(api)
    assert error_of(api.post(f"/v1/events/{event}/corrections", body)) == (400, code, field)
    assert ContextEvent.objects.count() == 1


# ------------------------------------------------------------------------------------------- verification


def test_the_ledger_is_verified(api: Api) -> None:
    added(api, "one")
    last = added(api, "two")
    status, told = api.get("/v1/ledger/verify")
    assert (status, told) == (
        200,
        {"ok": True, "events": 2, "head_hash": ContextEvent.objects.get(id=last).hash},
    )


def test_a_ledger_without_its_guards_is_not_ok(api: Api) -> None:
    added(api, "one")
    with connection.cursor() as cursor:
        cursor.execute("DROP TRIGGER ledger_contextevent_no_update")
    _, told = api.get("/v1/ledger/verify")
    assert (told["ok"], told["unguarded"]) == (False, ["ledger_contextevent_no_update"])
    triggers.install()
    assert api.get("/v1/ledger/verify")[1]["ok"]


def test_a_chain_longer_than_is_shown_has_the_true_head(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ledger.queries.MAX_CHAIN", 3)
    ids = [added(api, "word 0")]
    for n in range(1, 6):
        ids.append(added(api, f"word {n}", supersedes_context_id=ids[-1]))
    _, told = api.get(f"/v1/events/{ids[0]}")
    assert (told["chain_truncated"], told["superseded_by"]) == (True, ids[-1])
    assert [event["is_head"] for event in told["chain"]] == [False] * len(told["chain"])


def test_a_read_waits_for_no_writer_to_note_that_its_key_was_used(api: Api) -> None:
    ApiKey.objects.update(last_used_at=None)
    with connection.cursor() as cursor:
        before = cursor.execute("PRAGMA busy_timeout").fetchone()[0]
    assert api.get("/v1/events")[0] == 200
    assert ApiKey.objects.get().last_used_at is not None
    with connection.cursor() as cursor:
        assert cursor.execute("PRAGMA busy_timeout").fetchone()[0] == before


def test_a_changed_event_is_named(api: Api) -> None:
    first, _ = added(api, "one"), added(api, "two")
    triggers.lift()
    with connection.cursor() as cursor:
        cursor.execute("UPDATE ledger_contextevent SET text = 'forged' WHERE id = %s", [first])
    triggers.install()
    _, told = api.get("/v1/ledger/verify")
    assert (told["ok"], told["first_broken"]["id"], told["first_broken"]["seq"]) == (False, first, 1)


def test_one_verification_runs_at_a_time(api: Api) -> None:
    assert endpoints._verifying.acquire(blocking=False)
    try:
        assert error_of(api.get("/v1/ledger/verify"))[:2] == (503, "verification_running")
    finally:
        endpoints._verifying.release()
    assert api.get("/v1/ledger/verify")[0] == 200


# ------------------------------------------------------------------------------------------- isolation


@pytest.fixture
def town(api: Api, api_for: Callable[..., Api]) -> tuple[Api, Api, dict[str, str]]:
    """Keys bound to red and blue; blue has context that was superseded, delivered and searched."""
    red = api_for("read,write,admin", workspace="red")
    blue = api_for("read,write,admin", workspace="blue")
    first = added(blue, "zanzibar one", item_id="itm_1")
    _, second = add(blue, "zanzibar two", item_id="itm_1", supersedes_context_id=first)
    deliver()
    _, answer = blue.post("/v1/context/search", {"query": "zanzibar", "item_id": "itm_1"})
    assert len(answer["hits"]) == 2
    return (
        red,
        blue,
        {
            "first": first,
            "second": second["event_id"],
            "op": second["operation_id"],
            "recall": answer["recall_id"],
        },
    )


def test_a_bound_key_sees_nothing_of_anothers_context(town: tuple[Api, Api, dict[str, str]]) -> None:
    red, _, theirs = town
    told = [
        red.get("/v1/events"),
        red.get("/v1/events", item_id="itm_1"),
        red.post("/v1/context/search", {"query": "zanzibar", "item_id": "itm_1"}),
        red.post("/v1/context/search", {"query": "zanzibar"}),
        red.post("/v1/context/search", {"query": "zanzibar", "workspace": ""}),
        red.get("/v1/recalls"),
    ]
    for status, answer in told:
        assert status == 200
        shown = json.dumps(answer)
        assert not any(word in shown for word in (*theirs.values(), "zanzibar one", "zanzibar two", "blue"))
    assert [answer["coverage"]["events"] for _, answer in told[2:5]] == [0, 0, 0]


def test_a_foreign_id_is_answered_like_an_unknown_one(town: tuple[Api, Api, dict[str, str]]) -> None:
    red, _, theirs = town
    correction = {"kind": "retract", "reason": WHY}
    for method, path, foreign, body in (
        ("GET", "/v1/events/{}", theirs["first"], None),
        ("GET", "/v1/operations/{}", theirs["op"], None),
        ("GET", "/v1/recalls/{}", theirs["recall"], None),
        ("POST", "/v1/events/{}/corrections", theirs["second"], correction),
        ("POST", "/v1/events/{}/corrections", theirs["second"], {**correction, "dry_run": True}),
    ):
        unknown = f"{foreign.split('_')[0]}_{'0' * 26}"
        of_foreign, of_unknown = (red.raw(method, path.format(id_), body) for id_ in (foreign, unknown))
        assert (of_foreign.status_code, of_unknown.status_code) == (404, 404), path
        assert of_foreign.content.replace(foreign.encode(), unknown.encode()) == of_unknown.content


def test_a_foreign_id_inside_a_body_is_a_422_like_an_unknown_one(
    town: tuple[Api, Api, dict[str, str]],
) -> None:
    red, _, theirs = town
    ours = added(red, "ours", item_id="itm_1")
    for path, body, field in (
        ("/v1/context", {"text": "a", "item_id": "itm_1"}, "supersedes_context_id"),
        (f"/v1/events/{ours}/corrections", {"kind": "link", "reason": WHY}, "successor"),
        ("/v1/memories", {"text": "a"}, "source_event_id"),
    ):
        answers = [
            red.raw("POST", path, {**body, field: id_}, **{"Idempotency-Key": f"{field} {id_}"})
            for id_ in (theirs["second"], UNKNOWN)
        ]
        assert [one.status_code for one in answers] == [422, 422], path
        foreign, unknown = (one.content for one in answers)
        assert foreign.replace(theirs["second"].encode(), UNKNOWN.encode()) == unknown
        assert json.loads(unknown)["error"]["field"] == field


def test_a_foreign_workspace_is_forbidden(town: tuple[Api, Api, dict[str, str]]) -> None:
    red, _, _ = town
    search = {"query": "zanzibar", "workspace": "blue"}
    for answer in (
        red.post("/v1/context/search", search),
        red.post("/v1/context/search", {**search, "workspace": "nowhere"}),
        red.get("/v1/events", workspace="blue"),
        add(red, "a", workspace="blue"),
    ):
        assert error_of(answer) == (403, "forbidden", "workspace")


def test_global_context_is_readable_and_not_writable_for_a_bound_key(
    api: Api, api_for: Callable[..., Api]
) -> None:
    everybodys = added(api, "closed on Mondays")
    deliver()
    red = api_for("read,write,admin", workspace="red")
    assert red.get(f"/v1/events/{everybodys}")[0] == 200
    _, answer = red.post("/v1/context/search", {"query": "Mondays", "workspace": ""})
    assert [hit["source_event_id"] for hit in answer["hits"]] == [everybodys]
    correction = {"kind": "retract", "reason": WHY}
    assert error_of(red.post(f"/v1/events/{everybodys}/corrections", correction))[:2] == (403, "forbidden")
    assert "seq" not in red.get(f"/v1/events/{everybodys}")[1], "the number counts everybody's events"


def test_a_bound_key_cannot_verify_a_chain_that_is_everybodys(town: tuple[Api, Api, dict[str, str]]) -> None:
    red, _, _ = town
    status, told = red.get("/v1/ledger/verify")
    assert (status, told["error"]["code"]) == (403, "forbidden")
    assert "every workspace" in told["error"]["message"]
