"""Recording a correction in the browser: form, preview, one new event, and its undoing."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from ledger.clock import now_ms
from ledger.domain.actors import Actor
from ledger.models import ContextEvent, OutboxEntry, Supersession
from ledger.outbox import deliver_one
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


def send(client: Client, event_id: str, fields: dict[str, str], *, do: str, **headers: str) -> Any:
    return client.post(f"/ledger/{event_id}/corrections/new/", {**fields, "do": do}, headers=headers)


def seen_in(answer: Any) -> str:
    """What stands for the preview in the form that shows it."""
    seen = re.search(r'name="seen" value="([0-9a-f]{64})"', answer.content.decode())
    assert seen is not None, answer.content.decode()
    return seen[1]


def previewed(client: Client, event_id: str, fields: dict[str, str]) -> dict[str, str]:
    return {**fields, "seen": seen_in(send(client, event_id, fields, do="preview"))}


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
    assert "It touches 1 recorded recall that you may read" in shown
    assert "1 hit would be marked superseded" in shown
    assert f'href="/recalls/{recall_id}/"' in shown
    assert f"This retracts context event {one}" in shown
    assert "Record the correction" in shown


def test_a_recall_keeps_what_it_served_and_says_what_became_of_it_since() -> None:
    client, one = signed_in(), event("postponed until spring")
    while deliver_one(clock=now_ms, lease_ms=60_000, token="t") is not None:
        pass
    _, secret = create_api_key("agent", scopes=["read"], at=now_ms())
    agent: dict[str, Any] = {
        "headers": {"Authorization": f"Bearer {secret}"},
        "content_type": "application/json",
    }
    asked = {"query": "postponed spring", "workspace": "red"}
    answers = [client.post(path, asked, **agent).json() for path in ("/v1/recall", "/v1/context/search")]
    pages = [f"/recalls/{answer['recall_id']}/" for answer in answers]
    for page in pages:
        assert " then. " not in client.get(page).content.decode()
    time.sleep(0.002)  # a correction of the same millisecond is not "since"
    fields = previewed(client, one, form_of(client, one))
    retraction = send(client, one, fields, do="record")["Location"].split("/")[2]
    for page in pages:
        shown = client.get(page).content.decode()
        assert re.search(rf"Graded [a-z ]+ then\. Retracted .*{retraction}", shown)
    time.sleep(0.002)
    answer = client.post("/v1/context/search", asked, **agent).json()
    fields = previewed(client, retraction, {**form_of(client, retraction), "kind": "restore"})
    time.sleep(0.002)
    restored = send(client, retraction, fields, do="record")["Location"].split("/")[2]
    shown = client.get(f"/recalls/{answer['recall_id']}/").content.decode()
    assert re.search(rf"Graded context invalid then\. Current again, by a correction .*{restored}", shown)
    assert " then. " not in client.get(pages[0]).content.decode()


def test_what_was_previewed_is_recorded_once_however_often_it_is_sent() -> None:
    client, one = signed_in(), event("postponed")
    fields = previewed(client, one, form_of(client, one))
    first = send(client, one, fields, do="record")
    second = send(client, one, fields, do="record")
    assert (first.status_code, first["Location"]) == (303, second["Location"])
    made = ContextEvent.objects.get(kind="correction_retract")
    assert first["Location"] == f"/ledger/{made.id}/"
    assert (made.actor_label, made.reason) == ("user-curator-red", WHY)
    assert heads_of([one])[one].retracted


def test_a_form_that_was_sent_and_then_changed_is_another_correction_with_a_key_of_its_own() -> None:
    client, one = signed_in(), event("postponed")
    fields = previewed(client, one, {**form_of(client, one), "kind": "annotate"})
    assert send(client, one, fields, do="record").status_code == 303
    changed = {**fields, "reason": "another remark altogether"}
    answer = send(client, one, changed, do="record")
    assert answer.status_code == 422
    key = re.search(r'name="key" value="(\w+)"', answer.content.decode())
    assert key is not None
    assert key[1] != fields["key"]
    again = send(client, one, previewed(client, one, {**changed, "key": key[1]}), do="record")
    assert again.status_code == 303
    assert ContextEvent.objects.filter(kind="correction_annotate").count() == 2


def test_what_nobody_has_seen_is_previewed_and_not_recorded() -> None:
    client, one = signed_in(), event("postponed")
    before = counted()
    answer = send(client, one, form_of(client, one), do="record")
    assert (answer.status_code, counted()) == (200, before)
    assert "What it would do" in answer.content.decode()
    assert (
        send(client, one, {**form_of(client, one), "seen": seen_in(answer)}, do="record").status_code == 303
    )


def test_what_would_do_something_else_by_now_is_shown_again_and_not_recorded() -> None:
    client, one = signed_in(), event("postponed")
    fields = previewed(client, one, {**form_of(client, one), "kind": "annotate"})
    event("outline first", supersedes=one)
    before = counted()
    answer = send(client, one, fields, do="record")
    assert (answer.status_code, counted()) == (200, before)
    assert "Something has changed since you saw the preview" in answer.content.decode()
    assert send(client, one, {**fields, "seen": seen_in(answer)}, do="record").status_code == 303


def test_htmx_is_given_the_preview_and_the_form_and_not_the_page() -> None:
    client, one = signed_in(), event("postponed")
    answer = send(client, one, form_of(client, one), do="preview", hx_request="true")
    shown = answer.content.decode()
    assert (answer.status_code, "<html" in shown, 'id="preview"' in shown) == (200, False, True)
    refused = send(client, one, {**form_of(client, one), "reason": "short"}, do="preview", hx_request="true")
    assert (refused.status_code, "<html" in refused.content.decode()) == (422, False)


def test_a_form_without_its_key_says_so() -> None:
    client, one = signed_in(), event("postponed")
    answer = send(client, one, {**form_of(client, one), "key": ""}, do="record")
    assert answer.status_code == 422
    assert "open it anew" in answer.content.decode()


def test_a_second_event_undoes_it_and_both_stay_on_record() -> None:
    client, one = signed_in(), event("postponed")
    fields = previewed(client, one, form_of(client, one))
    retraction = send(client, one, fields, do="record")["Location"].split("/")[2]
    fields = previewed(client, retraction, {**form_of(client, retraction), "kind": "restore"})
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
    assert answer.status_code == 422
    assert "Nothing was recorded" in shown
    assert told in shown or told.lower() in shown
    assert "Record the correction</button>" not in shown


def test_a_second_successor_is_warned_of_before_and_refused_after() -> None:
    client, one = signed_in(), event("postponed")
    two = event("outline first", supersedes=one)
    fields = {**form_of(client, one), "kind": "supersede", "text": "prose first"}
    answer = send(client, one, fields, do="preview")
    assert answer.status_code == 422
    shown = answer.content.decode()
    assert "The chain as it is" in shown
    assert "already_superseded" in shown
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
