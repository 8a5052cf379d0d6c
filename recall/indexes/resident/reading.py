"""Reading a workspace out of the database as arrays: all of it, or what changed since."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from django.db import connection
from numpy.typing import NDArray

from ledger.domain.hashchain import GENESIS
from ledger.queries import head
from recall.indexes.resident import postings
from recall.indexes.resident.postings import Postings
from recall.indexes.resident.segment import ALWAYS, COLUMNS, NEVER, RELATED, REPLACED, Columns, no_rows
from vault import fulltext
from vault.domain.facts import PROVENANCE_CLASSES, STATUSES
from vault.domain.links import REPLACING

BLOCK = 20_000

_ROW = f"""
m.seq, m.id, m.created_at, ifnull(m.t_valid, {ALWAYS}), ifnull(m.t_invalid, {NEVER}), ifnull(m.expires_at, {NEVER}),
ifnull(m.replaced_since, {NEVER}), m.archived, m.status, m.provenance_class, m.category
"""
_ROW_COLUMNS = (
    "seq", "id", "created_at", "t_valid", "t_invalid", "expires_at", "replaced_since", "archived", "status",
    "provenance", "category",
)  # fmt: skip
_STATUS = {name: code for code, name in enumerate(STATUSES)}
_PROVENANCE = {name: code for code, name in enumerate(PROVENANCE_CLASSES)}


@dataclass(frozen=True, slots=True)
class Everything:
    """A whole workspace: its rows in order of seq, its posting lists, and which rows own the vectors to come."""

    columns: Columns
    categories: dict[str, int]
    terms: Postings
    tags: Postings
    owners: NDArray[np.int32]


def newest_change(workspace_id: int) -> tuple[int, int]:
    """The newest change of a workspace, and its memory; (0, 0) for none."""
    sql = "SELECT seq, memory_id FROM vault_change WHERE workspace_id = %s ORDER BY seq DESC LIMIT 1"
    with connection.cursor() as cursor:
        cursor.execute(sql, [workspace_id])
        found: tuple[int, int] | None = cursor.fetchone()
    return found or (0, 0)


def watermark(workspace_id: int) -> int:
    return newest_change(workspace_id)[0]


def outstanding(workspace_id: int, *, after: int) -> int:
    """How many memories changed after a watermark."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM vault_change WHERE workspace_id = %s AND seq > %s", [workspace_id, after]
        )
        count: int = cursor.fetchone()[0]
    return count


@dataclass(frozen=True, slots=True)
class Moment:
    """A state of the database as a workspace tells it: the ledger's head, and the newest change and its memory."""

    ledger_seq: int
    ledger_hash: str
    watermark: int
    changed: int


def moment(workspace_id: int) -> Moment:
    return Moment(*head(), *newest_change(workspace_id))


def moment_after(then: Moment, workspace_id: int) -> tuple[Moment, bool]:
    """The present state, and whether this database was once in the other one: what was derived from it then may be
    brought up to date. One query: every recall asks it of every workspace.

    The ledger must have had that head. Vectors leave no event there, so the memory that had changed last must have kept
    that change, or had a later one.
    """
    sql = """
    WITH head AS (SELECT seq, hash FROM ledger_contextevent ORDER BY seq DESC LIMIT 1),
         newest AS (SELECT seq, memory_id FROM vault_change WHERE workspace_id = %s ORDER BY seq DESC LIMIT 1)
    SELECT (SELECT seq FROM head), (SELECT hash FROM head), (SELECT seq FROM newest), (SELECT memory_id FROM newest),
           (SELECT hash FROM ledger_contextevent WHERE seq = %s), (SELECT seq FROM vault_change WHERE memory_id = %s)
    """
    with connection.cursor() as cursor:
        cursor.execute(sql, [workspace_id, then.ledger_seq, then.changed])
        seq, hash_, newest, changed, hash_then, change = cursor.fetchone()
    same_ledger = then.ledger_seq == 0 or hash_then == then.ledger_hash
    same_history = same_ledger and (then.watermark == 0 or (change is not None and change >= then.watermark))
    return Moment(seq or 0, hash_ or GENESIS, newest or 0, changed or 0), same_history


