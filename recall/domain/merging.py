"""Merging: one list out of several answers', by reciprocal rank fusion over all of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from recall.domain.fusion import RRF_K


class Merged(NamedTuple):
    """A memory that some of the lists hold: the sum over them, and by a list's number its rank there, from 1."""

    id: str
    score: float
    ranks: dict[int, int]


def merged(lists: Sequence[Sequence[str]]) -> list[Merged]:
    """Each memory once, by the sum of 1 / (60 + rank) over the lists that hold it, ties by id.

    The sum is exact (`math.fsum`), so the order of the lists changes nothing but their numbers.
    """
    ranks: dict[str, dict[int, int]] = {}
    for number, ids in enumerate(lists):
        for rank, memory_id in enumerate(ids, start=1):
            ranks.setdefault(memory_id, {})[number] = rank
    found = [
        Merged(memory_id, math.fsum(1 / (RRF_K + rank) for rank in seen.values()), seen)
        for memory_id, seen in ranks.items()
    ]
    return sorted(found, key=lambda one: (-one.score, one.id))
