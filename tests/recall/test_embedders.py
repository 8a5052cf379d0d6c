"""The default embedder's numbers and files, the HTTP embedder's failures, and which embedder is meant."""

from __future__ import annotations

import hashlib
import json
import math
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from django.test import override_settings
from embedding_server import Peer, embeddings, send, serving

from recall.embedders import EmbedderUnavailable, installed, minilm, named
from recall.embedders.chunks import windows
from recall.embedders.http import PARTS_AT_ONCE, OpenAICompatible

ROOT = Path(__file__).resolve().parent.parent.parent
TEXTS = [
    "The team deploys on Thursdays, after two reviews.",
    "Marta cannot eat peanuts or cashews.",
    "Ångström, İstanbul, 東京; e-mail: ops@example.org!",
    "restart the ingest queue " * 40,
]

# ---- the default: all-MiniLM-L6-v2


def _float_network(pieces: list[int]) -> np.ndarray:
    """The published network in plain float arithmetic: BERT (Devlin et al. 2018), mean pooling, unit length."""
    weights = minilm._weights(minilm.MODEL_DIR / "model.safetensors")

    def linear(x: np.ndarray, name: str) -> np.ndarray:
        return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]

    def normed(x: np.ndarray, name: str) -> np.ndarray:
        scaled = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-12)
        return scaled * weights[f"{name}.weight"] + weights[f"{name}.bias"]

    def heads(x: np.ndarray) -> np.ndarray:
        return x.reshape(len(x), 12, 32).transpose(1, 0, 2)

    places = weights["embeddings.position_embeddings.weight"][: len(pieces)]
    kinds = weights["embeddings.token_type_embeddings.weight"][0]
    x = normed(weights["embeddings.word_embeddings.weight"][pieces] + places + kinds, "embeddings.LayerNorm")
    for layer in range(6):
        name = f"encoder.layer.{layer}"
        query, key, value = (
            heads(linear(x, f"{name}.attention.self.{part}")) for part in ("query", "key", "value")
        )
        scores = np.exp(query @ key.transpose(0, 2, 1) / math.sqrt(32))
        attended = (scores / scores.sum(-1, keepdims=True)) @ value
        y = linear(attended.transpose(1, 0, 2).reshape(x.shape), f"{name}.attention.output.dense")
        x = normed(x + y, f"{name}.attention.output.LayerNorm")
        y = linear(x, f"{name}.intermediate.dense")
        y = y * 0.5 * (1 + np.vectorize(math.erf)(y / math.sqrt(2)))
        x = normed(x + linear(y, f"{name}.output.dense"), f"{name}.output.LayerNorm")
    mean = x.mean(0)
    return mean / np.linalg.norm(mean)


@pytest.mark.parametrize("text", TEXTS)
def test_the_int8_graph_stays_near_the_published_float_network(text: str) -> None:
    embedder = named("minilm")
    pieces = [101, *embedder._tokenizer.encode(text, add_special_tokens=False).ids, 102]  # type: ignore[attr-defined]
    assert _float_network(pieces) @ embedder.embed_query(text).astype(float) > 0.975


def test_the_word_pieces_are_those_of_the_uncased_vocabulary() -> None:
    vocabulary = (minilm.MODEL_DIR / "vocab.txt").read_text().splitlines()
    ((*pieces,),) = named("minilm")._windows("Café RESTARTS embeddings!")  # type: ignore[attr-defined]
    assert [vocabulary[piece] for piece in pieces] == "cafe restart ##s em ##bed ##ding ##s !".split()


_IN_A_PROCESS = """
import hashlib, json, sys
from recall.embedders.minilm import MiniLM
made = MiniLM().embed_documents(json.loads(sys.argv[1]))
print(hashlib.sha256(b"".join(vectors.tobytes() for vectors in made)).hexdigest())
"""


def test_another_process_makes_the_same_bytes() -> None:
    made = named("minilm").embed_documents(TEXTS)
    ours = hashlib.sha256(b"".join(vectors.tobytes() for vectors in made if vectors is not None)).hexdigest()
    command = [sys.executable, "-c", _IN_A_PROCESS, json.dumps(TEXTS)]
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "settings_for_tests", "PYTHONPATH": "tests:."}
    theirs = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True, timeout=60
    )
    assert theirs.stdout.strip() == ours


