"""`serve --with-worker`: delivery in a process beside the server, kept running, and ended with it."""

from __future__ import annotations

import os
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ADD = """
from ledger.clock import now_ms
from ledger.domain.actors import SYSTEM
from ledger.services import NewContext, add_context
add_context(NewContext("a rationale"), key="{key}", actor=SYSTEM, at=now_ms())
"""
Manage = Callable[..., subprocess.CompletedProcess[str]]

pytestmark = pytest.mark.slow


@pytest.fixture
def env(tmp_path: Path, manage: Manage) -> dict[str, str]:
    """The environment of a migrated house whose bank is a file."""
    env = {
        "DJANGO_SETTINGS_MODULE": "settings_of_workers",
        "PYTHONPATH": str(ROOT / "tests"),
        "FILE_BANK": str(tmp_path / "bank"),
        "RECALL_OUTBOX_LEASE_MS": "1500",
    }
    assert manage("migrate", "-v0", env=env).returncode == 0
    return env


@contextmanager
def serving(tmp_path: Path, env: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with (tmp_path / "serve.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, str(ROOT / "manage.py"), "serve", "--port", str(port), "--with-worker"],
            env={**os.environ, "RECALL_DATA_DIR": str(tmp_path / "var"), **env},
            stdout=subprocess.DEVNULL,
            stderr=log,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def wait_for(what: Callable[[], bool], *, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)


def delivering(session: int) -> list[int]:
    """The `deliver` processes of a server, which has a session of its own."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            fields = (process / "stat").read_text().rsplit(")", 1)[1].split()
            command = (process / "cmdline").read_bytes().split(b"\0")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(fields[3]) == session and fields[0] != "Z" and b"deliver" in command:
            found.append(int(process.name))
    return found


def delivered(tmp_path: Path) -> int:
    with closing(sqlite3.connect(tmp_path / "var" / "recall.sqlite3", timeout=20)) as store:
        (count,) = store.execute(
            "SELECT count(*) FROM ledger_outboxentry WHERE state = 'delivered'"
        ).fetchone()
    return int(count)


def test_it_delivers_beside_the_server_again_after_a_kill_and_ends_with_it(
    tmp_path: Path, manage: Manage, env: dict[str, str]
) -> None:
    with serving(tmp_path, env) as server:
        assert manage("shell", "--no-imports", "-c", ADD.format(key="one"), env=env).returncode == 0
        wait_for(lambda: delivered(tmp_path) == 1)
        (first,) = delivering(server.pid)
        os.kill(first, signal.SIGKILL)
        assert manage("shell", "--no-imports", "-c", ADD.format(key="two"), env=env).returncode == 0
        wait_for(lambda: delivered(tmp_path) == 2)
        (second,) = delivering(server.pid)
        assert second != first
        server.terminate()
        assert server.wait(timeout=20) == 0
        wait_for(lambda: delivering(server.pid) == [], seconds=10)
    assert "started again" in (tmp_path / "serve.log").read_text()
    done = Path(env["FILE_BANK"]).read_text().splitlines()
    assert len([line for line in done if line.startswith("done")]) == 2


def test_when_the_process_that_holds_delivery_is_killed_another_takes_it_over(
    tmp_path: Path, manage: Manage, env: dict[str, str]
) -> None:
    with serving(tmp_path, env) as server:
        wait_for(lambda: len(delivering(server.pid)) == 1)
        (first,) = delivering(server.pid)
        holder = int(Path(f"/proc/{first}/stat").read_text().rsplit(")", 1)[1].split()[1])
        os.kill(holder, signal.SIGKILL)
        wait_for(lambda: len(now := delivering(server.pid)) == 1 and now != [first])
        assert manage("shell", "--no-imports", "-c", ADD.format(key="one"), env=env).returncode == 0
        wait_for(lambda: delivered(tmp_path) == 1)


@pytest.mark.parametrize("table", ["ledger_supersession", "ledger_operation"])
def test_neither_serve_nor_verify_ledger_runs_without_the_guards_of_what_is_written_once(
    tmp_path: Path, manage: Manage, env: dict[str, str], table: str
) -> None:
    with closing(sqlite3.connect(tmp_path / "var" / "recall.sqlite3")) as store:
        store.execute(f"DROP TRIGGER {table}_no_update")
    for command in (("serve", "--port", "0"), ("verify_ledger",)):
        refused = manage(*command, env=env)
        assert refused.returncode == 1
        assert f"the database lacks {table}_no_update" in refused.stderr
        assert "Traceback" not in refused.stderr
