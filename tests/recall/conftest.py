"""What tests of the API share: keys, and a client that speaks JSON with one of them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from django.test import Client
from hindsight_fake import FakeHindsight, fake_hindsight
from hindsight_peer import API_KEY, Peer

from recall.services import create_api_key


@dataclass(frozen=True)
class Api:
    """One key's view of the API: every call answers (status, body)."""

    client: Client
    secret: str
    key_id: str

    def call(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        response = self.raw(method, path, body, **headers)
        return response.status_code, json.loads(response.content) if response.content else None

    def raw(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        sent = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        return self.client.generic(
            method,
            path,
            sent,
            content_type="application/json",
            headers={"Authorization": f"Bearer {self.secret}", **headers},
        )

    def get(self, path: str, **query: Any) -> tuple[int, Any]:
        response = self.client.get(path, query, headers={"Authorization": f"Bearer {self.secret}"})
        return response.status_code, json.loads(response.content) if response.content else None

    def post(self, path: str, body: Any, **headers: str) -> tuple[int, Any]:
        return self.call("POST", path, body, **headers)

    def stored(self, text: str, **fields: Any) -> dict[str, Any]:
        status, memory = self.post("/v1/memories", {"text": text, **fields})
        assert status == 201, memory
        return memory

    def linked(self, source: str, target: str, type_: str, **fields: Any) -> dict[str, Any]:
        status, link = self.post("/v1/links", {"from": source, "to": target, "type": type_, **fields})
        assert status == 201, link
        return link

    def recalled(self, query: str = "", **arguments: Any) -> dict[str, Any]:
        status, answer = self.post("/v1/recall", {"query": query, **arguments})
        assert status == 200, answer
        return answer

    def texts(self, query: str = "", **arguments: Any) -> list[str]:
        return [hit["memory"]["text"] for hit in self.recalled(query, **arguments)["results"]]


@pytest.fixture
def api_for(db: None) -> Callable[..., Api]:
    """`api_for("read,write", workspace="red")`: a client with a key of its own."""

    def made(scopes: str = "read,write,admin", *, workspace: str | None = None, **fields: Any) -> Api:
        key, secret = create_api_key(
            f"key of {workspace}",
            scopes=scopes.split(","),
            workspace=workspace,
            at=time.time_ns() // 1_000_000,
            **fields,
        )
        return Api(Client(raise_request_exception=True), secret, key.id)

    return made


@pytest.fixture
def api(api_for: Callable[..., Api]) -> Api:
    """A client whose key may do everything, everywhere."""
    return api_for()


@pytest.fixture
def fake(settings: Any, other_bank: Callable[[], None]) -> Iterator[tuple[Peer, FakeHindsight]]:
    """The fake Hindsight as the installed bank; its global bank is `banks`."""
    with fake_hindsight() as (peer, server):
        settings.MEMORY_BANK = "hindsight"
        settings.HINDSIGHT = {
            "url": peer.url,
            "api_key": API_KEY,
            "bank_prefix": "banks",
            "timeout_ms": 2_000,
        }
        other_bank()
        peer.prefix = "banks"
        peer.create("banks")
        yield peer, server
        other_bank()
