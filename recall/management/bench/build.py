"""Writing a corpus into an empty database, through the same service, tables and events as every memory.

Only a base is embedded: the first text of each theme, at most 10,000. Every further text of a theme gets the
base's vectors, turned by a small random amount (cosine .8 to .98) and normalised again: a million texts would
take the model an hour. So neighbours of a vector lie as close as paraphrases do, but what a detail (a name, a
number) would have done to a vector is chance. Figures of speed hold; do not read quality from such a corpus.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from django.db import connection, transaction

from ledger.domain import events as kinds
from ledger.domain.actors import Actor
from ledger.domain.events import NewEvent
from ledger.domain.ids import new_id
from ledger.domain.instants import UnixMs
from ledger.domain.refusals import Refused
from ledger.services import append_events
from recall.management.bench.corpus import Plan, Row, rows
from vault import vectors
from vault.domain.access import Reach
from vault.domain.links import REPLACING
from vault.models import Memory, MemoryLink
from vault.services import MAX_BULK, Caller, remember_many
from vault.vectors import Embedder, Vectors

NOTE = "bench.json"  # written last: a directory without it holds no finished corpus
CALLER = Caller(Actor("cli", "bench", "bench build"), Reach.everything())
EMBED = 100  # texts at once, so that progress shows
TURN = (0.2, 0.75)  # the tangent of the angle a vector is turned by


def make_room() -> None:
    """Let this connection keep 512 MiB of pages: indexes on hashes are written all over."""
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA cache_size = -524288")


def settle() -> None:
    """Move the write-ahead log into the database, so that a run does not begin with that."""
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)")


@dataclass(frozen=True, slots=True)
class Built:
    """What a directory holds, and how long it took."""

    plan: Plan
    at: UnixMs
    embedder: str
    embedded: int
    links: int
    seconds: float
    seconds_embedding: float

    @property
    def rows_per_second(self) -> float:
        """How fast rows were written, the model's time left aside."""
        return self.plan.memories / max(1e-9, self.seconds - self.seconds_embedding)


@dataclass(slots=True)
class _Written:
    """What later rows need of earlier ones: row numbers are places in `ids` and `seqs`; bases by theme."""

    ids: list[str] = field(default_factory=list)
    seqs: list[int] = field(default_factory=list)
    bases: dict[int, Any] = field(default_factory=dict)
    links: int = 0
    seconds_embedding: float = 0.0


def build(plan: Plan, *, at: UnixMs, embedder: Embedder, progress: Callable[[int], object]) -> Built:
    """Write the whole corpus, 1,000 rows a transaction; `progress` hears of rows as they are committed."""
    began = time.monotonic()
    written = _Written()
    for batch in _batches(rows(plan, at=at), MAX_BULK):
        made = _vectors_of(batch, written, plan, embedder)
        with transaction.atomic():
            _write(batch, made, written, embedder=embedder, at=at)
        progress(len(batch))
    return Built(
        plan=plan,
        at=at,
        embedder=embedder.model_id,
        embedded=len(written.bases),
        links=written.links,
        seconds=time.monotonic() - began,
        seconds_embedding=written.seconds_embedding,
    )


def _batches(every: Iterator[Row], size: int) -> Iterator[list[Row]]:
    while batch := list(islice(every, size)):
        yield batch


# ------------------------------------------------------------------------------------------------------ vectors


def _vectors_of(batch: Sequence[Row], written: _Written, plan: Plan, embedder: Embedder) -> list[Vectors]:
    """The vectors of a batch's texts: made by the model for a theme's first text, else turned from that one's."""
    began = time.monotonic()
    first = {row.theme: row for row in reversed(batch) if row.theme not in written.bases}
    new = sorted(first.values(), key=lambda row: row.number)
    for start in range(0, len(new), EMBED):
        some = new[start : start + EMBED]
        made = embedder.embed_documents([row.sent["text"] for row in some])
        written.bases.update({row.theme: base for row, base in zip(some, made, strict=True)})
    written.seconds_embedding += time.monotonic() - began
    chance = np.random.default_rng([plan.seed, batch[0].number])
    return [
        written.bases[row.theme] if first.get(row.theme) is row else _turned(written.bases[row.theme], chance)
        for row in batch
    ]


