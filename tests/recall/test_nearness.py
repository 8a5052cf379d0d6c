"""Nearness to the time that a question names: properties of the score, and the reasons in words."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.domain.instants import DAY, EARLIEST, HOUR, LATEST, MINUTE, UnixMs
from recall.domain.nearness import HALF_DISTANCE_OF_AN_OPEN_BOUND, nearness

INSTANTS = st.integers(min_value=EARLIEST, max_value=LATEST)
BOUNDS = st.tuples(st.none() | INSTANTS, st.none() | INSTANTS).filter(
    lambda pair: pair[0] is None or pair[1] is None or pair[0] < pair[1]
)
START, END = 100 * DAY, 107 * DAY


def score(created_at: UnixMs, start: UnixMs | None = START, end: UnixMs | None = END) -> float:
    return nearness(created_at, start=start, end=end)[0]


def reason(created_at: UnixMs, start: UnixMs | None = START, end: UnixMs | None = END) -> str:
    return nearness(created_at, start=start, end=end)[1]


@given(INSTANTS, BOUNDS)
def test_a_memory_scores_one_exactly_when_it_was_written_in_the_named_time(at: UnixMs, bounds: tuple) -> None:
    start, end = bounds
    inside = (start is None or start <= at) and (end is None or at < end)
    near, why = nearness(at, start=start, end=end)
    assert 0.0 <= near <= 1.0
    assert (why == "written in the named time") is inside
    if inside:
        assert near == 1.0


@given(INSTANTS, INSTANTS, BOUNDS)
def test_of_two_memories_on_one_side_the_farther_never_scores_higher(
    one: UnixMs, other: UnixMs, bounds: tuple
) -> None:
    start, end = bounds
    early, late = sorted((one, other))
    if start is not None and late < start:
        assert score(early, start, end) <= score(late, start, end)
    if end is not None and early >= end:
        assert score(late, start, end) <= score(early, start, end)


@given(st.integers(min_value=1, max_value=400 * DAY), st.integers(min_value=0, max_value=400 * DAY))
def test_both_sides_of_a_span_count_the_same(width: int, away: int) -> None:
    before = score(-away, 0, width)
    after = score(width - 1 + away, 0, width)
    assert before == after


@given(st.integers(min_value=1, max_value=400 * DAY))
def test_one_width_away_the_score_is_half(width: int) -> None:
    assert score(-width, 0, width) == 0.5
    assert score(-2 * width, 0, width) == 0.25


def test_with_an_open_bound_the_score_halves_in_a_week() -> None:
    assert score(-HALF_DISTANCE_OF_AN_OPEN_BOUND, 0, None) == 0.5
    assert score(HALF_DISTANCE_OF_AN_OPEN_BOUND - 1, None, 0) == 0.5


def test_without_any_bound_every_memory_was_written_in_the_named_time() -> None:
    assert nearness(LATEST, start=None, end=None) == (1.0, "written in the named time")


def test_the_farthest_memory_of_the_narrowest_span_scores_nearly_nothing_and_is_no_error() -> None:
    assert score(EARLIEST, LATEST - 1, LATEST) < 1e-300


@pytest.mark.parametrize(
    ("distance", "words"),
    [
        (1, "written less than an hour from the named time"),
        (HOUR - 1, "written less than an hour from the named time"),
        (HOUR, "written 1 hour from the named time"),
        (DAY - 1, "written 23 hours from the named time"),
        (DAY, "written 1 day from the named time"),
        (2 * DAY + 5 * MINUTE, "written 2 days from the named time"),
        (7 * DAY, "written 1 week from the named time"),
        (29 * DAY, "written 4 weeks from the named time"),
        (30 * DAY, "written 1 month from the named time"),
        (400 * DAY, "written 13 months from the named time"),
    ],
)
def test_the_reason_tells_the_distance_in_the_largest_unit_it_fills(distance: UnixMs, words: str) -> None:
    assert reason(START - distance) == words
    assert reason(END - 1 + distance) == words
