"""The dates in a text: which days its words may mean, seen from the day the text was written.

A grammar of its own, because what a phrase means depends on what is said with it: "on Friday" is the coming one in a
deadline, and the past one in a report. So a phrase is found first (`dates_in`), and resolved once its direction is
known (`Dated.value`).

1. A week is Monday to Sunday; "early", "mid" and "late" in a month are the 1st to 10th, 11th to 20th, and the rest.
2. "next Friday" is either of the two it may mean: the first to come, and the one of next week.
3. A day without a year is the next such day, but not one further off than a recent past one (60 days).
4. What names no days ("after the holidays", "later") is found, and resolves to None.
"""

from __future__ import annotations

import calendar
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from typing import Literal, TypeAlias

from recall.domain.claims.lexicon import Lexicon

Direction: TypeAlias = Literal["ahead", "back"]
Days: TypeAlias = tuple[tuple[date, date], ...]
Resolve: TypeAlias = Callable[[date, Direction], Days]

RECENT = timedelta(days=60)
DAY = timedelta(days=1)
_MOST = 999  # of any unit: further off than that is a number, not a date

_ISO = re.compile(r"(\d{4})-(\d\d)-(\d\d)(?:t(\d\d):(\d\d)(?::\d\d)?(z)?)?", re.ASCII)
_NUMERIC = re.compile(r"(\d{1,2})([./])(\d{1,2})(?:\2(\d{4}|\d{2}))?", re.ASCII)
_DAY = re.compile(r"(\d{1,2})(st|nd|rd|th)?", re.ASCII)
_DAYS = re.compile(r"(\d{1,2})-(\d{1,2})", re.ASCII)
_CLOCK = re.compile(r"(\d{1,2})[:.](\d\d)(?::\d\d)?(am|pm|h)?", re.ASCII)
_HOUR = re.compile(r"(\d{1,2})(am|pm|h)", re.ASCII)


@dataclass(frozen=True, slots=True)
class Dated:
    """A date phrase: the tokens `start` to `end` (half-open), the sense of the word before it, the days, the time.

    `relation` is until, to, by, on, from, after, before, for, in, since, or "" when nothing leads it in.
    `known_zone`: the time's zone is the item's; else `clock` is None, for a time in an unnamed zone cannot be compared.
    """

    start: int
    end: int
    relation: str
    lead: int
    resolve: Resolve
    clock: time | None = None
    in_utc: bool = False

    def value(self, today: date, zone: tzinfo, direction: Direction) -> str | None:
        """The value as a claim carries it: `2026-10-01`, `2026-10-01T15:00`, `A/B`, `A|B`; None: no certain days."""
        if self.relation in ("after", "before", "since"):
            return None
        try:
            return (
                "|".join(dict.fromkeys(self._written(*days, zone) for days in self.resolve(today, direction)))
                or None
            )
        except (ValueError, OverflowError):  # 31 February, or beyond the years 1 to 9999
            return None

    def _written(self, first: date, last: date, zone: tzinfo) -> str:
        if first != last:
            return f"{first.isoformat()}/{last.isoformat()}"
        if self.clock is None:
            return first.isoformat()
        local = datetime.combine(first, self.clock)
        if self.in_utc:
            local = local.replace(tzinfo=UTC).astimezone(zone).replace(tzinfo=None)
        return local.isoformat(timespec="minutes")


def dates_in(words: list[str], lexicon: Lexicon) -> list[Dated]:
    """Every date phrase among the words of a sentence, in order; none overlaps another."""
    found: list[Dated] = []
    grammar = _Grammar(words, lexicon)
    place = 0
    while place < len(words):
        if words[place] in grammar.starts or words[place][:1].isdigit():
            dated = grammar.dated_at(place)
            if dated is not None:
                found.append(dated)
                place = dated.end
                continue
        place += 1
    return found


