"""The demo's story, read from the files beside this module: what a team's agents remember and ask.

1. Days count from the moment of loading: `at = -12` is twelve days ago, `until = 9` the midnight (UTC) that
   begins the day nine days ahead. `{+9}` in a text becomes that day's date.
2. A thread gives its memories tags, category and author, where they name none of their own.
3. `replaces` and `invalidates` name the older memory whose place this one takes; `contradicts`, `derives` and
   `relates` name others. Each becomes a link, made when the younger of the two was. What else is linked
   stands under `links`.
4. `context.toml` holds what was recorded as context events, and the corrections of these.
5. `verified`, `corroborated`, `rejected`, `deprecated`, `retracted`, `archived` and `erased` hold the reason
   for which a person did that to the memory.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zlib import crc32

from ledger.domain.instants import DAY, MINUTE, UnixMs, utc
from vault.domain.links import CONTRADICTS, EVOLVED_INTO, INVALIDATED_BY

FOLDER = Path(__file__).parent
FILES = ("company.toml", "studio.toml", "ops.toml")
PREFIX = "demo/"  # of every external id, so that nothing of the story is ever mistaken for a user's own
ACTS = ("verified", "corroborated", "rejected", "deprecated", "retracted", "archived", "erased")
LINKS = {
    "replaces": EVOLVED_INTO,
    "invalidates": INVALIDATED_BY,
    "contradicts": CONTRADICTS,
    "derives": "DERIVED_FROM",
    "relates": "RELATES_TO",
}
_DAY_IN_TEXT = re.compile(r"\{([+-]\d+)\}")


@dataclass(frozen=True, slots=True)
class Note:
    """A memory to store, and who wrote it."""

    id: str
    at: UnixMs
    by: str
    sent: dict[str, Any]
    reason: str


@dataclass(frozen=True, slots=True)
class Tie:
    """A link to make between two notes of one workspace."""

    source: str
    target: str
    type: str
    at: UnixMs
    by: str
    reason: str


@dataclass(frozen=True, slots=True)
class Act:
    """What a person did to a note afterwards, and why. `at` only orders it among the rest."""

    note: str
    name: str
    at: UnixMs
    by: str
    reason: str


@dataclass(frozen=True, slots=True)
class Asked:
    """A question, the instant it is asked as of, and its arguments as POST /v1/recall takes them."""

    at: UnixMs
    by: str
    arguments: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Decided:
    """A context event, and the one whose place it takes; or, where `kind` is set, a correction of `target`."""

    id: str
    at: UnixMs
    by: str
    reason: str
    workspace: str = ""
    item_id: str | None = None
    text: str | None = None
    target: str = ""
    kind: str = ""
    successor: str = ""


@dataclass(frozen=True, slots=True)
class Story:
    """`steps` and `decided` in the order in which they happened; `agents` and `curators` name their workspaces.

    `searches` are asked at the moment of loading, with their arguments as POST /v1/context/search takes them.
    """

    agents: dict[str, str]
    curators: dict[str, list[str]]
    steps: list[Note | Tie | Act]
    questions: list[Asked]
    decided: list[Decided]
    searches: list[tuple[str, dict[str, Any]]]


def read(at: UnixMs) -> Story:
    """The story as it stands at `at`."""
    agents: dict[str, str] = {}
    curators: dict[str, list[str]] = {}
    steps: list[Note | Tie | Act] = []
    for name in FILES:
        told = _toml(name)
        agents |= dict.fromkeys(told["agents"], told["workspace"])
        curators.setdefault(told["curator"], []).append(told["workspace"])
        steps += _steps(told, at)
    context = _toml("context.toml")
    return Story(
        agents,
        curators,
        sorted(steps, key=_when),
        _questions(at),
        sorted(_decided(context, at), key=lambda one: one.at),
        [(row.pop("by"), row) for row in context["searches"]],
    )


def _toml(name: str) -> dict[str, Any]:
    return tomllib.loads((FOLDER / name).read_text("utf-8"))


def _when(step: Note | Tie | Act) -> tuple[UnixMs, int]:
    return step.at, (Note, Tie, Act).index(type(step))


def _steps(told: dict[str, Any], now: UnixMs) -> list[Note | Tie | Act]:
    notes: dict[str, Note] = {}
    acts: list[Act] = []
    ties: list[dict[str, Any]] = []
    for thread in told["thread"]:
        for row in thread["memories"]:
            note = _note(row, thread, workspace=told["workspace"], now=now)
            notes[note.id] = note
            ties += [tie | {"by": note.by, "reason": note.reason} for tie in _ties(row)]
            acts += [
                Act(note.id, name, min(note.at + DAY, now), told["curator"], row[name])
                for name in ACTS
                if name in row
            ]
        ties += thread.get("links", [])
    return [*notes.values(), *acts, *(_tie(tie, notes, now) for tie in ties)]


def _note(row: dict[str, Any], thread: dict[str, Any], *, workspace: str, now: UnixMs) -> Note:
    known = {
        "id",
        "at",
        "text",
        "by",
        "since",
        "until",
        "expires",
        "source",
        "reason",
        "provenance",
        *LINKS,
        *ACTS,
    }
    if unknown := row.keys() - known:
        raise ValueError(f"the story's {row.get('id')} holds {', '.join(sorted(unknown))}")
    hour = crc32(row["id"].encode()) % 300 * MINUTE  # else all of it would have happened at one time of day
    at = now + round(row["at"] * DAY) - hour
    sent: dict[str, Any] = {
        "text": dated(row["text"], now),
        "workspace": workspace,
        "tags": thread["tags"],
        "category": thread["category"],
        "provenance_class": row.get("provenance", "candidate"),
        "created_at": at,
        "external_id": PREFIX + row["id"],
        "metadata": {"source": row["source"]} if "source" in row else {},
    }
    for name, field in (("since", "t_valid"), ("until", "t_invalid"), ("expires", "expires_at")):
        if name in row:
            sent[field] = _midnight(row[name], now)
    return Note(row["id"], at, row.get("by", thread["by"]), sent, row.get("reason", ""))


def dated(text: str, now: UnixMs) -> str:
    """The text with `{+9}` written as a date: "9 December"."""
    return _DAY_IN_TEXT.sub(lambda match: utc(_midnight(int(match[1]), now)).strftime("%-d %B"), text)


def _midnight(day: int, now: UnixMs) -> UnixMs:
    return now - now % DAY + day * DAY


def _ties(row: dict[str, Any]) -> list[dict[str, Any]]:
    ties = []
    for name, type_ in LINKS.items():
        others = row.get(name, [])
        for other in [others] if isinstance(others, str) else others:
            ends = (other, row["id"]) if name in ("replaces", "invalidates") else (row["id"], other)
            ties.append({"source": ends[0], "target": ends[1], "type": type_})
    return ties


def _tie(tie: dict[str, Any], notes: dict[str, Note], now: UnixMs) -> Tie:
    source, target = notes[tie["source"]], notes.get(tie["target"])
    made = max(source.at, target.at if target else source.at)
    at = now + round(tie["at"] * DAY) if "at" in tie else made
    return Tie(source.id, tie["target"], tie["type"], max(at, made), tie["by"], tie.get("reason", ""))


def _decided(told: dict[str, Any], now: UnixMs) -> Iterator[Decided]:
    for row in told["events"]:
        at, text = now + round(row["at"] * DAY), dated(row["text"], now)
        target = row.get("supersedes", "")
        yield Decided(
            row["id"], at, row["by"], row["reason"], row["workspace"], row.get("item"), text, target=target
        )
    for row in told["corrections"]:
        at, successor = now + round(row["at"] * DAY), row.get("successor", "")
        yield Decided(
            "", at, row["by"], row["reason"], target=row["of"], kind=row["kind"], successor=successor
        )


def _questions(now: UnixMs) -> list[Asked]:
    rows = _toml("questions.toml")["questions"]
    asked = [
        Asked(
            now - round(days * DAY),
            row["by"],
            {name: value for name, value in row.items() if name not in ("by", "asked")},
        )
        for row in rows
        for days in row["asked"]
    ]
    return sorted(asked, key=lambda one: (one.at, one.by, one.arguments["query"]))
