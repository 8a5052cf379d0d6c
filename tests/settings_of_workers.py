"""The product's settings for real worker processes, which deliver into a file (file_bank.py) in place of a bank."""

from __future__ import annotations

from recall.settings import *  # noqa: F403

OUTBOX_HANDLERS = {"context": "file_bank.deliver"}
