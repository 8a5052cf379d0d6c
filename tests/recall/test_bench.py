"""The benchmark: its corpus is what it says, its figures are what was measured, and two reports compare."""

from __future__ import annotations

import json
import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.db.models import Min

from ledger.domain.instants import DAY, UnixMs
from ledger.models import ContextEvent
from ledger.queries import verify
from recall.management.bench import build, client, measure, report
from recall.management.bench.corpus import Plan, Row, rows
from recall.management.bench.server import ServerFailed, served
from vault import services
from vault.domain.links import REPLACING
from vault.fulltext import table_of
from vault.models import Change, Embedding, Memory, MemoryLink
from vault.services import Caller

Manage = Callable[..., subprocess.CompletedProcess[str]]
PLAN = Plan(memories=500, workspaces=3, seed=4)

EMBEDDER = '''
import hashlib, numpy as np
class ByHash:
    """A real embedder in form: a unit vector for each text, in which nothing is near anything."""
    model_id, dim = "by-hash", 16
    def embed_query(self, text):
        made = np.random.default_rng(int(hashlib.sha256(text.encode()).hexdigest()[:12], 16)).normal(size=16)
        return (made / np.linalg.norm(made)).astype(np.float16)
    def embed_queries(self, texts):
        return [self.embed_query(text) for text in texts]
    def embed_documents(self, texts, *, until=None):
        return [self.embed_query(text)[None, :] for text in texts]
'''
_made: dict[str, Any] = {}
exec(EMBEDDER, _made)  # the same one here and, as a module, in the processes that tests start


@pytest.fixture
def built(db: None, now: UnixMs) -> build.Built:
    """A corpus of 500 memories in three workspaces and the global one."""
    return build.build(PLAN, at=now, embedder=_made["ByHash"](), progress=lambda _: None)


@pytest.fixture(scope="module")
def corpus(now: UnixMs) -> list[Row]:
    return list(rows(Plan(memories=5_000, seed=2), at=now))


# ------------------------------------------------------------------------------------------------------ the corpus


def test_the_same_seed_makes_the_same_corpus_and_another_seed_another(now: UnixMs) -> None:
    once, again = list(rows(PLAN, at=now)), list(rows(PLAN, at=now))
    other = list(rows(Plan(memories=500, workspaces=3, seed=5), at=now))
    assert once == again
    assert len({row.sent["text"] for row in once} & {row.sent["text"] for row in other}) == 0


def test_a_corpus_made_at_another_instant_has_the_same_texts_and_other_times(now: UnixMs) -> None:
    today, tomorrow = list(rows(PLAN, at=now)), list(rows(PLAN, at=now + DAY))
    assert [row.sent["text"] for row in today] == [row.sent["text"] for row in tomorrow]
    assert {b.sent["created_at"] - a.sent["created_at"] for a, b in zip(today, tomorrow, strict=True)} == {
        DAY
    }


def test_texts_have_12_to_60_words_some_frequent_and_most_of_them_rare(corpus: list[Row]) -> None:
    words = [set(row.sent["text"].lower().replace(".", "").split()) for row in corpus]
    assert {12 <= len(row.sent["text"].split()) <= 60 for row in corpus} == {True}
    found_in = Counter(word for each in words for word in each)
    assert all(
        0.1 < found_in[word] / len(corpus) < 0.3 for word in ("team", "customer", "because", "release")
    )
    rare = sum(1 for count in found_in.values() if count <= 3)
    assert rare / len(found_in) > 0.5


def test_the_vocabulary_grows_with_the_corpus(corpus: list[Row]) -> None:
    def vocabulary(some: list[Row]) -> int:
        return len({word for row in some for word in row.sent["text"].split()})

    assert vocabulary(corpus) > 2 * vocabulary(corpus[:1_000])


def test_a_corpus_spans_two_years_oldest_first_and_most_of_it_is_recent(
    corpus: list[Row], now: UnixMs
) -> None:
    ages = [(now - row.sent["created_at"]) / DAY for row in corpus]
    assert ages == sorted(ages, reverse=True)
    assert (ages[0] > 700, 0 <= ages[-1] < 1) == (True, True)
    assert sum(age < 365 for age in ages) > len(ages) * 0.6


