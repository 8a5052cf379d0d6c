"""Memories and links over REST."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from ledger.clock import now_ms
from ledger.domain.instants import UnixMs
from ledger.domain.refusals import Invalid, Refused
from recall import services as recalls
from recall.answers import event_json, link_json, memory_json
from recall.api import errors
from recall.api.access import caller_of
from recall.api.arguments import (
    ANY,
    WHOLE,
    boolean_of,
    check_search,
    if_match,
    instant_of,
    paged_links,
    query_of,
    reason_of,
)
from recall.domain.request import TAGS_MATCH
from recall.domain.state import Anchor, State
from recall.domain.validity import grade_in_state
from recall.paging import page_of, parse_cursor, parse_limit
from recall.pipeline import anchored
from recall.queries import current_page, states_of
from recall.shapes import (
    BulkBody,
    LinkBody,
    MemoryBody,
    MemoryPatch,
    ReasonBody,
    SupersedeBody,
    parse,
)
from vault import services as vault
from vault.domain import values
from vault.domain.access import scope_of
from vault.domain.facts import PROVENANCE_CLASSES, STATUSES
from vault.domain.links import LINK_TYPES
from vault.models import Memory, MemoryLink, MemoryQuerySet
from vault.queries import links_of, memory_for

MEMORY = {"type": "object", "description": "A memory."}


def answered(memory: Memory, *, status: int = 200, at: UnixMs | None = None) -> Response:
    """A memory with its state, and its version as ETag."""
    anchor = Anchor(*anchored(at, now=now_ms()))
    state = states_of([memory], anchor)[memory.id]
    return Response(memory_json(memory, state), status=status, headers={"ETag": f'"{memory.version}"'})


class Memories(APIView):
    """Store a memory; list what the key may read."""

    @extend_schema(operation_id="memories_create", request=MemoryBody, responses={201: MEMORY, 200: MEMORY})
    def post(self, request: Request) -> Response:
        query_of(request, ())
        body = parse(MemoryBody, request.data)
        outcome = vault.remember(body.sent(), caller=caller_of(request), at=now_ms(), reason=body.reason)
        memory = memory_for(caller_of(request).reach, outcome.memory.id)
        return answered(memory, status=201 if outcome.created else 200)

    LIST = (
        "workspace tags tags_match category provenance_class status archived state q created_after created_before "
        "validity_annotate limit cursor"
    ).split()

    @extend_schema(
        operation_id="memories_list",
        parameters=[OpenApiParameter(name, str) for name in LIST],
        responses={200: ANY},
    )
    def get(self, request: Request) -> Response:
        asked = query_of(request, tuple(self.LIST))
        reach, now = caller_of(request).reach, now_ms()
        rows = _narrowed(asked, request, scope_of(asked.get("workspace"), reach))
        state = values.check_choice(asked.get("state", "current"), ("current", "all"), field="state")
        limit, cursor = parse_limit(asked.get("limit")), parse_cursor(asked.get("cursor"))
        if state == "current":
            page, states = current_page(rows, Anchor(now), cursor=cursor, limit=limit)
        else:
            page = page_of(rows, cursor=cursor, limit=limit)
            states = states_of(page.rows, Anchor(now))
        annotate = boolean_of(asked, "validity_annotate")
        hidden = _outside(rows, states.values())
        results = []
        for memory in page.rows:
            shown = memory_json(memory, states[memory.id], hide=hidden)
            if annotate:
                shown |= _validity(memory, states[memory.id], asked.get("workspace"), now)
            results.append(shown)
        return Response({"results": results, **paged_links(request, page.next, page.previous)})


def _outside(rows: MemoryQuerySet, states: Iterable[State]) -> frozenset[str]:
    """The replacements that do not match the caller's filters: they are never named."""
    replacements = {state.replacement_id for state in states if state.replacement_id is not None}
    if not replacements:
        return frozenset()
    return frozenset(replacements - set(rows.filter(id__in=replacements).values_list("id", flat=True)))


def _validity(memory: Memory, state: State, workspace: str | None, at: UnixMs) -> dict[str, Any]:
    block = grade_in_state(memory.facts, state, at=at, workspace=workspace).block()
    if block["grade"] == "context_invalid":
        return {"validity": block, "context_invalid": True}
    return {"validity": block}


