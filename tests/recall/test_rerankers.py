"""Rerankers: what the HTTP client makes of each answer, and what recall makes of scores, or of none."""

from __future__ import annotations

import json
import logging
import math
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.test import override_settings
from embedding_server import Peer, send
from embedding_server import serving as serving_at

from recall import rerankers
from recall.domain.request import RecallRequest
from recall.rerankers import RerankerUnavailable, on_one_scale
from recall.rerankers.http import QUERY_ROOM, ROOM, HttpReranker
from recall.services import recall
from vault import services as vault
from vault.services import Caller

Api = Any
Answer = Callable[[BaseHTTPRequestHandler, dict[str, Any]], None]

ROOT = Path(__file__).resolve().parent.parent.parent
KEY = "sk-very-secret-7251"
QUESTION, TEXTS = "which fence?", ["a long fence", "fence", "hedge"]

serving = partial(serving_at, path="/v1/rerank")


def named(scores: Sequence[Any]) -> bytes:
    """As Cohere, Jina and vLLM answer: best first, so that only the index tells which text is meant."""
    entries = [{"index": place, "relevance_score": score} for place, score in enumerate(scores)]
    return json.dumps({"id": "r", "results": entries[::-1], "meta": {}}).encode()


def bare(scores: Sequence[Any]) -> bytes:
    """As text-embeddings-inference answers."""
    return json.dumps([{"index": place, "score": score} for place, score in enumerate(scores)][::-1]).encode()


def entries(*told: Any) -> bytes:
    return json.dumps({"results": told}).encode()


def answering(body: bytes, status: int = 200) -> Answer:
    return lambda handler, _: send(handler, body, status=status)


def by_length(handler: BaseHTTPRequestHandler, body: dict[str, Any]) -> None:
    """The shorter, the better, as logits of both signs."""
    send(handler, named([20.0 - len(text) for text in body["documents"]]))


def expected(text: str) -> float:
    return 1 / (1 + math.exp(len(text) - 20.0))


@contextmanager
def installed(url: str, **given: Any) -> Iterator[None]:
    """The product's own HTTP reranker, at this address."""
    http = {"url": url, "model": "some-model", "api_key": KEY, "timeout_ms": 5000, **given}
    rerankers._forget()  # one of an earlier test
    with override_settings(RECALL_RERANKER="http", RERANKER_HTTP=http):
        yield
        if "recall.rerankers.http.HttpReranker" in rerankers._made:
            rerankers.installed().close()  # type: ignore[attr-defined]
    rerankers._forget()


@contextmanager
def asking(url: str, **given: Any) -> Iterator[HttpReranker]:
    http = {"url": url, "model": "some-model", "api_key": KEY, "timeout_ms": 5000, **given}
    with override_settings(RERANKER_HTTP=http), closing(HttpReranker()) as reranker:
        yield reranker


# ---- what is asked


def test_a_named_model_is_asked_in_the_form_of_cohere_jina_and_vllm() -> None:
    with serving(answering(named([0.1, 0.9, 0.4]))) as peer, asking(peer.url + "/") as reranker:
        assert reranker.scores(QUESTION, TEXTS) == [0.1, 0.9, 0.4]
    assert peer.asked == [{"model": "some-model", "query": QUESTION, "documents": TEXTS}]
    assert peer.authorized == [f"Bearer {KEY}"]


def test_without_a_model_it_is_asked_in_the_form_of_text_embeddings_inference() -> None:
    with (
        serving(answering(bare([0.1, 0.9, 0.4]))) as peer,
        asking(peer.url, model="", api_key=None) as reranker,
    ):
        assert reranker.scores(QUESTION, TEXTS) == [0.1, 0.9, 0.4]
    assert peer.asked == [{"query": QUESTION, "texts": TEXTS, "truncate": True}]
    assert peer.authorized == [None]


def test_long_texts_and_questions_are_cut_to_what_small_models_take() -> None:
    with serving(answering(named([0.5]))) as peer, asking(peer.url) as reranker:
        reranker.scores("q" * 5000, ["x" * 65_536])
    (asked,) = peer.asked
    assert (len(asked["query"]), [len(text) for text in asked["documents"]]) == (QUERY_ROOM, [ROOM])