def test_a_tenth_is_over_and_a_few_end_soon_or_are_put_away(corpus: list[Row], now: UnixMs) -> None:
    def share(holds: Callable[[dict[str, Any]], bool]) -> float:
        return sum(holds(row.sent) for row in corpus) / len(corpus)

    def ends(sent: dict[str, Any]) -> int:
        return min(sent.get("expires_at", now + 999 * DAY), sent.get("t_invalid", now + 999 * DAY))

    assert share(lambda sent: ends(sent) <= now) == pytest.approx(0.10, abs=0.02)
    assert share(lambda sent: now < ends(sent) <= now + 30 * DAY) == pytest.approx(0.03, abs=0.01)
    put_away = share(lambda sent: sent.get("archived", False) or sent.get("status") == "deprecated")
    assert put_away == pytest.approx(0.03, abs=0.01)


def test_a_tenth_is_replaced_in_chains_of_one_to_five_within_a_workspace(now: UnixMs) -> None:
    made = list(rows(Plan(memories=5_000, workspaces=4, seed=2), at=now))
    ties = [row.tie for row in made if row.tie is not None and row.tie.type in REPLACING]
    after = {tie.source: tie.target for tie in ties}
    assert len(after) == len(ties), "nothing is replaced twice"
    assert len(ties) / len(made) == pytest.approx(0.10, abs=0.02)
    lengths = Counter(_length(start, after) for start in set(after) - set(after.values()))
    assert set(lengths) == {1, 2, 3, 4, 5}
    for tie in ties:
        old, new = made[tie.source].sent, made[tie.target].sent
        assert old["workspace"] == new["workspace"]
        assert old["created_at"] <= tie.created_at == new["created_at"]


def _length(start: int, after: dict[int, int]) -> int:
    steps = 0
    while start in after:
        start, steps = after[start], steps + 1
    return steps


def test_workspaces_are_of_equal_size_and_a_few_rows_are_global(now: UnixMs) -> None:
    sizes = Counter(row.sent["workspace"] for row in rows(Plan(memories=3_000, workspaces=3), at=now))
    assert sizes.pop("") == 6
    assert set(sizes) == {"bench-0", "bench-1", "bench-2"}
    assert max(sizes.values()) - min(sizes.values()) <= 6
    assert {row.sent["workspace"] for row in rows(Plan(memories=100), at=now)} == {"bench", ""}


# ------------------------------------------------------------------------------------------------------ building


def test_a_built_corpus_has_all_its_events_in_a_ledger_that_holds(built: build.Built) -> None:
    assert Memory.objects.count() == PLAN.memories
    assert (MemoryLink.objects.count(), built.links > 50) == (built.links, True)
    kinds = Counter(ContextEvent.objects.values_list("kind", flat=True))
    assert kinds == {"memory_created": PLAN.memories, "link_created": built.links}
    assert verify().ok


def test_its_texts_are_found_through_the_text_index(built: build.Built) -> None:
    for memory in Memory.objects.filter(seq__in=(1, 250, 500)):
        words = " ".join(f'"{word}"' for word in memory.text.replace('"', "").split())
        table = table_of(memory.workspace_id)
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT rowid FROM {table} WHERE {table} MATCH %s", [words])
            assert (memory.seq,) in cursor.fetchall()


def test_replaced_since_says_what_the_links_say(built: build.Built) -> None:
    told = dict(Memory.objects.exclude(replaced_since=None).values_list("seq", "replaced_since"))
    replacing = MemoryLink.objects.filter(type__in=REPLACING)
    linked = dict(replacing.values_list("source_id").annotate(first=Min("created_at")))
    assert len(linked) > 20
    assert told == linked


def test_every_memory_has_a_vector_and_those_of_a_theme_lie_close(built: build.Built) -> None:
    vectors: dict[int, list[Any]] = {}
    stored = Embedding.objects.order_by("memory_id").select_related("memory")
    for row in stored:
        thread = row.memory.metadata["thread"]
        vectors.setdefault(thread, []).append(np.frombuffer(row.vector, np.float16).astype(np.float32))
    assert stored.count() == PLAN.memories
    lengths = [np.linalg.norm(vector) for those in vectors.values() for vector in those]
    assert np.allclose(lengths, 1, atol=0.01)
    turned = [float(first @ other) for first, *others in vectors.values() for other in others]
    assert len(turned) == PLAN.memories - built.embedded > 20
    assert (min(turned) > 0.7, max(turned) < 0.995) == (True, True)


