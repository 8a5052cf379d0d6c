"""Which time a question names: "last week", "in March", "since Monday".

A regular expression finds the phrase, dateparser says which day it means, and the bounds are ours: whole days,
weeks from Monday to Monday, months and years of the calendar, all in UTC and all told from `at`.
"""

from __future__ import annotations

import re
from calendar import isleap, monthrange
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from ledger.domain.instants import DAY, EARLIEST, HOUR, UnixMs, from_datetime, utc

_NUMBER = r"(?:[0-9]{1,3}|an?|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve)"
_WEEKDAY = r"(?:monday|tuesday|wednesday|thursday|friday|saturday|sunday)"
_PLAIN_MONTH = "january|february|april|june|july|august|september|october|november|december"
# "may" and "march" are verbs too: they count when written as a name, or where nothing follows that could be ruled.
_MONTH = rf"(?:{_PLAIN_MONTH}|(?-i:May|March|MAY|MARCH)|(?:may|march)(?=\s*(?:[0-9]{{4}}\b|[?.!,;:]|$)))"
_SHORT_MONTH = rf"(?:{_MONTH}|(?:jan|feb|mar|apr|jun|jul|aug|sept?|oct|nov|dec)\b\.?)"
_YEAR = r"(?:19|20)[0-9]{2}"
_DAY_OF_MONTH = r"(?:0?[1-9]|[12][0-9]|3[01])(?:st|nd|rd|th)?"
_END = r"(?![\w-]|[.,:/][0-9])"  # "2025.1", "2026-03-12-rc1" and "March 3.2" are versions
# "in 2000 rows" counts something; "in 2020 was" does not.
_COUNTS = r"(?!\s*%|\s+(?!was\b|is\b|has\b|does\b|this\b)(?:\w+s|[kmg]b|km?|px|percent|people)\b)"

