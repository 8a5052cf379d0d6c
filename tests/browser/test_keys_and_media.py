"""Keys, and readers who see the page otherwise: forced colours, paper, a stored theme."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from .conftest import Watched


@pytest.fixture
def recall(watch: Callable[..., Watched], addresses: dict[str, str]) -> Any:
    watched = watch(permissions=["clipboard-read", "clipboard-write"])
    watched.open(addresses["recall"])
    return watched.page


def in_focus(page: Any) -> str:
    found: str = page.evaluate("document.activeElement.id")
    return found


def test_j_and_k_walk_the_hits(recall: Any) -> None:
    for key, hit in (("j", 1), ("j", 2), ("j", 3), ("k", 2)):
        recall.keyboard.press(key)
        assert in_focus(recall) == f"hit-{hit}"


def test_c_copies_the_link_to_the_hit_in_focus(recall: Any) -> None:
    recall.keyboard.press("j")
    recall.keyboard.press("c")
    recall.locator("#hit-1 [data-note]", has_text="Link copied").wait_for()
    assert recall.evaluate("navigator.clipboard.readText()") == f"{recall.url}#hit-1"


def test_slash_searches_and_letters_typed_there_are_letters(recall: Any) -> None:
    recall.keyboard.press("/")
    assert in_focus(recall) == "filter-q"
    recall.keyboard.type("jk/c?")
    assert recall.locator("#filter-q").input_value() == "jk/c?"


def test_the_keys_can_be_switched_off_for_good(recall: Any) -> None:
    recall.keyboard.press("?")
    switch = recall.get_by_label("Single-key shortcuts are on")
    assert switch.is_visible()
    switch.uncheck()
    recall.keyboard.press("Escape")
    recall.keyboard.press("j")
    assert in_focus(recall) != "hit-1"
    recall.reload()
    recall.keyboard.press("j")
    assert in_focus(recall) != "hit-1"
    assert not recall.locator("[data-keys-switch]").is_checked()


def test_the_switch_still_says_off_after_back(recall: Any) -> None:
    recall.evaluate("localStorage.setItem('keys', 'off')")
    recall.reload()
    recall.get_by_label("Grade").select_option("stale")
    recall.wait_for_url("**grade=stale*")
    recall.go_back()
    recall.locator(".hit").nth(9).wait_for()
    recall.keyboard.press("?")
    assert not recall.locator("#keys").is_visible()
    assert not recall.locator("[data-keys-switch]").is_checked()


def test_keys_with_a_modifier_are_the_browsers(recall: Any) -> None:
    recall.keyboard.press("Control+j")
    assert in_focus(recall) != "hit-1"


def test_tab_reaches_the_content_past_the_navigation(recall: Any) -> None:
    recall.keyboard.press("Tab")
    recall.keyboard.press("Enter")
    assert in_focus(recall) == "main"


def test_a_link_to_a_hit_marks_it(recall: Any) -> None:
    recall.goto(f"{recall.url}#hit-4")
    assert recall.locator("#hit-4:target").count() == 1
    recall.keyboard.press("j")
    assert in_focus(recall) == "hit-5"


def test_the_theme_is_chosen_once_and_kept(recall: Any) -> None:
    recall.get_by_role("button", name="Dark theme").click()
    recall.reload()
    assert recall.evaluate("document.documentElement.dataset.theme") == "dark"
    assert recall.evaluate("getComputedStyle(document.documentElement).backgroundColor") == "rgb(14, 18, 23)"


def test_forced_colours_keep_words_icons_and_borders(
    watch: Callable[..., Watched], addresses: dict[str, str]
) -> None:
    page = watch(forced_colors="active")
    page.open(addresses["recall"])
    for badge in page.page.locator(".hit > .stack > .row > .badge:first-child").all():
        assert badge.inner_text().strip()
        assert badge.locator("svg").bounding_box()["width"] > 8
        assert badge.evaluate("e => getComputedStyle(e).borderStyle") != "none"
    assert page.axe() == []


def test_paper_shows_the_hits_and_what_was_left_out_but_no_controls(recall: Any) -> None:
    recall.emulate_media(media="print")
    assert recall.locator(".hit .text").count() == 10
    assert all(text.is_visible() for text in recall.locator(".hit .text").all())
    assert recall.locator("#left-out td").first.is_visible()
    assert recall.locator("#hit-1 .waterfall").is_visible()
    for control in (".nav", ".account", ".filters", ".foot"):
        assert not recall.locator(control).first.is_visible()
    assert recall.evaluate("getComputedStyle(document.body).color") == "rgb(20, 24, 31)"
    assert recall.pdf(format="A4").startswith(b"%PDF")
