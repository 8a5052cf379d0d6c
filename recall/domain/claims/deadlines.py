"""Deadlines that no word names: "must be in by Friday"."""

from __future__ import annotations

from typing import NamedTuple

from recall.domain.claims.clauses import Passage
from recall.domain.claims.dates import Dated
from recall.domain.claims.subjects import Named, anywhere, object_after, subject_before


class Obligation(NamedTuple):
    """What must happen by a date: what it is about, the places it stands at (half-open), and the date."""

    named: Named
    start: int
    end: int
    by: Dated


def obligation_in(passage: Passage) -> Obligation | None:
    """The obligation of a clause; None when there is none, or it is denied or wished for."""
    words, phrases = passage.words, passage.lexicon.phrases
    inside = [one for one in passage.sentence.dates if passage.start < one.start < passage.end]
    by = next((one for one in inside if one.relation == "by"), None)
    if by is None:
        return None
    for place in range(passage.start, by.lead):
        length = phrases["obligations"].at(words, place)
        if not length:
            continue
        if any(phrases["negators"].at(words, here) for here in range(passage.start, by.lead)):
            return None
        if any(phrases["hedges"].at(words, here) for here in range(passage.start, place)):
            return None
        return Obligation(_about(passage, place, length, by), place, by.end, by)
    return None


def _about(passage: Passage, place: int, length: int, by: Dated) -> Named:
    """What must happen: the verb's object, else the subject. What must arrive ("reach the office") has no object."""
    words, lexicon, item, dated = passage.words, passage.lexicon, passage.item, passage.dated
    if lexicon.language != "en":
        return anywhere(words, passage.start, by.lead, dated, item, lexicon)
    verb = place + length
    while verb < by.lead and words[verb] in lexicon.sets["be"]:
        verb += 1
    subject = subject_before(words, place, passage.start, dated, item, lexicon)
    after = object_after(words, verb + 1, by.lead, dated, item, lexicon)
    if lexicon.sets["arriving"].isdisjoint(words[place + length - 1 : verb + 1]) and after != "nothing":
        return after
    return "item" if "item" in (subject, after) else subject
