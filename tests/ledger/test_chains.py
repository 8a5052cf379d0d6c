"""Chains at any distance: a whole page of events finds its heads in a fixed number of queries."""

from __future__ import annotations

import itertools
import time
from typing import Any

import pytest
from django.db import connection, transaction
from hypothesis import given
from hypothesis import strategies as st

from ledger import triggers
from ledger.domain import chain
from ledger.domain.actors import SYSTEM
from ledger.domain.chain import Edge
from ledger.domain.events import CONTEXT_ADDED, NewEvent
from ledger.domain.instants import UnixMs
from ledger.models import ContextEvent, Supersession
from ledger.queries import MAX_CHAIN, chain_of, coverage, effective_edges, heads_of, verify
from ledger.services import NewContext, add_context, append_events, correct

pytestmark = pytest.mark.django_db


def _chain(length: int, *, at: UnixMs, workspace: str = "") -> list[str]:
    """So many context events, each superseding the one before it."""
    with transaction.atomic():
        ids: list[str] = []
        for number in range(length):
            row = append_events(
                [
                    NewEvent(
                        kind=CONTEXT_ADDED,
                        actor=SYSTEM,
                        workspace=workspace,
                        subject_id="",
                        object_id=ids[-1] if ids else "",
                        occurred_at=at,
                        text=str(number),
                    )
                ],
                at=at,
            )[0]
            if ids:
                Supersession.objects.create(old_id=ids[-1], new_id=row.id, event=row, created_at=at)
            ids.append(row.id)
    return ids


@pytest.mark.parametrize("length", [1, 2, 5, 300])
def test_the_head_is_found_at_any_distance_in_two_queries(
    length: int, now: UnixMs, django_assert_num_queries: Any
) -> None:
    ids = _chain(length, at=now)
    with django_assert_num_queries(2):
        found = heads_of(ids)
    assert {head.id for head in found.values()} == {ids[-1]}
    assert [found[id_].steps for id_ in ids] == list(range(length - 1, -1, -1))
    assert [found[id_].superseded for id_ in ids] == [True] * (length - 1) + [False]
    assert verify().ok


def test_a_page_of_hits_from_many_chains_takes_two_queries(
    now: UnixMs, django_assert_num_queries: Any
) -> None:
    chains = [_chain(length, at=now) for length in range(1, 30)]
    page = [ids[0] for ids in chains]
    with django_assert_num_queries(2):
        found = heads_of(page)
    assert [found[ids[0]].id for ids in chains] == [ids[-1] for ids in chains]


def test_a_chain_of_ten_thousand_is_walked_in_a_moment(now: UnixMs) -> None:
    ids = _chain(1, at=now)
    with transaction.atomic():
        rows = append_events(
            [
                NewEvent(kind=CONTEXT_ADDED, actor=SYSTEM, workspace="", subject_id="", occurred_at=now)
                for _ in range(9_999)
            ],
            at=now,
        )
        ids += [row.id for row in rows]
        Supersession.objects.bulk_create(
            Supersession(old_id=old, new_id=new, event_id=new, created_at=now)
            for old, new in itertools.pairwise(ids)
        )
    began = time.monotonic()
    assert heads_of(ids[:200])[ids[0]].steps == 9_999
    assert time.monotonic() - began < 5
    shown = chain_of(ids[5_000])
    assert (len(shown.events), shown.truncated) == (MAX_CHAIN, True)


def test_unknown_ids_have_no_head_and_none_asked_is_none_answered() -> None:
    assert heads_of(["evt_unknown"]) == {}
    assert heads_of([]) == {}


def test_a_supersession_that_came_later_is_ignored_at_an_earlier_instant(now: UnixMs) -> None:
    ids = _chain(1, at=now)
    new = add_context(NewContext("new", supersedes=ids[0]), key="k", actor=SYSTEM, at=now + 10)
    assert effective_edges(ids, until=now + 9) == []
    assert [edge.new for edge in effective_edges(ids, until=now + 10)] == [new.event_id]
    assert [edge.new for edge in effective_edges(ids)] == [new.event_id]


def test_a_voided_supersession_leads_nowhere_and_stays_in_the_picture(now: UnixMs) -> None:
    (old,) = _chain(1, at=now)
    wrong = correct(old, kind="retract", reason="it was not meant", actor=SYSTEM, at=now)
    correct(wrong.id, kind="restore", reason="it was meant after all", actor=SYSTEM, at=now)
    assert effective_edges([old]) == []
    assert [(edge.old, edge.new, edge.effective) for edge in chain_of(old).edges] == [(old, wrong.id, False)]
    assert [event.id for event in chain_of(old).events] == [old, wrong.id]


