"""The strategies, as recall shows them: what each finds, why, what it counts, and what it leaves alone.

Every test runs on both engines.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import pytest
from django.test import override_settings

from vault import vectors

Api = Any

DAY = 86_400_000
QUESTION = "How much do we pay for hosting?"
PARAPHRASE = "The servers cost 40 euros a month"
UNRELATED = "The cat likes tuna"


@pytest.fixture(autouse=True, params=["resident", "sqlite"])
def _engine(request: pytest.FixtureRequest) -> Iterator[None]:
    with override_settings(RECALL_INDEX=request.param):
        yield


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def days_ago(days: float) -> int:
    return now_ms() - int(days * DAY)


def placed(api: Api, query: str, **asked: Any) -> dict[str, dict[str, Any]]:
    """Where each hit came from: the trace's placement, by text."""
    answer = api.recalled(query, trace=True, **asked)
    texts = {hit["memory"]["id"]: hit["memory"]["text"] for hit in answer["results"]}
    return {texts[place["id"]]: place for place in answer["fused_trace"]["placement"]}


def reasons(place: dict[str, Any]) -> dict[str, str]:
    return {name: source["reason"] for name, source in place["sources"].items()}


def linked_pair(api: Api, type_: str, **fields: Any) -> tuple[str, str]:
    """A memory that answers the question, joined to one that has nothing to do with it."""
    seed, end = api.stored(PARAPHRASE)["id"], api.stored(UNRELATED, **fields)["id"]
    api.linked(seed, end, type_)
    return seed, end


# ------------------------------------------------------------------------------------------------------- dense


def test_a_paraphrase_that_shares_no_word_is_found_by_meaning(api: Api) -> None:
    api.stored(PARAPHRASE)
    api.stored(UNRELATED)
    for mode in ("dense", "hybrid", "fused"):
        assert api.texts(QUESTION, mode=mode) == [PARAPHRASE]
    assert api.texts(QUESTION, mode="lexical") == []


def test_a_bulk_write_is_partly_recallable_at_once_and_wholly_when_its_vectors_are_made(api: Api) -> None:
    rows = [{"text": PARAPHRASE}, {"text": "The hosting is paid by Ada"}, {"text": UNRELATED}]
    assert api.post("/v1/memories/bulk", {"memories": rows})[1]["created"] == 3
    for mode in ("fused", "hybrid", "dense"):
        outcome = api.recalled(QUESTION, mode=mode)["outcome"]
        assert outcome == {
            "status": "partial",
            "reason": "3 memories have no vector yet, and can be found by words only",
        }
    assert api.texts(QUESTION) == ["The hosting is paid by Ada"]
    assert api.recalled(QUESTION, mode="lexical")["outcome"]["status"] == "fresh"

    assert sum(vectors.embed_missing(vectors.installed())) == 3

    answer = api.recalled(QUESTION)
    assert answer["outcome"] == {"status": "fresh", "reason": None}
    assert {hit["memory"]["text"] for hit in answer["results"]} == {PARAPHRASE, "The hosting is paid by Ada"}
    assert sum(vectors.embed_missing(vectors.installed())) == 0


def test_one_memory_without_its_vector_is_told_in_the_singular_and_elsewhere_not_at_all(api: Api) -> None:
    api.post("/v1/memories/bulk", {"memories": [{"text": PARAPHRASE, "workspace": "red"}]})
    api.stored("We pay Ada", workspace="blue")
    told = api.recalled("pay", workspace="red")["outcome"]
    assert told["reason"] == "1 memory has no vector yet, and can be found by words only"
    assert api.recalled("pay", workspace="blue")["outcome"]["status"] == "fresh"


def test_a_text_that_changed_is_found_by_its_new_meaning_and_no_longer_by_its_old(api: Api) -> None:
    memory = api.stored(PARAPHRASE)["id"]
    api.call("PATCH", f"/v1/memories/{memory}", {"text": UNRELATED})
    assert api.texts(QUESTION, mode="dense") == []
    assert api.texts("What does the kitten eat?", mode="dense") == [UNRELATED]


