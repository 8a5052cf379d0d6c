"""The administration: grants and keys for a superuser, the ledger to look at, and nothing more for anybody else."""

from __future__ import annotations

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.test import Client

from ledger.domain.actors import Actor
from ledger.domain.instants import UnixMs
from ledger.models import ContextEvent, OutboxEntry
from ledger.services import NewContext, add_context
from recall.models import ApiKey
from recall.services import create_api_key

pytestmark = pytest.mark.django_db


@pytest.fixture
def key(now: UnixMs) -> ApiKey:
    return create_api_key("agent", scopes=["read"], at=now)[0]


def revoke(client: Client, key: ApiKey) -> None:
    client.post("/admin/recall/apikey/", {"action": "revoke", "_selected_action": [key.id]})
    key.refresh_from_db()


def test_a_superuser_revokes_a_key(client: Client, key: ApiKey) -> None:
    client.force_login(get_user_model().objects.create_superuser("root"))
    revoke(client, key)
    assert key.revoked_at is not None


def test_staff_who_may_only_look_cannot_revoke(client: Client, key: ApiKey) -> None:
    clerk = get_user_model().objects.create_user("clerk", is_staff=True)
    clerk.user_permissions.add(Permission.objects.get(codename="view_apikey"))
    client.force_login(clerk)
    revoke(client, key)
    assert key.revoked_at is None


@pytest.mark.parametrize("path", ["/admin/recall/apikey/add/", "/admin/ledger/contextevent/add/"])
def test_nothing_written_once_is_added_by_hand(client: Client, path: str) -> None:
    client.force_login(get_user_model().objects.create_superuser("root"))
    assert client.get(path).status_code == 403


LOOKED_AT = ["contextevent", "supersession", "operation", "outboxentry", "outboxpause", "tombstone"]


@pytest.mark.parametrize("name", LOOKED_AT)
def test_every_table_of_the_ledger_is_shown_and_none_is_changed(client: Client, name: str) -> None:
    client.force_login(get_user_model().objects.create_superuser("root"))
    assert client.get(f"/admin/ledger/{name}/").status_code == 200
    assert client.get(f"/admin/ledger/{name}/add/").status_code == 403


def test_an_event_leads_from_the_administration_to_where_it_is_corrected(client: Client) -> None:
    client.force_login(get_user_model().objects.create_superuser("root"))
    new = NewContext(
        text="postponed", workspace="red", item_id=None, occurrence=None, reason="", supersedes=None,
        occurred_at=1_764_547_200_000, tags=(),
    )  # fmt: skip
    made = add_context(new, key="k", actor=Actor("user", "1", "ada"), at=1_764_547_200_000)
    row = ContextEvent.objects.get(id=made.event_id)
    shown = client.get(f"/admin/ledger/contextevent/{row.pk}/change/").content.decode()
    assert f'href="/ledger/{made.event_id}/"' in shown
    for name, id_ in (("operation", made.operation_id), ("outboxentry", OutboxEntry.objects.get().id)):
        assert client.get(f"/admin/ledger/{name}/{id_}/change/").status_code == 200
        assert client.post(f"/admin/ledger/{name}/{id_}/delete/", {"post": "yes"}).status_code == 403
