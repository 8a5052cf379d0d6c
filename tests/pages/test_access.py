"""Who sees what on the pages: nothing of a workspace that was not granted, not even by a count."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.test import Client, override_settings
from django.urls import include, path

from ledger.domain.instants import UnixMs
from recall.models import RecallRecord
from recall.pages.texts import beginnings
from recall.pages.urls import urlpatterns as pages
from recall.records import record_for
from vault.domain.access import GLOBAL, Reach

from .conftest import Room, furnish

LISTS = [
    "/",
    "/recalls/",
    "/recalls/?q=pump",
    "/recalls/?grade=valid",
    "/recalls/new/",
    "/memories/",
    "/memories/?state=all",
    "/memories/?state=all&q=pump",
    "/memories/?state=all&workspace=-",
    "/ledger/",
    "/outbox/",
    "/ledger/?kind=link_created",
    "/ledger/?q=pump",
    "/ledger/?source=key&workspace=-",
]


def text_of(response: Any) -> str:
    return response.content.decode()


def traces(room: Room, text: str, *, beyond: str = "") -> list[str]:
    """What of a room shows in a text, apart from what was asked for."""
    found = [id_ for id_ in room.ids if id_ in text and id_ not in beyond]
    return found + ([room.mark] if room.mark in text else [])


def without_tokens(text: str) -> str:
    """A page without what differs each time: the form's token, and nothing else."""
    return re.sub(r'name="csrfmiddlewaretoken" value="\w+"', "", text)


# ------------------------------------------------------------------------------------------------ who gets in


def test_every_address_of_the_pages_is_tried_below() -> None:
    names = {pattern.name for pattern in pages}
    assert names == {
        *("sign-in", "sign-out", "overview", "recalls", "recall-new", "recall", "recall-json", "hit"),
        "left-out",
        *("memories", "memory", "ledger", "event", "outbox"),
        *(
            "correction-new",
            "outbox-retry",
            "outbox-resume",
        ),  # test_corrections_pages.py, test_outbox_page.py
    }


def test_nobody_sees_a_page_without_signing_in(rooms: dict[str, Room], client: Client) -> None:
    for address in [*LISTS, *rooms["red"].addresses, *rooms[GLOBAL].addresses]:
        response = client.get(address)
        assert response.status_code == 302, address
        assert response["Location"].startswith("/sign-in/?next=/")
        assert text_of(response) == ""


def test_within_htmx_an_ended_session_leads_to_the_sign_in(rooms: dict[str, Room], client: Client) -> None:
    headers = {"HX-Request": "true", "HX-Current-URL": "http://testserver/memories/?q=pump"}
    response = client.get("/memories/?q=pumps", headers=headers)
    assert response.status_code == 401
    assert response["HX-Redirect"] == "/sign-in/?next=%2Fmemories%2F%3Fq%3Dpump"


@pytest.mark.parametrize(
    ("grants", "options", "reads"),
    [
        ([], {}, {GLOBAL}),
        (["red"], {}, {GLOBAL, "red"}),
        (["red", "blue"], {}, {GLOBAL, "red", "blue"}),
        (["red"], {"role": "curator"}, {GLOBAL, "red"}),
        ([None], {}, {GLOBAL, "red", "blue"}),
        ([], {"superuser": True}, {GLOBAL, "red", "blue"}),
    ],
    ids=["no grant", "viewer of red", "viewer of both", "curator of red", "viewer of all", "superuser"],
)
def test_a_thing_is_shown_to_those_who_may_read_its_workspace_and_unknown_to_all_others(
    rooms: dict[str, Room],
    visitor: Callable[..., Client],
    grants: list[str | None],
    options: dict[str, Any],
    reads: set[str],
) -> None:
    client = visitor(*grants, **options)
    for workspace, room in rooms.items():
        for address in room.addresses:
            response = client.get(address)
            if workspace in reads:
                assert response.status_code == 200, address
                assert room.mark in text_of(response) or ".json" in address
            else:
                assert response.status_code == 404, address
                assert traces(room, text_of(response), beyond=address) == []


def test_a_foreign_thing_is_answered_like_one_that_does_not_exist(
    rooms: dict[str, Room], visitor: Callable[..., Client]
) -> None:
    client, blue = visitor("red"), rooms["blue"]
    for known, kind in ((blue.old, "memories"), (blue.recalls[0], "recalls"), (blue.events[0], "ledger")):
        unknown = known[:-1] + ("0" if known[-1] != "0" else "1")
        pages = [text_of(client.get(f"/{kind}/{id_}/")).replace(id_, "ID") for id_ in (known, unknown)]
        real, made_up = [re.sub(r"<code>[0-9a-f]{16}</code>", "", without_tokens(page)) for page in pages]
        assert real == made_up


# --------------------------------------------------------------------------------------- lists, counts, facets


