"""Corrections in the administration: a form, a preview, one event under the name of whoever is signed in."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client

from ledger.models import ContextEvent, OutboxEntry, Supersession
from ledger.queries import heads_of
from recall.models import WorkspaceGrant

pytestmark = pytest.mark.django_db
LIST, PAGE = "/admin/ledger/correction/", "/admin/ledger/correction/add/"
WHY = "it was said of another outline"


def hidden(html: str, name: str) -> str:
    found = re.search(rf'name="{name}"[^>]* value="(\w+)"', html)
    assert found is not None, html
    return found[1]


def filled(client: Client, event_id: str, **fields: str) -> dict[str, str]:
    shown = client.get(PAGE, {"event": event_id})
    assert (shown.status_code, f'value="{event_id}"' in shown.content.decode()) == (200, True)
    return {
        "target": event_id,
        "kind": "retract",
        "text": "",
        "successor": "",
        "reason": WHY,
        "key": hidden(shown.content.decode(), "key"),
        **fields,
    }


def previewed(client: Client, fields: dict[str, str]) -> dict[str, str]:
    shown = client.post(PAGE, {**fields, "_preview": "Preview"})
    assert shown.status_code == 200, shown.content.decode()
    return {**fields, "seen": hidden(shown.content.decode(), "seen"), "_record": "Record the correction"}


def counted() -> tuple[int, int, int]:
    return ContextEvent.objects.count(), Supersession.objects.count(), OutboxEntry.objects.count()


def curator(*permissions: str, workspace: str = "red", role: str = "curator") -> Client:
    user = User.objects.create_user("clerk", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    WorkspaceGrant.objects.create(user=user, workspace=workspace, role=role)
    client = Client()
    client.force_login(user)
    return client


def test_a_correction_is_recorded_after_its_preview_was_seen(
    admin_client: Client, event_in: Callable[..., str]
) -> None:
    event_id = event_in("red", "postponed")
    before = counted()
    fields = filled(admin_client, event_id)
    shown = admin_client.post(PAGE, {**fields, "_preview": "Preview"}).content.decode()
    assert counted() == before
    for told in ("What it would do", "touches no recorded recall", "this correction", "This retracts"):
        assert told in shown
    done = admin_client.post(PAGE, previewed(admin_client, fields))
    assert (done.status_code, done["Location"]) == (302, LIST)
    made = ContextEvent.objects.get(kind="correction_retract")
    assert (made.actor_kind, made.actor_label, made.reason) == ("user", "admin", WHY)
    assert heads_of([event_id])[event_id].retracted
    again = admin_client.post(PAGE, {**fields, "seen": "0" * 64, "_record": "again"})
    assert (again.status_code, ContextEvent.objects.filter(kind="correction_retract").count()) == (302, 1)


def test_a_second_correction_undoes_it_and_the_list_shows_both(
    admin_client: Client, event_in: Callable[..., str]
) -> None:
    event_id = event_in("red", "postponed")
    admin_client.post(PAGE, previewed(admin_client, filled(admin_client, event_id)))
    first = ContextEvent.objects.get(kind="correction_retract")
    admin_client.post(PAGE, previewed(admin_client, filled(admin_client, first.id, kind="restore")))
    second = ContextEvent.objects.get(kind="correction_restore")
    assert heads_of([event_id])[event_id].id == event_id
    listed = admin_client.get(LIST).content.decode()
    assert f'class="field-undone">{second.id}<' in listed
    assert "Correction undone" in listed
    assert "Context recorded" not in listed


def test_what_nobody_has_seen_is_previewed_and_not_recorded(
    admin_client: Client, event_in: Callable[..., str]
) -> None:
    event_id = event_in("red", "postponed")
    before = counted()
    answered = admin_client.post(PAGE, {**filled(admin_client, event_id), "_record": "Record"})
    assert (answered.status_code, counted()) == (200, before)
    assert "What it would do" in answered.content.decode()


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        ({"target": ""}, "This field is required"),
        ({"target": "evt_x"}, "No context event evt_x"),
        ({"reason": ""}, "This field is required"),
        ({"reason": "short"}, "at least 10 characters"),
        ({"kind": "link"}, "needs the successor"),
        ({"kind": "link", "successor": "evt_x"}, "No context event evt_x"),
        ({"kind": "restore"}, "in force"),
        ({"kind": "delete"}, "Select a valid choice"),
        ({"key": ""}, "open it anew"),
    ],
)
@pytest.mark.parametrize("button", ["_preview", "_record"])
def test_a_refusal_is_told_beside_its_field_and_nothing_is_written(
    admin_client: Client, event_in: Callable[..., str], sent: dict[str, str], said: str, button: str
) -> None:
    fields = filled(admin_client, event_in())
    before = counted()
    answered = admin_client.post(PAGE, {**fields, **sent, button: "x"})
    assert (answered.status_code, counted()) == (422, before)
    assert said in answered.content.decode()


def test_the_actor_is_no_field(admin_client: Client, event_in: Callable[..., str]) -> None:
    fields = previewed(admin_client, filled(admin_client, event_in()))
    admin_client.post(PAGE, {**fields, "actor": "mallory", "actor_label": "mallory", "user": "mallory"})
    assert ContextEvent.objects.get(kind="correction_retract").actor_label == "admin"


def test_staff_need_the_permission_and_a_curators_grant(event_in: Callable[..., str]) -> None:
    event_id, foreign = event_in("red"), event_in("blue")
    client = curator("add_correction", "view_correction", "view_contextevent")
    row = ContextEvent.objects.get(id=event_id)
    shown = client.get(f"/admin/ledger/contextevent/{row.pk}/change/").content.decode()
    assert f'{PAGE}?event={event_id}"' in shown
    refused = client.post(PAGE, {**filled(client, event_id), "target": foreign, "_preview": "x"})
    assert (refused.status_code, f"No context event {foreign}" in refused.content.decode()) == (422, True)
    assert client.post(PAGE, previewed(client, filled(client, event_id))).status_code == 302
    assert ContextEvent.objects.get(kind="correction_retract").actor_label == "clerk"


def test_a_viewers_grant_does_not_suffice(event_in: Callable[..., str]) -> None:
    event_id = event_in("red")
    client = curator("add_correction", role="viewer")
    refused = client.post(PAGE, {**filled(client, event_id), "_preview": "x"})
    assert (refused.status_code, "Only a curator" in refused.content.decode()) == (422, True)


def test_without_the_permission_there_is_no_form_and_no_link(event_in: Callable[..., str]) -> None:
    event_id = event_in("red")
    client = curator("view_correction", "view_contextevent")
    sent: dict[str, Any] = {"target": event_id, "kind": "retract", "reason": WHY, "key": "k", "_record": "x"}
    assert (client.get(PAGE).status_code, client.post(PAGE, sent).status_code) == (403, 403)
    row = ContextEvent.objects.get(id=event_id)
    assert PAGE not in client.get(f"/admin/ledger/contextevent/{row.pk}/change/").content.decode()


def test_no_correction_is_changed_or_deleted(admin_client: Client, event_in: Callable[..., str]) -> None:
    admin_client.post(PAGE, previewed(admin_client, filled(admin_client, event_in())))
    row = ContextEvent.objects.get(kind="correction_retract")
    assert admin_client.get(f"{LIST}{row.pk}/change/").status_code == 200
    assert admin_client.post(f"{LIST}{row.pk}/change/", {"reason": "another"}).status_code == 403
    assert admin_client.post(f"{LIST}{row.pk}/delete/", {"post": "yes"}).status_code == 403
    row.refresh_from_db()
    assert row.reason == WHY


def test_who_may_only_add_is_led_to_the_new_event(event_in: Callable[..., str]) -> None:
    event_id = event_in("red")
    client = curator("add_correction")
    done = client.post(PAGE, previewed(client, filled(client, event_id)))
    made = ContextEvent.objects.get(kind="correction_retract")
    assert (done.status_code, done["Location"]) == (302, f"/ledger/{made.id}/")
    assert client.get(done["Location"]).status_code == 200


TABLES = ["contextevent", "supersession", "operation", "outboxentry", "tombstone", "correction"]


def test_the_administration_shows_the_rows_of_the_workspaces_that_were_granted(
    admin_client: Client, event_in: Callable[..., str]
) -> None:
    mine, foreign = event_in("red", "ours"), event_in("blue", "theirs")
    for event_id in (mine, foreign):
        admin_client.post(PAGE, previewed(admin_client, filled(admin_client, event_id)))
    client = curator(*(f"view_{name}" for name in TABLES))
    corrections = {row.subject_id: row for row in ContextEvent.objects.filter(kind="correction_retract")}
    listed = client.get(LIST).content.decode()
    assert (corrections[mine].id in listed, corrections[foreign].id in listed) == (True, False)
    for name in TABLES:
        assert foreign not in client.get(f"/admin/ledger/{name}/").content.decode()
    row = ContextEvent.objects.get(id=foreign)
    assert (
        client.get(f"/admin/ledger/contextevent/{row.pk}/change/").status_code == 302
    )  # as of what is not there
