"""Search on SQLite: FTS5 for the words, plain SQL for filters and state, in one statement per workspace.

The ranked sub-select stands alone (`MATERIALIZED`): joined into it, the filters would keep FTS5 from scoring in
one pass. They are applied around it, before the pools are cut, so that no number of unfit better matches can
crowd out a fit one.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from typing import Any

from django.db import connection

from recall.domain.fusion import BM25_SCALE, idf
from recall.domain.request import RecallRequest
from recall.domain.words import words_of, worth_asking
from recall.indexes import FALLEN, LINKED, OPEN, Found, Question
from vault.fulltext import TOKENIZER, table_of
from vault.models import Workspace
from vault.queries import FACTS, FACTS_WIDTH, facts_from


class SqliteIndex:
    """The embedded engine; stateless, so one serves all threads."""

    version = f"sqlite-{sqlite3.sqlite_version} fts5 {TOKENIZER}"

    def lexical(self, question: Question) -> list[Found]:
        words = words_of(question.request.query)
        found: list[Found] = []
        for workspace in question.workspaces:
            found += _matches(workspace, words, question)
        return _pools(found, question)

    def by_filters(self, question: Question) -> list[Found]:
        found: list[Found] = []
        for workspace in question.workspaces:
            found += _listed(workspace, question)
        return _pools(found, question)

    def matching(self, question: Question, ids: Iterable[str]) -> set[str]:
        wanted = sorted(ids)
        if not wanted:
            return set()
        filters, params = _filters(question.request)
        scope = [workspace.id for workspace in question.workspaces]
        sql = (
            "SELECT m.id FROM json_each(%s) AS asked JOIN vault_memory m ON m.id = asked.value "
            f"WHERE m.workspace_id IN (SELECT value FROM json_each(%s)) AND {filters}"
        )
        return {row[0] for row in _rows(sql, [json.dumps(wanted), json.dumps(scope), *params])}


# An explicit sort draws the pools by it too: "the newest" are the newest of all that match.
_BY_TIME = {"time_asc": "created_at, id", "time_desc": "created_at DESC, id"}


def _rows(sql: str, params: list[Any]) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(sql, params)
        rows: list[tuple[Any, ...]] = cursor.fetchall()
    return rows


def _matches(workspace: Workspace, words: list[str], question: Question) -> list[Found]:
    table = table_of(workspace.id)
    holding = _holding(table, words)
    asked = worth_asking(holding, workspace.memories)
    if not asked:
        return []
    scale = BM25_SCALE * sum(idf(workspace.memories, holding[word]) for word in asked)
    hits = f"SELECT rowid AS seq, -bm25({table}) / %s AS score FROM {table} WHERE {table} MATCH %s"
    match = " OR ".join(f'"{word}"' for word in asked)
    return _search(
        hits, [scale, match], _BY_TIME.get(question.request.sort, "score DESC, id"), workspace, question
    )


def _holding(table: str, words: list[str]) -> dict[str, int]:
    """How many texts of the workspace hold each word."""
    if not words:
        return {}
    count = f"SELECT (SELECT count(*) FROM {table} WHERE {table} MATCH %s)"
    rows = _rows(" UNION ALL ".join([count] * len(words)), [f'"{word}"' for word in words])
    return {word: row[0] for word, row in zip(words, rows, strict=True)}


def _listed(workspace: Workspace, question: Question) -> list[Found]:
    hits = "SELECT seq, 0.0 AS score FROM vault_memory WHERE workspace_id = %s"
    order = _BY_TIME.get(question.request.sort, _BY_TIME["time_desc"])
    return _search(hits, [workspace.id], order, workspace, question)


def _search(
    hits: str, hit_params: list[Any], order: str, workspace: Workspace, question: Question
) -> list[Found]:
    """Put filters and the state test around a ranked sub-select; cut each pool by the order given."""
    filters, filter_params = _filters(question.request)
    pool, pool_params = _pool(question)
    pools = "pool" if question.request.current_only else "1"
    sql = f"""
        WITH hit AS MATERIALIZED ({hits}),
        fit AS (
            SELECT {FACTS}, hit.score, {pool} AS pool
            FROM hit CROSS JOIN vault_memory m ON m.seq = hit.seq
            WHERE {filters}
        )
        SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY {pools} ORDER BY {order}) AS place FROM fit)
        WHERE place <= %s
    """
    rows = _rows(sql, [*hit_params, *pool_params, *filter_params, question.pool])
    return [_found(row, workspace.name) for row in rows]


def _found(row: tuple[Any, ...], workspace: str) -> Found:
    score, pool, _ = row[FACTS_WIDTH:]
    return Found(facts_from(row, workspace), score, pool)


def _pools(found: list[Found], question: Question) -> list[Found]:
    """Merge what the workspaces brought, best first, and cut each pool to its size again."""
    request = question.request
    if request.by_tag_only or request.sort != "score":
        sign = 1 if request.sort == "time_asc" else -1
        found.sort(key=lambda f: (sign * f.facts.created_at, f.facts.id))
    else:
        found.sort(key=lambda f: (-f.score, f.facts.id))
    if not request.current_only:
        return found[: question.pool]
    linked = sum(candidate.pool == LINKED for candidate in found)
    room = {
        OPEN: question.pool,
        LINKED: question.pool,
        FALLEN: max(
            0, question.pool - linked
        ),  # they can change no answer, so they fill what the others leave
    }
    kept = []
    for candidate in found:
        if room[candidate.pool] > 0:
            room[candidate.pool] -= 1
            kept.append(candidate)
    return kept


def _pool(question: Question) -> tuple[str, list[Any]]:
    """The pool of `vault_memory m`, as SQL: whether an edge leads out, then the tests of `standing_reason`."""
    at, past = question.anchor.at, question.anchor.past
    standing = (
        "m.archived = 0 AND m.status <> 'deprecated' "
        "AND (m.t_valid IS NULL OR m.t_valid <= %s) "
        "AND (m.t_invalid IS NULL OR m.t_invalid > %s) "
        "AND (m.expires_at IS NULL OR m.expires_at > %s)"
    )
    replaced = "m.replaced_since IS NOT NULL"
    params = [at] * 3
    if past:
        standing += " AND m.created_at <= %s"
        replaced = "m.replaced_since <= %s"
        params += [at] * 2
    return f"CASE WHEN {replaced} THEN {LINKED} WHEN {standing} THEN {OPEN} ELSE {FALLEN} END", params


def _filters(request: RecallRequest) -> tuple[str, list[Any]]:
    """The caller's filters on `vault_memory m`, as SQL."""
    clauses, params = ["m.erased_at IS NULL"], list[Any]()

    def narrow(clause: str, *values: Any) -> None:
        clauses.append(clause)
        params.extend(values)

    if request.category is not None:
        narrow("m.category = %s", request.category)
    if request.provenance_class is not None:
        narrow("m.provenance_class = %s", request.provenance_class)
    if request.start is not None:
        narrow("m.created_at >= %s", request.start)
    if request.end is not None:
        narrow("m.created_at < %s", request.end)
    if request.exclude_tags:
        narrow(f"NOT {_HAS_ANY}", json.dumps(request.exclude_tags))
    _narrow_by_tags(request, narrow)
    return " AND ".join(clauses), params


