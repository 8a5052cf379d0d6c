"""The real `manage.py serve` over a data directory: started, watched, ended; what it takes of memory and disk."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

HOST = "127.0.0.1"
MIB = 1024 * 1024
READY_WITHIN = 600  # seconds
END_WITHIN = 20
LOG = "bench-serve.log"


class ServerFailed(Exception):
    """The server did not start or did not stay; the message says what it wrote."""


@dataclass(slots=True)
class Server:
    """A server that answers `/readyz`. `started` and `ready` are monotonic instants; `peak` is of `memory_mb`."""

    process: subprocess.Popen[bytes]
    port: int
    started: float
    ready: float = 0.0
    peak: float = field(default=0.0)

    def memory_mb(self) -> float:
        """The memory of all its processes in MiB, pages that they share counted once (proportional set size)."""
        now = self._pss_mb("Pss:")
        self.peak = max(self.peak, now)
        return now

    def own_memory_mb(self) -> float:
        """The part of `memory_mb` that maps no file: what the kernel cannot take back and read again."""
        return self._pss_mb("Pss_Anon:") + self._pss_mb("Pss_Shmem:")

    def _pss_mb(self, name: str) -> float:
        pids = family(self.process.pid)
        return sum(_kilobytes(Path(f"/proc/{pid}/smaps_rollup"), name) for pid in pids) / 1024

    def cpu_seconds(self) -> float:
        """What all its processes have computed so far."""
        return sum(_computed(pid) for pid in family(self.process.pid))

    def worker_cpu_seconds(self) -> dict[int, float]:
        """What each worker has computed so far, by its process id."""
        return {pid: _computed(pid) for pid in family(self.process.pid)[1:]}


@contextmanager
def served(folder: Path, *, workers: int) -> Iterator[Server]:
    """The server over a data directory, once it is ready; ended behind. Raises ServerFailed."""
    port = _free_port()
    command = [sys.executable, _manage(), "serve", "--port", str(port), "--workers", str(workers)]
    reached = {"RECALL_ALLOWED_HOSTS": HOST, "RECALL_HTTPS": "0", "RECALL_RATE_LIMIT": "1000000000"}
    env = {**os.environ, "RECALL_DATA_DIR": str(folder), **reached}
    log = folder / LOG
    with log.open("wb") as err:
        began = time.monotonic()
        process = subprocess.Popen(  # noqa: S603  our own program, under our own interpreter
            command, env=env, stdout=subprocess.DEVNULL, stderr=err, start_new_session=True
        )
    server = Server(process, port, began)
    try:
        _wait_until_ready(server, log)
        yield server
    finally:
        _end(process)


def _free_port() -> int:
    with socket.socket() as free:
        free.bind((HOST, 0))
        port: int = free.getsockname()[1]
    return port


def _manage() -> str:
    return str(Path(__file__).resolve().parents[3] / "manage.py")


def _wait_until_ready(server: Server, log: Path) -> None:
    while time.monotonic() < server.started + READY_WITHIN:
        if server.process.poll() is not None:
            raise ServerFailed(f"the server ended with status {server.process.returncode}: {last_words(log)}")
        try:
            with closing(http.client.HTTPConnection(HOST, server.port, timeout=30)) as line:
                line.request("GET", "/readyz")
                answer = line.getresponse()
                told = answer.read()
        except OSError:
            time.sleep(0.01)
            continue
        if answer.status == 200:
            server.ready = time.monotonic()
            return
        raise ServerFailed(f"the server is not ready: {told.decode(errors='replace')[:500]}")
    raise ServerFailed(f"the server is not ready after {READY_WITHIN} s: {last_words(log)}")


def last_words(log: Path) -> str:
    """The end of what a server wrote to its log."""
    return log.read_text(errors="replace").strip()[-800:] or "it wrote nothing"


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ask the server to end, then end what is left of its own process group."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(END_WITHIN)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def family(pid: int) -> list[int]:
    """A process and all that descend from it."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except FileNotFoundError:
        return []
    return [pid, *(each for child in children for each in family(int(child)))]


def resident_peak_mb(pid: int) -> float:
    """The kernel's high-water marks of a process and its family in MiB; shared pages count once for each."""
    return sum(_kilobytes(Path(f"/proc/{each}/status"), "VmHWM:") for each in family(pid)) / 1024


def _computed(pid: int) -> float:
    """User and system time of a process in seconds; its name, which stands before them, ends at the last bracket."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def machine_cpu_seconds() -> float:
    """What all processes of the machine have computed since it started."""
    user, nice, system, _, _, irq, softirq = map(int, Path("/proc/stat").read_text().split()[1:8])
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


def _kilobytes(table: Path, name: str) -> int:
    """A figure of one of the kernel's tables of a process."""
    found = next(line for line in table.read_text().splitlines() if line.startswith(name))
    return int(found.split()[1])


def disk_mb(folder: Path) -> dict[str, float]:
    """What lies in a data directory, in MiB: each file and folder at its top, and the sum."""
    sizes = {entry.name: _size(entry) / MIB for entry in sorted(folder.iterdir()) if entry.name != "static"}
    kept = {name: round(size, 2) for name, size in sizes.items() if size >= 0.01}
    return {**kept, "sum": round(sum(sizes.values()), 2)}


def _size(entry: Path) -> int:
    if entry.is_file():
        return entry.stat().st_size
    return sum(file.stat().st_size for file in entry.rglob("*") if file.is_file())
