"""Every page in light and dark, wide and on a phone: accessible, quiet, inside its policy and its width."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from .conftest import BY_COLOUR, WIDTHS, Watched

PAGES = [
    "overview",
    "recalls",
    "recalls, none found",
    "recall",
    "recall, history view",
    "recall, no hits",
    "recall, warned",
    "recall, partial",
    "recall, by a link and a time",
    "recall, by ranks",
    "recall, by words alone",
    "recall, batch",
    "recall, projection",
    "left out",
    "hit",
    "hit, by a link and a time",
    "run a recall",
    "run a recall, all of it",
    "memories",
    "memories, all",
    "memory, superseded",
    "memory, erased",
    "memory, window",
    "memory, in the past",
    "ledger",
    "ledger, filtered",
    "ledger, none found",
    "event",
    "event, context superseded",
    "event, context undone",
    "correction, new",
    "outbox",
    "outbox, failed",
    "recall, of context",
    "not found",
    "no such address",
    "API reference",
]
MISSING = {"not found", "no such address"}


def check(page: Watched, *, missing: bool = False) -> None:
    """What holds on every page of ours, first in light and then in dark."""
    width = page.page.viewport_size["width"]
    console = [text for text in page.console if not (missing and "status of 404" in text)]
    assert console == []
    assert page.page.evaluate("document.documentElement.scrollWidth") <= width
    icons = page.page.eval_on_selector_all(
        ".badge svg, .btn svg, .notice strong svg",
        "all => all.map(svg => svg.getBoundingClientRect()).map(box => Math.max(box.width, box.height))",
    )
    assert all(0 < size <= 20 for size in icons if size), icons
    page.console.clear()  # axe itself may write to it
    assert page.axe() == []
    page.page.emulate_media(color_scheme="dark")
    assert page.page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.axe(BY_COLOUR) == []
    assert page.violations_of_policy() == []


def test_the_list_of_pages_is_whole(addresses: dict[str, str]) -> None:
    assert list(addresses) == PAGES


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("look", WIDTHS, indirect=True)
def test_a_page_is_accessible_and_stays_inside_its_policy_and_its_width(
    look: Watched, addresses: dict[str, str], name: str
) -> None:
    look.open(addresses[name], status=404 if name in MISSING else 200)
    check(look, missing=name in MISSING)


@pytest.mark.parametrize("width", WIDTHS)
def test_the_sign_in_is_accessible_and_says_what_went_wrong(
    watch: Callable[..., Watched], width: str
) -> None:
    page = watch(anonymous=True, viewport=WIDTHS[width])
    page.open("/sign-in/")
    check(page)
    page.page.emulate_media(color_scheme="light")
    page.page.get_by_label("Username").fill("operator")
    page.page.get_by_label("Password").fill("not the password")
    page.page.get_by_role("button", name="Sign in").click()
    assert page.page.get_by_role("alert").first.is_visible()
    check(page)


@pytest.mark.parametrize("look", WIDTHS, indirect=True)
def test_every_breakdown_opened_is_accessible(look: Watched, addresses: dict[str, str]) -> None:
    look.open(addresses["recall"])
    look.page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true })")
    look.page.locator(".hit .waterfall").nth(9).wait_for()
    look.page.locator("#left-out details table").wait_for()
    check(look)


@pytest.mark.parametrize("look", ["wide"], indirect=True)
def test_the_admin_stays_inside_the_policy(look: Watched) -> None:
    """Its markup is Django's own, with flaws of its own that axe finds; only console and policy are ours."""
    for path in ("/admin/", "/admin/auth/user/", "/admin/auth/user/add/", "/admin/recall/apikey/"):
        look.open(path)
        assert look.console == []
        assert look.violations_of_policy() == []


def test_a_recall_of_ten_hits_is_light(watch: Callable[..., Watched], addresses: dict[str, str]) -> None:
    page = watch()
    sizes: list[tuple[str, int]] = []

    def weigh(request: Any) -> None:
        sizes.append((request.url.removeprefix(page.url), request.sizes()["responseBodySize"]))

    page.page.on("requestfinished", weigh)
    html = page.open(addresses["recall"]).body()
    page.page.wait_for_load_state("networkidle")
    assert len(html) <= 60_000
    sizes = [
        (url, size) for url, size in sizes if "favicon" not in url
    ]  # asked for once a browser, not a page
    assert len(sizes) <= 6, sizes
    assert sum(size for _, size in sizes) <= 90_000, sizes  # as transferred