def test_a_text_that_is_cut_off_by_the_instant_is_left_and_the_one_before_it_is_made() -> None:
    long = "a line about the weather and the boats " * 8000
    began = time.monotonic()
    short, cut, after = named("minilm").embed_documents(["short", long, "after"], until=began + 1)
    assert short is not None
    assert (cut, after) == (None, None)
    assert time.monotonic() - began < 5


def test_a_text_of_64_kb_is_embedded_whole() -> None:
    text = ("ship " * 13_108)[: 64 * 1024]
    (vectors,) = named("minilm").embed_documents([text])
    assert vectors is not None
    assert len(vectors) == math.ceil((13_108 - 32) / 222)


@pytest.mark.parametrize("count", [0, 1, 254, 255, 476, 477, 10_000])
def test_windows_hold_every_piece_overlap_and_never_exceed_their_room(count: int) -> None:
    made = windows(list(range(count)), room=254, overlap=32)
    assert {piece for window in made for piece in window} == set(range(count))
    assert max(len(window) for window in made) <= 254
    for one, following in pairwise(made):
        assert one[-32:] == following[:32]
        assert len(following) > 32


def test_a_damaged_weights_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "model.safetensors").write_bytes(
        (minilm.MODEL_DIR / "model.safetensors").read_bytes()[:10_000_000]
    )
    monkeypatch.setattr(minilm, "MODEL_DIR", tmp_path)
    with pytest.raises(EmbedderUnavailable, match=r"model\.safetensors .* is damaged"):
        minilm.MiniLM()


def test_a_missing_weights_file_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(minilm, "MODEL_DIR", tmp_path)
    with pytest.raises(EmbedderUnavailable, match="No such file"):
        minilm.MiniLM()


# ---- the HTTP embedder

KEY = "sk-very-secret-7251"


@contextmanager
def _asking(url: str, *, timeout_ms: int = 5000, api_key: str | None = KEY) -> Iterator[OpenAICompatible]:
    given = {"url": url, "model": "some-model", "api_key": api_key, "timeout_ms": timeout_ms}
    with override_settings(EMBEDDER_HTTP=given), closing(OpenAICompatible()) as embedder:
        yield embedder


def _in_three_dimensions(handler: BaseHTTPRequestHandler, body: dict[str, Any]) -> None:
    send(handler, embeddings([[float(len(text)), 1.0, -2.0] for text in body["input"]]))


def test_a_request_names_the_model_and_carries_the_key() -> None:
    with serving(_in_three_dimensions) as peer, _asking(peer.url + "/") as embedder:
        embedder.embed_query("hello")
    assert peer.asked == [{"model": "some-model", "input": ["hello"]}]
    assert peer.authorized == [f"Bearer {KEY}"]


def test_without_a_key_nothing_is_authorized() -> None:
    with serving(_in_three_dimensions) as peer, _asking(peer.url, api_key=None) as embedder:
        embedder.embed_query("hello")
    assert peer.authorized == [None]


def test_the_dimension_is_asked_for_when_nothing_told_it_before() -> None:
    with serving(_in_three_dimensions) as peer, _asking(peer.url) as embedder:
        assert embedder.dim == 3


def test_a_question_asked_again_is_not_sent_again() -> None:
    with serving(_in_three_dimensions) as peer, _asking(peer.url) as embedder:
        embedder.embed_queries(["one", "two", "one"])
        embedder.embed_queries(["two", "three"])
    assert [body["input"] for body in peer.asked] == [["one", "two"], ["three"]]


def test_many_texts_go_in_several_requests_and_come_back_in_their_order() -> None:
    texts = ["x" * (1 + place * 7) for place in range(PARTS_AT_ONCE * 3)]
    with serving(_in_three_dimensions) as peer, _asking(peer.url) as embedder:
        made = embedder.embed_documents(texts)
        alone = [embedder.embed_documents([text])[0] for text in texts]
    assert max(len(body["input"]) for body in peer.asked) == PARTS_AT_ONCE
    assert max(len(part) for body in peer.asked for part in body["input"]) == 1000
    assert [vectors.tobytes() for vectors in made if vectors is not None] == [
        vectors.tobytes() for vectors in alone if vectors is not None
    ]


