"""A workspace as files in the data directory: read once from the database, mapped by every process after.

A generation is a folder, written beside, synced, then renamed into place, so it is there whole or not at all. It is
never trusted: its manifest names the layout, tokenizer, model and database it was made for, and the size and checksum
of every file. What does not agree is thrown away and made again from the database.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import shutil
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from django.conf import settings

from recall.indexes.resident import flat, reading
from recall.indexes.resident.flat import Flat
from recall.indexes.resident.postings import Postings
from recall.indexes.resident.reading import Moment
from recall.indexes.resident.segment import Segment
from vault.fulltext import TOKENIZER
from vault.models import EmbeddingModel, Workspace

log = logging.getLogger(__name__)

LAYOUT = 5
MANIFEST = "manifest.json"


class Unusable(Exception):
    """A generation does not agree with its manifest, or its manifest with the database."""


class Ahead(Exception):
    """A generation was made from a state that the caller's snapshot does not show: a later one, or, after a backup was
    restored, one that never will be."""


def home(workspace: Workspace) -> Path:
    return Path(settings.DATA_DIR) / "index" / str(workspace.pk)


@contextmanager
def sole_writer(workspace: Workspace) -> Iterator[None]:
    """Wait until no other process writes the workspace's files; the operating system frees a dead one's claim."""
    folder = home(workspace)
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "writing").open("w") as claim:
        fcntl.flock(claim, fcntl.LOCK_EX)
        yield


class Generation(NamedTuple):
    """What the files of a workspace say: its rows, its categories' codes, and how far they go."""

    segment: Segment
    categories: dict[str, int]
    watermark: int


def _generations(workspace: Workspace) -> list[Path]:
    """The folders of generations, newest first."""
    try:
        return sorted(home(workspace).glob("generation-" + "[0-9]" * 16), reverse=True)
    except OSError as reason:
        log.warning("index files cannot be read (%s)", reason)
        return []


def newest_mark(workspace: Workspace) -> int:
    """The watermark of the newest generation, unread; 0 where there is none."""
    folders = _generations(workspace)
    return int(folders[0].name[-16:]) if folders else 0


def folders(workspace: Workspace) -> list[Path]:
    """Every folder of a workspace's files, of a writer too, who may have been killed."""
    return _generations(workspace) + sorted(home(workspace).glob("making-*"))


def older_than(workspace: Workspace, mark: int) -> list[Path]:
    """Folders that may hold what the workspace held before a watermark."""
    return [
        folder
        for folder in folders(workspace)
        if folder.name.startswith("making-") or int(folder.name[-16:]) < mark
    ]


def throw_away(workspace: Workspace) -> None:
    """Remove every file of a workspace; raises OSError. Call as the sole writer."""
    for folder in home(workspace).iterdir():
        if folder.is_dir():
            shutil.rmtree(folder)


def newest(workspace: Workspace, model: EmbeddingModel, *, patient: bool) -> Generation | None:
    """The newest usable generation.

    Raises Ahead if `patient`. A caller whose snapshot began after that knows better: then it is thrown away.
    """
    for folder in _generations(workspace):
        try:
            return _read(folder, workspace, model)
        except (Unusable, Ahead, OSError, EOFError, ValueError, KeyError, TypeError, RuntimeError) as reason:
            if patient and isinstance(reason, Ahead):
                raise
            log.warning("index files %s are not usable (%s); they are made again", folder.name, reason)
            shutil.rmtree(folder, ignore_errors=True)
    return None


def _read(folder: Path, workspace: Workspace, model: EmbeddingModel) -> Generation:
    manifest = json.loads((folder / MANIFEST).read_bytes())
    _require_made_for(manifest, model)
    _require_of_this_database(Moment(**manifest["made_at"]), workspace)
    _require_whole(folder, manifest["files"])

    def array(name: str) -> Any:
        """Mapped, as a plain array: numpy's own class for it makes each slice three times as slow."""
        return np.asarray(np.load(folder / f"{name}.npy", mmap_mode="r"))

    columns = {name: array(f"column-{name}") for name in manifest["columns"]}
    columns["alive"] = np.ones(len(columns["seq"]), np.bool_)
    lists = {
        kind: Postings(**{part.name: array(f"{kind}-{part.name}") for part in fields(Postings)})
        for kind in ("terms", "tags")
    }
    vectors = Flat(folder, array("owners"))
    segment = Segment(columns, terms=lists["terms"], tags=lists["tags"], vectors=vectors)
    return Generation(segment, manifest["categories"], manifest["made_at"]["watermark"])


def _made_for(model: EmbeddingModel) -> dict[str, Any]:
    return {"layout": LAYOUT, "tokenizer": TOKENIZER, "model": model.name, "dim": model.dim}


def _require_made_for(manifest: dict[str, Any], model: EmbeddingModel) -> None:
    for name, wanted in _made_for(model).items():
        if manifest[name] != wanted:
            raise Unusable(f"{name} is {manifest[name]!r}, not {wanted!r}")


def _require_of_this_database(then: Moment, workspace: Workspace) -> None:
    now, same_history = reading.moment_after(then, workspace.pk)
    if then.ledger_seq > now.ledger_seq or then.watermark > now.watermark:
        raise Ahead("made for a later state of this database, or for another")
    if not same_history:
        raise Unusable("made for another database")


def _require_whole(folder: Path, files: dict[str, list[int]]) -> None:
    for name, (size, checksum) in files.items():
        path = folder / name
        if path.stat().st_size != size or _checksum(path) != checksum:
            raise Unusable(f"{name} is damaged")


def _checksum(path: Path) -> int:
    checksum = 0
    with path.open("rb") as file:
        while block := file.read(1 << 22):
            checksum = zlib.crc32(block, checksum)
    return checksum


def write(workspace: Workspace, model: EmbeddingModel) -> None:
    """Write a new generation and drop the older ones. Call as the sole writer, within one snapshot.

    Raises OSError, and then nothing is left of it.
    """
    now = reading.moment(workspace.pk)
    making = home(workspace) / f"making-{os.getpid()}"
    shutil.rmtree(making, ignore_errors=True)
    making.mkdir(parents=True)
    try:
        whole = reading.everything(workspace.pk, model_id=model.pk)
        for name, column in whole.columns.items():
            if name != "alive":
                np.save(making / f"column-{name}.npy", column)
        for kind, lists in (("terms", whole.terms), ("tags", whole.tags)):
            for part in fields(Postings):
                np.save(making / f"{kind}-{part.name}.npy", getattr(lists, part.name))
        np.save(making / "owners.npy", whole.owners)
        blocks = reading.vector_blocks(workspace.pk, model_id=model.pk, dim=model.dim)
        flat.write(making, blocks, count=len(whole.owners), dim=model.dim)
        files = {path.name: [path.stat().st_size, _checksum(path)] for path in sorted(making.iterdir())}
        manifest = {
            **_made_for(model),
            "made_at": asdict(now),
            "columns": [name for name in whole.columns if name != "alive"],
            "categories": whole.categories,
            "files": files,
        }
        (making / MANIFEST).write_text(json.dumps(manifest))
        for path in making.iterdir():
            _sync(path)
        generation = home(workspace) / f"generation-{now.watermark:016d}"
        shutil.rmtree(generation, ignore_errors=True)
        making.rename(generation)
        _sync(generation.parent)
    finally:
        shutil.rmtree(making, ignore_errors=True)
    for older in home(workspace).iterdir():
        if older.is_dir() and older != generation:
            shutil.rmtree(older, ignore_errors=True)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
