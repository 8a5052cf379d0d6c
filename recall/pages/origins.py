"""Where hits came from, in words: what each strategy said, what the stages left, which engines answered.

Everything is read from the stored document, of either layout; what a record does not hold is not shown.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isclose
from typing import Any

from django.utils.text import capfirst

from recall.domain.request import STRATEGIES
from recall.pages.charts import Match
from recall.records import Stored

LABELS = {"lexical": "Words", "dense": "Meaning", "links": "Links", "temporal": "Time", "filters": "Filters"}
WEAK = "matches less than half as well as the best"  # how recall/pipeline.py names it in a record
_ORDER = (*STRATEGIES, "filters")
_MEMORY_ID = re.compile(r"(mem_[0-9a-z]{26})")


def label_of(strategy: str) -> str:
    """A strategy as people name it; in a fused batch the sources are the numbers of its queries."""
    return LABELS.get(strategy, f"Query {strategy}")


def in_order(strategies: Iterable[str]) -> list[str]:
    """As recall asks them; the queries of a fused batch by their numbers."""
    return sorted(
        strategies, key=lambda name: (_ORDER.index(name) if name in _ORDER else 99, len(name), name)
    )


# ------------------------------------------------------------------------------------------------ of one memory


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a reason: words, or the id of a memory with its place in this answer, if it has one."""

    text: str
    is_memory: bool = False
    position: int | None = None


@dataclass(frozen=True, slots=True)
class Source:
    """What one strategy said of a memory. Records of the first layout hold no reason, and a query has none."""

    name: str
    label: str
    rank: int
    score: float
    parts: tuple[Part, ...]
    out_of: int


@dataclass(frozen=True, slots=True)
class Origin:
    """How a memory came to its place before validity, as the record holds it."""

    sources: list[Source]
    match: Match | None
    fused: float
    lent_by: str  # the id of what it replaces, where it took over that one's fused score
    reranked: float | None
    place: int | None  # after current state, from 1
    out_of: int | None  # where the base is its place out of so many
    base: float
    by_ranks: bool  # fused by ranks alone

    @property
    def not_searched(self) -> bool:
        """No strategy found it: it came in place of another."""
        return not self.sources


def memory_ids(row: Mapping[str, Any]) -> set[str]:
    """The memories that the reasons of a candidate name."""
    return {id_ for _, _, reason in row["strategies"].values() for id_ in _MEMORY_ID.findall(reason)}


class Origins:
    """The candidates of one record, and what they have in common."""

    def __init__(self, stored: Stored) -> None:
        self.rows = {row["id"]: row for row in stored.candidates}
        self._request = stored.document["request"]
        self._found = Counter(name for row in self.rows.values() for name in row["strategies"])
        self._size = sum(row["pool_rank"] is not None for row in self.rows.values())

    def of(self, id_: str) -> Origin:
        row = self.rows[id_]
        lender = self._lender(row)
        place = None if row["pool_rank"] is None else row["pool_rank"] + 1
        return Origin(
            sources=self.sources(row),
            match=self._match(self.rows.get(lender, row)),
            fused=row["fused"],
            lent_by=lender,
            reranked=row["reranked"],
            place=place,
            out_of=self._size if self._by_place(row) else None,
            base=row["base"],
            by_ranks=self._request.get("fusion") == "rrf" and bool(row["strategies"]),
        )

    def sources(self, row: Mapping[str, Any]) -> list[Source]:
        return [
            Source(
                name,
                label_of(name),
                rank,
                score,
                self._parts("" if name.isdigit() else reason),
                self._found[name],
            )
            for name in in_order(row["strategies"])
            for rank, score, reason in [row["strategies"][name]]
        ]

    def _parts(self, reason: str) -> tuple[Part, ...]:
        return tuple(
            Part(text, True, self.rows[text]["position"] if text in self.rows else None)
            if _MEMORY_ID.fullmatch(text)
            else Part(text)
            for text in _MEMORY_ID.split(reason.strip())
            if text
        )

    def _lender(self, row: Mapping[str, Any]) -> str:
        """What it replaces and whose fused score it has: the better of two places counts, and its score with it."""
        for old in row["replaces"]:
            if old in self.rows and self.rows[old]["fused"] == row["fused"]:
                return str(old)
        return ""

    def _match(self, row: Mapping[str, Any]) -> Match | None:
        """The readings that a fusion by score was made of; None where ranks were fused, or the record holds none."""
        if self._request.get("fusion") != "score":
            return None
        asked = self._request["strategies"]
        own = {"lexical": ("words", row["words"]), "dense": ("meaning", row["cosine"])}
        readings = [reading for name, reading in own.items() if name in asked and reading[1] is not None]
        signals = {"links": "links", "temporal": "time"}
        readings += [
            (word, row["strategies"][name][1]) for name, word in signals.items() if name in row["strategies"]
        ]
        return Match(readings, row["fused"]) if readings else None

    def _by_place(self, row: Mapping[str, Any]) -> bool:
        """Whether the base is (size - place) / size: of what the record does not say so, nothing is claimed."""
        if row["pool_rank"] is None or row["reranked"] is not None or not self._size:
            return False
        return isclose(row["base"], (self._size - row["pool_rank"]) / self._size, rel_tol=1e-9)