def test_a_cycle_that_was_written_behind_the_services_ends_every_walk_at_the_same_head(now: UnixMs) -> None:
    ids = _chain(4, at=now)
    triggers.lift()
    Supersession.objects.create(old_id=ids[3], new_id=ids[1], event_id=ids[0], created_at=now - 1)
    triggers.install()
    found = heads_of(ids)
    assert all(head.cycle for head in found.values())
    assert {head.id for head in found.values()} == {ids[3]}, "the oldest supersession of the cycle is ignored"
    assert len(chain_of(ids[0]).events) == 4
    assert not verify().ok


# ---- coverage


def test_coverage_counts_events_in_the_ledger_and_never_memories(
    now: UnixMs, memory_event: ContextEvent
) -> None:
    old = add_context(
        NewContext("old", workspace="red", item_id="i", occurred_at=now - 50), key="1", actor=SYSTEM, at=now
    )
    add_context(
        NewContext("new", workspace="red", item_id="i", supersedes=old.event_id),
        key="2",
        actor=SYSTEM,
        at=now,
    )
    add_context(NewContext("other", workspace="red"), key="3", actor=SYSTEM, at=now)
    add_context(NewContext("foreign", workspace="blue", item_id="i"), key="4", actor=SYSTEM, at=now)
    found = coverage(workspaces=("", "red"), item_id="i")
    assert (found.events, found.superseded, found.pending, found.delivered) == (2, 1, 2, 0)
    assert (found.first, found.last) == (now - 50, now)
    assert coverage(workspaces=("red",)).events == 3
    assert coverage(workspaces=None).events == 4
    assert coverage(workspaces=()).events == 0
    assert coverage(workspaces=("green",)).first is None


def test_a_supersession_that_was_undone_and_made_again_counts_once(now: UnixMs) -> None:
    (old,) = _chain(1, at=now)
    for _ in range(2):
        wrong = correct(old, kind="retract", reason="it was not meant", actor=SYSTEM, at=now)
        undone = correct(wrong.id, kind="restore", reason="it was meant after all", actor=SYSTEM, at=now)
    correct(undone.id, kind="restore", reason="no: it was not meant", actor=SYSTEM, at=now)
    found = coverage(workspaces=None)
    assert (found.events, found.superseded) == (6, 1)
    assert found.events == ContextEvent.objects.count()


def test_coverage_takes_two_queries(now: UnixMs, django_assert_num_queries: Any) -> None:
    _chain(3, at=now)
    with django_assert_num_queries(2):
        coverage(workspaces=("",), item_id=None)


# ---- the walk itself, without a database

EDGES = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), max_size=14)


@given(EDGES)
def test_a_walk_ends_whatever_the_edges_and_those_in_a_cycle_agree_on_the_head(
    pairs: list[tuple[int, int]],
) -> None:
    edges = [Edge(str(a), str(b), f"evt_{n}", n) for n, (a, b) in enumerate(pairs)]
    following = chain.successors(edges)
    for start in map(str, range(13)):
        walk = chain.walk(start, following)
        assert walk.path[0] == start
        assert len(set(walk.path)) == len(walk.path)
        for old, new in zip(walk.path, walk.path[1:], strict=False):
            assert following[old].new == new
        if not walk.cycle:
            assert walk.head not in following
        for passed in walk.path:
            assert chain.walk(passed, following).head == walk.head


@given(EDGES)
def test_edges_that_were_checked_one_by_one_never_close_a_cycle(pairs: list[tuple[int, int]]) -> None:
    following: dict[str, Edge] = {}
    for number, (old, new) in enumerate(pairs):
        a, b = str(old), str(new)
        if a in following or chain.closes_cycle(a, b, following):
            continue
        following[a] = Edge(a, b, f"evt_{number}", number)
    assert not any(chain.walk(start, following).cycle for start in following)


def test_an_edge_to_itself_closes_a_cycle() -> None:
    assert chain.closes_cycle("a", "a", {})


@pytest.mark.skipif(connection.vendor != "sqlite", reason="how SQLite spells its plan")
def test_the_walk_goes_by_indexes(now: UnixMs) -> None:
    _chain(3, at=now)
    with connection.execute_wrapper(_explained):
        effective_edges(["evt_1"])
    assert any("supersession_one_successor" in step for step in _plan), _plan
    assert not any(step.startswith("SCAN s") for step in _plan), _plan


_plan: list[str] = []


def _explained(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
    _plan[:] = [row[3] for row in execute(f"EXPLAIN QUERY PLAN {sql}", params, many, context)]
    return execute(sql, params, many, context)