def _turned(base: Vectors, chance: np.random.Generator) -> Vectors:
    """Each chunk's vector, turned in a random direction by a random amount; float16 (chunks, dim), of length 1."""
    aside = chance.standard_normal(base.shape, dtype=np.float32)
    aside /= np.linalg.norm(aside, axis=1, keepdims=True)
    turned = base.astype(np.float32) + np.float32(chance.uniform(*TURN)) * aside
    turned /= np.linalg.norm(turned, axis=1, keepdims=True)
    return turned.astype(np.float16)


# ------------------------------------------------------------------------------------------------------ rows


def _write(
    batch: Sequence[Row], made: Sequence[Vectors], written: _Written, *, embedder: Embedder, at: UnixMs
) -> None:
    stored = []
    for outcome in remember_many([(row.sent, "") for row in batch], caller=CALLER, at=at):
        if isinstance(outcome, Refused):
            raise outcome  # a corpus holds nothing that is refused
        stored.append(outcome.memory)
    written.ids += [memory.id for memory in stored]
    written.seqs += [memory.seq for memory in stored]
    model = vectors.model_of(embedder)
    vectors.store(zip((memory.seq for memory in stored), made, strict=True), model=model)
    _link(batch, stored, written, at=at)


def _link(batch: Sequence[Row], stored: Sequence[Memory], written: _Written, *, at: UnixMs) -> None:
    """The links of a batch at once, as `vault.services.link` makes them one by one."""
    tied = [(row.tie, memory) for row, memory in zip(batch, stored, strict=True) if row.tie is not None]
    if not tied:
        return
    links = MemoryLink.objects.bulk_create(
        MemoryLink(
            id=new_id("lnk", at),
            source_id=written.seqs[tie.source],
            target_id=written.seqs[tie.target],
            type=tie.type,
            created_at=tie.created_at,
        )
        for tie, _ in tied
    )
    with connection.cursor() as cursor:  # the corpus replaces a memory once: its one link is its earliest
        cursor.executemany(
            "UPDATE vault_memory SET replaced_since = %s WHERE seq = %s",
            [(link.created_at, link.source_id) for link in links if link.type in REPLACING],
        )
    _note(links, tied)
    append_events(
        [
            NewEvent(
                kind=kinds.LINK_CREATED,
                actor=CALLER.actor,
                workspace=memory.workspace.name,
                subject_id=written.ids[tie.source],
                object_id=written.ids[tie.target],
                occurred_at=tie.created_at,
                after={
                    "id": link.id,
                    "from": written.ids[tie.source],
                    "to": written.ids[tie.target],
                    "type": tie.type,
                    "strength": None,
                    "created_at": tie.created_at,
                },
            )
            for link, (tie, memory) in zip(links, tied, strict=True)
        ],
        at=at,
    )
    written.links += len(links)


def _note(links: Iterable[MemoryLink], tied: Sequence[tuple[Any, Memory]]) -> None:
    """Both ends of every link changed."""
    changed: dict[int, set[int]] = {}
    for link, (_, memory) in zip(links, tied, strict=True):
        changed.setdefault(memory.workspace_id, set()).update((link.source_id, link.target_id))
    for workspace_id, seqs in changed.items():
        vectors.note_changes(workspace_id, sorted(seqs))


# ------------------------------------------------------------------------------------------------------ the note


def write_note(folder: Path, built: Built) -> None:
    (folder / NOTE).write_text(json.dumps(asdict(built), indent=2) + "\n")


def read_note(folder: Path) -> Built | None:
    """What a directory holds; None where no corpus was built, or not to its end."""
    note = folder / NOTE
    if not note.exists():
        return None
    told = json.loads(note.read_text())
    return Built(**{**told, "plan": Plan(**told["plan"])})
