"""Writing the ledger.

`append_events` is for callers that open the transaction: the event and what it is about are written together. The
others are one transaction each: the event, what it does to supersessions, and its outbox entry, or nothing.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Literal, TypeAlias

from django.conf import settings
from django.db import OperationalError, connection, transaction
from django.utils.module_loading import import_string

from ledger import queries, wording
from ledger.domain import chain, context, events, hashchain, outbox
from ledger.domain.actors import Actor
from ledger.domain.context import NewContext
from ledger.domain.events import NewEvent
from ledger.domain.ids import new_id
from ledger.domain.instants import UnixMs
from ledger.domain.refusals import Conflict, Forbidden, Invalid, NotFound, Refused, Unavailable, Unprocessable
from ledger.models import ContextEvent, Operation, OutboxEntry, OutboxPause, Supersession, Tombstone
from ledger.queries import Chain, head

_CHAIN_LOCK = 0x5EC0_4D1E  # any constant: it names this chain among PostgreSQL's advisory locks


def append_events(events: Sequence[NewEvent], *, at: UnixMs) -> list[ContextEvent]:
    """Append events in order, each chained to the one before it.

    Must run inside a transaction that holds the write lock: `BEGIN IMMEDIATE` on SQLite (settings.DATABASES),
    an advisory lock taken here on PostgreSQL. So `seq` has no gaps and no two writers see the same head.
    """
    assert connection.in_atomic_block, "append_events writes beside what happened, in one transaction"
    _lock_chain()
    _require_fitting_key(settings.LEDGER_KEY)
    seq, prev_hash = head()
    rows = []
    for event in events:
        seq += 1
        row = _row(event, seq=seq, prev_hash=prev_hash, at=at)
        prev_hash = row.hash
        rows.append(row)
    ContextEvent.objects.bulk_create(rows, batch_size=500)
    return rows


@lru_cache(maxsize=1)  # once in a process: this is asked before every write
def _require_fitting_key(key: bytes | None) -> None:
    """Refuse to go on with a ledger under another key than its newest event has: nobody could verify it then."""
    newest = queries.newest_link()
    made = None if newest is None else hashchain.made_with(newest, key)
    if newest is None or made is not None:
        return
    raise Unavailable(
        f"the ledger's newest event ({newest.id}) was not written with the key that is set here, or was changed",
        code="ledger_key_mismatch",
        hint="set RECALL_LEDGER_KEY as it was, then run manage.py verify_ledger",
    )


def _lock_chain() -> None:
    """Be the only writer until the transaction ends; on SQLite, BEGIN IMMEDIATE has seen to that."""
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", [_CHAIN_LOCK])


def append_event(event: NewEvent, *, at: UnixMs) -> ContextEvent:
    """Append one event; see append_events."""
    return append_events([event], at=at)[0]


def _row(event: NewEvent, *, seq: int, prev_hash: str, at: UnixMs) -> ContextEvent:
    row = ContextEvent(
        seq=seq,
        id=new_id("evt", at),
        kind=event.kind,
        workspace=event.workspace,
        actor_kind=event.actor.kind,
        actor_id=event.actor.id,
        actor_label=event.actor.label,
        subject_id=event.subject_id,
        object_id=event.object_id,
        item_id=event.item_id,
        occurrence=event.occurrence,
        reason=event.reason,
        metadata=_json(event.metadata),
        occurred_at=event.occurred_at,
        recorded_at=at,
        text=event.text,
        before=None if event.before is None else _json(event.before),
        after=None if event.after is None else _json(event.after),
        salt=secrets.token_hex(16),
        prev_hash=prev_hash,
    )
    row.payload_hash = hashchain.payload_hash(
        salt=row.salt or "", text=row.text, before=row.before, after=row.after
    )
    row.hash = hashchain.event_hash(
        seq=seq,
        metadata=row.chained_metadata,
        payload_hash=row.payload_hash,
        prev_hash=prev_hash,
        key=settings.LEDGER_KEY,
    )
    return row


def _json(value: Mapping[str, Any]) -> str:
    return hashchain.canonical(value).decode()


def erase_payloads(subject_id: str, *, actor: Actor, reason: str, at: UnixMs) -> list[str]:
    """Blank text, before, after and salt of every event about a memory, leaving a tombstone for each.

    The chain still verifies: it covers the payload's hash, which stays. Returns the ids of the events.
    """
    with transaction.atomic():
        events = [e for e in ContextEvent.objects.about(subject_id) if not e.erased]
        _bury(events, actor=actor, reason=reason, at=at)
    return [event.id for event in events]


def erase_event(event_id: str, *, actor: Actor, reason: str, at: UnixMs) -> bool:
    """Blank one event of context, take back what of it still waits in the outbox, and have it removed upstream.

    False where that was done before. The erasure is an event too: a tombstone alone stands outside the chain.
    """
    with writing():
        event = ContextEvent.objects.get(id=event_id)
        if event.erased:
            return False
        _bury([event], actor=actor, reason=reason, at=at)
        entries = OutboxEntry.objects.filter(event__id=event.id)
        entries.update(payload="{}", error="")
        entries.filter(kind="context", state=outbox.PENDING).update(
            state=outbox.FAILED,
            error_code=outbox.ERASED,
            error="the text was erased before it was delivered",
        )
        append_event(
            NewEvent(
                kind=events.CONTEXT_ERASED,
                actor=actor,
                workspace=event.workspace,
                subject_id=event.id,
                item_id=event.item_id,
                occurrence=event.occurrence,
                reason=reason,
                occurred_at=at,
                metadata={"payload_hash": event.payload_hash},
            ),
            at=at,
        )
        enqueue("erasure", event=event, at=at)
    return True


def _bury(erased: Sequence[ContextEvent], *, actor: Actor, reason: str, at: UnixMs) -> None:
    Tombstone.objects.bulk_create(
        Tombstone(
            event=event,
            payload_hash=event.payload_hash,
            actor_kind=actor.kind,
            actor_id=actor.id,
            actor_label=actor.label,
            reason=reason,
            erased_at=at,
        )
        for event in erased
    )
    with connection.cursor() as cursor:  # not through the ORM, which refuses every UPDATE of an event
        cursor.executemany(
            'UPDATE ledger_contextevent SET text = NULL, "before" = NULL, "after" = NULL, salt = NULL '
            "WHERE seq = %s",
            [(event.seq,) for event in erased],
        )


# ---------------------------------------------------------------------------------------------- context


@dataclass(frozen=True, slots=True)
class Added:
    """The answer to a post: the same for every repetition of it. `created` tells the first from the others."""

    operation_id: str
    event_id: str
    created: bool


def add_context(new: NewContext, *, key: str, actor: Actor, at: UnixMs) -> Added:
    """Record a context event with its supersession, operation and outbox entry; raises Refused.

    The same key with the same payload gives the first answer; with another payload it is a conflict.
    """
    key = context.check_key(key)
    new = context.checked(new)
    asked = {"does": "add_context", **{name: getattr(new, name) for name in NewContext.__slots__}}
    with writing():
        done = _done_before(key, asked, actor=actor)
        if done is not None:
            return Added(done.id, done.event_id, created=False)
        context.check_occurred_at(new.occurred_at, at=at)
        if new.supersedes is not None:
            _require_supersedable(new)
        event = append_event(
            NewEvent(
                kind=events.CONTEXT_ADDED,
                actor=actor,
                workspace=new.workspace,
                subject_id="",
                object_id=new.supersedes or "",
                item_id=new.item_id,
                occurrence=new.occurrence,
                reason=new.reason,
                occurred_at=at if new.occurred_at is None else new.occurred_at,
                text=new.text,
                metadata=context.metadata_of(new.tags),
            ),
            at=at,
        )
        operation = _remember_operation(key, asked, event=event, actor=actor, at=at)
        if new.supersedes is not None:
            _establish(new.supersedes, event.id, event=event, at=at)
        enqueue("context", event=event, operation=operation, at=at)
    return Added(operation.id, event.id, created=True)


def enqueue(
    kind: str,
    *,
    at: UnixMs,
    event: ContextEvent | None = None,
    workspace: str = "",
    payload: Mapping[str, Any] | None = None,
    operation: Operation | None = None,
) -> OutboxEntry:
    """Put one thing into the outbox. Call inside the transaction of what it is about."""
    return OutboxEntry.objects.create(
        kind=kind,
        event=event,
        workspace=workspace if event is None else event.workspace,
        payload=_json(payload or {}),
        state=outbox.PENDING,
        next_attempt_at=at,
        created_at=at,
        operation=operation,
    )


@contextmanager
def writing() -> Iterator[None]:
    """One transaction of the only writer; a database that cannot write becomes a refusal that says so."""
    try:
        with transaction.atomic():
            _lock_chain()
            yield
    except OperationalError as error:
        refusal = storage_refusal(error)
        if refusal is None:
            raise
        raise refusal from error


def storage_refusal(error: OperationalError) -> Unavailable | None:
    """What to tell about a database that cannot write, full or held by another; None for any other fault."""
    said = str(error).lower()
    if "full" in said or "no space left" in said:
        return Unavailable(
            "the disk of the database is full; nothing was written",
            code="storage_full",
            hint="free some space, then repeat the request, with the same key where it had one",
        )
    if "locked" in said:
        return Unavailable(
            "another writer holds the database; nothing was written",
            code="database_locked",
            hint="repeat the request, with the same key where it had one",
        )
    return None


def _scope(actor: Actor) -> str:
    return f"{actor.kind}:{actor.id}"


def _payload_hash(asked: Mapping[str, Any], *, salt: str) -> str:
    return hashlib.sha256(bytes.fromhex(salt) + hashchain.canonical(asked)).hexdigest()


def _done_before(key: str, asked: Mapping[str, Any], *, actor: Actor) -> Operation | None:
    done = Operation.objects.select_related("event").filter(scope=_scope(actor), key=key).first()
    if done is None:
        return None
    if done.event.salt is None:
        raise Conflict(
            f"this key was used for event {done.event_id}, whose text was erased since",
            field="Idempotency-Key",
            code="idempotency_conflict",
        )
    if _payload_hash(asked, salt=done.event.salt) != done.payload_hash:
        raise Conflict(
            f"this key was used for event {done.event_id} with another payload",
            field="Idempotency-Key",
            code="idempotency_conflict",
            hint="a new request needs a new key",
        )
    return done


def _remember_operation(
    key: str, asked: Mapping[str, Any], *, event: ContextEvent, actor: Actor, at: UnixMs
) -> Operation:
    return Operation.objects.create(
        id=new_id("op", at),
        scope=_scope(actor),
        key=key,
        payload_hash=_payload_hash(asked, salt=event.salt or ""),
        event=event,
        created_at=at,
    )


def _require_supersedable(new: NewContext) -> None:
    place = "supersedes_context_id"
    old = ContextEvent.objects.filter(
        id=new.supersedes, workspace=new.workspace, kind__in=events.DELIVERED
    ).first()
    if old is None:
        raise Unprocessable(
            f"no context event {new.supersedes} in this workspace", field=place, code="unknown_event"
        )
    if old.item_id != new.item_id:
        raise Unprocessable(_OTHER_ITEM.format(old.id), field=place, code="other_item")
    taken = _second_successor(old.id, field=place)
    if taken is not None:
        raise taken


_OTHER_ITEM = "event {} is about another item: one takes the other's place only where both are about the same"


def _second_successor(old: str, *, field: str | None) -> Conflict | None:
    """The refusal where an event has an effective successor; it names the head of the chain."""
    found = queries.heads_of([old])[old]
    if not found.superseded:
        return None
    return Conflict(
        f"event {old} was superseded already; the current head of its chain is {found.id}",
        field=field,
        code="already_superseded",
        hint=f"supersede {found.id} instead",
    )


def _establish(old: str, new: str, *, event: ContextEvent, at: UnixMs) -> None:
    Supersession.objects.create(old_id=old, new_id=new, event=event, created_at=at)
    _tell_hooks((old, new), at=at)


def _tell_hooks(event_ids: Sequence[str], *, at: UnixMs) -> None:
    for path in settings.LEDGER_SUPERSESSION_HOOKS:
        import_string(path)(event_ids, at=at)


# ---------------------------------------------------------------------------------------------- corrections

CorrectionKind: TypeAlias = Literal["supersede", "retract", "link", "annotate", "restore"]
Readable: TypeAlias = Callable[[str], bool]  # whether the caller reads this workspace

CORRECTION_KINDS: dict[str, str] = {
    "supersede": events.CORRECTION_SUPERSEDE,
    "retract": events.CORRECTION_RETRACT,
    "link": events.CORRECTION_LINK,
    "annotate": events.CORRECTION_ANNOTATE,
    "restore": events.CORRECTION_RESTORE,
}
THIS = ""  # in a plan: the correction itself, which has no id yet


@dataclass(frozen=True, slots=True)
class _Plan:
    """What a correction will do, or why it will not: the preview and the correction read the same plan."""

    target: ContextEvent
    kind: str
    text: str | None
    subject_id: str
    object_id: str = ""
    establishes: tuple[str, str] | None = None  # old, new
    voids: Supersession | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    refusals: tuple[Refused, ...] = ()
    warnings: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Preview:
    """What a correction would do. Where `refusals` has one, it would do nothing, and the chain stays as it is."""

    chain_before: Chain
    chain_after: Chain
    delivered_text: str
    warnings: tuple[tuple[str, str], ...]  # code and message; the refusals are among them
    refusals: tuple[Refused, ...] = ()

    @property
    def refused(self) -> bool:
        return bool(self.refusals)

    @property
    def digest(self) -> str:
        """One value for all that it shows: another one as soon as the correction would do something else."""
        return hashchain.digest(
            {
                "chains": [
                    {
                        "events": [[event.id, event.erased] for event in part.events],
                        "edges": [[edge.old, edge.new, edge.event_id, edge.voided_by] for edge in part.edges],
                    }
                    for part in (self.chain_before, self.chain_after)
                ],
                "delivered": self.delivered_text,
                "warnings": [list(warning) for warning in self.warnings],
            }
        )


def correct(
    target_id: str,
    *,
    kind: CorrectionKind,
    reason: str,
    actor: Actor,
    at: UnixMs,
    key: str = "",
    text: str | None = None,
    successor: str | None = None,
    readable: Readable | None = None,
    writable: Readable | None = None,
    seen: str | None = None,
) -> ContextEvent:
    """Correct an event by a new event: the target, its chain's past and its text stay as they are; raises Refused.

    `seen` is the digest of the preview that somebody agreed to: where the correction would do something else by now,
    it is refused.

    1. supersede: the correction takes the target's place, with `text` (or the reason), or `successor` does.
    2. retract: the correction takes its place, and there is no current text.
    3. link: `successor`, which exists, takes its place.
    4. annotate: nothing changes its place.
    5. restore: undoes the correction that the target is, or else the one that superseded the target; an undone
       restore brings back what it had voided.
    """
    reason = context.check_reason(reason)
    asked = {
        "does": "correct",
        "target": target_id,
        "kind": kind,
        "reason": reason,
        "text": text,
        "successor": successor,
    }
    with writing():
        if key:
            done = _done_before(context.check_key(key), asked, actor=actor)
            if done is not None:
                return done.event
        target = _correctable(target_id, readable=readable, writable=writable)
        plan = _planned(target, kind=kind, text=text, reason=reason, successor=successor)
        if plan.refusals:
            raise plan.refusals[0]
        if seen is not None and seen != _preview(plan, reason=reason, actor=actor, at=at).digest:
            raise Conflict("this would do something else than what was previewed", code="not_as_previewed")
        event = append_event(_correction(plan, reason=reason, actor=actor, at=at), at=at)
        _carry_out(plan, event=event, at=at)
        operation = _remember_operation(key, asked, event=event, actor=actor, at=at) if key else None
        enqueue("context", event=event, operation=operation, at=at)
    return event


def preview(
    target_id: str,
    *,
    kind: CorrectionKind,
    reason: str,
    actor: Actor,
    at: UnixMs,
    text: str | None = None,
    successor: str | None = None,
    readable: Readable | None = None,
    writable: Readable | None = None,
) -> Preview:
    """What `correct` would do with the same arguments. It reads only; what would be refused is a warning."""
    target = _correctable(target_id, readable=readable, writable=writable)
    plan = _planned(target, kind=kind, text=text, reason=reason, successor=successor)
    try:
        reason = context.check_reason(reason)
    except Refused as refusal:
        plan = replace(plan, refusals=(*plan.refusals, refusal))
    return _preview(plan, reason=reason, actor=actor, at=at)


def _preview(plan: _Plan, *, reason: str, actor: Actor, at: UnixMs) -> Preview:
    row = _row(_correction(plan, reason=reason, actor=actor, at=at), seq=0, prev_hash="", at=at)
    row.id = THIS
    before = queries.chain_of(plan.subject_id)
    return Preview(
        chain_before=before,
        chain_after=before if plan.refusals else _chain_after(plan, before, correction=row, at=at),
        delivered_text=wording.delivered_text(row, queries.named_in(row)),
        warnings=(*((one.code, one.message) for one in plan.refusals), *plan.warnings),
        refusals=plan.refusals,
    )


def _chain_after(plan: _Plan, before: Chain, *, correction: ContextEvent, at: UnixMs) -> Chain:
    joined = queries.chain_of(plan.object_id) if plan.establishes and plan.object_id else None
    nodes = {event.id: event for part in (before, joined) if part for event in part.events}
    edges = {edge.event_id: edge for part in (before, joined) if part for edge in part.edges}
    if plan.voids is not None:
        row = plan.voids
        edges[row.event_id] = chain.Edge(row.old_id, row.new_id, row.event_id, row.created_at, THIS, at)
    if plan.establishes is not None:
        old, new = plan.establishes
        edges[THIS] = chain.Edge(old, new, THIS, at)
        if new == THIS:
            nodes[THIS] = correction
    return Chain(
        events=(
            *sorted((e for e in nodes.values() if e.id), key=lambda e: e.seq),
            *filter(None, [nodes.get(THIS)]),
        ),
        edges=tuple(edges.values()),
        corrections=(*before.corrections, correction),
        truncated=before.truncated,
    )


def _correctable(target_id: str, *, readable: Readable | None, writable: Readable | None) -> ContextEvent:
    target = ContextEvent.objects.filter(id=target_id).first()
    if target is None or (readable is not None and not readable(target.workspace)):
        raise NotFound(f"no event {target_id}", hint="ids begin with evt_")
    if writable is not None and not writable(target.workspace):
        raise Forbidden("this event is read-only for you")
    if target.kind not in events.DELIVERED:
        raise Unprocessable(
            f"{target_id} records a change of a memory: change the memory instead", code="not_correctable"
        )
    return target


def _planned(
    target: ContextEvent, *, kind: str, text: str | None, reason: str, successor: str | None
) -> _Plan:
    if kind not in CORRECTION_KINDS:
        raise Invalid(f"kind must be one of {', '.join(CORRECTION_KINDS)}", field="kind")
    if text is not None:
        if kind not in ("supersede", "annotate"):
            raise Invalid(f"a correction of the kind {kind} takes no text", field="text")
        context.check_text(text, field="text")
    if successor is not None and kind not in ("supersede", "link"):
        raise Invalid(f"a correction of the kind {kind} takes no successor", field="successor")
    if kind == "link" and successor is None:
        raise Invalid("a link needs the successor", field="successor", code="required")
    if kind == "restore":
        return _planned_restore(target)
    if successor is not None:
        return _planned_successor(
            _Plan(target, CORRECTION_KINDS[kind], text, subject_id=target.id), successor
        )
    spoken = None if kind == "retract" else text or reason
    plan = _Plan(target, CORRECTION_KINDS[kind], spoken, subject_id=target.id)
    if kind == "annotate":
        return plan
    refusal = _second_successor(target.id, field=None)
    return replace(plan, establishes=(target.id, THIS), refusals=(refusal,) if refusal else ())


def _planned_successor(plan: _Plan, successor: str) -> _Plan:
    target, other = plan.target, _successor(successor, target=plan.target)
    if other is None:
        unknown = f"no context event {successor} in this workspace"
        return replace(plan, refusals=(Unprocessable(unknown, field="successor", code="unknown_event"),))
    found: list[Refused | None] = [_second_successor(target.id, field=None)]
    if other.item_id != target.item_id:
        found.append(Unprocessable(_OTHER_ITEM.format(other.id), field="successor", code="other_item"))
    found.append(_cycle(target.id, other.id))
    older = f"{other.id} was recorded before the event whose place it would take"
    return replace(
        plan,
        object_id=other.id,
        establishes=(target.id, other.id),
        refusals=tuple(refusal for refusal in found if refusal is not None),
        warnings=(("successor_is_older", older),) if other.seq < target.seq else (),
    )


def _successor(successor: str, *, target: ContextEvent) -> ContextEvent | None:
    """The event of that id in the target's own workspace, which the caller reads already."""
    return ContextEvent.objects.filter(
        id=successor, workspace=target.workspace, kind__in=events.DELIVERED
    ).first()


