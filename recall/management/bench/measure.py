"""One run: a server over a corpus, questions that it has not heard before, and everything measured as figures.

1. Start-up: from the start of the process to `/readyz`, and to the end of the first recall. Then the same question
   until every worker has answered, so that memory is that of a server at work.
2. A warm-up of other questions, then the measured ones, each asked once, so that no cache of questions flatters.
   Half are phrased in other words than the text they are about, half are words of it; four to ten words each.
   Beside the times: what the server computed for a request, which hangs less on what else the machine does, and
   how many processors others kept busy meanwhile: with more than a few tenths, times are not to be believed.
3. A write and the recall of it in the very next request, over another connection, some times.
4. Memory: proportional set size of all server processes after each step, once also without the files they map. The
   peak is the largest of these: it is not read while questions are measured, which it would slow. Beside it the
   kernel's own high-water mark of resident pages, which counts shared ones once for every process.

A run leaves what it did in the directory: records of its recalls, and the few memories that it wrote.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import random
import sqlite3
import statistics
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from django.db import connections

from ledger.domain.instants import DAY, UnixMs
from recall.management.bench.build import Built
from recall.management.bench.client import Lap, Line, Question, RequestFailed, ask, asked
from recall.management.bench.corpus import Plan, by_its_words, in_other_words
from recall.management.bench.server import (
    Server,
    disk_mb,
    machine_cpu_seconds,
    resident_peak_mb,
    served,
)
from recall.services import create_api_key
from vault.models import Memory

WARM_UP = 60
WRITES = 5
WAKE_ROUNDS = 10
AWAKE = 0.03  # seconds of computing that a worker's first answer takes at least
FEWEST, MOST = 4, 10  # words of a question
DISTRIBUTIONS = ("django", "numpy", "onnxruntime", "orjson", "gunicorn")


@dataclass(frozen=True, slots=True)
class Settings:
    """What a run asks, and of how large a server."""

    questions: int = 300
    clients: int = 1
    mode: str = "fused"
    profile: str = "validity"
    limit: int = 10
    workers: int = 2
    trace: bool = False


class TooFewQuestions(Exception):
    """The corpus does not yield as many distinct questions as were asked for."""


def measure(folder: Path, built: Built, settings: Settings, *, at: UnixMs) -> dict[str, Any]:
    """The report of one run (figures, parameters, versions, machine). Raises ServerFailed, RequestFailed."""
    every = questions(built.plan, settings, count=1 + WARM_UP + settings.questions)
    _, key = create_api_key("bench", scopes=["read", "write"], at=at, expires_at=at + DAY)
    connections.close_all()
    with served(folder, workers=settings.workers) as server:
        idle = server.worker_cpu_seconds()
        first_recall_ms = _first(server, key, every[0])
        memory = {"after_first_recall": server.memory_mb()}
        awake = _wake(server, key, every[0], idle=idle)
        before = _cpu(server)
        lap = ask(
            server.port,
            key,
            warm_up=every[1 : 1 + WARM_UP],
            questions=every[1 + WARM_UP :],
            clients=settings.clients,
        )
        cpu = _cpu_figures(before, _cpu(server), asked=WARM_UP + settings.questions)
        memory["after_questions"] = server.memory_mb()
        memory["after_questions_without_files"] = server.own_memory_mb()
        writes = [_write_and_recall(server.port, key, built.plan, settings, at=at + n) for n in range(WRITES)]
        memory |= {"after_writes": server.memory_mb(), "peak": server.peak}
        memory["resident_peak"] = resident_peak_mb(server.process.pid)
    figures = {
        **_of(lap),
        "cpu": cpu,
        "start_ms": {"ready": (server.ready - server.started) * 1000, "first_recall": first_recall_ms},
        "write_ms": {
            "write": statistics.median(write for write, _ in writes),
            "recall_of_it": statistics.median(recall for _, recall in writes),
        },
        "memory_mb": memory,
        "workers_awake": awake,
        "disk_mb": disk_mb(folder),
    }
    return {
        "made_at_unix_ms": at,
        "parameters": {**asdict(built.plan), **asdict(settings), "embedder": built.embedder},
        "versions": _versions(),
        "machine": {"cpus": os.cpu_count(), "architecture": platform.machine(), "system": platform.system()},
        "figures": _rounded(figures),
    }


# ------------------------------------------------------------------------------------------------------ questions


def questions(plan: Plan, settings: Settings, *, count: int) -> list[Question]:
    """Distinct questions about memories of the corpus, the same for the same plan. Raises TooFewQuestions."""
    chance = random.Random(f"{plan.seed} questions")  # noqa: S311
    found: dict[str, str] = {}
    for memory in _some_memories(plan, chance, wanted=count * 6):
        if len(found) % 2:
            query = by_its_words(memory.text, chance)
        else:
            query = in_other_words(plan, memory.metadata["thread"], chance)
        if FEWEST <= len(query.split()) <= MOST:
            found.setdefault(query, memory.workspace.name or plan.names[0])
        if len(found) == count:
            return [_question(query, workspace, settings) for query, workspace in found.items()]
    raise TooFewQuestions(f"{plan.memories:,} memories yield {len(found)} distinct questions, not {count}")


def _some_memories(plan: Plan, chance: random.Random, *, wanted: int) -> Iterator[Memory]:
    seqs = chance.sample(range(1, plan.memories + 1), k=min(wanted, plan.memories))
    for start in range(0, len(seqs), 500):
        some = seqs[start : start + 500]
        found = Memory.objects.select_related("workspace").in_bulk(some)
        yield from (found[seq] for seq in some)


def _question(query: str, workspace: str, settings: Settings) -> Question:
    question = {
        "query": query,
        "workspace": workspace,
        "mode": settings.mode,
        "profile": settings.profile,
        "limit": settings.limit,
    }
    return {**question, "trace": True} if settings.trace else question


# ------------------------------------------------------------------------------------------------------ steps


def _first(server: Server, key: str, question: Question) -> float:
    """Milliseconds from the start of the server to the end of its first recall."""
    _ask_once(server.port, key, question)
    return (time.monotonic() - server.started) * 1000


def _wake(server: Server, key: str, question: Question, *, idle: dict[int, float]) -> int:
    """Ask until every worker has answered, and so has loaded what it needs; how many have.

    Which worker takes a connection is chance: several at a time are tried, for some rounds.
    """
    awake = 0
    for _ in range(WAKE_ROUNDS):
        with ThreadPoolExecutor(2 * len(idle)) as pool:
            list(pool.map(lambda _: _ask_once(server.port, key, question), range(2 * len(idle))))
        computed = server.worker_cpu_seconds()
        awake = sum(computed[pid] - idle.get(pid, 0.0) >= AWAKE for pid in computed)
        if awake == len(computed):
            break
    return awake


def _ask_once(port: int, key: str, question: Question) -> None:
    with closing(Line(port, key)) as line:
        asked(line, question)


def _write_and_recall(
    port: int, key: str, plan: Plan, settings: Settings, *, at: UnixMs
) -> tuple[float, float]:
    """How long one write took, and the recall of it that came next. Raises RequestFailed if it is not served."""
    text = f"The bench wrote note QX{at} about the lighthouse keeper's brass telescope on the northern pier."
    with closing(Line(port, key)) as writer, closing(Line(port, key)) as reader:
        wrote_ms, memory = writer.post("/v1/memories", {"text": text, "workspace": plan.names[0]})
        question = _question(f"note QX{at} about the brass telescope of the keeper", plan.names[0], settings)
        recall_ms, answer = reader.post("/v1/recall", question)
    if memory["id"] not in [hit["memory"]["id"] for hit in answer["results"]]:
        raise RequestFailed("a memory was written, and the recall of it that came next did not serve it")
    return wrote_ms, recall_ms


# ------------------------------------------------------------------------------------------------------ figures


@dataclass(frozen=True, slots=True)
class _Cpu:
    """An instant, and the seconds computed until then: by the server, by clients (ours), by the machine."""

    at: float
    server: float
    clients: float
    machine: float


def _cpu(server: Server) -> _Cpu:
    ours = sum(os.times()[:4])  # with the client processes, once they are joined
    return _Cpu(time.monotonic(), server.cpu_seconds(), ours, machine_cpu_seconds())


def _cpu_figures(before: _Cpu, after: _Cpu, *, asked: int) -> dict[str, float]:
    server, clients = after.server - before.server, after.clients - before.clients
    others = max(0.0, after.machine - before.machine - server - clients)
    return {
        "server_ms_per_request": server * 1000 / asked,
        "client_ms_per_request": clients * 1000 / asked,
        "processors_busy_with_others": others / (after.at - before.at),
    }


def _of(lap: Lap) -> dict[str, Any]:
    answers = lap.answers
    outside = [a.ms - sum(a.stages.values()) for a in answers]
    return {
        "request_ms": spread([a.ms for a in answers]),
        "throughput_per_s": len(answers) / lap.seconds,
        "stage_ms": _by_name([a.stages for a in answers]),
        "strategy_ms": _by_name([a.strategies for a in answers]),
        "outside_stages_ms": spread(outside),
        "outcomes": dict(sorted(Counter(a.outcome for a in answers).items())),
        "hits_mean": statistics.fmean(a.hits for a in answers),
    }


def _by_name(times: Sequence[dict[str, float]]) -> dict[str, dict[str, float]]:
    """The spread of each named time; an answer that does not name one did not spend it."""
    names = list(dict.fromkeys(name for each in times for name in each))
    return {name: spread([each.get(name, 0.0) for each in times]) for name in names}


def spread(values: Sequence[float]) -> dict[str, float]:
    """p50, p95 and p99 (the value at or above that share of all), and the mean."""
    ordered = sorted(values)
    marks = {f"p{share}": ordered[-(-len(ordered) * share // 100) - 1] for share in (50, 95, 99)}
    return {**marks, "mean": statistics.fmean(ordered)}


def _rounded(figures: Any) -> Any:
    if isinstance(figures, dict):
        return {name: _rounded(value) for name, value in figures.items()}
    return round(figures, 3) if isinstance(figures, float) else figures


def _versions() -> dict[str, str]:
    ours = {name: importlib.metadata.version(name) for name in DISTRIBUTIONS}
    return {"python": platform.python_version(), "sqlite": sqlite3.sqlite_version, **ours}
