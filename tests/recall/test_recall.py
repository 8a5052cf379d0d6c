"""Recall itself, over the API: filters, pools, replacements, profiles, budget, anchors, and what it must not do."""

from __future__ import annotations

import json
import time
from itertools import pairwise
from typing import Any

import pytest

from ledger.models import ContextEvent
from recall.models import RecallRecord
from vault.models import Memory, MemoryLink, MemoryTag

Api = Any

DAY = 86_400_000


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def bulk(api: Api, rows: list[dict[str, Any]]) -> list[str]:
    ids: list[str] = []
    for start in range(0, len(rows), 1_000):
        status, told = api.post("/v1/memories/bulk", {"memories": rows[start : start + 1_000]})
        assert (status, told["failed"]) == (207, [])
        ids += [entry["id"] for entry in told["memories"]]
    return ids


def ids_of(answer: dict[str, Any]) -> list[str]:
    return [hit["memory"]["id"] for hit in answer["results"]]


def content(answer: dict[str, Any]) -> dict[str, Any]:
    """An answer without what differs between two askings: its id and its timings."""
    kept = {name: value for name, value in answer.items() if name not in ("recall_id", "timings_ms")}
    for strategy in kept.get("fused_trace", {"strategies": {}})["strategies"].values():
        strategy["time_ms"] = 0
    return kept


def digest(api: Api, answer: dict[str, Any]) -> str:
    status, record = api.get(f"/v1/recalls/{answer['recall_id']}")
    assert status == 200
    kept: str = record["digest"]
    return kept


# ----------------------------------------------------------------------------------------------------- filters

TAGGED = {"untagged": [], "T": ["T"], "O": ["O"], "TX": ["T", "X"], "X": ["X"]}
TABLE = [  # behaviour.md, section 5
    (["T"], "any", "untagged T TX"),
    (["T"], "all", "untagged T TX"),
    (["T"], "any_strict", "T TX"),
    (["T"], "all_strict", "T TX"),
    (["T"], "exact", "T"),
    (["T", "X"], "any", "untagged T TX X"),
    (["T", "X"], "all", "untagged TX"),
    (["T", "X"], "any_strict", "T TX X"),
    (["T", "X"], "all_strict", "TX"),
    (["T", "X"], "exact", "TX"),
    ([], "any", "untagged T O TX X"),
    ([], "all", "untagged T O TX X"),
    ([], "any_strict", "untagged T O TX X"),
    ([], "all_strict", "untagged T O TX X"),
    ([], "exact", "untagged"),
]


def test_tags_match_as_hindsight_does_on_every_path(api: Api) -> None:
    for name, tags in TAGGED.items():
        api.stored(f"fence {name}", tags=tags)
    for tags, match, expected in TABLE:
        wanted = {f"fence {name}" for name in expected.split()}
        asked = {"tags": tags, "tags_match": match}
        assert set(api.texts("fence", **asked)) == wanted, asked
        assert set(api.texts("fence", current_only=False, **asked)) == wanted, asked
        _, got = api.get("/v1/recall", query="fence", **asked)
        assert {hit["memory"]["text"] for hit in got["results"]} == wanted, asked
        _, listed = api.get("/v1/memories", **asked)
        assert {memory["text"] for memory in listed["results"]} == wanted, asked
        if tags or match == "exact":
            assert set(api.texts("", **asked)) == wanted, asked


def test_any_strict_is_the_default(api: Api) -> None:
    for name, tags in TAGGED.items():
        api.stored(f"fence {name}", tags=tags)
    assert set(api.texts("fence", tags=["T", "X"])) == {"fence T", "fence TX", "fence X"}


def test_excluded_tags_category_and_provenance_narrow(api: Api) -> None:
    api.stored("fence one", tags=["a"], category="plan", provenance_class="verified")
    api.stored("fence two", tags=["a", "b"], category="plan")
    api.stored("fence three", tags=["c"], category="note", provenance_class="rejected")
    assert set(api.texts("fence", exclude_tags=["b"])) == {"fence one", "fence three"}
    assert api.texts("fence", exclude_tags=["b", "c"]) == ["fence one"]
    assert set(api.texts("fence", category="plan")) == {"fence one", "fence two"}
    assert api.texts("fence", category="pla") == []
    assert api.texts("fence", provenance_class="rejected") == ["fence three"]
    assert api.texts("fence", tags=["a"], exclude_tags=["b"], category="plan") == ["fence one"]
    assert set(api.texts("", category="plan")) == {"fence one", "fence two"}


