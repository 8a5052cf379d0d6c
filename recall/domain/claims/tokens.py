"""A text as words and signs, each with its place in the text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from recall.domain.claims.lexicon import Lexicon

_TOKEN = re.compile(
    r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d(?::\d\d)?[Zz]?"
    r"|\d+(?:[.:/\-]\d+)*(?:st|nd|rd|th|am|pm|h|%)?(?![^\W_])"
    r"|[^\W_]+(?:['\-][^\W_]+)*"
    r"|[^\w\s]|\n",
    re.IGNORECASE,
)
_TYPOGRAPHY = str.maketrans(
    {"‘": "'", "’": "'", "ʼ": "'", "‐": "-", "‑": "-", "\u00a0": " ", "\r": "\n", "_": " "}
)
_UNSAID = re.compile(r"<[^<>\n]{1,60}>|~~[^~\n]{1,200}~~")  # a tag; words struck through
_QUOTES = frozenset("\"“”„«»`'")
_ELISION = re.compile(r"(?:[cdjlmnst]|qu|jusqu|lorsqu|puisqu)'", re.IGNORECASE)


class Token(NamedTuple):
    """A word in lower case and in its usual spelling, or one sign; `start` and `end` are offsets into the text."""

    word: str
    start: int
    end: int


def tokens_of(text: str, lexicon: Lexicon) -> list[Token]:
    """The words and signs of a text in order; contractions are taken apart, known misspellings put right."""
    if not lexicon.spaced:
        return list(_cut(plain(text), lexicon))
    tokens: list[Token] = []
    for match in _TOKEN.finditer(plain(text)):
        word, start, end = match[0].lower(), match.start(), match.end()
        if word in _QUOTES:
            continue
        if lexicon.elides and (elided := _ELISION.match(word)):
            tokens.append(Token(word[: elided.end() - 1], start, start + elided.end()))
            word, start = word[elided.end() :], start + elided.end()
        if lexicon.knows(word):
            tokens.append(Token(word, start, end))
            continue
        if parts := lexicon.parts_of(word):
            tokens += _placed(parts, start, end)
        else:
            tokens.append(Token(lexicon.usual_spelling(word), start, end))
    return tokens


_RUN = re.compile(r"[一-龯々]+|[ァ-ヶー]+|[ぁ-ゖ]|[^\W\d_]|[^\w\s]|\n")
_COUNTED = re.compile(r"(\d{1,4})([年月日時分])?(?:半)?|\d+")
_WIDE = str.maketrans("０１２３４５６７８９％：", "0123456789%:")


def _cut(text: str, lexicon: Lexicon) -> Iterator[Token]:
    """The longest words of the lexicon one after the other; what it does not know, by runs of one script."""
    text = text.translate(_WIDE).lower()
    longest = max(len(word) for word in lexicon.known)
    place = 0
    while place < len(text):
        if text[place].isdigit() and (counted := _COUNTED.match(text, place)):
            number, unit = counted[1] or counted[0], counted[2] or ""
            if unit == "時" or unit == "":
                yield Token(number, place, counted.end(1) if counted[1] else counted.end())
                if unit:
                    yield Token(unit, counted.end(1), counted.end())
            else:
                yield Token(number + unit if unit == "月" else number, place, counted.end())
            place = counted.end()
            continue
        for length in range(min(longest, len(text) - place), 0, -1):
            if text[place : place + length] in lexicon.known:
                yield Token(text[place : place + length], place, place + length)
                place += length
                break
        else:
            run = _RUN.match(text, place)
            if run is None:
                place += 1
                continue
            end = _until_known(text, place, run.end(), longest, lexicon)
            yield Token(text[place:end], place, end)
            place = end


def _until_known(text: str, start: int, end: int, longest: int, lexicon: Lexicon) -> int:
    """Where in a run the next known word of two or more signs begins."""
    for place in range(start + 1, end):
        if any(text[place : place + length] in lexicon.known for length in range(2, longest + 1)):
            return place
    return end


def plain(text: str) -> str:
    """The text with plain quotes and hyphens, and blanks for what is not said in it; every offset stays."""
    text = text.translate(_TYPOGRAPHY)
    return _UNSAID.sub(lambda match: " " * len(match[0]), text) if "<" in text or "~~" in text else text


def _placed(parts: list[str], start: int, end: int) -> list[Token]:
    """The parts of one word; each gets its letters' place, the last what is left."""
    placed = []
    for part in parts[:-1]:
        stop = min(start + len(part), end)
        placed.append(Token(part, start, stop))
        start = stop
    placed.append(Token(parts[-1], start, end))
    return placed
