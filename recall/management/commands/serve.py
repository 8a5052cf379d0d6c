"""`manage.py serve`: the production server, after it has checked that it may keep its promises."""

from __future__ import annotations

import contextlib
import fcntl
import gc
import hashlib
import json
import logging
import os
import socket
import subprocess
import sys
import threading
import time
from argparse import ArgumentParser
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from http import HTTPStatus
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from django.conf import settings
from django.contrib.staticfiles.finders import get_finders
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError
from django.core.wsgi import get_wsgi_application
from django.db import DatabaseError, connection, connections
from django.db.migrations.executor import MigrationExecutor
from gunicorn.app.base import BaseApplication
from gunicorn.http.errors import LimitRequestHeaders, LimitRequestLine, ParseException
from gunicorn.workers.gthread import ThreadWorker

from ledger import triggers
from recall import upkeep
from recall.banks import BankUnavailable, installed_bank

CHECKPOINT_SECONDS = 2
LOOK_SECONDS = 2  # between looks whether delivery has to be started
END_SECONDS = 4  # less than gunicorn's graceful_timeout
log = logging.getLogger(__name__)


class LastInFirstOut(ThreadPoolExecutor):
    """Threads, of which the one that rested last works next: its database connection still holds the pages that the
    last request read, where the connection of another would have to read them again."""

    def __init__(self, most: int) -> None:
        super().__init__(most)  # never starts a thread itself
        self._most = most
        self._lock = threading.Lock()
        self._resting: list[SimpleQueue[Callable[[], None] | None]] = []
        self._waiting: deque[Callable[[], None]] = deque()
        self._started = 0
        self._ending = False

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        job = partial(_fulfil, future, fn, args, kwargs)
        with self._lock:
            if self._ending:
                raise RuntimeError("no work is taken on while the server ends")
            if self._resting:
                self._resting.pop().put(job)
            elif self._started < self._most:
                self._started += 1
                threading.Thread(target=self._work, args=(job,), name="request", daemon=True).start()
            else:
                self._waiting.append(job)
        return future

    def _work(self, job: Callable[[], None] | None) -> None:
        given: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        while job is not None:
            job()
            with self._lock:
                if self._waiting:
                    job = self._waiting.popleft()
                    continue
                if self._ending:
                    return
                self._resting.append(given)
            job = given.get()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: ARG002  the signature
        """Take nothing more on; what is under way ends by itself."""
        with self._lock:
            self._ending = True
            while self._resting:
                self._resting.pop().put(None)


def _fulfil(future: Future[Any], fn: Callable[..., Any], args: Any, kwargs: Any) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(fn(*args, **kwargs))
    except BaseException as error:  # as the standard library's executors do: whoever asked is told
        future.set_exception(error)


