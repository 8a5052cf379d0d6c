"""A memory's text is whatever an agent was told: it is shown as text, and never moves the page."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from .conftest import WIDTHS, Site, Watched
from .test_every_page import check

TEXT = (
    "zzhostile <script>window.pwned = 1</script></script></title></textarea><img src=x onerror=pwned=1>"
    "<style>*{display:none}</style> {{ 7|add:7 }} {% now %} \u202egnp.exe\u202c \u200bjoined "
    + "W" * 400
    + " "
    + "\u0645\u0631\u062d\u0628\u0627 " * 6
    + "\N{FAMILY}" * 20
)


@pytest.fixture(scope="session")
def hostile(site: Site) -> dict[str, str]:
    """Every address at which the text is shown."""
    memory = site.api(
        "/v1/memories",
        {
            "text": TEXT,
            "workspace": "ops",
            "tags": ["<b>" + "T" * 120],
            "metadata": {"<i>": "<u>" + "M" * 300},
            "category": "<s>",
        },
    )["id"]
    newer = site.api(
        f"/v1/memories/{memory}/supersede", {"text": TEXT + " newer", "reason": "<em>" + "R" * 200}
    )
    answer = site.api("/v1/recall", {"query": "zzhostile", "workspace": "ops", "profile": "validity"})
    event = site.api(f"/v1/memories/{memory}/history")["results"][0]["id"]
    return {
        "memory": f"/memories/{memory}/",
        "its replacement": f"/memories/{newer['memory']['id']}/",
        "memories": "/memories/?q=zzhostile&state=all",
        "recall": f"/recalls/{answer['recall_id']}/",
        "hit": f"/recalls/{answer['recall_id']}/hits/1/",
        "ledger": "/ledger/",
        "event": f"/ledger/{event}/",
        "form": "/recalls/new/?query=%3Cscript%3Ealert(1)%3C/script%3E&tags=%22%3E%3Cb%3E",
        "filter": "/recalls/?q=%22%3E%3Cscript%3Ealert(1)%3C/script%3E",
    }


NAMES = ["memory", "its replacement", "memories", "recall", "hit", "ledger", "event", "form", "filter"]


@pytest.mark.parametrize("look", WIDTHS, indirect=True)
@pytest.mark.parametrize("name", NAMES)
def test_hostile_text_is_text(look: Watched, hostile: dict[str, str], name: str) -> None:
    look.open(hostile[name])
    assert look.page.evaluate("window.pwned ?? null") is None
    assert look.page.locator("main img, main style, main script").count() == 0
    assert look.page.locator("header.top").is_visible()
    check(look)


def test_a_right_to_left_override_does_not_turn_what_stands_beside_it(
    watch: Callable[..., Watched], hostile: dict[str, str]
) -> None:
    page = watch()
    page.open(hostile["memories"])
    cell = page.page.locator("tbody a").first
    assert cell.evaluate("e => getComputedStyle(e).unicodeBidi") in ("isolate", "plaintext")
