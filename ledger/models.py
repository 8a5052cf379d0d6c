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
    subject_id = models.CharField(max_length=32, blank=True, help_text="The memory or event it is about.")
    object_id = models.CharField(
        max_length=32, blank=True, help_text="The link, or the other memory or event."
    )
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
            models.Index(fields=["kind", "seq"], name="event_kind"),  # one kind of event, newest first
            # The ledger page's counts, read off the index alone. Not by workspace first: SQLite would take it for pages
            # of several workspaces, and sort.
            models.Index(fields=["kind", "actor_kind", "workspace"], name="event_facets"),
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
    def values_of_metadata(self) -> dict[str, str]:
        values: dict[str, str] = json.loads(self.metadata)
        return values

    @property
    def values_before(self) -> dict[str, Any]:
        return json.loads(self.before) if self.before else {}

    @property
    def values_after(self) -> dict[str, Any]:
        return json.loads(self.after) if self.after else {}


class Correction(ContextEvent):
    """The events that correct another one, as the administration lists them."""

    class Meta:
        proxy = True
        verbose_name = "correction"


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


class SupersessionQuerySet(models.QuerySet["Supersession"]):
    def effective(self) -> SupersessionQuerySet:
        """Those that hold: a restore voids a supersession, and it stays on record."""
        return self.filter(voided_by__isnull=True)


class Supersession(models.Model):
    """`new` took the place of `old`, as `event` says: the new event itself, or a correction.

    A row is never deleted. A restore voids it, once; to bring it back is another row (the database sees to both).
    """

    old = models.ForeignKey(ContextEvent, on_delete=models.PROTECT, to_field="id", related_name="successions")
    new = models.ForeignKey(
        ContextEvent, on_delete=models.PROTECT, to_field="id", related_name="predecessions"
    )
    event = models.OneToOneField(
        ContextEvent, on_delete=models.PROTECT, to_field="id", related_name="establishes"
    )
    created_at = models.BigIntegerField(help_text="Unix ms.")
    voided_by = models.OneToOneField(
        ContextEvent, on_delete=models.PROTECT, to_field="id", related_name="voids", null=True
    )
    voided_at = models.BigIntegerField(null=True, help_text="Unix ms.")

    objects = SupersessionQuerySet.as_manager()

    class Meta:
        constraints = (
            models.UniqueConstraint(
                fields=["old"], name="supersession_one_successor", condition=models.Q(voided_by__isnull=True)
            ),
        )

    def __str__(self) -> str:
        return f"{self.old_id} superseded by {self.new_id}"

    @property
    def effective(self) -> bool:
        return self.voided_by_id is None


class Operation(models.Model):
    """What a caller asked for under a key, so that the same request twice is one event. Written once.

    `payload_hash` is salted with the event's salt: after an erasure nobody can guess the text from it.
    """

    id = models.CharField(max_length=32, primary_key=True)
    scope = models.CharField(max_length=80, help_text="Whose key it is: kind:id of the caller.")
    key = models.CharField(max_length=200)
    payload_hash = models.CharField(max_length=64)
    event = models.ForeignKey(
        ContextEvent, on_delete=models.PROTECT, to_field="id", related_name="operations"
    )
    created_at = models.BigIntegerField(help_text="Unix ms.")

    class Meta:
        constraints = (models.UniqueConstraint(fields=["scope", "key"], name="operation_key"),)

    def __str__(self) -> str:
        return self.id


class OutboxEntry(models.Model):
    """One thing to be delivered to a bank, at least once. Its states and times: ledger/domain/outbox.py.

    `next_attempt_at` is when it may be claimed: for an entry in delivery, when its lease ends.
    """

    kind = models.CharField(max_length=32, help_text="Which handler delivers it.")
    event = models.ForeignKey(
        ContextEvent, on_delete=models.PROTECT, to_field="id", related_name="outbox", null=True
    )
    workspace = models.CharField(max_length=128, blank=True)
    payload = models.TextField(default="{}", help_text="Canonical JSON.")
    state = models.CharField(max_length=12, default="pending")
    attempts = models.IntegerField(default=0)
    next_attempt_at = models.BigIntegerField(help_text="Unix ms.")
    lease_until = models.BigIntegerField(null=True, help_text="Unix ms.")
    lease_token = models.CharField(max_length=64, blank=True)
    created_at = models.BigIntegerField(help_text="Unix ms.")
    delivered_at = models.BigIntegerField(null=True, help_text="Unix ms.")
    remote_id = models.CharField(max_length=256, blank=True)
    error_code = models.CharField(max_length=64, blank=True)
    error = models.TextField(blank=True)
    operation = models.ForeignKey(Operation, on_delete=models.PROTECT, related_name="outbox", null=True)

    class Meta:
        verbose_name = "outbox entry"
        verbose_name_plural = "outbox entries"
        indexes = (
            models.Index(  # the claim: it must not grow with what was delivered
                fields=["next_attempt_at", "id"],
                name="outbox_claim",
                condition=models.Q(state__in=["pending", "delivering"]),
            ),
            # The outbox page's facets. Not by state first: SQLite would take it for the claim, and sort.
            models.Index(fields=["workspace", "state", "id"], name="outbox_state"),
        )

    def __str__(self) -> str:
        return f"{self.kind} {self.id}"

    @property
    def values(self) -> dict[str, Any]:
        values: dict[str, Any] = json.loads(self.payload)
        return values


class OutboxPause(models.Model):
    """Delivery of one kind waits until somebody has looked: the bank refuses our credentials."""

    kind = models.CharField(max_length=32, primary_key=True)
    reason = models.TextField()
    since = models.BigIntegerField(help_text="Unix ms.")

    def __str__(self) -> str:
        return f"{self.kind}: {self.reason}"
