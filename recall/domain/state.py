"""Current state: whether a memory holds at an instant, and if not, the one reason (behaviour.md, section 3).

A memory is not current for the first of these that holds:

1. archived
2. not_yet_valid        t_valid is later; or, at a past anchor, it was created later
3. expired              t_invalid or expires_at has come (half-open)
4. deprecated           status says so
5. superseded           a replacement that holds by 1-4 stands further along its chain
6. replacement_erased   it has no such replacement, and a memory on its way was erased

A replacement that holds by rules 1-4 may itself fall under rule 6. It is then named, and never served: what is not
current takes nobody's place.

Replacements are walked on a graph with at most one way out of each node: the newest outgoing edge, by
(created_at, id). Where such ways close into a cycle, its oldest edge is ignored, and that node is the head.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias, get_args

from ledger.domain.instants import UnixMs, format_instant
from vault.domain.facts import DEPRECATED, Facts
from vault.domain.links import SUPERSEDED_BY, Edge

Reason: TypeAlias = Literal[
    "archived", "not_yet_valid", "expired", "deprecated", "superseded", "replacement_erased"
]
REASONS: tuple[Reason, ...] = get_args(Reason)
LONG_CHAIN = 64


@dataclass(frozen=True, slots=True)
class Anchor:
    """The instant a question is judged at; `past` when it was given and lies before now."""

    at: UnixMs
    past: bool = False

    @property
    def until(self) -> UnixMs | None:
        """Links created after this are not seen; None: all are."""
        return self.at if self.past else None


class State(NamedTuple):
    """Whether a memory is current; if not, why, and what stands in its place.

    `edge` is the first step of the way to the replacement. `inactive` says that there are replacing edges but
    no replacement that holds: the memory stays, and its hit says so. `ignored` is an edge left out of a cycle
    on the way, `steps` the length of the chain walked.
    """

    current: bool
    reason: Reason | None = None
    replacement_id: str | None = None
    edge: Edge | None = None
    inactive: bool = False
    ignored: Edge | None = None
    steps: int = 0

    @property
    def superseded_by(self) -> str | None:
        """How it was replaced, as the validity signal names it, whatever the `reason`; None: it was not."""
        if self.edge is None or self.inactive:
            return None
        return "ledger" if self.edge.relation == SUPERSEDED_BY else self.edge.relation.lower()


CURRENT = State(current=True)


def standing_reason(facts: Facts, anchor: Anchor) -> Reason | None:
    """Rules 1 to 4, in order: what a memory's own fields say against it."""
    at = anchor.at
    if facts.archived:
        return "archived"
    if (facts.t_valid is not None and facts.t_valid > at) or (anchor.past and facts.created_at > at):
        return "not_yet_valid"
    expiry = facts.expiry
    if expiry is not None and expiry <= at:
        return "expired"
    if facts.status == DEPRECATED:
        return "deprecated"
    return None


class Successions:
    """The replacing edges that count, one out of each node, with cycles opened at their oldest edge."""

    def __init__(self, edges: Iterable[Edge], anchor: Anchor) -> None:
        newest: dict[str, Edge] = {}
        for edge in edges:
            if anchor.until is not None and edge.created_at > anchor.until:
                continue
            best = newest.get(edge.source)
            if best is None or _age(edge) > _age(best):
                newest[edge.source] = edge
        self._way_out = newest
        self.ignored = {edge.source: edge for edge in _oldest_of_each_cycle(newest)}

    def next(self, node: str) -> Edge | None:
        """The edge that decides for a node; None at a head, be it of a chain or of an opened cycle."""
        return None if node in self.ignored else self._way_out.get(node)

    def way_from(self, node: str) -> list[Edge]:
        """The edges from a node to the head of its chain, in order."""
        way: list[Edge] = []
        edge = self.next(node)
        while edge is not None:
            way.append(edge)
            edge = self.next(edge.target)
        return way


def _age(edge: Edge) -> tuple[UnixMs, str]:
    return edge.created_at, edge.id


def _oldest_of_each_cycle(way_out: Mapping[str, Edge]) -> list[Edge]:
    seen: set[str] = set()
    oldest = []
    for start in sorted(way_out):
        path: dict[str, int] = {}
        node = start
        while node in way_out and node not in seen and node not in path:
            path[node] = len(path)
            node = way_out[node].target
        if node in path:
            members = list(path)[path[node] :]
            oldest.append(min((way_out[member] for member in members), key=_age))
        seen.update(path)
    return oldest


