"""Embedding models behind one protocol: texts in, vectors of unit length out.

Nothing heavy is imported before an embedder is made, and none is made before it is asked for: `serve` forks first.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from django.conf import settings
from django.utils.module_loading import import_string

from vault.domain.embedding import EmbedderUnavailable

log = logging.getLogger(__name__)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Vector = NDArray[np.float16]  # (dim,), of unit length before it was rounded
    Vectors = NDArray[np.float16]  # (chunks, dim), one row for each part of a text, at least one

__all__ = ["Embedder", "EmbedderUnavailable", "computes_here", "installed", "name_of_installed", "named"]


class Embedder(Protocol):
    """A vector is a function of its text alone: the same bytes alone, beside others, and in any process.

    `model_id` names all that the numbers depend on (network, weights, precision, pooling, chunking): vectors compare
    only within one model_id. Every method may be called from several threads.
    """

    model_id: str

    @property
    def dim(self) -> int:
        """How many numbers a vector has. Raises EmbedderUnavailable where only the model can tell."""
        ...

    def embed_query(self, text: str) -> Vector:
        """A question's vector, read-only, and kept: asking again costs nothing. Raises EmbedderUnavailable."""
        ...

    def embed_queries(self, texts: Sequence[str]) -> list[Vector]:
        """The same vectors as one by one. Raises EmbedderUnavailable."""
        ...

    def embed_documents(self, texts: Sequence[str], *, until: float | None = None) -> list[Vectors | None]:
        """Each text's vectors, or None if not done by the monotonic instant `until`. Raises EmbedderUnavailable."""
        ...


_made: dict[str, Embedder] = {}  # by dotted path
_making = threading.Lock()


def installed() -> Embedder:
    """The embedder that settings name. Raises EmbedderUnavailable."""
    return named(settings.RECALL_EMBEDDER)


def named(name: str) -> Embedder:
    """The embedder of a name in settings, or of a dotted path: one in a process. Raises EmbedderUnavailable."""
    path = settings.RECALL_EMBEDDERS.get(name, name)
    made = _made.get(path)
    if made is not None:
        return made
    with _making:
        if path not in _made:
            try:
                _made[path] = import_string(path)()
            except ImportError as error:
                raise EmbedderUnavailable(f"{path}: {error}") from error
        return _made[path]


def load_library() -> None:
    """Import the installed embedder's module, and make none: it would have threads."""
    try:
        import_string(settings.RECALL_EMBEDDERS.get(settings.RECALL_EMBEDDER, settings.RECALL_EMBEDDER))
    except ImportError as error:
        log.warning("there is no embedder for now: %s", error)


def computes_here() -> bool:
    """Whether the installed embedder computes in this process, in milliseconds, and waits for nobody."""
    try:
        return getattr(installed(), "computes_here", False)
    except EmbedderUnavailable:
        return False


def name_of_installed() -> str:
    """The model that vectors come from; empty while there is no embedder."""
    try:
        return installed().model_id
    except EmbedderUnavailable:
        return ""


def _forget() -> None:
    """Begin anew in a forked child: what the parent made may hold threads and locks that do not exist here."""
    global _making
    _making = threading.Lock()
    _made.clear()


os.register_at_fork(after_in_child=_forget)
