"""Data quality, health."""

from __future__ import annotations

from typing import Any

from django.db import DatabaseError, connection
from django.http import HttpRequest, JsonResponse
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from ledger import triggers
from ledger.clock import now_ms
from ledger.queries import head
from recall import embedders
from recall.api.access import caller_of
from recall.api.arguments import ANY, WHOLE, query_of
from recall.banks import BankUnavailable, installed_bank
from recall.domain.state import Anchor
from recall.queries import quality
from recall.services import installed_index
from vault.domain.access import scope_of
from vault.domain.embedding import EmbedderUnavailable


class Quality(APIView):
    """What in the store somebody should look at."""

    @extend_schema(
        operation_id="quality", parameters=[OpenApiParameter("workspace", str)], responses={200: ANY}
    )
    def get(self, request: Request) -> Response:
        asked = query_of(request, ("workspace",))
        findings = quality(scope_of(asked.get("workspace"), caller_of(request).reach), Anchor(now_ms()))
        results = [{"code": f.code, "message": f.message, "memory_ids": list(f.memory_ids)} for f in findings]
        return Response({**WHOLE, "results": results})


def healthz(request: HttpRequest) -> JsonResponse:  # noqa: ARG001  Django's signature
    """The process answers."""
    return JsonResponse({"status": "ok"})


def embedder_part() -> dict[str, Any]:
    """The embedder, and what waits for it. Without one, recall goes on by words, and says so: that is ready."""
    try:
        return {"ok": True, "model": embedders.installed().model_id}
    except EmbedderUnavailable as error:
        return {"ok": False, "reason": str(error)}


def bank_part() -> dict[str, Any]:
    """The memory bank. Without it context cannot be searched, and says so, and waits to be delivered: that is ready."""
    bank = installed_bank()
    try:
        bank.check()
    except BankUnavailable as error:
        return {"ok": False, "bank": bank.name, "code": error.code, "reason": error.reason}
    return {"ok": True, "bank": bank.name}


def readyz(request: HttpRequest) -> JsonResponse:  # noqa: ARG001  Django's signature
    """Database, ledger guards, index, embedder and bank, each with a reason when it is not ready."""
    parts: dict[str, Any] = {}
    try:
        head()
        connection.ensure_connection()
        parts["database"] = {"ok": True}
        missing = triggers.missing()
        parts["ledger"] = {"ok": not missing} | (
            {"reason": f"missing guards: {', '.join(missing)}"} if missing else {}
        )
        parts["index"] = {"ok": True, "engine": installed_index().version}
        parts["embedder"] = embedder_part()
        parts["bank"] = bank_part()
    except DatabaseError as error:
        parts["database"] = {"ok": False, "reason": str(error)}
    ready = all(part["ok"] for name, part in parts.items() if name not in ("embedder", "bank"))
    return JsonResponse(
        {"status": "ready" if ready else "not ready", "parts": parts}, status=200 if ready else 503
    )
