"""Context, the events of the ledger, their corrections and deliveries over REST."""

from __future__ import annotations

import threading
from typing import Any

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from ledger import queries, services, triggers
from ledger.clock import now_ms
from ledger.domain.chain import Edge
from ledger.domain.events import DELIVERED, KINDS
from ledger.domain.instants import UnixMs, format_instant
from ledger.domain.refusals import Forbidden, NotFound, Unavailable
from ledger.models import ContextEvent, OutboxEntry
from ledger.queries import Chain
from ledger.services import Preview
from recall import context, erasure
from recall.answers import event_json
from recall.api.access import caller_of
from recall.api.arguments import ANY, paged_links, query_of
from recall.corrections import recalls_touched
from recall.paging import page_of, parse_cursor, parse_limit
from recall.shapes import ContextBody, ContextSearchBody, CorrectionBody, ReasonBody, parse
from vault.domain import values
from vault.domain.access import Reach, scope_of
from vault.domain.items import check_item_id

NO_STORE = {"Cache-Control": "no-store"}
KEY = "Idempotency-Key"


def key_of(request: Request) -> str:
    return request.headers.get(KEY, "")


def _key(*, required: bool) -> OpenApiParameter:
    return OpenApiParameter(KEY, str, OpenApiParameter.HEADER, required=required)


class Context(APIView):
    """Record a context event, to be delivered to the memory bank. The same key and body again: the first answer."""

    @extend_schema(
        operation_id="context_add",
        request=ContextBody,
        parameters=[_key(required=True)],
        responses={200: ANY, 201: ANY},
    )
    def post(self, request: Request) -> Response:
        query_of(request, ())
        body = parse(ContextBody, request.data)
        added = context.add(
            body.new(), workspace=body.workspace, key=key_of(request), caller=caller_of(request), at=now_ms()
        )
        answer = {
            "operation_id": added.operation_id,
            "event_id": added.event_id,
            "context_delivery": "pending",
        }
        return Response(answer, status=201 if added.created else 200)


class ContextSearch(APIView):
    """Search context, of one item or of a whole bank. What was superseded says so; what holds now comes first."""

    scopes = {"POST": "read"}

    @extend_schema(operation_id="context_search", request=ContextSearchBody, responses={200: ANY})
    def post(self, request: Request) -> Response:
        query_of(request, ())
        asked = parse(ContextSearchBody, request.data).request()
        answer = context.search(asked, caller=caller_of(request), surface="api", at=now_ms())
        return Response(answer, headers=NO_STORE)


# ----------------------------------------------------------------------------------------------- events


class Events(APIView):
    """The ledger's events that the key may read, newest first."""

    LIST = "kind item_id workspace memory limit cursor".split()

    @extend_schema(
        operation_id="events_list",
        parameters=[OpenApiParameter(name, str) for name in LIST],
        responses={200: ANY},
    )
    def get(self, request: Request) -> Response:
        asked = query_of(request, tuple(self.LIST))
        rows, reach = ContextEvent.objects.all(), caller_of(request).reach
        scope = scope_of(asked.get("workspace"), reach)
        if scope.workspaces is not None:
            rows = rows.filter(workspace__in=scope.workspaces)
        if "kind" in asked:
            rows = rows.filter(kind=values.check_choice(asked["kind"], KINDS, field="kind"))
        if "item_id" in asked:
            rows = rows.filter(item_id=check_item_id(asked["item_id"]))
        if "memory" in asked:
            rows = rows.filter(subject_id=asked["memory"])
        page = page_of(rows, cursor=parse_cursor(asked.get("cursor")), limit=parse_limit(asked.get("limit")))
        results = [event_json(event, reach=reach) for event in page.rows]
        return Response(
            {"results": results, **paged_links(request, page.next, page.previous)}, headers=NO_STORE
        )


class OneEvent(APIView):
    """One event with what it supersedes, the head of its chain, the whole chain, and its delivery."""

    @extend_schema(operation_id="event_read", responses={200: ANY})
    def get(self, request: Request, event_id: str) -> Response:
        query_of(request, ())
        reach = caller_of(request).reach
        return Response(whole_event_json(_event_for(event_id, reach), reach=reach), headers=NO_STORE)


def _event_for(event_id: str, reach: Reach) -> ContextEvent:
    return queries.event(event_id, reach.workspaces)


def whole_event_json(event: ContextEvent, *, reach: Reach) -> dict[str, Any]:
    chain = queries.chain_of(event.id) if event.kind in DELIVERED else Chain((), ())
    head = queries.heads_of([event.id])[event.id]
    before = [edge.old for edge in chain.edges if edge.new == event.id and edge.effective]
    entries = {entry.kind: entry for entry in queries.outbox_entries(None, event_id=event.id)}
    return {
        **event_json(event, reach=reach),
        "supersedes": before[0] if before else None,
        "superseded_by": head.id if head.superseded else None,
        **chain_json(chain),
        "delivery": delivery_json(entries["context"]) if "context" in entries else None,
        "erasure": delivery_json(entries["erasure"]) if "erasure" in entries else None,
    }


def chain_json(chain: Chain) -> dict[str, Any]:
    """The events of a chain, oldest first, each with its direct successor; every supersession among them."""
    following = {edge.old: edge.new for edge in chain.edges if edge.effective}
    if chain.truncated:  # the next of some is not among those shown
        following |= queries.successors_of(event.id for event in chain.events)
    return {
        "chain": [
            {
                "id": event.id or None,  # in a preview: the correction, which has no id yet
                "kind": event.kind,
                "occurred_at": format_instant(event.occurred_at),
                "text": event.text,
                "reason": event.reason,
                "erased": event.erased,
                "superseded_by": following.get(event.id) or None,
                "is_head": event.id not in following,
            }
            for event in chain.events
        ],
        "supersessions": [edge_json(edge) for edge in chain.edges],
        "corrections": [event.id for event in chain.corrections if event.id],
        "chain_truncated": chain.truncated,
    }