def everything(workspace_id: int, *, model_id: int) -> Everything:
    """Read a workspace; its vectors come block by block from `vector_blocks`, in the order of `owners`."""
    categories: dict[str, int] = {}
    columns = _columns(workspace_id, categories)
    seqs = columns["seq"]
    size = len(seqs)
    terms = postings.built(fulltext.terms(workspace_id), seqs)
    tags = postings.built(_tags(workspace_id), seqs)
    columns["words"] = terms.occurrences(size)
    columns["tags"] = tags.occurrences(size)
    columns["joined"] = _joined(workspace_id, seqs)
    columns["alive"] = np.ones(size, np.bool_)
    owners = _owners(workspace_id, seqs, model_id=model_id)
    columns["vectors"] = np.bincount(owners, minlength=size).astype(np.int32)
    columns["first_vector"] = (np.cumsum(columns["vectors"]) - columns["vectors"]).astype(np.int32)
    return Everything(columns, categories, terms, tags, owners)


def _columns(workspace_id: int, categories: dict[str, int]) -> Columns:
    parts: list[Columns] = []
    sql = (
        f"SELECT {_ROW} FROM vault_memory m NOT INDEXED "
        "WHERE m.workspace_id = %s AND m.erased_at IS NULL ORDER BY m.seq"
    )
    for rows in _blocks(sql, [workspace_id]):
        given: dict[str, Sequence[Any]] = dict(zip(_ROW_COLUMNS, zip(*rows, strict=True), strict=True))
        given["status"] = [_STATUS[name] for name in given["status"]]
        given["provenance"] = [_PROVENANCE[name] for name in given["provenance"]]
        given["category"] = [categories.setdefault(name, len(categories)) for name in given["category"]]
        parts.append({name: np.array(values, COLUMNS[name]) for name, values in given.items()})
    if not parts:
        return no_rows()
    return {name: np.concatenate([part[name] for part in parts]) for name in _ROW_COLUMNS}


def _tags(workspace_id: int) -> Iterator[tuple[str, str, int]]:
    sql = """
    SELECT t.tag, group_concat(t.memory_id), count(*) FROM vault_memorytag t
    JOIN vault_memory m ON m.seq = t.memory_id WHERE m.workspace_id = %s AND m.erased_at IS NULL GROUP BY t.tag
    """
    with connection.cursor() as cursor:
        cursor.execute(sql, [workspace_id])
        yield from iter(cursor.fetchone, None)


def _joined(workspace_id: int, seqs: NDArray[np.int64]) -> NDArray[np.uint8]:
    """Which links each row has: none, replacing ones only, or others."""
    sql = (
        "SELECT l.source_id, l.target_id FROM vault_memorylink l JOIN vault_memory m ON m.seq = l.source_id "
        "WHERE m.workspace_id = %s AND (l.type IN (%s, %s)) = %s"
    )
    joined = np.zeros(len(seqs), np.uint8)
    for replacing, code in ((1, REPLACED), (0, RELATED)):
        for rows in _blocks(sql, [workspace_id, *REPLACING, replacing]):
            joined[np.isin(seqs, np.array(rows, np.int64).ravel())] = code
    return joined


# In the order of the rows' numbers, without an index of the workspace's: the rows lie together in both tables, and
# nothing has to be sorted.
_VECTORS = """
FROM vault_memory m NOT INDEXED CROSS JOIN vault_embedding e ON e.memory_id = m.seq AND e.model_id = %s
WHERE m.workspace_id = %s AND m.erased_at IS NULL ORDER BY m.seq, e.chunk
"""


def _owners(workspace_id: int, seqs: NDArray[np.int64], *, model_id: int) -> NDArray[np.int32]:
    found = [
        np.array(rows, np.int64).ravel()
        for rows in _blocks(f"SELECT e.memory_id {_VECTORS}", [model_id, workspace_id])
    ]
    owning = np.concatenate(found) if found else np.empty(0, np.int64)
    return np.searchsorted(seqs, owning).astype(np.int32)