def _cycle(old: str, new: str) -> Conflict | None:
    if not chain.closes_cycle(old, new, chain.successors(queries.effective_edges([new]))):
        return None
    return Conflict(
        f"{old} would supersede itself: it stands later in the chain of {new}",
        field="successor",
        code="supersession_cycle",
    )


def _planned_restore(target: ContextEvent) -> _Plan:
    row = _to_be_voided(target)
    plan = _Plan(target, events.CORRECTION_RESTORE, None, subject_id=target.id)
    undone = Supersession.objects.filter(voided_by__id=target.id).first()
    if row is None and undone is not None:
        refusals = (_second_successor(undone.old_id, field=None), _cycle(undone.old_id, undone.new_id))
        return replace(
            plan,
            subject_id=undone.old_id,
            object_id=target.id,
            establishes=(undone.old_id, undone.new_id),
            metadata={chain.EFFECT: chain.REINSTATED, chain.SUCCESSOR: undone.new_id},
            refusals=tuple(refusal for refusal in refusals if refusal is not None),
        )
    if row is None:
        return replace(plan, refusals=(_nothing_to_restore(target),))
    return replace(
        plan,
        subject_id=row.old_id,
        object_id=row.event_id,
        voids=row,
        metadata={chain.EFFECT: chain.VOIDED},
    )


