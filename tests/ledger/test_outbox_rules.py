"""The outbox's rules, without a database and without a clock."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.domain.instants import DAY, HOUR, SECOND
from ledger.domain.outbox import LAST_WAIT, LONGEST_WAIT, Outcome, Waiting, backoff, due, refused

AT = 1_796_040_000_000


def _refused(**changed: object) -> Outcome:
    facts = {
        "code": "http_503",
        "message": "the bank is busy",
        "permanent": False,
        "pause": False,
        "retry_after_ms": None,
        "attempts": 1,
        "jitter": 0.0,
        "at": AT,
    }
    return refused(**{**facts, **changed})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("attempts", "next_attempt_at", "expected"),
    [
        (1, AT, True),
        (1, AT - 1, True),
        (1, AT + 1, False),
        (0, AT + 1, True),  # never tried: a clock that stepped back does not hold it up
        (0, AT + 10 * DAY, True),
        (7, AT + LONGEST_WAIT, False),
        (7, AT + LONGEST_WAIT + 1, True),  # no wait is that long: the clock has stepped back since
    ],
)
def test_what_is_due(attempts: int, next_attempt_at: int, expected: bool) -> None:
    assert due(Waiting(attempts, next_attempt_at), at=AT) is expected


@pytest.mark.parametrize(
    ("attempts", "least", "most"),
    [
        (1, 1 * SECOND, 2 * SECOND),
        (2, 2 * SECOND, 4 * SECOND),
        (3, 4 * SECOND, 8 * SECOND),
        (11, 1024 * SECOND, 2048 * SECOND),
        (12, HOUR // 2, HOUR),
        (10_000, HOUR // 2, HOUR),
    ],
)
def test_waits_double_up_to_an_hour_and_half_of_each_is_chance(attempts: int, least: int, most: int) -> None:
    assert backoff(attempts, jitter=0.0) == least
    assert backoff(attempts, jitter=1.0) == most


@given(st.integers(1, 10**6), st.floats(0, 1))
def test_a_wait_is_never_longer_than_an_hour_nor_shorter_than_a_second(attempts: int, jitter: float) -> None:
    assert SECOND <= backoff(attempts, jitter=jitter) <= LAST_WAIT


def test_a_temporary_failure_waits_and_says_why() -> None:
    assert _refused() == Outcome("pending", AT + SECOND, 1, "http_503", "the bank is busy")


def test_retry_after_makes_a_wait_longer_and_never_shorter() -> None:
    assert _refused(retry_after_ms=90 * SECOND).next_attempt_at == AT + 90 * SECOND
    assert _refused(retry_after_ms=1).next_attempt_at == AT + SECOND
    assert _refused(retry_after_ms=30 * DAY).next_attempt_at == AT + LONGEST_WAIT


def test_a_permanent_failure_is_one_at_once() -> None:
    assert _refused(permanent=True, code="http_422").state == "failed"


def test_a_pause_is_nobodys_failure_and_the_entry_is_due_when_delivery_goes_on() -> None:
    outcome = _refused(pause=True, attempts=1, code="http_401")
    assert (outcome.state, outcome.attempts, outcome.next_attempt_at) == ("pending", 0, AT)


@given(
    st.booleans(), st.booleans(), st.none() | st.integers(0, 10**12), st.integers(1, 10**4), st.floats(0, 1)
)
def test_whatever_went_wrong_an_entry_is_failed_or_due_within_a_day(
    permanent: bool, pause: bool, retry_after_ms: int | None, attempts: int, jitter: float
) -> None:
    outcome = _refused(
        permanent=permanent, pause=pause, retry_after_ms=retry_after_ms, attempts=attempts, jitter=jitter
    )
    waits = Waiting(outcome.attempts, outcome.next_attempt_at)
    assert outcome.state == "failed" or (outcome.state == "pending" and due(waits, at=AT + LONGEST_WAIT))
