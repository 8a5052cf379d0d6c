"""Reports of runs: as JSON to keep, as a table to read, and two of them as ratios."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

FORMAT = "recall-ledger bench 1"
PARTS = ("parameters", "versions", "machine", "figures")


class NotAReport(Exception):
    """A file that no run wrote; the message names it and says why."""


class ParametersDiffer(Exception):
    """Two reports of different questions; the message names what differs."""


def write(path: Path, report: Mapping[str, Any]) -> None:
    path.write_text(json.dumps({"format": FORMAT, **report}, indent=2) + "\n")


def read(path: Path) -> dict[str, Any]:
    """A report as it was written. Raises NotAReport."""
    try:
        told = json.loads(path.read_text())
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise NotAReport(f"{path} cannot be read: {error}") from error
    if not isinstance(told, dict) or told.get("format") != FORMAT or any(part not in told for part in PARTS):
        raise NotAReport(f"{path} is no report of `manage.py bench run --report`")
    return told


def flat(figures: Mapping[str, Any], *, under: str = "") -> Iterator[tuple[str, float]]:
    """Every figure by its full name: `request_ms.p50`."""
    for name, value in figures.items():
        if isinstance(value, dict):
            yield from flat(value, under=f"{under}{name}.")
        else:
            yield f"{under}{name}", value


# ------------------------------------------------------------------------------------------------------ one run


def table(report: Mapping[str, Any]) -> str:
    """A report to read: what was asked of what, then times, then what it takes."""
    asked, figures = report["parameters"], report["figures"]
    title = (
        f"{asked['memories']:,} memories in {asked['workspaces']} workspace(s); {asked['questions']} questions, "
        f"mode {asked['mode']}, profile {asked['profile']}, limit {asked['limit']}; "
        f"{asked['clients']} client(s), {asked['workers']} workers"
    )
    strategies = [(f"  {name}", spread) for name, spread in figures["strategy_ms"].items()]
    times = [("request", figures["request_ms"])]
    for name, spread in figures["stage_ms"].items():
        times += [(name, spread), *(strategies if name == "retrieve" else [])]
    times.append(("outside stages", figures["outside_stages_ms"]))
    marks = ("p50", "p95", "p99", "mean")
    rows = [["ms", *marks], *([name, *(f"{spread[mark]:,.2f}" for mark in marks)] for name, spread in times)]
    rest = [[name, f"{value:,.2f}"] for name, value in flat(_beside_times(figures))]
    return "\n".join([title, "", *aligned(rows), "", *aligned(rest)])


def _beside_times(figures: Mapping[str, Any]) -> dict[str, Any]:
    times = ("request_ms", "stage_ms", "strategy_ms", "outside_stages_ms")
    return {name: value for name, value in figures.items() if name not in times}


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows as lines: the first column to the left, the others to the right."""
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    return [
        "  ".join([row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True))])
        for row in rows
    ]


# ------------------------------------------------------------------------------------------------------ two runs


def ratios(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, float | None]:
    """B/A of every figure that both have; None where A is 0 and B is not."""
    before, after = dict(flat(first["figures"])), dict(flat(second["figures"]))
    return {name: _ratio(before[name], after[name]) for name in before if name in after}


def _ratio(before: float, after: float) -> float | None:
    if before == after:
        return 1.0
    return after / before if before else None


def differing(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[str]:
    """The parameters in which two reports differ, each with both values."""
    one, other = first["parameters"], second["parameters"]
    return [
        f"{name} ({one.get(name)} and {other.get(name)})"
        for name in sorted({*one, *other})
        if one.get(name) != other.get(name)
    ]


def compared(first: Mapping[str, Any], second: Mapping[str, Any], *, force: bool = False) -> str:
    """Two reports as a table of ratios. Raises ParametersDiffer, unless forced."""
    different = differing(first, second)
    if different and not force:
        raise ParametersDiffer(f"the two runs differ in {', '.join(different)}")
    before, after = dict(flat(first["figures"])), dict(flat(second["figures"]))
    rows = [["figure", "A", "B", "B/A"]]
    for name, ratio in ratios(first, second).items():
        told = "-" if ratio is None else f"{ratio:.2f}"
        rows.append([name, f"{before[name]:,.2f}", f"{after[name]:,.2f}", told])
    only = [f"only in {which}: {name}" for which, name in _one_sided(before, after)]
    notes = [f"parameters differ: {one}" for one in different] + [
        f"{part} differ: {name} {first[part].get(name)} and {second[part].get(name)}"
        for part in ("versions", "machine")
        for name in sorted({*first[part], *second[part]})
        if first[part].get(name) != second[part].get(name)
    ]
    return "\n".join([*aligned(rows), *only, *notes])


def _one_sided(before: Mapping[str, float], after: Mapping[str, float]) -> list[tuple[str, str]]:
    return [("A", name) for name in before if name not in after] + [
        ("B", name) for name in after if name not in before
    ]
