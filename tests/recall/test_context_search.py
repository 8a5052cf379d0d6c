"""Searching context: strict scopes (I02), superseded context (I05), and what a bank returns checked against the ledger.

Each claim is made end to end, from the request to the wire, on this vault, on the fake Hindsight and on real ones.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import IntegrityError, connection
from django.test.utils import CaptureQueriesContext
from hindsight_fake import FakeHindsight
from hindsight_peer import Peer

from ledger import outbox
from ledger.clock import now_ms
from ledger.domain.actors import SYSTEM
from ledger.domain.instants import DAY, format_instant
from ledger.models import ContextEvent, Tombstone
from ledger.services import correct
from recall import records
from recall.banks import Recalled
from recall.banks.hindsight import bank_of
from recall.models import RecallRecord, RecordEvent
from vault.domain.items import GENERAL_TAG, item_tag

Api = Any
Search = Callable[..., dict[str, Any]]
REPORT = "the quarterly report"


class Desk:
    """An agent that records context, sees it delivered, and searches it."""

    def __init__(self, api: Api, peer: Peer | None) -> None:
        self.api, self.peer, self._turn = api, peer, 0

    def add(self, text: str, **fields: Any) -> str:
        self._turn += 1
        headers = {"Idempotency-Key": f"turn {self._turn}"}
        status, told = self.api.post("/v1/context", {"text": text, **fields}, **headers)
        assert status == 201, told
        return str(told["event_id"])

    def deliver(self) -> None:
        tally = outbox.run(threading.Event(), clock=now_ms, lease_ms=60_000, once=True)
        assert (tally.failed, tally.postponed) == (0, 0)

    def search(self, query: str = REPORT, **arguments: Any) -> dict[str, Any]:
        if self.peer is not None:
            self.peer.asked.clear()
        status, told = self.api.post("/v1/context/search", {"query": query, **arguments})
        assert status == 200, told
        return dict(told)

    def chain(self, *texts: str, **fields: Any) -> list[str]:
        """Each text in the place of the one before it."""
        ids: list[str] = []
        for text in texts:
            ids.append(self.add(text, **fields, **({"supersedes_context_id": ids[-1]} if ids else {})))
        return ids


def contents(answer: dict[str, Any]) -> list[str]:
    return [hit["content"] for hit in answer["hits"]]


def codes(answer: dict[str, Any]) -> list[str]:
    return [warning["code"] for warning in answer["warnings"]]


@pytest.fixture
def local(api: Api) -> Desk:
    """A desk whose context is delivered into this vault."""
    return Desk(api, None)


@pytest.fixture
def remote(api: Api, fake: tuple[Peer, FakeHindsight]) -> Desk:
    """A desk whose context is delivered to the fake."""
    return Desk(api, fake[0])


@pytest.fixture
def there(api: Api, hindsight: Peer) -> Desk:
    """A desk before the fake and before each real Hindsight."""
    return Desk(api, hindsight)


@contextmanager
def answering(monkeypatch: pytest.MonkeyPatch, *recalled: Recalled) -> Iterator[list[Any]]:
    """A bank that answers so whatever it is asked: what no honest bank returns."""
    asked: list[Any] = []

    class Liar:
        name = "hindsight"

        def recall(self, query: Any) -> tuple[Recalled, ...]:
            asked.append(query)
            return recalled

    with monkeypatch.context() as patch:
        patch.setattr("recall.context.installed_bank", Liar)
        yield asked


def returned(text: str, source: str | None = None, *tags: str, **fields: Any) -> Recalled:
    given: dict[str, Any] = {
        "context": "",
        "document_id": source,
        "timestamp": now_ms(),
        "metadata": {},
        "score": 0.5,
        "memory_id": None,
    }
    return Recalled(text=text, source_event_id=source, tags=tags, **{**given, **fields})


# ------------------------------------------------------------------------------------------- I02: a strict scope


def strangers_in(peer: Peer) -> None:
    """Others' memories: untagged, of another item, and an observation that merges that into the target's tag."""
    peer.put(peer.prefix, f"{REPORT} of nobody")
    peer.put(peer.prefix, f"{REPORT} of another", tags=[item_tag("itm_2")])
    peer.merge(peer.prefix, f"{REPORT} merged from another", [item_tag("itm_1")])


def test_an_item_search_returns_the_items_context_alone_by_exactly_one_request(there: Desk) -> None:
    assert there.peer is not None
    strangers_in(there.peer)
    event = there.add(f"Tom is ill, so {REPORT} waits", item_id="itm_1", reason="a call")
    there.add(f"{REPORT} of a third", item_id="itm_3")
    there.add(f"{REPORT} in general")
    there.deliver()
    answer = there.search(item_id="itm_1", limit=7)
    (asked,) = there.peer.asked
    assert (asked.method, asked.path) == (
        "POST",
        f"/v1/default/banks/{there.peer.prefix}/memories/recall",
    )
    assert asked.body == {
        "query": REPORT,
        "types": ["world", "experience"],
        "prefer_observations": False,
        "include": {"entities": None},
        "budget": "mid",
        "max_tokens": 7168,
        "trace": False,
        "tags": [item_tag("itm_1")],
        "tags_match": "all_strict",
    }
    (hit,) = answer["hits"]
    stored = ContextEvent.objects.get(id=event)
    assert {name: hit[name] for name in hit if name not in ("score", "validity", "memory_id")} == {
        "rank": 1,
        "content": f"Tom is ill, so {REPORT} waits",
        "context": "a call",
        "document_id": event,
        "source_event_id": event,
        "kind": "context_added",
        "occurrence": None,
        "timestamp": format_instant(stored.occurred_at),
        "tags": [item_tag("itm_1")],
        "is_stale": False,
        "superseded_by": None,
        "provenance": "verified",
        "interpretation": False,
        "current_rationale": True,
        "labels": [],
        "match_type": "bank",
    }
    assert hit["validity"]["grade"] == "valid"
    assert (answer["scope"], answer["item_id"], answer["bank"]) == ("item", "itm_1", "hindsight")
    assert (answer["outcome"]["status"], answer["warnings"]) == ("fresh", [])
    assert answer["coverage"]["events"] == answer["coverage"]["delivered"] == 1


def test_an_item_without_context_has_no_hits_after_exactly_one_request(there: Desk) -> None:
    assert there.peer is not None
    strangers_in(there.peer)
    answer = there.search(item_id="itm_9")
    assert (answer["hits"], answer["outcome"]["status"]) == ([], "empty")
    assert [one.path.rsplit("/", 1)[1] for one in there.peer.asked] == ["recall"]
    assert answer["coverage"] == {
        "events": 0,
        "superseded": 0,
        "pending": 0,
        "delivered": 0,
        "failed": 0,
        "first": None,
        "last": None,
    }


def test_the_vault_keeps_the_same_scope(local: Desk) -> None:
    event = local.add(f"Tom is ill, so {REPORT} waits", item_id="itm_1")
    local.add(f"{REPORT} of another", item_id="itm_2")
    local.api.stored(f"{REPORT} of nobody")
    local.api.stored(f"{REPORT} of both", tags=[item_tag("itm_1"), item_tag("itm_2")])
    local.deliver()
    answer = local.search(item_id="itm_1")
    assert [hit["source_event_id"] for hit in answer["hits"]] == [event]
    assert answer["hits"][0]["memory_id"].startswith("mem_")
    assert codes(answer) == ["scope_violation"], "the one that names two items is dropped, and that is told"
    assert local.search(item_id="itm_9")["hits"] == []


def test_without_an_item_the_whole_bank_is_asked_and_the_answer_says_so(there: Desk) -> None:
    assert there.peer is not None
    event = there.add(f"{REPORT} in general")
    there.deliver()
    answer = there.search()
    (asked,) = there.peer.asked
    assert {"tags", "tags_match", "temporal_window"} & asked.body.keys() == set()
    assert (answer["scope"], answer["item_id"]) == ("bank", None)
    assert [(hit["source_event_id"], hit["tags"]) for hit in answer["hits"]] == [(event, [GENERAL_TAG])]


TAG = item_tag("itm_1")


@pytest.mark.parametrize(
    "tags",
    [(), (item_tag("itm_2"),), ("report",), (TAG, item_tag("itm_2"))],
    ids=["untagged", "of another item", "of no item", "of two items"],
)
def test_what_a_bank_returns_outside_the_item_is_dropped_and_reported(
    local: Desk, monkeypatch: pytest.MonkeyPatch, tags: tuple[str, ...]
) -> None:
    event = local.add(REPORT, item_id="itm_1")
    with answering(monkeypatch, returned("a secret", event, *tags), returned("ours", event, TAG)) as asked:
        answer = local.search(item_id="itm_1")
    assert contents(answer) == ["ours"]
    assert codes(answer) == ["scope_violation"]
    assert "a secret" not in str(answer)
    assert len(asked) == 1


def test_the_tag_alone_does_not_make_it_the_items(local: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    other, elsewhere = local.add("one", item_id="itm_2"), local.add("two", item_id="itm_1", workspace="blue")
    wrong = [
        returned("from an event about another item", other, TAG),
        returned("from an event of another workspace", elsewhere, TAG),
        returned("merged by the bank", None, TAG, merged=True),
    ]
    with answering(monkeypatch, *wrong):
        answer = local.search(item_id="itm_1")
    assert (answer["hits"], codes(answer)) == ([], ["scope_violation"])
    assert answer["warnings"][0]["message"].startswith("3 of 3 recalled memories left out")
    assert answer["outcome"] == {"status": "empty", "reason": "nothing it returned may be shown"}
    row = RecallRecord.objects.get(id=answer["recall_id"])
    verdicts = [(one["verdict"], one["detail"]) for one in records.read(row).candidates]
    assert verdicts == [("filtered", "is not of the scope that was asked for")] * 3


# ------------------------------------------------------------------------------------------- I05: superseded context


def test_superseded_context_says_so_and_the_newer_text_comes_first(there: Desk) -> None:
    superseded_context_says_so(there)


def test_superseded_context_says_so_in_the_vault_too(local: Desk) -> None:
    superseded_context_says_so(local)


def superseded_context_says_so(desk: Desk) -> None:
    old, new = desk.chain(f"Tom is ill, so {REPORT} waits", f"Tom is back: {REPORT} goes on", item_id="itm_1")
    desk.deliver()
    answer = desk.search(item_id="itm_1")
    first, second = answer["hits"]
    assert (first["source_event_id"], first["is_stale"], first["superseded_by"]) == (new, False, None)
    assert (first["content"], first["current_rationale"]) == (f"Tom is back: {REPORT} goes on", True)
    assert (second["source_event_id"], second["is_stale"], second["superseded_by"]) == (old, True, new)
    assert (second["current_rationale"], second["context_invalid"]) == (False, True)
    assert "superseded:ledger" in second["validity"]["signals"]
    assert answer["warnings"] == [
        {
            "code": "context_stale",
            "message": f"Recalled context from event {old} was superseded by {new}",
        }
    ]
    assert answer["coverage"]["events"] == 2
    assert answer["coverage"]["superseded"] == 1


@pytest.mark.parametrize("where", ["local", "remote"])
def test_of_a_chain_of_five_the_head_is_current_even_where_the_bank_returns_only_the_first(
    where: str, request: pytest.FixtureRequest
) -> None:
    desk: Desk = request.getfixturevalue(where)
    first = desk.add(f"{REPORT} waits for Tom", item_id="itm_1", reason="a call")
    desk.deliver()
    ids = [first]
    for n in range(2, 6):
        ids.append(desk.add(f"word {n}", item_id="itm_1", supersedes_context_id=ids[-1], reason=f"call {n}"))
    answer = desk.search(item_id="itm_1", limit=1)
    current, stale = answer["hits"]
    assert (current["content"], current["context"], current["source_event_id"]) == (
        "word 5",
        "call 5",
        ids[4],
    )
    assert (current["match_type"], current["provenance"]) == ("head", "verified")
    assert (current["score"], current["tags"], current["document_id"]) == (None, [TAG], ids[4])
    assert (stale["source_event_id"], stale["superseded_by"]) == (first, ids[4])
    assert codes(answer) == ["context_stale"]
    assert (answer["coverage"]["events"], answer["coverage"]["superseded"]) == (5, 4)
    assert (answer["coverage"]["pending"], answer["coverage"]["delivered"]) == (4, 1)


def test_the_standing_of_a_whole_page_takes_a_fixed_number_of_queries(
    local: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    chains = [local.chain(*(f"{n}.{m}" for m in range(n + 1)), item_id="itm_1") for n in range(12)]

    def queries(count: int) -> int:
        page = [returned(ids[0], ids[0], TAG) for ids in chains[:count]]
        with answering(monkeypatch, *page), CaptureQueriesContext(connection) as captured:
            answer = local.search(item_id="itm_1")
        assert len(answer["hits"]) == 2 * count - 1, "the first chain has one event, and no successor"
        return len(captured.captured_queries)

    queries(2)  # the first one reads what later ones know
    assert queries(2) == queries(12)


def test_after_a_retraction_there_is_no_current_text(local: Desk) -> None:
    old = local.add(f"{REPORT} waits", item_id="itm_1")
    local.deliver()
    gone = correct(old, kind="retract", reason="it was about another", actor=SYSTEM, at=now_ms())
    answer = local.search(item_id="itm_1")
    (hit,) = answer["hits"]
    assert (hit["is_stale"], hit["superseded_by"], hit["current_rationale"]) == (True, gone.id, False)
    assert answer["warnings"][0]["message"] == (
        f"Recalled context from event {old} was superseded by {gone.id}"
    )
    local.deliver()
    told = local.search("retracts context event", item_id="itm_1")
    assert [(hit["kind"], hit["current_rationale"]) for hit in told["hits"]] == [
        ("correction_retract", False)
    ]
    assert told["outcome"]["status"] == "stale"


def test_a_restored_text_is_current_again_and_the_correction_is_not(local: Desk) -> None:
    old = local.add(f"{REPORT} waits", item_id="itm_1")
    wrong = correct(
        old, kind="supersede", reason="a mix-up of two", text=f"{REPORT} goes", actor=SYSTEM, at=now_ms()
    )
    local.deliver()
    assert contents(local.search(item_id="itm_1"))[0] == f"{REPORT} goes"
    undo = correct(wrong.id, kind="restore", reason="it was right before", actor=SYSTEM, at=now_ms())
    answer = local.search(item_id="itm_1")
    assert [(hit["source_event_id"], hit["superseded_by"]) for hit in answer["hits"]] == [
        (old, None),
        (wrong.id, old),
    ]
    assert [hit["current_rationale"] for hit in answer["hits"]] == [True, False]
    correct(undo.id, kind="restore", reason="no, it was wrong", actor=SYSTEM, at=now_ms())
    again = local.search(item_id="itm_1")
    assert [(hit["source_event_id"], hit["superseded_by"]) for hit in again["hits"]] == [
        (wrong.id, None),
        (old, wrong.id),
    ]


def test_several_pieces_of_the_head_are_one_hit_in_the_ledgers_words(
    local: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = local.chain("old words", "new words", item_id="itm_1")
    pieces = [returned(f"piece {n}", new, TAG, memory_id=f"unit {n}") for n in (1, 2)]
    with answering(monkeypatch, returned("old words", old, TAG), *pieces):
        answer = local.search(item_id="itm_1")
    assert contents(answer) == ["new words", "old words"]
    assert [hit["match_type"] for hit in answer["hits"]] == ["bank", "bank"]


def test_what_is_current_stands_before_what_is_stale_whatever_the_bank_thinks(
    local: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = local.chain("old", "new")
    other = local.add("other")
    with answering(
        monkeypatch,
        returned("old", old),
        returned("a guess"),
        returned("other", other),
    ):
        answer = local.search()
    assert contents(answer) == ["new", "other", "a guess", "old"]
    assert answer["hits"][0]["source_event_id"] == new


# ------------------------------------------------------------------------------------------- time is a preference


def test_a_preferred_time_leaves_nothing_out_and_no_count_comes_from_it(there: Desk) -> None:
    a_preferred_time_leaves_nothing_out(there)


def test_a_preferred_time_leaves_nothing_out_in_the_vault_either(local: Desk) -> None:
    a_preferred_time_leaves_nothing_out(local)


def a_preferred_time_leaves_nothing_out(desk: Desk) -> None:
    event = desk.add(f"{REPORT} waits", item_id="itm_1", occurred_at="2026-06-01T10:00:00Z")
    desk.deliver()
    window = {"start": "2020-01-01T00:00:00Z", "end": "2020-02-01T00:00:00Z"}
    answer = desk.search(item_id="itm_1", temporal=window)
    assert [hit["source_event_id"] for hit in answer["hits"]] == [event]
    assert answer["coverage"] == {
        "events": 1,
        "superseded": 0,
        "pending": 0,
        "delivered": 1,
        "failed": 0,
        "first": "2026-06-01T10:00:00Z",
        "last": "2026-06-01T10:00:00Z",
    }
    if desk.peer is not None:
        (asked,) = desk.peer.asked
        assert asked.body["temporal_window"] == window
        assert asked.body["tags"] == [TAG]


# ------------------------------------------------------------------------------------------- provenance


def test_a_hit_without_a_source_event_is_an_interpretation(remote: Desk) -> None:
    assert remote.peer is not None
    remote.peer.put("banks", f"{REPORT} is late, I think", metadata={"source_event_id": "evt_unknown"})
    answer = remote.search()
    (hit,) = answer["hits"]
    assert (hit["provenance"], hit["interpretation"], hit["source_event_id"]) == ("unverified", True, None)
    assert (hit["current_rationale"], hit["is_stale"]) == (False, False)
    assert hit["validity"]["signals"][-1] == "source:unverified"
    assert answer["outcome"]["status"] == "stale", "an interpretation is no current rationale"


def test_what_has_no_time_counts_as_old(local: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    with answering(monkeypatch, returned("undated", None, timestamp=None)):
        (hit,) = local.search()["hits"]
    assert (hit["timestamp"], hit["validity"]["grade"]) == (None, "context_invalid")


def test_the_grade_is_by_the_same_policy_over_when_it_happened(local: Desk) -> None:
    past = format_instant(now_ms() - 40 * DAY)
    local.add(f"{REPORT} waits", item_id="itm_1", occurred_at=past, workspace="red")
    local.deliver()
    (hit,) = local.search(item_id="itm_1", workspace="red")["hits"]
    assert hit["validity"]["grade"] == "stale"
    assert hit["validity"]["scope_match"] == "exact"
    assert hit["validity"]["freshness"] == pytest.approx(0.5 ** (40 / 30), rel=1e-4)


@pytest.mark.parametrize(
    ("asked", "about", "labels"),
    [
        (None, None, []),
        ("20261102T090000", "20261102T090000", []),
        (None, "20261102T090000", ["unverifiable_occurrence"]),
        ("20261102T090000", None, ["unverifiable_occurrence"]),
        ("20261102T090000", "20261109T090000", ["unverifiable_occurrence"]),
    ],
)
def test_context_about_another_part_of_a_series_is_labelled(
    local: Desk, asked: str | None, about: str | None, labels: list[str]
) -> None:
    local.add(f"{REPORT} waits", item_id="itm_1", **({"occurrence": about} if about else {}))
    local.deliver()
    (hit,) = local.search(item_id="itm_1", **({"occurrence": asked} if asked else {}))["hits"]
    assert (hit["occurrence"], hit["labels"]) == (about, labels)


def test_a_bound_key_gets_nothing_whose_source_it_cannot_read(
    local: Desk, api_for: Callable[..., Api], monkeypatch: pytest.MonkeyPatch
) -> None:
    red = Desk(api_for(workspace="red"), None)
    ours, theirs = red.add("ours"), local.add("theirs", workspace="blue")
    page = [
        returned("ours", ours),
        returned("a secret without a source", None, document_id="secret document"),
        returned("a secret of blue", theirs),
        returned("a secret of nobody", "evt_unknown"),
    ]
    with answering(monkeypatch, *page):
        answer = red.search()
        everything = local.search(workspace="red")
    assert contents(answer) == ["ours"]
    assert "secret" not in str(answer)
    assert theirs not in str(answer)
    assert answer["warnings"] == [
        {
            "code": "untraced_dropped",
            "message": "3 of 4 recalled memories left out: each comes from no event of the ledger that you may read",
        }
    ]
    assert contents(everything) == ["ours", "a secret without a source", "a secret of nobody"]
    status, record = red.api.get(f"/v1/recalls/{everything['recall_id']}")
    assert status == 200
    assert "secret" not in str(record), "nor from the record of somebody who got it"
    assert [hit.get("withheld", False) for hit in record["answer"]["hits"]] == [False, True, True]
    assert record["digest_holds"]


# ------------------------------------------------------------------------------------------- no answer at all


def test_a_missing_bank_is_unavailable_and_not_empty(there: Desk) -> None:
    assert there.peer is not None
    answer = there.search(workspace="nothing was ever delivered here")
    assert (answer["hits"], codes(answer)) == ([], ["context_unavailable"])
    assert answer["outcome"]["status"] == "unavailable"
    assert bank_of("nothing was ever delivered here", prefix=there.peer.prefix) in answer["outcome"]["reason"]
    assert len(there.peer.asked) == 1


@pytest.mark.parametrize("fault", ["down", "slow", "refused"])
def test_a_bank_that_does_not_answer_is_unavailable_and_the_ledger_still_tells(
    remote: Desk,
    fake: tuple[Peer, FakeHindsight],
    settings: Any,
    other_bank: Callable[[], None],
    fault: str,
) -> None:
    remote.add(REPORT, item_id="itm_1")
    remote.deliver()
    _, server = fake
    changed = {
        "down": {"url": "http://127.0.0.1:9"},
        "slow": {"timeout_ms": 300},
        "refused": {"api_key": "wrong"},
    }
    settings.HINDSIGHT = {**settings.HINDSIGHT, **changed[fault]}
    other_bank()
    if fault == "slow":
        server.lock.acquire()
    try:
        answer = remote.search(item_id="itm_1")
    finally:
        if fault == "slow":
            server.lock.release()
    assert (answer["hits"], codes(answer)) == ([], ["context_unavailable"])
    assert answer["outcome"]["status"] == "unavailable"
    assert answer["outcome"]["reason"] == answer["warnings"][0]["message"]
    assert answer["coverage"]["events"] == answer["coverage"]["delivered"] == 1
    row = RecallRecord.objects.get(id=answer["recall_id"])
    assert (row.outcome, row.warning_codes) == ("unavailable", ["context_unavailable"])


# ------------------------------------------------------------------------------------------- the record


def test_a_search_leaves_a_record_like_any_recall(local: Desk) -> None:
    old, new = local.chain(f"{REPORT} waits", "goes on", item_id="itm_1")
    local.deliver()
    answer = local.search(item_id="itm_1", limit=1, temporal={"start": "2026-01-01T00:00:00Z"})
    status, record = local.api.get(f"/v1/recalls/{answer['recall_id']}")
    assert status == 200
    assert record["answer"] == {name: value for name, value in answer.items() if name != "timings_ms"}
    assert (record["mode"], record["surface"], record["actor"]["id"]) == ("context", "api", local.api.key_id)
    assert record["request"] == {
        "query": REPORT,
        "workspace": None,
        "item_id": "itm_1",
        "occurrence": None,
        "temporal": [1_767_225_600_000, None],
        "limit": 1,
    }
    assert record["scope"] == [""]
    assert record["served"] == len(answer["hits"]) == 2
    assert record["digest_holds"]
    assert [one["position"] for one in record["candidates"]] == [1, 2]
    served = RecordEvent.objects.order_by("rank").values_list("event_id", "rank", "stale")
    assert list(served) == [(new, 1, False), (old, 2, True)]
    _, listed = local.api.get("/v1/recalls", q=REPORT)
    assert [row["id"] for row in listed["results"]] == [answer["recall_id"]]


@pytest.mark.parametrize(
    "change", ["UPDATE recall_recordevent SET stale = 1", "DELETE FROM recall_recordevent"]
)
def test_which_events_a_recall_served_cannot_be_changed(local: Desk, change: str) -> None:
    local.add(f"{REPORT} waits")
    local.deliver()
    local.search()
    assert RecordEvent.objects.count() == 1
    with pytest.raises(IntegrityError), connection.cursor() as cursor:
        cursor.execute(change)


def test_the_digest_is_of_what_was_served(local: Desk) -> None:
    local.add(f"{REPORT} waits")
    local.deliver()
    answer = local.search()
    row = RecallRecord.objects.get(id=answer["recall_id"])
    stored = records.read(row)
    assert stored.digest_holds
    for name, value in (("is_stale", True), ("superseded_by", "evt_x"), ("provenance", "unverified")):
        forged = records.read(row)
        forged.answer["hits"][0][name] = value
        assert not forged.digest_holds


def test_an_erased_event_is_not_shown_whoever_still_has_it(
    local: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = local.chain("old secret", "new secret")
    page = [returned("old secret", old), returned("new secret", new)]
    with answering(monkeypatch, *page):
        before = local.search()
        erase_text(new)
        records.blank_event(new)
        after = local.search()
    assert contents(before) == ["new secret", "old secret"]
    assert (contents(after), codes(after)) == (["old secret"], ["context_stale", "erased_dropped"])
    assert after["hits"][0]["superseded_by"] == new
    _, record = local.api.get(f"/v1/recalls/{before['recall_id']}")
    assert [hit["content"] for hit in record["answer"]["hits"]] == ["", "old secret"]
    assert record["answer"]["hits"][0]["erased"] is True
    assert record["digest_holds"]


def erase_text(event_id: str) -> None:
    """What an erasure does to the event itself."""
    event = ContextEvent.objects.get(id=event_id)
    Tombstone.objects.create(
        event=event,
        payload_hash=event.payload_hash,
        reason="asked for",
        erased_at=now_ms(),
        actor_kind="user",
    )
    with connection.cursor() as cursor:
        cursor.execute(
            'UPDATE ledger_contextevent SET text = NULL, "before" = NULL, "after" = NULL, salt = NULL '
            "WHERE id = %s",
            [event_id],
        )


def test_an_event_that_is_erased_while_it_is_recalled_is_not_served(
    local: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    event = local.add("a secret")
    written = records.draft

    def erased_meanwhile(*arguments: Any, **named: Any) -> Any:
        erase_text(event)
        return written(*arguments, **named)

    with answering(monkeypatch, returned("a secret", event)):
        monkeypatch.setattr(records, "draft", erased_meanwhile)
        status, told = local.api.post("/v1/context/search", {"query": "secret"})
    assert (status, told["error"]["code"]) == (503, "erased_meanwhile")
    assert not RecallRecord.objects.exists()


def test_erasing_a_delivered_memory_takes_its_text_out_of_the_records_of_searches(local: Desk) -> None:
    local.add(f"{REPORT} waits", reason="a call")
    local.deliver()
    answer = local.search()
    (hit,) = answer["hits"]
    status, _ = local.api.post(f"/v1/memories/{hit['memory_id']}/erase", {"reason": "asked for it"})
    assert status == 200
    _, record = local.api.get(f"/v1/recalls/{answer['recall_id']}")
    (stored,) = record["answer"]["hits"]
    assert (stored["content"], stored["context"], stored["tags"], stored["erased"]) == ("", "", [], True)
    assert record["digest_holds"]


@pytest.mark.parametrize("name", ["recalls_of_one", "every_state"])
def test_the_record_has_a_page(
    local: Desk, admin_client: Any, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    old, new = local.chain("<b>old</b> words", "new words", item_id="itm_1")
    page = [returned("<b>old</b> words", old, TAG), returned("a guess", None, TAG), returned("gone", old)]
    with answering(monkeypatch, *(page if name == "every_state" else page[:1])):
        answer = local.search("why", item_id="itm_1")
    shown = admin_client.get(f"/recalls/{answer['recall_id']}/")
    text = shown.content.decode()
    assert shown.status_code == 200
    assert "&lt;b&gt;old&lt;/b&gt; words" in text
    assert "Current rationale" in text
    assert f'href="/ledger/{new}/"' in text
    assert ("Unverified interpretation" in text) == (name == "every_state")
    assert ("is not of the scope that was asked for" in text) == (name == "every_state")
    for address, place in (("hits/1/", "#hit-1"), ("left-out/", "#left-out")):
        there = admin_client.get(f"/recalls/{answer['recall_id']}/{address}")
        assert (there.status_code, there.url) == (303, f"/recalls/{answer['recall_id']}/{place}")
    assert "Context" in admin_client.get("/recalls/").content.decode()
    assert admin_client.get(f"/recalls/{answer['recall_id']}.json").status_code == 200


# ------------------------------------------------------------------------------------------- other words


def test_words_that_are_not_the_events_own_are_never_presented_as_its(local: Desk) -> None:
    event = local.add(f"{REPORT} is due on Tuesday", item_id="itm_1")
    local.deliver()
    delivered = local.search(item_id="itm_1")["hits"][0]
    forged = {
        "text": f"{REPORT} is cancelled",
        "tags": delivered["tags"],
        "source_event_id": event,
    }
    assert local.api.post("/v1/memories", forged)[0] == 201
    first, second = sorted(local.search(item_id="itm_1")["hits"], key=lambda hit: hit["provenance"])
    assert (first["provenance"], first["current_rationale"]) == ("unverified", False)
    assert first["interpretation"] is True
    assert (second["content"], second["current_rationale"]) == (f"{REPORT} is due on Tuesday", True)

    changed = {"text": f"{REPORT} is due on Friday"}
    assert local.api.call("patch", f"/v1/memories/{delivered['memory_id']}", changed)[0] == 200
    hits = local.search(item_id="itm_1")["hits"]
    assert {hit["provenance"] for hit in hits} == {"unverified"}
    assert not any(hit["current_rationale"] for hit in hits)
