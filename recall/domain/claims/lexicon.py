"""The words of one language that claims are made of: read once from `lexicon/<language>.toml`.

A trigger is a sequence of words: `a|b` stands for either, `?a` may be missing, `*` for up to six words of the same
clause (its object), and `{cancel}` for every form of a verb in `[verbs]`. The first trigger that fits at a word, in
the order of the file, counts; one of the kind `none` is a veto: its words are read, and claim nothing.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar

Form: TypeAlias = Literal["base", "present", "past", "gerund", "state"]
Role: TypeAlias = Literal["verb", "state", "noun", "free"]

_FORMS: tuple[Form, ...] = ("base", "present", "past", "gerund")
_SHORTEST_MISSPELT = 6  # letters: a shorter word has too many neighbours that are words themselves
GAP = "*"
SHARE = "<share>"  # stands for "40%" in a trigger
END = "<end>"  # stands for the end of the clause


class Element(NamedTuple):
    """One place of a trigger; no `words` is a gap."""

    words: frozenset[str]
    optional: bool = False


class Trigger(NamedTuple):
    """A phrase and what it claims; `kind` is None for a veto.

    `form` says whether it states a fact by itself (`past`, `present`, `state`). `role` says where the thing it
    speaks of stands: after a verb (or before it, in the passive), before a state, around a noun, or nowhere.
    `lemma` is the verb at its head. `needs` is "date", or a word that must not follow it.
    """

    elements: tuple[Element, ...]
    kind: str | None
    form: Form
    role: Role
    lemma: str
    negated: bool = False
    needs_date: bool = False
    value: str | None = None
    last: bool = False


Listed = TypeVar("Listed")


class _Lists(dict[str, Listed]):
    """Lists by name; a language that has no such list has an empty one."""

    def __init__(self, empty: Listed, lists: dict[str, Listed]) -> None:
        super().__init__(lists)
        self._empty = empty

    def __missing__(self, name: str) -> Listed:
        return self._empty


@dataclass(frozen=True, slots=True)
class Lexicon:
    """One language's lexicon. `sets` are its word lists, `phrases` its lists of word sequences, by name."""

    language: str
    triggers: Mapping[str, tuple[Trigger, ...]]
    sets: Mapping[str, frozenset[str]]
    phrases: Mapping[str, Phrases]
    dates: Mapping[str, Any]
    title_verbs: Mapping[str, tuple[str, Form]]
    spelling: Mapping[str, str]
    neighbours: Mapping[str, tuple[str, ...]]
    known: frozenset[str]
    raw: Mapping[str, Any] = field(repr=False)
    elides: bool = False
    spaced: bool = True

    def knows(self, word: str) -> bool:
        """Whether it is a word that needs no putting right."""
        return word in self.known and word not in self.spelling

    def parts_of(self, word: str) -> list[str]:
        """A contraction's or an abbreviation's words; empty when it is neither."""
        if written := self.spelling.get(word):
            return written.split(" ")
        if "'" in word:
            for ending, full in self.raw.get("contractions", {}).items():
                if word.endswith(ending) and len(word) > len(ending):
                    return [word[: -len(ending)], full]
        prefix, hyphen, rest = word.partition("-")
        if hyphen and prefix in self.sets["prefixes"] and rest in self.dates["months"]:
            return [prefix, rest]
        return []

    def is_adverb(self, word: str) -> bool:
        """English adverbs by their ending: "undoubtedly"."""
        return self.language == "en" and len(word) > 5 and word.endswith("ly")

    def usual_spelling(self, word: str) -> str:
        """The word one slip of the pen away (Damerau-Levenshtein distance 1) from an unknown one, if there is one."""
        if len(word) < _SHORTEST_MISSPELT or len(word) > 20 or not self.neighbours:
            return word
        for variant in (word, *_without_one(word)):
            for meant in self.neighbours.get(variant, ()):
                if _one_slip(word, meant):
                    return meant
        return word


class Phrases(NamedTuple):
    """Word sequences by their first word, longest first."""

    by_first: Mapping[str, tuple[tuple[str, ...], ...]]

    def at(self, words: list[str], place: int) -> int:
        """The length of the longest phrase that starts at a place; 0 for none."""
        for phrase in self.by_first.get(words[place], ()):
            if len(phrase) == 1 or tuple(words[place : place + len(phrase)]) == phrase:
                return len(phrase)
        return 0


def _phrases(written: list[str]) -> Phrases:
    by_first: dict[str, list[tuple[str, ...]]] = {}
    for one in written:
        phrase = tuple(one.split(" "))
        by_first.setdefault(phrase[0], []).append(phrase)
    return Phrases(
        {first: tuple(sorted(every, key=lambda p: (-len(p), p))) for first, every in by_first.items()}
    )


LANGUAGES = ("en", "de", "nb", "es", "fr", "ja")
_SAME = {"no": "nb", "nn": "nb"}


def lexicon_for(tag: str) -> Lexicon | None:
    """The lexicon of a language tag such as `de` or `nb-NO`; None: no such language is known here."""
    language = tag.replace("_", "-").split("-")[0].lower()
    language = _SAME.get(language, language)
    return lexicon(language) if language in LANGUAGES else None


