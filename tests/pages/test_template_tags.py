"""The template tags: one spelling for instants, ages and scores, one look for grades and states."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest
from django.test import override_settings

from ledger.domain.instants import DAY, HOUR, MINUTE, parse_instant
from recall.domain.validity import GRADES
from recall.pages.templatetags import audit

PLAIN_STATIC = override_settings(
    STORAGES={"staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"}}
)


@pytest.fixture(autouse=True)
def _static_files_without_a_manifest():
    with PLAIN_STATIC:
        yield


def test_an_instant_is_read_in_utc_to_the_second() -> None:
    assert audit.instant(parse_instant("2026-11-30T13:58:02.987Z")) == "2026-11-30 13:58:02Z"
    assert audit.instant(-1) == "1969-12-31 23:59:59Z"
    assert audit.instant(None) == "–"


def test_a_day_is_the_date_in_utc() -> None:
    assert audit.day(parse_instant("2026-11-30T23:30:00-02:00")) == "2026-12-01"


def test_a_short_id_keeps_its_type_and_the_end_that_tells_it_from_others() -> None:
    assert audit.short_id("evt_01m8qt5gzp6xas3b49cpx0panf") == "evt_…px0panf"


def test_a_moment_keeps_its_milliseconds_for_machines() -> None:
    element = ET.fromstring(audit.moment(parse_instant("2026-11-30T13:58:02.987Z")))
    assert element.attrib["datetime"] == "2026-11-30T13:58:02.987Z"
    assert element.text == "2026-11-30 13:58:02Z"


@pytest.mark.parametrize(
    ("length_ms", "words"),
    [
        (0, "0 s"),
        (-5, "0 s"),
        (59_999, "59 s"),
        (12 * MINUTE, "12 min"),
        (3 * HOUR, "3 h"),
        (2 * DAY - 1, "47 h"),
        (6 * DAY + 23 * HOUR, "6 days"),
        (1_234 * DAY, "1,234 days"),
        (None, "–"),
    ],
)
def test_an_age_is_in_whole_units_and_never_rounded_up(length_ms: int | None, words: str) -> None:
    assert audit.age(length_ms) == words


def test_a_score_has_three_decimals_and_never_rounds_to_nothing() -> None:
    assert audit.score(0.87055) == "0.871"
    assert audit.score(0.000012) == "1.2e-05"
    assert audit.score(0) == "0.000"
    assert audit.score(None) == "–"


@pytest.mark.parametrize(
    ("grade", "word", "drawing"),
    [
        ("valid", "Valid", "check"),
        ("stale", "Stale", "triangle"),
        ("context_invalid", "Context invalid", "octagon-cross"),
        (None, "Ungraded", "dash-circle"),
        ("", "Ungraded", "dash-circle"),
    ],
)
def test_a_grade_is_told_by_word_icon_and_class(grade: str | None, word: str, drawing: str) -> None:
    badge = ET.fromstring(audit.grade_badge(grade))
    assert "".join(badge.itertext()) == word == audit.grade_word(grade)
    assert badge.attrib["class"] == f"badge {audit.grade_class(grade)}"
    use = badge.find("svg/use")
    assert use is not None
    assert use.attrib["href"].endswith(f"icons.svg#i-{drawing}")


def test_every_grade_of_the_policy_has_a_badge_and_an_unknown_one_is_an_error() -> None:
    assert set(GRADES) | {"ungraded"} == set(audit.GRADES)
    with pytest.raises(KeyError):
        audit.grade_badge("excellent")


def test_every_reason_not_to_be_current_has_a_badge() -> None:
    reasons = ("archived", "not_yet_valid", "expired", "deprecated", "superseded", "replacement_erased")
    words = ["".join(ET.fromstring(audit.state_badge(reason)).itertext()) for reason in (None, *reasons)]
    assert words == [
        "Current",
        "Archived",
        "Not yet valid",
        "Expired",
        "Deprecated",
        "Superseded",
        "Replacement erased",
    ]


def test_an_icon_has_no_name_of_its_own() -> None:
    assert ET.fromstring(audit.icon("key")).attrib == {"class": "icon", "aria-hidden": "true"}


def test_an_icon_name_is_escaped() -> None:
    assert "<script" not in audit.icon('"><script>')
