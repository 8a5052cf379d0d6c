"""The outbox page, and what an event's page tells of its chain, its delivery and its recalls."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from ledger.clock import now_ms
from ledger.domain.actors import Actor
from ledger.domain.refusals import Conflict
from ledger.models import ContextEvent, OutboxEntry, OutboxPause
from ledger.services import NewContext, add_context, correct, erase_event, retry_delivery
from recall.models import WorkspaceGrant
from recall.services import create_api_key

ADA = Actor("user", "1", "ada")
NOW = 1_764_547_200_000
WHY = "it was said wrongly"
pytestmark = pytest.mark.django_db


def event(text: str, *, supersedes: str | None = None, workspace: str = "red") -> str:
    new = NewContext(
        text=text, workspace=workspace, item_id="outline", occurrence=None, reason="", supersedes=supersedes,
        occurred_at=NOW, tags=(),
    )  # fmt: skip
    return add_context(new, key=text, actor=ADA, at=NOW).event_id


@pytest.fixture
def signed_in() -> Callable[..., Client]:
    def made(*, role: str | None = None, workspace: str = "red") -> Client:
        user = User.objects.create_user(
            f"user-{role}", password="long enough for it", is_superuser=role is None
        )
        if role is not None:
            WorkspaceGrant.objects.create(user=user, workspace=workspace, role=role)
        client = Client()
        client.force_login(user)
        return client

    return made


def page(client: Client, path: str, status: int = 200) -> str:
    answer = client.get(path)
    assert answer.status_code == status
    return answer.content.decode()


def refused(event_id: str) -> OutboxEntry:
    entry = OutboxEntry.objects.get(event__id=event_id)
    entry.state, entry.attempts, entry.error_code, entry.error = "failed", 3, "bank_refused", "no such thing"
    entry.save()
    return entry


def test_the_page_says_first_how_the_queue_stands(signed_in: Callable[..., Client]) -> None:
    client = signed_in()
    assert "Everything that was recorded has reached the memory bank." in page(client, "/outbox/")
    event("one")
    refused(event("two"))
    shown = page(client, "/outbox/")
    assert "1 event waits to be delivered; the oldest has waited for" in shown
    assert "1 event was refused by the memory bank." in shown
    assert "bank_refused" in shown
    assert "no such thing" in shown


def test_what_was_erased_before_delivery_is_not_called_refused(signed_in: Callable[..., Client]) -> None:
    client, gone = signed_in(), event("one")
    erase_event(gone, actor=ADA, reason="asked for by its subject", at=NOW)
    OutboxEntry.objects.filter(kind="erasure").update(state="delivered")
    shown = page(client, "/outbox/")
    assert "1 event was erased before delivery. Everything else that was recorded has reached" in shown
    assert "refused" not in shown
    told = page(client, f"/ledger/{gone}/")
    assert "It was erased before it was delivered" in told
    assert "What the memory bank had of it was erased there, too." in told
    assert "1 event was erased before delivery" in page(client, "/")
    assert "See what was refused" not in page(client, "/")
    entry = OutboxEntry.objects.get(kind="context")
    with pytest.raises(Conflict, match="nothing is left to deliver"):
        retry_delivery(entry.id, actor=ADA, at=NOW)


def test_a_state_narrows_the_list_and_another_word_is_refused(signed_in: Callable[..., Client]) -> None:
    client, waiting, failed = signed_in(), event("one"), event("two")
    refused(failed)
    shown = page(client, "/outbox/?state=failed")
    assert failed in shown
    assert waiting not in shown
    assert "pending, delivering, delivered, failed" in page(client, "/outbox/?state=lost", 400)
    assert "must be the number of an entry" in page(client, "/outbox/?before=x", 400)


def test_a_retry_makes_it_due_and_is_recorded(signed_in: Callable[..., Client]) -> None:
    entry = refused(event("one"))
    client = signed_in(role="curator")
    assert f"/outbox/{entry.id}/retry/" in page(client, "/outbox/")
    answer = client.post(f"/outbox/{entry.id}/retry/")
    assert (answer.status_code, answer["Location"]) == (302, "/outbox/")
    entry.refresh_from_db()
    assert entry.state == "pending"
    assert ContextEvent.objects.get(kind="delivery_retried").actor_label == "user-curator"


def test_only_a_curator_of_its_workspace_may_retry(signed_in: Callable[..., Client]) -> None:
    entry = refused(event("one"))
    viewer = signed_in(role="viewer")
    assert "/retry/" not in page(viewer, "/outbox/")
    assert viewer.post(f"/outbox/{entry.id}/retry/").status_code == 403
    stranger = signed_in(role="curator", workspace="blue")
    assert stranger.post(f"/outbox/{entry.id}/retry/").status_code == 404
    assert stranger.post("/outbox/999/retry/").status_code == 404
    assert stranger.post("/outbox/resume/").status_code == 403
    entry.refresh_from_db()
    assert entry.state == "failed"


def test_another_workspaces_deliveries_are_neither_shown_nor_counted(
    signed_in: Callable[..., Client],
) -> None:
    hidden = event("one", workspace="blue")
    shown = page(signed_in(role="viewer"), "/outbox/")
    assert hidden not in shown
    assert "Everything that was recorded" in shown


def test_a_pause_is_told_with_its_cause_and_lifted_by_an_administrator(
    signed_in: Callable[..., Client],
) -> None:
    OutboxPause.objects.create(kind="context", reason="the bank refused the key", since=NOW)
    client = signed_in()
    shown = page(client, "/outbox/")
    assert "Delivery is paused" in shown
    assert "the bank refused the key" in shown
    assert client.post("/outbox/resume/").status_code == 302
    assert not OutboxPause.objects.exists()
    assert ContextEvent.objects.filter(kind="delivery_resumed").count() == 1


def test_the_list_is_paged_and_asks_the_same_number_of_queries(signed_in: Callable[..., Client]) -> None:
    client = signed_in()
    event("first")
    with CaptureQueriesContext(connection) as few:
        page(client, "/outbox/")
    for n in range(60):
        event(f"more {n}")
    with CaptureQueriesContext(connection) as many:
        shown = page(client, "/outbox/")
    assert len(few) == len(many)
    assert "Older" in shown
    last = OutboxEntry.objects.order_by("-id")[49]
    assert f"before={last.id}" in shown
    assert "Older" not in page(client, f"/outbox/?before={last.id}")


# ------------------------------------------------------------------------------------------ the event's page


def test_an_events_page_says_what_took_its_place_and_draws_the_chain(
    signed_in: Callable[..., Client],
) -> None:
    client = signed_in()
    one = event("postponed")
    assert "This is the current word about item outline" in page(client, f"/ledger/{one}/")
    two = event("outline first", supersedes=one)
    three = event("outline done", supersedes=two)
    shown = page(client, f"/ledger/{one}/")
    assert f"This was superseded by {two} on " in shown
    assert f"; the current word is {three}." in shown
    assert 'class="viz chain"' in shown
    for id_ in (one, two, three):
        assert f'href="/ledger/{id_}/"' in shown


def test_a_retraction_and_its_undoing_are_told_on_every_page_of_them(
    signed_in: Callable[..., Client],
) -> None:
    client, one = signed_in(), event("postponed")
    retraction = correct(one, kind="retract", reason=WHY, actor=ADA, at=NOW)
    assert f"This was retracted by {retraction.id} on " in page(client, f"/ledger/{one}/")
    assert f"This retracts {one}" in page(client, f"/ledger/{retraction.id}/")
    undoing = correct(retraction.id, kind="restore", reason=WHY, actor=ADA, at=NOW)
    assert "This is the current word" in page(client, f"/ledger/{one}/")
    assert f"This correction was undone by {undoing.id} on " in page(client, f"/ledger/{retraction.id}/")
    assert "This is a remark on " in page(client, f"/ledger/{undoing.id}/")


def test_an_events_page_tells_its_delivery_and_the_recalls_that_served_it(
    signed_in: Callable[..., Client],
) -> None:
    one = event("postponed until spring")
    refused(one)
    client = signed_in()
    assert "The memory bank refused it (bank_refused): no such thing" in page(client, f"/ledger/{one}/")
    _, secret = create_api_key("agent", scopes=["read", "write"], at=now_ms())
    agent = {"headers": {"Authorization": f"Bearer {secret}"}, "content_type": "application/json"}
    memory = {"text": "postponed until spring", "workspace": "red", "source_event_id": one}
    assert client.post("/v1/memories", memory, **agent).status_code == 201
    asked = {"query": "postponed spring", "workspace": "red"}
    answer = client.post("/v1/context/search", asked, **agent).json()
    assert len(answer["hits"]) == 1
    shown = page(client, f"/ledger/{one}/")
    assert "1 recall you may read served its text" in shown
    assert f'href="/recalls/{answer["recall_id"]}/"' in shown


def test_an_events_page_asks_a_fixed_number_of_queries(signed_in: Callable[..., Client]) -> None:
    client, first = signed_in(), event("0")
    second = event("1", supersedes=first)
    with CaptureQueriesContext(connection) as few:
        page(client, f"/ledger/{first}/")
    last = second
    for n in range(2, 12):
        last = event(str(n), supersedes=last)
        correct(first, kind="annotate", reason=f"a remark, number {n}", actor=ADA, at=NOW)
    with CaptureQueriesContext(connection) as many:
        page(client, f"/ledger/{first}/")
    assert len(many) == len(few)


def test_the_overview_says_calmly_that_all_was_delivered_and_nothing_where_nothing_was_recorded(
    signed_in: Callable[..., Client],
) -> None:
    client = signed_in()
    assert "memory bank" not in page(client, "/")
    one = event("one")
    OutboxEntry.objects.filter(event__id=one).update(state="delivered")
    shown = page(client, "/")
    assert "Everything that was recorded has reached the memory bank." in shown
    assert "Delivery to the memory bank" not in shown


def test_the_overview_puts_first_what_waits_and_what_was_refused(signed_in: Callable[..., Client]) -> None:
    client = signed_in()
    event("one")
    shown = page(client, "/")
    assert "Delivery to the memory bank" in shown
    assert "1 event waits to be delivered; the oldest has waited for" in shown
    assert '<a href="/outbox/">Open the outbox</a>' in shown
    assert 'g-stale" aria-labelledby="outbox-heading"' not in shown
    refused(event("two"))
    shown = page(client, "/")
    assert "1 event was refused by the memory bank." in shown
    assert '<a href="/outbox/?state=failed">See what was refused</a>' in shown
    assert 'g-stale" aria-labelledby="outbox-heading"' in shown


def test_the_overview_says_that_delivery_is_paused(signed_in: Callable[..., Client]) -> None:
    OutboxPause.objects.create(kind="context", reason="the bank refused the key", since=NOW)
    event("one")
    assert "Delivery is paused. 1 event waits to be delivered" in page(signed_in(), "/")


def test_the_overview_of_a_bound_reader_leaves_out_the_outbox_of_others(
    signed_in: Callable[..., Client],
) -> None:
    refused(event("one", workspace="blue"))
    assert "memory bank" not in page(signed_in(role="viewer"), "/")