def circles(edges: Iterable[Edge]) -> list[tuple[str, ...]]:
    """Every group of memories that replace each other in a circle, also where a newer edge leads out of it.

    Strongly connected components (Tarjan, 1972), without recursion: a chain may be thousands long.
    """
    out: dict[str, list[str]] = {}
    for edge in edges:
        out.setdefault(edge.source, []).append(edge.target)
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    path: list[str] = []
    on_path: set[str] = set()
    found: list[tuple[str, ...]] = []
    for start in sorted(out):
        work = [] if start in order else [(start, iter(out[start]))]
        if work:
            order[start] = low[start] = len(order)
            path.append(start)
            on_path.add(start)
        while work:
            node, targets = work[-1]
            for target in targets:
                if target not in order:
                    order[target] = low[target] = len(order)
                    path.append(target)
                    on_path.add(target)
                    work.append((target, iter(out.get(target, ()))))
                    break
                if target in on_path:
                    low[node] = min(low[node], order[target])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == order[node]:
                    group = path[path.index(node) :]
                    del path[len(path) - len(group) :]
                    on_path -= set(group)
                    if len(group) > 1:
                        found.append(tuple(sorted(group)))
    return sorted(found)


def state_of(memory_id: str, facts: Mapping[str, Facts], successions: Successions, anchor: Anchor) -> State:
    """The state of one memory. `facts` must hold it and every node on its way."""
    return states_of([memory_id], facts, successions, anchor)[memory_id]


def states_of(
    ids: Iterable[str], facts: Mapping[str, Facts], successions: Successions, anchor: Anchor
) -> dict[str, State]:
    """The states of many memories; each chain is walked once, however many of its members are asked for."""
    ends: dict[str, End] = {}
    return {
        memory_id: _state(
            facts[memory_id], _end_of(memory_id, facts, successions, anchor, ends), successions, anchor
        )
        for memory_id in ids
    }


def _state(facts: Facts, end: End, successions: Successions, anchor: Anchor) -> State:
    reason = standing_reason(facts, anchor)
    edge, ignored = successions.next(facts.id), successions.ignored.get(end.head)
    if edge is None:
        return State(current=reason is None, reason=reason, ignored=ignored)
    if reason is None and end.replacement is not None:
        reason = "superseded"
    if reason is None and end.erased:
        reason = "replacement_erased"
    return State(
        current=reason is None,
        reason=reason,
        replacement_id=end.replacement,
        edge=edge,
        inactive=end.replacement is None and not end.erased,
        ignored=ignored,
        steps=end.steps,
    )


class End(NamedTuple):
    """Where the way from a memory leads: the chain's head, its length, and the last memory that holds on it.

    `erased`: an erased memory stands on it.
    """

    head: str
    steps: int = 0
    replacement: str | None = None
    erased: bool = False


def _end_of(
    memory_id: str,
    facts: Mapping[str, Facts],
    successions: Successions,
    anchor: Anchor,
    ends: dict[str, End],
) -> End:
    """Walk forward to the head, or to a node whose end is known; then settle the way back, keeping each end."""
    way: list[Edge] = []
    node = memory_id
    while node not in ends and (edge := successions.next(node)) is not None:
        way.append(edge)
        node = edge.target
    end = ends.setdefault(node, End(head=node))
    for edge in reversed(way):
        end = ends[edge.source] = _one_step_before(end, facts[edge.target], anchor)
    return end


def _one_step_before(end: End, target: Facts, anchor: Anchor) -> End:
    replacement = end.replacement
    if replacement is None and not target.erased and standing_reason(target, anchor) is None:
        replacement = target.id  # nothing further along holds, so the target does
    return End(end.head, end.steps + 1, replacement, end.erased or target.erased)


def in_words(state: State, facts: Facts) -> str:
    """The state as an auditor would write it."""
    match state.reason:
        case None if state.inactive:
            return "Current: what replaced it is itself not current"
        case None:
            return "Current"
        case "archived":
            return "Erased" if facts.erased else "Archived"
        case "not_yet_valid":
            since = facts.created_at if facts.t_valid is None else max(facts.t_valid, facts.created_at)
            return f"Not yet valid: it holds from {format_instant(since)}"
        case "expired":
            assert facts.expiry is not None
            return f"Expired {format_instant(facts.expiry)}"
        case "deprecated" if state.replacement_id is not None:
            return f"Deprecated, and superseded by {state.replacement_id}"
        case "deprecated":
            return "Deprecated, with no successor on record"
        case "superseded":
            return f"Superseded by {state.replacement_id}"
        case "replacement_erased":
            return "Suppressed: what replaced it was erased"
