"""Recall's tables: records of what was recalled, API keys, workspace grants. Instants are Unix ms."""

from __future__ import annotations

import hashlib
import hmac
import json
from typing import Any, NoReturn

from django.conf import settings
from django.db import models

from ledger.domain.instants import UnixMs
from ledger.models import AppendOnly, ContextEvent
from vault.domain.access import Reach, Scope
from vault.models import Memory

SCOPES = ("read", "write", "admin")
ROLES = ("viewer", "auditor", "curator", "administrator")


class RecallScope(models.Model):
    """A set of workspaces that some recall covered. Few exist: they say who may see which records.

    `workspaces` is a sorted JSON list of names, or `null` for "every one there was".
    """

    workspaces = models.TextField(unique=True)

    def __str__(self) -> str:
        return self.workspaces

    @property
    def scope(self) -> Scope:
        names = json.loads(self.workspaces)
        return Scope(None if names is None else tuple(names))

    def visible_to(self, reach: Reach) -> bool:
        """Only to somebody who may read every workspace that was covered."""
        names = self.scope.workspaces
        if names is None:
            return reach.sees_all
        return all(reach.reads(name) for name in names)


class RecallRecordQuerySet(models.QuerySet["RecallRecord"]):
    def visible_to(self, reach: Reach) -> RecallRecordQuerySet:
        """The records whose whole scope the viewer may read, and whose own workspace.

        The second is not the first: a key bound to B that asks the global workspace leaves a record of B's.
        """
        if reach.readable is None:
            return self
        scopes = [scope.pk for scope in RecallScope.objects.all() if scope.visible_to(reach)]
        return self.filter(scope__in=scopes, workspace__in=sorted(reach.readable))

    def update(self, **_: Any) -> NoReturn:
        raise AppendOnly("recall records are never changed")

    def delete(self) -> NoReturn:
        raise AppendOnly("recall records are never deleted")


class RecallRecord(models.Model):
    """One recall: columns to find it by, and the whole as one compressed document (recall/records.py)."""

    seq = models.BigAutoField(primary_key=True)
    id = models.CharField(max_length=32, unique=True)
    created_at = models.BigIntegerField()
    anchor = models.BigIntegerField()
    actor_kind = models.CharField(max_length=8)
    actor_id = models.CharField(max_length=64)
    actor_label = models.CharField(max_length=200)
    surface = models.CharField(max_length=8)
    workspace = models.CharField(max_length=128, blank=True)
    scope = models.ForeignKey(
        RecallScope, on_delete=models.PROTECT, db_index=False
    )  # it leads two indexes below
    profile = models.CharField(max_length=16)
    mode = models.CharField(max_length=16)
    history = models.BooleanField(
        help_text="The history view was asked for: what is not current was served too."
    )
    query = models.TextField(blank=True)
    outcome = models.CharField(max_length=16)
    served = models.PositiveIntegerField()
    valid = models.PositiveIntegerField()
    stale = models.PositiveIntegerField()
    context_invalid = models.PositiveIntegerField()
    superseded_served = models.PositiveIntegerField()
    suppressed = models.PositiveIntegerField()
    candidates = models.PositiveIntegerField()
    warnings = models.CharField(max_length=400, blank=True, help_text="Codes, separated by blanks.")
    total_us = models.PositiveIntegerField(help_text="Microseconds until the answer stood, its record aside.")
    digest = models.CharField(max_length=64)
    ledger_seq = models.BigIntegerField(help_text="The ledger's head then: a cut tail is found by it.")
    ledger_hash = models.CharField(max_length=64)
    replay_of = models.ForeignKey(
        "self", null=True, on_delete=models.PROTECT, related_name="replays", db_index=False
    )
    document = models.BinaryField()

    objects = RecallRecordQuerySet.as_manager()

    class Meta:
        indexes = (
            models.Index(fields=["scope", "-seq"], name="record_newest"),  # the list, newest first
            models.Index(fields=["scope", "created_at"], name="record_when"),  # the overview's 30 days
            models.Index(fields=["actor_id", "-seq"], name="record_actor"),  # one agent's recalls
            models.Index(  # the replays of a recall
                fields=["replay_of"], name="record_replays", condition=models.Q(replay_of__isnull=False)
            ),
        )

    def __str__(self) -> str:
        return self.id

    def save(self, *args: Any, **kwargs: Any) -> None:
        if not self._state.adding:
            raise AppendOnly("recall records are never changed")
        super().save(*args, **kwargs)

    def delete(self, *_: Any, **__: Any) -> NoReturn:
        raise AppendOnly("recall records are never deleted")

    @property
    def wordless(self) -> str:
        """What stands for a question that has no words."""
        return "(projection)" if self.mode == "projection" else "(by tag or category)"

    @property
    def about_context(self) -> bool:
        """A context search: its hits are context events and what a bank knows, not the vault's memories."""
        return self.mode == "context"

    @property
    def warning_codes(self) -> list[str]:
        return self.warnings.split()


