"""`manage.py erase ID --reason TEXT`: erase a text for good, wherever it lives; exit 0 when nothing of it is left."""

from __future__ import annotations

import json
import time
from argparse import ArgumentParser
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import OperationalError

from ledger import triggers
from ledger.clock import now_ms
from ledger.domain.refusals import Refused
from ledger.erasure import Place, StillRead
from recall import erasure
from recall.erasure import Compacted, Erased, Survey
from recall.people import system_caller


class Command(BaseCommand):
    help = (
        "Erase the text of a context event (evt_…) or a memory (mem_…) in ledger, vault, indexes, records, outbox and "
        "memory bank. The chain still verifies; a tombstone tells hash, time, who and why. Killed at any moment, the "
        "same command finishes."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("ids", nargs="*", metavar="ID")
        parser.add_argument("--reason", default="", help="why; it is kept for good")
        parser.add_argument(
            "--dry-run", action="store_true", help="list where the text lives, and write nothing"
        )
        parser.add_argument(
            "--compact",
            action="store_true",
            help="without an ID: only rid the files of what was erased before, over the API for instance",
        )
        parser.add_argument("--json", action="store_true")

    def handle(self, **options: Any) -> None:
        ids: list[str] = list(dict.fromkeys(options["ids"]))
        if bool(ids) == options["compact"]:
            raise CommandError("name what to erase, or give --compact without an ID", returncode=2)
        if fault := triggers.fault():
            raise CommandError(fault)
        try:
            if options["dry_run"]:
                self._tell_surveys(
                    [erasure.survey(id_, caller=system_caller()) for id_ in ids], options["json"]
                )
                return
            began = time.monotonic()
            erased = _erased(ids, reason=options["reason"])
            took = time.monotonic() - began
        except Refused as refusal:
            hint = f" ({refusal.hint})" if refusal.hint else ""
            raise CommandError(f"{refusal.message}{hint}") from refusal
        try:
            compacted = erasure.compact()
        except (OSError, OperationalError, StillRead) as error:
            raise CommandError(
                f"the text was erased, but its bytes are still in the files: {error}. Run the same command again, or "
                "erase --compact"
            ) from error
        self._tell(erased, compacted, took=took, as_json=options["json"])

    def _tell_surveys(self, surveys: Sequence[Survey], as_json: bool) -> None:
        if as_json:
            self.stdout.write(json.dumps({"dry_run": True, "surveys": [asdict(found) for found in surveys]}))
            return
        for found in surveys:
            self.stdout.write(f"{found.id} in {found.workspace or 'the global workspace'}:")
            if found.erased_already:
                self.stdout.write("  was erased already")
            for place in found.places:
                self.stdout.write(_line(place))
            if found.stays:
                self.stdout.write("What stays:")
            for place in found.stays:
                self.stdout.write(_line(place))
        self.stdout.write("Nothing was written.")

    def _tell(self, erased: Sequence[Erased], compacted: Compacted, *, took: float, as_json: bool) -> None:
        if as_json:
            told = {
                "dry_run": False,
                "erased": [asdict(one) for one in erased],
                "seconds": took,
                "compacted": asdict(compacted),
            }
            self.stdout.write(json.dumps(told))
            return
        for one in erased:
            gone = ", ".join([*one.event_ids, *one.memory_ids])
            self.stdout.write(f"{one.id}: erased {gone}" if gone else f"{one.id}: was erased already")
        if erased:
            self.stdout.write(f"  {took:7.2f} s  rows blanked")
        for step in compacted.steps:
            self.stdout.write(f"  {step.seconds:7.2f} s  {step.name}")
        before, after = compacted.bytes_before / 1e6, compacted.bytes_after / 1e6
        self.stdout.write(f"  the database takes {after:,.1f} MB, before {before:,.1f} MB")
        if any(one.event_ids for one in erased):
            self.stdout.write("What the memory bank has of it is removed by the next manage.py deliver.")


def _erased(ids: Sequence[str], *, reason: str) -> list[Erased]:
    """All of them or, where one is refused at the start, none."""
    caller = system_caller()
    for id_ in ids:
        erasure.target_of(id_, caller=caller)
    return [erasure.erase(id_, caller=caller, at=now_ms(), reason=reason) for id_ in ids]


NAMED = 4  # ids in a line for people; --json has more


def _line(place: Place) -> str:
    shown = place.ids[:NAMED]
    named = f": {', '.join(shown)}" if shown else ""
    more = f" and {place.count - len(shown):,} more" if shown and place.count > len(shown) else ""
    return f"  {place.count:>6,}  {place.name}{named}{more} ({place.becomes})"
