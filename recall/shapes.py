"""The shapes of requests, strict: nothing is guessed, nothing unknown passes, and every error names its field.

Shared by every surface (API, MCP, CLI), so that one argument means one thing. JSON is validated as it is; query
strings (`GET /v1/recall`) through `from_query`, where numbers and booleans are spelt.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, NoReturn, TypeVar, get_args

import orjson
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    WithJsonSchema,
)

from ledger.domain.context import MAX_OCCURRENCE, NewContext
from ledger.domain.instants import NotAnInstant, check_instant, parse_instant
from ledger.domain.refusals import Invalid, located
from recall.domain import request as recalls
from recall.domain.rationale import ContextSearch
from recall.domain.request import BatchRequest, ProjectionRequest, RecallRequest, require_answerable
from vault.domain import values
from vault.domain.facts import PROVENANCE_CLASSES
from vault.domain.items import check_item_id
from vault.domain.links import EVOLVED_INTO


def _instant(value: Any) -> Any:
    if not isinstance(value, str):
        raise NotAnInstant("must be an RFC 3339 text such as 2026-11-30T13:58:02Z")
    return parse_instant(value)


Instant = Annotated[int, BeforeValidator(_instant), WithJsonSchema({"type": "string", "format": "date-time"})]
Milliseconds = Annotated[int, AfterValidator(check_instant)]


class Shape(BaseModel):
    """A request body: strict types, no unknown fields."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


S = TypeVar("S", bound=Shape)


def parse(shape: type[S], body: Any) -> S:
    """A body as its shape; raises Invalid that names the first field at fault."""
    if not isinstance(body, Mapping):
        raise Invalid("the body must be a JSON object", code="malformed")
    try:
        return shape.model_validate(dict(body))
    except ValidationError as error:
        _refuse(error, shape)


def parse_query(shape: type[S], lists: Mapping[str, list[str]]) -> S:
    """A query string as its shape: numbers, booleans and objects are spelt as in JSON, lists repeat the name."""
    spelt: dict[str, Any] = {}
    for name, given in lists.items():
        if name in _LISTS:
            spelt[name] = given
        elif len(given) > 1:
            raise Invalid(f"{name} is given {len(given)} times", field=name)
        else:
            spelt[name] = _spelt(name, given[0])
    try:
        return shape.model_validate(spelt)
    except ValidationError as error:
        _refuse(error, shape)


_LISTS = frozenset({"tags", "exclude_tags", "strategies"})
_OBJECTS = frozenset({"strategy_weights", "temporal"})
_FLAGS = frozenset({"validity_annotate", "current_only", "state_debug", "rerank", "trace"})
_WHOLES = frozenset({"limit", "max_tokens", "query_time_unix_ms"})
_WHOLE = re.compile(r"-?[0-9]{1,18}")


def _spelt(name: str, text: str) -> Any:
    if name in _FLAGS:
        if text not in ("true", "false"):
            raise Invalid(f"{name} must be true or false", field=name)
        return text == "true"
    if name in _WHOLES:
        if not _WHOLE.fullmatch(text):
            raise Invalid(f"{name} must be a whole number", field=name)
        return int(text)
    if name in _OBJECTS:
        try:
            return orjson.loads(text)
        except orjson.JSONDecodeError as error:
            raise Invalid(f"{name} must be a JSON object", field=name) from error
    return text


def _refuse(error: ValidationError, shape: type[Shape]) -> NoReturn:
    every = error.errors(include_url=False)
    first = next((fault for fault in every if fault["type"] == "extra_forbidden"), every[0])
    field = ".".join(str(part) for part in first["loc"]) or None
    kind, message = first["type"], first["msg"].removeprefix("Value error, ")
    if kind == "extra_forbidden":
        named = _shape_at(shape, first["loc"]).model_fields
        known = ", ".join(sorted(info.alias or name for name, info in named.items()))
        raise Invalid(f"unknown field {field}", field=field, code="unknown_field", hint=f"known: {known}")
    if kind == "missing":
        raise Invalid(f"{field} is required", field=field, code="required")
    code = "too_large" if kind == "too_long" else None
    raise Invalid(f"{field}: {message}" if field else message, field=field, code=code)


def _shape_at(shape: type[Shape], place: tuple[int | str, ...]) -> type[Shape]:
    """The innermost shape around the field at `place`."""
    for part in place[:-1]:
        annotation = shape.model_fields[part].annotation if isinstance(part, str) else None
        for inner in (annotation, *get_args(annotation)):
            if isinstance(inner, type) and issubclass(inner, Shape):
                shape = inner
    return shape


