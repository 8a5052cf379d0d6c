"""A made-up agent memory of any size, the same for the same seed: what `manage.py bench build` writes.

1. A *theme* is a template with its main words (what it is about) and the sentences beside it. There are at most
   10,000; a text is a theme with details of its own: people, numbers, dates, codes, hosts.
2. Words follow Zipf's law, roughly: some stand in every tenth or third text, most in a few. The pools of names
   grow with the square root of the corpus, and codes and numbers without end.
3. Ages go from two years to now, newer ones more often. One text in ten replaces an older one of its workspace,
   in chains of one to five links; one in twenty is joined to an older one otherwise.
4. One in ten has expired, 3% expire within a month, 3% are archived or deprecated.
"""

from __future__ import annotations

import random
import re
import string
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from ledger.domain.instants import DAY, UnixMs
from vault.domain.access import GLOBAL
from vault.domain.links import EVOLVED_INTO, INVALIDATED_BY

THEMES = 10_000
SPAN = 730 * DAY
SHORTEST, LONGEST = 12, 60  # words of a text
LONGEST_CHAIN = 5
GLOBAL_EVERY = 500
POOL = 2_000  # memories of a workspace that may still be replaced or linked to
TAGS = 200
PROVENANCE = ("candidate", "verified", "corroborated", "unknown", "defensively_recalled", "rejected")
PROVENANCE_WEIGHTS = (60, 12, 10, 12, 4, 2)
MONTHS = "January February March April May June July August September October November December".split()
WEEKDAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
_CONSONANTS, _VOWELS = "bdfgklmnprstvz", "aeiou"
_SYLLABLES = [first + second for first in _CONSONANTS for second in _VOWELS]

Parts = tuple[tuple[str, str | None], ...]  # (words, the slot behind them), as string.Formatter reads them


@dataclass(frozen=True, slots=True)
class Plan:
    """What corpus to make. The same plan makes the same texts; instants also hang on the instant of making."""

    memories: int
    workspaces: int = 1
    seed: int = 1

    @property
    def names(self) -> list[str]:
        """Its workspaces; a few memories more are global."""
        return ["bench"] if self.workspaces == 1 else [f"bench-{n}" for n in range(self.workspaces)]


@dataclass(frozen=True, slots=True)
class Tie:
    """A link between two rows of the corpus, by their numbers."""

    source: int
    target: int
    type: str
    created_at: UnixMs


@dataclass(frozen=True, slots=True)
class Row:
    """One memory: `sent` as a caller would send it, the theme of its text, and its link to an older row."""

    number: int
    theme: int
    sent: dict[str, Any]
    tie: Tie | None = None


@dataclass(frozen=True, slots=True)
class Theme:
    """What the texts of one theme have in common; `questions` ask for it in other words."""

    category: str
    parts: Parts
    tails: tuple[Parts, ...]
    questions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Phrases:
    templates: list[dict[str, Any]]
    tails: list[str]
    updates: list[Parts]
    words: dict[str, list[str]]


@cache
def _phrases() -> _Phrases:
    told = tomllib.loads((Path(__file__).parent / "phrases.toml").read_text())
    updates = [_parts(update) for update in told["updates"]]
    lists = ("topics", "systems", "aims", "traits", "firsts", "places", "tags")
    return _Phrases(told["templates"], told["tails"], updates, {name: told[name] for name in lists})


def _parts(text: str) -> Parts:
    return tuple((words, slot) for words, slot, _, _ in string.Formatter().parse(text))


def _frequent_first(chance: random.Random, count: int) -> int:
    """A rank from 0 below count, as likely as its reciprocal: Zipf's law."""
    return int((count + 1) ** chance.random()) - 1


def _one_of(chance: random.Random, values: Sequence[str]) -> str:
    return values[_frequent_first(chance, len(values))]


# ------------------------------------------------------------------------------------------------------ themes


def theme(plan: Plan, number: int) -> Theme:
    """A theme by its number, whatever was made before it."""
    chance = random.Random(f"{plan.seed} theme {number}")  # noqa: S311  a corpus is no secret
    phrases = _phrases()
    main = {
        "topic": _one_of(chance, phrases.words["topics"]),
        "system": _one_of(chance, phrases.words["systems"]),
        "aim": _one_of(chance, phrases.words["aims"]),
        "trait": _one_of(chance, phrases.words["traits"]),
    }
    template = chance.choice(phrases.templates)
    tails = chance.sample(phrases.tails, k=chance.choices((0, 1, 2, 3), (2, 4, 3, 1))[0])
    return Theme(
        category=template["category"],
        parts=_parts(_with(main, template["text"])),
        tails=tuple(_parts(_with(main, tail)) for tail in tails),
        questions=tuple(_with(main, ask) for ask in template["ask"]),
    )


