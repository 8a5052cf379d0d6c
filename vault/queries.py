"""Reading the vault: memories within a caller's reach, and the chains that replace them."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

from django.db import connection
from django.db.models.functions import Substr

from ledger.domain.instants import UnixMs
from ledger.domain.refusals import NotFound
from ledger.queries import effective_edges
from vault.domain.access import Reach, Scope
from vault.domain.facts import Facts
from vault.domain.links import REPLACING, SUPERSEDED_BY, Edge
from vault.models import Memory, MemoryLink, Workspace


@contextmanager
def snapshot() -> Iterator[None]:
    """Read everything inside from one state of the database, without taking the write lock.

    Django opens SQLite transactions with BEGIN IMMEDIATE here (settings.DATABASES), which would queue readers
    behind writers; a deferred one reads one WAL snapshot instead. Inside a transaction it adds nothing.
    """
    if connection.in_atomic_block or connection.vendor != "sqlite":
        yield
        return
    with connection.cursor() as cursor:
        cursor.execute("BEGIN DEFERRED")
        try:
            yield
        finally:
            cursor.execute("COMMIT")


def memory_for(reach: Reach, memory_id: str) -> Memory:
    """The memory, with its workspace and tags; one out of reach is answered like an unknown one."""
    memory = (
        Memory.objects.select_related("workspace")
        .prefetch_related("tags")
        .readable_by(reach)
        .filter(id=memory_id)
        .first()
    )
    if memory is None:
        raise NotFound(f"no memory {memory_id}", hint="ids begin with mem_")
    return memory


def link_for(reach: Reach, link_id: str) -> MemoryLink:
    links = MemoryLink.objects.select_related("source__workspace", "target__workspace")
    link = links.filter(id=link_id).first()
    if link is None or not reach.reads(link.source.workspace.name):
        raise NotFound(f"no link {link_id}", hint="ids begin with lnk_")
    return link


def workspaces_in(scope: Scope) -> list[Workspace]:
    """The existing workspaces of a scope, by name. Plain SQL: every recall asks."""
    sql = """
    SELECT id, name, memories FROM vault_workspace
    WHERE %s IS NULL OR name IN (SELECT value FROM json_each(%s)) ORDER BY name
    """
    names = None if scope.workspaces is None else json.dumps(scope.workspaces)
    with connection.cursor() as cursor:
        cursor.execute(sql, [names, names])
        return [Workspace(*row) for row in cursor.fetchall()]


def links_of(memory: Memory) -> list[MemoryLink]:
    """Every link from or to a memory, oldest first."""
    links = MemoryLink.objects.select_related("source", "target")
    touching = links.filter(source=memory) | links.filter(target=memory)
    return list(touching.order_by("created_at", "id"))


@dataclass(frozen=True, slots=True)
class Chains:
    """All that can be reached from some memories over replacing edges: the edges, and each node's facts."""

    edges: tuple[Edge, ...]
    facts: dict[str, Facts]


# Over replacing links from memory to memory, and over supersessions from event to event, also where no memory came from
# the event between.
_WALK = """
WITH RECURSIVE reached(seq, event) AS (
    SELECT m.seq, m.source_event_id FROM json_each(%s) AS asked JOIN vault_memory m ON m.id = asked.value
    UNION
    SELECT t.seq, t.source_event_id FROM reached r JOIN vault_memorylink l ON l.source_id = r.seq
    JOIN vault_memory t ON t.seq = l.target_id
    WHERE l.type IN (%s, %s) AND (%s IS NULL OR l.created_at <= %s)
    UNION
    SELECT t.seq, s.new_id FROM reached r JOIN ledger_supersession s ON s.old_id = r.event
    LEFT JOIN vault_memory t ON t.source_event_id = s.new_id
    WHERE s.voided_by_id IS NULL AND (%s IS NULL OR s.created_at <= %s)
)
"""

FACTS = (
    "m.id, m.created_at, m.t_valid, m.t_invalid, m.expires_at, m.status, m.archived, "
    "m.erased_at IS NOT NULL AS erased, m.provenance_class, m.seq"
)
FACTS_WIDTH = 10


