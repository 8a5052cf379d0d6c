"""Rerankers: a second opinion on the first candidates, off unless settings name one and the request asks for it.

Nothing heavy is imported before a reranker is made, and none is made before it is asked for: `serve` forks first.
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Sequence
from typing import Protocol

from django.conf import settings
from django.utils.module_loading import import_string


class RerankerUnavailable(Exception):
    """The reranker gave no scores; the message says why, and holds no secret and no text."""


class Reranker(Protocol):
    """Scores texts against a question. Its method may be called from several threads.

    `version` names all that the numbers depend on, as far as it can be known.
    """

    version: str

    def scores(self, query: str, texts: Sequence[str]) -> list[float]:
        """A finite number for each text, in order: the higher, the better. Raises RerankerUnavailable."""
        ...


_made: dict[str, Reranker] = {}  # by dotted path
_making = threading.Lock()


def installed() -> Reranker:
    """The reranker that settings name: one in a process. Raises RerankerUnavailable."""
    name = settings.RECALL_RERANKER
    if not name:
        raise RerankerUnavailable("no reranker is installed")
    path = settings.RECALL_RERANKERS.get(name, name)
    made = _made.get(path)
    if made is not None:
        return made
    with _making:
        if path not in _made:
            try:
                made = import_string(path)()
            except ImportError as error:
                raise RerankerUnavailable(f"{path}: {error}") from error
            if not callable(getattr(made, "scores", None)) or not isinstance(
                getattr(made, "version", None), str
            ):
                raise RerankerUnavailable(f"{path} is no reranker: it needs a version and scores")
            _made[path] = made
        return _made[path]


def name_of_installed() -> str:
    """The version that scores come from; empty while there is no reranker."""
    try:
        return installed().version
    except RerankerUnavailable:
        return ""


def scores(query: str, texts: Sequence[str]) -> list[float]:
    """What the installed reranker thinks of each text, on one scale from 0 to 1. Raises RerankerUnavailable."""
    given = installed().scores(query, texts)
    if len(given) != len(texts):
        raise RerankerUnavailable(f"gave {len(given)} scores for {len(texts)} texts")
    if not all(math.isfinite(score) for score in given):
        raise RerankerUnavailable("gave a score that is not a finite number")
    return on_one_scale(given)


def on_one_scale(given: Sequence[float]) -> list[float]:
    """Scores within 0..1 as they are; if a single one lies outside, they are logits, and all go through the sigmoid.

    Either way one rising function maps all of one answer, so that no two texts change places.
    """
    if all(0 <= score <= 1 for score in given):
        return [float(score) for score in given]
    return [_sigmoid(score) for score in given]


def _sigmoid(logit: float) -> float:
    """Without exp of a large number, which overflows."""
    if logit >= 0:
        return 1 / (1 + math.exp(-logit))
    return math.exp(logit) / (1 + math.exp(logit))


def _forget() -> None:
    """Begin anew in a forked child: what the parent made may hold threads and locks that do not exist here."""
    global _making
    _making = threading.Lock()
    _made.clear()


os.register_at_fork(after_in_child=_forget)
