"""The vault's tables: workspaces, memories, their tags and their links. Instants are Unix ms."""

from __future__ import annotations

from typing import Any

from django.db import models
from django.utils.functional import cached_property

from ledger.domain.instants import UnixMs
from vault.domain.access import Reach, Scope
from vault.domain.facts import Facts
from vault.domain.links import Edge


class Workspace(models.Model):
    """A scope that memories belong to; the empty name is the global one.

    Each has a text index of its own (vault/fulltext.py): what one workspace holds can then change neither the
    ranking nor the timing of another's answers. `memories` counts the rows of that index.
    """

    id = models.AutoField(primary_key=True)
    name = models.CharField(max_length=128, unique=True, blank=True)
    memories = models.PositiveIntegerField(default=0)

    def __str__(self) -> str:
        return self.name or "(global)"


class MemoryQuerySet(models.QuerySet["Memory"]):
    def readable_by(self, reach: Reach) -> MemoryQuerySet:
        return self if reach.readable is None else self.filter(workspace__name__in=sorted(reach.readable))

    def within(self, scope: Scope) -> MemoryQuerySet:
        return self if scope.workspaces is None else self.filter(workspace__name__in=scope.workspaces)

    def open_at(self, at: UnixMs) -> MemoryQuerySet:
        """Rules 1 to 4 of current state hold (behaviour.md, section 3), replacements left aside."""
        later = models.Q
        return self.filter(
            later(t_valid__isnull=True) | later(t_valid__lte=at),
            later(t_invalid__isnull=True) | later(t_invalid__gt=at),
            later(expires_at__isnull=True) | later(expires_at__gt=at),
            archived=False,
        ).exclude(status="deprecated")

    def tagged(self, tags: list[str], match: str) -> MemoryQuerySet:
        """Narrow by tags as recall does (behaviour.md, section 5: `tags_match`)."""
        having = MemoryTag.objects.filter(memory=models.OuterRef("pk"))
        untagged = ~models.Exists(having)
        if not tags:
            return self.filter(untagged) if match == "exact" else self
        some = models.Exists(having.filter(tag__in=tags))
        all_ = models.Q(*(models.Exists(having.filter(tag=tag)) for tag in tags))
        match match:
            case "any":
                return self.filter(some | untagged)
            case "all":
                return self.filter(all_ | models.Q(untagged))
            case "all_strict":
                return self.filter(all_)
            case "exact":
                return self.filter(all_).exclude(models.Exists(having.exclude(tag__in=tags)))
            case _:
                return self.filter(some)


class Memory(models.Model):
    """A text that an agent may recall. `seq` is the rowid that text indexes point at, `id` the public name.

    `replaced_since` is the earliest instant of an outgoing replacing link or of its source event's supersession, so
    that the search itself can tell the open from the doubtful without a join. Big columns stand last: SQLite reads
    a row from the left, and the search needs only the left.
    """

    seq = models.BigAutoField(primary_key=True)
    id = models.CharField(max_length=32, unique=True)
    workspace = models.ForeignKey(Workspace, on_delete=models.PROTECT)
    archived = models.BooleanField(default=False)
    status = models.CharField(max_length=16, default="active")
    created_at = models.BigIntegerField()
    t_valid = models.BigIntegerField(null=True)
    t_invalid = models.BigIntegerField(null=True)
    expires_at = models.BigIntegerField(null=True)
    replaced_since = models.BigIntegerField(null=True)
    category = models.CharField(max_length=128, blank=True)
    provenance_class = models.CharField(max_length=24, default="candidate")
    erased_at = models.BigIntegerField(null=True)
    version = models.PositiveIntegerField(default=1)
    updated_at = models.BigIntegerField()
    verified_at = models.BigIntegerField(null=True)
    source_event_id = models.CharField(max_length=32, null=True)
    external_id = models.CharField(max_length=256, null=True)
    text_sha256 = models.CharField(max_length=64)
    metadata = models.JSONField(default=dict)
    text = models.TextField()

    objects = MemoryQuerySet.as_manager()

    class Meta:
        verbose_name_plural = "memories"
        constraints = (
            models.UniqueConstraint(
                fields=["workspace", "external_id"],
                name="memory_external_id",
                condition=models.Q(external_id__isnull=False),
            ),
        )
        indexes = (
            models.Index(  # lists, tag-only recall
                fields=["workspace", "created_at", "id"], name="memory_by_age"
            ),
            models.Index(  # the few that were erased
                fields=["erased_at"], name="memory_erased", condition=models.Q(erased_at__isnull=False)
            ),
            models.Index(  # memories that came from one event
                fields=["source_event_id"],
                name="memory_source",
                condition=models.Q(source_event_id__isnull=False),
            ),
        )

    def __str__(self) -> str:
        return self.id

    @property
    def facts(self) -> Facts:
        return Facts(
            id=self.id,
            workspace=self.workspace.name,
            created_at=self.created_at,
            t_valid=self.t_valid,
            t_invalid=self.t_invalid,
            expires_at=self.expires_at,
            status=self.status,
            archived=self.archived,
            erased=self.erased_at is not None,
            provenance_class=self.provenance_class,
            seq=self.seq,
        )

    @cached_property
    def tag_names(self) -> list[str]:
        """The tags, sorted; a query that reads many memories sets them at once."""
        return sorted(tag.tag for tag in self.tags.all())

    @property
    def values(self) -> dict[str, Any]:
        """The fields a caller may send, as stored: what events compare and exports write."""
        return {
            "text": self.text,
            "workspace": self.workspace.name,
            "tags": self.tag_names,
            "category": self.category,
            "provenance_class": self.provenance_class,
            "status": self.status,
            "archived": self.archived,
            "created_at": self.created_at,
            "t_valid": self.t_valid,
            "t_invalid": self.t_invalid,
            "expires_at": self.expires_at,
            "source_event_id": self.source_event_id,
            "external_id": self.external_id,
            "metadata": self.metadata,
        }