def test_the_version_names_the_model_and_how_much_of_a_text_it_reads() -> None:
    with asking("http://127.0.0.1:9") as reranker:
        assert reranker.version == "http/some-model/2000"
    with asking("http://127.0.0.1:9", model="") as reranker:
        assert reranker.version == "http/unnamed/2000"


# ---- what is answered


@pytest.mark.parametrize(
    ("body", "status", "reason"),
    [
        (b"{}", 500, "status 500"),
        (b"{}", 401, "status 401"),
        (b"{}", 413, "status 413"),
        (b"", 302, "status 302"),
        (b"<html>", 200, "not JSON"),
        (b"[" * 100_000, 200, "not JSON"),
        (b"\xff\xfe\xfa", 200, "not JSON"),
        (b"{}", 200, "without a list"),
        (b"3", 200, "without a list"),
        (b'{"results": {"0": 1}}', 200, "without a list"),
        (b'{"results": [0.1, 0.2, 0.3]}', 200, "without a list"),
        (named([0.1, 0.2]), 200, "2 scores, or wrong indexes, for 3"),
        (named([0.1, 0.2, 0.3, 0.4]), 200, "4 scores, or wrong indexes, for 3"),
        (bare([0.1, 0.2]), 200, "2 scores, or wrong indexes, for 3"),
        (entries(*[{"index": place, "relevance_score": 0.1} for place in (0, 1, 1)]), 200, "wrong indexes"),
        (entries(*[{"index": place, "relevance_score": 0.1} for place in (1, 2, 3)]), 200, "wrong indexes"),
        (entries(*[{"index": place, "relevance_score": 0.1} for place in (0, 1, [])]), 200, "wrong indexes"),
        (entries(*[{"index": place, "relevance_score": 0.1} for place in (0, 1, 2.5)]), 200, "wrong indexes"),
        (entries(*[{"relevance_score": 0.1}] * 3), 200, "wrong indexes"),
        (entries(*[{"index": place, "score": 0.1} for place in range(3)]), 200, "not a number"),
        (named([0.1, 0.2, None]), 200, "not a number"),
        (named([0.1, 0.2, "0.3"]), 200, "not a number"),
        (named([0.1, 0.2, True]), 200, "not a number"),
        (named([0.1, 0.2, [0.3]]), 200, "not a number"),
        (named([0.1, 0.2, 10**400]), 200, "not a finite number"),
        (named([0.1, 0.2, math.nan]), 200, "not a finite number"),
        (named([0.1, 0.2, -math.inf]), 200, "not a finite number"),
        (b" " * (5 * 1024 * 1024), 200, "more than 4194304 bytes"),
    ],
)
def test_an_answer_that_is_not_one_score_a_text_counts_for_nothing(
    body: bytes, status: int, reason: str
) -> None:
    with serving(answering(body, status)) as peer, installed(peer.url):
        with pytest.raises(RerankerUnavailable, match=reason) as refused:
            rerankers.scores(QUESTION, TEXTS)
        assert len(peer.asked) == 1, "nothing is tried twice"
    assert not [secret for secret in (KEY, QUESTION, *TEXTS, peer.url) if secret in str(refused.value)]


class OneTooFew:
    version = "one-too-few"

    def scores(self, query: str, texts: Sequence[str]) -> list[float]:
        return [0.5] * (len(texts) - 1)


@override_settings(RECALL_RERANKER="test_rerankers.OneTooFew")
def test_a_class_of_ones_own_is_held_to_one_score_a_text_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "test_rerankers", sys.modules[__name__])
    with pytest.raises(RerankerUnavailable, match="gave 2 scores for 3 texts"):
        rerankers.scores(QUESTION, TEXTS)


# ---- one scale


def test_scores_from_0_to_1_stay_as_they_are() -> None:
    assert on_one_scale([0.0, 1, 0.25]) == [0.0, 1.0, 0.25]


@pytest.mark.parametrize("outside", [-11.0, 1.5, -1e-9])
def test_one_score_outside_of_0_to_1_brings_all_of_them_through_the_sigmoid(outside: float) -> None:
    given = [0.9, outside, 0.2]
    assert on_one_scale(given) == pytest.approx([1 / (1 + math.exp(-score)) for score in given])


def test_the_largest_numbers_stay_within_the_scale_and_keep_their_order() -> None:
    given = [-1e308, -1000.0, -745.0, -3.0, 0.0, 3.0, 30.0, 1000.0, 1e308]
    made = on_one_scale(given)
    assert made == sorted(made)
    assert (made[0], made[-1]) == (0.0, 1.0)


