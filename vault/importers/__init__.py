"""Importers, one file a format, behind one protocol: a format reads its source lazily, as numbered rows.

A row says what to do in the vault's words (remember, join, revise, erase) and names memories by the external
id that the source gives them, so reading a source needs no database and reads the same each time. The rows of
one source are numbered 1, 2, 3 … without a gap: an import resumes by passing over those it has done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from ledger.domain.instants import UnixMs
from ledger.domain.refusals import Invalid, Refused


class Unreadable(Invalid):
    """The source as a whole cannot be read: not the format it was said to be, or damaged."""


@dataclass(frozen=True, slots=True)
class Remember:
    """Store a memory; `sent` are the fields of vault.services.remember, with the workspace."""

    sent: Mapping[str, Any]
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Join:
    """Link two memories of a workspace, named by their external ids."""

    workspace: str
    source: str
    target: str
    type: str
    created_at: UnixMs | None = None
    strength: float | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Revise:
    """Change fields of the memory with this external id."""

    workspace: str
    external_id: str
    sent: Mapping[str, Any]
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Erase:
    """Blank the memory with this external id."""

    workspace: str
    external_id: str
    reason: str


Step: TypeAlias = Remember | Join | Revise | Erase


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a source: its steps are taken together or not at all. No steps: it holds nothing to store.

    `place` says where it stands in the source, in words; `refusal` why it cannot be read.
    """

    number: int
    place: str
    steps: tuple[Step, ...] = field(default=())
    refusal: Refused | None = None


class Reads(Protocol):
    def __call__(self, source: Path, *, workspace: str | None) -> Iterator[Row]:
        """The rows in order. `workspace` is where they all go; None leaves it to each. Raises Unreadable."""


@dataclass(frozen=True, slots=True)
class Format:
    """A format that can be imported: how to read its rows, and how many there are (for the progress bar)."""

    name: str
    rows: Reads
    count: Callable[[Path], int]
