"""`manage.py create_api_key NAME --scopes read,write`: make a key for an agent, and print it this once."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from ledger.clock import now_ms
from ledger.domain.instants import NotAnInstant, parse_instant
from ledger.domain.refusals import Refused
from recall.services import create_api_key


class Command(BaseCommand):
    help = "Make an API key for an agent. The key is printed once; only its hash is kept."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("name")
        parser.add_argument(
            "--scopes", default="read,write", help="some of read,write,admin (default: read,write)"
        )
        parser.add_argument("--workspace", help="bind the key to one workspace")
        parser.add_argument("--expires", metavar="TIME", help="RFC 3339, or a date")
        parser.add_argument("--json", action="store_true")

    def handle(self, **options: Any) -> None:
        try:
            key, secret = create_api_key(
                options["name"],
                scopes=[scope.strip() for scope in options["scopes"].split(",") if scope.strip()],
                workspace=options["workspace"],
                expires_at=None if options["expires"] is None else parse_instant(options["expires"]),
                at=now_ms(),
            )
        except NotAnInstant as error:
            raise CommandError(f"--expires: {error}") from error
        except Refused as refusal:
            raise CommandError(refusal.message) from refusal
        told = {
            "id": key.id,
            "name": key.name,
            "scopes": key.scopes.split(","),
            "workspace": key.workspace,
            "key": secret,
        }
        if options["json"]:
            self.stdout.write(json.dumps(told))
            return
        bound = (
            "every workspace" if key.workspace is None else f"workspace {key.workspace!r}, and global to read"
        )
        self.stdout.write(f"{secret}\n")
        self.stderr.write(f"{key.name}: {key.scopes}; {bound}. The key is not shown again.")
