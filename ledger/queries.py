"""Reading the ledger."""

from __future__ import annotations

import heapq
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from django.conf import settings
from django.db import DatabaseError, connection
from django.db.models import (
    Case,
    Count,
    Exists,
    F,
    FilteredRelation,
    Max,
    Min,
    OuterRef,
    Q,
    QuerySet,
    Value,
    When,
)
from django.db.models.functions import Coalesce, Concat
from django.utils.module_loading import import_string

from ledger.domain import chain, events, hashchain, outbox
from ledger.domain.actors import ACTOR_KINDS
from ledger.domain.chain import Edge
from ledger.domain.ids import is_id
from ledger.domain.instants import UnixMs
from ledger.domain.refusals import NotFound
from ledger.models import (
    ContextEvent,
    ContextEventQuerySet,
    Operation,
    OutboxEntry,
    OutboxPause,
    Supersession,
    Tombstone,
)

Workspaces = Sequence[str] | None  # None: every one there is


def head() -> tuple[int, str]:
    """The newest event's (seq, hash); (0, genesis) for an empty ledger. Plain SQL: every recall asks for it."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT seq, hash FROM ledger_contextevent ORDER BY seq DESC LIMIT 1")
        newest: tuple[int, str] | None = cursor.fetchone()
    return newest or (0, hashchain.GENESIS)


@dataclass(frozen=True, slots=True)
class Verification:
    """What a walk over the whole ledger found.

    `keyed_from` is the first event whose hash was made with the key; None where none was.
    """

    events: int
    head_hash: str
    first_broken: hashchain.Break | None
    keyed_from: int | None = None

    @property
    def ok(self) -> bool:
        return self.first_broken is None


def verify(*, progress: Callable[[int], object] | None = None) -> Verification:
    """Walk the chain from the first event to the last, in constant memory.

    On the way it passes every head that somebody recorded, because the chain alone cannot show that its tail was cut
    off (settings.LEDGER_WITNESSES names who remembers heads), and every supersession, which must be what an event
    says. Events that are written meanwhile are left for the next time.
    """
    witnesses, end = _Beside(_witnesses()), head()[0]
    established, voided = _Beside(_established(end)), _Beside(_voided(end))
    count, head_hash, keyed_from = 0, hashchain.GENESIS, None
    for step in _steps(end):
        if isinstance(step, hashchain.Break):
            return Verification(count, head_hash, step, keyed_from)
        link = step.link
        count, head_hash = count + 1, link.hash
        if step.keyed and keyed_from is None:
            keyed_from = link.seq
        reason = (
            _disowned(link, witnesses.of(link.seq))
            or _unfounded(link)
            or chain.contradiction(
                _said_by(link),
                at=link.metadata["recorded_at"],
                stored=established.of(link.seq),
                voided=voided.of(link.seq),
            )
        )
        if reason:
            return Verification(count, head_hash, hashchain.Break(link.seq, link.id, reason), keyed_from)
        if progress is not None and count % 1000 == 0:
            progress(1000)
    return Verification(count, head_hash, _cut_off(count, witnesses), keyed_from)


Row = TypeVar("Row")


class _Beside(Generic[Row]):
    """Rows in order of seq, read beside a walk in that order and never all at once."""

    def __init__(self, rows: Iterator[tuple[int, Row]]) -> None:
        self._rows = rows
        self._waiting = next(rows, None)

    def of(self, seq: int) -> list[Row]:
        """Those of this seq; the walk has passed those before it."""
        found = []
        while self._waiting is not None and self._waiting[0] <= seq:
            if self._waiting[0] == seq:
                found.append(self._waiting[1])
            self._waiting = next(self._rows, None)
        return found

    @property
    def next_seq(self) -> int | None:
        return None if self._waiting is None else self._waiting[0]


def _witnesses() -> Iterator[tuple[int, str]]:
    """Recorded heads, in ascending order of seq."""
    return heapq.merge(*(import_string(path)() for path in settings.LEDGER_WITNESSES))


def _disowned(link: hashchain.Link, heads: list[str]) -> str:
    if all(witness == link.hash for witness in heads):
        return ""
    return "it is not the event that was the head when something was recalled"


def _cut_off(count: int, witnesses: _Beside[str]) -> hashchain.Break | None:
    """What shows that events after the last one are gone: a recorded head, or a row that cites one of them."""
    if witnesses.next_seq is not None:
        reason = f"the ledger ends before event {witnesses.next_seq}, which was its head when something was recalled"
        return hashchain.Break(count + 1, "", reason)
    with connection.cursor() as cursor:
        for relation in ContextEvent._meta.related_objects:
            table, column = relation.related_model._meta.db_table, relation.field.column
            cursor.execute(
                f"SELECT r.{column} FROM {table} r LEFT JOIN ledger_contextevent e ON e.id = r.{column} "
                f"WHERE r.{column} IS NOT NULL AND e.id IS NULL LIMIT 1"
            )
            if (orphan := cursor.fetchone()) is not None:
                reason = f"the ledger ends before it, but {table} cites it"
                return hashchain.Break(count + 1, orphan[0], reason)
    return None


PAGE = 2_000  # events that are read at once


def _steps(end: int) -> Iterator[hashchain.Held | hashchain.Break]:
    """The walk; where a row holds what no event can hold, and so cannot be read or hashed, that is where it breaks."""
    seq = 0
    try:
        for step in hashchain.first_break(_links(end), key=settings.LEDGER_KEY):
            yield step
            if isinstance(step, hashchain.Held):
                seq = step.link.seq
    except _Unreadable as unreadable:
        yield hashchain.Break(unreadable.seq, unreadable.id, f"it cannot be read: {unreadable}")
    except (TypeError, ValueError) as error:  # of the canonical form: numbers and texts only
        found = ContextEvent.objects.filter(seq__gt=seq).order_by("seq").values_list("seq", "id").first()
        yield hashchain.Break(*(found or (seq + 1, "")), f"it holds what no event can hold: {error}")


def _links(end: int) -> Iterator[hashchain.Link]:
    tombstones = Tombstone.objects.order_by("event__seq").values_list("event__seq", "event_id")
    buried = _Beside(tombstones.iterator(chunk_size=PAGE))
    for event in _events(end):
        yield _link(event, erased=bool(buried.of(event.seq)))


def _unfounded(link: hashchain.Link) -> str:
    """Why a tombstone proves no erasure; empty where there is none, or an event of the chain says the same.

    A tombstone stands outside the chain: whoever can write rows could otherwise erase an event without a trace.
    """
    if not link.erased:
        return ""
    if link.payload is not None:
        return "a tombstone stands for it, and its text is there"
    tombstone = Tombstone.objects.get(event__id=link.id)
    if tombstone.payload_hash != link.payload_hash:
        return "its tombstone is of another payload"
    about = (link.metadata["subject_id"], link.metadata["object_id"])
    said = Q(kind=events.CONTEXT_ERASED, subject_id=link.id)
    said |= Q(kind=events.MEMORY_ERASED, subject_id__in=[id_ for id_ in about if id_])
    by = {name: getattr(tombstone, name) for name in ("actor_kind", "actor_id", "actor_label", "reason")}
    if ContextEvent.objects.filter(said, **by).exists():
        return ""
    return "a tombstone stands for it, and no event says that it was erased so"


class _Unreadable(Exception):
    """An event that the database itself cannot give: its bytes are no text, say."""

    def __init__(self, seq: int, id_: str, cause: str) -> None:
        super().__init__(cause)
        self.seq, self.id = seq, id_


def _events(end: int) -> Iterator[ContextEvent]:
    """Page by page: one long reading would keep the write-ahead log from being moved."""
    seq = None
    while True:
        rows = ContextEvent.objects.order_by("seq").filter(seq__lte=end)
        rows = rows if seq is None else rows.filter(seq__gt=seq)
        try:
            page = list(rows[:PAGE])
        except (DatabaseError, ValueError, TypeError):
            page = _one_by_one(rows)
        if not page:
            return
        yield from page
        seq = page[-1].seq


def _one_by_one(rows: QuerySet[ContextEvent]) -> list[ContextEvent]:
    """The next events up to the first that cannot be read; raises _Unreadable where that is the very next."""
    found: list[ContextEvent] = []
    for seq in rows.values_list("seq", flat=True)[:PAGE]:
        try:
            found.append(ContextEvent.objects.get(seq=seq))
        except (DatabaseError, ValueError, TypeError) as error:
            if found:
                break
            id_ = ContextEvent.objects.filter(seq=seq).values_list("id", flat=True).first()
            raise _Unreadable(seq, id_ or "", str(error)) from error
    return found


def _link(event: ContextEvent, *, erased: bool) -> hashchain.Link:
    return hashchain.Link(
        seq=event.seq,
        id=event.id,
        metadata=event.chained_metadata,
        payload=None if event.erased else (event.salt or "", event.text, event.before, event.after),
        payload_hash=event.payload_hash,
        prev_hash=event.prev_hash,
        hash=event.hash,
        erased=erased,
    )


def newest_link() -> hashchain.Link | None:
    """The newest event as the chain sees it; None for an empty ledger."""
    newest = ContextEvent.objects.order_by("-seq").first()
    return None if newest is None else _link(newest, erased=newest.erased)


def _said_by(link: hashchain.Link) -> chain.Establishes | chain.Voids | None:
    told = link.metadata
    if told["kind"] not in events.DELIVERED:
        return None
    return chain.said_by(
        told["kind"],
        id=link.id,
        subject_id=told["subject_id"],
        object_id=told["object_id"],
        metadata=json.loads(told["metadata"]),
    )


def _established(end: int) -> Iterator[tuple[int, Edge]]:
    """Each supersession with the seq of the event that established it, in that order."""
    return _edges_by("event__seq", end)


def _voided(end: int) -> Iterator[tuple[int, Edge]]:
    """Each voided supersession with the seq of the event that undid it, in that order."""
    return _edges_by("voided_by__seq", end)


def _edges_by(seq: str, end: int) -> Iterator[tuple[int, Edge]]:
    rows = Supersession.objects.filter(**{f"{seq}__lte": end}).order_by(seq)
    columns = "old_id", "new_id", "event_id", "created_at", "voided_by_id", "voided_at"
    for place, *edge in rows.values_list(seq, *columns).iterator(chunk_size=PAGE):
        yield place, Edge(*edge)


def edge_of(row: Supersession) -> Edge:
    """A stored supersession as the rules see it."""
    return Edge(row.old_id, row.new_id, row.event_id, row.created_at, row.voided_by_id, row.voided_at)


# ---------------------------------------------------------------------------------------------- chains

MAX_CHAIN = 500  # events of one chain that are shown: it is drawn, and read by people


@dataclass(frozen=True, slots=True)
class Chain:
    """The events that supersessions connect, oldest first, with every supersession among them, voided ones too.

    `corrections` are what people said about these events, oldest first. A longer chain is cut, and says so.
    """

    events: tuple[ContextEvent, ...]
    edges: tuple[Edge, ...]
    corrections: tuple[ContextEvent, ...] = ()
    truncated: bool = False

    def walk(self, event_id: str) -> chain.Walk:
        """The way from one of these events to its head, as far as it is shown."""
        return chain.walk(event_id, chain.successors(self.edges))


@dataclass(frozen=True, slots=True)
class Head:
    """Where the chain of an event ends: `id` is the event itself while nothing has superseded it.

    `text_event_id` names whose text is the current rationale: none after a retraction or an erasure.
    """

    id: str
    superseded: bool
    retracted: bool
    steps: int
    text_event_id: str | None
    cycle: bool = False


def effective_edges(event_ids: Iterable[str], *, until: UnixMs | None = None) -> list[Edge]:
    """The supersessions in force that lead on from these events, at any distance, in one query.

    With `until`, those created later are ignored, as they were not known at that instant.
    """
    given = sorted(set(event_ids))
    if not given:
        return []
    known = "" if until is None else "AND s.created_at <= %(until)s"
    with connection.cursor() as cursor:
        cursor.execute(
            f"""
            WITH RECURSIVE reached(id) AS (
                SELECT {_LISTED[connection.vendor]}
                UNION
                SELECT s.new_id FROM reached JOIN ledger_supersession s
                ON s.old_id = reached.id AND s.voided_by_id IS NULL {known}
            )
            SELECT s.old_id, s.new_id, s.event_id, s.created_at FROM reached JOIN ledger_supersession s
            ON s.old_id = reached.id AND s.voided_by_id IS NULL {known}
            """,
            {"ids": json.dumps(given), "until": until},
        )
        return [Edge(*row) for row in cursor.fetchall()]


# One parameter however many ids there are: both engines limit the number of parameters.
_LISTED = {
    "sqlite": "value FROM json_each(%(ids)s)",
    "postgresql": "json_array_elements_text(%(ids)s::json)",
}


def heads_of(event_ids: Iterable[str]) -> dict[str, Head]:
    """The head of each event's chain, in two queries for any number of events; unknown ids are left out."""
    given = set(event_ids)
    following = chain.successors(effective_edges(given))
    walks = {id_: chain.walk(id_, following) for id_ in given}
    heads = _plain(given | {walk.head for walk in walks.values()})
    return {id_: _head(walk, heads[walk.head]) for id_, walk in walks.items() if id_ in heads}


