"""The outbox's worker as it is run: real processes, real signals, kill -9, two at once, a locked database."""

from __future__ import annotations

import json
import os
import random
import select
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
WRITE = """
from django.db import transaction
from ledger.clock import now_ms
from ledger.domain.actors import SYSTEM
from ledger.services import NewContext, add_context
with transaction.atomic():
    for n in range({events}):
        add_context(NewContext(f"a rationale {{n}}"), key=f"key {{n}}", actor=SYSTEM, at=now_ms() + {ahead})
"""
Manage = Callable[..., subprocess.CompletedProcess[str]]

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class House:
    """A migrated data directory and the file that stands for the bank."""

    folder: Path
    manage: Manage
    env: dict[str, str]

    def add(self, events: int, *, ahead_ms: int = 0) -> None:
        write = WRITE.format(events=events, ahead=ahead_ms)
        written = self.manage("shell", "--no-imports", "-c", write, env=self.env)
        assert written.returncode == 0, written.stderr

    def asked(self, sql: str) -> list[tuple[object, ...]]:
        with closing(sqlite3.connect(self.folder / "recall.sqlite3", timeout=20)) as store:
            return store.execute(sql).fetchall()

    def lines(self, word: str) -> Counter[str]:
        bank = Path(self.env["FILE_BANK"])
        told = bank.read_text().splitlines() if bank.exists() else []
        return Counter(line.split()[1] for line in told if line.startswith(word))

    @contextmanager
    def delivering(self, *arguments: str, **env: str) -> Iterator[subprocess.Popen[str]]:
        process = subprocess.Popen(
            [sys.executable, str(ROOT / "manage.py"), "deliver", *arguments],
            env={**os.environ, "RECALL_DATA_DIR": str(self.folder), **self.env, **env},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            yield process
        finally:
            process.kill()
            process.wait()
            if process.stderr is not None:
                process.stderr.close()

    def wait_for(self, what: Callable[[], bool], *, seconds: float = 60) -> None:
        deadline = time.monotonic() + seconds
        while not what():
            assert time.monotonic() < deadline, "it did not happen in time"
            time.sleep(0.02)


@pytest.fixture
def house(tmp_path: Path, manage: Manage) -> House:
    env = {
        "DJANGO_SETTINGS_MODULE": "settings_of_workers",
        "PYTHONPATH": str(ROOT / "tests"),
        "FILE_BANK": str(tmp_path / "bank"),
        "FILE_BANK_SECONDS": "0.01",
        "RECALL_OUTBOX_LEASE_MS": "1500",
    }
    assert manage("migrate", "-v0", env=env).returncode == 0
    return House(tmp_path / "var", manage, env)


def _states(house: House) -> dict[object, object]:
    return dict(house.asked("SELECT state, count(*) FROM ledger_outboxentry GROUP BY state"))  # type: ignore[arg-type]


def test_a_worker_killed_at_ten_random_points_loses_no_event_and_delivers_each_at_least_once(
    house: House,
) -> None:
    house.add(400)
    chance = random.Random(4)
    for _ in range(10):
        seen = sum(house.lines("begun").values())
        with house.delivering() as worker:
            house.wait_for(lambda seen=seen: sum(house.lines("begun").values()) > seen)
            time.sleep(chance.uniform(0, 0.12))
            worker.send_signal(signal.SIGKILL)
            assert worker.wait(timeout=20) == -signal.SIGKILL
    assert _states(house).get("delivered", 0) != 400, "the kills came while there was work"
    with house.delivering() as worker:
        house.wait_for(lambda: _states(house) == {"delivered": 400}, seconds=90)
        worker.terminate()
        assert worker.wait(timeout=20) == 0
    done = house.lines("done")
    ids = {row[0] for row in house.asked("SELECT id FROM ledger_contextevent")}
    assert set(done) == ids, "none was lost, none invented"
    assert len(ids) == 400
    repeats = {name: count for name, count in done.items() if count > 1}
    assert sum(house.lines("begun").values()) - 400 <= 10, "only what was under way at a kill is repeated"
    assert len(repeats) <= 10
    assert house.manage("verify_ledger", env=house.env).returncode == 0


def test_two_workers_on_one_queue_share_it_and_deliver_each_once(house: House) -> None:
    house.add(200)
    with house.delivering("--once") as one, house.delivering("--once") as two:
        assert one.wait(timeout=90) == 0, one.communicate()
        assert two.wait(timeout=90) == 0, two.communicate()
    done = house.lines("done")
    assert (len(done), set(done.values())) == (200, {1})
    tokens = house.asked("SELECT DISTINCT attempts FROM ledger_outboxentry")
    assert tokens == [(1,)]


@pytest.mark.parametrize("workers", [1, 2])
def test_a_worker_that_is_terminated_finishes_what_it_has_begun_and_nothing_more(
    house: House, workers: int
) -> None:
    house.add(20)
    with house.delivering("--workers", str(workers), FILE_BANK_SECONDS="0.7") as worker:
        house.wait_for(lambda: len(house.lines("begun")) == workers)
        worker.terminate()
        _, told = worker.communicate(timeout=20)
    assert worker.returncode == 0
    assert house.lines("done") == house.lines("begun")
    assert _states(house) == {"delivered": workers, "pending": 20 - workers}
    assert f"Delivered {workers} in" in told
    assert f"{20 - workers} wait, 0 failed for good" in told


def test_a_worker_outlives_a_database_that_another_process_locks(house: House) -> None:
    house.add(3)
    locker = sqlite3.connect(house.folder / "recall.sqlite3", isolation_level=None)
    locker.execute("BEGIN IMMEDIATE")
    try:
        with house.delivering() as worker:
            assert "the outbox waits for the database: database is locked" in _first_words(worker)
            assert house.lines("begun") == Counter()
            locker.execute("ROLLBACK")
            house.wait_for(lambda: _states(house) == {"delivered": 3})
            worker.terminate()
            worker.communicate(timeout=20)
    finally:
        locker.close()
    assert set(house.lines("done").values()) == {1}


def _first_words(worker: subprocess.Popen[str], *, within: float = 120) -> str:
    """What it says first; it waits 20 s for the lock, and takes its time to start."""
    assert worker.stderr is not None
    ready, _, _ = select.select([worker.stderr], [], [], within)
    assert ready, "it said nothing"
    return worker.stderr.readline()


def test_a_worker_whose_clock_is_behind_that_of_the_writer_delivers_all_the_same(house: House) -> None:
    house.add(5, ahead_ms=10 * 3_600_000)
    done = house.manage("deliver", "--once", env=house.env)
    assert done.returncode == 0, done.stderr
    assert _states(house) == {"delivered": 5}


def test_several_workers_in_one_process_empty_the_queue_and_tell_their_rate(house: House) -> None:
    house.add(100)
    done = house.manage("deliver", "--once", "--workers", "3", env=house.env)
    assert done.returncode == 0, done.stderr
    assert "Delivered 100 in" in done.stderr
    assert (len(house.lines("done")), _states(house)) == (100, {"delivered": 100})


def test_a_worker_ends_with_the_process_that_started_it(house: House) -> None:
    start = (
        "import os, subprocess, sys, time\n"
        "child = subprocess.Popen([*sys.argv[1:], str(os.getpid())], stderr=subprocess.DEVNULL)\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    command = [sys.executable, str(ROOT / "manage.py"), "deliver", "--with-parent"]
    parent = subprocess.Popen(
        [sys.executable, "-c", start, *command],
        env={**os.environ, "RECALL_DATA_DIR": str(house.folder), **house.env},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    house.add(1)
    house.wait_for(lambda: len(house.lines("done")) == 1)
    parent.kill()
    parent.communicate()
    house.wait_for(lambda: not _runs(child), seconds=20)


def test_a_worker_whose_parent_was_gone_before_it_began_ends_at_once(house: House) -> None:
    assert house.manage("deliver", "--with-parent", "999999999", env=house.env, timeout=30).returncode == 0


def _runs(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    try:
        return stat.read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_ten_thousand_events_are_delivered_by_one_worker_at_a_reported_rate(house: House) -> None:
    house.add(10_000)
    done = house.manage("deliver", "--once", env={**house.env, "FILE_BANK_SECONDS": "0"})
    assert done.returncode == 0, done.stderr
    assert "Delivered 10,000 in" in done.stderr
    print("\n" + done.stderr)
    assert len(house.lines("done")) == 10_000


def test_deliver_says_what_is_wrong_before_it_begins(tmp_path: Path, manage: Manage) -> None:
    new = manage("deliver", "--once", env={"RECALL_DATA_DIR": str(tmp_path / "new")})
    assert (new.returncode, "run manage.py migrate" in new.stderr) == (1, True)
    assert "Traceback" not in new.stderr
    assert "must be at least 1" in manage("deliver", "--workers", "0").stderr


def test_verify_after_all_of_it_tells_the_head_as_json(house: House) -> None:
    house.add(5)
    told = json.loads(house.manage("verify_ledger", "--json", env=house.env).stdout)
    assert (told["ok"], told["events"], told["keyed_from"]) == (True, 5, None)