def vector_blocks(workspace_id: int, *, model_id: int, dim: int) -> Iterator[NDArray[np.float16]]:
    """The vectors of a workspace in the order of `Everything.owners`, some thousands at a time."""
    for rows in _blocks(f"SELECT e.vector {_VECTORS}", [model_id, workspace_id]):
        yield np.frombuffer(b"".join([row[0] for row in rows]), np.float16).reshape(-1, dim)


def _blocks(sql: str, params: Sequence[Any]) -> Iterator[list[tuple[Any, ...]]]:
    with connection.cursor() as cursor:
        cursor.execute(sql, params)
        while rows := cursor.fetchmany(BLOCK):
            yield rows


# ------------------------------------------------------------------------------------------------- what changed


@dataclass(frozen=True, slots=True)
class Changed:
    """A memory that changed: its row's values, and what it holds now; `values` None: it is erased."""

    change: int
    seq: int
    values: dict[str, Any] | None
    tags: tuple[str, ...] = ()
    terms: tuple[tuple[str, int], ...] = ()
    vectors: NDArray[np.float16] | None = None


def changes(
    workspace_id: int, *, after: int, limit: int, model_id: int, dim: int, categories: dict[str, int]
) -> list[Changed]:
    """What changed in a workspace after a watermark, oldest change first; at most `limit`."""
    sql = f"""
    SELECT {_ROW}, m.text, m.erased_at IS NOT NULL,
           (SELECT max(CASE WHEN l.type IN (%s, %s) THEN {REPLACED} ELSE {RELATED} END) FROM vault_memorylink l
            WHERE l.source_id = m.seq OR l.target_id = m.seq),
           c.seq
    FROM vault_change c JOIN vault_memory m ON m.seq = c.memory_id
    WHERE c.workspace_id = %s AND c.seq > %s ORDER BY c.seq LIMIT %s
    """
    with connection.cursor() as cursor:
        cursor.execute(sql, [*REPLACING, workspace_id, after, limit])
        rows = cursor.fetchall()
    seqs = [row[0] for row in rows]
    tags = _grouped("SELECT memory_id, tag FROM vault_memorytag WHERE memory_id IN ({})", seqs)
    vectors = _grouped(
        f"SELECT memory_id, vector FROM vault_embedding WHERE model_id = {int(model_id)} AND memory_id IN ({{}}) "
        "ORDER BY memory_id, chunk",
        seqs,
    )
    terms: dict[int, list[tuple[str, int]]] = {}
    for place, term, count in fulltext.terms_of([row[len(_ROW_COLUMNS)] for row in rows]):
        terms.setdefault(seqs[place], []).append((term, count))
    return [
        _changed(row, tags.get(row[0], []), terms.get(row[0], []), vectors.get(row[0], []), dim, categories)
        for row in rows
    ]


def _grouped(sql: str, seqs: Sequence[int]) -> dict[int, list[Any]]:
    found: dict[int, list[Any]] = {}
    if seqs:
        with connection.cursor() as cursor:
            cursor.execute(sql.format(",".join(str(int(seq)) for seq in seqs)))
            for seq, value in cursor.fetchall():
                found.setdefault(seq, []).append(value)
    return found


def _changed(
    row: Sequence[Any],
    tags: Sequence[str],
    terms: Sequence[tuple[str, int]],
    blobs: Sequence[bytes],
    dim: int,
    categories: dict[str, int],
) -> Changed:
    _, erased, joined, change = row[len(_ROW_COLUMNS) :]
    if erased:
        return Changed(change, row[0], None)
    values: dict[str, Any] = dict(zip(_ROW_COLUMNS, row, strict=False))
    values["id"] = values["id"].encode()
    values["status"] = _STATUS[values["status"]]
    values["provenance"] = _PROVENANCE[values["provenance"]]
    values["category"] = categories.setdefault(values["category"], len(categories))
    values["joined"] = joined or 0
    values["tags"] = len(tags)
    values["words"] = sum(count for _, count in terms)
    values["vectors"] = len(blobs)
    vectors = np.frombuffer(b"".join(blobs), np.float16).reshape(-1, dim) if blobs else None
    return Changed(change, row[0], values, tuple(tags), tuple(terms), vectors)