def _with(main: dict[str, str], text: str) -> str:
    """A text with its main slots filled; those of the details stay. The article follows the word."""
    filled = re.sub(r"\{(\w+)\}", lambda slot: main.get(slot[1], slot[0]), text)
    return re.sub(r"\b([Aa]) (?=[aeiou])", r"\1n ", filled)


# ------------------------------------------------------------------------------------------------------ details


@dataclass(frozen=True, slots=True)
class _Details:
    """Draws the details of texts; the pools of names are as large as the corpus makes them."""

    chance: random.Random
    surnames: list[str]
    projects: list[str]
    hosts: list[str]

    def drawn(self, parts: Parts) -> str:
        return "".join([words if slot is None else words + self._one(slot) for words, slot in parts])

    def _one(self, slot: str) -> str:
        chance, words = self.chance, _phrases().words
        match slot:
            case "person" | "other":
                return f"{_one_of(chance, words['firsts'])} {_one_of(chance, self.surnames)}"
            case "project":
                return _one_of(chance, self.projects)
            case "host":
                return _one_of(chance, self.hosts)
            case "place":
                return _one_of(chance, words["places"])
            case "number":
                return str(2 + _frequent_first(chance, 5_000))
            case "code":
                return f"{_one_of(chance, self.projects)[:3].upper()}-{chance.randint(1, 99_999)}"
            case "money":
                return f"{10 * (1 + _frequent_first(chance, 20_000)):,} euros"
            case "percent":
                return f"{chance.randint(1, 99)} percent"
            case "version":
                return f"{chance.randint(1, 9)}.{chance.randint(0, 30)}.{_frequent_first(chance, 40)}"
            case "date":
                return f"{chance.randint(1, 28)} {chance.choice(MONTHS)}"
            case "month":
                return chance.choice(MONTHS)
            case "weekday":
                return chance.choice(WEEKDAYS)
            case "hour":
                return f"{chance.randint(6, 22)}:{chance.choice(('00', '15', '30', '45'))}"
        raise KeyError(slot)


