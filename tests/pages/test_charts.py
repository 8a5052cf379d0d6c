"""The charts, read as text: what they print is true, and what they draw lies where it should."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ET
from datetime import date, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.domain.instants import DAY, HOUR, LATEST, parse_instant
from recall.domain.policy import DEFAULT, Weights
from recall.pages import charts
from recall.pages.charts import ChainNode, Span

HOSTILE = '</text><script>alert("1")</script>&amp; \'"<'


def drawn(svg: str) -> ET.Element:
    root = ET.fromstring(svg)
    assert root.tag == "svg"
    return root


def having(root: ET.Element, *classes: str) -> list[ET.Element]:
    return [el for el in root.iter() if set(classes) <= set(el.get("class", "").split())]


def texts(root: ET.Element, *classes: str) -> list[str]:
    return [el.text or "" for el in having(root, *classes) if el.tag == "text"]


def percent(el: ET.Element, name: str) -> float:
    return float(el.attrib[name].removesuffix("%"))


def decay(age_ms: int, weights: Weights = DEFAULT) -> ET.Element:
    freshness = 0.5 ** (age_ms / weights.half_life_ms)
    return drawn(charts.decay(age_ms=age_ms, freshness=freshness, weights=weights, uid="d"))


def waterfall(factors: list[tuple[str, float]], multiplier: float | None = None) -> ET.Element:
    total = math.prod(factor for _, factor in factors) if multiplier is None else multiplier
    return drawn(charts.waterfall(factors=factors, multiplier=total, uid="w"))


def node(i: int, **facts: bool) -> ChainNode:
    looks = {"current": False, "marked": False} | facts
    return ChainNode(id=f"mem_{i}", href=f"/memories/mem_{i}/", when="2026-11-30", label=f"text {i}", **looks)


def chain(nodes: list[ChainNode]) -> ET.Element:
    return drawn(charts.chain(nodes=nodes, uid="c"))


def every_chart(uid: str) -> list[str]:
    span = Span(created_at=0, at=9 * DAY, weights=DEFAULT)
    return [
        charts.decay(age_ms=DAY, freshness=0.9, weights=DEFAULT, uid=uid),
        charts.waterfall(factors=[("freshness", 0.9)], multiplier=0.9, uid=uid),
        charts.waterfall(
            factors=[("freshness", 0.9)],
            multiplier=0.9,
            uid=uid,
            match=charts.Match([("words", 0.5)], 0.5),
            scored=(0.5, 0.45),
        ),
        charts.grade_bars(days=[(date(2026, 11, 1), 3, 2, 1)], uid=uid),
        charts.grade_bars(days=[], uid=uid),
        charts.chain(nodes=[node(1), node(2, current=True)], uid=uid),
        charts.timeline(span=span, uid=uid),
    ]


# --- every chart --------------------------------------------------------------------------------------


@pytest.mark.parametrize("svg", every_chart("x7"))
def test_every_chart_is_named_and_described_by_ids_of_its_own(svg: str) -> None:
    root = drawn(svg)
    by_id = {el.get("id"): el for el in root.iter() if el.get("id")}
    name, description = (by_id[ref] for ref in root.attrib["aria-labelledby"].split())
    assert name.tag == "title"
    assert name.text
    assert description.tag == "desc"
    assert description.text
    assert all(ref.startswith("x7-") for ref in by_id)


@pytest.mark.parametrize("svg", every_chart("x7"))
def test_no_chart_carries_a_style_or_a_handler(svg: str) -> None:
    for el in drawn(svg).iter():
        assert not [name for name in el.attrib if name == "style" or name.startswith("on")]


def test_only_the_chart_that_holds_links_is_a_group() -> None:
    assert [drawn(svg).attrib["role"] for svg in every_chart("x")] == ["img"] * 5 + ["group", "img"]


# --- numbers ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "spelled"),
    [
        (0.8706, "0.871"),
        (1.0, "1.000"),
        (0.001, "0.001"),
        (0.0009, "9.0e-04"),
        (1.2e-5, "1.2e-05"),
        (1e-200, "1.0e-200"),
        (0.0, "0.000"),
    ],
)
def test_a_score_has_one_spelling(value: float, spelled: str) -> None:
    assert charts.spell(value) == spelled


@given(st.lists(st.floats(min_value=1e-30, max_value=10), min_size=1, max_size=6))
def test_the_printed_factors_multiply_to_the_printed_total(factors: list[float]) -> None:
    printed, total = charts.spell_product(factors, math.prod(factors))
    assert charts.spell(math.prod(float(text) for text in printed)) == total


# --- decay --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("age_ms", "grade"),
    [
        (0, "valid"),
        (30 * DAY, "valid"),  # exactly 0.5
        (30 * DAY + HOUR, "stale"),
        (90 * DAY, "stale"),  # exactly 0.125
        (90 * DAY + HOUR, "context_invalid"),
        (4_000_000 * DAY, "context_invalid"),
    ],
)
def test_the_dot_has_the_grade_that_age_alone_allows(age_ms: int, grade: str) -> None:
    (dot,) = having(decay(age_ms), "dot")
    assert dot.attrib["class"] == f"dot g-{grade}"


@pytest.mark.parametrize(
    ("age_days", "grade"), [(15, "valid"), (30, "valid"), (60, "stale"), (100, "context_invalid")]
)
def test_the_dot_lies_in_the_band_of_its_grade_and_on_the_curve(age_days: int, grade: str) -> None:
    root = decay(age_days * DAY)
    (dot,) = having(root, "dot")
    (band,) = having(root, "band", f"g-{grade}")
    x, y = float(dot.attrib["cx"]), float(dot.attrib["cy"])
    assert float(band.attrib["x"]) <= x <= float(band.attrib["x"]) + float(band.attrib["width"]) + 0.1
    (curve,) = having(root, "curve")
    points = [tuple(map(float, pair.split(","))) for pair in curve.attrib["points"].split()]
    nearest = min(points, key=lambda point: abs(point[0] - x))
    assert abs(nearest[1] - y) < 1.5


def test_half_freshness_is_drawn_where_the_valid_band_ends() -> None:
    root = decay(30 * DAY)
    (dot,), (valid,) = having(root, "dot"), having(root, "band", "g-valid")
    end = float(valid.attrib["x"]) + float(valid.attrib["width"])
    assert float(dot.attrib["cx"]) == pytest.approx(end, abs=0.1)
    assert float(dot.attrib["cy"]) == float(having(root, "threshold")[0].attrib["y1"])


def test_the_axis_names_the_ages_at_which_the_recalls_own_weights_change_the_grade() -> None:
    assert texts(decay(DAY), "middle") == ["30d", "90d"]
    weekly = Weights(freshness_half_life_secs=7 * 86_400, context_invalid_freshness=0.25)
    assert texts(decay(DAY, weekly), "middle") == ["7d", "14d"]
    hourly = Weights(freshness_half_life_secs=3_600)
    assert texts(decay(HOUR, hourly), "middle") == ["1h", "3h"]


def test_an_age_beyond_the_axis_stays_inside_and_says_how_old() -> None:
    root = decay(4_000 * DAY)
    (dot,) = having(root, "dot")
    assert float(dot.attrib["cx"]) <= 232
    assert having(root, "off-scale")
    assert texts(root, "end") == ["4,000d"]


@pytest.mark.parametrize(
    "weights",
    [
        Weights(stale_freshness=0.0, context_invalid_freshness=0.0),
        Weights(stale_freshness=1.0, context_invalid_freshness=1.0),
        Weights(stale_freshness=0.2, context_invalid_freshness=0.6),
        Weights(freshness_half_life_secs=1),
    ],
)
def test_odd_weights_still_draw_inside_the_frame(weights: Weights) -> None:
    for band in having(decay(5 * DAY, weights), "band"):
        assert 0 <= float(band.attrib["x"]) <= float(band.attrib["x"]) + float(band.attrib["width"]) <= 232


def test_bands_follow_each_other_without_a_gap() -> None:
    bands = charts.age_bands(DEFAULT)
    assert [band.grade for band in bands] == ["valid", "stale", "context_invalid"]
    assert [band.end for band in bands[:-1]] == [band.start for band in bands[1:]] == [30 * DAY, 90 * DAY]


# --- waterfall ----------------------------------------------------------------------------------------


def test_the_waterfall_prints_factors_that_multiply_to_its_total() -> None:
    root = waterfall([("freshness", 0.870551), ("scope", 1.1), ("superseded", 0.35)])
    *printed, total = texts(root, "value")
    product = math.prod(float(text.removeprefix("×")) for text in printed)
    assert charts.spell(product) == total.removeprefix("= ")


def test_the_exact_values_stand_in_the_description() -> None:
    factors = [("freshness", 0.5 ** (7 / 30)), ("scope", 1.1)]
    description = waterfall(factors).find("desc")
    assert description is not None
    assert description.text is not None
    assert repr(factors[0][1]) in description.text
    assert repr(math.prod(factor for _, factor in factors)) in description.text


def test_each_step_begins_where_the_one_before_ended() -> None:
    root = waterfall([("freshness", 0.5), ("scope", 1.1), ("superseded", 0.35)])
    first, second, third = (el for el in root.iter("rect") if "total" not in el.attrib["class"])
    assert percent(first, "x") == pytest.approx(percent(second, "x"), abs=0.02)
    second_end = percent(second, "x") + percent(second, "width")
    assert second_end == pytest.approx(percent(third, "x") + percent(third, "width"), abs=0.02)


@pytest.mark.parametrize("factor", [1e-200, 5e-324, 0.009, 11.0])
def test_a_product_off_the_scale_is_clamped_and_marked(factor: float) -> None:
    root = waterfall([("freshness", factor), ("scope", 1.1)])
    for bar in root.iter("rect"):
        assert 38 <= percent(bar, "x") <= percent(bar, "x") + percent(bar, "width") <= 77.5
    assert [text for text in texts(root) if "off the scale" in text]


def test_a_product_on_the_scale_has_no_such_mark() -> None:
    assert not [text for text in texts(waterfall([("freshness", 0.5)])) if "off the scale" in text]


def test_a_multiplier_that_is_not_the_product_of_its_factors_is_not_glossed_over() -> None:
    description = waterfall([("freshness", 0.5)], multiplier=0.9).find("desc")
    assert description is not None
    assert "differs from the product" in (description.text or "")


def test_a_product_below_what_floats_can_say_is_explained() -> None:
    description = waterfall([("freshness", 0.0)], multiplier=5e-324).find("desc")
    assert description is not None
    assert "smallest positive" in (description.text or "")


def test_a_hostile_factor_label_stays_text() -> None:
    root = waterfall([(HOSTILE, 0.5)])
    assert HOSTILE in texts(root, "name")
    assert not list(root.iter("script"))


MATCH = charts.Match([("words", 0.25), ("meaning", 0.75)], 0.6)


def scored(match: charts.Match | None = MATCH, base: float = 0.9) -> ET.Element:
    factors = [("freshness", 0.5), ("scope", 1.1)]
    svg = charts.waterfall(factors=factors, multiplier=0.55, uid="w", match=match, scored=(base, base * 0.55))
    return drawn(svg)


def test_with_a_score_the_steps_lead_from_the_base_to_the_final_score() -> None:
    root = scored(match=None)
    assert texts(root, "name") == ["base", "freshness", "scope", "final"]
    base, *factors, final = texts(root, "value")
    product = math.prod(float(text.removeprefix("×")) for text in (base, *factors))
    assert charts.spell(product) == final.removeprefix("= ") == charts.spell(0.9 * 0.55)


def test_the_readings_are_drawn_from_nought_to_one_and_joined_to_no_product() -> None:
    root = scored()
    words, meaning = having(root, "reading")
    assert percent(meaning, "width") == pytest.approx(3 * percent(words, "width"), abs=0.02)
    assert texts(root, "value")[:3] == ["0.250", "0.750", "0.600"]
    assert texts(root, "total")[:2] == ["fused", "0.600"]
    description = root.find("desc")
    assert description is not None
    assert (description.text or "").startswith(
        "Match: words 0.25, meaning 0.75; fused 0.6. Exact values: base 0.9 ×"
    )


@pytest.mark.parametrize("reading", [1.02, 7.0, -0.3])
def test_a_reading_beyond_its_axis_stays_inside_and_prints_what_it_was(reading: float) -> None:
    root = scored(charts.Match([("words", reading)], 0.5))
    (bar,) = having(root, "reading")
    assert 38 <= percent(bar, "x") + percent(bar, "width") <= 77.5
    assert texts(root, "value")[0] == charts.spell(reading)
    assert ("▸" in texts(root, "start")) == (reading > 1)


def test_the_two_panels_do_not_overlap() -> None:
    root = scored()
    (lower,) = root.iter("g")
    above = int(lower.attrib["transform"].removeprefix("translate(0 ").removesuffix(")"))
    readings = [el for el in root if el.tag == "rect"]
    assert max(int(el.attrib["y"]) + int(el.attrib["height"]) for el in readings) < above
    assert int(root.attrib["height"]) > above + max(int(el.attrib["y"]) for el in lower.iter("rect"))


# --- grades per day -----------------------------------------------------------------------------------


def bars(*counts: tuple[int, int, int]) -> ET.Element:
    days = [(date(2026, 11, 1) + timedelta(i), *day) for i, day in enumerate(counts)]
    return drawn(charts.grade_bars(days=days, uid="b"))


def test_a_days_bars_are_as_high_as_its_counts() -> None:
    root = bars((60, 30, 10))
    heights = [float(el.attrib["height"]) for el in having(root, "bar")]
    assert heights[0] == pytest.approx(2 * heights[1], abs=0.2)
    assert heights[0] == pytest.approx(6 * heights[2], abs=0.7)


def test_context_invalid_is_hatched_and_nothing_else() -> None:
    assert not [el for el in bars((3, 2, 0)).iter("rect") if el.get("fill")]
    assert [el.get("fill") for el in bars((3, 2, 1)).iter("rect") if el.get("fill")] == ["url(#b-hatch)"]


def test_a_single_hit_among_a_hundred_thousand_can_be_seen() -> None:
    (bar,) = having(bars((99_999, 0, 1)), "bar", "g-context_invalid")
    assert float(bar.attrib["height"]) >= 1


@pytest.mark.parametrize("days", [[], [(date(2026, 11, 1), 0, 0, 0)]])
def test_a_period_without_hits_says_so(days: list[tuple[date, int, int, int]]) -> None:
    root = drawn(charts.grade_bars(days=days, uid="b"))
    assert "No hit was served with a grade in this period." in texts(root)
    assert not having(root, "bar")


@pytest.mark.parametrize("highest", [1, 2, 5, 9, 10, 11, 49, 99, 100, 101, 999, 1_204, 99_999, 100_000])
def test_the_count_axis_has_few_round_steps(highest: int) -> None:
    step = charts.tick_step(highest)
    assert 1 <= math.ceil(highest / step) <= 5
    assert str(step).rstrip("0") in {"1", "2", "5"}


def test_the_first_and_the_counts_of_each_day_are_in_the_description() -> None:
    description = bars((1, 2, 3), (10, 0, 0)).find("desc")
    assert description is not None
    assert description.text == "16 hits in 2 days: 11 valid, 2 stale, 3 context invalid."


# --- supersession chain -------------------------------------------------------------------------------


def test_five_nodes_are_all_drawn_as_links_in_order() -> None:
    root = chain([node(i, current=i == 5) for i in range(1, 6)])
    assert [a.attrib["href"] for a in root.iter("a")] == [f"/memories/mem_{i}/" for i in range(1, 6)]
    assert len(having(root, "edge")) == 4


def test_a_longer_chain_collapses_its_middle_and_says_how_many() -> None:
    root = chain([node(i, current=i == 64) for i in range(1, 65)])
    assert [a.attrib["href"] for a in root.iter("a")] == [f"/memories/mem_{i}/" for i in (1, 63, 64)]
    assert "… 61 more …" in texts(root)


def test_the_marked_node_is_never_collapsed() -> None:
    root = chain([node(i, marked=i == 30) for i in range(1, 65)])
    assert "/memories/mem_30/" in [a.attrib["href"] for a in root.iter("a")]
    assert "… 28 more …" in texts(root)
    assert "… 32 more …" in texts(root)


def test_every_node_is_drawn_or_counted() -> None:
    for length in range(6, 20):
        for marked in range(length):
            shown = charts._collapsed([node(i, marked=i == marked) for i in range(length)])
            assert sum(part if isinstance(part, int) else 1 for part in shown) == length
            assert 1 not in shown


def test_the_current_node_and_the_old_ones_differ_in_word_and_border() -> None:
    root = chain([node(1), node(2, current=True)])
    old, current = having(root, "node")
    assert "old" in old.attrib["class"].split()
    assert "old" not in current.attrib["class"].split()
    assert texts(root)[2].endswith("superseded")
    assert texts(root)[5].endswith("current")


def test_hostile_chain_labels_stay_text() -> None:
    root = chain(
        [
            ChainNode(
                id=HOSTILE, href="/x/?a=1&b=\"'<", when=HOSTILE, label=HOSTILE, current=True, marked=False
            )
        ]
    )
    assert not list(root.iter("script"))
    assert next(root.iter("a")).attrib["href"] == "/x/?a=1&b=\"'<"


# --- a memory in time ---------------------------------------------------------------------------------

CREATED = parse_instant("2026-07-01")


def timeline(**facts: int) -> ET.Element:
    span = Span(created_at=CREATED, weights=DEFAULT, **{"at": CREATED + 100 * DAY} | facts)
    return drawn(charts.timeline(span=span, uid="s"))


def test_the_bands_of_a_timeline_change_at_the_thresholds() -> None:
    root = timeline()
    valid, stale = having(root, "band", "g-valid")[0], having(root, "band", "g-stale")[0]
    assert percent(stale, "x") == pytest.approx(percent(valid, "x") + percent(valid, "width"), abs=0.02)
    assert percent(stale, "width") == pytest.approx(2 * percent(valid, "width"), abs=0.05)


def test_the_anchor_line_stands_where_the_anchors_age_falls() -> None:
    root = timeline(at=CREATED + 30 * DAY)
    (anchor,), (stale,) = having(root, "anchor"), having(root, "band", "g-stale")
    assert percent(anchor, "x1") == pytest.approx(percent(stale, "x"), abs=0.02)


def test_each_event_has_its_own_lane_with_its_date() -> None:
    root = timeline(
        superseded_at=parse_instant("2026-08-02"), expires_at=parse_instant("2026-09-03T12:00:00Z")
    )
    names = texts(root, "name")
    assert {"Recorded 2026-07-01", "Superseded 2026-08-02", "Expired 2026-09-03"} <= set(names)
    assert "Seen as of 2026-10-09" in names


def test_the_window_closes_at_the_earlier_of_its_two_ends() -> None:
    root = timeline(t_valid=CREATED, t_invalid=CREATED + 60 * DAY, expires_at=CREATED + 30 * DAY)
    (window,), (valid,) = having(root, "window"), having(root, "band", "g-valid")
    assert percent(window, "x") == pytest.approx(percent(valid, "x"), abs=0.02)
    assert percent(window, "width") == pytest.approx(percent(valid, "width"), abs=0.05)
    assert "Holds from 2026-07-01 to 2026-07-31" in texts(root, "name")


def test_a_window_without_bounds_points_out_of_the_axis_on_both_sides() -> None:
    root = timeline()
    assert "Holds without bounds" in texts(root, "name")
    assert {"◂", "▸"} <= set(texts(root, "name"))


def test_a_bound_in_the_far_future_neither_stretches_the_axis_nor_is_hidden() -> None:
    root = timeline(t_invalid=LATEST)
    (valid,) = having(root, "band", "g-valid")
    assert percent(valid, "width") > 10
    assert "Expires 9999-12-31" in texts(root, "name")
    assert "▸" in texts(root, "name")


@given(
    st.integers(-62_135_596_800_000, LATEST),
    st.integers(-62_135_596_800_000, LATEST),
    st.none() | st.integers(-62_135_596_800_000, LATEST),
    st.none() | st.integers(-62_135_596_800_000, LATEST),
)
def test_a_timeline_of_any_instants_stays_inside_its_frame(
    created_at: int, at: int, t_valid: int | None, t_invalid: int | None
) -> None:
    span = Span(created_at=created_at, at=at, weights=DEFAULT, t_valid=t_valid, t_invalid=t_invalid)
    root = drawn(charts.timeline(span=span, uid="s"))
    for rect in root.iter("rect"):
        assert 0 <= percent(rect, "x") <= percent(rect, "x") + percent(rect, "width") <= 98.05
