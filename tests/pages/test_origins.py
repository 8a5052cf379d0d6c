"""A record's page says where each hit came from, from real records of every kind and of both layouts."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from html import unescape
from typing import Any

import orjson
import pytest
from django.contrib.auth import get_user_model
from django.test import Client, override_settings
from zstandard import ZstdCompressor

from ledger.domain.instants import DAY, UnixMs
from recall.batches import recall_batch
from recall.models import RecallRecord
from recall.pages.origins import Strategy, ordinal, strategies_of
from recall.projections import project
from recall.records import read
from recall.services import recall
from recall.shapes import BatchBody, ProjectionBody, RecallBody, parse
from vault.models import Memory, MemoryLink
from vault.services import Caller, remember_many

pytestmark = pytest.mark.django_db
Remember = Callable[..., Memory]
Link = Callable[..., MemoryLink]


@pytest.fixture
def operator(client: Client) -> Client:
    client.force_login(get_user_model().objects.create_superuser("operator"))
    return client


@pytest.fixture
def ask(caller: Caller, now: UnixMs) -> Callable[..., str]:
    """`ask("a question", mode="lexical")`: the id of its record."""

    def asked(query: str, **arguments: Any) -> str:
        request = parse(RecallBody, {"query": query, "profile": "validity", **arguments}).request()
        recall_id: str = recall(request, caller=caller, surface="api", at=now)["recall_id"]
        return recall_id

    return asked


def shown(client: Client, address: str) -> str:
    """The words of a page, with what markup put between them as one blank."""
    response = client.get(address)
    assert response.status_code == 200, address
    main = response.content.decode().split('<main id="main"')[1]
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]+>", " ", main)))


def hit_of(client: Client, recall_id: str, memory: Memory) -> str:
    """The address of the page of the hit that a memory was."""
    stored = read(RecallRecord.objects.get(id=recall_id))
    (rank,) = (hit["rank"] for hit in stored.hits if hit["memory"]["id"] == memory.id)
    return f"/recalls/{recall_id}/hits/{rank}/"


# ------------------------------------------------------------------------------------------------ of a hit


def test_a_hit_names_the_strategies_that_found_it_with_rank_and_reason(
    operator: Client, remember: Remember, ask: Callable[..., str]
) -> None:
    remember("The portfolio outline goes to the reviewer first")
    page = shown(operator, f"/recalls/{ask('outline reviewer')}/")
    assert "Words rank 1 · matched outline, reviewer" in page
    assert re.search(r"Meaning rank 1 · cosine 0\.\d\d", page)


def test_what_a_link_brought_in_names_the_memory_it_hangs_on_and_where_that_stands(
    operator: Client, remember: Remember, link: Link, ask: Callable[..., str]
) -> None:
    seed = remember("Granite quarry permit expires in spring")
    brought = remember("Zebra stripes differ between herds")
    link(seed, brought, "RELATES_TO")
    recall_id = ask("granite quarry permit")

    page = operator.get(f"/recalls/{recall_id}/").content.decode()
    assert f'RELATES_TO of <a class="mono" href="/memories/{seed.id}/">{seed.id}</a> (hit 1)' in page
    told = shown(operator, hit_of(operator, recall_id, brought))
    assert "A link joins it to a strong match: RELATES_TO of" in told
    assert "The link leads from “ Granite quarry permit expires in spring ”, which is hit 1." in told


def test_a_named_time_is_told_as_the_distance_from_it(
    operator: Client, remember: Remember, ask: Callable[..., str], now: UnixMs
) -> None:
    memory = remember("The boiler was serviced", created_at=now - 7 * DAY)
    recall_id = ask("boiler serviced last week")
    assert "Time rank 1 · written in the named time" in shown(operator, f"/recalls/{recall_id}/")
    told = shown(operator, hit_of(operator, recall_id, memory))
    assert "It was written in the named time: 1st of 1 by time." in told


def test_a_hit_is_told_from_its_words_to_its_final_score(
    operator: Client, remember: Remember, ask: Callable[..., str]
) -> None:
    memory = remember("The portfolio outline goes to the reviewer first", workspace="red")
    recall_id = ask("portfolio outline", workspace="red")
    (row,) = read(RecallRecord.objects.get(id=recall_id)).candidates
    told = shown(operator, hit_of(operator, recall_id, memory))
    assert "It matched portfolio, outline: 1st of 1 by words." in told
    assert f"words {row['words']:.3f}, meaning {row['cosine']:.3f} gave {row['fused']:.3f}." in told
    assert "It stood at place 1 of 1 then, which makes the base 1.000." in told
    assert f"which makes the final score {row['final']:.3f}" in told
    assert "It was served as hit 1 of 1, graded valid: No negative signal." in told


def test_what_stands_in_place_of_another_says_whose_match_it_has(
    operator: Client, remember: Remember, link: Link, ask: Callable[..., str]
) -> None:
    old = remember("The heron is the primary database host")
    new = remember("Ask the wiki")
    link(old, new, "EVOLVED_INTO")
    recall_id = ask("primary database host heron")
    assert "No search found it: it stands in place of what it replaces." in shown(
        operator, f"/recalls/{recall_id}/"
    )
    told = shown(operator, hit_of(operator, recall_id, new))
    assert "It stands where “ The heron is the primary database host ” stood" in told
    assert "That one was found by words (matched primary, database, host, heron)" in told


# ------------------------------------------------------------------------------------------------ of a recall


def test_the_page_tells_what_each_strategy_found_and_what_each_stage_left(
    operator: Client, remember: Remember, link: Link, ask: Callable[..., str]
) -> None:
    old, new = remember("The pump runs at forty bar"), remember("The pump runs at fifty bar")
    link(old, new, "EVOLVED_INTO")
    page = shown(operator, f"/recalls/{ask('pump bar')}/")
    assert "2 by words, 2 by meaning: 2 memories in all, 1 not current; 1 served." in page
    for line in (
        "Words lexical 2 1",
        "Meaning dense 2 1",
        "Links links 0 1",
        "Retrieve 4 found",
        "Fuse 2 different memories, ordered by score",
        "State 1 taken out as not current, 1 stays",
        "Rerank not asked for",
        "Validity ordered by base × multiplier",
        "Limit the first 10",
        "Budget no token budget, 1 served",
        "Reranker none",
    ):
        assert line in page
    stored = read(RecallRecord.objects.latest("seq"))
    assert f"Text index {stored.document['index']['lexical']}" in page
    assert f"Embedding model {stored.document['embedder']}" in page


def test_a_weak_match_says_why_it_was_left_out(
    operator: Client, remember: Remember, ask: Callable[..., str]
) -> None:
    remember("Granite quarry permit expires in spring")
    remember("Permit for the parking of lorries at night beside the harbour wall")
    recall_id = ask("granite quarry permit expires in spring")
    page = shown(operator, f"/recalls/{recall_id}/")
    assert "Matches less than half as well as the best" in page
    assert "Weak matches 1" in page
    assert "1 left out as weak, 1 stays" in page


def test_a_partial_answer_says_how_much_could_not_be_looked_at(
    operator: Client, caller: Caller, ask: Callable[..., str], now: UnixMs
) -> None:
    remember_many([({"text": f"pump {n} runs"}, "") for n in range(12)], caller=caller, at=now)
    page = shown(operator, f"/recalls/{ask('pump runs')}/")
    assert "Partial: not everything could be looked at" in page
    assert "12 memories have no vector yet, and can be found by words only." in page
    overview = shown(operator, "/")
    assert "1 of the recalls (100.0%) answered partially" in overview
    assert "Partial" in shown(operator, "/recalls/?outcome=partial")


def test_nothing_is_said_of_partial_answers_where_there_were_none(
    operator: Client, remember: Remember, ask: Callable[..., str]
) -> None:
    remember("The pump runs at forty bar")
    ask("pump")
    assert "answered partially" not in shown(operator, "/")


def test_a_strategy_that_could_not_look_says_so(
    operator: Client, remember: Remember, ask: Callable[..., str]
) -> None:
    remember("The pump runs at forty bar")
    with override_settings(RECALL_EMBEDDER="engines_for_tests.EmbedderThatIsDown"):
        recall_id = ask("pump")
        alone = ask("pump", mode="dense")
    page = shown(operator, f"/recalls/{recall_id}/")
    assert "Meaning dense could not look" in page
    assert "Dense could not look: the model's server is down." in page
    assert "Unavailable: nothing could be looked at" in shown(operator, f"/recalls/{alone}/")


def test_fusion_by_ranks_draws_no_match_and_says_so(
    operator: Client, remember: Remember, ask: Callable[..., str]
) -> None:
    memory = remember("The pump runs at forty bar")
    recall_id = ask("pump bar", fusion="rrf")
    (row,) = read(RecallRecord.objects.get(id=recall_id)).candidates
    told = shown(operator, hit_of(operator, recall_id, memory))
    assert f"Fused by ranks alone (rrf): {row['fused']:.3f}." in told
    assert "Match, 0 to 1" not in told


def test_words_alone_are_told_as_words_alone(
    operator: Client, remember: Remember, ask: Callable[..., str]
) -> None:
    memory = remember("The pump runs at forty bar")
    recall_id = ask("pump bar", mode="lexical")
    page = shown(operator, f"/recalls/{recall_id}/")
    assert "1 by words: 1 memory in all; 1 served." in page
    assert "Meaning" not in page
    assert "Embedding model not used" in page
    told = shown(operator, hit_of(operator, recall_id, memory))
    assert "Validity was told and not applied to the order." in told


def test_a_reranked_hit_begins_from_the_rerankers_score(
    operator: Client, remember: Remember, ask: Callable[..., str]
) -> None:
    remember("The pump runs at forty bar")
    short = remember("pump at bar")
    with override_settings(RECALL_RERANKER="engines_for_tests.ShortestFirst"):
        recall_id = ask("pump bar", rerank=True)
    page = shown(operator, f"/recalls/{recall_id}/")
    assert "Reranker shortest-first" in page
    assert "Rerank the first 2 by the reranker's scores" in page
    told = shown(operator, hit_of(operator, recall_id, short))
    assert f"The reranker gave {1 / 11:.3f}, which is the base." in told


def test_what_the_trace_says_beside_is_told_too() -> None:
    class Traced:
        document: Mapping[str, Any] = {"request": {"query": "q", "strategies": ["dense"]}}
        answer: Mapping[str, Any] = {
            "outcome": {"reason": None},
            "fused_trace": {
                "strategies": {
                    "dense": {"candidates": 3, "weight": 1.0, "time_ms": 2.0, "exact": False, "shards": 4}
                }
            },
        }

    assert strategies_of(Traced(), []) == [
        Strategy("dense", "Meaning", 3, 1.0, 2.0, ["approximate", "shards 4"])
    ]  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------------------ other records


def test_a_fused_batch_names_its_questions_and_links_their_records(
    operator: Client, remember: Remember, caller: Caller, now: UnixMs
) -> None:
    remember("The pump runs at forty bar")
    body = {"queries": [{"query": "pump"}, {"query": "forty bar"}], "fuse": True}
    answer = recall_batch(parse(BatchBody, body).request(), caller=caller, surface="api", at=now)
    html = operator.get(f"/recalls/{answer['recall_id']}/").content.decode()
    assert all(f'href="/recalls/{id_}/"' in html for id_ in answer["queries"])
    page = shown(operator, f"/recalls/{answer['recall_id']}/")
    assert "One answer out of 2 questions" in page
    assert "Query 0 rank 1" in page
    assert "Batch" in shown(operator, "/recalls/")
    assert "Found by query 1, with the score" in shown(operator, f"/recalls/{answer['recall_id']}/hits/1/")


def test_a_projection_shows_its_lists_under_their_names(
    operator: Client, remember: Remember, link: Link, caller: Caller, now: UnixMs
) -> None:
    old, new = remember("The pump runs at forty bar"), remember("The pump runs at fifty bar")
    link(old, new, "EVOLVED_INTO")
    remember("The archive is in the loft", created_at=now - 60 * DAY)
    body = {"task": "service the pump", "max_tokens": 500, "include_history": True}
    answer = project(parse(ProjectionBody, body).request(), caller=caller, surface="api", at=now)
    page = shown(operator, f"/recalls/{answer['recall_id']}/")
    assert [page.index(f" {name} Rank") for name in ("Current", "Stale", "History")] == sorted(
        page.index(f" {name} Rank") for name in ("Current", "Stale", "History")
    )
    assert f"Tokens {answer['tokens']['spent']} of 500" in page
    assert "Projection" in shown(operator, "/recalls/")
    for place in range(1, 4):
        assert operator.get(f"/recalls/{answer['recall_id']}/hits/{place}/").status_code == 200


def in_layout_1(recall_id: str) -> str:
    """The same recall as the first layout held it: no reasons, no measures, no reranker; gives its id."""
    row = RecallRecord.objects.get(id=recall_id)
    document = read(row).document
    document["version"] = 1
    document["embedder"] = None
    del document["reranker"]
    columns = document["candidates"]
    for name in ("words", "cosine", "reranked"):
        del columns[name]
    columns["strategies"] = [
        {name: seen[:2] for name, seen in found.items() if name == "lexical"}
        for found in columns["strategies"]
    ]
    document["request"]["strategies"] = ["lexical"]
    document["answer"].pop("fused_trace")
    kept = {f.name: getattr(row, f.attname) for f in row._meta.concrete_fields if f.name not in ("seq", "id")}
    kept |= {"scope": row.scope, "replay_of": None}
    old = RecallRecord(id=f"{recall_id[:-4]}0000", **kept)
    old.document = ZstdCompressor().compress(orjson.dumps(document))
    old.save()
    return old.id


def test_a_record_of_the_first_layout_still_shows_what_it_holds_and_claims_no_more(
    operator: Client, remember: Remember, link: Link, ask: Callable[..., str]
) -> None:
    old, new = remember("The pump runs at forty bar"), remember("The pump runs at fifty bar")
    link(old, new, "EVOLVED_INTO")
    recall_id = in_layout_1(ask("pump bar"))
    page = shown(operator, f"/recalls/{recall_id}/")
    assert re.search(r"Words rank 1 · score 0\.\d+", page)
    assert "Embedding model none" in page
    assert "Match, 0 to 1" not in page
    told = shown(operator, f"/recalls/{recall_id}/hits/1/")
    assert re.search(r"Found by words, with the score 0\.\d+: \d\w\w of 2\.", told)
    assert "It stood at place 1 of 1 then, which makes the base 1.000." in told
    assert operator.get(f"/recalls/{recall_id}/left-out/").status_code == 200


def test_everything_left_out_has_a_page_with_what_found_each(
    operator: Client, remember: Remember, ask: Callable[..., str]
) -> None:
    for number in range(12):
        remember(f"The pump number {number} runs at forty bar")
    recall_id = ask("pump bar", limit=1)
    first = operator.get(f"/recalls/{recall_id}/").content.decode()
    assert "All 11: weak matches, and what did not fit, too" in first
    assert first.count("Below the limit</td>") < 11
    every = shown(operator, f"/recalls/{recall_id}/left-out/")
    assert every.count("Below the limit Words rank") == 11
    fragment = operator.get(f"/recalls/{recall_id}/left-out/", headers={"HX-Request": "true"})
    assert b"<html" not in fragment.content


@pytest.mark.parametrize(
    ("number", "told"), [(1, "1st"), (2, "2nd"), (3, "3rd"), (11, "11th"), (22, "22nd"), (113, "113th")]
)
def test_a_place_is_told_as_an_ordinal(number: int, told: str) -> None:
    assert ordinal(number) == told


# ------------------------------------------------------------------------------------------------ asking


def test_the_form_asks_in_the_mode_that_was_chosen(operator: Client, remember: Remember) -> None:
    remember("The pump runs at forty bar")
    sent = {"query": "pump", "workspace": "*", "mode": "lexical", "profile": "default"}
    sent |= {"state": "current", "tags_match": "any_strict", "limit": "10"}
    response = operator.post("/recalls/new/", sent)
    assert response.status_code == 303
    row = RecallRecord.objects.latest("seq")
    assert (row.mode, row.profile) == ("lexical", "default")
    again = operator.get(response["Location"]).content.decode()
    assert "mode=lexical" in again


def test_a_refused_form_names_the_field_above_and_opens_what_holds_it(operator: Client) -> None:
    sent = {
        "query": "pump",
        "workspace": "*",
        "mode": "fused",
        "profile": "validity",
        "query_time": "yesterday",
    }
    sent |= {"state": "current", "tags_match": "any_strict", "limit": "10"}
    response = operator.post("/recalls/new/", sent)
    assert response.status_code == 422
    html = response.content.decode()
    assert '<a href="#id_query_time">As of (UTC)</a>:' in html
    assert "<details open>" in html
    assert RecallRecord.objects.count() == 0


def test_the_empty_form_keeps_what_is_seldom_needed_closed(operator: Client) -> None:
    html = operator.get("/recalls/new/").content.decode()
    assert "<details>" in html
    assert html.index('name="profile"') < html.index("<details>") < html.index('name="limit"')
    assert "<details open>" in operator.get("/recalls/new/?limit=5").content.decode()