def test_start_and_end_are_half_open(api: Api) -> None:
    for day in (1, 2, 3):
        api.stored(f"fence {day}", created_at=f"2026-01-0{day}T00:00:00Z")
    assert set(api.texts("fence", start="2026-01-02")) == {"fence 2", "fence 3"}
    assert api.texts("fence", end="2026-01-02") == ["fence 1"]
    assert api.texts("fence", start="2026-01-02T00:00:00Z", end="2026-01-03T00:00:00Z") == ["fence 2"]
    assert api.texts("fence", start="2026-01-02T00:00:00.001Z", end="2026-01-03T00:00:00Z") == []
    assert api.texts("fence", start="2026-01-03T01:00:00+01:00") == ["fence 3"]


def test_without_words_what_matches_is_listed_newest_first(api: Api) -> None:
    for day in (2, 3, 1):
        api.stored(f"day {day}", tags=["t"], created_at=f"2026-01-0{day}")
    answer = api.recalled("", tags=["t"])
    assert [hit["memory"]["text"] for hit in answer["results"]] == ["day 3", "day 2", "day 1"]
    assert {hit["match_type"] for hit in answer["results"]} == {"tag"}
    assert api.texts("  ", tags=["t"], sort="time_asc") == ["day 1", "day 2", "day 3"]
    assert api.texts("", tags=["t"], limit=1) == ["day 3"]


def test_sorts_hold_and_ties_go_by_id(api: Api) -> None:
    bulk(api, [{"text": f"fence {n}", "created_at": f"2026-01-0{1 + n % 3}"} for n in range(9)])
    for sort, sign in (("time_desc", -1), ("time_asc", 1)):
        hits = [hit["memory"] for hit in api.recalled("fence", sort=sort, profile="validity")["results"]]
        keys = [(sign * memory["created_at_unix_ms"], memory["id"]) for memory in hits]
        assert keys == sorted(keys)
        assert len(keys) == 9


# ------------------------------------------------------------------------------------------------------- pools


def test_expired_better_matches_never_crowd_out_what_is_current(api: Api) -> None:
    bulk(api, [{"text": f"fence fence {n}", "t_invalid": "2026-01-01"} for n in range(5_000)])
    bulk(api, [{"text": f"a long note that mentions the fence once {n}"} for n in range(3)])
    answer = api.recalled("fence", limit=3)
    assert answer["count"] == 3
    assert all("mentions" in hit["memory"]["text"] for hit in answer["results"])
    assert answer["state_filter"]["suppressed_count"] == 64, "each pool is as large"
    _, listed = api.get("/v1/memories", limit=3)
    assert len(listed["results"]) == 3


def test_expired_better_matches_never_crowd_out_what_stands_because_its_replacement_fell(api: Api) -> None:
    stands = api.stored("a long note that mentions the fence only once in all its many words")
    fell = api.stored("nothing to find", t_invalid="2026-01-01")
    api.linked(stands["id"], fell["id"], "EVOLVED_INTO")
    bulk(api, [{"text": f"fence fence {n}", "t_invalid": "2026-01-01"} for n in range(300)])
    answer = api.recalled("fence", limit=3)
    assert ids_of(answer) == [stands["id"]]
    assert [warning["code"] for warning in answer["warnings"]] == ["replacement_inactive"]


def test_the_limit_cuts_after_state_and_the_pool_holds_five_limits(api: Api) -> None:
    bulk(api, [{"text": f"fence {n}"} for n in range(250)])
    for limit, pool in ((1, 64), (20, 100), (200, 250)):
        answer = api.recalled("fence", limit=limit, trace=True)
        assert answer["count"] == limit
        assert answer["fused_trace"]["strategies"]["lexical"]["candidates"] == pool


# ------------------------------------------------------------------------------------------------ replacements


