"""Fusion: one score out of several, whatever the order they come in; and what is too weak to be kept."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recall.domain.fusion import CHANCE, MEANING, RRF_K, SIGNALS, Sighting, fused_score, idf, match_score
from recall.domain.words import worth_asking
from vault.models import Memory, MemoryLink

NAMES = ("lexical", "dense", "links", "temporal")
SHARES = st.floats(0, 1)
SIGHTINGS = st.dictionaries(
    st.sampled_from(NAMES), st.builds(Sighting, st.integers(1, 2000), SHARES), min_size=1
)
WEIGHTS = st.dictionaries(st.sampled_from(NAMES), st.floats(0, 10))
BOTH = ("lexical", "dense")


@given(SIGHTINGS, st.randoms(), SHARES, WEIGHTS, st.sampled_from(["score", "rrf"]))
def test_the_order_in_which_strategies_finish_changes_no_score(
    sightings: dict[str, Sighting], chance: Any, match: float, weights: dict[str, float], method: str
) -> None:
    shuffled = list(sightings.items())
    chance.shuffle(shuffled)
    ran = list(NAMES)
    chance.shuffle(ran)
    one, other = (
        fused_score(given, ran=order, match=match, method=method, weights=weights)
        for given, order in ((sightings, NAMES), (dict(shuffled), ran))
    )
    assert one == other


@given(SIGHTINGS)
def test_rrf_adds_one_over_sixty_and_the_rank(sightings: dict[str, Sighting]) -> None:
    expected = math.fsum(1 / (60 + seen.rank) for seen in sightings.values())
    assert RRF_K == 60
    assert fused_score(sightings, ran=NAMES, match=1.0, method="rrf", weights={}) == expected


@given(st.floats(0, CHANCE), SHARES)
def test_words_that_texts_share_by_accident_count_nothing_beside_a_vector(
    words: float, cosine: float
) -> None:
    assert match_score(ran=BOTH, words=words, cosine=cosine, weights={}) == MEANING * cosine


@given(SHARES, SHARES, SHARES)
def test_more_words_or_more_meaning_is_never_less(words: float, cosine: float, more: float) -> None:
    before = match_score(ran=BOTH, words=words, cosine=cosine, weights={})
    assert match_score(ran=BOTH, words=words + more, cosine=cosine, weights={}) >= before
    assert match_score(ran=BOTH, words=words, cosine=cosine + more, weights={}) >= before


def test_a_whole_match_in_words_and_meaning_is_one() -> None:
    assert match_score(ran=BOTH, words=1.0, cosine=1.0, weights={}) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("ran", "expected"), [(("lexical",), 0.1), (("dense",), 0.4), (("links",), 0.0), ((), 0.0)]
)
def test_words_or_meaning_alone_count_as_they_are(ran: tuple[str, ...], expected: float) -> None:
    assert match_score(ran=ran, words=0.1, cosine=0.4, weights={}) == expected


def test_a_text_without_a_vector_is_taken_by_its_words() -> None:
    assert match_score(ran=("dense",), words=0.5, cosine=None, weights={}) == 0.5


def test_reciprocal_ranks_count_from_one_and_by_weight() -> None:
    seen = {"lexical": Sighting(1, 9.0), "dense": Sighting(3, 0.1)}
    fused = fused_score(seen, ran=BOTH, match=0.9, method="rrf", weights={"dense": 2.0})
    assert fused == math.fsum([1 / 61, 2 / 63])


def test_a_vector_that_points_away_takes_nothing_from_a_score() -> None:
    assert match_score(ran=BOTH, words=0.0, cosine=-0.5, weights={}) == 0.0


def test_a_signal_adds_its_share_and_is_the_whole_score_alone() -> None:
    seen = {"links": Sighting(1, 0.5)}
    together = fused_score(seen, ran=NAMES, match=0.25, method="score", weights={})
    assert together == 0.25 + SIGNALS["links"] * 0.5
    assert fused_score(seen, ran=("links",), match=0.0, method="score", weights={}) == 0.5


@given(SIGHTINGS, st.sampled_from(sorted(SIGNALS)), SHARES, SHARES, WEIGHTS)
def test_a_signal_that_appears_or_grows_never_takes_from_a_score(
    sightings: dict[str, Sighting], name: str, share: float, match: float, weights: dict[str, float]
) -> None:
    without = {other: seen for other, seen in sightings.items() if other != name}
    scores = [
        fused_score(seen, ran=NAMES, match=match, method="score", weights=weights)
        for seen in (
            without,
            {**without, name: Sighting(1, share / 2)},
            {**without, name: Sighting(1, share)},
        )
    ]
    assert scores == sorted(scores)


@given(SIGHTINGS, st.integers(1, 2000), WEIGHTS)
def test_a_better_rank_is_never_less(
    sightings: dict[str, Sighting], rank: int, weights: dict[str, float]
) -> None:
    name = min(sightings)
    ranks = sorted((rank, sightings[name].rank), reverse=True)
    scores = [
        fused_score(
            {**sightings, name: Sighting(r, 0.0)}, ran=NAMES, match=0.0, method="rrf", weights=weights
        )
        for r in ranks
    ]
    assert scores == sorted(scores)


@given(SIGHTINGS, st.sampled_from(NAMES), WEIGHTS, SHARES, SHARES, st.sampled_from(["score", "rrf"]))
def test_a_strategy_of_weight_0_is_silent(
    sightings: dict[str, Sighting],
    name: str,
    weights: dict[str, float],
    words: float,
    cosine: float,
    method: str,
) -> None:
    muted = {**weights, name: 0.0}

    def score(seen: dict[str, Sighting], words: float, cosine: float) -> float:
        match = match_score(ran=NAMES, words=words, cosine=cosine, weights=muted)
        return fused_score(seen, ran=NAMES, match=match, method=method, weights=muted)

    before = score(sightings, words, cosine)
    assert score({**sightings, name: Sighting(1, 1.0)}, words, cosine) == before
    if name == "lexical":
        assert score(sightings, 1.0, cosine) == before
    if name == "dense":
        assert score(sightings, words, 1.0) == before


@given(SIGHTINGS, SHARES, SHARES, st.sampled_from(["score", "rrf"]))
def test_without_any_weight_every_score_is_0(
    sightings: dict[str, Sighting], words: float, cosine: float, method: str
) -> None:
    silent = dict.fromkeys(NAMES, 0.0)
    match = match_score(ran=NAMES, words=words, cosine=cosine, weights=silent)
    assert fused_score(sightings, ran=NAMES, match=match, method=method, weights=silent) == 0.0


@given(SHARES, WEIGHTS)
def test_a_text_without_a_vector_scores_as_if_it_meant_what_it_says(
    words: float, weights: dict[str, float]
) -> None:
    one, other = (
        match_score(ran=BOTH, words=words, cosine=cosine, weights=weights) for cosine in (None, words)
    )
    assert one == other


@given(st.integers(1, 1_000_000), st.integers(1, 1_000_000))
def test_a_rarer_word_never_tells_less(documents: int, holding: int) -> None:
    holding = min(holding, documents)
    assert 1e-6 <= idf(documents, holding) <= idf(documents, holding - 1)


# ------------------------------------------------------------------------------------------------ words


@pytest.mark.parametrize(
    ("holding", "documents", "kept"),
    [
        ({"gate": 3, "b17": 1, "zeppelin": 0}, 100, ["gate", "b17", "zeppelin"]),  # unseen ones are asked too
        ({"the": 90_000, "gate": 3, "b17": 1}, 100_000, ["gate", "b17"]),
        ({"the": 90_000, "user": 50_000, "b17": 1}, 100_000, ["user", "b17"]),  # never fewer than two
        ({"the": 90_000, "zeppelin": 0}, 100_000, ["the", "zeppelin"]),
    ],
)
def test_words_are_worth_asking_unless_too_many_texts_hold_them(
    holding: dict[str, int], documents: int, kept: list[str]
) -> None:
    assert worth_asking(holding, documents) == kept


@pytest.mark.django_db
def test_a_text_with_one_word_out_of_five_does_not_match_wholly(
    api: Any, remember: Callable[..., Memory]
) -> None:
    remember("The reviewer likes tea.")
    for number in range(20):
        remember(f"Note {number} is about nothing else.")
    one, five = (
        api.recalled(question, mode="lexical")["results"][0]["score"]["final"]
        for question in ("reviewer", "zeppelin hangar propeller ballast reviewer")
    )
    assert five < one / 3


# ------------------------------------------------------------------------------------------------ the weak

QUESTION = "When is the thesis outline due to the reviewer?"
BEST = "The thesis outline is due to the reviewer on Friday."
WEAK = "Thesis paper is sold in the shop on the ground floor."


@pytest.mark.django_db
def test_what_matches_less_than_half_as_well_as_the_best_is_left_out_and_on_record(
    api: Any, remember: Callable[..., Memory]
) -> None:
    remember(BEST)
    weak = remember(WEAK)
    answer = api.recalled(QUESTION, profile="validity")
    assert [hit["memory"]["text"] for hit in answer["results"]] == [BEST]
    _, record = api.get(f"/v1/recalls/{answer['recall_id']}")
    (left_out,) = [candidate for candidate in record["candidates"] if candidate["id"] == weak.id]
    assert left_out["detail"] == "matches less than half as well as the best"
    assert api.texts(QUESTION, mode="lexical") == [BEST, WEAK]  # asked alone, words find what they find


@pytest.mark.django_db
def test_the_best_that_holds_is_what_others_are_held_against(
    api: Any, remember: Callable[..., Memory]
) -> None:
    remember(BEST, expires_at=0)
    remember(WEAK)
    assert api.texts(QUESTION, profile="validity") == [WEAK]


@pytest.mark.django_db
def test_what_a_link_brought_in_is_kept_however_little_it_matches(
    api: Any, remember: Callable[..., Memory], link: Callable[..., MemoryLink]
) -> None:
    best, weak = remember(BEST), remember(WEAK)
    link(best, weak, "RELATES_TO")
    assert api.texts(QUESTION, profile="validity") == [BEST, WEAK]


@pytest.mark.django_db
def test_what_holds_every_word_of_the_question_is_kept_however_long_it_is(
    api: Any, remember: Callable[..., Memory]
) -> None:
    long = f"The fence is mentioned once here. {'Then come other things at great length. ' * 30}".strip()
    remember("fence")
    remember(long)
    assert api.texts("fence") == ["fence", long]


@pytest.mark.django_db
def test_a_successor_is_as_good_a_match_as_what_it_replaced(
    api: Any, remember: Callable[..., Memory], link: Callable[..., MemoryLink]
) -> None:
    remember("The thesis outline for the reviewer is due some day.")
    old, new = remember(BEST), remember("Moved to May.")
    link(old, new, "EVOLVED_INTO")
    assert "Moved to May." in api.texts(QUESTION)
