"""What turns, weakens or makes a fact of a trigger: negators, hedges and governors before it in its clause."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from recall.domain.claims.clauses import Passage
from recall.domain.claims.lexicon import Form
from recall.domain.claims.triggers import Found, trigger_at

Governor: TypeAlias = Literal["", "refusal", "failure", "decision", "achievement"]

# Each list of the lexicon and what it makes of the infinitive right after it.
_GOVERNORS: tuple[tuple[str, Governor], ...] = (
    ("refusals", "refusal"),
    ("failures", "failure"),
    ("decisions", "decision"),
    ("achievements", "achievement"),
)
DECIDED = frozenset(("postponed", "rescheduled", "cancelled"))  # to decide on one of these is to do it
_AGREED = DECIDED | {"confirmed", "tentative"}


@dataclass(frozen=True, slots=True)
class Scope:
    """What stands before a place in its clause. A governor counts for the trigger that begins where it ends."""

    negators: int = 0
    hedged: bool = False
    governor: Governor = ""
    governor_end: int = -1
    prior: bool = False


@dataclass(slots=True)
class Scanned:
    """A clause read from left to right: its triggers, each with its scope.

    `conditional`: it makes its whole sentence a condition. `doubts`: it holds a hedge that may be meant for the clause
    beside it ("I think, ...").
    """

    found: list[tuple[Found, Scope]] = field(default_factory=list)
    conditional: bool = False
    doubts: bool = False


def scan(passage: Passage, *, hedged: bool) -> Scanned:
    """Find a clause's triggers and their scopes; `hedged`: the clause before it leaves a hedge behind."""
    sets, phrases, raw, opening = (
        passage.lexicon.sets,
        passage.lexicon.phrases,
        passage.lexicon.raw,
        passage.connective,
    )
    hedged = hedged or opening in sets["hedging_connectives"] or opening in raw["hedging"]
    scope = Scope(hedged=hedged, prior=opening in sets["prior_connectives"])
    scanned = Scanned(conditional=opening in sets["conditions"] or opening in raw["condition_phrases"])
    place, at_start = passage.start, True
    while place < passage.end:
        word, length = passage.words[place], 1
        if passage.dated[place]:
            at_start = False
        elif (found := trigger_at(passage, place)) is not None:
            length = found.end - place
            if found.trigger.kind is not None:
                scanned.found.append((found, scope))
        elif neutral := phrases["neutral"].at(passage.words, place):
            length = neutral
        elif governed := _governor_at(passage, place):
            governor, length = governed
            scope = replace(scope, governor=governor, governor_end=place + length)
        elif at_start and (instruction := phrases["instructions"].at(passage.words, place)):
            length, scope = instruction, replace(scope, hedged=True)
        elif hedge := phrases["hedges"].at(passage.words, place):
            length, scope = hedge, replace(scope, hedged=True)
            scanned.doubts = scanned.doubts or phrases["late_hedges"].at(passage.words, place) > 0
        elif negator := phrases["negators"].at(passage.words, place):
            length, scope = negator, replace(scope, negators=scope.negators + 1)
        elif word in sets["that_words"]:
            if scope.negators:  # "did not say that it is done": neither this nor the contrary
                scope = replace(scope, hedged=True, negators=0)
            at_start = True
            place += 1
            continue
        elif word in sets["prior_words"]:
            scope = replace(scope, prior=True)
        elif word in sets["conditions"] and place > passage.start:
            scanned.conditional = True
        at_start = at_start and word in sets["before_instructions"]
        place += max(1, length)
    _look_behind(passage, scanned, scope)
    scanned.doubts = scanned.doubts and not scanned.found
    return scanned


def _governor_at(passage: Passage, place: int) -> tuple[Governor, int] | None:
    for name, governor in _GOVERNORS:
        if length := passage.lexicon.phrases[name].at(passage.words, place):
            return governor, length
    return None


