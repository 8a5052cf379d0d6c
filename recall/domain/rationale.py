"""What becomes of recalled context: which of it may be shown, as what, and in which order (behaviour.md, section 8).

A bank is asked for the right memories and is not believed: each one is checked against the ledger.

1. About an item: a memory without its tag, with another item's tag besides, merged by the bank out of several, or
   from an event about another item is out of scope. So is one from an event of another workspace than the bank's.
2. The text of an erased event is not shown, whoever still has it.
3. Without an event of the ledger that the caller may read, nobody knows whose a memory is: only who may read
   everything gets it, as an interpretation.
4. What is current comes first, in the bank's order, then interpretations and remarks, then what was superseded. The
   head of a superseded event's chain stands in its place among what is current, in the ledger's own words.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from ledger.domain.events import CONTEXT_ADDED, CORRECTION_SUPERSEDE
from ledger.domain.instants import UnixMs
from recall.domain.context import BankQuery, ItemQuery, Query, Temporal
from vault.domain.items import ITEM_TAG_PREFIX

Fault: TypeAlias = Literal["scope_violation", "erased", "untraced"]
UNVERIFIABLE_OCCURRENCE = "unverifiable_occurrence"


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextSearch:
    """The arguments of a context search, checked; `workspace` None is the caller's own."""

    query: str
    workspace: str | None = None
    item_id: str | None = None
    occurrence: str | None = None
    temporal: Temporal | None = None
    limit: int = 10

    def as_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}

    def question(self, workspace: str) -> Query:
        """What the bank of one workspace is asked."""
        if self.item_id is None:
            return BankQuery(text=self.query, workspace=workspace, limit=self.limit, temporal=self.temporal)
        return ItemQuery.about(
            self.item_id, text=self.query, workspace=workspace, limit=self.limit, temporal=self.temporal
        )


@dataclass(frozen=True, slots=True)
class Source:
    """The event that a memory comes from, as far as it decides what becomes of it."""

    id: str
    kind: str
    workspace: str
    item_id: str | None
    occurrence: str | None
    occurred_at: UnixMs
    object_id: str
    erased: bool

    @property
    def speaks(self) -> bool:
        """Whether its text is a rationale; the other corrections speak about an event, or put another in its place."""
        return self.kind == CONTEXT_ADDED or (self.kind == CORRECTION_SUPERSEDE and not self.object_id)


def fault_of(
    tags: Sequence[str], source: Source | None, *, merged: bool, query: Query, sees_all: bool
) -> Fault | None:
    """Why a recalled memory is not shown; None where it is. Without a `source` the caller can read no such event."""
    if isinstance(query, ItemQuery):
        about = {tag for tag in tags if tag.startswith(ITEM_TAG_PREFIX)}
        if merged or about != set(query.tags) or (source is not None and source.item_id != query.item_id):
            return "scope_violation"
    if source is None:
        return None if sees_all else "untraced"
    if source.workspace != query.workspace:
        return "scope_violation"
    return "erased" if source.erased else None


def labels_of(asked: str | None, occurrence: str | None) -> tuple[str, ...]:
    """What cannot be verified of a hit: it is about another part of a series than was asked for."""
    return () if occurrence == asked else (UNVERIFIABLE_OCCURRENCE,)


@dataclass(frozen=True, slots=True)
class Standing:
    """A shown memory as the ledger sees it: its event, and where that is superseded, whose text is current now."""

    event_id: str | None
    speaks: bool
    stale: bool = False
    text_event_id: str | None = None


@dataclass(frozen=True, slots=True)
class Placed:
    """One hit to be: the memory at `index`, or the head of a chain, which the bank may have returned at `index`."""

    index: int | None
    head: str | None = None
    current: bool = False


def arranged(found: Sequence[Standing]) -> list[Placed]:
    """The hits in order. A head stands once, where the first of its chain stood, however often the bank returned it."""
    heads = {one.text_event_id for one in found if one.stale and one.text_event_id}
    first_of = {one.event_id: index for index, one in reversed(list(enumerate(found)))}
    current, beside, stale = dict[str, Placed](), list[Placed](), list[Placed]()
    for index, one in enumerate(found):
        head = one.text_event_id if one.stale else one.event_id if one.event_id in heads else None
        if head is not None:
            current.setdefault(head, Placed(first_of.get(head), head, current=True))
        if one.stale:
            stale.append(Placed(index))
        elif head is None and one.speaks:
            current[f"{index}"] = Placed(index, current=True)
        elif head is None:
            beside.append(Placed(index))
    return [*current.values(), *beside, *stale]
