"""Reading across vault, ledger and records: states of memories, current lists, data quality, the overview."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from django.db.models import BigIntegerField, Count, ExpressionWrapper, F, Q, Sum

from ledger.domain.instants import DAY, UnixMs, utc
from recall.domain import state as rules
from recall.domain.state import CURRENT, LONG_CHAIN, Anchor, State, Successions, standing_reason
from recall.domain.validity import GRADES
from recall.models import RecallRecord, RecordHit
from recall.paging import Cursor, Page
from vault.domain.access import Reach, Scope
from vault.domain.links import Edge
from vault.models import Memory, MemoryQuerySet
from vault.queries import chains_from, replacing_edges


def states_of(memories: Iterable[Memory], anchor: Anchor) -> dict[str, State]:
    """The state of each memory at the anchor, in one query, or none where nothing replaces anything."""
    memories = list(memories)
    linked = [m.id for m in memories if m.replaced_since is not None]
    states: dict[str, State] = {}
    if linked:
        chains = chains_from(linked, until=anchor.until)
        states = rules.states_of(linked, chains.facts, Successions(chains.edges, anchor), anchor)
    for memory in memories:
        if memory.id not in states:
            reason = standing_reason(memory.facts, anchor)
            states[memory.id] = CURRENT if reason is None else State(current=False, reason=reason)
    return states


def current_page(
    memories: MemoryQuerySet, anchor: Anchor, *, cursor: Cursor | None, limit: int
) -> tuple[Page[Memory], dict[str, State]]:
    """A page of what is current at the anchor, newest first, never starved by what is not.

    Rules 1 to 4 hold in the query; what a link may replace is resolved a batch at a time.
    """
    older = cursor is None or cursor.older
    open_ones = memories.open_at(anchor.at)
    if anchor.past:
        open_ones = open_ones.filter(created_at__lte=anchor.at)
    open_ones = open_ones.order_by("-seq" if older else "seq")
    found: list[Memory] = []
    states: dict[str, State] = {}
    bound = None if cursor is None else cursor.seq
    while len(found) <= limit:
        narrowed = open_ones
        if bound is not None:
            narrowed = open_ones.filter(**{"seq__lt" if older else "seq__gt": bound})
        batch = list(narrowed[: 2 * limit + 1])
        if not batch:
            break
        bound = batch[-1].seq
        states |= states_of(batch, anchor)
        found += [memory for memory in batch if states[memory.id].current]
    shown = found[:limit] if older else found[:limit][::-1]
    more_ahead = len(found) > limit
    more_older = more_ahead if older else True
    more_newer = cursor is not None if older else more_ahead
    page = Page(
        shown,
        Cursor(True, shown[-1].seq) if shown and more_older else None,
        Cursor(False, shown[0].seq) if shown and more_newer else None,
    )
    return page, states


# ----------------------------------------------------------------------------------------------------- quality


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing in the store that somebody should look at."""

    code: str
    message: str
    memory_ids: tuple[str, ...]


def quality(scope: Scope, anchor: Anchor) -> list[Finding]:
    """Circles of replacing links, chains longer than 64, and replacements that fell or were erased."""
    edges = replacing_edges(scope)
    sources = {edge.source for edge in edges}
    successions = Successions(edges, anchor)
    chains = chains_from(sources, until=anchor.until)
    states = rules.states_of(sorted(sources), chains.facts, successions, anchor)
    return [
        *_circles(edges, successions),
        *_long_chains(sources - {edge.target for edge in edges}, states),
        *_fallen_replacements(states),
    ]


def _circles(edges: Sequence[Edge], successions: Successions) -> Iterator[Finding]:
    for members in rules.circles(edges):
        opened = [successions.ignored[member] for member in members if member in successions.ignored]
        if opened:
            what = f"the oldest link, {opened[0].id}, is ignored, so {opened[0].source} counts as the newest"
        else:
            what = "a newer link leads out of the circle and decides"
        message = f"{len(members)} memories replace each other in a circle; {what}"
        yield Finding("supersession_cycle", message, members)


def _long_chains(starts: Iterable[str], states: Mapping[str, State]) -> Iterator[Finding]:
    for start in sorted(starts):
        if states[start].steps > LONG_CHAIN:
            yield Finding("chain_too_long", f"{states[start].steps} replacements in one chain", (start,))


def _fallen_replacements(states: Mapping[str, State]) -> Iterator[Finding]:
    for memory_id, state in states.items():
        if state.inactive and state.current:
            yield Finding(
                "replacement_inactive",
                "What replaced it is itself not current, so it is served",
                (memory_id,),
            )
        elif state.reason == "replacement_erased":
            yield Finding(
                "replacement_erased",
                "What replaced it was erased; it stays suppressed until somebody archives or supersedes it",
                (memory_id,),
            )


# ----------------------------------------------------------------------------------------------------- records


