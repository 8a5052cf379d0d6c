"""Judging claims against an item as it was read live. The table is `comparison.toml`; this applies it.

1. A hedged claim is not comparable.
2. An item whose status and completion contradict each other is compared with nothing.
3. A claim with a date about a series is about one occurrence, which one read of the series does not show.
4. `due` compares dates, whatever the status; `none` agrees with an absent due date and contradicts a present one.
5. Anything else is looked up by component, kind, polarity and status; an unknown status is compared with nothing.
6. One contradiction decides; else one agreement; else not comparable.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime, tzinfo
from functools import cache
from importlib.resources import files
from typing import Any, Literal, TypeAlias

from recall.domain.claims.claim import NO_DATE, Claim

Outcome: TypeAlias = Literal["contradicts", "agrees", "not_comparable"]
Because: TypeAlias = Literal[
    "status",  # the live status decided
    "date",  # the live date decided
    "hedged",
    "no_claim",
    "no_live_date",  # there is no live date to compare with
    "unknown_status",
    "inconsistent_completion",
    "unverifiable_occurrence",
    "incomparable",  # this status says nothing about such a claim
]
Component: TypeAlias = Literal["VTODO", "VEVENT"]

_OUTCOMES: dict[str, Outcome] = {"C": "contradicts", "A": "agrees", "-": "not_comparable"}
_SWAPPED: dict[Outcome, Outcome] = {"contradicts": "agrees", "agrees": "contradicts"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Live:
    """What a comparison needs of an item observed live.

    `status` as it stands in the item; None when it has none. `due` is a to-do's DUE or an event's DTSTART: a date
    when it is all-day, an aware datetime, or a naive one when it is floating or its time zone is unknown (then only
    its date is compared). `zone` is the item's zone. `completed`: a COMPLETED stamp is present. `percent`: 0 to 100.
    """

    component: Component
    status: str | None = None
    due: date | datetime | None = None
    zone: tzinfo = UTC
    completed: bool = False
    percent: int | None = None
    series: bool = False

    @property
    def effective_status(self) -> str:
        """The status in force, in capitals: an item without one is open, done or confirmed (section 2)."""
        if self.status is not None and self.status.strip():
            return self.status.strip().upper()
        if self.component == "VEVENT":
            return "CONFIRMED"
        return "COMPLETED" if self.completed else "NEEDS-ACTION"

    @property
    def inconsistent_completion(self) -> bool:
        """Open by its status, and yet complete by its percentage or its stamp."""
        return (
            self.component == "VTODO"
            and self.effective_status == "NEEDS-ACTION"
            and (self.completed or self.percent == 100)
        )


@dataclass(frozen=True, slots=True)
class Judged:
    """One claim, what it is worth against the live item, and why."""

    claim: Claim
    verdict: Outcome
    because: Because


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a text is worth against the live item. `decided_by` is the claim that decided; None when none did."""

    verdict: Outcome
    because: Because
    decided_by: Claim | None
    claims: tuple[Judged, ...]


def verdict(claims: Iterable[Claim], live: Live) -> Verdict:
    """Judge each claim of one text, and the text by them (rule 6); of several that decide, the first."""
    judged = tuple(judge(claim, live) for claim in claims)
    for outcome in ("contradicts", "agrees"):
        for one in judged:
            if one.verdict == outcome:
                return Verdict(one.verdict, one.because, one.claim, judged)
    return Verdict("not_comparable", judged[0].because if judged else "no_claim", None, judged)


def judge(claim: Claim, live: Live) -> Judged:
    """Judge one claim (rules 1 to 5)."""
    if claim.hedged:
        return Judged(claim, "not_comparable", "hedged")
    if live.inconsistent_completion:
        return Judged(claim, "not_comparable", "inconsistent_completion")
    if live.series and _bounds(claim.value):
        return Judged(claim, "not_comparable", "unverifiable_occurrence")
    if claim.kind == "due":
        return _judge_due(claim, live)
    status = live.effective_status
    statuses: list[str] = table()["statuses"][live.component]
    if status not in statuses:
        return Judged(claim, "not_comparable", "unknown_status")
    row = _row(claim, live.component)
    return _apply(row[statuses.index(status)] if row else "-", claim, live)


