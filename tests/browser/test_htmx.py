"""What htmx adds, and that nothing breaks where it meets Back, reload and an expired session."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from .conftest import Watched


@pytest.fixture
def live(watch: Callable[..., Watched]) -> Watched:
    return watch()


def bodies(page: Watched) -> list[tuple[str, str]]:
    """What each answer to htmx held, by path."""
    got: list[tuple[str, str]] = []

    def keep(response: Any) -> None:
        if response.request.headers.get("hx-request"):
            got.append((response.url.removeprefix(page.url), response.text()))

    page.page.on("response", keep)
    return got


def is_whole_and_styled(page: Any) -> bool:
    one_header = page.locator("header.top").count() == 1
    surface = page.locator("header.top").evaluate("e => getComputedStyle(e).backgroundColor")
    return bool(one_header and page.locator("main h1").count() == 1 and surface == "rgb(255, 255, 255)")


def test_a_filter_swaps_the_fragment_and_nothing_else(live: Watched) -> None:
    got = bodies(live)
    live.open("/recalls/")
    live.page.evaluate("document.querySelector('header.top').dataset.kept = 'yes'")
    select = live.page.get_by_label("Outcome")
    select.focus()
    with live.page.expect_response(lambda response: "outcome=empty" in response.url):
        select.select_option("empty")
    live.page.locator("tbody tr", has_text="Empty").first.wait_for()
    live.page.wait_for_url("**outcome=empty*")
    assert len(got) == 1
    assert "<html" not in got[0][1]
    assert got[0][1].count('id="results"') == 1
    assert live.page.locator("header.top[data-kept=yes]").count() == 1
    assert live.page.evaluate("document.activeElement.name") == "outcome"
    assert live.page.locator("#results").get_attribute("aria-busy") in (None, "false")


def test_back_brings_the_whole_page_again_and_reload_keeps_the_filter(live: Watched) -> None:
    live.open("/recalls/")
    rows = live.page.locator("tbody tr").count()
    live.page.get_by_label("Outcome").select_option("empty")
    live.page.wait_for_url("**outcome=empty*")
    live.page.locator("tbody tr", has_text="Empty").first.wait_for()
    live.page.reload()
    assert is_whole_and_styled(live.page)
    assert live.page.get_by_label("Outcome").input_value() == "empty"
    live.page.go_back()
    live.page.locator("tbody tr").nth(rows - 1).wait_for()
    assert live.page.url == f"{live.url}/recalls/"
    assert is_whole_and_styled(live.page)
    assert live.page.get_by_label("Outcome").input_value() == ""


def test_back_without_a_reload_asks_for_the_whole_page(live: Watched) -> None:
    """htmx 2 asks again with HX-Request set: answering with the fragment would leave a page without its styles."""
    live.open("/memories/")
    live.page.get_by_label("State").select_option("all")
    live.page.wait_for_url("**state=all*")
    live.page.go_back()
    live.page.wait_for_url(f"{live.url}/memories/")
    live.page.locator("header.top").wait_for()
    live.page.wait_for_load_state("networkidle")
    assert is_whole_and_styled(live.page)
    assert live.console == []
    live.page.get_by_label("State").select_option("all")  # and the form works on
    live.page.wait_for_url("**state=all*")


def test_a_search_narrows_while_one_types(live: Watched) -> None:
    live.open("/memories/")
    box = live.page.get_by_label("Text contains")
    box.press_sequentially("Longshore")
    live.page.wait_for_url("**q=Longshore*")
    live.page.locator("tbody tr", has_text="Longshore").first.wait_for()
    assert (
        live.page.locator("tbody tr").count() == live.page.locator("tbody tr", has_text="Longshore").count()
    )
    assert box.evaluate("e => e === document.activeElement")


def test_paging_and_filters_go_together(live: Watched) -> None:
    live.open("/memories/")
    live.page.get_by_label("State").select_option("all")
    live.page.wait_for_url("**state=all*")
    live.page.get_by_role("link", name="Older").click()
    live.page.wait_for_url("**cursor=*")  # waits until the page that follows is loaded, style sheet and all
    assert "state=all" in live.page.url
    assert is_whole_and_styled(live.page)


def test_a_facet_of_the_ledger_swaps_in_place(live: Watched) -> None:
    live.open("/ledger/")
    live.page.evaluate("document.querySelector('header.top').dataset.kept = 'yes'")
    live.page.get_by_label("Kinds of events").get_by_role("link", name="Memory erased").click()
    live.page.wait_for_url("**kind=memory_erased")
    live.page.locator(".facet a[aria-current]", has_text="Memory erased").wait_for()
    assert live.page.locator("header.top[data-kept=yes]").count() == 1


def test_the_search_of_the_ledger_keeps_the_facets_and_the_facets_keep_the_search(live: Watched) -> None:
    live.open("/ledger/")
    live.page.evaluate("document.querySelector('header.top').dataset.kept = 'yes'")
    live.page.get_by_label("Kinds of events").get_by_role("link", name="Memory stored").click()
    live.page.wait_for_url("**kind=memory_created")
    box = live.page.get_by_label("Text or reason contains")
    box.press_sequentially("outline")
    live.page.wait_for_url("**q=outline*")
    assert "kind=memory_created" in live.page.url
    assert box.evaluate("e => e === document.activeElement")
    live.page.get_by_text(" match these filters.").wait_for()
    live.page.locator("a[href*='q=outline'][href*='source=key']").click()
    live.page.wait_for_url("**source=key*")
    assert "q=outline" in live.page.url
    assert "kind=memory_created" in live.page.url
    live.page.locator(".facet a[aria-current]", has_text="Agents, by key").wait_for()
    assert box.input_value() == "outline"
    assert live.page.locator("header.top[data-kept=yes]").count() == 1
    live.page.get_by_label("Kinds of events").get_by_role("link", name="Everything").click()
    live.page.wait_for_url(lambda url: "kind=" not in url)
    live.page.get_by_label("Workspace").select_option("studio")
    live.page.wait_for_url("**workspace=studio*")
    assert "kind=" not in live.page.url
    assert "source=key" in live.page.url
    assert live.console == []


def test_the_breakdown_of_a_later_hit_is_fetched_once_when_opened(
    live: Watched, addresses: dict[str, str]
) -> None:
    live.open(addresses["recall"])
    assert live.page.locator("#hit-3 .waterfall").count() == 1
    assert live.page.locator("#hit-4 .waterfall").count() == 0
    summary = live.page.locator("#hit-4 summary")
    summary.click()
    live.page.locator("#hit-4 .waterfall").wait_for()
    summary.click()
    summary.click()
    live.page.wait_for_load_state("networkidle")
    assert len([path for path in live.requests if path.endswith("/hits/4/")]) == 1


def test_a_session_that_ended_leads_to_the_sign_in_and_back(live: Watched) -> None:
    live.open("/recalls/")
    live.page.context.clear_cookies(name="sessionid")
    live.page.get_by_label("Outcome").select_option("empty")
    live.page.get_by_role("heading", name="Sign in").wait_for()
    assert live.page.url.endswith("/sign-in/?next=%2Frecalls%2F")


def test_a_request_that_fails_is_said_and_the_page_stays(live: Watched) -> None:
    live.open("/recalls/")
    live.page.route("**/recalls/?*", lambda route: route.fulfill(status=500, body="no"))
    rows = live.page.locator("tbody tr").count()
    live.page.get_by_label("Outcome").select_option("empty")
    live.page.get_by_role("alert").wait_for()
    assert live.page.locator("tbody tr").count() == rows