def facts_from(row: Sequence[Any], workspace: str) -> Facts:
    """The facts in a row that begins with the columns FACTS."""
    id_, created_at, t_valid, t_invalid, expires_at, status, archived, erased, provenance, seq = row[
        :FACTS_WIDTH
    ]
    bounds = (t_valid, t_invalid, expires_at)
    return Facts(id_, workspace, created_at, *bounds, status, bool(archived), bool(erased), provenance, seq)


_CHAINS = (
    _WALK
    + f"""
SELECT {FACTS}, w.name, r.event,
       l.id, (SELECT t.id FROM vault_memory t WHERE t.seq = l.target_id), l.type, l.created_at
FROM reached r
LEFT JOIN vault_memory m ON m.seq = r.seq
LEFT JOIN vault_workspace w ON w.id = m.workspace_id
LEFT JOIN vault_memorylink l ON l.source_id = r.seq AND l.type IN (%s, %s) AND (%s IS NULL OR l.created_at <= %s)
"""
)


def chains_from(memory_ids: Iterable[str], *, until: UnixMs | None) -> Chains:
    """Walk all replacing edges from these memories: one query, however many and however long the chains, and one more
    where some of them came from events.

    `until` leaves out edges made later (an anchor in the past); None takes all. The facts cover the asked memories too.
    """
    links: list[Any] = [*REPLACING, until, until]
    edges: list[Edge] = []
    facts: dict[str, Facts] = {}
    came_from: dict[str, set[str]] = {}
    with connection.cursor() as cursor:
        cursor.execute(_CHAINS, [json.dumps(sorted(memory_ids)), *links, until, until, *links])
        for row in cursor.fetchall():
            workspace, event, link_id, target, relation, linked_at = row[FACTS_WIDTH:]
            if event is not None:
                came_from.setdefault(event, set())
            if row[0] is None:  # an event from which no memory came
                continue
            found = facts_from(row, workspace)
            facts[found.id] = found
            if event is not None:
                came_from[event].add(found.id)
            if link_id is not None:
                edges.append(Edge(link_id, found.id, target, relation, linked_at))
    if came_from:
        edges += _edges_of_events(came_from, until=until)
    return Chains(tuple(edges), facts)


def _edges_of_events(came_from: Mapping[str, Collection[str]], *, until: UnixMs | None) -> list[Edge]:
    """The supersessions between events as edges between the memories that came from them.

    An edge leads to the next event along the way from which a memory came, and takes the id and the instant of the
    supersession it begins with. Of several memories from one event the newest by id stands for it.
    """
    way_on = {edge.old: edge for edge in effective_edges(came_from, until=until)}
    edges = []
    for old, first in sorted(way_on.items()):
        passed, new = {old}, first.new
        while not came_from.get(new) and new in way_on and new not in passed:
            passed.add(new)
            new = way_on[new].new
        if new not in passed and came_from.get(new):
            target, at = max(came_from[new]), first.created_at
            edges += [Edge(first.event_id, one, target, SUPERSEDED_BY, at) for one in sorted(came_from[old])]
    return edges


@dataclass(frozen=True, slots=True)
class Around:
    """A memory's whole family of replacements, in both directions, with the beginning of each text."""

    edges: tuple[Edge, ...]
    facts: dict[str, Facts]
    texts: dict[str, str]


_FAMILY = """
WITH RECURSIVE family(seq, event) AS (
    SELECT m.seq, m.source_event_id FROM vault_memory m WHERE m.seq = %s
    UNION
    SELECT t.seq, t.source_event_id
    FROM family f JOIN vault_memorylink l ON (l.source_id = f.seq OR l.target_id = f.seq) AND l.type IN (%s, %s)
    JOIN vault_memory t ON t.seq = CASE l.source_id WHEN f.seq THEN l.target_id ELSE l.source_id END
    UNION
    SELECT t.seq, CASE s.old_id WHEN f.event THEN s.new_id ELSE s.old_id END
    FROM family f JOIN ledger_supersession s ON (s.old_id = f.event OR s.new_id = f.event) AND s.voided_by_id IS NULL
    LEFT JOIN vault_memory t ON t.source_event_id = CASE s.old_id WHEN f.event THEN s.new_id ELSE s.old_id END
)
SELECT DISTINCT m.id FROM family f JOIN vault_memory m ON m.seq = f.seq LIMIT 1000
"""