def _plain(ids: set[str]) -> dict[str, tuple[str, bool]]:
    """(kind, whether there is a text) of each event, without reading the texts."""
    rows = ContextEvent.objects.filter(id__in=ids).annotate(speaks=Q(text__isnull=False))
    return {id_: (kind, speaks) for id_, kind, speaks in rows.values_list("id", "kind", "speaks")}


def _head(walk: chain.Walk, found: tuple[str, bool]) -> Head:
    kind, has_text = found
    return Head(
        id=walk.head,
        superseded=walk.steps > 0,
        retracted=kind == events.CORRECTION_RETRACT,
        steps=walk.steps,
        text_event_id=walk.head if has_text else None,
        cycle=walk.cycle,
    )


class Turn(NamedTuple):
    """What changed an event's standing: `by`, of this kind, superseded it or, where `undone`, took that back."""

    at: UnixMs
    by: str
    kind: str
    undone: bool


def turns_since(event_ids: Iterable[str], since: UnixMs) -> dict[str, Turn]:
    """How each of these events was superseded after an instant, or its supersession undone; one query for all."""
    given = set(event_ids)
    if not given:
        return {}
    fell = Q(voided_by__isnull=True, created_at__gt=since)
    rose = Q(voided_at__gt=since, created_at__lte=since)
    rows = Supersession.objects.filter(fell | rose, old__id__in=given).select_related("event", "voided_by")
    turns = {}
    for row in rows.order_by("id"):  # what was undone and then superseded anew is superseded
        undoing = row.voided_by
        if undoing is not None and row.voided_at is not None:
            turns[row.old_id] = Turn(row.voided_at, undoing.id, undoing.kind, undone=True)
        else:
            turns[row.old_id] = Turn(row.created_at, row.event.id, row.event.kind, undone=False)
    return turns