def _answering(body: bytes, status: int = 200) -> Callable[[BaseHTTPRequestHandler, dict[str, Any]], None]:
    return lambda handler, _: send(handler, body, status=status)


def _entries(*entries: Any) -> bytes:
    return json.dumps({"data": entries}).encode()


@pytest.mark.parametrize(
    ("body", "status", "reason"),
    [
        (b"{}", 500, "status 500"),
        (b"{}", 401, "status 401"),
        (b"", 302, "status 302"),
        (b"<html>", 200, "not JSON"),
        (b"[" * 100_000, 200, "not JSON"),
        (b"\xff\xfe\xfa", 200, "not JSON"),
        (b"[]", 200, "without a list"),
        (b'{"data": 3}', 200, "without a list"),
        (b'{"data": [3, 4]}', 200, "without a list"),
        (embeddings([[1.0, 2.0]]), 200, "1 embeddings"),
        (embeddings([[1.0, 2.0]] * 3), 200, "3 embeddings"),
        (_entries({"index": 0, "embedding": [1]}, {"index": 0, "embedding": [1]}), 200, "wrong indexes"),
        (_entries({"embedding": [1]}, {"index": [], "embedding": [1]}), 200, "wrong indexes"),
        (embeddings([[1.0, 2.0], [1.0]]), 200, "1 dimensions after 2"),
        (embeddings([[1.0, 2.0], [1.0, math.nan]]), 200, "not finite"),
        (embeddings([[1.0, 2.0], [1.0, math.inf]]), 200, "not finite"),
        (embeddings([[1.0, 2.0], [1e300, 1e300]]), 200, "not finite"),
        (embeddings([[1.0, 2.0], [0.0, 0.0]]), 200, "zero"),
        (embeddings([[1.0, 2.0], ["a", "b"]]), 200, "not a list of numbers"),
        (embeddings([[1.0, 2.0], [10**400, 1]]), 200, "not a list of numbers"),
        (embeddings([[1.0, 2.0], "AACAPwAAAEA="]), 200, "not a list of numbers"),
        (embeddings([[1.0, 2.0], None]), 200, "not a list of numbers"),
        (embeddings([[1.0, 2.0], []]), 200, "not a list of numbers"),
        (embeddings([[1.0, 2.0], [[1.0], [2.0]]]), 200, "not a list of numbers"),
    ],
)
def test_an_answer_that_is_not_what_was_asked_for_is_refused(body: bytes, status: int, reason: str) -> None:
    with serving(_answering(body, status)) as peer, _asking(peer.url) as embedder:
        with pytest.raises(EmbedderUnavailable, match=reason):
            embedder.embed_documents(["one", "two"])
        assert len(peer.asked) == 1


def test_vectors_of_another_dimension_later_are_refused() -> None:
    sizes = iter([3, 4])

    def answer(handler: BaseHTTPRequestHandler, body: dict[str, Any]) -> None:
        send(handler, embeddings([[1.0] * next(sizes)]))

    with serving(answer) as peer, _asking(peer.url) as embedder:
        embedder.embed_query("one")
        with pytest.raises(EmbedderUnavailable, match="4 dimensions after 3"):
            embedder.embed_query("two")


@contextmanager
def _slow(headers_first: bool) -> Iterator[Peer]:
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
    with _slow(headers_first) as peer, _asking(peer.url, timeout_ms=300) as embedder:
        began = time.monotonic()
        with pytest.raises(EmbedderUnavailable, match=r"no answer within 0\.3 s"):
            embedder.embed_query("hello")
        assert 0.25 < time.monotonic() - began < 2


@pytest.mark.parametrize("headers_first", [False, True])
def test_an_answer_slower_than_the_callers_instant_leaves_the_text_for_later(headers_first: bool) -> None:
    with _slow(headers_first) as peer, _asking(peer.url) as embedder:
        began = time.monotonic()
        assert embedder.embed_documents(["hello"], until=began + 0.3) == [None]
        assert 0.25 < time.monotonic() - began < 2


