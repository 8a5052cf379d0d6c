"""Pages stay of a readable size, and a filter that means nothing never shows more than was asked for."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.contrib.auth import get_user_model
from django.test import Client

from vault.models import Memory, MemoryLink

pytestmark = pytest.mark.django_db


@pytest.fixture
def operator(client: Client) -> Client:
    client.force_login(get_user_model().objects.create_superuser("operator"))
    return client


def test_a_memory_with_many_links_shows_the_newest_and_says_how_many(
    operator: Client, remember: Callable[..., Memory], link: Callable[..., MemoryLink]
) -> None:
    hub = remember("the hub")
    for number in range(40):
        link(hub, remember(f"spoke {number:02d}"), "RELATES_TO")

    page = operator.get(f"/memories/{hub.id}/").content.decode()

    assert "the newest 30 of 40" in page
    assert "the newest 30 of 41" in page
    assert "spoke 39" in page
    assert "spoke 00" not in page


@pytest.mark.parametrize(
    "path", ["/memories/?workspace=nope", "/recalls/?grade=zzz", "/ledger/?workspace=nope"]
)
def test_a_filter_that_means_nothing_shows_no_rows(
    operator: Client, remember: Callable[..., Memory], path: str
) -> None:
    remember("something that is there")

    page = operator.get(path).content.decode()

    assert "Select a valid choice" in page
    assert "something that is there" not in page
    assert "matches these filters" in page


@pytest.mark.parametrize("facet", ["kind", "standing", "delivery", "source"])
def test_a_value_that_a_facet_of_the_ledger_does_not_have_is_refused(operator: Client, facet: str) -> None:
    answer = operator.get(f"/ledger/?{facet}=zzz")
    assert answer.status_code == 400
    assert f"{facet.capitalize()} must be one of " in answer.content.decode()


def test_a_long_text_is_folded_away_and_still_there(
    operator: Client, remember: Callable[..., Memory]
) -> None:
    long = remember("word " * 1_000)

    page = operator.get(f"/memories/{long.id}/").content.decode()

    assert "The whole text, 5000 characters" in page