def successors_of(event_ids: Iterable[str]) -> dict[str, str]:
    """The direct successor in force of each event that has one."""
    rows = Supersession.objects.effective().filter(old__id__in=set(event_ids))
    return {row.old_id: row.new_id for row in rows}


def chain_of(event_id: str) -> Chain:
    """Everything that supersessions connect with an event, in either direction.

    A correction that stands in no chain (a link, a note, a restore) shows the chain that it speaks about.
    """
    ids = _connected(event_id)
    while len(ids) == 1 and (subject := _subject_of_correction(ids[0])):
        ids = _connected(subject)
    shown = ids[:MAX_CHAIN]
    rows = Supersession.objects.filter(old__id__in=shown, new__id__in=shown).order_by(
        "created_at", "event_id"
    )
    about = ContextEvent.objects.filter(kind__in=events.CORRECTIONS, subject_id__in=shown)
    return Chain(
        events=tuple(ContextEvent.objects.filter(id__in=shown).order_by("seq")),
        edges=tuple(map(edge_of, rows)),
        corrections=tuple(about.order_by("seq")[:MAX_CHAIN]),
        truncated=len(ids) > MAX_CHAIN,
    )


def _connected(event_id: str) -> list[str]:
    with connection.cursor() as cursor:
        cursor.execute(
            f"""
            WITH RECURSIVE near(id) AS (
                SELECT {_LISTED[connection.vendor]}
                UNION
                SELECT CASE WHEN s.old_id = near.id THEN s.new_id ELSE s.old_id END
                FROM near JOIN ledger_supersession s ON s.old_id = near.id OR s.new_id = near.id
            )
            SELECT id FROM near LIMIT {MAX_CHAIN + 1}
            """,
            {"ids": json.dumps([event_id])},
        )
        return [row[0] for row in cursor.fetchall()]


