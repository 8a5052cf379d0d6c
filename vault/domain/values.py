"""What a memory and a link may hold. Each check returns the value to store, or refuses, naming the field."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ledger.domain.hashchain import canonical
from ledger.domain.instants import MINUTE, NotAnInstant, UnixMs, check_instant, format_instant
from ledger.domain.refusals import Invalid
from vault.domain.facts import PROVENANCE_CLASSES, STATUSES
from vault.domain.links import LINK_TYPES

MAX_TEXT_BYTES = 64 * 1024
MAX_QUERY_BYTES = 4 * 1024
MAX_METADATA_BYTES = 16 * 1024
MAX_TAGS = 64
MAX_TAG = 128
MAX_WORKSPACE = 128
MAX_CATEGORY = 128
MAX_EXTERNAL_ID = 256
MAX_REASON = 2_000
MAX_DEPTH = 32
MAX_CLOCK_AHEAD: UnixMs = 5 * MINUTE

_ESCAPED_NUL = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")  # and not a text that spells a backslash and u0000
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def check_text(value: str, *, field: str = "text", max_bytes: int = MAX_TEXT_BYTES) -> str:
    """A text that is not blank, holds no NUL, and fits."""
    check_unicode(value, field=field)
    if not value.strip():
        raise Invalid(f"{field} must not be blank", field=field)
    return check_size(value, field=field, max_bytes=max_bytes)


def check_size(value: str, *, field: str, max_bytes: int) -> str:
    size = len(value.encode())
    if size > max_bytes:
        raise Invalid(
            f"{field} is {size:,} bytes; at most {max_bytes:,} are taken", field=field, code="too_large"
        )
    return value


def check_unicode(value: str, *, field: str) -> str:
    """Refuse what no database stores faithfully: NUL and halves of surrogate pairs."""
    if "\x00" in value:
        raise Invalid(f"{field} holds a NUL character", field=field)
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise Invalid(f"{field} holds half a surrogate pair: not valid Unicode", field=field) from error
    return value


def check_name(value: str, *, field: str, max_length: int, blank: bool = True) -> str:
    """A one-line name without control characters or outer blanks."""
    check_unicode(value, field=field)
    if not blank and not value:
        raise Invalid(f"{field} must not be empty", field=field)
    if len(value) > max_length:
        raise Invalid(
            f"{field} has {len(value):,} characters; at most {max_length} are taken",
            field=field,
            code="too_large",
        )
    if _CONTROL.search(value):
        raise Invalid(f"{field} holds a control character", field=field)
    if value != value.strip():
        raise Invalid(f"{field} begins or ends with a blank", field=field)
    return value


def check_workspace(value: str) -> str:
    return check_name(value, field="workspace", max_length=MAX_WORKSPACE)


def check_tags(values: Sequence[str], *, field: str = "tags") -> list[str]:
    """At most 64 tags of 1 to 128 characters; duplicates fold, order becomes alphabetical."""
    if len(values) > MAX_TAGS:
        raise Invalid(
            f"{field} has {len(values)} entries; at most {MAX_TAGS} are taken", field=field, code="too_large"
        )
    return sorted({check_name(tag, field=field, max_length=MAX_TAG, blank=False) for tag in values})


def check_metadata(value: Mapping[str, Any]) -> dict[str, Any]:
    """A JSON object of at most 16 KB, without NUL, at most 32 deep."""
    if _depth(value) > MAX_DEPTH:
        raise Invalid(f"metadata is nested more than {MAX_DEPTH} deep", field="metadata", code="too_large")
    try:
        encoded = canonical(value)
    except (ValueError, TypeError) as error:
        raise Invalid(f"metadata is not plain JSON: {error}", field="metadata") from error
    if len(encoded) > MAX_METADATA_BYTES:
        raise Invalid(
            f"metadata is {len(encoded):,} bytes; at most {MAX_METADATA_BYTES:,} are taken",
            field="metadata",
            code="too_large",
        )
    if _ESCAPED_NUL.search(encoded):
        raise Invalid("metadata holds a NUL character", field="metadata")
    stored: dict[str, Any] = json.loads(encoded)
    return stored


def _depth(value: Any) -> int:
    deepest, level = 0, [value]
    while level and deepest <= MAX_DEPTH + 1:
        deepest += 1
        inner: list[Any] = []
        for entry in level:
            if isinstance(entry, Mapping):
                inner.extend(entry.values())
            elif isinstance(entry, list | tuple):
                inner.extend(entry)
        level = inner
    return deepest - 1


def check_choice(value: str, choices: Sequence[str], *, field: str) -> str:
    if value not in choices:
        raise Invalid(f"{field} must be one of {', '.join(choices)}", field=field)
    return value


def check_provenance(value: str) -> str:
    """One of the classes; the empty string is read as `unknown`."""
    return check_choice(value or "unknown", PROVENANCE_CLASSES, field="provenance_class")


def check_created_at(value: UnixMs, *, at: UnixMs, field: str = "created_at") -> UnixMs:
    """May lie in the past (imports), and at most five minutes ahead of this clock."""
    check_time(value, field=field)
    if value > at + MAX_CLOCK_AHEAD:
        raise Invalid(
            f"{field} {format_instant(value)} is more than 5 minutes ahead of this server's clock "
            f"({format_instant(at)})",
            field=field,
        )
    return value


def check_time(value: UnixMs, *, field: str) -> UnixMs:
    try:
        return check_instant(value)
    except NotAnInstant as error:
        raise Invalid(str(error), field=field) from error


def check_window(t_valid: UnixMs | None, t_invalid: UnixMs | None) -> None:
    """The half-open window [t_valid, t_invalid) must hold at least one millisecond."""
    if t_valid is not None and t_invalid is not None and t_invalid <= t_valid:
        raise Invalid(
            f"t_invalid {format_instant(t_invalid)} is not after t_valid {format_instant(t_valid)}",
            field="t_invalid",
        )


def _optional_time(field: str) -> Callable[[Any], Any]:
    return lambda value: None if value is None else check_time(value, field=field)


_CHECKS: dict[str, Callable[[Any], Any]] = {
    "text": check_text,
    "workspace": check_workspace,
    "tags": check_tags,
    "category": lambda value: check_name(value, field="category", max_length=MAX_CATEGORY),
    "provenance_class": check_provenance,
    "status": lambda value: check_choice(value, STATUSES, field="status"),
    "archived": bool,
    "created_at": lambda value: check_time(value, field="created_at"),
    "t_valid": _optional_time("t_valid"),
    "t_invalid": _optional_time("t_invalid"),
    "expires_at": _optional_time("expires_at"),
    "source_event_id": lambda value: (
        None if value is None else check_name(value, field="source_event_id", max_length=32, blank=False)
    ),
    "external_id": lambda value: (
        None
        if value is None
        else check_name(value, field="external_id", max_length=MAX_EXTERNAL_ID, blank=False)
    ),
    "metadata": check_metadata,
}

DEFAULTS: dict[str, Any] = {
    "workspace": "",
    "tags": [],
    "category": "",
    "provenance_class": "candidate",
    "status": "active",
    "archived": False,
    "t_valid": None,
    "t_invalid": None,
    "expires_at": None,
    "source_event_id": None,
    "external_id": None,
    "metadata": {},
}


def checked(sent: Mapping[str, Any]) -> dict[str, Any]:
    """Check each field that was sent, alone. Fields that were not sent stay absent. Raises Invalid."""
    return {name: _CHECKS[name](value) for name, value in sent.items()}


def checked_reason(value: str | None) -> str:
    """A free-text reason of at most 2,000 characters; None reads as none given."""
    reason = check_unicode(value or "", field="reason")
    if len(reason) > MAX_REASON:
        raise Invalid(
            f"reason has {len(reason):,} characters; at most {MAX_REASON:,} are taken",
            field="reason",
            code="too_large",
        )
    return reason.strip()


def required_reason(value: str | None) -> str:
    """The same where one must be given."""
    reason = checked_reason(value)
    if not reason:
        raise Invalid("a reason is required", field="reason", code="required")
    return reason


def check_link_type(value: str) -> str:
    return check_choice(value, LINK_TYPES, field="type")
