"""What is done beside the requests, so that none has to wait for it: vectors in batches, index files, a warm start."""

from __future__ import annotations

import logging
import subprocess
import sys
import time

from django.conf import settings
from django.db import DatabaseError

from ledger.clock import now_ms
from recall import embedders
from recall.indexes.resident import upkeep as resident
from recall.phrases import span_named_in
from recall.services import installed_index
from vault import vectors
from vault.domain.access import Scope
from vault.domain.embedding import EmbedderUnavailable
from vault.models import Workspace

log = logging.getLogger(__name__)

LOOK_EVERY = 1.0  # seconds
AFTER_TROUBLE = 10.0
WORTH_WARMING = 1_000  # memories: a smaller workspace is read in no time


def load_libraries() -> None:
    """Import what each worker would import for itself, slowly, beside the others. Makes nothing that has threads."""
    embedders.load_library()


def warm() -> None:
    """Load what the first recall of this process would have to load."""
    try:
        embedders.installed().embed_query("warm")
    except EmbedderUnavailable as error:
        log.warning("there is no embedder for now: %s", error)
    names = Workspace.objects.filter(memories__gte=WORTH_WARMING).values_list("name", flat=True)
    with installed_index().opened(Scope(tuple(sorted(names)))):
        pass
    span_named_in("today", at=now_ms())  # a third of a second that most questions do not need


def follow() -> None:
    """Embed what comes without a vector, and renew index files; one process of all does it. Never returns."""
    while True:
        with vectors.sole_embedder() as mine:
            if mine:
                _keep_up()
        time.sleep(AFTER_TROUBLE)


def _keep_up() -> None:
    """Go on until something fails; what was done stays."""
    seen = 0
    try:
        while True:
            newest = vectors.newest_change()
            if newest != seen:
                for _ in vectors.embed_missing(embedders.installed(), changed_after=seen):
                    _rid_files_of_erased()  # many texts take hours, and nothing that was erased may wait so long
                seen = newest
                _renew_files()
            time.sleep(LOOK_EVERY)
    except (EmbedderUnavailable, DatabaseError, OSError, subprocess.SubprocessError) as error:
        log.warning("vectors and index files wait; the next try is in %g s: %s", AFTER_TROUBLE, error)


def _renew_files() -> None:
    if settings.RECALL_INDEX == "resident" and resident.behind():
        _reindex_files()


def _rid_files_of_erased() -> None:
    if settings.RECALL_INDEX == "resident" and resident.holding_erased():
        _reindex_files()


def _reindex_files() -> None:
    """In a process of its own: reading a million rows would hold up the requests of this one."""
    command = [sys.executable, str(settings.BASE_DIR / "manage.py"), "reindex", "--files"]
    subprocess.run(command, check=True, capture_output=True)  # noqa: S603  our own command, no one else's words
