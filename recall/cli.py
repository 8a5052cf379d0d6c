"""The `life` command: context from a shell, through the same services as every other surface.

    life context add --input - [--operation-id KEY] [--json]
    life context search --input - [--json]

The input is the JSON body of the API. Whoever may read the database may do everything, and is recorded as
`cli:<system user>`. Exit status: 0 done, 1 refused (the error is on stderr), 2 called wrongly.
"""

from __future__ import annotations

import argparse
import os
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import django
import orjson
from django.core.exceptions import ImproperlyConfigured
from django.db import DatabaseError

from ledger.clock import now_ms
from ledger.domain.refusals import Invalid, Refused, Unavailable

if TYPE_CHECKING:
    from vault.services import Caller

REFUSED = 1  # argparse itself ends with 2 where it was called wrongly
MAX_INPUT = 2 * 1024 * 1024
Command = Callable[[argparse.Namespace, Mapping[str, Any]], dict[str, Any]]


def main(arguments: Sequence[str] | None = None) -> None:
    """What the console script runs; ends the process with its exit status."""
    sys.exit(run(arguments))


def run(arguments: Sequence[str] | None = None) -> int:
    """Do what the arguments say; gives the exit status."""
    parser = _parser()
    asked = parser.parse_args(arguments)
    try:
        raw = _read(asked.input)
    except OSError as error:
        parser.error(f"--input: {error}")
    try:
        _set_up()
        answer = asked.does(asked, _parsed(raw))
    except Refused as refusal:
        return _refuse(refusal, as_json=asked.json)
    _print(answer, asked)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="life", description="What happened and why: recorded, and searched."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    context = commands.add_parser("context", help="context events: what was decided, and why")
    verbs = context.add_subparsers(required=True, metavar="VERB")
    add = verbs.add_parser("add", help="record a context event, to be delivered to the memory bank")
    add.add_argument(
        "--operation-id",
        metavar="KEY",
        help="the same key and input again record nothing twice; without it, every call is a new event",
    )
    add.set_defaults(does=_add, tells=_added_in_words)
    search = verbs.add_parser("search", help="search context, of one item or of a whole bank")
    search.set_defaults(does=_search, tells=_found_in_words)
    for verb in (add, search):
        verb.add_argument("--input", required=True, metavar="FILE", help="the JSON body; - reads stdin")
        verb.add_argument("--json", action="store_true", help="answer as JSON")
    return parser


def _read(name: str) -> bytes:
    """One byte more than is taken, so that a larger input is seen to be larger."""
    if name == "-":
        return sys.stdin.buffer.read(MAX_INPUT + 1)
    with Path(name).open("rb") as file:
        return file.read(MAX_INPUT + 1)


def _parsed(raw: bytes) -> Any:
    if len(raw) > MAX_INPUT:
        raise Invalid(f"the input is larger than {MAX_INPUT // 1024 // 1024} MB", code="too_large")
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise Invalid(f"the input is not JSON: {error}", code="malformed") from error


def _set_up() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "recall.settings")
    try:
        django.setup()
    except ImproperlyConfigured as error:
        raise Unavailable(f"configuration: {error}", code="misconfigured") from error


# Services are imported where they are called: they want the settings, which want to be set up.


def _caller() -> Caller:
    """The system's user, who may read the database, and so everything."""
    from recall.people import system_caller

    return system_caller()


def _add(asked: argparse.Namespace, body: Mapping[str, Any]) -> dict[str, Any]:
    from recall import context
    from recall.shapes import ContextBody, parse

    entry = parse(ContextBody, body)
    key = f"life-{uuid.uuid4()}" if asked.operation_id is None else asked.operation_id
    with _database():
        added = context.add(entry.new(), workspace=entry.workspace, key=key, caller=_caller(), at=now_ms())
    return {
        "operation_id": added.operation_id,
        "event_id": added.event_id,
        "context_delivery": "pending",
    }


