"""Keeping the files of large workspaces near the database, so that no process has a long way to catch up."""

from __future__ import annotations

from recall.indexes.resident import files, flat, reading, shelf
from vault import vectors
from vault.models import Workspace
from vault.queries import snapshot


def load_library() -> None:
    """Import what scans large workspaces, if there are any."""
    if Workspace.objects.filter(memories__gte=shelf.FILED).exists():
        flat.load_library()


def behind() -> list[Workspace]:
    """The large workspaces whose files are missing, or half as far behind as a process would put up with."""
    return [
        workspace
        for workspace in Workspace.objects.filter(memories__gte=shelf.FILED).order_by("name")
        if not files.newest_mark(workspace)
        or reading.outstanding(workspace.pk, after=files.newest_mark(workspace))
        > shelf.long_tail(workspace.memories) // 2
    ]


def renew(workspace: Workspace) -> None:
    """Write a workspace's files anew. Raises OSError."""
    model = vectors.known_model() or vectors.NO_MODEL
    with files.sole_writer(workspace), snapshot():
        files.write(workspace, model)
