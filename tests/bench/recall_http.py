"""Measure recall over HTTP on a real `manage.py serve`: p50 and p95, and where the time goes.

    python tests/bench/recall_http.py [--memories 10000] [--questions 300] [--clients 1]

It makes a store of its own in a temporary directory (texts of a Zipf-like vocabulary, ages over a year, a tenth
expired, a tenth replaced), serves it, asks questions of three to eight words, mode lexical, profile validity,
and prints one table. Figures of two machines, or of two runs on a shared one, do not compare; ratios do.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
VOCABULARY = 20_000
DAY = 86_400_000


def texts(count: int, seed: int) -> Iterator[str]:
    words = [f"word{n}" for n in range(VOCABULARY)]
    weights = [1 / (n + 3) for n in range(VOCABULARY)]
    chance = random.Random(seed)
    for _ in range(count):
        yield " ".join(chance.choices(words, weights, k=chance.randint(15, 50)))


def questions(count: int) -> list[str]:
    words = [f"word{n}" for n in range(VOCABULARY)]
    weights = [1 / (n + 3) for n in range(VOCABULARY)]
    chance = random.Random(7)
    return [" ".join(chance.choices(words, weights, k=chance.randint(3, 8))) for _ in range(count)]


@contextmanager
def served(data_dir: Path, workers: int) -> Iterator[int]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    env = {**os.environ, "RECALL_DATA_DIR": str(data_dir), "RECALL_RATE_LIMIT": "1000000"}
    command = [sys.executable, "manage.py", "serve", "--port", str(port), "--workers", str(workers)]
    server = subprocess.Popen(command, cwd=ROOT, env=env, stderr=subprocess.DEVNULL)
    try:
        for _ in range(200):
            try:
                socket.create_connection(("127.0.0.1", port), 0.2).close()
                break
            except OSError:
                time.sleep(0.1)
        yield port
    finally:
        server.terminate()
        server.wait(20)


def manage(data_dir: Path, *arguments: str) -> str:
    env = {**os.environ, "RECALL_DATA_DIR": str(data_dir)}
    done = subprocess.run(
        [sys.executable, "manage.py", *arguments],
        cwd=ROOT,
        env=env,
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout


class Client:
    """One keep-alive connection."""

    def __init__(self, port: int, key: str) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port)
        self._headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}

    def post(self, path: str, body: Any) -> tuple[float, Any]:
        sent = json.dumps(body)
        started = time.perf_counter()
        self._connection.request("POST", path, sent, self._headers)
        response = self._connection.getresponse()
        raw = response.read()
        took = time.perf_counter() - started
        answer = json.loads(raw)
        assert response.status < 300, answer
        return took, answer


def fill(client: Client, count: int, workspace: str) -> None:
    now = time.time_ns() // 1_000_000
    chance = random.Random(3)
    rows = []
    for text in texts(count, seed=1):
        age = chance.randint(0, 365) * DAY
        row: dict[str, Any] = {"text": text, "workspace": workspace, "created_at_unix_ms": now - age}
        if chance.random() < 0.1:
            row["t_invalid_unix_ms"] = now - chance.randint(1, 20) * DAY
        rows.append(row)
    ids = []
    for start in range(0, count, 1000):
        _, answer = client.post("/v1/memories/bulk", {"memories": rows[start : start + 1000]})
        ids += [entry["id"] for entry in answer["memories"]]
    for place in range(0, count - 1, 10):
        client.post("/v1/links", {"from": ids[place], "to": ids[place + 1], "type": "EVOLVED_INTO"})


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def ask(port: int, key: str, asked: list[str], workspace: str) -> tuple[list[float], dict[str, list[float]]]:
    client = Client(port, key)
    took: list[float] = []
    stages: dict[str, list[float]] = defaultdict(list)
    for question in asked:
        body = {
            "query": question,
            "workspace": workspace,
            "mode": "lexical",
            "profile": "validity",
            "limit": 10,
        }
        seconds, answer = client.post("/v1/recall", body)
        took.append(seconds * 1000)
        for stage, ms in answer["timings_ms"].items():
            stages[stage].append(ms)
    return took, stages


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--memories", type=int, default=10_000)
    parser.add_argument("--elsewhere", type=int, default=0, help="memories of another workspace beside them")
    parser.add_argument("--questions", type=int, default=300)
    parser.add_argument("--clients", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        data_dir = Path(directory)
        manage(data_dir, "migrate", "-v0")
        key = json.loads(manage(data_dir, "create_api_key", "bench", "--json"))["key"]
        with served(data_dir, options.workers) as port:
            client = Client(port, key)
            fill(client, options.memories, "bench")
            if options.elsewhere:
                fill(client, options.elsewhere, "elsewhere")
            ask(port, key, questions(40), "bench")  # warm up
            results: list[Any] = []
            threads = [
                threading.Thread(
                    target=lambda: results.append(ask(port, key, questions(options.questions), "bench"))
                )
                for _ in range(options.clients)
            ]
            started = time.perf_counter()
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            wall = time.perf_counter() - started
    took = [ms for result, _ in results for ms in result]
    print(f"{options.memories:,} memories (+{options.elsewhere:,} elsewhere), {options.clients} client(s)")
    rate = len(took) / wall
    print(
        f"{'request':<10} p50 {percentile(took, 0.5):7.2f}  p95 {percentile(took, 0.95):7.2f} ms  {rate:.0f}/s"
    )
    total = statistics.fmean(took)
    for stage in results[0][1]:
        values = [ms for _, stages in results for ms in stages[stage]]
        share = statistics.fmean(values) / total
        print(
            f"{stage:<10} p50 {percentile(values, 0.5):7.2f}  p95 {percentile(values, 0.95):7.2f} ms  {share:5.1%}"
        )


if __name__ == "__main__":
    main()