def _narrowed(asked: dict[str, str], request: Request, scope: Any) -> MemoryQuerySet:
    rows = Memory.objects.select_related("workspace").prefetch_related("tags").within(scope)
    choices = {"provenance_class": PROVENANCE_CLASSES, "status": STATUSES}
    for name, known in choices.items():
        if name in asked:
            rows = rows.filter(**{name: values.check_choice(asked[name], known, field=name)})
    if "category" in asked:
        category = values.check_name(asked["category"], field="category", max_length=values.MAX_CATEGORY)
        rows = rows.filter(category=category)
    if (archived := boolean_of(asked, "archived")) is not None:
        rows = rows.filter(archived=archived)
    if (after := instant_of(asked, "created_after")) is not None:
        rows = rows.filter(created_at__gte=after)
    if (before := instant_of(asked, "created_before")) is not None:
        rows = rows.filter(created_at__lt=before)
    if asked.get("q"):
        rows = rows.filter(text__icontains=check_search(asked["q"]))
    tags = values.check_tags(request.query_params.getlist("tags"))
    match = values.check_choice(asked.get("tags_match", "any_strict"), TAGS_MATCH, field="tags_match")
    return rows.tagged(tags, match)


class Bulk(APIView):
    """Store up to 1,000 memories; a bad row never loses the others."""

    bulk = True

    @extend_schema(operation_id="memories_bulk", request=BulkBody, responses={207: ANY})
    def post(self, request: Request) -> Response:
        query_of(request, ())
        raw = parse(BulkBody, request.data).memories
        if len(raw) > vault.MAX_BULK:
            raise Invalid(
                f"{len(raw):,} memories; at most {vault.MAX_BULK:,} are taken at once",
                field="memories",
                code="too_large",
            )
        failed: list[dict[str, Any]] = []
        rows, places = [], []
        for index, entry in enumerate(raw):
            try:
                body = parse(MemoryBody, entry)
                rows.append((body.sent(), body.reason))
                places.append(index)
            except Refused as refusal:
                failed.append(_failure(index, refusal))
        outcomes = vault.remember_many(rows, caller=caller_of(request), at=now_ms())
        done: dict[str, list[dict[str, Any]]] = {"created": [], "unchanged": []}
        for index, outcome in zip(places, outcomes, strict=True):
            if isinstance(outcome, Refused):
                failed.append(_failure(index, outcome))
            else:
                done["created" if outcome.created else "unchanged"].append(
                    {"index": index, "id": outcome.memory.id}
                )
        failed.sort(key=lambda failure: failure["index"])
        return Response(
            {
                "created": len(done["created"]),
                "unchanged": len(done["unchanged"]),
                "failed": failed,
                "memories": sorted(done["created"] + done["unchanged"], key=lambda entry: entry["index"]),
            },
            status=207,
        )


def _failure(index: int, refusal: Refused) -> dict[str, Any]:
    told = errors.body(refusal.code, refusal.message, field=refusal.field, hint=refusal.hint)
    return {"index": index, **told}


class OneMemory(APIView):
    """Read, change, archive one memory."""

    @extend_schema(
        operation_id="memory_read", parameters=[OpenApiParameter("at", str)], responses={200: MEMORY}
    )
    def get(self, request: Request, memory_id: str) -> Response:
        asked = query_of(request, ("at",))
        return answered(memory_for(caller_of(request).reach, memory_id), at=instant_of(asked, "at"))

    @extend_schema(operation_id="memory_revise", request=MemoryPatch, responses={200: MEMORY})
    def patch(self, request: Request, memory_id: str) -> Response:
        query_of(request, ())
        body = parse(MemoryPatch, request.data)
        memory = vault.revise(
            memory_id,
            body.sent(),
            caller=caller_of(request),
            at=now_ms(),
            reason=body.reason,
            if_match=if_match(request),
        )
        return answered(memory)

    @extend_schema(operation_id="memory_archive", responses={200: MEMORY})
    def delete(self, request: Request, memory_id: str) -> Response:
        memory = vault.archive(
            memory_id,
            caller=caller_of(request),
            at=now_ms(),
            reason=reason_of(request),
            if_match=if_match(request),
        )
        return answered(memory)


class Verify(APIView):
    """Vouch for a memory, with a reason."""

    @extend_schema(operation_id="memory_verify", request=ReasonBody, responses={200: MEMORY})
    def post(self, request: Request, memory_id: str) -> Response:
        query_of(request, ())
        body = parse(ReasonBody, request.data)
        memory = vault.verify(memory_id, caller=caller_of(request), at=now_ms(), reason=body.reason)
        return answered(memory)


class Erase(APIView):
    """Erase a memory's text for good, with a reason."""

    scopes = {"POST": "admin"}

    @extend_schema(operation_id="memory_erase", request=ReasonBody, responses={200: MEMORY})
    def post(self, request: Request, memory_id: str) -> Response:
        query_of(request, ())
        body = parse(ReasonBody, request.data)
        memory = recalls.erase(
            memory_id, caller=caller_of(request), at=now_ms(), reason=body.reason, if_match=if_match(request)
        )
        return answered(memory)