def _to_be_voided(target: ContextEvent) -> Supersession | None:
    """What the target did where it is a correction that still holds; else the correction that superseded it."""
    holding = Supersession.objects.effective().filter(event__kind__in=events.CORRECTIONS)
    mine = holding.filter(event__id=target.id).first()
    if mine is not None or Supersession.objects.filter(voided_by__id=target.id).exists():
        return mine
    return holding.filter(old__id=target.id).first()


def _nothing_to_restore(target: ContextEvent) -> Conflict:
    undone = Supersession.objects.filter(event__id=target.id, voided_by__isnull=False).first()
    if undone is not None:
        return Conflict(
            f"{target.id} was undone already, by {undone.voided_by_id}",
            code="already_undone",
            hint=f"to bring it back, restore {undone.voided_by_id}",
        )
    own = Supersession.objects.effective().filter(old__id=target.id).first()
    if own is not None:
        return Conflict(
            f"no correction superseded {target.id}: {own.new_id} did when it was recorded",
            code="nothing_to_restore",
            hint=f"correct {own.new_id} instead",
        )
    return Conflict(f"no correction of {target.id} is in force", code="nothing_to_restore")


def _correction(plan: _Plan, *, reason: str, actor: Actor, at: UnixMs) -> NewEvent:
    return NewEvent(
        kind=plan.kind,
        actor=actor,
        workspace=plan.target.workspace,
        subject_id=plan.subject_id,
        object_id=plan.object_id,
        item_id=plan.target.item_id,
        occurrence=plan.target.occurrence,
        reason=reason,
        text=plan.text,
        occurred_at=at,
        metadata=plan.metadata,
    )