class RecordHit(models.Model):
    """One memory that a recall served, suppressed or replaced: "which recalls served this" is a look-up.

    A recall writes up to hundreds of these rows, so they are as small as can be: memory and record by their numbers
    and unchecked (neither is ever deleted under a row), and one index, which is the key. A record's own rows are
    found by the memories that its document names.
    """

    pk = models.CompositePrimaryKey("memory_id", "record_id")
    record = models.ForeignKey(
        RecallRecord, on_delete=models.CASCADE, related_name="hits", db_constraint=False, db_index=False
    )
    memory = models.ForeignKey(
        Memory, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False, related_name="+"
    )
    verdict = models.CharField(max_length=12)  # served | suppressed | replaced
    grade = models.CharField(max_length=16)
    rank = models.PositiveIntegerField(null=True)

    def __str__(self) -> str:
        return f"{self.record_id}: {self.memory_id} {self.verdict}"


class RecordEvent(models.Model):
    """One context event whose text a recall served: which recalls told it, and which records an erasure must reach.

    `rank` and `grade` are of its first hit; `stale`: the ledger had superseded it, and the hit said so.
    """

    pk = models.CompositePrimaryKey("event_id", "record_id")
    record = models.ForeignKey(
        RecallRecord, on_delete=models.CASCADE, related_name="events", db_constraint=False, db_index=False
    )
    event = models.ForeignKey(
        ContextEvent,
        on_delete=models.DO_NOTHING,
        to_field="id",
        db_constraint=False,
        db_index=False,
        related_name="+",
    )
    grade = models.CharField(max_length=16)
    rank = models.PositiveIntegerField()
    stale = models.BooleanField()

    def __str__(self) -> str:
        return f"{self.record_id}: {self.event_id}"


class ApiKey(models.Model):
    """A key that an agent presents. Only its SHA-256 is kept: it is 256 random bits, which nobody guesses."""

    id = models.CharField(max_length=32, primary_key=True)
    name = models.CharField(max_length=200)
    prefix = models.CharField(max_length=12, help_text="The first characters, to recognise a key by.")
    secret_sha256 = models.CharField(max_length=64, unique=True)
    scopes = models.CharField(max_length=32)
    workspace = models.CharField(max_length=128, null=True, help_text="Null: not bound to one.")
    created_at = models.BigIntegerField()
    expires_at = models.BigIntegerField(null=True)
    revoked_at = models.BigIntegerField(null=True)
    last_used_at = models.BigIntegerField(null=True)

    def __str__(self) -> str:
        return f"{self.name} ({self.prefix}…)"

    @staticmethod
    def hashed(secret: str) -> str:
        return hashlib.sha256(secret.encode()).hexdigest()

    def matches(self, secret: str) -> bool:
        return hmac.compare_digest(self.secret_sha256, self.hashed(secret))

    def usable_at(self, at: UnixMs) -> bool:
        expired = self.expires_at is not None and self.expires_at <= at
        return self.revoked_at is None and not expired

    @property
    def reach(self) -> Reach:
        asserts = "admin" in self.scopes.split(",")
        if self.workspace is None:
            return Reach(readable=None, writable=None, asserts_provenance=asserts)
        return Reach.bound(self.workspace, asserts_provenance=asserts)


class WorkspaceGrant(models.Model):
    """A user's role in one workspace; `workspace` null grants every workspace."""

    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="workspace_grants"
    )
    workspace = models.CharField(max_length=128, null=True, blank=True, help_text="Empty: every workspace.")
    role = models.CharField(max_length=16, choices=[(role, role) for role in ROLES], default="viewer")

    class Meta:
        constraints = (models.UniqueConstraint(fields=["user", "workspace"], name="grant_once"),)

    def __str__(self) -> str:
        return f"{self.user}: {self.role} of {self.workspace or 'every workspace'}"