@pytest.mark.parametrize("headers", [{}, {"HX-Request": "true"}], ids=["page", "fragment"])
@pytest.mark.parametrize("address", LISTS)
def test_a_list_holds_nothing_of_another_workspace(
    rooms: dict[str, Room], visitor: Callable[..., Client], address: str, headers: dict[str, str]
) -> None:
    text = text_of(visitor("red").get(address, headers=headers))
    assert traces(rooms["blue"], text) == []
    assert ">blue<" not in text


@pytest.mark.parametrize("headers", [{}, {"HX-Request": "true"}], ids=["page", "fragment"])
@pytest.mark.parametrize("address", LISTS)
def test_nothing_that_happens_in_another_workspace_changes_a_page(
    rooms: dict[str, Room],
    visitor: Callable[..., Client],
    now: UnixMs,
    address: str,
    headers: dict[str, str],
) -> None:
    """Counts, facets, pages, choices: all of it at once."""
    client = visitor("red")
    before = without_tokens(text_of(client.get(address, headers=headers)))
    for more in ("cobalt-two", "cobalt-three"):
        furnish("blue", more, at=now)
    furnish("green", "moss", at=now)
    assert without_tokens(text_of(client.get(address, headers=headers))) == before


def test_recalls_that_met_a_global_memory_are_only_those_the_viewer_may_see(
    rooms: dict[str, Room], visitor: Callable[..., Client], now: UnixMs
) -> None:
    from recall.services import recall
    from recall.shapes import RecallBody, parse

    from .conftest import agent_of

    shared = rooms[GLOBAL].new
    for workspace, mark in (("red", "crimson"), ("blue", "cobalt")):
        body = parse(RecallBody, {"query": f"umber pump asked by {mark}"})
        recall(body.request(), caller=agent_of(workspace, mark), surface="api", at=now)
    text = text_of(visitor("red").get(f"/memories/{shared}/"))
    assert "asked by crimson" in text
    assert "cobalt" not in text
    assert "asked by cobalt" in text_of(visitor("red", "blue").get(f"/memories/{shared}/"))


def test_the_beginnings_of_texts_are_only_those_of_readable_memories(rooms: dict[str, Room]) -> None:
    ids = [room.new for room in rooms.values()]
    told = beginnings(ids, Reach.bound("red"))
    assert told.keys() == {rooms["red"].new, rooms[GLOBAL].new}


def test_the_choice_of_workspaces_names_only_those_granted(
    rooms: dict[str, Room], visitor: Callable[..., Client]
) -> None:
    for address in ("/recalls/new/", "/memories/"):
        text = text_of(visitor("red").get(address))
        select = re.search(r'<select name="workspace".*?</select>', text, re.S)
        assert select
        assert re.findall(r'value="([^"]*)"', select[0]) == ["*", "-", "red"]


def test_a_foreign_workspace_in_a_filter_is_an_unknown_choice(
    rooms: dict[str, Room], visitor: Callable[..., Client]
) -> None:
    client = visitor("red")
    foreign, unknown = (
        without_tokens(text_of(client.get(f"/memories/?workspace={name}"))).replace(name, "NAME")
        for name in ("blue", "nowhere")
    )
    assert foreign == unknown
    assert traces(rooms["blue"], foreign) == []


# ------------------------------------------------------------------------------------------- running a recall


def asked(**fields: str) -> dict[str, str]:
    form = {"query": "pump", "workspace": "*", "mode": "fused", "profile": "validity", "state": "current"}
    return (
        form
        | {"query_time": "", "tags": "", "tags_match": "any_strict", "category": "", "limit": "10"}
        | fields
    )


def test_a_recall_covers_the_workspaces_of_whoever_runs_it(
    rooms: dict[str, Room], visitor: Callable[..., Client]
) -> None:
    client = visitor("red")
    response = client.post("/recalls/new/", asked())
    assert response.status_code == 303
    stored = record_for(Reach.everything(), response["Location"].split("/")[2])
    assert stored.document["scope"] == [GLOBAL, "red"]
    found = {hit["memory"]["workspace"] for hit in stored.answer["results"]}
    assert found == {GLOBAL, "red"}
    assert traces(rooms["blue"], text_of(client.get(response["Location"]))) == []
    assert visitor("blue").get(response["Location"]).status_code == 404
    assert visitor("red", "blue").get(response["Location"]).status_code == 200


def test_a_recall_of_a_foreign_workspace_is_refused_and_leaves_no_record(
    rooms: dict[str, Room], visitor: Callable[..., Client]
) -> None:
    before = RecallRecord.objects.count()
    response = visitor("red").post("/recalls/new/", asked(workspace="blue"))
    assert response.status_code == 422
    assert RecallRecord.objects.count() == before
    assert traces(rooms["blue"], text_of(response)) == []


def test_looking_at_the_form_or_a_record_runs_nothing(
    rooms: dict[str, Room], visitor: Callable[..., Client]
) -> None:
    client, before = visitor("red"), RecallRecord.objects.count()
    client.get("/recalls/new/?query=pump")
    client.head("/recalls/new/?query=pump")
    client.get(f"/recalls/{rooms['red'].recalls[0]}/")
    assert RecallRecord.objects.count() == before


