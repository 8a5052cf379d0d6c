"""One middleware of our own: every request has an id, echoed in `X-Request-Id`."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable

from django.http import HttpRequest, HttpResponse

_SAFE = re.compile(r"[\w.-]{1,64}", re.ASCII)


def request_id(get_response: Callable[[HttpRequest], HttpResponse]) -> Callable[[HttpRequest], HttpResponse]:
    """Take the caller's `X-Request-Id` when it is harmless, else make one."""

    def middleware(request: HttpRequest) -> HttpResponse:
        given = request.headers.get("X-Request-Id", "")
        request.id = given if _SAFE.fullmatch(given) else secrets.token_hex(8)  # type: ignore[attr-defined]
        response = get_response(request)
        response["X-Request-Id"] = request.id  # type: ignore[attr-defined]
        return response

    return middleware
