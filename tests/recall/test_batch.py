"""Several questions at once: each on its own terms, all or nothing, and one answer merged from theirs."""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from django.db import connection
from django.test import Client, override_settings
from django.test.utils import CaptureQueriesContext
from hypothesis import given
from hypothesis import strategies as st

from recall.domain.merging import merged
from recall.models import RecallRecord, RecordHit

Api = Any
DAY = 86_400_000
ASKED: list[list[str]] = []  # what the embedder below was asked, one entry a call


class ByWords:
    """A small embedder that is one: a direction for each word, summed. It writes down how it is asked."""

    model_id, dim = "by-words", 64

    def embed_query(self, text: str) -> Any:
        return self.embed_queries([text])[0]

    def embed_queries(self, texts: Any) -> list[Any]:
        ASKED.append(list(texts))
        return [self._vector(text) for text in texts]

    def embed_documents(self, texts: Any, *, until: float | None = None) -> list[Any]:
        return [self._vector(text)[None, :] for text in texts]

    def _vector(self, text: str) -> Any:
        total = np.full(self.dim, 1e-3)
        for word in text.lower().split():
            seed = int(hashlib.sha256(word.encode()).hexdigest()[:12], 16)
            total += np.random.default_rng(seed).normal(size=self.dim)
        return (total / np.linalg.norm(total)).astype(np.float16)


@pytest.fixture(autouse=True)
def _by_words() -> Iterator[None]:
    with override_settings(RECALL_EMBEDDER=f"{__name__}.ByWords"):
        yield


@pytest.fixture(params=["resident", "sqlite"])
def engine(request: pytest.FixtureRequest) -> Iterator[str]:
    with override_settings(RECALL_INDEX=request.param):
        yield request.param


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def asked(api: Api, *queries: dict[str, Any], **arguments: Any) -> dict[str, Any]:
    status, told = api.post("/v1/recall/batch", {"queries": list(queries), **arguments})
    assert status == 200, told
    return told


def answers(api: Api, *queries: dict[str, Any]) -> list[dict[str, Any]]:
    told = asked(api, *queries)
    assert set(told) == {"answers"}
    return told["answers"]


def texts(answer: dict[str, Any]) -> list[str]:
    return [hit["memory"]["text"] for hit in answer["results"]]


def content(answer: dict[str, Any]) -> dict[str, Any]:
    """An answer without what differs between two askings: its id and its timings."""
    kept = {name: value for name, value in answer.items() if name not in ("recall_id", "timings_ms")}
    for strategy in kept.get("fused_trace", {"strategies": {}})["strategies"].values():
        strategy["time_ms"] = 0
    return kept


def whole(api: Api, recall_id: str) -> dict[str, Any]:
    status, record = api.get(f"/v1/recalls/{recall_id}")
    assert status == 200, record
    return record


def furnish(api: Api) -> dict[str, str]:
    """Fences in two workspaces: a chain, an expired one, an old one, and one that tags hide."""
    ids = {
        "old": api.stored("the fence was brown", workspace="red", created_at="2026-01-01")["id"],
        "new": api.stored("the fence is green now", workspace="red", created_at="2026-06-01")["id"],
        "gone": api.stored("the fence is expired", workspace="red", t_invalid="2026-02-01")["id"],
        "blue": api.stored("the fence of the blue yard", workspace="blue", tags=["yard"])["id"],
        "global": api.stored("a fence is a fence")["id"],
    }
    api.linked(ids["old"], ids["new"], "EVOLVED_INTO", created_at="2026-06-01")
    return ids


def test_each_query_is_answered_as_it_is_alone(api: Api, engine: str) -> None:
    furnish(api)
    at = now_ms() + DAY
    queries = [
        {"query": "fence", "query_time_unix_ms": at},
        {"query": "fence", "query_time_unix_ms": at, "profile": "validity", "workspace": "red"},
        {"query": "fence", "query_time_unix_ms": 1_770_000_000_000, "state_debug": True},
        {"query": "green fence", "query_time_unix_ms": at, "current_only": False, "validity_annotate": True},
        {"query": "yard", "query_time_unix_ms": at, "mode": "lexical", "limit": 1},
        {"tags": ["yard"], "query_time_unix_ms": at},
        {"query": "unheard", "query_time_unix_ms": at, "mode": "lexical"},
        {"query": "fence", "query_time_unix_ms": at, "fusion": "rrf", "trace": True, "max_tokens": 12},
    ]
    alone = [api.post("/v1/recall", query)[1] for query in queries]
    together = answers(api, *queries)
    assert [content(answer) for answer in together] == [content(answer) for answer in alone]
    assert [whole(api, answer["recall_id"])["digest"] for answer in together] == [
        whole(api, answer["recall_id"])["digest"] for answer in alone
    ]


