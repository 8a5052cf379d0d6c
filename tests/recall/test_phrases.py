"""Which time a question names: the phrases, their bounds in UTC, and the words that only look like a time."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ledger.domain.instants import EARLIEST, LATEST, UnixMs, format_instant, parse_instant
from recall.phrases import Span, span_named_in

ROOT = Path(__file__).resolve().parent.parent.parent
NOW = "2026-11-26T13:58:02Z"  # a Thursday


def named(query: str, at: str = NOW) -> tuple[str | None, str | None, str] | None:
    span = span_named_in(query, at=parse_instant(at))
    if span is None:
        return None
    return _day(span.start), _day(span.end), span.phrase


def _day(bound: UnixMs | None) -> str | None:
    return None if bound is None else format_instant(bound).removesuffix("T00:00:00Z")


@pytest.mark.parametrize(
    ("query", "start", "end", "phrase"),
    [
        ("What did we decide about the outline last week?", "2026-11-16", "2026-11-23", "last week"),
        ("LAST WEEK we chose a vendor, which?", "2026-11-16", "2026-11-23", "LAST WEEK"),
        ("Summarise last week's stand-ups", "2026-11-16", "2026-11-23", "last week"),
        ("Who joined this week?", "2026-11-23", "2026-11-30", "this week"),
        ("What broke yesterday?", "2026-11-25", "2026-11-26", "yesterday"),
        ("And the day before yesterday?", "2026-11-24", "2026-11-25", "the day before yesterday"),
        ("Anything new today?", "2026-11-26", "2026-11-27", "today"),
        ("Who was on call in March?", "2026-03-01", "2026-04-01", "in March"),
        ("Where did I travel in may", "2026-05-01", "2026-06-01", "in may"),
        ("Where did I travel in December?", "2025-12-01", "2026-01-01", "in December"),
        ("What was bought in November?", "2026-11-01", "2026-12-01", "in November"),
        ("Who was on call in March 2025?", "2025-03-01", "2025-04-01", "in March 2025"),
        ("Find the Dec 2024 invoice", "2024-12-01", "2025-01-01", "Dec 2024"),
        ("What happened last March?", "2026-03-01", "2026-04-01", "last March"),
        ("What happened last November?", "2025-11-01", "2025-12-01", "last November"),
        ("How much did I spend last month?", "2026-10-01", "2026-11-01", "last month"),
        ("Which goals did I set this month?", "2026-11-01", "2026-12-01", "this month"),
        ("Which goals did I set this year?", "2026-01-01", "2027-01-01", "this year"),
        ("Where did we go last year?", "2025-01-01", "2026-01-01", "last year"),
        ("What did I read in 2024?", "2024-01-01", "2025-01-01", "in 2024"),
        ("What in 2024 was the budget?", "2024-01-01", "2025-01-01", "in 2024"),
        ("Which bug did we fix 3 days ago?", "2026-11-23", "2026-11-24", "3 days ago"),
        ("What did Ana say two weeks ago?", "2026-11-09", "2026-11-16", "two weeks ago"),
        ("What did Ana say a month ago?", "2026-10-11", "2026-11-11", "a month ago"),
        ("What did Ana say a year ago?", "2025-05-28", "2026-05-28", "a year ago"),
        ("What changed in the last two weeks?", "2026-11-12", "2026-11-27", "in the last two weeks"),
        ("What changed over the past 3 days?", "2026-11-23", "2026-11-27", "over the past 3 days"),
        ("What changed in the last month?", "2026-10-26", "2026-11-27", "in the last month"),
        ("Any news, the past week?", "2026-11-19", "2026-11-27", "the past week"),
        ("Is there anything on the 3rd of June 2026", "2026-06-03", "2026-06-04", "3rd of June 2026"),
        ("What changed in the past month?", "2026-10-26", "2026-11-27", "in the past month"),
        ("Who called last Tuesday?", "2026-11-24", "2026-11-25", "last Tuesday"),
        ("Who called last Thursday?", "2026-11-19", "2026-11-20", "last Thursday"),
        ("Who called on Friday?", "2026-11-20", "2026-11-21", "on Friday"),
        ("What was signed on 12 March 2026?", "2026-03-12", "2026-03-13", "on 12 March 2026"),
        ("What was signed on March 12th, 2026?", "2026-03-12", "2026-03-13", "on March 12th, 2026"),
        ("What was signed on the 12th of December?", "2025-12-12", "2025-12-13", "12th of December"),
        ("Notes of 2026-03-12, please", "2026-03-12", "2026-03-13", "of 2026-03-12"),
        ("Notes from 2026-03-12T10:30:00Z", "2026-03-12", "2026-03-13", "from 2026-03-12T10:30:00Z"),
        ("What has changed since Monday?", "2026-11-23", None, "since Monday"),
        ("What has changed since last month?", "2026-10-01", None, "since last month"),
        ("What has changed since march?", "2026-03-01", None, "since march"),
        ("What changed after 12 March 2026?", "2026-03-13", None, "after 12 March 2026"),
        ("What did we use before June?", None, "2026-06-01", "before June"),
        ("What did we use before 2025?", None, "2025-01-01", "before 2025"),
        ("What did we use until last year?", None, "2026-01-01", "until last year"),
    ],
)
def test_a_phrase_names_whole_days_of_utc(
    query: str, start: str | None, end: str | None, phrase: str
) -> None:
    assert named(query) == (start, end, phrase)


def test_hours_ago_is_the_hour_around_that_moment() -> None:
    assert named("What failed 2 hours ago?") == (
        "2026-11-26T11:28:02Z",
        "2026-11-26T12:28:02Z",
        "2 hours ago",
    )


@pytest.mark.parametrize(
    ("at", "query", "start", "end"),
    [
        ("2026-03-02T00:00:00Z", "this week", "2026-03-02", "2026-03-09"),
        ("2026-03-02T00:00:00Z", "last week", "2026-02-23", "2026-03-02"),
        ("2026-03-01T23:59:59.999Z", "this week", "2026-02-23", "2026-03-02"),
        ("2026-03-02T00:00:00Z", "since Monday", "2026-03-02", None),
        ("2026-03-01T23:59:59.999Z", "since Monday", "2026-02-23", None),
        ("2026-03-02T00:00:00Z", "last Monday", "2026-02-23", "2026-02-24"),
        ("2026-03-01T00:00:00Z", "in March", "2026-03-01", "2026-04-01"),
        ("2026-02-28T23:59:59.999Z", "in March", "2025-03-01", "2025-04-01"),
        ("2026-03-31T12:00:00Z", "in February", "2026-02-01", "2026-03-01"),
        ("2026-03-31T12:00:00Z", "last month", "2026-02-01", "2026-03-01"),
        ("2026-03-12T00:00:00Z", "on 12 March", "2026-03-12", "2026-03-13"),
        ("2026-03-11T23:59:59.999Z", "on 12 March", "2025-03-12", "2025-03-13"),
        ("2026-01-01T00:00:00Z", "yesterday", "2025-12-31", "2026-01-01"),
        ("2026-01-01T00:00:00Z", "last month", "2025-12-01", "2026-01-01"),
        ("2026-01-01T00:00:00Z", "this year", "2026-01-01", "2027-01-01"),
        ("2025-12-31T23:59:59.999Z", "this year", "2025-01-01", "2026-01-01"),
        ("2026-01-01T00:00:00Z", "last year", "2025-01-01", "2026-01-01"),
        ("2026-01-01T00:00:00Z", "this week", "2025-12-29", "2026-01-05"),
        ("2028-02-29T12:00:00Z", "last year", "2027-01-01", "2028-01-01"),
        ("2028-02-29T12:00:00Z", "this year", "2028-01-01", "2029-01-01"),
        ("2028-02-29T12:00:00Z", "this month", "2028-02-01", "2028-03-01"),
        ("2028-03-01T00:00:00Z", "yesterday", "2028-02-29", "2028-03-01"),
        ("2027-03-01T00:00:00Z", "on 29 February", "2024-02-29", "2024-03-01"),
        ("2028-02-29T00:00:00Z", "on 29 February", "2028-02-29", "2028-03-01"),
    ],
)
def test_bounds_hold_at_the_first_and_last_instant_of_a_day_a_week_and_a_year(
    at: str, query: str, start: str, end: str | None
) -> None:
    assert named(query, at) == (start, end, query)


@pytest.mark.parametrize(
    "query",
    [
        "",
        "Which database does the billing service use?",
        "May I see the outline?",
        "Before may I start, what is missing?",
        "Who may 5 people ask?",
        "How do we march on from here?",
        "When did they march on the square?",
        "Since march orders came, who obeys?",
        "Who came in second?",
        "Where is the second copy?",
        "Who sat next to Ana?",
        "Does demand fall in the autumn?",
        "How long is the week?",
        "What is the plan for day one?",
        "Does delivery take 3 days?",
        "Is the trial two weeks or a month?",
        "Was it fixed 1.5 days ago?",
        "Which release came after 2025.1?",
        "Is 2026-03-12-rc1 deployed?",
        "Does it work in 3.11 or in 2025-beta?",
        "Is the key in 2048 bits?",
        "What is wrong in 2000 rows?",
        "What happens in the last week of school?",
        "What is the last day to file?",
        "What was the last month that I paid rent?",
        "Does it run on the last Sunday of the month?",
        "As of today, which database is used?",
        "Which one may I take, 1 may or 2?",
        "Do I swim on Mondays?",
        "Does April know about it?",
        "Is the sun out, or jan?",
        "What happened on 31 February?",
        "Who signed 2025-02-30?",
        "What is planned for 2031-05-01?",
        "Who booked last weekend?",
        "What comes next week and tomorrow?",
    ],
)
def test_words_that_only_look_like_a_time_name_none(query: str) -> None:
    assert named(query) is None


def test_of_several_times_the_first_that_exists_counts() -> None:
    assert named("Compare yesterday with last week") == ("2026-11-25", "2026-11-26", "yesterday")
    assert named("Compare 31 February with last week") == ("2026-11-16", "2026-11-23", "last week")


def test_a_span_given_as_bounds_has_no_phrase() -> None:
    assert Span(1, 2).phrase == ""


PIECES = st.sampled_from(
    """since before after until in on the last past this week month year days hours ago 3 999 two an yesterday
    today Monday sunday March may May 29 31st of February , . - ? 2024 2025-02-29 2026-03-12T 0001-01-01
    December 9999 what""".split()
)
QUERIES = st.lists(PIECES, max_size=8).map(" ".join) | st.text(max_size=60)
INSTANTS = st.integers(min_value=EARLIEST, max_value=LATEST)


@settings(max_examples=300, deadline=None)  # the first phrase imports dateparser
@given(QUERIES, INSTANTS)
@example("yesterday", EARLIEST)
@example("last week", EARLIEST)
@example("last year", EARLIEST)
@example("last March", EARLIEST)
@example("since Sunday", EARLIEST)
@example("in December", EARLIEST)
@example("29 February", EARLIEST)
@example("999 years ago", EARLIEST)
@example("this week", LATEST)
@example("this year", LATEST)
@example("since Friday", LATEST)
@example("in the last 999 years", LATEST)
def test_any_question_at_any_instant_names_one_time_or_none(query: str, at: UnixMs) -> None:
    span = span_named_in(query, at=at)
    assert span == span_named_in(query, at=at)
    if span is None:
        return
    assert span.phrase
    assert span.phrase in query
    assert span.start is not None or span.end is not None
    assert span.start is None or span.start <= at
    assert span.start is None or span.end is None or span.start < span.end


@pytest.mark.parametrize("zone", ["UTC", "Pacific/Auckland", "America/Los_Angeles"])
def test_the_time_zone_of_the_machine_changes_nothing(zone: str) -> None:
    program = (
        "from recall.phrases import span_named_in\n"
        "for query in ('yesterday', 'last week', 'in March', 'since Monday', '2 hours ago', '2026-03-12'):\n"
        "    for at in (1772409600000, 1772409599999, 1767225600000):\n"
        "        print(span_named_in(query, at=at))\n"
    )
    elsewhere = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        cwd=ROOT, env={**os.environ, "TZ": zone}, capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    here = [
        str(span_named_in(query, at=at))
        for query in ("yesterday", "last week", "in March", "since Monday", "2 hours ago", "2026-03-12")
        for at in (1772409600000, 1772409599999, 1767225600000)
    ]
    assert elsewhere.stdout.splitlines() == here


def test_a_question_without_a_time_does_not_load_the_library() -> None:
    program = (
        "import sys; from recall.phrases import span_named_in\n"
        "span_named_in('Which database does the billing service use in production?', at=0)\n"
        "assert 'dateparser' not in sys.modules\n"
        "span_named_in('What broke yesterday?', at=0)\n"
        "assert 'dateparser' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True, timeout=60)
