"""The API reference at /v1/docs: one page, written out from the OpenAPI document that the views make."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import resolve
from django.views.decorators.http import require_safe
from drf_spectacular.generators import SchemaGenerator

from ledger.domain import refusals
from recall.api.access import needed_scope
from vault.domain import values
from vault.domain.facts import PROVENANCE_CLASSES, STATUSES

# What the document cannot say: what each operation does where a view has several, and what names mean.
# A test holds both tables against the document.
SUMMARIES = {
    "memories_create": "Store a memory. The same external id with the same values answers the stored one (200).",
    "memories_list": "List memories, newest first; only current ones unless asked otherwise.",
    "memory_read": "One memory with its state, now or at an instant; its version is the ETag.",
    "memory_revise": "Change some fields; null clears one. If-Match with the version refuses a lost update.",
    "memory_archive": "Archive a memory: it leaves every answer. Undone by a PATCH of archived.",
    "links_create": "Link two memories of one workspace.",
    "links_list": "The links from and to a memory.",
    "recall": "Ask a question. Each hit carries its score and, where asked for, its validity; the recall is recorded.",
    "recall_get": "The same question in the query string; lists by repeating a name.",
}
NOTES = {
    "Idempotency-Key": "1 to 200 characters of yours; the same one again when you repeat a request",
    "archived": "archived memories leave every answer",
    "category": "one word of yours for a kind of memory",
    "created_after": "RFC 3339, inclusive",
    "created_before": "RFC 3339, exclusive",
    "exclude_tags": "memories with any of them are left out",
    "metadata": f"plain JSON of yours, up to {values.MAX_METADATA_BYTES // 1024} KB",
    "provenance_class": ", ".join(PROVENANCE_CLASSES),
    "query": f"up to {values.MAX_QUERY_BYTES // 1024} KB; may be empty where tags or a category are named",
    "status": ", ".join(STATUSES),
    "tags": f"up to {values.MAX_TAGS} of {values.MAX_TAG} characters",
    "text": f"up to {values.MAX_TEXT_BYTES // 1024} KB",
    "actor": "a key's or user's name or id",
    "at": "RFC 3339 instant; left out: now",
    "by": "a stored memory's id, instead of text",
    "created_at": "left out: now; may lie in the past",
    "categories": "only memories of any of these",
    "current_only": "false: the history view, everything marked and nothing left out",
    "cursor": "from next or previous of an answer",
    "depth": "1 to 3",
    "dry_run": "true: what it would do, and nothing is written",
    "end": "only memories created before it",
    "expires_at": "what it says may be wrong from here on",
    "external_id": "yours; unique in its workspace",
    "fuse": "one answer out of all, by reciprocal rank fusion, of at most limit hits (10 unless said)",
    "from": "a memory's id; in a list of recalls: an instant",
    "item_id": "a calendar item of yours, 1 to 256 characters; left out of a search: the whole bank",
    "occurred_at": "RFC 3339; left out: now; may lie in the past",
    "occurrence": "which of a series, as its RECURRENCE-ID says",
    "successor": "an event that exists, to take the place",
    "supersedes_context_id": "the event whose place it takes: of the same workspace, about the same item",
    "temporal": "a time to prefer; it never leaves anything out",
    "grade": "recalls that served a hit so graded",
    "include_history": "also what no longer, or not yet, holds; in a list of its own",
    "limit": "1 to 200",
    "max_tokens": "hits are served until their texts reach it",
    "profile": "default, or validity: annotated, and in mode fused re-ranked by base × multiplier",
    "q": "a part of the text",
    "query_time_unix_ms": "the instant to judge at; left out: now",
    "queries": "1 to 50 bodies of POST /v1/recall; each is answered and recorded by itself",
    "reason": "kept in the ledger",
    "start": "only memories created at or after it",
    "state": "current or all",
    "state_debug": "ids and reasons of what was left out",
    "state_mode": "current or history; current_only wins",
    "t_invalid": "holds until here, exclusive",
    "t_valid": "holds from here on",
    "tags_match": "any, all, any_strict, all_strict or exact; the strict ones leave out untagged memories",
    "task": "what the agent is about to do: what is near to it comes first",
    "trace": "how each strategy found what",
    "validity_annotate": "grade each row without re-ranking",
    "workspace": "left out: every one the key may read; empty: global",
}

SPELT_OUT = 6  # an object of more fields is one that has its own table
METHODS = ("get", "post", "patch", "put", "delete")
GROUPS = {
    "memories": "Memories",
    "links": "Links",
    "recall": "Recall",
    "projection": "Projection",
    "recalls": "Records of recalls",
    "context": "Context",
    "events": "The ledger",
    "operations": "Deliveries",
    "ledger": "Verification",
    "quality": "Data quality",
}

# Every code beside the seven that refusals carry by default (a test reads the sources for them).
CODES = [
    (400, "malformed", "The body is not a JSON object."),
    (400, "required", "A field without which nothing can be done is missing."),
    (400, "unknown_field", "A field or parameter that does not exist here; field names it."),
    (400, "too_large", "A value is longer, or a list has more entries, than is taken."),
    (400, "idempotency_key_required", "The header Idempotency-Key is missing."),
    (400, "reason_required", "A correction needs a reason of at least 10 characters."),
    (400, "self_link", "A memory cannot link to, or supersede, itself."),
    (400, "query_required", "An empty query needs a tag or a category."),
    (400, "mode_unavailable", "This installation has no engine for that mode."),
    (400, "strategy_unavailable", "This installation does not have that strategy."),
    (400, "rerank_unavailable", "This installation has no reranker."),
    (401, "not_authenticated", "No API key was sent."),
    (401, "authentication_failed", "The API key is unknown, expired or revoked; which of them is not said."),
    (403, "permission_denied", "The key lacks the scope that the operation needs."),
    (405, "method_not_allowed", "The address knows no such method."),
    (409, "external_id_conflict", "The external id belongs to a memory with other values."),
    (409, "duplicate_link", "Such a link between the two is there already."),
    (409, "idempotency_conflict", "The key was used for a request with another payload."),
    (409, "already_superseded", "The event has a successor; the message names the head of its chain."),
    (409, "supersession_cycle", "The event would supersede itself."),
    (409, "already_undone", "The correction was undone already."),
    (409, "nothing_to_restore", "No correction of that event is in force."),
    (409, "already_delivered", "The outbox entry was delivered already."),
    (409, "in_delivery", "The outbox entry is being delivered now."),
    (409, "erased", "The memory was erased and cannot be changed."),
    (413, "too_large", "The body is larger than is taken: 2 MB, for bulk 32 MB."),
    (415, "unsupported_media_type", "Bodies are JSON."),
    (422, "unknown_memory", "The body names a memory that does not exist for this key."),
    (422, "unknown_event", "The body names an event that does not exist in that workspace."),
    (422, "other_item", "The two events are not about the same item."),
    (422, "not_correctable", "The event records a change of a memory: change the memory instead."),
    (422, "not_erasable", "The event holds no text of its own: its memory is what to erase, if it has one."),
    (422, "foreign_workspace", "The two memories belong to different workspaces."),
    (429, "throttled", "Too many requests with this key; Retry-After says when to come back."),
    (500, "internal", "An unexpected error, logged on the server. Nothing was half-written."),
    (503, "record_unavailable", "The record could not be written, so nothing was served."),
    (503, "storage_full", "The disk of the database is full. Nothing was written."),
    (
        503,
        "database_locked",
        "Another writer holds the database. Nothing was written; come back after Retry-After.",
    ),
    (503, "unavailable", "The database did not answer. Nothing was written; come back after Retry-After."),
    (503, "ledger_key_mismatch", "The ledger was written with another key than the server has."),
    (503, "verification_running", "The ledger is being verified already."),
    (503, "erased_meanwhile", "A memory or an event was erased while it was recalled: ask again."),
]


@dataclass(frozen=True, slots=True)
class Field:
    """A parameter or a field of a body, as a row of a table."""

    name: str
    type: str
    default: str
    required: bool
    note: str


@dataclass(frozen=True, slots=True)
class Operation:
    """One method of one address."""

    id: str
    method: str
    path: str
    summary: str
    scope: str
    parameters: list[Field]
    fields: list[Field]
    responses: list[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Group:
    """The operations of one subject, with a command to paste."""

    slug: str
    title: str
    operations: list[Operation]
    example: str


@require_safe
def reference(request: HttpRequest) -> HttpResponse:
    """The page. It tells nothing about what is stored, so it asks for no sign-in."""
    return render(request, "api_docs.html", {"groups": groups(), "codes": codes(), "section": "api-docs"})


@cache
def document() -> dict[str, Any]:
    """The OpenAPI document: the views do not change while a process lives."""
    made: dict[str, Any] = SchemaGenerator().get_schema(request=None, public=True)  # type: ignore[no-untyped-call]
    return made


@cache
def groups() -> list[Group]:
    by_subject: dict[str, list[Operation]] = {}
    for path, methods in document()["paths"].items():
        subject = path.split("/")[2]
        for method in METHODS:
            if method in methods:
                by_subject.setdefault(subject, []).append(_operation(path, method, methods[method]))
    order = [*(name for name in GROUPS if name in by_subject), *sorted(by_subject.keys() - GROUPS.keys())]
    return [
        Group(name, GROUPS.get(name, name.capitalize()), by_subject[name], _example(by_subject[name]))
        for name in order
    ]


def codes() -> list[tuple[int, str, str]]:
    """Every code of the error envelope with its status, by status."""
    ours = [
        (kind.status, kind.code, _plain(kind))
        for kind in (
            refusals.Invalid,
            refusals.Forbidden,
            refusals.NotFound,
            refusals.Conflict,
            refusals.Outdated,
            refusals.Unprocessable,
            refusals.Unavailable,
        )
    ]
    return sorted([*ours, *CODES])


def _plain(kind: type[refusals.Refused]) -> str:
    """A refusal's own sentence, without the status that stands beside it."""
    return (kind.__doc__ or "").removesuffix(f" ({kind.status}).").replace("`", "") + "."


