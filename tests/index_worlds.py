"""Vaults for tests of the search engines, and what an engine ought to answer, worked out one memory at a time.

The oracle shares no code with the engines but the definitions of state (`standing_reason`) and of words worth asking:
filters are Python conditions, BM25 is its formula over counted terms, cosines are whole numbers.
"""

from __future__ import annotations

import math
import random
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from django.core.management import call_command
from django.db import connection, transaction
from django.test import override_settings
from numpy.typing import NDArray

from ledger.domain.actors import Actor
from ledger.domain.instants import DAY, UnixMs, parse_instant
from recall.domain.request import TAGS_MATCH, RecallRequest
from recall.domain.state import Anchor, standing_reason
from recall.domain.validity import Lifts
from recall.domain.words import words_of, worth_asking
from recall.indexes import FALLEN, LINKED, OPEN, Question
from vault import services, vectors
from vault.domain.access import Reach, Scope, scope_of
from vault.domain.facts import PROVENANCE_CLASSES, STATUSES
from vault.domain.links import LINK_TYPES, REPLACING
from vault.fulltext import terms_of, terms_of_word
from vault.models import Embedding, Memory, MemoryLink
from vault.services import Caller

NOW = parse_instant("2026-11-30T12:00:00Z")
ADA = Caller(Actor(kind="user", id="1", label="ada"), Reach.everything())
TAGS = ("alpha", "beta", "gamma", "delta", "ünï")
CATEGORIES = ("", "plan", "fact", "東京")
WORKSPACES = ("", "red", "blue")
WORDS = (
    "generations databases universities relational outline reviewer boats Marta peanuts Thursday deploys gauge "
    "caresses ponies hesitancies hopping falling naïve café CAFÉ cafe\u0301 東京 京都 हिन्दी Straße Ärger 🙂 "
    "snake_case foo_foo databases_foo x² 42 3.14 don't STRASSE ﬁne Ωmega 한국어 tide harbour salt rope mast anchor"
).split()
COMMON = ("note", "team", "plan")
Half = NDArray[np.float16]


def template(paths: pytest.TempPathFactory) -> Path:
    """An empty migrated database, made once in a test process, to be copied."""
    path = paths.getbasetemp() / "migrated" / "recall.sqlite3"
    if not path.exists():
        path.parent.mkdir()
        with database_in(path.parent):
            call_command("migrate", verbosity=0)
    return path


@contextmanager
def database_in(folder: Path, copied: Path | None = None) -> Iterator[Path]:
    """Let this process work on the database and the index files of a folder for a while."""
    path = folder / "recall.sqlite3"
    if copied is not None:
        shutil.copy(copied, path)
    connection.close()
    before = connection.settings_dict["NAME"]
    connection.settings_dict["NAME"] = str(path)
    try:
        with override_settings(DATA_DIR=folder):
            yield path
    finally:
        connection.close()
        connection.settings_dict["NAME"] = before