_PHRASE = re.compile(
    rf"""
    (?<![\w.,/-])(?<!\bas\sof\s)
    (?:(?P<bound>since|before|after|until)\s+|(?P<lead>in|on|during|over|within|(?<!\bas\s)of|from)\s+)?
    (?:
        (?P<day>(?:the\s+)?day\s+before\s+yesterday|yesterday|today)
      | (?<!\bthe\s)(?P<calendar>(?:last|this)\s+(?:week|month|year))\b(?!\s+of\b)
      | last\s+(?P<last_weekday>{_WEEKDAY})(?!\s+of\b)
      | last\s+(?P<last_month>{_MONTH})(?!\s+[0-9])
      | (?:the\s+)?(?:last|past)\s+(?P<rolling>{_NUMBER}\s+(?:day|week|month|year)s?)\b(?!\s+of\b)
      | (?:the\s+past|(?(lead)the\s+last|(?!)))\s+(?P<rolling_one>week|month|year)\b(?!\s+of\b)
      | (?P<hours>{_NUMBER})\s+hours?\s+ago
      | (?P<ago>{_NUMBER}\s+(?:day|week|month|year)s?)\s+ago
      | (?P<iso>{_YEAR}-[0-9]{{2}}-[0-9]{{2}})(?:T[0-9:.]+(?:Z|[+-][0-9:]+)?)?
      | (?P<date>{_DAY_OF_MONTH}\s+(?:of\s+)?{_SHORT_MONTH}(?:,?\s+{_YEAR})?
               | {_SHORT_MONTH}\s+(?:the\s+)?{_DAY_OF_MONTH}(?:,?\s+{_YEAR})?)
      | (?P<month_of_year>{_SHORT_MONTH},?\s+(?:of\s+)?{_YEAR})
      | (?(bound)|(?(lead)|(?!)))
        (?: (?P<weekday>{_WEEKDAY}) | (?P<month>{_MONTH}|(?<=in\s)(?:may|march)) | (?P<year>{_YEAR}){_COUNTS} )
    ){_END}
    """,
    re.IGNORECASE | re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class Span:
    """The half-open time [start, end) in UTC that a question names; None where it sets no bound.

    `phrase` is as it stands in the question, and empty when the bounds were given as bounds.
    """

    start: UnixMs | None
    end: UnixMs | None
    phrase: str = ""


def span_named_in(query: str, *, at: UnixMs) -> Span | None:
    """The first time that the question names, seen from `at`; None when it names none that has begun by then.

    The first phrase of a process costs a quarter of a second: that is dateparser's import.
    """
    for found in _PHRASE.finditer(query):
        bounds = _bounds(found, at)
        if bounds is None:
            continue
        start, end = _opened(found["bound"], *bounds)
        if start is None or start <= at:
            return Span(start, end, found.group())
    return None


def _opened(bound: str | None, start: UnixMs, end: UnixMs) -> tuple[UnixMs | None, UnixMs | None]:
    """Leave one side open: "since" and "before" meet the time's start, "after" and "until" its end."""
    match (bound or "").lower():
        case "since":
            return start, None
        case "after":
            return end, None
        case "before":
            return None, start
        case "until":
            return None, end
    return start, end


def _bounds(found: re.Match[str], at: UnixMs) -> tuple[UnixMs, UnixMs] | None:
    """The bounds of the time itself, whatever word stands before it; None when the calendar has no such day."""
    kind = next(name for name in _BOUNDS if found[name] is not None)
    words = " ".join(found[kind].lower().replace(",", " ").split())
    return _BOUNDS[kind](words, at)


def _calendar(words: str, at: UnixMs) -> tuple[UnixMs, UnixMs] | None:
    """The whole day, week, month or year that holds the moment meant."""
    meant = _meant(words, at)
    return meant and _whole(*meant)


def _year(words: str, _at: UnixMs) -> tuple[UnixMs, UnixMs]:
    return _whole(datetime(int(words), 1, 1, tzinfo=UTC), "year")


def _month_before(words: str, at: UnixMs) -> tuple[UnixMs, UnixMs] | None:
    """The most recent such month before this one: in March, "last March" is a year back."""
    start, _ = _whole(utc(at), "month")
    return _calendar(words, max(start - 1, EARLIEST))


def _weekday(words: str, at: UnixMs) -> tuple[UnixMs, UnixMs] | None:
    """The most recent such day that has begun: on a Monday, "since Monday" is since this midnight."""
    if f"{utc(at):%A}".lower() == words:
        return _whole(utc(at), "day")
    return _calendar(words, at)


def _ago(words: str, at: UnixMs) -> tuple[UnixMs, UnixMs] | None:
    """As wide as the unit it is told in, in whole days with the day meant in the middle."""
    meant = _meant(f"{words} ago", at)
    if meant is None:
        return None
    moment, unit = meant
    start, end = _whole(moment, "day")
    beside = {"week": 3 * DAY, "month": 15 * DAY, "year": 182 * DAY}.get(unit, 0)
    return start - beside, end + beside


def _hours_ago(words: str, at: UnixMs) -> tuple[UnixMs, UnixMs] | None:
    """The hour around that moment."""
    meant = _meant(f"{words} hours ago", at)
    if meant is None:
        return None
    middle = from_datetime(meant[0])
    return middle - HOUR // 2, middle + HOUR // 2


def _rolling(words: str, at: UnixMs) -> tuple[UnixMs, UnixMs] | None:
    """From the day that long ago to the end of today."""
    meant = _meant(f"{words} ago", at)
    if meant is None:
        return None
    return _whole(meant[0], "day")[0], _whole(utc(at), "day")[1]


def _rolling_one(unit: str, at: UnixMs) -> tuple[UnixMs, UnixMs] | None:
    """ "in the last week" counts back from today, where "last week" is one of the calendar."""
    return _rolling(f"1 {unit}", at)


# What each named group of the phrase means, by the name of the group.
_BOUNDS: dict[str, Callable[[str, UnixMs], tuple[UnixMs, UnixMs] | None]] = {
    "day": _calendar,
    "calendar": _calendar,
    "last_weekday": _calendar,
    "last_month": _month_before,
    "rolling": _rolling,
    "rolling_one": _rolling_one,
    "hours": _hours_ago,
    "ago": _ago,
    "iso": _calendar,
    "date": _calendar,
    "month_of_year": _calendar,
    "weekday": _weekday,
    "month": _calendar,
    "year": _year,
}


def _meant(words: str, at: UnixMs) -> tuple[datetime, str] | None:
    """The moment that the words mean and the unit they are told in, by dateparser; None when there is no such day."""
    from dateparser.date import DateDataParser  # slow to import, and most questions name no time

    settings = {
        "RELATIVE_BASE": utc(at).replace(tzinfo=None),
        "TIMEZONE": "UTC",
        "TO_TIMEZONE": "UTC",
        "RETURN_AS_TIMEZONE_AWARE": True,
        "PREFER_DATES_FROM": "past",
    }
    try:
        meant = DateDataParser(languages=["en"], settings=settings).get_date_data(words)
    except OverflowError:  # the day lies before the year 1
        return None
    if meant.date_obj is None or meant.period is None:
        return None
    return meant.date_obj, meant.period


def _whole(moment: datetime, unit: str) -> tuple[UnixMs, UnixMs]:
    """The whole day, week, month or year around a moment."""
    days = 1
    day = datetime(moment.year, moment.month, moment.day, tzinfo=UTC)
    if unit == "week":
        day, days = day - timedelta(days=day.weekday()), 7
    elif unit == "month":
        day, days = day.replace(day=1), monthrange(day.year, day.month)[1]
    elif unit == "year":
        day, days = day.replace(month=1, day=1), 366 if isleap(day.year) else 365
    start = from_datetime(day)
    return start, start + days * DAY
