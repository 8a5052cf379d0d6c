"""`manage.py demo [--port N] [--data-dir DIR] [--reset]`: all for a first look, in a directory of its own."""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import sys
import time
from argparse import ArgumentParser
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError

from ledger.clock import now_ms
from recall.management.demo.load import OPERATOR, SURFACE, Loaded, load

USAGE = 2
HOST = "127.0.0.1"
MARKER = "demo-marker"
MADE_HERE = (
    "Made by `manage.py demo`, whose --reset deletes the database and static files beside this file.\n"
)
DATABASE = "recall.sqlite3"


class Command(BaseCommand):
    help = (
        "Load a made-up team's agent memory, print an operator login and an API key, and serve. Works in a "
        "directory of its own and ignores all configuration, so that it can never touch a real database."
    )
    requires_system_checks = ()  # they would judge the configuration that the demo is about to leave behind

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--port", type=int, default=8000)
        parser.add_argument(
            "--data-dir", type=Path, help="default: the folder demo in RECALL_DATA_DIR (./var)"
        )
        parser.add_argument(
            "--reset", action="store_true", help="delete what an earlier demo made, and start over"
        )
        parser.add_argument("--no-serve", action="store_true", help="load and print, then end")

    def handle(self, *, port: int, data_dir: Path | None, reset: bool, no_serve: bool, **_: Any) -> None:
        folder = (data_dir or settings.DATA_DIR / "demo").resolve()
        if not no_serve:
            require_free(port)
        require_own(folder)
        settle_in(folder)
        try:
            with held(folder):
                self._run(folder, port=port, reset=reset, serve=not no_serve)
        except KeyboardInterrupt:
            raise SystemExit(130) from None

    def _run(self, folder: Path, *, port: int, reset: bool, serve: bool) -> None:
        if reset:
            clear(folder)
        started = time.monotonic()
        self.check()
        call_command("migrate", verbosity=0, interactive=False)
        loaded = load(now_ms())
        self.stdout.write(f"Demo data: {folder}")
        if loaded is None:
            self.stdout.write("The story is loaded already; nothing was added.")
        else:
            self.stdout.write(summary(loaded, seconds=time.monotonic() - started))
        self.stdout.write(access(loaded, folder, port))
        self.stdout.flush()
        if serve:
            call_command("serve", host=HOST, port=port, with_worker=True)


def require_free(port: int) -> None:
    """Refuse a port that cannot be listened on, before anything is written."""
    if not 1 <= port <= 65_535:
        raise CommandError(f"--port {port}: a port is a number from 1 to 65535", returncode=USAGE)
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as gunicorn does
        try:
            probe.bind((HOST, port))
        except OSError as error:
            raise CommandError(
                f"port {port} cannot be used ({error.strerror}): name another with --port", returncode=USAGE
            ) from error


def require_own(folder: Path) -> None:
    """Refuse a directory that holds anything but a demo; one with only a secret key counts as empty."""
    if not folder.exists() or (folder / MARKER).exists():
        return
    if not folder.is_dir() or any(entry.name != "secret_key" for entry in folder.iterdir()):
        raise CommandError(
            f"{folder} was not made by this command, so the demo neither writes nor deletes there: name a "
            "new or empty directory with --data-dir",
            returncode=USAGE,
        )


def settle_in(folder: Path) -> None:
    """Start this command again where the environment configures anything but the demo's own directory.

    Settings are read before a command runs; a second start is the one way to have all of them right.
    """
    foreign = ("RECALL_", "DATABASE_URL", "MEMORY_BANK", "HINDSIGHT_")
    own = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    own["RECALL_DATA_DIR"] = str(folder)
    if own != dict(os.environ):
        sys.stdout.flush()
        os.execve(sys.executable, [*sys.orig_argv, "--data-dir", str(folder)], own)  # noqa: S606  this very program


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Mark the directory as a demo's, and keep other demos out of it while this one runs."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / MARKER).open("a") as marker:
        try:
            fcntl.flock(marker, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise CommandError(f"a demo runs in {folder} already: end it first", returncode=USAGE) from error
        if marker.tell() == 0:
            marker.write(MADE_HERE)
            marker.flush()
        yield


def clear(folder: Path) -> None:
    """Delete the demo's database and static files, and nothing that somebody put beside them."""
    for name in (DATABASE, f"{DATABASE}-wal", f"{DATABASE}-shm"):
        (folder / name).unlink(missing_ok=True)
    if (folder / "static").is_dir():
        shutil.rmtree(folder / "static")


def summary(loaded: Loaded, *, seconds: float) -> str:
    return "\n".join(
        [
            f"Loaded in {seconds:.1f} s: {loaded.memories} memories and {loaded.links} links of a made-up team, in "
            "the workspaces studio, ops and the global one.",
            f"{loaded.recalls} recalls were run as of instants in the last 30 days; nobody asked them then. Their "
            f'records are dated so and name the surface "{SURFACE}".',
            f"{loaded.events} decisions about items of a calendar, and corrections of them, stand in the ledger, and "
            "were delivered to the bank.",
            "Ledger events are dated now, when they were written.",
        ]
    )


def access(loaded: Loaded | None, folder: Path, port: int) -> str:
    """Where to go, with what, and three commands to paste."""
    url = f"http://{HOST}:{port}"
    key = loaded.key if loaded else "$KEY"
    lines = ["", f"  Pages     {url}/", f"  Sign in   {OPERATOR}"]
    if loaded:
        lines += [f"  Password  {loaded.password}", f"  API key   {loaded.key}"]
        lines += ["", "Both secrets are shown this once; only their hashes are kept."]
    else:
        here = f"RECALL_DATA_DIR={folder} uv run manage.py"
        lines += [
            "",
            "Password and API key were shown at the first start. New ones, without losing anything:",
        ]
        lines += [f"  {here} changepassword {OPERATOR}"]
        lines += [f"  KEY=$({here} create_api_key me)"]
        lines += ["or start over with: manage.py demo --reset"]
    auth = f"-H 'Authorization: Bearer {key}'" if loaded else f'-H "Authorization: Bearer {key}"'
    return "\n".join(
        [
            *lines,
            "",
            "Three things to try in another terminal: ask, see what was recorded, see what needs a look.",
            "",
            f"curl -sG {url}/v1/recall {auth} -d workspace=studio -d profile=validity -d state_debug=true "
            "--data-urlencode 'query=Why is the portfolio outline postponed?'",
            f"curl -s '{url}/v1/recalls?workspace=studio&limit=3' {auth}",
            f"curl -s {url}/v1/quality {auth}",
            "",
        ]
    )
