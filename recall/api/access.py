"""Who calls: API keys, their scopes, and how fast they may ask."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.db import OperationalError, connection
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.throttling import BaseThrottle

from ledger.clock import now_ms
from ledger.domain.actors import Actor
from ledger.domain.instants import MINUTE, UnixMs
from recall.models import ApiKey
from vault.services import Caller

if (
    TYPE_CHECKING
):  # importing it would close a circle: rest_framework.views imports this module by its settings
    from rest_framework.views import APIView


log = logging.getLogger(__name__)


def key_of(secret: str) -> ApiKey | None:
    """The key with this secret. Plain SQL: every request asks, and the ORM takes longer to ask than the database."""
    with connection.cursor() as cursor:
        cursor.execute(_KEY, [ApiKey.hashed(secret)])
        row = cursor.fetchone()
    return None if row is None else ApiKey(*row)


_COLUMNS = ", ".join(str(field.column) for field in ApiKey._meta.concrete_fields)
_KEY = f"SELECT {_COLUMNS} FROM recall_apikey WHERE secret_sha256 = %s"  # noqa: S608  names of columns only


class KeyAuthentication(BaseAuthentication):
    """`Authorization: Bearer <api key>`; unknown, expired and revoked keys are answered alike."""

    def authenticate(self, request: Request) -> tuple[Caller, ApiKey] | None:
        kind, _, secret = request.headers.get("Authorization", "").partition(" ")
        if not kind:
            return None
        if kind.lower() != "bearer" or not secret:
            raise AuthenticationFailed("send the API key as: Authorization: Bearer <key>")
        at = now_ms()
        key = key_of(secret.strip())
        if key is None or not key.matches(secret.strip()) or not key.usable_at(at):
            raise AuthenticationFailed("this API key is unknown, expired or revoked")
        if (
            key.last_used_at is None or at - key.last_used_at > MINUTE
        ):  # one write a minute, not one a request
            _note_use(key, at)
        return Caller(Actor("key", key.id, key.name), key.reach), key

    def authenticate_header(self, request: Request) -> str:  # noqa: ARG002  DRF's signature
        return 'Bearer realm="recall"'


def _note_use(key: ApiKey, at: UnixMs) -> None:
    """Note when a key was used, unless another writer is at work: a read waits for none. The next request notes it."""
    with connection.cursor() as cursor:
        if connection.vendor == "sqlite":
            cursor.execute("PRAGMA busy_timeout = 0")
        try:
            ApiKey.objects.filter(id=key.id).update(last_used_at=at)
        except OperationalError as error:
            log.info("the use of key %s was not noted: %s", key.id, error)
        finally:
            if connection.vendor == "sqlite":
                waits = connection.settings_dict["OPTIONS"]["timeout"] * 1000
                cursor.execute(f"PRAGMA busy_timeout = {waits:.0f}")


class HasScope(BasePermission):
    """The key's scopes hold the one that the view's method names; `admin` holds the others."""

    message = "this API key lacks the scope for it"

    def has_permission(self, request: Request, view: APIView) -> bool:
        key = request.auth
        if not isinstance(key, ApiKey):
            return False
        held = set(key.scopes.split(","))
        needed = needed_scope(request.method or "GET", view)
        self.message = f"this API key lacks the scope {needed}"
        return needed in held or "admin" in held


def needed_scope(method: str, view: Any) -> str:
    """A view's `scopes` name the scope of a method; without, reading is `read` and everything else `write`."""
    given: dict[str, str] = getattr(view, "scopes", {})
    return given.get(method, "read" if method in ("GET", "HEAD", "OPTIONS") else "write")


class KeyThrottle(BaseThrottle):
    """A bucket of requests for each key, in each process: `RECALL_RATE_LIMIT` a minute, refilled all the time."""

    _lock = threading.Lock()
    _buckets: dict[str, tuple[float, float]] = {}

    def allow_request(self, request: Request, view: APIView) -> bool:  # noqa: ARG002  DRF's signature
        key = request.auth
        if not isinstance(key, ApiKey):
            return True
        capacity = float(settings.RATE_LIMIT_PER_MINUTE)
        with self._lock:
            level, seen = self._buckets.get(key.id, (capacity, time.monotonic()))
            level = min(capacity, level + (time.monotonic() - seen) * capacity / 60)
            allowed = level >= 1
            self._buckets[key.id] = (level - 1 if allowed else level, time.monotonic())
        self._wait = (1 - level) * 60 / capacity
        return allowed

    def wait(self) -> float:
        return self._wait


class KeyScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]  # spectacular has no types
    """How the OpenAPI document names the key."""

    target_class = "recall.api.access.KeyAuthentication"
    name = "apiKey"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:  # noqa: ARG002  spectacular's signature
        return {"type": "http", "scheme": "bearer"}


def caller_of(request: Request) -> Caller:
    """The caller that KeyAuthentication found."""
    caller = request.user
    assert isinstance(caller, Caller)
    return caller
