"""Sentences and clauses: within which words a negation or a hedge reaches."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from recall.domain.claims.dates import Dated, dates_in
from recall.domain.claims.lexicon import Lexicon
from recall.domain.claims.tokens import Token

_DAY_AND_MONTH = re.compile(r"\d{1,2}\.\d{1,2}", re.ASCII)
SENTENCE_ENDS = frozenset(".!?;\n…。！？；")
QUESTIONS = frozenset("?？")
BREAKS = frozenset(",:()[]{}/|–—-、，：・•·")
SIGNS_OF_STATE = frozenset("✅☑✔✓❌☐")
LONGEST = 80  # words in a clause: what has no punctuation is cut all the same, so that work stays linear
LONGEST_SENTENCE = 400  # likewise


@dataclass(frozen=True, slots=True)
class Sentence:
    """The tokens up to an end sign; `question`: that sign asks."""

    tokens: list[Token]
    words: list[str]
    dates: list[Dated]
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
        cut = place - begun >= LONGEST_SENTENCE
        if not cut and (
            token.word not in SENTENCE_ENDS or (token.word == "." and not _ends(tokens, place, lexicon))
        ):
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
    return Sentence(tokens, words, dates_in(words, lexicon), question, starts_line)


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
    inside = [False] * (len(words) + 1)
    dated_starts = set()
    for dated in sentence.dates:
        dated_starts.add(dated.start)
        for place in range(dated.start, dated.end):
            inside[place] = True
    clauses: list[Clause] = []
    start, connective, place = 0, "", 0

    def cut(end: int, next_start: int, next_connective: str) -> None:
        nonlocal start, connective
        if end > start:
            clauses.append(Clause(start, end, connective))
            connective = ""
        start = next_start
        if next_connective:
            connective = next_connective

    while place < len(words):
        if inside[place]:
            place += 1
            continue
        word = words[place]
        if word in BREAKS:
            cut(place, place + 1, "")
        elif length := lexicon.phrases["not_connectives"].at(words, place):
            place += length
            continue
        elif length := lexicon.phrases["connectives"].at(words, place):
            if not (
                place + length in dated_starts or _the_date(words, place + length, dated_starts, lexicon)
            ):
                cut(place, place, " ".join(words[place : place + length]))
            place += length
            continue
        elif (
            word in lexicon.sets["and_words"] and place > start and _begins_a_verb(words, place + 1, lexicon)
        ):
            cut(place, place + 1, word)
        elif place - start >= LONGEST:
            cut(place, place, "")
        place += 1
    cut(len(words), len(words), "")
    return clauses


def _the_date(words: list[str], place: int, dated_starts: set[int], lexicon: Lexicon) -> bool:
    return place < len(words) and words[place] in lexicon.sets["date_fillers"] and place + 1 in dated_starts


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
