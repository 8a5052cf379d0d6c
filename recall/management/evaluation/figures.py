"""The figures of a list of ranks: each the place, from 1, at which the right memory was served; None: it was not."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeAlias

Ranks: TypeAlias = Sequence[int | None]


def found_within(ranks: Ranks, k: int) -> float:
    """R@k: the share of questions whose memory is among the first `k`."""
    return sum(rank is not None and rank <= k for rank in ranks) / len(ranks)


def mean_reciprocal(ranks: Ranks) -> float:
    """MRR: the mean of 1 / rank, 0 for what was not served."""
    return math.fsum(1 / rank for rank in ranks if rank is not None) / len(ranks)
