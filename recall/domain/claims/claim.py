"""What a recalled text asserts about the state of one calendar item (calendar.md, section 3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

Kind: TypeAlias = Literal[
    "postponed",
    "rescheduled",
    "cancelled",
    "completed",
    "in_progress",
    "not_started",
    "blocked",
    "due",
    "confirmed",
    "tentative",
]
KINDS: tuple[Kind, ...] = get_args(Kind)

NO_DATE = "none"  # the value of "there is no deadline", which is not the absence of a value


@dataclass(frozen=True, slots=True)
class Claim:
    """One asserted state.

    `value` is a local date `2026-10-01`, a local time `2026-10-01T15:00`, a range `A/B` with both ends in it,
    alternatives `A|B`, `none` (there is no due date), a share `40%`, or None. `hedged`: asked, planned, wished or
    believed, not asserted. `span` holds the offsets into the text, in characters, of the words it came from.
    """

    kind: Kind
    value: str | None
    negated: bool
    hedged: bool
    span: tuple[int, int]
