"""Clients of a server: one keep-alive connection each, and a process each where there are several.

Nothing of Django is imported here: every client process loads this file and little else.
"""

from __future__ import annotations

import http.client
import json
import multiprocessing
import socket
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from threading import BrokenBarrierError
from typing import Any

HOST = "127.0.0.1"
TIMEOUT = 120  # seconds that one request, or one client at the starting line, is waited for

Question = dict[str, Any]  # the body of POST /v1/recall


class RequestFailed(Exception):
    """A request that was not answered well; a benchmark that goes on after one measures something else."""


@dataclass(frozen=True, slots=True)
class Answered:
    """One recall: how long it took the client, and what the answer said of itself. Times in ms.

    The stages follow one another; the strategies share the time of the stage `retrieve`.
    """

    ms: float
    stages: dict[str, float]
    strategies: dict[str, float]
    outcome: str
    hits: int


@dataclass(frozen=True, slots=True)
class Lap:
    """What the clients measured together, from the first question to the last answer."""

    answers: list[Answered]
    seconds: float


class Line:
    """One keep-alive connection that carries JSON under one key."""

    def __init__(self, port: int, key: str) -> None:
        self._connection = http.client.HTTPConnection(HOST, port, timeout=TIMEOUT)
        self._headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        self._connect()

    def _connect(self) -> None:
        self._connection.connect()
        # Headers and body are two packets: without this the second waits 40 ms for the first one's receipt.
        self._connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def close(self) -> None:
        self._connection.close()

    def post(self, path: str, body: dict[str, Any]) -> tuple[float, Any]:
        """Milliseconds from the first byte sent to the last one read, and the answer. Raises RequestFailed."""
        sent = json.dumps(body).encode()
        try:
            began = time.perf_counter()
            self._connection.request("POST", path, sent, self._headers)
            response = self._connection.getresponse()
            raw = response.read()
            took = (time.perf_counter() - began) * 1000
        except (OSError, http.client.HTTPException) as error:
            raise RequestFailed(f"POST {path} was not answered: {error!r}") from error
        if not 200 <= response.status < 300:
            raise RequestFailed(
                f"POST {path} was answered {response.status}: {raw[:400].decode(errors='replace')}"
            )
        return took, json.loads(raw)


def asked(line: Line, question: Question) -> Answered:
    """One recall. Raises RequestFailed also where the answer could not look everywhere: its time is another's."""
    ms, answer = line.post("/v1/recall", question)
    outcome = answer["outcome"]
    if outcome["status"] in ("partial", "unavailable"):
        raise RequestFailed(f"a recall was answered {outcome['status']}: {outcome['reason']}")
    traced = answer.get("fused_trace", {}).get("strategies", {})
    strategies = {name: told["time_ms"] for name, told in traced.items()}
    return Answered(ms, answer["timings_ms"], strategies, outcome["status"], len(answer["results"]))


def ask(
    port: int, key: str, *, warm_up: Sequence[Question], questions: Sequence[Question], clients: int
) -> Lap:
    """Ask every question once, shared out among the clients; each warms up first. Raises RequestFailed."""
    if clients == 1:
        return _ask_here(port, key, warm_up, questions)
    return _ask_from_processes(port, key, warm_up, questions, clients)


def _ask_here(port: int, key: str, warm_up: Sequence[Question], questions: Sequence[Question]) -> Lap:
    with closing(Line(port, key)) as line:
        for question in warm_up:
            asked(line, question)
        began = time.perf_counter()
        answers = [asked(line, question) for question in questions]
        return Lap(answers, time.perf_counter() - began)


def _ask_from_processes(
    port: int, key: str, warm_up: Sequence[Question], questions: Sequence[Question], clients: int
) -> Lap:
    """Threads would share one interpreter, and the clients would be what is measured."""
    spawn = multiprocessing.get_context("spawn")
    start = spawn.Barrier(clients)
    ends, processes = [], []
    for place in range(clients):
        here, there = spawn.Pipe(duplex=False)
        shares = (warm_up[place::clients], questions[place::clients])
        processes.append(spawn.Process(target=_client, args=(there, start, port, key, *shares), daemon=True))
        processes[-1].start()
        there.close()
        ends.append(here)
    told = [_told(end) for end in ends]
    for process in processes:
        process.join(TIMEOUT)
    failures = [one for one in told if isinstance(one, str)]
    if failures:
        raise RequestFailed(max(failures, key=len))  # who only waited for another says nothing
    laps = [one for one in told if not isinstance(one, str)]
    answers = [answer for lap, _, _ in laps for answer in lap]
    return Lap(answers, max(ended for *_, ended in laps) - min(began for _, began, _ in laps))


def _told(end: Connection) -> tuple[list[Answered], float, float] | str:
    """A client's answers with its first and last instant, or why it failed."""
    try:
        outcome: tuple[list[Answered], float, float] | str = end.recv()
    except EOFError:
        return "a client ended without a word"
    return outcome


def _client(
    there: Connection,
    start: Barrier,
    port: int,
    key: str,
    warm_up: Sequence[Question],
    questions: Sequence[Question],
) -> None:
    """One client process; perf_counter is one clock for all processes of a machine."""
    try:
        with closing(Line(port, key)) as line:
            for question in warm_up:
                asked(line, question)
            start.wait(TIMEOUT)
            began = time.perf_counter()
            answers = [asked(line, question) for question in questions]
            there.send((answers, began, time.perf_counter()))
    except BrokenBarrierError:
        there.send("")
    except (RequestFailed, OSError) as error:
        start.abort()
        there.send(str(error))
