"""Asking a server over HTTP, the one way: a bounded answer by an instant, or a reason without address, key or text.

The only module that knows httpx. Its timeouts bound each wait for bytes, and a peer that sends one byte a second never
runs into them, not even in its headers. Here what is left until the caller's instant bounds every wait, so the sum is
bounded too. (What a name's look-up takes is the system's affair.)
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import httpx


class NoAnswer(Exception):
    """Nobody answered, or the answer broke off; the message says how."""


class Late(NoAnswer):
    """The answer was not complete by the caller's instant."""


class BadAnswer(Exception):
    """The server answered with what cannot be the answer; the message says what."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Status, headers (by names in any case) and the whole body."""

    status: int
    headers: Mapping[str, str]
    body: bytes


_asking = threading.local()  # .limit: the monotonic instant by which this thread wants its answer


def client(api_key: str | None) -> httpx.Client:
    """Connections to one server that are kept; `api_key` goes along as a bearer token."""
    key = f"Bearer {api_key}".encode()
    made = httpx.Client(headers={b"Authorization": key} if api_key else None)
    transports: list[Any] = [made._transport, *made._mounts.values()]  # a mount is a proxy of the environment
    for transport in transports:
        if transport is not None:  # an exception from the proxy
            # httpx hands no backend through, httpcore takes one: a test fails where these names change.
            transport._pool._network_backend = _Timely(transport._pool._network_backend)
    return made


class _Timely:
    """httpcore's network, or a connection made by it, that waits no longer than what is left to this thread."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def connect_tcp(self, host: str, port: int, timeout: float | None = None, **options: Any) -> _Timely:
        return _Timely(self._inner.connect_tcp(host, port, timeout=_left(timeout), **options))

    def start_tls(
        self, ssl_context: Any, hostname: str | None = None, timeout: float | None = None
    ) -> _Timely:
        return _Timely(self._inner.start_tls(ssl_context, hostname, _left(timeout)))

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        received: bytes = self._inner.read(max_bytes, _left(timeout))
        return received

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._inner.write(buffer, _left(timeout))


def _left(timeout: float | None) -> float:
    left: float = _asking.limit - time.monotonic()
    if left <= 0:
        raise Late
    return left if timeout is None else min(left, timeout)


def answered(
    client: httpx.Client, method: str, address: str, body: Any = None, *, limit: float, most: int
) -> Answer:
    """The answer to one request, whatever its status, by the monotonic instant `limit`; `body` goes as JSON.

    Nothing is tried twice, and no redirect is followed. Raises NoAnswer, Late, or BadAnswer for more than `most` bytes.
    """
    _asking.limit = limit
    try:
        with client.stream(
            method, address, json=body, timeout=max(limit - time.monotonic(), 0.001)
        ) as response:
            received = bytearray()
            for piece in response.iter_bytes():
                received += piece
                if len(received) > most:
                    raise BadAnswer(f"answered with more than {most} bytes")
            return Answer(response.status_code, response.headers, bytes(received))
    except httpx.TimeoutException:
        raise Late("no answer in time") from None
    except Late:
        raise Late("no answer in time") from None
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        # Without its words and without the cause: they can hold the address or the header with the key.
        raise NoAnswer(f"no answer: {type(error).__name__}") from None


def asked(client: httpx.Client, address: str, body: dict[str, Any], *, limit: float, most: int) -> bytes:
    """The body of a POST's answer with status 200; raises as `answered` does, and BadAnswer for any other status."""
    answer = answered(client, "POST", address, body, limit=limit, most=most)
    if answer.status != 200:
        raise BadAnswer(f"answered with status {answer.status}")
    return answer.body
