"""Recalls: find one, read one as it was served, run one."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.safestring import SafeString
from django.utils.text import capfirst
from django.views.decorators.http import require_http_methods, require_safe

from ledger.clock import now_ms
from ledger.domain.instants import format_instant
from ledger.domain.refusals import NotFound, Refused
from recall import services
from recall.domain.policy import Weights
from recall.domain.projecting import LISTS
from recall.domain.validity import GRADES, Grade
from recall.pages.access import show, signed_in
from recall.pages.charts import decay, waterfall
from recall.pages.contexts import context_page
from recall.pages.forms import ANY_WORKSPACE, GLOBAL_WORKSPACE, GRADE_CHOICES, RecallFilter, RecallForm
from recall.pages.origins import (
    Origin,
    Origins,
    found_in_words,
    found_sentence,
    memory_ids,
    outcome_notice,
    stages_of,
    strategies_of,
    weak_in,
)
from recall.pages.since import Afterwards, Since
from recall.pages.texts import beginnings
from recall.paging import page_of, parse_cursor
from recall.queries import records_of
from recall.records import Stored, record_for
from vault.queries import workspace_names
from vault.services import Caller

INLINE = 3  # so many hits carry their waterfall in the page; the rest fetch it when opened


@require_safe
@signed_in
def recall_list(request: HttpRequest, *, caller: Caller) -> HttpResponse:
    form = RecallFilter(request.GET)
    valid = form.is_valid()
    asked = form.cleaned_data if valid else {}
    rows = records_of(caller.reach, {name: value for name, value in asked.items() if value})
    if not valid:
        rows = rows.none()  # never wider than what was asked
    page = page_of(rows, cursor=parse_cursor(request.GET.get("cursor")), limit=50)
    context = {"section": "recalls", "form": form, "page": page, "filtered": not valid or any(asked.values())}
    return show(request, "recalls.html", context, part="results")


# ------------------------------------------------------------------------------------------------ one recall


@dataclass(frozen=True, slots=True)
class Other:
    """Another memory that a hit or a candidate speaks of: where it stands in this answer, and its words now."""

    id: str
    text: str
    position: int | None


@dataclass(frozen=True, slots=True)
class Hit:
    """One served hit as the page shows it: what was sent, and what its candidate row adds."""

    position: int
    memory: dict[str, Any]
    grade: Grade
    cause: str
    signals: list[str]
    factors: list[tuple[str, float]]
    base: float
    multiplier: float
    final: float
    applied: bool
    moved: int
    origin: Origin
    part: str  # of a projection: the list it stands in
    match_type: str
    replaces: list[Other]
    replacement: Other | None
    age_ms: int
    freshness: float
    weights: Weights
    recall_id: str
    since: Since | None

    @property
    def decay(self) -> SafeString:
        return decay(
            age_ms=self.age_ms, freshness=self.freshness, weights=self.weights, uid=f"decay-{self.position}"
        )

    @property
    def waterfall(self) -> SafeString:
        return waterfall(
            factors=self.factors,
            multiplier=self.multiplier,
            uid=f"factors-{self.position}",
            match=self.origin.match,
            scored=(self.base, self.final) if self.applied and self.base > 0 else None,
        )

    @property
    def moved_down(self) -> int:
        return -self.moved

    @property
    def match_words(self) -> str:
        """How it came into the answer, where no strategy says so."""
        if self.origin.not_searched:
            return "No search found it: it stands in place of what it replaces."
        if self.match_type == "listed":
            return "Listed without being near the task."
        return ""

    @property
    def inline(self) -> bool:
        return self.position <= INLINE

    @property
    def by_age_alone(self) -> Grade:
        """The grade that age alone would allow: where it differs, the page says what decided instead."""
        if self.freshness < self.weights.context_invalid_freshness:
            return "context_invalid"
        return "stale" if self.freshness < self.weights.stale_freshness else "valid"


def hits_of(stored: Stored, origins: Origins, texts: Mapping[str, str]) -> list[Hit]:
    """The served hits, from the stored document: nothing is computed anew. `texts` are of the others they name; what
    became of a hit's event afterwards stands beside it."""
    weights = Weights(**stored.document["policy"]["weights"])
    others = _others(origins, texts)
    parts = {hit["memory"]["id"]: name for name in LISTS for hit in stored.answer.get(name, ())}
    sources = (sent["memory"].get("source_event_id") for sent in stored.hits)
    after = Afterwards(sources, since=stored.row.created_at)
    return [_hit(sent, origins, weights, stored, others, parts, after) for sent in stored.hits]