@cache
def lexicon(language: str) -> Lexicon:
    """The lexicon of one of LANGUAGES."""
    raw = tomllib.loads(
        files(__package__).joinpath("lexicon", f"{language}.toml").read_text(encoding="utf-8")
    )
    verbs: dict[str, list[str]] = {lemma: forms.split() for lemma, forms in raw.get("verbs", {}).items()}
    triggers: dict[str, list[Trigger]] = {}
    for entry in raw["trigger"]:
        for written in entry["phrases"]:
            for trigger in _written_out(written, entry, verbs):
                for word in sorted(trigger.elements[0].words):
                    triggers.setdefault(word, []).append(trigger)
    sets = _Lists(frozenset[str](), {name: frozenset(words.split()) for name, words in raw["sets"].items()})
    phrases = _Lists(Phrases({}), {name: _phrases(written) for name, written in raw["phrases"].items()})
    dates = raw["dates"]
    sets["date_starts"] = _date_starts(dates, sets)
    known = _known(raw, triggers, sets)
    return Lexicon(
        language=language,
        triggers={word: tuple(every) for word, every in triggers.items()},
        sets=sets,
        phrases=phrases,
        dates=dates,
        title_verbs=_title_verbs(raw, verbs),
        spelling=raw.get("spelling", {}),
        neighbours=_neighbours(raw.get("misspelt", {}).get("words", "").split()),
        known=known,
        raw=raw,
        elides=raw.get("elides", False),
        spaced=raw.get("spaced", True),
    )


def _written_out(written: str, entry: dict[str, Any], verbs: dict[str, list[str]]) -> list[Trigger]:
    """One trigger, or one for each form of the verb in braces."""
    start, brace, rest = written.partition("{")
    if not brace:
        return [_trigger(written, entry, entry.get("form", "state"), written.split()[0])]
    lemma, _, end = rest.partition("}")
    forms = dict(zip(_FORMS, verbs[lemma], strict=True))
    return [
        _trigger(start + forms[form] + end, entry, form, lemma)
        for form in _FORMS
        if form == "past"
        or forms[form] != forms["past"]  # "put" is read as "has put" until "to" stands before it
    ]


def _trigger(written: str, entry: dict[str, Any], form: Form, lemma: str) -> Trigger:
    elements = tuple(
        Element(frozenset() if word == GAP else frozenset(word.lstrip("?").split("|")), word.startswith("?"))
        for word in written.split()
    )
    return Trigger(
        elements,
        None if entry["kind"] == "none" else entry["kind"],
        form,
        entry.get("role", "verb"),
        lemma,
        entry.get("negated", False),
        entry.get("needs_date", False),
        entry.get("value"),
        entry.get("last", False),
    )


def _title_verbs(raw: dict[str, Any], verbs: dict[str, list[str]]) -> dict[str, tuple[str, Form]]:
    """Every form of the verbs that start a title, with its verb and which form it is."""
    found: dict[str, tuple[str, Form]] = {}
    for lemma, forms in raw.get("title_verbs", {}).items():
        for form, words in zip(_FORMS, forms.split(), strict=True):
            for word in words.split("/"):
                found[word] = (lemma, form)
    for word, lemma in raw.get("same_verb", {}).items():
        found.setdefault(f"{word}={lemma}", (lemma, "past"))
    for lemma, written in verbs.items():
        for form, word in zip(_FORMS, written, strict=True):
            found.setdefault(word, (lemma, form))
    return found


def _date_starts(dates: dict[str, Any], sets: Mapping[str, frozenset[str]]) -> frozenset[str]:
    """The words that a date phrase may begin with, besides numbers."""
    tables = ("months", "weekdays", "numbers", "which", "parts", "phrases", "clock_words")
    starts = {phrase.split()[0] for table in tables for phrase in dates.get(table, ())}
    return frozenset(starts | sets["week_words"] | {"q1", "q2", "q3", "q4"})


def _known(
    raw: dict[str, Any], triggers: dict[str, list[Trigger]], sets: dict[str, frozenset[str]]
) -> frozenset[str]:
    """The words of the lexicon, and those that only look like a misspelt one."""
    known = set(raw.get("misspelt", {}).get("never", "").split()).union(*sets.values())
    for every in triggers.values():
        for trigger in every:
            known.update(*(element.words for element in trigger.elements))
    for written in raw["phrases"].values():
        known.update(word for phrase in written for word in phrase.split())
    for table in raw["dates"].values():
        if isinstance(table, dict):
            known.update(word for phrase in table for word in phrase.split())
    return frozenset(known)


def _neighbours(words: list[str]) -> dict[str, tuple[str, ...]]:
    """From each word with one letter left out to the words it may have been, and from each word to itself."""
    found: dict[str, list[str]] = {}
    for word in words:
        for variant in (word, *_without_one(word)):
            found.setdefault(variant, []).append(word)
    return {variant: tuple(sorted(set(every))) for variant, every in found.items()}


def _without_one(word: str) -> list[str]:
    return [word[:place] + word[place + 1 :] for place in range(len(word))]


def _one_slip(word: str, meant: str) -> bool:
    """Whether one letter more, less, other, or swapped with the next makes one of the other."""
    if word == meant:
        return False
    same = 0
    while same < min(len(word), len(meant)) and word[same] == meant[same]:
        same += 1
    left, right = word[same:], meant[same:]
    return (
        left[1:] == right[1:]
        or left[1:] == right
        or left == right[1:]
        or (left[:2] == right[1::-1] and left[2:] == right[2:] and len(left) > 1)
    )
