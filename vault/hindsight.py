"""A Hindsight server over HTTP: the six requests that a bank needs, each body whole and each answer checked.

Measured on 0.10.1 and 1.1.0 (behaviour.md, section 9). Nothing is tried twice here, and nothing of a question or an
answer is logged or told in an error: answers can hold texts, and errors repeat what was sent.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import quote

from ledger.domain.instants import SECOND, NotAnInstant, UnixMs, format_instant, parse_instant
from vault.wire import Answer, BadAnswer, NoAnswer, answered, client

ANSWER_BYTES = 32 * 1024 * 1024
TOKENS_PER_RESULT = 1024  # a chunk of the server is about 750; what does not fit the sum is left out unasked
IGNORED = "X-Ignored-Params"  # in which the server names the fields that it did not understand
NO_DOCUMENT = "Document not found"


class HindsightFailed(Exception):
    """What went wrong, as facts: a status or None, what the server asks to wait, and whether a bank is missing."""

    def __init__(
        self,
        reason: str,
        *,
        status: int | None = None,
        retry_after_ms: int | None = None,
        no_bank: bool = False,
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.status = status
        self.retry_after_ms = retry_after_ms
        self.no_bank = no_bank


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """What is retained: one document, told whole. The same `document_id` again replaces the document."""

    content: str
    timestamp: UnixMs
    context: str
    metadata: Mapping[str, str]
    document_id: str
    tags: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        return {
            "content": self.content,
            "timestamp": format_instant(self.timestamp),
            "context": self.context,
            "metadata": dict(self.metadata),
            "document_id": self.document_id,
            "tags": list(self.tags),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """A memory as recalled. What others retained may have no document, metadata, tags or time."""

    id: str
    text: str
    context: str
    document_id: str | None
    metadata: dict[str, str]
    tags: tuple[str, ...]
    mentioned_at: UnixMs | None
    occurred_start: UnixMs | None
    score: float | None
    type: str | None = None


class Hindsight:
    """One server. Every request is answered within `seconds`, or fails. Raises HindsightFailed."""

    def __init__(self, url: str, *, api_key: str | None, seconds: float) -> None:
        self._banks = url.rstrip("/") + "/v1/default/banks/"
        self._seconds = seconds
        self._client = client(api_key)

    def close(self) -> None:
        """Let go of the connections."""
        self._client.close()

    def has_bank(self, bank: str) -> bool:
        """Whether the bank exists. Neither recall nor this makes one; a retain does, without a word."""
        answer = self._ask("GET", bank, "/config", None)
        if answer.status == 404 and _names_no_bank(answer):
            return False
        _object(_succeeded(answer))
        return True

    def retain(self, bank: str, item: Item, *, operation_id: str) -> str:
        """Hand over one document; gives the operation to watch, because 200 means accepted and no more.

        The same `operation_id` (a UUID) again is no new work, whatever it is sent with.
        """
        body = {"items": [item.as_json()], "async": True, "operation_id": operation_id}
        told = _object(_succeeded(self._ask("POST", bank, "/memories", body)))
        accepted = told.get("operation_id")
        if told.get("success") is not True or not isinstance(accepted, str):
            raise HindsightFailed("accepted a text without naming its operation")
        return accepted

    def operation(self, bank: str, operation_id: str) -> str:
        """How far it is: pending, processing, completed, failed, cancelled or not_found."""
        path = f"/operations/{quote(operation_id, safe='')}"
        status = _object(_succeeded(self._ask("GET", bank, path, None))).get("status")
        if not isinstance(status, str):
            raise HindsightFailed("answered without the status of an operation")
        return status

    def retry(self, bank: str, operation_id: str) -> bool:
        """Have a failed operation done again; False if it cannot be. Sent again it would stay the failed one."""
        path = f"/operations/{quote(operation_id, safe='')}/retry"
        answer = self._ask("POST", bank, path, None)
        if answer.status in (404, 409):
            return False
        _succeeded(answer)
        return True

    def recall(
        self,
        bank: str,
        query: str,
        *,
        limit: int,
        tags: Sequence[str] | None = None,
        tags_match: str | None = None,
        temporal: tuple[UnixMs, UnixMs] | None = None,
    ) -> list[Result]:
        """The first results, best first. Without tags the whole bank is asked. `temporal` orders, and leaves none out.

        No observations: they merge texts of several items under the tags of all, and name no source.
        """
        body: dict[str, Any] = {
            "query": query,
            "types": ["world", "experience"],
            "prefer_observations": False,
            "include": {"entities": None},
            "budget": "mid",
            "max_tokens": TOKENS_PER_RESULT * limit,
            "trace": False,
        }
        if tags is not None:
            if not tags:
                raise ValueError("no tags would ask the whole bank")
            body |= {"tags": list(tags), "tags_match": tags_match}
        if temporal is not None:
            body["temporal_window"] = {
                "start": format_instant(temporal[0]),
                "end": format_instant(temporal[1]),
            }
        answer = _succeeded(self._ask("POST", bank, "/memories/recall", body))
        if answer.headers.get(IGNORED):
            raise HindsightFailed(f"does not understand {', '.join(_ignored(answer))} of a recall")
        results = _object(answer).get("results")
        if not isinstance(results, list):
            raise HindsightFailed("answered a recall without a list of results")
        return [_result(entry) for entry in results[:limit]]

    def forget(self, bank: str, document_id: str) -> bool:
        """Delete a document and all that was taken from it; False if it was not there."""
        answer = self._ask("DELETE", bank, f"/documents/{quote(document_id, safe='')}", None)
        if answer.status == 404 and _detail(answer) == NO_DOCUMENT:
            return False
        _succeeded(answer)
        return True

    def _ask(self, method: str, bank: str, path: str, body: Any) -> Answer:
        address = self._banks + quote(bank, safe="") + path
        limit = time.monotonic() + self._seconds
        try:
            return answered(self._client, method, address, body, limit=limit, most=ANSWER_BYTES)
        except (BadAnswer, NoAnswer) as error:
            raise HindsightFailed(str(error)) from None


def _succeeded(answer: Answer) -> Answer:
    if answer.status == 200:
        return answer
    raise HindsightFailed(
        f"answered with status {answer.status}",
        status=answer.status,
        retry_after_ms=_retry_after(answer),
        no_bank=answer.status == 404 and _names_no_bank(answer),
    )


def _detail(answer: Answer) -> str:
    """What an error says; empty where it is not the server's own (a proxy's page, say)."""
    try:
        told = json.loads(answer.body)
    except (ValueError, RecursionError):
        return ""
    detail = told.get("detail") if isinstance(told, dict) else None
    return detail if isinstance(detail, str) else ""


def _names_no_bank(answer: Answer) -> bool:
    """A missing bank is told apart from an address that is not Hindsight's, which answers 404 too."""
    detail = _detail(answer)
    return detail.startswith("Bank ") and detail.endswith(" not found")


