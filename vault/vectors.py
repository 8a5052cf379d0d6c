"""Vectors of memories: made by the embedder that settings name, stored beside the row, never of two models mixed.

A single write waits for its vector up to a deadline; what could not be embedded then, and what came in bulk, is
embedded later in batches (`embed_missing`). State never depends on a vector being there.
"""

from __future__ import annotations

import fcntl
import json
import logging
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from django.conf import settings
from django.db import connection, transaction
from django.utils.module_loading import import_string

from vault.domain.embedding import EmbedderUnavailable
from vault.models import Change, Embedding, EmbeddingModel

log = logging.getLogger(__name__)

NO_MODEL = EmbeddingModel(pk=0, name="", dim=1)  # whose vectors are none

Vectors = Any  # a float16 array (chunks, dim); the vault stores its rows' bytes and looks no further
BATCH = 32


class Embedder(Protocol):
    """What the vault needs of an embedder: vectors for texts, and the name of the model they belong to."""

    model_id: str

    @property
    def dim(self) -> int:
        """How many numbers a vector has."""
        ...

    def embed_documents(self, texts: Sequence[str], *, until: float | None = None) -> list[Vectors | None]:
        """For each text a float16 array (chunks, dim), or None if not done by the monotonic instant `until`."""
        ...


def installed() -> Embedder:
    """The embedder of this process."""
    embedder: Embedder = import_string(settings.VAULT_EMBEDDER)()
    return embedder


def in_time(text: object) -> Vectors | None:
    """A text's vectors within the deadline of a single write; None: a later batch will make them.

    Call it before the transaction: the write lock is not held while a model computes.
    """
    if not isinstance(text, str):
        return None
    try:
        embedder = installed()  # the first of a process loads its model, which is not the text's time
        until = time.monotonic() + settings.EMBED_DEADLINE_MS / 1000
        return embedder.embed_documents([text], until=until)[0]
    except EmbedderUnavailable as error:
        log.warning("a memory is stored without its vector for now: %s", error)
        return None


def model_of(embedder: Embedder) -> EmbeddingModel:
    """The row that stands for an embedder's model, made at its first use."""
    return EmbeddingModel.objects.get_or_create(name=embedder.model_id, defaults={"dim": embedder.dim})[0]


def known_model() -> EmbeddingModel | None:
    """The row of the installed embedder's model; None while nothing was embedded with it, or there is no embedder."""
    try:
        name = installed().model_id
    except EmbedderUnavailable as error:
        log.warning("no vectors can be searched: %s", error)
        return None
    with connection.cursor() as cursor:  # plain SQL: every recall asks
        cursor.execute("SELECT id, name, dim FROM vault_embeddingmodel WHERE name = %s", [name])
        row = cursor.fetchone()
    return None if row is None else EmbeddingModel(*row)


def store(made: Iterable[tuple[int, Vectors]], *, model: EmbeddingModel) -> None:
    """Write the vectors of memories (by seq). Call inside the transaction of the row."""
    Embedding.objects.bulk_create(
        Embedding(memory_id=seq, model=model, chunk=chunk, vector=vector.tobytes())
        for seq, vectors in made
        for chunk, vector in enumerate(vectors)
    )


def drop(seq: int) -> None:
    """Take away a memory's vectors, of every model: its text is another now, or gone."""
    Embedding.objects.filter(memory_id=seq).delete()


def note_changes(workspace_id: int, seqs: Sequence[int], *, fresh: bool = False) -> None:
    """Tell derived indexes that these memories changed; `fresh` ones are new. Call inside the transaction."""
    if not fresh:
        Change.objects.filter(memory_id__in=seqs).delete()
    Change.objects.bulk_create(Change(workspace_id=workspace_id, memory_id=seq) for seq in seqs)