class _Grammar:
    """A recursive descent over one sentence. Every rule takes a place and returns what it read and the place after."""

    def __init__(self, words: list[str], lexicon: Lexicon) -> None:
        self.words = words
        self.lexicon = lexicon
        tables = lexicon.dates
        self.months: dict[str, int] = tables["months"]
        self.weekdays: dict[str, int] = tables["weekdays"]
        self.units: dict[str, str] = tables["units"]
        self.numbers: dict[str, int] = tables["numbers"]
        self.which: dict[str, str] = tables["which"]
        self.parts: dict[str, str] = tables["parts"]
        self.phrases: dict[str, str] = tables["phrases"]
        self.relations: dict[str, str] = tables["relations"]
        self.zones: dict[str, str] = tables.get("zones", {})
        self.glue = lexicon.sets
        self.starts = lexicon.sets["date_starts"]

    def word(self, place: int) -> str:
        return self.words[place] if 0 <= place < len(self.words) else ""

    def dated_at(self, place: int) -> Dated | None:
        clock, after, in_utc = self.clock(place, bare=False)
        if clock is not None and self.word(after) in self.glue["on_words"]:
            after += 1
        start = after if clock is not None else place
        read = self.days(start)
        if read is None:
            return None
        resolve, end = read
        timed = clock is not None
        if not timed:
            clock, after, in_utc = self.clock(end, bare=True)
            if clock is not None:
                end, timed = after, True
        if timed and self.word(end) in self.zones:
            in_utc, clock = self.zones[self.word(end)] == "utc", clock
            if not in_utc:
                clock = None
            end += 1
        relation, lead = self.relation(place)
        if not self.lexicon.spaced:
            relation, lead = self.lexicon.dates["after_relations"].get(self.word(end), ""), place
        return Dated(place, end, relation, lead, resolve, clock, in_utc)

    def relation(self, place: int) -> tuple[str, int]:
        """The sense of the words before a place, and where they start."""
        before = place
        while self.word(before - 1) in self.glue["date_fillers"]:
            before -= 1
        for length in (3, 2, 1):
            lead = " ".join(self.words[max(0, before - length) : before])
            if before >= length and lead in self.relations:
                relation = self.relations[lead]
                return relation, before - length
        return "", before

    # ---- days

    def days(self, place: int) -> tuple[Resolve, int] | None:
        """A day, a range of days, or several to choose from."""
        read = self.one(place)
        if read is None:
            return None
        resolve, end = read
        joint = self.word(end)
        if joint in self.glue["or_words"] and (other := self.one(self._past_the(end + 1))):
            return _either(resolve, other[0]), other[1]
        between = joint in self.glue["and_words"] and self.word(place - 1) in self.glue["between_words"]
        ranged = between or joint in ("-", "–", "—")
        if ranged and (other := self.one(self._past_the(end + 1))):
            return _from_to(resolve, other[0]), other[1]
        return resolve, end

    def _past_the(self, place: int) -> int:
        return place + 1 if self.word(place) in self.glue["date_fillers"] else place

    def one(self, place: int) -> tuple[Resolve, int] | None:
        for rule in (
            self.phrase,
            self.numeric,
            self.part,
            self.weekday,
            self.day_month,
            self.month,
            self.counted,
        ):
            read = rule(place)
            if read is not None:
                return read
        return None

    def phrase(self, place: int) -> tuple[Resolve, int] | None:
        for length in (5, 4, 3, 2, 1):
            spoken = " ".join(self.words[place : place + length])
            if place + length <= len(self.words) and spoken in self.phrases:
                return _named(self.phrases[spoken]), place + length
        return None

    def numeric(self, place: int) -> tuple[Resolve, int] | None:
        word = self.word(place)
        if iso := _ISO.fullmatch(word):
            return _on(int(iso[3]), int(iso[2]), int(iso[1])), place + 1
        if not (match := _NUMERIC.fullmatch(word)):
            return None
        first, second = int(match[1]), int(match[3])
        year = None if match[4] is None else int(match[4]) + (2000 if len(match[4]) == 2 else 0)
        led = self.lexicon.dates["day_first"] and (
            self.word(place + 1) == "." or self.word(place - 1) in self.relations
        )
        if match[2] == "." and year is None and not led:
            return None  # a number: 2.5
        end = place + 2 if match[2] == "." and year is None and self.word(place + 1) == "." else place + 1
        readings = [
            (day, month) for day, month in ((first, second), (second, first)) if month <= 12 and day <= 31
        ]
        if match[2] == "." or self.lexicon.dates["day_first"]:
            readings = readings[:1] if first <= 31 and second <= 12 else []
        if not readings:
            return None
        resolve = _on(*readings[0], year)
        return (_either(resolve, _on(*readings[1], year)) if len(readings) == 2 else resolve), end

    def part(self, place: int) -> tuple[Resolve, int] | None:
        """`mid-October`, `the end of the month`, `early next week`."""
        for length in (2, 1):
            spoken = " ".join(self.words[place : place + length])
            if spoken not in self.parts:
                continue
            after = place + length
            while self.word(after) in self.glue["of_words"] or self.word(after) in self.glue["date_fillers"]:
                after += 1
            whole = self.month(after) or self.phrase(after) or self._unit_itself(after)
            if whole is not None:
                return _part_of(self.parts[spoken], whole[0]), whole[1]
        return None

    def _unit_itself(self, place: int) -> tuple[Resolve, int] | None:
        unit = self.units.get(self.word(place))
        return (_named(f"{unit}+0"), place + 1) if unit in ("week", "month", "year") else None

    def weekday(self, place: int) -> tuple[Resolve, int] | None:
        which, here = self.which.get(self.word(place), ""), place
        if which:
            here += 1
        number = self.weekdays.get(self.word(here))
        if number is None:
            return None
        here += 1
        if (
            not which
            and (after := self.which.get(self.word(here), ""))
            and self.lexicon.dates["which_follows"]
        ):
            which, here = after, here + 1
        comma = here + 1 if self.word(here) == "," else here
        if not which and (exact := self.numeric(comma) or self.day_month(self._past_the(comma), bare=False)):
            return exact
        week = None if which else self.phrase(here)
        if week and " ".join(self.words[here : week[1]]) in self.lexicon.dates["weeks"]:
            return _weekday_in(number, week[0]), week[1]
        return _weekday(number, which), here

    def day_month(self, place: int, *, bare: bool = True) -> tuple[Resolve, int] | None:
        """`1 October 2026`, `1st of October`, `October 1`, `5-9 October`, and, when `bare`, `the 28th`."""
        word = self.word(place)
        if (month := self.months.get(word)) and (day := _DAY.fullmatch(self.word(place + 1))):
            after = place + 2
            if int(day[1]) <= 31 and not _is_clock_word(self.word(after)):
                year, end = self.year(after)
                return _on(int(day[1]), month, year), end
        if days := _DAYS.fullmatch(word):
            after = self._to_month(place + 1)
            if month := self.months.get(self.word(after)):
                year, end = self.year(after + 1)
                return _from_to(_on(int(days[1]), month, year), _on(int(days[2]), month, year)), end
            return None
        number = self._ordinal(place)
        if number is None:
            return None
        after = self._to_month(place + 1)
        if self.word(after) in ("-", "–", "or", "and") and (second := self._ordinal(after + 1)):
            further = self._to_month(after + 2)
            if month := self.months.get(self.word(further)):
                year, end = self.year(further + 1)
                first, last = _on(number, month, year), _on(second, month, year)
                return (_either if self.word(after) == "or" else _from_to)(first, last), end
        if month := self.months.get(self.word(after)):
            year, end = self.year(after + 1)
            return _on(number, month, year), end
        if bare and (self._is_ordinal(place) or self._is_spoken_day(place)):
            return _on(number, None, None), place + 1
        return None

    def _to_month(self, place: int) -> int:
        while self.word(place) in self.glue["of_words"] or self.word(place) == ".":
            place += 1
        return place

    def _ordinal(self, place: int) -> int | None:
        match = _DAY.fullmatch(self.word(place))
        if match:
            return int(match[1]) if 1 <= int(match[1]) <= 31 else None
        return None

    def _is_ordinal(self, place: int) -> bool:
        """Only an ordinal with an article is a day by itself: `the 28th`, not `28`."""
        return (
            bool(re.fullmatch(r"\d{1,2}(?:st|nd|rd|th)", self.word(place))) and self.word(place - 1) == "the"
        )

    def _is_spoken_day(self, place: int) -> bool:
        return (
            self.word(place - 1) in self.lexicon.sets.get("day_words", frozenset())
            and self.word(place).isdigit()
        )

    def year(self, place: int) -> tuple[int | None, int]:
        here = place + 1 if self.word(place) in (",", "de", "del") else place
        word = self.word(here)
        if len(word) == 4 and word.isascii() and word.isdigit() and 1900 <= int(word) <= 2199:
            return int(word), here + 1
        return None, place

    def month(self, place: int) -> tuple[Resolve, int] | None:
        which, here = self.which.get(self.word(place), ""), place
        if which:
            here += 1
        month = self.months.get(self.word(here))
        if month is None:
            return None
        lead = self.word(place - 1)
        if (
            self.word(here) in self.lexicon.sets.get("doubtful_months", frozenset())
            and lead not in self.relations
        ):
            return None  # "may" and "march" are months only after "in", "until" and the like
        year, end = self.year(here + 1)
        return _in_month(month, year), end

    def counted(self, place: int) -> tuple[Resolve, int] | None:
        """`in two weeks`, `3 days ago`, `a week from now`, `week 41`, `Q4`."""
        word = self.word(place)
        if word in self.lexicon.sets.get("week_words", frozenset()) and (number := self._count(place + 1)):
            return (_iso_week(number), place + 2) if number <= 53 else None
        if re.fullmatch(r"q[1-4]", word):
            year, end = self.year(place + 1)
            return _quarter(int(word[1]), year), end
        number, unit = self._count(place), self.units.get(self.word(place + 1))
        if number is None or unit is None:
            return None
        lead = self.word(place - 1)
        if lead in self.glue["ago_before"]:
            return _distant(-number, unit), place + 2
        for length in (3, 2, 1):
            tail = " ".join(self.words[place + 2 : place + 2 + length])
            if tail in self.lexicon.dates["after_count"]:
                return _distant(number * self.lexicon.dates["after_count"][tail], unit), place + 2 + length
        if lead in self.glue["in_words"]:
            return _distant(number, unit), place + 2
        return None

    def _count(self, place: int) -> int | None:
        word = self.word(place)
        if word.isascii() and word.isdigit() and len(word) <= 3:
            return int(word)
        return self.numbers.get(word)

    # ---- the time of day

    def clock(self, place: int, *, bare: bool) -> tuple[time | None, int, bool]:
        """A time at a place, the place after it, and whether it is said to be UTC; `bare`: after a date."""
        here = place
        while (
            bare and (self.word(here) == "," or self.word(here) in self.glue["at_words"]) and here < place + 2
        ):
            here += 1
        word = self.word(here)
        if bare and here == place and (iso := _ISO.fullmatch(self.word(place - 1))) and iso[4]:
            return _time(int(iso[4]), int(iso[5]), ""), place, iso[6] is not None
        if self.lexicon.dates["clock_words"].get(word) is not None:
            hour = self.lexicon.dates["clock_words"][word]
            return time(hour), here + 1, False
        led = here > place or self.word(place - 1) in self.glue["at_words"]
        if match := _CLOCK.fullmatch(word):
            if "." in word and not led:
                return None, place, False
            read = _time(int(match[1]), int(match[2]), match[3] or "")
            end = here + 1
        elif match := _HOUR.fullmatch(word):
            read, end = _time(int(match[1]), 0, match[2]), here + 1
        elif (
            word.isascii()
            and word.isdigit()
            and len(word) <= 2
            and self.word(here + 1) in self.glue["hour_words"]
        ):
            read, end = _time(int(word), 0, ""), here + 2
            if self.word(here + 1) in ("am", "pm"):
                read = _time(int(word), 0, self.word(here + 1))
            elif self.word(end).isdigit() and len(self.word(end)) == 2:
                read, end = _time(int(word), int(self.word(end)), ""), end + 1
        else:
            return None, place, False
        if read is not None and self.word(end) in ("am", "pm"):
            match_hour = read.hour % 12 + (12 if self.word(end) == "pm" else 0)
            read, end = read.replace(hour=match_hour), end + 1
        elif read is not None and self.word(end) in self.glue["hour_words"]:
            end += 1
        return read, end if read is not None else place, False


