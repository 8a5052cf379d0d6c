"""Sentences and clauses: within which words a negation or a hedge reaches."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from recall.domain.claims.dates import Dated, dates_in
from recall.domain.claims.lexicon import Lexicon
from recall.domain.claims.subjects import Item
from recall.domain.claims.tokens import Token

_DAY_AND_MONTH = re.compile(r"\d{1,2}\.\d{1,2}", re.ASCII)
SENTENCE_ENDS = frozenset(".!?;\n…。！？；")
QUESTIONS = frozenset("?？")
BREAKS = frozenset(",:()[]{}/|–—-、，：・•·")
LONGEST = 80  # words in a clause: what has no punctuation is cut all the same, so that work stays linear
LONGEST_SENTENCE = 400  # likewise


@dataclass(frozen=True, slots=True)
class Sentence:
    """The tokens up to an end sign; `question`: that sign asks. `dated` says of each word whether it is in a date."""

    tokens: list[Token]
    words: list[str]
    dates: list[Dated]
    dated: list[bool]
    question: bool
    starts_line: bool


@dataclass(frozen=True, slots=True)
class Clause:
    """The places `start` to `end` (half-open) in a sentence, and the connective it begins with, if any."""

    start: int
    end: int
    connective: str


def sentences_of(tokens: list[Token], lexicon: Lexicon) -> Iterator[Sentence]:
    """Every sentence that has a word; a point inside a date, a number or an abbreviation ends none."""
    begun, fresh_line = 0, True
    for place, token in enumerate(tokens):
        if place - begun >= LONGEST_SENTENCE:
            yield _sentence(tokens[begun:place], lexicon, False, fresh_line)
            begun, fresh_line = place, False
        if token.word not in SENTENCE_ENDS or (token.word == "." and not _ends(tokens, place, lexicon)):
            continue
        if place > begun:
            yield _sentence(tokens[begun:place], lexicon, token.word in QUESTIONS, fresh_line)
            fresh_line = token.word == "\n"
        fresh_line = fresh_line or token.word == "\n"
        begun = place + 1
    if begun < len(tokens):
        yield _sentence(tokens[begun:], lexicon, False, fresh_line)


def _sentence(tokens: list[Token], lexicon: Lexicon, question: bool, starts_line: bool) -> Sentence:
    words = [token.word for token in tokens]
    dates = dates_in(words, lexicon)
    dated = [False] * len(words)
    for one in dates:
        dated[one.start : one.end] = [True] * (one.end - one.start)
    return Sentence(tokens, words, dates, dated, question, starts_line)


def _ends(tokens: list[Token], place: int, lexicon: Lexicon) -> bool:
    """Whether the point at a place ends a sentence."""
    if place + 1 == len(tokens) or place == 0:
        return True
    before, point, after = tokens[place - 1 : place + 2]
    if after.start == point.end and after.word not in SENTENCE_ENDS and after.word.isalnum():
        return False  # example.com
    if before.end == point.start and before.word in lexicon.sets["abbreviations"]:
        return False
    if not lexicon.dates["day_first"]:
        return True
    if _DAY_AND_MONTH.fullmatch(before.word):
        return after.word == "\n"
    if not before.word.isdigit() or len(before.word) > 2:
        return True
    return after.word not in lexicon.dates["months"] and not after.word.isdigit()


def clauses_of(sentence: Sentence, lexicon: Lexicon) -> list[Clause]:
    """The clauses of a sentence, cut at commas and their like and before connectives, never inside a date."""
    words = sentence.words
    date_starts = {one.start for one in sentence.dates}
    clauses: list[Clause] = []
    start, connective, place = 0, "", 0
    while place < len(words):
        length, cut, resume, begins_with = 1, False, place, ""
        if sentence.dated[place]:
            pass
        elif words[place] in BREAKS:
            cut, resume = True, place + 1
        elif kept := lexicon.phrases["not_connectives"].at(words, place):
            length = kept
        elif leading := lexicon.phrases["connectives"].at(words, place):
            length = leading
            cut = not _leads_to_a_date(words, place + length, date_starts, lexicon)
            begins_with = " ".join(words[place : place + length])
        elif words[place] in lexicon.sets["and_words"] and _begins_a_verb(words, place + 1, lexicon):
            cut, resume, begins_with = True, place + 1, words[place]
        elif place - start >= LONGEST:
            cut = True
        if cut:
            if place > start:
                clauses.append(Clause(start, place, connective))
                connective = ""
            start, connective = resume, begins_with or connective
        place += length
    if len(words) > start:
        clauses.append(Clause(start, len(words), connective))
    return clauses


def _leads_to_a_date(words: list[str], place: int, date_starts: set[int], lexicon: Lexicon) -> bool:
    """Whether a word is a preposition here and no connective: "until Friday", "after the 5th"."""
    if place in date_starts:
        return True
    return place + 1 in date_starts and words[place] in lexicon.sets["date_fillers"]


def _begins_a_verb(words: list[str], place: int, lexicon: Lexicon) -> bool:
    """Whether what follows "and" says something of its own, instead of naming a second thing."""
    if place >= len(words):
        return False
    word = words[place]
    if word in lexicon.sets["after_and"]:
        return True
    return any(
        trigger.form in ("past", "state") and trigger.kind for trigger in lexicon.triggers.get(word, ())
    )


@dataclass(frozen=True, slots=True)
class Passage:
    """A clause in its sentence, with the lexicon and the item it is read by."""

    lexicon: Lexicon
    item: Item
    sentence: Sentence
    words: list[str]
    dated: list[bool]
    start: int
    end: int
    connective: str

    def left_of(self, place: int) -> int:
        """The last place before one that is no adverb, auxiliary or negation; `start` - 1 when all are."""
        skipped, negations = self.lexicon.sets["skipped"], self.lexicon.sets["not_words"]
        place -= 1
        while place >= self.start and (self.words[place] in skipped or self.words[place] in negations):
            place -= 1
        return place

    def word(self, place: int) -> str:
        """The word at a place of the clause; empty outside it."""
        return self.words[place] if self.start <= place < self.end else ""

    def span(self, start: int, end: int) -> tuple[int, int]:
        """The offsets into the text of the words from one place to before another."""
        return self.sentence.tokens[start].start, self.sentence.tokens[max(start, end - 1)].end
