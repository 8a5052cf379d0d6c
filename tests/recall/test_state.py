"""Current state (behaviour.md, section 3): the six rules, the walk to a replacement, cycles and erasure."""

from __future__ import annotations

import random
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.domain.instants import parse_instant
from recall.domain.state import (
    CURRENT,
    LONG_CHAIN,
    Anchor,
    State,
    Successions,
    circles,
    in_words,
    standing_reason,
    state_of,
)
from vault.domain.facts import DEPRECATED, STATUSES, Facts
from vault.domain.links import EVOLVED_INTO, INVALIDATED_BY, SUPERSEDED_BY, Edge

T = parse_instant("2026-09-22T12:00:00Z")
NOW = Anchor(T)
PAST = Anchor(T, past=True)

EXPIRED: dict[str, Any] = {"t_invalid": T - 1}
ARCHIVED: dict[str, Any] = {"archived": True}
ERASED: dict[str, Any] = {"archived": True, "erased": True}
DEPRECATED_STATUS: dict[str, Any] = {"status": DEPRECATED}
NOT_YET: dict[str, Any] = {"t_valid": T + 1}


def memory(id: str = "m", **changes: Any) -> Facts:
    return Facts(id=id, workspace="", created_at=T - 1_000)._replace(**changes)


def replaced(source: str, target: str, *, at: int = T - 500, id: str = "", by: str = INVALIDATED_BY) -> Edge:
    return Edge(id or f"lnk_{source}_{target}", source, target, by, at)


def chain(*ids: str) -> list[Edge]:
    """Each id replaced by the next, the oldest link first."""
    return [replaced(a, b, at=T - 500 + n) for n, (a, b) in enumerate(pairwise(ids))]


def states(edges: Iterable[Edge], *, anchor: Anchor = NOW, **notable: dict[str, Any]) -> dict[str, State]:
    """The state of every memory on the edges; `notable` gives the fields of some, the rest plainly hold."""
    edges = list(edges)
    ids = sorted({end for edge in edges for end in (edge.source, edge.target)} | set(notable))
    facts = {id: memory(id, **notable.get(id, {})) for id in ids}
    successions = Successions(edges, anchor)
    return {id: state_of(id, facts, successions, anchor) for id in ids}


def reasons(found: dict[str, State]) -> dict[str, str | None]:
    return {id: state.reason for id, state in found.items()}


def replacements(found: dict[str, State]) -> dict[str, str | None]:
    return {id: state.replacement_id for id, state in found.items()}


# Rules 1 to 4: a memory's own fields


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({}, None),
        ({"archived": True}, "archived"),
        ({"archived": True, "erased": True}, "archived"),
        ({"t_valid": T - 1}, None),
        ({"t_valid": T}, None),
        ({"t_valid": T + 1}, "not_yet_valid"),
        ({"t_invalid": T + 1}, None),
        ({"t_invalid": T}, "expired"),
        ({"t_invalid": T - 1}, "expired"),
        ({"expires_at": T + 1}, None),
        ({"expires_at": T}, "expired"),
        ({"expires_at": T - 1}, "expired"),
        ({"t_invalid": T + 9, "expires_at": T}, "expired"),
        ({"t_invalid": T, "expires_at": T + 9}, "expired"),
        ({"t_invalid": T + 1, "expires_at": T + 1}, None),
        ({"t_valid": T, "t_invalid": T + 1}, None),
        ({"status": "deprecated"}, "deprecated"),
        ({"created_at": T + 1}, None),
    ],
    ids=str,
)
def test_a_memory_holds_in_its_half_open_window_and_while_nothing_is_said_against_it(
    fields: dict[str, Any], reason: str | None
) -> None:
    assert standing_reason(memory(**fields), NOW) == reason