# ----------------------------------------------------------------------------------------------------- recall


class Temporal(Shape):
    """Bounds that prefer a time without filtering by it."""

    start: Instant | None = None
    end: Instant | None = None


class RecallBody(Shape):
    """`POST /v1/recall` (api.md). `fts5` and `graph` are other names of `lexical` and `links`."""

    query: str = ""
    workspace: str | None = None
    limit: int = Field(10, ge=1, le=recalls.MAX_LIMIT)
    mode: Literal["fused", "lexical", "fts5", "dense", "hybrid", "links", "graph", "temporal"] = "fused"
    strategies: list[str] | None = None
    strategy_weights: dict[str, float] = Field(default_factory=dict)
    fusion: Literal["score", "rrf"] = "score"
    profile: str = "default"
    validity_annotate: bool = False
    query_time_unix_ms: Milliseconds | None = None
    current_only: bool | None = None
    state_mode: Literal["current", "history"] | None = None
    state_debug: bool = False
    tags: list[str] = Field(default_factory=list)
    tags_match: Literal["any", "all", "any_strict", "all_strict", "exact"] = "any_strict"
    exclude_tags: list[str] = Field(default_factory=list)
    category: str | None = None
    provenance_class: str | None = None
    start: Instant | None = None
    end: Instant | None = None
    temporal: Temporal | None = None
    rerank: bool = False
    sort: Literal["score", "time_desc", "time_asc"] = "score"
    max_tokens: int | None = Field(None, ge=1, le=1_000_000)
    trace: bool = False

    def request(self) -> RecallRequest:
        """The complete, checked request; raises Invalid."""
        values.check_unicode(self.query, field="query")
        values.check_size(self.query, field="query", max_bytes=values.MAX_QUERY_BYTES)
        if self.profile not in recalls.PROFILES:
            raise Invalid(
                f"unknown profile {self.profile!r}: the profiles are default and validity", field="profile"
            )
        if self.strategies is not None and "mode" in self.model_fields_set:
            raise Invalid("mode together with strategies: name one of the two", field="strategies")
        mode = recalls.ALIASES.get(self.mode, self.mode)
        request = RecallRequest(
            query=self.query,
            workspace=None if self.workspace is None else values.check_workspace(self.workspace),
            limit=self.limit,
            mode=mode,
            strategies=self._strategies(mode),
            strategy_weights=self._weights(),
            fusion=self.fusion,
            profile=self.profile,
            validity_annotate=self.validity_annotate,
            query_time_unix_ms=self.query_time_unix_ms,
            current_only=self._current_only(),
            state_debug=self.state_debug,
            tags=tuple(values.check_tags(self.tags)),
            tags_match=self.tags_match,
            exclude_tags=tuple(values.check_tags(self.exclude_tags, field="exclude_tags")),
            category=(
                None
                if self.category is None
                else values.check_name(self.category, field="category", max_length=values.MAX_CATEGORY)
            ),
            provenance_class=(
                None
                if self.provenance_class is None
                else values.check_choice(self.provenance_class, PROVENANCE_CLASSES, field="provenance_class")
            ),
            start=self.start,
            end=self.end,
            temporal=None if self.temporal is None else (self.temporal.start, self.temporal.end),
            rerank=self.rerank,
            sort=self.sort,
            max_tokens=self.max_tokens,
            trace=self.trace,
        )
        require_answerable(request)
        return request

    def _current_only(self) -> bool:
        if self.current_only is not None:
            return self.current_only
        return self.state_mode != "history"

    def _strategies(self, mode: str) -> tuple[str, ...]:
        """Those of the mode, or those named, always in one order."""
        if self.strategies is None:
            return recalls.OF_MODE.get(mode, (mode,))
        if not self.strategies:
            raise Invalid("strategies must name at least one", field="strategies")
        named = [_strategy(name, field="strategies") for name in self.strategies]
        if len(set(named)) < len(named):
            raise Invalid("strategies names one twice", field="strategies")
        return tuple(name for name in recalls.STRATEGIES if name in named)

    def _weights(self) -> dict[str, float]:
        weights = {}
        for name, weight in self.strategy_weights.items():
            if not 0 <= weight <= 100:
                raise Invalid(f"the weight of {name} must lie in 0 to 100", field="strategy_weights")
            weights[_strategy(name, field="strategy_weights")] = weight
        return weights


def _strategy(name: str, *, field: str) -> str:
    known = recalls.ALIASES.get(name, name)
    if known not in recalls.STRATEGIES:
        raise Invalid(f"unknown strategy {name!r}: there are {', '.join(recalls.STRATEGIES)}", field=field)
    return known


