"""A disk that is really full: a clear refusal, nothing half-written, and the same requests work once there is space."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ADD_UNTIL_REFUSED = """
from ledger.clock import now_ms
from ledger.domain.actors import SYSTEM
from ledger.domain.refusals import Refused
from ledger.models import ContextEvent, Operation, OutboxEntry
from ledger.services import NewContext, add_context
try:
    for n in range(500):
        new = NewContext(f"{n} " + "x" * 30_000)
        done = add_context(new, key=f"key {n}", actor=SYSTEM, at=now_ms())
except Refused as refusal:
    print(refusal.status, refusal.code, {model.objects.count() for model in (ContextEvent, Operation, OutboxEntry)})
"""

pytestmark = pytest.mark.slow


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 6 MB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = os.geteuid() == 0 and _mount("tmpfs", "-o", "size=6m", str(disk))
    if not mounted:
        pytest.skip("a file system can be mounted by root alone, where the container lets it")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def _mount(kind: str, *arguments: str) -> bool:
    return (
        subprocess.run(["mount", "-t", kind, kind, *arguments], capture_output=True, check=False).returncode
        == 0
    )


def test_a_full_disk_refuses_and_keeps_what_it_has(
    small_disk: Path, manage: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    env = {"RECALL_DATA_DIR": str(small_disk)}
    assert manage("migrate", "-v0", env=env).returncode == 0
    told = []
    for megabytes in (6, 9):
        subprocess.run(["mount", "-o", f"remount,size={megabytes}m", str(small_disk)], check=True)
        done = manage("shell", "--no-imports", "-c", ADD_UNTIL_REFUSED, env=env)
        status, code, counts = done.stdout.split(maxsplit=2)
        assert (status, code) == ("503", "storage_full"), done.stderr
        assert "," not in counts, "as many events as operations and outbox entries"
        told.append(int(counts.strip().strip("{}")))
        verified = manage("verify_ledger", env=env)
        assert (verified.returncode, verified.stdout.split()[0]) == (0, "Intact:"), verified.stderr
    assert 20 < told[0] < told[1], "the first ones were not written again, and others went in"
