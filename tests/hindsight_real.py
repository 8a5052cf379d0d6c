"""A real Hindsight server with its own PostgreSQL, started from a virtual environment of its own.

It has no language model (each text is kept in chunks, as it is), no reranker model, and embeds through a stand-in on
loopback that counts words: what is tested is how we speak with it, and not how well it finds.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import embedding_server
import psycopg
import pytest
from hindsight_peer import API_KEY, Merge

VERSIONS = ("0.10.1", "1.1.0")
VENVS = "RECALL_HINDSIGHT_VENVS"  # a folder with a virtual environment for each version, named by it
REQUIRED = "RECALL_REQUIRE_HINDSIGHT"
STARTS_WITHIN = 90  # seconds; 15 on two idle cores
DIMENSIONS = 384


@dataclass(frozen=True)
class Server:
    """Where it listens, how to plant an observation in it, and the interpreter that has the official client."""

    url: str
    merge: Merge
    python: Path


def python_of(version: str) -> Path:
    """The interpreter of a version's environment. Skips the test without it, or fails it where it is required."""
    folder = os.environ.get(VENVS)
    python = Path(folder or "/nonexistent") / version / "bin" / "python"
    if python.exists():
        return python
    absent = f"no Hindsight {version}: {VENVS} names no folder with a virtual environment {version}"
    if os.environ.get(REQUIRED) == "1":
        pytest.fail(absent)
    pytest.skip(absent)


@contextmanager
def real_hindsight(version: str) -> Iterator[Server]:
    python = python_of(version)
    home = Path(tempfile.mkdtemp(prefix="hindsight-"))
    port, database = _free_port(), _free_port()
    try:
        if os.geteuid() == 0:  # its PostgreSQL refuses root
            shutil.chown(home, "nobody", "nogroup")
        with (
            embedding_server.serving(_embed) as embedder,
            (home / "log").open("wb") as log,
            _process(python, home, log, _environment(embedder.url, port=port, database=database)) as process,
        ):
            _wait(f"http://127.0.0.1:{port}/health", process, home / "log")
            address = f"postgresql://hindsight:hindsight@127.0.0.1:{database}/hindsight"
            yield Server(f"http://127.0.0.1:{port}", _merging(address), python)
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _environment(embedder: str, *, port: int, database: int) -> dict[str, str]:
    named = {
        "HOST": "127.0.0.1",
        "PORT": str(port),
        "DATABASE_URL": f"pg0://recall-tests:{database}",
        "LLM_PROVIDER": "none",
        "EMBEDDINGS_PROVIDER": "openai",
        "EMBEDDINGS_OPENAI_BASE_URL": embedder,
        "EMBEDDINGS_OPENAI_API_KEY": "unused",
        "EMBEDDINGS_OPENAI_MODEL": "word-counts",
        "RERANKER_PROVIDER": "rrf",
        "TENANT_EXTENSION": "hindsight_api.extensions.builtin.tenant:ApiKeyTenantExtension",
        "TENANT_API_KEY": API_KEY,
        "MCP_ENABLED": "false",
        "WORKER_POLL_INTERVAL_MS": "50",
        "LOG_LEVEL": "warning",
    }
    return {f"HINDSIGHT_API_{name}": value for name, value in named.items()}


@contextmanager
def _process(
    python: Path, home: Path, log: Any, environment: dict[str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    """The server as a child of ours, which ends its PostgreSQL with itself."""
    another: dict[str, Any] = (
        {"user": "nobody", "group": "nogroup", "extra_groups": []} if os.geteuid() == 0 else {}
    )
    process = subprocess.Popen(
        [python.with_name("hindsight-api")],
        cwd=home,
        env={"HOME": str(home), "PATH": os.defpath, **environment},
        stdout=log,
        stderr=subprocess.STDOUT,
        **another,
    )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait(address: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + STARTS_WITHIN
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urllib.request.urlopen(address, timeout=2):
                return
        except OSError:
            time.sleep(0.2)
    pytest.fail(f"Hindsight did not start; the end of its log:\n{log.read_text(errors='replace')[-3000:]}")


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


def _embed(handler: BaseHTTPRequestHandler, body: dict[str, Any]) -> None:
    texts = [body["input"]] if isinstance(body["input"], str) else body["input"]
    embedding_server.send(handler, embedding_server.embeddings([_word_counts(text) for text in texts]))


def _word_counts(text: str) -> list[float]:
    counts = [0.0] * DIMENSIONS
    for word in re.findall(r"\w+", text.lower()) or [""]:
        counts[int.from_bytes(hashlib.sha256(word.encode()).digest()[:4]) % DIMENSIONS] += 1
    length = math.sqrt(sum(count * count for count in counts))
    return [count / length for count in counts]


def _merging(address: str) -> Callable[[str, str, Sequence[str]], None]:
    """Without a language model the server consolidates nothing, so an observation is put into its table as it would."""

    def merge(bank: str, text: str, tags: Sequence[str]) -> None:
        vector = json.dumps(_word_counts(text))
        with psycopg.connect(address) as connection:
            connection.execute(
                "INSERT INTO memory_units (bank_id, text, embedding, fact_type, tags, event_date, mentioned_at) "
                "VALUES (%s, %s, %s, 'observation', %s, now(), now())",
                [bank, text, vector, list(tags)],
            )

    return merge
