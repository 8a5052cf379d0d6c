"""Index files under faults: whatever happens to them, the answers are those of the database, a warning says so, and the
next reader finds whole files again."""

from __future__ import annotations

import json
import logging
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from index_worlds import ADA, NOW, World, database_in, template

from recall.indexes import Found, Index, Question
from recall.indexes.resident import ResidentIndex, files, flat, shelf, upkeep
from recall.indexes.resident.flat import Flat
from recall.indexes.sqlite import SqliteIndex
from vault import services, vectors
from vault.domain.access import Scope
from vault.models import EmbeddingModel, Memory, Workspace

ROOT = Path(__file__).resolve().parents[2]
RED = Scope(("red",))
FILED = 30


@pytest.fixture
def world(
    tmp_path: Path,
    django_db_blocker: Any,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[World]:
    """Sixty memories in a workspace that is large enough for files."""
    monkeypatch.setattr(shelf, "FILED", FILED)
    with django_db_blocker.unblock(), database_in(tmp_path, template(tmp_path_factory)):
        made = World()
        made.remember([made.fields() | {"workspace": "red"} for _ in range(60)])
        yield made


@pytest.fixture
def question(world: World) -> Question:
    return world.question("note team plan boats", workspace="red", current_only=False)


def answers(index: Index, question: Question) -> list[list[Found]]:
    with index.opened(RED) as workspaces:
        question = replace(question, workspaces=workspaces, scope=RED)
        found = [index.lexical(question), index.dense(question, floor=0.0), index.by_filters(question)]
    return [[f._replace(score=round(f.score, 12)) for f in one] for one in found]


def rightly_answered(question: Question) -> ResidentIndex:
    """A process that starts now answers like the database itself."""
    index = ResidentIndex()
    found = answers(index, question)
    assert found == answers(SqliteIndex(), question)
    assert len(found[2]) > 50
    return index


def generation() -> Path:
    (found,) = files.home(red()).glob("generation-*")
    return found


def red() -> Workspace:
    return Workspace.objects.get(name="red")


def is_filed(index: ResidentIndex) -> bool:
    return isinstance(index._kept[red().pk].base.vectors, Flat)


# ------------------------------------------------------------------------------------------------ damage


def _all_gone(folder: Path) -> None:
    shutil.rmtree(folder.parent)


def _one_gone(folder: Path) -> None:
    (folder / "terms-rows.npy").unlink()


def _no_manifest(folder: Path) -> None:
    (folder / files.MANIFEST).unlink()


def _half_a_manifest(folder: Path) -> None:
    path = folder / files.MANIFEST
    path.write_bytes(path.read_bytes()[:100])


def _emptied(folder: Path) -> None:
    for path in folder.iterdir():
        path.unlink()


def _truncated(folder: Path) -> None:
    path = folder / flat.VECTORS
    os.truncate(path, path.stat().st_size - 1000)


def _a_bit_flipped(folder: Path) -> None:
    path = folder / flat.VECTORS
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def _a_byte_of_a_column_flipped(folder: Path) -> None:
    path = folder / "column-expires_at.npy"
    data = bytearray(path.read_bytes())
    data[-3] ^= 0xFF
    path.write_bytes(data)


def _told(name: str, value: object) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        path = folder / files.MANIFEST
        path.write_text(json.dumps({**json.loads(path.read_bytes()), name: value}))

    return damage


def _made_at(name: str, value: object) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        manifest = json.loads((folder / files.MANIFEST).read_bytes())
        manifest["made_at"][name] = value
        (folder / files.MANIFEST).write_text(json.dumps(manifest))

    return damage


DAMAGE: dict[str, Callable[[Path], None]] = {
    "all files deleted": _all_gone,
    "one file deleted": _one_gone,
    "no manifest": _no_manifest,
    "half a manifest": _half_a_manifest,
    "an empty directory": _emptied,
    "a truncated file": _truncated,
    "a flipped bit in the vectors": _a_bit_flipped,
    "a flipped byte in a column": _a_byte_of_a_column_flipped,
    "another layout": _told("layout", 0),
    "another tokenizer": _told("tokenizer", "ascii"),
    "another model": _told("model", "another"),
    "another database": _made_at("ledger_hash", "f" * 64),
    "a later ledger": _made_at("ledger_seq", 1_000_000),
    "a later change": _made_at("watermark", 1_000_000),
    "another memory's change": _made_at("changed", 1),
    "a manifest of another shape": _told("made_at", {"when": 1}),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_files_are_reported_replaced_and_never_believed(
    world: World, question: Question, caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    assert is_filed(rightly_answered(question))
    DAMAGE[damage](generation())
    caplog.clear()
    assert is_filed(rightly_answered(question))
    told = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert damage == "all files deleted" or "made again" in told[0]
    caplog.clear()
    assert is_filed(rightly_answered(question))  # and now they are whole
    assert not caplog.records
    assert files.newest(red(), world.model, patient=True) is not None


@pytest.mark.parametrize("name", [flat.VECTORS, flat.BYTES, flat.SCALES])
@pytest.mark.parametrize("place", range(0, 100, 9))
def test_a_scan_file_that_ends_anywhere_is_not_believed_even_without_its_checksum(
    world: World, question: Question, place: int, name: str
) -> None:
    """As when the disk filled up while its last bytes were written, and nobody noticed."""
    rightly_answered(question)
    folder = generation()
    path = folder / name
    os.truncate(path, path.stat().st_size * place // 100)
    manifest = json.loads((folder / files.MANIFEST).read_bytes())
    manifest["files"][name] = [path.stat().st_size, files._checksum(path)]
    (folder / files.MANIFEST).write_text(json.dumps(manifest))
    assert is_filed(rightly_answered(question))


def test_files_of_another_database_are_not_believed(
    world: World,
    question: Question,
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    rightly_answered(question)
    ours = generation()
    other = tmp_path / "other"
    other.mkdir()
    with database_in(other, template(tmp_path_factory)):
        stranger = World()
        stranger.remember([{"text": f"note of a stranger {n}", "workspace": "red"} for n in range(60)])
        with ResidentIndex().opened(RED):
            theirs = generation()
    shutil.rmtree(ours)
    shutil.copytree(theirs, ours)
    assert is_filed(rightly_answered(question))


def test_files_of_another_embedder_are_made_anew_and_its_vectors_never_asked(
    world: World, question: Question
) -> None:
    kept = rightly_answered(question)
    EmbeddingModel.objects.filter(pk=world.model.pk).update(name="the one before")
    for index in (kept, ResidentIndex()):
        assert answers(index, question)[1] == []
        assert len(answers(index, question)[0]) > 20
    EmbeddingModel.objects.filter(pk=world.model.pk).update(name=world.model.name)
    assert is_filed(rightly_answered(question))
    assert answers(kept, question) == answers(SqliteIndex(), question)


def test_a_large_workspace_without_any_vector_has_files_too(world: World, question: Question) -> None:
    for seq in Memory.objects.values_list("seq", flat=True):
        vectors.drop(seq)
    vectors.note_changes(red().pk, list(Memory.objects.values_list("seq", flat=True)))
    assert is_filed(rightly_answered(question))
    marked = generation()
    assert is_filed(rightly_answered(question))
    assert generation() == marked


def test_files_deleted_under_a_running_index_leave_its_answers_as_they_are(
    world: World, question: Question
) -> None:
    kept = rightly_answered(question)
    shutil.rmtree(files.home(red()))
    assert answers(kept, question) == answers(SqliteIndex(), question)
    world.remember([{"text": "note written after", "workspace": "red"}])
    assert answers(kept, question) == answers(SqliteIndex(), question)


def test_upkeep_renews_files_that_are_missing_or_far_behind(
    world: World, question: Question, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shelf, "LONG_TAIL", 20)
    assert [workspace.name for workspace in upkeep.behind()] == ["red"]
    upkeep.renew(red())
    assert upkeep.behind() == []
    world.remember([{"text": f"note {n}", "workspace": "red"} for n in range(15)])
    assert [workspace.name for workspace in upkeep.behind()] == ["red"]
    before = generation()
    upkeep.renew(red())
    assert generation().name > before.name
    assert rightly_answered(question)._kept[red().pk].tail.size == 0


@pytest.mark.parametrize("stays_large", [True, False])
def test_files_that_hold_an_erased_memory_are_renewed_or_thrown_away(
    world: World, question: Question, monkeypatch: pytest.MonkeyPatch, stays_large: bool
) -> None:
    (gone,) = world.remember([{"text": "the zanzibarquux note", "workspace": "red"}])
    upkeep.renew(red())
    assert any(b"zanzibarquux" in path.read_bytes() for path in generation().iterdir())
    (files.home(red()) / "making-1").mkdir()  # of a writer that was killed
    services.erase(gone.id, caller=ADA, at=NOW, reason="asked to")
    assert [workspace.name for workspace in upkeep.behind()] == ["red"]
    if not stays_large:
        monkeypatch.setattr(shelf, "FILED", 1_000)
    upkeep.renew(red())
    assert upkeep.holding_erased() == []
    assert bool(files.folders(red())) == stays_large
    held = [path.read_bytes() for path in files.home(red()).rglob("*") if path.is_file()]
    assert not any(b"zanzibarquux" in content for content in held)
    if stays_large:
        rightly_answered(question)


# ------------------------------------------------------------------------------------------------ the disk refuses


def test_a_disk_without_room_for_files_costs_memory_and_no_answer(
    world: World, question: Question, caplog: pytest.LogCaptureFixture
) -> None:
    """Files may not grow past 20 kB in this process: every write beyond it fails."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, before[1]))
        index = rightly_answered(question)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not is_filed(index)
    assert any("cannot be written" in record.getMessage() for record in caplog.records)
    assert list(files.home(red()).glob("*-*")) == []  # nothing is left of it
    assert is_filed(rightly_answered(question))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a small disk")
@pytest.mark.parametrize("kilobytes", [16, 40, 72, 100])
def test_a_full_disk_costs_memory_and_no_answer(
    world: World, question: Question, caplog: pytest.LogCaptureFixture, kilobytes: int
) -> None:
    home = files.home(red())
    home.mkdir(parents=True)
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", str(home)], check=False
    )
    if mounted.returncode:
        pytest.skip("this machine lets nobody mount")
    try:
        assert not is_filed(rightly_answered(question))
        assert any("cannot be written" in record.getMessage() for record in caplog.records)
        assert list(home.glob("*-*")) == []
    finally:
        subprocess.run(["umount", str(home)], check=True)
    assert is_filed(rightly_answered(question))


@pytest.mark.skipif(os.geteuid() != 0, reason="a directory of somebody else's needs somebody else")
@pytest.mark.parametrize("mode", [0o755, 0o700], ids=["only to read", "not even to read"])
def test_a_directory_of_somebody_else_costs_memory_and_no_answer(
    world: World, question: Question, caplog: pytest.LogCaptureFixture, tmp_path: Path, mode: int
) -> None:
    nobody = 65534
    for path in (tmp_path, *tmp_path.iterdir()):
        os.chown(path, nobody, nobody)
    files.home(red()).mkdir(parents=True)  # root's
    files.home(red()).parent.chmod(mode)
    closed = [folder for folder in tmp_path.parents if not folder.stat().st_mode & 0o001]
    for folder in closed:
        folder.chmod(0o711)
    try:
        os.seteuid(nobody)
        index = rightly_answered(question)
        world.remember([{"text": f"note {n}", "workspace": "red"} for n in range(30)])
        assert answers(index, question) == answers(SqliteIndex(), question)
    finally:
        os.seteuid(0)
        for folder in closed:
            folder.chmod(0o700)
    assert not is_filed(index)
    assert any("Permission denied" in record.getMessage() for record in caplog.records)
    assert is_filed(rightly_answered(question))


# ------------------------------------------------------------------------------------------------ other processes

BEGIN = """
import json, sys
from dataclasses import replace
import django
django.setup()
from recall.indexes.resident import ResidentIndex, shelf
from index_worlds import *
shelf.FILED, shelf.LONG_TAIL = 30, 25
from vault.domain.access import Scope
RED = Scope(("red",))
"""

BUILD = """
from recall.indexes.resident import upkeep
from vault.models import Workspace
print("ready", flush=True)
while True:
    upkeep.renew(Workspace.objects.get(name="red"))
"""

WRITE = """
world = World()
print("ready", flush=True)
n = 0
while True:
    world.remember([{"text": f"bulk {n}", "workspace": "red", "tags": [f"b{n}"]} for _ in range(5)])
    n += 1
"""

# Writes, asks for what it wrote, and counts what it ever wrote; the other process does the same.
BOTH = """
name = sys.argv[1]
world, index = World(), ResidentIndex()
print("ready", flush=True)
sys.stdin.readline()
mine = []
for n in range(40):
    (memory,) = world.remember([{"text": f"note of {name} {n}", "workspace": "red", "tags": [name]}])
    mine.append(memory.id)
    if n % 5 == 4:
        services.archive(mine.pop(0), caller=ADA, at=NOW)
    question = world.question(f"note {name}", workspace="red", limit=200, tags=(name,))
    with index.opened(RED) as workspaces:
        question = replace(question, workspaces=workspaces)
        for found in (index.lexical(question), index.by_filters(question)):
            found = {f.facts.id for f in found if f.open}
            assert found == set(mine), (n, found ^ set(mine))
print(json.dumps(mine), flush=True)
"""


@pytest.fixture
def begun(world: World) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """`begun(BUILD)`: a process that works on the same database, up to the point where it is ready."""
    started: list[subprocess.Popen[str]] = []
    folder = Path(connection.settings_dict["NAME"]).parent

    def start(code: str, *arguments: str) -> subprocess.Popen[str]:
        environment = {
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "recall.settings",
            "RECALL_DATA_DIR": str(folder),
            "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}",
        }
        process = subprocess.Popen(
            [sys.executable, "-c", BEGIN + code, *arguments],
            env=environment,
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()


@pytest.mark.slow
@pytest.mark.parametrize("delay_ms", [1, 7, 15, 23, 40, 90])
def test_a_process_killed_while_it_writes_files_leaves_nothing_that_is_believed(
    question: Question, begun: Callable[..., subprocess.Popen[str]], delay_ms: int
) -> None:
    process = begun(BUILD)
    time.sleep(delay_ms / 1000)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert is_filed(rightly_answered(question))  # its claim is freed, or this would wait for ever
    upkeep.renew(red())
    assert [path.name[:10] for path in files.home(red()).iterdir() if path.is_dir()] == ["generation"]


@pytest.mark.slow
@pytest.mark.parametrize("delay_ms", [20, 90, 200])
def test_a_process_killed_while_it_writes_memories_leaves_whole_batches_to_every_index(
    world: World, begun: Callable[..., subprocess.Popen[str]], delay_ms: int
) -> None:
    kept = ResidentIndex()
    process = begun(WRITE)
    question = world.question("bulk", workspace="red", limit=200)
    until = time.monotonic() + delay_ms / 1000
    while time.monotonic() < until:
        assert len(answers(kept, question)[0]) % 5 == 0
    process.send_signal(signal.SIGKILL)
    process.wait()
    written = Memory.objects.filter(text__startswith="bulk").count()
    assert written % 5 == 0
    assert written > 0
    assert answers(kept, question) == answers(ResidentIndex(), question) == answers(SqliteIndex(), question)
    world.remember([{"text": "bulk of the survivor", "workspace": "red"}])
    assert answers(kept, question) == answers(SqliteIndex(), question)


@pytest.mark.slow
def test_two_processes_that_write_and_ask_at_once_see_their_own_writes_and_lose_none(
    world: World, begun: Callable[..., subprocess.Popen[str]]
) -> None:
    processes = [begun(BOTH, name) for name in ("ada", "bob")]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    for name, process in zip(("ada", "bob"), processes, strict=True):
        told, _ = process.communicate(timeout=120)
        assert process.returncode == 0
        mine = set(json.loads(told))
        assert len(mine) == 32
        question = world.question("note", workspace="red", tags=(name,), limit=200)
        for index in (ResidentIndex(), SqliteIndex()):
            assert {f.facts.id for f in answers(index, question)[2] if f.open} == mine
