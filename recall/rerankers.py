"""Rerankers: a second opinion on the first candidates, off unless settings name one and the request asks for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from django.conf import settings
from django.utils.module_loading import import_string


class RerankerUnavailable(Exception):
    """The reranker gave no scores; the message says why, and holds no secret and no text."""


class Reranker(Protocol):
    """Scores texts against a question, all on one scale from 0 to 1, or none at all."""

    version: str

    def scores(self, query: str, texts: Sequence[str]) -> list[float]:
        """One score a text, in order. Raises RerankerUnavailable."""
        ...


def installed() -> Reranker | None:
    """The reranker that settings.RECALL_RERANKER names by dotted path; None: there is none."""
    if not settings.RECALL_RERANKER:
        return None
    reranker: Reranker = import_string(settings.RECALL_RERANKER)()
    return reranker
