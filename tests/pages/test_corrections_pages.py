"""Recording a correction in the browser: form, preview, one new event, and its undoing."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from ledger.clock import now_ms
from ledger.domain.actors import Actor
from ledger.models import ContextEvent, OutboxEntry, Supersession
from ledger.queries import heads_of
from ledger.services import NewContext, add_context
from recall.models import WorkspaceGrant
from recall.services import create_api_key

ADA = Actor("user", "1", "ada")
NOW = 1_764_547_200_000
WHY = "it was said of another outline"
pytestmark = pytest.mark.django_db


def event(text: str, *, supersedes: str | None = None, workspace: str = "red") -> str:
    new = NewContext(
        text=text, workspace=workspace, item_id=None, occurrence=None, reason="", supersedes=supersedes,
        occurred_at=NOW, tags=(),
    )  # fmt: skip
    return add_context(new, key=text, actor=ADA, at=NOW).event_id


def signed_in(role: str = "curator", workspace: str = "red") -> Client:
    user = User.objects.create_user(f"user-{role}-{workspace}", password="long enough for it")
    WorkspaceGrant.objects.create(user=user, workspace=workspace, role=role)
    client = Client()
    client.force_login(user)
    return client


def form_of(client: Client, event_id: str) -> dict[str, str]:
    """What the form sends when nothing was filled in."""
    answer = client.get(f"/ledger/{event_id}/corrections/new/")
    assert answer.status_code == 200
    key = re.search(r'name="key" value="(\w+)"', answer.content.decode())
    assert key is not None
    return {"kind": "retract", "text": "", "successor": "", "reason": WHY, "key": key[1]}


def send(client: Client, event_id: str, fields: dict[str, str], *, do: str) -> Any:
    return client.post(f"/ledger/{event_id}/corrections/new/", {**fields, "do": do})


def counted() -> tuple[int, int, int]:
    return ContextEvent.objects.count(), Supersession.objects.count(), OutboxEntry.objects.count()


def test_a_preview_tells_what_would_be_and_saves_nothing() -> None:
    client, one = signed_in(), event("postponed")
    _, secret = create_api_key("agent", scopes=["read", "write"], at=now_ms())
    agent: dict[str, Any] = {
        "headers": {"Authorization": f"Bearer {secret}"},
        "content_type": "application/json",
    }
    memory = {"text": "postponed until spring", "workspace": "red", "source_event_id": one}
    assert client.post("/v1/memories", memory, **agent).status_code == 201
    asked = {"query": "postponed spring", "workspace": "red"}
    recall_id = client.post("/v1/recall", asked, **agent).json()["recall_id"]
    before = counted()
    answer = send(client, one, form_of(client, one), do="preview")
    shown = answer.content.decode()
    assert answer.status_code == 200
    assert counted() == before
    assert "1 recorded recall you may read would be marked otherwise" in shown
    assert f'href="/recalls/{recall_id}/"' in shown
    assert f"This retracts context event {one}" in shown
    assert "Record the correction" in shown


def test_what_was_previewed_is_recorded_once_however_often_it_is_sent() -> None:
    client, one = signed_in(), event("postponed")
    fields = form_of(client, one)
    first = send(client, one, fields, do="record")
    second = send(client, one, fields, do="record")
    assert (first.status_code, first["Location"]) == (303, second["Location"])
    made = ContextEvent.objects.get(kind="correction_retract")
    assert first["Location"] == f"/ledger/{made.id}/"
    assert (made.actor_label, made.reason) == ("user-curator-red", WHY)
    assert heads_of([one])[one].retracted


def test_a_form_that_was_sent_and_then_changed_is_another_correction_with_a_key_of_its_own() -> None:
    client, one = signed_in(), event("postponed")
    fields = {**form_of(client, one), "kind": "annotate"}
    assert send(client, one, fields, do="record").status_code == 303
    answer = send(client, one, {**fields, "reason": "another remark altogether"}, do="record")
    assert answer.status_code == 422
    key = re.search(r'name="key" value="(\w+)"', answer.content.decode())
    assert key is not None
    assert key[1] != fields["key"]
    again = send(client, one, {**fields, "reason": "another remark altogether", "key": key[1]}, do="record")
    assert again.status_code == 303
    assert ContextEvent.objects.filter(kind="correction_annotate").count() == 2


def test_a_form_without_its_key_says_so() -> None:
    client, one = signed_in(), event("postponed")
    answer = send(client, one, {**form_of(client, one), "key": ""}, do="record")
    assert answer.status_code == 422
    assert "open it anew" in answer.content.decode()


def test_a_second_event_undoes_it_and_both_stay_on_record() -> None:
    client, one = signed_in(), event("postponed")
    retraction = send(client, one, form_of(client, one), do="record")["Location"].split("/")[2]
    fields = {**form_of(client, retraction), "kind": "restore"}
    assert send(client, retraction, fields, do="record").status_code == 303
    assert heads_of([one])[one].id == one
    shown = client.get(f"/ledger/{one}/").content.decode()
    assert retraction in shown
    assert "That was undone by" in shown


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"reason": ""}, "Reason"),
        ({"reason": "too short"}, "10"),
        ({"kind": "delete"}, "What kind of correction"),
        ({"kind": "link"}, "Successor"),
        ({"kind": "link", "successor": "evt_unknown"}, "Successor"),
    ],
)
@pytest.mark.parametrize("do", ["preview", "record"])
def test_what_is_refused_names_the_field_and_writes_nothing(
    fields: dict[str, str], told: str, do: str
) -> None:
    client, one = signed_in(), event("postponed")
    sent = {**form_of(client, one), **fields}
    before = counted()
    answer = send(client, one, sent, do=do)
    assert counted() == before
    shown = answer.content.decode()
    refused = answer.status_code == 422 or "It would be refused" in shown
    assert refused
    assert told in shown or told.lower() in shown
    assert "Record the correction</button>" not in shown


def test_a_second_successor_is_warned_of_before_and_refused_after() -> None:
    client, one = signed_in(), event("postponed")
    two = event("outline first", supersedes=one)
    fields = {**form_of(client, one), "kind": "supersede", "text": "prose first"}
    shown = send(client, one, fields, do="preview").content.decode()
    assert "It would be refused" in shown
    assert two in shown
    answer = send(client, one, fields, do="record")
    assert answer.status_code == 422
    assert two in answer.content.decode()


def test_only_a_curator_of_its_workspace_may_correct_and_strangers_see_nothing() -> None:
    one = event("postponed")
    path = f"/ledger/{one}/corrections/new/"
    viewer, stranger = signed_in("viewer"), signed_in("curator", "blue")
    assert viewer.get(path).status_code == 403
    assert viewer.post(path, {}).status_code == 403
    assert stranger.get(path).status_code == 404
    assert "Record a correction" not in viewer.get(f"/ledger/{one}/").content.decode()
    assert path in signed_in().get(f"/ledger/{one}/").content.decode()


def test_an_event_of_a_memory_cannot_be_corrected_here() -> None:
    client = signed_in()
    assert client.get("/ledger/evt_nothing/corrections/new/").status_code == 404


def test_a_form_of_another_site_is_refused() -> None:
    one = event("postponed")
    user = User.objects.create_superuser("root", password="long enough for it")
    client = Client(enforce_csrf_checks=True)
    client.force_login(user)
    sent = {"kind": "retract", "reason": WHY, "key": "k", "do": "record"}
    assert client.post(f"/ledger/{one}/corrections/new/", sent).status_code == 403
    assert not Supersession.objects.exists()
