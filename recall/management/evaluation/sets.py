"""The data sets of pairs and updates, as JSON lines: memories with the questions that they alone answer."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

KINDS = ("paraphrase", "words")

RowT = TypeVar("RowT")


class NotASet(Exception):
    """A line that is no row of the set: its file, its number, and what is wrong."""

    def __init__(self, file: Path, line: int, problem: str) -> None:
        super().__init__(f"{file}, line {line}: {problem}")


@dataclass(frozen=True, slots=True)
class Pair:
    """A memory and a question: in other words than the memory's ("paraphrase"), or with its exact ones ("words")."""

    memory: str
    question: str
    kind: str


@dataclass(frozen=True, slots=True)
class Update:
    """A memory, the one that replaces it, and a question that the outdated one matches better by words."""

    old: str
    new: str
    question: str


def pairs_in(file: Path) -> list[Pair]:
    """Raises NotASet, OSError."""

    def pair(row: dict[str, Any]) -> Pair:
        if row["kind"] not in KINDS:
            raise ValueError(f"kind must be one of {', '.join(KINDS)}")
        return Pair(row["memory"], row["question"], row["kind"])

    return _rows(file, pair)


def updates_in(file: Path) -> list[Update]:
    """Raises NotASet, OSError."""
    return _rows(file, lambda row: Update(row["old"], row["new"], row["question"]))


def _rows(file: Path, made: Callable[[dict[str, Any]], RowT]) -> list[RowT]:
    rows = []
    for number, line in enumerate(file.read_text().splitlines(), start=1):
        try:
            rows.append(made(json.loads(line)))
        except KeyError as error:
            raise NotASet(file, number, f"there is no {error}") from error
        except (ValueError, TypeError) as error:
            raise NotASet(file, number, str(error)) from error
    if not rows:
        raise NotASet(file, 1, "the file is empty")
    return rows