@pytest.mark.parametrize(
    ("old", "new", "asked"),
    [
        ({"tags": ["t"]}, {"tags": ["u"]}, {"tags": ["t"]}),
        ({}, {"tags": ["private"]}, {"exclude_tags": ["private"]}),
        ({"created_at": "2026-01-01"}, {"created_at": "2026-02-01"}, {"end": "2026-01-15"}),
        ({"created_at": "2026-02-01"}, {"created_at": "2026-01-01"}, {"start": "2026-01-15"}),
        ({"category": "a"}, {"category": "b"}, {"category": "a"}),
        ({"provenance_class": "verified"}, {}, {"provenance_class": "verified"}),
        ({"tags": ["t"]}, {"tags": ["t", "u"]}, {"tags": ["t"], "tags_match": "exact"}),
    ],
)
def test_a_replacement_outside_the_filters_is_never_shown(
    api: Api, old: dict[str, Any], new: dict[str, Any], asked: dict[str, Any]
) -> None:
    before = api.stored("the fence is green", **old)["id"]
    after = api.stored("the fence is red", **new)["id"]
    link = api.linked(before, after, "EVOLVED_INTO")["id"]
    for more in ({}, {"state_debug": True, "trace": True}, {"profile": "validity", "state_debug": True}):
        answer = api.recalled("fence", **asked, **more)
        assert answer["results"] == []
        assert answer["outcome"]["status"] == "empty"
        assert answer["state_filter"]["replacement_filtered_count"] == 1
        assert answer["state_filter"]["suppressed_count"] == 1
        assert after not in json.dumps(answer)
        assert link not in json.dumps(answer)
    history = api.recalled("fence", current_only=False, profile="validity", trace=True, **asked)
    assert ids_of(history) == [before]
    assert after not in json.dumps(history)
    assert link not in json.dumps(history)


def test_a_replacement_that_was_no_candidate_is_put_in_the_place(api: Api) -> None:
    before = api.stored("fence fence fence")["id"]
    beside = api.stored("a fence and a long tail of other words")["id"]
    after = api.stored("it is a hedge now")["id"]
    link = api.linked(before, after, "INVALIDATED_BY")["id"]
    answer = api.recalled("fence", mode="lexical", state_debug=True)  # by meaning, a hedge is found itself
    assert ids_of(answer) == [after, beside]
    hit = answer["results"][0]
    assert (hit["match_type"], hit["state_replaces"], hit["sources"]) == ("state_replacement", [before], {})
    assert hit["relation"] == {"link_id": link, "type": "INVALIDATED_BY"}
    assert answer["state_filter"] == {
        "current_only": True,
        "suppressed_count": 1,
        "replacement_count": 1,
        "replacement_filtered_count": 0,
        "suppressed": [
            {
                "id": before,
                "reason": "superseded",
                "replacement_id": after,
                "relation_type": "INVALIDATED_BY",
            }
        ],
        "replacements": [{"id": after, "replaces_id": before, "relation_type": "INVALIDATED_BY"}],
    }


def test_a_replacement_that_was_a_candidate_moves_up_to_the_better_place(api: Api) -> None:
    before = api.stored("fence fence fence")["id"]
    beside = api.stored("a fence, and seven more words beside it here")["id"]
    after = api.stored("a fence that stands far down in a long list of words of no account at all, really")[
        "id"
    ]
    assert ids_of(api.recalled("fence")) == [before, beside, after]
    api.linked(before, after, "EVOLVED_INTO")
    answer = api.recalled("fence", state_debug=True)
    assert ids_of(answer) == [after, beside]
    assert answer["state_filter"]["replacement_count"] == 0, "it was moved, not injected"
    assert answer["state_filter"]["replacements"][0]["id"] == after
    assert answer["results"][0]["match_type"] == "fused"


def test_a_replacement_that_stands_better_keeps_its_place(api: Api) -> None:
    after = api.stored("fence fence fence")["id"]
    beside = api.stored("a fence, and seven more words beside it here")["id"]
    before = api.stored("a fence that stands far down in a long list of words of no account at all, really")[
        "id"
    ]
    api.linked(before, after, "EVOLVED_INTO")
    answer = api.recalled("fence")
    assert ids_of(answer) == [after, beside]
    assert answer["results"][0]["state_replaces"] == [before]