def _look_behind(passage: Passage, scanned: Scanned, at_end: Scope) -> None:
    """Hedge what is taken back after it: "cancelled, I think". Where verbs come last, all of a clause counts."""
    if not scanned.found:
        return
    lexicon = passage.lexicon
    last, scope = scanned.found[-1]
    hedged = lexicon.dates["verb_last"] and at_end.hedged
    late = lexicon.phrases["late_hedges"]
    if late.by_first:
        hedged = hedged or any(late.at(passage.words, place) for place in range(last.end, passage.end))
    if not lexicon.spaced:  # the negation of a Japanese verb is its ending
        scanned.found[-1] = (last, replace(scope, negators=scope.negators + at_end.negators))
    if hedged:
        scanned.found = [(found, replace(before, hedged=True)) for found, before in scanned.found]


@dataclass(frozen=True, slots=True)
class Standing:
    """How a trigger is meant: its kind, denied or not, asserted or not."""

    kind: str
    negated: bool
    hedged: bool


def standing(passage: Passage, found: Found, scope: Scope) -> Standing:
    """Judge a trigger by its form and what governs it.

    1. "failed to", "decided not to" deny; "managed to" asserts; "chose to" asserts what is done by deciding it.
    2. A bare infinitive is a plan, a wish or a request, unless "did" stands before it, or "we" before a decision.
    3. An -ing form asserts, except after most prepositions; of finishing it says that it is going on.
    4. Anything else asserts, as far as the clause has no hedge.
    """
    kind = found.trigger.kind
    assert kind is not None
    negated = (scope.negators % 2 == 1) ^ found.trigger.negated
    form, before, governor = _governed(passage, found, scope)
    word, sets = passage.word(before), passage.lexicon.sets
    if governor == "refusal":
        if kind in DECIDED and found.trigger.lemma != passage.item.verb:
            return Standing(kind, not negated, scope.hedged)
        return Standing(kind if kind in DECIDED else "cancelled", negated, scope.hedged)
    if governor == "failure":
        return Standing(kind, not negated, scope.hedged)
    if governor == "achievement":
        return Standing(kind, negated, scope.hedged)
    if governor == "decision":
        return Standing(kind, negated, scope.hedged or kind not in _AGREED)
    if word in sets["future_words"] and kind not in _AGREED | {"due"}:
        return Standing(kind, negated, True)
    if form == "base":
        return Standing(kind, negated, scope.hedged or not _is_fact(passage, found, before))
    if form == "gerund":
        return _going_on(Standing(kind, negated, scope.hedged), word, sets)
    return Standing(kind, negated, scope.hedged)


def _governed(passage: Passage, found: Found, scope: Scope) -> tuple[Form, int, Governor]:
    """A trigger's form once "be" and "to" before it are read, the place before them, and its governor."""
    sets = passage.lexicon.sets
    before = passage.left_of(found.start)
    form: Form = found.trigger.form
    governor = scope.governor if scope.governor_end in (before + 1, found.start) else ""
    if form in ("past", "state") and passage.word(before) in sets["infinitive_be"] and not governor:
        further = passage.left_of(before)
        return "base", further, scope.governor if scope.governor_end in (further + 1, before) else ""
    if form in ("past", "state") and passage.word(before) in sets["to_infinitive"]:
        form = "base"
    return form, before, governor


def _is_fact(passage: Passage, found: Found, before: int) -> bool:
    """Whether a bare verb states something: "is complete", "did not finish", "we cancel it"."""
    word, sets = passage.word(before), passage.lexicon.sets
    if word in sets["be"] and word not in sets["infinitive_be"] and found.trigger.form == "base":
        return True
    if word in sets["did_words"]:
        return True
    return word in sets["deciders"] and found.trigger.kind in DECIDED and before == found.start - 1


def _going_on(meant: Standing, word: str, sets: Mapping[str, frozenset[str]]) -> Standing:
    if word in sets["privatives"]:
        return replace(meant, negated=True)
    if meant.kind == "completed" and word not in sets["after_words"]:
        return Standing("in_progress", meant.negated, meant.hedged or word in sets["prepositions"])
    loose = word in sets["prepositions"] and word not in sets["factual_prepositions"]
    return replace(meant, hedged=meant.hedged or loose)
