"""Fusion: one score for a candidate from what each strategy says of it.

`score` keeps magnitude: the weighted sum of the strategies' normalised scores. For words that is
bm25 / (1.2 · Σ idf): the share of the question's information that the text carries, so that scores from text
indexes of different workspaces compare. `rrf` is reciprocal rank fusion (Cormack, Clarke and Büttcher, 2009),
k = 60, ranks from 1. Sums are exact (`math.fsum`): the order in which strategies finish cannot change them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

RRF_K = 60
BM25_SCALE = 1.2


class Sighting(NamedTuple):
    """One strategy's word on a candidate: its rank from 1, and its normalised score."""

    rank: int
    score: float


def fused_score(sightings: Mapping[str, Sighting], *, method: str, weights: Mapping[str, float]) -> float:
    """The fused score of one candidate; a strategy without a weight of its own counts once."""
    terms = []
    for strategy, sighting in sorted(sightings.items()):
        weight = weights.get(strategy, 1.0)
        terms.append(weight / (RRF_K + sighting.rank) if method == "rrf" else weight * sighting.score)
    return math.fsum(terms)


def idf(documents: int, holding: int) -> float:
    """How much a word tells: ln((N - n + 0.5) / (n + 0.5)), as SQLite's bm25() has it, and never below 1e-6."""
    return max(math.log((documents - holding + 0.5) / (holding + 0.5)), 1e-6)
