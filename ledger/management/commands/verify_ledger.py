"""`manage.py verify_ledger`: walk the hash chain; exit 0 when it is intact, 1 when it is not."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from tqdm import tqdm

from ledger import triggers
from ledger.models import ContextEvent
from ledger.queries import verify


class Command(BaseCommand):
    help = "Verify the ledger's hash chain and name the first event that does not hold."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--json", action="store_true")

    def handle(self, **options: Any) -> None:
        missing = triggers.missing()
        if missing:
            raise CommandError(f"the ledger is not protected: the database lacks {', '.join(missing)}")
        with tqdm(total=ContextEvent.objects.count(), unit="event", disable=not sys.stderr.isatty()) as bar:
            found = verify(progress=bar.update)
        broken = found.first_broken
        if options["json"]:
            told: dict[str, Any] = {"ok": found.ok, "events": found.events, "head_hash": found.head_hash}
            if broken is not None:
                told["first_broken"] = {"seq": broken.seq, "id": broken.id, "reason": broken.reason}
            self.stdout.write(json.dumps(told))
        elif broken is None:
            self.stdout.write(f"Intact: {found.events:,} events, head {found.head_hash}")
        else:
            name = f" ({broken.id})" if broken.id else ""
            self.stdout.write(f"Broken at event {broken.seq}{name}: {broken.reason}")
        if broken is not None:
            sys.exit(1)