# ---- the wire


@contextmanager
def slow(headers_first: bool) -> Iterator[Peer]:
    """A server that says nothing for long, or sends its answer a byte at a time."""
    over = threading.Event()

    def answer(handler: BaseHTTPRequestHandler, body: dict[str, Any]) -> None:
        if headers_first:
            handler.send_response(200)
            handler.send_header("Content-Length", "1000")
            handler.end_headers()
        for _ in range(100):
            if over.wait(0.05):
                return
            if headers_first:
                handler.wfile.write(b" ")

    with serving(answer) as peer:
        try:
            yield peer
        finally:
            over.set()


@pytest.mark.parametrize("headers_first", [False, True])
def test_an_answer_slower_than_the_limit_is_given_up(headers_first: bool) -> None:
    with slow(headers_first) as peer, asking(peer.url, timeout_ms=300) as reranker:
        began = time.monotonic()
        with pytest.raises(RerankerUnavailable, match=r"no answer within 0\.3 s"):
            reranker.scores(QUESTION, TEXTS)
        assert 0.25 < time.monotonic() - began < 2


def test_a_refused_connection_is_said_without_the_address() -> None:
    with closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))  # and never listens
        port = taken.getsockname()[1]
        with (
            asking(f"http://user:{KEY}@127.0.0.1:{port}/v1") as reranker,
            pytest.raises(RerankerUnavailable, match="no answer: ConnectError") as refused,
        ):
            reranker.scores(QUESTION, TEXTS)
    assert KEY not in str(refused.value)


@pytest.mark.parametrize(
    "url", ["not a url", "ftp://127.0.0.1/v1", "http://[::1", "http://127.0.0.1:99999/v1"]
)
def test_an_address_that_is_none_is_said(url: str) -> None:
    with asking(url) as reranker, pytest.raises(RerankerUnavailable, match="no answer"):
        reranker.scores(QUESTION, TEXTS)


@pytest.mark.parametrize("key", [f"{KEY}\n", f"{KEY}é", f"{KEY}\r\nX: y"])
def test_a_key_that_no_header_can_hold_is_never_repeated(key: str) -> None:
    with (
        serving(answering(b"{}", 401)) as peer,
        asking(peer.url, api_key=key) as reranker,
        pytest.raises(RerankerUnavailable) as refused,
    ):
        reranker.scores(QUESTION, TEXTS)
    assert KEY not in str(refused.value)
    assert refused.value.__cause__ is None


def test_no_log_holds_a_text_a_question_the_key_or_the_address(caplog: pytest.LogCaptureFixture) -> None:
    with serving(by_length) as peer, caplog.at_level(logging.DEBUG):
        address = peer.url.replace("http://", f"http://user:{KEY}@")
        with asking(address) as reranker:
            reranker.scores(QUESTION, TEXTS)
    assert caplog.records, "httpcore tells its steps"
    told = caplog.text + "".join(str(record.__dict__) for record in caplog.records)
    assert not [secret for secret in (KEY, QUESTION, *TEXTS) if secret in told]


# ---- which reranker is meant


def test_there_is_one_reranker_for_all_threads() -> None:
    with installed("http://127.0.0.1:9/v1"), ThreadPoolExecutor(4) as threads:
        found = set(threads.map(lambda _: id(rerankers.installed()), range(8)))
        assert found == {id(rerankers.installed())}


def test_without_one_there_is_no_name_and_no_score() -> None:
    assert rerankers.name_of_installed() == ""
    with pytest.raises(RerankerUnavailable, match="no reranker is installed"):
        rerankers.scores(QUESTION, TEXTS)


@override_settings(RECALL_RERANKER="engines_for_tests.Letters")
def test_a_class_that_is_no_reranker_is_told_apart(api: Api) -> None:
    api.stored("the fence is green")
    answer = api.recalled("fence", rerank=True)
    (warning,) = [told for told in answer["warnings"] if told["code"] == "rerank_unavailable"]
    assert "engines_for_tests.Letters is no reranker: it needs a version and scores" in warning["message"]


