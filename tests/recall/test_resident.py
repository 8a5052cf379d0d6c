"""The resident index kept across real writes: it catches up to what a fresh reading of the database gives, and to the
last bit; other databases, other workspaces and other threads do not lead it astray."""

from __future__ import annotations

import random
import shutil
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from django.db import connection, transaction
from index_worlds import ADA, NOW, World, database_in, template

from recall.embedders import installed
from recall.indexes import Found, Index, Question
from recall.indexes.resident import ResidentIndex, shelf
from recall.indexes.sqlite import SqliteIndex
from vault import services, vectors
from vault.domain.access import Reach, scope_of
from vault.models import Memory, MemoryLink, Workspace

EVERYWHERE = scope_of(None, Reach.everything())


@pytest.fixture
def world(
    tmp_path: Path, django_db_blocker: Any, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    with django_db_blocker.unblock(), database_in(tmp_path, template(tmp_path_factory)):
        yield World()


def look(index: Index) -> None:
    with index.opened(EVERYWHERE):
        pass


def answers(index: Index, question: Question) -> dict[str, list[Found]]:
    with index.opened(question.scope) as workspaces:
        question = replace(question, workspaces=workspaces)
        return {
            "lexical": index.lexical(question),
            "dense": index.dense(question, floor=0.2),
            "time": index.by_time(question, NOW - 10, NOW),
            "filters": index.by_filters(question),
        }


def same_but_for_rounding(one: list[Found], other: list[Found]) -> bool:
    """Memories, pools, facts, and scores to 1e-12; where scores tie but for rounding, places may differ."""
    scores = {f.facts.id: f.score for f in other}
    return (
        [f.score for f in one] == pytest.approx([f.score for f in other], abs=1e-12, rel=0)
        and {f._replace(score=0.0) for f in one} == {f._replace(score=0.0) for f in other}
        and all(abs(f.score - scores[f.facts.id]) < 1e-12 for f in one)
    )


# ------------------------------------------------------------------------------------------------ a random walk


class Walk:
    """Writes at random, each a transaction of its own."""

    def __init__(self, world: World, seed: int) -> None:
        self.world = world
        self.random = world.random = random.Random(seed)

    def step(self) -> None:
        weights = {self.create: 4, self.bulk: 2, self.retext: 3, self.retag: 2, self.retime: 2, self.archive: 2,
                   self.restore: 1, self.erase: 2, self.link: 4, self.unlink: 1, self.supersede: 2,
                   self.embed: 1}  # fmt: skip
        (act,) = self.random.choices(list(weights), list(weights.values()))
        act()

    def one(self, **filters: Any) -> Memory | None:
        listed = list(Memory.objects.filter(erased_at=None, **filters).select_related("workspace"))
        return self.random.choice(listed) if listed else None

    def revise(self, memory: Memory | None, **sent: Any) -> None:
        if memory is not None:
            services.revise(memory.id, sent, caller=ADA, at=NOW, embed=False)

    def create(self) -> None:
        self.world.remember([self.world.fields()])

    def bulk(self) -> None:
        self.world.remember([self.world.fields() for _ in range(self.random.randint(2, 12))])

    def retext(self) -> None:
        self.revise(self.one(), text=self.world.text())

    def retag(self) -> None:
        self.revise(self.one(), tags=self.random.sample(["alpha", "beta", "gamma"], 2), category="plan")

    def retime(self) -> None:
        self.revise(
            self.one(t_invalid=None, t_valid=None), created_at=NOW - self.random.randint(0, 9), expires_at=NOW
        )

    def archive(self) -> None:
        self.revise(self.one(archived=False), archived=True)

    def restore(self) -> None:
        self.revise(self.one(archived=True), archived=False)

    def erase(self) -> None:
        memory = self.one()
        if memory is not None:
            services.erase(memory.id, caller=ADA, at=NOW, reason="asked to")

    def link(self) -> None:
        workspace = self.random.choice(Workspace.objects.order_by("pk"))
        among = list(Memory.objects.filter(workspace=workspace).order_by("seq"))
        if len(among) > 1:
            self.world.link(among)

    def unlink(self) -> None:
        links = list(MemoryLink.objects.order_by("seq"))
        if links:
            services.unlink(self.random.choice(links).id, caller=ADA, at=NOW)

    def supersede(self) -> None:
        old = self.one()
        if old is not None:
            services.supersede(old.id, sent={"text": self.world.text()}, caller=ADA, at=NOW)

    def embed(self) -> None:
        """The real batch, of whatever has no vector: it is short here."""
        for _ in vectors.embed_missing(installed()):
            pass


@pytest.mark.parametrize("filed", [False, True], ids=["in memory", "in files"])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_an_index_kept_across_any_writes_answers_like_one_that_was_just_read(
    world: World, monkeypatch: pytest.MonkeyPatch, seed: int, filed: bool
) -> None:
    monkeypatch.setattr(shelf, "LONG_TAIL", 25)
    monkeypatch.setattr(shelf, "STEP", 7)
    if filed:
        monkeypatch.setattr(shelf, "FILED", 30)
    walk, kept = Walk(world, seed), ResidentIndex()
    world.remember([world.fields() for _ in range(40)])
    compared = 0
    for step in range(80):
        walk.step()
        if step % 4:
            continue
        for question in (world.any_question(), world.any_question()):
            known = answers(kept, question)
            assert known == answers(ResidentIndex(), question)
            for name, found in answers(SqliteIndex(), question).items():
                assert same_but_for_rounding(known[name], found), (step, name)
                compared += len(found)
    assert compared > 500


def test_a_rolled_back_write_leaves_no_trace_in_the_kept_index(world: World) -> None:
    kept = ResidentIndex()
    world.remember([{"text": "the boat lies in the harbour"}])
    question = world.question("boat harbour")
    before = answers(kept, question)

    with transaction.atomic():
        world.remember([{"text": "another boat in another harbour"}])
        assert len(answers(kept, question)["lexical"]) == 2
        transaction.set_rollback(True)
    assert answers(kept, question) == before


# ------------------------------------------------------------------------------------------------ other databases


def copied(path: Path, to: Path) -> None:
    """A backup as an operator takes one: with everything in the file, and no log beside it."""
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    shutil.copy(path, to)


def restored(backup: Path, path: Path) -> None:
    connection.close()
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    shutil.copy(backup, path)


@pytest.mark.parametrize("filed", [False, True], ids=["in memory", "in files"])
def test_an_older_backup_under_a_running_index_is_read_anew(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, filed: bool
) -> None:
    if filed:
        monkeypatch.setattr(shelf, "FILED", 5)
    kept, path = ResidentIndex(), tmp_path / "recall.sqlite3"
    world.remember([world.fields() | {"workspace": "red"} for _ in range(20)])
    copied(path, tmp_path / "backup")
    world.remember([world.fields() | {"workspace": "red"} for _ in range(20)])
    question = world.question("note team plan", workspace="red", current_only=False)
    assert len(answers(kept, question)["filters"]) == 40
    restored(tmp_path / "backup", path)
    assert len(answers(kept, question)["filters"]) == 20
    assert answers(kept, question) == answers(ResidentIndex(), question)


@pytest.mark.parametrize("filed", [False, True], ids=["in memory", "in files"])
def test_a_backup_whose_history_went_on_differently_is_read_anew(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, filed: bool
) -> None:
    if filed:
        monkeypatch.setattr(shelf, "FILED", 5)
    kept, path = ResidentIndex(), tmp_path / "recall.sqlite3"
    world.remember([world.fields() | {"workspace": "red"} for _ in range(20)])
    copied(path, tmp_path / "backup")
    world.remember([world.fields() | {"workspace": "red"} for _ in range(20)])
    look(kept)
    restored(tmp_path / "backup", path)
    others = world.remember([world.fields() | {"workspace": "red"} for _ in range(30)])  # further than it was
    question = world.question("note team plan", workspace="red", current_only=False)
    found = {f.facts.id for f in answers(kept, question)["filters"]}
    assert {memory.id for memory in others} < found
    assert answers(kept, question) == answers(ResidentIndex(), question)


@pytest.mark.parametrize("filed", [False, True], ids=["in memory", "in files"])
def test_a_backup_from_before_its_vectors_were_made_is_read_anew(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, filed: bool
) -> None:
    """Vectors leave no event in the ledger, so its head says nothing of them."""
    if filed:
        monkeypatch.setattr(shelf, "FILED", 5)
    kept, path = ResidentIndex(), tmp_path / "recall.sqlite3"
    services.remember_many(
        [({"text": f"note {n}", "workspace": "red"}, "") for n in range(10)], caller=ADA, at=NOW
    )
    copied(path, tmp_path / "backup")
    assert sum(vectors.embed_missing(installed())) == 10
    look(kept)
    restored(tmp_path / "backup", path)
    question = world.question("note", workspace="red")
    with ThreadPoolExecutor(1) as waiting:

        def missing() -> int:
            with kept.opened(question.scope) as workspaces:
                count = kept.unembedded(replace(question, workspaces=workspaces))
            connection.close()
            return count

        assert waiting.submit(missing).result(timeout=20) == 10
    assert answers(kept, question) == answers(ResidentIndex(), question)


@pytest.mark.parametrize("filed", [False, True], ids=["in memory", "in files"])
def test_a_backup_from_before_its_vectors_that_went_on_with_other_changes_is_read_anew(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, filed: bool
) -> None:
    if filed:
        monkeypatch.setattr(shelf, "FILED", 5)
    kept, path = ResidentIndex(), tmp_path / "recall.sqlite3"
    written = services.remember_many(
        [({"text": f"note {n}", "workspace": "red"}, "") for n in range(10)], caller=ADA, at=NOW
    )
    ids = [one.memory.id for one in written if isinstance(one, services.Remembered)]
    copied(path, tmp_path / "backup")
    assert sum(vectors.embed_missing(installed())) == 10
    look(kept)
    restored(tmp_path / "backup", path)
    for id_ in reversed(ids[:8]):
        services.archive(id_, caller=ADA, at=NOW)
    world.remember([{"text": f"note {n}", "workspace": "red"} for n in range(10, 20)])
    question = world.question("note", workspace="red", current_only=False)
    for index in (kept, ResidentIndex()):
        for name, found in answers(SqliteIndex(), question).items():
            assert same_but_for_rounding(answers(index, question)[name], found)


def test_writes_to_another_workspace_leave_a_tail_as_it_is(world: World) -> None:
    kept = ResidentIndex()
    world.remember([{"text": "note one", "workspace": "red"}, {"text": "note two", "workspace": "blue"}])
    look(kept)
    red = kept._kept[Workspace.objects.get(name="red").pk]
    base, mark = red.base, red.watermark
    world.remember([{"text": f"note {n}", "workspace": "blue"} for n in range(30)])
    look(kept)
    assert (red.base, red.watermark, red.tail.size) == (base, mark, 0)
    question = world.question("note", workspace="red")
    assert {f.facts.workspace for f in answers(kept, question)["lexical"]} == {"red"}


# ------------------------------------------------------------------------------------------------ threads


@pytest.mark.slow
def test_eight_threads_ask_while_one_writes_and_each_answer_is_of_one_state(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pair of memories is written, and later erased, together: no answer may hold one without the other."""
    monkeypatch.setattr(shelf, "FILED", 20)
    monkeypatch.setattr(shelf, "LONG_TAIL", 15)
    kept, over = ResidentIndex(), threading.Event()
    world.remember([{"text": f"filler {n}", "workspace": "red"} for n in range(25)])
    question = world.question("pair", workspace="red", limit=200)

    def write() -> int:
        try:
            return written()
        finally:
            over.set()
            connection.close()

    def written() -> int:
        pairs = 0
        for n in range(40):
            pair = world.remember(
                [{"text": f"pair {n}", "workspace": "red", "tags": [f"p{n}"]} for _ in range(2)]
            )
            pairs += 1
            if n % 3 == 0:
                with transaction.atomic():
                    for memory in pair:
                        services.archive(memory.id, caller=ADA, at=NOW)
                pairs -= 1
        return pairs

    def ask() -> int:
        asked = 0
        try:
            while not over.is_set() or not asked:
                found = answers(kept, question)
                for name in ("lexical", "filters"):
                    texts = standing_texts(found[name])
                    assert all(texts.count(text) == 2 for text in texts), name
                asked += 1
        finally:
            connection.close()
        return asked

    def standing_texts(found: list[Found]) -> list[str]:
        ids = [f.facts.id for f in found if f.open]
        texts = dict(Memory.objects.filter(id__in=ids).values_list("id", "text"))
        return [texts[id_] for id_ in ids if texts[id_].startswith("pair")]

    with ThreadPoolExecutor(9) as threads:
        writer = threads.submit(write)
        readers = [threads.submit(ask) for _ in range(8)]
        assert all(reader.result(timeout=120) > 0 for reader in readers)
        pairs = writer.result(timeout=120)
    assert len(standing_texts(answers(kept, question)["lexical"])) == 2 * pairs
    assert answers(kept, question) == answers(ResidentIndex(), question)
