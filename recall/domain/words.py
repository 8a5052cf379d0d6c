"""From a question in natural language to the words worth looking up."""

from __future__ import annotations

import unicodedata

MAX_WORDS = 32
FREQUENT_SHARE = 0.10  # a word in more than a tenth of the texts tells little and costs most
FREQUENT_FLOOR = 1_000  # in a small store every word is cheap: then none is dropped

STOP_WORDS = frozenset(
    """
    a about after again all am an and any are as at be because been before being between both but by can could did
    do does doing down during each few for from further had has have having he her here hers him his how i if in
    into is it its itself just like may me might more most must my no nor not of off on once only or other our ours
    out over own please same shall she should so some such than that the their theirs them then there these they
    this those through to too under until up us very was we were what when where which while who whom whose why
    will with would you your yours s t d ll re ve m
    """.split()
)


def words_of(query: str) -> list[str]:
    """The question's words, lower-case, each once, in order; stop words go unless nothing else is left.

    Anything a user types is only ever taken apart into words here, so no operator of the search engine survives.
    """
    spelt = "".join(sign if _of_a_word(sign) else " " for sign in query)
    every = list(dict.fromkeys(word.lower() for word in spelt.split()))
    telling = [word for word in every if word not in STOP_WORDS]
    return (telling or every)[:MAX_WORDS]


def _of_a_word(sign: str) -> bool:
    """Letters, digits, and the marks written onto them: an accent of its own, a vowel sign."""
    return sign.isalnum() or unicodedata.category(sign)[0] == "M"


def worth_asking(holding: dict[str, int], documents: int) -> list[str]:
    """Drop the words that too many texts hold, but keep the two rarest.

    `holding` gives for each word the number of texts that hold it, out of `documents`. Words that no text holds stay:
    they find nothing, and are part of what was asked, so a text with one word out of five does not match wholly.
    """
    present = [word for word, count in holding.items() if count > 0]
    frequent = max(documents * FREQUENT_SHARE, FREQUENT_FLOOR)
    kept = {word for word in present if holding[word] <= frequent}
    if len(kept) < 2:
        kept = set(sorted(present, key=lambda word: (holding[word], word))[:2])
    return [word for word, count in holding.items() if count == 0 or word in kept]
