"""What became of a hit since it was served. Its record stays as it is; the page says beside it what is known by now."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ledger.domain.events import CORRECTION_RETRACT, CORRECTIONS
from ledger.domain.instants import UnixMs
from ledger.queries import Turn, turns_since
from recall.domain.validity import Grade


@dataclass(frozen=True, slots=True)
class Since:
    """How a hit was graded when it was served, and what its event met with afterwards."""

    graded: Grade
    what: str
    at: UnixMs
    by: str


class Afterwards:
    """The turns of a record's events since it was written; one query for all of its hits."""

    def __init__(self, event_ids: Iterable[str | None], *, since: UnixMs) -> None:
        self._turns = turns_since({id_ for id_ in event_ids if id_}, since)

    def of(self, event_id: str | None, *, graded: Grade) -> Since | None:
        turn = self._turns.get(event_id or "")
        return None if turn is None else Since(graded, _in_words(turn), turn.at, turn.by)


def _in_words(turn: Turn) -> str:
    if turn.undone:
        return "Current again, by a correction"
    if turn.kind == CORRECTION_RETRACT:
        return "Retracted"
    return "Corrected" if turn.kind in CORRECTIONS else "Superseded"