class Supersede(APIView):
    """Put a new or a stored memory in this one's place."""

    @extend_schema(operation_id="memory_supersede", request=SupersedeBody, responses={201: ANY})
    def post(self, request: Request, memory_id: str) -> Response:
        query_of(request, ())
        body = parse(SupersedeBody, request.data)
        sent = body.sent()
        by, relation = sent.pop("by", None), sent.pop("relation", body.relation)
        if by is not None and sent:
            raise Invalid("name either text, for a new memory, or by, for a stored one", field="by")
        memory, link = vault.supersede(
            memory_id,
            caller=caller_of(request),
            at=now_ms(),
            sent=sent or None,
            by=by,
            relation=relation,
            reason=body.reason,
            if_match=if_match(request),
        )
        state = states_of([memory], Anchor(now_ms()))[memory.id]
        return Response({"memory": memory_json(memory, state), "link": link_json(link)}, status=201)


class History(APIView):
    """The ledger events of a memory, with before and after."""

    @extend_schema(operation_id="memory_history", responses={200: ANY})
    def get(self, request: Request, memory_id: str) -> Response:
        query_of(request, ())
        reach = caller_of(request).reach
        events = vault.history_of(memory_for(reach, memory_id))
        return Response({**WHOLE, "results": [event_json(event, reach=reach) for event in events]})


class Related(APIView):
    """Memories that links lead to, up to three steps, current ones only."""

    @extend_schema(
        operation_id="memory_related",
        parameters=[OpenApiParameter("depth", int), OpenApiParameter("types", str)],
        responses={200: ANY},
    )
    def get(self, request: Request, memory_id: str) -> Response:
        asked = query_of(request, ("depth", "types"))
        depth = asked.get("depth", "1")
        if depth not in ("1", "2", "3"):
            raise Invalid("depth must be 1, 2 or 3", field="depth")
        types = [t for t in asked.get("types", "").split(",") if t]
        for name in types:
            values.check_choice(name, LINK_TYPES, field="types")
        memory = memory_for(caller_of(request).reach, memory_id)
        return Response({**WHOLE, "results": _related(memory, int(depth), types)})


def _related(start: Memory, depth: int, types: list[str]) -> list[dict[str, Any]]:
    seen = {start.seq}
    frontier, results = {start.seq}, list[dict[str, Any]]()
    for step in range(1, depth + 1):
        links = MemoryLink.objects.select_related("source", "target")
        touching = links.filter(source__in=frontier) | links.filter(target__in=frontier)
        if types:
            touching = touching.filter(type__in=types)
        reached: dict[int, Any] = {}
        for link in touching.order_by("created_at", "id"):
            other = link.target if link.source_id in frontier else link.source
            if other.seq not in seen:
                reached.setdefault(other.seq, link)
        seen |= set(reached)
        found = Memory.objects.select_related("workspace").prefetch_related("tags").filter(seq__in=reached)
        states = states_of(found, Anchor(now_ms()))
        results += [
            {"memory": memory_json(m, states[m.id]), "link": link_json(reached[m.seq]), "depth": step}
            for m in sorted(found, key=lambda m: m.id)
            if states[m.id].current
        ]
        frontier = set(reached)
    return results


class Links(APIView):
    """Join two memories; list the links of one."""

    @extend_schema(operation_id="links_create", request=LinkBody, responses={201: ANY})
    def post(self, request: Request) -> Response:
        query_of(request, ())
        body = parse(LinkBody, request.data)
        created_at = body.made_at()
        link = vault.link(
            body.source,
            body.to,
            body.type,
            caller=caller_of(request),
            at=now_ms(),
            strength=body.strength,
            created_at=created_at,
            reason=body.reason,
        )
        return Response(link_json(link), status=201)

    @extend_schema(
        operation_id="links_list",
        parameters=[OpenApiParameter("memory", str, required=True)],
        responses={200: ANY},
    )
    def get(self, request: Request) -> Response:
        asked = query_of(request, ("memory",))
        if "memory" not in asked:
            raise Invalid("memory is required", field="memory", code="required")
        memory = memory_for(caller_of(request).reach, asked["memory"])
        return Response({**WHOLE, "results": [link_json(link) for link in links_of(memory)]})


class OneLink(APIView):
    """Take a link back; its events remain."""

    @extend_schema(operation_id="link_remove", responses={204: None})
    def delete(self, request: Request, link_id: str) -> Response:
        vault.unlink(link_id, caller=caller_of(request), at=now_ms(), reason=reason_of(request))
        return Response(status=204)