@override_settings(RECALL_RERANKER="recall.rerankers.nowhere.Nothing")
def test_one_that_cannot_be_imported_is_unavailable() -> None:
    with pytest.raises(RerankerUnavailable, match="nowhere"):
        rerankers.installed()
    assert rerankers.name_of_installed() == ""


def test_one_without_an_address_is_unavailable() -> None:
    with installed(""), pytest.raises(RerankerUnavailable, match="RECALL_RERANKER_URL is not set"):
        rerankers.installed()


def in_a_process(script: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "settings_for_tests", "PYTHONPATH": "tests:."}
    command = [sys.executable, "-c", script]
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60, check=False
    )


def test_a_forked_child_makes_its_own() -> None:
    done = in_a_process(
        "import os; from django.conf import settings; from recall import rerankers\n"
        "settings.RECALL_RERANKER = 'engines_for_tests.ShortestFirst'\n"
        "ours = rerankers.installed(); child = os.fork()\n"
        "if child == 0: os._exit(0 if not rerankers._made and rerankers.installed() is not ours else 1)\n"
        "raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))"
    )
    assert done.returncode == 0, done.stderr


def test_nothing_heavy_is_imported_before_a_reranker_is_made() -> None:
    told = in_a_process("import sys, recall.rerankers; print('httpx' in sys.modules)")
    assert told.stdout.strip() == "False", told.stderr


# ---- recall

FENCES = ["a fence, and much more than that", "fence", "a fence, and more", "a fence"]
IN_ORDER = sorted(FENCES, key=len)


@pytest.fixture
def peer(api: Api) -> Iterator[Peer]:
    """A vault with fences, and a reranker that likes them short."""
    for text in FENCES:
        api.stored(text)
    with serving(by_length) as peer, installed(peer.url):
        yield peer


def shown(answer: dict[str, Any]) -> list[str]:
    return [hit["memory"]["text"] for hit in answer["results"]]


def bases(answer: dict[str, Any]) -> list[float]:
    return [hit["score"]["base"] for hit in answer["results"]]


def ran(answer: dict[str, Any]) -> bool:
    (stage,) = [stage for stage in answer["fused_trace"]["stages"] if stage["stage"] == "rerank"]
    told: bool = stage["ran"]
    return told


def candidates(api: Api, answer: dict[str, Any]) -> list[dict[str, Any]]:
    status, record = api.get(f"/v1/recalls/{answer['recall_id']}")
    assert status == 200
    told: list[dict[str, Any]] = record["candidates"]
    return told


@pytest.mark.parametrize("mode", ["fused", "lexical", "hybrid", "dense"])
def test_the_reranker_orders_the_hits_in_every_mode_and_its_score_is_their_base(
    api: Api, peer: Peer, mode: str
) -> None:
    answer = api.recalled("fence", mode=mode, rerank=True)
    assert shown(answer) == IN_ORDER
    assert bases(answer) == pytest.approx([expected(text) for text in IN_ORDER])
    assert answer["warnings"] == []
    assert answer["timings_ms"]["rerank"] > 0
    assert [(body["query"], sorted(body["documents"])) for body in peer.asked] == [("fence", sorted(FENCES))]


def test_what_does_not_ask_for_it_is_not_reranked_and_the_trace_tells_both(api: Api, peer: Peer) -> None:
    answer = api.recalled("fence", trace=True)
    assert not ran(answer)
    assert peer.asked == []
    assert ran(api.recalled("fence", trace=True, rerank=True))
    assert [candidate["reranked"] for candidate in candidates(api, answer)] == [None] * 4


def test_under_the_validity_profile_every_hit_counts_its_rerank_score_times_its_validity(
    api: Api, peer: Peer
) -> None:
    api.stored("fences", created_at="2020-01-01")
    assert shown(api.recalled("fence", rerank=True))[:3] == ["fence", "fences", "a fence"]
    answer = api.recalled("fence", rerank=True, profile="validity")
    assert shown(answer)[:2] == ["fence", "a fence"], "what is long past stays past, however well it matches"
    assert bases(answer) == pytest.approx([expected(text) for text in shown(answer)])
    for hit in answer["results"]:
        assert hit["score"]["final"] == pytest.approx(hit["score"]["base"] * hit["validity"]["multiplier"])
    finals = [hit["score"]["final"] for hit in answer["results"]]
    assert finals == sorted(finals, reverse=True)


