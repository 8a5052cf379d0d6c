"""Search on SQLite alone, nothing kept in memory: FTS5 for the words, SQL for filters and state, vectors read anew.

Slow where a workspace is large, and right: the resident engine is held against it. It serves commands that ask once.

The ranked sub-select stands alone (`MATERIALIZED`): joined into it, the filters would keep FTS5 from scoring in
one pass. They are applied around it, before the pools are cut, so that no number of unfit better matches can
crowd out a fit one.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from django.db import connection

from ledger.domain.instants import UnixMs
from recall.domain.fusion import BM25_SCALE, idf
from recall.domain.request import RecallRequest
from recall.domain.validity import Lifts
from recall.domain.words import worth_asking
from recall.indexes import FALLEN, LINKED, OPEN, Found, Measured, Question, Submit, Vector, pools_of
from vault import vectors
from vault.domain.access import Scope
from vault.domain.facts import ASSERTED, Facts
from vault.domain.links import REPLACING
from vault.fulltext import TOKENIZER, table_of, terms_of_word, tokens_of_word
from vault.models import Workspace
from vault.queries import FACTS, FACTS_WIDTH, facts_from, snapshot, workspaces_in


class SqliteIndex:
    """Stateless, so one serves all threads."""

    version = f"sqlite-{sqlite3.sqlite_version} fts5 {TOKENIZER}"

    @contextmanager
    def opened(self, scope: Scope) -> Iterator[tuple[Workspace, ...]]:
        with snapshot():
            yield tuple(workspaces_in(scope))

    def look_ahead(self, question: Question, vector: Callable[[], Vector | None], submit: Submit) -> None:
        """Nothing: the database is asked by one thread."""

    def unembedded(self, question: Question) -> int:
        sql = """
        SELECT count(*) FROM vault_memory m
        WHERE m.workspace_id IN (SELECT value FROM json_each(%s)) AND m.erased_at IS NULL
        AND NOT EXISTS (SELECT 1 FROM vault_embedding e WHERE e.memory_id = m.seq AND e.model_id = %s)
        """
        count: int = _rows(sql, [_ids(question), _model()])[0][0]
        return count

    def lexical(self, question: Question) -> list[Found]:
        found: list[Found] = []
        for workspace in question.workspaces:
            asked = _asked(workspace, question.words)
            if asked.terms:
                hits, params = _scored(asked)
                found += _search(hits, params, "score DESC, id", workspace, question)
        return pools_of(found, question)

    def dense(self, question: Question, *, floor: float) -> list[Found]:
        found: list[Found] = []
        for workspace in question.workspaces:
            near = {seq: cosine for seq, cosine in _cosines(workspace, question).items() if cosine >= floor}
            found += _search(_GIVEN, [json.dumps(list(near.items()))], "score DESC, id", workspace, question)
        return pools_of(found, question)

    def by_time(self, question: Question, start: UnixMs | None, end: UnixMs | None) -> list[Found]:
        distance = "max(0, ifnull(%s - created_at, 0), ifnull(created_at - %s, 0))"
        hits = f"SELECT seq, -{distance} AS score FROM vault_memory WHERE workspace_id = %s"
        found: list[Found] = []
        for workspace in question.workspaces:
            params = [start, None if end is None else end - 1, workspace.pk]
            found += _search(hits, params, "score DESC, id", workspace, question)
        return pools_of(found, question)

    def by_filters(self, question: Question) -> list[Found]:
        hits = "SELECT seq, 0.0 AS score FROM vault_memory WHERE workspace_id = %s"
        found: list[Found] = []
        for workspace in question.workspaces:
            found += _search(hits, [workspace.pk], _BY_TIME["time_desc"], workspace, question)
        return pools_of(found, question, by_time=True)

    def by_validity(self, question: Question, lifts: Lifts) -> list[Found]:
        at, none = question.anchor.at, 2**62
        lifted = f"""min(created_at, {at})
        + CASE WHEN provenance_class IN (SELECT value FROM json_each(%s)) THEN %s ELSE 0.0 END
        + CASE WHEN min(ifnull(t_invalid, {none}), ifnull(expires_at, {none})) - {at} BETWEEN 1 AND {lifts.half_life}
          THEN %s ELSE 0.0 END"""
        hits = f"SELECT seq, {lifted} + %s AS score FROM vault_memory WHERE workspace_id = %s"
        found: list[Found] = []
        for workspace in question.workspaces:
            exact = lifts.exact_scope if workspace.name == question.request.workspace else 0.0
            params = [json.dumps(sorted(ASSERTED)), lifts.asserted, lifts.expiring, exact, workspace.pk]
            found += _search(hits, params, "score DESC, id", workspace, question)
        return pools_of(found, question)

    def standing(self, question: Question, seqs: Sequence[int]) -> list[Found]:
        given = json.dumps([[seq, 0.0] for seq in seqs])
        wide = replace(question, widening=len(seqs) + 1)
        found: list[Found] = []
        for workspace in question.workspaces:
            found += _search(_GIVEN, [given], "id", workspace, wide)
        return found

    def measured(self, question: Question, candidates: Sequence[Facts]) -> dict[str, Measured]:
        measured: dict[str, Measured] = {}
        for workspace in question.workspaces:
            here = [facts for facts in candidates if facts.workspace == workspace.name]
            asked = _asked(workspace, question.words)
            scores, holding = _scores(asked), _who_holds(asked)
            cosines = _cosines(workspace, question)
            for facts in here:
                matched = tuple(dict.fromkeys(word for word, seqs in holding if facts.seq in seqs))
                measured[facts.id] = Measured(scores.get(facts.seq, 0.0), matched, cosines.get(facts.seq))
        return measured

    def matching(self, question: Question, ids: Iterable[str]) -> set[str]:
        return matching(question, ids)


def matching(question: Question, ids: Iterable[str]) -> set[str]:
    """Which of these memories match the caller's filters."""
    wanted = sorted(ids)
    if not wanted:
        return set()
    filters, params = _filters(question.request)
    sql = (
        "SELECT m.id FROM json_each(%s) AS asked JOIN vault_memory m ON m.id = asked.value "
        f"WHERE m.workspace_id IN (SELECT value FROM json_each(%s)) AND {filters}"
    )
    return {row[0] for row in _rows(sql, [json.dumps(wanted), _ids(question), *params])}


