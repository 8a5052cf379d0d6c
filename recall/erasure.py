"""Erasing a text everywhere it lives: ledger, vault, text index, vectors, records, outbox and upstream.

1. What is erased together is one text: a context event with the memories that were delivered from it, or a memory with
   the event that it was delivered from. A memory that only cites the event, in words of its own, stays.
2. `erase` is one transaction: the text is gone from every row, or nothing is. Whoever recalls it meanwhile is refused
   its record (records.py); whoever delivers it meanwhile is waited for, and then it is removed upstream.
3. `compact` rids the files of what was deleted. Killed before or in the middle of it, the next run does all of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from django.db.models import Q, Value
from django.db.models.functions import StrIndex

from ledger import queries
from ledger.domain.events import CORRECTIONS, DELIVERED
from ledger.domain.hashchain import canonical
from ledger.domain.instants import UnixMs
from ledger.domain.refusals import Forbidden, NotFound, Unprocessable
from ledger.erasure import Place, Subject, erasers, places, rewrite_storage, size_of_storage
from ledger.models import ContextEvent
from ledger.services import erase_event, writing
from recall.indexes.resident import files, upkeep
from recall.models import RecallRecord
from vault import fulltext
from vault.domain import values
from vault.domain.access import Reach
from vault.models import Embedding, Memory, MemoryTag, Workspace
from vault.queries import memory_for
from vault.services import Caller
from vault.services import erase as erase_memory

SHORTEST_QUOTE = 8  # characters: a shorter text stands in many others by chance


@dataclass(frozen=True, slots=True)
class Target:
    """What the named id stands for: events and memories that hold one text."""

    id: str
    workspace: str
    events: tuple[ContextEvent, ...]
    memories: tuple[Memory, ...]

    @property
    def subject(self) -> Subject:
        """Those that still hold it."""
        return Subject(
            tuple(event.id for event in self.events if not event.erased),
            tuple(memory.id for memory in self.memories if memory.erased_at is None),
        )


@dataclass(frozen=True, slots=True)
class Survey:
    """Where a text lives now: the places that an erasure blanks, and what it cannot or may not change."""

    id: str
    workspace: str
    erased_already: bool
    places: tuple[Place, ...]
    stays: tuple[Place, ...]


@dataclass(frozen=True, slots=True)
class Erased:
    """What was erased now; nothing where it had been erased before."""

    id: str
    event_ids: tuple[str, ...]
    memory_ids: tuple[str, ...]


def erase(id_: str, *, caller: Caller, at: UnixMs, reason: str, if_match: int | None = None) -> Erased:
    """Erase an event of context (evt_…) or a memory (mem_…) with everything that is the same text; raises Refused.

    Twice is as good as once. Files still hold deleted bytes until `compact`; index files are renewed by `serve`.
    """
    reason = values.required_reason(reason)
    with writing():
        target = target_of(id_, caller=caller)
        subject = target.subject
        for memory in target.memories:
            if memory.id == id_ or memory.erased_at is None:
                match = if_match if memory.id == id_ else None
                erase_memory(memory.id, caller=caller, at=at, reason=reason, if_match=match, optimize=False)
        for event in target.events:
            erase_event(event.id, actor=caller.actor, reason=reason, at=at)
        for eraser in erasers():
            eraser.blank(subject)
    gone = set(subject.memory_ids)
    for workspace_id in sorted({memory.workspace_id for memory in target.memories if memory.id in gone}):
        fulltext.optimize(workspace_id)
    return Erased(id_, subject.event_ids, subject.memory_ids)


# ------------------------------------------------------------------------------------------------- what is one text


def target_of(id_: str, *, caller: Caller) -> Target:
    """The events and memories that hold the text of an id; raises NotFound, Forbidden or Unprocessable."""
    if id_.startswith("evt_"):
        event = queries.event(id_, caller.reach.workspaces)
        _require_privileged(caller.reach, event.workspace)
        _require_context(event)
        return Target(id_, event.workspace, (event,), _copies_of(event, caller.reach))
    if not id_.startswith("mem_"):
        raise NotFound(
            f"nothing has the id {id_}", hint="ids of events begin with evt_, of memories with mem_"
        )
    memory = memory_for(caller.reach, id_)
    _require_privileged(caller.reach, memory.workspace.name)
    source = _delivered_from(memory)
    if source is None:
        return Target(id_, memory.workspace.name, (), (memory,))
    others = (copy for copy in _copies_of(source, caller.reach) if copy.id != memory.id)
    return Target(id_, memory.workspace.name, (source,), (memory, *others))


def _require_privileged(reach: Reach, workspace: str) -> None:
    reach.require_writable(workspace)
    if not reach.asserts_provenance:
        raise Forbidden("only an administrator may erase")


def _require_context(event: ContextEvent) -> None:
    if event.kind in DELIVERED:
        return
    if event.subject_id.startswith("mem_"):
        raise Unprocessable(
            f"event {event.id} records a change of memory {event.subject_id}",
            code="not_erasable",
            hint=f"erase {event.subject_id}",
        )
    raise Unprocessable(f"event {event.id} holds no text", code="not_erasable")


def _copies_of(event: ContextEvent, reach: Reach) -> tuple[Memory, ...]:
    """The memories that were delivered from an event, or cite it and hold its words."""
    citing = Memory.objects.select_related("workspace").filter(source_event_id=event.id).order_by("seq")
    return tuple(m for m in citing if reach.writes(m.workspace.name) and _is_copy(m, event))


def _is_copy(memory: Memory, event: ContextEvent) -> bool:
    return memory.external_id == event.id or (bool(event.text) and (event.text or "") in memory.text)


def _delivered_from(memory: Memory) -> ContextEvent | None:
    source = ContextEvent.objects.filter(
        id=memory.source_event_id, workspace=memory.workspace.name, kind__in=DELIVERED
    ).first()
    return source if source is not None and _is_copy(memory, source) else None


# ------------------------------------------------------------------------------------------------- where it lives


def survey(id_: str, *, caller: Caller) -> Survey:
    """List every place where the text lives, and write nothing; raises Refused.

    Only for a caller who sees everything: it looks for the same words in every workspace.
    """
    if not caller.reach.sees_all:
        raise Forbidden("only an administrator of every workspace may see where a text lives")
    target = target_of(id_, caller=caller)
    subject = target.subject
    found = [*places(subject), *_places_in_vault(target), *(p for e in erasers() for p in e.places(subject))]
    return Survey(
        id=id_,
        workspace=target.workspace,
        erased_already=not subject.event_ids and not subject.memory_ids,
        places=tuple(found),
        stays=tuple(place for place in _staying(target) if place.count),
    )


def _places_in_vault(target: Target) -> Iterator[Place]:
    living = [memory for memory in target.memories if memory.erased_at is None]
    seqs = [memory.seq for memory in living]
    workspaces = {memory.workspace_id: memory.workspace for memory in living}
    yield Place.of("vault: memories", (m.id for m in living), "blanked; the row stays, marked erased")
    yield Place("vault: tags", MemoryTag.objects.filter(memory__in=seqs).count(), "removed")
    yield Place.of("text index (FTS)", (m.id for m in living), "removed, the index optimised")
    vectors = Embedding.objects.filter(memory__in=seqs)
    yield Place("vectors", vectors.count(), "removed")
    folders = [folder for workspace in workspaces.values() for folder in files.folders(workspace)]
    yield Place.of("index files", (f"{f.parent.name}/{f.name}" for f in folders), "written anew")


def _staying(target: Target) -> Iterator[Place]:
    """What the hash chain covers, what is told about the text by others, and the same words elsewhere."""
    events, memories = [event.id for event in target.events], [memory.id for memory in target.memories]
    told = (event.id for event in target.events if event.reason or event.values_of_metadata)
    yield Place.of("reason and tags of the event", told, "covered by the hash chain")
    about = ContextEvent.objects.filter(kind__in=CORRECTIONS, subject_id__in=events).order_by("seq")
    yield Place.of("corrections of the event", _ids(about), "texts of their own: erase each by its id")
    citing = Memory.objects.filter(source_event_id__in=events, erased_at=None).exclude(id__in=memories)
    yield Place.of("memories that cite the event", _ids(citing), "texts of their own: erase each by its id")
    texts = {event.text or "" for event in target.events} | {memory.text for memory in target.memories}
    for text in sorted(text for text in texts if len(text) >= SHORTEST_QUOTE):
        yield from _quoting(text, target)


def _quoting(text: str, target: Target) -> Iterator[Place]:
    ids = {event.id for event in target.events} | {memory.id for memory in target.memories}
    escaped = canonical(text).decode()[1:-1]  # as it stands in JSON
    holding = Q(in_text__gt=0) | Q(in_reason__gt=0) | Q(in_before__gt=0) | Q(in_after__gt=0)
    events = ContextEvent.objects.alias(
        in_text=StrIndex("text", Value(text)),
        in_reason=StrIndex("reason", Value(text)),
        in_before=StrIndex("before", Value(escaped)),
        in_after=StrIndex("after", Value(escaped)),
    ).filter(holding)
    others = events.exclude(id__in=ids).exclude(subject_id__in=[id_ for id_ in ids if id_.startswith("mem_")])
    yield Place.of(
        "other events that quote it", _ids(others.order_by("seq")), "not erased: erase each by its id"
    )
    memories = Memory.objects.alias(place=StrIndex("text", Value(text))).filter(place__gt=0)
    quoting = memories.exclude(id__in=ids).order_by("seq")
    yield Place.of("other memories that quote it", _ids(quoting), "not erased: erase each by its id")
    asked = RecallRecord.objects.alias(place=StrIndex("query", Value(text))).filter(place__gt=0)
    yield Place.of("questions that quote it", _ids(asked.order_by("seq")), "records keep what was asked")


def _ids(rows: Iterable[ContextEvent | Memory | RecallRecord]) -> Iterator[str]:
    return (row.id for row in rows)


# ------------------------------------------------------------------------------------------------- the files


@dataclass(frozen=True, slots=True)
class Step:
    """One part of compacting, and what it cost."""

    name: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Compacted:
    """What compacting cost, and how many bytes the database took before and after."""

    steps: tuple[Step, ...]
    bytes_before: int
    bytes_after: int


def compact() -> Compacted:
    """Rid the files of everything that was erased, whenever that was: text indexes, index files, database, its log.

    Raises OSError, OperationalError or StillRead; then it has to be run again.
    """
    before = size_of_storage()
    steps = (
        _timed("text indexes optimised", _optimize_indexes),
        _timed("index files written anew", _renew_files),
        _timed("database rewritten, its log emptied", rewrite_storage),
    )
    return Compacted(steps, before, size_of_storage())


def _timed(name: str, work: Callable[[], object]) -> Step:
    began = time.monotonic()
    work()
    return Step(name, time.monotonic() - began)


def _optimize_indexes() -> None:
    erased = Memory.objects.filter(erased_at__isnull=False)
    for workspace_id in Workspace.objects.filter(pk__in=erased.values("workspace")).values_list(
        "pk", flat=True
    ):
        fulltext.optimize(workspace_id)


def _renew_files() -> None:
    for workspace in upkeep.holding_erased():
        upkeep.renew(workspace)
    left = upkeep.holding_erased()
    if left:
        raise OSError(f"old index files could not be removed in {files.home(left[0])}")
