"""`manage.py deliver`: the outbox worker; with `--once` it empties the queue and ends."""

from __future__ import annotations

import os
import signal
import threading
import time
from argparse import ArgumentParser
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.db import DatabaseError, connection

from ledger import outbox, queries
from ledger.clock import now_ms
from ledger.outbox import Tally


class Command(BaseCommand):
    help = "Deliver context events to the memory bank. SIGTERM ends it when what it has begun is done."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--once", action="store_true", help="deliver what is due, then end; exit 1 if some is left"
        )
        parser.add_argument("--workers", type=int, default=1, help="how many deliver at once (default 1)")
        parser.add_argument(
            "--with-parent",
            type=int,
            metavar="PID",
            help="end when the process that started this one, which has this id, has ended",
        )

    def handle(self, **options: Any) -> None:
        if options["workers"] < 1:
            raise CommandError("--workers must be at least 1")
        if not settings.OUTBOX_HANDLERS:
            raise CommandError("no bank is configured: there is nothing to deliver to")
        try:
            queries.paused()
        except DatabaseError as error:
            raise CommandError(f"the outbox cannot be read ({error}): run manage.py migrate") from error
        stop = threading.Event()
        for name in (signal.SIGTERM, signal.SIGINT):
            signal.signal(name, lambda *_: stop.set())
        if options["with_parent"] is not None:
            threading.Thread(
                target=_end_with_parent, args=(stop, options["with_parent"]), daemon=True
            ).start()
        began = time.monotonic()
        tallies = _deliver(stop, workers=options["workers"], once=options["once"])
        self._tell(tallies, seconds=time.monotonic() - began, once=options["once"])

    def _tell(self, tallies: list[Tally], *, seconds: float, once: bool) -> None:
        delivered = sum(tally.delivered for tally in tallies)
        left = queries.outbox_summary(None)
        waiting = left.pending + left.delivering
        self.stderr.write(
            f"Delivered {delivered:,} in {seconds:.1f} s ({delivered / max(seconds, 0.001):,.0f} a second); "
            f"{waiting:,} wait, {left.failed:,} failed for good"
        )
        for pause in left.paused:
            self.stderr.write(f"Delivery of {pause.kind} is paused: {pause.reason}")
        if any(tally.gave_up for tally in tallies):
            raise CommandError("the bank does not answer: what waits is tried again by the next run")
        if once and (waiting or any(tally.failed for tally in tallies)):
            raise CommandError("not everything was delivered")


def _deliver(stop: threading.Event, *, workers: int, once: bool) -> list[Tally]:
    def work(_: int) -> Tally:
        try:
            return outbox.run(stop, clock=now_ms, lease_ms=settings.OUTBOX_LEASE_MS, once=once)
        finally:
            connection.close()  # this thread's own

    if workers == 1:
        return [work(0)]
    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(work, range(workers)))


def _end_with_parent(stop: threading.Event, parent: int) -> None:
    while not stop.wait(1):
        if os.getppid() != parent:
            stop.set()