def chain_around(memory: Memory) -> Around:
    """What a memory replaced and what replaced it, at any distance: three queries."""
    with connection.cursor() as cursor:
        cursor.execute(_FAMILY, [memory.seq, *REPLACING])
        ids = [row[0] for row in cursor.fetchall()]
    chains = chains_from(ids, until=None)
    texts = dict(Memory.objects.filter(id__in=ids).values_list("id", Substr("text", 1, 120)))
    return Around(chains.edges, chains.facts, texts)


def workspace_names(reach: Reach) -> list[str]:
    """The names of the workspaces that exist and that a caller may read, the global one first."""
    names = Workspace.objects.order_by("name").values_list("name", flat=True)
    return [name for name in names if reach.reads(name)]


class LinkStep(NamedTuple):
    """A link as a step from one memory's number to another's."""

    source: int
    target: int
    type: str
    strength: float | None


def links_touching(seqs: Sequence[int], *, until: UnixMs | None, limit: int = 1000) -> list[LinkStep]:
    """Links of any type from or to these memories, oldest first; `until` leaves out later ones."""
    sql = """
    SELECT l.source_id, l.target_id, l.type, l.strength FROM vault_memorylink l
    WHERE (l.source_id IN (SELECT value FROM json_each(%s)) OR l.target_id IN (SELECT value FROM json_each(%s)))
    AND (%s IS NULL OR l.created_at <= %s) ORDER BY l.created_at, l.id LIMIT %s
    """
    asked = json.dumps(list(seqs))
    with connection.cursor() as cursor:
        cursor.execute(sql, [asked, asked, until, until, limit])
        return [LinkStep(*row) for row in cursor.fetchall()]


def replacing_edges(scope: Scope) -> list[Edge]:
    """Every replacing link within a scope, for the data-quality list."""
    links = MemoryLink.objects.filter(type__in=REPLACING).select_related("source", "target")
    if scope.workspaces is not None:
        links = links.filter(source__workspace__name__in=scope.workspaces)
    return [link.edge for link in links.order_by("created_at", "id")]


def sizes_of(ids: Sequence[str]) -> dict[str, int]:
    """How many bytes of UTF-8 each text has."""
    sql = """
    SELECT m.id, length(CAST(m.text AS BLOB)) FROM json_each(%s) AS asked JOIN vault_memory m ON m.id = asked.value
    """
    with connection.cursor() as cursor:
        cursor.execute(sql, [json.dumps(ids)])
        return dict(cursor.fetchall())


def memories_by_id(ids: Sequence[str], workspaces: Iterable[Workspace]) -> dict[str, Memory]:
    """Whole memories with their tags, for an answer. `workspaces` are those they may belong to.

    Plain SQL: every recall asks, and putting the query together by the ORM takes longer than the query.
    """
    home = {workspace.id: workspace for workspace in workspaces}
    found: dict[str, Memory] = {}
    with connection.cursor() as cursor:
        cursor.execute(_WHOLE, [json.dumps(list(ids))])
        for *row, tags in cursor.fetchall():
            row[_ARCHIVED] = bool(row[_ARCHIVED])
            row[_METADATA] = json.loads(row[_METADATA])
            memory = Memory(*row)  # by place: by name it takes twice as long
            memory.workspace = home[memory.workspace_id]
            memory.tag_names = sorted(json.loads(tags))
            found[memory.id] = memory
    return found


_COLUMNS = [field.attname for field in Memory._meta.concrete_fields]
_ARCHIVED, _METADATA = _COLUMNS.index("archived"), _COLUMNS.index("metadata")
_WHOLE = f"""
SELECT {", ".join(f"m.{name}" for name in _COLUMNS)},
       (SELECT json_group_array(t.tag) FROM vault_memorytag t WHERE t.memory_id = m.seq)
FROM json_each(%s) AS asked JOIN vault_memory m ON m.id = asked.value
"""
