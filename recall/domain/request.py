"""Questions, checked and complete: what every surface hands to the services of recall."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ledger.domain.instants import UnixMs
from ledger.domain.refusals import Invalid

PROFILES = ("default", "validity")
STRATEGIES = ("lexical", "dense", "links", "temporal")
OF_MODE = {"fused": STRATEGIES, "hybrid": ("lexical", "dense")}  # any other mode is one strategy alone
ALIASES = {"fts5": "lexical", "graph": "links"}
TAGS_MATCH = ("any", "all", "any_strict", "all_strict", "exact")
OUTCOMES = ("fresh", "stale", "partial", "empty", "unavailable")
MAX_LIMIT = 200
MAX_BATCH = 50
RERANKED = 20  # a reranker sees no more than the first so many


@dataclass(frozen=True, slots=True)
class RecallRequest:
    """The arguments of a recall (api.md), with their defaults filled in. Instants in Unix ms."""

    query: str = ""
    workspace: str | None = None
    limit: int = 10
    mode: str = "fused"
    strategies: tuple[str, ...] = STRATEGIES
    strategy_weights: dict[str, float] = field(default_factory=dict)
    fusion: str = "score"
    profile: str = "default"
    validity_annotate: bool = False
    query_time_unix_ms: UnixMs | None = None
    current_only: bool = True
    state_debug: bool = False
    tags: tuple[str, ...] = ()
    tags_match: str = "any_strict"
    exclude_tags: tuple[str, ...] = ()
    category: str | None = None
    categories: tuple[str, ...] = ()  # any of these: what a projection narrows by
    provenance_class: str | None = None
    start: UnixMs | None = None
    end: UnixMs | None = None
    temporal: tuple[UnixMs | None, UnixMs | None] | None = None
    rerank: bool = False
    sort: str = "score"
    max_tokens: int | None = None
    trace: bool = False

    @property
    def annotates(self) -> bool:
        """Whether hits carry their validity block."""
        return self.validity_annotate or self.profile == "validity"

    @property
    def reorders(self) -> bool:
        """Whether validity decides the order: in fused mode and without an explicit sort."""
        return self.profile == "validity" and self.mode == "fused" and self.sort == "score"

    @property
    def by_tag_only(self) -> bool:
        return not self.query.strip()

    def as_dict(self) -> dict[str, Any]:
        """The arguments that a caller may send: no recall names several categories."""
        return {name: getattr(self, name) for name in self.__slots__ if name != "categories"}


@dataclass(frozen=True, slots=True)
class BatchRequest:
    """Several questions at once; with `fuse`, one answer of at most `limit` hits out of theirs."""

    queries: tuple[RecallRequest, ...]
    fuse: bool = False
    limit: int = 10

    def as_dict(self) -> dict[str, Any]:
        return {"queries": [one.as_dict() for one in self.queries], "fuse": self.fuse, "limit": self.limit}


@dataclass(frozen=True, slots=True)
class ProjectionRequest:
    """What an agent asks for before it starts: no question, at most a task."""

    max_tokens: int
    workspace: str | None = None
    task: str | None = None
    categories: tuple[str, ...] = ()
    query_time_unix_ms: UnixMs | None = None
    include_history: bool = False

    def as_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


def require_temporal(temporal: tuple[UnixMs | None, UnixMs | None] | None) -> None:
    """Refuse a preferred time that says nothing, or ends before it begins; raises Invalid."""
    if temporal is None:
        return
    start, end = temporal
    if start is None and end is None:
        raise Invalid("temporal needs a start or an end", field="temporal")
    if start is not None and end is not None and end <= start:
        raise Invalid("temporal.end is not after temporal.start", field="temporal.end")


def require_answerable(request: RecallRequest) -> None:
    """Refuse what contradicts itself, or what this version cannot run; raises Invalid."""
    if request.by_tag_only and not (request.tags or request.category or request.tags_match == "exact"):
        raise Invalid("an empty query needs a tag or a category", field="query", code="query_required")
    if request.start is not None and request.end is not None and request.end <= request.start:
        raise Invalid("end is not after start", field="end")
    require_temporal(request.temporal)
    if request.rerank and request.by_tag_only:
        raise Invalid("rerank needs a query", field="rerank")
    if request.rerank and request.limit > RERANKED:
        raise Invalid(f"with rerank, limit is at most {RERANKED}", field="limit")
