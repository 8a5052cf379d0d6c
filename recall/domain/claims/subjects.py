"""Whether a trigger speaks of the item: the words around it against the item's summary.

"Cancelled the dentist to make time for the outline" is no claim about the outline. What is not named at all, or by a
pronoun, is taken for the item; what is named otherwise is something else; and what only might be the item is not.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, TypeAlias

from recall.domain.claims.lexicon import Lexicon, lexicon

Named: TypeAlias = Literal["item", "pronoun", "nothing", "person", "other"]

_WIDEST = 8  # words of a noun phrase
_ENDINGS = ("ations", "ation", "ions", "ings", "ion", "ing", "ment", "ies", "ed", "es", "s", "e", "y")


@dataclass(frozen=True, slots=True)
class Item:
    """The words of a summary: `verb` is the lemma of the verb it starts with, `nouns` the rest, `head` the main one."""

    verb: str | None
    nouns: frozenset[str]
    head: frozenset[str]
    numbers: frozenset[str]
    wider: frozenset[str]


@lru_cache(maxsize=256)
def item_of(summary: tuple[str, ...], lexicon_language: str) -> Item:
    """Read a summary's words. "Cancel gym membership" has the verb `cancel` and the head `membership`."""
    known = lexicon(lexicon_language)
    words = [word for word in summary if word[:1].isalnum()]
    verb = None
    if len(words) > 1 and (titled := known.title_verbs.get(words[0])) and titled[1] == "base":
        verb = titled[0]
        words = words[1:]
    numbers = frozenset(word for word in words if word.isdigit())
    filler = (
        known.sets["determiners"] | known.sets["prepositions"] | known.sets["and_words"] | known.sets["plain"]
    )
    before: list[str] = []
    for word in words:
        if word in known.sets["prepositions"] and before:
            break
        before.append(word)
    main = [word for word in before if word not in filler and not word.isdigit()]
    nouns = [word for word in words if word not in filler and not word.isdigit()]
    head = main[-1:] or nouns[-1:]
    if not known.sets.get("head_first"):
        heads = frozenset(stem(word) for word in head)
    else:
        heads = frozenset(stem(word) for word in main[:1])
    wider = set()
    for general, special in known.raw.get("wider", {}).items():
        if not {stem(word) for word in special.split()}.isdisjoint(stem(word) for word in nouns):
            wider.add(stem(general))
    if verb is not None:
        wider.update(stem(word) for word in known.raw.get("nominal", {}).get(verb, "").split())
    return Item(verb, frozenset(stem(word) for word in nouns), heads, numbers, frozenset(wider))


@lru_cache(maxsize=4096)
def stem(word: str) -> str:
    """The word without its ending, roughly: enough that "repainting" and "repaint" are one."""
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            stemmed = word[: -len(ending)]
            if len(stemmed) > 3 and stemmed[-1] == stemmed[-2] and stemmed[-1] not in "aeiousl":
                stemmed = stemmed[:-1]
            return stemmed
    return word


def names(phrase: list[str], item: Item, lexicon: Lexicon) -> Named:
    """What a noun phrase without its prepositional complement stands for."""
    sets = lexicon.sets
    words = [word for word in phrase if word not in sets["determiners"] and word not in sets["plain"]]
    if not words:
        whole = phrase and (phrase[-1] in sets["pronouns"] or phrase[-1] in sets["plain"])
        return "pronoun" if whole else "other" if phrase else "nothing"
    numbers = {word for word in words if word.isdigit()}
    if item.numbers:
        numbers |= {
            spoken.partition("=")[2] for spoken in sets["ordinals"] if spoken.partition("=")[0] in words
        }
    if numbers and item.numbers and numbers.isdisjoint(item.numbers):
        return "other"
    words = [word for word in words if not word.isdigit()]
    if not words:
        return "item" if numbers else "nothing"
    if len(words) == 1 and words[0] in sets["pronouns"]:
        return "pronoun"
    if len(words) == 1 and words[0] in sets["persons"]:
        return "person"
    if "'s" in words:
        owner = words.index("'s")
        if owner and words[owner - 1] in sets["persons"]:
            words = words[: owner - 1] + words[owner + 1 :]
        if not words or "'s" in words:
            return "other"
    stems = [stem(word) for word in words]
    matched = [one for one in stems if one in item.nouns]
    head = stems[-1]
    if len(matched) == len(stems) and not item.head.isdisjoint(stems):
        return "item"
    if len(matched) > 1 and (head in item.head or item.nouns <= set(stems)):
        return "item"
    if matched and item.nouns <= set(stems) and len(item.nouns) > 1:
        return "item"
    if words[-1] in sets["generic"] or head in item.wider:
        return "item" if len(stems) - len(matched) == 1 else "other"
    return "other"