def test_two_old_memories_share_one_replacement(api: Api) -> None:
    old = [api.stored(f"fence {n}")["id"] for n in range(2)]
    after = api.stored("a hedge")["id"]
    for before in old:
        api.linked(before, after, "EVOLVED_INTO")
    answer = api.recalled("fence", mode="lexical")
    assert ids_of(answer) == [after]
    assert sorted(answer["results"][0]["state_replaces"]) == sorted(old)
    assert answer["state_filter"]["replacement_count"] == 1
    assert answer["state_filter"]["suppressed_count"] == 2


def test_without_state_debug_no_suppressed_id_is_shown(api: Api) -> None:
    gone = api.stored("fence one", t_invalid="2026-01-01")["id"]
    api.stored("fence two")
    answer = api.recalled("fence", profile="validity", trace=True)
    assert gone not in json.dumps(answer)
    assert set(answer["state_filter"]) == {
        *("current_only", "suppressed_count", "replacement_count", "replacement_filtered_count")
    }
    debugged = api.recalled("fence", state_debug=True)
    assert debugged["state_filter"]["suppressed"] == [{"id": gone, "reason": "expired"}]


def test_an_archived_memory_brings_nothing_in(api: Api) -> None:
    before = api.stored("fence", archived=True)["id"]
    after = api.stored("a hedge")["id"]
    api.linked(before, after, "EVOLVED_INTO")
    answer = api.recalled("fence", mode="lexical")
    assert (answer["count"], answer["state_filter"]["suppressed_count"]) == (0, 1)
    assert answer["state_filter"]["replacement_filtered_count"] == 0


def test_a_sort_by_time_still_holds_after_injection(api: Api) -> None:
    before = api.stored("fence old", created_at="2026-01-05")["id"]
    api.stored("fence between", created_at="2026-01-03")
    after = api.stored("a hedge", created_at="2026-01-01")["id"]
    api.linked(before, after, "EVOLVED_INTO")
    assert api.texts("fence", sort="time_desc") == ["fence between", "a hedge"]
    assert api.texts("fence", sort="time_asc", profile="validity") == ["a hedge", "fence between"]


def test_the_history_view_serves_everything_marked_and_no_state_filter(api: Api) -> None:
    expired = api.stored("fence expired", t_invalid="2026-01-01")["id"]
    before = api.stored("fence before")["id"]
    after = api.stored("fence after")["id"]
    archived = api.stored("fence archived", archived=True)["id"]
    later = api.stored("fence later", t_valid="2099-01-01")["id"]
    api.linked(before, after, "EVOLVED_INTO")
    for asked in ({"current_only": False}, {"state_mode": "history"}):
        answer = api.recalled("fence", validity_annotate=True, **asked)
        assert "state_filter" not in answer
        states = {hit["memory"]["id"]: hit["memory"]["state"].get("reason") for hit in answer["results"]}
        assert states == {
            expired: "expired",
            before: "superseded",
            after: None,
            archived: "archived",
            later: "not_yet_valid",
        }
        marks = {hit["memory"]["id"]: hit.get("context_invalid", False) for hit in answer["results"]}
        assert {id_ for id_, marked in marks.items() if marked} == {expired, before}
        assert all(hit["state_replaces"] == [] for hit in answer["results"])


def test_current_only_wins_over_state_mode_and_neither_is_guessed(api: Api) -> None:
    api.stored("fence", t_invalid="2026-01-01")
    assert api.texts("fence", current_only=True, state_mode="history") == []
    assert api.texts("fence", current_only=False, state_mode="current") == ["fence"]
    assert api.texts("fence", state_mode="history") == ["fence"]
    assert api.texts("fence", current_only=None, state_mode=None) == []
    for malformed in ({"current_only": "false"}, {"current_only": 0}, {"state_mode": "History"}):
        status, told = api.post("/v1/recall", {"query": "fence", **malformed})
        assert (status, told["error"]["field"]) == (400, next(iter(malformed)))