def _row(claim: Claim, component: Component) -> list[str] | None:
    rows = table()["negated" if claim.negated else "affirmed"][component]
    kind: str = claim.kind
    if _bounds(claim.value) and kind in ("postponed", "rescheduled"):
        kind += {"postponed": " until", "rescheduled": " to"}[kind]
    row: list[str] | None = rows.get(kind)
    return row


def _judge_due(claim: Claim, live: Live) -> Judged:
    if claim.value == NO_DATE:
        if live.component == "VEVENT":  # an event has no due date that could be present or absent
            return Judged(claim, "not_comparable", "incomparable")
        outcome: Outcome = "agrees" if live.due is None else "contradicts"
        return Judged(claim, _SWAPPED[outcome] if claim.negated else outcome, "date")
    if not _bounds(claim.value):
        return Judged(claim, "not_comparable", "incomparable")
    return _apply("not to" if claim.negated else "to", claim, live)


def _apply(cell: str, claim: Claim, live: Live) -> Judged:
    if cell in _OUTCOMES:
        because: Because = "incomparable" if cell == "-" else "status"
        return Judged(claim, _OUTCOMES[cell], because)
    if cell == "named":
        named = not _bounds(claim.value) or live.due is None or _place(claim, live) == "in"
        return Judged(claim, "agrees" if named else "not_comparable", "status" if named else "date")
    if live.due is None:
        return Judged(claim, "not_comparable", "no_live_date")
    place = _place(claim, live)
    if cell.endswith("until"):
        outcome: Outcome = {"before": "contradicts", "in": "agrees", "after": "not_comparable"}[place]  # type: ignore[assignment]
    else:
        outcome = "agrees" if place == "in" else "contradicts"
    if cell.startswith("not "):
        outcome = _SWAPPED.get(outcome, outcome)
    if cell.endswith("at most -") and outcome == "agrees":
        outcome = "not_comparable"
    return Judged(claim, outcome, "date")


def _place(claim: Claim, live: Live) -> Literal["before", "in", "after"]:
    """Where the live date lies: before every date claimed, in one of them, or neither."""
    assert live.due is not None
    places = [_place_in(low, high, live.due, live.zone) for low, high in _bounds(claim.value)]
    if "in" in places:
        return "in"
    return "before" if all(place == "before" for place in places) else "after"


def _place_in(low: str, high: str, due: date | datetime, zone: tzinfo) -> Literal["before", "in", "after"]:
    """ISO spellings of one length sort like the times they spell, so they are compared as they are."""
    day = _local(due, zone)
    timed = isinstance(due, datetime) and due.tzinfo is not None
    if day < low if timed and "T" in low else day[:10] < low[:10]:
        return "before"
    if day > high if timed and "T" in high else day[:10] > high[:10]:
        return "after"
    return "in"


def _local(due: date | datetime, zone: tzinfo) -> str:
    """A date, or a time to the minute, as it is on a clock in the zone."""
    if not isinstance(due, datetime):
        return due.isoformat()
    local = due if due.tzinfo is None else due.astimezone(zone)
    return local.replace(tzinfo=None).isoformat(timespec="minutes")


def _bounds(value: str | None) -> list[tuple[str, str]]:
    """The ranges that a value names, each with its first and last day or minute; none for no date."""
    if value is None or value == NO_DATE or value.endswith("%"):
        return []
    ranges = (alternative.partition("/") for alternative in value.split("|"))
    return [(low, high or low) for low, _, high in ranges]


@cache
def table() -> dict[str, Any]:
    """The comparison table: `statuses` by component, then `affirmed` and `negated` by component and kind."""
    return tomllib.loads(files(__package__).joinpath("comparison.toml").read_text(encoding="utf-8"))