class MemoryTag(models.Model):
    """One tag of one memory."""

    memory = models.ForeignKey(Memory, on_delete=models.CASCADE, related_name="tags")
    tag = models.CharField(max_length=128)

    class Meta:
        constraints = (models.UniqueConstraint(fields=["memory", "tag"], name="memory_tag_once"),)
        indexes = (models.Index(fields=["tag", "memory"], name="memory_tag_lookup"),)  # recall by tag

    def __str__(self) -> str:
        return self.tag


class MemoryLink(models.Model):
    """A typed edge between two memories of one workspace."""

    seq = models.BigAutoField(primary_key=True)
    id = models.CharField(max_length=32, unique=True)
    source = models.ForeignKey(Memory, on_delete=models.PROTECT, related_name="links_out")
    target = models.ForeignKey(Memory, on_delete=models.PROTECT, related_name="links_in")
    type = models.CharField(max_length=24)
    strength = models.FloatField(null=True)
    created_at = models.BigIntegerField()

    class Meta:
        constraints = (models.UniqueConstraint(fields=["source", "target", "type"], name="link_once"),)
        indexes = (models.Index(fields=["source", "type", "created_at"], name="link_walk"),)  # chains

    def __str__(self) -> str:
        return self.id

    @property
    def edge(self) -> Edge:
        return Edge(self.id, self.source.id, self.target.id, self.type, self.created_at)


class EmbeddingModel(models.Model):
    """A model that vectors came from. Vectors compare only within one, so two are never mixed."""

    id = models.AutoField(primary_key=True)
    name = models.CharField(max_length=200, unique=True, help_text="The embedder's model_id.")
    dim = models.PositiveIntegerField()

    def __str__(self) -> str:
        return self.name


class Embedding(models.Model):
    """The vector of one chunk of a memory's text: half-precision floats, little-endian, written with the row.

    Whatever searches vectors is derived from these rows, and can be thrown away and made again.
    """

    pk = models.CompositePrimaryKey("memory_id", "model_id", "chunk")
    memory = models.ForeignKey(
        Memory, on_delete=models.DO_NOTHING, db_index=False, db_constraint=False, related_name="embeddings"
    )
    model = models.ForeignKey(EmbeddingModel, on_delete=models.PROTECT, db_index=False)
    chunk = models.PositiveIntegerField()
    vector = models.BinaryField()

    def __str__(self) -> str:
        return f"{self.memory_id} ({self.chunk})"


class Change(models.Model):
    """That something about a memory changed: the sequence by which derived indexes catch up.

    One row a memory, which its newest change replaces, so the table is as long as the vault; `seq` only grows.
    """

    seq = models.BigAutoField(primary_key=True)
    workspace = models.ForeignKey(Workspace, on_delete=models.PROTECT, db_index=False)
    memory = models.OneToOneField(
        Memory, on_delete=models.DO_NOTHING, db_constraint=False, related_name="change"
    )

    class Meta:
        indexes = (models.Index(fields=["workspace", "seq"], name="change_feed"),)  # what came after n

    def __str__(self) -> str:
        return f"{self.seq}: {self.memory_id}"


class ImportRun(models.Model):
    """How far an import of one file came, written in the same transaction as its rows."""

    id = models.CharField(max_length=32, primary_key=True)
    fingerprint = models.CharField(
        max_length=64, unique=True, help_text="SHA-256 of format, workspace and file."
    )
    source = models.TextField()
    format = models.CharField(max_length=32)
    workspace = models.CharField(max_length=128, null=True)
    rows_done = models.PositiveIntegerField(default=0)
    created = models.PositiveIntegerField(default=0)
    unchanged = models.PositiveIntegerField(default=0)
    skipped = models.PositiveIntegerField(default=0, help_text="Rows that hold nothing to store.")
    refused = models.JSONField(default=list, help_text="The first 1,000: row, place, field, code, message.")
    refused_count = models.PositiveIntegerField(default=0)
    started_at = models.BigIntegerField()
    finished_at = models.BigIntegerField(null=True)

    def __str__(self) -> str:
        return f"{self.source} ({self.rows_done} rows)"
