"""Search engines behind one protocol: what a strategy finds, and which memories match the caller's filters."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

from recall.domain.request import RecallRequest
from recall.domain.state import Anchor
from vault.domain.access import Scope
from vault.domain.facts import Facts
from vault.models import Workspace


@dataclass(frozen=True, slots=True)
class Question:
    """A request with everything settled that the index needs: where to look (those workspaces of the scope that
    exist), and at which instant."""

    request: RecallRequest
    scope: Scope
    workspaces: tuple[Workspace, ...]
    anchor: Anchor
    widening: int = 1

    @property
    def pool(self) -> int:
        """How many candidates each strategy brings at the most, into each of its two pools."""
        return min(max(self.request.limit * 5, 64), 2000) * self.widening

    def widened(self) -> Question:
        """The same question with larger pools, for when smaller ones left the answer short."""
        return replace(self, widening=self.widening * 8)


OPEN, LINKED, FALLEN = range(3)


class Found(NamedTuple):
    """A memory that a strategy found, and how it stands.

    OPEN: rules 1-4 hold and no replacing edge leads out: it is current. The rest is doubtful, in one pool: LINKED
    ones, which a replacing edge leaves, may stand or bring in what replaced them; FALLEN ones can do neither, so they
    never take a LINKED one's room.
    """

    facts: Facts
    score: float
    pool: int

    @property
    def open(self) -> bool:
        return self.pool == OPEN


class Index(Protocol):
    """One engine. It applies the caller's filters and the state test in the search itself, before any limit."""

    version: str

    def lexical(self, question: Question) -> list[Found]:
        """Texts that hold the question's words, best first: up to `pool` open ones and `pool` doubtful ones."""
        ...

    def by_filters(self, question: Question) -> list[Found]:
        """Without words: everything that matches the filters, newest first (or oldest, as sorted)."""
        ...

    def matching(self, question: Question, ids: Iterable[str]) -> set[str]:
        """Which of these memories match the caller's filters."""
        ...
