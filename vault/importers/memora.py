"""The Memora data set (Apache 2.0): what ten personas told their assistant, session by session.

1. A workspace is a persona; its sessions are taken in order of session id, for dates are day-granular.
   Everything a session says is dated midnight UTC of its day.
2. `add` stores a memory: what the details say, then the user's own words (the turns marked `share_memory`).
3. `update` stores the new memory and an EVOLVED_INTO link from the one it replaces, found by what the details
   name: a preference by list and (old) item, a to-do or an event by type and name, a document by its item.
   Its text is the details alone: the words of an update tell the old value beside the new ("I used to like X,
   now Y"), and whoever finds the memory must not read the old one as present. The words are kept in the
   ledger, as the reason of the change.
4. `delete` ends the memory it names: `t_invalid` is the day. From a document it takes parts (a stakeholder, a
   decision), so what is left of the document lives on in a new memory, linked like an update.
   What the deleted memory had replaced ends with it: a memory whose replacement no longer holds would be
   current again.
5. A calendar event expires when its day is over; where it has moved, it ends everywhere when its new day is.
6. A session that changes what was never told is refused, with what it names.
"""

from __future__ import annotations

import re
import tarfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import orjson

from ledger.domain.instants import DAY, NotAnInstant, UnixMs, format_instant, parse_instant
from ledger.domain.refusals import Invalid, Refused, Unprocessable
from vault.domain.links import EVOLVED_INTO
from vault.domain.values import MAX_REASON
from vault.importers import Format, Join, Remember, Revise, Row, Step, Unreadable

MAX_SESSION_BYTES = 4 * 1024 * 1024
MAX_ARCHIVE_BYTES = 1024 * 1024 * 1024  # of sessions, unpacked: an archive is held in memory
_SESSION_FILE = re.compile(r"(?P<folder>.*)/session_(?P<number>\d{1,9})\.json")
_DAYS_AHEAD = re.compile(r"\+(\d{1,5}) days")

Key: TypeAlias = tuple[str, ...]
Change: TypeAlias = Literal["add", "update", "delete"]


@dataclass(frozen=True, slots=True)
class Told:
    """What a session's details come to: which thing it is about, which it replaces, and how it is stored.

    `key` is None for what is never changed again (an expense, a count of steps). `partial` marks a delete
    that takes only a part away, so that something is left to say.
    """

    key: Key | None
    replaces: Key | None
    category: str
    tags: tuple[str, ...]
    text: str
    expires_at: UnixMs | None = None
    partial: bool = False


# ----------------------------------------------------------------------------------------- what details say

DOMAINS = {
    "actors": "movies",
    "directors": "movies",
    "already_watched_list": "movies",
    "authors": "books",
    "topics": "books",
    "already_read_list": "books",
    "artists": "music",
    "decades": "music",
    "already_listened_list": "music",
    "climates": "travel",
    "destination_types": "travel",
    "regions": "travel",
    "already_visited_list": "travel",
}
_SAID_OF = {  # `genres` are of movies and of music: only the conversation says which
    "movies": re.compile(r"\b(movies?|films?|cinema|watch\w*)\b", re.IGNORECASE),
    "music": re.compile(r"\b(music|songs?|listen\w*|albums?|tracks?|bands?)\b", re.IGNORECASE),
}


def _preference(details: Mapping[str, Any], words: list[str]) -> Told:
    item, group = _text(details, "item"), _text(details, "subcategory")
    attitude = _text(details, "preference")
    if attitude not in ("like", "dislike"):
        raise Invalid("preference must be like or dislike", field="operation_details.preference")
    domain = DOMAINS.get(group) or _domain_of(words)
    about = f"{domain}: {_spaced(group)}" if domain else _spaced(group)
    return Told(
        key=("preference", group, item),
        replaces=("preference", group, str(details.get("old_item") or item)),
        category="preference",
        tags=tuple(tag for tag in ("preference", attitude, group, domain) if tag),
        text=f"The user {attitude}s {item} ({about}).",
    )


def _domain_of(words: list[str]) -> str | None:
    named = [domain for domain, pattern in _SAID_OF.items() if any(pattern.search(said) for said in words)]
    return named[0] if len(named) == 1 else None


def _activity(details: Mapping[str, Any], day: UnixMs) -> Told:
    category, item = _text(details, "category"), _object(details, "item")
    match category:
        case "todo_list":
            kind, task = _text(item, "task_type"), _text(item, "description")
            key = ("todo_list", kind, task)
            return Told(key, key, category, (category, kind), f"Todo list, {_spaced(kind)}: {task}.")
        case "calendar_event":
            return _event(item, day)
        case "food_expenses":
            kind, amount = _text(item, "expense_type"), _number(item, "amount")
            text = f"Food expense on {_date(day)}: {amount} for {kind}."
            return Told(None, None, category, (category, kind), text)
        case "step_tracker":
            steps = _number(item, "step_count")
            return Told(None, None, category, (category,), f"Steps walked on {_date(day)}: {steps}.")
        case _:
            raise Invalid(f"unknown category {category[:60]!r}", field="operation_details.category")