@pytest.mark.parametrize(
    "status", [status for status in STATUSES if status != DEPRECATED] + ["", "unheard_of"]
)
def test_no_status_but_deprecated_makes_a_memory_not_current(status: str) -> None:
    assert standing_reason(memory(status=status), NOW) is None


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        (ARCHIVED | NOT_YET | {"expires_at": T} | DEPRECATED_STATUS, "archived"),
        (NOT_YET | {"expires_at": T} | DEPRECATED_STATUS, "not_yet_valid"),
        ({"expires_at": T} | DEPRECATED_STATUS, "expired"),
        (DEPRECATED_STATUS, "deprecated"),
        ({}, "superseded"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_first_rule_that_holds_is_the_one_reason(fields: dict[str, Any], reason: str) -> None:
    found = states(chain("m", "new"), m=fields)
    assert found["m"].reason == reason
    assert not found["m"].current


def test_a_replacement_comes_before_an_erasure_on_the_way_to_it() -> None:
    found = states(chain("a", "gone", "new"), gone=ERASED)
    assert reasons(found) == {"a": "superseded", "gone": "archived", "new": None}


def test_every_rule_before_the_last_two_hides_that_the_replacement_was_erased() -> None:
    for fields in (ARCHIVED, NOT_YET, EXPIRED, DEPRECATED_STATUS):
        found = states(chain("a", "gone"), a=fields, gone=ERASED)
        assert found["a"].reason == standing_reason(memory(**fields), NOW)


# An anchor in the past


def test_at_a_past_anchor_a_memory_created_later_is_not_yet_valid() -> None:
    assert standing_reason(memory(created_at=T), PAST) is None
    assert standing_reason(memory(created_at=T + 1), PAST) == "not_yet_valid"
    assert standing_reason(memory(created_at=T + 1, t_valid=T - 1), PAST) == "not_yet_valid"


def test_at_a_past_anchor_a_link_created_later_is_not_seen() -> None:
    at_it, later = replaced("a", "b", at=T), replaced("a", "b", at=T + 1)
    assert states([at_it], anchor=PAST)["a"].reason == "superseded"
    assert states([later], anchor=PAST)["a"] == CURRENT
    assert states([later], anchor=NOW)["a"].reason == "superseded"


def test_at_a_past_anchor_an_earlier_link_decides_again() -> None:
    edges = [replaced("a", "b", at=T - 1), replaced("a", "c", at=T + 1)]
    assert states(edges, anchor=PAST)["a"].replacement_id == "b"
    assert states(edges, anchor=NOW)["a"].replacement_id == "c"


def test_at_a_past_anchor_a_cycle_that_closed_later_is_not_one_yet() -> None:
    edges = [replaced("a", "b", at=T - 1), replaced("b", "a", at=T + 1)]
    assert reasons(states(edges, anchor=PAST)) == {"a": "superseded", "b": None}
    assert reasons(states(edges, anchor=NOW)) == {"a": None, "b": "superseded"}


def test_at_a_past_anchor_a_replacement_created_later_does_not_hold_yet() -> None:
    found = states(chain("a", "b"), anchor=PAST, b={"created_at": T + 1})
    assert found["a"].current
    assert found["a"].inactive


def test_an_anchor_hides_links_only_when_it_lies_in_the_past() -> None:
    assert Anchor(T).until is None
    assert Anchor(T, past=True).until == T


# The walk to a replacement


@pytest.mark.parametrize(
    ("relation", "how"),
    [(INVALIDATED_BY, "invalidated_by"), (EVOLVED_INTO, "evolved_into"), (SUPERSEDED_BY, "ledger")],
)
def test_a_memory_is_superseded_the_way_its_own_link_says(relation: str, how: str) -> None:
    found = states([replaced("a", "b", by=relation), replaced("b", "c", by=INVALIDATED_BY)])
    assert found["a"].replacement_id == "c"
    assert found["a"].superseded_by == how
    assert found["a"].edge == replaced("a", "b", by=relation)
    assert found["c"].superseded_by is None


def test_a_chain_resolves_to_its_head_for_every_memory_on_it() -> None:
    found = states(chain("a", "b", "c", "d"))
    assert replacements(found) == {"a": "d", "b": "d", "c": "d", "d": None}
    assert found["d"] == CURRENT


@pytest.mark.parametrize("middle", [ARCHIVED, ERASED, NOT_YET, EXPIRED, DEPRECATED_STATUS], ids=str)
def test_the_walk_goes_through_a_memory_that_is_not_current(middle: dict[str, Any]) -> None:
    found = states(chain("a", "middle", "c"), middle=middle)
    assert found["a"].replacement_id == "c"
    assert found["middle"].replacement_id == "c"


@pytest.mark.parametrize("head", [ARCHIVED, NOT_YET, EXPIRED, DEPRECATED_STATUS], ids=str)
def test_the_last_memory_that_holds_replaces_when_the_head_does_not(head: dict[str, Any]) -> None:
    found = states(chain("a", "b", "c", "head"), head=head, c=EXPIRED)
    assert found["a"].replacement_id == "b"
    assert found["b"].current
    assert found["b"].inactive
    assert found["c"].reason == "expired"


@pytest.mark.parametrize("head", [ARCHIVED, NOT_YET, EXPIRED, DEPRECATED_STATUS], ids=str)
def test_a_memory_stays_and_says_so_when_nothing_on_the_way_holds(head: dict[str, Any]) -> None:
    found = states(chain("a", "b", "c"), b=ARCHIVED, c=head)
    assert (found["a"].current, found["a"].reason, found["a"].inactive) == (True, None, True)
    assert found["a"].superseded_by is None


def test_of_several_replacements_the_newest_link_decides_and_then_the_greater_id() -> None:
    def decided(*edges: Edge) -> str | None:
        return states(edges)["a"].replacement_id

    older, newer = replaced("a", "b", at=T - 2, id="lnk_9"), replaced("a", "c", at=T - 1, id="lnk_1")
    assert decided(older, newer) == decided(newer, older) == "c"
    first, second = replaced("a", "b", at=T - 1, id="lnk_1"), replaced("a", "c", at=T - 1, id="lnk_2")
    assert decided(first, second) == decided(second, first) == "c"


def test_the_newest_replacement_decides_even_where_only_an_older_one_holds() -> None:
    edges = [replaced("a", "holds", at=T - 2), replaced("a", "expired", at=T - 1)]
    found = states(edges, expired=EXPIRED)
    assert found["a"].current
    assert found["a"].inactive


@pytest.mark.parametrize("own", [ARCHIVED, NOT_YET, EXPIRED, DEPRECATED_STATUS], ids=str)
def test_a_memory_not_current_by_its_own_fields_still_names_its_replacement(own: dict[str, Any]) -> None:
    found = states([replaced("a", "b", by=EVOLVED_INTO)], a=own)["a"]
    assert found.reason != "superseded"
    assert found.replacement_id == "b"
    assert found.superseded_by == "evolved_into"


def test_a_chain_of_seventy_is_walked_to_its_end_and_measured() -> None:
    ids = [f"n{n:02}" for n in range(71)]
    found = states(chain(*ids))
    assert found["n00"].replacement_id == "n70"
    assert [id for id in ids if found[id].steps > LONG_CHAIN] == ids[:6]
    assert [id for id in ids if found[id].current] == ["n70"]


def test_a_chain_of_thousands_needs_no_recursion() -> None:
    ids = [f"n{n}" for n in range(5_000)]
    facts = {id: memory(id) for id in ids}
    assert state_of("n0", facts, Successions(chain(*ids), NOW), NOW).replacement_id == "n4999"


# Cycles


def test_a_cycle_of_two_opens_at_its_oldest_link() -> None:
    older, newer = replaced("a", "b", at=T - 2), replaced("b", "a", at=T - 1)
    found = states([older, newer])
    assert reasons(found) == {"a": None, "b": "superseded"}
    assert found["b"].replacement_id == "a"
    assert found["a"].ignored == found["b"].ignored == older


def test_links_of_a_cycle_with_one_instant_open_at_the_lesser_id() -> None:
    edges = [replaced("a", "b", id="lnk_2"), replaced("b", "a", id="lnk_1")]
    assert reasons(states(edges)) == {"a": "superseded", "b": None}


def test_a_long_cycle_opens_once() -> None:
    ids = [f"n{n:02}" for n in range(40)]
    edges = [*chain(*ids), replaced(ids[-1], ids[0], at=T - 1_000)]
    found = states(edges)
    assert [id for id in ids if found[id].current] == [ids[-1]]
    assert {state.ignored for state in found.values()} == {edges[-1]}


def test_a_tail_into_a_cycle_resolves_to_the_node_the_cycle_opens_at() -> None:
    edges = [
        replaced("tail", "in", at=T - 900),
        replaced("in", "a", at=T - 800),
        replaced("a", "b", at=T - 2),
        replaced("b", "in", at=T - 1),
    ]
    found = states(edges)
    assert replacements(found) == {"tail": "in", "in": None, "a": "in", "b": "in"}
    assert found["tail"].ignored == edges[1], "the tail is older, but on no cycle"


def test_the_node_a_cycle_opens_at_falls_back_on_no_older_link() -> None:
    edges = [
        replaced("a", "elsewhere", at=T - 3),
        replaced("a", "b", at=T - 2),
        replaced("b", "a", at=T - 1),
    ]
    found = states(edges)
    assert found["a"].current
    assert found["a"].replacement_id is None
    assert not found["a"].inactive


def test_a_newer_link_out_of_a_cycle_means_there_is_none() -> None:
    edges = [replaced("a", "b", at=T - 3), replaced("b", "a", at=T - 2), replaced("a", "out", at=T - 1)]
    found = states(edges)
    assert replacements(found) == {"a": "out", "b": "out", "out": None}
    assert {state.ignored for state in found.values()} == {None}


def test_each_of_two_cycles_opens_on_its_own() -> None:
    edges = [
        replaced("a", "b", at=T - 9),
        replaced("b", "a", at=T - 8),
        replaced("x", "y", at=T - 1),
        replaced("y", "x", at=T - 2),
    ]
    found = states(edges)
    assert reasons(found) == {"a": None, "b": "superseded", "x": "superseded", "y": None}
    assert found["x"].ignored == edges[3]


def test_a_memory_linked_to_itself_stays_current() -> None:
    edge = replaced("a", "a")
    assert states([edge])["a"] == State(current=True, ignored=edge)


def test_a_cycle_whose_opening_does_not_hold_leaves_the_last_one_that_does() -> None:
    edges = [replaced("a", "b", at=T - 3), replaced("b", "c", at=T - 2), replaced("c", "a", at=T - 1)]
    found = states(edges, a=EXPIRED)
    assert reasons(found) == {"a": "expired", "b": "superseded", "c": None}
    assert found["c"].inactive


# Erasure


def test_erasing_the_replacement_never_revives_the_memory() -> None:
    found = states(chain("a", "gone"), gone=ERASED)["a"]
    assert (found.current, found.reason, found.replacement_id) == (False, "replacement_erased", None)
    assert not found.inactive
    assert found.superseded_by == "invalidated_by"


def test_an_erased_memory_with_nothing_that_holds_after_it_still_suppresses() -> None:
    found = states(chain("a", "gone", "b", "c"), gone=ERASED, b=EXPIRED, c=ARCHIVED)
    assert found["a"].reason == "replacement_erased"
    assert found["gone"].reason == "archived"
    assert found["gone"].inactive


def test_a_replacement_whose_own_replacement_was_erased_is_named_and_is_not_current() -> None:
    found = states(chain("a", "b", "gone"), gone=ERASED)
    assert reasons(found) == {"a": "superseded", "b": "replacement_erased", "gone": "archived"}
    assert replacements(found) == {"a": "b", "b": None, "gone": None}


def test_an_expired_memory_whose_replacement_was_erased_is_still_one_that_was_replaced() -> None:
    found = states([replaced("a", "gone", by=SUPERSEDED_BY)], a=EXPIRED, gone=ERASED)["a"]
    assert (found.reason, found.superseded_by) == ("expired", "ledger")


# In words


@pytest.mark.parametrize(
    ("fields", "state", "words"),
    [
        ({}, CURRENT, "Current"),
        ({}, State(current=True, inactive=True), "Current: what replaced it is itself not current"),
        (ARCHIVED, State(current=False, reason="archived"), "Archived"),
        (ERASED, State(current=False, reason="archived"), "Erased"),
        (
            {"t_valid": T + 60_000},
            State(current=False, reason="not_yet_valid"),
            "Not yet valid: it holds from 2026-09-22T12:01:00Z",
        ),
        (
            {"t_valid": T - 60_000, "created_at": T + 60_000},
            State(current=False, reason="not_yet_valid"),
            "Not yet valid: it holds from 2026-09-22T12:01:00Z",
        ),
        (
            {"created_at": T + 60_000},
            State(current=False, reason="not_yet_valid"),
            "Not yet valid: it holds from 2026-09-22T12:01:00Z",
        ),
        (
            {"t_invalid": T, "expires_at": T - 60_000},
            State(current=False, reason="expired"),
            "Expired 2026-09-22T11:59:00Z",
        ),
        (
            DEPRECATED_STATUS,
            State(current=False, reason="deprecated"),
            "Deprecated, with no successor on record",
        ),
        (
            DEPRECATED_STATUS,
            State(current=False, reason="deprecated", replacement_id="mem_b"),
            "Deprecated, and superseded by mem_b",
        ),
        ({}, State(current=False, reason="superseded", replacement_id="mem_b"), "Superseded by mem_b"),
        (
            {},
            State(current=False, reason="replacement_erased"),
            "Suppressed: what replaced it was erased",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_state_says_its_reason_in_words(fields: dict[str, Any], state: State, words: str) -> None:
    assert in_words(state, memory(**fields)) == words


# What holds on every graph

NODES = st.sampled_from("abcdefgh")
TIMES = st.integers(min_value=T - 4, max_value=T + 1)
RELATIONS = st.sampled_from([INVALIDATED_BY, EVOLVED_INTO, SUPERSEDED_BY])


@st.composite
def edge_lists(draw: st.DrawFn) -> list[Edge]:
    """Up to 20 replacing edges among eight memories: self-links, parallel edges, ties and cycles too."""
    ends = draw(st.lists(st.tuples(NODES, NODES, TIMES, RELATIONS), max_size=20))
    return [Edge(f"lnk_{n:02}", source, target, how, at) for n, (source, target, at, how) in enumerate(ends)]


FIELDS = st.sampled_from(
    [{}, {}, {}, ARCHIVED, ERASED, NOT_YET, EXPIRED, DEPRECATED_STATUS, {"created_at": T + 1}]
)
ANY_FIELDS = st.fixed_dictionaries(dict.fromkeys("abcdefgh", FIELDS))
UNERASED = ANY_FIELDS.map(lambda notable: {id: {} if f == ERASED else f for id, f in notable.items()})
ANCHORS = st.sampled_from([NOW, PAST])
ALL_HOLD: dict[str, dict[str, Any]] = {id: {} for id in "abcdefgh"}


@given(edge_lists(), ANY_FIELDS, ANCHORS, st.randoms(use_true_random=False))
def test_the_order_of_links_never_changes_a_state(
    edges: list[Edge], notable: dict[str, Any], anchor: Anchor, shuffler: random.Random
) -> None:
    shuffled = edges.copy()
    shuffler.shuffle(shuffled)
    assert states(shuffled, anchor=anchor, **notable) == states(edges, anchor=anchor, **notable)


@given(edge_lists(), ANY_FIELDS, ANCHORS)
def test_the_same_anchor_gives_the_same_answer(
    edges: list[Edge], notable: dict[str, Any], anchor: Anchor
) -> None:
    assert states(edges, anchor=anchor, **notable) == states(edges, anchor=anchor, **notable)


@given(edge_lists(), ANCHORS)
def test_where_all_hold_every_connected_component_has_a_current_memory(
    edges: list[Edge], anchor: Anchor
) -> None:
    found = states(edges, anchor=anchor, **ALL_HOLD)
    for component in components(edges, found):
        assert any(found[id].current for id in component)


@given(edge_lists(), UNERASED, ANCHORS)
def test_without_erasures_a_memory_that_holds_is_current_or_its_replacement_is(
    edges: list[Edge], notable: dict[str, Any], anchor: Anchor
) -> None:
    found = states(edges, anchor=anchor, **notable)
    for id, state in found.items():
        if standing_reason(memory(id, **notable[id]), anchor) is None and not state.current:
            assert state.reason == "superseded"
            assert state.replacement_id is not None


@given(edge_lists(), ANY_FIELDS, ANCHORS)
def test_a_replacement_holds_by_itself_and_is_another_memory_that_links_lead_to(
    edges: list[Edge], notable: dict[str, Any], anchor: Anchor
) -> None:
    found = states(edges, anchor=anchor, **notable)
    for id, state in found.items():
        if state.replacement_id is not None:
            assert state.replacement_id != id
            replacement = found[state.replacement_id]
            assert replacement.current or replacement.reason == "replacement_erased"
            assert state.replacement_id in reachable_from(id, edges)


@given(edge_lists(), ANY_FIELDS, ANCHORS)
def test_a_state_is_of_one_piece(edges: list[Edge], notable: dict[str, Any], anchor: Anchor) -> None:
    for id, state in states(edges, anchor=anchor, **notable).items():
        assert state.current == (state.reason is None)
        assert (state.edge is None) == (state.steps == 0)
        assert state.edge is None or state.edge.source == id
        assert not (state.inactive and state.replacement_id)
        if state.reason == "superseded":
            assert state.replacement_id is not None
        if state.reason == "replacement_erased":
            assert any(notable[end] == ERASED for end in reachable_from(id, edges))


@given(edge_lists(), ANY_FIELDS, ANCHORS, NODES)
def test_erasing_a_memory_never_makes_another_current(
    edges: list[Edge], notable: dict[str, Any], anchor: Anchor, victim: str
) -> None:
    before = states(edges, anchor=anchor, **notable)
    after = states(edges, anchor=anchor, **(notable | {victim: ERASED}))
    revived = [id for id in before if after[id].current and not before[id].current]
    assert revived == []


@given(st.integers(min_value=2, max_value=60), st.randoms(use_true_random=False))
def test_the_walk_ends_on_dense_graphs_and_visits_nothing_twice(size: int, chance: random.Random) -> None:
    edges = [
        Edge(f"lnk_{n}", f"n{chance.randrange(size)}", f"n{chance.randrange(size)}", INVALIDATED_BY, n % 7)
        for n in range(size * 4)
    ]
    successions = Successions(edges, NOW)
    for node in (f"n{n}" for n in range(size)):
        visited = [node, *(edge.target for edge in successions.way_from(node))]
        assert len(visited) == len(set(visited))
        assert successions.next(visited[-1]) is None


def reachable_from(id: str, edges: list[Edge]) -> set[str]:
    """Where links lead from a memory, over one link or more."""
    reached: set[str] = set()
    front = {id}
    while front:
        front = {edge.target for edge in edges if edge.source in front} - reached
        reached |= front
    return reached


def components(edges: list[Edge], ids: Iterable[str]) -> list[set[str]]:
    """The weakly connected components, by joining one edge at a time."""
    parts = [{id} for id in ids]
    for edge in edges:
        touched = [part for part in parts if edge.source in part or edge.target in part]
        parts = [part for part in parts if part not in touched] + [set().union(*touched)]
    return parts


def test_a_circle_is_found_even_where_a_newer_edge_leads_out_of_it() -> None:
    edges = [
        Edge("l1", "a", "b", "INVALIDATED_BY", T),
        Edge("l2", "b", "a", "INVALIDATED_BY", T + 1),
        Edge("l3", "a", "c", "INVALIDATED_BY", T + 2),
        Edge("l4", "x", "y", "EVOLVED_INTO", T),
        Edge("l5", "p", "q", "EVOLVED_INTO", T),
        Edge("l6", "q", "r", "EVOLVED_INTO", T),
        Edge("l7", "r", "p", "EVOLVED_INTO", T),
    ]
    assert circles(edges) == [("a", "b"), ("p", "q", "r")]


def test_circles_of_a_chain_of_ten_thousand_are_none() -> None:
    edges = [Edge(f"l{n}", f"m{n}", f"m{n + 1}", "EVOLVED_INTO", T) for n in range(10_000)]
    assert circles(edges) == []