def object_after(
    words: list[str], place: int, end: int, dated: list[bool], item: Item, lexicon: Lexicon
) -> Named:
    """What the noun phrase after a verb stands for; nothing when none follows."""
    sets = lexicon.sets
    while place < end and words[place] in sets["adverbs"]:
        place += 1
    if place < end and item.verb and lexicon.title_verbs.get(words[place]) == (item.verb, "gerund"):
        phrase, _ = _phrase_from(words, place + 1, end, dated, lexicon)
        if not phrase or any(stem(word) in item.nouns for word in phrase):
            return "item"
    if place < end and words[place] in sets["doing"]:
        place += 1
    phrase, place = _phrase_from(words, place, end, dated, lexicon)
    named = names(phrase, item, lexicon)
    if (
        place < end
        and words[place] in sets["complement_links"]
        and phrase
        and not any(dated[place + 1 : place + 2])
    ):
        further, _ = _phrase_from(words, place + 1, end, dated, lexicon)
        return _with_complement(named, phrase, further, words[place] in sets["of_words"], item, lexicon)
    return named


def _with_complement(
    named: Named, phrase: list[str], complement: list[str], of: bool, item: Item, lexicon: Lexicon
) -> Named:
    """What "the rest of the essay" or "the appointment of my mother" stands for.

    Where the summary says more than the phrase, and the complement says something else, it is another thing.
    """
    further = names(complement, item, lexicon)
    if complement and (phrase[-1] in lexicon.sets["wholes"] or (of and named == "pronoun")):
        return further
    if named != "item" or further != "other":
        return named
    stems = {stem(word) for word in phrase}
    return "item" if item.nouns <= stems else "other"


def _phrase_from(
    words: list[str], place: int, end: int, dated: list[bool], lexicon: Lexicon
) -> tuple[list[str], int]:
    sets = lexicon.sets
    phrase: list[str] = []
    while place < end and len(phrase) < _WIDEST and not dated[place]:
        word = words[place]
        if not (word[:1].isalnum() or word == "'s") or word in sets["phrase_ends"]:
            break
        if word in sets["adverbs"] or lexicon.is_adverb(word):
            if any(one not in sets["determiners"] for one in phrase):
                break
            if phrase and word in sets["ordinal_words"]:
                phrase.append(word)
            place += 1
            continue
        if phrase and (word in sets["determiners"] or word in lexicon.dates["numbers"]):
            break
        phrase.append(word)
        place += 1
        if len(phrase) == 1 and word in sets["pronouns"] and word not in sets["determiners"]:
            break
    return phrase, place


def subject_before(
    words: list[str], place: int, start: int, dated: list[bool], item: Item, lexicon: Lexicon
) -> Named:
    """What the noun phrase before a verb or a state stands for, with its complements set aside."""
    sets = lexicon.sets
    here = place - 1
    while here >= start and (
        words[here] in sets["between"]
        or dated[here]
        or words[here] in sets["adverbs"]
        or lexicon.is_adverb(words[here])
    ):
        here -= 1
    phrase: list[str] = []
    complement: list[str] = []
    link = ""
    while here >= start and len(phrase) < _WIDEST:
        word = words[here]
        if dated[here]:
            here -= 1
            continue
        if word in sets["pronouns"] and not phrase:
            if word in sets["relative_words"] and _relative(words, here, start, lexicon):
                return _just_before(words, here, start, item, lexicon)
            phrase.append(word)
            break
        if word in sets["noun_links"] and phrase:
            complement, phrase, link = phrase, [], word
            here -= 1
            continue
        if word in sets["determiners"]:
            phrase.insert(0, word)
            if here > start and words[here - 1] in sets["noun_links"]:
                complement, phrase, link = phrase, [], words[here - 1]
                here -= 2
                continue
            break
        if (
            word in sets["subject_starts"]
            or word in sets["prepositions"]
            or not (word[:1].isalnum() or word == "'s")
        ):
            break
        phrase.insert(0, word)
        here -= 1
    if not phrase:
        return names(complement, item, lexicon)
    named = names(phrase, item, lexicon)
    return (
        _with_complement(named, phrase, complement, link in sets["of_words"], item, lexicon)
        if complement
        else named
    )


