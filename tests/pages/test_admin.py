"""The administration: grants and keys for a superuser, the ledger to look at, and nothing more for anybody else."""

from __future__ import annotations

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.test import Client

from ledger.domain.instants import UnixMs
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