class BatchBody(Shape):
    """`POST /v1/recall/batch`: each query is a body of `POST /v1/recall`."""

    queries: list[RecallBody] = Field(min_length=1, max_length=recalls.MAX_BATCH)
    fuse: bool = False
    limit: int | None = Field(None, ge=1, le=recalls.MAX_LIMIT)

    def request(self) -> BatchRequest:
        """The complete, checked request; raises Invalid that names the query at fault."""
        if self.limit is not None and not self.fuse:
            raise Invalid("limit is the fused answer's: say fuse, or give each query its own", field="limit")
        queries = []
        for number, body in enumerate(self.queries):
            with located(f"queries.{number}"):
                queries.append(body.request())
        return BatchRequest(tuple(queries), self.fuse, 10 if self.limit is None else self.limit)


class ProjectionBody(Shape):
    """`POST /v1/projection`."""

    workspace: str | None = None
    task: str | None = None
    categories: list[str] | None = Field(None, max_length=values.MAX_TAGS)
    max_tokens: int = Field(ge=1, le=1_000_000)
    query_time_unix_ms: Milliseconds | None = None
    include_history: bool = False

    def request(self) -> ProjectionRequest:
        """The complete, checked request; raises Invalid."""
        if self.task is not None:
            values.check_unicode(self.task, field="task")
            values.check_size(self.task, field="task", max_bytes=values.MAX_QUERY_BYTES)
            if not self.task.strip():
                raise Invalid("task is blank: leave it out", field="task")
        named = [
            values.check_name(category, field="categories", max_length=values.MAX_CATEGORY)
            for category in self.categories or ()
        ]
        return ProjectionRequest(
            max_tokens=self.max_tokens,
            workspace=None if self.workspace is None else values.check_workspace(self.workspace),
            task=self.task,
            categories=tuple(dict.fromkeys(named)),
            query_time_unix_ms=self.query_time_unix_ms,
            include_history=self.include_history,
        )


# ----------------------------------------------------------------------------------------------------- context


def _workspace(value: str | None) -> str | None:
    return None if value is None else values.check_workspace(value)


def _item_id(value: str | None) -> str | None:
    return None if value is None else check_item_id(value)


def _occurrence(value: str | None, *, item_id: str | None) -> str | None:
    """One of a series: it needs the item that it is one of."""
    if value is None:
        return None
    if item_id is None:
        raise Invalid("an occurrence needs the item it is one of", field="occurrence")
    return values.check_name(value, field="occurrence", max_length=MAX_OCCURRENCE, blank=False)


class ContextBody(Shape):
    """`POST /v1/context`."""

    text: str
    workspace: str | None = None
    item_id: str | None = None
    occurrence: str | None = None
    reason: str | None = None
    supersedes_context_id: str | None = None
    occurred_at: Instant | None = None
    occurred_at_unix_ms: Milliseconds | None = None
    tags: list[str] = Field(default_factory=list)

    def new(self) -> NewContext:
        """The complete, checked entry, but for its workspace where none was named; raises Invalid."""
        item_id = _item_id(self.item_id)
        if self.supersedes_context_id is not None:
            values.check_unicode(self.supersedes_context_id, field="supersedes_context_id")
        return NewContext(
            text=values.check_text(self.text),
            workspace=_workspace(self.workspace) or "",
            item_id=item_id,
            occurrence=_occurrence(self.occurrence, item_id=item_id),
            reason=values.checked_reason(self.reason),
            supersedes=self.supersedes_context_id,
            occurred_at=_twin(self, "occurred_at"),
            tags=tuple(values.check_tags(self.tags)),
        )


def _twin(shape: Shape, name: str) -> int | None:
    """An instant that may be said in either of two fields; raises Invalid where they differ."""
    spelt, number = getattr(shape, name), getattr(shape, f"{name}_unix_ms")
    if None not in (spelt, number) and spelt != number:
        raise Invalid(f"{name} and {name}_unix_ms differ", field=f"{name}_unix_ms")
    found: int | None = number if spelt is None else spelt
    return found