def _event(item: Mapping[str, Any], day: UnixMs) -> Told:
    kind, name, when = _text(item, "event_type"), _text(item, "event_name"), _text(item, "date")
    ahead = _DAYS_AHEAD.fullmatch(when)
    if ahead is None:
        raise Invalid(f"{when[:40]!r} is not a date such as '+14 days'", field="operation_details.item.date")
    takes_place = day + int(ahead[1]) * DAY
    key = ("calendar_event", kind, name)
    return Told(
        key,
        key,
        "calendar_event",
        ("calendar_event", kind),
        f"Calendar event ({_spaced(kind)}): {name} on {_date(takes_place)}.",
        expires_at=takes_place + DAY,
    )


def _document(details: Mapping[str, Any]) -> Told:
    item, content = _text(details, "item"), _object(details, "content_data")
    kind = re.sub(r"_\d+$", "", item)
    parts = [f"{_spaced(kind).capitalize()} ({_spaced(item)})"]
    for name, value in content.items():
        if isinstance(value, list):
            parts.append(f"{_spaced(name).capitalize()}:")
            parts.extend(f"- {entry}" for entry in value)
        else:
            parts.append(f"{_spaced(name).capitalize()}: {value}")
    key = ("document", item)
    return Told(key, key, kind, (kind,), "\n".join(parts), partial=True)


def _goal(details: Mapping[str, Any]) -> Told:
    group, amount = _text(details, "subcategory"), _number(details, "item")
    key = ("goal", group)
    unit = "steps a day" if group == "daily_steps" else "a week at most"
    return Told(key, key, "goal", ("goal", group), f"Goal for {_spaced(group)}: {amount} {unit}.")


def _told(session: Mapping[str, Any], words: list[str], day: UnixMs) -> Told:
    details = _object(session, "operation_details")
    if "preference" in details:
        return _preference(details, words)
    if "content_data" in details:
        return _document(details)
    if "category" in details:
        return _activity(details, day)
    if session.get("session_type") == "goal":
        return _goal(details)
    raise Invalid(
        "these details are of no kind that is known: " + ", ".join(sorted(details))[:200],
        field="operation_details",
    )


def _spaced(name: str) -> str:
    return name.replace("_", " ")


def _date(at: UnixMs) -> str:
    return format_instant(at)[:10]


# ---------------------------------------------------------------------------------------------- sessions


Chain: TypeAlias = list[str]  # external ids of what was told of one thing, each replaced by the next


class Persona:
    """One persona's sessions so far: the chains of each thing that may still change."""

    def __init__(self) -> None:
        self.standing: dict[Key, list[Chain]] = {}

    def told(self, key: Key | None, chain: Chain) -> None:
        """A thing stands, at the end of its chain, until it is taken."""
        if key is not None:
            self.standing.setdefault(key, []).append(chain)

    def take(self, key: Key | None) -> Chain | None:
        """The chain that a change of this thing refers to: the newest; None where nothing stands."""
        chains = self.standing.get(key) if key is not None else None
        return chains.pop() if chains else None


def steps_of(
    session: Mapping[str, Any], number: int, persona: Persona, workspace: str | None
) -> tuple[Step, ...]:
    """What one session comes to; `persona` is taken a session further. Raises Refused."""
    if session.get("session_id") != number:
        raise Invalid(f"session_id is not the {number} of the file's name", field="session_id")
    change = session.get("operation")
    if change is None:
        return ()
    if change not in ("add", "update", "delete"):
        raise Invalid("operation must be add, update, delete or null", field="operation")
    name = _text(session, "persona")
    day = _day(session)
    words = _words(session)
    told = _told(session, words, day)
    external_id = f"memora:{name}:{number:04d}"
    new: dict[str, Any] = {
        "workspace": name if workspace is None else workspace,
        "external_id": external_id,
        "text": told.text,
        "category": told.category,
        "tags": list(told.tags),
        "created_at": day,
        "metadata": {"source": "memora", "session_id": number},
    }
    if told.expires_at is not None:
        new["expires_at"] = told.expires_at
    if change == "add":
        new["text"] = "\n".join([told.text, *(f"“{said}”" for said in words)])
        persona.told(told.key, [external_id])
        return (Remember(new),)
    return _change(change, new, told, persona, reason=" ".join(words)[:MAX_REASON])


