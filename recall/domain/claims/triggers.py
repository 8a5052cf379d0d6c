"""Finding the words that may claim a state: the triggers of the lexicon, and the item's own verb."""

from __future__ import annotations

from dataclasses import dataclass

from recall.domain.claims.clauses import Passage
from recall.domain.claims.lexicon import END, SHARE, Trigger
from recall.domain.claims.timing import date_of

GAP_AT_MOST = 6  # words between the parts of "put ... off"


@dataclass(frozen=True, slots=True)
class Found:
    """A trigger at the places `start` to `end` (half-open); the places in `gap` are its object."""

    trigger: Trigger
    start: int
    end: int
    gap: tuple[int, int] | None = None


def trigger_at(passage: Passage, place: int) -> Found | None:
    """The first trigger in the lexicon's order that fits at a place; one of no kind is a veto."""
    lexicon = passage.lexicon
    candidates = lexicon.triggers.get(passage.words[place], ())
    if is_share(passage.words, place):
        candidates += lexicon.triggers.get(SHARE, ())
    for trigger in candidates:
        found = _fit(trigger, passage, place)
        if found is None:
            continue
        if trigger.kind is None and found.end < len(passage.words) and passage.dated[found.end]:
            continue  # "done by Friday" is more than "done by hand"
        if trigger.needs_date and date_of(trigger, passage, found.start, found.end) is None:
            continue
        return found
    return _own_verb(passage, place)


def _own_verb(passage: Passage, place: int) -> Found | None:
    """The verb the item's title begins with: "paid" for "Pay electrician"."""
    own = passage.item.verb
    if own is None:
        return None
    word, verbs = passage.words[place], passage.lexicon.title_verbs
    verb = verbs.get(f"{word}={own}") or verbs.get(word)
    if verb is None or verb[0] != own or passage.word(place - 1) in passage.lexicon.sets["articles"]:
        return None  # after an article it is a noun: "the paint"
    return Found(Trigger((), "completed", verb[1], "verb", own), place, place + 1)


def _fit(trigger: Trigger, passage: Passage, place: int) -> Found | None:
    """Read a trigger's elements from a place on; its one gap takes as few words as will do."""
    words, here, gap = passage.words, place, None
    for number, element in enumerate(trigger.elements):
        if END in element.words:
            if here != passage.end:
                return None
        elif not element.words:
            stop = _end_of_gap(passage, here, trigger.elements[number + 1].words)
            if stop is None:
                return None
            gap, here = (here, stop), stop
        elif (
            here < passage.end
            and not (number and passage.dated[here])
            and (words[here] in element.words or (SHARE in element.words and is_share(words, here)))
        ):
            here += 1
        elif not element.optional:
            return None
    return Found(trigger, place, here, gap)


def _end_of_gap(passage: Passage, start: int, after: frozenset[str]) -> int | None:
    """Where one of the words after a gap stands; None: too far away, or past a word that no object holds."""
    for place in range(start, min(passage.end, start + GAP_AT_MOST + 1)):
        if passage.words[place] in after:
            return place
        if passage.words[place] in passage.lexicon.sets["no_gap"]:
            return None
    return None


def is_share(words: list[str], place: int) -> bool:
    """Whether a share stands here: "40%", "40 percent"."""
    word = words[place]
    if word.endswith("%"):
        return word[:-1].isdigit() and len(word) <= 4
    return word.isdigit() and len(word) <= 3 and words[place + 1 : place + 2] == ["percent"]


def share_in(passage: Passage) -> str | None:
    """The share a clause names, as a claim carries it; "halfway" is `50%`."""
    for place in range(passage.start, passage.end):
        if is_share(passage.words, place):
            return f"{passage.words[place].rstrip('%')}%"
        if passage.words[place] in passage.lexicon.sets["half_words"]:
            return "50%"
    return None


def only_describes(passage: Passage, found: Found) -> bool:
    """A participle that belongs to a noun: "the finished look", "Cancelled cheques go into the folder"."""
    sets = passage.lexicon.sets
    if found.trigger.form != "past" or found.end - found.start != 1 or found.gap:
        return False
    if passage.word(found.start - 1) in sets["articles"]:
        return True
    after = passage.word(found.end)
    if found.start > passage.start or not after.isalpha():
        return False
    if after in sets["be"]:  # '"Cancelled" is the title', "Done is better than perfect"
        return True
    if any(after in sets[name] for name in ("phrase_ends", "adverbs", "determiners", "pronouns", "persons")):
        return False
    return any(word in sets["finite"] for word in passage.words[found.end : min(passage.end, found.end + 6)])
