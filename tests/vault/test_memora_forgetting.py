"""The Memora data set, asked its own questions: nothing that was forgotten is served, what holds is there.

The labels are read from the data set and checked against its sessions here, without the importer's own idea
of which session changed what. Dates are days, and a question is asked when all sessions of its day are over: at
the midnight that ends `question_date`.

Of every forgotten value three things are checked, the last two among up to 200 hits of the default mode, and 200 by
words alone:

1. no memory of a session before it was forgotten, whose details say it, is current;
2. none of these is served;
3. no text that is served has its words, but in a memory that says it anew, at or after the session that forgot
   it (who dislikes a thing now liked it before), or that the same labels want remembered (a climate that is
   disliked has the name of a region that was liked). Three more name it as part of another fact: `NAMED_ELSEWHERE`.
"""

from __future__ import annotations

import json
import os
import re
import tarfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from ledger.domain.instants import DAY, UnixMs, parse_instant
from ledger.queries import verify
from recall.domain.request import MAX_LIMIT, RecallRequest
from recall.domain.state import Anchor, Successions, state_of
from recall.services import recall
from vault import vectors
from vault.importers import memora
from vault.importers.run import Import, finish, started
from vault.models import Memory
from vault.queries import chains_from
from vault.services import Caller

DATA = Path(
    os.environ.get("RECALL_TEST_DATA")
    or Path(__file__).resolve().parents[3] / "shared" / "data" / "memora-weekly.tar.gz"
)

pytestmark = [
    pytest.mark.data,
    pytest.mark.slow,
    pytest.mark.django_db,
    pytest.mark.skipif(not DATA.exists(), reason=f"the Memora data set is not there: {DATA.name}"),
]


@dataclass
class Persona:
    name: str
    sessions: dict[int, dict[str, Any]] = field(default_factory=dict)
    questions: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True)
class Evidence:
    """One thing that the labels name: `kind` is preference, todo, event or content; `group` narrows it."""

    kind: str
    value: str
    group: str = ""
    attitude: str = ""


def personas() -> Iterator[Persona]:
    found: dict[str, Persona] = {}
    with tarfile.open(DATA) as archive:
        for member in archive:
            path = Path(member.name)
            file = archive.extractfile(member) if path.suffix == ".json" else None
            if file is None:
                continue
            told = json.load(file)
            persona = found.setdefault(told["persona"], Persona(told["persona"]))
            if path.parent.name == "conversations":
                persona.sessions[told["session_id"]] = told
            else:
                for task in ("remembering", "recommending"):
                    persona.questions += told["questions"][task]
    yield from sorted(found.values(), key=lambda persona: persona.name)


# ---------------------------------------------------------------------------------------------- the labels


def present(question: dict[str, Any]) -> Iterator[Evidence]:
    """What the labels say must be remembered."""
    evidence = question["memory_evidence"]
    for task in evidence.get("remaining_tasks", ()):
        yield Evidence("todo", task["value"])
    for event in evidence.get("calendar_events", ()):
        yield Evidence("event", event["value"])
    groups = evidence.get("memory_items") or {"": evidence.get("subcategory_data") or {}}
    for group, attitudes in groups.items():
        for attitude, entries in attitudes.items():
            for entry in entries:
                yield Evidence("preference", entry["item"], group, attitude.removesuffix("s"))
    for name, value in evidence.get("content_data", {}).items():
        for part in value if isinstance(value, list) else [value]:
            yield Evidence("content", str(part), name)


def forgotten(question: dict[str, Any]) -> Iterator[tuple[Evidence, int]]:
    """What the labels say was forgotten, and in which session."""
    for entry in question["forgetting_evidence"]["forgotten_items"]:
        kind = "content" if "field" in entry else "todo" if "task" in question["question"] else "preference"
        if "value" in entry:
            yield Evidence(kind, str(entry["value"]), entry.get("field", "")), entry["session_id"]
            continue
        # a past event: the label names the session of the question, and the event in a sub-question alone
        for sub in question["evaluation"]["evaluation_questions"]:
            named = re.fullmatch(r".*the past event: (.+)\?", sub["evaluation_question"])
            if named and sub["evaluation_type"] == "forgetting_absence":
                yield Evidence("event", named[1]), entry["session_id"]


