"""`manage.py bench build | run | compare`: a corpus of any size, its recall over HTTP in figures, and two of those."""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser
from dataclasses import fields
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError
from tqdm import tqdm

from ledger.clock import now_ms
from recall.domain.request import MAX_LIMIT, PROFILES
from recall.management.bench import build, measure, report
from recall.management.bench.client import RequestFailed
from recall.management.bench.corpus import Plan
from recall.management.bench.server import LOG, ServerFailed, last_words
from vault.domain.embedding import EmbedderUnavailable
from vault.vectors import installed

USAGE = 2
DATABASE = "recall.sqlite3"
MOST_MEMORIES = 10_000_000
MOST = {"questions": 100_000, "clients": 64, "workers": 64, "limit": MAX_LIMIT}


class Command(BaseCommand):
    help = "Measure recall: build a made-up corpus, run questions against a server over it, compare two runs."
    requires_system_checks = ()  # they would judge the directory that the environment names, not --data-dir

    def add_arguments(self, parser: ArgumentParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True, metavar="build|run|compare")
        _build_arguments(verbs.add_parser("build", help="write a corpus into a new data directory"))
        _run_arguments(verbs.add_parser("run", help="serve a corpus, ask it questions over HTTP, report"))
        compare = verbs.add_parser("compare", help="two reports as ratios, figure by figure")
        compare.add_argument("first", type=Path, metavar="A.json")
        compare.add_argument("second", type=Path, metavar="B.json")
        compare.add_argument("--force", action="store_true", help="although their parameters differ")

    def handle(self, *, verb: str, **options: Any) -> None:
        {"build": self._build, "run": self._run, "compare": self._compare}[verb](options)

    def _build(self, options: dict[str, Any]) -> None:
        plan = Plan(options["memories"], options["workspaces"], options["seed"])
        _require("--memories", plan.memories, MOST_MEMORIES)
        _require("--workspaces", plan.workspaces, plan.memories)
        folder = _folder(options["data_dir"])
        if (folder / DATABASE).exists():
            raise CommandError(
                f"{folder} holds a database already: name a new directory with --data-dir", returncode=USAGE
            )
        settle_in(folder)
        call_command("migrate", verbosity=0, interactive=False)
        build.make_room()
        try:
            with tqdm(total=plan.memories, unit=" memories", unit_scale=True, disable=None) as bar:
                built = build.build(plan, at=now_ms(), embedder=installed(), progress=bar.update)
        except EmbedderUnavailable as error:
            raise CommandError(f"the texts cannot be embedded: {error}") from error
        build.settle()
        build.write_note(folder, built)
        self.stdout.write(
            f"{plan.memories:,} memories and {built.links:,} links in {built.seconds:.0f} s: "
            f"{built.rows_per_second:,.0f} rows/s beside {built.seconds_embedding:.0f} s of embedding "
            f"{built.embedded:,} texts; the vectors of the others were turned from theirs."
        )

    def _run(self, options: dict[str, Any]) -> None:
        for name, most in MOST.items():
            _require(f"--{name}", options[name], most)
        if options["report"] is not None and not options["report"].resolve().parent.is_dir():
            raise CommandError(f"--report {options['report']}: there is no such directory", returncode=USAGE)
        folder = _folder(options["data_dir"])
        built = build.read_note(folder)
        if built is None:
            raise CommandError(
                f"{folder} holds no finished corpus: make one with manage.py bench build", returncode=USAGE
            )
        settle_in(folder)
        asked = measure.Settings(**{field.name: options[field.name] for field in fields(measure.Settings)})
        try:
            told = measure.measure(folder, built, asked, at=now_ms())
        except (measure.TooFewQuestions, ServerFailed) as error:
            raise CommandError(str(error)) from error
        except RequestFailed as error:
            raise CommandError(f"{error}\nThe server's log ends: {last_words(folder / LOG)}") from error
        self.stdout.write(report.table(told))
        if options["report"] is not None:
            report.write(options["report"], told)

    def _compare(self, options: dict[str, Any]) -> None:
        try:
            first, second = report.read(options["first"]), report.read(options["second"])
            self.stdout.write(report.compared(first, second, force=options["force"]))
        except report.NotAReport as error:
            raise CommandError(str(error), returncode=USAGE) from error
        except report.ParametersDiffer as error:
            raise CommandError(f"{error}: --force compares them all the same", returncode=USAGE) from error


def _build_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--memories", type=int, required=True, metavar="N")
    parser.add_argument("--workspaces", type=int, default=1, metavar="W", help="of equal size (default: 1)")
    parser.add_argument("--data-dir", type=Path, metavar="DIR", help="default: RECALL_DATA_DIR")
    parser.add_argument("--seed", type=int, default=1, help="the same one makes the same texts (default: 1)")


def _run_arguments(parser: ArgumentParser) -> None:
    usual = measure.Settings()
    parser.add_argument("--data-dir", type=Path, metavar="DIR", help="default: RECALL_DATA_DIR")
    parser.add_argument("--questions", type=int, default=usual.questions, help="measured, beside the warm-up")
    parser.add_argument("--clients", type=int, default=usual.clients, help="that ask at the same time")
    parser.add_argument("--workers", type=int, default=usual.workers, help="processes of the server")
    parser.add_argument("--limit", type=int, default=usual.limit, help="hits of an answer")
    parser.add_argument("--mode", choices=("fused", "lexical", "dense", "hybrid"), default=usual.mode)
    parser.add_argument("--profile", choices=PROFILES, default=usual.profile)
    parser.add_argument("--trace", action="store_true", help="ask for the trace of each answer too")
    parser.add_argument("--report", type=Path, metavar="FILE.json", help="where to keep the figures")


def _folder(data_dir: Path | None) -> Path:
    return (data_dir or settings.DATA_DIR).resolve()


def _require(name: str, value: int, most: int) -> None:
    if not 1 <= value <= most:
        raise CommandError(f"{name} {value}: a whole number from 1 to {most:,}", returncode=USAGE)


def settle_in(folder: Path) -> None:
    """Start this command again where the environment names another directory or database.

    Settings are read before a command runs; a second start is the one way to have all of them right.
    """
    wanted = {name: value for name, value in os.environ.items() if not name.startswith("DATABASE_URL")}
    wanted["RECALL_DATA_DIR"] = str(folder)
    if wanted != dict(os.environ):
        sys.stdout.flush()
        os.execve(sys.executable, sys.orig_argv, wanted)  # noqa: S606  this very program