def test_texts_answered_before_the_instant_are_kept_though_later_ones_are_late() -> None:
    over, asked = threading.Event(), iter(range(10))

    def answer(handler: BaseHTTPRequestHandler, body: dict[str, Any]) -> None:
        if next(asked):
            over.wait(10)
        else:
            _in_three_dimensions(handler, body)

    texts = ["short"] * (PARTS_AT_ONCE - 1) + ["x" * 1500, "after"]
    with serving(answer) as peer, _asking(peer.url) as embedder:
        made = embedder.embed_documents(texts, until=time.monotonic() + 1)
        over.set()
    assert [vectors is not None for vectors in made] == [True] * (PARTS_AT_ONCE - 1) + [False, False]


def test_a_refused_connection_is_said_without_the_address() -> None:
    with closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))  # and never listens
        port = taken.getsockname()[1]
        with (
            _asking(f"http://user:{KEY}@127.0.0.1:{port}/v1") as embedder,
            pytest.raises(EmbedderUnavailable, match="no answer: ConnectError") as refused,
        ):
            embedder.embed_query("hello")
    assert KEY not in str(refused.value)


@pytest.mark.parametrize(
    "url", ["not a url", "ftp://127.0.0.1/v1", "http://[::1", "http://127.0.0.1:99999/v1"]
)
def test_an_address_that_is_none_is_said(url: str) -> None:
    with _asking(url) as embedder, pytest.raises(EmbedderUnavailable, match="no answer"):
        embedder.embed_query("hello")


@pytest.mark.parametrize("key", [f"{KEY}\n", f"{KEY}é", f"{KEY}\r\nX: y"])
def test_a_key_that_no_header_can_hold_is_never_repeated(key: str) -> None:
    with (
        serving(_answering(b"{}", 401)) as peer,
        _asking(peer.url, api_key=key) as embedder,
        pytest.raises(EmbedderUnavailable) as refused,
    ):
        embedder.embed_query("hello")
    assert KEY not in str(refused.value)
    assert refused.value.__cause__ is None


@pytest.mark.parametrize("missing", ["url", "model"])
def test_an_embedder_without_address_or_model_is_said(missing: str) -> None:
    given = {"url": "http://127.0.0.1:9/v1", "model": "m", "api_key": None, "timeout_ms": 100, missing: ""}
    with override_settings(EMBEDDER_HTTP=given), pytest.raises(EmbedderUnavailable, match="not both set"):
        OpenAICompatible()


# ---- which embedder is meant


def test_the_installed_embedder_is_the_one_that_settings_name_and_one_for_all_threads() -> None:
    with ThreadPoolExecutor(4) as threads:
        found = set(threads.map(lambda _: id(installed()), range(8)))
    assert found == {id(named("minilm"))} == {id(named("recall.embedders.minilm.MiniLM"))}


@override_settings(RECALL_EMBEDDER="recall.embedders.nowhere.Nothing")
def test_an_embedder_that_cannot_be_imported_is_unavailable() -> None:
    with pytest.raises(EmbedderUnavailable, match="nowhere"):
        installed()


def test_a_forked_child_makes_its_own() -> None:
    ours = id(named("minilm"))
    script = (
        "import os; from recall.embedders import _made, named; import django\n"
        "named('minilm'); child = os.fork()\n"
        "if child == 0: os._exit(0 if not _made and named('minilm').embed_query('x').shape == (384,) else 1)\n"
        "raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))"
    )
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "settings_for_tests", "PYTHONPATH": "tests:."}
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, env=environment, timeout=60, check=False)
    assert done.returncode == 0
    assert id(named("minilm")) == ours


def test_nothing_heavy_is_imported_before_an_embedder_is_made() -> None:
    script = "import sys, recall.embedders; print([m for m in ('numpy', 'onnxruntime', 'httpx') if m in sys.modules])"
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "settings_for_tests", "PYTHONPATH": "tests:."}
    told = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    assert told.stdout.strip() == "[]"
