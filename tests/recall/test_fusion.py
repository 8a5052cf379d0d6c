"""Fusion as arithmetic: what a score is made of, and that the order in which strategies finish cannot change it."""

from __future__ import annotations

import math
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recall.domain.fusion import CHANCE, MEANING, RRF_K, SIGNALS, Sighting, fused_score, idf, match_score
from recall.domain.request import STRATEGIES

UNIT = st.floats(0, 1)
WEIGHTS = st.dictionaries(st.sampled_from(STRATEGIES), st.floats(0, 100))
SIGHTINGS = st.dictionaries(
    st.sampled_from(STRATEGIES), st.builds(Sighting, st.integers(1, 2_000), UNIT), min_size=1
)


@given(seen=SIGHTINGS, words=UNIT, cosine=st.none() | st.floats(-1, 1), weights=WEIGHTS)
@pytest.mark.parametrize("method", ["score", "rrf"])
def test_the_order_of_the_strategies_changes_no_bit_of_a_score(
    method: str,
    seen: dict[str, Sighting],
    words: float,
    cosine: float | None,
    weights: dict[str, float],
) -> None:
    scores = set()
    for order in permutations(seen):
        match = match_score(ran=order, words=words, cosine=cosine, weights=weights)
        ordered = {name: seen[name] for name in order}
        scores.add(fused_score(ordered, ran=order, match=match, method=method, weights=weights))
    assert len(scores) == 1


@given(words=UNIT, more=UNIT, cosine=UNIT, nearer=UNIT)
def test_a_better_match_never_scores_less(words: float, more: float, cosine: float, nearer: float) -> None:
    def match(words: float, cosine: float) -> float:
        return match_score(ran=("lexical", "dense"), words=words, cosine=cosine, weights={})

    least = match(min(words, more), min(cosine, nearer))
    assert (
        least <= match(max(words, more), min(cosine, nearer)) <= match(max(words, more), max(cosine, nearer))
    )
    assert 0.0 <= least <= 1.0 + 1e-12


def test_a_whole_match_scores_one_and_words_shared_by_chance_count_nothing() -> None:
    both = ("lexical", "dense")
    assert match_score(ran=both, words=1.0, cosine=1.0, weights={}) == pytest.approx(1.0)
    assert match_score(ran=both, words=CHANCE, cosine=0.0, weights={}) == 0.0
    assert match_score(ran=both, words=0.0, cosine=-0.5, weights={}) == 0.0
    assert match_score(ran=both, words=0.0, cosine=0.5, weights={}) == MEANING * 0.5


def test_a_text_without_its_vector_is_taken_by_its_words() -> None:
    without = match_score(ran=("lexical", "dense"), words=0.6, cosine=None, weights={})
    assert without == match_score(ran=("lexical", "dense"), words=0.6, cosine=0.6, weights={})


@pytest.mark.parametrize(("alone", "expected"), [("lexical", 0.3), ("dense", 0.8), ("links", 0.0)])
def test_a_strategy_alone_keeps_its_own_score(alone: str, expected: float) -> None:
    assert match_score(ran=(alone,), words=0.3, cosine=0.8, weights={}) == expected


@pytest.mark.parametrize("name", SIGNALS)
def test_a_signal_adds_its_share_to_a_match_and_is_the_whole_score_alone(name: str) -> None:
    seen = {name: Sighting(1, 0.5)}
    beside = fused_score(seen, ran=("lexical", name), match=0.4, method="score", weights={})
    assert beside == pytest.approx(0.4 + SIGNALS[name] * 0.5)
    assert fused_score(seen, ran=(name,), match=0.0, method="score", weights={}) == 0.5
    assert fused_score(seen, ran=("lexical", name), match=0.4, method="score", weights={name: 0}) == 0.4


def test_reciprocal_ranks_count_from_one_with_k_sixty_and_weights() -> None:
    seen = {"lexical": Sighting(1, 9.0), "dense": Sighting(3, 0.1)}
    fused = fused_score(seen, ran=("lexical", "dense"), match=0.9, method="rrf", weights={"dense": 2.0})
    assert RRF_K == 60
    assert fused == math.fsum([1 / 61, 2 / 63])


def test_a_word_that_half_of_the_texts_hold_tells_next_to_nothing_and_a_rare_one_the_most() -> None:
    assert idf(100, 1) > idf(100, 10) > idf(100, 49) > idf(100, 50) == idf(100, 100) == 1e-6