def test_each_query_leaves_a_record_of_its_own(api: Api) -> None:
    furnish(api)
    told = answers(api, {"query": "fence", "workspace": "red"}, {"query": "yard"})
    for answer, query, workspace in zip(told, ("fence", "yard"), ("red", ""), strict=True):
        record = whole(api, answer["recall_id"])
        assert (record["query"], record["workspace"], record["surface"]) == (query, workspace, "api")
        assert record["digest_holds"]
        assert record["answer"]["results"] == answer["results"]


def test_without_an_instant_of_their_own_all_are_asked_at_the_same(api: Api) -> None:
    api.stored("fence")
    told = answers(api, *[{"query": f"fence {n}"} for n in range(5)], {"query": "x", "query_time_unix_ms": 7})
    assert len({answer["anchor_unix_ms"] for answer in told[:5]}) == 1
    assert told[5]["anchor_unix_ms"] == 7


def test_the_embedder_is_asked_once_and_only_for_what_needs_it(api: Api) -> None:
    furnish(api)
    ASKED.clear()
    answers(
        api,
        {"query": "fence"},
        {"query": "yard", "mode": "lexical"},
        {"tags": ["yard"]},
        {"query": "yard", "mode": "links"},
        {"query": "fence", "limit": 1},
    )
    assert ASKED == [["fence", "yard"]]


def test_without_an_embedder_every_answer_says_what_is_missing(api: Api) -> None:
    furnish(api)
    with override_settings(RECALL_EMBEDDER="recall.embedders.nowhere.Nothing"):
        fused, words, dense = answers(
            api,
            {"query": "fence"},
            {"query": "fence", "mode": "lexical"},
            {"query": "fence", "mode": "dense"},
        )
        merged_one = asked(api, {"query": "fence"}, {"query": "fence", "mode": "lexical"}, fuse=True)
        nothing = asked(api, {"query": "fence", "mode": "dense"}, fuse=True)
    assert fused["outcome"]["status"] == "partial"
    assert words["outcome"]["status"] == "fresh"
    assert dense["outcome"]["status"] == "unavailable"
    assert merged_one["outcome"]["status"] == "partial"
    assert merged_one["outcome"]["reason"].startswith("query 0: dense could not look")
    assert nothing["outcome"]["status"] == "unavailable"


def test_chains_are_walked_once_for_all_queries_that_see_the_same_links(api: Api) -> None:
    furnish(api)
    past = 1_790_000_000_000
    queries = [{"query": "fence"}, {"query": "the fence", "workspace": "red"}, {"query": "brown fence"}]
    answers(api, *queries)
    for extra, walks in (([], 1), ([{"query": "fence", "query_time_unix_ms": past}] * 2, 2)):
        with CaptureQueriesContext(connection) as captured:
            answers(api, *queries, *extra)
        assert sum("WITH RECURSIVE reached" in query["sql"] for query in captured) == walks


def test_the_number_of_queries_is_fixed_whatever_is_found(api: Api) -> None:
    for name, count in (("few", 4), ("many", 300)):
        rows = [{"text": f"{name} {n}"} for n in range(count)]
        status, told = api.post("/v1/memories/bulk", {"memories": rows})
        assert status == 207
        api.linked(told["memories"][0]["id"], told["memories"][1]["id"], "EVOLVED_INTO")

    def cost(word: str) -> int:
        queries = [{"query": word, "mode": "lexical"}, {"query": word, "mode": "lexical", "limit": 200}]
        asked(api, *queries, fuse=True)
        with CaptureQueriesContext(connection) as captured:
            asked(api, *queries, fuse=True, limit=200)
        return len(captured)

    assert cost("few") == cost("many")


