"""A real HTTP server in a thread that answers `POST /v1/embeddings` or `/v1/rerank` as a test says."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

Answer = Callable[[BaseHTTPRequestHandler, dict[str, Any]], None]


@dataclass
class Peer:
    """Where the server is, and what it was asked."""

    url: str
    asked: list[dict[str, Any]] = field(default_factory=list)
    authorized: list[str | None] = field(default_factory=list)


@contextmanager
def serving(answer: Answer, *, path: str = "/v1/embeddings") -> Iterator[Peer]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # or each answer, sent in two pieces, takes 40 ms

        def do_POST(self) -> None:
            assert self.path == path
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            peer.asked.append(body)
            peer.authorized.append(self.headers["Authorization"])
            answer(self, body)

        def log_message(self, *_: object) -> None:
            return

    class Server(ThreadingHTTPServer):
        daemon_threads = True  # one may still be asleep, or hold a connection that was kept alive

        def handle_error(self, *_: object) -> None:
            return  # a client that hangs up at its deadline is what some tests are about

    with Server(("127.0.0.1", 0), Handler) as server:
        peer = Peer(f"http://127.0.0.1:{server.server_port}/v1")
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield peer
        finally:
            server.shutdown()
            thread.join()


def send(handler: BaseHTTPRequestHandler, body: bytes, *, status: int = 200) -> None:
    handler.send_response(status)
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)


def embeddings(vectors: Sequence[Any]) -> bytes:
    """The body that OpenAI documents; in the reverse order, since only the index counts."""
    entries = [
        {"object": "embedding", "index": place, "embedding": vector} for place, vector in enumerate(vectors)
    ]
    return json.dumps({"object": "list", "data": entries[::-1], "model": "m"}).encode()
