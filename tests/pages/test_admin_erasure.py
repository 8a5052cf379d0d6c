"""Erasing a text in the administration: a superuser, a reason, and the dry run first."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client

from ledger.models import ContextEvent, Tombstone

pytestmark = pytest.mark.django_db
PAGE = "/admin/ledger/tombstone/erase/"


def seen_in(html: str) -> str:
    found = re.search(r'name="seen"[^>]* value="([0-9a-f]{64})"', html)
    assert found is not None, html
    return found[1]


def test_a_text_is_erased_after_its_dry_run_was_seen(
    admin_client: Client, event_in: Callable[..., str]
) -> None:
    event_id = event_in("red", "the <b>secret</b> of Tom")
    assert "Erase a text" in admin_client.get("/admin/ledger/tombstone/").content.decode()
    assert event_id in admin_client.get(PAGE, {"id": event_id}).content.decode()

    sent = {"id": event_id, "reason": "asked for by its subject"}
    shown = admin_client.post(PAGE, sent)
    html = shown.content.decode()
    assert (shown.status_code, "ledger: the event" in html, "secret" in html) == (200, True, False)
    assert not ContextEvent.objects.get(id=event_id).erased

    done = admin_client.post(PAGE, {**sent, "seen": seen_in(html)})
    assert (done.status_code, done["Location"]) == (302, "/admin/ledger/tombstone/")
    tombstone = Tombstone.objects.get(event__id=event_id)
    assert (tombstone.actor_kind, tombstone.actor_label) == ("user", "admin")
    assert tombstone.reason == "asked for by its subject"
    listed = admin_client.get("/admin/ledger/tombstone/").content.decode()
    assert event_id in listed
    assert "erase --compact" in listed
    assert "It was erased already" in admin_client.post(PAGE, sent).content.decode()


def test_what_changed_since_it_was_shown_is_shown_again(
    admin_client: Client, event_in: Callable[..., str]
) -> None:
    event_id = event_in("red", "the secret of Tom")
    sent = {"id": event_id, "reason": "asked for by its subject"}
    seen = seen_in(admin_client.post(PAGE, sent).content.decode())
    event_in("red", "quoted: the secret of Tom")
    again = admin_client.post(PAGE, {**sent, "seen": seen})
    assert "other events that quote it" in again.content.decode()
    assert not Tombstone.objects.exists()


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        ({"id": "{event}"}, "This field is required"),
        ({"id": "{event}", "reason": "  "}, "This field is required"),
        ({"id": "evt_x", "reason": "asked for"}, "no event evt_x"),
        ({"id": "<b>", "reason": "asked for"}, "nothing has the id &lt;b&gt;"),
    ],
)
def test_a_refusal_is_told_on_the_page(
    admin_client: Client, event_in: Callable[..., str], sent: dict[str, str], said: str
) -> None:
    event_id = event_in()
    answered = admin_client.post(PAGE, {name: value.format(event=event_id) for name, value in sent.items()})
    assert (answered.status_code, said in answered.content.decode()) == (200, True)
    assert not Tombstone.objects.exists()


def test_nobody_but_a_superuser_sees_the_page(client: Client, event_in: Callable[..., str]) -> None:
    event_id = event_in()
    clerk = User.objects.create_user("clerk", is_staff=True)
    clerk.user_permissions.set(Permission.objects.filter(codename__endswith="tombstone"))
    client.force_login(clerk)
    for answered in (client.get(PAGE), client.post(PAGE, {"id": event_id, "reason": "asked for"})):
        assert answered.status_code == 403
    assert "Erase a text" not in client.get("/admin/ledger/tombstone/").content.decode()