# ------------------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("body", "field", "code"),
    [
        ({"queries": []}, "queries", "invalid"),
        ({"queries": [{"query": "x"}] * 51}, "queries", "too_large"),
        ({}, "queries", "required"),
        ({"queries": {"query": "x"}}, "queries", "invalid"),
        ({"queries": [{"query": "fence"}, {"query": "x", "limit": 0}]}, "queries.1.limit", "invalid"),
        (
            {"queries": [{"query": "fence"}, {"query": "x", "surprise": 1}]},
            "queries.1.surprise",
            "unknown_field",
        ),
        ({"queries": [{"queries": []}]}, "queries.0.queries", "unknown_field"),
        ({"queries": [{"query": "fence"}, "fence"]}, "queries.1", "invalid"),
        ({"queries": [{"query": "fence"}, {"query": ""}]}, "queries.1.query", "query_required"),
        (
            {"queries": [{"query": "fence"}, {"query": "x", "profile": "best"}]},
            "queries.1.profile",
            "invalid",
        ),
        (
            {"queries": [{"query": "fence"}, {"query": "x", "rerank": True}]},
            "queries.1.rerank",
            "rerank_unavailable",
        ),
        (
            {"queries": [{"query": "x", "temporal": {"until": 1}}]},
            "queries.0.temporal.until",
            "unknown_field",
        ),
        ({"queries": [{"query": "fence"}], "surprise": 1}, "surprise", "unknown_field"),
        ({"queries": [{"query": "fence"}], "fuse": "yes"}, "fuse", "invalid"),
        ({"queries": [{"query": "fence"}], "limit": 5}, "limit", "invalid"),
        ({"queries": [{"query": "fence"}], "fuse": True, "limit": 201}, "limit", "invalid"),
    ],
)
def test_one_malformed_query_refuses_the_whole_batch(api: Api, body: Any, field: str, code: str) -> None:
    api.stored("fence")
    status, told = api.post("/v1/recall/batch", body)
    assert (status, told["error"]["field"], told["error"]["code"]) == (400, field, code)
    assert not RecallRecord.objects.exists()


def test_an_unknown_field_of_a_query_is_told_the_fields_of_a_query(api: Api) -> None:
    _, told = api.post("/v1/recall/batch", {"queries": [{"query": "x", "lmit": 1}]})
    assert "query_time_unix_ms" in told["error"]["hint"]
    assert "fuse" not in told["error"]["hint"]


def test_a_foreign_workspace_in_one_query_refuses_the_whole_batch(
    api: Api, api_for: Callable[..., Api]
) -> None:
    furnish(api)
    red = api_for("read", workspace="red")
    body = {"queries": [{"query": "fence"}, {"query": "fence", "workspace": "blue"}]}
    status, told = red.post("/v1/recall/batch", body)
    assert (status, told["error"]["field"]) == (403, "queries.1.workspace")
    assert not RecallRecord.objects.exists()


def test_a_key_needs_the_scope_to_read_and_other_methods_do_not_exist(api_for: Callable[..., Api]) -> None:
    body = {"queries": [{"query": "fence"}]}
    assert api_for("write").post("/v1/recall/batch", body)[0] == 403
    reader = api_for("read")
    assert reader.post("/v1/recall/batch", body)[0] == 200
    assert [reader.raw(method, "/v1/recall/batch").status_code for method in ("GET", "HEAD")] == [405, 405]
    assert reader.post("/v1/recall/batch?limit=3", body)[0] == 400


def test_one_record_that_cannot_be_written_withholds_every_answer(api: Api) -> None:
    api.stored("the fence of the secret garden")
    with connection.cursor() as cursor:
        cursor.execute(
            "CREATE TEMP TRIGGER obstacle BEFORE INSERT ON main.recall_recallrecord WHEN NEW.query = 'second' "
            "BEGIN SELECT RAISE(ABORT, 'no room'); END"
        )
    try:
        refused = api.raw("POST", "/v1/recall/batch", {"queries": [{"query": "fence"}, {"query": "second"}]})
    finally:
        with connection.cursor() as cursor:
            cursor.execute("DROP TRIGGER obstacle")
    assert refused.status_code == 503
    assert json.loads(refused.content)["error"]["code"] == "record_unavailable"
    assert b"garden" not in refused.content
    assert not RecallRecord.objects.exists()
    assert not RecordHit.objects.exists()


# ------------------------------------------------------------------------------------------------------ isolation


