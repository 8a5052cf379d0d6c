"""Asking a model's server over HTTP: one bounded answer, or a reason that holds no address, key or text."""

from __future__ import annotations

import time
from typing import Any

import httpx


class BadAnswer(Exception):
    """The server answered with what cannot be the answer; the message says what."""


def asked(client: httpx.Client, address: str, body: dict[str, Any], *, limit: float, most: int) -> bytes:
    """The body of the answer to a POST, of at most `most` bytes, by the monotonic instant `limit`.

    No single wait lasts longer than what is left now; the sum is checked between. Raises BadAnswer, or what httpx
    raises, httpx.ReadTimeout for the sum too.
    """
    left = max(limit - time.monotonic(), 0.001)
    with client.stream("POST", address, json=body, timeout=left) as response:
        if response.status_code != 200:
            raise BadAnswer(f"answered with status {response.status_code}")
        received = bytearray()
        for piece in response.iter_bytes():
            received += piece
            if time.monotonic() >= limit:
                raise httpx.ReadTimeout("the sum of all waits")
            if len(received) > most:
                raise BadAnswer(f"answered with more than {most} bytes")
    return bytes(received)
