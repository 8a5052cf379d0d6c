"""Validity: how much to trust a hit. Policy `validity-multiplier-v1`, pure and deterministic.

Each rule looks at one thing and answers with a Judgement: the factor it multiplies by, the signal it leaves,
the grade it caps at, and the reason in words. The grade, the multiplier, the signals and the sentence on the
page are all read off the same judgements; nothing is explained after the fact. (Named tuples: a recall grades every
candidate, and these are made three times faster than frozen dataclasses.)

1. freshness: 0.5 ** (age / half-life), age never negative
2. scope: x1.10 when the memory is of the very workspace that was asked for
3. provenance: x1.15 when verified or corroborated
4. superseded: x0.35 when deprecated, or replaced (visible in the history view only)
5. expiry: x0.35 when expired; else x0.70 when it expires within one half-life
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Literal, NamedTuple, TypeAlias

from ledger.domain.instants import DAY, UnixMs, format_instant
from recall.domain.policy import DEFAULT, Weights
from recall.domain.state import State
from vault.domain.access import GLOBAL
from vault.domain.facts import ASSERTED, DEPRECATED, Facts

Grade: TypeAlias = Literal["valid", "stale", "context_invalid"]
GRADES: tuple[Grade, ...] = ("valid", "stale", "context_invalid")
_SMALLEST = math.ulp(0.0)  # the multiplier is > 0 even for a memory older than floats can say


class Judgement(NamedTuple):
    """What one rule found: its factor, its signal, the best grade it allows, and why, in words."""

    rule: str
    factor: float
    signal: str | None = None
    allows: Grade = "valid"
    reason: str = ""


class Lifts(NamedTuple):
    """What each factor beside age is worth in age, in ms: so much older may a memory be and have the same multiplier.

    Freshness halves with each half-life, so a factor f weighs as much as log2(f) half-lives. The policy's product then
    sorts like a sum, which a search engine can take over all of its rows without grading them.
    """

    exact_scope: float
    asserted: float
    expiring: float
    half_life: UnixMs

    @classmethod
    def of(cls, weights: Weights) -> Lifts:
        life = weights.half_life_ms
        return cls(
            exact_scope=life * math.log2(1 + weights.scope_bonus),
            asserted=life * math.log2(1 + weights.provenance_boost),
            expiring=life * math.log2(weights.expiring_penalty),
            half_life=life,
        )


class Validity(NamedTuple):
    """A hit's grade with everything behind it.

    `multiplier` is the product of the judgements' factors, in their order; where floats round that to 0 (a
    memory some ninety years old), the smallest float above it.
    """

    grade: Grade
    freshness: float
    age_ms: UnixMs
    scope_match: str
    provenance_class: str
    superseded: bool
    expiring_soon: bool
    expired: bool
    expires_at: UnixMs | None
    multiplier: float
    judgements: tuple[Judgement, ...]

    @property
    def signals(self) -> list[str]:
        """In the policy's order; the product's own additions come last."""
        return [j.signal for j in self.judgements if j.signal is not None]

    @property
    def factors(self) -> list[tuple[str, float]]:
        """Every rule that spoke, with its factor: they multiply to `multiplier`."""
        return [(j.rule, j.factor) for j in self.judgements]

    @property
    def cause(self) -> str:
        """Why the grade is what it is: the reasons of the rules that hold it down, then what was noted beside."""
        reasons = [j.reason for j in self.judgements if j.reason and j.allows in (self.grade, "valid")]
        return "; ".join(reasons) or "No negative signal"

    def block(self) -> dict[str, object]:
        """The per-hit `validity` block of an answer (api.md); floats unrounded."""
        return {
            "grade": self.grade,
            "freshness": self.freshness,
            "scope_match": self.scope_match,
            "provenance_class": self.provenance_class,
            "superseded": self.superseded,
            "expiring_soon": self.expiring_soon,
            "expired": self.expired,
            "expires_at_unix_ms": self.expires_at,
            "multiplier": self.multiplier,
            "signals": self.signals,
        }


def grade(
    facts: Facts,
    *,
    at: UnixMs,
    workspace: str | None,
    superseded_by: str | None = None,
    notes: tuple[Judgement, ...] = (),
    weights: Weights = DEFAULT,
) -> Validity:
    """Grade one memory at the anchor `at`.

    `workspace` is the one asked for (None: none was). `superseded_by` says how a replacement took its place
    ("invalidated_by", "evolved_into", "ledger"); a deprecated status speaks for itself. `notes` are what other
    rules found: they leave a signal and a reason, and weigh nothing.
    """
    timeless = _timeless(facts, workspace=workspace, superseded_by=superseded_by, weights=weights)
    return _graded(facts, timeless, at=at, notes=notes, weights=weights)


class Timeless(NamedTuple):
    """What is judged of a memory without looking at the clock; many memories have the same."""

    scope_match: str
    superseded: bool
    judgements: tuple[Judgement, ...]


def _timeless(
    facts: Facts, *, workspace: str | None, superseded_by: str | None, weights: Weights
) -> Timeless:
    scope_match = _scope(facts.workspace, workspace)
    by_scope = _scoped(scope_match, weights.scope_bonus)
    by_provenance = _provenance(facts.provenance_class, weights.provenance_boost)
    by_replacement = _superseded(facts, superseded_by, weights)
    spoken = tuple(j for j in (by_scope, by_provenance, by_replacement) if j)
    return Timeless(scope_match, by_replacement is not None, spoken)


def _graded(
    facts: Facts, timeless: Timeless, *, at: UnixMs, notes: tuple[Judgement, ...], weights: Weights
) -> Validity:
    age = max(0, at - facts.created_at)
    expiry = facts.expiry
    by_age = _freshness(age, weights)
    by_expiry = None if expiry is None else _expiry(expiry, at, weights)
    spoken = (by_age, *timeless.judgements, *((by_expiry,) if by_expiry else ()), *notes)
    signal = None if by_expiry is None else by_expiry.signal
    multiplier = 1.0
    for judgement in spoken:
        multiplier *= judgement.factor
    return Validity(
        _worst(spoken),
        by_age.factor,
        age,
        timeless.scope_match,
        facts.provenance_class,
        timeless.superseded,
        signal == "expiring_soon",
        signal == "expired",
        expiry,
        multiplier or _SMALLEST,
        spoken,
    )


_INACTIVE = Judgement(
    "replacement", 1.0, "replacement_inactive", reason="What replaced it is itself not current"
)
_ERASED = Judgement("replacement", 1.0, "replacement_erased", reason="What replaced it was erased")


def grade_in_state(
    facts: Facts, state: State, *, at: UnixMs, workspace: str | None, weights: Weights = DEFAULT
) -> Validity:
    """Grade a memory whose state at the anchor is known: how it was replaced counts, and is noted where it was not."""
    return grader(at=at, workspace=workspace, weights=weights)(facts, state)


def grader(
    *, at: UnixMs, workspace: str | None, weights: Weights = DEFAULT
) -> Callable[[Facts, State], Validity]:
    """`grade_in_state` for many memories of one recall: what does not depend on time is judged once for each kind."""
    kinds: dict[tuple[str, str, str, str | None], Timeless] = {}

    def graded(facts: Facts, state: State) -> Validity:
        how = None if state.edge is None else state.superseded_by
        kind = facts.workspace, facts.provenance_class, facts.status, how
        timeless = kinds.get(kind)
        if timeless is None:
            timeless = kinds[kind] = _timeless(facts, workspace=workspace, superseded_by=how, weights=weights)
        notes: tuple[Judgement, ...] = ()
        if state.inactive:
            notes = (_INACTIVE,)
        elif state.reason == "replacement_erased":
            notes = (_ERASED,)
        return _graded(facts, timeless, at=at, notes=notes, weights=weights)

    return graded


def _worst(spoken: Iterable[Judgement]) -> Grade:
    worst: Grade = "valid"
    for judgement in spoken:
        if judgement.allows == "context_invalid":
            return "context_invalid"
        if judgement.allows == "stale":
            worst = "stale"
    return worst


def _freshness(age: UnixMs, weights: Weights) -> Judgement:
    value = 0.5 ** (age / weights.half_life_ms)
    allows: Grade = "valid"
    reason = ""
    if value < weights.context_invalid_freshness:
        allows = "context_invalid"
        reason = f"{_days(age)} old: freshness below {weights.context_invalid_freshness:g}"
    elif value < weights.stale_freshness:
        allows = "stale"
        reason = f"{_days(age)} old: freshness below {weights.stale_freshness:g}"
    return Judgement("freshness", value, f"freshness:{value:.3f}", allows, reason)


def _scope(workspace: str, asked: str | None) -> str:
    if asked is None:
        return "none"
    if workspace == asked:
        return "exact"
    return "global" if workspace == GLOBAL else "none"


@lru_cache(maxsize=64)
def _scoped(match: str, bonus: float) -> Judgement:
    return Judgement("scope", 1 + bonus if match == "exact" else 1.0, f"scope:{match}")


@lru_cache(maxsize=64)
def _provenance(provenance_class: str, boost: float) -> Judgement | None:
    if provenance_class not in ASSERTED:
        return None
    return Judgement("provenance", 1 + boost, f"provenance:{provenance_class}")


_HOW = {
    "invalidated_by": "Invalidated by a later memory",
    "evolved_into": "Evolved into a later memory",
    "ledger": "Superseded in the ledger",
}


def _superseded(facts: Facts, superseded_by: str | None, weights: Weights) -> Judgement | None:
    how = "deprecated" if facts.status == DEPRECATED else superseded_by
    if how is None:
        return None
    if facts.status != DEPRECATED:
        reason = _HOW.get(superseded_by or "", f"Superseded ({superseded_by})")
    elif superseded_by is not None:
        reason = "Deprecated, and superseded"
    else:
        reason = "Deprecated, with no successor on record"
    return Judgement("superseded", weights.superseded_penalty, f"superseded:{how}", "context_invalid", reason)


def _expiry(expiry: UnixMs, at: UnixMs, weights: Weights) -> Judgement | None:
    if expiry <= at:
        reason = f"Expired {format_instant(expiry)}"
        return Judgement("expired", weights.superseded_penalty, "expired", "context_invalid", reason)
    if expiry - at <= weights.half_life_ms:
        reason = f"Expires {format_instant(expiry)}, within one half-life"
        return Judgement("expiring_soon", weights.expiring_penalty, "expiring_soon", "stale", reason)
    return None


def _days(age: UnixMs) -> str:
    days = age / DAY
    return f"{int(days):,} days" if days >= 2 else f"{days:.1f} days"  # whole days, as the pages count them