def test_a_query_sees_its_own_scope_and_not_that_of_its_neighbours(api: Api, engine: str) -> None:
    furnish(api)
    red, blue, everywhere = answers(
        api,
        *[{"query": "fence", "workspace": name, "mode": "lexical"} for name in ("red", "blue")],
        {"query": "fence", "workspace": "", "mode": "lexical"},
    )
    assert set(texts(red)) == {"the fence is green now", "a fence is a fence"}
    assert set(texts(blue)) == {"the fence of the blue yard", "a fence is a fence"}
    assert texts(everywhere) == ["a fence is a fence"]


def test_a_bound_key_sees_no_other_workspace_and_no_record_of_a_wider_batch(
    api: Api, api_for: Callable[..., Api]
) -> None:
    furnish(api)
    red = api_for("read", workspace="red")
    fused = asked(red, {"query": "fence"}, {"query": "yard"}, fuse=True)
    assert "blue" not in json.dumps(fused)
    assert whole(red, fused["recall_id"])["workspace"] == "red"
    wider = asked(
        api, {"query": "fence", "workspace": "red"}, {"query": "fence", "workspace": "blue"}, fuse=True
    )
    assert red.get(f"/v1/recalls/{wider['recall_id']}")[0] == 404
    assert whole(api, wider["recall_id"])["scope"] == ["", "blue", "red"]


# ---------------------------------------------------------------------------------------------------------- fused


def test_a_fused_answer_is_the_sum_of_reciprocal_ranks_on_the_terms_of_the_first_query(
    api: Api, engine: str
) -> None:
    for text in ("alpha beta", "beta beta", "beta gamma gamma"):
        api.stored(text)
    queries = [
        {"query": "alpha", "mode": "lexical"},
        {"query": "beta", "mode": "lexical", "validity_annotate": True},
        {"query": "gamma", "mode": "lexical", "limit": 1},
    ]
    members = answers(api, *queries)
    ranks: dict[str, dict[str, int]] = {}
    for number, member in enumerate(members):
        for hit in member["results"]:
            ranks.setdefault(hit["memory"]["id"], {})[str(number)] = hit["rank"]
    sums = {id_: math.fsum(1 / (60 + rank) for rank in seen.values()) for id_, seen in ranks.items()}

    fused = asked(api, *queries, fuse=True)

    assert [hit["memory"]["id"] for hit in fused["results"]] == sorted(
        sums, key=lambda id_: (-sums[id_], id_)
    )
    assert fused["count"] == 3
    assert [hit["rank"] for hit in fused["results"]] == [1, 2, 3]
    for hit in fused["results"]:
        id_ = hit["memory"]["id"]
        first = members[int(min(ranks[id_]))]
        alone = next(one for one in first["results"] if one["memory"]["id"] == id_)
        assert hit["sources"] == ranks[id_]
        assert hit["score"] == {"base": alone["score"]["final"], "final": sums[id_]}
        assert ("validity" in hit) == ("validity" in alone)
        assert hit["match_type"] == alone["match_type"]


def test_a_fused_answer_serves_what_one_query_served_though_another_suppressed_it(api: Api) -> None:
    ids = furnish(api)
    fused = asked(
        api,
        {"query": "brown fence", "workspace": "red", "mode": "lexical"},
        {
            "query": "brown fence",
            "workspace": "red",
            "mode": "lexical",
            "query_time_unix_ms": 1_768_000_000_000,
        },
        fuse=True,
    )
    hits = {hit["memory"]["id"]: hit for hit in fused["results"]}
    assert ids["gone"] not in hits
    assert hits[ids["old"]]["sources"] == {"1": 1}
    assert hits[ids["old"]]["memory"]["state"] == {"current": True}
    assert hits[ids["new"]]["state_replaces"] == [ids["old"]]


def test_the_limit_of_a_fused_answer_is_its_own(api: Api) -> None:
    for n in range(15):
        api.stored(f"fence {n}")
    query = {"query": "fence", "mode": "lexical", "limit": 20}
    fused = {limit: asked(api, query, fuse=True, limit=limit) for limit in (1, 15, 200)}
    assert {limit: answer["count"] for limit, answer in fused.items()} == {1: 1, 15: 15, 200: 15}
    assert asked(api, query, fuse=True)["count"] == 10
    record = whole(api, fused[1]["recall_id"])
    assert [c["verdict"] for c in record["candidates"]] == ["served"] + ["below_limit"] * 14


