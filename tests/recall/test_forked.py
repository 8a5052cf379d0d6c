"""A process that recalled may fork, as `demo` does before it serves: the child recalls too."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
SCRIPT = """
import os, signal, time
import django
django.setup()
from django.db import connections
from ledger.domain.actors import Actor
from recall import services
from recall.domain.request import RecallRequest
from vault.domain.access import Reach
from vault.services import Caller, remember

caller = Caller(Actor("cli", "1", "ada"), Reach.everything())
now = time.time_ns() // 1_000_000

def recalled(question):
    return services.recall(RecallRequest(query=question), caller=caller, surface="cli", at=now)["count"]

remember({"text": "the fence is painted green"}, caller=caller, at=now)
for question in ("fence", "paint", "green"):
    assert recalled(question) == 1
connections.close_all()
child = os.fork()
if not child:
    signal.alarm(20)  # a child that hangs is killed, and then its status is not 0
    os._exit(0 if recalled("which colour has the fence") == 1 else 1)
_, status = os.waitpid(child, 0)
raise SystemExit(status != 0)
"""


@pytest.mark.slow
def test_a_child_of_a_process_that_recalled_recalls(
    manage: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    assert manage("migrate", "-v0").returncode == 0
    environment = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "recall.settings",
        "RECALL_DATA_DIR": str(tmp_path / "var"),
        "PYTHONPATH": str(ROOT),
    }
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