def _ids(question: Question) -> str:
    return json.dumps([workspace.pk for workspace in question.workspaces])


_BY_TIME = {"time_asc": "created_at, id", "time_desc": "created_at DESC, id"}


def _rows(sql: str, params: list[Any]) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(sql, params)
        rows: list[tuple[Any, ...]] = cursor.fetchall()
    return rows


# Rows with scores that were computed elsewhere.
_GIVEN = "SELECT value ->> 0 AS seq, value ->> 1 AS score FROM json_each(%s)"


@dataclass(frozen=True, slots=True)
class _Asked:
    """The terms of a question that are worth asking in one text index, each with the word it came from."""

    table: str
    terms: tuple[tuple[str, str], ...]
    scale: float


def _asked(workspace: Workspace, words: Sequence[str]) -> _Asked:
    table = table_of(workspace.pk)
    spelt: dict[str, str] = {}
    for word in words:
        for term in terms_of_word(word):
            spelt.setdefault(term, word)
    holding = _holding(table, list(spelt.values()), list(spelt))
    terms = worth_asking(holding, workspace.memories)
    scale = BM25_SCALE * sum(idf(workspace.memories, holding[term]) for term in terms)
    return _Asked(table, tuple((spelt[term], term) for term in terms), scale)


def _holding(table: str, words: list[str], terms: list[str]) -> dict[str, int]:
    """How many texts of the workspace hold each term."""
    if not terms:
        return {}
    count = f"SELECT (SELECT count(*) FROM {table} WHERE {table} MATCH %s)"
    rows = _rows(
        " UNION ALL ".join([count] * len(terms)),
        [_quoted(word, term) for word, term in zip(words, terms, strict=True)],
    )
    return {term: row[0] for term, row in zip(terms, rows, strict=True)}


