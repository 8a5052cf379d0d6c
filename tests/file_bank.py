"""A bank that is a file: one line for each delivery, written whole or not at all, whoever is killed."""

from __future__ import annotations

import os
import time
from pathlib import Path

from ledger.models import OutboxEntry
from ledger.outbox import Delivered


def deliver(entry: OutboxEntry) -> Delivered:
    """Write down the event before a moment's work and once more after it, so that a kill may fall in between."""
    name = str(entry.event_id)
    _write(f"begun {name}\n")
    time.sleep(float(os.environ.get("FILE_BANK_SECONDS", "0")))
    _write(f"done {name}\n")
    return Delivered(name)


def _write(line: str) -> None:
    with Path(os.environ["FILE_BANK"]).open("ab", buffering=0) as file:
        file.write(line.encode())