def _is_clock_word(word: str) -> bool:
    return word in ("am", "pm")


def _time(hour: int, minute: int, half: str) -> time | None:
    if half in ("am", "pm"):
        if not 1 <= hour <= 12:
            return None
        hour = hour % 12 + (12 if half == "pm" else 0)
    return time(hour, minute) if hour <= 23 and minute <= 59 else None


# ---- what phrases mean


def _on(day: int, month: int | None, year: int | None) -> Resolve:
    def resolve(today: date, direction: Direction) -> Days:
        if month is not None and year is not None:
            exact = date(year, month, day)
            return ((exact, exact),)
        if month is None:
            found = _nearest(
                [(today.year, today.month + step) for step in range(-3, 4)], day, today, direction
            )
        else:
            found = _nearest([(today.year + step, month) for step in range(-8, 9)], day, today, direction)
        return ((found, found),)

    return resolve


def _nearest(months: list[tuple[int, int]], day: int, today: date, direction: Direction) -> date:
    """The one such day that is meant. A day of the month alone is never a recent past one when looking ahead."""
    alone = months[0][0] != months[-1][0] - 16
    every = []
    for year, month in months:
        year, month = year + (month - 1) // 12, (month - 1) % 12 + 1
        if day <= calendar.monthrange(year, month)[1]:
            every.append(date(year, month, day))
    if direction == "back":
        past = [one for one in every if one <= today]
        if not past:
            raise ValueError(f"no month has a day {day}")
        return past[-1]
    earliest = today if alone else today - RECENT
    ahead = [one for one in every if one >= earliest]
    if not ahead:
        raise ValueError(f"no month has a day {day}")
    return ahead[0]


