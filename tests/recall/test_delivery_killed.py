"""Delivery by real processes that are killed at any moment: no event is lost, and a repeat does no harm in the bank."""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from hindsight_peer import API_KEY, Peer

ROOT = Path(__file__).resolve().parent.parent.parent
WRITE = """
from ledger.clock import now_ms
from ledger.domain.actors import SYSTEM
from ledger.services import NewContext, add_context
for n in range({events}):
    new = NewContext(f"Report {{n}} waits for Tom.", item_id=f"itm_{{n % 3}}")
    print(add_context(new, key=f"key {{n}}", actor=SYSTEM, at=now_ms()).event_id)
"""
Manage = Callable[..., subprocess.CompletedProcess[str]]


@contextmanager
def delivering(data: Path, env: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, str(ROOT / "manage.py"), "deliver"]
    environment = {
        **os.environ,
        "RECALL_DATA_DIR": str(data),
        "DJANGO_SETTINGS_MODULE": "recall.settings",
        **env,
    }
    process = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def attempts_in(database: Path) -> int:
    """How often an entry was claimed so far."""
    with closing(sqlite3.connect(database)) as connection:
        (count,) = connection.execute("SELECT sum(attempts) FROM ledger_outboxentry").fetchone()
    return int(count)


def kill_at_random_points(data: Path, env: dict[str, str], *, kills: int, within: float) -> None:
    """Let a worker begin, and end it without a word a moment after it has claimed something; so many times."""
    chance = random.Random(7)
    for _ in range(kills):
        before = attempts_in(data / "recall.sqlite3")
        with delivering(data, env) as process:
            deadline = time.monotonic() + 30
            while attempts_in(data / "recall.sqlite3") == before:
                assert time.monotonic() < deadline, "the worker claims nothing"
                assert process.poll() is None, "the worker has ended by itself"
                time.sleep(0.005)
            time.sleep(chance.uniform(0, within))
            process.send_signal(signal.SIGKILL)


def prepared(manage: Manage, env: dict[str, str], *, events: int) -> list[str]:
    assert manage("migrate", "-v", "0", env=env).returncode == 0
    written = manage("shell", "-v", "0", "-c", WRITE.format(events=events), env=env)
    assert written.returncode == 0, written.stderr
    return written.stdout.split()


def finished(manage: Manage, data: Path, env: dict[str, str]) -> dict[str, str]:
    """Deliver what is left, when the leases of the killed are over; the remote id of each event, all delivered."""
    for _ in range(10):
        if manage("deliver", "--once", env=env, timeout=120).returncode == 0:
            break
        time.sleep(1)
    with closing(sqlite3.connect(data / "recall.sqlite3")) as connection:
        rows = connection.execute("SELECT event_id, state, remote_id FROM ledger_outboxentry").fetchall()
    assert {state for _, state, _ in rows} == {"delivered"}
    assert len({event for event, _, _ in rows}) == len(rows)
    assert manage("verify_ledger", env=env).returncode == 0
    return {event: remote for event, _, remote in rows}


@pytest.mark.slow
def test_a_worker_killed_at_ten_points_leaves_each_event_once_in_this_vault(
    manage: Manage, tmp_path: Path
) -> None:
    env = {"RECALL_OUTBOX_LEASE_MS": "1000"}
    written = prepared(manage, env, events=400)
    kill_at_random_points(tmp_path / "var", env, kills=10, within=0.2)
    delivered = finished(manage, tmp_path / "var", env)
    assert set(delivered) == set(written)
    with closing(sqlite3.connect(tmp_path / "var" / "recall.sqlite3")) as connection:
        kept = connection.execute("SELECT source_event_id, id FROM vault_memory").fetchall()
    assert sorted(kept) == sorted(delivered.items())


@pytest.mark.slow
def test_a_worker_killed_at_random_points_leaves_each_event_once_in_hindsight(
    manage: Manage, tmp_path: Path, hindsight: Peer, request: pytest.FixtureRequest
) -> None:
    is_fake = request.node.callspec.params["hindsight"] == "fake"
    env = {
        "RECALL_OUTBOX_LEASE_MS": "1000",
        "MEMORY_BANK": "hindsight",
        "HINDSIGHT_URL": hindsight.url,
        "HINDSIGHT_API_KEY": API_KEY,
        "HINDSIGHT_BANK_PREFIX": hindsight.prefix,
    }
    written = prepared(manage, env, events=60 if is_fake else 20)
    kill_at_random_points(tmp_path / "var", env, kills=10 if is_fake else 3, within=0.3)
    delivered = finished(manage, tmp_path / "var", env)
    assert set(delivered) == set(written)
    for event in written:
        assert hindsight.document(hindsight.prefix, event)["document_metadata"]["source_event_id"] == event
    sent = [json.dumps(one.body, sort_keys=True) for one in hindsight.asked if one.path.endswith("/memories")]
    assert len(set(sent)) == len(written)  # whatever was sent twice was sent alike
    assert units(hindsight) == len(written)


def units(peer: Peer) -> int:
    """How many memories the bank holds in all, of whatever item."""
    body: dict[str, Any] = {"query": "report waits for Tom", "max_tokens": 100_000, "budget": "high"}
    _, told, _ = peer.directly("POST", f"{peer.prefix}/memories/recall", body)
    return len(told["results"])