def _carry_out(plan: _Plan, *, event: ContextEvent, at: UnixMs) -> None:
    if plan.voids is not None:
        Supersession.objects.effective().filter(id=plan.voids.id).update(voided_by=event, voided_at=at)
        _tell_hooks((plan.voids.old_id, plan.voids.new_id), at=at)
    if plan.establishes is not None:
        old, new = plan.establishes
        _establish(old, new or event.id, event=event, at=at)


# ---------------------------------------------------------------------------------------------- the outbox


def retry_delivery(entry_id: int, *, actor: Actor, at: UnixMs, reason: str = "") -> OutboxEntry:
    """Make a failed or waiting entry due now, lift the pause of its kind, and record that somebody asked for it."""
    with writing():
        entry = OutboxEntry.objects.select_related("event").filter(id=entry_id).first()
        if entry is None:
            raise NotFound(f"no outbox entry {entry_id}")
        if entry.state == outbox.DELIVERED:
            raise Conflict(f"entry {entry_id} was delivered already", code="already_delivered")
        if entry.error_code == outbox.ERASED:
            raise Conflict(f"entry {entry_id} was erased: nothing is left to deliver", code="erased")
        if entry.state == outbox.DELIVERING and (entry.lease_until or 0) > at:
            raise Conflict(f"entry {entry_id} is being delivered now", code="in_delivery")
        OutboxPause.objects.filter(kind=entry.kind).delete()
        append_event(
            NewEvent(
                kind=events.DELIVERY_RETRIED,
                actor=actor,
                workspace=entry.workspace,
                subject_id=entry.event_id or "",
                item_id=entry.event.item_id if entry.event else None,
                reason=reason,
                occurred_at=at,
                metadata={"entry": str(entry.id), "failed_with": entry.error_code},
            ),
            at=at,
        )
        entry.state, entry.attempts, entry.next_attempt_at = outbox.PENDING, 0, at
        entry.lease_until, entry.lease_token = None, ""
        entry.save()
    return entry


def resume_delivery(*, actor: Actor, at: UnixMs, reason: str = "") -> list[str]:
    """Lift every pause, and record who did; the kinds that go on."""
    with writing():
        paused = list(OutboxPause.objects.order_by("kind"))
        if not paused:
            return []
        append_event(
            NewEvent(
                kind=events.DELIVERY_RESUMED,
                actor=actor,
                workspace="",
                subject_id="",
                reason=reason,
                occurred_at=at,
                metadata={pause.kind: pause.reason for pause in paused},
            ),
            at=at,
        )
        OutboxPause.objects.all().delete()
    return [pause.kind for pause in paused]
