"""The labels of the Memora data set: for each question, what must be remembered and what was forgotten.

They are read from the data set alone, without the importer's own idea of which session changed what. A thing is
found again in the sessions whose details say it. Dates are days, and a question is asked when all sessions of its day
are over.
"""

from __future__ import annotations

import json
import re
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ledger.domain.instants import DAY, UnixMs, parse_instant

Labels = Mapping[str, Any]


@dataclass
class Persona:
    """A workspace: its sessions by number, and its questions."""

    name: str
    sessions: dict[int, Labels] = field(default_factory=dict)
    questions: list[Labels] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Thing:
    """What a label names: `kind` is preference, todo, event or content; `group` and `attitude` narrow it."""

    kind: str
    value: str
    group: str = ""
    attitude: str = ""


def personas(source: Path) -> list[Persona]:
    """Every persona of a folder or a tar archive, by name."""
    found: dict[str, Persona] = {}
    for folder, told in _documents(source):
        persona = found.setdefault(told["persona"], Persona(told["persona"]))
        if folder == "conversations":
            persona.sessions[told["session_id"]] = told
        else:
            persona.questions += [*told["questions"]["remembering"], *told["questions"]["recommending"]]
    return sorted(found.values(), key=lambda persona: persona.name)


def _documents(source: Path) -> Iterator[tuple[str, Labels]]:
    """Each JSON file with the name of its folder."""
    if source.is_dir():
        for path in sorted(source.rglob("*.json")):
            yield path.parent.name, json.loads(path.read_bytes())
        return
    with tarfile.open(source) as archive:
        for member in archive:
            path = Path(member.name)
            file = archive.extractfile(member) if path.suffix == ".json" else None
            if file is not None:
                yield path.parent.name, json.load(file)


def asked_at(question: Labels) -> UnixMs:
    """The midnight that ends the question's day."""
    return parse_instant(question["question_date"]) + DAY


def present(question: Labels) -> Iterator[Thing]:
    """What the labels say must be remembered."""
    evidence = question["memory_evidence"]
    for task in evidence.get("remaining_tasks", ()):
        yield Thing("todo", task["value"])
    for event in evidence.get("calendar_events", ()):
        yield Thing("event", event["value"])
    groups = evidence.get("memory_items") or {"": evidence.get("subcategory_data") or {}}
    for group, attitudes in groups.items():
        for attitude, entries in attitudes.items():
            for entry in entries:
                yield Thing("preference", entry["item"], group, attitude.removesuffix("s"))
    for name, value in evidence.get("content_data", {}).items():
        for part in value if isinstance(value, list) else [value]:
            yield Thing("content", str(part), name)


def forgotten(persona: Persona, question: Labels) -> Iterator[tuple[Thing, int | None]]:
    """What the labels say was forgotten, and before which session it was told (None: any)."""
    for entry in question["forgetting_evidence"]["forgotten_items"]:
        session = entry["session_id"]
        if "value" in entry:
            kind = (
                "content" if "field" in entry else "todo" if "task" in question["question"] else "preference"
            )
            thing = Thing(kind, str(entry["value"]), entry.get("field", ""))
            yield _in_its_group(thing, persona.sessions[session]) if kind == "preference" else thing, session
            continue
        # a past event: the label names the session of the question, and the event in a sub-question alone
        for sub in question["evaluation"]["evaluation_questions"]:
            named = re.fullmatch(r".*the past event: (.+)\?", sub["evaluation_question"])
            if named and sub["evaluation_type"] == "forgetting_absence":
                yield Thing("event", named[1]), None


def _in_its_group(thing: Thing, session: Labels) -> Thing:
    """A preference with the list it stood in, which the labels leave out, as the forgetting session has it."""
    return replace(thing, group=session["operation_details"]["subcategory"])


def telling(persona: Persona, question: Labels, thing: Thing, *, before: int | None = None) -> set[int]:
    """The sessions that say this very thing, of those before that one."""
    named = re.search(r"(project_proposal|email_writeup|meeting_notes)_\d+$", question["question_id"])
    document = named[0] if named else None
    return {
        number
        for number, session in persona.sessions.items()
        if (before is None or number < before) and _says(session["operation_details"], thing, document)
    }


def _says(details: Labels, thing: Thing, document: str | None) -> bool:
    """Whether details say it (what it was updated to, for an update)."""
    match thing.kind:
        case "preference":
            in_group = thing.group in ("", details.get("subcategory"))
            so_liked = thing.attitude in ("", details.get("preference"))
            return "preference" in details and details["item"] == thing.value and in_group and so_liked
        case "todo":
            is_task = details.get("category") == "todo_list"
            return is_task and details.get("item", {}).get("description") == thing.value
        case "event":
            is_event = details.get("category") == "calendar_event"
            return is_event and details.get("item", {}).get("event_name") == thing.value
        case _:
            if details.get("item") != document or "content_data" not in details:
                return False
            value = details["content_data"].get(thing.group)
            return thing.value in [str(part) for part in (value if isinstance(value, list) else [value])]
