"""Which language a text is in, by its words alone."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from importlib.resources import files

UNKNOWN = "und"  # BCP 47: undetermined
_KANA = re.compile(r"[\u3040-\u30ff]")
_WORD = re.compile(r"[^\W\d_]+")
_ENOUGH = 60  # words: more do not change the answer


def language_of(text: str) -> str:
    """The language with most of its frequent words in the text; of equals the first; UNKNOWN when none has any.

    A Latin-script text without a single known word is not English by default: an unknown language claims nothing.
    """
    if _KANA.search(text[:2000]):
        return "ja"
    scores: dict[str, int] = {}
    marks = _marks()
    for number, match in enumerate(_WORD.finditer(text)):
        if number >= _ENOUGH:
            break
        for language in marks.get(match[0].lower(), ()):
            scores[language] = scores.get(language, 0) + 1
    best = max(scores.values(), default=0)
    return (
        next((language for language in _order() if scores.get(language) == best), UNKNOWN)
        if best
        else UNKNOWN
    )


@cache
def _table() -> dict[str, str]:
    table = tomllib.loads(
        files(__package__).joinpath("lexicon", "languages.toml").read_text(encoding="utf-8")
    )
    return {language: str(words) for language, words in table.items()}


@cache
def _order() -> tuple[str, ...]:
    return tuple(_table())


@cache
def _marks() -> dict[str, tuple[str, ...]]:
    """From a word to the languages it is frequent in."""
    marks: dict[str, list[str]] = {}
    for language, words in _table().items():
        for word in words.split():
            marks.setdefault(word, []).append(language)
    return {word: tuple(languages) for word, languages in marks.items()}