# ----------------------------------------------------------------------------------------------------- reasons


def test_each_source_of_a_hit_says_why(api: Api) -> None:
    at = now_ms() // 1000 * 1000
    words = api.stored("the pump of the harbour", created_at_unix_ms=at - 12 * DAY)["id"]
    near = api.stored("its valve was ordered", created_at_unix_ms=at - DAY)["id"]
    api.linked(words, near, "RELATES_TO")
    span = {"start": at_text(at - 10 * DAY), "end": at_text(at)}
    places = placed(api, "harbour pump", temporal=span)
    first, second = places["the pump of the harbour"], places["its valve was ordered"]
    assert reasons(first) == {
        "lexical": "matched harbour, pump",
        "dense": f"cosine {first['cosine']:.2f}",
        "temporal": "written 2 days from the named time",
    }
    assert reasons(second)["links"] == f"RELATES_TO of {words}"
    assert reasons(second)["temporal"] == "written in the named time"
    assert first["words"] == pytest.approx(first["sources"]["lexical"]["score"])
    assert first["cosine"] == pytest.approx(first["sources"]["dense"]["score"])
    assert second["words"] == 0.0


def at_text(unix_ms: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(unix_ms / 1000))


def test_the_record_keeps_the_reasons_of_every_candidate(api: Api) -> None:
    seed, end = linked_pair(api, "RELATES_TO")
    answer = api.recalled(QUESTION, limit=1)
    _, record = api.get(f"/v1/recalls/{answer['recall_id']}")
    kept = {candidate["id"]: candidate for candidate in record["candidates"]}
    assert kept[seed]["strategies"]["dense"] == [
        1,
        kept[seed]["cosine"],
        f"cosine {kept[seed]['cosine']:.2f}",
    ]
    assert kept[end]["strategies"]["links"][2] == f"RELATES_TO of {seed}"
    assert kept[end]["verdict"] == "below_limit"


# ----------------------------------------------------------------------------------------------------- weights


def test_a_weight_of_nothing_switches_the_influence_of_words_or_of_meaning_off(api: Api) -> None:
    by_words = "Ada is hosting much of the party"
    others = ["Mount Everest is high", "Violins have four strings", "Tomatoes ripen in August"]
    for text in (by_words, PARAPHRASE, *others):  # a word that half of the texts hold would tell nothing
        api.stored(text)
    assert api.texts(QUESTION, strategy_weights={"dense": 0})[0] == by_words
    assert api.texts(QUESTION, strategy_weights={"lexical": 0})[0] == PARAPHRASE
    fused = recorded(api, api.recalled(QUESTION, strategy_weights={"dense": 0}), "fused")
    assert fused[PARAPHRASE] == 0.0 < fused[by_words]


def recorded(api: Api, answer: dict[str, Any], fact: str) -> dict[str, Any]:
    """What the record says of each candidate, by text."""
    _, record = api.get(f"/v1/recalls/{answer['recall_id']}")
    return {
        api.get(f"/v1/memories/{candidate['id']}")[1]["text"]: candidate[fact]
        for candidate in record["candidates"]
    }


@pytest.mark.parametrize("fusion", ["score", "rrf"])
def test_a_weight_of_nothing_switches_the_influence_of_links_and_of_time_off(api: Api, fusion: str) -> None:
    linked_pair(api, "RELATES_TO")
    asked = {"temporal": {"start": "2020-01-01"}, "fusion": fusion}
    with_all = placed(api, QUESTION, **asked)
    without = placed(api, QUESTION, strategies=["lexical", "dense"], **asked)
    weightless = placed(api, QUESTION, strategy_weights={"graph": 0, "temporal": 0}, **asked)
    assert set(weightless) == set(with_all) == {PARAPHRASE, UNRELATED}
    assert weightless[PARAPHRASE]["fused"] == without[PARAPHRASE]["fused"] < with_all[PARAPHRASE]["fused"]
    assert weightless[UNRELATED]["fused"] < with_all[UNRELATED]["fused"]