def test_the_first_text_of_a_theme_has_the_models_own_vector(built: build.Built) -> None:
    memory = Memory.objects.get(seq=1)
    assert bytes(memory.embeddings.get().vector) == _made["ByHash"]().embed_query(memory.text).tobytes()


def test_derived_indexes_hear_of_every_memory_and_of_links_after_it(built: build.Built) -> None:
    assert Change.objects.count() == PLAN.memories
    newest = Change.objects.order_by("-seq").values_list("memory_id", flat=True)[: 2 * built.links]
    ends = MemoryLink.objects.values_list("source_id", "target_id")
    assert {seq for both in ends for seq in both} <= set(newest)


def test_events_of_its_links_read_like_those_of_the_link_service(
    built: build.Built, caller: Caller, now: UnixMs
) -> None:
    ours = ContextEvent.objects.filter(kind="link_created").order_by("seq").last()
    one, two = Memory.objects.filter(workspace__name="bench-0").exclude(links_out__isnull=False)[:2]
    services.link(one.id, two.id, "RELATES_TO", caller=caller, at=now)
    theirs = ContextEvent.objects.filter(kind="link_created").order_by("seq").last()
    assert ours is not None
    assert theirs is not None
    assert theirs.seq > ours.seq
    for event in (ours, theirs):
        told = event.values_after
        assert (event.subject_id, event.object_id) == (told["from"], told["to"])
        assert event.occurred_at == told["created_at"]
        link = MemoryLink.objects.get(id=told["id"])
        assert (link.source.id, link.target.id, link.type) == (told["from"], told["to"], told["type"])
    assert set(ours.values_after) == set(theirs.values_after)


# ------------------------------------------------------------------------------------------------------ questions


def test_questions_are_distinct_and_of_four_to_ten_words_and_the_same_again(built: build.Built) -> None:
    asked = measure.questions(PLAN, measure.Settings(), count=100)
    assert asked == measure.questions(PLAN, measure.Settings(), count=100)
    assert len({one["query"] for one in asked}) == 100
    assert {4 <= len(one["query"].split()) <= 10 for one in asked} == {True}
    assert {one["workspace"] for one in asked} == set(PLAN.names)


def test_a_corpus_that_is_too_small_for_the_questions_says_so(built: build.Built) -> None:
    with pytest.raises(measure.TooFewQuestions, match="500 memories yield"):
        measure.questions(PLAN, measure.Settings(), count=5_000)


class _Answering(BaseHTTPRequestHandler):
    """Answers every request with what its server was given: (status, body)."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        status, body = self.server.answer  # type: ignore[attr-defined]
        told = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(told)))
        self.end_headers()
        self.wfile.write(told)

    def log_message(self, *_: Any) -> None:
        """Nothing on stderr."""


@contextmanager
def answering(status: int, body: Any) -> Iterator[int]:
    """The port of a server that answers every request so."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Answering) as server:
        server.answer = (status, body)  # type: ignore[attr-defined]
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


@pytest.mark.parametrize("clients", [1, 2])
def test_one_refused_request_fails_the_run_and_is_quoted(clients: int) -> None:
    failed = pytest.raises(client.RequestFailed, match=r"answered 500: .*internal")
    with answering(500, {"error": {"code": "internal"}}) as port, failed:
        client.ask(port, "key", warm_up=[], questions=[{"query": "x"}] * clients, clients=clients)


def test_an_answer_that_could_not_look_everywhere_fails_the_run() -> None:
    told = {"outcome": {"status": "partial", "reason": "3 memories have no vector"}}
    failed = pytest.raises(client.RequestFailed, match="partial: 3 memories have no vector")
    with answering(200, told) as port, failed:
        client.ask(port, "key", warm_up=[], questions=[{"query": "x"}], clients=1)


