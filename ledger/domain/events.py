"""What can happen, and the form in which the ledger keeps it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ledger.domain.actors import Actor
from ledger.domain.instants import UnixMs

# Changes of memories and links.
MEMORY_CREATED = "memory_created"
MEMORY_REVISED = "memory_revised"
MEMORY_ARCHIVED = "memory_archived"
MEMORY_RESTORED = "memory_restored"
MEMORY_VERIFIED = "memory_verified"
MEMORY_ERASED = "memory_erased"
LINK_CREATED = "link_created"
LINK_REMOVED = "link_removed"
# What an agent said about its decisions, and what people said about that. Each restore voids one supersession, or
# takes an earlier restore back.
CONTEXT_ADDED = "context_added"
CORRECTION_SUPERSEDE = "correction_supersede"
CORRECTION_RETRACT = "correction_retract"
CORRECTION_LINK = "correction_link"
CORRECTION_ANNOTATE = "correction_annotate"
CORRECTION_RESTORE = "correction_restore"
CONTEXT_ERASED = "context_erased"
# What operators did about the outbox.
DELIVERY_RETRIED = "delivery_retried"
DELIVERY_RESUMED = "delivery_resumed"

CORRECTIONS = (
    CORRECTION_SUPERSEDE,
    CORRECTION_RETRACT,
    CORRECTION_LINK,
    CORRECTION_ANNOTATE,
    CORRECTION_RESTORE,
)
DELIVERED = (CONTEXT_ADDED, *CORRECTIONS)  # these reach the bank, and are counted in coverage

KINDS = (
    MEMORY_CREATED,
    MEMORY_REVISED,
    MEMORY_ARCHIVED,
    MEMORY_RESTORED,
    MEMORY_VERIFIED,
    MEMORY_ERASED,
    LINK_CREATED,
    LINK_REMOVED,
    *DELIVERED,
    CONTEXT_ERASED,
    DELIVERY_RETRIED,
    DELIVERY_RESUMED,
)


@dataclass(frozen=True, slots=True)
class NewEvent:
    """An event that is about to be appended.

    `subject_id` is the memory it is about (for a link: the memory the link starts from; for a correction: the event
    that is corrected). `object_id` is the other end: the link, the event that takes the subject's place, for a new
    context event the one it supersedes, for a restore the correction that it undoes. `text`, `before` and `after`
    are the erasable payload; everything else is metadata and stays for good.
    """

    kind: str
    actor: Actor
    workspace: str
    subject_id: str
    occurred_at: UnixMs
    reason: str = ""
    text: str | None = None
    before: Mapping[str, Any] | None = None
    after: Mapping[str, Any] | None = None
    object_id: str = ""
    item_id: str | None = None
    occurrence: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
