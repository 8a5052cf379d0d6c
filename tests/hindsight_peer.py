"""A Hindsight server as tests see it: a real one or the fake, behind a proxy on loopback that keeps what was asked."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import quote, urlsplit

API_KEY = "a key that only tests know"
Merge = Callable[[str, str, Sequence[str]], None]


@dataclass(frozen=True)
class Asked:
    """One request as it went over the wire; the body as JSON, None where there was none."""

    method: str
    path: str
    body: Any
    authorization: str | None


@dataclass
class Peer:
    """Where our client finds the server, what it asked, and what others do there. `merge` plants an observation:
    a text under tags, from no document and with no metadata, as the server's own consolidation makes them."""

    url: str
    upstream: str
    merge: Merge
    prefix: str = ""
    asked: list[Asked] = field(default_factory=list)

    def directly(
        self, method: str, path: str, body: Any = None, key: str = API_KEY
    ) -> tuple[int, Any, dict[str, str]]:
        """Ask the server itself, unseen by `asked`: status, JSON and headers."""
        connection = HTTPConnection(urlsplit(self.upstream).netloc, timeout=30)
        headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        sent = None if body is None else json.dumps(body)
        connection.request(method, f"/v1/default/banks/{path}", body=sent, headers=headers)
        response = connection.getresponse()
        told = response.status, json.loads(response.read()), {k.lower(): v for k, v in response.getheaders()}
        connection.close()
        return told

    def create(self, bank: str) -> None:
        status, told, _ = self.directly("PUT", quote(bank, safe=""), {})
        assert status == 200, told

    def exists(self, bank: str) -> bool:
        return self.directly("GET", f"{quote(bank, safe='')}/config")[0] == 200

    def put(self, bank: str, text: str, **fields: Any) -> None:
        """What somebody else has retained there, worked in at once."""
        body = {"items": [{"content": text, **fields}], "async": False}
        status, told, _ = self.directly("POST", f"{quote(bank, safe='')}/memories", body)
        assert status == 200, told

    def document(self, bank: str, document_id: str) -> Any:
        """The document as the server has it; None where it has none."""
        status, told, _ = self.directly("GET", f"{quote(bank, safe='')}/documents/{document_id}")
        return told if status == 200 else None


@contextmanager
def recorded(upstream: str, merge: Merge) -> Iterator[Peer]:
    """A proxy before the server, which hands on every request as it is."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def hand_on(self) -> None:
            length = int(self.headers["Content-Length"] or 0)
            sent = self.rfile.read(length) if length else None
            body = None if sent is None else json.loads(sent)
            peer.asked.append(Asked(self.command, self.path, body, self.headers["Authorization"]))
            connection = HTTPConnection(urlsplit(upstream).netloc, timeout=30)
            connection.request(self.command, self.path, body=sent, headers=dict(self.headers))
            response = connection.getresponse()
            received = response.read()
            connection.close()
            self.send_response(response.status)
            for name, value in response.getheaders():
                if name.lower() not in (
                    "date",
                    "server",
                    "connection",
                    "transfer-encoding",
                    "content-length",
                ):
                    self.send_header(name, value)
            self.send_header("Content-Length", str(len(received)))
            self.end_headers()
            self.wfile.write(received)

        do_GET = do_POST = do_PUT = do_DELETE = hand_on

        def log_message(self, *_: object) -> None:
            return

    with running(Handler) as url:
        peer = Peer(url, upstream, merge)
        yield peer


@contextmanager
def running(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """A server in a thread, by its address."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True  # one may hold a connection that was kept alive

        def handle_error(self, *_: object) -> None:
            return  # a client that hangs up at its deadline is what some tests are about

    with Server(("127.0.0.1", 0), handler) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
