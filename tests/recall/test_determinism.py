"""The same database, anchor and versions give the same answers, to the digest: 200 questions, asked in many ways.

As a script it asks them of the database in RECALL_DATA_DIR, with index files, and prints the digests as JSON.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
QUESTIONS = 200
MEMORIES = 320
PEOPLE = "Ada Bob Marta Noor Ivo Sára Jürgen".split()
THINGS = (
    "the outline;the deploy;peanuts;the mooring rope;a tide table;the 3.14 release;東京 tickets;the café key"
).split(";")
ACTS = "reviews;cannot eat;wrote down;lost;prefers;moved;paid for;explains".split(";")
WHEN = "on Thursday;last week;before the storm;at noon;every March;yesterday".split(";")


def drawn_text(draw: random.Random) -> str:
    said = [f"{draw.choice(PEOPLE)} {draw.choice(ACTS)} {draw.choice(THINGS)} {draw.choice(WHEN)}."]
    said += [f"It was {draw.choice(WHEN)}, says {draw.choice(PEOPLE)}."] * draw.randint(0, 2)
    return " ".join(said)


def asked(now: int) -> list[dict[str, Any]]:
    """Questions of every mode, fusion, profile and sort, with and without filters, now and in the past."""
    from ledger.domain.instants import DAY

    draw = random.Random(11)
    return [
        {
            "query": f"{draw.choice(PEOPLE)} {draw.choice(ACTS)} {draw.choice(THINGS)} {draw.choice([*WHEN, ''])}?",
            "workspace": draw.choice([None, "red", "blue", ""]),
            "mode": draw.choice(["fused", "fused", "fused", "hybrid", "lexical", "dense"]),
            "fusion": draw.choice(["score", "score", "rrf"]),
            "profile": draw.choice(["default", "validity", "validity"]),
            "sort": draw.choice(["score", "score", "score", "time_desc"]),
            "limit": draw.choice([3, 10, 50]),
            "current_only": draw.random() < 0.8,
            "tags": draw.choice([(), (), (), ("alpha",), ("beta", "gamma")]),
            "exclude_tags": draw.choice([(), (), ("delta",)]),
            "query_time_unix_ms": now - draw.choice([0, 0, 5, 20]) * DAY,
        }
        for _ in range(QUESTIONS)
    ]


def digest(arguments: dict[str, Any]) -> str:
    """What the record of one recall is sealed with."""
    from index_worlds import ADA, NOW

    from recall.domain.request import OF_MODE, RecallRequest
    from recall.models import RecallRecord
    from recall.services import recall

    mode = arguments["mode"]
    request = RecallRequest(**arguments, strategies=OF_MODE.get(mode, (mode,)))
    answer = recall(request, caller=ADA, surface="test", at=NOW)
    return str(RecallRecord.objects.get(id=answer["recall_id"]).digest)


def digests() -> list[str]:
    from index_worlds import NOW

    return [digest(arguments) for arguments in asked(NOW)]


if __name__ == "__main__":
    import django

    django.setup()
    from recall.indexes.resident import shelf

    shelf.FILED = 30
    print(json.dumps(digests()))
    sys.exit()

import pytest  # noqa: E402
from django.db import connection  # noqa: E402
from django.test import override_settings  # noqa: E402
from index_worlds import ADA, NOW, database_in, template  # noqa: E402

from ledger.domain.instants import DAY  # noqa: E402
from recall import services as recalls  # noqa: E402
from recall.embedders import installed  # noqa: E402
from recall.indexes.resident import files, shelf  # noqa: E402
from vault import services, vectors  # noqa: E402
from vault.domain.access import Scope  # noqa: E402
from vault.models import Embedding, Memory, Workspace  # noqa: E402

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, django_db_blocker: Any) -> Iterator[Path]:
    """A vault with ages, chains, expiries, tags and real vectors."""
    folder = tmp_path_factory.mktemp("determinism")
    with django_db_blocker.unblock(), database_in(folder, template(tmp_path_factory)):
        recalls._made.cache_clear()
        yield folder
        recalls._made.cache_clear()


@pytest.fixture(scope="module")
def by_tail(folder: Path) -> list[str]:
    """The digests from an index that looked on while everything was written, and so caught up with it."""
    draw = random.Random(5)
    look()
    for _ in range(MEMORIES // 20):
        rows = [
            (
                {
                    "text": drawn_text(draw),
                    "workspace": draw.choice(["red", "red", "blue", ""]),
                    "tags": draw.sample(["alpha", "beta", "gamma", "delta"], draw.randint(0, 2)),
                    "created_at": NOW - draw.randint(1, 200) * DAY,
                    "provenance_class": draw.choice(["verified", "candidate", "corroborated"]),
                    **({"expires_at": NOW + draw.randint(-9, 30) * DAY} if draw.random() < 0.2 else {}),
                },
                "",
            )
            for _ in range(20)
        ]
        services.remember_many(rows, caller=ADA, at=NOW)
        look()
        for _ in vectors.embed_missing(installed()):
            look()
        standing = list(Memory.objects.filter(workspace__name="red", archived=False).order_by("seq"))
        for old in draw.sample(standing, 3):
            services.supersede(old.id, sent={"text": drawn_text(draw)}, caller=ADA, at=NOW)
            services.archive(draw.choice(standing).id, caller=ADA, at=NOW)
        look()
    kept = recalls.installed_index()._kept[Workspace.objects.get(name="red").pk]  # type: ignore[attr-defined]
    assert kept.tail.size > 100 > kept.base.size
    return digests()


def look() -> None:
    with recalls.installed_index().opened(Scope(None)):
        pass


@pytest.fixture
def restarted(by_tail: list[str]) -> Iterator[None]:
    """As in a process that has just started."""
    recalls._made.cache_clear()
    yield
    recalls._made.cache_clear()


@pytest.fixture
def elsewhere(folder: Path) -> Callable[..., list[str]]:
    """`elsewhere(OPENBLAS_NUM_THREADS="2")`: the digests as another process finds them, with index files."""

    def asked_by_another(**env: str) -> list[str]:
        connection.close()
        environment = {
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "recall.settings",
            "RECALL_DATA_DIR": str(folder),
            "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}",
            **env,
        }
        told = subprocess.run(
            [sys.executable, __file__],
            env=environment,
            cwd=ROOT,
            stdout=subprocess.PIPE,
            check=True,
            timeout=120,
        )
        found: list[str] = json.loads(told.stdout)
        return found

    return asked_by_another


def test_the_questions_are_answered_and_differ(by_tail: list[str]) -> None:
    from recall.models import RecallRecord

    assert len(by_tail) == QUESTIONS
    assert len(set(by_tail)) > QUESTIONS * 0.8
    outcomes = list(RecallRecord.objects.values_list("outcome", flat=True))
    assert outcomes.count("empty") < QUESTIONS / 4


def test_a_base_that_is_read_at_once_answers_like_a_tail(by_tail: list[str], restarted: None) -> None:
    assert digests() == by_tail
    red = recalls.installed_index()._kept[Workspace.objects.get(name="red").pk]  # type: ignore[attr-defined]
    assert red.base.size > 100 > red.tail.size


def test_two_threads_at_once_get_the_answers_of_one(by_tail: list[str], restarted: None) -> None:
    def all_of_them(_: int) -> list[str]:
        try:
            return digests()
        finally:
            connection.close()

    with ThreadPoolExecutor(2) as threads:
        assert list(threads.map(all_of_them, range(2))) == [by_tail, by_tail]


def test_the_engine_without_memory_answers_like_the_resident_one(by_tail: list[str], restarted: None) -> None:
    with override_settings(RECALL_INDEX="sqlite"):
        assert digests() == by_tail


@pytest.mark.parametrize("threads", ["1", "2"])
def test_another_process_with_files_answers_alike_on_one_thread_and_two(
    by_tail: list[str], elsewhere: Callable[..., list[str]], threads: str
) -> None:
    told = elsewhere(OPENBLAS_NUM_THREADS=threads, OMP_NUM_THREADS=threads)
    assert told == by_tail
    assert files.newest_mark(Workspace.objects.get(name="red")) > 0


def test_index_files_that_are_deleted_and_made_again_change_nothing(
    by_tail: list[str], restarted: None, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shelf, "FILED", 30)
    shutil.rmtree(folder / "index", ignore_errors=True)
    assert digests() == by_tail
    assert files.newest_mark(Workspace.objects.get(name="red")) > 0


def test_texts_that_are_embedded_anew_get_the_same_vectors_and_answers(
    by_tail: list[str], restarted: None
) -> None:
    look()
    before = dict(Embedding.objects.values_list("pk", "vector"))
    for seq in Memory.objects.values_list("seq", flat=True):
        vectors.drop(seq)
    assert sum(vectors.embed_missing(installed(), threads=2)) > MEMORIES
    assert dict(Embedding.objects.values_list("pk", "vector")) == before
    assert digests() == by_tail