def records_of(reach: Reach, asked: dict[str, str]) -> Any:
    """The records a viewer may see, narrowed by the list's filters (texts, already checked by name)."""
    rows = RecallRecord.objects.visible_to(reach)
    if asked.get("workspace") is not None:  # the empty name is the global workspace
        rows = rows.filter(workspace=asked["workspace"])
    for name in ("surface", "profile", "outcome"):
        if asked.get(name):
            rows = rows.filter(**{name: asked[name]})
    if asked.get("actor"):
        rows = rows.filter(Q(actor_label=asked["actor"]) | Q(actor_id=asked["actor"]))
    if asked.get("grade"):
        rows = rows.filter(**{f"{asked['grade']}__gt": 0})
    if asked.get("warning"):
        rows = rows.filter(warnings__contains=asked["warning"])
    if asked.get("q"):
        rows = rows.filter(query__icontains=asked["q"])
    if asked.get("from"):
        rows = rows.filter(created_at__gte=int(asked["from"]))
    if asked.get("to"):
        rows = rows.filter(created_at__lt=int(asked["to"]))
    return rows.defer("document")


def recalls_of(memory_id: str, reach: Reach, *, limit: int = 50) -> Sequence[RecordHit]:
    """The newest recalls that served, suppressed or replaced a memory, as far as the viewer may see them."""
    visible = RecallRecord.objects.visible_to(reach).values("seq")
    hits = RecordHit.objects.filter(memory__id=memory_id, record__in=visible)
    return list(hits.select_related("record").defer("record__document").order_by("-record")[:limit])


@dataclass(frozen=True, slots=True)
class Overview:
    """The numbers of the first page: thirty days, day by day, and the totals."""

    recalls: int
    recalls_before: int
    served: int
    valid: int
    superseded_served: int
    superseded_in_history: int
    empty: int
    partial: int
    days: list[tuple[date, int, int, int]]

    @property
    def valid_share(self) -> str:
        """The share of served hits that were graded valid, in percent; a dash when none was served."""
        return f"{self.valid / self.served:.1%}" if self.served else "–"

    @property
    def partial_share(self) -> str:
        """The share of recalls that could not look at everything, in percent; a dash when there was none."""
        return f"{self.partial / self.recalls:.1%}" if self.recalls else "–"


def overview(reach: Reach, *, at: UnixMs, days: int = 30) -> Overview:
    """Counts over the last `days` whole UTC days, today included; the `recalls_before` are of as many before."""
    today = at - at % DAY
    start = today - (days - 1) * DAY
    visible = RecallRecord.objects.visible_to(reach)
    rows = visible.filter(created_at__gte=start)
    whole_day = ExpressionWrapper(F("created_at") / DAY, output_field=BigIntegerField())
    sums = [Sum(name) for name in GRADES]
    graded = rows.annotate(day=whole_day).order_by().values_list("day").annotate(*sums)
    per_day = {day * DAY: (valid, stale, invalid) for day, valid, stale, invalid in graded}
    totals = rows.aggregate(
        recalls=Count("seq"),
        served=Sum("served", default=0),
        valid=Sum("valid", default=0),
        superseded=Sum("superseded_served", default=0, filter=Q(history=False)),
        in_history=Sum("superseded_served", default=0, filter=Q(history=True)),
        empty=Count("seq", filter=Q(outcome="empty")),
        partial=Count("seq", filter=Q(outcome="partial")),
    )
    before = visible.filter(created_at__gte=start - days * DAY, created_at__lt=start).count()
    return Overview(
        recalls=totals["recalls"],
        recalls_before=before,
        served=totals["served"],
        valid=totals["valid"],
        superseded_served=totals["superseded"],
        superseded_in_history=totals["in_history"],
        empty=totals["empty"],
        partial=totals["partial"],
        days=[(utc(day).date(), *per_day.get(day, (0, 0, 0))) for day in range(start, today + DAY, DAY)],
    )


def recalls_to_look_at(
    reach: Reach, *, at: UnixMs, days: int = 30, limit: int = 10
) -> Sequence[RecallRecord]:
    """The newest recalls that warned, served something context-invalid, found nothing, or could not look."""
    rows = RecallRecord.objects.visible_to(reach).filter(created_at__gte=at - days * DAY)
    odd = Q(context_invalid__gt=0) | ~Q(warnings="") | Q(outcome__in=["empty", "partial", "unavailable"])
    return list(rows.filter(odd).defer("document").order_by("-seq")[:limit])


def witnessed_heads() -> Iterator[tuple[int, str]]:
    """The heads of the ledger that records stored, each once, in order: verify_ledger holds the chain against them."""
    heads = RecallRecord.objects.filter(ledger_seq__gt=0).values_list("ledger_seq", "ledger_hash")
    yield from heads.distinct().order_by("ledger_seq", "ledger_hash").iterator()
