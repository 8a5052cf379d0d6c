"""The strategies: four ways to find memories, behind one protocol. Each says why it found what it found.

1. lexical    texts that hold the question's words: "matched outline, reviewer"
2. dense      texts whose vectors are near the question's: "cosine 0.71"
3. links      what typed links join to the best of those: "EVOLVED_INTO of mem_…"
4. temporal   memories written near the time that the question names: "written 2 days from the named time"

The first three bring candidates. `temporal` speaks only for candidates of the others, so that a time influences the
order and neither filters nor counts; where it is asked alone, it brings its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from recall.domain.nearness import nearness
from recall.indexes import Found, Index, Measured, Question, pools_of
from recall.phrases import Span, span_named_in
from vault.domain.links import REPLACING
from vault.queries import LinkStep, links_touching

NEAR_ENOUGH = 0.2  # cosines below this are noise: an answer may be empty
SEEDS = 8
SEED_STRENGTH = 0.4  # a hit that links may start from: by cosine, or by its words
DEPTH = 2
FADING = 0.5  # what a step along a link keeps of the strength
TIMELY = 0.25  # a memory two widths of the named time away no longer counts as near


class Sighted(NamedTuple):
    """A memory that a strategy found, its score there, and the strategy's reason."""

    found: Found
    score: float
    reason: str


@dataclass(slots=True)
class Asking:
    """What strategies share: the question, the index, and what those before found."""

    question: Question
    index: Index
    found: dict[str, list[Sighted]] = field(default_factory=dict)

    def measured(self) -> dict[str, Measured]:
        """The words and the cosine of every candidate, whoever found it, by id."""
        return self.index.measured(self.question, [found.facts for found in self.candidates])

    @property
    def span(self) -> Span | None:
        """The time that the request or its question names."""
        request = self.question.request
        if request.temporal is not None:
            return Span(*request.temporal)
        return span_named_in(request.query, at=self.question.anchor.at)

    @property
    def candidates(self) -> list[Found]:
        """What the strategies before found, each once."""
        return list({s.found.facts.id: s.found for found in self.found.values() for s in found}.values())


class Strategy(Protocol):
    """Finds memories that match the caller's filters, best first, into pools as `Question.pool` says."""

    def __call__(self, asking: Asking) -> list[Sighted]: ...


def lexical(asking: Asking) -> list[Sighted]:
    """Which words a text holds is measured with its cosine, once for all candidates: `said` puts it into the reason."""
    return [Sighted(f, f.score, "") for f in asking.index.lexical(asking.question)]


def said(sighted: Sighted, measured: Measured) -> str:
    """A strategy's reason; of one that goes by words, those that were matched."""
    return sighted.reason or f"matched {', '.join(measured.matched)}"


def dense(asking: Asking) -> list[Sighted]:
    found = asking.index.dense(asking.question, floor=NEAR_ENOUGH)
    return [Sighted(f, f.score, f"cosine {f.score:.2f}") for f in found]


def links(asking: Asking) -> list[Sighted]:
    """What links join to the best hits; without such hits, or links, no query is made."""
    seeds = _seeds(asking)
    if not seeds:
        return []
    reached = _reached(seeds, asking.question)
    standing = asking.index.standing(asking.question, sorted(reached))
    joined = [f._replace(score=reached[f.facts.seq].strength) for f in standing]
    return [Sighted(f, f.score, reached[f.facts.seq].reason) for f in pools_of(joined, asking.question)]


def temporal(asking: Asking) -> list[Sighted]:
    span = asking.span
    if span is None:
        return []
    found = asking.candidates
    if asking.question.request.strategies == ("temporal",):
        found = asking.index.by_time(asking.question, span.start, span.end)
    near = []
    for f in found:
        score, reason = nearness(f.facts.created_at, start=span.start, end=span.end)
        if score >= TIMELY:
            near.append(Sighted(f, score, reason))
    return sorted(near, key=lambda s: (-s.score, s.found.facts.id))


def looks_by_meaning(strategies: Sequence[str]) -> bool:
    """Whether a vector is needed: for `dense`, and for links that have no words to start from."""
    return "dense" in strategies or ("links" in strategies and "lexical" not in strategies)


IN_ORDER: dict[str, Strategy] = {"lexical": lexical, "dense": dense, "links": links, "temporal": temporal}


# ------------------------------------------------------------------------------------------------- links


class Reached(NamedTuple):
    """A memory at the end of a way along links: its seed, what is left of that one's strength, the way in words."""

    seed: int
    strength: float
    reason: str


def _seeds(asking: Asking) -> dict[int, tuple[str, float]]:
    """The best hits that have links: seq to (id, strength). What is not current leads nowhere, and is not named."""
    history = not asking.question.request.current_only
    hits = [sighted.found for found in asking.found.values() for sighted in found]
    if not asking.found:  # links alone: start from what words and vectors would find
        hits = [
            *asking.index.lexical(asking.question),
            *asking.index.dense(asking.question, floor=SEED_STRENGTH),
        ]
    strong: dict[int, tuple[str, float]] = {}
    for f in hits:
        strength = min(1.0, f.score)
        if f.joined and (f.open or history) and strength >= SEED_STRENGTH:
            known = strong.get(f.facts.seq)
            strong[f.facts.seq] = (f.facts.id, strength if known is None else max(strength, known[1]))
    best = sorted(strong, key=lambda seq: (-strong[seq][1], strong[seq][0]))
    return {seq: strong[seq] for seq in best[:SEEDS]}


def _reached(seeds: dict[int, tuple[str, float]], question: Question) -> dict[int, Reached]:
    """Where links lead from the seeds within `DEPTH` steps: the strongest way to each memory.

    Replacing links are left to current state, which brings in what they lead to; in the history view they count.
    """
    left_out = REPLACING if question.request.current_only else ()
    until = question.anchor.until
    reached: dict[int, Reached] = {}
    front = {seq: Reached(seq, strength, "") for seq, (_, strength) in seeds.items()}
    names = {seq: id_ for seq, (id_, _) in seeds.items()}
    for depth in range(DEPTH):
        ahead: dict[int, Reached] = {}
        for step in links_touching(sorted(front), until=until):
            for start, end in ((step.source, step.target), (step.target, step.source)):
                if start not in front or step.type in left_out or end == front[start].seed:
                    continue
                way = _along(step, front[start], names.get(start), forward=start == step.source)
                if way.strength > ahead.get(end, way._replace(strength=-1.0)).strength:
                    ahead[end] = way
        for end, way in ahead.items():
            if end not in reached or way.strength > reached[end].strength:
                reached[end] = way
        front = {end: way for end, way in ahead.items() if end not in seeds} if depth + 1 < DEPTH else {}
    return reached


def _along(step: LinkStep, way: Reached, seed: str | None, *, forward: bool) -> Reached:
    strength = way.strength * FADING * (1.0 if step.strength is None else step.strength)
    if way.reason:
        return Reached(way.seed, strength, f"{way.reason}, and {step.type} from there")
    return Reached(way.seed, strength, f"{step.type} of {seed}" if forward else f"{step.type} {seed}")