def holds(session: dict[str, Any], evidence: Evidence, document: str | None) -> bool:
    """Whether the details of a session say this very thing (what it was updated to, for an update)."""
    details = session["operation_details"]
    match evidence.kind:
        case "preference":
            in_group = evidence.group in ("", details.get("subcategory"))
            liked = evidence.attitude in ("", details.get("preference"))
            return "preference" in details and details["item"] == evidence.value and in_group and liked
        case "todo":
            return details.get("category") == "todo_list" and details["item"]["description"] == evidence.value
        case "event":
            is_event = details.get("category") == "calendar_event"
            return is_event and details["item"]["event_name"] == evidence.value
        case _:
            if details.get("item") != document or "content_data" not in details:
                return False
            value = details["content_data"].get(evidence.group)
            return evidence.value in [str(part) for part in (value if isinstance(value, list) else [value])]


def document_of(question: dict[str, Any]) -> str | None:
    """The document that a question is about, by the item that its sessions name."""
    named = re.search(r"(project_proposal|email_writeup|meeting_notes)_\d+$", question["question_id"])
    return named[0] if named else None


def words_of(text: str) -> str:
    """A text as the words in it, for looking one up inside another without regard to case and signs."""
    return " " + " ".join(re.findall(r"\w+", text.casefold())) + " "


# ---------------------------------------------------------------------------------------------- the store


@dataclass
class Store:
    """A persona's memories at the anchor: each with its session, and whether it is current."""

    by_session: dict[int, Memory]
    current: set[str]

    @classmethod
    def of(cls, name: str, anchor: Anchor) -> Store:
        memories = list(Memory.objects.filter(workspace__name=name).select_related("workspace"))
        chains = chains_from([memory.id for memory in memories], until=anchor.until)
        successions = Successions(chains.edges, anchor)
        current = {
            memory.id for memory in memories if state_of(memory.id, chains.facts, successions, anchor).current
        }
        return cls({memory.metadata["session_id"]: memory for memory in memories}, current)

    def holding(
        self, persona: Persona, evidence: Evidence, document: str | None, *, before: int
    ) -> list[Memory]:
        """Memories that say this, of sessions before that one."""
        return [
            memory
            for number, memory in sorted(self.by_session.items())
            if number < before and holds(persona.sessions[number], evidence, document)
        ]


LAST = 1_000_000

# (persona, forgotten value, session of the memory that has the word): the words of another fact, which holds.
NAMED_ELSEWHERE = {
    # no longer told by mail, still a stakeholder of a project
    ("business_executive", "VP of Engineering", 75),
    # no longer a liked author, still named with a book of his
    ("financial_analyst", "Malcolm Gladwell", 93),
    # no longer a liked genre; of the topics, the techno-thriller is liked
    ("sales_manager", "thriller", 130),
}
COLUMNS = (
    "sessions",
    "questions",
    "forgotten",
    "still current",
    "memory served",
    "words served",
    "evidence",
    "missing",
    "in top 10",
)


def test_what_was_forgotten_is_served_in_no_answer_and_what_holds_is_there(
    caller: Caller, now: UnixMs
) -> None:
    job = Import(DATA, memora.FORMAT, None, caller, lambda: now)
    run = finish(started(job), job)
    assert run.refused == []
    assert sum(vectors.embed_missing(vectors.installed())) == Memory.objects.count() > 800

    table: dict[str, Counter[str]] = {}
    complaints: list[str] = []
    excused: set[tuple[Any, ...]] = set()
    for persona in personas():
        counts = table[persona.name] = Counter(sessions=len(persona.sessions))
        for question in persona.questions:
            asked = Asked.of(persona, question, caller=caller, now=now)
            counts["questions"] += 1
            for column, complaint, excuse in (*asked.of_what_was_forgotten(), *asked.of_what_holds()):
                counts[column] += excuse is None
                complaints += (
                    [f"{persona.name}, {question['question_id']}: {complaint}"]
                    if complaint and not excuse
                    else []
                )
                excused |= {excuse} if excuse else set()
    report(table)

    assert len(table) == 10
    assert run.rows_done == sum(counts["sessions"] for counts in table.values())
    assert verify().ok
    assert complaints == []
    assert excused == NAMED_ELSEWHERE
    total = sum(table.values(), Counter())
    assert total["in top 10"] >= 0.98 * total["evidence"]  # measured: 495 of 497, and 473 by words alone


