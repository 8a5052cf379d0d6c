"""JSON in and out, by orjson: it refuses NaN, broken UTF-8 and halves of surrogate pairs where the standard
library's parser lets them through to fail later."""

from __future__ import annotations

from collections.abc import Mapping
from typing import IO, Any

import orjson
from django.http import HttpRequest
from rest_framework.exceptions import APIException
from rest_framework.parsers import BaseParser
from rest_framework.renderers import BaseRenderer

from ledger.domain.refusals import Invalid

MAX_BODY = 2 * 1024 * 1024
MAX_BULK_BODY = 32 * 1024 * 1024


class TooLarge(APIException):
    status_code = 413
    default_code = "too_large"


def _drain(stream: IO[Any]) -> None:
    """Read what is left of a body that is refused, up to the largest one: the connection can then go on."""
    left = MAX_BULK_BODY
    while left > 0 and (piece := stream.read(64 * 1024)):
        left -= len(piece)


class JSONParser(BaseParser):
    """A JSON body of at most 2 MB (32 MB where the view says `bulk = True`)."""

    media_type = "application/json"

    def parse(
        self,
        stream: IO[Any],
        media_type: str | None = None,  # noqa: ARG002  DRF's signature
        parser_context: Mapping[str, Any] | None = None,
    ) -> Any:
        view = (parser_context or {}).get("view")
        limit = MAX_BULK_BODY if getattr(view, "bulk", False) else MAX_BODY
        raw = stream.read(limit + 1)
        if len(raw) > limit:
            _drain(stream)
            raise TooLarge(f"the body is larger than {limit // 1024 // 1024} MB")
        try:
            return orjson.loads(raw)
        except orjson.JSONDecodeError as error:
            raise Invalid(f"the body is not JSON: {error}", code="malformed") from error


class JSONRenderer(BaseRenderer):
    media_type = "application/json"
    format = "json"
    charset = None

    def render(
        self,
        data: Any,
        accepted_media_type: str | None = None,  # noqa: ARG002  DRF's signature
        renderer_context: Mapping[str, Any] | None = None,  # noqa: ARG002
    ) -> bytes:
        return b"" if data is None else orjson.dumps(data)


def query_lists(request: HttpRequest) -> dict[str, list[str]]:
    """The query string as name → every value given."""
    return {name: request.GET.getlist(name) for name in request.GET}