def _ignored(answer: Answer) -> list[str]:
    """The fields that the server named, of those that a recall has: a header is not to put words in our mouth."""
    ours = ("types", "prefer_observations", "include", "budget", "max_tokens", "trace", "tags", "tags_match")
    named = {name.strip() for name in answer.headers[IGNORED].split(",")}
    return [name for name in (*ours, "temporal_window") if name in named] or ["something"]


def _retry_after(answer: Answer) -> int | None:
    """`Retry-After` in ms: seconds, or a date that is compared with the server's own clock."""
    said = answer.headers.get("Retry-After", "").strip()
    if said.isascii() and said.isdigit():
        return int(said[:9]) * SECOND
    try:
        wait = parsedate_to_datetime(said) - parsedate_to_datetime(answer.headers.get("Date", ""))
    except (ValueError, TypeError):  # neither form, or no clock to compare with: nothing was asked for
        return None
    return max(0, round(wait.total_seconds() * SECOND))


def _object(answer: Answer) -> dict[str, Any]:
    try:
        told = json.loads(answer.body)
    except (ValueError, RecursionError):
        raise HindsightFailed("answered with something that is not JSON") from None
    if not isinstance(told, dict):
        raise HindsightFailed("answered with JSON that is not an object")
    return told


def _result(entry: Any) -> Result:
    if not isinstance(entry, dict):
        raise HindsightFailed("answered a result that is not an object")
    scores = entry.get("scores")
    return Result(
        id=_text(entry, "id"),
        text=_text(entry, "text"),
        context=_optional(entry, "context") or "",
        document_id=_optional(entry, "document_id"),
        metadata=_metadata(entry.get("metadata")),
        tags=_tags(entry.get("tags")),
        mentioned_at=_instant(entry, "mentioned_at"),
        occurred_start=_instant(entry, "occurred_start"),
        score=_number(scores.get("final")) if isinstance(scores, dict) else None,
        type=_optional(entry, "type"),
    )


def _text(entry: Mapping[str, Any], name: str) -> str:
    value = _optional(entry, name)
    if value is None:
        raise HindsightFailed(f"answered a result without {name}")
    return value


def _optional(entry: Mapping[str, Any], name: str) -> str | None:
    value = entry.get(name)
    if value is not None and not isinstance(value, str):
        raise HindsightFailed(f"answered a result whose {name} is not a string")
    return value


def _metadata(value: Any) -> dict[str, str]:
    if value is None:
        return {}
    if not isinstance(value, dict) or not all(isinstance(one, str) for one in value.values()):
        raise HindsightFailed("answered a result whose metadata is not an object of strings")
    return value


def _tags(value: Any) -> tuple[str, ...]:
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(tag, str) for tag in value):
        raise HindsightFailed("answered a result whose tags are not a list of strings")
    return tuple(value)


def _instant(entry: Mapping[str, Any], name: str) -> UnixMs | None:
    value = _optional(entry, name)
    try:
        return None if value is None else parse_instant(value)
    except NotAnInstant:
        raise HindsightFailed(f"answered a result whose {name} is not an instant") from None


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
