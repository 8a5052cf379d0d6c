"""The report of an evaluation: a row for each way to ask, a column for each figure, and what must hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field

from recall.management.evaluation.figures import Ranks, found_within, mean_reciprocal
from recall.management.evaluation.measure import Remembered, Updated
from recall.management.evaluation.scenario import Claim

AGES = (
    "The memories of the pairs are of all ages up to a year. The validity profile puts what is fresh first, and may "
    "be right to: its figures say what that costs where age means nothing."
)
PAIR_FIGURES = ("R@1", "R@5", "R@10", "MRR")


@dataclass(slots=True)
class Row:
    """The figures of one way to ask, by column; those of a data set that was not given are not there."""

    way: str
    figures: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Report:
    """`skipped` names the data sets that were left out, and why."""

    embedder: str
    index: str
    sizes: dict[str, int]
    rows: list[Row]
    claims: list[Claim]
    skipped: dict[str, str]

    @property
    def broken(self) -> list[str]:
        """What must hold and does not."""
        return [
            *(claim.text for claim in self.claims if not claim.holds),
            *(
                f"{row.way}: {column} is {row.figures[column]:g}"
                for row in self.rows
                for column in ("old above new", "forgotten served")
                if row.figures.get(column)
            ),
        ]

    def as_dict(self) -> dict[str, object]:
        claims = [claim._asdict() for claim in self.claims]
        return {**asdict(self), "claims": claims, "broken": self.broken}


def figures_of_pairs(ranks: Mapping[str, Ranks]) -> dict[str, float]:
    both = [rank for of_kind in ranks.values() for rank in of_kind]
    return {
        f"{kind} {name}": value
        for kind, of_kind in {**ranks, "both": both}.items()
        for name, value in zip(
            PAIR_FIGURES,
            [*(found_within(of_kind, k) for k in (1, 5, 10)), mean_reciprocal(of_kind)],
            strict=True,
        )
    }


def figures_of_updates(updated: Updated) -> dict[str, float]:
    return {
        "old above new": updated.outdated_above / len(updated.successors),
        "new R@1": found_within(updated.successors, 1),
    }


def figures_of_memora(remembered: Remembered) -> dict[str, float]:
    return {
        "evidence in 10": remembered.in_top / remembered.evidence,
        "forgotten served": remembered.forgotten_served,
    }


def as_text(report: Report) -> str:
    """The report for people: one table, in Markdown, then the claims of the scenario."""
    lines = [f"{report.embedder}, {report.index}"]
    lines += [f"{name}: {size:,}" for name, size in report.sizes.items() if size]
    lines += [f"{name}: skipped, {reason}" for name, reason in report.skipped.items()]
    if report.rows:
        lines += ["", *_table(report.rows)]
    if report.sizes["pairs"]:
        lines += ["", AGES]
    lines += ["", *(f"{'holds' if claim.holds else 'FAILS'}: {claim.text}" for claim in report.claims)]
    return "\n".join(lines)


def _table(rows: Sequence[Row]) -> list[str]:
    columns = list(rows[0].figures)
    heads = ["", *map(_head, columns)]
    cells = [[row.way, *(_cell(row.figures[column]) for column in columns)] for row in rows]
    widths = [max(len(line[place]) for line in [heads, *cells]) for place in range(len(heads))]
    rule = [":" + "-" * (widths[0] - 1), *("-" * (width - 1) + ":" for width in widths[1:])]
    return [_line(line, widths) for line in [heads, rule, *cells]]


def _head(column: str) -> str:
    """The kind of pairs stands over the first of its figures alone, which keeps the table on a screen."""
    figure = column.rpartition(" ")[2]
    return figure if figure in PAIR_FIGURES[1:] else column


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    first, *others = zip(cells, widths, strict=True)
    return " | ".join([first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in others)]).join(
        ("| ", " |")
    )


def _cell(figure: float) -> str:
    """A share with three digits behind the point and none before it; a count as it is."""
    return str(figure) if isinstance(figure, int) else f"{figure:.3f}".removeprefix("0")
