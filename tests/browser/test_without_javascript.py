"""With JavaScript off every page still does its work: links, forms, redirects."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from .conftest import WIDTHS, Site, Watched


@pytest.fixture
def plain(watch: Callable[..., Watched]) -> Watched:
    return watch(java_script_enabled=False)


def test_a_filter_narrows_the_list_of_recalls(plain: Watched) -> None:
    plain.open("/recalls/")
    plain.page.get_by_label("Outcome").select_option("empty")
    plain.page.get_by_role("button", name="Filter").click()
    plain.page.wait_for_load_state()  # `count` looks at what has been parsed by now
    assert "outcome=empty" in plain.page.url
    rows = plain.page.locator("tbody tr")
    assert rows.count() > 0
    assert rows.count() == rows.filter(has_text="Empty").count()


def test_a_list_is_paged_with_its_filters_kept(plain: Watched) -> None:
    plain.open("/memories/?state=all")
    first = plain.page.locator("tbody tr a").first.inner_text()
    plain.page.get_by_role("link", name="Older").click()
    assert "state=all" in plain.page.url
    assert plain.page.locator("tbody tr a").first.inner_text() != first
    plain.page.get_by_role("link", name="Newer").click()
    assert plain.page.locator("tbody tr a").first.inner_text() == first


def test_a_facet_of_the_ledger_is_a_link(plain: Watched) -> None:
    plain.open("/ledger/")
    facet = plain.page.locator(".facet").get_by_role("link", name=re.compile("^Memory verified"))
    number = int(facet.locator(".num").inner_text())
    facet.click()
    plain.page.wait_for_load_state()  # `count` looks at what has been parsed by now
    assert plain.page.locator("tbody tr").count() == min(number, 50)


def test_the_ledger_is_searched_within_a_facet(plain: Watched, context: dict[str, str]) -> None:
    plain.open("/ledger/")
    plain.page.locator(".facet").get_by_role("link", name=re.compile("^Superseded")).click()
    plain.page.get_by_label("Text or reason contains").fill("OUTLINE")
    plain.page.get_by_role("button", name="Filter").click()
    plain.page.wait_for_load_state()  # `count` looks at what has been parsed by now
    assert "standing=superseded" in plain.page.url
    assert plain.page.get_by_label("Text or reason contains").input_value() == "OUTLINE"
    rows = plain.page.locator("tbody tr")
    assert rows.count() > 0
    assert rows.count() == rows.filter(has_text="Superseded by evt_").count()
    plain.page.get_by_role("link", name="Clear the filters").click()
    assert plain.page.url.endswith("/ledger/")


def test_running_a_recall_is_a_post_that_redirects_to_its_record(plain: Watched) -> None:
    answers: list[Any] = []
    plain.page.on("response", lambda response: answers.append((response.request.method, response.status)))
    plain.open("/recalls/new/?query=availability+cache&workspace=ops")
    assert plain.page.get_by_label("Question").input_value() == "availability cache"
    plain.page.get_by_label("Workspace").select_option("ops")
    plain.page.get_by_role("button", name="Recall", exact=True).click()
    assert ("POST", 303) in answers
    assert re.search(r"/recalls/rcl_\w{26}/$", plain.page.url)
    assert plain.page.locator(".hit").count() > 0
    assert "operator" in plain.page.locator(".facts").first.inner_text()


def test_a_form_that_was_refused_says_why_beside_the_field(plain: Watched) -> None:
    plain.open("/recalls/new/")
    plain.page.get_by_text("More: state, instant").click()
    plain.page.get_by_label("As of (UTC)").fill("yesterday")
    plain.page.get_by_role("button", name="Recall", exact=True).click()
    field = plain.page.get_by_label("As of (UTC)")
    assert field.is_visible(), "what was refused is not folded away"
    assert field.input_value() == "yesterday"
    assert field.get_attribute("aria-invalid") == "true"
    described = field.get_attribute("aria-describedby")
    assert described
    assert plain.page.locator(".errorlist").count() >= 1
    above = plain.page.get_by_role("alert")
    assert (
        above.get_by_role("link", name="As of (UTC)").get_attribute("href") == f"#{field.get_attribute('id')}"
    )


def test_a_memory_can_be_looked_at_as_of_an_instant(
    plain: Watched, addresses: dict[str, str], site: Site
) -> None:
    plain.open(addresses["memory, superseded"])
    assert plain.page.locator(".verdicts").get_by_text("Superseded", exact=True).is_visible()
    created = site.api(f"/v1/memories/{site.memory('run-failover-2')}")["created_at"]
    plain.page.get_by_label("As of (UTC)").fill(created)
    plain.page.get_by_role("button", name="Look at that time").click()
    assert plain.page.locator(".verdicts").get_by_text("Current", exact=True).is_visible()
    plain.page.get_by_role("link", name="Now", exact=True).click()
    assert plain.page.locator(".verdicts").get_by_text("Superseded", exact=True).is_visible()


def test_the_breakdown_of_a_later_hit_is_a_page(plain: Watched, addresses: dict[str, str]) -> None:
    plain.open(addresses["recall"])
    plain.page.locator("#hit-7 summary").click()
    plain.page.get_by_role("link", name="Open the breakdown of hit 7").click()
    assert plain.page.locator(".waterfall").first.is_visible()


def test_all_that_was_left_out_is_a_page(plain: Watched, addresses: dict[str, str]) -> None:
    plain.open(addresses["recall"])
    few = plain.page.locator("#left-out tbody tr").count()
    plain.page.locator("#left-out summary").click()
    plain.page.get_by_role("link", name="Open all that was left out").click()
    plain.page.wait_for_load_state()  # `count` looks at what has been parsed by now
    assert plain.page.locator("tbody tr").count() > few
    assert plain.page.locator("tbody tr").first.locator(".sources li").count() > 0


def test_a_recall_by_words_alone_is_asked_with_the_form(plain: Watched) -> None:
    plain.open("/recalls/new/")
    plain.page.get_by_label("Question").fill("edgectl purge")
    plain.page.get_by_label("Look by").select_option("lexical")
    plain.page.get_by_role("button", name="Recall", exact=True).click()
    assert "lexical" in plain.page.locator(".facts").first.inner_text()
    assert plain.page.locator(".hit .sources").first.inner_text().startswith("Words")


def test_hits_are_found_by_grade_and_by_word(plain: Watched, addresses: dict[str, str]) -> None:
    plain.open(addresses["recall"])
    plain.page.get_by_label("Grade").select_option("context_invalid")
    plain.page.get_by_role("button", name="Filter").click()
    plain.page.wait_for_load_state()  # `count` looks at what has been parsed by now
    assert 0 < plain.page.locator(".hit").count() == plain.page.locator(".hit.g-context_invalid").count()


def test_a_phone_without_javascript_shows_everything_in_its_width(
    watch: Callable[..., Watched], addresses: dict[str, str]
) -> None:
    page = watch(java_script_enabled=False, viewport=WIDTHS["phone"])
    page.open(addresses["recall"])
    assert page.page.locator(".needs-js").first.is_hidden()
    assert page.page.locator("#left-out td").first.is_visible()


def test_a_correction_is_previewed_recorded_and_leads_to_its_event(
    plain: Watched, context: dict[str, str]
) -> None:
    plain.open(f"/ledger/{context['superseded']}/")
    plain.page.get_by_role("link", name="Record a correction").click()
    plain.page.get_by_label("What kind of correction").select_option("annotate")
    plain.page.get_by_label("Reason").fill("a remark that somebody made by hand")
    plain.page.get_by_role("button", name="Preview").click()
    assert "This is a note on" in plain.page.locator("#preview").inner_text()
    plain.page.get_by_role("button", name="Record the correction").click()
    plain.page.get_by_role("heading", name="Context annotated").wait_for()
    assert re.search(r"/ledger/evt_\w{26}/$", plain.page.url)
