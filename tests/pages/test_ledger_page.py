"""The list of the ledger: its facets and their counts, its search, and how each event of context stands."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from django.test import Client

from ledger import queries
from ledger.domain.actors import Actor
from ledger.domain.context import NewContext
from ledger.domain.instants import UnixMs
from ledger.models import ContextEvent, OutboxEntry
from ledger.services import add_context, correct, erase_event
from vault.models import Memory

ADA = Actor("user", "1", "ada")
AGENT = Actor("key", "key_1", "planner")
WHY = "it was said wrongly"
AT: UnixMs = 1_764_547_200_000
pytestmark = pytest.mark.django_db


def said(
    text: str,
    *,
    workspace: str = "red",
    by: Actor = AGENT,
    supersedes: str | None = None,
    reason: str = "",
    item_id: str | None = None,
) -> str:
    new = NewContext(text, workspace=workspace, supersedes=supersedes, reason=reason, item_id=item_id)
    return add_context(new, key=f"{workspace} {text[:99]}", actor=by, at=AT).event_id


def bring(event_id: str, state: str = "delivered") -> None:
    OutboxEntry.objects.filter(event__id=event_id).update(state=state)


@pytest.fixture
def operator(visitor: Callable[..., Client]) -> Client:
    return visitor(superuser=True)


@pytest.fixture
def story() -> dict[str, str]:
    """Seven words of context and corrections in red, one of each standing, and one in blue."""
    ids = {"old": said("the crane is out of order"), "kept": said("the crane is green"), "wrong": said("no")}
    ids["new"] = said("the crane works again", supersedes=ids["old"], by=ADA)
    ids["retraction"] = correct(ids["wrong"], kind="retract", reason=WHY, actor=ADA, at=AT).id
    mistaken = correct(ids["kept"], kind="supersede", text="it is blue", reason=WHY, actor=ADA, at=AT)
    ids["undone"] = mistaken.id
    ids["restore"] = correct(mistaken.id, kind="restore", reason=WHY, actor=ADA, at=AT).id
    ids["foreign"] = said("the crane of somebody else", workspace="blue")
    for name in ("old", "kept", "new", "retraction"):
        bring(ids[name])
    bring(ids["wrong"], "failed")
    return ids


def page(client: Client, query: str = "") -> str:
    answer = client.get(f"/ledger/{query}")
    assert answer.status_code == 200, query
    return answer.content.decode()


def listed(client: Client, query: str = "") -> list[str]:
    """The ids of the events in the table, in order."""
    return re.findall(r'<td class="wide"><a href="/ledger/(evt_\w+)/">', page(client, query))


def facet(client: Client, title: str, query: str = "") -> dict[str, int]:
    """The values of a facet with their counts."""
    found = re.search(rf"<h2>{title}</h2>(.*?)</nav>", page(client, query), re.DOTALL)
    options = re.findall(r'<span>([^<]+)</span><span class="num">([\d,]+)</span>', found[1] if found else "")
    return {words: int(number.replace(",", "")) for words, number in options}


def named(story: dict[str, str], *names: str) -> list[str]:
    """The ids, newest first, as the list has them."""
    newest_first = ContextEvent.objects.newest_first()
    return list(newest_first.filter(id__in=[story[name] for name in names]).values_list("id", flat=True))


# ------------------------------------------------------------------------------------------------------- facets


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("?standing=current", ["new", "kept"]),
        ("?standing=superseded", ["old"]),
        ("?standing=retracted", ["wrong"]),
        ("?standing=undone", ["undone"]),
        ("?standing=corrected", ["wrong", "kept"]),
        ("?delivery=pending", ["undone", "restore"]),
        ("?delivery=failed", ["wrong"]),
        ("?delivery=delivering", []),
        ("?delivery=delivered", ["old", "kept", "new", "retraction"]),
        ("?source=user", ["new", "retraction", "undone", "restore"]),
        ("?kind=context_added&source=user", ["new"]),
        ("?standing=corrected&delivery=delivered", ["kept"]),
        ("?standing=current&source=key&delivery=delivered&q=crane", ["kept"]),
        ("?standing=superseded&delivery=failed", []),
    ],
)
def test_a_choice_in_each_facet_shows_the_events_that_are_all_of_that(
    story: dict[str, str], operator: Client, query: str, names: list[str]
) -> None:
    assert listed(operator, f"{query}&workspace=red") == named(story, *names)


def test_every_count_is_the_number_of_events_that_its_link_leads_to(
    story: dict[str, str], operator: Client
) -> None:
    tried = 0
    for query in ("", "?q=crane", "?standing=current", "?source=user&delivery=pending", "?workspace=red"):
        for address, number in re.findall(
            r'<a href="/ledger/([^"]*)" hx-get.*?<span class="num">(\d+)</span>', page(operator, query)
        ):
            assert len(listed(operator, address.replace("&amp;", "&"))) == int(number), (query, address)
            tried += 1
    assert tried > 50


def test_the_counts_of_a_facet_honour_the_other_facets_and_not_its_own_choice(
    story: dict[str, str], operator: Client
) -> None:
    by_people = facet(operator, "Standing", "?source=user&workspace=red")
    assert by_people == {"Everything": 4, "Current": 1, "Undone": 1}
    assert facet(operator, "Standing", "?source=user&workspace=red&standing=undone") == by_people
    assert facet(operator, "Source", "?workspace=red&standing=undone") == {"Everything": 1, "People": 1}
    assert facet(operator, "Delivery", "?workspace=red") == {
        "Everything": 7,
        "Pending": 2,
        "Delivered": 4,
        "Failed": 1,
    }


def test_a_change_of_a_memory_has_no_standing_and_no_delivery(
    remember: Callable[..., Memory], operator: Client
) -> None:
    remember("a pump", workspace="red")
    assert facet(operator, "What happened") == {"Everything": 1, "Memory stored": 1}
    assert facet(operator, "Standing") == {}
    assert facet(operator, "Delivery") == {}
    assert "Everything" in facet(operator, "Standing", "?standing=current"), "what was chosen can be undone"


def test_a_correction_that_only_names_a_successor_has_no_standing(operator: Client) -> None:
    one, two = said("one"), said("two")
    link = correct(one, kind="supersede", successor=two, reason=WHY, actor=ADA, at=AT).id
    assert listed(operator, "?standing=current") == [two]
    assert listed(operator, "?standing=superseded") == [one]
    assert listed(operator)[0] == link
    assert facet(operator, "Standing") == {
        "Everything": 3,
        "Current": 1,
        "Superseded": 1,
        "Has a correction": 1,
    }


def test_a_context_that_was_restored_is_current_again(operator: Client) -> None:
    one = said("one")
    retraction = correct(one, kind="retract", reason=WHY, actor=ADA, at=AT)
    assert listed(operator, "?standing=retracted") == [one]
    undoing = correct(retraction.id, kind="restore", reason=WHY, actor=ADA, at=AT)
    assert listed(operator, "?standing=current") == [one]
    correct(undoing.id, kind="restore", reason=WHY, actor=ADA, at=AT)
    assert listed(operator, "?standing=retracted") == [one]


def test_paging_keeps_the_filters(operator: Client) -> None:
    for n in range(60):
        said(f"crane {n}")
        said(f"pump {n}")
    query = "?q=crane&standing=current&workspace=red"
    shown = page(operator, query)
    older = re.search(r'href="(\?[^"]+cursor=[^"]+)">Older', shown)
    assert older
    assert "60 events match these filters." in shown
    address = older[1].replace("&amp;", "&")
    assert address.startswith("?q=crane&standing=current&workspace=red&cursor=")
    assert len(listed(operator, address)) == 10


def test_the_form_takes_the_chosen_facets_along(story: dict[str, str], operator: Client) -> None:
    shown = page(operator, "?standing=current&source=user&q=crane&workspace=red")
    assert '<input type="hidden" name="standing" value="current" form="ledger-filter">' in shown
    assert '<input type="hidden" name="source" value="user" form="ledger-filter">' in shown
    assert 'name="q" value="crane"' in shown
    assert '<option value="red" selected>' in shown
    assert 'href="/ledger/?q=crane&amp;workspace=red&amp;standing=current"' in shown, "Everything of Source"


def test_no_event_that_matches_is_said_and_the_filters_can_be_cleared(
    story: dict[str, str], operator: Client
) -> None:
    shown = page(operator, "?standing=superseded&delivery=failed")
    assert "No event matches these filters" in shown
    assert '<a class="btn" href="/ledger/">Clear the filters</a>' in shown


# ------------------------------------------------------------------------------------------------------- search


def test_a_search_looks_into_text_and_reason_in_either_case(operator: Client) -> None:
    told, reasoned, other = said("The Crane waits"), said("it waits", reason="no crane"), said("a pump")
    assert listed(operator, "?q=cRANE") == [reasoned, told]
    assert other not in listed(operator, "?q=crane")


@pytest.mark.parametrize("words", ["100%", "a_b", "back\\slash", "%", "_", "it's", '"quoted"'])
def test_what_is_a_wildcard_elsewhere_is_a_character_here(operator: Client, words: str) -> None:
    plain, marked = said("100 a b backslash its quoted"), said(f"here {words} stands")
    assert listed(operator, f"?q={words.replace('%', '%25')}") == [marked]
    assert plain not in listed(operator, f"?q={words.replace('%', '%25')}")


def test_an_id_finds_what_it_names_and_what_is_about_that(
    story: dict[str, str], operator: Client, remember: Callable[..., Memory]
) -> None:
    assert listed(operator, f"?q={story['old']}") == named(story, "old", "new")
    assert listed(operator, f"?q={story['wrong']}") == named(story, "wrong", "retraction")
    memory = remember("a pump")
    assert len(listed(operator, f"?q={memory.id}")) == 1
    assert listed(operator, f"?q={story['old'][:-1]}") == [], "the whole of it"


def test_an_item_finds_what_was_said_about_it(operator: Client) -> None:
    about = said("it is late", item_id="itm_report")
    said("it is late too", item_id="itm_report_2")
    assert listed(operator, "?q=itm_report") == [about]


def test_a_text_that_was_erased_is_not_found(operator: Client) -> None:
    secret = said("the code is swordfish", reason="asked for")
    assert listed(operator, "?q=swordfish") == [secret]
    erase_event(secret, actor=ADA, reason="a secret", at=AT)
    shown = page(operator, "?q=swordfish")
    assert "No event matches these filters" in shown
    assert listed(operator, "?q=asked+for") == [secret], "the reason stays, as the chain covers it"
    assert "(erased)" in page(operator)


def test_a_search_ends_at_so_many_events_and_says_so(
    operator: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queries, "SEARCHED", 2)
    oldest, *_, newest = said("crane one"), said("crane two"), said("crane three")
    assert oldest not in listed(operator, "?q=crane")
    assert listed(operator, "?q=crane")[0] == newest
    assert facet(operator, "Standing", "?q=crane") == {"Everything": 2, "Current": 2}
    assert "Only the newest 2 events were searched." in page(operator, "?q=crane")
    assert oldest in listed(operator, f"?q={oldest}")
    said("crane four", workspace="blue")
    assert "were searched" not in page(operator, "?q=crane&workspace=blue")
    assert "were searched" not in page(operator)


def test_too_long_a_search_is_refused_beside_its_field(operator: Client) -> None:
    said("a pump")
    shown = page(operator, f"?q={'x' * 201}")
    assert "at most 200 characters" in shown
    assert "a pump" not in shown


# ------------------------------------------------------------------------------------------------- who sees what


def test_a_bound_reader_finds_and_counts_only_what_is_theirs(
    story: dict[str, str], visitor: Callable[..., Client]
) -> None:
    red, blue = visitor("red"), visitor("blue")
    for query in ("?q=somebody+else", f"?q={story['foreign']}", "?workspace=blue"):
        shown = page(red, query)
        assert "No event matches these filters" in shown
        assert "of somebody else</" not in shown
        assert listed(blue, query) == [story["foreign"]]
    assert story["foreign"] not in listed(red)
    for title in ("What happened", "Standing", "Delivery", "Source"):
        assert facet(red, title)["Everything"] == 7
        assert facet(blue, title)["Everything"] == 1
    assert facet(blue, "Standing") == {"Everything": 1, "Current": 1}
    assert 'value="blue"' not in page(red)


def test_a_workspace_that_may_not_be_read_is_answered_like_one_that_there_is_not(
    story: dict[str, str], visitor: Callable[..., Client]
) -> None:
    client = visitor("red")
    pages = [page(client, f"?workspace={name}").replace(name, "NAME") for name in ("blue", "beige")]
    real, made_up = [re.sub(r'name="csrfmiddlewaretoken" value="\w+"', "", text) for text in pages]
    assert real == made_up


def test_every_workspace_of_an_event_can_be_chosen_though_no_memory_is_in_it(
    story: dict[str, str], operator: Client
) -> None:
    assert listed(operator, "?workspace=blue") == [story["foreign"]]
    everywhere = said("everybody may know", workspace="")
    assert listed(operator, "?workspace=-") == [everywhere]


# -------------------------------------------------------------------------------------------------------- badges


def row_of(client: Client, event_id: str) -> str:
    found = re.search(rf'<td class="wide"><a href="/ledger/{event_id}/">.*?</tr>', page(client), re.DOTALL)
    assert found
    return found[0]


def test_a_row_says_how_its_event_stands_and_by_what(story: dict[str, str], operator: Client) -> None:
    old = row_of(operator, story["old"])
    assert f'Superseded by <a href="/ledger/{story["new"]}/">' in old
    assert "Has a correction" not in old
    wrong = row_of(operator, story["wrong"])
    assert f'Retracted by <a href="/ledger/{story["retraction"]}/">' in wrong
    assert "Delivery failed" in wrong
    assert f'Undone by <a href="/ledger/{story["restore"]}/">' in row_of(operator, story["undone"])
    assert "Has a correction" in row_of(operator, story["kept"])
    assert "badge" not in row_of(operator, story["new"])


def test_a_correction_leads_to_the_event_that_it_is_about(story: dict[str, str], operator: Client) -> None:
    about = f'<a href="/ledger/{story["kept"]}/">the crane is green</a>'
    assert about in row_of(operator, story["undone"])
    assert about in page(operator, f"{story['undone']}/")
    assert "/memories/evt_" not in page(operator)


def test_the_page_stays_small_where_every_row_has_a_badge(operator: Client) -> None:
    last = said("0 " + "word " * 100)
    for n in range(1, 60):
        last = said(f"{n} " + "word " * 100, supersedes=last)
        correct(last, kind="annotate", reason=WHY, actor=ADA, at=AT)
        bring(last, "failed")
    query = "?standing=superseded&source=key&kind=context_added&delivery=failed&q=word&workspace=red"
    assert len(listed(operator, query)) == 50
    assert len(page(operator, query)) < 60_000
