"""Search engines behind one protocol: what the strategies find, and which memories match the caller's filters."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol, TypeAlias

from ledger.domain.instants import UnixMs
from recall.domain.request import RecallRequest
from recall.domain.state import Anchor
from recall.domain.validity import Lifts
from vault.domain.access import Scope
from vault.domain.facts import Facts
from vault.models import Workspace

Vector = Any  # a float16 array (dim,), as the embedder made it


@dataclass(frozen=True, slots=True)
class Question:
    """A request with everything settled that the index needs: where to look (those workspaces of the scope that
    exist), at which instant, which words to look up, and the query's vector (None: there is none)."""

    request: RecallRequest
    scope: Scope
    workspaces: tuple[Workspace, ...]
    anchor: Anchor
    words: tuple[str, ...] = ()
    vector: Vector | None = None
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
    """A memory that a strategy found, its score there (higher is better), and how it stands.

    OPEN: rules 1-4 hold and no replacing edge leads out: it is current. The rest is doubtful, in one pool: LINKED
    ones, which a replacing edge leaves, may stand or bring in what replaced them; FALLEN ones can do neither, so they
    never take a LINKED one's room. `joined`: some link leads from or to it; in the current view replacing links, which
    current state follows, do not count.
    """

    facts: Facts
    score: float
    pool: int
    joined: bool = False

    @property
    def open(self) -> bool:
        return self.pool == OPEN


class Measured(NamedTuple):
    """How near a memory is to the question, whoever found it: the share of the question's information that its words
    carry, the question's words that it holds, and the cosine (None: without a vector)."""

    lexical: float
    matched: tuple[str, ...]
    cosine: float | None


Submit: TypeAlias = Callable[[Callable[[], Any]], Future[Any]]


class Index(Protocol):
    """One engine. It applies the caller's filters and the state test in the search itself, before any limit."""

    version: str

    def opened(self, scope: Scope) -> AbstractContextManager[tuple[Workspace, ...]]:
        """Hold one state of database and index; gives the workspaces of the scope that exist."""
        ...

    def look_ahead(self, question: Question, vector: Callable[[], Vector | None], submit: Submit) -> None:
        """Begin what takes long and waits for nothing but the question's vector, beside whatever else is looked up.

        `vector` waits for it, and gives None where there is none; `submit` has something done in another thread.
        """
        ...

    def unembedded(self, question: Question) -> int:
        """How many memories in scope have no vector yet."""
        ...

    def lexical(self, question: Question) -> list[Found]:
        """Texts that hold the question's words, best first: up to `pool` open ones and `pool` doubtful ones."""
        ...

    def dense(self, question: Question, *, floor: float) -> list[Found]:
        """Texts whose vectors are nearest to the question's, with cosines of `floor` or more, pools as above."""
        ...

    def by_time(self, question: Question, start: UnixMs | None, end: UnixMs | None) -> list[Found]:
        """Memories written nearest to a span of time; the score is minus the distance in ms."""
        ...

    def by_filters(self, question: Question) -> list[Found]:
        """Without words: everything that matches the filters, newest first (or oldest, as sorted)."""
        ...

    def by_validity(self, question: Question, lifts: Lifts) -> list[Found]:
        """Without words: everything that matches the filters, by the multiplier that it has while it holds. The score
        is the instant at which it would have been written with nothing but its age to speak for it."""
        ...

    def standing(self, question: Question, seqs: Sequence[int]) -> list[Found]:
        """Which of these memories match the caller's filters, and how they stand; scores are 0."""
        ...

    def measured(self, question: Question, candidates: Sequence[Facts]) -> dict[str, Measured]:
        """How near each of these memories is to the question, by id."""
        ...

    def matching(self, question: Question, ids: Iterable[str]) -> set[str]:
        """Which of these memories match the caller's filters."""
        ...


def pools_of(found: list[Found], question: Question, *, by_time: bool = False) -> list[Found]:
    """Merge what the workspaces brought, best first, and cut each pool to its size.

    Where the open pool is full, the doubtful ends at the same score: one below the last open candidate stands no
    better than the open ones that were cut.
    """
    request = question.request
    timed = by_time or request.sort != "score"
    if timed:
        sign = 1 if request.sort == "time_asc" else -1
        found.sort(key=lambda f: (sign * f.facts.created_at, f.facts.id))
    else:
        found.sort(key=lambda f: (-f.score, f.facts.id))
    if not request.current_only:
        return found[: question.pool]
    if not timed:
        found = _down_to_the_last_open(found, question.pool)
    linked = sum(candidate.pool == LINKED for candidate in found)
    room = {
        OPEN: question.pool,
        LINKED: question.pool,
        FALLEN: max(0, question.pool - linked),  # they change no answer: they fill what the others leave
    }
    kept = []
    for candidate in found:
        if room[candidate.pool] > 0:
            room[candidate.pool] -= 1
            kept.append(candidate)
    return kept


def _down_to_the_last_open(found: list[Found], pool: int) -> list[Found]:
    scores = [candidate.score for candidate in found if candidate.open][:pool]
    return [f for f in found if f.score >= scores[-1]] if len(scores) == pool else found