@dataclass
class World:
    """The vault under test: writes by the services, vectors of our own making under the installed model's name."""

    random: random.Random = field(default_factory=lambda: random.Random(7))
    numbers: np.random.Generator = field(default_factory=lambda: np.random.default_rng(7))

    def __post_init__(self) -> None:
        self.model = vectors.model_of(vectors.installed())
        self.centres = [self.unit() for _ in range(6)]

    def unit(self) -> NDArray[np.float64]:
        drawn = self.numbers.normal(size=self.model.dim)
        return drawn / np.linalg.norm(drawn)

    def vector(self, spread: float = 0.6) -> Half:
        """Near one of six centres."""
        drawn = self.random.choice(self.centres) + spread * self.unit()
        return (drawn / np.linalg.norm(drawn)).astype(np.float16)

    def text(self) -> str:
        chosen = self.random.choices(WORDS, k=self.random.randint(1, 9))
        chosen += [word for word in COMMON if self.random.random() < 0.3]
        self.random.shuffle(chosen)
        return " ".join(chosen)

    def fields(self) -> dict[str, Any]:
        """A memory at random: about a third of them do not stand, and instants tie."""
        draw = self.random
        created = NOW - draw.randint(0, 60) * DAY
        sent: dict[str, Any] = {
            "text": self.text(),
            "workspace": draw.choices(WORKSPACES, weights=(1, 8, 2))[0],
            "tags": draw.sample(TAGS, draw.choice((0, 0, 1, 1, 2, 3))),
            "category": draw.choice(CATEGORIES),
            "provenance_class": draw.choice(PROVENANCE_CLASSES),
            "status": draw.choices(STATUSES, weights=(8, 1, 1, 1, 1))[0],
            "created_at": created,
        }
        if draw.random() < 0.15:
            sent["t_valid"] = NOW + draw.choice((-20, -1, 0, 1, 20)) * DAY
        if draw.random() < 0.15:
            sent["t_invalid"] = sent.get("t_valid", NOW) + draw.choice((1, 15)) * DAY
        elif draw.random() < 0.1 and "t_valid" not in sent:
            sent["t_invalid"] = NOW - draw.choice((0, 1, 15)) * DAY
        if draw.random() < 0.2:
            sent["expires_at"] = NOW + draw.choice((-10, -1, 0, 1, 10)) * DAY
        return sent

    def remember(self, rows: Sequence[dict[str, Any]]) -> list[Memory]:
        """Store rows at once, most of them with vectors of one to three chunks."""
        with transaction.atomic():
            written = services.remember_many([(row, "") for row in rows], caller=ADA, at=NOW)
            memories = [one.memory for one in written if isinstance(one, services.Remembered)]
            assert len(memories) == len(rows), written
            self.embed([memory for memory in memories if self.random.random() < 0.85])
        return memories

    def embed(self, memories: Sequence[Memory]) -> None:
        """Give memories vectors; every tenth has one that another has too."""
        made = []
        for memory in memories:
            chunks = [self.vector() for _ in range(self.random.choice((1, 1, 1, 2, 3)))]
            if self.random.random() < 0.1:
                chunks[0] = self.centres[0].astype(np.float16)
            made.append((memory.seq, np.stack(chunks)))
        vectors.store(made, model=self.model)

    def grow(self, size: int) -> Iterator[list[Memory]]:
        """Fill the vault in steps: rows, then links, archived, erased and revised ones."""
        for _ in range(size // 50):
            with transaction.atomic():
                memories = self.remember([self.fields() for _ in range(50)])
                for _ in range(40):
                    self.link(memories)
                for memory in self.random.sample(memories, 6):
                    services.archive(memory.id, caller=ADA, at=NOW)
                for memory in self.random.sample(memories, 3):
                    services.erase(memory.id, caller=ADA, at=NOW, reason="asked to")
            yield memories

    def link(self, among: Sequence[Memory]) -> None:
        source, target = self.random.sample(among, 2)
        if source.workspace_id != target.workspace_id:
            return
        type_ = self.random.choice((*REPLACING, *REPLACING, *LINK_TYPES))
        if MemoryLink.objects.filter(source=source, target=target, type=type_).exists():
            return
        created = NOW - self.random.randint(0, 30) * DAY
        services.link(source.id, target.id, type_, caller=ADA, at=NOW, created_at=created)

    # -------------------------------------------------------------------------------------- questions

    def question(self, query: str = "", *, anchor: Anchor | None = None, **arguments: Any) -> Question:
        request = RecallRequest(query=query, **arguments)
        scope = scope_of(request.workspace, Reach.everything())
        words = tuple(words_of(query))
        return Question(request, scope, (), anchor or Anchor(NOW), words, self.vector(0.3))

    def any_question(self) -> Question:
        """Words, filters, sort, anchor, scope: all at random."""
        draw = self.random
        words = draw.choices((*WORDS, *COMMON, "absentword"), k=draw.choice((1, 2, 3, 5, 40)))
        arguments: dict[str, Any] = {
            "workspace": draw.choice((None, "", "red", "red", "blue")),
            "limit": draw.choice((1, 10, 20)),
            "current_only": draw.random() < 0.7,
            "sort": draw.choice(("score", "score", "time_desc", "time_asc")),
        }
        if draw.random() < 0.4:
            arguments["tags"] = tuple(draw.choices((*TAGS, "nowhere"), k=draw.randint(0, 3)))
            arguments["tags_match"] = draw.choice(TAGS_MATCH)
        if draw.random() < 0.2:
            arguments["exclude_tags"] = tuple(draw.sample(TAGS, 2))
        if draw.random() < 0.2:
            arguments["category"] = draw.choice((*CATEGORIES, "nowhere"))
        if draw.random() < 0.1:
            arguments["categories"] = ("plan", "nowhere")
        if draw.random() < 0.2:
            arguments["provenance_class"] = draw.choice(PROVENANCE_CLASSES)
        if draw.random() < 0.2:
            arguments["start"] = NOW - draw.randint(0, 60) * DAY
        if draw.random() < 0.2:
            arguments["end"] = NOW - draw.randint(-1, 60) * DAY
        anchor = draw.choice((Anchor(NOW), Anchor(NOW), Anchor(NOW - 15 * DAY, True), Anchor(NOW + 9 * DAY)))
        return self.question(" ".join(words), anchor=anchor, **arguments)


# ------------------------------------------------------------------------------------------------ the oracle


@dataclass(frozen=True)
class Row:
    """A memory as the oracle sees it."""

    memory: Memory
    tags: frozenset[str]
    terms: Counter[str]
    vectors: tuple[Half, ...]
    replaced_since: UnixMs | None
    links: frozenset[str]


@dataclass
class Oracle:
    """All that is stored, read through the ORM."""

    rows: list[Row]

    @classmethod
    def now(cls, model_id: int) -> Oracle:
        memories = Memory.objects.select_related("workspace").filter(erased_at=None).order_by("seq")
        listed = list(memories.prefetch_related("tags"))
        counted: dict[int, Counter[str]] = {memory.seq: Counter() for memory in listed}
        for place, term, count in terms_of([memory.text for memory in listed]):
            counted[listed[place].seq][term] = count
        held: dict[int, list[Half]] = {}
        for seq, blob in Embedding.objects.filter(model_id=model_id).values_list("memory_id", "vector"):
            held.setdefault(seq, []).append(np.frombuffer(blob, np.float16))
        since: dict[int, UnixMs] = {}
        links: dict[int, set[str]] = {}
        for link in MemoryLink.objects.all():
            for end in (link.source_id, link.target_id):
                links.setdefault(end, set()).add(link.type)
            if link.type in REPLACING:
                since[link.source_id] = min(link.created_at, since.get(link.source_id, link.created_at))
        return cls(
            [
                Row(
                    m,
                    frozenset(tag.tag for tag in m.tags.all()),
                    counted[m.seq],
                    tuple(held.get(m.seq, ())),
                    since.get(m.seq),
                    frozenset(links.get(m.seq, ())),
                )
                for m in listed
            ]
        )

    def in_scope(self, scope: Scope) -> list[Row]:
        return [row for row in self.rows if scope.covers(row.memory.workspace.name)]

    def fitting(self, question: Question) -> list[Row]:
        return [row for row in self.in_scope(question.scope) if fits(row, question.request)]

    def lexical(self, question: Question) -> list[Expected]:
        scores = self.word_scores(question)
        return drawn(
            [(r, scores[r.memory.id]) for r in self.fitting(question) if scores[r.memory.id]], question
        )

    def dense(self, question: Question, floor: float) -> list[Expected]:
        near = [(row, cosine(row, question)) for row in self.fitting(question) if row.vectors]
        return drawn([(row, c) for row, c in near if c is not None and c >= floor], question)

    def by_time(self, question: Question, start: UnixMs | None, end: UnixMs | None) -> list[Expected]:
        return drawn([(row, -distance(row, start, end)) for row in self.fitting(question)], question)

    def by_filters(self, question: Question) -> list[Expected]:
        return drawn([(row, 0.0) for row in self.fitting(question)], question, by_time=True)

    def by_validity(self, question: Question, lifts: Lifts) -> list[Expected]:
        """By the instant of writing, moved by what else counts."""
        at = question.anchor.at
        scored = []
        for row in self.fitting(question):
            facts = row.memory.facts
            score = float(min(facts.created_at, at))
            score += lifts.asserted if facts.provenance_class in ("verified", "corroborated") else 0.0
            if facts.expiry is not None and 1 <= facts.expiry - at <= lifts.half_life:
                score += lifts.expiring
            score += lifts.exact_scope if facts.workspace == question.request.workspace else 0.0
            scored.append((row, score))
        return drawn(scored, question)

    def word_scores(self, question: Question) -> dict[str, float]:
        """BM25 of each memory as a share of the question's information, workspace by workspace."""
        scores: dict[str, float] = {}
        for rows in self._by_workspace(question):
            terms, weights, mean = self._asked(rows, question.words)
            scale = 1.2 * sum(weights.values())
            for row in rows:
                words = sum(row.terms.values())
                told = 0.0
                for term in terms:
                    f = row.terms[term]
                    told += weights[term] * f * 2.2 / (f + 1.2 * (0.25 + 0.75 * words / mean)) if f else 0.0
                scores[row.memory.id] = told / scale if scale else 0.0
        return scores

    def words_held(self, question: Question) -> dict[str, tuple[str, ...]]:
        held: dict[str, tuple[str, ...]] = {}
        for rows in self._by_workspace(question):
            terms, _, _ = self._asked(rows, question.words)
            for row in rows:
                held[row.memory.id] = tuple(dict.fromkeys(w for term, w in terms.items() if row.terms[term]))
        return held

    def _by_workspace(self, question: Question) -> list[list[Row]]:
        grouped: dict[int, list[Row]] = {}
        for row in self.in_scope(question.scope):
            grouped.setdefault(row.memory.workspace_id, []).append(row)
        return list(grouped.values())

    def _asked(self, rows: list[Row], words: Sequence[str]) -> tuple[dict[str, str], dict[str, float], float]:
        """The terms worth asking with the word each came from, their weights, and the mean length of a text."""
        spelt: dict[str, str] = {}
        for word in words:
            for term in terms_of_word(word):
                spelt.setdefault(term, word)
        holding = {term: sum(1 for row in rows if row.terms[term]) for term in spelt}
        worth = worth_asking(holding, len(rows))
        weights = {t: max(math.log((len(rows) - holding[t] + 0.5) / (holding[t] + 0.5)), 1e-6) for t in worth}
        mean = sum(sum(row.terms.values()) for row in rows) / len(rows)
        return {term: spelt[term] for term in worth}, weights, mean


@dataclass(frozen=True)
class Expected:
    id: str
    score: float
    pool: int
    joined: bool


def fits(row: Row, request: RecallRequest) -> bool:
    memory = row.memory
    wanted = set(request.tags)
    tagged = {
        "any": not wanted or bool(row.tags & wanted) or not row.tags,
        "all": not wanted or row.tags >= wanted or not row.tags,
        "any_strict": not wanted or bool(row.tags & wanted),
        "all_strict": row.tags >= wanted,
        "exact": row.tags == wanted,
    }
    return (
        tagged[request.tags_match]
        and not row.tags & set(request.exclude_tags)
        and request.category in (None, memory.category)
        and (not request.categories or memory.category in request.categories)
        and request.provenance_class in (None, memory.provenance_class)
        and (request.start is None or memory.created_at >= request.start)
        and (request.end is None or memory.created_at < request.end)
    )


def pool_of(row: Row, anchor: Anchor) -> int:
    since = row.replaced_since
    if since is not None and (not anchor.past or since <= anchor.at):
        return LINKED
    return OPEN if standing_reason(row.memory.facts, anchor) is None else FALLEN


def cosine(row: Row, question: Question) -> float | None:
    """The best chunk's, in whole numbers: a half times 2^24 is one, and so the sum of products is exact."""
    if question.vector is None or not row.vectors:
        return None
    query = whole(question.vector)
    return max(int(whole(vector) @ query) for vector in row.vectors) / 2.0**48


def whole(vector: Half) -> NDArray[np.int64]:
    return (vector.astype(np.float64) * 2.0**24).astype(np.int64)


def distance(row: Row, start: UnixMs | None, end: UnixMs | None) -> int:
    at = row.memory.created_at
    before = 0 if start is None else start - at
    after = 0 if end is None else at - (end - 1)
    return max(0, before, after)


def drawn(scored: list[tuple[Row, float]], question: Question, *, by_time: bool = False) -> list[Expected]:
    """The pools: the open ones up to `pool`; where those are full, doubtful ones only of the same score or better."""
    request = question.request
    timed = by_time or request.sort != "score"
    sign = 1 if request.sort == "time_asc" else -1

    def key(one: tuple[Row, float]) -> tuple[float, str]:
        row, score = one
        return (sign * row.memory.created_at if timed else -score, row.memory.id)

    ranked = sorted(scored, key=key)
    if not request.current_only:
        return [expected(row, score, question) for row, score in ranked[: question.pool]]
    pools: dict[int, list[tuple[Row, float]]] = {OPEN: [], LINKED: [], FALLEN: []}
    for row, score in ranked:
        pools[pool_of(row, question.anchor)].append((row, score))
    chosen = pools[OPEN][: question.pool]
    if len(chosen) == question.pool and not timed:
        least = chosen[-1][1]
        pools = {pool: [one for one in members if one[1] >= least] for pool, members in pools.items()}
    linked = pools[LINKED][: question.pool]
    chosen = [*chosen, *linked, *pools[FALLEN][: question.pool - len(linked)]]
    return [expected(row, score, question) for row, score in sorted(chosen, key=key)]


def expected(row: Row, score: float, question: Question) -> Expected:
    left_out = REPLACING if question.request.current_only else ()  # current state follows those
    joined = bool(row.links - {*left_out})
    return Expected(row.memory.id, score, pool_of(row, question.anchor), joined)
