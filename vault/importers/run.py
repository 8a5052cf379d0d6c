"""Running an import: batches of rows, each one transaction together with the note of how far it came.

1. A source is known by its fingerprint, the SHA-256 of format, workspace and contents. The same command again
   goes on after the last committed row; one that is finished changes nothing.
2. Killed at any moment, the database holds whole batches only: their rows, events, text index, `rows_done`.
3. A row is taken whole or refused whole, with its number, field and reason; no row is fatal. The first 1,000
   refusals are kept, all are counted.
4. A row whose memory, link or change is there already is `unchanged`; one that holds nothing is `skipped`.
   created + unchanged + skipped + refused_count = rows_done.
5. A dry run does all this to a temporary copy of the database: the same code says the same of every row, and
   no writer of the real one waits for it.
"""

from __future__ import annotations

import hashlib
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal, TypeAlias

from django.conf import settings
from django.db import connections, transaction

from ledger.domain.ids import is_id, new_id
from ledger.domain.instants import UnixMs
from ledger.domain.refusals import Conflict, Invalid, Refused, Unprocessable
from vault import services
from vault.domain import values
from vault.importers import Erase, Format, Join, Remember, Revise, Row, Step, jsonl, memora
from vault.models import ImportRun, Memory
from vault.services import Caller

FORMATS = {known.name: known for known in (jsonl.FORMAT, memora.FORMAT)}
BATCH = 200
MAX_KEPT = 1_000
MAX_PAUSE = 0.25  # seconds

Outcome: TypeAlias = Literal["created", "unchanged", "skipped"] | Refused
Progress: TypeAlias = Callable[[int], object]


@dataclass(frozen=True, slots=True)
class Import:
    """What to import, for whom, and how to tell the time; `progress` hears of rows as they are committed."""

    source: Path
    format: Format
    workspace: str | None
    caller: Caller
    clock: Callable[[], UnixMs]


def started(job: Import) -> ImportRun:
    """The run of this very source, found or begun. Raises Unreadable where the source cannot be read."""
    if job.workspace is not None:
        values.check_workspace(job.workspace)
    at = job.clock()
    run, _ = ImportRun.objects.get_or_create(
        fingerprint=fingerprint(job),
        defaults={
            "id": new_id("run", at),
            "source": str(job.source),
            "format": job.format.name,
            "workspace": job.workspace,
            "started_at": at,
        },
    )
    return run


def fingerprint(job: Import) -> str:
    """SHA-256 of format, workspace and contents, in hex; of a folder, the names and contents of its files."""
    digest = hashlib.sha256(f"{job.format.name}\n{job.workspace!r}\n".encode())
    root = job.source
    files = sorted(path for path in root.rglob("*") if path.is_file()) if root.is_dir() else [root]
    for path in files:
        with path.open("rb") as file:
            contents = hashlib.file_digest(file, "sha256").hexdigest()
        name = path.relative_to(root).as_posix()
        digest.update(f"{name}\n{contents}\n".encode())
    return digest.hexdigest()


def finish(run: ImportRun, job: Import, *, progress: Progress = lambda _: None) -> ImportRun:
    """Take every row that the run has not done yet, batch by batch, and note the end."""
    if run.finished_at is not None:
        return run
    rows = job.format.rows(job.source, workspace=job.workspace)
    fresh = (row for row in rows if row.number > run.rows_done)
    for batch in _batches(fresh):
        begun = time.monotonic()
        run = _commit(run.id, batch, caller=job.caller, at=job.clock())
        progress(len(batch))
        # SQLite's write lock goes to whoever asks at the right moment: leave it free as long as it was held, or the
        # agents of a live server wait until the import is over.
        time.sleep(min(time.monotonic() - begun, MAX_PAUSE))
    run.finished_at = job.clock()
    run.save(update_fields=["finished_at"])
    return run


def _batches(rows: Iterator[Row]) -> Iterator[list[Row]]:
    while batch := list(islice(rows, BATCH)):
        yield batch


def _commit(run_id: str, batch: Sequence[Row], *, caller: Caller, at: UnixMs) -> ImportRun:
    with transaction.atomic():
        run = ImportRun.objects.get(id=run_id)
        if run.rows_done != batch[0].number - 1:
            raise Conflict("another import of the same source is under way", code="import_running")
        for row, outcome in _taken(batch, caller=caller, at=at):
            _count(run, row, outcome)
        run.rows_done = batch[-1].number
        run.save()
    return run


def _count(run: ImportRun, row: Row, outcome: Outcome) -> None:
    if not isinstance(outcome, Refused):
        setattr(run, outcome, getattr(run, outcome) + 1)
        return
    run.refused_count += 1
    if len(run.refused) < MAX_KEPT:
        run.refused.append(
            {
                "row": row.number,
                "place": row.place,
                "field": outcome.field,
                "code": outcome.code,
                "message": outcome.message,
            }
        )


# ---------------------------------------------------------------------------------------------- taking rows


def _taken(batch: Sequence[Row], *, caller: Caller, at: UnixMs) -> Iterator[tuple[Row, Outcome]]:
    """Take the rows in order; runs of plain new memories go to the vault in bulk."""
    returning = _names_from_here(batch)
    plain: list[Row] = []
    for row in batch:
        if _is_plain(row, returning):
            plain.append(row)
            continue
        yield from _remembered(plain, caller=caller, at=at)
        plain = []
        yield row, _outcome(row, caller=caller, at=at)
    yield from _remembered(plain, caller=caller, at=at)