def test_only_the_strategies_that_were_named_are_asked(api: Api) -> None:
    seed = api.stored("hosting is paid monthly")["id"]
    api.stored(PARAPHRASE)
    end = api.stored(UNRELATED)["id"]
    api.linked(seed, end, "RELATES_TO")
    answer = api.recalled("hosting paid", strategies=["graph", "lexical"], trace=True)
    assert {hit["memory"]["id"]: set(hit["sources"]) for hit in answer["results"]} == {
        seed: {"lexical"},
        end: {"links"},
    }
    assert {hit["match_type"] for hit in answer["results"]} == {"fused"}
    assert set(answer["fused_trace"]["strategies"]) == {"lexical", "links"}
    assert answer["mode"] == "fused"


def test_what_matches_less_than_half_as_well_as_the_best_is_left_out_and_says_so(api: Api) -> None:
    strong, weak = "the pump runs at the pressure of forty bar", "valve seals were ordered"
    for text in (strong, weak):
        api.stored(text)
    question = "pump pressure in bar"
    answer = api.recalled(question, profile="validity")
    assert [hit["memory"]["text"] for hit in answer["results"]] == [strong]
    assert api.texts(question) == [strong, weak], "where validity changes no order, noise only comes last"
    verdicts, details = recorded(api, answer, "verdict"), recorded(api, answer, "detail")
    assert (verdicts[weak], details[weak]) == ("filtered", "matches less than half as well as the best")
    assert api.texts(question, mode="dense", profile="validity") == [strong, weak], (
        "a strategy alone keeps all"
    )
    assert api.texts(question, fusion="rrf", profile="validity") == [strong, weak], (
        "ranks tell nothing of how well"
    )
    assert set(api.texts(question, sort="time_asc", profile="validity")) == {strong, weak}, "nor does time"


def test_a_replacement_is_no_noise_where_what_it_replaced_is_none(api: Api) -> None:
    api.stored("harbour")
    long = api.stored(
        "the minutes of the meeting with the port authority mention the harbour once among many other matters"
    )["id"]
    assert len(api.texts("harbour", profile="validity")) == 2
    new = api.stored("velvet zzz")["id"]
    api.linked(long, new, "EVOLVED_INTO")
    answer = api.recalled("harbour", profile="validity")
    assert new in [hit["memory"]["id"] for hit in answer["results"]]


# ------------------------------------------------------------------------------------------------------- links


@pytest.mark.parametrize("type_", ["RELATES_TO", "CONTRADICTS", "PART_OF"])
def test_a_link_brings_in_what_it_joins_from_either_end(api: Api, type_: str) -> None:
    seed, end = linked_pair(api, type_)
    assert reasons(placed(api, QUESTION)[UNRELATED]) == {"links": f"{type_} of {seed}"}
    backwards = placed(api, "What does the kitten eat?")
    assert reasons(backwards[PARAPHRASE]) == {"links": f"{type_} {end}"}
    assert api.texts(QUESTION, mode="links") == [UNRELATED]
    assert api.texts(QUESTION, mode="graph") == [UNRELATED]


def test_links_are_followed_two_steps_and_no_further_and_fade(api: Api) -> None:
    texts = [PARAPHRASE, UNRELATED, "Mount Everest is high", "Violins have four strings"]
    ids = [api.stored(text)["id"] for text in texts]
    for source, target in pairwise(ids):
        api.linked(source, target, "LEADS_TO")
    places = placed(api, QUESTION)
    assert list(places) == texts[:3]
    assert reasons(places[texts[2]])["links"] == f"LEADS_TO of {ids[0]}, and LEADS_TO from there"
    assert places[texts[2]]["sources"]["links"]["score"] == pytest.approx(
        places[texts[1]]["sources"]["links"]["score"] / 2
    )


def test_a_weak_hit_is_no_place_to_follow_links_from(api: Api) -> None:
    weak = api.stored("valve seals were ordered")["id"]
    end = api.stored(UNRELATED)["id"]
    api.linked(weak, end, "RELATES_TO")
    places = placed(api, "pump pressure")
    assert set(places) == {"valve seals were ordered"}
    assert 0.2 <= places["valve seals were ordered"]["cosine"] < 0.4


