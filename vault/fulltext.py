"""The text index of each workspace: one SQLite FTS5 table, written in the transaction of the row.

One table a workspace, not one for all with a filter: BM25 weighs a word by how many documents hold it, and
with one table for all, what workspace B stores would move the scores, the order and the timing of A's
answers.

The tables are contentless (the text lives in `vault_memory`), so a removal must name the text that was
indexed.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache

from django.db import connection
from django.db.models import F

from vault.models import Workspace

# Marks belong to the word they are written onto: without them, FTS5 splits "हिन्दी" into single consonants.
TOKENIZER = "porter unicode61 remove_diacritics 2 categories 'L* N* Co M*'"


def table_of(workspace_id: int) -> str:
    return f"vault_fts_{int(workspace_id)}"


def create(workspace_id: int) -> None:
    """Make the empty index of a new workspace."""
    _require_sqlite()
    with connection.cursor() as cursor:
        cursor.execute(
            f"CREATE VIRTUAL TABLE {table_of(workspace_id)} "
            f"USING fts5(text, content='', tokenize={_quoted(TOKENIZER)})"
        )


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


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


_TERM = "ifnull(term, '')"  # a mark that stands alone is a word without a letter left


def terms(workspace_id: int) -> Iterator[tuple[str, str, int]]:
    """Every term of a workspace in byte order: the term, the seqs it occurs in with commas between (one an
    occurrence), and how many those are."""
    table = table_of(workspace_id)
    with connection.cursor() as cursor:
        cursor.execute(f"DROP TABLE IF EXISTS temp.{table}_terms")
        cursor.execute(f"CREATE VIRTUAL TABLE temp.{table}_terms USING fts5vocab(main, {table}, instance)")
        cursor.execute(f"SELECT {_TERM}, group_concat(doc), count(*) FROM temp.{table}_terms GROUP BY term")
        yield from iter(cursor.fetchone, None)
        cursor.execute(f"DROP TABLE temp.{table}_terms")


class _Scratch(threading.local):
    """An index in memory that only takes texts apart: what FTS5 makes of a text, only FTS5 knows."""

    def __init__(self) -> None:
        self.database = sqlite3.connect(":memory:", isolation_level=None)
        self.database.execute(
            f"CREATE VIRTUAL TABLE fts USING fts5(text, content='', tokenize={_quoted(TOKENIZER)})"
        )
        self.database.execute("CREATE VIRTUAL TABLE terms USING fts5vocab(fts, instance)")
        unstemmed = TOKENIZER.removeprefix("porter ")
        self.database.execute(
            f"CREATE VIRTUAL TABLE raw USING fts5(text, content='', tokenize={_quoted(unstemmed)})"
        )
        self.database.execute("CREATE VIRTUAL TABLE tokens USING fts5vocab(raw, instance)")


_scratch = _Scratch()


def terms_of(texts: Sequence[str]) -> list[tuple[int, str, int]]:
    """The terms of each text as the index knows them: (which text, from 0; term; how often), by term."""
    scratch = _scratch.database
    scratch.executemany("INSERT INTO fts (rowid, text) VALUES (?, ?)", enumerate(texts))
    found = scratch.execute(f"SELECT doc, {_TERM}, count(*) FROM terms GROUP BY term, doc").fetchall()
    scratch.execute("INSERT INTO fts (fts) VALUES ('delete-all')")
    return found


@lru_cache(maxsize=50_000)
def terms_of_word(word: str) -> tuple[str, ...]:
    """A question's word as terms of the index: its stem; several where the index splits what we take for one."""
    scratch = _scratch.database
    scratch.execute("INSERT INTO fts (rowid, text) VALUES (0, ?)", [word])
    found = scratch.execute("SELECT term FROM terms ORDER BY offset").fetchall()
    scratch.execute("INSERT INTO fts (fts) VALUES ('delete-all')")
    return tuple(dict.fromkeys(term for (term,) in found if term))


@lru_cache(maxsize=50_000)
def tokens_of_word(word: str) -> Mapping[str, str]:
    """The same terms, each with a token of the word that it is the stem of: FTS5 stems whatever it is asked for, and
    the stem of a stem may be another."""
    scratch = _scratch.database
    scratch.execute("INSERT INTO fts (rowid, text) VALUES (0, ?)", [word])
    scratch.execute("INSERT INTO raw (rowid, text) VALUES (0, ?)", [word])
    found = scratch.execute("SELECT terms.term, tokens.term FROM terms JOIN tokens USING (offset)").fetchall()
    scratch.execute("INSERT INTO fts (fts) VALUES ('delete-all')")
    scratch.execute("INSERT INTO raw (raw) VALUES ('delete-all')")
    return dict(found)


def optimize(workspace_id: int) -> None:
    """Merge the index into one segment, so that nothing of a removed text stays in old ones."""
    table = table_of(workspace_id)
    with connection.cursor() as cursor:
        cursor.execute(f"INSERT INTO {table} ({table}) VALUES ('optimize')")


def _require_sqlite() -> None:
    if connection.vendor != "sqlite":
        raise NotImplementedError("the text index is SQLite FTS5; DATABASE_URL names another database")