def _subject_of_correction(event_id: str) -> str | None:
    corrections = ContextEvent.objects.filter(id=event_id, kind__in=events.CORRECTIONS)
    return corrections.values_list("subject_id", flat=True).first()


def event(event_id: str, workspaces: Workspaces) -> ContextEvent:
    """One event, where the caller reads its workspace; raises NotFound."""
    found = ContextEvent.objects.filter(id=event_id).first()
    if found is None or (workspaces is not None and found.workspace not in workspaces):
        raise NotFound(f"no event {event_id}", hint="ids begin with evt_")
    return found


def named_in(event: ContextEvent) -> ContextEvent | None:
    """The event that this one's delivered text names: what it supersedes, or what it corrects."""
    named = _id_named_in(event)
    return ContextEvent.objects.filter(id=named).first() if named else None


def all_named_in(told: Iterable[ContextEvent]) -> dict[str, ContextEvent]:
    """The same of several, by the id of the event that names; one query."""
    naming = {event.id: _id_named_in(event) for event in told}
    found = ContextEvent.objects.filter(id__in={id_ for id_ in naming.values() if id_}).in_bulk(
        field_name="id"
    )
    return {id_: found[named] for id_, named in naming.items() if named in found}


def _id_named_in(event: ContextEvent) -> str:
    return event.object_id if event.kind == events.CONTEXT_ADDED else event.subject_id


