"""Validity (behaviour.md, section 4): grade, signals and multiplier; and what the vault tells them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ledger.domain.instants import DAY, EARLIEST, LATEST, parse_instant
from ledger.domain.refusals import Forbidden, Invalid
from recall.domain import policy
from recall.domain.policy import Weights
from recall.domain.state import Anchor, Successions, state_of
from recall.domain.validity import GRADES, Judgement, Validity, grade
from vault.domain.access import Reach, Scope, scope_of
from vault.domain.facts import PROVENANCE_CLASSES, STATUSES, Facts
from vault.domain.links import LINK_TYPES, REPLACING, SUPERSEDED_BY, Edge
from vault.domain.values import (
    DEFAULTS,
    check_created_at,
    check_link_type,
    check_provenance,
    check_window,
    checked,
    checked_reason,
)

T = parse_instant("2026-09-22T12:00:00Z")
HOW = ("invalidated_by", "evolved_into", "ledger")


def memory(**changes: Any) -> Facts:
    return Facts(id="m", workspace="", created_at=T)._replace(**changes)


def graded(**changes: Any) -> Validity:
    return grade(memory(**changes), at=T, workspace=None)


# Freshness


@pytest.mark.parametrize(
    ("age", "freshness", "expected"),
    [
        (-1, 1.0, "valid"),
        (0, 1.0, "valid"),
        (30 * DAY - 1, None, "valid"),
        (30 * DAY, 0.5, "valid"),
        (30 * DAY + 1, None, "stale"),
        (60 * DAY, 0.25, "stale"),
        (90 * DAY - 1, None, "stale"),
        (90 * DAY, 0.125, "stale"),
        (90 * DAY + 1, None, "context_invalid"),
        (300 * DAY, 0.5**10, "context_invalid"),
    ],
)
def test_freshness_halves_every_thirty_days_and_its_bounds_belong_to_the_better_grade(
    age: int, freshness: float | None, expected: str
) -> None:
    found = graded(created_at=T - age)
    assert found.grade == expected
    assert freshness is None or found.freshness == freshness
    assert found.age_ms == max(0, age)


def test_a_memory_created_after_the_anchor_is_no_fresher_than_fresh() -> None:
    assert graded(created_at=T + 90 * DAY).freshness == 1.0


def test_a_half_life_of_one_hour_is_what_freshness_and_expiring_soon_go_by() -> None:
    hourly = Weights(freshness_half_life_secs=3_600)
    aged = memory(created_at=T - 3_600_000, expires_at=T + 3_600_000)
    found = grade(aged, at=T, workspace=None, weights=hourly)
    assert (found.freshness, found.expiring_soon) == (0.5, True)
    assert not grade(aged, at=T - 1, workspace=None, weights=hourly).expiring_soon


# Scope and provenance


@pytest.mark.parametrize(
    ("own", "asked", "match", "factor"),
    [
        ("w", "w", "exact", 1.1),
        ("", "w", "global", 1.0),
        ("other", "w", "none", 1.0),
        ("w", None, "none", 1.0),
        ("", None, "none", 1.0),
        ("w", "", "none", 1.0),
        ("", "", "exact", 1.1),
        ("W", "w", "none", 1.0),
    ],
)
def test_only_a_memory_of_the_very_workspace_asked_for_gains(
    own: str, asked: str | None, match: str, factor: float
) -> None:
    found = grade(memory(workspace=own), at=T, workspace=asked)
    assert (found.scope_match, found.multiplier) == (match, factor)
    assert f"scope:{match}" in found.signals


@pytest.mark.parametrize("provenance", PROVENANCE_CLASSES)
def test_only_verified_and_corroborated_gain_and_leave_a_signal(provenance: str) -> None:
    found = graded(provenance_class=provenance)
    trusted = provenance in ("verified", "corroborated")
    assert found.multiplier == (1.15 if trusted else 1.0)
    assert (f"provenance:{provenance}" in found.signals) == trusted
    assert found.provenance_class == provenance
    assert found.grade == "valid"


# Superseded


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("invalidated_by", "Invalidated by a later memory"),
        ("evolved_into", "Evolved into a later memory"),
        ("ledger", "Superseded in the ledger"),
    ],
)
def test_a_replaced_memory_is_context_invalid_and_says_how(how: str, words: str) -> None:
    found = grade(memory(), at=T, workspace=None, superseded_by=how)
    assert (found.grade, found.superseded, found.multiplier) == ("context_invalid", True, 0.35)
    assert found.signals[-1] == f"superseded:{how}"
    assert found.cause == words


def test_a_deprecated_memory_is_superseded_without_a_replacement() -> None:
    found = graded(status="deprecated")
    assert (found.grade, found.superseded, found.multiplier) == ("context_invalid", True, 0.35)
    assert found.signals[-1] == "superseded:deprecated"
    assert found.cause == "Deprecated, with no successor on record"


def test_a_memory_both_deprecated_and_replaced_is_penalised_once_and_both_are_told() -> None:
    found = grade(memory(status="deprecated"), at=T, workspace=None, superseded_by="evolved_into")
    assert found.multiplier == 0.35
    assert found.signals[-1] == "superseded:deprecated"
    assert found.cause == "Deprecated, and superseded"


@pytest.mark.parametrize("status", [status for status in STATUSES if status != "deprecated"])
def test_no_other_status_counts(status: str) -> None:
    assert graded(status=status) == graded()


# Expiry


@pytest.mark.parametrize(
    ("expiry", "expected", "signal", "factor"),
    [
        (T - 1, "context_invalid", "expired", 0.35),
        (T, "context_invalid", "expired", 0.35),
        (T + 1, "stale", "expiring_soon", 0.70),
        (T + 30 * DAY, "stale", "expiring_soon", 0.70),
        (T + 30 * DAY + 1, "valid", None, 1.0),
    ],
)
@pytest.mark.parametrize("field", ["t_invalid", "expires_at"])
def test_expiry_is_half_open_and_soon_means_within_one_half_life(
    field: str, expiry: int, expected: str, signal: str | None, factor: float
) -> None:
    found = graded(**{field: expiry})
    assert (found.grade, found.multiplier) == (expected, factor)
    assert found.signals[2:] == ([] if signal is None else [signal])
    assert (found.expired, found.expiring_soon) == (signal == "expired", signal == "expiring_soon")
    assert found.expires_at == expiry


@pytest.mark.parametrize(
    ("t_invalid", "expires_at", "expiry"),
    [(None, None, None), (T, None, T), (None, T, T), (T, T + 1, T), (T + 1, T, T), (0, -1, -1)],
)
def test_expiry_is_the_earlier_of_the_two_ends(
    t_invalid: int | None, expires_at: int | None, expiry: int | None
) -> None:
    facts = memory(t_invalid=t_invalid, expires_at=expires_at)
    assert facts.expiry == expiry
    assert grade(facts, at=T, workspace=None).block()["expires_at_unix_ms"] == expiry


def test_an_expired_memory_that_was_also_replaced_bears_both_penalties_in_the_history_view() -> None:
    facts = {"old": memory(id="old", t_invalid=T), "new": memory(id="new")}
    anchor = Anchor(T)
    edges = [Edge("lnk_1", "old", "new", "INVALIDATED_BY", T - 1)]
    state = state_of("old", facts, Successions(edges, anchor), anchor)
    found = grade(facts["old"], at=T, workspace=None, superseded_by=state.superseded_by)
    assert state.reason == "expired"
    assert found.signals[2:] == ["superseded:invalidated_by", "expired"]
    assert found.multiplier == 0.35 * 0.35


# Signals, cause and block


def test_every_signal_at_once_stands_in_the_policy_s_order() -> None:
    worst = memory(
        workspace="w", created_at=T - 45 * DAY, provenance_class="verified", status="deprecated", expires_at=T
    )
    found = grade(
        worst,
        at=T,
        workspace="w",
        notes=(Judgement("n", 1.0, "contradicted"), Judgement("n", 1.0, "replacement_inactive")),
    )
    assert found.signals == [
        "freshness:0.354",
        "scope:exact",
        "provenance:verified",
        "superseded:deprecated",
        "expired",
        "contradicted",
        "replacement_inactive",
    ]
    assert [rule for rule, _ in found.factors] == [
        "freshness",
        "scope",
        "provenance",
        "superseded",
        "expired",
        "n",
        "n",
    ]


def test_the_cause_names_the_rules_that_hold_the_grade_down_and_no_other() -> None:
    assert graded().cause == "No negative signal"
    assert graded(created_at=T - 31 * DAY).cause == "31 days old: freshness below 0.5"
    soon = graded(created_at=T - 31 * DAY, expires_at=T + 60_000)
    assert soon.cause == (
        "31 days old: freshness below 0.5; Expires 2026-09-22T12:01:00Z, within one half-life"
    )
    assert graded(created_at=T - 31 * DAY, expires_at=T).cause == "Expired 2026-09-22T12:00:00Z"


def test_the_block_holds_exactly_the_fields_of_the_answer_with_floats_unrounded() -> None:
    block = graded(created_at=T - DAY).block()
    assert list(block) == [
        "grade",
        "freshness",
        "scope_match",
        "provenance_class",
        "superseded",
        "expiring_soon",
        "expired",
        "expires_at_unix_ms",
        "multiplier",
        "signals",
    ]
    assert block["freshness"] == block["multiplier"] == 0.5 ** (1 / 30)


# The policy


def test_the_default_weights_are_the_specification_s() -> None:
    assert policy.NAME == "validity-multiplier-v1"
    assert policy.DEFAULT.as_dict() == {
        "freshness_half_life_secs": 2_592_000,
        "scope_bonus": 0.10,
        "provenance_boost": 0.15,
        "superseded_penalty": 0.35,
        "expiring_penalty": 0.70,
        "stale_freshness": 0.5,
        "context_invalid_freshness": 0.125,
    }
    assert policy.DEFAULT.half_life_ms == 30 * DAY


# What holds of every memory

INSTANTS = st.integers(min_value=EARLIEST, max_value=LATEST)
NEAR = st.integers(min_value=T - 400 * DAY, max_value=T + 400 * DAY)
OPTIONAL_END = st.none() | NEAR | INSTANTS
WORKSPACES = st.sampled_from(["", "w", "v"])
ASKED = st.none() | WORKSPACES
REPLACED = st.none() | st.sampled_from(HOW)
FACTS = st.builds(
    Facts,
    id=st.just("m"),
    workspace=WORKSPACES,
    created_at=NEAR | INSTANTS,
    t_valid=OPTIONAL_END,
    t_invalid=OPTIONAL_END,
    expires_at=OPTIONAL_END,
    status=st.sampled_from(STATUSES),
    provenance_class=st.sampled_from(PROVENANCE_CLASSES),
)


def no_better(after: Validity, before: Validity) -> bool:
    return GRADES.index(after.grade) >= GRADES.index(before.grade) and after.multiplier <= before.multiplier


@given(FACTS, NEAR, ASKED, REPLACED)
def test_the_multiplier_is_the_product_of_its_factors_and_above_zero(
    facts: Facts, at: int, asked: str | None, how: str | None
) -> None:
    found = grade(facts, at=at, workspace=asked, superseded_by=how)
    product = math.prod(factor for _, factor in found.factors)
    assert found.multiplier == (product or math.ulp(0.0))
    assert found.multiplier > 0


@given(st.integers(min_value=1, max_value=9_000))
def test_the_multiplier_of_a_memory_thousands_of_years_old_is_above_zero(years: int) -> None:
    found = graded(created_at=T - years * 365 * DAY, status="deprecated", expires_at=T)
    assert found.multiplier > 0
    assert found.grade == "context_invalid"


@given(FACTS, NEAR, ASKED, REPLACED)
def test_the_same_anchor_gives_the_same_grade(
    facts: Facts, at: int, asked: str | None, how: str | None
) -> None:
    first, second = (grade(facts, at=at, workspace=asked, superseded_by=how) for _ in range(2))
    assert first == second
    assert first.block() == second.block()


@given(NEAR | INSTANTS, NEAR | INSTANTS, NEAR)
def test_freshness_never_grows_with_age(one: int, other: int, at: int) -> None:
    earlier, later = sorted((one, other))
    older = grade(memory(created_at=earlier), at=at, workspace=None)
    newer = grade(memory(created_at=later), at=at, workspace=None)
    assert 0 <= older.freshness <= newer.freshness <= 1


@given(st.integers(min_value=0, max_value=80 * 365 * DAY))
def test_one_more_millisecond_of_age_is_always_felt(age: int) -> None:
    assert graded(created_at=T - age - 1).freshness < graded(created_at=T - age).freshness


def older(facts: Facts, draw: st.DataObject) -> Facts:
    created_at = draw.draw(st.integers(min_value=EARLIEST, max_value=facts.created_at))
    return facts._replace(created_at=created_at)


def deprecated(facts: Facts, draw: st.DataObject) -> Facts:
    return facts._replace(status="deprecated")


def ending_earlier(facts: Facts, draw: st.DataObject) -> Facts:
    field = draw.draw(st.sampled_from(["t_invalid", "expires_at"]))
    last = getattr(facts, field)
    end = draw.draw(st.integers(min_value=EARLIEST, max_value=LATEST if last is None else last))
    changed: dict[str, Any] = {field: end}
    return facts._replace(**changed)


def unvouched(facts: Facts, draw: st.DataObject) -> Facts:
    provenance = draw.draw(st.sampled_from(["candidate", "rejected", "defensively_recalled", "unknown"]))
    return facts._replace(provenance_class=provenance)


@pytest.mark.parametrize("worsened", [older, deprecated, ending_earlier, unvouched])
@given(facts=FACTS, at=NEAR, asked=ASKED, how=REPLACED, draw=st.data())
def test_adverse_evidence_never_improves_grade_or_multiplier(
    worsened: Callable[[Facts, st.DataObject], Facts],
    facts: Facts,
    at: int,
    asked: str | None,
    how: str | None,
    draw: st.DataObject,
) -> None:
    before = grade(facts, at=at, workspace=asked, superseded_by=how)
    after = grade(worsened(facts, draw), at=at, workspace=asked, superseded_by=how)
    assert no_better(after, before)


@given(FACTS, NEAR, ASKED, st.sampled_from(HOW))
def test_a_replacement_never_improves_grade_or_multiplier(
    facts: Facts, at: int, asked: str | None, how: str
) -> None:
    before = grade(facts, at=at, workspace=asked)
    assert no_better(grade(facts, at=at, workspace=asked, superseded_by=how), before)


@given(FACTS, NEAR, st.integers(min_value=0, max_value=400 * DAY), ASKED)
def test_time_alone_never_improves_grade_or_multiplier(
    facts: Facts, at: int, later: int, asked: str | None
) -> None:
    before = grade(facts, at=at, workspace=asked)
    assert no_better(grade(facts, at=at + later, workspace=asked), before)


@given(FACTS, NEAR, ASKED, REPLACED)
def test_signals_keep_one_order_and_none_comes_twice(
    facts: Facts, at: int, asked: str | None, how: str | None
) -> None:
    found = grade(facts, at=at, workspace=asked, superseded_by=how, notes=(Judgement("note", 1.0, "ours"),))
    order = ["freshness", "scope", "provenance", "superseded", "expir", "ours"]
    places = [next(n for n, name in enumerate(order) if s.startswith(name)) for s in found.signals]
    assert places == sorted(set(places))
    assert places[:2] == [0, 1]
    assert (2 in places) == (facts.provenance_class in ("verified", "corroborated"))
    assert (3 in places) == found.superseded
    assert (4 in places) == (found.expired or found.expiring_soon)


@given(FACTS, NEAR, ASKED, REPLACED)
def test_the_grade_is_read_off_the_marks_that_stand_beside_it(
    facts: Facts, at: int, asked: str | None, how: str | None
) -> None:
    found = grade(facts, at=at, workspace=asked, superseded_by=how)
    if found.expired or found.superseded or found.freshness < 0.125:
        expected = "context_invalid"
    elif found.expiring_soon or found.freshness < 0.5:
        expected = "stale"
    else:
        expected = "valid"
    assert found.grade == expected
    assert (found.cause == "No negative signal") == (expected == "valid")


@given(FACTS, NEAR, ASKED, REPLACED)
def test_extra_signals_change_neither_grade_nor_multiplier(
    facts: Facts, at: int, asked: str | None, how: str | None
) -> None:
    plain = grade(facts, at=at, workspace=asked, superseded_by=how)
    marked = grade(
        facts,
        at=at,
        workspace=asked,
        superseded_by=how,
        notes=(Judgement("note", 1.0, "replacement_inactive"),),
    )
    assert (marked.grade, marked.multiplier, marked.cause) == (plain.grade, plain.multiplier, plain.cause)
    assert marked.signals == [*plain.signals, "replacement_inactive"]


@given(FACTS, WORKSPACES, WORKSPACES)
def test_only_the_scope_rule_depends_on_the_workspace_asked_for(facts: Facts, one: str, other: str) -> None:
    assume(facts.workspace not in (one, other))
    first, second = (grade(facts, at=T, workspace=asked) for asked in (one, other))
    assert (first.grade, first.multiplier) == (second.grade, second.multiplier)


# What the vault tells them: windows, instants, provenance and scopes


@pytest.mark.parametrize(("t_valid", "t_invalid"), [(None, None), (T, None), (None, T), (T, T + 1)])
def test_a_window_of_one_millisecond_or_more_is_taken(t_valid: int | None, t_invalid: int | None) -> None:
    check_window(t_valid, t_invalid)


@pytest.mark.parametrize("t_invalid", [T, T - 1])
def test_an_empty_window_is_refused_and_names_its_end(t_invalid: int) -> None:
    with pytest.raises(Invalid) as refused:
        check_window(T, t_invalid)
    assert refused.value.field == "t_invalid"


def test_created_at_may_lie_five_minutes_ahead_and_not_a_millisecond_more() -> None:
    five_minutes = 300_000
    assert check_created_at(T + five_minutes, at=T) == T + five_minutes
    assert check_created_at(EARLIEST, at=T) == EARLIEST
    with pytest.raises(Invalid) as refused:
        check_created_at(T + five_minutes + 1, at=T)
    assert refused.value.field == "created_at"


def test_an_empty_provenance_is_unknown_and_an_unheard_of_one_is_refused() -> None:
    assert check_provenance("") == "unknown"
    assert [check_provenance(name) for name in PROVENANCE_CLASSES] == list(PROVENANCE_CLASSES)
    with pytest.raises(Invalid) as refused:
        check_provenance("trusted")
    assert refused.value.field == "provenance_class"


@pytest.mark.parametrize(
    ("asked", "reach", "workspaces"),
    [
        (None, Reach.everything(), None),
        ("", Reach.everything(), ("",)),
        ("w", Reach.everything(), ("", "w")),
        (None, Reach.bound("w"), ("", "w")),
        ("", Reach.bound("w"), ("",)),
        ("w", Reach.bound("w"), ("", "w")),
        ("w", Reach(readable=frozenset({"w"}), writable=frozenset()), ("w",)),
        (None, Reach(readable=frozenset(), writable=frozenset()), ()),
    ],
)
def test_a_scope_is_what_was_asked_for_within_the_caller_s_reach(
    asked: str | None, reach: Reach, workspaces: tuple[str, ...] | None
) -> None:
    assert scope_of(asked, reach) == Scope(workspaces)


def test_asking_for_a_foreign_workspace_is_forbidden() -> None:
    with pytest.raises(Forbidden) as refused:
        scope_of("v", Reach.bound("w"))
    assert refused.value.field == "workspace"


@given(ASKED, WORKSPACES)
def test_a_scope_never_covers_what_the_caller_may_not_read(asked: str | None, bound: str) -> None:
    reach = Reach.bound(bound)
    assume(asked is None or reach.reads(asked))
    covered = [name for name in ("", "w", "v") if scope_of(asked, reach).covers(name)]
    assert [name for name in covered if not reach.reads(name)] == []


def test_a_bound_caller_reads_the_global_workspace_and_does_not_write_it() -> None:
    reach = Reach.bound("w")
    reach.require_readable("")
    reach.require_writable("w")
    for workspace in ("", "v"):
        with pytest.raises(Forbidden):
            reach.require_writable(workspace)


# What a memory may hold


@pytest.mark.parametrize(
    ("sent", "field", "code"),
    [
        ({"text": ""}, "text", "invalid"),
        ({"text": " \n\t\u3000"}, "text", "invalid"),
        ({"text": "nul\x00"}, "text", "invalid"),
        ({"text": "half a pair \ud83d"}, "text", "invalid"),
        ({"text": "x" * (64 * 1024 + 1)}, "text", "too_large"),
        ({"text": "é" * (32 * 1024) + "x"}, "text", "too_large"),
        ({"workspace": " w"}, "workspace", "invalid"),
        ({"workspace": "a\nb"}, "workspace", "invalid"),
        ({"workspace": "w" * 129}, "workspace", "too_large"),
        ({"tags": [""]}, "tags", "invalid"),
        ({"tags": ["t" * 129]}, "tags", "too_large"),
        ({"tags": ["same"] * 65}, "tags", "too_large"),
        ({"category": "c" * 129}, "category", "too_large"),
        ({"provenance_class": "trusted"}, "provenance_class", "invalid"),
        ({"status": "gone"}, "status", "invalid"),
        ({"created_at": LATEST + 1}, "created_at", "invalid"),
        ({"t_valid": EARLIEST - 1}, "t_valid", "invalid"),
        ({"t_invalid": 10**30}, "t_invalid", "invalid"),
        ({"expires_at": -(10**30)}, "expires_at", "invalid"),
        ({"source_event_id": ""}, "source_event_id", "invalid"),
        ({"external_id": "e" * 257}, "external_id", "too_large"),
        ({"metadata": {"a": "x" * (16 * 1024)}}, "metadata", "too_large"),
        ({"metadata": {"a": float("nan")}}, "metadata", "invalid"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else None,
)
def test_a_field_that_cannot_be_stored_faithfully_is_refused_by_name(
    sent: dict[str, Any], field: str, code: str
) -> None:
    with pytest.raises(Invalid) as refused:
        checked(sent)
    assert (refused.value.field, refused.value.code) == (field, code)


@pytest.mark.parametrize(
    "sent",
    [
        {"text": "x" * (64 * 1024)},
        {"text": '  "quoted" OR NEAR( * ^ — שלום 👩‍👩‍👧 '},
        {"workspace": ""},
        {"workspace": "w" * 128},
        {"tags": ["a", "b" * 128]},
        {"created_at": EARLIEST, "t_valid": None, "t_invalid": LATEST, "expires_at": None},
        {"source_event_id": None, "external_id": None},
        {"metadata": {"nested": [{"deep": {"é": [1, 2.5, None, True]}}]}},
        DEFAULTS,
    ],
    ids=lambda sent: next(iter(sent)),
)
def test_a_field_within_its_limits_is_stored_as_it_was_sent(sent: dict[str, Any]) -> None:
    assert checked(sent) == sent


def nested(depth: int) -> dict[str, Any]:
    inner: dict[str, Any] = {"leaf": 1}
    for _ in range(depth - 1):
        inner = {"in": inner}
    return inner


@pytest.mark.parametrize("depth", [33, 50, 100_000])
def test_metadata_nested_more_than_32_deep_is_refused(depth: int) -> None:
    assert checked({"metadata": nested(32)}) == {"metadata": nested(32)}
    with pytest.raises(Invalid) as refused:
        checked({"metadata": nested(depth)})
    assert (refused.value.field, refused.value.code) == ("metadata", "too_large")


@pytest.mark.parametrize("metadata", [{"a": "\x00"}, {"\x00": 1}, {"a": "\ud83d"}], ids=repr)
def test_metadata_that_no_database_stores_faithfully_is_refused(metadata: dict[str, Any]) -> None:
    with pytest.raises(Invalid) as refused:
        checked({"metadata": metadata})
    assert refused.value.field == "metadata"


def test_tags_are_a_set_in_alphabetical_order() -> None:
    assert checked({"tags": ["b", "a", "b"]}) == {"tags": ["a", "b"]}


def test_a_reason_is_optional_trimmed_and_of_bounded_length() -> None:
    assert (checked_reason(None), checked_reason("  why ")) == ("", "why")
    with pytest.raises(Invalid) as refused:
        checked_reason("x" * 2_001)
    assert refused.value.field == "reason"


@pytest.mark.parametrize("type", LINK_TYPES)
def test_every_link_type_is_taken_as_it_is_spelt(type: str) -> None:
    assert check_link_type(type) == type
    with pytest.raises(Invalid):
        check_link_type(type.lower())


def test_only_two_link_types_replace() -> None:
    assert REPLACING == ("INVALIDATED_BY", "EVOLVED_INTO")
    assert set(REPLACING) < set(LINK_TYPES)
    assert SUPERSEDED_BY not in LINK_TYPES, "a ledger's edge is never written as a link"
