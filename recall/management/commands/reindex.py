"""`manage.py reindex`: vectors for what has none, and everything derived from them anew."""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from tqdm import tqdm

from recall import embedders
from recall.embedders import Embedder
from recall.indexes.resident import upkeep
from recall.indexes.resident.shelf import FILED
from vault import vectors
from vault.domain.embedding import EmbedderUnavailable
from vault.models import Workspace


class Command(BaseCommand):
    help = (
        "Embed every memory that has no vector yet, drop vectors of other models, and write the index files of large "
        "workspaces anew. Stopped at any moment, what was done stays; the same command goes on."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--embedder",
            help="prepare vectors of another embedder (a name or a dotted path) beside the present ones",
        )
        parser.add_argument("--files", action="store_true", help="only the index files that are behind")

    def handle(self, *, embedder: str | None, files: bool, **_: Any) -> None:
        try:
            if files:
                self._renew(upkeep.behind())
            elif embedder is not None:
                self._prepare(embedder)
            else:
                self._bring_up_to_date()
        except EmbedderUnavailable as error:
            raise CommandError(f"the embedder is not available: {error}") from error
        except OSError as error:
            raise CommandError(f"the index files cannot be written: {error}") from error

    def _prepare(self, name: str) -> None:
        if name not in settings.RECALL_EMBEDDERS and "." not in name:
            known = ", ".join(settings.RECALL_EMBEDDERS)
            raise CommandError(
                f"there is no embedder {name}: name one of {known}, or a dotted path", returncode=2
            )
        try:
            embedder = embedders.named(name)
        except ImportError as error:
            raise CommandError(f"{name} cannot be imported: {error}", returncode=2) from error
        self._embed(embedder)
        self.stdout.write(
            f"Vectors of {embedder.model_id} are ready. To change over: set RECALL_EMBEDDER={name}, restart, and run "
            "reindex once more, which drops the others."
        )

    def _bring_up_to_date(self) -> None:
        embedder = embedders.installed()
        self._embed(embedder)
        if dropped := vectors.drop_others(vectors.model_of(embedder)):
            self.stdout.write(f"{dropped:,} vectors of other models were dropped.")
        if settings.RECALL_INDEX == "resident":
            self._renew(list(Workspace.objects.filter(memories__gte=FILED).order_by("name")))

    def _embed(self, embedder: Embedder) -> None:
        total = vectors.count_missing(vectors.model_of(embedder))
        with tqdm(total=total, unit=" texts", file=sys.stderr, disable=None) as bar:
            for done in vectors.embed_missing(embedder, threads=os.cpu_count() or 1):
                bar.update(done)
        self.stdout.write(f"{total:,} texts were embedded with {embedder.model_id}.")

    def _renew(self, workspaces: list[Workspace]) -> None:
        for workspace in workspaces:
            upkeep.renew(workspace)
            self.stdout.write(f"Index files of {workspace} are new ({workspace.memories:,} memories).")