def _others(origins: Origins, texts: Mapping[str, str]) -> dict[str, Other]:
    """Every memory that may be named: those with a text, for the viewer may read them, and those served."""
    return {
        id_: Other(id_, text, origins.rows[id_]["position"] if id_ in origins.rows else None)
        for id_, text in texts.items()
    }


def _named(stored: Stored, origins: Origins, left_out: Sequence[Mapping[str, Any]] = ()) -> set[str]:
    """The ids of what the page tells in words beside the hits: left out, replaced, replacing, linked."""
    named = {row["id"] for row in left_out}
    for sent in stored.hits:
        named |= {*sent["state_replaces"], sent["memory"]["state"].get("replacement_id", "")}
        named |= memory_ids(origins.rows[sent["memory"]["id"]])
    return named | {row["detail"] for row in left_out if row["verdict"] == "replaced_by"}


def _hit(
    sent: dict[str, Any],
    origins: Origins,
    weights: Weights,
    stored: Stored,
    others: Mapping[str, Other],
    parts: Mapping[str, str],
    after: Afterwards,
) -> Hit:
    row = origins.rows[sent["memory"]["id"]]
    applied = "multiplier" in sent["score"]
    factors = [(name, factor) for name, factor in row["factors"]]
    return Hit(
        position=sent["rank"],
        memory=sent["memory"],
        grade=row["grade"],
        cause=row["cause"],
        signals=row["signals"],
        factors=factors,
        base=row["base"],
        multiplier=row["multiplier"],
        final=row["final"],
        applied=applied,
        moved=0 if row["pool_rank"] is None else row["pool_rank"] + 1 - sent["rank"],
        origin=origins.of(row["id"]),
        part=parts.get(row["id"], ""),
        match_type=sent["match_type"],
        replaces=[others[id_] for id_ in row["replaces"] if id_ in others],
        replacement=others.get(sent["memory"]["state"].get("replacement_id", "")),
        age_ms=row["age_ms"],
        freshness=dict(factors)["freshness"],
        weights=weights,
        recall_id=stored.row.id,
        since=after.of(sent["memory"].get("source_event_id"), graded=row["grade"]),
    )


@require_safe
@signed_in
def recall_page(request: HttpRequest, recall_id: str, *, caller: Caller) -> HttpResponse:
    stored = record_for(caller.reach, recall_id)
    if stored.row.about_context:
        return context_page(request, stored, caller=caller)
    origins = Origins(stored)
    rows, left_out = list(origins.rows.values()), _left_out(origins)
    texts = beginnings(_named(stored, origins, left_out[:FIRST]), caller.reach)
    every = hits_of(stored, origins, texts)
    grade, text = request.GET.get("grade", ""), request.GET.get("q", "").strip()
    hits = [h for h in every if grade in ("", h.grade) and text.lower() in h.memory["text"].lower()]
    others = _others(origins, texts)
    strategies = strategies_of(stored, rows)
    context = {
        "section": "recalls",
        "row": stored.row,
        "digest_holds": stored.digest_holds,
        "sees_all": caller.reach.sees_all,
        "document": stored.document,
        "hits": hits,
        "every": every,
        "grade": grade,
        "q": text,
        "grade_choices": GRADE_CHOICES,
        "sentence": sentence(stored, every),
        "outcome": outcome_notice(stored),
        "ranking_warning": ranking_warning(every),
        "scope": _scope_in_words(stored),
        "took_ms": f"{stored.row.total_us / 1000:.1f}",
        "rerun": _as_form(stored.document["request"]) if "query" in stored.document["request"] else None,
        "strategies": strategies,
        "found": found_sentence(stored, rows, strategies),
        "stages": stages_of(stored, rows, strategies),
        "embeds": any(strategy.name in ("dense", "links") for strategy in strategies),
        "members": _members(stored),
        "left_out": [_told(row, origins, others) for row in left_out[:FIRST]],
        "left_out_count": len(left_out),
        "verdicts": _counted("weak" if weak_in([row]) else row["verdict"] for row in left_out),
        "signals": _counted(
            signal for hit in every for signal in hit.signals if not signal.startswith("freshness")
        ),
        "request_json": json.dumps(stored.document["request"], indent=2, ensure_ascii=False),
    }
    return show(request, "recall.html", context, part="hits")


