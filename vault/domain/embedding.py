"""What can go wrong when a text is embedded."""

from __future__ import annotations


class EmbedderUnavailable(Exception):
    """The embedder could not make a vector now; the message says why, and holds no secret and no text."""