def _details(plan: Plan, chance: random.Random) -> _Details:
    pool = 20 + int(15 * plan.memories**0.5)
    return _Details(
        chance,
        surnames=[_name(n, "surname").title() for n in range(pool)],
        projects=[_name(n, "project").title() for n in range(pool // 2)],
        hosts=[f"{_name(n, 'host')}-{n % 7 + 1}" for n in range(pool // 3)],
    )


def _name(number: int, kind: str) -> str:
    """The made-up name of a rank: the same in every corpus, and other for every kind."""
    chance = random.Random(f"{kind} {number}")  # noqa: S311
    return "".join(chance.choices(_SYLLABLES, k=chance.randint(2, 4))) + chance.choice("nrslt")


# ------------------------------------------------------------------------------------------------------ rows


@dataclass(slots=True)
class _Head:
    """A memory that nothing has replaced yet, and how many it follows."""

    number: int
    theme: int
    depth: int
    tags: list[str]


@dataclass(slots=True)
class _Space:
    """What may still be replaced or linked to in one workspace."""

    single: list[_Head] = field(default_factory=list)
    chained: list[_Head] = field(default_factory=list)

    def take(self, chance: random.Random) -> _Head | None:
        """A memory to replace; nearly half of the time one that has replaced another."""
        heads = self.chained if self.chained and chance.random() < 0.45 else self.single
        if not heads:
            return None
        place = chance.randrange(len(heads))
        heads[place], heads[-1] = heads[-1], heads[place]
        return heads.pop()

    def put(self, head: _Head, chance: random.Random) -> None:
        heads = self.chained if head.depth else self.single
        if head.depth >= LONGEST_CHAIN:
            return
        if len(heads) < POOL:
            heads.append(head)
        else:
            heads[chance.randrange(POOL)] = head


def rows(plan: Plan, *, at: UnixMs) -> Iterator[Row]:
    """Every memory of the corpus, oldest first, as of the instant `at`."""
    chance = random.Random(f"{plan.seed} rows")  # noqa: S311
    details = _details(plan, chance)
    tags = [*_phrases().words["tags"], *(_name(n, "tag") for n in range(TAGS))][:TAGS]
    spaces = {name: _Space() for name in (*plan.names, GLOBAL)}
    themes: dict[int, Theme] = {}
    fresh = 0
    for number in range(plan.memories):
        workspace = GLOBAL if number % GLOBAL_EVERY == 7 else plan.names[number % plan.workspaces]
        space = spaces[workspace]
        created_at = at - _age(plan, number, chance)
        old = space.take(chance) if chance.random() < 0.1 else None
        if old is not None:
            head = _Head(number, old.theme, old.depth + 1, old.tags)
        else:
            head = _Head(number, _next_theme(fresh, chance), 0, _some_tags(tags, chance))
            fresh += 1
        if head.theme not in themes:
            themes[head.theme] = theme(plan, head.theme)
        about = themes[head.theme]
        sent = {
            "text": _text(about, details, update=old is not None),
            "workspace": workspace,
            "created_at": created_at,
            "category": about.category,
            "tags": head.tags,
            "provenance_class": chance.choices(PROVENANCE, PROVENANCE_WEIGHTS)[0],
            "metadata": {"thread": head.theme},
            **_marks(chance, created_at=created_at, at=at),
        }
        yield Row(number, head.theme, sent, _tie(head, old, space, created_at, chance))
        space.put(head, chance)


def _age(plan: Plan, number: int, chance: random.Random) -> int:
    return int(SPAN * (1 - (number + chance.random()) / plan.memories) ** 1.8)


def _next_theme(fresh: int, chance: random.Random) -> int:
    """Each theme once, then any of them."""
    return fresh if fresh < THEMES else chance.randrange(THEMES)


def _some_tags(tags: list[str], chance: random.Random) -> list[str]:
    return sorted({_one_of(chance, tags) for _ in range(chance.choices((0, 1, 2, 3, 4), (1, 3, 4, 2, 1))[0])})


def _text(about: Theme, details: _Details, *, update: bool) -> str:
    chance = details.chance
    text = details.drawn(about.parts)
    if update:
        text = f"{details.drawn(chance.choice(_phrases().updates))} {text}"
    for tail in about.tails:
        longer = f"{text} {details.drawn(tail)}"
        if len(longer.split()) > LONGEST:
            break
        text = longer
    while len(text.split()) < SHORTEST:
        text += f" {details.chance.choice(('So said', 'Noted by', 'Asked by'))} {details.drawn(_WHO)}."
    return text


_WHO = _parts("{person} on {date}")


def _marks(chance: random.Random, *, created_at: UnixMs, at: UnixMs) -> dict[str, Any]:
    """What is over, soon over, archived or deprecated, with its instants."""
    luck = chance.random()
    if luck < 0.1:
        over = created_at + 1 + int(chance.random() * max(0, at - created_at - 1))
        if luck < 0.05:
            return {"expires_at": over}
        return {"t_invalid": over} if luck < 0.075 else {"t_valid": created_at, "t_invalid": over}
    if luck < 0.13:
        return {"expires_at": at + int((0.1 + 0.9 * chance.random()) * 30 * DAY)}
    if luck < 0.145:
        return {"archived": True}
    return {"status": "deprecated"} if luck < 0.16 else {}


def _tie(
    head: _Head, old: _Head | None, space: _Space, created_at: UnixMs, chance: random.Random
) -> Tie | None:
    if old is not None:
        relation = EVOLVED_INTO if chance.random() < 0.7 else INVALIDATED_BY
        return Tie(old.number, head.number, relation, created_at)
    if space.single and chance.random() < 0.055:  # a tenth replaces instead
        relation = "RELATES_TO" if chance.random() < 0.6 else "DERIVED_FROM"
        return Tie(head.number, chance.choice(space.single).number, relation, created_at)
    return None


# ------------------------------------------------------------------------------------------------------ questions

_WORD = re.compile(r"[A-Za-z]{4,}")


def in_other_words(plan: Plan, number: int, chance: random.Random) -> str:
    """A question about a theme, as somebody would ask it who does not know the text."""
    return chance.choice(theme(plan, number).questions)


def by_its_words(text: str, chance: random.Random) -> str:
    """Four to eight words of a text, in their order."""
    words = list(dict.fromkeys(word.lower() for word in _WORD.findall(text)))
    kept = sorted(chance.sample(range(len(words)), k=min(len(words), chance.randint(4, 8))))
    return " ".join(words[place] for place in kept)
