"""What the ledger's tests share."""

from __future__ import annotations

import pytest
from django.db import transaction

from ledger.domain.actors import SYSTEM
from ledger.domain.events import MEMORY_CREATED, NewEvent
from ledger.domain.instants import UnixMs
from ledger.models import ContextEvent
from ledger.services import append_event


@pytest.fixture
def memory_event(db: None, now: UnixMs) -> ContextEvent:
    """The event of a memory's creation, without the vault, whose text index is SQLite's alone."""
    new = NewEvent(kind=MEMORY_CREATED, actor=SYSTEM, workspace="", subject_id="mem_a", occurred_at=now)
    with transaction.atomic():
        return append_event(new, at=now)