@pytest.mark.parametrize("clients", [1, 3])
def test_every_question_is_asked_once_whatever_the_number_of_clients(clients: int) -> None:
    told = {
        "outcome": {"status": "fresh", "reason": None},
        "timings_ms": {"fuse": 0.5},
        "fused_trace": {"strategies": {"dense": {"time_ms": 0.25, "weight": 1.0}}},
        "results": [{}, {}],
    }
    with answering(200, told) as port:
        lap = client.ask(port, "key", warm_up=[{}], questions=[{"query": "x"}] * 7, clients=clients)
    assert [a.stages for a in lap.answers] == [{"fuse": 0.5}] * 7
    assert [(a.strategies, a.outcome, a.hits) for a in lap.answers] == [({"dense": 0.25}, "fresh", 2)] * 7
    assert 0 < max(a.ms for a in lap.answers) / 1000 < lap.seconds


# ------------------------------------------------------------------------------------------------------ reports


def test_a_percentile_is_the_value_that_so_many_do_not_exceed() -> None:
    assert measure.spread([float(n) for n in range(1, 101)]) == {
        "p50": 50,
        "p95": 95,
        "p99": 99,
        "mean": 50.5,
    }
    assert measure.spread([7.0]) == {"p50": 7, "p95": 7, "p99": 7, "mean": 7}


def _report(**figures: Any) -> dict[str, Any]:
    return {
        "parameters": {"memories": 10, "mode": "fused"},
        "versions": {"python": "3.11"},
        "machine": {"cpus": 2},
        "figures": figures,
    }


@pytest.fixture
def two(tmp_path: Path) -> tuple[Path, Path]:
    first, second = tmp_path / "A.json", tmp_path / "B.json"
    report.write(first, _report(request_ms={"p50": 4.0, "p95": 8.0}, outcomes={"stale": 0, "fresh": 3}))
    report.write(second, _report(request_ms={"p50": 2.0, "p95": 10.0}, outcomes={"stale": 1, "fresh": 3}))
    return first, second


def test_two_reports_are_compared_figure_by_figure(two: tuple[Path, Path]) -> None:
    first, second = map(report.read, two)
    assert report.ratios(first, second) == {
        "request_ms.p50": 0.5,
        "request_ms.p95": 1.25,
        "outcomes.stale": None,
        "outcomes.fresh": 1.0,
    }


def test_the_comparison_prints_both_figures_and_their_ratio(
    two: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    call_command("bench", "compare", *map(str, two))
    printed = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert printed[:3] == [
        ["figure", "A", "B", "B/A"],
        ["request_ms.p50", "4.00", "2.00", "0.50"],
        ["request_ms.p95", "8.00", "10.00", "1.25"],
    ]


def test_reports_of_different_questions_are_compared_only_by_force(
    two: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    report.write(two[1], {**report.read(two[1]), "parameters": {"memories": 10, "mode": "lexical"}})
    with pytest.raises(CommandError, match=r"mode \(fused and lexical\): --force"):
        call_command("bench", "compare", *map(str, two))
    call_command("bench", "compare", *map(str, two), "--force")
    assert "parameters differ: mode (fused and lexical)" in capsys.readouterr().out


@pytest.mark.parametrize("written", ["{", "[]", '{"format": "another"}', None])
def test_what_is_no_report_is_refused_by_name(two: tuple[Path, Path], written: str | None) -> None:
    if written is None:
        two[1].unlink()
    else:
        two[1].write_text(written)
    with pytest.raises(CommandError, match=r"B\.json") as refused:
        call_command("bench", "compare", *map(str, two))
    assert refused.value.returncode == 2


# ------------------------------------------------------------------------------------------------------ the command


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ("build --memories 0", "--memories 0: a whole number from 1 to"),
        ("build --memories 10 --workspaces 11", "--workspaces 11: a whole number from 1 to 10"),
        ("build --memories ten", "invalid int value"),
        ("build", "--memories"),
        ("run --clients 0", "--clients 0: a whole number from 1 to 64"),
        ("run --questions -1", "--questions -1: a whole number from 1 to"),
        ("run --limit 201", "--limit 201: a whole number from 1 to 200"),
        ("run --report nowhere/a.json", "--report nowhere/a.json: there is no such directory"),
        ("run --mode slow", "invalid choice: 'slow'"),
        ("run", "holds no finished corpus: make one with manage.py bench build"),
        ("walk", "invalid choice: 'walk'"),
    ],
)
def test_wrong_arguments_are_refused_in_words(arguments: str, told: str, tmp_path: Path) -> None:
    words = arguments.split()
    where = ["--data-dir", str(tmp_path)] if words[0] in ("build", "run") else []
    with pytest.raises(CommandError) as refused:
        call_command("bench", *words, *where)
    assert told in str(refused.value)
    assert list(tmp_path.iterdir()) == []