def _search(asked: argparse.Namespace, body: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ARG001  as _add
    from recall import context
    from recall.shapes import ContextSearchBody, parse

    request = parse(ContextSearchBody, body).request()
    with _database():
        return context.search(request, caller=_caller(), surface="cli", at=now_ms())


@contextmanager
def _database() -> Iterator[None]:
    """A database that is not there, or not migrated, becomes a refusal that says what to do."""
    try:
        yield
    except DatabaseError as error:
        raise Unavailable(
            f"the database did not answer: {error}", hint="is RECALL_DATA_DIR right? then: manage.py migrate"
        ) from error


# ----------------------------------------------------------------------------------------------- in words


def _print(answer: dict[str, Any], asked: argparse.Namespace) -> None:
    if asked.json:
        sys.stdout.buffer.write(orjson.dumps(answer, option=orjson.OPT_APPEND_NEWLINE))
        sys.stdout.buffer.flush()
    else:
        print(_printable(asked.tells(answer)))


def _refuse(refusal: Refused, *, as_json: bool) -> int:
    told = {"code": refusal.code, "message": refusal.message, "field": refusal.field, "hint": refusal.hint}
    if as_json:
        error = {name: value for name, value in told.items() if value is not None}
        print(orjson.dumps({"error": error}).decode(), file=sys.stderr)
        return REFUSED
    place = f" ({refusal.field})" if refusal.field else ""
    print(_printable(f"life: {refusal.code}{place}: {refusal.message}"), file=sys.stderr)
    if refusal.hint:
        print(_printable(f"      {refusal.hint}"), file=sys.stderr)
    return REFUSED


def _printable(text: str) -> str:
    """What was recalled is shown by a terminal and must not steer it."""
    return "".join(one if one.isprintable() or one in "\n\t" else "\N{REPLACEMENT CHARACTER}" for one in text)


def _added_in_words(answer: Mapping[str, Any]) -> str:
    return (
        f"Recorded {answer['event_id']}. It waits to be delivered to the memory bank.\n"
        f"Operation {answer['operation_id']}"
    )


def _found_in_words(answer: Mapping[str, Any]) -> str:
    where = "the whole bank" if answer["scope"] == "bank" else f"item {answer['item_id']}"
    count = f"{answer['count']} hit{'' if answer['count'] == 1 else 's'}"
    outcome = answer["outcome"]
    reason = f": {outcome['reason']}" if outcome["reason"] else ""
    lines = [f"{count} about {where}. {outcome['status'].capitalize()}{reason}."]
    lines += [f"! {warning['message']}" for warning in answer["warnings"]]
    for hit in answer["hits"]:
        lines += ["", f"{hit['rank']}. {_standing(hit)}", *_indented(hit["content"])]
        if hit["context"]:
            lines += _indented(f"Reason: {hit['context']}")
    return "\n".join([*lines, "", _coverage(answer["coverage"]), f"Recall {answer['recall_id']}"])


def _standing(hit: Mapping[str, Any]) -> str:
    standing = "current" if hit["current_rationale"] else "on record"
    if hit["is_stale"]:
        standing = f"superseded by {hit['superseded_by']}"
    elif hit["interpretation"]:
        standing = "unverified: an interpretation, and no preference of anybody's"
    source = hit["source_event_id"] or hit["document_id"] or "no source"
    labels = f" [{', '.join(hit['labels'])}]" if hit["labels"] else ""
    return f"{hit['timestamp'] or 'undated'}  {source}  {hit['validity']['grade']}, {standing}{labels}"


def _indented(text: str) -> list[str]:
    return [f"   {line}" for line in text.splitlines()]


def _coverage(told: Mapping[str, Any]) -> str:
    span = f", {told['first']} to {told['last']}" if told["first"] else ""
    counts = ", ".join(f"{told[name]} {name}" for name in ("superseded", "pending", "delivered", "failed"))
    return f"On record: {told['events']} events ({counts}){span}."


if __name__ == "__main__":
    main()
