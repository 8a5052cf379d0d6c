"""`manage.py serve` as it is run: a real process, a real socket, real signals, and kill -9."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROWS = 50  # in each bulk

pytestmark = pytest.mark.slow


@pytest.fixture
def house(tmp_path: Path, manage: Callable[..., subprocess.CompletedProcess[str]]) -> tuple[Path, str]:
    """A migrated data directory, and a key that may do everything."""
    assert manage("migrate").returncode == 0
    made = manage("create_api_key", "tester", "--scopes", "read,write,admin", "--json")
    return tmp_path / "var", json.loads(made.stdout)["key"]


@contextmanager
def serving(folder: Path, *, workers: int = 2) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """The server, in a process group of its own, once it is ready; killed at the end if it still runs."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with (folder / "serve.log").open("wb") as log:
        process = subprocess.Popen(
            [
                sys.executable,
                str(ROOT / "manage.py"),
                "serve",
                "--port",
                str(port),
                "--workers",
                str(workers),
            ],
            env={**os.environ, "DJANGO_SETTINGS_MODULE": "recall.settings", "RECALL_DATA_DIR": str(folder)},
            stdout=subprocess.DEVNULL,
            stderr=log,
            start_new_session=True,
        )
    try:
        wait_until_ready(process, port)
        yield process, port
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def wait_until_ready(process: subprocess.Popen[bytes], port: int) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=5)) as connection:
                connection.request("GET", "/readyz")
                answer = connection.getresponse()
                assert answer.status == 200, answer.read()
                return
        except OSError:
            time.sleep(0.05)
    pytest.fail(f"the server is not ready; exit status {process.poll()}")


def asked(
    connection: http.client.HTTPConnection, method: str, path: str, key: str, body: Any = None
) -> tuple[int, Any]:
    sent = None if body is None else json.dumps(body).encode()
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    connection.request(method, path, body=sent, headers=headers)
    answer = connection.getresponse()
    content = answer.read()
    return answer.status, json.loads(content) if content else None


def fastest(times: int, ask: Callable[[], Any]) -> float:
    """Seconds of the fastest of some calls: what waits for a timer waits every time, what is busy does not."""
    spent = []
    for _ in range(times):
        began = time.perf_counter()
        ask()
        spent.append(time.perf_counter() - began)
    return min(spent)


def test_it_recalls_over_one_connection_without_waiting_for_a_delayed_acknowledgement(
    house: tuple[Path, str],
) -> None:
    folder, key = house
    with serving(folder) as (_, port), closing(http.client.HTTPConnection("127.0.0.1", port)) as line:
        assert asked(line, "POST", "/v1/memories", key, {"text": "the fence is green"})[0] == 201
        status, answer = asked(line, "POST", "/v1/recall", key, {"query": "fence", "profile": "validity"})
        assert (status, answer["count"]) == (200, 1)
        status, record = asked(line, "GET", f"/v1/recalls/{answer['recall_id']}", key)
        assert (status, record["digest"] != "") == (200, True)
        held = line.sock
        # Headers and body in two packets wait 40 ms for each other unless TCP_NODELAY is set; a HEAD has one.
        alone = fastest(20, lambda: asked(line, "HEAD", "/v1/memories?limit=1", key))
        both = fastest(20, lambda: asked(line, "GET", "/v1/memories?limit=1", key))
        health = fastest(20, lambda: asked(line, "GET", "/healthz", key))
        recall = fastest(20, lambda: asked(line, "POST", "/v1/recall", key, {"query": "fence"}))
        assert line.sock is held, "one connection carried it all"
        assert both - alone < 0.030, (both, alone)
        assert recall - health < 0.030, (recall, health)


def test_bad_requests_over_the_socket_are_told_in_the_envelope(house: tuple[Path, str]) -> None:
    folder, key = house
    with (
        serving(folder, workers=1) as (_, port),
        closing(http.client.HTTPConnection("127.0.0.1", port)) as line,
    ):
        for method, path, status in (
            ("POST", "/v1/nothing", 404),
            ("GET", "/v1/memories?limit=0", 400),
            ("GET", "/v1/memories/%00", 404),
            ("GET", "/v1/memories/%ff", 404),
            ("PUT", "/v1/recall", 405),
        ):
            told = asked(line, method, path, key, {})
            assert (told[0], set(told[1])) == (status, {"error"}), path
        assert asked(line, "GET", "/v1/recall?query=" + "x" * 4_096, key)[0] == 200
        assert asked(line, "GET", "/v1/recall?query=" + "x" * 4_097, key)[1]["error"]["field"] == "query"
        assert asked(line, "GET", "/v1/memories", "wrong")[0] == 401
        line.request("GET", "/v1/memories", headers={"Host": "evil.example"})
        answer = line.getresponse()
        assert (answer.status, set(json.loads(answer.read()))) == (400, {"error"})


@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_within_seconds_even_with_a_connection_held_open(
    house: tuple[Path, str], sign: signal.Signals
) -> None:
    folder, key = house
    with serving(folder) as (process, port), closing(http.client.HTTPConnection("127.0.0.1", port)) as line:
        assert asked(line, "GET", "/v1/memories", key)[0] == 200
        process.send_signal(sign)
        assert process.wait(timeout=15) == 0
        with pytest.raises(OSError, match="refused"):
            socket.create_connection(("127.0.0.1", port), timeout=2)