def test_in_the_history_view_replacing_links_are_followed_too(api: Api) -> None:
    before, after = linked_pair(api, "EVOLVED_INTO")
    history = placed(api, QUESTION, current_only=False)
    assert reasons(history[UNRELATED]) == {"links": f"EVOLVED_INTO of {before}"}
    backwards = placed(api, "What does the kitten eat?", current_only=False)
    assert reasons(backwards[PARAPHRASE]) == {"links": f"EVOLVED_INTO {after}"}

    current = api.recalled(QUESTION, trace=True)
    (hit,) = current["results"]
    assert (hit["memory"]["id"], hit["match_type"], hit["sources"]) == (after, "state_replacement", {})
    assert api.texts("What does the kitten eat?") == [UNRELATED], (
        "an old memory is not brought back by its link"
    )


def test_a_link_leads_to_nothing_that_is_not_current_or_outside_the_filters(api: Api) -> None:
    _, expired = linked_pair(api, "RELATES_TO", t_invalid="2026-01-01")
    answer = api.recalled(QUESTION, state_debug=True)
    assert [hit["memory"]["text"] for hit in answer["results"]] == [PARAPHRASE]
    assert answer["state_filter"]["suppressed"] == [{"id": expired, "reason": "expired"}]
    filtered = api.recalled(QUESTION, start="2020-01-01", exclude_tags=["x"], category="a", trace=True)
    assert filtered["results"] == []


def test_a_way_through_what_the_filters_hide_does_not_name_it(api: Api) -> None:
    seed = api.stored(PARAPHRASE, tags=["seen"])["id"]
    hidden = api.stored("Mount Everest is high", tags=["hidden"])["id"]
    end = api.stored(UNRELATED, tags=["seen"])["id"]
    api.linked(seed, hidden, "RELATES_TO")
    api.linked(hidden, end, "RELATES_TO")
    answer = api.recalled(QUESTION, tags=["seen"], trace=True, state_debug=True, profile="validity")
    assert hidden not in json.dumps(answer)


def test_a_reason_names_no_memory_that_was_suppressed(api: Api) -> None:
    gone = api.stored(PARAPHRASE, t_invalid="2026-01-01")["id"]
    end = api.stored(UNRELATED)["id"]
    api.linked(gone, end, "RELATES_TO")
    assert gone not in json.dumps(api.recalled(QUESTION, trace=True, profile="validity"))


# ---------------------------------------------------------------------------------------------------- temporal


def two_fences(api: Api) -> tuple[str, str]:
    """The same text twice, of 100 days ago and of now."""
    old = api.stored("the fence was painted", created_at_unix_ms=days_ago(100))["id"]
    new = api.stored("the fence was painted", created_at_unix_ms=days_ago(0))["id"]
    return old, new


def test_bounds_prefer_a_time_and_neither_filter_nor_count(api: Api) -> None:
    old, new = two_fences(api)
    api.stored("the fence was painted", t_invalid="2026-01-01")
    plain = api.recalled("painted fence", trace=True)
    for (start, end), first in (((110, 90), old), ((10, -1), new)):
        span = {"start": at_text(days_ago(start)), "end": at_text(days_ago(end))}
        answer = api.recalled("painted fence", temporal=span, trace=True)
        ids = [hit["memory"]["id"] for hit in answer["results"]]
        assert (ids[0], set(ids)) == (first, {old, new})
        assert answer["state_filter"] == plain["state_filter"]
        assert answer["outcome"] == plain["outcome"]
        for name in ("fuse", "state"):
            assert stage(answer, name) == stage(plain, name)


def stage(answer: dict[str, Any], name: str) -> dict[str, Any]:
    return next(one for one in answer["fused_trace"]["stages"] if one["stage"] == name)


def test_bounds_bring_in_nothing_that_only_was_written_then(api: Api) -> None:
    api.stored(UNRELATED)
    answer = api.recalled(QUESTION, temporal={"start": "2020-01-01"})
    assert answer["outcome"] == {"status": "empty", "reason": "no memory in scope matches"}


