"""Changing the vault. Each function is one transaction: row, text index and ledger event, or nothing."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db import transaction

from ledger.domain import events as kinds
from ledger.domain.actors import Actor
from ledger.domain.events import NewEvent
from ledger.domain.hashchain import canonical
from ledger.domain.ids import new_id
from ledger.domain.instants import UnixMs
from ledger.domain.refusals import Conflict, Forbidden, Invalid, Outdated, Refused, Unprocessable
from ledger.models import ContextEvent
from ledger.queries import effective_edges
from ledger.services import append_event, append_events, erase_payloads
from vault import fulltext, vectors
from vault.domain import values
from vault.domain.access import Reach
from vault.domain.facts import ASSERTED
from vault.domain.links import EVOLVED_INTO, REPLACING
from vault.models import Memory, MemoryLink, MemoryTag, Workspace
from vault.queries import link_for, memory_for
from vault.vectors import Vectors

MAX_BULK = 1_000


@dataclass(frozen=True, slots=True)
class Caller:
    """On whose behalf a service acts: who is recorded, and what they may reach."""

    actor: Actor
    reach: Reach


@dataclass(frozen=True, slots=True)
class Remembered:
    """One memory of a write: newly created, or found unchanged under its external id."""

    memory: Memory
    created: bool


# ---------------------------------------------------------------------------------------------- remembering


def remember(
    sent: Mapping[str, Any],
    *,
    caller: Caller,
    at: UnixMs,
    reason: str = "",
    embed: bool = True,
    elsewhere: bool = False,
) -> Remembered:
    """Store one memory, with its vector. `sent` holds only the fields that the caller named; raises Refused.

    Without `embed` the vector is left to a later batch: for callers that hold a transaction open. `elsewhere`: its
    source event may be one of another ledger, as an import's is.
    """
    embedded = _embedded(sent) if embed else None
    return _remember_one(sent, embedded, caller=caller, at=at, reason=reason, elsewhere=elsewhere)


def _embedded(sent: Mapping[str, Any]) -> Vectors | None:
    """The vectors of the text sent; one that will be refused is refused before a model reads it."""
    text = sent.get("text")
    return vectors.in_time(values.check_text(text)) if isinstance(text, str) else None


def _remember_one(
    sent: Mapping[str, Any],
    embedded: Vectors | None,
    *,
    caller: Caller,
    at: UnixMs,
    reason: str,
    elsewhere: bool = False,
) -> Remembered:
    with transaction.atomic():
        outcome = remember_many([(sent, reason)], caller=caller, at=at, elsewhere=elsewhere)[0]
        if isinstance(outcome, Refused):
            raise outcome
        if outcome.created and embedded is not None:
            _store_vectors(outcome.memory, embedded)
    return outcome


def _store_vectors(memory: Memory, embedded: Vectors) -> None:
    vectors.store([(memory.seq, embedded)], model=vectors.model_of(vectors.installed()))


def remember_many(
    rows: Sequence[tuple[Mapping[str, Any], str]], *, caller: Caller, at: UnixMs, elsewhere: bool = False
) -> list[Remembered | Refused]:
    """Store up to 1,000 memories, each with its event, in one transaction; a bad row never loses the others.

    `rows` are (fields sent, reason). The answer has one entry per row, in order. Vectors are left to later batches.
    `elsewhere`: source events may be of another ledger.
    """
    if len(rows) > MAX_BULK:
        raise Invalid(
            f"{len(rows):,} memories; at most {MAX_BULK:,} are taken at once",
            field="memories",
            code="too_large",
        )
    outcomes: list[Remembered | Refused] = []
    fresh: list[tuple[Memory, list[str], str]] = []
    with transaction.atomic():
        known: dict[tuple[str, str], Memory] = {}
        spaces: dict[str, Workspace] = {}
        sources = None if elsewhere else _homes_of(sent.get("source_event_id") for sent, _ in rows)
        for sent, reason in rows:
            try:
                fields = _checked_new(sent, caller=caller, at=at)
                if sources is not None:
                    _require_source(fields.get("source_event_id"), fields["workspace"], sources)
                reason = values.checked_reason(reason)
                stored = _stored_under(fields, known)
                if stored is not None:
                    _require_same(stored, fields, fresh)
                    outcomes.append(Remembered(stored, created=False))
                    continue
            except Refused as refusal:
                outcomes.append(refusal)
                continue
            memory = _new_memory(fields, spaces, at=at)
            fresh.append((memory, fields.get("tags", []), reason))
            if memory.external_id is not None:
                known[memory.workspace.name, memory.external_id] = memory
            outcomes.append(Remembered(memory, created=True))
        _insert(fresh, caller=caller, at=at)
    return outcomes


def _checked_new(sent: Mapping[str, Any], *, caller: Caller, at: UnixMs) -> dict[str, Any]:
    if "text" not in sent:
        raise Invalid("text is required", field="text", code="required")
    fields = values.checked(sent)
    _require_assertable(fields, caller)
    caller.reach.require_writable(fields.setdefault("workspace", caller.reach.home))
    if "created_at" in fields:
        values.check_created_at(fields["created_at"], at=at)
    values.check_window(fields.get("t_valid"), fields.get("t_invalid"))
    return fields


def _homes_of(event_ids: Iterable[Any]) -> dict[str, str]:
    """The workspace of each event that some memories say they come from: one query, and none where none do."""
    asked = {id_ for id_ in event_ids if isinstance(id_, str) and id_.isascii() and id_.isprintable()}
    if not asked:
        return {}
    return dict(ContextEvent.objects.filter(id__in=asked).values_list("id", "workspace"))


def _require_source(event_id: str | None, workspace: str, homes: Mapping[str, str]) -> None:
    """A memory comes from an event of its own workspace: that is what makes it verifiable."""
    if event_id is not None and homes.get(event_id) != workspace:
        raise Unprocessable(
            f"no event {event_id} in this workspace", field="source_event_id", code="unknown_event"
        )


def _require_assertable(fields: Mapping[str, Any], caller: Caller) -> None:
    claimed = fields.get("provenance_class")
    if claimed in ASSERTED and not caller.reach.asserts_provenance:
        raise Forbidden(
            f"only an administrator's key or a curator may call a memory {claimed}", field="provenance_class"
        )


def _stored_under(fields: Mapping[str, Any], known: Mapping[tuple[str, str], Memory]) -> Memory | None:
    external_id = fields.get("external_id")
    if external_id is None:
        return None
    return known.get((fields["workspace"], external_id)) or (
        Memory.objects.select_related("workspace")
        .prefetch_related("tags")
        .filter(workspace__name=fields["workspace"], external_id=external_id)
        .first()
    )


def _require_same(
    stored: Memory, fields: Mapping[str, Any], fresh: Sequence[tuple[Memory, list[str], str]]
) -> None:
    unsaved_tags = next((tags for memory, tags, _ in fresh if memory is stored), None)
    current = stored.values if unsaved_tags is None else {**_scalars(stored), "tags": unsaved_tags}
    for name, value in fields.items():
        if _differ(current[name], value):
            raise Conflict(
                f"external_id {stored.external_id} is taken by {stored.id}, whose {name} differs",
                field=name,
                code="external_id_conflict",
            )


def _differ(one: Any, other: Any) -> bool:
    """Compared as JSON: in Python, true equals 1."""
    return canonical(one) != canonical(other)


def _scalars(memory: Memory) -> dict[str, Any]:
    return {
        name: getattr(memory, name)
        for name in ("text", *values.DEFAULTS, "created_at")
        if name not in ("tags", "workspace")
    } | {"workspace": memory.workspace.name}


def workspace_named(name: str) -> Workspace:
    """The workspace, made with its text index at its first use. Call inside a transaction."""
    workspace, created = Workspace.objects.get_or_create(name=name)
    if created:
        fulltext.create(workspace.id)
    return workspace


def _new_memory(fields: Mapping[str, Any], spaces: dict[str, Workspace], *, at: UnixMs) -> Memory:
    name = fields["workspace"]
    if name not in spaces:
        spaces[name] = workspace_named(name)
    full = {**values.DEFAULTS, "created_at": at, **fields, "workspace": spaces[name]}
    del full["tags"]
    return Memory(id=new_id("mem", at), updated_at=at, text_sha256=sha256(full["text"]), **full)


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _insert(fresh: Sequence[tuple[Memory, list[str], str]], *, caller: Caller, at: UnixMs) -> None:
    if not fresh:
        return
    since = _superseded_since({m.source_event_id for m, _, _ in fresh if m.source_event_id is not None})
    for memory, _, _ in fresh:
        memory.replaced_since = since.get(memory.source_event_id or "")
    Memory.objects.bulk_create(memory for memory, _, _ in fresh)
    MemoryTag.objects.bulk_create(
        MemoryTag(memory=memory, tag=tag) for memory, tags, _ in fresh for tag in tags
    )
    by_workspace: dict[int, list[tuple[int, str]]] = {}
    for memory, _, _ in fresh:
        by_workspace.setdefault(memory.workspace_id, []).append((memory.seq, memory.text))
    for workspace_id, texts in by_workspace.items():
        fulltext.add(workspace_id, texts)
        vectors.note_changes(workspace_id, [seq for seq, _ in texts], fresh=True)
    append_events(
        [
            NewEvent(
                kind=kinds.MEMORY_CREATED,
                actor=caller.actor,
                workspace=memory.workspace.name,
                subject_id=memory.id,
                occurred_at=at,
                reason=reason,
                text=memory.text,
                after=_told({**_scalars(memory), "tags": tags}),
            )
            for memory, tags, reason in fresh
        ],
        at=at,
    )


def _told(full: Mapping[str, Any]) -> dict[str, Any]:
    """What an event of creation tells beside the text: every value that is not the default."""
    return {
        name: value
        for name, value in full.items()
        if name not in ("text", "workspace") and value != values.DEFAULTS.get(name)
    }


# ---------------------------------------------------------------------------------------------- revising


def revise(
    memory_id: str,
    sent: Mapping[str, Any],
    *,
    caller: Caller,
    at: UnixMs,
    reason: str = "",
    if_match: int | None = None,
    embed: bool = True,
    elsewhere: bool = False,
) -> Memory:
    """Change some fields of a memory; null clears. Any change of a value adds 1 to `version`.

    Without `embed` a new text's vector is left to a later batch: for callers that hold a transaction open.
    `elsewhere`: its source event may be one of another ledger.
    """
    if "workspace" in sent:
        raise Invalid(
            "workspace cannot be changed", field="workspace", hint="store a new memory there, and link"
        )
    if "text" in sent and sent["text"] is None:
        raise Invalid("text cannot be cleared", field="text", hint="archive the memory, or erase it")
    fields = values.checked(sent)
    reason = values.checked_reason(reason)
    embedded = _embedded(fields) if embed else None
    with transaction.atomic():
        memory = _for_writing(memory_id, caller, if_match)
        _require_not_erased(memory)
        if fields.get("provenance_class") != memory.provenance_class:
            _require_assertable(fields, caller)
        if "created_at" in fields:
            values.check_created_at(fields["created_at"], at=at)
        values.check_window(fields.get("t_valid", memory.t_valid), fields.get("t_invalid", memory.t_invalid))
        _require_free_external_id(memory, fields.get("external_id"))
        source = fields.get("source_event_id")
        if source != memory.source_event_id and not elsewhere:
            _require_source(source, memory.workspace.name, _homes_of([source]))
        _withdraw_trust(memory, fields, caller)
        kind = _kind_of(memory, fields)
        return _apply(memory, fields, kind=kind, caller=caller, at=at, reason=reason, embedded=embedded)


def _withdraw_trust(memory: Memory, fields: dict[str, Any], caller: Caller) -> None:
    """A new text is not the one that was vouched for: from a caller who may not vouch, it is a candidate again."""
    new_text = fields.get("text", memory.text) != memory.text
    if new_text and memory.provenance_class in ASSERTED and not caller.reach.asserts_provenance:
        fields.setdefault("provenance_class", "candidate")
        if fields["provenance_class"] in ASSERTED:
            _require_assertable(fields, caller)


def _for_writing(memory_id: str, caller: Caller, if_match: int | None) -> Memory:
    memory = memory_for(caller.reach, memory_id)
    if not caller.reach.writes(memory.workspace.name):
        raise Forbidden("this memory is read-only for you: it belongs to the global workspace")
    if if_match is not None and if_match != memory.version:
        raise Outdated(
            f"the memory is at version {memory.version}, If-Match says {if_match}",
            field="If-Match",
            hint="read it again, then repeat the change",
        )
    return memory


def _require_not_erased(memory: Memory) -> None:
    if memory.erased_at is not None:
        raise Conflict("this memory was erased and cannot be changed", code="erased")


def _require_free_external_id(memory: Memory, external_id: str | None) -> None:
    if external_id is None:
        return
    others = Memory.objects.filter(workspace=memory.workspace, external_id=external_id).exclude(
        seq=memory.seq
    )
    if others.exists():
        raise Conflict(
            f"external_id {external_id} is taken in this workspace",
            field="external_id",
            code="external_id_conflict",
        )


def _kind_of(memory: Memory, fields: Mapping[str, Any]) -> str:
    if set(fields) == {"archived"} and fields["archived"] != memory.archived:
        return kinds.MEMORY_ARCHIVED if fields["archived"] else kinds.MEMORY_RESTORED
    return kinds.MEMORY_REVISED


def _apply(
    memory: Memory,
    fields: Mapping[str, Any],
    *,
    kind: str,
    caller: Caller,
    at: UnixMs,
    reason: str,
    verified_at: UnixMs | None = None,
    embedded: Vectors | None = None,
) -> Memory:
    current = memory.values
    changed = {name: value for name, value in fields.items() if _differ(current[name], value)}
    if not changed and verified_at is None:
        return memory
    before, after = {name: current[name] for name in changed}, dict(changed)
    if verified_at is not None:
        before["verified_at"], after["verified_at"] = memory.verified_at, verified_at
        memory.verified_at = verified_at
    elif changed.get("provenance_class", "verified") != "verified" and memory.verified_at is not None:
        before["verified_at"], after["verified_at"] = memory.verified_at, None
        memory.verified_at = None
    if "text" in changed:
        fulltext.remove(memory.workspace_id, [(memory.seq, memory.text)])
        fulltext.add(memory.workspace_id, [(memory.seq, changed["text"])])
        memory.text_sha256 = sha256(changed["text"])
        vectors.drop(memory.seq)
        if embedded is not None:
            _store_vectors(memory, embedded)
    if "tags" in changed:
        memory.tags.exclude(tag__in=changed["tags"]).delete()
        have = set(current["tags"])
        MemoryTag.objects.bulk_create(
            MemoryTag(memory=memory, tag=tag) for tag in changed["tags"] if tag not in have
        )
    for name, value in changed.items():
        if name != "tags":
            setattr(memory, name, value)
    if "source_event_id" in changed:
        memory.replaced_since = _replaced_since(memory)
    memory.version += 1
    memory.updated_at = at
    memory.save()
    vectors.note_changes(memory.workspace_id, [memory.seq])
    append_event(
        NewEvent(
            kind=kind,
            actor=caller.actor,
            workspace=memory.workspace.name,
            subject_id=memory.id,
            occurred_at=at,
            reason=reason,
            before=before,
            after=after,
        ),
        at=at,
    )
    return memory_for(caller.reach, memory.id)


def archive(
    memory_id: str, *, caller: Caller, at: UnixMs, reason: str = "", if_match: int | None = None
) -> Memory:
    """Take a memory out of every answer but the history view; `revise(archived=False)` brings it back."""
    return revise(memory_id, {"archived": True}, caller=caller, at=at, reason=reason, if_match=if_match)


def verify(memory_id: str, *, caller: Caller, at: UnixMs, reason: str) -> Memory:
    """A curator (or an administrator's key) vouches for a memory: `verified`, `verified_at`, and an event."""
    if not caller.reach.asserts_provenance:
        raise Forbidden("only an administrator's key or a curator may verify a memory")
    reason = values.checked_reason(reason)
    with transaction.atomic():
        memory = _for_writing(memory_id, caller, None)
        _require_not_erased(memory)
        return _apply(
            memory,
            {"provenance_class": "verified"},
            kind=kinds.MEMORY_VERIFIED,
            caller=caller,
            at=at,
            reason=reason,
            verified_at=at,
        )


def erase(
    memory_id: str,
    *,
    caller: Caller,
    at: UnixMs,
    reason: str,
    if_match: int | None = None,
    optimize: bool = True,
) -> Memory:
    """Blank a text for good, in the row, its index and its events; a tombstone keeps hash, who and why.

    The row stays, archived and marked erased, so that what it replaced is not silently revived. Without `optimize`
    the caller sees to the text index after the transaction, which holds up every other writer.
    """
    reason = values.required_reason(reason)
    with transaction.atomic():
        memory = _for_writing(memory_id, caller, if_match)
        if memory.erased_at is not None:
            return memory
        erase_payloads(memory.id, actor=caller.actor, reason=reason, at=at)
        fulltext.remove(memory.workspace_id, [(memory.seq, memory.text)])
        memory.tags.all().delete()
        memory.text, memory.text_sha256, memory.metadata, memory.category = "", sha256(""), {}, ""
        memory.archived, memory.erased_at, memory.updated_at = True, at, at
        memory.version += 1
        memory.save()
        vectors.drop(memory.seq)
        vectors.note_changes(memory.workspace_id, [memory.seq])
        append_event(
            NewEvent(
                kind=kinds.MEMORY_ERASED,
                actor=caller.actor,
                workspace=memory.workspace.name,
                subject_id=memory.id,
                occurred_at=at,
                reason=reason,
            ),
            at=at,
        )
        if optimize:
            fulltext.optimize(memory.workspace_id)
    return memory_for(caller.reach, memory.id)


# ---------------------------------------------------------------------------------------------- linking


def link(
    source_id: str,
    target_id: str,
    type_: str,
    *,
    caller: Caller,
    at: UnixMs,
    strength: float | None = None,
    created_at: UnixMs | None = None,
    reason: str = "",
) -> MemoryLink:
    """Join two memories of one workspace by a typed link. A cycle is stored and reported."""
    values.check_link_type(type_)
    reason = values.checked_reason(reason)
    if created_at is not None:
        values.check_created_at(created_at, at=at)
    if source_id == target_id:
        raise Invalid("a memory cannot link to itself", field="to", code="self_link")
    with transaction.atomic():
        source = _end(source_id, "from", caller)
        target = _end(target_id, "to", caller)
        if source.workspace_id != target.workspace_id:
            raise Unprocessable(
                "the two memories belong to different workspaces", field="to", code="foreign_workspace"
            )
        if MemoryLink.objects.filter(source=source, target=target, type=type_).exists():
            raise Conflict(
                f"{source.id} has a {type_} link to {target.id} already", field="type", code="duplicate_link"
            )
        made = MemoryLink.objects.create(
            id=new_id("lnk", at),
            source=source,
            target=target,
            type=type_,
            strength=strength,
            created_at=at if created_at is None else created_at,
        )
        _note_links(source, target)
        append_event(_link_event(kinds.LINK_CREATED, made, caller, at, reason), at=at)
    return made


def _end(memory_id: str, field: str, caller: Caller) -> Memory:
    found = Memory.objects.select_related("workspace").readable_by(caller.reach).filter(id=memory_id).first()
    if found is None:
        raise Unprocessable(f"no memory {memory_id}", field=field, code="unknown_memory")
    if not caller.reach.writes(found.workspace.name):
        raise Forbidden("the global workspace is read-only for you", field=field)
    return found


def _note_links(source: Memory, target: Memory) -> None:
    """Keep `replaced_since` of the memory that a link leaves; both ends changed."""
    Memory.objects.filter(seq=source.seq).update(replaced_since=_replaced_since(source))
    vectors.note_changes(source.workspace_id, [source.seq, target.seq])


def _replaced_since(memory: Memory) -> UnixMs | None:
    """The earliest instant at which something may have replaced a memory: a link out of it, or the supersession of its
    event. Whether something did is for current state to say."""
    links = memory.links_out.filter(type__in=REPLACING).values_list("created_at", flat=True)
    source = memory.source_event_id
    ledger = [] if source is None else _superseded_since([source]).values()
    return min([*links, *ledger], default=None)


def _superseded_since(event_ids: Collection[str]) -> dict[str, UnixMs]:
    """Since when each of these events is superseded; without those that are not, and without a query for none."""
    return {edge.old: edge.created_at for edge in effective_edges(event_ids) if edge.old in event_ids}


def note_supersession(event_ids: Sequence[str], *, at: UnixMs) -> None:  # noqa: ARG001  a hook's signature
    """The standing of these events changed in the ledger: keep `replaced_since` of the memories that came from them.

    Called by the ledger in its transaction (settings.LEDGER_SUPERSESSION_HOOKS).
    """
    for memory in Memory.objects.filter(source_event_id__in=event_ids):
        Memory.objects.filter(seq=memory.seq).update(replaced_since=_replaced_since(memory))
        vectors.note_changes(memory.workspace_id, [memory.seq])


def _link_event(kind: str, made: MemoryLink, caller: Caller, at: UnixMs, reason: str) -> NewEvent:
    told = {
        "id": made.id,
        "from": made.source.id,
        "to": made.target.id,
        "type": made.type,
        "strength": made.strength,
        "created_at": made.created_at,
    }
    return NewEvent(
        kind=kind,
        actor=caller.actor,
        workspace=made.source.workspace.name,
        subject_id=made.source.id,
        object_id=made.target.id,
        occurred_at=at if kind == kinds.LINK_REMOVED else made.created_at,
        reason=reason,
        before=told if kind == kinds.LINK_REMOVED else None,
        after=told if kind == kinds.LINK_CREATED else None,
    )


def unlink(link_id: str, *, caller: Caller, at: UnixMs, reason: str = "") -> None:
    """Take a link back. Its events remain."""
    reason = values.checked_reason(reason)
    with transaction.atomic():
        made = link_for(caller.reach, link_id)
        if not caller.reach.writes(made.source.workspace.name):
            raise Forbidden("the global workspace is read-only for you")
        append_event(_link_event(kinds.LINK_REMOVED, made, caller, at, reason), at=at)
        made.delete()
        _note_links(made.source, made.target)


def supersede(
    memory_id: str,
    *,
    caller: Caller,
    at: UnixMs,
    sent: Mapping[str, Any] | None = None,
    by: str | None = None,
    relation: str = EVOLVED_INTO,
    reason: str = "",
    if_match: int | None = None,
) -> tuple[Memory, MemoryLink]:
    """Put a new memory (`sent`) or a stored one (`by`) in an old one's place: row, link, events at once.

    A new memory takes workspace, tags and category from the old one where it names none of its own, so that
    whoever found the old one finds the new one.
    """
    if relation not in REPLACING:
        raise Invalid(f"relation must be one of {', '.join(REPLACING)}", field="relation")
    if (sent is None) == (by is None):
        raise Invalid("name either text, for a new memory, or by, for a stored one", field="by")
    embedded = None if sent is None else _embedded(sent)
    with transaction.atomic():
        old = _for_writing(memory_id, caller, if_match)
        if sent is not None:
            inherited = {"workspace": old.workspace.name, "tags": old.tag_names, "category": old.category}
            if sent.get("workspace", old.workspace.name) != old.workspace.name:
                caller.reach.require_writable(sent["workspace"])
                raise Unprocessable(
                    "a successor belongs to the workspace of the old memory", field="workspace"
                )
            full = {**inherited, **sent}
            by = _remember_one(full, embedded, caller=caller, at=at, reason=reason).memory.id
        assert by is not None
        if by == old.id:
            raise Invalid("a memory cannot supersede itself", field="by", code="self_link")
        try:
            made = link(old.id, by, relation, caller=caller, at=at, reason=reason)
        except (Unprocessable, Forbidden) as refusal:
            refusal.field = "by"
            raise
    return memory_for(caller.reach, by), made


def history_of(memory: Memory) -> list[ContextEvent]:
    """The ledger events of a memory, and of links from and to it, oldest first."""
    return list(ContextEvent.objects.touching(memory.id))
