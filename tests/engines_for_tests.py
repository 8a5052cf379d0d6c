"""An embedder and rerankers that settings can name: one that is down, one that turns the order round."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

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


class ShortestFirst:
    """A reranker whose opinion is easy to foresee."""

    version = "shortest-first"

    def scores(self, query: str, texts: Sequence[str]) -> list[float]:
        return [1 / len(text) for text in texts]


class RerankerThatIsDown:
    version = "down"

    def scores(self, query: str, texts: Sequence[str]) -> list[float]:
        raise RerankerUnavailable("its server is down")