def test_a_phrase_names_a_time_as_bounds_do_and_bounds_overrule_it(api: Api) -> None:
    old, new = two_fences(api)
    at = now_ms() + 60_000
    assert api.recalled("painted fence today", query_time_unix_ms=at)["results"][0]["memory"]["id"] == new
    long_ago = {"start": at_text(days_ago(110)), "end": at_text(days_ago(90))}
    overruled = api.recalled("painted fence today", query_time_unix_ms=at, temporal=long_ago)
    assert overruled["results"][0]["memory"]["id"] == old


def test_by_time_alone_what_was_written_nearest_comes_first(api: Api) -> None:
    for days in (3, 40, 12):
        api.stored(f"note of {days} days ago", created_at_unix_ms=days_ago(days))
    span = {"start": at_text(days_ago(5)), "end": at_text(days_ago(0))}
    answer = api.recalled("anything", mode="temporal", temporal=span)
    assert [hit["memory"]["text"] for hit in answer["results"]] == [
        "note of 3 days ago",
        "note of 12 days ago",
    ]
    assert [hit["sources"] for hit in answer["results"]] == [{"temporal": 1}, {"temporal": 2}]
    assert {hit["match_type"] for hit in answer["results"]} == {"temporal"}
    assert api.texts("what happened three days ago?", mode="temporal")[0] == "note of 3 days ago"


def test_by_time_alone_a_question_that_names_none_finds_nothing(api: Api) -> None:
    api.stored("anything at all")
    answer = api.recalled("anything at all", mode="temporal")
    reason = "the question names no time, or nothing was written near it"
    assert answer["outcome"] == {"status": "empty", "reason": reason}


def test_links_alone_say_when_there_was_nothing_to_start_from(api: Api) -> None:
    with override_settings(RECALL_EMBEDDER="engines_for_tests.EmbedderThatIsDown"):
        api.stored("hosting is paid monthly")
        assert api.recalled("rent of servers", mode="links")["outcome"]["status"] == "partial"
    assert api.recalled("rent of servers", mode="links")["outcome"]["status"] == "partial", "no vector yet"


# ---------------------------------------------------------------------------------------------- what is missing


@pytest.fixture
def _down() -> Iterator[None]:
    with override_settings(RECALL_EMBEDDER="engines_for_tests.EmbedderThatIsDown"):
        yield


@pytest.mark.usefixtures("_down")
def test_without_its_embedder_recall_says_what_could_not_look(api: Api) -> None:
    api.stored("hosting is paid monthly")
    for mode in ("fused", "hybrid"):
        answer = api.recalled("hosting", mode=mode)
        assert answer["count"] == 1
        assert answer["outcome"]["status"] == "partial"
        assert answer["outcome"]["reason"] == "dense could not look: the model's server is down"
    alone = api.recalled("hosting", mode="dense")
    assert alone["outcome"] == {
        "status": "unavailable",
        "reason": "dense could not look: the model's server is down",
    }
    assert alone["results"] == []
    words = api.recalled("hosting", mode="lexical")
    assert (words["count"], words["outcome"]) == (1, {"status": "fresh", "reason": None})


def test_what_was_written_while_the_embedder_was_down_gets_its_vector_later(api: Api) -> None:
    with override_settings(RECALL_EMBEDDER="engines_for_tests.EmbedderThatIsDown"):
        api.stored(PARAPHRASE)
    assert api.recalled(QUESTION)["outcome"]["status"] == "partial"
    assert sum(vectors.embed_missing(vectors.installed())) == 1
    assert api.texts(QUESTION) == [PARAPHRASE]


@override_settings(EMBED_DEADLINE_MS=0)
def test_a_write_whose_vector_is_late_is_stored_all_the_same_and_found_by_its_words(api: Api) -> None:
    api.stored("hosting is paid monthly")
    answer = api.recalled("hosting")
    assert (answer["count"], answer["outcome"]["status"]) == (1, "partial")
    assert sum(vectors.embed_missing(vectors.installed())) == 1
    assert api.recalled("hosting")["outcome"]["status"] == "fresh"


