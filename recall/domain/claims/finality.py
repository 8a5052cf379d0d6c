"""The final state: which of the things a text says one after the other still stand at its end."""

from __future__ import annotations

from dataclasses import dataclass

from recall.domain.claims.claim import NO_DATE, Claim

# Of two of these, both may be so at once; of any other two states, the later one stands.
_TOGETHER = frozenset(
    frozenset(pair)
    for pair in (
        ("postponed", "blocked"),
        ("rescheduled", "blocked"),
        ("in_progress", "blocked"),
        ("not_started", "blocked"),
        ("not_started", "postponed"),
        ("not_started", "rescheduled"),
        ("confirmed", "rescheduled"),
        ("tentative", "rescheduled"),
    )
)
_MOVED = frozenset(("postponed", "rescheduled"))


@dataclass(frozen=True, slots=True)
class Said:
    """A claim on its way: `prior` lies before the others in time; what its sentence says after a `last` one is why."""

    claim: Claim
    hedged: bool
    prior: bool
    last: bool
    sentence: int


def final_states(said: list[Said]) -> tuple[Claim, ...]:
    """The claims that stand at the end, in the order of the text.

    1. After a `last` claim nothing of its sentence counts.
    2. What lies before the others in time goes, when others stand.
    3. A later state takes an earlier one's place, unless both may be so at once, or one is a denial of another state.
    4. A later date takes an earlier due date's place.
    5. Hedged claims stand beside; the same one counts once.
    """
    said = _without_reasons(said)
    timely = [one for one in said if not one.prior or one.hedged]
    if any(not one.hedged for one in timely):
        said = timely
    standing: list[Claim] = []
    hedged: dict[tuple[str, str | None, bool], Claim] = {}
    for one in said:
        claim = one.claim
        if one.hedged:
            claim = Claim(claim.kind, claim.value, claim.negated, True, claim.span)
            hedged.setdefault((claim.kind, claim.value, claim.negated), claim)
            continue
        standing = [earlier for earlier in standing if not _replaces(claim, earlier)]
        standing.append(claim)
    return tuple(sorted([*standing, *hedged.values()], key=lambda claim: (claim.span, claim.kind)))


def _without_reasons(said: list[Said]) -> list[Said]:
    closed: set[int] = set()
    kept = []
    for one in said:
        if one.sentence in closed:
            continue
        if one.last and not one.hedged:
            closed.add(one.sentence)
        kept.append(one)
    return kept


def _replaces(later: Claim, earlier: Claim) -> bool:
    if later.kind == earlier.kind:
        return not (later.kind == "due" and later.value is None)
    if earlier.kind == "due":
        return later.kind in _MOVED and not later.negated and later.value not in (None, NO_DATE)
    if later.kind == "due" or later.negated or earlier.negated:
        return False
    return frozenset((later.kind, earlier.kind)) not in _TOGETHER
