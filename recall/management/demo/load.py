"""Loading the demo's story through the services that every surface uses: all of it, or nothing."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Any

from django.contrib.auth import get_user_model
from django.db import transaction

from ledger import services
from ledger.domain.actors import Actor
from ledger.domain.context import NewContext
from ledger.domain.instants import MINUTE, UnixMs
from ledger.outbox import deliver_one
from recall import context
from recall.management.demo import story
from recall.management.demo.story import Act, Asked, Decided, Note, Story, Tie
from recall.models import WorkspaceGrant
from recall.services import create_api_key, erase, recall
from recall.shapes import ContextSearchBody, RecallBody, parse
from vault.domain.access import GLOBAL, Reach
from vault.models import Memory
from vault.services import Caller, link, remember, revise, verify

SURFACE = "demo"  # what the record of such a question names as the place where it was asked
OPERATOR = "operator"


@dataclass(frozen=True, slots=True)
class Loaded:
    """What was loaded, and the two secrets, which are kept nowhere."""

    memories: int
    links: int
    events: int  # context events and corrections
    recalls: int
    password: str
    key: str


def is_loaded() -> bool:
    return Memory.objects.filter(external_id__startswith=story.PREFIX).exists()


def load(at: UnixMs) -> Loaded | None:
    """Load the story as of `at`, with people, keys and answered questions; None where it is there already."""
    with transaction.atomic():
        if is_loaded():
            return None
        told = story.read(at)
        password = secrets.token_urlsafe(12)
        operator = _operator(password)
        _, key = create_api_key("demo", scopes=["read", "write"], at=at)
        callers = {OPERATOR: operator, **_agents(told, at), **_curators(told)}
        _tell(told, callers, at)
        for question in told.questions:
            ask(question, callers[question.by])
        _decide(told, callers, at)
        _deliver(at)
        for by, arguments in told.searches:
            sought = parse(ContextSearchBody, arguments).request()
            context.search(sought, caller=callers[by], surface=SURFACE, at=at)
    kinds = [type(step) for step in told.steps]
    return Loaded(kinds.count(Note), kinds.count(Tie), len(told.decided), len(told.questions), password, key)


def _operator(password: str) -> Caller:
    user = get_user_model().objects.create_superuser(OPERATOR, password=password)
    WorkspaceGrant.objects.create(user=user, workspace=None, role="administrator")
    return Caller(Actor("user", str(user.pk), OPERATOR), Reach.everything())


def _agents(told: Story, at: UnixMs) -> dict[str, Caller]:
    """A key for each agent, whose secret is thrown away: the name is real, and nobody can act under it."""
    callers = {}
    for name, workspace in told.agents.items():
        bound = None if workspace == GLOBAL else workspace
        key, _ = create_api_key(name, scopes=["read", "write"], workspace=bound, at=at)
        callers[name] = Caller(Actor("key", key.id, key.name), key.reach)
    return callers


def _curators(told: Story) -> dict[str, Caller]:
    """A user for each curator, without a password: they have done something, and cannot sign in."""
    callers = {}
    for name, workspaces in told.curators.items():
        user = get_user_model().objects.create_user(name)
        for workspace in workspaces:
            WorkspaceGrant.objects.create(user=user, workspace=workspace, role="curator")
        reach = Reach(frozenset({*workspaces, GLOBAL}), frozenset(workspaces), asserts_provenance=True)
        callers[name] = Caller(Actor("user", str(user.pk), name), reach)
    return callers


def _tell(told: Story, callers: dict[str, Caller], at: UnixMs) -> None:
    ids: dict[str, str] = {}
    for step in told.steps:
        caller = callers[step.by]
        match step:
            case Note():
                ids[step.id] = remember(step.sent, caller=caller, at=at, reason=step.reason).memory.id
            case Tie():
                source, target = ids[step.source], ids[step.target]
                link(source, target, step.type, caller=caller, at=at, created_at=step.at, reason=step.reason)
            case Act():
                _act(step, ids[step.note], caller if step.name != "erased" else callers[OPERATOR], at)


def _act(act: Act, memory_id: str, caller: Caller, at: UnixMs) -> None:
    if act.name == "verified":
        verify(memory_id, caller=caller, at=at, reason=act.reason)
        return
    if act.name == "erased":
        erase(memory_id, caller=caller, at=at, reason=act.reason)
        return
    changes: dict[str, dict[str, Any]] = {
        "corroborated": {"provenance_class": "corroborated"},
        "rejected": {"provenance_class": "rejected"},
        "deprecated": {"status": "deprecated"},
        "retracted": {"t_invalid": at},
        "archived": {"archived": True},
    }
    revise(memory_id, changes[act.name], caller=caller, at=at, reason=act.reason)


def _decide(told: Story, callers: dict[str, Caller], at: UnixMs) -> None:
    """Record what was decided, as of when, and what of it was corrected since."""
    ids: dict[str, str] = {}
    for one in told.decided:
        caller = callers[one.by]
        if one.kind:
            _correct(one, ids, caller, at)
            continue
        new = NewContext(
            text=one.text or "",
            item_id=one.item_id,
            reason=one.reason,
            supersedes=ids.get(one.target),
            occurred_at=one.at,
        )
        key = f"{story.PREFIX}{one.id}"
        ids[one.id] = context.add(new, workspace=one.workspace, key=key, caller=caller, at=at).event_id


def _correct(one: Decided, ids: dict[str, str], caller: Caller, at: UnixMs) -> None:
    kind: Any = one.kind
    services.correct(
        ids[one.target],
        kind=kind,
        reason=one.reason,
        successor=ids.get(one.successor),
        actor=caller.actor,
        readable=caller.reach.reads,
        writable=caller.reach.writes,
        at=at,
    )


def _deliver(at: UnixMs) -> None:
    """Deliver all of it to the bank, as the worker would, so that a search finds it at the first look."""
    while deliver_one(clock=lambda: at, lease_ms=MINUTE, token=SURFACE) is not None:
        pass


def ask(question: Asked, caller: Caller) -> dict[str, Any]:
    """Ask a question as of a past instant, and date its record then.

    The anchor is given and lies a millisecond before, so that only what existed at that instant is seen.
    """
    body = parse(RecallBody, {**question.arguments, "query_time_unix_ms": question.at - 1})
    return recall(body.request(), caller=caller, surface=SURFACE, at=question.at)
