"""The record of a context search as a page: which context was served as current, and which as superseded."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.utils.safestring import SafeString

from recall.context import UNAVAILABLE
from recall.domain.policy import Weights
from recall.pages.access import show
from recall.pages.charts import decay
from recall.pages.origins import outcome_notice
from recall.pages.since import Afterwards, Since
from recall.records import Stored
from vault.services import Caller


@dataclass(frozen=True, slots=True)
class ContextHit:
    """One hit as it was sent, with what its candidate row adds."""

    sent: Mapping[str, Any]
    row: Mapping[str, Any]
    weights: Weights
    since: Since | None

    @property
    def decay(self) -> SafeString:
        freshness: float = self.sent["validity"]["freshness"]
        uid = f"decay-{self.sent['rank']}"
        return decay(age_ms=self.row["age_ms"], freshness=freshness, weights=self.weights, uid=uid)

    @property
    def cause(self) -> str:
        return str(self.row["cause"])


def context_page(request: HttpRequest, stored: Stored, *, caller: Caller) -> HttpResponse:
    """The record's page: what it shows was served then. Nothing is computed anew; what is known since stands beside."""
    weights = Weights(**stored.document["policy"]["weights"])
    rows = {row["position"]: row for row in stored.candidates if row["position"] is not None}
    sent_hits = stored.answer["hits"]
    after = Afterwards((sent["source_event_id"] for sent in sent_hits), since=stored.row.created_at)
    hits = [
        ContextHit(
            sent,
            rows[sent["rank"]],
            weights,
            after.of(sent["source_event_id"], graded=sent["validity"]["grade"]),
        )
        for sent in sent_hits
    ]
    left_out = Counter(row["detail"] for row in stored.candidates if row["position"] is None)
    context = {
        "section": "recalls",
        "row": stored.row,
        "answer": stored.answer,
        "document": stored.document,
        "digest_holds": stored.digest_holds,
        "sees_all": caller.reach.sees_all,
        "hits": hits,
        "left_out": sorted(left_out.items()),
        "notices": notices(stored.answer["warnings"]),
        "sentence": sentence(hits),
        "outcome": outcome_notice(stored),
        "took_ms": f"{stored.row.total_us / 1000:.1f}",
        "request_json": json.dumps(stored.document["request"], indent=2, ensure_ascii=False),
    }
    return show(request, "context_recall.html", context)


def notices(warnings: list[dict[str, str]]) -> list[tuple[str, list[str]]]:
    """Each warning once with all its messages; that the bank could not be asked stands above them."""
    told: dict[str, list[str]] = {}
    for warning in warnings:
        if warning["code"] != UNAVAILABLE:
            told.setdefault(warning["code"], []).append(warning["message"])
    return list(told.items())


def sentence(hits: list[ContextHit]) -> str:
    """What was served, in the sentence that an auditor would write."""
    if not hits:
        return "Nothing was served. The search was not widened."
    counts = [
        (sum(hit.sent["current_rationale"] for hit in hits), "as current rationale"),
        (sum(hit.sent["is_stale"] for hit in hits), "as superseded"),
        (sum(hit.sent["interpretation"] for hit in hits), "as an unverified interpretation"),
    ]
    told = ", ".join(f"{count} {words}" for count, words in counts if count)
    return f"{len(hits)} served: {told}." if told else f"{len(hits)} served, none of it a rationale."