def test_a_long_chain_and_a_cycle_are_warned_of_and_empty_nothing(api: Api) -> None:
    chain = bulk(api, [{"text": f"chain {n}"} for n in range(70)])
    for before, after in pairwise(chain):
        api.linked(before, after, "EVOLVED_INTO")
    ring = bulk(api, [{"text": f"ring {n}"} for n in range(3)])
    for before, after in pairwise([*ring, ring[0]]):
        api.linked(before, after, "EVOLVED_INTO")
    answer = api.recalled("chain", limit=100)
    assert ids_of(answer) == [chain[-1]]
    assert len(answer["results"][0]["state_replaces"]) == 69
    assert "chain_too_long" in {warning["code"] for warning in answer["warnings"]}
    answer = api.recalled("ring")
    assert len(answer["results"]) == 1
    assert {warning["code"] for warning in answer["warnings"]} == {"supersession_cycle"}


# ---------------------------------------------------------------------------------------------------- profiles


def aged(api: Api) -> None:
    at = now_ms()
    for days, text in (
        (400, "fence fence fence"),
        (100, "fence fence a b"),
        (0, "fence a b c d e f g h i j"),
    ):
        api.stored(text, created_at_unix_ms=at - days * DAY)


def test_without_a_profile_no_validity_field_is_there(api: Api) -> None:
    aged(api)
    answer = api.recalled("fence")
    told = json.dumps(content(answer))
    assert '"validity"' not in told
    assert '"context_invalid"' not in told
    assert '"multiplier"' not in told
    assert "fused_trace" not in answer
    assert answer["profile"] == "default"


def test_annotation_grades_and_keeps_the_order(api: Api) -> None:
    aged(api)
    plain, annotated = api.recalled("fence"), api.recalled("fence", validity_annotate=True)
    assert ids_of(plain) == ids_of(annotated)
    assert [hit["validity"]["grade"] for hit in annotated["results"]] == [
        *("context_invalid", "context_invalid", "valid")
    ]
    assert [hit["score"] for hit in plain["results"]] == [hit["score"] for hit in annotated["results"]]
    assert [hit.get("context_invalid") for hit in annotated["results"]] == [True, True, None]


def test_the_validity_profile_orders_by_base_times_multiplier(api: Api) -> None:
    aged(api)
    answer = api.recalled("fence", profile="validity")
    assert ids_of(answer) == ids_of(api.recalled("fence"))[::-1]
    for hit in answer["results"]:
        assert hit["score"]["final"] == hit["score"]["base"] * hit["score"]["multiplier"]
        assert hit["score"]["multiplier"] == hit["validity"]["multiplier"] > 0
    finals = [hit["score"]["final"] for hit in answer["results"]]
    assert finals == sorted(finals, reverse=True)
    assert sorted(hit["score"]["base"] for hit in answer["results"]) == [1 / 3, 2 / 3, 1.0]
    trace = answer["fused_trace"]["validity"]
    assert trace["grade_counts"] == {"valid": 1, "stale": 0, "context_invalid": 2}
    assert trace["flagged_context_invalid"] == 2
    assert (trace["profile"], trace["method"]) == ("validity", "validity-multiplier-v1")


def test_equal_scores_go_by_id(api: Api) -> None:
    bulk(api, [{"text": "fence", "created_at": "1800-01-01"} for _ in range(20)])
    for asked in ({}, {"profile": "validity"}, {"fusion": "rrf"}, {"current_only": False}):
        found = ids_of(api.recalled("fence", limit=20, **asked))
        assert found == sorted(found), asked


def test_a_single_mode_takes_a_profile_for_annotation_only(api: Api) -> None:
    aged(api)
    answer = api.recalled("fence", mode="lexical", profile="validity")
    assert ids_of(answer) == ids_of(api.recalled("fence"))
    assert all("validity" in hit for hit in answer["results"])
    assert all("multiplier" not in hit["score"] for hit in answer["results"])
    assert "fused_trace" not in answer
    assert content(api.recalled("fence", mode="fts5")) == content(api.recalled("fence", mode="lexical")) | {
        "anchor_unix_ms": pytest.approx(answer["anchor_unix_ms"], abs=60_000)
    }


