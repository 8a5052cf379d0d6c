"""A Hindsight server without a database or a model: what our client asks of it, with the quirks measured on real ones.

Every quirk here is held to the real servers by tests/contracts/test_bank_contract.py, which runs against all of them.
"""

from __future__ import annotations

import json
import re
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import unquote, urlsplit

from hindsight_peer import API_KEY, Peer, recorded, running

WORKED_IN_AFTER = 0.05  # seconds from accepted to recallable
CHUNK = 3000  # characters of a text that become one memory
WORD = re.compile(r"\w+")
RECALL_FIELDS = frozenset(
    "query types prefer_observations budget max_tokens trace query_timestamp include tags tags_match tag_groups "
    "min_scores temporal_window".split()
)
BUDGETS = ("low", "mid", "high")
Told = tuple[int, Any, dict[str, str]]


@dataclass
class _Unit:
    text: str
    tags: list[str]
    type: str = "world"
    document_id: str | None = None
    metadata: dict[str, str] | None = None
    context: str | None = None
    mentioned_at: str | None = None
    id: str = field(default_factory=lambda: str(uuid.uuid4()))


@dataclass
class _Operation:
    bank: str
    items: list[dict[str, Any]]
    due: float
    status: str = "pending"


class _Refused(Exception):
    def __init__(self, status: int, detail: Any) -> None:
        super().__init__(detail)
        self.told = status, {"detail": detail}, dict[str, str]()


@dataclass
class FakeHindsight:
    """Banks of memories, documents and operations. `failing` operations fail the next so many times."""

    banks: dict[str, list[_Unit]] = field(default_factory=dict)
    documents: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    operations: dict[str, _Operation] = field(default_factory=dict)
    failing: int = 0
    lock: threading.RLock = field(default_factory=threading.RLock)

    def answer(self, method: str, path: str, body: Any, key: str | None) -> Told:
        if key != f"Bearer {API_KEY}":
            return 401, {"detail": "Invalid API key"}, {}
        with self.lock:
            self._work_in()
            for verb, pattern, answer in ROUTES:
                found = re.fullmatch(pattern, path)
                if found is not None and verb == method:
                    try:
                        return answer(self, body, **{k: unquote(v) for k, v in found.groupdict().items()})
                    except _Refused as refused:
                        return refused.told
        return 404, {"detail": "Not Found"}, {}

    def merge(self, bank: str, text: str, tags: Sequence[str]) -> None:
        with self.lock:
            self.banks.setdefault(bank, []).append(_Unit(text, list(tags), type="observation"))

    # ---- what it answers

    def create(self, body: Any, *, bank: str) -> Told:
        self.banks.setdefault(bank, [])
        return 200, {"bank_id": bank, "name": bank}, {}

    def config(self, body: Any, *, bank: str) -> Told:
        self._require(bank)
        return 200, {"bank_id": bank, "config": {}, "overrides": {}}, {}

    def retain(self, body: Any, *, bank: str) -> Told:
        _check_retain(body)
        operation_id = body.get("operation_id")
        known = self.operations.get(operation_id) if body.get("async") else None
        if known is not None and known.bank != bank:
            raise _Refused(409, f"operation_id {operation_id} is already in use")
        self.banks.setdefault(bank, [])  # an unknown bank comes into being, without a word
        told = {"success": True, "bank_id": bank, "items_count": len(body["items"]), "async": False}
        if not body.get("async"):
            self._keep(bank, body["items"])
            return 200, {**told, "operation_id": None}, {}
        operation_id = operation_id or str(uuid.uuid4())
        if known is None:  # a known one drops what came with it, without a word
            due = time.monotonic() + WORKED_IN_AFTER
            self.operations[operation_id] = _Operation(bank, body["items"], due)
        return 200, {**told, "async": True, "operation_id": operation_id}, {}

    def operation(self, body: Any, *, bank: str, operation: str) -> Told:
        known = self.operations.get(operation)
        status = known.status if known is not None and known.bank == bank else "not_found"
        return 200, {"operation_id": operation, "status": status, "error_message": None}, {}

    def retry(self, body: Any, *, bank: str, operation: str) -> Told:
        known = self.operations.get(operation)
        if known is None or known.bank != bank:
            raise _Refused(404, f"Operation {operation} not found for bank {bank}")
        if known.status != "failed":
            raise _Refused(409, "nothing to retry")
        known.status, known.due = "pending", time.monotonic() + WORKED_IN_AFTER
        return 200, {"success": True, "operation_id": operation}, {}

    def recall(self, body: Any, *, bank: str) -> Told:
        if not WORD.search(body["query"]) or body.get("budget", "mid") not in BUDGETS:
            raise _Refused(422, [{"type": "value_error", "loc": ["body", "query"], "input": body["query"]}])
        self._require(bank)
        types = body.get("types") or ["world", "experience", "observation"]
        wanted = set(WORD.findall(body["query"].lower()))
        scored = [
            (len(wanted & set(WORD.findall(unit.text.lower()))), unit)
            for unit in self.banks[bank]
            if unit.type in types
            and _tags_match(unit.tags, body.get("tags") or [], body.get("tags_match", "any"))
        ]
        found = sorted((pair for pair in scored if pair[0]), key=lambda pair: -pair[0])
        room, results = body.get("max_tokens", 4096), []
        for score, unit in found:
            room -= len(unit.text) // 4
            if room >= 0:
                results.append(_result(unit, score / len(wanted)))
        ignored = sorted(set(body) - RECALL_FIELDS)
        return (
            200,
            {"results": results, "trace": None, "entities": None, "chunks": None},
            {"X-Ignored-Params": ", ".join(ignored)} if ignored else {},
        )

    def document(self, body: Any, *, bank: str, document: str) -> Told:
        if (bank, document) not in self.documents:
            raise _Refused(404, "Document not found")
        return 200, self.documents[bank, document], {}

    def forget(self, body: Any, *, bank: str, document: str) -> Told:
        if self.documents.pop((bank, document), None) is None:
            raise _Refused(404, "Document not found")  # whether the bank exists or not
        self._drop(bank, document)
        return 200, {"success": True, "document_id": document}, {}

    # ---- what it keeps

    def _require(self, bank: str) -> None:
        if bank not in self.banks:
            raise _Refused(404, f"Bank '{bank}' not found")

    def _work_in(self) -> None:
        for operation in self.operations.values():
            if operation.status == "pending" and operation.due <= time.monotonic():
                if self.failing:
                    self.failing -= 1
                    operation.status = "failed"
                    continue
                self._keep(operation.bank, operation.items)
                operation.status = "completed"

    def _keep(self, bank: str, items: Sequence[dict[str, Any]]) -> None:
        for item in items:
            document = item.get("document_id") or str(uuid.uuid4())
            self._drop(bank, document)
            text, tags, metadata = item["content"], item.get("tags") or [], item.get("metadata") or {}
            self.documents[bank, document] = {
                "id": document,
                "bank_id": bank,
                "original_text": text,
                "tags": sorted(tags),
                "document_metadata": metadata,
            }
            self.banks[bank] += [
                _Unit(
                    text[start : start + CHUNK],
                    tags,
                    document_id=document,
                    metadata=metadata,
                    context=item.get("context", ""),
                    mentioned_at=item.get("timestamp"),
                )
                for start in range(0, len(text), CHUNK)
            ]

    def _drop(self, bank: str, document: str) -> None:
        self.banks[bank] = [unit for unit in self.banks[bank] if unit.document_id != document]