Finding: TypeAlias = tuple[str, str | None, tuple[Any, ...] | None]  # column, complaint, excuse


@dataclass(frozen=True)
class Asked:
    """A question, asked: the persona, its store at that instant, and what was served, best first in each mode."""

    persona: Persona
    question: dict[str, Any]
    store: Store
    served: list[dict[str, Any]]
    by_words: list[dict[str, Any]]

    @classmethod
    def of(cls, persona: Persona, question: dict[str, Any], *, caller: Caller, now: UnixMs) -> Asked:
        at = parse_instant(question["question_date"]) + DAY
        request = RecallRequest(
            query=question["question"], workspace=persona.name, limit=MAX_LIMIT, query_time_unix_ms=at
        )
        by_words = replace(request, mode="lexical", strategies=("lexical",))
        served = [
            [hit["memory"] for hit in recall(asked, caller=caller, surface="api", at=now)["results"]]
            for asked in (request, by_words)
        ]
        return cls(persona, question, Store.of(persona.name, Anchor(at, past=True)), *served)

    def of_what_was_forgotten(self) -> Iterator[Finding]:
        document = document_of(self.question)
        for evidence, session in forgotten(self.question):
            yield "forgotten", None, None
            before = LAST if evidence.kind == "event" else session  # of an event, the session of the question
            exact = self.in_its_group(evidence, session)
            held = self.store.holding(self.persona, exact, document, before=before)
            if not held:
                yield "forgotten", f"no memory ever held {exact}", None
            for memory in held:
                if memory.id in self.store.current:
                    yield "still current", f"{memory.external_id} is current, which held {exact}", None
            held_ids = {memory.id for memory in held}
            rightly = self.rightly_said(evidence, document, since=before)
            for memory in {memory["id"]: memory for memory in (*self.served, *self.by_words)}.values():
                number = memory["metadata"]["session_id"]
                if memory["id"] in held_ids:
                    yield "memory served", f"session {number} is served, which held {exact}", None
                elif words_of(evidence.value) in words_of(memory["text"]) and number not in rightly:
                    place = (self.persona.name, evidence.value, number)
                    excuse = place if place in NAMED_ELSEWHERE else None
                    yield "words served", f"session {number} is served with the words of {exact}", excuse

    def in_its_group(self, evidence: Evidence, session: int) -> Evidence:
        """The evidence with the list it stood in, which the labels leave out, as the forgetting session has it."""
        if evidence.kind != "preference":
            return evidence
        return replace(evidence, group=self.persona.sessions[session]["operation_details"]["subcategory"])

    def rightly_said(self, evidence: Evidence, document: str | None, *, since: int) -> set[int]:
        """The sessions that may say this: those that say it anew, and those the labels want remembered."""
        wanted = [other for other in present(self.question) if other.value == evidence.value]
        return {
            number
            for number, session in self.persona.sessions.items()
            if (number >= since and holds(session, evidence, document))
            or any(holds(session, other, document) for other in wanted)
        }

    def of_what_holds(self) -> Iterator[Finding]:
        document = document_of(self.question)
        for evidence in present(self.question):
            yield "evidence", None, None
            told = self.store.holding(self.persona, evidence, document, before=LAST)
            standing = {memory.id for memory in told} & self.store.current
            if not standing:
                yield "missing", f"{evidence} is not there, or not current", None
            elif standing & {memory["id"] for memory in self.served[:10]}:
                yield "in top 10", None, None


def report(table: dict[str, Counter[str]]) -> None:
    """Print the counts; the last line is the sum of all."""
    total = sum(table.values(), Counter())
    print(f"\n{'persona':24}", *COLUMNS, sep="  ")
    for name, counts in [*table.items(), ("all", total)]:
        print(f"{name:24}", *(str(counts[column]).rjust(len(column)) for column in COLUMNS), sep="  ")
