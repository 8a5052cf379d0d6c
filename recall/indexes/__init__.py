"""Search engines behind one protocol: what a strategy finds, and which memories match the caller's filters."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
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

    @property
    def pool(self) -> int:
        """How many candidates each strategy brings at the most, into each of its two pools."""
        return min(max(self.request.limit * 5, 64), 2000)


class Found(NamedTuple):
    """A memory that a strategy found. `open`: rules 1-4 hold and nothing replaces it; else it is doubtful."""

    facts: Facts
    score: float
    open: bool


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
