"""What can happen, and the form in which the ledger keeps it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ledger.domain.actors import Actor
from ledger.domain.instants import UnixMs

# Changes of memories and links. Context and correction events join them with the ledger's own API.
MEMORY_CREATED = "memory_created"
MEMORY_REVISED = "memory_revised"
MEMORY_ARCHIVED = "memory_archived"
MEMORY_RESTORED = "memory_restored"
MEMORY_VERIFIED = "memory_verified"
MEMORY_ERASED = "memory_erased"
LINK_CREATED = "link_created"
LINK_REMOVED = "link_removed"

KINDS = (
    MEMORY_CREATED,
    MEMORY_REVISED,
    MEMORY_ARCHIVED,
    MEMORY_RESTORED,
    MEMORY_VERIFIED,
    MEMORY_ERASED,
    LINK_CREATED,
    LINK_REMOVED,
)


@dataclass(frozen=True, slots=True)
class NewEvent:
    """An event that is about to be appended.

    `subject_id` is the memory it is about (for a link: the memory the link starts from). `text`, `before` and
    `after` are the erasable payload; everything else is metadata and stays for good.
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
    metadata: Mapping[str, str] = field(default_factory=dict)
