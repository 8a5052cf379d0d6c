"""Chains of supersession: which event stands at the end, and what must not be joined.

An event has at most one effective successor, so a walk follows one path. It is bounded by what it has visited: no
depth limit cuts a long chain short, and a cycle, which the services refuse to make, cannot hold it up.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ledger.domain import events
from ledger.domain.instants import UnixMs


@dataclass(frozen=True, slots=True)
class Edge:
    """`new` took the place of `old`, as `event_id` says, until `voided_by` undid it."""

    old: str
    new: str
    event_id: str
    created_at: UnixMs
    voided_by: str | None = None
    voided_at: UnixMs | None = None

    @property
    def effective(self) -> bool:
        return self.voided_by is None


@dataclass(frozen=True, slots=True)
class Walk:
    """The way from an event to the end of its chain. `path` begins with the event and ends with the head."""

    path: tuple[str, ...]
    cycle: bool = False

    @property
    def head(self) -> str:
        return self.path[-1]

    @property
    def steps(self) -> int:
        return len(self.path) - 1


def successors(edges: Iterable[Edge]) -> dict[str, Edge]:
    """The effective edge out of each event; where tampering left several, the newest by (created_at, event) decides."""
    found: dict[str, Edge] = {}
    for edge in sorted(edges, key=lambda edge: (edge.created_at, edge.event_id)):
        if edge.effective:
            found[edge.old] = edge
    return found


def walk(start: str, following: Mapping[str, Edge]) -> Walk:
    """Follow the successors from an event to its head.

    In a cycle the oldest edge is ignored (behaviour.md, section 3), so that each of its events has the same head.
    """
    path, place = [start], {start: 0}
    while (edge := following.get(path[-1])) is not None:
        if edge.new in place:
            round_trip = [following[id_] for id_ in path[place[edge.new] :]]
            end = min(round_trip, key=lambda edge: (edge.created_at, edge.event_id)).old
            return Walk((*path[: place[end] + 1],), cycle=True)
        place[edge.new] = len(path)
        path.append(edge.new)
    return Walk(tuple(path))


def closes_cycle(old: str, new: str, following: Mapping[str, Edge]) -> bool:
    """Whether an edge from `old` to `new` would lead back to `old`."""
    return old in walk(new, following).path


# ---- how an event stands in its chain

CURRENT, SUPERSEDED, RETRACTED, UNDONE = "current", "superseded", "retracted", "undone"
CORRECTED = "corrected"  # beside these: what was superseded, or is current, may have a correction

# ---- what an event says about supersession

VOIDED, REINSTATED = "voided", "reinstated"
EFFECT, SUCCESSOR = (
    "effect",
    "successor",
)  # a restore's metadata: it is hashed, so verification can rely on it


@dataclass(frozen=True, slots=True)
class Establishes:
    """The event puts `new` in the place of `old`."""

    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Voids:
    """The event undoes the supersession that `event_id` established."""

    event_id: str


def said_by(
    kind: str, *, id: str, subject_id: str, object_id: str, metadata: Mapping[str, str]
) -> Establishes | Voids | None:
    """What an event's own, hashed words do to supersessions: verify_ledger holds the stored rows against this."""
    if kind == events.CONTEXT_ADDED and object_id:
        return Establishes(object_id, id)
    if kind == events.CORRECTION_SUPERSEDE:
        return Establishes(subject_id, object_id or id)
    if kind == events.CORRECTION_RETRACT:
        return Establishes(subject_id, id)
    if kind == events.CORRECTION_LINK:
        return Establishes(subject_id, object_id)
    if kind == events.CORRECTION_RESTORE:
        if metadata.get(EFFECT) == REINSTATED:
            return Establishes(subject_id, metadata.get(SUCCESSOR, ""))
        return Voids(object_id)
    return None


def contradiction(
    said: Establishes | Voids | None, *, at: UnixMs, stored: Iterable[Edge], voided: Iterable[Edge]
) -> str:
    """Why the table of supersessions is not what an event of that instant says; empty where it is.

    `stored` are the rows that cite the event as what established them, `voided` those that cite it as what undid them.
    """
    stored, voided = list(stored), list(voided)
    wanted = [(said.old, said.new, at)] if isinstance(said, Establishes) else []
    if [(edge.old, edge.new, edge.created_at) for edge in stored] != wanted:
        return _told("supersession", wanted=bool(wanted), stored=bool(stored))
    undone = [(said.event_id, at)] if isinstance(said, Voids) else []
    if [(edge.event_id, edge.voided_at) for edge in voided] != undone:
        return _told("voided supersession", wanted=bool(undone), stored=bool(voided))
    return ""


def _told(what: str, *, wanted: bool, stored: bool) -> str:
    if not stored:
        return f"the {what} that it states is missing from the table of supersessions"
    if not wanted:
        return f"a {what} cites it that it does not state"
    return f"the {what} that it states was changed in the table of supersessions"