def _operation(path: str, method: str, told: Mapping[str, Any]) -> Operation:
    view = resolve(path.replace("{", "").replace("}", "")).func
    return Operation(
        id=told["operationId"],
        method=method.upper(),
        path=path,
        summary=SUMMARIES.get(told["operationId"]) or told.get("description", ""),
        scope=needed_scope(method.upper(), getattr(view, "cls", None)),
        parameters=[_parameter(parameter) for parameter in told.get("parameters", [])],
        fields=list(_body_fields(told)),
        responses=[(status, _answer(status, told)) for status in sorted(told.get("responses", {}))],
    )


def _parameter(told: Mapping[str, Any]) -> Field:
    schema = told.get("schema", {})
    note = "in the path" if told["in"] == "path" else _note(told["name"], schema)
    return Field(told["name"], _type(schema), _default(schema), bool(told.get("required")), note)


def _body_fields(told: Mapping[str, Any]) -> Iterable[Field]:
    content = told.get("requestBody", {}).get("content", {})
    shape = _resolved(content.get("application/json", {}).get("schema", {}))
    required = set(shape.get("required", []))
    for name, schema in shape.get("properties", {}).items():
        yield Field(name, _type(schema), _default(schema), name in required, _note(name, schema))


def _resolved(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """The schema itself, wherever a reference leads."""
    if "$ref" not in schema:
        return schema
    found: Mapping[str, Any] = document()["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]]
    return found


def _type(schema: Mapping[str, Any]) -> str:
    """A schema in a few words: `string or null`, `list of string`, `one of a, b`."""
    schema = _resolved(schema)
    for several in ("anyOf", "oneOf", "allOf"):
        if several in schema:
            return " or ".join(dict.fromkeys(_type(one) for one in schema[several]))
    if "enum" in schema:
        return "one of " + ", ".join(str(value) for value in schema["enum"])
    if schema.get("format") == "date-time":
        return "RFC 3339 instant"
    kind = schema.get("type", "any")
    if isinstance(kind, list):
        return " or ".join(kind)
    if kind == "array":
        return f"list of {_type(schema.get('items', {}))}"
    if kind == "object" and 0 < len(schema.get("properties", ())) <= SPELT_OUT:
        return "object of " + ", ".join(schema["properties"])
    return str(kind)


def _default(schema: Mapping[str, Any]) -> str:
    """The default as JSON; null says no more than that the field may be left out."""
    given = schema.get("default")
    return "" if given is None else json.dumps(given, ensure_ascii=False)


def _note(name: str, schema: Mapping[str, Any]) -> str:
    return NOTES.get(name) or schema.get("description") or _limits(schema)


def _limits(schema: Mapping[str, Any]) -> str:
    """What a number may be, where the schema says so."""
    bounds = [schema, *schema.get("anyOf", [])]
    low = next((one["minimum"] for one in bounds if "minimum" in one), None)
    high = next((one["maximum"] for one in bounds if "maximum" in one), None)
    if low is None or high is None:
        return ""
    return f"{low} to {high}"


_ANSWERS = {"200": "done", "201": "created", "204": "done, no body", "207": "each row by itself"}


def _answer(status: str, told: Mapping[str, Any]) -> str:
    return told["responses"][status].get("description") or _ANSWERS.get(status, "")


# A body to paste for the operations that need one; a test sends each of them to a real API.
EXAMPLES: dict[str, dict[str, Any]] = {
    "memories_create": {"text": "Deploys are allowed until four.", "workspace": "ops", "tags": ["deploy"]},
    "links_create": {"from": "mem_…", "to": "mem_…", "type": "EVOLVED_INTO", "reason": "The rule changed"},
    "recall": {"query": "When are deploys allowed?", "workspace": "ops", "profile": "validity"},
    "context_add": {"text": "Tom asked for a week more.", "workspace": "ops", "item_id": "itm_report"},
    "context_search": {"query": "Why is it late?", "workspace": "ops", "item_id": "itm_report"},
    "projection": {"workspace": "ops", "task": "Deploy the new version", "max_tokens": 1000},
}


def _example(operations: list[Operation]) -> str:
    """A curl command for the group's most telling operation: the first with an example body, else a GET."""
    chosen = next((one for one in operations if one.id in EXAMPLES), None)
    auth = '-H "Authorization: Bearer $KEY"'
    if chosen is None:
        plain = next((one for one in operations if one.method == "GET"), operations[0])
        return f'curl -s {auth} "$URL{plain.path}"'
    body = json.dumps(EXAMPLES[chosen.id], ensure_ascii=False)
    if any(parameter.name == "Idempotency-Key" and parameter.required for parameter in chosen.parameters):
        auth += " -H 'Idempotency-Key: a-fresh-one'"
    return (
        f'curl -s -X {chosen.method} {auth} "$URL{chosen.path}" \\\n'
        f"  -H 'Content-Type: application/json' \\\n  -d '{body}'"
    )
