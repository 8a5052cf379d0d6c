"""Two workspaces and the global one, each with something of every kind, and people of every role."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from django.contrib.auth.models import User
from django.test import Client

from ledger.domain.actors import Actor
from ledger.domain.instants import DAY, UnixMs
from ledger.models import ContextEvent
from recall.models import WorkspaceGrant
from recall.services import recall
from recall.shapes import RecallBody, parse
from vault import services as vault
from vault.domain.access import GLOBAL, Reach
from vault.services import Caller


@dataclass
class Room:
    """What one workspace holds. Every text, tag, reason and name in it carries the word `mark`."""

    mark: str
    old: str = ""
    new: str = ""
    recalls: list[str] = field(default_factory=list)
    events: list[str] = field(default_factory=list)

    @property
    def ids(self) -> list[str]:
        return [self.old, self.new, *self.recalls, *self.events]

    @property
    def addresses(self) -> list[str]:
        return [
            f"/memories/{self.old}/",
            f"/memories/{self.new}/",
            f"/memories/{self.old}/?at=2026-01-01",
            *(f"/recalls/{id_}/" for id_ in self.recalls),
            *(f"/recalls/{id_}.json" for id_ in self.recalls),
            *(f"/recalls/{id_}/hits/1/" for id_ in self.recalls),
            *(f"/recalls/{id_}/left-out/" for id_ in self.recalls),
            *(f"/ledger/{id_}/" for id_ in self.events),
        ]


def agent_of(workspace: str, mark: str) -> Caller:
    reach = Reach(frozenset({GLOBAL}), frozenset({GLOBAL})) if workspace == GLOBAL else Reach.bound(workspace)
    return Caller(Actor("key", f"key_{mark}", f"{mark} agent"), reach)


def furnish(workspace: str, mark: str, *, at: UnixMs) -> Room:
    """Two memories, one in the other's place, and a recall that served one and left out the other."""
    agent, room = agent_of(workspace, mark), Room(mark)
    sent = {
        "text": f"{mark} pump runs at forty bar",
        "workspace": workspace,
        "tags": [f"{mark}-tag"],
        "category": f"{mark}-cat",
        "metadata": {"note": f"{mark} note"},
        "created_at": at - 40 * DAY,
        "external_id": f"{mark}-1",
    }
    room.old = vault.remember(sent, caller=agent, at=at, reason=f"{mark} reason").memory.id
    newer = sent | {
        "text": f"{mark} pump runs at fifty bar",
        "external_id": f"{mark}-2",
        "created_at": at - DAY,
    }
    new, _ = vault.supersede(room.old, sent=newer, caller=agent, at=at, reason=f"{mark} because")
    room.new = new.id
    body = parse(RecallBody, {"query": f"{mark} pump", "profile": "validity"})
    for asked_at in (at - 35 * DAY, at):  # the overview counts both months
        room.recalls.append(recall(body.request(), caller=agent, surface="api", at=asked_at)["recall_id"])
    room.events = list(ContextEvent.objects.filter(workspace=workspace).values_list("id", flat=True))
    return room


@pytest.fixture
def now() -> UnixMs:
    """The real time, and not the fixed one of other tests: pages look at the clock."""
    return time.time_ns() // 1_000_000


@pytest.fixture
def rooms(db: None, now: UnixMs) -> dict[str, Room]:
    """By workspace: red and blue, and the global one."""
    names = {"red": "crimson", "blue": "cobalt", GLOBAL: "umber"}
    return {workspace: furnish(workspace, mark, at=now) for workspace, mark in names.items()}


@pytest.fixture
def visitor(db: None) -> Callable[..., Client]:
    """`visitor("red", role="curator")`: a signed-in user with a role in each workspace named."""

    def made(*workspaces: str | None, role: str = "viewer", superuser: bool = False) -> Client:
        user = User.objects.create_user(
            f"user{User.objects.count()}", is_superuser=superuser, is_staff=superuser
        )
        for workspace in workspaces:
            WorkspaceGrant.objects.create(user=user, workspace=workspace, role=role)
        client = Client()
        client.force_login(user)
        return client

    return made
