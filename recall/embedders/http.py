"""An embedder elsewhere that speaks OpenAI's `POST {url}/embeddings`: Ollama, llama.cpp, vLLM, TEI, or OpenAI itself.

Vectors are as deterministic as that server. Nothing is tried twice: whoever asked decides whether to ask again.
"""

from __future__ import annotations

import json
import time
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np
from django.conf import settings

from recall.embedders import EmbedderUnavailable
from recall.embedders.chunks import is_past, windows
from vault.wire import BadAnswer, Late, NoAnswer, asked, client

if TYPE_CHECKING:
    from recall.embedders import Vector, Vectors

ROOM, OVERLAP = (
    1000,
    100,
)  # characters of a chunk: small models cut what is longer than 256 word pieces unasked
PARTS_AT_ONCE = 64
ANSWER_BYTES = 64 * 1024 * 1024
QUERIES_KEPT = 2048


class _Late(Exception):
    """The answer did not come by the caller's own instant."""


class OpenAICompatible:
    """The model and the address that settings name (EMBEDDER_HTTP)."""

    def __init__(self) -> None:
        """Raises EmbedderUnavailable where settings do not name both."""
        given: dict[str, Any] = settings.EMBEDDER_HTTP
        if not given["url"] or not given["model"]:
            raise EmbedderUnavailable("RECALL_EMBEDDER_URL and RECALL_EMBEDDER_MODEL are not both set")
        self.model_id = f"openai/{given['model']}/unit/{ROOM}-{OVERLAP}"
        self._model = given["model"]
        self._address = given["url"].rstrip("/") + "/embeddings"
        self._seconds = given["timeout_ms"] / 1000
        self._client = client(given["api_key"])
        self._dim: int | None = None
        self._kept = _Recent(QUERIES_KEPT)

    def close(self) -> None:
        """Let go of the connections."""
        self._client.close()

    @property
    def dim(self) -> int:
        """What the first answer showed; asks for one if there was none yet. Raises EmbedderUnavailable."""
        if self._dim is None:
            self.embed_query("dimensions")
        assert self._dim is not None
        return self._dim

    def embed_query(self, text: str) -> Vector:
        """Of a question longer than a chunk, the first chunk's vector."""
        return self.embed_queries([text])[0]

    def embed_queries(self, texts: Sequence[str]) -> list[Vector]:
        known = {text: vector for text in texts if (vector := self._kept.get(text)) is not None}
        for batch in _batches([text for text in dict.fromkeys(texts) if text not in known]):
            made = self._ask([text[:ROOM] for text in batch], until=None)
            for text, vector in zip(batch, made, strict=True):
                vector.flags.writeable = False  # everyone who asks the same gets this one
                self._kept.put(text, vector)
                known[text] = vector
        return [known[text] for text in texts]

    def embed_documents(self, texts: Sequence[str], *, until: float | None = None) -> list[Vectors | None]:
        parts = [windows(text, room=ROOM, overlap=OVERLAP) for text in texts]
        flat = iter(self._until([part for of_one in parts for part in of_one], until))
        made = [[vector for _, vector in zip(of_one, flat, strict=False)] for of_one in parts]
        return [
            np.stack(vectors) if len(vectors) == len(of_one) else None
            for vectors, of_one in zip(made, parts, strict=True)
        ]

    def _until(self, parts: Sequence[str], until: float | None) -> list[Vector]:
        """The vectors of the first parts, as many as can be had by the caller's instant."""
        made: list[Vector] = []
        for batch in _batches(parts):
            if is_past(until):
                break
            try:
                made += self._ask(batch, until=until)
            except _Late:
                break
        return made

    def _ask(self, parts: Sequence[str], *, until: float | None) -> list[Vector]:
        """One request. Raises EmbedderUnavailable, or _Late where the caller's instant came before our own limit."""
        limit = time.monotonic() + self._seconds
        try:
            return self._checked(self._answer(parts, min(limit, until or limit)), len(parts))
        except Late:
            if until is not None and until < limit:
                raise _Late from None
            raise EmbedderUnavailable(f"no answer within {self._seconds:g} s") from None
        except (BadAnswer, NoAnswer) as error:
            raise EmbedderUnavailable(str(error)) from None

    def _answer(self, parts: Sequence[str], limit: float) -> bytes:
        body = {"model": self._model, "input": list(parts)}
        return asked(self._client, self._address, body, limit=limit, most=ANSWER_BYTES)

    def _checked(self, answer: bytes, count: int) -> list[Vector]:
        try:
            told = json.loads(answer)
        except (ValueError, RecursionError):
            raise EmbedderUnavailable("answered with something that is not JSON") from None
        entries = told.get("data") if isinstance(told, dict) else None
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            raise EmbedderUnavailable("answered without a list of embeddings")
        by_index = {str(entry.get("index")): entry.get("embedding") for entry in entries}
        if len(entries) != count or any(str(place) not in by_index for place in range(count)):
            raise EmbedderUnavailable(
                f"answered {len(entries)} embeddings, or wrong indexes, for {count} texts"
            )
        return [self._vector(by_index[str(place)]) for place in range(count)]

    def _vector(self, numbers: Any) -> Vector:
        try:
            found = np.asarray(numbers, dtype=np.float64)
        except (TypeError, ValueError, OverflowError):
            raise EmbedderUnavailable("answered an embedding that is not a list of numbers") from None
        if found.ndim != 1 or not found.size:
            raise EmbedderUnavailable("answered an embedding that is not a list of numbers")
        if self._dim is None:
            self._dim = found.size
        if found.size != self._dim:
            raise EmbedderUnavailable(f"answered {found.size} dimensions after {self._dim}")
        with np.errstate(all="ignore"):  # what overflows, or was never a number, is refused below
            length = np.sqrt(found @ found)
        if not np.isfinite(length) or length == 0:
            raise EmbedderUnavailable("answered an embedding without a direction: not finite, or zero")
        return (found / length).astype(np.float16)


def _batches(parts: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(parts), PARTS_AT_ONCE):
        yield parts[start : start + PARTS_AT_ONCE]


class _Recent:
    """The vectors of the questions asked last; safe between threads."""

    def __init__(self, room: int) -> None:
        self._room = room
        self._lock = Lock()
        self._vectors: OrderedDict[str, Vector] = OrderedDict()

    def get(self, text: str) -> Vector | None:
        with self._lock:
            if text in self._vectors:
                self._vectors.move_to_end(text)
            return self._vectors.get(text)

    def put(self, text: str, vector: Vector) -> None:
        with self._lock:
            self._vectors[text] = vector
            if len(self._vectors) > self._room:
                self._vectors.popitem(last=False)