# ------------------------------------------------------------------------------------------------- the session


@pytest.mark.parametrize(
    "elsewhere", ["https://evil.example/", "//evil.example/", "/\\evil.example", "javascript:1"]
)
def test_the_sign_in_never_leads_to_another_site(db: None, client: Client, elsewhere: str) -> None:
    User.objects.create_user("ada", password="correct horse battery")
    form = {"username": "ada", "password": "correct horse battery", "next": elsewhere}
    response = client.post("/sign-in/", form)
    assert response.status_code == 302
    assert response["Location"] == "/"


def test_the_sign_in_leads_back_to_where_one_was(db: None, client: Client) -> None:
    User.objects.create_user("ada", password="correct horse battery")
    form = {"username": "ada", "password": "correct horse battery", "next": "/memories/?q=pump"}
    assert client.post("/sign-in/", form)["Location"] == "/memories/?q=pump"


def test_signing_out_needs_a_post(visitor: Callable[..., Client]) -> None:
    client = visitor("red")
    assert client.get("/sign-out/").status_code == 405
    assert client.get("/memories/").status_code == 200
    assert client.post("/sign-out/").status_code == 302
    assert client.get("/memories/").status_code == 302


@pytest.mark.parametrize("address", ["/recalls/new/", "/sign-out/", "/sign-in/"])
def test_a_form_without_its_token_does_nothing(visitor: Callable[..., Client], address: str) -> None:
    signed_in = visitor("red")
    client = Client(enforce_csrf_checks=True)
    client.cookies = signed_in.cookies
    response = client.post(address, asked())
    assert response.status_code == 403
    assert "The form could not be accepted" in text_of(response)
    assert RecallRecord.objects.count() == 0


@pytest.mark.parametrize("method", ["post", "put", "patch", "delete"])
def test_a_page_that_shows_refuses_other_methods(visitor: Callable[..., Client], method: str) -> None:
    client = visitor("red")
    for address in ("/", "/recalls/", "/memories/", "/ledger/"):
        assert getattr(client, method)(address).status_code == 405


# ---------------------------------------------------------------------------------------------------- headers


def boom(request: HttpRequest) -> HttpResponse:
    raise RuntimeError("a fault")


urlpatterns = [path("boom", boom), path("", include("recall.urls"))]


def policy(response: Any) -> str:
    return str(response.headers.get("Content-Security-Policy", ""))


def test_every_page_carries_the_policy_and_is_not_stored(
    rooms: dict[str, Room], visitor: Callable[..., Client], client: Client
) -> None:
    signed_in = visitor("red")
    for address in [*LISTS, *rooms["red"].addresses, rooms["blue"].addresses[0]]:
        response = signed_in.get(address)
        assert "no-store" in response["Cache-Control"], address
        assert "default-src 'none'" in policy(response), address
        assert "unsafe" not in policy(response)
        assert response["X-Content-Type-Options"] == "nosniff"
    assert "no-store" in client.get("/sign-in/")["Cache-Control"]
    assert "default-src 'none'" in policy(client.get("/sign-in/"))


@pytest.mark.parametrize("address", ["/", "/recalls/", "/memories/", "/ledger/"])
def test_what_answers_htmx_otherwise_says_so_to_caches(visitor: Callable[..., Client], address: str) -> None:
    varies = visitor("red").get(address)["Vary"]
    assert {"HX-Request", "Cookie"} <= {name.strip() for name in varies.split(",")}


def test_errors_carry_the_policy_too(visitor: Callable[..., Client]) -> None:
    client = visitor("red")
    client.raise_request_exception = False
    assert "default-src 'none'" in policy(client.get("/no/such/address/"))
    assert "default-src 'none'" in policy(client.post("/memories/"))
    strict = Client(enforce_csrf_checks=True)
    assert "default-src 'none'" in policy(strict.post("/sign-in/"))
    with override_settings(ROOT_URLCONF=__name__):
        response = client.get("/boom")
    assert response.status_code == 500
    assert "The server could not answer" in text_of(response)
    assert "a fault" not in text_of(response)
    assert "default-src 'none'" in policy(response)


def test_a_record_as_json_is_json_and_nothing_a_browser_would_run(
    rooms: dict[str, Room], visitor: Callable[..., Client]
) -> None:
    response = visitor("red").get(f"/recalls/{rooms['red'].recalls[0]}.json")
    assert response["Content-Type"] == "application/json; charset=utf-8"
    assert response.json()["scope"] == [GLOBAL, "red"]


# ------------------------------------------------------------------------------------------------- hostile text


def test_what_a_memory_says_is_text_everywhere(visitor: Callable[..., Client], now: UnixMs) -> None:
    evil = "<script>alert(1)</script></title>"
    room = furnish("red", evil.replace("/", "\u2215"), at=now)
    client = visitor("red")
    for address in [*room.addresses, *LISTS, f"/recalls/?q={evil}", f"/memories/?tag={evil}"]:
        response = client.get(address)
        if not address.endswith(".json"):
            assert "<script>alert" not in text_of(response), address