def _is_plain(row: Row, returning: set[str]) -> bool:
    match row.steps:
        case (Remember(sent=sent),):
            return row.refusal is None and sent.get("external_id") not in returning
        case _:
            return False


def _remembered(rows: Sequence[Row], *, caller: Caller, at: UnixMs) -> Iterator[tuple[Row, Outcome]]:
    sent = [(step.sent, step.reason) for row in rows for step in row.steps if isinstance(step, Remember)]
    for row, outcome in zip(
        rows, services.remember_many(sent, caller=caller, at=at, elsewhere=True), strict=True
    ):
        if isinstance(outcome, Refused):
            yield row, outcome
        else:
            yield row, "created" if outcome.created else "unchanged"


def _outcome(row: Row, *, caller: Caller, at: UnixMs) -> Outcome:
    if row.refusal is not None:
        return row.refusal
    if not row.steps:
        return "skipped"
    if _is_erased(row):
        return "unchanged"
    try:
        with transaction.atomic():
            changed = _take_all(row.steps, caller=caller, at=at)
    except Refused as refusal:
        return refusal
    return "created" if changed else "unchanged"


def _take_all(steps: Sequence[Step], *, caller: Caller, at: UnixMs) -> bool:
    """Take a row's steps; where its memory is there already it was taken before, and what it did is not redone."""
    changed = False
    for step in steps:
        took = _take(step, caller=caller, at=at)
        if isinstance(step, Remember) and not took:
            return False
        changed = changed or took
    return changed


def _is_erased(row: Row) -> bool:
    """Whether the row only says of a memory that it was erased, and here it is."""
    match row.steps[-1]:
        case Erase(workspace=workspace, external_id=name):
            here = _stored(workspace, name)
            return here is not None and here.erased_at is not None
        case _:
            return False


def _take(step: Step, *, caller: Caller, at: UnixMs) -> bool:
    """Take one step; False where it is done already."""
    match step:
        case Remember():
            return _remember(step, caller=caller, at=at)
        case Join():
            return _join(step, caller=caller, at=at)
        case Revise():
            before = _named(step.workspace, step.external_id)
            after = services.revise(
                before.id, step.sent, caller=caller, at=at, reason=step.reason, embed=False, elsewhere=True
            )
            return after.version != before.version
        case Erase():
            memory = _named(step.workspace, step.external_id)
            services.erase(memory.id, caller=caller, at=at, reason=step.reason)
            return True


def _remember(step: Remember, *, caller: Caller, at: UnixMs) -> bool:
    here = _stored(step.sent["workspace"], step.sent.get("external_id"))
    if here is None or here.external_id is not None:
        return services.remember(
            step.sent, caller=caller, at=at, reason=step.reason, embed=False, elsewhere=True
        ).created
    current = here.values
    for name, value in values.checked(step.sent).items():
        if name != "external_id" and current[name] != value:
            raise Conflict(
                f"{here.id} is stored already, and its {name} differs",
                field=name,
                code="external_id_conflict",
            )
    return False


def _join(step: Join, *, caller: Caller, at: UnixMs) -> bool:
    source = _named(step.workspace, step.source, field="from")
    target = _named(step.workspace, step.target, field="to")
    try:
        services.link(
            source.id,
            target.id,
            step.type,
            caller=caller,
            at=at,
            strength=step.strength,
            created_at=step.created_at,
            reason=step.reason,
        )
    except Conflict as refusal:
        if refusal.code != "duplicate_link":
            raise
        return False
    return True


def _names_from_here(batch: Iterable[Row]) -> set[str]:
    """External ids in a batch that are ids of this vault's own memories: its own export has come back."""
    sent = [step.sent.get("external_id") for row in batch for step in row.steps if isinstance(step, Remember)]
    ids = [name for name in sent if isinstance(name, str) and is_id(name, "mem")]
    return (
        set(Memory.objects.filter(id__in=ids, external_id=None).values_list("id", flat=True))
        if ids
        else set()
    )


def _stored(workspace: str, name: str | None) -> Memory | None:
    """The memory that a source calls by this name: its external id, or, of one that has none, its own id."""
    if name is None:
        return None
    memories = (
        Memory.objects.select_related("workspace").prefetch_related("tags").filter(workspace__name=workspace)
    )
    found = memories.filter(external_id=name).first()
    if found is None and is_id(name, "mem"):
        found = memories.filter(external_id=None, id=name).first()
    return found


def _named(workspace: str, name: str, *, field: str = "external_id") -> Memory:
    found = _stored(workspace, name)
    if found is None:
        raise Unprocessable(
            f"no memory is known as {name[:80]!r} in this workspace", field=field, code="unknown_memory"
        )
    return found


# ---------------------------------------------------------------------------------------------- dry runs


@contextmanager
def on_a_copy() -> Iterator[None]:
    """Let the code inside write to a temporary copy of the database, which is thrown away after.

    The copy holds what is committed: it is read through a connection of its own, for SQLite never finishes a
    backup through one that is in the middle of writing.
    """
    real = connections["default"]
    if real.vendor != "sqlite":
        raise Invalid("a dry run needs SQLite: it works on a copy of the database")
    with TemporaryDirectory(dir=settings.DATA_DIR, prefix="dry-run-") as folder:
        path = Path(folder) / "copy.sqlite3"
        with (
            closing(sqlite3.connect(real.settings_dict["NAME"])) as stored,
            closing(sqlite3.connect(path)) as copy,
        ):
            stored.backup(copy)
        scratch = real.copy()
        scratch.settings_dict["NAME"] = str(path)
        connections["default"] = scratch
        try:
            yield
        finally:
            connections["default"] = real
            scratch.close()
