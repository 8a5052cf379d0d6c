"""Memory banks behind one protocol with two verbs: context is retained in a bank, and recalled from it.

A bank is where context lives for whoever asks; the ledger is what happened. So no bank decides what is superseded.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from django.conf import settings
from django.utils.module_loading import import_string

from ledger import queries, wording
from ledger.domain.context import tags_in
from ledger.domain.events import CONTEXT_ADDED
from ledger.domain.instants import UnixMs
from ledger.domain.outbox import DELIVERING, ERASED
from ledger.models import ContextEvent, OutboxEntry
from ledger.outbox import Delivered, DeliveryFailed
from recall.domain.context import Query
from vault.domain.items import GENERAL_TAG, RESERVED_TAGS, item_tag

MISSING, UNAUTHORIZED, MISPLACED = "bank_missing", "bank_unauthorized", "bank_misplaced"


class BankUnavailable(Exception):
    """The bank is down, slow, misconfigured or missing; asking again later may help.

    `pause`: it refuses our key, so nothing should be sent before somebody has looked.
    """

    def __init__(
        self,
        reason: str,
        *,
        code: str = "bank_unavailable",
        retry_after_ms: int | None = None,
        pause: bool = False,
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.code = code
        self.retry_after_ms = retry_after_ms
        self.pause = pause

    @property
    def misconfigured(self) -> bool:
        """Whether time alone mends nothing."""
        return self.code in (MISSING, UNAUTHORIZED, MISPLACED)


class BankRefused(Exception):
    """The bank will not take this, however often it is sent."""

    def __init__(self, reason: str, *, code: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.code = code


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """A context event as a bank is given it. The same event is the same note, whenever it is made."""

    event_id: str
    workspace: str
    text: str
    context: str  # the reason that was given with it
    item_id: str | None
    occurrence: str | None
    tags: tuple[str, ...]
    occurred_at: UnixMs
    metadata: Mapping[str, str]

    @property
    def document_id(self) -> str:
        return document_id_of(self.event_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recalled:
    """What a bank found. Nothing in it is believed yet: `source_event_id` is what the bank says."""

    text: str
    context: str
    document_id: str | None
    source_event_id: str | None
    timestamp: UnixMs | None
    tags: tuple[str, ...]
    metadata: Mapping[str, str]
    score: float | None
    memory_id: str | None
    merged: bool = False  # the bank made it out of several memories, of whichever items


class Bank(Protocol):
    """Every method may be called from several threads, and ends in bounded time."""

    name: str

    def retain(self, note: Note) -> str:
        """Keep a note; gives its id there. A repeat is harmless. Raises BankUnavailable or BankRefused."""
        ...

    def recall(self, query: Query) -> tuple[Recalled, ...]:
        """What one request finds, best first, at most `query.limit`. Raises BankUnavailable.

        About an item: only what carries its tag. An empty answer is an answer.
        """
        ...

    def forget(self, workspace: str, document_id: str) -> None:
        """Remove a document; that it was not there is as good. Raises BankUnavailable or BankRefused."""
        ...

    def check(self) -> None:
        """Ask whether it could be used now. Raises BankUnavailable."""
        ...


def document_id_of(event_id: str) -> str:
    """The document of an event in any bank: derived, so that a repeat meets what is there."""
    return event_id


def note_of(event: ContextEvent) -> Note:
    """An event as it is delivered: its text says what it supersedes, and it is never untagged."""
    named = queries.named_in(event)
    told = {
        "source_event_id": event.id,
        "kind": event.kind,
        "occurrence": event.occurrence or "",
        "names_event_id": named.id if named is not None else "",
    }
    return Note(
        event_id=event.id,
        workspace=event.workspace,
        text=wording.delivered_text(event, named),
        context=event.reason,
        item_id=event.item_id,
        occurrence=event.occurrence,
        tags=tags_of(event),
        occurred_at=event.occurred_at,
        metadata={name: value for name, value in told.items() if value},
    )


def tags_of(event: ContextEvent) -> tuple[str, ...]:
    """Its item's tag first, or the one of context about no item; then the caller's."""
    own = GENERAL_TAG if event.item_id is None else item_tag(event.item_id)
    given = tags_in(event.values_of_metadata) if event.kind == CONTEXT_ADDED else ()
    # A tag in our own form would put the note under another item.
    return (own, *(tag for tag in given if not tag.startswith(RESERVED_TAGS)))


def deliver(entry: OutboxEntry) -> Delivered:
    """What settings.OUTBOX_HANDLERS names for entries of context and of erasures. Raises DeliveryFailed."""
    event = entry.event
    if event is None:
        raise DeliveryFailed("no_event", "the entry names no event", permanent=True)
    bank = installed_bank()
    try:
        if entry.kind == "erasure":
            _require_not_under_way(event)
            bank.forget(event.workspace, document_id_of(event.id))
            return Delivered(document_id_of(event.id))
        if event.erased:
            raise DeliveryFailed(ERASED, "the text was erased before it was delivered", permanent=True)
        return Delivered(bank.retain(note_of(event)))
    except BankRefused as error:
        raise DeliveryFailed(error.code, error.reason, permanent=True) from error
    except BankUnavailable as error:
        raise DeliveryFailed(
            error.code, error.reason, retry_after_ms=error.retry_after_ms, pause=error.pause
        ) from error


def _require_not_under_way(event: ContextEvent) -> None:
    """Whoever delivers the event now read its text before it was erased, and would bring it back after us."""
    under_way = OutboxEntry.objects.filter(event__id=event.id, kind="context", state=DELIVERING).first()
    if under_way is not None:
        raise DeliveryFailed("delivery_under_way", f"entry {under_way.id} delivers the text at this moment")


_made: dict[str, Bank] = {}  # by dotted path
_making = threading.Lock()


def installed_bank() -> Bank:
    """The bank that settings.MEMORY_BANK names: one a process."""
    path: str = settings.MEMORY_BANKS[settings.MEMORY_BANK]
    with _making:
        if path not in _made:
            _made[path] = import_string(path)()
        return _made[path]


def _forget_made() -> None:
    """Begin anew in a forked child: what the parent made may hold connections and locks."""
    global _making
    _making = threading.Lock()
    _made.clear()


os.register_at_fork(after_in_child=_forget_made)
