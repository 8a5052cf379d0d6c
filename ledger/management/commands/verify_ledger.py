"""`manage.py verify_ledger`: walk the hash chain; exit 0 when it is intact, 1 when it is not."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser
from dataclasses import replace
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from tqdm import tqdm

from ledger import triggers
from ledger.domain.hashchain import Break
from ledger.models import ContextEvent
from ledger.queries import Verification, verify


class Command(BaseCommand):
    help = "Verify the ledger's hash chain and name the first event that does not hold."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--json", action="store_true")
        parser.add_argument(
            "--keyed-from",
            type=int,
            metavar="SEQ",
            help="fail unless every event from this one on was written with RECALL_LEDGER_KEY",
        )

    def handle(self, **options: Any) -> None:
        if fault := triggers.fault():
            raise CommandError(fault)
        if options["keyed_from"] is not None and settings.LEDGER_KEY is None:
            raise CommandError("--keyed-from needs the key: set RECALL_LEDGER_KEY")
        with tqdm(total=ContextEvent.objects.count(), unit="event", disable=not sys.stderr.isatty()) as bar:
            found = _with_key_since(verify(progress=bar.update), options["keyed_from"])
        broken = found.first_broken
        if options["json"]:
            told: dict[str, Any] = {
                "ok": found.ok,
                "events": found.events,
                "head_hash": found.head_hash,
                "keyed_from": found.keyed_from,
            }
            if broken is not None:
                told["first_broken"] = {"seq": broken.seq, "id": broken.id, "reason": broken.reason}
            self.stdout.write(json.dumps(told))
        elif broken is None:
            self.stdout.write(f"Intact: {found.events:,} events, head {found.head_hash}")
            self.stdout.write(_what_that_shows(found))
        else:
            name = f" ({broken.id})" if broken.id else ""
            self.stdout.write(f"Broken at event {broken.seq}{name}: {broken.reason}")
        if broken is not None:
            sys.exit(1)


def _with_key_since(found: Verification, seq: int | None) -> Verification:
    """The same, but broken where events from `seq` on were written without the key."""
    if seq is None or not found.ok or found.events < seq:
        return found
    if found.keyed_from is not None and found.keyed_from <= seq:
        return found
    reason = "it was written without the key (--keyed-from)"
    return replace(found, first_broken=Break(seq, ContextEvent.objects.get(seq=seq).id, reason))


def _what_that_shows(found: Verification) -> str:
    if found.keyed_from is None:
        why = "none was written with the key" if settings.LEDGER_KEY else "RECALL_LEDGER_KEY is not set"
        return f"That shows edits, but no forger who recomputes the whole chain: {why}."
    return (
        f"Events from {found.keyed_from} on were written with the key, which covers the hashes of those before them: "
        f"nobody without it has changed either since. Give --keyed-from {found.keyed_from} from now on, or a forger "
        "could rewrite everything without a key."
    )
