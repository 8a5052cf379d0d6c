"""Memories that came from context events: a supersession in the ledger replaces them in recall, like a link would."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import override_settings

from ledger.domain.actors import Actor
from ledger.services import NewContext, add_context, correct
from vault.models import Memory
from vault.queries import chain_around

ADA = Actor("user", "1", "ada")
NOW = 1_764_547_200_000
WHY = "it was said wrongly"
pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True, params=["resident", "sqlite"])
def _engine(request: pytest.FixtureRequest) -> Any:
    with override_settings(RECALL_INDEX=request.param):
        yield


def event(text: str, *, supersedes: str | None = None, at: int = NOW) -> str:
    new = NewContext(
        text=text, workspace="red", item_id=None, occurrence=None, reason="", supersedes=supersedes,
        occurred_at=at, tags=(),
    )  # fmt: skip
    return add_context(new, key=text, actor=ADA, at=at).event_id


def served(api: Any, **asked: Any) -> list[str]:
    return api.texts("harbour fence", workspace="red", **asked)


def test_a_memory_whose_event_was_superseded_gives_way_to_the_memory_of_the_event_that_did_it(
    api: Any,
) -> None:
    old = event("the fence is green")
    api.stored(text="harbour fence green", workspace="red", source_event_id=old)
    assert served(api) == ["harbour fence green"]
    new = event("the fence is blue", supersedes=old)
    assert served(api) == ["harbour fence green"], "nothing that recall could serve has taken its place yet"
    api.stored(text="harbour fence blue", workspace="red", source_event_id=new)
    status, answer = api.post(
        "/v1/recall", {"query": "harbour fence", "workspace": "red", "state_debug": True}
    )
    (hit,) = answer["results"]
    assert (status, hit["memory"]["text"]) == (200, "harbour fence blue")
    assert hit["relation"] == {"link_id": new, "type": "SUPERSEDED_BY"}
    assert [one["reason"] for one in answer["state_filter"]["suppressed"]] == ["superseded"]


def test_in_the_history_view_its_signal_names_the_ledger(api: Any) -> None:
    old = event("one")
    new = event("two", supersedes=old)
    api.stored(text="harbour fence one", workspace="red", source_event_id=old)
    api.stored(text="harbour fence two", workspace="red", source_event_id=new)
    _, answer = api.post(
        "/v1/recall",
        {"query": "harbour fence one", "workspace": "red", "current_only": False, "profile": "validity"},
    )
    signals = {hit["memory"]["text"]: hit["validity"]["signals"] for hit in answer["results"]}
    assert "superseded:ledger" in signals["harbour fence one"]
    assert not any(signal.startswith("superseded") for signal in signals["harbour fence two"])


def test_the_way_leads_over_events_from_which_no_memory_came(api: Any) -> None:
    first = event("one")
    second = event("two", supersedes=first)
    third = event("three", supersedes=second)
    api.stored(text="harbour fence one", workspace="red", source_event_id=first)
    api.stored(text="harbour fence three", workspace="red", source_event_id=third)
    assert served(api) == ["harbour fence three"]


def test_ledger_and_links_are_one_chain(api: Any) -> None:
    first = event("one")
    second = event("two", supersedes=first)
    api.stored(text="harbour fence one", workspace="red", source_event_id=first)
    two = api.stored(text="harbour fence two", workspace="red", source_event_id=second)
    three = api.stored(text="harbour fence three", workspace="red")
    api.linked(two["id"], three["id"], "EVOLVED_INTO")
    assert served(api) == ["harbour fence three"]


def test_a_restore_makes_it_current_again_and_a_second_one_takes_that_back(api: Any) -> None:
    old, new = event("one"), event("two")
    api.stored(text="harbour fence one", workspace="red", source_event_id=old)
    api.stored(text="harbour fence two", workspace="red", source_event_id=new)
    linking = correct(old, kind="link", reason=WHY, actor=ADA, at=NOW, successor=new)
    assert served(api) == ["harbour fence two"]
    restored = correct(linking.id, kind="restore", reason=WHY, actor=ADA, at=NOW)
    assert sorted(served(api)) == ["harbour fence one", "harbour fence two"]
    correct(restored.id, kind="restore", reason=WHY, actor=ADA, at=NOW)
    assert served(api) == ["harbour fence two"]


def test_at_an_anchor_before_the_supersession_it_still_holds(api: Any) -> None:
    old = event("one", at=NOW)
    api.stored(text="harbour fence one", workspace="red", source_event_id=old, created_at="2025-11-01")
    api.stored(
        text="harbour fence two", workspace="red", created_at="2025-11-01",
        source_event_id=event("two", supersedes=old, at=NOW + 60_000),
    )  # fmt: skip
    assert served(api) == ["harbour fence two"]
    then = served(api, query_time_unix_ms=NOW + 30_000)
    assert sorted(then) == ["harbour fence one", "harbour fence two"]


def test_a_memory_that_is_given_another_event_stands_as_that_one_does(api: Any) -> None:
    old = event("one")
    new = event("two", supersedes=old)
    api.stored(text="harbour fence two", workspace="red", source_event_id=new)
    loose = api.stored(text="harbour fence one", workspace="red")
    assert len(served(api)) == 2
    assert api.call("PATCH", f"/v1/memories/{loose['id']}", {"source_event_id": old})[0] == 200
    assert served(api) == ["harbour fence two"]
    assert api.call("PATCH", f"/v1/memories/{loose['id']}", {"source_event_id": None})[0] == 200
    assert len(served(api)) == 2


def test_a_memory_says_what_took_its_place_and_its_page_draws_it(api: Any) -> None:
    old = event("one")
    new = event("two", supersedes=old)
    first = api.stored(text="harbour fence one", workspace="red", source_event_id=old)
    second = api.stored(text="harbour fence two", workspace="red", source_event_id=new)
    _, shown = api.get(f"/v1/memories/{first['id']}")
    assert shown["state"] == {"current": False, "reason": "superseded", "replacement_id": second["id"]}

    for memory in Memory.objects.all():
        around = chain_around(memory)
        assert {edge.relation for edge in around.edges} == {"SUPERSEDED_BY"}
        assert len(around.facts) == 2
