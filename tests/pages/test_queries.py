"""Each page asks a bounded number of queries, whatever the vault holds."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from ledger.domain.context import NewContext
from ledger.domain.events import DELIVERED
from ledger.domain.instants import DAY, UnixMs
from ledger.models import ContextEvent
from ledger.services import add_context, correct
from recall.services import recall
from recall.shapes import RecallBody, parse
from vault import services as vault
from vault.services import Caller

from .conftest import Room, agent_of, furnish

MOST = {
    "overview": 12,
    "recalls": 8,
    "recall": 8,
    "hit": 8,
    "left-out": 8,
    "recall-json": 6,
    "form": 6,
    "memories": 12,
    "memories, all": 12,
    "memory": 24,
    "ledger": 11,
    "ledger, searched": 12,
    "ledger, filtered": 11,
    "event": 7,
}


def addresses_of(room: Room) -> dict[str, str]:
    recalled = room.recalls[-1]
    return {
        "overview": "/",
        "recalls": "/recalls/",
        "recall": f"/recalls/{recalled}/",
        "hit": f"/recalls/{recalled}/hits/1/",
        "left-out": f"/recalls/{recalled}/left-out/",
        "recall-json": f"/recalls/{recalled}.json",
        "form": "/recalls/new/",
        "memories": "/memories/",
        "memories, all": "/memories/?state=all",
        "memory": f"/memories/{room.new}/",
        "ledger": "/ledger/",
        "ledger, searched": "/ledger/?q=pump",
        "ledger, filtered": "/ledger/?standing=superseded&delivery=pending&source=key&workspace=red",
        "event": f"/ledger/{room.events[-1]}/",
    }


def fill(room: Room, *, by: Caller, at: UnixMs, number: int) -> None:
    """So many more memories, links, changes and records in a room, its own memory the busiest."""
    rows = [
        ({"text": f"pump {n} of {room.mark}", "tags": [f"t{n % 7}"], "created_at": at - n * DAY // 8}, "")
        for n in range(number)
    ]
    outcomes = vault.remember_many(rows, caller=by, at=at)
    ids = [outcome.memory.id for outcome in outcomes if hasattr(outcome, "memory")]
    assert len(ids) == number
    for older, newer in zip(ids[1::3], ids[::3], strict=False):
        vault.link(older, newer, "EVOLVED_INTO", caller=by, at=at)
    for other in ids[2::3]:
        vault.link(room.new, other, "RELATES_TO", caller=by, at=at)
        vault.revise(room.new, {"category": f"c{other[-4:]}"}, caller=by, at=at)
    said = None
    for n in range(number):
        new = NewContext(f"pump {n} is late", workspace="red", supersedes=said if n % 3 else None)
        said = add_context(new, key=f"{number} {n}", actor=by.actor, at=at).event_id
        if n % 4 == 0:
            correct(said, kind="annotate", reason="a remark on that", actor=by.actor, at=at)
    for n in range(number):
        body = parse(RecallBody, {"query": f"pump {room.mark} {n % 5}", "limit": 50, "profile": "validity"})
        room.recalls.append(recall(body.request(), caller=by, surface="api", at=at)["recall_id"])
    of_memories = ContextEvent.objects.filter(workspace="red").exclude(kind__in=DELIVERED)
    room.events = list(of_memories.values_list("id", flat=True))


def queries(client: Client, address: str) -> int:
    with CaptureQueriesContext(
        connection,
    ) as captured:
        assert client.get(address).status_code == 200
    return len(captured)


@pytest.fixture
def room(db: None, now: UnixMs) -> Room:
    return furnish("red", "crimson", at=now)


def test_no_page_asks_more_queries_when_the_vault_grows(
    room: Room, visitor: Callable[..., Client], now: UnixMs
) -> None:
    client, agent = visitor("red"), agent_of("red", "crimson")
    fill(room, by=agent, at=now, number=10)
    few = {name: queries(client, address) for name, address in addresses_of(room).items()}
    fill(room, by=agent, at=now, number=290)
    many = {name: queries(client, address) for name, address in addresses_of(room).items()}
    assert {name: (few[name], many[name]) for name in many if many[name] > few[name]} == {}
    assert {name: number for name, number in many.items() if number > MOST[name]} == {}
