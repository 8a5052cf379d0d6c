"""Fusion: one score for a candidate from what each strategy says of it.

`score` keeps magnitude. It is a · cosine + (1 - a) · words, plus the weighted signals of links and time. Words are
bm25 / (1.2 · Σ idf), the share of the question's information that the text carries (so that text indexes of different
workspaces compare), counted from `CHANCE` on: below it, texts share words by accident. Every candidate has both,
whoever found it; one whose vector is still to be made is taken by its words alone. `rrf` is reciprocal rank fusion
(Cormack, Clarke and Büttcher, 2009), k = 60, ranks from 1.

Chosen by measurement (README.md, "Quality"): a from .4 to .9 beside a chance from 0 to .5. Vectors alone
find other words and miss names and numbers, words alone the reverse; .7 from .2 on keeps both, and so do its neighbours
(a .6 to .75, chance .15 to .25). `rrf` throws magnitude away and loses half of what vectors find.

Sums are exact (`math.fsum`): the order in which strategies finish cannot change them.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import NamedTuple

RRF_K = 60
BM25_SCALE = 1.2
MEANING = 0.7  # a: what the cosine counts beside the words
CHANCE = 0.2  # the share of a question's information that texts carry by accident: words count from there on
WORTH_KEEPING = 0.5  # of the best match: below it, a candidate is noise
SIGNALS = {"links": 0.2, "temporal": 0.15}  # what a full signal adds to a score that ends near 1


class Sighting(NamedTuple):
    """One strategy's word on a candidate: its rank from 1, its score, and why."""

    rank: int
    score: float
    reason: str = ""


def match_score(
    *, ran: Collection[str], words: float, cosine: float | None, weights: Mapping[str, float]
) -> float:
    """How well a text itself matches: by meaning and words together, or by the one of them that `ran`, unchanged."""
    meaning = words if cosine is None else max(cosine, 0.0)
    by_meaning, by_words = weights.get("dense", 1.0), weights.get("lexical", 1.0)
    if "lexical" not in ran:
        return by_meaning * meaning if "dense" in ran else 0.0
    if "dense" not in ran:
        return by_words * words
    beyond_chance = max(0.0, words - CHANCE) / (1 - CHANCE)
    return by_meaning * MEANING * meaning + by_words * (1 - MEANING) * beyond_chance


def fused_score(
    sightings: Mapping[str, Sighting],
    *,
    ran: Collection[str],
    match: float,
    method: str,
    weights: Mapping[str, float],
) -> float:
    """The fused score of one candidate, from the strategies that `ran`; one without a weight of its own counts once.

    `score` is its match and what links and time add to that; `rrf` is its ranks alone.
    """
    if method == "score":
        signalled = _signalled(sightings, ran, weights)
        return math.fsum([match, *signalled]) if signalled else match
    return math.fsum(weights.get(name, 1.0) / (RRF_K + seen.rank) for name, seen in sightings.items())


def _signalled(
    sightings: Mapping[str, Sighting], ran: Collection[str], weights: Mapping[str, float]
) -> list[float]:
    if sightings.keys().isdisjoint(SIGNALS):  # nearly all of them
        return []
    return [
        weights.get(name, 1.0) * (1.0 if len(ran) == 1 else most) * sightings[name].score
        for name, most in SIGNALS.items()
        if name in sightings
    ]


def idf(documents: int, holding: int) -> float:
    """How much a word tells: ln((N - n + 0.5) / (n + 0.5)), as SQLite's bm25() has it, and never below 1e-6."""
    return max(math.log((documents - holding + 0.5) / (holding + 0.5)), 1e-6)
