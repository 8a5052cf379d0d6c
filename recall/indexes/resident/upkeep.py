"""Keeping the files of large workspaces near the database, so that no process has a long way to catch up."""

from __future__ import annotations

from django.conf import settings
from django.db.models import Max

from recall.indexes.resident import files, reading, shelf
from vault import vectors
from vault.models import Change, Workspace
from vault.queries import snapshot


def behind() -> list[Workspace]:
    """The workspaces whose files hold an erased memory, and the large ones whose files are missing, or half as far
    behind as a process would put up with."""
    erased = holding_erased()
    return erased + [
        workspace
        for workspace in Workspace.objects.filter(memories__gte=shelf.FILED).order_by("name")
        if workspace not in erased
        and (
            not files.newest_mark(workspace)
            or reading.outstanding(workspace.pk, after=files.newest_mark(workspace))
            > shelf.long_tail(workspace.memories) // 2
        )
    ]


def holding_erased() -> list[Workspace]:
    """The workspaces of which files remain that were made before a memory was erased: its words are in them."""
    erased = Change.objects.filter(memory__erased_at__isnull=False)
    newest = dict(erased.values_list("workspace").annotate(newest=Max("seq")).order_by())
    workspaces = Workspace.objects.filter(pk__in=newest).order_by("name")
    return [workspace for workspace in workspaces if files.older_than(workspace, newest[workspace.pk])]


def renew(workspace: Workspace) -> None:
    """Write a workspace's files anew, or throw them away where it should have none. Raises OSError."""
    with files.sole_writer(workspace):
        if settings.RECALL_INDEX != "resident" or workspace.memories < shelf.FILED:
            files.throw_away(workspace)
            return
        with snapshot():
            files.write(workspace, vectors.known_model() or vectors.NO_MODEL)
