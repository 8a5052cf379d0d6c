"""kill -9 in the middle of an import: every row that was counted is there with its event, and it resumes."""

from __future__ import annotations

import json
import os
import random
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROWS = 4_000
KILLS = 5
COMMAND = ("import_memories", "--format", "jsonl", "--no-vectors")  # rows are what it counts

pytestmark = pytest.mark.slow


@pytest.fixture
def database(tmp_path: Path, manage: Callable[..., subprocess.CompletedProcess[str]]) -> Path:
    """A migrated database in the directory that `manage` uses."""
    assert manage("migrate").returncode == 0
    return tmp_path / "var" / "recall.sqlite3"


def source_in(folder: Path) -> Path:
    """Memories with a bad row each 100, and a link each 50 (but where a bad row is)."""
    path = folder / "in.jsonl"
    with path.open("w") as file:
        for number in range(ROWS):
            row: dict[str, Any] = {"text": f"memory {number} " + "word " * 20, "external_id": f"m{number}"}
            if number % 100 == 99:
                row = {"text": ""}
            elif number % 50 == 49:
                row = {
                    "kind": "link",
                    "from": f"m{number - 2}",
                    "to": f"m{number - 1}",
                    "type": "EVOLVED_INTO",
                }
            file.write(json.dumps({**row, "workspace": "red"}) + "\n")
    return path


def begun(source: Path, database: Path) -> subprocess.Popen[bytes]:
    """The import as a process of its own, without anybody who waits for it."""
    environment = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "recall.settings",
        "RECALL_DATA_DIR": str(database.parent),
    }
    command = [sys.executable, str(ROOT / "manage.py"), COMMAND[0], str(source), *COMMAND[1:]]
    return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def rows_done(database: Path) -> int:
    with closing(sqlite3.connect(database, timeout=20)) as reading:
        found = reading.execute("SELECT rows_done FROM vault_importrun").fetchone()
    return int(found[0]) if found else 0


def kill_when(process: subprocess.Popen[bytes], database: Path, done: int, *, delay: float) -> int:
    """SIGKILL the import once it has noted `done` rows and a moment more; the rows noted by then."""
    deadline = time.monotonic() + 60
    while rows_done(database) < done and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.002)
    time.sleep(delay)
    process.kill()
    process.wait()
    return rows_done(database)


def expected(done: int) -> tuple[int, int, int]:
    """(memories, links, refused) of the first `done` rows."""
    numbers = range(done)
    refused = sum(number % 100 == 99 for number in numbers)
    links = sum(number % 50 == 49 for number in numbers) - refused
    return done - links - refused, links, refused


def check_whole(database: Path, done: int) -> None:
    """What the database holds is what the first `done` rows come to: rows, tags of none, events, index, counts."""
    memories, links, refused = expected(done)
    with closing(sqlite3.connect(database, timeout=20)) as reading:

        def number(query: str) -> int:
            return int(reading.execute(query).fetchone()[0])

        assert number("SELECT count(*) FROM vault_memory") == memories
        assert number("SELECT count(*) FROM vault_memorylink") == links
        assert number("SELECT count(*) FROM ledger_contextevent WHERE kind = 'memory_created'") == memories
        assert number("SELECT count(*) FROM ledger_contextevent WHERE kind = 'link_created'") == links
        assert number("SELECT count(*) FROM ledger_contextevent") == memories + links
        assert (
            number(
                "SELECT count(*) FROM vault_memory m JOIN ledger_contextevent e ON e.subject_id = m.id "
                "AND e.kind = 'memory_created' AND e.text = m.text"
            )
            == memories
        )
        if memories:
            (space,) = reading.execute("SELECT id FROM vault_workspace WHERE name = 'red'").fetchone()
            assert (
                number(f"SELECT count(*) FROM vault_fts_{space} WHERE vault_fts_{space} MATCH 'memory'")
                == memories
            )
            assert number(f"SELECT memories FROM vault_workspace WHERE id = {space}") == memories
        run = reading.execute(
            "SELECT created, unchanged, skipped, refused_count FROM vault_importrun"
        ).fetchone()
        assert run is None or run == (memories + links, 0, 0, refused)
        assert reading.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_an_import_that_is_killed_loses_nothing_it_counted_and_resumes(
    database: Path, tmp_path: Path, manage: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    source = source_in(tmp_path)
    chance = random.Random(20261130)
    stops: list[int] = []
    for kill in range(KILLS):
        aim = (stops[-1] if stops else 0) + chance.randrange(0, ROWS // (KILLS + 1))
        process = begun(source, database)
        stops.append(kill_when(process, database, aim, delay=chance.random() * 0.1))
        assert process.returncode == -9, f"kill {kill} came too late: the import had ended"
        check_whole(database, stops[-1])
    assert stops == sorted(stops)
    assert 0 < stops[-1] < ROWS

    resumed = manage(COMMAND[0], str(source), *COMMAND[1:])
    again = manage(COMMAND[0], str(source), *COMMAND[1:])
    verified = manage("verify_ledger")

    assert resumed.returncode == 1  # the bad rows
    assert f"Resuming after row {stops[-1]:,}." in resumed.stdout
    memories, links, refused = expected(ROWS)
    told = f"{ROWS:,} rows: {memories + links:,} stored, 0 there already, 0 with nothing to store, {refused} refused."
    assert told in resumed.stdout
    assert "nothing was changed" in again.stdout
    check_whole(database, ROWS)
    assert verified.returncode == 0, verified.stdout + verified.stderr
    print(f"killed after rows {stops} of {ROWS:,}; resumed and complete")