_TAGS = "SELECT 1 FROM vault_memorytag t WHERE t.memory_id = m.seq"
_HAS_ANY = f"EXISTS ({_TAGS} AND t.tag IN (SELECT value FROM json_each(%s)))"
_HAS_ALL = (
    f"NOT EXISTS (SELECT 1 FROM json_each(%s) AS wanted WHERE NOT EXISTS ({_TAGS} AND t.tag = wanted.value))"
)
_UNTAGGED = f"NOT EXISTS ({_TAGS})"
_HAS_OTHERS = f"EXISTS ({_TAGS} AND t.tag NOT IN (SELECT value FROM json_each(%s)))"


def _narrow_by_tags(request: RecallRequest, narrow: Any) -> None:
    """`tags_match` as measured on Hindsight (behaviour.md, section 5)."""
    wanted = json.dumps(request.tags)
    match request.tags_match:
        case "exact" if not request.tags:
            narrow(_UNTAGGED)
        case _ if not request.tags:
            return
        case "any":
            narrow(f"({_HAS_ANY} OR {_UNTAGGED})", wanted)
        case "all":
            narrow(f"({_HAS_ALL} OR {_UNTAGGED})", wanted)
        case "any_strict":
            narrow(_HAS_ANY, wanted)
        case "all_strict":
            narrow(_HAS_ALL, wanted)
        case "exact":
            narrow(f"({_HAS_ALL} AND NOT {_HAS_OTHERS})", wanted, wanted)