def test_the_record_holds_each_score_and_who_gave_it(api: Api, peer: Peer) -> None:
    answer = api.recalled("fence", rerank=True)
    _, record = api.get(f"/v1/recalls/{answer['recall_id']}")
    assert record["reranker"] == f"http/some-model/{ROOM}"
    assert [candidate["reranked"] for candidate in record["candidates"]] == pytest.approx(
        [expected(text) for text in IN_ORDER]
    )


def test_twenty_are_reranked_and_the_rest_stays_below_the_limit_with_the_reason(api: Api) -> None:
    for number in range(25):
        api.stored(f"fence {'x' * number}")
    with serving(by_length) as peer, installed(peer.url):
        plain = api.recalled("fence", limit=25, mode="lexical")
        answer = api.recalled("fence", limit=20, mode="lexical", rerank=True)
    first = shown(plain)[:20]
    assert [body["documents"] for body in peer.asked] == [first]
    assert shown(answer) == sorted(first, key=len)
    told = candidates(api, answer)
    beyond = [candidate for candidate in told if candidate["position"] is None]
    assert len(beyond) == 5
    assert {(c["verdict"], c["detail"], c["reranked"]) for c in beyond} == {
        ("below_limit", "beyond the 20 that were reranked", None)
    }
    assert all(candidate["reranked"] is not None for candidate in told if candidate not in beyond)


@pytest.mark.parametrize(
    ("asked", "field", "code"),
    [
        ({"query": "fence", "limit": 21}, "limit", "invalid"),
        ({"query": "", "tags": ["t"]}, "rerank", "invalid"),
    ],
)
def test_what_a_reranker_cannot_do_is_refused(
    api: Api, peer: Peer, asked: dict[str, Any], field: str, code: str
) -> None:
    status, refusal = api.post("/v1/recall", {**asked, "rerank": True})
    assert (status, refusal["error"]["field"], refusal["error"]["code"]) == (400, field, code)
    assert peer.asked == []


def test_without_a_reranker_the_wish_for_one_is_refused(api: Api) -> None:
    status, refusal = api.post("/v1/recall", {"query": "fence", "rerank": True})
    assert (status, refusal["error"]["field"]) == (400, "rerank")
    assert refusal["error"]["code"] == "rerank_unavailable"


@pytest.mark.parametrize("profile", ["default", "validity"])
@pytest.mark.parametrize(
    ("body", "status", "reason"),
    [(b"{}", 503, "answered with status 503"), (named([0.9] * 3), 200, "answered 3 scores")],
)
def test_when_it_fails_nothing_is_reranked_and_the_answer_says_why(
    api: Api, profile: str, body: bytes, status: int, reason: str
) -> None:
    for text in FENCES:
        api.stored(text)
    at = time.time_ns() // 1_000_000
    asked = {"profile": profile, "trace": True, "query_time_unix_ms": at}
    with serving(answering(body, status)) as peer, installed(peer.url):
        plain, answer = api.recalled("fence", **asked), api.recalled("fence", **asked, rerank=True)
    (warning,) = answer["warnings"]
    assert warning["code"] == "rerank_unavailable"
    assert reason in warning["message"]
    assert answer["results"] == plain["results"]
    assert not ran(answer)
    assert [candidate["reranked"] for candidate in candidates(api, answer)] == [None] * 4
    assert answer["outcome"]["status"] == "fresh"