def _change(
    change: Change, new: dict[str, Any], told: Told, persona: Persona, *, reason: str
) -> tuple[Step, ...]:
    workspace, day = new["workspace"], new["created_at"]
    chain = persona.take(told.replaces)
    if chain is None:
        named = " / ".join(told.replaces or (told.category,))
        raise Unprocessable(f"nothing that is still there matches: {named}", field="operation_details")

    def ended(external_ids: Chain, at: UnixMs) -> tuple[Step, ...]:
        return tuple(Revise(workspace, name, {"t_invalid": at}, reason) for name in external_ids)

    if change == "delete" and not told.partial:
        return ended(chain, day)
    persona.told(told.key, [*chain, new["external_id"]])
    replace = (
        Remember(new, reason),
        Join(workspace, chain[-1], new["external_id"], EVOLVED_INTO, created_at=day, reason=reason),
    )
    if change == "delete":
        return (*replace, *ended(chain[-1:], day))
    return replace if told.expires_at is None else (*replace, *ended(chain, told.expires_at))


def _words(session: Mapping[str, Any]) -> list[str]:
    """The user's own words: the turns that are marked as worth remembering."""
    turns = session.get("conversation")
    if not isinstance(turns, list) or not all(isinstance(turn, dict) for turn in turns):
        raise Invalid("conversation must be a list of turns", field="conversation")
    return [_text(turn, "message") for turn in turns if turn.get("share_memory") is True]


def _day(session: Mapping[str, Any]) -> UnixMs:
    try:
        return parse_instant(_text(session, "date"))
    except NotAnInstant as error:
        raise Invalid(str(error), field="date") from error


def _text(holder: Mapping[str, Any], name: str) -> str:
    value = holder.get(name)
    if not isinstance(value, str) or not value.strip():
        raise Invalid(f"{name} must be a string that is not blank", field=name)
    return value


def _number(holder: Mapping[str, Any], name: str) -> int | float:
    value = holder.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Invalid(f"{name} must be a number", field=name)
    return value


def _object(holder: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = holder.get(name)
    if not isinstance(value, dict):
        raise Invalid(f"{name} must be an object", field=name)
    return value


# ---------------------------------------------------------------------------------------------- reading


def rows(source: Path, *, workspace: str | None) -> Iterator[Row]:
    """One row a session; personas in order of their folder, sessions in order of their id."""
    personas: dict[str, Persona] = {}
    for row_number, (folder, number, raw) in enumerate(_sessions(source), start=1):
        persona = personas.setdefault(folder, Persona())
        place = f"{_persona_of(folder)}, session {number}"
        try:
            yield Row(row_number, place, steps_of(_read(raw), number, persona, workspace))
        except Refused as refusal:
            yield Row(row_number, place, refusal=refusal)


def _persona_of(folder: str) -> str:
    path = Path(folder)
    return path.parent.name if path.name == "conversations" else path.name


def _read(raw: bytes | Path) -> Mapping[str, Any]:
    size = raw.stat().st_size if isinstance(raw, Path) else len(raw)
    if size > MAX_SESSION_BYTES:
        raise Invalid(f"the session has more than {MAX_SESSION_BYTES:,} bytes", code="too_large")
    try:
        told = orjson.loads(raw.read_bytes() if isinstance(raw, Path) else raw)
    except orjson.JSONDecodeError as error:
        raise Invalid(f"not valid JSON: {error}") from error
    if not isinstance(told, dict):
        raise Invalid("a session is a JSON object")
    return told


def _sessions(source: Path) -> Iterator[tuple[str, int, bytes | Path]]:
    """(folder, session number, contents) in order; an archive has its files in any order, so it is read whole."""
    found = _in_folder(source) if source.is_dir() else _in_archive(source)
    if not found:
        raise Unreadable("no files named session_NNNN.json in it", field="FILE")
    for folder, number in sorted(found):
        yield folder, number, found[folder, number]


def _in_folder(source: Path) -> dict[tuple[str, int], bytes | Path]:
    found: dict[tuple[str, int], bytes | Path] = {}
    for path in source.resolve().rglob("session_*.json"):
        match = _SESSION_FILE.fullmatch(path.as_posix())
        if match:
            found[match["folder"], int(match["number"])] = path
    return found


def _in_archive(source: Path) -> dict[tuple[str, int], bytes | Path]:
    found: dict[tuple[str, int], bytes | Path] = {}
    size = 0
    try:
        with tarfile.open(source, "r|*") as archive:
            for member in archive:
                match = _SESSION_FILE.fullmatch(member.name)
                if match and member.isfile() and (file := archive.extractfile(member)) is not None:
                    raw = found[match["folder"], int(match["number"])] = file.read(MAX_SESSION_BYTES + 1)
                    size += len(raw)
                    if size > MAX_ARCHIVE_BYTES:
                        raise Unreadable(
                            f"its sessions have more than {MAX_ARCHIVE_BYTES:,} bytes", field="FILE"
                        )
    except (tarfile.TarError, zlib.error, EOFError, OSError) as error:
        raise Unreadable(f"not a readable folder or tar archive: {error}", field="FILE") from error
    return found


def count(source: Path) -> int:
    return sum(1 for _ in _sessions(source))


FORMAT = Format("memora", rows, count)
