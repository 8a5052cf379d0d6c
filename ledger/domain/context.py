"""What a context event and a correction may hold. Each check returns the value to store, or refuses."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ledger.domain.hashchain import canonical
from ledger.domain.instants import MINUTE, NotAnInstant, UnixMs, check_instant
from ledger.domain.refusals import Invalid

MAX_TEXT_BYTES = 64 * 1024
MAX_ITEM_ID = 256
MAX_OCCURRENCE = 64
MAX_WORKSPACE = 128
MAX_REASON = 2_000
MIN_REASON = 10  # of a correction: "wrong" says nothing to whoever reads it in a year
MAX_KEY = 200
MAX_TAGS = 64
MAX_TAG = 128
MAX_CLOCK_AHEAD: UnixMs = 5 * MINUTE


@dataclass(frozen=True, slots=True)
class NewContext:
    """A rationale or decision that somebody wants kept. `supersedes` is the event whose place it takes."""

    text: str
    workspace: str = ""
    item_id: str | None = None
    occurrence: str | None = None
    reason: str = ""
    supersedes: str | None = None
    occurred_at: UnixMs | None = None
    tags: tuple[str, ...] = ()


def checked(new: NewContext) -> NewContext:
    """The same with its tags in order, each once; raises Invalid, naming the field."""
    check_text(new.text, field="text")
    _line(new.workspace, field="workspace", longest=MAX_WORKSPACE)
    if new.item_id is not None:
        _line(new.item_id, field="item_id", longest=MAX_ITEM_ID, shortest=1)
    if new.occurrence is not None:
        _line(new.occurrence, field="occurrence", longest=MAX_OCCURRENCE, shortest=1)
        if new.item_id is None:
            raise Invalid("an occurrence needs the item it is one of", field="occurrence")
    _line(new.reason, field="reason", longest=MAX_REASON)
    return replace(new, tags=_tags(new.tags))


def check_occurred_at(occurred_at: UnixMs | None, *, at: UnixMs) -> None:
    """It may lie in the past, and at most five minutes ahead of this clock."""
    if occurred_at is None:
        return
    try:
        check_instant(occurred_at)
    except NotAnInstant as error:
        raise Invalid(f"occurred_at: {error}", field="occurred_at") from error
    if occurred_at > at + MAX_CLOCK_AHEAD:
        raise Invalid("occurred_at lies more than five minutes ahead", field="occurred_at")


def check_text(text: str, *, field: str) -> str:
    """Not blank, at most 64 KB, and nothing that no database stores faithfully."""
    _unicode(text, field=field)
    if not text.strip():
        raise Invalid(f"{field} must not be blank", field=field)
    size = len(text.encode())
    if size > MAX_TEXT_BYTES:
        raise Invalid(
            f"{field} is {size:,} bytes; at most {MAX_TEXT_BYTES:,} are taken", field=field, code="too_large"
        )
    return text


def check_reason(reason: str) -> str:
    """Why something is corrected: required, and long enough to tell."""
    reason = reason.strip()
    _line(reason, field="reason", longest=MAX_REASON)
    if len(reason) < MIN_REASON:
        raise Invalid(
            f"a correction needs a reason of at least {MIN_REASON} characters",
            field="reason",
            code="reason_required",
        )
    return reason


def check_key(key: str) -> str:
    """An idempotency key: 1 to 200 printable characters."""
    if not key:
        raise Invalid(
            "the header Idempotency-Key is required",
            field="Idempotency-Key",
            code="idempotency_key_required",
            hint="send a fresh unique value, and the same one again when you repeat the request",
        )
    if len(key) > MAX_KEY or not key.isprintable():
        raise Invalid(f"Idempotency-Key must be 1 to {MAX_KEY} printable characters", field="Idempotency-Key")
    return key


def metadata_of(tags: Sequence[str]) -> dict[str, str]:
    """Metadata holds strings only: tags stand in it as JSON."""
    return {"tags": canonical(list(tags)).decode()} if tags else {}


def tags_in(metadata: Mapping[str, str]) -> tuple[str, ...]:
    """The tags that metadata_of put there."""
    return tuple(json.loads(metadata.get("tags", "[]")))


def _tags(tags: Sequence[str]) -> tuple[str, ...]:
    if len(tags) > MAX_TAGS:
        raise Invalid(
            f"tags has {len(tags)} entries; at most {MAX_TAGS} are taken", field="tags", code="too_large"
        )
    for tag in tags:
        _line(tag, field="tags", longest=MAX_TAG, shortest=1)
    return tuple(sorted(set(tags)))


def _line(value: str, *, field: str, longest: int, shortest: int = 0) -> None:
    _unicode(value, field=field)
    if len(value) < shortest:
        raise Invalid(f"{field} must not be empty", field=field)
    if len(value) > longest:
        raise Invalid(
            f"{field} has {len(value):,} characters; at most {longest:,} are taken",
            field=field,
            code="too_large",
        )


def _unicode(value: str, *, field: str) -> None:
    if "\x00" in value:
        raise Invalid(f"{field} holds a NUL character", field=field)
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise Invalid(f"{field} holds half a surrogate pair: not valid Unicode", field=field) from error
