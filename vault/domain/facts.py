"""What state and validity need to know of a memory: no text, no tags, nothing to compute."""

from __future__ import annotations

from typing import NamedTuple

from ledger.domain.instants import UnixMs

DEPRECATED = "deprecated"
STATUSES = ("active", DEPRECATED, "superseded", "quarantined", "expired")  # only `deprecated` changes state
PROVENANCE_CLASSES = (
    "verified",
    "corroborated",
    "candidate",
    "rejected",
    "defensively_recalled",
    "unknown",
)
ASSERTED = frozenset({"verified", "corroborated"})  # a claim of trust, which not every caller may make


class Facts(NamedTuple):
    """One memory's standing facts; instants in Unix ms, None where there is no bound. `seq` is its row's number.

    A named tuple, because every recall makes hundreds of them.
    """

    id: str
    workspace: str
    created_at: UnixMs
    t_valid: UnixMs | None = None
    t_invalid: UnixMs | None = None
    expires_at: UnixMs | None = None
    status: str = "active"
    archived: bool = False
    erased: bool = False
    provenance_class: str = "candidate"
    seq: int = 0

    @property
    def expiry(self) -> UnixMs | None:
        """The earlier of `t_invalid` and `expires_at`."""
        if self.t_invalid is None or self.expires_at is None:
            return self.expires_at if self.t_invalid is None else self.t_invalid
        return min(self.t_invalid, self.expires_at)