# ------------------------------------------------------------------------------------------------------- rerank


@override_settings(RECALL_RERANKER="engines_for_tests.ShortestFirst")
def test_a_reranker_orders_the_pool_on_its_own_scale_and_validity_still_comes_after_it(api: Api) -> None:
    for text in ("a fence, and more", "fence", "a fence, and much more"):
        api.stored(text)
    api.stored("fence", created_at="2020-01-01")
    answer = api.recalled("fence", rerank=True, trace=True)
    assert [hit["memory"]["text"] for hit in answer["results"]] == [
        *("fence", "fence", "a fence, and more", "a fence, and much more")
    ]
    assert [hit["score"]["base"] for hit in answer["results"]] == [1 / 5, 1 / 5, 1 / 17, 1 / 22]
    assert stage(answer, "rerank")["ran"]
    judged = api.recalled("fence", rerank=True, profile="validity")["results"]
    assert [hit["memory"]["created_at"][:4] == "2020" for hit in judged][-1], "a reranker pins nothing"
    assert all(hit["score"]["base"] == 1 / len(hit["memory"]["text"]) for hit in judged)
    _, record = api.get(f"/v1/recalls/{answer['recall_id']}")
    assert record["reranker"] == "shortest-first"
    assert not stage(api.recalled("fence", trace=True), "rerank")["ran"], "off unless it is asked for"


@override_settings(RECALL_RERANKER="engines_for_tests.ShortestFirst")
def test_a_reranker_sees_twenty_and_the_rest_say_so(api: Api) -> None:
    for number in range(25):
        api.stored(f"fence {number}")
    answer = api.recalled("fence", rerank=True, limit=20)
    _, record = api.get(f"/v1/recalls/{answer['recall_id']}")
    beyond = [c for c in record["candidates"] if c["detail"] == "beyond the 20 that were reranked"]
    assert (answer["count"], len(beyond)) == (20, 5)
    assert all(candidate["reranked"] is None for candidate in beyond)


@override_settings(RECALL_RERANKER="engines_for_tests.RerankerThatIsDown")
def test_a_reranker_that_is_down_is_warned_of_and_changes_nothing(api: Api) -> None:
    for number in range(3):
        api.stored(f"fence {number}")
    answer = api.recalled("fence", rerank=True)
    assert [warning["code"] for warning in answer["warnings"]] == ["rerank_unavailable"]
    assert [hit["memory"]["id"] for hit in answer["results"]] == [
        hit["memory"]["id"] for hit in api.recalled("fence")["results"]
    ]


# --------------------------------------------------------------------------------------------------- workspaces


@pytest.mark.parametrize("mode", ["fused", "lexical", "dense", "hybrid", "links", "temporal"])
def test_no_strategy_shows_or_counts_another_workspace(
    api: Api, api_for: Callable[..., Api], mode: str
) -> None:
    ours = [api.stored(text, workspace="red")["id"] for text in (PARAPHRASE, UNRELATED)]
    theirs = [api.stored(text, workspace="blue")["id"] for text in (PARAPHRASE, UNRELATED)]
    for ids in (ours, theirs):
        api.linked(*ids, "RELATES_TO")
    api.post("/v1/memories/bulk", {"memories": [{"text": QUESTION, "workspace": "blue"}]})
    asked: dict[str, Any] = {"mode": mode, "trace": True, "state_debug": True, "profile": "validity"}
    for key, scope in ((api_for("read", workspace="red"), {}), (api, {"workspace": "red"})):
        answer = key.recalled(QUESTION, temporal={"start": "2020-01-01"}, **scope, **asked)
        _, record = key.get(f"/v1/recalls/{answer['recall_id']}")
        shown = json.dumps([answer, record])
        assert not [id_ for id_ in theirs if id_ in shown]
        assert answer["outcome"]["status"] == ("empty" if mode == "lexical" else "fresh")
        assert {hit["memory"]["id"] for hit in answer["results"]} <= set(ours)