def owner_before(
    words: list[str], place: int, start: int, dated: list[bool], lexicon: Lexicon
) -> tuple[list[str], int]:
    """The words before a noun that say whose it is ("the budget meeting's" deadline), and the place before them."""
    sets = lexicon.sets
    owner: list[str] = []
    here = place - 1
    while here >= start and len(owner) < 6 and not dated[here] and words[here] not in sets["subject_starts"]:
        word = words[here]
        if word in sets["prepositions"] or (word in sets["between"] and word != "'s"):
            break
        owner.insert(0, word)
        here -= 1
        if word in sets["determiners"]:
            break
    aside = sets["deadline_words"] | sets["not_words"]
    return [word for word in owner if word not in aside and word != "'s"], here


def _relative(words: list[str], place: int, start: int, lexicon: Lexicon) -> bool:
    """Whether "that" goes on about the noun before it, and does not introduce what is said."""
    before = words[place - 1] if place > start else ""
    sets = lexicon.sets
    return before[:1].isalpha() and not (
        before in sets["subject_starts"]
        or before in sets["prepositions"]
        or before in sets["between"]
        or before in sets["pronouns"]
        or before in sets["persons"]
        or before in sets["adverbs"]
    )


def _just_before(words: list[str], place: int, start: int, item: Item, lexicon: Lexicon) -> Named:
    """What the noun phrase that ends right before a place stands for, whatever came before it."""
    sets = lexicon.sets
    phrase: list[str] = []
    here = place - 1
    while here >= start and len(phrase) < 4 and words[here][:1].isalnum():
        if words[here] in sets["prepositions"] or words[here] in sets["subject_starts"]:
            break
        phrase.insert(0, words[here])
        if words[here] in sets["determiners"]:
            break
        here -= 1
    named = names(phrase, item, lexicon)
    return named if named == "item" else "other"


def related(words: list[str], place: int, item: Item, lexicon: Lexicon) -> Named:
    """What a clause that begins with "which" at a place is about: the noun phrase before it, past the comma."""
    while place > 0 and not words[place - 1][:1].isalnum():
        place -= 1
    return _just_before(words, place, 0, item, lexicon)


def anywhere(words: list[str], start: int, end: int, skip: list[bool], item: Item, lexicon: Lexicon) -> Named:
    """For languages whose order of words is not read: whether the clause names the item, something else, or nothing."""
    sets = lexicon.sets
    told = [
        word
        for place, word in enumerate(words[start:end], start)
        if not skip[place] and word[:1].isalpha() and word not in lexicon.known
    ]
    if not told:
        return "nothing"
    if lexicon.spaced:
        if any(stem(word) in item.nouns or _compound(word, item, lexicon) for word in told):
            return "item"
    elif any(word in noun or noun in word for word in told for noun in item.nouns):
        return "item"
    return "item" if all(word in sets["generic"] for word in told) else "other"


def _compound(word: str, item: Item, lexicon: Lexicon) -> bool:
    """Whether it is a word of the summary with an article or an ending: "Rapporten" for "Rapport"."""
    if any(word == noun + ending for noun in item.nouns for ending in lexicon.sets["article_endings"]):
        return True
    return any(
        len(noun) >= 4
        and (word.startswith(noun) or noun.startswith(stem(word)))
        and abs(len(word) - len(noun)) <= 4
        for noun in item.nouns
    )