# ---------------------------------------------------------------------------------------------- browsing

FACETS: dict[str, tuple[str, ...]] = {
    "kind": events.KINDS,
    "standing": (chain.CURRENT, chain.SUPERSEDED, chain.RETRACTED, chain.UNDONE, chain.CORRECTED),
    "delivery": outbox.STATES,
    "source": ACTOR_KINDS,
}
SEARCHED = 100_000  # events, the newest of those in question


@dataclass(frozen=True, slots=True)
class Browsed:
    """The events in question before a facet is chosen. Where a search left older ones out, `searched` says how many
    it looked at.

    `counted` are the same events as `rows`. It names workspaces so that SQLite does not look them up in an index:
    events that are found by their ids, or read off a narrow index one and all, would be searched for a second time.
    """

    rows: ContextEventQuerySet
    counted: ContextEventQuerySet
    searched: int | None = None


def browse(workspaces: Workspaces, *, words: str = "") -> Browsed:
    """The events of these workspaces; with words, those whose text or reason contains them in this order, and those
    about the item of exactly that name. The id of an event, memory or link finds what is it or about it, of any age.

    Texts are compared one by one, without an index: this page would be its only use, every write would pay for it, and
    an erasure would have one place more to reach. 100,000 take 0.1 s, and that is where a search ends.
    """
    rows = ContextEvent.objects.all()
    counted = rows.alias(place=Concat("workspace", Value("")))
    if workspaces is not None:
        rows, counted = rows.filter(workspace__in=workspaces), counted.filter(place__in=workspaces)
    if not words:
        return Browsed(rows, counted)
    if any(is_id(words, prefix) for prefix in ("evt", "mem", "lnk")):
        other_end = Q(object_id=words) & ~Q(object_id="")  # in the words of the index event_object
        named = Q(id=words) | Q(subject_id=words) | other_end
        return Browsed(counted.filter(named), counted.filter(named))
    said = Q(text__icontains=words) | Q(reason__icontains=words) | Q(item_id=words)
    last = list(rows.order_by("-seq").values_list("seq", flat=True)[SEARCHED - 1 : SEARCHED + 1])
    if len(last) < 2:
        return Browsed(rows.filter(said), counted.filter(said))
    newest = Q(seq__gte=last[0])
    return Browsed(rows.filter(newest, said), counted.filter(newest, said), SEARCHED)