def _quoted(word: str, term: str) -> str:
    """The part of a word that FTS5 makes this term of, alone: it would take the parts of a whole word for a phrase."""
    return f'"{tokens_of_word(word)[term]}"'


def _scored(asked: _Asked) -> tuple[str, list[Any]]:
    """Every text that holds one of the terms, with its score as a share of the question's information, as SQL."""
    hits = f"SELECT rowid AS seq, -bm25({asked.table}) / %s AS score FROM {asked.table} WHERE {asked.table} MATCH %s"
    return hits, [asked.scale, " OR ".join(_quoted(word, term) for word, term in asked.terms)]


def _scores(asked: _Asked) -> dict[int, float]:
    return dict(_rows(*_scored(asked))) if asked.terms else {}


def _who_holds(asked: _Asked) -> list[tuple[str, set[int]]]:
    sql = f"SELECT rowid FROM {asked.table} WHERE {asked.table} MATCH %s"
    return [(word, {row[0] for row in _rows(sql, [_quoted(word, term)])}) for word, term in asked.terms]


def _model() -> int:
    model = vectors.known_model()
    return 0 if model is None else model.pk


def _cosines(workspace: Workspace, question: Question) -> dict[int, float]:
    """The exact cosine of every memory of a workspace that has a vector: its best chunk's."""
    if question.vector is None:
        return {}
    sql = """
    SELECT e.memory_id, e.vector FROM vault_memory m CROSS JOIN vault_embedding e
    ON e.memory_id = m.seq AND e.model_id = %s WHERE m.workspace_id = %s AND m.erased_at IS NULL
    """
    query = question.vector.astype(np.float64)
    cosines: dict[int, float] = {}
    for seq, blob in _rows(sql, [_model(), workspace.pk]):
        cosine = float(np.frombuffer(blob, np.float16).astype(np.float64) @ query)
        cosines[seq] = max(cosine, cosines.get(seq, cosine))
    return cosines


def _search(
    hits: str, hit_params: list[Any], order: str, workspace: Workspace, question: Question
) -> list[Found]:
    """Put filters and the state test around a ranked sub-select; cut each pool by the order given.

    An explicit sort draws the pools by it: "the newest" are the newest of all that match.
    """
    order = _BY_TIME.get(question.request.sort, order)
    filters, filter_params = _filters(question.request)
    pool, pool_params = _pool(question)
    pools = "pool" if question.request.current_only else "1"
    sql = f"""
        WITH hit AS MATERIALIZED ({hits}),
        fit AS (
            SELECT {FACTS}, hit.score, {pool} AS pool, {_joined(question)} AS joined
            FROM hit CROSS JOIN vault_memory m ON m.seq = hit.seq
            WHERE m.workspace_id = %s AND {filters}
        )
        SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY {pools} ORDER BY {order}) AS place FROM fit)
        WHERE place <= %s
    """
    rows = _rows(sql, [*hit_params, *pool_params, workspace.pk, *filter_params, question.pool])
    return [_found(row, workspace.name) for row in rows]


def _found(row: tuple[Any, ...], workspace: str) -> Found:
    score, pool, joined, _ = row[FACTS_WIDTH:]
    return Found(facts_from(row, workspace), score, pool, bool(joined))


def _joined(question: Question) -> str:
    counts = "l.type NOT IN ('" + "', '".join(REPLACING) + "')" if question.request.current_only else "1"
    return f"""(
    EXISTS (SELECT 1 FROM vault_memorylink l WHERE l.source_id = m.seq AND {counts})
    OR EXISTS (SELECT 1 FROM vault_memorylink l WHERE l.target_id = m.seq AND {counts})
)"""


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
    if request.categories:
        narrow("m.category IN (SELECT value FROM json_each(%s))", json.dumps(request.categories))
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
