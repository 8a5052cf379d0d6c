"""Projection: what an agent should have before it starts, in which order, and how much of it fits.

1. What is near the task comes first, by (pool size - rank) / pool size × multiplier; the rest follows by multiplier.
   Without a task the multiplier alone orders. Ties go to the newer, then by id.
2. Three lists: `current` holds what is graded valid, `stale` what holds but is graded lower, `history` what no longer
   or not yet holds, on request, and never what was archived.
3. One budget, filled in that order. The first text that does not fit ends it: nothing is skipped for a shorter one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, TypeAlias

from ledger.domain.instants import UnixMs
from recall.domain.state import State
from recall.domain.validity import Grade

List: TypeAlias = Literal["current", "stale", "history"]
LISTS: tuple[List, ...] = ("current", "stale", "history")


def base_of(place: int | None, *, near: int, has_task: bool) -> float:
    """What nearness to the task gives, from the place among the `near` ones (0 is the nearest; None: not near)."""
    if not has_task:
        return 1.0
    return 0.0 if place is None else (near - place) / near


def order(
    final: float, multiplier: float, created_at: UnixMs, memory_id: str
) -> tuple[float, float, UnixMs, str]:
    """The key that sorts each list, first to last; `final` is base × multiplier."""
    return -final, -multiplier, -created_at, memory_id


def list_of(grade: Grade, state: State, *, include_history: bool) -> List | None:
    """Which list a memory belongs to; None: to none."""
    if state.current:
        return "current" if grade == "valid" else "stale"
    return "history" if include_history and state.reason != "archived" else None


def tokens_in(size: int) -> int:
    """An estimate without a model's tokenizer, from the bytes of a UTF-8 text: four to a token, rounded up."""
    return -(-size // 4)


def packed(tokens: Iterable[int], *, budget: int) -> tuple[int, int]:
    """How many texts of so many tokens fit, in order, and the tokens that they take together."""
    count = spent = 0
    for size in tokens:
        if spent + size > budget:
            break
        count, spent = count + 1, spent + size
    return count, spent
