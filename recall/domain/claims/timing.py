"""Which of the dates around a trigger is its own."""

from __future__ import annotations

from recall.domain.claims.clauses import Passage
from recall.domain.claims.dates import Dated
from recall.domain.claims.lexicon import Trigger

_REACH = 4  # words past the clause: "moved it a day earlier, to Sunday"
_REACH_OF_DUE = 12  # "due date: ..."


def date_of(trigger: Trigger, passage: Passage, start: int, end: int) -> Dated | None:
    """The date of the trigger at the places from `start` to `end`, if one belongs to it.

    1. A deadline's stands right after "due", or anywhere in the clause of "deadline".
    2. Some kinds take only a date that is led to them: "postponed until Friday", not "postponed on Friday".
    3. Other kinds take the next date after them in the clause, else the last before.
    """
    due = trigger.kind == "due"
    reach = passage.end + (_REACH_OF_DUE if due else _REACH)
    dates = passage.sentence.dates
    after = [one for one in dates if start <= one.start < reach and one.end > start]
    before = [one for one in dates if passage.start <= one.start < start][::-1]
    if due and trigger.role == "noun":
        return _of_deadline(passage, start, after, before)
    if due:
        return _of_due(passage, end, after, before)
    relations = passage.lexicon.raw["relations_of"].get(trigger.kind)
    for one in after + before:
        if relations is None or (one.relation in relations and one.lead <= passage.end + 1):
            return one
        if one.relation == "" and _is_new(passage, one):
            return one
    return None


def _of_deadline(passage: Passage, start: int, after: list[Dated], before: list[Dated]) -> Dated | None:
    """The date in "Deadline: Friday", in "a Friday deadline", and the latter in "moved from 1 to 2 October"."""
    usable = [
        one for one in after if one.relation not in ("from", "since", "after") and one.start < passage.end
    ]
    led = [one for one in usable if one.relation in ("to", "until")]
    if not usable and passage.words[passage.end : passage.end + 1] not in ([], ["/"]):
        usable = [one for one in after if one.lead <= passage.end + 1]
    if not usable and before and before[0].end == start:
        usable = before[:1]
    return next(iter(led + usable), None)


def _of_due(passage: Passage, end: int, after: list[Dated], before: list[Dated]) -> Dated | None:
    links = passage.lexicon.sets["due_links"] | {":", ",", "("}
    for one in after:
        if links.issuperset(passage.words[end : one.lead]):
            return one
    return before[0] if before and passage.lexicon.dates["verb_last"] else None


def _is_new(passage: Passage, dated: Dated) -> bool:
    """Whether a date is said to be the new one: "now 2 October"."""
    lead = passage.words[max(0, dated.lead - 3) : dated.lead]
    return any(word in passage.lexicon.sets["now_said"] for word in lead)


def held_until(passage: Passage, start: int) -> bool:
    """Whether a denial ends at a date: "not due until Friday" says Friday."""
    return any(one.relation == "until" and start <= one.start < passage.end for one in passage.sentence.dates)
