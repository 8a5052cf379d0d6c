"""The text index of each workspace: one SQLite FTS5 table, written in the transaction of the row.

One table a workspace, not one for all with a filter: BM25 weighs a word by how many documents hold it, and
with one table for all, what workspace B stores would move the scores, the order and the timing of A's
answers.

The tables are contentless (the text lives in `vault_memory`), so a removal must name the text that was
indexed.
"""

from __future__ import annotations

from collections.abc import Iterable

from django.db import connection
from django.db.models import F

from vault.models import Workspace

TOKENIZER = "porter unicode61 remove_diacritics 2"


def table_of(workspace_id: int) -> str:
    return f"vault_fts_{int(workspace_id)}"


def create(workspace_id: int) -> None:
    """Make the empty index of a new workspace."""
    _require_sqlite()
    with connection.cursor() as cursor:
        cursor.execute(
            f"CREATE VIRTUAL TABLE {table_of(workspace_id)} "
            f"USING fts5(text, content='', tokenize='{TOKENIZER}')"
        )


def add(workspace_id: int, rows: Iterable[tuple[int, str]]) -> None:
    """Index (seq, text) rows of one workspace."""
    rows = list(rows)
    with connection.cursor() as cursor:
        cursor.executemany(f"INSERT INTO {table_of(workspace_id)} (rowid, text) VALUES (%s, %s)", rows)
    Workspace.objects.filter(id=workspace_id).update(memories=F("memories") + len(rows))


def remove(workspace_id: int, rows: Iterable[tuple[int, str]]) -> None:
    """Take (seq, text as it was indexed) rows out of the index."""
    rows = list(rows)
    table = table_of(workspace_id)
    with connection.cursor() as cursor:
        cursor.executemany(f"INSERT INTO {table} ({table}, rowid, text) VALUES ('delete', %s, %s)", rows)
    Workspace.objects.filter(id=workspace_id).update(memories=F("memories") - len(rows))


def optimize(workspace_id: int) -> None:
    """Merge the index into one segment, so that nothing of a removed text stays in old ones."""
    table = table_of(workspace_id)
    with connection.cursor() as cursor:
        cursor.execute(f"INSERT INTO {table} ({table}) VALUES ('optimize')")


def _require_sqlite() -> None:
    if connection.vendor != "sqlite":
        raise NotImplementedError("the text index is SQLite FTS5; DATABASE_URL names another database")
