"""What every search engine answers, held against an oracle that looks at one memory after the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from django.db import connection, transaction
from index_worlds import ADA, NOW, TAGS, WORDS, Expected, Oracle, World, cosine

from ledger.domain.instants import DAY
from recall.domain import policy
from recall.domain.request import TAGS_MATCH
from recall.domain.state import CURRENT, Anchor
from recall.domain.validity import Lifts, grade_in_state
from recall.domain.words import words_of
from recall.indexes import FALLEN, LINKED, OPEN, Found, Index, Question
from recall.indexes.resident import ResidentIndex, files, flat, shelf
from recall.indexes.resident.nearest import Matrix
from recall.indexes.sqlite import SqliteIndex
from recall.strategies import NEAR_ENOUGH
from vault import services, vectors
from vault.domain.access import Reach, Scope, scope_of
from vault.fulltext import table_of
from vault.models import Memory, Workspace

SIZE = 500
ANCHORS = (Anchor(NOW), Anchor(NOW - 15 * DAY, past=True), Anchor(NOW + 9 * DAY))
EVERYWHERE = scope_of(None, Reach.everything())


def compared(found: Sequence[Found], expected: Sequence[Expected], *, within: float = 0.0) -> None:
    """The same memories in the same order; those whose scores differ by rounding alone may change places."""
    assert [one.score for one in found] == pytest.approx([one.score for one in expected], abs=within, rel=0)
    got = {one.facts.id: (one.pool, one.joined) for one in found}
    assert got == {one.id: (one.pool, one.joined) for one in expected}
    place = {one.id: n for n, one in enumerate(expected)}
    for n, one in enumerate(found):
        there = expected[place[one.facts.id]]
        assert n == place[one.facts.id] or abs(expected[n].score - there.score) <= within > 0


class IndexContract:
    """Subclasses give the fixture `index`: an engine over a `world` that they filled."""

    @pytest.fixture(scope="class")
    @classmethod
    def oracle(cls, index: Index, world: World) -> Oracle:
        return Oracle.now(world.model.pk)

    def held_to(self, oracle: Oracle, index: Index, question: Question) -> int:
        """Every method's answer to one question; returns how many candidates were compared."""
        with index.opened(question.scope) as workspaces:
            question = replace(question, workspaces=workspaces)
            expected = oracle.lexical(question)
            compared(index.lexical(question), expected, within=1e-12)
            for floor in (NEAR_ENOUGH, -1.0):
                self.held_to_nearest(oracle, index, question, floor)
            compared(index.by_filters(question), oracle.by_filters(question))
            for start, end in ((NOW - 9 * DAY, NOW - 3 * DAY), (None, NOW - 40 * DAY), (NOW - 2 * DAY, None)):
                compared(index.by_time(question, start, end), oracle.by_time(question, start, end))
            fitting = oracle.by_filters(replace(question, widening=1000))
            self.stand(index, question, fitting)
        return len(expected)

    def held_to_nearest(self, oracle: Oracle, index: Index, question: Question, floor: float) -> None:
        compared(index.dense(question, floor=floor), oracle.dense(question, floor))

    def stand(self, index: Index, question: Question, fitting: Sequence[Expected]) -> None:
        """`standing` and `matching` of everything that is stored, in scope or not."""
        everything = list(Memory.objects.values_list("seq", "id"))
        standing = index.standing(question, [seq for seq, _ in everything])
        assert {(f.facts.id, f.score, f.pool, f.joined) for f in standing} == {
            (one.id, 0.0, one.pool, one.joined) for one in fitting
        }
        assert index.matching(question, [id_ for _, id_ in everything]) == {one.id for one in fitting}

    # ------------------------------------------------------------------------------------------- the contract

    def test_questions_at_random_are_answered_as_one_memory_after_the_other_would_be(
        self, index: Index, oracle: Oracle, world: World
    ) -> None:
        sizes = [self.held_to(oracle, index, world.any_question()) for _ in range(40)]
        assert sum(sizes) > 1000  # it was no comparison of nothing with nothing
        assert max(sizes) > 64

    @pytest.mark.parametrize("workspace", [None, "red"])
    def test_every_memory_in_scope_is_measured_whether_it_stands_or_not(
        self, index: Index, oracle: Oracle, world: World, workspace: str | None
    ) -> None:
        question = world.question("note foo_foo databases universities absentword café", workspace=workspace)
        rows = oracle.in_scope(question.scope)
        with index.opened(question.scope) as workspaces:
            question = replace(question, workspaces=workspaces)
            measured = index.measured(question, [row.memory.facts for row in rows])
            assert index.unembedded(question) == sum(not row.vectors for row in rows) > 10
            standing = index.standing(question, [row.memory.seq for row in rows])
        scores, held = oracle.word_scores(question), oracle.words_held(question)
        assert measured.keys() == {row.memory.id for row in rows}
        assert {f.facts.id: f.facts for f in standing} == {row.memory.id: row.memory.facts for row in rows}
        for row in rows:
            lexical, matched, near = measured[row.memory.id]
            assert lexical == pytest.approx(scores[row.memory.id], abs=1e-12)
            assert matched == held[row.memory.id]
            assert near == cosine(row, question)

    @pytest.mark.parametrize("current_only", [True, False])
    @pytest.mark.parametrize("match", TAGS_MATCH)
    def test_tags_narrow_by_every_way_to_match(
        self, index: Index, oracle: Oracle, world: World, match: str, current_only: bool
    ) -> None:
        for tags in ((), (TAGS[0],), TAGS[:2], (TAGS[4], "nowhere")):
            question = world.question(
                "note team tide", tags=tags, tags_match=match, current_only=current_only
            )
            self.held_to(oracle, index, question)

    @pytest.mark.parametrize("anchor", ANCHORS, ids=["now", "past", "ahead"])
    @pytest.mark.parametrize("sort", ["score", "time_desc", "time_asc"])
    @pytest.mark.parametrize("workspace", [None, "", "red"])
    def test_pools_are_drawn_by_the_sort_at_the_anchor_in_the_workspace(
        self, index: Index, oracle: Oracle, world: World, anchor: Anchor, sort: str, workspace: str | None
    ) -> None:
        for current_only in (True, False):
            question = world.question(
                "note plan boats", anchor=anchor, sort=sort, workspace=workspace, current_only=current_only
            )
            self.held_to(oracle, index, question)

    def test_the_other_filters_narrow(self, index: Index, oracle: Oracle, world: World) -> None:
        narrowings: list[dict[str, Any]] = [
            {"category": "plan"},
            {"category": ""},
            {"categories": ("plan", "東京")},
            {"provenance_class": "verified"},
            {"exclude_tags": TAGS[:2]},
            {"start": NOW - 20 * DAY},
            {"end": NOW - 20 * DAY},
            {"start": NOW - 30 * DAY, "end": NOW - 30 * DAY + 1},
        ]
        for narrowing in narrowings:
            for current_only in (True, False):
                self.held_to(
                    oracle, index, world.question("note salt", current_only=current_only, **narrowing)
                )

    @pytest.mark.parametrize("anchor", ANCHORS, ids=["now", "past", "ahead"])
    @pytest.mark.parametrize("workspace", [None, "", "red"])
    def test_by_validity_draws_what_the_policy_grades_highest(
        self, index: Index, oracle: Oracle, world: World, anchor: Anchor, workspace: str | None
    ) -> None:
        lifts = Lifts.of(policy.DEFAULT)
        facts = {row.memory.id: row.memory.facts for row in oracle.rows}
        for current_only in (True, False):
            question = world.question(
                workspace=workspace, anchor=anchor, current_only=current_only, exclude_tags=TAGS[:1]
            )
            with index.opened(question.scope) as workspaces:
                question = replace(question, workspaces=workspaces)
                found = index.by_validity(question, lifts)
            compared(found, oracle.by_validity(question, lifts), within=0.01)  # ms
            graded = [
                grade_in_state(
                    facts[one.facts.id], CURRENT, at=anchor.at, workspace=workspace, weights=policy.DEFAULT
                ).multiplier
                for one in found
                if one.open
            ]
            assert len(graded) > 5
            assert all(one >= other - 1e-9 for one, other in pairwise(graded))

    def test_a_word_of_any_script_is_found_as_the_text_index_knows_it(
        self, index: Index, oracle: Oracle, world: World
    ) -> None:
        for word in WORDS:
            question = world.question(f"{word} absentword", current_only=False)
            with index.opened(question.scope) as workspaces:
                question = replace(question, workspaces=workspaces)
                expected = oracle.lexical(question)
                assert expected or word == "🙂", word
                compared(index.lexical(question), expected, within=1e-12)

    def test_bm25_is_that_of_fts5(self, index: Index, oracle: Oracle, world: World) -> None:
        question = world.question("harbour rope mast", workspace="red", current_only=False, limit=200)
        with index.opened(Scope(("red",))) as workspaces:
            question = replace(question, workspaces=workspaces, scope=Scope(("red",)))
            found = index.lexical(question)
        table = table_of(Workspace.objects.get(name="red").pk)
        with connection.cursor() as cursor:
            cursor.execute(
                f"SELECT rowid, -bm25({table}) FROM {table} WHERE {table} MATCH 'harbour OR rope OR mast'"
            )
            theirs = dict(cursor.fetchall())
        assert len(found) > 50
        ours = {one.facts.seq: one.score for one in found}
        assert ours.keys() == theirs.keys()
        scale = max(theirs.values()) / max(ours.values())
        assert ours == pytest.approx({seq: score / scale for seq, score in theirs.items()}, rel=1e-12)

    def test_more_than_32_words_are_cut_and_a_frequent_word_is_dropped(
        self, index: Index, oracle: Oracle, world: World
    ) -> None:
        words = words_of(" ".join([*WORDS[:40], "note"]))
        assert len(words) == 32
        self.held_to(oracle, index, world.question(" ".join(words), workspace="red"))
        rare = world.question("note harbour rope", workspace="red")
        with index.opened(rare.scope) as workspaces:
            measured = index.measured(
                replace(rare, workspaces=workspaces), [r.memory.facts for r in oracle.in_scope(rare.scope)]
            )
        red = {row.memory.id for row in oracle.rows if row.memory.workspace.name == "red"}
        assert sum("note" in row.terms for row in oracle.rows) > 100
        assert {word for id_ in red for word in measured[id_].matched} == {"harbour", "rope"}

    def test_without_words_without_a_vector_and_without_a_workspace_nothing_is_found(
        self, index: Index, world: World
    ) -> None:
        nowhere = Scope(("nowhere",))
        question = replace(world.question("note"), scope=nowhere)
        with index.opened(nowhere) as workspaces:
            assert workspaces == ()
            assert index.lexical(question) == index.dense(question, floor=-1.0) == []
            assert index.by_filters(question) == index.by_time(question, None, NOW) == []
            assert index.unembedded(question) == 0
        with index.opened(EVERYWHERE) as workspaces:
            blank = replace(world.question("🙂"), workspaces=workspaces, vector=None)
            assert index.lexical(blank) == index.dense(blank, floor=-1.0) == []
            facts = [Memory.objects.filter(erased_at=None)[0].facts]
            (measured,) = index.measured(blank, facts).values()
            assert measured == (0.0, (), None)

    def test_an_empty_workspace_beside_others_adds_nothing(self, index: Index, world: World) -> None:
        only = Workspace.objects.get(name="emptied")
        with index.opened(Scope(("emptied",))) as workspaces:
            assert [workspace.pk for workspace in workspaces] == [only.pk]
            question = replace(world.question("note"), workspaces=workspaces)
            assert index.lexical(question) == index.dense(question, floor=-1.0) == []
            assert index.by_filters(question) == []
            assert index.unembedded(question) == 0

    def test_every_pool_holds_something(self, oracle: Oracle, world: World) -> None:
        pools = [one.pool for one in oracle.by_filters(replace(world.question(), widening=1000))]
        assert min(pools.count(pool) for pool in (OPEN, LINKED, FALLEN)) > 64