def test_when_it_fails_hits_beyond_the_first_twenty_are_served_as_without_it(api: Api) -> None:
    for number in range(20):
        api.stored(f"fence {number}", created_at="2021-01-01")
        api.stored(f"the cat likes tuna, says a note that was left on the fence at {number} o'clock")
    asked = {"profile": "validity", "limit": 20, "query_time_unix_ms": time.time_ns() // 1_000_000}
    with serving(answering(b"{}", 503)) as peer, installed(peer.url):
        plain, answer = api.recalled("fence", **asked), api.recalled("fence", **asked, rerank=True)
    ((seen,), served) = [body["documents"] for body in peer.asked], shown(answer)
    assert set(served) - set(seen), "or this would show nothing"
    assert answer["results"] == plain["results"]


def test_a_replacement_that_no_word_of_the_question_finds_is_reranked_in_its_place(
    api: Api, peer: Peer
) -> None:
    old = api.stored("the fence of the garden")
    new = api.stored("hedge")
    api.linked(old["id"], new["id"], "EVOLVED_INTO")
    answer = api.recalled("fence", mode="lexical", rerank=True, trace=True)
    assert sorted(shown(answer)[:2]) == ["fence", "hedge"]
    assert "the fence of the garden" not in peer.asked[0]["documents"]
    (hit,) = [hit for hit in answer["results"] if hit["memory"]["id"] == new["id"]]
    assert hit["score"]["base"] == pytest.approx(expected("hedge"))
    (told,) = [c for c in candidates(api, answer) if c["id"] == new["id"]]
    assert told["injected"]


@pytest.mark.parametrize("sort", ["time_asc", "time_desc"])
def test_an_explicit_sort_keeps_its_order_and_shows_the_scores(api: Api, peer: Peer, sort: str) -> None:
    plain = api.recalled("fence", sort=sort)
    answer = api.recalled("fence", sort=sort, rerank=True, trace=True)
    assert shown(answer) == shown(plain)
    assert bases(answer) == pytest.approx([expected(text) for text in shown(answer)])
    assert ran(answer)


def test_a_token_budget_cuts_the_reranked_order(api: Api, peer: Peer) -> None:
    answer = api.recalled("fence", rerank=True, max_tokens=4)
    assert shown(answer) == IN_ORDER[:2]


def test_nothing_found_is_nothing_asked(api: Api, peer: Peer) -> None:
    answer = api.recalled("zeppelin", mode="lexical", rerank=True)
    assert (answer["count"], answer["warnings"], peer.asked) == (0, [], [])


def test_a_memory_out_of_reach_is_never_sent_to_the_reranker(
    api: Api, api_for: Callable[..., Api], peer: Peer
) -> None:
    api.stored("the fence of blue", workspace="blue")
    api.stored("the fence of red", workspace="red")
    answer = api_for("read", workspace="red").recalled("fence", rerank=True)
    sent = {text for body in peer.asked for text in body["documents"]}
    assert "the fence of red" in shown(answer)
    assert "the fence of red" in sent
    assert "the fence of blue" not in sent


def test_each_question_of_a_batch_is_reranked_by_itself(api: Api, peer: Peer) -> None:
    queries = [
        {"query": "fence", "rerank": True},
        {"query": "fence more", "rerank": True},
        {"query": "fence"},
    ]
    status, answers = api.post("/v1/recall/batch", {"queries": queries})
    assert status == 200, answers
    assert [body["query"] for body in peer.asked] == ["fence", "fence more"]
    assert shown(answers["answers"][0]) == IN_ORDER


def test_a_reranker_that_failed_is_not_waited_for_again_in_the_same_batch(api: Api) -> None:
    for text in FENCES:
        api.stored(text)
    with serving(answering(b"{}", 503)) as peer, installed(peer.url):
        _, told = api.post("/v1/recall/batch", {"queries": [{"query": "fence", "rerank": True}] * 3})
    assert len(peer.asked) == 1
    assert [[w["code"] for w in one["warnings"]] for one in told["answers"]] == [["rerank_unavailable"]] * 3


# ---- beside other questions


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("engine", ["resident", "sqlite"])
def test_while_the_reranker_thinks_others_are_answered_and_texts_written(caller: Caller, engine: str) -> None:
    at = time.time_ns() // 1_000_000
    ids = [vault.remember({"text": t}, caller=caller, at=at, reason="").memory.id for t in FENCES]
    meanwhile: list[dict[str, Any]] = []

    def answer(handler: BaseHTTPRequestHandler, body: dict[str, Any]) -> None:
        """In the server's own thread: two writes and another question, before this one has its scores."""
        try:
            vault.remember({"text": "a new fence"}, caller=caller, at=at, reason="")
            vault.revise(ids[0], {"text": "no longer the same fence"}, caller=caller, at=at, reason="")
            meanwhile.append(recall(RecallRequest(query="fence"), caller=caller, surface="api", at=at + 1))
        finally:
            connection.close()
        by_length(handler, body)

    with override_settings(RECALL_INDEX=engine), serving(answer) as peer, installed(peer.url):
        asked = RecallRequest(query="fence", rerank=True)
        told = recall(asked, caller=caller, surface="api", at=at)
    assert [one["count"] for one in meanwhile] == [5]
    assert told["warnings"] == []
    assert shown(told) == IN_ORDER, "the writes came after this question had read"
