"""What recall offers to every surface: one function a purpose, the caller and the clock passed in."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any

from django.conf import settings
from django.utils.module_loading import import_string

from ledger.domain.ids import new_id
from ledger.domain.instants import UnixMs
from ledger.domain.refusals import Invalid
from recall import embedders, erasure, records, rerankers
from recall.domain.request import RecallRequest
from recall.domain.state import Anchor
from recall.domain.words import words_of
from recall.indexes import Index, Question, Vector
from recall.models import SCOPES, ApiKey
from recall.pipeline import Embedded, anchored, rerank_and_finish, run
from recall.strategies import looks_by_meaning
from vault.domain import values
from vault.domain.access import scope_of
from vault.domain.embedding import EmbedderUnavailable
from vault.models import Memory
from vault.queries import memory_for
from vault.services import Caller


def installed_index() -> Index:
    """The search engine that settings.RECALL_INDEX names: one a process."""
    return _made(settings.RECALL_INDEXES[settings.RECALL_INDEX])


@lru_cache
def _made(path: str) -> Index:
    engine: Index = import_string(path)()
    return engine


def recall(request: RecallRequest, *, caller: Caller, surface: str, at: UnixMs) -> dict[str, Any]:
    """Answer a question and leave its record; the answer is the JSON of api.md. Raises Refused.

    Everything is read from one snapshot of the database; the record is one short transaction after it.
    """
    require_runnable(request)
    index = installed_index()
    scope = scope_of(request.workspace, caller.reach)
    anchor = Anchor(*anchored(request.query_time_unix_ms, now=at))
    pending = embedding(request)
    with index.opened(scope) as workspaces:
        question = Question(request, scope, workspaces, anchor, tuple(words_of(request.query)))
        if _needs_vector(request):
            index.look_ahead(question, lambda: pending()[0], _beside().submit)
        finished = run(question, index=index, pending=pending)
    rerank_and_finish([finished])
    return records.write(finished, caller=caller, surface=surface, at=at, engine=engine_of(index))


def require_runnable(request: RecallRequest) -> None:
    """Refuse what this installation has no engine for; raises Invalid."""
    if request.rerank and not settings.RECALL_RERANKER:
        raise Invalid(
            "no reranker is installed", field="rerank", code="rerank_unavailable", hint="leave it out"
        )


def embedding(request: RecallRequest) -> Callable[[], Embedded]:
    """Begin to embed a question, if that is computed here, beside the look-up of its words; gives how to wait for it.

    A vector that comes over the network is waited for first: nobody may hold the index for as long as that takes.
    """
    if not _needs_vector(request):
        return lambda: (None, {})
    if not embedders.computes_here():
        (waited_for,) = embedded([request])
        return lambda: waited_for
    begun = _beside().submit(embedded, [request])
    return lambda: begun.result()[0]


@lru_cache
def _beside() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="beside")


os.register_at_fork(after_in_child=_beside.cache_clear)  # the parent's threads do not exist in the child


def embedded(requests: Sequence[RecallRequest]) -> list[Embedded]:
    """For each question its vector if a strategy needs one, all in one call of the embedder; without an embedder, which
    strategy is missing, and why."""
    wanting = [_needs_vector(request) for request in requests]
    texts = list(dict.fromkeys(r.query for r, wants in zip(requests, wanting, strict=True) if wants))
    vectors, why = dict[str, Vector](), ""
    if texts:
        try:
            vectors = dict(zip(texts, embedders.installed().embed_queries(texts), strict=True))
        except EmbedderUnavailable as error:
            why = str(error)
    return [
        (
            vectors.get(request.query) if wants else None,
            {"dense": why} if wants and not vectors else {},
        )
        for request, wants in zip(requests, wanting, strict=True)
    ]


def _needs_vector(request: RecallRequest) -> bool:
    return not request.by_tag_only and looks_by_meaning(request.strategies)


def engine_of(index: Index) -> dict[str, str]:
    """What an answer depends on beside the database: the engines, by name and version."""
    return {
        "lexical": index.version,
        "dense": embedders.name_of_installed(),
        "reranker": rerankers.name_of_installed(),
    }


def erase(memory_id: str, *, caller: Caller, at: UnixMs, reason: str, if_match: int | None = None) -> Memory:
    """Erase a memory everywhere its text lives (recall/erasure.py), and return what is left of it."""
    erasure.erase(memory_id, caller=caller, at=at, reason=reason, if_match=if_match)
    return memory_for(caller.reach, memory_id)


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