@require_safe
@signed_in
def hit_page(request: HttpRequest, recall_id: str, position: int, *, caller: Caller) -> HttpResponse:
    """One hit: for htmx its score breakdown, else a page of its own."""
    stored = record_for(caller.reach, recall_id)
    if stored.row.about_context:
        return _on_its_page(stored, f"hit-{position}")
    origins = Origins(stored)
    texts = beginnings(_named(stored, origins), caller.reach)
    hits = [hit for hit in hits_of(stored, origins, texts) if hit.position == position]
    if not hits:
        raise NotFound(f"this recall served no hit {position}")
    (hit,), others = hits, _others(origins, texts)
    context = {
        "section": "recalls",
        "row": stored.row,
        "document": stored.document,
        "hit": hit,
        "sources": [(found_in_words(source), source) for source in hit.origin.sources],
        "linked": [
            others[id_] for id_ in sorted(memory_ids(origins.rows[hit.memory["id"]])) if id_ in others
        ],
        "lender": others.get(hit.origin.lent_by),
        "lender_sources": origins.sources(origins.rows[hit.origin.lent_by]) if hit.origin.lent_by else [],
    }
    return show(request, "hit.html", context, part="breakdown")


@require_safe
@signed_in
def left_out_page(request: HttpRequest, recall_id: str, *, caller: Caller) -> HttpResponse:
    """Why something was not returned: for htmx the table, else a page of its own."""
    stored = record_for(caller.reach, recall_id)
    if stored.row.about_context:
        return _on_its_page(stored, "left-out")
    origins = Origins(stored)
    left_out = _left_out(origins)
    others = _others(origins, beginnings(_named(stored, origins, left_out[:SHOWN]), caller.reach))
    context = {
        "section": "recalls",
        "row": stored.row,
        "left_out": [_told(row, origins, others) for row in left_out[:SHOWN]],
        "left_out_count": len(left_out),
    }
    return show(request, "left_out.html", context, part="table")


def _on_its_page(stored: Stored, place: str) -> HttpResponse:
    """A context search tells everything on one page."""
    return HttpResponseRedirect(f"{reverse('recall', args=[stored.row.id])}#{place}", status=303)


def sentence(stored: Stored, hits: list[Hit]) -> str:
    """The recall in the sentence that an auditor would write."""
    row = stored.row
    if not row.candidates:
        return "Nothing in scope matched."
    taken_out = f"; {row.suppressed} left out as not current" if row.suppressed else ""
    if not hits:
        return f"None of {row.candidates} candidates was served{taken_out}."
    counts = [(sum(hit.grade == grade for hit in hits), grade.replace("_", " ")) for grade in GRADES]
    graded = ", ".join(f"{count} {word}" for count, word in counts if count)
    return f"{len(hits)} of {row.candidates} candidates served: {graded}{taken_out}."


def ranking_warning(hits: list[Hit]) -> str | None:
    """A multiplier re-ranks and never excludes, so order alone must not suggest trust."""
    for place, hit in enumerate(hits):
        for below in hits[place + 1 :]:
            if GRADES.index(hit.grade) > GRADES.index(below.grade):
                word, better = hit.grade.replace("_", " "), below.grade.replace("_", " ")
                return (
                    f"Hit {hit.position} is {word} and stands above hit {below.position}, which is {better}: "
                    "rank combines relevance with validity, and does not stand for trust."
                )
    return None


def _scope_in_words(stored: Stored) -> str:
    covered = stored.document["scope"]
    if covered is None:
        return "every workspace"
    return ", ".join(name or "global" for name in covered)


