"""The ledger's tables. Events are appended, never changed: the database itself refuses (triggers.py)."""

from __future__ import annotations

import json
from typing import Any, NoReturn

from django.db import models

from ledger.domain.refusals import Refused


class AppendOnly(Refused):
    """Somebody tried to change or delete what is written once (a programming error, so no field)."""

    status = 409
    code = "append_only"


class ContextEventQuerySet(models.QuerySet["ContextEvent"]):
    def about(self, subject_id: str) -> ContextEventQuerySet:
        """Events about one memory, oldest first."""
        return self.filter(subject_id=subject_id).order_by("seq")

    def touching(self, memory_id: str) -> ContextEventQuerySet:
        """Events about one memory and links that reach it, oldest first."""
        return (self.filter(subject_id=memory_id) | self.filter(object_id=memory_id)).order_by("seq")

    def newest_first(self) -> ContextEventQuerySet:
        return self.order_by("-seq")

    def update(self, **_: Any) -> NoReturn:
        raise AppendOnly("ledger events are never changed")

    def delete(self) -> NoReturn:
        raise AppendOnly("ledger events are never deleted")


class ContextEvent(models.Model):
    """One thing that happened, chained to the one before it.

    `text`, `before`, `after` and `salt` are the payload: they become NULL when a tombstone exists, and only
    then. `before` and `after` hold canonical JSON as text, so that the bytes that were hashed are the bytes
    that stay.
    """

    seq = models.BigIntegerField(
        primary_key=True, help_text="Gapless, from 1, assigned under the write lock."
    )
    id = models.CharField(max_length=32, unique=True)
    kind = models.CharField(max_length=32)
    workspace = models.CharField(max_length=128, blank=True)
    actor_kind = models.CharField(max_length=8)
    actor_id = models.CharField(max_length=64)
    actor_label = models.CharField(max_length=200)
    subject_id = models.CharField(max_length=32, blank=True, help_text="The memory it is about.")
    object_id = models.CharField(max_length=32, blank=True, help_text="The link, or the other memory.")
    item_id = models.CharField(max_length=256, null=True, blank=True)
    occurrence = models.CharField(max_length=64, null=True, blank=True)
    reason = models.TextField(blank=True)
    metadata = models.TextField(default="{}", help_text="Canonical JSON, strings only.")
    occurred_at = models.BigIntegerField(help_text="Unix ms: when it happened.")
    recorded_at = models.BigIntegerField(help_text="Unix ms: when it was written.")
    text = models.TextField(null=True, blank=True)
    before = models.TextField(null=True, blank=True)
    after = models.TextField(null=True, blank=True)
    salt = models.CharField(max_length=32, null=True)
    payload_hash = models.CharField(max_length=64)
    prev_hash = models.CharField(max_length=64)
    hash = models.CharField(max_length=64, unique=True)

    objects = ContextEventQuerySet.as_manager()

    class Meta:
        verbose_name = "event"
        indexes = (
            models.Index(fields=["subject_id", "seq"], name="event_subject"),  # a memory's history
            models.Index(  # links that reach a memory
                fields=["object_id", "seq"], name="event_object", condition=~models.Q(object_id="")
            ),
            models.Index(
                fields=["workspace", "seq"], name="event_workspace"
            ),  # the ledger page, by workspace
            models.Index(fields=["kind", "seq"], name="event_kind"),  # the ledger page's facet
            models.Index(  # what is known about one calendar item
                fields=["workspace", "item_id", "seq"],
                name="event_item",
                condition=models.Q(item_id__isnull=False),
            ),
        )

    def __str__(self) -> str:
        return self.id

    def save(self, *args: Any, **kwargs: Any) -> None:
        if not self._state.adding:
            raise AppendOnly("ledger events are never changed")
        super().save(*args, **kwargs)

    def delete(self, *_: Any, **__: Any) -> NoReturn:
        raise AppendOnly("ledger events are never deleted")

    @property
    def chained_metadata(self) -> dict[str, Any]:
        """What `hash` covers of an event besides its place in the chain and its payload."""
        return {
            "id": self.id,
            "kind": self.kind,
            "workspace": self.workspace,
            "actor": [self.actor_kind, self.actor_id, self.actor_label],
            "subject_id": self.subject_id,
            "object_id": self.object_id,
            "item_id": self.item_id,
            "occurrence": self.occurrence,
            "reason": self.reason,
            "metadata": self.metadata,
            "occurred_at": self.occurred_at,
            "recorded_at": self.recorded_at,
        }

    @property
    def erased(self) -> bool:
        """Whether nothing of the payload is left; a text without its salt was written in afterwards."""
        return self.salt is None and self.text is None and self.before is None and self.after is None

    @property
    def values_before(self) -> dict[str, Any]:
        return json.loads(self.before) if self.before else {}

    @property
    def values_after(self) -> dict[str, Any]:
        return json.loads(self.after) if self.after else {}


class Tombstone(models.Model):
    """The one exception to append-only: the payload of `event` was erased, by whom, when and why."""

    event = models.OneToOneField(ContextEvent, on_delete=models.PROTECT, to_field="id", primary_key=True)
    payload_hash = models.CharField(max_length=64)
    actor_kind = models.CharField(max_length=8)
    actor_id = models.CharField(max_length=64)
    actor_label = models.CharField(max_length=200)
    reason = models.TextField()
    erased_at = models.BigIntegerField(help_text="Unix ms.")

    def __str__(self) -> str:
        return f"tombstone of {self.event_id}"