class QuietWorker(ThreadWorker):
    """Answers what never becomes a request as every other error is answered, and logs no part of it.

    gunicorn would answer HTML, and write the request line to the log, where the question of an agent may stand.
    """

    def get_thread_pool(self) -> LastInFirstOut:
        return LastInFirstOut(self.cfg.threads)

    def handle_error(self, req: Any, client: Any, addr: Any, exc: BaseException) -> None:  # noqa: ARG002
        status, code, message = 400, "malformed", "this is not an HTTP request that the server understands"
        if isinstance(exc, LimitRequestLine):
            status, code, message = 414, "too_large", "the address is too long: send the question with POST"
        elif isinstance(exc, LimitRequestHeaders):
            status, code, message = 431, "too_large", "the headers are too large"
        elif not isinstance(exc, ParseException):
            status, code, message = 500, "internal", "an unexpected error; it was logged"
            self.log.error("error outside the application: %s", type(exc).__name__)
        body = json.dumps({"error": {"code": code, "message": message}})
        head = (
            f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\nConnection: close\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        with contextlib.suppress(OSError):  # whoever sent it may be gone
            client.sendall((head + body).encode())


def work_beside_the_requests(worker: Any) -> None:  # noqa: ARG001  gunicorn's signature
    """Start the threads that do what no request should wait for."""
    for name, work in (("warm", upkeep.warm), ("upkeep", upkeep.follow), ("checkpoints", _checkpoints)):
        threading.Thread(target=work, name=name, daemon=True).start()


class DeliveryBeside:
    """`manage.py deliver` in a process of its own, kept running by whichever worker holds the claim.

    Not in a thread: what a bank takes of a processor would be missing in answers. A worker that is killed frees the
    claim, and its `deliver` ends by itself (--with-parent) while another worker starts the next.
    """

    def __init__(self) -> None:
        self._running: subprocess.Popen[bytes] | None = None
        self._ending = threading.Event()

    def follow(self) -> None:
        """Start it, and start it again when it has ended. Never returns before `end`."""
        command = [
            sys.executable,
            str(settings.BASE_DIR / "manage.py"),
            "deliver",
            "--with-parent",
            str(os.getpid()),
        ]
        with (Path(settings.DATA_DIR) / "delivery.lock").open("w") as claim:
            while not self._claimed(claim.fileno()):
                if self._ending.wait(LOOK_SECONDS):
                    return
            while not self._ending.is_set():
                self._running = subprocess.Popen(command)  # noqa: S603  our own command, no one else's words
                status = self._running.wait()
                if not self._ending.wait(LOOK_SECONDS):
                    log.warning("deliver ended with status %s and is started again", status)

    @staticmethod
    def _claimed(claim: int) -> bool:
        try:
            fcntl.flock(claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def end(self) -> None:
        """Let it finish what it has begun; what takes longer is delivered again after its lease."""
        self._ending.set()
        if self._running is not None and self._running.poll() is None:
            self._running.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._running.wait(END_SECONDS)


delivery_beside = DeliveryBeside()


def work_and_deliver(worker: Any) -> None:
    """What is done beside the requests, and delivery of the outbox."""
    work_beside_the_requests(worker)
    threading.Thread(target=delivery_beside.follow, name="delivery", daemon=True).start()


def end_delivery(server: Any, worker: Any) -> None:  # noqa: ARG001  gunicorn's signature
    delivery_beside.end()


def _checkpoints() -> None:
    """Move SQLite's write-ahead log into the database.

    Passive: it never blocks a reader or a writer. Where it falls behind, a commit does it (settings.DATABASES).
    """
    while True:
        time.sleep(CHECKPOINT_SECONDS)
        try:
            with connection.cursor() as cursor:
                cursor.execute("PRAGMA wal_checkpoint(PASSIVE)")
        except DatabaseError:
            log.warning("the write-ahead log could not be moved; the next try is soon", exc_info=True)


class Server(BaseApplication):
    """gunicorn, told everything by this command and nothing by a file."""

    def __init__(self, options: dict[str, Any]) -> None:
        self._options = options
        super().__init__()

    def load_config(self) -> None:
        for name, value in self._options.items():
            self.cfg.set(name, value)

    def load(self) -> Any:
        application = get_wsgi_application()
        upkeep.load_libraries()
        connections.close_all()  # no connection may cross a fork
        # What is loaded by now stays for good: keep the collector from walking it again and again under load.
        gc.collect()
        gc.freeze()
        gc.set_threshold(100_000, 20, 20)
        return application


class Command(BaseCommand):
    help = "Serve API and pages with gunicorn. Refuses to start with migrations open or the ledger unguarded."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--host", default="127.0.0.1")
        parser.add_argument("--port", type=int, default=8000)
        parser.add_argument("--workers", type=int, default=2)
        parser.add_argument("--threads", type=int, default=4)
        parser.add_argument("--with-worker", action="store_true", help="run manage.py deliver beside it")

    def handle(self, **options: Any) -> None:
        require_migrated()
        require_guarded()
        if options["with_worker"] and not settings.OUTBOX_HANDLERS:
            raise CommandError("--with-worker: no bank is configured, there is nothing to deliver to")
        require_free(options["host"], options["port"])
        self.require_bank()
        collect_static()
        connections.close_all()  # no connection may cross a fork
        host = f"[{options['host']}]" if ":" in options["host"] else options["host"]
        self.stderr.write(f"Recall Ledger on http://{host}:{options['port']} (Ctrl-C ends it)")
        Server(
            {
                "bind": f"{host}:{options['port']}",
                "workers": options["workers"],
                "threads": options["threads"],
                "worker_class": QuietWorker,
                "post_worker_init": work_and_deliver if options["with_worker"] else work_beside_the_requests,
                "worker_exit": end_delivery,
                "keepalive": 75,
                "preload_app": True,  # once, before the workers fork: they share what was loaded
                "graceful_timeout": 5,  # a worker that missed the signal is not waited for longer
                "limit_request_line": 8190,  # a question of 4 KB in a query string; 4094 would cut it off
                "accesslog": None,  # query strings hold what agents ask: they are never logged
                "loglevel": "warning",
                "control_socket_disable": True,
                "proc_name": "recall-ledger",
                "worker_tmp_dir": str(settings.DATA_DIR),
            }
        ).run()

    def require_bank(self) -> None:
        """Refuse to start with a bank that somebody has to put right; one that does not answer may be back any time."""
        try:
            installed_bank().check()
        except BankUnavailable as error:
            if error.misconfigured:
                raise CommandError(f"the memory bank cannot be used: {error.reason}") from error
            self.stderr.write(f"The memory bank does not answer now ({error.reason}); context waits for it")


def collect_static() -> None:
    """Collect static files, unless they are the ones that were collected last: it takes a sixth of the start."""
    fingerprint = hashlib.sha256()
    for finder in get_finders():
        for path, storage in finder.list([]):
            about = Path(storage.path(path)).stat()
            fingerprint.update(f"{storage.path(path)} {about.st_size} {about.st_mtime_ns}\n".encode())
    collected = Path(settings.DATA_DIR) / "static.collected"
    known = f"{settings.STATIC_ROOT} {fingerprint.hexdigest()}"
    if settings.STATIC_ROOT.is_dir() and collected.is_file() and collected.read_text() == known:
        return
    call_command("collectstatic", interactive=False, verbosity=0)
    collected.write_text(known)


def require_free(host: str, port: int) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as gunicorn will
            probe.bind((host, port))
    except (OSError, OverflowError) as error:
        reason = error.strerror if isinstance(error, OSError) else "ports end at 65535"
        raise CommandError(
            f"{host} port {port} cannot be used ({reason}): name another with --port"
        ) from error


def require_migrated() -> None:
    executor = MigrationExecutor(connection)
    plan = executor.migration_plan(executor.loader.graph.leaf_nodes())
    if plan:
        names = ", ".join(str(migration) for migration, _ in plan[:3])
        raise CommandError(f"the database is not migrated ({names}…): run manage.py migrate")


def require_guarded() -> None:
    if fault := triggers.fault():
        raise CommandError(
            f"{fault}. Find out who dropped them, "
            "put them back with manage.py migrate, then run manage.py verify_ledger"
        )
