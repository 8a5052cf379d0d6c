"""The bank in this vault: a note is a memory, and recall is this product's own, in the history view."""

from __future__ import annotations

from typing import Any

from ledger.clock import now_ms
from ledger.domain.actors import SYSTEM
from ledger.domain.refusals import Refused
from recall.banks import BankRefused, Note, Recalled
from recall.domain.context import ItemQuery, Query
from recall.domain.request import RecallRequest
from recall.domain.state import Anchor
from recall.domain.words import words_of
from recall.indexes import Question
from recall.pipeline import run
from recall.services import embedding, erase, installed_index
from vault.domain.access import Reach, Scope
from vault.domain.values import MAX_TAGS, MAX_TEXT_BYTES
from vault.models import Memory
from vault.services import Caller, remember

DELIVERY = Caller(SYSTEM, Reach.everything())
CONTEXT = "context"  # where a memory's metadata keeps the reason given with the event


class LocalBank:
    """Nothing to configure, and nothing that could be away while the product runs."""

    name = "local"

    def retain(self, note: Note) -> str:
        """The memory's id. What somebody changed in it since stays changed: the event is in the ledger as it was."""
        kept = _kept(note.workspace, note.document_id)
        if kept is not None:
            return kept.id
        try:
            return remember(
                _fields(note),
                caller=DELIVERY,
                at=now_ms(),
                reason="delivered from the ledger",
                elsewhere=True,  # that the event is there need not be asked: it is what is delivered
            ).memory.id
        except Refused as refusal:
            raise BankRefused(refusal.message, code=refusal.code) from refusal

    def recall(self, query: Query) -> tuple[Recalled, ...]:
        request = _request(query)
        index, pending = installed_index(), embedding(request)
        scope = Scope((query.workspace,))
        with index.opened(scope) as workspaces:
            anchor = Anchor(now_ms())
            question = Question(request, scope, workspaces, anchor, tuple(words_of(request.query)))
            finished = run(question, index=index, pending=pending)
        served = ((candidate.final, finished.memories[candidate.id]) for candidate in finished.served)
        return tuple(_recalled(memory, score) for score, memory in served if memory.erased_at is None)

    def forget(self, workspace: str, document_id: str) -> None:
        """Erase the memory as any is erased: in row, index, vectors, events and records."""
        kept = _kept(workspace, document_id)
        if kept is None or kept.erased_at is not None:
            return
        try:
            erase(kept.id, caller=DELIVERY, at=now_ms(), reason="the context event it came from was erased")
        except Refused as refusal:
            raise BankRefused(refusal.message, code=refusal.code) from refusal

    def check(self) -> None:
        """It is there whenever this process is."""


def _kept(workspace: str, document_id: str) -> Memory | None:
    # The source is asked for too: an agent may give any external_id, and must not keep an event out by it.
    kept = Memory.objects.filter(
        workspace__name=workspace, external_id=document_id, source_event_id=document_id
    )
    return kept.first()


def _fields(note: Note) -> dict[str, Any]:
    """Provenance stays the default: that the ledger has the event says who said it, and not that it is so."""
    return {
        "text": fitting(note.text),
        "workspace": note.workspace,
        "tags": list(
            note.tags[:MAX_TAGS]
        ),  # an event may have as many besides the first, which is its item's
        "created_at": note.occurred_at,
        "source_event_id": note.event_id,
        "external_id": note.document_id,
        "metadata": {**note.metadata, CONTEXT: note.context} if note.context else dict(note.metadata),
    }


def fitting(text: str) -> str:
    """A statement before a text of the full size is too much for a memory; its end is cut, and the ledger has it."""
    return text.encode()[:MAX_TEXT_BYTES].decode(errors="ignore")


def _request(query: Query) -> RecallRequest:
    return RecallRequest(
        query=query.text,
        workspace=query.workspace,
        limit=query.limit,
        current_only=False,
        tags=query.tags if isinstance(query, ItemQuery) else (),
        tags_match=query.tags_match if isinstance(query, ItemQuery) else "any_strict",
        temporal=None if query.temporal == (None, None) else query.temporal,
    )


def _recalled(memory: Memory, score: float) -> Recalled:
    strings = {name: value for name, value in memory.metadata.items() if isinstance(value, str)}
    return Recalled(
        text=memory.text,
        context=strings.pop(CONTEXT, ""),
        document_id=memory.external_id,
        source_event_id=memory.source_event_id,
        timestamp=memory.created_at,
        tags=tuple(memory.tag_names),
        metadata=strings,
        score=score,
        memory_id=memory.id,
    )