BANK = r"/v1/default/banks/(?P<bank>[^/]+)"
ROUTES: list[tuple[str, str, Callable[..., Told]]] = [
    ("PUT", BANK, FakeHindsight.create),
    ("GET", rf"{BANK}/config", FakeHindsight.config),
    ("POST", rf"{BANK}/memories", FakeHindsight.retain),
    ("POST", rf"{BANK}/memories/recall", FakeHindsight.recall),
    ("GET", rf"{BANK}/operations/(?P<operation>[^/]+)", FakeHindsight.operation),
    ("POST", rf"{BANK}/operations/(?P<operation>[^/]+)/retry", FakeHindsight.retry),
    ("GET", rf"{BANK}/documents/(?P<document>.+)", FakeHindsight.document),
    ("DELETE", rf"{BANK}/documents/(?P<document>.+)", FakeHindsight.forget),
]


def _check_retain(body: Any) -> None:
    for place, item in enumerate(body["items"]):
        for name, value in (item.get("metadata") or {}).items():
            if not isinstance(value, str):
                raise _Refused(422, [{"loc": ["body", "items", place, "metadata", name], "input": value}])
    if body.get("operation_id") is not None:
        try:
            uuid.UUID(body["operation_id"])
        except ValueError:
            raise _Refused(422, [{"loc": ["body", "operation_id"]}]) from None


def _tags_match(has: Sequence[str], asked: Sequence[str], how: str) -> bool:
    """No tags asked for are no filter, however strict; except that `exact` then means untagged."""
    have, want = set(has), set(asked)
    if how == "exact":
        return have == want
    if not want:
        return True
    if not have:
        return not how.endswith("_strict")
    return want <= have if how.startswith("all") else bool(want & have)


def _result(unit: _Unit, score: float) -> dict[str, Any]:
    return {
        "id": unit.id,
        "text": unit.text,
        "type": unit.type,
        "entities": None,
        "context": unit.context,
        "occurred_start": None,
        "occurred_end": None,
        "mentioned_at": unit.mentioned_at,
        "document_id": unit.document_id,
        "metadata": unit.metadata,
        "chunk_id": None,
        "tags": unit.tags,
        "scores": {"final": score, "reranker": None, "semantic": None, "keyword": None},
    }


@contextmanager
def fake_hindsight() -> Iterator[tuple[Peer, FakeHindsight]]:
    """The fake behind the recording proxy, as a real one is."""
    fake = FakeHindsight()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def tell(self) -> None:
            length = int(self.headers["Content-Length"] or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            path = urlsplit(self.path).path
            status, told, headers = fake.answer(self.command, path, body, self.headers["Authorization"])
            sent = json.dumps(told).encode()
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(sent)))
            self.end_headers()
            self.wfile.write(sent)

        do_GET = do_POST = do_PUT = do_DELETE = tell

        def log_message(self, *_: object) -> None:
            return

    with running(Handler) as url, recorded(url, fake.merge) as peer:
        yield peer, fake
