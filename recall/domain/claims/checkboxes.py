"""Items ticked in a list: `- [x] outline`, `✅ outline`."""

from __future__ import annotations

from typing import NamedTuple

from recall.domain.claims.claim import Claim
from recall.domain.claims.clauses import Sentence
from recall.domain.claims.lexicon import Lexicon
from recall.domain.claims.subjects import Item, Named, anywhere, object_after

_BULLETS = frozenset("-*+•")
_TICKS = frozenset("✓✔✅☑")
_OPEN = "☐"


class Ticked(NamedTuple):
    """A line with a box; it claims nothing when it names another thing."""

    claim: Claim | None


def checkbox_in(sentence: Sentence, item: Item, lexicon: Lexicon) -> Ticked | None:
    """Read a line with a box, ticked or open, before its text, or a tick after it; None: there is none."""
    words = sentence.words
    here = 1 if sentence.starts_line and words[0] in _BULLETS else 0
    box = words[here : here + 3]
    if len(box) == 3 and box[0] + box[2] == "[]" and box[1] in _TICKS | {"x"}:
        signs, negated = 3, False
    elif box[:2] == ["[", "]"]:
        signs, negated = 2, True
    elif box and (box[0] in _TICKS or box[0] == _OPEN):
        signs, negated = 1, box[0] == _OPEN
    elif words[-1] in _TICKS and _named(words[here:-1], item, lexicon) == "item":
        signs, negated = 0, False
    else:
        return None
    label = words[here + signs :] if signs else words[here:-1]
    if _named(label, item, lexicon) not in ("item", "nothing"):
        return Ticked(None)
    span = sentence.tokens[here].start, sentence.tokens[-1].end
    return Ticked(Claim("completed", None, negated, False, span))


def _named(words: list[str], item: Item, lexicon: Lexicon) -> Named:
    undated = [False] * len(words)
    if lexicon.language != "en":
        return anywhere(words, 0, len(words), undated, item, lexicon)
    verb = lexicon.title_verbs.get(words[0]) if words else None
    own = verb is not None and verb[0] == item.verb
    return object_after(words, 1 if own else 0, len(words), undated, item, lexicon)