@dataclass(frozen=True, slots=True)
class Cell:
    """So many events that are alike in every facet. Only what goes to a bank has a standing and a delivery."""

    events: int
    kind: str
    source: str
    standing: str = ""
    corrected: bool = False
    delivery: str = ""

    def shows(self, facet: str, value: str) -> bool:
        """Whether these are among the events that a choice in one facet shows."""
        return self.corrected if value == chain.CORRECTED else bool(getattr(self, facet) == value)


def cells(browsed: Browsed) -> list[Cell]:
    """The events by all facets at once, in two queries: every count of the ledger's page is a sum of these.

    Context that nobody superseded or corrected, and that was delivered, is what the others leave of its kind: only
    these are looked up, which with 100,000 events is twice as fast.
    """
    rows = browsed.counted.order_by()
    by_kind = rows.values_list("kind", "actor_kind").annotate(number=Count("*"))
    left = {(kind, source): number for kind, source, number in by_kind}
    told = _with_standing(rows.filter(id__in=_remarkable()))
    columns = "kind", "actor_kind", "standing", "corrected", "delivery"
    found = []
    for kind, source, *stands, number in told.values_list(*columns).annotate(number=Count("*")):
        found.append(Cell(number, kind, source, *stands))
        left[kind, source] -= number
    return found + [_unremarkable(number, kind, source) for (kind, source), number in left.items() if number]


def _unremarkable(number: int, kind: str, source: str) -> Cell:
    if kind != events.CONTEXT_ADDED:
        return Cell(number, kind, source)
    return Cell(number, kind, source, standing=chain.CURRENT, delivery=outbox.DELIVERED)


def _remarkable() -> QuerySet[Any, Any]:
    """The ids of corrections, and of context that is not simply current and delivered."""
    corrections = ContextEvent.objects.filter(kind__in=events.CORRECTIONS)
    waiting = OutboxEntry.objects.filter(kind="context", event__isnull=False).exclude(state=outbox.DELIVERED)
    return corrections.values_list("id").union(
        corrections.values_list("subject_id"),
        Supersession.objects.effective().values_list("old"),
        waiting.values_list("event"),
    )


def _with_standing(rows: ContextEventQuerySet) -> Any:
    """Events with how they stand: `standing`, `successor`, `undone_by`, `corrected` and `delivery`.

    1. What an effective supersession replaced is superseded; where a retraction replaced it, retracted.
    2. A correction whose own supersession was voided is undone.
    3. What says something itself is current. A correction that only names another event says nothing itself, nor does a
       note or a restore: these have no standing, and neither has a change of a memory.
    """
    corrections = ContextEvent.objects.filter(subject_id=OuterRef("id"), kind__in=events.CORRECTIONS)
    return rows.alias(
        replaced=FilteredRelation("successions", condition=Q(successions__voided_by__isnull=True)),
        voided=FilteredRelation("establishes", condition=Q(establishes__voided_by__isnull=False)),
        entry=FilteredRelation("outbox", condition=Q(outbox__kind="context")),  # an event has at most one
    ).annotate(
        standing=Case(
            When(replaced__new__kind=events.CORRECTION_RETRACT, then=Value(chain.RETRACTED)),
            When(replaced__isnull=False, then=Value(chain.SUPERSEDED)),
            When(voided__isnull=False, then=Value(chain.UNDONE)),
            When(kind=events.CONTEXT_ADDED, then=Value(chain.CURRENT)),
            When(kind=events.CORRECTION_SUPERSEDE, object_id="", then=Value(chain.CURRENT)),
            default=Value(""),
        ),
        successor=F("replaced__new"),
        undone_by=F("voided__voided_by"),
        corrected=Exists(corrections),
        delivery=Coalesce("entry__state", Value("")),
    )


