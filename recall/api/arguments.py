"""What a request says besides its body: the query string and headers, read strictly."""

from __future__ import annotations

from typing import Any

from rest_framework.request import Request

from ledger.domain.instants import NotAnInstant, UnixMs, parse_instant
from ledger.domain.refusals import Invalid
from recall.api.parsing import query_lists
from recall.paging import Cursor
from vault.domain import values

ANY = {"type": "object"}
WHOLE: dict[str, None] = {"next": None, "previous": None}  # a list that is never longer than one page


def if_match(request: Request) -> int | None:
    """The version that `If-Match` names, or None."""
    given = request.headers.get("If-Match")
    if given is None or given.strip() == "*":
        return None
    digits = given.strip().removeprefix("W/").strip('"')
    if not digits.isascii() or not digits.isdigit() or len(digits) > 9:
        raise Invalid('If-Match must be a version such as "3"', field="If-Match")
    return int(digits)


def query_of(request: Request, known: tuple[str, ...]) -> dict[str, str]:
    """A query string of single values, each with a known name."""
    asked = {}
    for name, given in query_lists(request._request).items():
        if name not in known:
            raise Invalid(
                f"unknown parameter {name}",
                field=name,
                code="unknown_field",
                hint=f"known: {', '.join(known) or 'none'}",
            )
        if len(given) > 1 and name != "tags":
            raise Invalid(f"{name} is given {len(given)} times", field=name)
        asked[name] = given[0]
        values.check_unicode(given[0], field=name)
    if "workspace" in asked:
        values.check_workspace(asked["workspace"])
    return asked


def reason_of(request: Request) -> str:
    """The optional reason of a request without a body of its own (DELETE), from the query string."""
    return query_of(request, ("reason",)).get("reason", "")


def check_search(text: str) -> str:
    """The `q` of a list: a part of a text, as long as a question may be."""
    return values.check_size(text, field="q", max_bytes=values.MAX_QUERY_BYTES)


def instant_of(asked: dict[str, str], name: str) -> UnixMs | None:
    if name not in asked:
        return None
    try:
        return parse_instant(asked[name])
    except NotAnInstant as error:
        raise Invalid(f"{name}: {error}", field=name) from error


def boolean_of(asked: dict[str, str], name: str) -> bool | None:
    if name not in asked:
        return None
    if asked[name] not in ("true", "false"):
        raise Invalid(f"{name} must be true or false", field=name)
    return asked[name] == "true"


def paged_links(request: Request, following: Cursor | None, preceding: Cursor | None) -> dict[str, Any]:
    def url(cursor: Cursor | None) -> str | None:
        if cursor is None:
            return None
        query = request.query_params.copy()
        query["cursor"] = str(cursor)
        return request.build_absolute_uri(f"{request.path}?{query.urlencode()}")

    return {"next": url(following), "previous": url(preceding)}
