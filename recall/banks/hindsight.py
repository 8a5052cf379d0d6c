"""The bank on a Hindsight server: one bank there for each workspace here.

The global workspace has the bank `<prefix>`, a workspace named in plain letters, digits, `_`, `.` and `-` has
`<prefix>.<name>`, and any other `<prefix>~<first 32 hex digits of the SHA-256 of its name>`. A workspace's bank comes
into being with its first context. The global one has to exist before: without it, address or prefix count as wrong.
"""

from __future__ import annotations

import hashlib
import re
import threading
import time
import uuid
from typing import Any

from django.conf import settings

from ledger.domain.hashchain import digest
from ledger.domain.instants import UnixMs, parse_instant
from recall.banks import MISPLACED, MISSING, UNAUTHORIZED, BankRefused, BankUnavailable, Note, Recalled
from recall.domain.context import ItemQuery, Query, Temporal
from vault.domain.access import GLOBAL
from vault.hindsight import Hindsight, HindsightFailed, Item, Result

PERMANENT = frozenset({400, 404, 409, 413, 422})  # the same request would be refused again
WATCHED_SECONDS = (
    10.0  # for an accepted text to be worked in; what takes longer is looked at by the next attempt
)
OPERATIONS = uuid.UUID("5c0f6a3e-6a0c-4d35-9c7e-6f1c2a8e9b41")  # the namespace of our operation ids
UNREACHED, ACCEPTED, FAILED = "bank_unavailable", "bank_accepted", "bank_operation_failed"
OPEN_START, OPEN_END = parse_instant("1000-01-01"), parse_instant("9000-01-01")  # ends of a time left open
_PLAIN = re.compile(r"[A-Za-z0-9_.-]{1,64}")


class HindsightBank:
    """The server that settings name (HINDSIGHT)."""

    name = "hindsight"

    def __init__(self) -> None:
        given: dict[str, Any] = settings.HINDSIGHT
        self._prefix: str = given["bank_prefix"]
        self._server = Hindsight(given["url"], api_key=given["api_key"], seconds=given["timeout_ms"] / 1000)
        self._checking = threading.Lock()
        self._found = False  # whether the global bank was seen

    def close(self) -> None:
        """Let go of the connections."""
        self._server.close()

    def retain(self, note: Note) -> str:
        bank, item = bank_of(note.workspace, prefix=self._prefix), item_of(note)
        try:
            self._require_found()
            accepted = self._server.retain(
                bank, item, operation_id=operation_id_of(bank, note.event_id, item)
            )
            return self._watched(bank, accepted)
        except HindsightFailed as failure:
            raise _of_delivery(failure, bank) from failure

    def recall(self, query: Query) -> tuple[Recalled, ...]:
        bank = bank_of(query.workspace, prefix=self._prefix)
        try:
            results = self._server.recall(
                bank,
                query.text,
                limit=query.limit,
                tags=query.tags if isinstance(query, ItemQuery) else None,
                tags_match=query.tags_match if isinstance(query, ItemQuery) else None,
                temporal=_window(query.temporal),
            )
        except HindsightFailed as failure:
            raise _unavailable(failure, bank) from failure
        return tuple(recalled(result) for result in results)

    def forget(self, workspace: str, document_id: str) -> None:
        bank = bank_of(workspace, prefix=self._prefix)
        try:
            self._require_found()
            self._server.forget(bank, document_id)
        except HindsightFailed as failure:
            raise _of_delivery(failure, bank) from failure

    def check(self) -> None:
        """Whether the global workspace's bank is there, and opens to our key."""
        bank = bank_of(GLOBAL, prefix=self._prefix)
        try:
            if not self._server.has_bank(bank):
                raise _missing(bank)
        except HindsightFailed as failure:
            raise _unavailable(failure, bank) from failure

    def _require_found(self) -> None:
        """Once a process, before the first text is sent: a retain would make a missing bank without a word."""
        with self._checking:
            if not self._found:
                self.check()
                self._found = True

    def _watched(self, bank: str, operation_id: str) -> str:
        """Wait until an accepted text can be recalled. One that had failed earlier is set going again, once."""
        deadline, pause, set_going = time.monotonic() + WATCHED_SECONDS, 0.05, False
        while (status := self._server.operation(bank, operation_id)) != "completed":
            if status in ("failed", "cancelled"):
                if set_going or not self._server.retry(bank, operation_id):
                    raise BankUnavailable(f"the server's operation {operation_id} {status}", code=FAILED)
                set_going = True
            elif status not in ("pending", "processing"):
                raise BankUnavailable(f"the server lost its operation {operation_id}", code=FAILED)
            if time.monotonic() + pause > deadline:
                raise BankUnavailable("accepted, and not worked in yet", code=ACCEPTED)
            time.sleep(pause)
            pause = min(pause * 2, 1.0)
        return operation_id


def bank_of(workspace: str, *, prefix: str) -> str:
    """The name there of a workspace's bank; no two workspaces share one."""
    if workspace == GLOBAL:
        return prefix
    if _PLAIN.fullmatch(workspace):
        return f"{prefix}.{workspace}"
    return f"{prefix}~{hashlib.sha256(workspace.encode()).hexdigest()[:32]}"


def item_of(note: Note) -> Item:
    return Item(
        content=note.text,
        timestamp=note.occurred_at,
        context=note.context,
        metadata=note.metadata,
        document_id=note.document_id,
        tags=note.tags,
    )


def operation_id_of(bank: str, event_id: str, item: Item) -> str:
    """A UUID that follows from bank, event and payload: the server drops another payload under a known id unasked."""
    return str(uuid.uuid5(OPERATIONS, f"{bank}\n{event_id}\n{digest(item.as_json())}"))


def recalled(result: Result) -> Recalled:
    return Recalled(
        text=result.text,
        context=result.context,
        document_id=result.document_id,
        source_event_id=result.metadata.get("source_event_id"),
        timestamp=result.mentioned_at if result.mentioned_at is not None else result.occurred_start,
        tags=result.tags,
        metadata=result.metadata,
        score=result.score,
        memory_id=result.id,
        merged=result.type == "observation",
    )


def _window(temporal: Temporal | None) -> tuple[UnixMs, UnixMs] | None:
    """The server wants both ends; an open one is put where nothing lies beyond."""
    if temporal is None or temporal == (None, None):
        return None
    start, end = temporal
    return (OPEN_START if start is None else start, OPEN_END if end is None else end)


def _missing(bank: str) -> BankUnavailable:
    reason = f"there is no bank {bank}: create it, or put HINDSIGHT_URL or HINDSIGHT_BANK_PREFIX right"
    return BankUnavailable(reason, code=MISSING)


def _unavailable(failure: HindsightFailed, bank: str) -> BankUnavailable:
    """Every failure, for who asks: whatever it was, the bank could not be asked."""
    if failure.no_bank:
        return _missing(bank)
    code = {401: UNAUTHORIZED, 403: UNAUTHORIZED, 404: MISPLACED}.get(failure.status or 0, UNREACHED)
    return BankUnavailable(
        failure.reason, code=code, retry_after_ms=failure.retry_after_ms, pause=failure.status == 401
    )


def _of_delivery(failure: HindsightFailed, bank: str) -> BankUnavailable | BankRefused:
    """A failure, for who delivers: some requests would be refused again, so they are not repeated."""
    if failure.status in PERMANENT:
        return BankRefused(failure.reason, code=f"bank_answered_{failure.status}")
    return _unavailable(failure, bank)
