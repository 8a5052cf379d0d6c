"""What every embedder keeps to, whatever makes its vectors."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from http.server import BaseHTTPRequestHandler
from typing import Any

import numpy as np
import pytest
from django.test import override_settings
from embedding_server import embeddings, send, serving
from numpy.typing import NDArray

from recall.embedders import Embedder, named
from recall.embedders.http import OpenAICompatible

LONG = " ".join(
    f"On day {day} the crew of boat {day % 7} wrote a line about the weather." for day in range(300)
)
TEXTS = [
    "The team deploys on Thursdays.",
    "Marta cannot eat peanuts.",
    "naïve café, 東京 und Straße",
    "a",
    "🙂🙂",
    "  \n\t ",
    "\u0000\u200b",
    "word " * 700,
]


def length(vector: NDArray[np.float16]) -> float:
    return float(np.linalg.norm(vector.astype(np.float64)))


def nearness(one: NDArray[np.float16], other: NDArray[np.float16]) -> float:
    return float(one.astype(np.float64) @ other.astype(np.float64))


class EmbedderContract:
    """Subclasses give the fixture `embedder`."""

    def test_a_vector_is_half_precision_of_the_told_dimension_and_unit_length(
        self, embedder: Embedder
    ) -> None:
        vectors = [*embedder.embed_queries(TEXTS), *np.vstack(embedder.embed_documents(TEXTS))]
        assert len(vectors) > 2 * len(TEXTS)
        for vector in vectors:
            assert vector.dtype == np.float16
            assert vector.shape == (embedder.dim,)
            assert length(vector) == pytest.approx(1, abs=2e-3)

    def test_the_model_id_fits_its_column(self, embedder: Embedder) -> None:
        assert 0 < len(embedder.model_id) <= 200

    def test_a_text_gives_the_same_bytes_alone_and_beside_others(self, embedder: Embedder) -> None:
        together = embedder.embed_documents([*TEXTS, *reversed(TEXTS)])
        alone = [embedder.embed_documents([text])[0] for text in TEXTS]
        expected = [vectors.tobytes() for vectors in alone]
        assert [vectors.tobytes() for vectors in together] == expected + expected[::-1]

    def test_questions_at_once_give_the_same_bytes_as_one_by_one(self, embedder: Embedder) -> None:
        questions = [f"{text} {time.monotonic_ns()}" for text in TEXTS]  # none was asked before
        together = embedder.embed_queries([*questions, questions[0]])
        alone = [embedder.embed_query(text) for text in questions]
        again = [embedder.embed_documents([text])[0][0] for text in questions]
        expected = [vector.tobytes() for vector in alone]
        assert [vector.tobytes() for vector in together] == [*expected, expected[0]]
        assert [vector.tobytes() for vector in again] == expected

    def test_two_threads_get_the_bytes_of_one(self, embedder: Embedder) -> None:
        def bytes_of(text: str) -> bytes:
            return embedder.embed_documents([text])[0].tobytes()

        texts = TEXTS * 3
        with ThreadPoolExecutor(2) as threads:
            assert list(threads.map(bytes_of, texts)) == [bytes_of(text) for text in texts]

    def test_a_kept_question_cannot_be_written_to(self, embedder: Embedder) -> None:
        with pytest.raises(ValueError, match="read-only"):
            embedder.embed_query("who deploys?")[0] = 0

    def test_a_long_text_has_several_vectors_and_its_end_counts(self, embedder: Embedder) -> None:
        (plain,) = embedder.embed_documents([LONG])
        (longer,) = embedder.embed_documents([LONG + " Marta cannot eat peanuts."])
        assert len(plain) > 10
        assert len(longer) >= len(plain)
        asked = embedder.embed_query("peanuts")
        assert max(nearness(asked, chunk) for chunk in longer) > max(
            nearness(asked, chunk) for chunk in plain
        )

    def test_nothing_is_made_after_the_instant(self, embedder: Embedder) -> None:
        assert embedder.embed_documents(TEXTS, until=time.monotonic() - 1) == [None] * len(TEXTS)

    def test_all_is_made_before_a_distant_instant(self, embedder: Embedder) -> None:
        made = embedder.embed_documents(TEXTS, until=time.monotonic() + 60)
        assert [vectors.tobytes() for vectors in made] == [
            vectors.tobytes() for vectors in embedder.embed_documents(TEXTS)
        ]

    def test_no_texts_give_no_vectors(self, embedder: Embedder) -> None:
        assert embedder.embed_documents([]) == []
        assert embedder.embed_queries([]) == []

    @pytest.mark.parametrize(
        ("question", "meant", "other"),
        [
            (
                "when do we ship to production?",
                "Deployments happen on Thursdays.",
                "The cat sleeps on the sofa.",
            ),
            ("food allergies", "Marta cannot eat peanuts.", "The printer is on the second floor."),
            ("Who looks after the servers?", "Boris is the system administrator.", "Anna likes red wine."),
        ],
    )
    def test_what_was_meant_is_nearer_than_something_else(
        self, embedder: Embedder, question: str, meant: str, other: str
    ) -> None:
        asked = embedder.embed_query(question)
        near, far = (vectors[0] for vectors in embedder.embed_documents([meant, other]))
        assert nearness(asked, near) > nearness(asked, far) + 0.1


class TestMiniLM(EmbedderContract):
    @pytest.fixture
    def embedder(self) -> Embedder:
        return named("minilm")


class TestOpenAICompatible(EmbedderContract):
    """Against a real server, which has the numbers of the default model."""

    @pytest.fixture
    def embedder(self) -> Iterator[Embedder]:
        def answer(handler: BaseHTTPRequestHandler, body: dict[str, Any]) -> None:
            vectors = named("minilm").embed_documents(body["input"])
            send(handler, embeddings([(vector[0].astype(float) * 3).tolist() for vector in vectors]))

        with serving(answer) as peer:
            given = {"url": peer.url, "model": "all-minilm", "api_key": None, "timeout_ms": 20_000}
            with override_settings(EMBEDDER_HTTP=given), closing(OpenAICompatible()) as embedder:
                yield embedder
