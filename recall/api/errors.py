"""Every error in one envelope: `{error: {code, message, field?, hint?}}`, the right status, never a stack trace."""

from __future__ import annotations

import logging
from typing import Any

from django.core.exceptions import RequestDataTooBig
from django.db import OperationalError
from django.http import Http404, HttpRequest, HttpResponseBase, JsonResponse
from django.views import defaults
from django.views.decorators.csrf import csrf_exempt
from rest_framework import exceptions
from rest_framework.response import Response
from rest_framework.views import set_rollback

from ledger.domain.refusals import Refused, Unavailable
from ledger.services import storage_refusal

log = logging.getLogger(__name__)

SOON_OVER = ("database_locked", "unavailable")  # most often another writer, who is done within a second


def body(code: str, message: str, *, field: str | None = None, hint: str | None = None) -> dict[str, Any]:
    error: dict[str, Any] = {"code": code, "message": cut(message, 500)}
    if field:
        error["field"] = cut(field, 200)
    if hint is not None:
        error["hint"] = hint
    return {"error": error}


def cut(text: str, length: int) -> str:
    """What a caller sent is repeated to it, but not a megabyte of it."""
    return text if len(text) <= length else text[: length - 1] + "…"


def envelope(error: Exception, context: dict[str, Any]) -> Response | None:
    """DRF's exception handler."""
    set_rollback()
    if isinstance(error, OperationalError):
        log.exception("database error in %s", type(context.get("view")).__name__)
        error = storage_refusal(error) or Unavailable(
            "the database did not answer; nothing was written", code="unavailable", hint="try again"
        )
    if isinstance(error, Refused):
        return Response(
            body(error.code, error.message, field=error.field, hint=error.hint),
            status=error.status,
            headers={"Retry-After": "1"} if error.code in SOON_OVER else None,
        )
    if isinstance(error, RequestDataTooBig):
        return Response(body("too_large", "the body is larger than this server takes"), status=413)
    if isinstance(error, Http404):
        error = exceptions.NotFound()
    if isinstance(error, exceptions.APIException):
        return _framework_error(error)
    log.exception("unexpected error in %s", type(context.get("view")).__name__)
    return Response(body("internal", "an unexpected error; it was logged"), status=500)


def _framework_error(error: exceptions.APIException) -> Response:
    headers: dict[str, str] = {}
    if isinstance(error, exceptions.NotAuthenticated | exceptions.AuthenticationFailed):
        headers["WWW-Authenticate"] = 'Bearer realm="recall"'
    wait = getattr(error, "wait", None)
    if wait is not None:
        headers["Retry-After"] = str(max(1, round(wait)))
    code = str(error.default_code if isinstance(error.detail, list | dict) else error.detail.code)
    return Response(body(code, str(error.detail)), status=error.status_code, headers=headers)


@csrf_exempt  # or a POST would be told about CSRF, in HTML
def unknown_address(request: HttpRequest) -> JsonResponse:
    """An address below /v1/ that does not exist."""
    return JsonResponse(
        body("not_found", f"no such address: {request.path}", hint="see /v1/docs"), status=404
    )


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponseBase:
    """What Django refuses before any view is asked: a foreign Host, a suspicious path."""
    if request.path.startswith("/v1/"):
        return JsonResponse(body("bad_request", "the request is malformed, or for another host"), status=400)
    return defaults.bad_request(request, exception)


def server_error(request: HttpRequest) -> HttpResponseBase:
    """What failed outside every view: logged by Django."""
    if request.path.startswith("/v1/"):
        return JsonResponse(body("internal", "an unexpected error; it was logged"), status=500)
    return defaults.server_error(request)
