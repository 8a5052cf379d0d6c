"""The record: every recall leaves one, complete, unchangeable, and nothing is served without it."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from hashlib import sha256
from itertools import pairwise
from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction
from django.test.utils import CaptureQueriesContext

from ledger.domain.hashchain import canonical
from ledger.domain.refusals import Unavailable
from ledger.models import AppendOnly
from recall import embedders, records, services
from recall.domain.state import Anchor
from recall.indexes import Question
from recall.models import RecallRecord, RecordHit
from recall.pipeline import run
from recall.records import record_for
from recall.shapes import RecallBody, parse
from vault.domain.access import scope_of
from vault.services import Caller

Api = Any


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def bulk(api: Api, rows: list[dict[str, Any]]) -> list[str]:
    status, told = api.post("/v1/memories/bulk", {"memories": rows})
    assert (status, told["failed"]) == (207, [])
    return [entry["id"] for entry in told["memories"]]


def whole(api: Api, answer: dict[str, Any]) -> dict[str, Any]:
    status, record = api.get(f"/v1/recalls/{answer['recall_id']}")
    assert status == 200, record
    kept: dict[str, Any] = record
    return kept


def furnish(api: Api) -> dict[str, str]:
    """One memory for each way a candidate can go."""
    ids = {
        "expired": api.stored("fence expired", t_invalid="2026-01-01")["id"],
        "archived": api.stored("fence archived", archived=True)["id"],
        "deprecated": api.stored("fence deprecated", status="deprecated")["id"],
        "later": api.stored("fence later", t_valid="2099-01-01")["id"],
        "before": api.stored("fence before")["id"],
        "after": api.stored("a hedge after it", provenance_class="verified")["id"],
        "hidden": api.stored("fence hidden")["id"],
        "elsewhere": api.stored("a hedge elsewhere", category="private")["id"],
    }
    for number in range(4):
        ids[f"plain {number}"] = api.stored(f"fence plain {number}", created_at="2026-08-01")["id"]
    api.linked(ids["before"], ids["after"], "EVOLVED_INTO")
    api.linked(ids["hidden"], ids["elsewhere"], "EVOLVED_INTO")
    return ids


def test_every_candidate_is_in_the_record_with_its_one_verdict(api: Api) -> None:
    ids = furnish(api)
    answer = api.recalled("fence", limit=3, category="", profile="validity")
    record = whole(api, answer)
    verdicts = {c["id"]: (c["verdict"], c["detail"]) for c in record["candidates"]}
    served = [hit["memory"]["id"] for hit in answer["results"]]
    assert ids["after"] in served
    plain = {ids[f"plain {number}"] for number in range(4)}
    assert verdicts == {
        ids["expired"]: ("suppressed", "expired"),
        ids["archived"]: ("suppressed", "archived"),
        ids["deprecated"]: ("suppressed", "deprecated"),
        ids["later"]: ("suppressed", "not_yet_valid"),
        ids["before"]: ("replaced_by", ids["after"]),
        ids["hidden"]: ("suppressed", "superseded"),
        **dict.fromkeys(served, ("served", "")),
        **dict.fromkeys(plain - set(served), ("below_limit", "")),
    }
    assert record["candidate_count"] == len(verdicts) == 11
    assert (record["served"], record["suppressed"]) == (3, 6)
    positions = [c["position"] for c in record["candidates"] if c["verdict"] == "served"]
    assert positions == [hit["rank"] for hit in answer["results"]] == [1, 2, 3]


def test_what_the_budget_left_out_says_so(api: Api) -> None:
    bulk(api, [{"text": f"fence {n:04}"} for n in range(4)])
    record = whole(api, api.recalled("fence", max_tokens=6, limit=3))
    assert [c["verdict"] for c in record["candidates"]] == ["served", "served", "over_budget", "below_limit"]


def test_the_factors_multiply_to_the_multiplier_and_the_scores_follow(api: Api) -> None:
    furnish(api)
    for asked in ({"profile": "validity"}, {"current_only": False, "profile": "validity"}, {}):
        answer = api.recalled("fence", workspace="", limit=20, **asked)
        record = whole(api, answer)
        hits = {hit["memory"]["id"]: hit for hit in answer["results"]}
        for candidate in record["candidates"]:
            product = math.prod(factor for _, factor in candidate["factors"])
            assert product == candidate["multiplier"] > 0
            if candidate["id"] in hits:
                assert candidate["final"] == hits[candidate["id"]]["score"]["final"]
                assert candidate["base"] == hits[candidate["id"]]["score"]["base"]
            if "validity" in hits.get(candidate["id"], {}):
                shown = hits[candidate["id"]]["validity"]
                assert (candidate["grade"], candidate["signals"]) == (shown["grade"], shown["signals"])


def test_the_record_holds_the_whole_request_the_policy_and_the_answer_as_it_was_sent(api: Api) -> None:
    furnish(api)
    answer = api.recalled("fence", profile="validity", trace=True, state_debug=True)
    record = whole(api, answer)
    stored = record["answer"]
    untimed = {name: value for name, value in answer.items() if name != "timings_ms"}
    assert {name: value for name, value in stored.items() if name != "timings_ms"} == untimed
    assert set(stored["timings_ms"]) <= set(answer["timings_ms"])
    assert set(RecallBody.model_fields) - {"state_mode"} <= set(record["request"])
    assert record["request"]["query"] == "fence"
    assert record["policy"]["name"] == "validity-multiplier-v1"
    assert record["policy"]["weights"]["freshness_half_life_secs"] == 2_592_000
    assert record["index"]["lexical"] == services.installed_index().version != ""
    assert record["embedder"] == embedders.installed().model_id != ""
    assert (record["scope"], record["reranker"]) == (None, None)
    assert record["actor"] == {"kind": "key", "id": api.key_id, "label": "key of None"}
    assert record["surface"] == "api"
    head = api.get("/v1/events", limit=1)[1]["results"][0]
    assert record["ledger_head"] == {"seq": head["seq"], "hash": head["hash"]}


def recomputed(record: dict[str, Any]) -> str:
    """The digest, from nothing but the stored record (behaviour.md, section 6)."""
    answer = record["answer"]
    results = [
        {
            "id": hit["memory"]["id"],
            "version": hit["memory"]["version"],
            "text_sha256": sha256(hit["memory"]["text"].encode()).hexdigest(),
            "rank": hit["rank"],
            "score": hit["score"],
            "validity": hit.get("validity"),
            "state_replaces": hit["state_replaces"],
        }
        for hit in answer["results"]
    ]
    told = {"results": results, "state_filter": answer.get("state_filter"), "outcome": answer["outcome"]}
    return sha256(canonical(told)).hexdigest()


def test_the_digest_can_be_computed_from_the_stored_record(api: Api) -> None:
    furnish(api)
    for asked in ({}, {"profile": "validity", "state_debug": True}, {"current_only": False, "limit": 2}):
        record = whole(api, api.recalled("fence", **asked))
        assert recomputed(record) == record["digest"]
    nothing = whole(api, api.recalled("unheard"))
    assert recomputed(nothing) == nothing["digest"]


def test_hit_rows_are_what_was_served_suppressed_or_replaced(api: Api) -> None:
    furnish(api)
    record = whole(api, api.recalled("fence", limit=3, category=""))
    names = {"served": "served", "suppressed": "suppressed", "replaced_by": "replaced"}
    rows = RecordHit.objects.filter(record__id=record["id"])
    assert sorted(
        (row.memory.id, row.verdict, row.grade, row.rank) for row in rows.select_related("memory")
    ) == sorted(
        (c["id"], names[c["verdict"]], c["grade"], c["position"])
        for c in record["candidates"]
        if c["verdict"] in names
    )


def test_a_record_refuses_to_be_changed_through_the_models(api: Api) -> None:
    api.stored("fence")
    answer = api.recalled("fence")
    row = RecallRecord.objects.get(id=answer["recall_id"])
    row.query = "another"
    for change in (
        row.save,
        lambda: RecallRecord.objects.update(query="another"),
        row.delete,
        RecallRecord.objects.all().delete,
    ):
        with pytest.raises(AppendOnly):
            change()
    assert whole(api, answer)["query"] == "fence"


@pytest.mark.parametrize(
    "obstacle",
    [
        "CREATE TEMP TRIGGER obstacle BEFORE INSERT ON main.recall_recallrecord "
        "BEGIN SELECT RAISE(ABORT, 'no room'); END",
        "CREATE TEMP TRIGGER obstacle BEFORE INSERT ON main.recall_recordhit BEGIN SELECT RAISE(ABORT, 'no room'); END",
    ],
)
def test_without_its_record_nothing_is_served(api: Api, obstacle: str) -> None:
    api.stored("the fence of the secret garden")
    before = RecallRecord.objects.count()
    with connection.cursor() as cursor:
        cursor.execute(obstacle)
    try:
        answers = [
            api.raw("POST", "/v1/recall", {"query": "fence"}),
            api.raw("GET", "/v1/recall?query=fence"),
        ]
    finally:
        with connection.cursor() as cursor:
            cursor.execute("DROP TRIGGER obstacle")
    for answer in answers:
        assert answer.status_code == 503
        assert json.loads(answer.content)["error"]["code"] == "record_unavailable"
        assert b"garden" not in answer.content
        assert b"no room" not in answer.content
    assert RecallRecord.objects.count() == before
    assert api.texts("fence") == ["the fence of the secret garden"]


# ------------------------------------------------------------------------------------- cost, whatever the pool


QUERIES = 21  # measured, with links to follow and chains to walk


def queries_of(api: Api, query: str, **asked: Any) -> int:
    api.recalled(query, **asked)  # once before: the index is read, and the scope's row made, at its first use
    with CaptureQueriesContext(connection) as captured:
        api.recalled(query, **asked)
    return len(captured)


@pytest.mark.django_db(transaction=True)
def test_the_number_of_queries_is_fixed_whatever_the_pool(api: Api) -> None:
    few, many = (
        bulk(api, [{"text": f"few {n}"} for n in range(20)]),
        bulk(api, [{"text": f"many {n}"} for n in range(1_000)]),
    )
    for ids in (few, many):
        for before, after in zip(ids[::2], ids[1::2], strict=True):
            api.linked(before, after, "EVOLVED_INTO")
    for asked in ({}, {"profile": "validity", "trace": True, "state_debug": True}, {"current_only": False}):
        short = queries_of(api, "few", limit=200, **asked)
        assert short == queries_of(api, "many", limit=200, **asked) <= QUERIES


@pytest.mark.django_db(transaction=True)
def test_the_number_of_queries_is_fixed_whatever_the_length_of_a_chain(api: Api) -> None:
    chains = [
        bulk(api, [{"text": f"{name} {n}"} for n in range(size)])
        for name, size in (("short", 2), ("long", 51))
    ]
    for chain in chains:
        for before, after in pairwise(chain):
            api.linked(before, after, "EVOLVED_INTO")
    assert queries_of(api, "short") == queries_of(api, "long") <= QUERIES


# -------------------------------------------------------------------------------------------------------- erasure


def test_erasing_takes_the_text_out_of_records_and_leaves_the_digest(api: Api) -> None:
    memory = api.stored(
        "the fence of the zanzibar garden", tags=["zanzibar"], metadata={"place": "zanzibar"}
    )["id"]
    kept = api.stored("another fence")["id"]
    answers = [
        api.recalled("fence", **asked) for asked in ({}, {"profile": "validity"}, {"current_only": False})
    ]
    digests = [whole(api, answer)["digest"] for answer in answers]
    assert api.post(f"/v1/memories/{memory}/erase", {"reason": "asked for"})[0] == 200
    for answer, digest in zip(answers, digests, strict=True):
        record = whole(api, answer)
        assert "zanzibar" not in json.dumps(record)
        assert record["digest"] == digest
        hits = {hit["memory"]["id"]: hit for hit in record["answer"]["results"]}
        assert (hits[memory]["memory"]["text"], hits[memory]["memory"]["erased"]) == ("", True)
        assert hits[kept]["memory"]["text"] == "another fence"
        assert [c["id"] for c in record["candidates"] if c["verdict"] == "served"] == list(hits)
    assert api.texts("zanzibar", current_only=False) == []


def test_erasing_takes_away_which_words_of_the_question_a_text_held(api: Api) -> None:
    served = api.stored("the fence of the zanzibar garden")["id"]
    suppressed = api.stored("the fence of the zanzibar yard", t_invalid="2026-01-01")["id"]
    answer = api.recalled("zanzibar fence", profile="validity", trace=True)
    for memory in (served, suppressed):
        assert api.post(f"/v1/memories/{memory}/erase", {"reason": "asked for"})[0] == 200
    record = whole(api, answer)
    reasons = [c["strategies"]["lexical"][2] for c in record["candidates"]]
    assert reasons == ["matched words of an erased text"] * 2
    (placed,) = record["answer"]["fused_trace"]["placement"]
    assert placed["sources"]["lexical"]["reason"] == "matched words of an erased text"


def test_a_text_that_was_erased_while_it_was_recalled_is_not_written(api: Api, caller: Any) -> None:
    memory = api.stored("the fence of the zanzibar garden")["id"]
    request, at = parse(RecallBody, {"query": "fence", "mode": "lexical"}).request(), now_ms()
    index, scope, anchor = services.installed_index(), scope_of(None, caller.reach), Anchor(now_ms())
    with index.opened(scope) as workspaces:
        finished = run(Question(request, scope, workspaces, anchor, words=("fence",)), index=index)
    assert [candidate.id for candidate in finished.served] == [memory]
    services.erase(memory, caller=caller, at=at, reason="meanwhile")
    before = RecallRecord.objects.count()
    with pytest.raises(Unavailable):
        records.write(finished, caller=caller, surface="api", at=at, engine=services.engine_of(index))
    assert RecallRecord.objects.count() == before


# ----------------------------------------------------------------------------------------------------------- the list


def listed(api: Api, **asked: Any) -> list[str]:
    status, page = api.get("/v1/recalls", limit=200, **asked)
    assert status == 200, page
    return [row["id"] for row in page["results"]]


def test_records_are_found_by_each_filter(api: Api, api_for: Callable[..., Api]) -> None:
    api.stored("fence red", workspace="red", created_at="2020-01-01")
    api.stored("fence everywhere", provenance_class="verified")
    other = api_for("read")
    plain = api.recalled("fence")["recall_id"]
    graded = api.recalled("Fence red", workspace="red", profile="validity")["recall_id"]
    empty = other.recalled("unheard", mode="lexical")["recall_id"]
    everything = [empty, graded, plain]
    assert listed(api) == everything
    assert listed(api, actor=api.key_id) == [graded, plain]
    assert listed(api, actor=other.key_id) == [empty]
    assert listed(api, actor="nobody") == []
    assert listed(api, surface="api") == everything
    assert listed(api, surface="mcp") == []
    assert listed(api, workspace="red") == [graded]
    assert listed(api, workspace="") == [empty, plain]
    assert listed(api, profile="validity") == [graded]
    assert listed(api, outcome="empty") == [empty]
    assert listed(api, grade="context_invalid") == [graded, plain]
    assert listed(api, grade="stale") == []
    assert listed(api, q="FENCE") == [graded, plain]
    assert listed(api, q="e%") == []
    assert listed(api, warning="supersession_cycle") == []
    assert listed(api, to="2020-01-01") == []
    assert listed(api, **{"from": "2020-01-01"}) == everything
    at = api.get(f"/v1/recalls/{graded}")[1]["created_at"]
    assert graded in listed(api, **{"from": at})
    assert graded not in listed(api, to=at)


def test_records_are_paged_both_ways_while_more_arrive(api: Api) -> None:
    made = [api.recalled(f"question {n}")["recall_id"] for n in range(7)][::-1]
    _, first = api.get("/v1/recalls", limit=3, q="question")
    assert first["previous"] is None
    late = api.recalled("question late")["recall_id"]
    pages, page = [first], first
    while page["next"]:
        page = api.call("GET", page["next"])[1]
        pages.append(page)
    assert [row["id"] for shown in pages for row in shown["results"]] == made
    back = [row["id"] for row in page["results"]]
    while page["previous"]:
        page = api.call("GET", page["previous"])[1]
        back = [row["id"] for row in page["results"]] + back
    assert back == [late, *made]


def test_a_record_keeps_what_was_served_then(api: Api) -> None:
    memory = api.stored("the fence is green")["id"]
    answer = api.recalled("fence")
    api.call("PATCH", f"/v1/memories/{memory}", {"text": "the fence is red", "archived": True})
    kept = whole(api, answer)["answer"]["results"][0]["memory"]
    assert (kept["text"], kept["version"], kept["archived"]) == ("the fence is green", 1, False)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE recall_recallrecord SET query = 'another question'",
        "UPDATE recall_recallrecord SET document = x'00'",
        "DELETE FROM recall_recallrecord",
        "REPLACE INTO recall_recallrecord SELECT * FROM recall_recallrecord",
        "UPDATE recall_recordhit SET verdict = 'suppressed'",
        "REPLACE INTO recall_recordhit SELECT * FROM recall_recordhit",
        "DELETE FROM recall_recordhit",
    ],
)
def test_the_database_refuses_to_change_a_record(api: Api, statement: str) -> None:
    api.stored("the bell rings at noon")
    api.recalled("bell")

    with (
        pytest.raises(IntegrityError, match="append-only"),
        transaction.atomic(),
        connection.cursor() as cursor,
    ):
        cursor.execute(statement)


def test_a_record_knows_whether_its_digest_still_holds(api: Api, caller: Caller) -> None:
    api.stored("the bell rings at noon")
    stored = record_for(caller.reach, api.recalled("bell")["recall_id"])
    assert stored.digest_holds

    stored.answer["results"][0]["rank"] = 2

    assert not stored.digest_holds


def test_a_record_of_the_first_layout_is_still_read(api: Api, caller: Caller) -> None:
    api.stored("the bell rings at noon")
    stored = record_for(caller.reach, api.recalled("bell")["recall_id"])
    columns = dict(stored.document["candidates"])
    for later in ("words", "cosine", "reranked"):
        del columns[later]
    columns["strategies"] = [
        {name: seen[:2] for name, seen in found.items()} for found in columns["strategies"]
    ]
    first = records.Stored(stored.row, {**stored.document, "version": 1, "candidates": columns})

    (then,), (now,) = first.candidates, stored.candidates

    assert (then["words"], then["cosine"], then["reranked"]) == (None, None, None)
    assert then["strategies"] == {
        name: [rank, score, ""] for name, (rank, score, _) in now["strategies"].items()
    }
    assert {**then, "words": 0, "cosine": 0, "strategies": 0} == {
        **now,
        "words": 0,
        "cosine": 0,
        "strategies": 0,
    }