def test_scope_is_exact_global_or_none_as_it_was_asked(api: Api) -> None:
    api.stored("fence red", workspace="red")
    api.stored("fence everywhere")
    for asked, matches in (
        ({"workspace": "red"}, {"fence red": "exact", "fence everywhere": "global"}),
        ({}, {"fence red": "none", "fence everywhere": "none"}),
        ({"workspace": ""}, {"fence everywhere": "exact"}),
    ):
        answer = api.recalled("fence", validity_annotate=True, **asked)
        found = {hit["memory"]["text"]: hit["validity"]["scope_match"] for hit in answer["results"]}
        assert found == matches


# ------------------------------------------------------------------------------------------------------ budget


def test_the_budget_is_packed_in_order_and_never_skips(api: Api) -> None:
    api.stored("fence fence " + "x" * 28)  # 40 bytes: 10 tokens
    api.stored("fence " + "word " * 200)
    api.stored("a fence here")
    whole = [hit["memory"]["text"] for hit in api.recalled("fence")["results"]]
    sizes = [-(-len(text.encode()) // 4) for text in whole]
    for count in (1, 2, 3):
        exact = sum(sizes[:count])
        assert api.texts("fence", max_tokens=exact) == whole[:count]
        assert api.texts("fence", max_tokens=exact - 1) == whole[: count - 1]
    empty = api.recalled("fence", max_tokens=1)
    assert empty["outcome"] == {"status": "empty", "reason": "the first hit alone is larger than max_tokens"}


# ---------------------------------------------------------------------------------------------------- outcomes


def test_an_empty_answer_says_why(api: Api) -> None:
    api.stored("fence", t_invalid="2026-01-01")
    nothing = api.recalled("unheard")
    assert nothing["outcome"] == {"status": "empty", "reason": "no memory in scope matches"}
    assert (nothing["count"], nothing["results"]) == (0, [])
    gone = api.recalled("fence")
    assert gone["outcome"] == {"status": "empty", "reason": "1 matched, and none of them is current"}


def test_an_outcome_is_fresh_with_a_valid_hit_and_stale_without(api: Api) -> None:
    api.stored("fence", created_at="2020-01-01")
    assert api.recalled("fence")["outcome"] == {"status": "stale", "reason": "no hit is graded valid"}
    api.stored("new fence")
    assert api.recalled("fence")["outcome"] == {"status": "fresh", "reason": None}


def test_a_question_of_stop_words_alone_still_asks_for_them(api: Api) -> None:
    api.stored("to be or not to be")
    api.stored("a fence")
    assert api.texts("to be or not to be") == ["to be or not to be"]
    assert api.texts("what was it that they were") == []


def test_a_question_in_natural_language_finds_its_words_in_any_form(api: Api) -> None:
    api.stored("Nadia prefers meetings in the mornings")
    assert api.texts("When does Nadia prefer to meet, in the morning?") == [
        "Nadia prefers meetings in the mornings"
    ]


# ----------------------------------------------------------------------------------------------------- surfaces


def test_get_takes_the_same_arguments_as_post(api: Api) -> None:
    bulk(api, [{"text": f"fence {n}", "tags": ["t", f"n{n % 2}"], "category": "c"} for n in range(6)])
    asked: dict[str, Any] = {
        "query": "fence",
        "limit": 3,
        "profile": "validity",
        "validity_annotate": True,
        "query_time_unix_ms": now_ms() + 1_000,
        "current_only": True,
        "state_debug": True,
        "tags": ["t", "n1"],
        "tags_match": "all_strict",
        "exclude_tags": ["n0"],
        "category": "c",
        "provenance_class": "candidate",
        "start": "2020-01-01",
        "end": "2099-01-01T00:00:00+02:00",
        "strategies": ["lexical"],
        "strategy_weights": {"lexical": 2.0},
        "fusion": "rrf",
        "sort": "score",
        "max_tokens": 1_000,
        "trace": True,
        "workspace": "",
    }
    spelt = {name: str(v).lower() if isinstance(v, bool) else v for name, v in asked.items()}
    status, got = api.get("/v1/recall", **{**spelt, "strategy_weights": '{"lexical": 2.0}'})
    assert status == 200, got
    posted = api.recalled(**asked)
    assert content(got) == content(posted)
    assert got["count"] == 3


def test_every_recall_leaves_a_record_and_head_and_prefetch_leave_none(api: Api) -> None:
    api.stored("fence")
    for method, headers, status, records in (
        ("GET", {}, 200, 1),
        ("HEAD", {}, 200, 0),
        ("GET", {"Sec-Purpose": "prefetch"}, 204, 0),
        ("GET", {"Sec-Purpose": "prefetch;prerender"}, 204, 0),
        ("GET", {"Purpose": "prefetch"}, 204, 0),
    ):
        before = RecallRecord.objects.count()
        response = api.raw(method, "/v1/recall?query=fence", None, **headers)
        assert response.status_code == status
        assert response.headers["Cache-Control"] == "no-store"
        assert RecallRecord.objects.count() - before == records
        assert bool(response.content) == (records == 1)
    assert api.raw("POST", "/v1/recall", {"query": "fence"}).headers["Cache-Control"] == "no-store"


def test_a_recall_changes_no_memory_link_tag_or_event(api: Api) -> None:
    before, after = api.stored("fence one", tags=["t"]), api.stored("fence two")
    api.linked(before["id"], after["id"], "EVOLVED_INTO")

    def everything() -> list[Any]:
        return [
            list(model.objects.order_by("pk").values())
            for model in (Memory, MemoryLink, MemoryTag, ContextEvent)
        ]

    kept = everything()
    for asked in ({}, {"profile": "validity"}, {"current_only": False}, {"trace": True, "state_debug": True}):
        api.recalled("fence", **asked)
    assert everything() == kept


# ------------------------------------------------------------------------------------------------------ anchors


def test_at_a_past_anchor_later_memories_and_links_are_not_seen(api: Api) -> None:
    before = api.stored("fence before", created_at="2026-01-01")["id"]
    after = api.stored("fence after", created_at="2026-03-01")["id"]
    middle = api.stored("fence middle", created_at="2026-01-10")["id"]
    api.linked(before, middle, "EVOLVED_INTO", created_at="2026-02-01T00:00:00Z")
    api.linked(middle, after, "EVOLVED_INTO", created_at="2026-03-02T00:00:00Z")

    def at(day: str) -> list[str]:
        moment = int(time.mktime(time.strptime(day, "%Y-%m-%d"))) * 1_000
        return sorted(ids_of(api.recalled("fence", query_time_unix_ms=moment)))

    assert at("2025-12-01") == []
    assert at("2026-01-05") == [before]
    assert at("2026-01-20") == sorted([before, middle])
    assert at("2026-02-10") == [middle]
    assert at("2026-03-10") == [after]


def test_the_same_question_at_the_same_anchor_has_the_same_digest(api: Api) -> None:
    aged(api)
    api.linked(*[memory["id"] for memory in api.get("/v1/memories")[1]["results"][:2]], "EVOLVED_INTO")
    at = now_ms() + 60_000
    for asked in ({}, {"profile": "validity", "state_debug": True}, {"current_only": False}):
        first = api.recalled("fence", query_time_unix_ms=at, **asked)
        again = api.recalled("fence", query_time_unix_ms=at, **asked)
        assert content(first) == content(again)
        assert digest(api, first) == digest(api, again)
    other = api.recalled("fence", query_time_unix_ms=at + DAY, validity_annotate=True)
    same = api.recalled("fence", query_time_unix_ms=at, validity_annotate=True)
    assert digest(api, other) != digest(api, same)


def test_a_digest_changes_with_the_text_and_not_with_what_was_not_served(api: Api) -> None:
    memory = api.stored("fence")["id"]
    at = now_ms() + 60_000
    asked = {"query": "fence", "workspace": "", "query_time_unix_ms": at}
    first = digest(api, api.recalled(**asked))
    api.stored("a hedge", workspace="elsewhere")
    assert digest(api, api.recalled(**asked)) == first
    api.call("PATCH", f"/v1/memories/{memory}", {"text": "fence!"})
    assert digest(api, api.recalled(**asked)) != first


# ------------------------------------------------------------------------------------------------ system fields


def test_what_a_memory_holds_cannot_overwrite_what_a_hit_says(api: Api) -> None:
    pretended: dict[str, Any] = {
        "id": "mem_forged", "rank": 0, "score": {"final": 9}, "validity": {"grade": "valid"}, "version": 99,
        "context_invalid": False, "match_type": "fused", "state_replaces": ["x"], "state": {"current": True},
        "workspace": "blue", "created_at": "2099-01-01T00:00:00Z", "archived": True, "memory": {"id": "x"},
    }  # fmt: skip
    memory = api.stored(json.dumps(pretended) + " fence", metadata=pretended, created_at="2020-01-01")
    plain = api.stored("fence", created_at="2020-01-01")
    hits = {hit["memory"]["id"]: hit for hit in api.recalled("fence", profile="validity")["results"]}
    hit, other = hits[memory["id"]], hits[plain["id"]]
    assert set(hit) == set(other)
    assert set(hit["memory"]) == set(other["memory"])
    assert hit["memory"]["metadata"] == pretended
    assert (hit["context_invalid"], hit["validity"]["grade"]) == (True, "context_invalid")
    assert (hit["memory"]["version"], hit["memory"]["workspace"], hit["memory"]["archived"]) == (1, "", False)


def test_superseded_matches_whose_replacement_is_out_of_sight_crowd_out_nothing(api: Api) -> None:
    elsewhere = api.stored("nothing of the sort", tags=["hidden"])["id"]
    rows = [{"text": "harbour rota harbour rota", "tags": ["seen"]} for _ in range(80)]
    _, done = api.post("/v1/memories/bulk", {"memories": rows})
    for entry in done["memories"]:
        api.linked(entry["id"], elsewhere, "INVALIDATED_BY")
    stands = api.stored("a rota of the harbour, as somebody once wrote it down", tags=["seen"])["id"]
    fell = api.stored("gone", archived=True)["id"]
    api.linked(stands, fell, "INVALIDATED_BY")

    answer = api.recalled("harbour rota", tags=["seen"], limit=3)

    assert [hit["memory"]["id"] for hit in answer["results"]] == [stands]
    assert answer["state_filter"]["suppressed_count"] == 80


def test_neither_end_of_a_chain_comes_back_when_its_head_is_erased(api: Api) -> None:
    first = api.stored("the gate opens at nine")["id"]
    second = api.stored("the gate opens at eight")["id"]
    third = api.stored("the gate opens at seven")["id"]
    api.linked(first, second, "EVOLVED_INTO")
    api.linked(second, third, "EVOLVED_INTO")
    api.post(f"/v1/memories/{third}/erase", {"reason": "asked for by the person it names"})

    answer = api.recalled("gate opens", state_debug=True)

    assert answer["results"] == []
    reasons = {entry["id"]: entry["reason"] for entry in answer["state_filter"]["suppressed"]}
    assert reasons == {first: "superseded", second: "replacement_erased"}
    _, listed = api.get("/v1/quality")
    assert [(f["code"], f["memory_ids"]) for f in listed["results"]] == [("replacement_erased", [second])]


def test_an_explicit_sort_is_over_all_that_match_not_over_the_most_relevant(api: Api) -> None:
    rows = [
        {
            "text": "tide table " * (1 + n % 3),
            "created_at": f"2026-01-01T{n // 60:02d}:{n % 60:02d}:00Z",
            "external_id": str(n),
        }
        for n in range(120)
    ]
    api.post("/v1/memories/bulk", {"memories": rows})

    newest = api.recalled("tide table", sort="time_desc", limit=3)["results"]
    oldest = api.recalled("tide table", sort="time_asc", limit=3)["results"]

    assert [hit["memory"]["external_id"] for hit in newest] == ["119", "118", "117"]
    assert [hit["memory"]["external_id"] for hit in oldest] == ["0", "1", "2"]


def test_the_list_of_memories_never_names_a_replacement_outside_its_filters(api: Api) -> None:
    old = api.stored("old rate", tags=["seen"])["id"]
    new = api.stored("new rate", tags=["unseen"])["id"]
    api.linked(old, new, "INVALIDATED_BY")

    _, listed = api.get("/v1/memories", tags="seen", state="all")
    _, everything = api.get("/v1/memories", state="all")

    assert listed["results"][0]["state"] == {"current": False, "reason": "superseded"}
    assert {m["id"]: m["state"].get("replacement_id") for m in everything["results"]} == {old: new, new: None}
