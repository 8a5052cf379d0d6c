"""What a trigger speaks of: the item, or something else."""

from __future__ import annotations

from recall.domain.claims.clauses import Passage
from recall.domain.claims.subjects import Named, anywhere, object_after, owner_before, related, subject_before
from recall.domain.claims.triggers import Found

ABOUT_THE_ITEM: frozenset[Named] = frozenset(("item", "pronoun", "nothing", "person"))


def named_by(passage: Passage, found: Found, theme: Named) -> Named:
    """What a trigger speaks of, by its role; `theme` is what the clause before it was about.

    1. Of a noun ("deadline"): its owner.
    2. Of a state ("on hold") and of a passive: the subject. An elliptic clause is about what the one before was.
    3. Of a verb: its object, else its subject.
    """
    lexicon, item, words, role = passage.lexicon, passage.item, passage.words, found.trigger.role
    if role == "free":
        return "nothing"
    if lexicon.language != "en":
        skip = passage.dated.copy()
        skip[found.start : found.end] = [True] * (found.end - found.start)
        return anywhere(words, passage.start, passage.end, skip, item, lexicon)
    if role == "noun":
        return _owner(passage, found)
    subject = _subject(passage, found, theme)
    if role == "state":
        return _about(passage, found) or subject
    if found.trigger.form == "past" and passage.word(passage.left_of(found.start)) in lexicon.sets["be"]:
        return subject
    named = _object(passage, found)
    if named == "nothing":
        return subject
    return "other" if named == "person" and subject == "other" else named


def _subject(passage: Passage, found: Found, theme: Named) -> Named:
    words, sets = passage.words, passage.lexicon.sets
    subject = subject_before(words, found.start, passage.start, passage.dated, passage.item, passage.lexicon)
    if subject in ("nothing", "pronoun") and words[passage.start] in sets["relatives"]:
        return related(words, passage.start, passage.item, passage.lexicon)
    if subject == "nothing" and theme == "other":
        return "other"
    if subject == "other" and found.trigger.kind == "due":
        owner = words[max(passage.start, found.start - 3) : found.start]
        if len(owner) < 3 and any(word in sets["due_subjects"] for word in owner):  # "payment is due"
            return "nothing"
    return subject


def _about(passage: Passage, found: Found) -> Named | None:
    """What a state is said to be about after it: "work is under way on the contract"."""
    place = found.end
    if passage.word(place) not in passage.lexicon.sets["about_words"] or any(
        passage.dated[place : place + 3]
    ):
        return None
    named = object_after(passage.words, place + 1, passage.end, passage.dated, passage.item, passage.lexicon)
    definite = passage.word(place + 1) in passage.lexicon.sets["articles"]
    return named if named == "item" or (named == "other" and definite) else None


def _object(passage: Passage, found: Found) -> Named:
    within = passage.words[found.start : found.end]
    start, end = found.end, passage.end
    if found.gap is not None and found.gap[1] > found.gap[0]:
        start, end = found.gap
    elif found.gap is None and len(within) > 2 and not passage.lexicon.sets["objects"].isdisjoint(within):
        return "pronoun"
    return object_after(passage.words, start, end, passage.dated, passage.item, passage.lexicon)


def _owner(passage: Passage, found: Found) -> Named:
    """Whose a deadline is: "the deadline for the essay", "the budget's deadline", "the essay has no deadline"."""
    lexicon, item, words, dated = passage.lexicon, passage.item, passage.words, passage.dated
    sets = lexicon.sets
    if passage.word(found.end) in sets["noun_links"] and not any(dated[found.end + 1 : found.end + 2]):
        named = object_after(words, found.end + 1, passage.end, dated, item, lexicon)
        if named != "nothing":
            return named
    owner, before = owner_before(words, found.start, passage.start, dated, lexicon)
    if any(word not in sets["determiners"] for word in owner):
        named = object_after(owner, 0, len(owner), [False] * len(owner), item, lexicon)
        if named in ("other", "item"):
            return named
    while passage.word(before) in sets["not_words"]:
        before -= 1
    if passage.word(before) in sets["having"]:
        return subject_before(words, before, passage.start, dated, item, lexicon)
    return "nothing"


def left_out(passage: Passage, found: Found) -> Named | None:
    """What a clause leaves out ("all done except the essay"); None: nothing is left out."""
    words = passage.words
    for place in range(passage.start, passage.end):
        if length := passage.lexicon.phrases["exceptions"].at(words, place):
            end = found.start if place < found.start else passage.end
            return object_after(words, place + length, end, passage.dated, passage.item, passage.lexicon)
    return None


def theme_of(passage: Passage, before: Named) -> Named:
    """What a clause is about, by the noun phrase it begins with; without one, the same as the clause before it."""
    sets, words = passage.lexicon.sets, passage.words
    if passage.lexicon.language != "en" or words[passage.start] not in sets["articles"]:
        return before
    for place in range(passage.start + 1, min(passage.end, passage.start + 5)):
        if words[place] in sets["finite"]:
            return subject_before(words, place, passage.start, passage.dated, passage.item, passage.lexicon)
    return before
