"""Fusion: one score for a candidate from what each strategy says of it.

`score` keeps magnitude. It is a · cosine + (1 - a) · words, where words is bm25 / (1.2 · Σ idf), the share of the
question's information that the text carries (so that text indexes of different workspaces compare), plus the weighted
signals of links and time. Every candidate has both, whoever found it; one whose vector is still to be made is taken by
its words alone. `rrf` is reciprocal rank fusion (Cormack, Clarke and Büttcher, 2009), k = 60, ranks from 1.

Sums are exact (`math.fsum`): the order in which strategies finish cannot change them.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import NamedTuple

RRF_K = 60
BM25_SCALE = 1.2
MEANING = 0.6  # a: what the cosine counts beside the words
SIGNALS = {"links": 0.2, "temporal": 0.15}  # what a full signal adds to a score that ends near 1


class Sighting(NamedTuple):
    """One strategy's word on a candidate: its rank from 1, its score, and why."""

    rank: int
    score: float
    reason: str = ""


def fused_score(
    sightings: Mapping[str, Sighting],
    *,
    ran: Collection[str],
    words: float,
    cosine: float | None,
    method: str,
    weights: Mapping[str, float],
) -> float:
    """The fused score of one candidate, from the strategies that `ran`; one without a weight of its own counts once."""
    terms = _ranked(sightings, weights)
    if method == "score":
        terms = _measured(sightings, ran, words, cosine, weights)
    return math.fsum(terms)


def _ranked(sightings: Mapping[str, Sighting], weights: Mapping[str, float]) -> list[float]:
    return [weights.get(name, 1.0) / (RRF_K + seen.rank) for name, seen in sightings.items()]


def _measured(
    sightings: Mapping[str, Sighting],
    ran: Collection[str],
    words: float,
    cosine: float | None,
    weights: Mapping[str, float],
) -> list[float]:
    share = MEANING if "lexical" in ran else 1.0
    meaning = words if cosine is None else max(cosine, 0.0)
    terms = []
    if "dense" in ran:
        terms.append(weights.get("dense", 1.0) * share * meaning)
        share = 1 - share
    else:
        share = 1.0
    if "lexical" in ran:
        terms.append(weights.get("lexical", 1.0) * share * words)
    for name, most in SIGNALS.items():
        if name in sightings:
            alone = 1.0 if len(ran) == 1 else most
            terms.append(weights.get(name, 1.0) * alone * sightings[name].score)
    return terms


def idf(documents: int, holding: int) -> float:
    """How much a word tells: ln((N - n + 0.5) / (n + 0.5)), as SQLite's bm25() has it, and never below 1e-6."""
    return max(math.log((documents - holding + 0.5) / (holding + 0.5)), 1e-6)
