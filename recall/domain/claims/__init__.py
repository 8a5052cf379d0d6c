"""Claims: what recalled text asserts about a calendar item, and what that is worth against the item read live.

Nothing here needs a model, a clock or a database. That a live status wins never depends on it (calendar.md).
"""

from __future__ import annotations

from recall.domain.claims.claim import KINDS, NO_DATE, Claim, Kind
from recall.domain.claims.comparison import Judged, Live, Outcome, Verdict, judge, verdict
from recall.domain.claims.detecting import detect

__all__ = [
    "KINDS",
    "NO_DATE",
    "Claim",
    "Judged",
    "Kind",
    "Live",
    "Outcome",
    "Verdict",
    "detect",
    "judge",
    "verdict",
]