def _named(meaning: str) -> Resolve:
    """A meaning of the lexicon: `day+1`, `week+0`, `month-1`, `weekend+0`, or `someday`."""

    def resolve(today: date, _: Direction) -> Days:
        if meaning == "someday":
            return ()
        unit, sign, count = meaning.partition("+") if "+" in meaning else meaning.partition("-")
        number = int(count) * (-1 if sign == "-" else 1)
        return (_whole(unit, number, today),)

    return resolve


def _whole(unit: str, number: int, today: date) -> tuple[date, date]:
    monday = today - timedelta(days=today.weekday())
    if unit == "day":
        return today + number * DAY, today + number * DAY
    if unit == "week":
        return monday + 7 * number * DAY, monday + (7 * number + 6) * DAY
    if unit == "weekend":
        return monday + (7 * number + 5) * DAY, monday + (7 * number + 6) * DAY
    if unit == "quarter":
        first = _months_on(today.replace(month=(today.month - 1) // 3 * 3 + 1, day=1), 3 * number)
        return first, _months_on(first, 3) - DAY
    if unit == "month":
        first = _months_on(today.replace(day=1), number)
        return first, _months_on(first, 1) - DAY
    return date(today.year + number, 1, 1), date(today.year + number, 12, 31)


def _months_on(day: date, months: int) -> date:
    year, month = divmod(day.year * 12 + day.month - 1 + months, 12)
    return date(year, month + 1, min(day.day, calendar.monthrange(year, month + 1)[1]))


def _weekday(number: int, which: str) -> Resolve:
    def resolve(today: date, direction: Direction) -> Days:
        coming = today + ((number - today.weekday() - 1) % 7 + 1) * DAY
        gone = today - ((today.weekday() - number - 1) % 7 + 1) * DAY
        of_next_week = today + (7 - today.weekday() + number) * DAY
        if which == "next":
            return tuple((day, day) for day in sorted({coming, of_next_week}))
        if which == "last":
            return ((gone, gone),)
        if which == "this":
            day = today + (number - today.weekday()) * DAY
            return ((day, day),)
        same_day = number == today.weekday()
        if direction == "back":
            day = today if same_day else gone
            return ((day, day),)
        return ((today, today), (coming, coming)) if same_day and not which else ((coming, coming),)

    return resolve


def _weekday_in(number: int, week: Resolve) -> Resolve:
    def resolve(today: date, direction: Direction) -> Days:
        return tuple((first + number * DAY,) * 2 for first, _ in week(today, direction))

    return resolve


def _in_month(month: int, year: int | None) -> Resolve:
    def resolve(today: date, direction: Direction) -> Days:
        meant = year
        if meant is None and direction == "ahead":
            meant = today.year + (month < today.month)
        if meant is None:
            meant = today.year - (month > today.month)
        first = date(meant, month, 1)
        return ((first, _months_on(first, 1) - DAY),)

    return resolve


def _part_of(part: str, whole: Resolve) -> Resolve:
    """`early`, `mid`, `late`: thirds. `end`: the last days. `first week`: seven days."""

    def resolve(today: date, direction: Direction) -> Days:
        parts = []
        for first, last in whole(today, direction):
            length = (last - first).days + 1
            if length == 1:
                parts.append((first, last))
            elif length == 7:
                cuts = {"early": (0, 1), "mid": (2, 2), "late": (3, 6), "end": (4, 6)}
                low, high = cuts.get(part, (0, 6))
                parts.append((first + low * DAY, first + high * DAY))
            elif length <= 31:
                cuts = {
                    "early": (0, 9),
                    "mid": (10, 19),
                    "late": (20, length - 1),
                    "end": (length - 7, length - 1),
                }
                low, high = cuts.get(part, (0, 6))
                parts.append((first + low * DAY, first + high * DAY))
            elif part in ("late", "end"):
                parts.append((last - 30 * DAY, last))
            elif part == "early":
                parts.append((first, first + 30 * DAY))
        return tuple(parts)

    return resolve


def _distant(number: int, unit: str) -> Resolve:
    def resolve(today: date, _: Direction) -> Days:
        if abs(number) > _MOST:
            return ()
        if unit in ("day", "week"):
            day = today + number * (7 if unit == "week" else 1) * DAY
        elif unit in ("month", "year"):
            day = _months_on(today, number * (12 if unit == "year" else 1))
        else:
            return ()
        return ((day, day),)

    return resolve


def _iso_week(number: int) -> Resolve:
    def resolve(today: date, direction: Direction) -> Days:
        first = date.fromisocalendar(today.year, number, 1)
        if direction == "ahead" and first < today - RECENT:
            first = date.fromisocalendar(today.year + 1, number, 1)
        if direction == "back" and first > today:
            first = date.fromisocalendar(today.year - 1, number, 1)
        return ((first, first + 6 * DAY),)

    return resolve


def _quarter(number: int, year: int | None) -> Resolve:
    def resolve(today: date, direction: Direction) -> Days:
        current = (today.month - 1) // 3 + 1
        step = (number < current) if direction == "ahead" else -(number > current)
        first = date(year if year is not None else today.year + step, number * 3 - 2, 1)
        return ((first, _months_on(first, 3) - DAY),)

    return resolve


def _either(one: Resolve, other: Resolve) -> Resolve:
    return lambda today, direction: one(today, direction) + other(today, direction)


def _from_to(first: Resolve, last: Resolve) -> Resolve:
    def resolve(today: date, direction: Direction) -> Days:
        start, end = first(today, direction), last(today, direction)
        if not start or not end:
            return ()
        if end[-1][1] < start[0][0]:  # "Friday to Tuesday": the Tuesday after
            end = last(start[0][0], "ahead")
        return ((start[0][0], end[-1][1]),) if end and end[-1][1] >= start[0][0] else ()

    return resolve
