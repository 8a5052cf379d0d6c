"""Long texts in parts, and the deadline that is looked at between them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, TypeVar

Whole = TypeVar("Whole", bound=Sequence[Any])


def windows(whole: Whole, *, room: int, overlap: int) -> list[Whole]:
    """A text, or its word pieces, in overlapping parts of at most `room`; of nothing, one empty part."""
    starts = range(0, max(len(whole) - overlap, 1), room - overlap)
    return [whole[start : start + room] for start in starts]  # type: ignore[misc]  # a slice is of the same kind


def is_past(until: float | None) -> bool:
    """Is the monotonic instant over? No instant never is."""
    return until is not None and time.monotonic() >= until
