"""Projection: what holds by validity within a budget, what is stale apart, what no longer holds on request."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import pytest
from django.db import connection
from django.test import Client, override_settings
from django.test.utils import CaptureQueriesContext
from hypothesis import given
from hypothesis import strategies as st

from ledger.clock import now_ms
from ledger.domain.instants import DAY, UnixMs, format_instant
from recall import projections
from recall.domain.policy import DEFAULT
from recall.domain.projecting import packed, tokens_in
from recall.domain.validity import Lifts, grade
from recall.models import RecallRecord, RecordHit
from vault.domain.facts import PROVENANCE_CLASSES, Facts

Api = Any
LISTS = ("current", "stale", "history")


@pytest.fixture(params=["resident", "sqlite"])
def engine(request: pytest.FixtureRequest) -> Iterator[str]:
    with override_settings(RECALL_INDEX=request.param):
        yield request.param


@pytest.fixture
def at() -> UnixMs:
    """An anchor a minute ahead, so that everything stored here lies before it."""
    return time.time_ns() // 1_000_000 + 60_000


def days_before(at: UnixMs, days: float) -> str:
    return format_instant(at - int(days * DAY))


def projected(api: Api, **arguments: Any) -> dict[str, Any]:
    status, answer = api.post("/v1/projection", {"max_tokens": 1_000_000, **arguments})
    assert status == 200, answer
    return answer


def texts(answer: dict[str, Any], name: str = "current") -> list[str]:
    return [hit["memory"]["text"] for hit in answer[name]]


def whole(api: Api, answer: dict[str, Any]) -> dict[str, Any]:
    status, record = api.get(f"/v1/recalls/{answer['recall_id']}")
    assert status == 200, record
    return record


def furnish(api: Api, at: UnixMs) -> dict[str, str]:
    """One memory for each way to stand at the anchor."""
    ids = {
        "fresh": api.stored("deploys need a review", workspace="ops", created_at=days_before(at, 1))["id"],
        "verified": api.stored(
            "the gate code is on file",
            workspace="ops",
            provenance_class="verified",
            created_at=days_before(at, 3),
        )["id"],
        "global": api.stored("everybody reads this", created_at=days_before(at, 1))["id"],
        "expiring": api.stored(
            "the freeze ends soon",
            workspace="ops",
            created_at=days_before(at, 1),
            expires_at=format_instant(at + DAY),
        )["id"],
        "aging": api.stored("the printer is on floor two", workspace="ops", created_at=days_before(at, 60))[
            "id"
        ],
        "ancient": api.stored("the office is in Leipzig", workspace="ops", created_at=days_before(at, 300))[
            "id"
        ],
        "replaced": api.stored("deploys need nothing", workspace="ops", created_at=days_before(at, 50))["id"],
        "expired": api.stored("the sale runs", workspace="ops", t_invalid=days_before(at, 1))["id"],
        "deprecated": api.stored("use the old host", workspace="ops", status="deprecated")["id"],
        "later": api.stored("the move is done", workspace="ops", t_valid=format_instant(at + 9 * DAY))["id"],
        "archived": api.stored("never mind", workspace="ops", archived=True)["id"],
        "elsewhere": api.stored("a secret of the lab", workspace="lab")["id"],
    }
    api.linked(ids["replaced"], ids["fresh"], "EVOLVED_INTO", created_at=days_before(at, 1))
    return ids


def named(answer: dict[str, Any], ids: dict[str, str]) -> dict[str, list[str]]:
    names = {id_: name for name, id_ in ids.items()}
    return {name: [names[hit["memory"]["id"]] for hit in answer[name]] for name in LISTS}


def test_what_holds_stands_by_validity_what_is_stale_apart_and_nothing_else(
    api: Api, at: UnixMs, engine: str
) -> None:
    ids = furnish(api, at)
    answer = projected(api, workspace="ops", query_time_unix_ms=at)
    assert named(answer, ids) == {
        "current": ["verified", "fresh", "global"],
        "stale": ["expiring", "aging", "ancient"],
        "history": [],
    }
    assert answer["anchor_unix_ms"] == at
    assert (answer["workspace"], answer["task"], answer["outcome"]["status"]) == ("ops", None, "fresh")
    hits = [hit for name in LISTS for hit in answer[name]]
    assert [hit["rank"] for hit in hits] == [1, 2, 3, 4, 5, 6]
    for hit in hits:
        score = hit["score"]
        assert score == {
            "base": 1.0,
            "multiplier": hit["validity"]["multiplier"],
            "final": hit["validity"]["multiplier"],
        }
        assert hit["memory"]["state"]["current"]
    assert [hit["validity"]["grade"] for hit in answer["stale"]] == ["stale", "stale", "context_invalid"]
    assert [hit.get("context_invalid") for hit in answer["stale"]] == [None, None, True]
    assert answer["current"][1]["state_replaces"] == [ids["replaced"]]


def test_history_on_request_is_apart_and_names_each_state_and_successor(
    api: Api, at: UnixMs, engine: str
) -> None:
    ids = furnish(api, at)
    plain = projected(api, workspace="ops", query_time_unix_ms=at)
    answer = projected(api, workspace="ops", query_time_unix_ms=at, include_history=True)
    for name in ("current", "stale"):
        assert answer[name] == plain[name]
    states = {hit["memory"]["id"]: hit["memory"]["state"] for hit in answer["history"]}
    assert states == {
        ids["replaced"]: {"current": False, "reason": "superseded", "replacement_id": ids["fresh"]},
        ids["expired"]: {"current": False, "reason": "expired"},
        ids["deprecated"]: {"current": False, "reason": "deprecated"},
        ids["later"]: {"current": False, "reason": "not_yet_valid"},
    }
    multipliers = [hit["validity"]["multiplier"] for hit in answer["history"]]
    assert multipliers == sorted(multipliers, reverse=True)


def test_an_erased_memory_is_in_no_list(api: Api, at: UnixMs, engine: str) -> None:
    ids = furnish(api, at)
    assert api.post(f"/v1/memories/{ids['fresh']}/erase", {"reason": "asked for"})[0] == 200
    answer = projected(api, workspace="ops", query_time_unix_ms=at, include_history=True)
    assert ids["fresh"] not in json.dumps(answer)
    states = {hit["memory"]["id"]: hit["memory"]["state"]["reason"] for hit in answer["history"]}
    assert states[ids["replaced"]] == "replacement_erased"


def test_a_successor_outside_the_filters_is_never_named(api: Api, engine: str) -> None:
    old = api.stored("the rule was this", category="rule")["id"]
    new = api.stored("the rule is that", category="private")["id"]
    api.linked(old, new, "INVALIDATED_BY")
    answer = projected(api, categories=["rule"], include_history=True)
    assert texts(answer) == []
    assert [hit["memory"]["id"] for hit in answer["history"]] == [old]
    assert new not in json.dumps(answer)
    both = projected(api, categories=["rule", "private"], include_history=True)
    assert [hit["memory"]["id"] for hit in both["current"]] == [new]
    assert both["history"][0]["memory"]["state"]["replacement_id"] == new


def test_ties_go_to_the_newer_and_then_by_id(api: Api, at: UnixMs, engine: str) -> None:
    moment = days_before(at, 2)
    same = [api.stored(f"same {n}", created_at=moment)["id"] for n in range(4)]
    # After the anchor all are of age 0: only the instant tells them apart.
    ahead = [
        api.stored(f"ahead {n}", created_at=format_instant(at - 60_000 + n), t_valid="2020-01-01")["id"]
        for n in range(3)
    ]
    answer = projected(api, query_time_unix_ms=at - 50_000)
    assert [hit["memory"]["id"] for hit in answer["current"]] == [*ahead[::-1], *sorted(same)]


def test_categories_are_any_of_several(api: Api, engine: str) -> None:
    for category in ("rule", "fact", "note", ""):
        api.stored(f"a {category or 'plain'} one", category=category)
    assert set(texts(projected(api, categories=["rule", "note"]))) == {"a rule one", "a note one"}
    assert set(texts(projected(api, task="one", categories=["fact"]))) == {"a fact one"}
    assert texts(projected(api, categories=[""])) == ["a plain one"]
    assert texts(projected(api, categories=["unheard"])) == []
    assert len(texts(projected(api, categories=[]))) == 4


def test_a_past_anchor_sees_what_was_then(api: Api, at: UnixMs, engine: str) -> None:
    ids = furnish(api, at)
    answer = projected(api, workspace="ops", query_time_unix_ms=at - 20 * DAY)
    assert named(answer, ids) == {"current": ["replaced"], "stale": ["aging", "ancient"], "history": []}


# ------------------------------------------------------------------------------------------------------------ task


def test_what_is_near_the_task_comes_first_and_the_rest_follows_by_validity(
    api: Api, at: UnixMs, engine: str
) -> None:
    ids = furnish(api, at)
    old = api.stored(
        "restart the billing queue with the blue button", workspace="ops", created_at=days_before(at, 20)
    )["id"]
    plain = projected(api, workspace="ops", query_time_unix_ms=at)
    answer = projected(api, workspace="ops", query_time_unix_ms=at, task="restart the billing queue")
    first, *rest = answer["current"]
    assert first["memory"]["id"] == old == plain["current"][-1]["memory"]["id"]
    assert first["score"]["base"] == 1.0
    assert first["score"]["final"] == first["validity"]["multiplier"]
    assert (first["match_type"], first["sources"]["lexical"]) == ("task", 1)
    assert answer["task"] == "restart the billing queue"
    far = [hit for hit in rest if hit["score"]["base"] == 0]
    assert [hit["match_type"] for hit in far] == ["listed"] * len(far)
    assert rest[len(rest) - len(far) :] == far
    multipliers = [hit["validity"]["multiplier"] for hit in far]
    assert multipliers == sorted(multipliers, reverse=True)
    assert {hit["memory"]["id"] for name in LISTS for hit in answer[name]} == {old} | {
        ids[name] for name in ("fresh", "verified", "global", "expiring", "aging", "ancient")
    }


def test_what_replaced_a_memory_near_the_task_takes_its_place(api: Api, engine: str) -> None:
    old = api.stored("the zanzibar budget is ten")["id"]
    new = api.stored("it is twelve since May")["id"]
    api.stored("something else entirely")
    api.linked(old, new, "EVOLVED_INTO")
    answer = projected(api, task="zanzibar budget")
    assert answer["current"][0]["memory"]["id"] == new
    assert answer["current"][0]["state_replaces"] == [old]
    assert answer["current"][0]["score"]["base"] == 1.0


def test_without_an_embedder_a_task_is_partial_and_no_task_is_whole(api: Api) -> None:
    api.stored("the fence is green")
    with override_settings(RECALL_EMBEDDER="recall.embedders.nowhere.Nothing"):
        with_task, without = projected(api, task="fence"), projected(api)
    assert with_task["outcome"]["status"] == "partial"
    assert texts(with_task) == texts(without) == ["the fence is green"]
    assert without["outcome"]["status"] == "fresh"


# ---------------------------------------------------------------------------------------------------------- budget


def test_the_budget_never_skips_to_a_shorter_text(api: Api, at: UnixMs, engine: str) -> None:
    for age, text in ((1, "aaaa" * 3), (2, "b" * 100), (3, "c"), (60, "d")):
        api.stored(text, created_at=days_before(at, age))
    asked = {"query_time_unix_ms": at}
    spent = {budget: projected(api, max_tokens=budget, **asked) for budget in (1, 3, 27, 28, 29, 30)}
    served = {
        budget: [text[0] for name in LISTS for text in texts(answer, name)]
        for budget, answer in spent.items()
    }
    assert served == {
        1: [],
        3: ["a"],
        27: ["a"],
        28: ["a", "b"],
        29: ["a", "b", "c"],
        30: ["a", "b", "c", "d"],
    }
    assert [spent[budget]["tokens"] for budget in (1, 27, 30)] == [
        {"budget": 1, "spent": 0},
        {"budget": 27, "spent": 3},
        {"budget": 30, "spent": 30},
    ]
    assert spent[1]["outcome"] == {
        "status": "empty",
        "reason": "the first hit alone is larger than max_tokens",
    }


def test_texts_count_in_bytes_as_recall_counts_them(api: Api) -> None:
    api.stored("ä" * 10, created_at="2026-01-01")
    assert texts(projected(api, max_tokens=5), "stale") + texts(projected(api, max_tokens=5)) == ["ä" * 10]
    assert texts(projected(api, max_tokens=4), "stale") + texts(projected(api, max_tokens=4)) == []


def test_history_takes_what_the_rest_leaves(api: Api) -> None:
    api.stored("x" * 40)
    api.stored("y" * 40, t_invalid="2026-01-01")
    asked = {"include_history": True}
    assert texts(projected(api, max_tokens=19, **asked), "history") == []
    assert texts(projected(api, max_tokens=20, **asked), "history") == ["y" * 40]


@given(st.lists(st.integers(1, 50)), st.integers(0, 200))
def test_the_longest_beginning_that_fits_is_packed(sizes: list[int], budget: int) -> None:
    count, spent = packed(sizes, budget=budget)
    assert spent == sum(sizes[:count]) <= budget
    assert count == len(sizes) or spent + sizes[count] > budget


@given(st.text())
def test_a_token_is_four_bytes_rounded_up(text: str) -> None:
    size = len(text.encode(errors="replace"))
    assert 4 * tokens_in(size) - 3 <= max(size, -3) <= 4 * tokens_in(size)


# ---------------------------------------------------------------------------------------------------------- access


def test_null_is_all_a_key_may_read_and_a_bound_key_sees_no_other(
    api: Api, api_for: Callable[..., Api], at: UnixMs, engine: str
) -> None:
    ids = furnish(api, at)
    asked = {"query_time_unix_ms": at, "include_history": True}
    everything = projected(api, **asked)
    assert ids["elsewhere"] in {hit["memory"]["id"] for hit in everything["current"]}
    assert {hit["validity"]["scope_match"] for hit in everything["current"]} == {"none"}
    lab = api_for("read", workspace="lab")
    for answer in (projected(lab, **asked), projected(lab, workspace="lab", task="review", **asked)):
        assert {hit["memory"]["id"] for name in LISTS for hit in answer[name]} == {
            ids["elsewhere"],
            ids["global"],
        }
        assert "ops" not in json.dumps(answer)
    status, told = lab.post("/v1/projection", {"max_tokens": 9, "workspace": "ops"})
    assert (status, told["error"]["field"]) == (403, "workspace")
    assert texts(projected(lab, workspace="", **asked)) == ["everybody reads this"]
    mine = projected(lab, **asked)
    assert api.get(f"/v1/recalls/{mine['recall_id']}")[0] == 200
    assert lab.get(f"/v1/recalls/{everything['recall_id']}")[0] == 404


def test_only_posting_with_the_scope_to_read_asks(api_for: Callable[..., Api]) -> None:
    assert api_for("write").post("/v1/projection", {"max_tokens": 9})[0] == 403
    reader = api_for("read")
    assert reader.post("/v1/projection", {"max_tokens": 9})[0] == 200
    methods = ("GET", "HEAD", "PUT", "DELETE")
    assert {reader.raw(method, "/v1/projection").status_code for method in methods} <= {405, 403}
    assert reader.raw("GET", "/v1/projection").status_code == 405
    assert reader.raw("HEAD", "/v1/projection").status_code == 405
    assert RecallRecord.objects.count() == 1


@pytest.mark.parametrize(
    ("body", "field", "code"),
    [
        ({}, "max_tokens", "required"),
        ({"max_tokens": 0}, "max_tokens", "invalid"),
        ({"max_tokens": 1_000_001}, "max_tokens", "invalid"),
        ({"max_tokens": "9"}, "max_tokens", "invalid"),
        ({"max_tokens": True}, "max_tokens", "invalid"),
        ({"max_tokens": 9, "task": "  "}, "task", "invalid"),
        ({"max_tokens": 9, "task": "x" * 5000}, "task", "too_large"),
        ({"max_tokens": 9, "task": "a\u0000b"}, "task", "invalid"),
        ({"max_tokens": 9, "categories": "rule"}, "categories", "invalid"),
        ({"max_tokens": 9, "categories": [" padded "]}, "categories", "invalid"),
        ({"max_tokens": 9, "categories": ["c"] * 65}, "categories", "too_large"),
        ({"max_tokens": 9, "workspace": " padded "}, "workspace", "invalid"),
        ({"max_tokens": 9, "query_time_unix_ms": "now"}, "query_time_unix_ms", "invalid"),
        ({"max_tokens": 9, "include_history": 1}, "include_history", "invalid"),
        ({"max_tokens": 9, "query": "x"}, "query", "unknown_field"),
    ],
)
def test_what_is_malformed_is_refused_and_named(api: Api, body: Any, field: str, code: str) -> None:
    status, told = api.post("/v1/projection", body)
    assert (status, told["error"]["field"], told["error"]["code"]) == (400, field, code)
    assert not RecallRecord.objects.exists()


# ---------------------------------------------------------------------------------------------------------- record


def test_a_projection_is_recorded_with_every_candidate_and_its_verdict(api: Api, at: UnixMs) -> None:
    ids = furnish(api, at)
    asked = {"workspace": "ops", "query_time_unix_ms": at, "task": "deploys", "max_tokens": 14}
    answer = projected(api, **asked)
    record = whole(api, answer)
    assert (record["mode"], record["profile"], record["surface"]) == ("projection", "validity", "api")
    assert (record["workspace"], record["query"], record["history"]) == ("ops", "deploys", False)
    assert record["request"] == {**asked, "categories": [], "include_history": False}
    assert record["digest_holds"]
    served = [hit["memory"]["id"] for name in LISTS for hit in answer[name]]
    verdicts = {c["id"]: (c["verdict"], c["detail"]) for c in record["candidates"]}
    assert set(verdicts) == set(ids.values()) - {ids["elsewhere"]}
    assert 0 < len(served) < 6
    holding = {ids[name] for name in ("fresh", "verified", "global", "expiring", "aging", "ancient")}
    assert verdicts == {
        ids["replaced"]: ("replaced_by", ids["fresh"]),
        ids["expired"]: ("suppressed", "expired"),
        ids["deprecated"]: ("suppressed", "deprecated"),
        ids["later"]: ("suppressed", "not_yet_valid"),
        ids["archived"]: ("suppressed", "archived"),
        **dict.fromkeys(served, ("served", "")),
        **dict.fromkeys(holding - set(served), ("over_budget", "")),
    }
    rows = RecordHit.objects.filter(record__id=answer["recall_id"], verdict="served").order_by("rank")
    assert [row.memory.id for row in rows] == served


def test_the_request_of_a_record_asks_the_same_again(api: Api, at: UnixMs) -> None:
    furnish(api, at)
    for arguments in (
        {},
        {"task": "deploys"},
        {"include_history": True, "categories": [""], "max_tokens": 30},
    ):
        first = projected(api, query_time_unix_ms=at, **arguments)
        record = whole(api, first)
        status, second = api.post("/v1/projection", record["request"])
        assert status == 200
        with override_settings(RECALL_INDEX="sqlite"):
            third = projected(api, **record["request"])
        assert {whole(api, answer)["digest"] for answer in (second, third)} == {record["digest"]}
        assert {name: second[name] for name in LISTS} == {name: first[name] for name in LISTS}


def test_the_record_is_a_page(api: Api, at: UnixMs, client: Client, django_user_model: Any) -> None:
    furnish(api, at)
    client.force_login(django_user_model.objects.create_superuser("ada"))
    for arguments in ({}, {"task": "deploys", "include_history": True}, {"max_tokens": 1}):
        answer = projected(api, workspace="ops", query_time_unix_ms=at, **arguments)
        page = client.get(f"/recalls/{answer['recall_id']}/")
        assert page.status_code == 200
        shown = page.content.decode()
        assert all(hit["memory"]["text"] in shown for name in LISTS for hit in answer[name])
        assert arguments.get("task", "(projection)") in shown
        for hit in [hit for name in LISTS for hit in answer[name]]:
            assert client.get(f"/recalls/{answer['recall_id']}/hits/{hit['rank']}/").status_code == 200
    assert "(projection)" in client.get("/recalls/").content.decode()


def test_an_erased_text_leaves_the_record_of_a_projection(api: Api) -> None:
    memory = api.stored("the fence of the zanzibar garden", created_at="2026-01-01")["id"]
    answer = projected(api, workspace="")
    assert api.post(f"/v1/memories/{memory}/erase", {"reason": "asked for"})[0] == 200
    record = whole(api, answer)
    assert "zanzibar" not in json.dumps(record)
    assert record["digest_holds"]


def test_without_its_record_nothing_is_served(api: Api) -> None:
    api.stored("the fence of the secret garden")
    with connection.cursor() as cursor:
        cursor.execute(
            "CREATE TEMP TRIGGER obstacle BEFORE INSERT ON main.recall_recallrecord "
            "BEGIN SELECT RAISE(ABORT, 'no room'); END"
        )
    try:
        refused = api.raw("POST", "/v1/projection", {"max_tokens": 9})
    finally:
        with connection.cursor() as cursor:
            cursor.execute("DROP TRIGGER obstacle")
    assert refused.status_code == 503
    assert json.loads(refused.content)["error"]["code"] == "record_unavailable"
    assert b"garden" not in refused.content


def test_nothing_known_is_empty_and_says_why(api: Api) -> None:
    assert projected(api)["outcome"] == {"status": "empty", "reason": "no memory in scope matches"}
    api.stored("gone", t_invalid="2026-01-01")
    for history in (False, True):
        answer = projected(api, include_history=history)
        assert answer["outcome"] == {"status": "empty", "reason": "1 matched, and none of them is current"}
    api.stored("old", created_at="2020-01-01")
    assert projected(api)["outcome"]["status"] == "stale"


@pytest.mark.django_db(transaction=True)
def test_the_kept_index_answers_as_one_read_anew_and_sees_each_write_at_once(
    api_for: Callable[..., Api], at: UnixMs
) -> None:
    api = api_for()
    ids = furnish(api, at)
    asked = {"workspace": "ops", "query_time_unix_ms": at, "include_history": True, "max_tokens": 500}
    for change in (
        {"expires_at": format_instant(at + DAY)},
        {"expires_at": None, "category": "rule"},
        {"provenance_class": "corroborated"},
        {"t_invalid": days_before(at, 0.5)},
    ):
        kept = [
            projected(api, **asked, **extra) for extra in ({}, {"task": "deploys"}, {"categories": ["rule"]})
        ]
        with override_settings(RECALL_INDEX="sqlite"):
            anew = [
                projected(api, **asked, **extra)
                for extra in ({}, {"task": "deploys"}, {"categories": ["rule"]})
            ]
        assert [[answer[name] for name in LISTS] for answer in kept] == [
            [answer[name] for name in LISTS] for answer in anew
        ]
        assert api.call("PATCH", f"/v1/memories/{ids['fresh']}", change)[0] == 200
    assert ids["fresh"] in {hit["memory"]["id"] for hit in projected(api, **asked)["history"]}


# ---------------------------------------------------------------------------------------------------------- bounds


def bulk(api: Api, rows: list[dict[str, Any]]) -> list[str]:
    status, told = api.post("/v1/memories/bulk", {"memories": rows})
    assert (status, told["failed"]) == (207, [])
    return [entry["id"] for entry in told["memories"]]


def test_the_number_of_queries_is_fixed_whatever_the_pool(api: Api) -> None:
    for name, count in (("few", 10), ("many", 600)):
        ids = bulk(api, [{"text": f"{name} {n}", "workspace": name} for n in range(count)])
        for before, after in zip(ids[::2], ids[1::2], strict=True):
            api.linked(before, after, "EVOLVED_INTO")

    def cost(name: str, **arguments: Any) -> int:
        projected(api, workspace=name, **arguments)
        with CaptureQueriesContext(connection) as captured:
            projected(api, workspace=name, **arguments)
        return len(captured)

    for arguments in ({}, {"include_history": True}, {"max_tokens": 7}):
        assert cost("few", **arguments) == cost("many", **arguments)


def rows(count: int, **fields: Any) -> list[dict[str, Any]]:
    return [{"text": f"row {n} with a few more words", **fields} for n in range(count)]


def test_where_not_all_could_be_considered_the_answer_says_so(
    api: Api, monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    monkeypatch.setattr(projections, "MOST", 70)
    bulk(
        api, rows(69, created_at=format_instant(now_ms() - DAY))
    )  # older than those to come, and still valid
    assert projected(api)["warnings"] == []
    bulk(api, [{"text": "one more"}, {"text": "and another"}])
    answer = projected(api)
    assert [warning["code"] for warning in answer["warnings"]] == ["candidates_cut"]
    assert len(answer["current"]) + len(answer["stale"]) == 70
    assert whole(api, answer)["warnings"] == ["candidates_cut"]
    assert set(texts(answer)[:2]) == {"one more", "and another"}
    assert projected(api, max_tokens=200)["warnings"] == []


def test_a_small_budget_grades_few_and_serves_as_if_it_had_graded_all(
    api: Api, at: UnixMs, monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    bulk(api, rows(150, created_at=days_before(at, 1), workspace="ops"))
    bulk(api, rows(5, created_at=days_before(at, 9), workspace="ops", provenance_class="verified"))
    bulk(api, rows(5, created_at=days_before(at, 8)))
    asked = {"workspace": "ops", "query_time_unix_ms": at, "max_tokens": 300}
    few = projected(api, **asked)
    monkeypatch.setattr(projections, "BRIEF", 1)
    monkeypatch.setattr(projections, "MOST", 300)
    all_of_them = projected(api, **asked)
    assert few["current"] == all_of_them["current"]
    assert whole(api, few)["candidate_count"] < whole(api, all_of_them)["candidate_count"] == 160


def test_an_old_memory_that_much_speaks_for_is_found_behind_many_newer_ones(
    api: Api, at: UnixMs, engine: str
) -> None:
    (old,) = bulk(
        api, rows(1, created_at=days_before(at, 6), workspace="ops", provenance_class="corroborated")
    )
    soon = format_instant(at + DAY)
    bulk(api, rows(90, created_at=days_before(at, 2), expires_at=soon, workspace="ops"))
    bulk(api, rows(90, created_at=days_before(at, 3)))
    answer = projected(api, workspace="ops", query_time_unix_ms=at, max_tokens=8)
    assert [hit["memory"]["id"] for hit in answer["current"]] == [old]


def test_what_is_graded_lower_never_crowds_out_what_is_valid(api: Api, at: UnixMs, engine: str) -> None:
    """Of a higher multiplier, but stale for it expires soon: more of these than are considered at first."""
    bulk(api, rows(100, created_at=days_before(at, 0), expires_at=format_instant(at + DAY)))
    (valid,) = bulk(api, rows(1, created_at=days_before(at, 28)))
    answer = projected(api, query_time_unix_ms=at, max_tokens=60)
    assert [hit["memory"]["id"] for hit in answer["current"]] == [valid]
    assert len(answer["stale"]) > 1


@given(
    st.lists(
        st.builds(
            Facts,
            id=st.uuids().map(str),
            workspace=st.sampled_from(["", "ops"]),
            created_at=st.integers(0, 400 * DAY),
            t_invalid=st.none() | st.integers(300 * DAY + 1, 400 * DAY),
            expires_at=st.none() | st.integers(300 * DAY + 1, 400 * DAY),
            provenance_class=st.sampled_from(PROVENANCE_CLASSES),
        ),
        max_size=8,
    )
)
def test_lifts_sort_as_the_multiplier_does(memories: list[Facts]) -> None:
    at, lifts = 300 * DAY, Lifts.of(DEFAULT)

    def lifted(facts: Facts) -> float:
        found = min(facts.created_at, at) + (lifts.exact_scope if facts.workspace == "ops" else 0.0)
        found += lifts.asserted if facts.provenance_class in ("verified", "corroborated") else 0.0
        soon = facts.expiry is not None and facts.expiry - at <= lifts.half_life
        return found + (lifts.expiring if soon else 0.0)

    by_lift = sorted(memories, key=lifted)
    multipliers = [grade(facts, at=at, workspace="ops").multiplier for facts in by_lift]
    for lower, higher in pairwise(multipliers):
        assert lower <= higher or math.isclose(lower, higher, rel_tol=1e-9)
