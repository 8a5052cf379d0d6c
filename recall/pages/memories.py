"""Memories: the list of what holds, and one memory in time."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.views.decorators.http import require_safe

from ledger.clock import now_ms
from ledger.domain import events as kinds
from ledger.domain.instants import UnixMs, format_instant
from ledger.domain.refusals import Invalid
from ledger.models import ContextEvent
from ledger.wording import in_words as in_words_of
from recall.domain import policy
from recall.domain import state as rules
from recall.domain.state import Anchor, State, Successions, in_words
from recall.domain.validity import Validity, grade_in_state
from recall.pages.access import show, signed_in
from recall.pages.charts import ChainNode, Span, chain, decay, timeline
from recall.pages.forms import ANY_WORKSPACE, GLOBAL_WORKSPACE, AsOfForm, MemoryFilter
from recall.pages.texts import ERASED, beginnings
from recall.paging import page_of, parse_cursor
from recall.pipeline import anchored
from recall.queries import current_page, recalls_of, states_of
from vault.domain.access import Reach, scope_of
from vault.models import Memory, MemoryQuerySet
from vault.queries import chain_around, links_of, memory_for, workspace_names
from vault.services import Caller, history_of

PAGE = 50
SHOWN = 30  # so many of the newest links and changes stand on a memory's page


@require_safe
@signed_in
def memory_list(request: HttpRequest, *, caller: Caller) -> HttpResponse:
    form = MemoryFilter(request.GET, workspaces=workspace_names(caller.reach))
    valid = form.is_valid()
    asked = form.cleaned_data if valid else {}
    rows = _narrowed(asked, caller) if valid else Memory.objects.none()  # never wider than what was asked
    cursor, anchor = parse_cursor(request.GET.get("cursor")), Anchor(now_ms())
    if asked.get("state") == "all":
        page = page_of(rows, cursor=cursor, limit=PAGE)
        states = states_of(page.rows, anchor)
    else:
        page, states = current_page(rows, anchor, cursor=cursor, limit=PAGE)
    context = {
        "section": "memories",
        "form": form,
        "page": page,
        "rows": [
            (memory, states[memory.id], _graded(memory, states[memory.id], anchor)) for memory in page.rows
        ],
        "filtered": not valid
        or any(value for name, value in asked.items() if name != "state" and value != ANY_WORKSPACE),
    }
    return show(request, "memories.html", context, part="results")


def _narrowed(asked: dict[str, Any], caller: Caller) -> MemoryQuerySet:
    workspace = asked.get("workspace") or ANY_WORKSPACE
    scope = scope_of({ANY_WORKSPACE: None, GLOBAL_WORKSPACE: ""}.get(workspace, workspace), caller.reach)
    rows = Memory.objects.select_related("workspace").prefetch_related("tags").within(scope)
    if asked.get("q"):
        rows = rows.filter(text__icontains=asked["q"])
    return rows.tagged([asked["tag"]] if asked.get("tag") else [], "any_strict")


def _graded(memory: Memory, state: State, anchor: Anchor) -> Validity:
    return grade_in_state(memory.facts, state, at=anchor.at, workspace=None)


# ------------------------------------------------------------------------------------------------ one memory


@dataclass(frozen=True, slots=True)
class LinkChange:
    """A link that was made or removed, seen from this memory."""

    outgoing: bool
    type: str
    other_id: str
    other: str


@dataclass(frozen=True, slots=True)
class Change:
    """One ledger event of a memory, in words, with what it changed."""

    event: ContextEvent
    words: str
    fields: list[tuple[str, SafeString]]
    link: LinkChange | None = None


@require_safe
@signed_in
def memory_page(request: HttpRequest, memory_id: str, *, caller: Caller) -> HttpResponse:
    memory = memory_for(caller.reach, memory_id)
    form = AsOfForm(request.GET)
    if not form.is_valid():
        raise Invalid(
            "; ".join(map(str, form.errors["at"])), field="at", hint="write it as 2026-11-30T13:58:02Z"
        )
    anchor = Anchor(*anchored(form.cleaned_data["at"], now=now_ms()))
    state = states_of([memory], anchor)[memory.id]
    validity = _graded(memory, state, anchor)
    weights = policy.DEFAULT
    links, events = links_of(memory), history_of(memory)
    context = {
        "section": "memories",
        "memory": memory,
        "form": form,
        "anchor": anchor,
        "asked_at": form.cleaned_data["at"],
        "state": state,
        "sentence": _beside_the_badge(in_words(state, memory.facts)),
        "superseded_at": _superseded_at(state),
        "replacement": _replacement(state, caller.reach),
        "validity": validity,
        "decay": decay(age_ms=validity.age_ms, freshness=validity.freshness, weights=weights, uid="decay"),
        "timeline": timeline(span=_span(memory, state, anchor), uid="time"),
        "chain": _chain(memory, anchor),
        "links": links[-SHOWN:],
        "link_count": len(links),
        "changes": _changes(events[-SHOWN:], memory.id, caller.reach),
        "change_count": len(events),
        "recalls": recalls_of(memory.id, caller.reach, limit=20),
        "sees_all": caller.reach.sees_all,
        "metadata": sorted(memory.metadata.items()),
    }
    return show(request, "memory.html", context, part="at")


def _replacement(state: State, reach: Reach) -> str | None:
    """The first words of what replaced it, where the viewer may read it."""
    if state.replacement_id is None:
        return None
    return beginnings([state.replacement_id], reach).get(state.replacement_id)


def _beside_the_badge(sentence: str) -> str:
    """What the words of a state add to its badge: nothing, where they are the same word."""
    return "" if sentence in ("Current", "Archived", "Erased") else sentence


def _superseded_at(state: State) -> UnixMs | None:
    return state.edge.created_at if state.edge is not None and state.replacement_id else None


def _span(memory: Memory, state: State, anchor: Anchor) -> Span:
    return Span(
        created_at=memory.created_at,
        at=anchor.at,
        weights=policy.DEFAULT,
        t_valid=memory.t_valid,
        t_invalid=memory.t_invalid,
        expires_at=memory.expires_at,
        superseded_at=_superseded_at(state),
    )


def _chain(memory: Memory, anchor: Anchor) -> SafeString | None:
    """The supersession chain through this memory, oldest first; none where nothing replaces anything."""
    around = chain_around(memory)
    if not around.edges:
        return None
    successions = Successions(around.edges, anchor)
    texts = around.texts
    path = _longest_path_through(memory.id, around.edges, successions)
    facts = around.facts
    states = rules.states_of(path, facts, successions, anchor)
    nodes = [
        ChainNode(
            id=id_,
            href=reverse("memory", args=[id_]),
            when=format_instant(facts[id_].created_at)[:10],
            label=ERASED if facts[id_].erased else texts[id_],
            current=states[id_].current,
            state="erased" if facts[id_].erased else (states[id_].reason or "").replace("_", " "),
            marked=id_ == memory.id,
        )
        for id_ in path
    ]
    return chain(nodes=nodes, uid="chain") if len(nodes) > 1 else None


def _longest_path_through(memory_id: str, edges: Any, successions: Successions) -> list[str]:
    """Backwards over the newest edge that leads here at each step, then forwards to the head."""
    leading: dict[str, str] = {}
    for edge in sorted(edges, key=lambda edge: (edge.created_at, edge.id)):
        if successions.next(edge.source) == edge:
            leading[edge.target] = edge.source
    before: list[str] = []
    node = leading.get(memory_id)
    while node is not None and node not in before and node != memory_id:
        before.append(node)
        node = leading.get(node)
    after = [edge.target for edge in successions.way_from(memory_id)]
    return [*reversed(before), memory_id, *after]


def _changes(events: Sequence[ContextEvent], memory_id: str, reach: Reach) -> list[Change]:
    """Ledger events of a memory, newest first, the other end of each link by its text."""
    texts = beginnings([id_ for event in events for id_ in (event.subject_id, event.object_id)], reach)
    return [_change(event, memory_id, texts) for event in reversed(events)]


def _change(event: ContextEvent, memory_id: str, texts: Mapping[str, str]) -> Change:
    before, after, words = event.values_before, event.values_after, in_words_of(event.kind)
    if event.kind in (kinds.LINK_CREATED, kinds.LINK_REMOVED):
        outgoing = event.subject_id == memory_id
        other = event.object_id if outgoing else event.subject_id
        type_ = str((after or before).get("type", "linked to"))
        return Change(event, words, [], LinkChange(outgoing, type_, other, texts.get(other, other)))
    fields = []
    if event.kind == kinds.MEMORY_REVISED:
        fields = [(name, _difference(*_shown(name, before.get(name), after[name]))) for name in sorted(after)]
    return Change(event, words, fields)


_INSTANTS = frozenset({"created_at", "t_valid", "t_invalid", "expires_at", "verified_at"})


def _shown(name: str, *values: Any) -> list[Any]:
    return [format_instant(value) if name in _INSTANTS and value is not None else value for value in values]


def _difference(old: Any, new: Any) -> SafeString:
    """What was, and what is, word by word where both are texts."""
    if isinstance(old, str) and isinstance(new, str) and old and new:
        return _word_difference(old, new)
    return format_html("<del>{}</del> <ins>{}</ins>", _plain(old), _plain(new))


def _plain(value: Any) -> str:
    if value is None or value == "" or value == []:
        return "nothing"
    if isinstance(value, list):
        return ", ".join(str(entry) for entry in value)
    return str(value)


def _word_difference(old: str, new: str) -> SafeString:
    ours, theirs = old.split(), new.split()
    pieces: list[tuple[str]] = []
    matcher = difflib.SequenceMatcher(a=ours, b=theirs, autojunk=False)
    for op, a0, a1, b0, b1 in matcher.get_opcodes():
        if op == "equal":
            pieces.append((format_html("{}", " ".join(ours[a0:a1])),))
        if op in ("delete", "replace"):
            pieces.append((format_html("<del>{}</del>", " ".join(ours[a0:a1])),))
        if op in ("insert", "replace"):
            pieces.append((format_html("<ins>{}</ins>", " ".join(theirs[b0:b1])),))
    return format_html_join(" ", "{}", pieces)