def test_it_refuses_to_start_unmigrated_or_unguarded(
    tmp_path: Path, manage: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    unmigrated = manage("serve", "--port", "0", timeout=60)
    assert (unmigrated.returncode, "run manage.py migrate" in unmigrated.stderr) == (1, True)
    assert manage("migrate").returncode == 0
    with closing(sqlite3.connect(tmp_path / "var" / "recall.sqlite3")) as database:
        database.execute("DROP TRIGGER ledger_contextevent_no_delete")
    unguarded = manage("serve", "--port", "0", timeout=60)
    assert (unguarded.returncode, "ledger_contextevent_no_delete" in unguarded.stderr) == (1, True)
    assert "Traceback" not in unmigrated.stderr + unguarded.stderr


def test_kill_9_during_bulk_loses_nothing_acknowledged_and_leaves_nothing_by_half(
    house: tuple[Path, str], manage: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    folder, key = house
    acknowledged: list[str] = []
    for kill in range(3):
        with serving(folder) as (process, port):
            threads = [threading.Thread(target=feed, args=(port, key, acknowledged)) for _ in range(2)]
            enough = len(acknowledged) + 4 * ROWS
            for thread in threads:
                thread.start()
            deadline = time.monotonic() + 30
            while len(acknowledged) < enough and time.monotonic() < deadline:
                time.sleep(0.001)
            time.sleep(0.003 * kill)  # at another moment of a bulk each time
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            for thread in threads:
                thread.join()
        require_whole(folder, acknowledged)
    assert manage("verify_ledger").returncode == 0
    with (
        serving(folder, workers=1) as (_, port),
        closing(http.client.HTTPConnection("127.0.0.1", port)) as line,
    ):
        status, answer = asked(line, "POST", "/v1/recall", key, {"query": "fence", "limit": 5})
        assert (status, answer["count"]) == (200, 5)


def feed(port: int, key: str, acknowledged: list[str]) -> None:
    """Write bulks until the server is gone; note each id that it answered for."""
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=30)) as line:
        try:
            while True:
                rows = [{"text": f"fence {n} " + "word " * 50, "tags": ["t"]} for n in range(ROWS)]
                status, told = asked(line, "POST", "/v1/memories/bulk", key, {"memories": rows})
                assert (status, told["created"]) == (207, ROWS)
                acknowledged += [entry["id"] for entry in told["memories"]]
        except (OSError, http.client.HTTPException):
            return


def require_whole(folder: Path, acknowledged: list[str]) -> None:
    with closing(sqlite3.connect(folder / "recall.sqlite3")) as database:

        def column(sql: str) -> list[Any]:
            return [row[0] for row in database.execute(sql)]

        stored = column("SELECT id FROM vault_memory ORDER BY id")
        assert set(acknowledged) <= set(stored)
        assert len(stored) % ROWS == 0, "a bulk is there whole or not at all"
        told = "SELECT subject_id FROM ledger_contextevent WHERE kind = 'memory_created' ORDER BY subject_id"
        assert column(told) == stored
        (workspace, counted), *others = database.execute(
            "SELECT id, memories FROM vault_workspace"
        ).fetchall()
        assert (others, counted) == ([], len(stored))
        assert column(f"SELECT count(*) FROM vault_fts_{workspace}_docsize") == [len(stored)]
        index = f"vault_fts_{workspace}"
        assert column(f"SELECT count(*) FROM {index} WHERE {index} MATCH 'fence'") == [len(stored)]
        assert column("SELECT count(*) FROM vault_memorytag") == [len(stored)]
        assert column("PRAGMA integrity_check") == ["ok"]


NO_REQUESTS = [
    (b"whispered nonsense\r\n\r\n", 400, "malformed"),
    (b"GET /v1/recall?query=whispered" + b"a" * 9_000 + b" HTTP/1.1\r\n\r\n", 414, "too_large"),
    (b"GET /healthz HTTP/1.1\r\nX: " + b"whispered" * 2_000 + b"\r\n\r\n", 431, "too_large"),
]


def test_what_is_no_request_is_refused_in_the_envelope_and_not_logged(house: tuple[Path, str]) -> None:
    folder, _ = house
    with serving(folder) as (_, port):
        for sent, status, code in NO_REQUESTS:
            with socket.create_connection(("127.0.0.1", port), 5) as line:
                line.sendall(sent)
                head, _, body = line.makefile("rb").read().partition(b"\r\n\r\n")
            assert head.startswith(f"HTTP/1.1 {status} ".encode())
            assert json.loads(body)["error"]["code"] == code

    assert "whispered" not in (folder / "serve.log").read_text()


def test_a_connection_goes_on_after_a_body_that_was_too_large(house: tuple[Path, str]) -> None:
    folder, key = house
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    with serving(folder) as (_, port), closing(http.client.HTTPConnection("127.0.0.1", port)) as line:
        line.request("POST", "/v1/memories", b'{"text": "' + b"a" * 3_000_000 + b'"}', headers)
        refused = line.getresponse()
        told = json.loads(refused.read())
        line.request("GET", "/healthz")
        after = line.getresponse().status

    assert (refused.status, told["error"]["code"], after) == (413, "too_large", 200)


def test_static_files_are_collected_anew_only_when_they_changed(house: tuple[Path, str]) -> None:
    folder, _ = house
    with serving(folder):
        collected = folder / "static" / "staticfiles.json"
        first = collected.stat().st_mtime_ns
    with serving(folder):
        assert collected.stat().st_mtime_ns == first
    (folder / "static.collected").write_text("other files")
    with serving(folder):
        assert collected.stat().st_mtime_ns > first
