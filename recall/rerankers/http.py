"""A reranker elsewhere that answers `POST {url}/rerank`.

Two forms of it are in use, and the model's name tells which to ask in. Where one is named: `documents`, answered by
`{"results": [{"index", "relevance_score"}]}` (Cohere, Jina, vLLM, llama.cpp). Where none is, the server has only one:
`texts`, answered by `[{"index", "score"}]` (text-embeddings-inference, and llama.cpp too). Nothing is tried twice.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any

from django.conf import settings

from recall.rerankers import RerankerUnavailable
from vault.wire import BadAnswer, Late, NoAnswer, asked, client

ROOM = 2000  # characters of a text: with a question about what models of 512 word pieces take, and some refuse more
QUERY_ROOM = 1000
ANSWER_BYTES = 4 * 1024 * 1024  # some repeat every text


class HttpReranker:
    """The model and the address that settings name (RERANKER_HTTP)."""

    def __init__(self) -> None:
        """Raises RerankerUnavailable where settings name no address."""
        given: dict[str, Any] = settings.RERANKER_HTTP
        if not given["url"]:
            raise RerankerUnavailable("RECALL_RERANKER_URL is not set")
        self.version = f"http/{given['model'] or 'unnamed'}/{ROOM}"
        self._model = given["model"]
        self._address = given["url"].rstrip("/") + "/rerank"
        self._seconds = given["timeout_ms"] / 1000
        self._client = client(given["api_key"])

    def close(self) -> None:
        """Let go of the connections."""
        self._client.close()

    def scores(self, query: str, texts: Sequence[str]) -> list[float]:
        try:
            body = self._body(query[:QUERY_ROOM], [text[:ROOM] for text in texts])
            limit = time.monotonic() + self._seconds
            answer = asked(self._client, self._address, body, limit=limit, most=ANSWER_BYTES)
        except Late:
            raise RerankerUnavailable(f"no answer within {self._seconds:g} s") from None
        except (BadAnswer, NoAnswer) as error:
            raise RerankerUnavailable(str(error)) from None
        return _checked(answer, len(texts))

    def _body(self, query: str, texts: list[str]) -> dict[str, Any]:
        if self._model:
            return {"model": self._model, "query": query, "documents": texts}
        return {"query": query, "texts": texts, "truncate": True}


def _checked(answer: bytes, count: int) -> list[float]:
    """The scores in the order of the texts: one for each, or none at all."""
    try:
        told = json.loads(answer)
    except (ValueError, RecursionError):
        raise RerankerUnavailable("answered with something that is not JSON") from None
    entries, named = (told.get("results"), "relevance_score") if isinstance(told, dict) else (told, "score")
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise RerankerUnavailable("answered without a list of scores")
    by_index = {str(entry.get("index")): entry.get(named) for entry in entries}
    if len(entries) != count or any(str(place) not in by_index for place in range(count)):
        raise RerankerUnavailable(f"answered {len(entries)} scores, or wrong indexes, for {count} texts")
    return [_number(by_index[str(place)]) for place in range(count)]


def _number(score: Any) -> float:
    if isinstance(score, bool) or not isinstance(score, int | float):
        raise RerankerUnavailable("answered a score that is not a number")
    try:
        return float(score)
    except OverflowError:
        raise RerankerUnavailable("answered a score that is not a finite number") from None
