"""What recall offers to every surface: one function a purpose, the caller and the clock passed in."""

from __future__ import annotations

import secrets
from typing import Any

from django.conf import settings
from django.db import transaction
from django.utils.module_loading import import_string

from ledger.domain.ids import new_id
from ledger.domain.instants import UnixMs
from ledger.domain.refusals import Invalid
from recall import records
from recall.domain.request import RecallRequest
from recall.domain.state import Anchor
from recall.indexes import Index, Question
from recall.models import SCOPES, ApiKey
from recall.pipeline import anchored, run
from vault.domain import values
from vault.domain.access import scope_of
from vault.models import Memory
from vault.queries import snapshot, workspaces_in
from vault.services import Caller
from vault.services import erase as erase_memory


def installed_index() -> Index:
    """The search engine that settings.RECALL_INDEXES names."""
    engine: Index = import_string(settings.RECALL_INDEXES[settings.RECALL_INDEX])()
    return engine


def recall(request: RecallRequest, *, caller: Caller, surface: str, at: UnixMs) -> dict[str, Any]:
    """Answer a question and leave its record; the answer is the JSON of api.md. Raises Refused.

    Everything is read from one snapshot of the database; the record is one short transaction after it.
    """
    index = installed_index()
    scope = scope_of(request.workspace, caller.reach)
    anchor = Anchor(*anchored(request.query_time_unix_ms, now=at))
    with snapshot():
        question = Question(request, scope, tuple(workspaces_in(scope)), anchor)
        finished = run(question, index=index)
    return records.write(finished, caller=caller, surface=surface, at=at, index_version=index.version)


def erase(memory_id: str, *, caller: Caller, at: UnixMs, reason: str, if_match: int | None = None) -> Memory:
    """Erase a memory everywhere its text lives: vault, index, ledger and the records that served it."""
    with transaction.atomic():
        memory = erase_memory(memory_id, caller=caller, at=at, reason=reason, if_match=if_match)
        records.blank_text(memory.id)
    return memory


def create_api_key(
    name: str,
    *,
    scopes: list[str],
    at: UnixMs,
    workspace: str | None = None,
    expires_at: UnixMs | None = None,
) -> tuple[ApiKey, str]:
    """Make a key; the secret is returned this once, and only its hash is kept."""
    values.check_name(name, field="name", max_length=200, blank=False)
    unknown = sorted(set(scopes) - set(SCOPES))
    if unknown or not scopes:
        raise Invalid(f"scopes must be some of {', '.join(SCOPES)}", field="scopes")
    if workspace is not None:
        values.check_workspace(workspace)
    if expires_at is not None and expires_at <= at:
        raise Invalid("expires lies in the past", field="expires_at")
    secret = f"rlk_{secrets.token_urlsafe(32)}"
    key = ApiKey.objects.create(
        id=new_id("key", at),
        name=name,
        prefix=secret[:10],
        secret_sha256=ApiKey.hashed(secret),
        scopes=",".join(scope for scope in SCOPES if scope in scopes),
        workspace=workspace,
        created_at=at,
        expires_at=expires_at,
    )
    return key, secret
