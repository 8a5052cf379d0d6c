"""The look, as far as it can be checked without a browser: contrast, the strict CSP, icons, error pages."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from django.conf import settings
from django.template.loader import render_to_string
from django.test import override_settings

from recall.pages.templatetags import audit

ROOT = Path(settings.BASE_DIR)
TEMPLATES = sorted((ROOT / "templates").rglob("*.html"))
ASSETS = sorted(path for path in (ROOT / "static").rglob("*") if path.suffix in {".css", ".js", ".svg"})
APP_CSS = (ROOT / "static/css/app.css").read_text()
PLAIN_STATIC = {"staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"}}

_TOKEN = re.compile(r"--([\w-]+):\s*light-dark\((#[0-9A-F]{6}),\s*(#[0-9A-F]{6})\)")
TOKENS = {name: {"light": light, "dark": dark} for name, light, dark in _TOKEN.findall(APP_CSS)}

GROUNDS = ("bg", "surface", "sunken")
KINDS = ("valid", "stale", "invalid", "ungraded", "live")
TEXT_ON_GROUND = (
    [(text, ground) for text in ("text", "muted", "accent") for ground in GROUNDS]
    + [(f"{kind}-fg", f"{kind}-bg") for kind in KINDS]
    # chart labels and links that stand on a band or in a box of a chain
    + [(text, f"{kind}-bg") for text in ("text", "muted", "accent") for kind in ("valid", "stale", "invalid")]
    + [("on-accent", "accent"), ("invalid-fg", "surface"), ("invalid-fg", "bg")]
)
EDGE_ON_GROUND = [(f"{kind}-border", ground) for kind in KINDS for ground in ("surface", f"{kind}-bg")] + [
    ("control", "surface"),
    ("control", "bg"),
    ("accent", "surface"),
    ("accent", "bg"),
    ("accent", "sunken"),
]


def luminance(colour: str) -> float:
    """Relative luminance (https://www.w3.org/TR/WCAG22/#dfn-relative-luminance)."""
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    darker, lighter = sorted((luminance(one), luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


def test_contrast_is_computed_as_in_wcag() -> None:
    assert contrast("#000000", "#FFFFFF") == pytest.approx(21)
    assert contrast("#777777", "#FFFFFF") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize(("text", "ground"), TEXT_ON_GROUND)
def test_text_can_be_read_on_its_ground(text: str, ground: str, theme: str) -> None:
    assert contrast(TOKENS[text][theme], TOKENS[ground][theme]) >= 4.5


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize(("edge", "ground"), EDGE_ON_GROUND)
def test_borders_that_carry_meaning_stand_out(edge: str, ground: str, theme: str) -> None:
    assert contrast(TOKENS[edge][theme], TOKENS[ground][theme]) >= 3


def test_every_custom_property_that_is_used_is_defined() -> None:
    used = set(re.findall(r"var\(--([\w-]+)", APP_CSS))
    defined = set(re.findall(r"--([\w-]+):", APP_CSS))
    assert used <= defined


def test_the_admin_has_no_colour_of_its_own() -> None:
    admin = (ROOT / "static/css/admin.css").read_text()
    pairs = {(light, dark) for _, light, dark in _TOKEN.findall(admin)}
    assert pairs <= {(token["light"], token["dark"]) for token in TOKENS.values()}
    assert len(re.findall(r"#[0-9A-Fa-f]{3,8}\b", admin)) == 2 * len(_TOKEN.findall(admin))


# --- what the content security policy would block -----------------------------------------------------


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_no_template_has_inline_style_script_or_handler(path: Path) -> None:
    html = path.read_text()
    assert not re.search(r"\sstyle\s*=", html)
    assert not re.search(r"<style\b", html)
    assert not re.search(r"\son[a-z]+\s*=", html)
    assert not re.search(r"\bhx-on\b|javascript:|hx-vals=.js:", html)
    for script in re.findall(r"<script\b[^>]*>.*?</script>", html, re.DOTALL):
        assert re.fullmatch(r"<script\b[^>]*\bsrc=[^>]*></script>", script)


@pytest.mark.parametrize("path", [*TEMPLATES, *ASSETS], ids=lambda path: path.name)
def test_nothing_is_fetched_from_another_site(path: Path) -> None:
    text = path.read_text().replace("http://www.w3.org/2000/svg", "")
    assert not re.search(r"https?:|(src|href)=[\"']//|url\(|@import", text)


def test_the_script_neither_evaluates_text_nor_writes_markup() -> None:
    for path in (ROOT / "static/js").glob("*.js"):
        assert not re.search(
            r"\beval\b|new Function|innerHTML|outerHTML|insertAdjacentHTML|\.style\b", path.read_text()
        )


# --- icons --------------------------------------------------------------------------------------------


def test_every_icon_that_is_asked_for_is_drawn() -> None:
    sprite = ET.parse(ROOT / "static/icons.svg").getroot()
    drawn = {symbol.attrib["id"] for symbol in sprite}
    asked = {f"i-{names[1]}" for table in (audit.GRADES, audit.STATES) for names in table.values()}
    for path in TEMPLATES:
        html = path.read_text()
        asked |= set(re.findall(r"#(i-[\w-]+)", html))
        asked |= {f"i-{name}" for name in re.findall(r"{%\s*icon\s+[\"']([\w-]+)[\"']", html)}
    assert asked <= drawn


# --- error pages --------------------------------------------------------------------------------------


@override_settings(STORAGES=PLAIN_STATIC)
@pytest.mark.parametrize("status", ["400", "403", "403_csrf", "404", "500"])
def test_an_error_page_needs_neither_context_nor_database(status: str) -> None:
    html = render_to_string(f"{status}.html")
    assert f">{status[:3]}<" in html
    assert '<nav class="nav"' not in html


@override_settings(STORAGES=PLAIN_STATIC)
def test_an_error_page_says_what_it_was_told_and_escapes_it() -> None:
    told = {
        "status": 409,
        "title": "Superseded already",
        "message": "<b>evt_1</b>",
        "hint": "",
        "request_id": "ab12",
    }
    html = render_to_string("error.html", told)
    assert "Superseded already" in html
    assert "ab12" in html
    assert "&lt;b&gt;evt_1&lt;/b&gt;" in html
