"""The conformance cases of validity and state, through the pure functions alone; HTTP is tested apart."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ledger.domain.instants import parse_instant
from recall.domain.state import Anchor, State, Successions, state_of
from recall.domain.validity import grade
from vault.domain.facts import Facts
from vault.domain.links import REPLACING, Edge
from vault.domain.values import check_provenance

CASES = Path(__file__).parents[1] / "conformance"
SERVED = ("ids", "ids_set", "all_from")


def cases(name: str, *, expecting: tuple[str, ...] = ()) -> list[Any]:
    """The cases of a file, by name; with `expecting`, those that say something of these."""
    every = json.loads((CASES / name).read_text(encoding="utf-8"))["cases"]
    wanted = [case for case in every if not expecting or not case["expect"].keys().isdisjoint(expecting)]
    return [pytest.param(case, id=case["name"]) for case in wanted]


@pytest.mark.parametrize("case", cases("validity.json"))
def test_every_validity_case_is_graded_as_it_says(case: dict[str, Any]) -> None:
    facts = Facts(
        id="m",
        workspace=case["entity_workspace"],
        created_at=case["created_at_unix_ms"],
        expires_at=case["expires_at_unix_ms"],
        status=case["status"],
        provenance_class=check_provenance(case["epistemic_state"]),
    )
    block = grade(facts, at=case["now_unix_ms"], workspace=case["query_workspace"]).block()

    expected = {
        name: pytest.approx(value, rel=1e-12, abs=0) if isinstance(value, float) else value
        for name, value in case["expect"].items()
    }
    assert {name: block[name] for name in expected} == expected
    assert block["expires_at_unix_ms"] == case["expires_at_unix_ms"]


def states_of(case: dict[str, Any]) -> dict[str, State]:
    """The state of each memory of a case, at the anchor that its request would be judged at."""
    now = parse_instant(case["anchor"])
    at = case["request"].get("query_time_unix_ms", now)
    anchor = Anchor(at, past=at < now)
    facts = {memory["id"]: facts_of(memory) for memory in case["memories"]}
    edges = [
        Edge(f"lnk_{n}", link["from"], link["to"], link["type"], parse_instant(link["created_at"]))
        for n, link in enumerate(case["links"])
        if link["type"] in REPLACING
    ]
    successions = Successions(edges, anchor)
    return {id: state_of(id, facts, successions, anchor) for id in facts}


def facts_of(memory: dict[str, Any]) -> Facts:
    times: dict[str, Any] = {
        name: parse_instant(memory[name]) for name in ("t_valid", "t_invalid", "expires_at") if name in memory
    }
    return Facts(
        id=memory["id"],
        workspace=memory.get("workspace", ""),
        created_at=parse_instant(memory["created_at"]),
        status=memory.get("status", "active"),
        archived=memory.get("archived", False),
        **times,
    )


@pytest.mark.parametrize("case", cases("state.json", expecting=SERVED))
def test_what_a_state_case_serves_is_current(case: dict[str, Any]) -> None:
    states = states_of(case)
    served = [id for key in SERVED for id in case["expect"].get(key, [])]
    if case["request"].get("current_only", True):
        assert [id for id in served if not states[id].current] == []
    else:
        assert set(served) == set(states)


@pytest.mark.parametrize("case", cases("state.json", expecting=("suppressed", "suppressed_set")))
def test_what_a_state_case_suppresses_is_not_current_for_that_reason(case: dict[str, Any]) -> None:
    states, reasons = states_of(case), case["expect"].get("suppressed", {})
    assert {id: states[id].reason for id in reasons} == reasons
    assert [id for id in case["expect"].get("suppressed_set", []) if states[id].current] == []


@pytest.mark.parametrize("case", cases("state.json", expecting=("state_replaces",)))
def test_what_a_state_case_names_as_replacement_is_found(case: dict[str, Any]) -> None:
    states = states_of(case)
    for new, old in case["expect"]["state_replaces"].items():
        assert states[old].replacement_id == new


@pytest.mark.parametrize("case", cases("state.json", expecting=("suppressed_count",)))
def test_a_state_case_suppresses_as_many_of_its_matches_as_it_counts(case: dict[str, Any]) -> None:
    asked, states = set(case["request"]["query"].split()), states_of(case)
    matching = [memory["id"] for memory in case["memories"] if asked & set(memory["text"].split())]
    suppressed = [id for id in matching if not states[id].current]
    assert len(suppressed) == case["expect"]["suppressed_count"]


@pytest.mark.parametrize("case", cases("state.json", expecting=("signal", "quality")))
def test_what_a_state_case_flags_is_seen(case: dict[str, Any]) -> None:
    states, expect = states_of(case), case["expect"]
    assert [id for id, signal in expect.get("signal", {}).items() if signal == "replacement_inactive"] == [
        id for id in states if states[id].inactive
    ]
    assert expect.get("quality", []) == ["supersession_cycle"] * any(
        state.ignored for state in states.values()
    )
