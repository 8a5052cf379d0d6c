"""Bring memories in from a file: `import_memories FILE --format F [--workspace W] [--dry-run]`."""

from __future__ import annotations

import getpass
import os
import sys
from argparse import ArgumentParser
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import OperationalError
from tqdm import tqdm

from ledger.clock import now_ms
from ledger.domain.actors import Actor
from ledger.domain.refusals import Refused
from vault import vectors
from vault.domain.access import Reach
from vault.domain.embedding import EmbedderUnavailable
from vault.importers.run import FORMATS, Import, finish, on_a_copy, started
from vault.models import ImportRun
from vault.services import Caller

USAGE = 2


class Command(BaseCommand):
    help = (
        "Import memories. Rows are committed in batches; the same command again goes on where it stopped. "
        "Exit status: 0 every row went in, 1 some were refused (each is listed), 2 the command cannot run."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("file", metavar="FILE", type=Path, help="a file; for memora a folder or tar.gz")
        parser.add_argument("--format", required=True, choices=sorted(FORMATS))
        parser.add_argument("--workspace", help="put every row there, whatever it names itself")
        parser.add_argument(
            "--dry-run",
            action="store_true",
            help="say what would happen, on a temporary copy of the database",
        )
        parser.add_argument(
            "--no-vectors",
            action="store_true",
            help="leave the vectors to a server or to reindex; until then the rows are found by words only",
        )

    def handle(
        self, *, file: Path, format: str, workspace: str | None, dry_run: bool, no_vectors: bool, **_: Any
    ) -> None:
        if not file.exists():
            raise CommandError(f"there is no such file: {file}", returncode=USAGE)
        job = Import(file, FORMATS[format], workspace, _caller(), now_ms)
        try:
            with on_a_copy() if dry_run else nullcontext():
                self._import(job, dry_run=dry_run, embed=not (dry_run or no_vectors))
        except OperationalError as error:
            raise CommandError(
                f"the database is busy ({error}); what was committed stays: run the same command again to go on",
                returncode=USAGE,
            ) from error
        except (Refused, OSError) as error:
            raise CommandError(f"{file}: {error}", returncode=USAGE) from error

    def _import(self, job: Import, *, dry_run: bool, embed: bool) -> None:
        total = job.format.count(job.source)
        run = started(job)
        if run.finished_at is not None:
            self.stdout.write("This import is finished already; nothing was changed.")
        elif run.rows_done:
            self.stdout.write(f"Resuming after row {run.rows_done:,}.")
        with tqdm(total=total, initial=run.rows_done, unit=" rows", file=sys.stderr, disable=None) as bar:
            run = finish(run, job, progress=bar.update)
        self._report(run, dry_run=dry_run)
        if embed:
            self._embed()
        if run.refused_count:
            raise SystemExit(1)

    def _embed(self) -> None:
        """Make the vectors of what was imported, unless a server is at it."""
        with vectors.sole_embedder() as mine:
            if not mine:
                self.stdout.write("The running server embeds them in the background.")
                return
            try:
                embedder = vectors.installed()
                total = vectors.count_missing(vectors.model_of(embedder))
                with tqdm(total=total, unit=" texts", desc="embedding", file=sys.stderr, disable=None) as bar:
                    for done in vectors.embed_missing(embedder, threads=os.cpu_count() or 1):
                        bar.update(done)
            except EmbedderUnavailable as error:
                self.stdout.write(f"They have no vectors yet, and are found by words only: {error}")

    def _report(self, run: ImportRun, *, dry_run: bool) -> None:
        for refusal in run.refused:
            at_fault = f", {refusal['field']}" if refusal["field"] else ""
            self.stdout.write(
                f"refused row {refusal['row']} ({refusal['place']}{at_fault}): {refusal['message']}"
            )
        if run.refused_count > len(run.refused):
            self.stdout.write(f"… and {run.refused_count - len(run.refused):,} more refused rows")
        self.stdout.write(
            f"{run.rows_done:,} rows: {run.created:,} stored, {run.unchanged:,} there already, "
            f"{run.skipped:,} with nothing to store, {run.refused_count:,} refused."
        )
        if dry_run:
            self.stdout.write("Dry run: nothing was written.")


def _caller() -> Caller:
    """The system user, who may do everything: whoever can run this command can open the database."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a user id without a name, as in some containers
        user = str(os.getuid())
    return Caller(Actor(kind="cli", id=user, label=user), Reach.everything())
