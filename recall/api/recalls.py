"""Recall and its records over REST."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from ledger.clock import now_ms
from ledger.domain.instants import format_instant
from recall import services
from recall.api.access import caller_of
from recall.api.arguments import ANY, check_search, instant_of, paged_links, query_of
from recall.api.parsing import query_lists
from recall.batches import recall_batch
from recall.domain.request import OUTCOMES, PROFILES
from recall.domain.validity import GRADES
from recall.models import RecallRecord
from recall.paging import page_of, parse_cursor, parse_limit
from recall.queries import records_of
from recall.records import Stored, record_for
from recall.shapes import BatchBody, RecallBody, parse, parse_query
from vault.domain import values

NO_STORE = {"Cache-Control": "no-store"}


class Recall(APIView):
    """Ask a question; every hit comes with what speaks for and against it, and the answer with its record."""

    scopes = {"POST": "read"}

    @extend_schema(operation_id="recall", request=RecallBody, responses={200: ANY})
    def post(self, request: Request) -> Response:
        query_of(request, ())
        return self._answer(request, parse(RecallBody, request.data))

    @extend_schema(
        operation_id="recall_get",
        parameters=[OpenApiParameter(name, str) for name in RecallBody.model_fields],
        responses={200: ANY},
    )
    def get(self, request: Request) -> Response:
        purposes = [request.headers.get(name, "") for name in ("Sec-Purpose", "Purpose", "X-Moz")]
        if "prefetch" in " ".join(purposes).lower():
            return Response(status=204, headers=NO_STORE)  # a guess of the browser's is not a question
        return self._answer(request, parse_query(RecallBody, query_lists(request._request)))

    def head(self, request: Request) -> Response:  # noqa: ARG002  answers nothing, so it asks nothing
        return Response(status=200, headers=NO_STORE)

    def _answer(self, request: Request, body: RecallBody) -> Response:
        answer = services.recall(body.request(), caller=caller_of(request), surface="api", at=now_ms())
        return Response(answer, headers=NO_STORE)


class RecallBatch(APIView):
    """Ask several questions at once, each on its own terms and anchor; with fuse, one answer merged from theirs."""

    scopes = {"POST": "read"}

    @extend_schema(operation_id="recall_batch", request=BatchBody, responses={200: ANY})
    def post(self, request: Request) -> Response:
        query_of(request, ())
        batch = parse(BatchBody, request.data).request()
        answer = recall_batch(batch, caller=caller_of(request), surface="api", at=now_ms())
        return Response(answer, headers=NO_STORE)


def record_json(row: RecallRecord) -> dict[str, Any]:
    return {
        "id": row.id,
        "created_at": format_instant(row.created_at),
        "anchor": format_instant(row.anchor),
        "actor": {"kind": row.actor_kind, "id": row.actor_id, "label": row.actor_label},
        "surface": row.surface,
        "workspace": row.workspace,
        "profile": row.profile,
        "mode": row.mode,
        "history": row.history,
        "query": row.query,
        "outcome": row.outcome,
        "served": row.served,
        "grades": {name: getattr(row, name) for name in GRADES},
        "suppressed": row.suppressed,
        "candidates": row.candidates,
        "warnings": row.warnings.split(),
        "total_ms": row.total_us / 1000,
        "digest": row.digest,
    }


class Recalls(APIView):
    """The records, newest first."""

    LIST = "actor surface workspace profile outcome grade warning from to q limit cursor".split()

    @extend_schema(
        operation_id="recalls_list",
        parameters=[OpenApiParameter(name, str) for name in LIST],
        responses={200: ANY},
    )
    def get(self, request: Request) -> Response:
        asked = query_of(request, tuple(self.LIST))
        reach = caller_of(request).reach
        if "workspace" in asked:
            reach.require_readable(asked["workspace"])
        if "q" in asked:
            check_search(asked["q"])
        for name, known in (("grade", GRADES), ("profile", PROFILES), ("outcome", OUTCOMES)):
            if name in asked:
                values.check_choice(asked[name], known, field=name)
        for name in ("from", "to"):
            if (at := instant_of(asked, name)) is not None:
                asked[name] = str(at)
        page = page_of(
            records_of(reach, asked),
            cursor=parse_cursor(asked.get("cursor")),
            limit=parse_limit(asked.get("limit")),
        )
        results = [record_json(row) for row in page.rows]
        return Response(
            {"results": results, **paged_links(request, page.next, page.previous)}, headers=NO_STORE
        )


class OneRecall(APIView):
    """One record, whole: the request, the answer as it was sent, every candidate with its factors and verdict."""

    @extend_schema(operation_id="recall_read", responses={200: ANY})
    def get(self, request: Request, recall_id: str) -> Response:
        query_of(request, ())
        return Response(stored_json(record_for(caller_of(request).reach, recall_id)), headers=NO_STORE)


_AS_STORED = "request scope policy index embedder ledger_head answer text_sha256".split()


def stored_json(stored: Stored) -> dict[str, Any]:
    return {
        **record_json(stored.row),
        **{name: stored.document[name] for name in _AS_STORED},
        "reranker": stored.document.get("reranker"),  # the first layout knew of none
        "digest_holds": stored.digest_holds,
        "candidates": stored.candidates,
        "candidate_count": stored.row.candidates,
    }