def test_a_directory_with_a_database_is_never_built_into(tmp_path: Path) -> None:
    (tmp_path / "recall.sqlite3").write_bytes(b"precious")
    with pytest.raises(CommandError, match="holds a database already"):
        call_command("bench", "build", "--memories", "10", "--data-dir", str(tmp_path))
    assert (tmp_path / "recall.sqlite3").read_bytes() == b"precious"


@pytest.fixture
def embedded_by_hash(tmp_path: Path) -> dict[str, str]:
    """The environment in which processes embed by hash, which takes no time."""
    modules = tmp_path / "modules"
    modules.mkdir()
    (modules / "by_hash.py").write_text(EMBEDDER)
    return {"PYTHONPATH": str(modules), "RECALL_EMBEDDER": "by_hash.ByHash"}


@pytest.mark.slow
def test_a_corpus_is_built_served_asked_and_reported(
    tmp_path: Path, manage: Manage, embedded_by_hash: dict[str, str]
) -> None:
    folder, kept = tmp_path / "corpus", tmp_path / "report.json"
    made = manage(
        *("bench", "build", "--memories", "400", "--workspaces", "2", "--data-dir", str(folder)),
        env=embedded_by_hash,
        timeout=120,
    )
    assert (made.returncode, made.stdout.startswith("400 memories and ")) == (0, True), made.stderr
    assert not (tmp_path / "var" / "recall.sqlite3").exists(), "only --data-dir was written"

    asked = ("--questions", "20", "--clients", "2", "--mode", "lexical", "--report", str(kept))
    ran = manage("bench", "run", "--data-dir", str(folder), *asked, env=embedded_by_hash, timeout=120)
    assert ran.returncode == 0, ran.stderr
    told = report.read(kept)
    assert told["parameters"] == {
        "memories": 400,
        "workspaces": 2,
        "seed": 1,
        "embedder": "by-hash",
        "questions": 20,
        "clients": 2,
        "mode": "lexical",
        "profile": "validity",
        "limit": 10,
        "workers": 2,
        "trace": False,
    }
    figures = told["figures"]
    assert sum(figures["outcomes"].values()) == 20
    assert {"retrieve", "state", "validity", "record"} <= set(figures["stage_ms"])
    for times in (figures["request_ms"], *figures["stage_ms"].values()):
        assert 0 <= times["p50"] <= times["p95"] <= times["p99"]
    assert 0 < figures["stage_ms"]["retrieve"]["mean"] < figures["request_ms"]["mean"]
    assert 0 < figures["start_ms"]["ready"] < figures["start_ms"]["first_recall"]
    assert (figures["write_ms"]["write"] > 0, figures["write_ms"]["recall_of_it"] > 0) == (True, True)
    assert figures["workers_awake"] == 2
    assert 30 < figures["memory_mb"]["after_first_recall"] <= figures["memory_mb"]["peak"]
    memory = figures["memory_mb"]
    assert 0 < memory["after_questions_without_files"] < memory["after_questions"]
    assert figures["disk_mb"]["recall.sqlite3"] > 0.1
    assert figures["throughput_per_s"] > 0
    assert 0 < figures["cpu"]["server_ms_per_request"] < 1_000
    assert ran.stdout.startswith("400 memories in 2 workspace(s); 20 questions, mode lexical")

    assert manage("verify_ledger", env={"RECALL_DATA_DIR": str(folder)}).returncode == 0
    again = manage("bench", "build", "--memories", "400", "--data-dir", str(folder), env=embedded_by_hash)
    assert (again.returncode, "holds a database already" in again.stderr) == (2, True)


@pytest.mark.slow
def test_a_server_that_does_not_start_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DJANGO_SETTINGS_MODULE", "recall.settings")
    with pytest.raises(ServerFailed, match=r"run manage\.py migrate"), served(tmp_path, workers=1):
        pass