def chosen(browsed: Browsed, choices: Mapping[str, str]) -> ContextEventQuerySet:
    """The events that a choice in each of these FACETS shows, all of them at once."""
    standing, delivery = choices.get("standing"), choices.get("delivery")
    rows: Any = browsed.rows if standing is None and delivery is None else _with_standing(browsed.counted)
    if standing not in (None, chain.CURRENT) or delivery not in (None, outbox.DELIVERED):
        rows = rows.filter(
            id__in=_remarkable()
        )  # few, where all others would be looked at until a page is full
    if standing is not None:
        rows = rows.filter(corrected=True) if standing == chain.CORRECTED else rows.filter(standing=standing)
    if delivery is not None:
        rows = rows.filter(delivery=delivery)
    if "kind" in choices:
        rows = rows.filter(kind=choices["kind"])
    if "source" in choices:
        rows = rows.filter(actor_kind=choices["source"])
    narrowed: ContextEventQuerySet = rows
    return narrowed


@dataclass(frozen=True, slots=True)
class Standing:
    """How one event of context stands: `word` is one of the standings, or empty for a remark."""

    word: str
    successor: str | None
    undone_by: str | None
    corrected: bool
    delivery: str


def standings_of(event_ids: Iterable[str]) -> dict[str, Standing]:
    """How each of these events of context stands, in one query."""
    rows = ContextEvent.objects.filter(id__in=set(event_ids))
    columns = "id", "standing", "successor", "undone_by", "corrected", "delivery"
    return {id_: Standing(*stands) for id_, *stands in _with_standing(rows).values_list(*columns)}


def workspaces_of_events(workspaces: Workspaces) -> list[str]:
    """Those of these workspaces of which there is an event, by name: the global one, which has none, first."""
    names = ContextEvent.objects.order_by("workspace").values_list("workspace", flat=True).distinct()
    return [name for name in names if workspaces is None or name in workspaces]


# ---------------------------------------------------------------------------------------------- coverage, outbox


@dataclass(frozen=True, slots=True)
class Coverage:
    """What the ledger knows of a scope: counted here, never from what a bank returned.

    `pending` are those still on their way; `first` and `last` are when the earliest and the latest happened.
    """

    events: int
    superseded: int
    pending: int
    delivered: int
    failed: int
    first: UnixMs | None
    last: UnixMs | None


def coverage(*, workspaces: Workspaces, item_id: str | None = None) -> Coverage:
    """Count context and correction events, in two queries."""
    rows = ContextEvent.objects.filter(kind__in=events.DELIVERED)
    if workspaces is not None:
        rows = rows.filter(workspace__in=workspaces)
    if item_id is not None:
        rows = rows.filter(item_id=item_id)
    succeeded = Supersession.objects.effective().filter(old=OuterRef("id"))
    told = rows.aggregate(
        events=Count("seq"),
        superseded=Count("seq", filter=Exists(succeeded)),
        first=Min("occurred_at"),
        last=Max("occurred_at"),
    )
    states = dict(
        OutboxEntry.objects.filter(kind="context", event__in=rows)
        .values_list("state")
        .annotate(entries=Count("id"))
    )
    return Coverage(
        events=told["events"],
        superseded=told["superseded"],
        pending=sum(states.get(state, 0) for state in outbox.OPEN),
        delivered=states.get(outbox.DELIVERED, 0),
        failed=states.get(outbox.FAILED, 0),
        first=told["first"],
        last=told["last"],
    )


@dataclass(frozen=True, slots=True)
class OperationState:
    """How the delivery of what an operation recorded stands."""

    id: str
    event_id: str
    workspace: str
    created_at: UnixMs
    state: str
    attempts: int
    next_attempt_at: UnixMs | None
    delivered_at: UnixMs | None
    error_code: str
    error: str