def filled(world: World, index: Index | None = None, *, size: int = SIZE) -> None:
    """Fill a world; an index that is given looks on between the steps, and so catches up with each."""
    for gone in world.remember([{"text": "note to be gone", "workspace": "emptied"}]):
        services.erase(gone.id, caller=ADA, at=NOW, reason="asked to")
    world.remember([{"text": f"note {name}", "workspace": name} for name in ("", "red", "blue")])
    if index is not None:
        look(index)
    for _ in world.grow(size):
        if index is not None:
            look(index)


def look(index: Index) -> None:
    with index.opened(EVERYWHERE):
        pass


class TestSqlite(IndexContract):
    @pytest.fixture(scope="class")
    @classmethod
    def index(cls, world: World) -> Index:
        filled(world)
        return SqliteIndex()


class TestResidentBase(IndexContract):
    @pytest.fixture(scope="class")
    @classmethod
    def index(cls, world: World) -> Index:
        filled(world)
        return ResidentIndex()


class TestResidentTail(IndexContract):
    @pytest.fixture(scope="class")
    @classmethod
    def index(cls, world: World) -> Index:
        index = ResidentIndex()
        filled(world, index)
        look(index)
        kept = index._kept[Workspace.objects.get(name="red").pk]
        assert kept.base.size < 5
        assert kept.tail.size > SIZE / 2
        return index


