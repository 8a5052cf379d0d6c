"""An embedder and rerankers that settings can name: one that is down, one that turns the order round."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from recall.embedders import EmbedderUnavailable
from recall.rerankers import RerankerUnavailable


class EmbedderThatIsDown:
    """It knows its model and reaches nothing."""

    model_id = "down"
    dim = 384

    def embed_query(self, text: str) -> Any:
        raise EmbedderUnavailable("the model's server is down")

    def embed_queries(self, texts: Sequence[str]) -> Any:
        raise EmbedderUnavailable("the model's server is down")

    def embed_documents(self, texts: Sequence[str], *, until: float | None = None) -> Any:
        raise EmbedderUnavailable("the model's server is down")


class Letters:
    """Another embedder that works: a text's vector counts its letters."""

    model_id = "letters"
    dim = 26

    def embed_query(self, text: str) -> Any:
        counts = np.array([text.lower().count(chr(97 + n)) for n in range(self.dim)], dtype=np.float32)
        return (counts / max(float(np.linalg.norm(counts)), 1.0)).astype(np.float16)

    def embed_queries(self, texts: Sequence[str]) -> Any:
        return [self.embed_query(text) for text in texts]

    def embed_documents(self, texts: Sequence[str], *, until: float | None = None) -> Any:
        return [self.embed_query(text)[np.newaxis] for text in texts]


class ShortestFirst:
    """A reranker whose opinion is easy to foresee."""

    version = "shortest-first"

    def scores(self, query: str, texts: Sequence[str]) -> list[float]:
        return [1 / len(text) for text in texts]


class RerankerThatIsDown:
    version = "down"

    def scores(self, query: str, texts: Sequence[str]) -> list[float]:
        raise RerankerUnavailable("its server is down")