def operation(operation_id: str, scope: str | None) -> OperationState:
    """One operation of a caller (`kind:id`); None stands for whoever may see them all. Raises NotFound.

    An operation and its outbox entry are written together; where the entry is gone, somebody took it out of the
    database by hand, nothing will deliver the event any more, and that is told as a failure.
    """
    found = Operation.objects.filter(id=operation_id).select_related("event").first()
    if found is None or (scope is not None and found.scope != scope):
        raise NotFound(f"no operation {operation_id}", hint="ids begin with op_")
    entry = OutboxEntry.objects.filter(operation=found, kind="context").first() or OutboxEntry(
        state=outbox.FAILED,
        attempts=0,
        error_code="entry_missing",
        error="the outbox holds no entry of this operation: whether it was delivered is not known",
    )
    return OperationState(
        id=found.id,
        event_id=found.event_id,
        workspace=found.event.workspace,
        created_at=found.created_at,
        state=entry.state,
        attempts=entry.attempts,
        next_attempt_at=entry.next_attempt_at if entry.state in outbox.OPEN else None,
        delivered_at=entry.delivered_at,
        error_code=entry.error_code,
        error=entry.error,
    )


@dataclass(frozen=True, slots=True)
class OutboxSummary:
    """The queue at a glance. `oldest` is when the oldest entry that still waits was written."""

    pending: int
    delivering: int
    delivered: int
    failed: int  # whatever the cause
    taken_back: int  # of those: the text was erased before it was delivered, which is nobody's fault
    oldest: UnixMs | None
    paused: tuple[OutboxPause, ...]

    @property
    def waiting(self) -> int:
        """How many are still on their way."""
        return self.pending + self.delivering

    @property
    def stuck(self) -> bool:
        """Whether something will not be delivered unless somebody sees to it."""
        return self.refused > 0 or bool(self.paused)

    @property
    def refused(self) -> int:
        """How many the bank will not have as they are."""
        return self.failed - self.taken_back

    def oldest_age(self, *, at: UnixMs) -> UnixMs | None:
        """How long the oldest has waited, in ms."""
        return None if self.oldest is None else max(0, at - self.oldest)


def paused() -> tuple[OutboxPause, ...]:
    """The kinds whose delivery waits for somebody, with the reasons: an alert wherever it is shown."""
    return tuple(OutboxPause.objects.order_by("kind"))


def outbox_summary(workspaces: Workspaces) -> OutboxSummary:
    """Count the outbox, of the workspaces given."""
    rows = OutboxEntry.objects.all()
    if workspaces is not None:
        rows = rows.filter(workspace__in=workspaces)
    states = dict(rows.values_list("state").annotate(entries=Count("id")))
    taken_back = (
        rows.filter(state=outbox.FAILED, error_code=outbox.ERASED) if outbox.FAILED in states else None
    )
    oldest = rows.filter(state__in=outbox.OPEN).aggregate(oldest=Min("created_at"))["oldest"]
    return OutboxSummary(
        pending=states.get(outbox.PENDING, 0),
        delivering=states.get(outbox.DELIVERING, 0),
        delivered=states.get(outbox.DELIVERED, 0),
        failed=states.get(outbox.FAILED, 0),
        taken_back=0 if taken_back is None else taken_back.count(),
        oldest=oldest,
        paused=paused(),
    )


def outbox_entries(
    workspaces: Workspaces,
    *,
    state: str | None = None,
    event_id: str | None = None,
    before: int | None = None,
    limit: int = 50,
) -> list[OutboxEntry]:
    """Entries newest first, with their events; `before` is the id after which to go on."""
    rows = OutboxEntry.objects.select_related("event").order_by("-id")
    if workspaces is not None:
        rows = rows.filter(workspace__in=workspaces)
    if state is not None:
        rows = rows.filter(state=state)
    if event_id is not None:
        rows = rows.filter(event__id=event_id)
    if before is not None:
        rows = rows.filter(id__lt=before)
    return list(rows[:limit])