class ContextSearchBody(Shape):
    """`POST /v1/context/search`."""

    query: str
    workspace: str | None = None
    item_id: str | None = None
    occurrence: str | None = None
    temporal: Temporal | None = None
    limit: int = Field(10, ge=1, le=recalls.MAX_LIMIT)

    def request(self) -> ContextSearch:
        """The complete, checked request; raises Invalid."""
        values.check_unicode(self.query, field="query")
        values.check_size(self.query, field="query", max_bytes=values.MAX_QUERY_BYTES)
        if not self.query.strip():
            raise Invalid("a context search needs a query", field="query", code="query_required")
        item_id = _item_id(self.item_id)
        temporal = None if self.temporal is None else (self.temporal.start, self.temporal.end)
        recalls.require_temporal(temporal)
        return ContextSearch(
            query=self.query,
            workspace=_workspace(self.workspace),
            item_id=item_id,
            occurrence=_occurrence(self.occurrence, item_id=item_id),
            temporal=temporal,
            limit=self.limit,
        )


class CorrectionBody(Shape):
    """`POST /v1/events/{id}/corrections`: `text` to supersede with or to note, `successor` a stored event instead."""

    kind: Literal["supersede", "retract", "link", "annotate", "restore"]
    reason: str
    text: str | None = None
    successor: str | None = None
    dry_run: bool = False

    def checked(self) -> CorrectionBody:
        """The same, with what no database stores refused by field; raises Invalid."""
        for name in ("reason", "text", "successor"):
            if getattr(self, name) is not None:
                values.check_unicode(getattr(self, name), field=name)
        return self


# ----------------------------------------------------------------------------------------------------- memories


class MemoryFields(Shape):
    """The fields of a memory that a caller may send; each instant also as `*_unix_ms`."""

    text: str | None = None
    tags: list[str] | None = None
    category: str | None = None
    provenance_class: str | None = None
    status: str | None = None
    archived: bool | None = None
    created_at: Instant | None = None
    created_at_unix_ms: Milliseconds | None = None
    t_valid: Instant | None = None
    t_valid_unix_ms: Milliseconds | None = None
    t_invalid: Instant | None = None
    t_invalid_unix_ms: Milliseconds | None = None
    expires_at: Instant | None = None
    expires_at_unix_ms: Milliseconds | None = None
    source_event_id: str | None = None
    external_id: str | None = None
    metadata: dict[str, Any] | None = None

    def sent(self) -> dict[str, Any]:
        """Only the fields that were named, instants merged with their `*_unix_ms` twins; raises Invalid."""
        named = self.model_dump(exclude_unset=True)
        named.pop("reason", None)
        for name in ("created_at", "t_valid", "t_invalid", "expires_at"):
            if f"{name}_unix_ms" in named:
                twin = named.pop(f"{name}_unix_ms")
                if name in named and named[name] != twin:
                    raise Invalid(f"{name} and {name}_unix_ms differ", field=f"{name}_unix_ms")
                named[name] = twin
        for name, empty in _EMPTY.items():
            if name in named and named[name] is None:
                named[name] = empty
        for name in ("text", "status", "created_at", "archived"):
            if name in named and named[name] is None:
                raise Invalid(f"{name} cannot be null", field=name)
        return named


_EMPTY: dict[str, Any] = {"tags": [], "category": "", "provenance_class": "unknown", "metadata": {}}


class NewMemoryFields(MemoryFields):
    """A new memory's fields: its workspace too, where null says as little as leaving it out."""

    workspace: str | None = None
    reason: str = ""

    def sent(self) -> dict[str, Any]:
        named = super().sent()
        if named.get("workspace", "") is None:
            named.pop("workspace")
        return named


class MemoryBody(NewMemoryFields):
    """`POST /v1/memories`."""

    text: str


class MemoryPatch(MemoryFields):
    """`PATCH /v1/memories/{id}`."""

    workspace: str | None = None
    reason: str = ""


class BulkBody(Shape):
    """`POST /v1/memories/bulk`: rows are validated one by one, so that a bad one loses no other."""

    memories: list[Any]


class LinkBody(Shape):
    """`POST /v1/links`."""

    source: str = Field(alias="from")
    to: str
    type: str
    strength: float | None = Field(None, ge=0, le=1, allow_inf_nan=False)
    reason: str = ""
    created_at: Instant | None = None
    created_at_unix_ms: Milliseconds | None = None

    def made_at(self) -> int | None:
        if (
            None not in (self.created_at, self.created_at_unix_ms)
            and self.created_at != self.created_at_unix_ms
        ):
            raise Invalid("created_at and created_at_unix_ms differ", field="created_at_unix_ms")
        return self.created_at if self.created_at is not None else self.created_at_unix_ms


class SupersedeBody(NewMemoryFields):
    """`POST /v1/memories/{id}/supersede`: `text` with any fields for a new memory, or `by` for a stored one."""

    by: str | None = None
    relation: str = EVOLVED_INTO


class ReasonBody(Shape):
    """A body that holds a reason and nothing else."""

    reason: str = ""