def test_a_fused_answer_is_empty_stale_or_fresh(api: Api) -> None:
    api.stored("rusty fence", created_at="2020-01-01")
    api.stored("rusty gate")
    words = {"mode": "lexical"}
    assert asked(api, {"query": "unheard", **words}, fuse=True)["outcome"]["status"] == "empty"
    assert asked(api, {"query": "fence", **words}, fuse=True)["outcome"]["status"] == "stale"
    assert asked(api, {"query": "rusty", **words}, fuse=True)["outcome"]["status"] == "fresh"


def test_a_fused_answer_is_a_record_that_names_its_members(
    api: Api, client: Client, django_user_model: Any
) -> None:
    ids = furnish(api)
    queries = [{"query": "fence", "profile": "validity"}, {"query": "green", "workspace": "red"}]
    fused = asked(api, *queries, fuse=True, limit=2)
    record = whole(api, fused["recall_id"])
    assert (record["mode"], record["profile"], record["served"]) == ("batch", "default", 2)
    assert record["query"] == "fence · green"
    assert record["answer"]["queries"] == fused["queries"]
    assert [whole(api, id_)["query"] for id_ in fused["queries"]] == ["fence", "green"]
    assert record["request"]["fuse"] is True
    assert [one["query"] for one in record["request"]["queries"]] == ["fence", "green"]
    assert record["digest_holds"]
    served = RecordHit.objects.filter(record__id=fused["recall_id"], verdict="served").order_by("rank")
    assert [row.memory.id for row in served] == [hit["memory"]["id"] for hit in fused["results"]]
    client.force_login(django_user_model.objects.create_superuser("ada"))
    page = client.get(f"/recalls/{fused['recall_id']}/")
    assert page.status_code == 200
    assert (
        ids[next(name for name in ids if ids[name] == fused["results"][0]["memory"]["id"])]
        in page.content.decode()
    )
    assert client.get(f"/recalls/{fused['recall_id']}/hits/1/").status_code == 200
    assert fused["recall_id"] in client.get("/recalls/").content.decode()


def test_the_same_batch_at_the_same_anchor_has_the_same_digest(api: Api) -> None:
    furnish(api)
    queries = [{"query": word, "query_time_unix_ms": now_ms() + DAY} for word in ("fence", "green", "yard")]
    first = asked(api, *queries, fuse=True)
    with override_settings(RECALL_INDEX="sqlite"):
        second = asked(api, *queries, fuse=True)
    digests = {whole(api, answer["recall_id"])["digest"] for answer in (first, second)}
    assert len(digests) == 1


def test_an_erased_text_leaves_the_fused_record_too(api: Api) -> None:
    memory = api.stored("the fence of the zanzibar garden")["id"]
    fused = asked(api, {"query": "fence"}, {"query": "garden"}, fuse=True)
    digest = whole(api, fused["recall_id"])["digest"]
    assert api.post(f"/v1/memories/{memory}/erase", {"reason": "asked for"})[0] == 200
    record = whole(api, fused["recall_id"])
    assert "zanzibar" not in json.dumps(record)
    assert (record["digest"], record["digest_holds"]) == (digest, True)


# ---------------------------------------------------------------------------------------------------------- merging

LISTS = st.lists(st.lists(st.sampled_from("abcdefgh"), unique=True), max_size=6)


@given(LISTS, st.randoms(use_true_random=False))
def test_the_order_of_the_lists_changes_neither_scores_nor_order(lists: list[list[str]], random: Any) -> None:
    numbers = list(range(len(lists)))
    random.shuffle(numbers)
    before, after = merged(lists), merged([lists[number] for number in numbers])
    assert [(one.id, one.score) for one in before] == [(one.id, one.score) for one in after]
    for one, other in zip(before, after, strict=True):
        assert one.ranks == {numbers[place]: rank for place, rank in other.ranks.items()}


@given(LISTS)
def test_every_memory_of_every_list_is_merged_once_the_best_first(lists: list[list[str]]) -> None:
    found = merged(lists)
    assert sorted(one.id for one in found) == sorted({id_ for ids in lists for id_ in ids})
    assert found == sorted(found, key=lambda one: (-one.score, one.id))
    for one in found:
        assert one.ranks == {n: ids.index(one.id) + 1 for n, ids in enumerate(lists) if one.id in ids}