# ------------------------------------------------------------------------------------------------ of the recall


@dataclass(frozen=True, slots=True)
class Strategy:
    """One line of the table of strategies; what the record does not hold is None."""

    name: str
    label: str
    candidates: int | None
    weight: float | None
    time_ms: float | None
    remarks: list[str]


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage: what it left, in words, and how long it took where the record says so."""

    name: str
    words: str
    time_ms: float | None


def strategies_of(stored: Stored, rows: Sequence[Mapping[str, Any]]) -> list[Strategy]:
    """What each strategy gave: as the trace says, else counted from the candidates."""
    request, traced = stored.document["request"], stored.answer.get("fused_trace", {}).get("strategies", {})
    counted = Counter(name for row in rows for name in row["strategies"])
    asked = request.get("strategies", ()) if request.get("query", "").strip() else ()
    blind = stored.answer["outcome"]["reason"] or ""
    found = []
    for name in in_order({*traced, *counted, *asked}):
        told = traced.get(name, {})
        could_look = f"{name} could not look" not in blind
        found.append(
            Strategy(
                name=name,
                label=label_of(name),
                candidates=told.get("candidates", counted[name]) if could_look else None,
                weight=told.get("weight", request.get("strategy_weights", {}).get(name)),
                time_ms=told.get("time_ms"),
                remarks=_remarks(told),
            )
        )
    return found


def _remarks(told: Mapping[str, Any]) -> list[str]:
    """Whatever else the trace says of a strategy: older ones told whether it had searched exactly."""
    more = {name: value for name, value in told.items() if name not in ("candidates", "weight", "time_ms")}
    return [_remark(name.replace("_", " "), value) for name, value in more.items()]


def _remark(name: str, value: Any) -> str:
    if name == "exact":
        return "exact" if value else "approximate"
    if isinstance(value, bool):
        return name if value else f"not {name}"
    return f"{name} {value}"


def stages_of(
    stored: Stored, rows: Sequence[Mapping[str, Any]], strategies: Sequence[Strategy]
) -> list[Stage]:
    """The stages in their order, a line each; of a fused batch none, whose questions have records of their own."""
    request = stored.document["request"]
    if "queries" in request:
        return []
    timings = stored.answer.get("timings_ms", {})
    weak, injected = weak_in(rows), sum(row["injected"] for row in rows)
    told = {
        "embed": "the question as a vector" if any(s.name in ("dense", "links") for s in strategies) else "",
        "retrieve": f"{sum(s.candidates or 0 for s in strategies):,} found",
        "fuse": f"{len(rows) - injected:,} different memories{_fused_by(request)}",
        "state": _held(stored, weak=weak, injected=injected),
    }
    if "limit" in request:
        told |= {
            "rerank": _reranked(stored, rows),
            "validity": _weighed(stored),
            "limit": f"the first {request['limit']}",
        }
    else:
        told["validity"] = "graded, and put into lists by grade"
    told["budget"] = _packed(stored)
    return [Stage(name, words, timings.get(name)) for name, words in told.items() if words]


def found_sentence(stored: Stored, rows: Sequence[Mapping[str, Any]], strategies: Sequence[Strategy]) -> str:
    """From what each strategy found to what was served, in one line."""
    if "queries" in stored.document["request"] or not rows:
        return ""
    by = {"filters": "by the filters"}
    each = [f"{s.candidates:,} {by.get(s.name, f'by {s.label.lower()}')}" for s in strategies if s.candidates]
    taken = [(stored.row.suppressed, "not current"), (weak_in(rows), "too weak")]
    out = "".join(
        f", {count:,} {why}" for count, why in taken if count and not (stored.row.history and why[0] == "n")
    )
    memories = "1 memory" if len(rows) == 1 else f"{len(rows):,} memories"
    return f"{', '.join(each)}: {memories} in all{out}; {stored.row.served:,} served."


def weak_in(rows: Iterable[Mapping[str, Any]]) -> int:
    return sum(row["detail"] == WEAK for row in rows)


def _fused_by(request: Mapping[str, Any]) -> str:
    how = {"score": ", ordered by score", "rrf": ", ordered by their ranks (rrf)"}
    return how.get(request.get("fusion", ""), "") if request.get("query", "").strip() else ""


def _held(stored: Stored, *, weak: int, injected: int) -> str:
    if stored.row.history:
        return "history view: nothing was taken out as not current"
    said = [f"{stored.row.suppressed:,} taken out as not current"] if stored.row.suppressed else []
    said += [f"{injected:,} brought in as replacement{'' if injected == 1 else 's'}"] if injected else []
    said += [f"{weak:,} left out as weak"] if weak else []
    holding = stored.row.candidates - stored.row.suppressed - weak
    return ", ".join([*said, f"{holding:,} {'stays' if holding == 1 else 'stay'}"])


def _reranked(stored: Stored, rows: Iterable[Mapping[str, Any]]) -> str:
    if scored := sum(row["reranked"] is not None for row in rows):
        return f"the first {scored} by the reranker's scores"
    return "asked for, and gave no scores" if stored.document["request"].get("rerank") else "not asked for"


def _weighed(stored: Stored) -> str:
    if stored.hits and "multiplier" in stored.hits[0]["score"]:
        return "ordered by base × multiplier"
    request = stored.document["request"]
    if request["sort"] != "score":
        return f"graded; ordered by time, {'oldest' if request['sort'] == 'time_asc' else 'newest'} first, as asked"
    return "graded; the order stayed" if stored.hits else "graded"


def _packed(stored: Stored) -> str:
    budget = stored.document["request"].get("max_tokens")
    served = f"{stored.row.served:,} served"
    return f"no token budget, {served}" if budget is None else f"{budget:,} tokens, {served}"


def outcome_notice(stored: Stored) -> tuple[str, str, str] | None:
    """Grade class, heading and sentence, where something could not be looked at."""
    outcome = stored.answer["outcome"]
    headings = {
        "partial": ("stale", "Partial: not everything could be looked at"),
        "unavailable": ("context_invalid", "Unavailable: nothing could be looked at"),
    }
    if outcome["status"] not in headings:
        return None
    reason = outcome["reason"]
    return (*headings[outcome["status"]], f"{capfirst(reason)}.")


# ------------------------------------------------------------------------------------------------ in sentences

_BEGUN = {
    "lexical": "It ",
    "dense": "Its meaning is near that of the question, ",
    "links": "A link joins it to a strong match: ",
    "temporal": "It was ",
    "filters": "It ",
}


def found_in_words(source: Source) -> tuple[str, str]:
    """What stands before and after a source's reason in the sentence that tells of it."""
    place = f"{ordinal(source.rank)} of {source.out_of:,}"
    if not source.parts:
        return f"Found by {source.label.lower()}, with the ", f": {place}."
    return _BEGUN[source.name], f": {place} by {source.label.lower()}."


def ordinal(number: int) -> str:
    """1st, 2nd, 3rd, 11th."""
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number:,}{ending}"