class TestResidentFiles(IndexContract):
    """Files from 40 rows on; the last steps lie in a tail above them."""

    @pytest.fixture(scope="class")
    @classmethod
    def index(cls, world: World, patched: pytest.MonkeyPatch) -> Index:
        patched.setattr(shelf, "FILED", 40)
        filled(world, size=SIZE - 150)
        index = ResidentIndex()
        filled(world, index, size=150)
        red = Workspace.objects.get(name="red")
        kept = index._kept[red.pk]
        assert isinstance(kept.base.vectors, flat.Flat)
        assert kept.tail.size > 20
        assert files.newest_mark(red) > 0
        return index


class TestResidentFilesAlone(IndexContract):
    """Nothing but files, read by another than who wrote them."""

    @pytest.fixture(scope="class")
    @classmethod
    def index(cls, world: World, patched: pytest.MonkeyPatch) -> Index:
        patched.setattr(shelf, "FILED", 40)
        filled(world)
        look(ResidentIndex())
        index = ResidentIndex()
        look(index)
        kept = index._kept[Workspace.objects.get(name="red").pk]
        assert isinstance(kept.base.vectors, flat.Flat)
        assert kept.tail.size == 0
        return index


@pytest.mark.slow
def test_a_scan_of_bytes_finds_the_nearest_of_many_in_clusters_and_in_their_order(
    world: World, patched: pytest.MonkeyPatch
) -> None:
    """20,000 vectors in 200 clusters, so near each other that their bytes alone would put them in another order."""
    numbers = np.random.default_rng(3)
    centres = numbers.normal(size=(200, world.model.dim)) + 0.5 * numbers.normal(size=world.model.dim)
    drawn = centres[numbers.integers(0, 200, 20_000)] + 0.8 * numbers.normal(size=(20_000, world.model.dim))
    made = (drawn / np.linalg.norm(drawn, axis=1, keepdims=True)).astype(np.float16)
    for start in range(0, len(made), 1000):
        with transaction.atomic():
            rows = services.remember_many(
                [({"text": f"note {start + n}", "workspace": "red"}, "") for n in range(1000)],
                caller=ADA,
                at=NOW,
            )
            seqs = [one.memory.seq for one in rows if isinstance(one, services.Remembered)]
            vectors.store(
                ((seq, made[start + n : start + n + 1]) for n, seq in enumerate(seqs)), model=world.model
            )
    patched.setattr(shelf, "FILED", 10**9)
    exact = ResidentIndex()
    look(exact)
    assert isinstance(exact._kept[Workspace.objects.get(name="red").pk].base.vectors, Matrix)
    patched.setattr(shelf, "FILED", 40)
    filed = ResidentIndex()
    for n in range(60):
        question = world.question(workspace="red", limit=(10, 200)[n % 2])
        near = made[n * 300].astype(np.float64) + 0.5 * world.unit()
        question = replace(question, vector=(near / np.linalg.norm(near)).astype(np.float16))
        found = []
        for index in (exact, filed):
            with index.opened(question.scope) as workspaces:
                seeing = replace(question, workspaces=workspaces)
                found.append([(f.facts.id, f.score) for f in index.dense(seeing, floor=-1.0)])
        assert found[0] == found[1]
    assert isinstance(filed._kept[Workspace.objects.get(name="red").pk].base.vectors, flat.Flat)
