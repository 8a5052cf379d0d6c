"""`manage.py evaluate`: how well recall finds what was meant, way by way, on data sets that are given."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from tqdm import tqdm

from ledger.domain.refusals import Refused
from recall import embedders
from recall.management.evaluation import measure, report, scenario
from recall.management.evaluation.measure import WAYS, empty_database
from recall.management.evaluation.report import Report, Row
from recall.management.evaluation.sets import NotASet, pairs_in, updates_in
from recall.services import installed_index
from vault.domain.embedding import EmbedderUnavailable
from vault.importers import Unreadable

USAGE = 2
SETS = ("pairs", "updates", "memora")


class Command(BaseCommand):
    help = (
        "Measure what recall finds, in an empty database that is thrown away after. The validity scenario is always "
        "played; each data set adds its columns. Exit status: 0 all that must hold does, 1 something does not (it is "
        "named), 2 the command cannot run."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--pairs", type=Path, metavar="FILE", help="JSON lines: memory, question, kind")
        parser.add_argument("--updates", type=Path, metavar="FILE", help="JSON lines: old, new, question")
        parser.add_argument("--memora", type=Path, metavar="FOLDER_OR_TAR", help="the Memora data set")
        parser.add_argument("--json", action="store_true", help="the report as JSON")

    def handle(self, **options: Any) -> None:
        given = {name: options[name] for name in SETS}
        try:
            with empty_database():
                measured = measured_on(given)
        except EmbedderUnavailable as error:
            raise CommandError(f"the texts cannot be embedded: {error}", returncode=USAGE) from error
        except (NotASet, Unreadable, Refused, OSError) as error:
            raise CommandError(str(error), returncode=USAGE) from error
        as_json = options["json"]
        self.stdout.write(json.dumps(measured.as_dict(), indent=2) if as_json else report.as_text(measured))
        if measured.broken:
            raise CommandError("; ".join(measured.broken), returncode=1)


def measured_on(given: dict[str, Path | None]) -> Report:
    """Store what the data sets hold, and ask all their questions in every way; in the database that is there."""
    skipped = _skipped(given)
    pairs_file, updates_file, source = (None if name in skipped else given[name] for name in SETS)
    pairs = pairs_in(pairs_file) if pairs_file else []
    updates = updates_in(updates_file) if updates_file else []
    pair_ids, update_ids = measure.store_pairs(pairs), measure.store_updates(updates)
    wanted = measure.store_memora(source) if source else []
    measure.embed()
    rows = []
    for way in tqdm(WAYS if pairs or updates or wanted else (), unit=" ways", file=sys.stderr, disable=None):
        row = Row(way.name)
        if pairs:
            row.figures |= report.figures_of_pairs(measure.ranks_of_pairs(pairs, pair_ids, way))
        if updates:
            row.figures |= report.figures_of_updates(measure.updated(updates, update_ids, way))
        if wanted:
            row.figures |= report.figures_of_memora(measure.remembered(wanted, way))
        rows.append(row)
    return Report(
        embedder=embedders.name_of_installed(),
        index=installed_index().version,
        sizes={
            "pairs": len(pairs),
            "updates": len(updates),
            "memora questions": len(wanted),
            "memora evidence": sum(len(question.evidence) for question in wanted),
        },
        rows=rows,
        claims=scenario.kept(),
        skipped=skipped,
    )


def _skipped(given: dict[str, Path | None]) -> dict[str, str]:
    """A data set that was not named, or is not there: public ones are not shipped, and a report without them counts."""
    reasons = {}
    for name, source in given.items():
        if source is None:
            reasons[name] = f"no --{name}"
        elif not source.exists():
            reasons[name] = f"{source} is not there"
    return reasons
