"""Refusals: what the product says no to, as facts. The edge (API, page, command) turns them into words.

A refusal has a stable `code`, a sentence, and where they apply the `field` at fault and a `hint` what to do.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class Refused(Exception):
    """The request is understood and refused; nothing was written."""

    status = 400
    code = "invalid"

    def __init__(
        self, message: str, *, field: str | None = None, code: str | None = None, hint: str | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.field = field
        self.code = code or type(self).code
        self.hint = hint


class Invalid(Refused):
    """A value that is malformed, out of range, or contradicts another (400)."""


class Forbidden(Refused):
    """The caller is known and may not do this (403)."""

    status = 403
    code = "forbidden"


class NotFound(Refused):
    """No such thing, or none that the caller may see: the two answer alike (404)."""

    status = 404
    code = "not_found"


class Conflict(Refused):
    """The request contradicts what is stored (409)."""

    status = 409
    code = "conflict"


class Outdated(Refused):
    """`If-Match` names a version that is no longer the stored one (412)."""

    status = 412
    code = "version_mismatch"


class Unprocessable(Refused):
    """The body names something that does not exist for the caller (422)."""

    status = 422
    code = "unprocessable"


class Unavailable(Refused):
    """The product cannot keep a promise right now, and so does nothing (503)."""

    status = 503
    code = "unavailable"


@contextmanager
def located(place: str) -> Iterator[None]:
    """What is refused inside is at fault at `place`: its field is named from there (`queries.3.limit`)."""
    try:
        yield
    except Refused as refusal:
        refusal.field = place if refusal.field is None else f"{place}.{refusal.field}"
        raise