def edge_json(edge: Edge) -> dict[str, Any]:
    return {
        "old": edge.old,
        "new": edge.new or None,
        "event_id": edge.event_id or None,
        "created_at": format_instant(edge.created_at),
        "voided": not edge.effective,
        "voided_by": edge.voided_by or None,
    }


class Corrections(APIView):
    """Correct an event by a new one: history is never edited. With dry_run: what it would do, and nothing else."""

    scopes = {"POST": "admin"}

    @extend_schema(
        operation_id="event_correct",
        request=CorrectionBody,
        parameters=[_key(required=False)],
        responses={200: ANY, 201: ANY},
    )
    def post(self, request: Request, event_id: str) -> Response:
        query_of(request, ())
        body = parse(CorrectionBody, request.data).checked()
        caller, at = caller_of(request), now_ms()
        told: dict[str, Any] = {
            "kind": body.kind,
            "reason": body.reason,
            "text": body.text,
            "successor": body.successor,
            "actor": caller.actor,
            "readable": caller.reach.reads,
            "writable": caller.reach.writes,
            "at": at,
        }
        if body.dry_run:
            return Response(preview_json(services.preview(event_id, **told), caller.reach), headers=NO_STORE)
        event = services.correct(event_id, key=key_of(request), **told)
        status = 201 if event.recorded_at == at else 200  # of the same key before
        return Response(whole_event_json(event, reach=caller.reach), status=status, headers=NO_STORE)


def preview_json(preview: Preview, reach: Reach) -> dict[str, Any]:
    touched = recalls_touched(preview, reach)
    return {
        "dry_run": True,
        "refused": preview.refused,
        "warnings": [{"code": code, "message": message} for code, message in preview.warnings],
        "chain_before": chain_json(preview.chain_before),
        "chain_after": chain_json(preview.chain_after),
        "delivered_text": preview.delivered_text,
        "recalls": {"count": touched.count, "newest": [row.id for row in touched.newest]},
        "hits": {"superseded": touched.falling, "current_again": touched.rising},
    }


class Erase(APIView):
    """Erase an event's text for good, with a reason, and the memories that were delivered from it."""

    scopes = {"POST": "admin"}

    @extend_schema(operation_id="event_erase", request=ReasonBody, responses={200: ANY})
    def post(self, request: Request, event_id: str) -> Response:
        query_of(request, ())
        body, caller = parse(ReasonBody, request.data), caller_of(request)
        event = _event_for(event_id, caller.reach)
        erasure.erase(event.id, caller=caller, at=now_ms(), reason=body.reason)
        erased = _event_for(event_id, caller.reach)
        return Response(whole_event_json(erased, reach=caller.reach), headers=NO_STORE)


# ----------------------------------------------------------------------------------------------- delivery


class OneOperation(APIView):
    """How the delivery of what an operation recorded stands."""

    @extend_schema(operation_id="operation_read", responses={200: ANY})
    def get(self, request: Request, operation_id: str) -> Response:
        query_of(request, ())
        found = queries.operation(operation_id, None)
        if not caller_of(request).reach.reads(found.workspace):
            raise NotFound(f"no operation {operation_id}", hint="ids begin with op_")
        answer = {
            "operation_id": found.id,
            "event_id": found.event_id,
            "workspace": found.workspace,
            "created_at": format_instant(found.created_at),
            "state": found.state,
            "attempts": found.attempts,
            "next_attempt_at": _or_none(found.next_attempt_at),
            "delivered_at": _or_none(found.delivered_at),
            "last_error": _error_json(found.error_code, found.error),
        }
        return Response(answer, headers=NO_STORE)


def delivery_json(entry: OutboxEntry) -> dict[str, Any]:
    waits = entry.state in ("pending", "delivering")
    return {
        "state": entry.state,
        "attempts": entry.attempts,
        "next_attempt_at": _or_none(entry.next_attempt_at if waits else None),
        "delivered_at": _or_none(entry.delivered_at),
        "remote_id": entry.remote_id or None,
        "last_error": _error_json(entry.error_code, entry.error),
    }


def _or_none(at: UnixMs | None) -> str | None:
    return None if at is None else format_instant(at)


def _error_json(code: str, message: str) -> dict[str, str] | None:
    return {"code": code, "message": message} if code else None


# ----------------------------------------------------------------------------------------------- verification

_verifying = threading.Lock()


class Verify(APIView):
    """Walk the hash chain. Only for a key that reads every workspace: the chain and its length are everybody's."""

    @extend_schema(operation_id="ledger_verify", responses={200: ANY})
    def get(self, request: Request) -> Response:
        query_of(request, ())
        if not caller_of(request).reach.sees_all:
            raise Forbidden(
                "the ledger is one chain over every workspace: a key that is bound to one cannot verify it"
            )
        if not _verifying.acquire(blocking=False):
            raise Unavailable(
                "a verification is under way", code="verification_running", hint="ask again when it has ended"
            )
        try:
            unguarded = triggers.missing()
            found = queries.verify()
        finally:
            _verifying.release()
        ok = found.ok and not unguarded
        answer: dict[str, Any] = {"ok": ok, "events": found.events, "head_hash": found.head_hash}
        if unguarded:
            answer["unguarded"] = unguarded  # triggers that the database lacks: anything may be changed now
        if found.first_broken is not None:
            broken = found.first_broken
            answer["first_broken"] = {"seq": broken.seq, "id": broken.id or None, "reason": broken.reason}
        return Response(answer, headers=NO_STORE)