NOT_CURRENT = ("suppressed", "replaced_by")
FIRST = 5  # of those left out stand in the record's page; the rest is fetched when opened
SHOWN = 200  # of those left out: the pool may hold thousands, and the record's JSON has them all
_LEFT_OUT = {"below_limit": "Below the limit", "over_budget": "Over the token budget"}


def _left_out(origins: Origins) -> list[dict[str, Any]]:
    """The candidates that were not served: what is not current first, each group in the record's order."""
    unserved = [row for row in origins.rows.values() if row["position"] is None]
    unserved.sort(key=lambda row: row["verdict"] not in NOT_CURRENT)
    return unserved


def _told(row: dict[str, Any], origins: Origins, others: Mapping[str, Other]) -> dict[str, Any]:
    """A candidate that was not served, with its text, the reason, and what had found it."""
    by = others.get(row["detail"]) if row["verdict"] == "replaced_by" else None
    return {
        **row,
        "text": _text(row, others),
        "state": "superseded" if row["verdict"] == "replaced_by" else row["detail"],
        "why": _why_left_out(row),
        "by": by,
        "sources": origins.sources(row),
    }


def _why_left_out(row: Mapping[str, Any]) -> str:
    """What the record says of a candidate that did not fit: "matches less than half as well as the best", say."""
    if row["verdict"] in ("below_limit", "filtered") and row["detail"]:
        return capfirst(str(row["detail"]))
    return _LEFT_OUT.get(row["verdict"], str(row["verdict"]))


def _text(row: dict[str, Any], others: Mapping[str, Other]) -> str:
    other = others.get(row["id"])
    return other.text if other else row["id"]


def _members(stored: Stored) -> list[tuple[int, str, str]]:
    """Of a fused batch: each question's number, its record and its words."""
    questions = stored.document["request"].get("queries", [])
    ids = stored.answer.get("queries", [])
    return [(n, id_, asked["query"]) for n, (id_, asked) in enumerate(zip(ids, questions, strict=False))]


def _as_form(asked: dict[str, Any]) -> str:
    """A stored request as the query string that fills the form again."""
    workspace = asked["workspace"]
    filled = {
        "query": asked["query"],
        "workspace": ANY_WORKSPACE if workspace is None else workspace or GLOBAL_WORKSPACE,
        "mode": asked["mode"],
        "profile": asked["profile"],
        "state": "current" if asked["current_only"] else "history",
        "tags": ", ".join(asked["tags"]),
        "tags_match": asked["tags_match"],
        "category": asked["category"] or "",
        "limit": asked["limit"],
    }
    if asked["query_time_unix_ms"] is not None:
        filled["query_time"] = format_instant(asked["query_time_unix_ms"])
    return urlencode(filled)


def _counted(names: Iterator[str]) -> list[tuple[str, int]]:
    counts: dict[str, int] = {}
    for name in names:
        counts[name] = counts.get(name, 0) + 1
    return sorted(counts.items())


# ------------------------------------------------------------------------------------------------ running one


@require_http_methods(["GET", "HEAD", "POST"])
@signed_in
def recall_new(request: HttpRequest, *, caller: Caller) -> HttpResponse:
    """GET fills the form; POST runs it and redirects to the record's permalink."""
    workspaces = workspace_names(caller.reach)
    if request.method != "POST":
        form = RecallForm(initial=request.GET.dict(), workspaces=workspaces)
        return show(request, "recall_new.html", {"section": "recall-new", "form": form})
    form = RecallForm(request.POST, workspaces=workspaces)
    asked = form.request()
    if asked is not None:
        try:
            answer = services.recall(asked, caller=caller, surface="page", at=now_ms())
            return HttpResponseRedirect(reverse("recall", args=[answer["recall_id"]]), status=303)
        except Refused as refusal:
            form.add_refusal(refusal)
    return show(request, "recall_new.html", {"section": "recall-new", "form": form}, status=422)


@require_safe
@signed_in
def recall_json(request: HttpRequest, recall_id: str, *, caller: Caller) -> HttpResponse:  # noqa: ARG001
    """The record as it is stored, for whoever wants to check it."""
    stored = record_for(caller.reach, recall_id)
    return HttpResponse(
        json.dumps(stored.document, indent=2, ensure_ascii=False),
        content_type="application/json; charset=utf-8",
    )
