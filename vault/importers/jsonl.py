"""Our own format: one JSON object a line, written by `export_memories`, read back without loss.

    {"kind": "memory", "text": "…", "workspace": "…", "external_id": "…", …}
    {"kind": "link", "workspace": "…", "from": "…", "to": "…", "type": "…", …}
    {"kind": "erased", "workspace": "…", "external_id": "…", "created_at": "…"}

A memory has the fields of POST /v1/memories; a link names its ends by external id; an erased memory stays
suppressed, and so does what it had replaced.

1. A memory without an external id is exported under its own id, which a later import knows again.
2. Times are RFC 3339. `kind` may be left out of a memory.
3. Memories come before the links between them, links in order of (created_at, id): what is decided by the
   newest link is decided the same after a restore.
4. `judged` says how a memory stood at an instant (export_memories --validity-annotate): state and validity. An
   import skips it, for it follows from the rest and from when it is asked.
5. Ids, versions and ledger events are not carried: an import is a new history, told by the importing ledger.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import orjson

from ledger.domain.instants import NotAnInstant, UnixMs, format_instant, parse_instant
from ledger.domain.refusals import Invalid, Refused
from vault.domain.access import GLOBAL
from vault.importers import Erase, Format, Join, Remember, Row, Step
from vault.models import Memory, MemoryLink

MAX_LINE_BYTES = 2 * 1024 * 1024  # every memory within the limits fits, even escaped
TIMES = ("created_at", "t_valid", "t_invalid", "expires_at")


# ---------------------------------------------------------------------------------------------- writing


def name_of(memory: Memory) -> str:
    """What an exported memory is called: its external id, or its own where it has none."""
    return memory.external_id or memory.id


def memory_line(memory: Memory, *, judged: Mapping[str, Any] | None = None) -> bytes:
    """One line for a memory, with its line end; expects its workspace and tags to be loaded.

    `judged` stands in it as it is given; an erased memory has no text to judge.
    """
    if memory.erased_at is not None:
        erased = {
            "kind": "erased",
            "workspace": memory.workspace.name,
            "external_id": name_of(memory),
            "created_at": format_instant(memory.created_at),
        }
        return orjson.dumps(erased, option=orjson.OPT_APPEND_NEWLINE)
    told = {"kind": "memory", **memory.values, "external_id": name_of(memory)}
    for name in TIMES:
        told[name] = None if told[name] is None else format_instant(told[name])
    if judged is not None:
        told["judged"] = judged
    return orjson.dumps(told, option=orjson.OPT_APPEND_NEWLINE)


def link_line(link: MemoryLink) -> bytes:
    """One line for a link, with its line end; expects both ends and the workspace to be loaded."""
    told = {
        "kind": "link",
        "workspace": link.source.workspace.name,
        "from": name_of(link.source),
        "to": name_of(link.target),
        "type": link.type,
        "strength": link.strength,
        "created_at": format_instant(link.created_at),
    }
    return orjson.dumps(told, option=orjson.OPT_APPEND_NEWLINE)


# ---------------------------------------------------------------------------------------------- reading


def rows(source: Path, *, workspace: str | None) -> Iterator[Row]:
    """One row a line; a blank line holds nothing, one that is too long or malformed is refused."""
    with source.open("rb") as file:
        for number, line in enumerate(_lines(file), start=1):
            place = f"line {number}"
            try:
                yield Row(number, place, _steps(line, workspace))
            except Refused as refusal:
                yield Row(number, place, refusal=refusal)


def _lines(file: BinaryIO) -> Iterator[bytes | None]:
    """Each line, or None for one that is too long to be read into memory."""
    first = True
    while line := file.readline(MAX_LINE_BYTES + 1):
        if first:
            line, first = line.removeprefix(b"\xef\xbb\xbf"), False
        if len(line) <= MAX_LINE_BYTES or line.endswith(b"\n"):
            yield line
            continue
        while (rest := file.readline(MAX_LINE_BYTES)) and not rest.endswith(b"\n"):
            pass
        yield None


def _steps(line: bytes | None, workspace: str | None) -> tuple[Step, ...]:
    if line is None:
        raise Invalid(f"the line has more than {MAX_LINE_BYTES:,} bytes", code="too_large")
    if not line.strip():
        return ()
    try:
        told = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise Invalid(f"not valid JSON: {error}") from error
    if not isinstance(told, dict):
        raise Invalid("a line is a JSON object")
    kind = told.pop("kind", "memory")
    if not isinstance(kind, str) or kind not in _KINDS:
        raise Invalid(f"kind must be one of {', '.join(_KINDS)}", field="kind")
    shape, make = _KINDS[kind]
    fields = _read(told, shape)
    if workspace is not None:
        fields["workspace"] = workspace
    fields.setdefault("workspace", GLOBAL)
    return make(fields)


def _memory(fields: dict[str, Any]) -> tuple[Step, ...]:
    fields.pop("judged", None)
    reason = fields.pop("reason", None) or ""
    return (Remember(fields, reason),)


def _link(fields: dict[str, Any]) -> tuple[Step, ...]:
    _require(fields, "from", "to", "type")
    return (
        Join(
            workspace=fields["workspace"],
            source=fields["from"],
            target=fields["to"],
            type=fields["type"],
            created_at=fields.get("created_at"),
            strength=fields.get("strength"),
            reason=fields.get("reason") or "",
        ),
    )


def _erased(fields: dict[str, Any]) -> tuple[Step, ...]:
    _require(fields, "external_id")
    reason = fields.pop("reason", None) or "erased before it was exported"
    return (
        Remember({"text": "(erased)", **fields}),
        Erase(fields["workspace"], fields["external_id"], reason),
    )


def _require(fields: Mapping[str, Any], *names: str) -> None:
    for name in names:
        if name not in fields:
            raise Invalid(f"{name} is required", field=name, code="required")


def _text(value: Any, field: str) -> str:
    if not isinstance(value, str):
        raise Invalid(f"{field} must be a string", field=field)
    return value


def _texts(value: Any, field: str) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(entry, str) for entry in value):
        raise Invalid(f"{field} must be a list of strings", field=field)
    return value


def _flag(value: Any, field: str) -> bool:
    if not isinstance(value, bool):
        raise Invalid(f"{field} must be true or false", field=field)
    return value


def _object(value: Any, field: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise Invalid(f"{field} must be an object", field=field)
    return value


def _fraction(value: Any, field: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise Invalid(f"{field} must be a number from 0 to 1", field=field)
    return float(value)


def _time(value: Any, field: str) -> UnixMs:
    try:
        return parse_instant(_text(value, field))
    except NotAnInstant as error:
        raise Invalid(str(error), field=field) from error


def _or_null(check: Callable[[Any, str], Any]) -> Callable[[Any, str], Any]:
    return lambda value, field: None if value is None else check(value, field)


_Shape = Mapping[str, Callable[[Any, str], Any]]

_MEMORY: _Shape = {
    "text": _text,
    "workspace": _text,
    "tags": _texts,
    "category": _text,
    "provenance_class": _text,
    "status": _text,
    "archived": _flag,
    "created_at": _time,
    "t_valid": _or_null(_time),
    "t_invalid": _or_null(_time),
    "expires_at": _or_null(_time),
    "source_event_id": _or_null(_text),
    "external_id": _or_null(_text),
    "metadata": _object,
    "judged": _object,
    "reason": _or_null(_text),
}
_LINK: _Shape = {
    "workspace": _text,
    "from": _text,
    "to": _text,
    "type": _text,
    "strength": _or_null(_fraction),
    "created_at": _time,
    "reason": _or_null(_text),
}
_ERASED: _Shape = {"workspace": _text, "external_id": _text, "created_at": _time, "reason": _or_null(_text)}

_KINDS: dict[str, tuple[_Shape, Callable[[dict[str, Any]], tuple[Step, ...]]]] = {
    "memory": (_MEMORY, _memory),
    "link": (_LINK, _link),
    "erased": (_ERASED, _erased),
}


def _read(told: Mapping[str, Any], shape: _Shape) -> dict[str, Any]:
    """Every field with its type checked and its time read; what a field may say, the vault decides."""
    for name in told:
        if name not in shape:
            raise Invalid(f"unknown field {name[:60]!r}", field=name[:60], code="unknown_field")
    return {name: shape[name](value, name) for name, value in told.items()}


def count(source: Path) -> int:
    with source.open("rb") as file:
        return sum(1 for _ in _lines(file))


FORMAT = Format("jsonl", rows, count)