# By the feed of changes, in which every memory stands: what was looked at once need not be looked at again.
_MISSING = """
SELECT c.seq, m.seq, m.workspace_id, m.text_sha256, m.text
FROM vault_change c JOIN vault_memory m ON m.seq = c.memory_id
WHERE m.erased_at IS NULL AND c.seq > %s
AND NOT EXISTS (SELECT 1 FROM vault_embedding e WHERE e.memory_id = m.seq AND e.model_id = %s)
ORDER BY c.seq LIMIT %s
"""


class Missing(NamedTuple):
    """A memory without a vector, as it was read."""

    change: int
    seq: int
    workspace_id: int
    text_sha256: str
    text: str


def newest_change() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT max(seq) FROM vault_change")
        return cursor.fetchone()[0] or 0


def count_missing(model: EmbeddingModel) -> int:
    """How many memories have no vector of a model yet."""
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT count(*) FROM ({_MISSING})", [0, model.pk, -1])
        count: int = cursor.fetchone()[0]
    return count


@contextmanager
def sole_embedder() -> Iterator[bool]:
    """Whether this process may embed in batches now: two would do everything twice. A dead one's claim is freed."""
    with (Path(settings.DATA_DIR) / "embedding.lock").open("w") as claim:
        try:
            fcntl.flock(claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True


def embed_missing(embedder: Embedder, *, changed_after: int = 0, threads: int = 1) -> Iterator[int]:
    """Embed every memory that has no vector of this embedder's model, batch by batch; yields how many each did.

    A batch is one short transaction, after its vectors were made: killed at any moment, whole batches are there.
    `changed_after` leaves out what did not change since. Raises EmbedderUnavailable.
    """
    model = model_of(embedder)
    seen = changed_after
    with ThreadPoolExecutor(threads) as pool:
        while rows := _rows_missing(model, after=seen, limit=BATCH * threads):
            seen = rows[-1].change
            shares = [[row.text for row in rows[n::threads]] for n in range(threads)]
            made: list[Vectors | None] = [None] * len(rows)
            for n, share in enumerate(pool.map(embedder.embed_documents, shares)):
                made[n::threads] = share
            yield _store_batch(list(zip(rows, made, strict=True)), model)


def _rows_missing(model: EmbeddingModel, *, after: int, limit: int) -> list[Missing]:
    with connection.cursor() as cursor:
        cursor.execute(_MISSING, [after, model.pk, limit])
        return [Missing(*row) for row in cursor.fetchall()]


def drop_others(model: EmbeddingModel) -> int:
    """Take away the vectors of every other model; returns how many."""
    return Embedding.objects.exclude(model=model).delete()[0]


def _store_batch(batch: Sequence[tuple[Missing, Vectors | None]], model: EmbeddingModel) -> int:
    """Store a batch's vectors, but those of texts that were changed, erased or embedded meanwhile."""
    with transaction.atomic():
        standing = _standing([row for row, _ in batch], model)
        kept = [(row, made) for row, made in batch if row.seq in standing and made is not None]
        store(((row.seq, made) for row, made in kept), model=model)
        by_workspace: dict[int, list[int]] = {}
        for row, _ in kept:
            by_workspace.setdefault(row.workspace_id, []).append(row.seq)
        for workspace_id, seqs in by_workspace.items():
            note_changes(workspace_id, seqs)
    return len(kept)


def _standing(rows: Sequence[Missing], model: EmbeddingModel) -> set[int]:
    """Which rows still hold the text that was read, and no vector."""
    sql = """
    SELECT m.seq FROM json_each(%s) AS asked JOIN vault_memory m ON m.seq = asked.value ->> 0
    WHERE m.text_sha256 = asked.value ->> 1 AND m.erased_at IS NULL
    AND NOT EXISTS (SELECT 1 FROM vault_embedding e WHERE e.memory_id = m.seq AND e.model_id = %s)
    """
    asked = json.dumps([[row.seq, row.text_sha256] for row in rows])
    with connection.cursor() as cursor:
        cursor.execute(sql, [asked, model.pk])
        return {row[0] for row in cursor.fetchall()}
