"""Many writers, one chain: threads and processes append at once, and the chain stays gapless and whole."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from django.db import connection, transaction

from ledger.domain.actors import SYSTEM
from ledger.domain.events import MEMORY_CREATED, NewEvent
from ledger.domain.instants import UnixMs
from ledger.models import ContextEvent
from ledger.queries import verify
from ledger.services import append_event

ROOT = Path(__file__).resolve().parents[2]

WRITER = """
import os, sys
import django
django.setup()
from ledger.domain.actors import SYSTEM
from vault import services
from vault.domain.access import Reach
caller = services.Caller(SYSTEM, Reach.everything())
sys.stdin.readline()  # all writers start together
for number in range(int(sys.argv[2])):
    services.remember({"text": f"{sys.argv[1]} {number}", "workspace": "shared"}, caller=caller, at=number)
"""


@pytest.mark.django_db(transaction=True)
def test_threads_that_append_at_once_leave_a_gapless_chain(now: UnixMs) -> None:
    failures: list[BaseException] = []

    def write(number: int) -> None:
        try:
            for turn in range(25):
                event = NewEvent(
                    kind=MEMORY_CREATED,
                    actor=SYSTEM,
                    workspace="",
                    subject_id=f"mem_{number}",
                    occurred_at=now,
                    text=f"{number}:{turn}",
                )
                with transaction.atomic():
                    append_event(event, at=now)
        except BaseException as failure:
            failures.append(failure)
        finally:
            connection.close()

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert list(ContextEvent.objects.order_by("seq").values_list("seq", flat=True)) == list(range(1, 101))
    assert verify().ok
    for number in range(4):
        texts = list(ContextEvent.objects.about(f"mem_{number}").values_list("text", flat=True))
        assert texts == [f"{number}:{turn}" for turn in range(25)]


@pytest.mark.slow
def test_processes_that_remember_at_once_lose_nothing_and_leave_a_whole_chain(
    manage: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert manage("migrate", "--verbosity", "0").returncode == 0
    monkeypatch.setenv("DJANGO_SETTINGS_MODULE", "recall.settings")
    monkeypatch.setenv("RECALL_DATA_DIR", str(tmp_path / "var"))
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, f"writer{number}", "30"],
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        for number in range(3)
    ]
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("go\n")
        writer.stdin.flush()
    for writer in writers:
        _, complaint = writer.communicate(timeout=120)
        assert writer.returncode == 0, complaint

    checked = manage("shell", "--no-imports", "-c", "from ledger.queries import verify; print(verify())")
    assert checked.returncode == 0, checked.stderr
    assert "events=90" in checked.stdout
    assert "first_broken=None" in checked.stdout

    store = sqlite3.connect(tmp_path / "var" / "recall.sqlite3")
    try:
        assert store.execute("SELECT count(*), min(seq), max(seq) FROM ledger_contextevent").fetchone() == (
            90,
            1,
            90,
        )
        assert store.execute("SELECT count(*) FROM vault_memory").fetchone() == (90,)
        assert store.execute("SELECT name, memories FROM vault_workspace").fetchall() == [("shared", 90)]
        found = store.execute("SELECT count(*) FROM vault_fts_1 WHERE vault_fts_1 MATCH 'writer1'").fetchone()
        assert found == (30,)
    finally:
        store.close()
