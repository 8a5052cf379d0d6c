"""Charts as SVG, drawn on the server: no script, no style attribute, readable as text and on paper.

Each function is pure and returns one `<svg>`. `uid` makes the ids of a figure unique on its page. Colours and
type come from classes (static/css/app.css, layer `charts`); a grade's class is `g-<grade>`. Charts that grow
with their card place things in percent of its width, so that their text keeps its size on a phone.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from ledger.domain.instants import DAY, EARLIEST, HOUR, LATEST, MINUTE, UnixMs, utc
from recall.domain.policy import Weights
from recall.domain.validity import GRADES, Grade

GRADE_WORDS = {"valid": "valid", "stale": "stale", "context_invalid": "context invalid"}
_NOTHING = SafeString("")


# --- numbers in words ---------------------------------------------------------------------------------


def spell(value: float, *, decimals: int = 3) -> str:
    """A score in three decimals; below 0.001 in two significant digits with an exponent."""
    if value == 0 or abs(value) >= 0.001:
        return f"{value:.{decimals}f}"
    return f"{value:.{decimals - 2}e}"


def spell_product(factors: Sequence[float], total: float) -> tuple[list[str], str]:
    """Spell factors and total so that the printed factors multiply to the printed total.

    The total has the rounding of every score. The factors get three decimals, or as many more as it takes
    until their product, rounded like the total, reads the same. Where it never does (the total is not their
    product, or floats cannot hold it), they get three.
    """
    printed_total = spell(total)
    for decimals in range(3, 18):
        printed = [spell(factor, decimals=decimals) for factor in factors]
        if spell(math.prod(float(text) for text in printed)) == printed_total:
            return printed, printed_total
    return [spell(factor) for factor in factors], printed_total


def _day(at: UnixMs) -> str:
    moment = utc(min(max(at, EARLIEST), LATEST))
    return moment.date().isoformat()


def _short_age(age_ms: float) -> str:
    if age_ms >= DAY or age_ms == 0:
        return f"{age_ms / DAY:,.0f}d" if age_ms >= 10 * DAY else f"{age_ms / DAY:.3g}d"
    return f"{age_ms / HOUR:.3g}h" if age_ms >= HOUR else f"{age_ms / MINUTE:.2g}min"


# --- the grade that age alone allows ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AgeBand:
    """Ages from `start` to `end` (ms, inclusive: exactly at a threshold still counts as the better grade)."""

    grade: Grade
    start: float
    end: float


def age_bands(weights: Weights) -> list[AgeBand]:
    """The spans of age that these weights grade alike, best first; empty ones are left out.

    The last band ends at infinity, and so does one whose threshold freshness never reaches.
    """
    invalid_after = _age_at(weights.context_invalid_freshness, weights)
    stale_after = min(_age_at(weights.stale_freshness, weights), invalid_after)
    edges = (0.0, stale_after, invalid_after, math.inf)
    bands = [AgeBand(grade, edges[i], edges[i + 1]) for i, grade in enumerate(GRADES)]
    return [band for band in bands if band.end > band.start]


def grade_of_freshness(freshness: float, weights: Weights) -> Grade:
    """The grade that freshness alone allows; both comparisons are strict, as in the policy."""
    if freshness < weights.context_invalid_freshness:
        return "context_invalid"
    return "stale" if freshness < weights.stale_freshness else "valid"


def _age_at(freshness: float, weights: Weights) -> float:
    if freshness <= 0:
        return math.inf
    return max(0.0, weights.half_life_ms * math.log2(1 / freshness))


# --- decay --------------------------------------------------------------------------------------------

_DECAY_WIDTH, _DECAY_HEIGHT = 232, 64
_DECAY_LEFT, _DECAY_RIGHT, _DECAY_TOP, _DECAY_BOTTOM = 4, 228, 4, 50


def decay(*, age_ms: UnixMs, freshness: float, weights: Weights, uid: str) -> SafeString:
    """Freshness over age under the weights of that recall, what age alone allows, and this hit as a dot.

    The dot shows age only: where another signal sets the grade, the caption has to say so.
    """
    bands = age_bands(weights)
    longest = _decay_axis(bands, weights)
    dot_x, dot_y = _decay_x(age_ms, longest), _decay_y(freshness)
    grade = grade_of_freshness(freshness, weights)
    beyond = age_ms > longest
    return _figure(
        uid,
        "Freshness by age",
        f"{_short_age(age_ms)} old, freshness {spell(freshness)}: age alone allows {GRADE_WORDS[grade]}. "
        + _bands_in_words(bands, weights),
        _hatch(uid, "context_invalid"),
        *_decay_bands(bands, longest, uid),
        *(
            _el("line", cls="threshold", x1=_DECAY_LEFT, x2=_DECAY_RIGHT, y1=y, y2=y)
            for y in (_decay_y(weights.stale_freshness), _decay_y(weights.context_invalid_freshness))
        ),
        _el("polyline", cls="curve", points=_decay_curve(longest, weights)),
        _el("line", cls="age", x1=dot_x, x2=dot_x, y1=_DECAY_TOP, y2=_DECAY_BOTTOM),
        _el("circle", cls=f"dot g-{grade}", cx=dot_x, cy=dot_y, r=4.5),
        _beyond_axis(age_ms) if beyond else _NOTHING,
        *_decay_labels(bands, longest),
        cls="viz decay",
        viewBox=f"0 0 {_DECAY_WIDTH} {_DECAY_HEIGHT}",
        width=_DECAY_WIDTH,
        height=_DECAY_HEIGHT,
    )


def _decay_axis(bands: Sequence[AgeBand], weights: Weights) -> float:
    """The oldest age drawn: a third beyond the last threshold, so that the last band can be seen."""
    thresholds = [band.start for band in bands if band.start > 0]
    return max(thresholds) * 4 / 3 if thresholds else weights.half_life_ms * 4.0


def _decay_x(age: float, longest: float) -> float:
    return _DECAY_LEFT + (_DECAY_RIGHT - _DECAY_LEFT) * min(age, longest) / longest


def _decay_y(freshness: float) -> float:
    return _DECAY_TOP + (_DECAY_BOTTOM - _DECAY_TOP) * (1 - min(max(freshness, 0.0), 1.0))


def _decay_curve(longest: float, weights: Weights) -> str:
    ages = [longest * step / 40 for step in range(41)]
    values = [(age, 0.5 ** (age / weights.half_life_ms)) for age in ages]
    return " ".join(f"{_decay_x(age, longest):.1f},{_decay_y(value):.1f}" for age, value in values)


def _decay_bands(bands: Sequence[AgeBand], longest: float, uid: str) -> Iterable[SafeString]:
    for band in bands:
        x, end = _decay_x(band.start, longest), _decay_x(band.end, longest)
        place: dict[str, object] = {
            "x": x,
            "y": _DECAY_TOP,
            "width": end - x,
            "height": _DECAY_BOTTOM - _DECAY_TOP,
        }
        yield _el("rect", cls=f"band g-{band.grade}", **place)
        if band.grade == "context_invalid":
            yield _el("rect", fill=f"url(#{uid}-hatch)", **place)


def _decay_labels(bands: Sequence[AgeBand], longest: float) -> Iterable[SafeString]:
    y = _DECAY_HEIGHT - 3
    yield _el("text", "0", cls="start", x=_DECAY_LEFT, y=y)
    for band in bands:
        if band.start > 0:
            yield _el("text", _short_age(band.start), cls="middle", x=_decay_x(band.start, longest), y=y)


def _beyond_axis(age_ms: UnixMs) -> SafeString:
    return _join(
        _el("path", cls="off-scale", d=f"M{_DECAY_RIGHT - 6},{_DECAY_TOP} l6,4 l-6,4 z"),
        _el("text", _short_age(age_ms), cls="end", x=_DECAY_RIGHT - 10, y=_DECAY_TOP + 8),
    )


def _bands_in_words(bands: Sequence[AgeBand], weights: Weights) -> str:
    words = {
        "valid": f"Valid down to {weights.stale_freshness:g}",
        "stale": f"stale down to {weights.context_invalid_freshness:g}",
        "context_invalid": "context invalid below",
    }
    said = [
        words[band.grade] + (f" ({_short_age(band.end)})" if math.isfinite(band.end) else "")
        for band in bands
    ]
    return ", ".join(said)[:1].upper() + ", ".join(said)[1:] + "."


# --- waterfall ----------------------------------------------------------------------------------------

_FALL_ROW, _FALL_TOP, _FALL_BAR = 24, 4, 14
_FALL_HEAD, _FALL_FOOT = 18, 14  # of a panel: its name, its axis
_FALL_FROM, _FALL_TO = 38.0, 77.0  # percent of the width: labels before, numbers after
_FALL_HIGH = 1.5
_FALL_TICKS = {
    0.25: (0.3, 0.5, 1.0),
    0.05: (0.1, 0.3, 1.0),
    0.01: (0.01, 0.1, 1.0),
}  # by where the axis starts


@dataclass(frozen=True, slots=True)
class Match:
    """What came before the base: what each way to look read, 0 to 1, and the fused score that they gave."""

    readings: Sequence[tuple[str, float]]
    fused: float


@dataclass(frozen=True, slots=True)
class _Scale:
    """A log axis from `low` to `_FALL_HIGH`; the finest of three that holds the running products."""

    low: float

    def x(self, value: float) -> float:
        share = math.log(min(max(value, self.low), _FALL_HIGH) / self.low) / math.log(_FALL_HIGH / self.low)
        return _FALL_FROM + (_FALL_TO - _FALL_FROM) * share

    def holds(self, value: float) -> bool:
        return self.low <= value <= _FALL_HIGH


def waterfall(
    *,
    factors: Sequence[tuple[str, float]],
    multiplier: float,
    uid: str,
    match: Match | None = None,
    scored: tuple[float, float] | None = None,
) -> SafeString:
    """How the factors make the multiplier: one step each on a log axis, where x1.10 and x0.35 compare fairly.

    `scored` is (base, final), base > 0: the steps then lead from the base to the final score. `match` is drawn above
    it from 0 to 1: readings, which no product joins to what follows.
    `spell_product` rounds; the exact numbers are in the description. A running product beyond the axis is
    drawn at its edge, with a mark that says so.
    """
    above = 0 if match is None else _match_height(match)
    steps = list(factors) if scored is None else [("base", scored[0]), *factors]
    name, end = ("multiplier", multiplier) if scored is None else ("final", scored[1])
    printed, total = spell_product([factor for _, factor in steps], end)
    running = _running_products([factor for _, factor in steps])
    smallest = min(*running, end)
    scale = _Scale(next((low for low in _FALL_TICKS if low <= smallest), min(_FALL_TICKS)))
    bottom = _FALL_TOP + _FALL_ROW * (len(steps) + 1)
    rows: list[SafeString] = []
    for i, (label, factor) in enumerate(steps):
        y = _FALL_TOP + i * _FALL_ROW
        value = printed[i] if scored is not None and i == 0 else f"×{printed[i]}"
        rows.append(_fall_step(label, factor, value, running[i], running[i + 1], y, scale))
    rows.append(_fall_total(name, total, end, bottom - _FALL_ROW, scale))
    fits = all(scale.holds(product) for product in (*running, end))
    off = _NOTHING if fits else _el("text", "◂ ▸ off the scale", x=0, y=bottom + 11)
    panel = [*_fall_axis(bottom, scale), *rows, off]
    if match is not None:
        panel = [*_match_panel(match), _el("g", *panel, transform=f"translate(0 {above})")]
    title = "How the multiplier comes about" if scored is None else "How the score comes about"
    return _figure(
        uid,
        f"{title} (log scale)",
        _match_in_words(match) + _fall_in_words(steps, name, end, running[-1]),
        *panel,
        cls="viz fluid waterfall",
        height=above + bottom + _FALL_FOOT,
    )


def _match_height(match: Match) -> int:
    return 2 * _FALL_HEAD + _FALL_ROW * (len(match.readings) + 1) + _FALL_FOOT


def _match_panel(match: Match) -> Iterable[SafeString]:
    """The readings from 0 to 1, the fused score below them, and the names of both panels."""
    yield _el("text", "Match, 0 to 1", x=0, y=10)
    bottom = _FALL_HEAD + _FALL_ROW * (len(match.readings) + 1)
    for tick in (0.0, 0.5, 1.0):
        x = _pc(_match_x(tick))
        yield _el("line", cls="grid", x1=x, x2=x, y1=_FALL_HEAD - 4, y2=bottom - 4)
        yield _el("text", f"{tick:g}", cls="middle", x=x, y=bottom + 7)
    for i, (label, value) in enumerate(match.readings):
        yield from _match_row(label, spell(value), value, _FALL_HEAD + i * _FALL_ROW, total=False)
    yield from _match_row("fused", spell(match.fused), match.fused, bottom - _FALL_ROW, total=True)
    yield _el("text", "Validity, log scale", x=0, y=bottom + _FALL_FOOT + 12)


def _match_row(label: str, printed: str, value: float, y: int, *, total: bool) -> Iterable[SafeString]:
    bold = " total" if total else ""
    width = max(_match_x(value) - _FALL_FROM, 0.4)
    look = "step-total" if total else "reading"
    yield _el("text", label, cls=f"name{bold}", x=0, y=y + 11)
    yield _el("rect", cls=look, x=_pc(_FALL_FROM), y=y, width=_pc(width), height=_FALL_BAR)
    if value > 1:
        yield _el("text", "▸", cls="name start", x=_pc(_FALL_TO + 0.5), y=y + 11)
    yield _el("text", printed, cls=f"value{bold} end", x="100%", y=y + 11)


def _match_x(value: float) -> float:
    return _FALL_FROM + (_FALL_TO - _FALL_FROM) * min(max(value, 0.0), 1.0)


def _match_in_words(match: Match | None) -> str:
    if match is None:
        return ""
    readings = ", ".join(f"{label} {value!r}" for label, value in match.readings)
    return f"Match: {readings}; fused {match.fused!r}. "


def _running_products(factors: Sequence[float]) -> list[float]:
    products = [1.0]
    for factor in factors:
        products.append(products[-1] * factor)
    return products


def _fall_step(
    label: str, factor: float, printed: str, before: float, after: float, y: int, scale: _Scale
) -> SafeString:
    look = "step-up" if factor >= 1 else "step-down"
    return _join(
        _el("text", label, cls="name", x=0, y=y + 11),
        _fall_bar(look, before, after, y, scale),
        _el("line", cls="join", x1=_pc(scale.x(after)), x2=_pc(scale.x(after)), y1=y, y2=y + _FALL_ROW),
        _off_scale(after, y, scale),
        _el("text", printed, cls="value end", x="100%", y=y + 11),
    )


def _fall_total(name: str, printed: str, end: float, y: int, scale: _Scale) -> SafeString:
    return _join(
        _el("text", name, cls="name total", x=0, y=y + 11),
        _fall_bar("step-total", 1.0, end, y, scale),
        _off_scale(end, y, scale),
        _el("text", f"= {printed}", cls="value total end", x="100%", y=y + 11),
    )


def _fall_bar(look: str, start: float, end: float, y: int, scale: _Scale) -> SafeString:
    left, right = sorted((scale.x(start), scale.x(end)))
    return _el("rect", cls=look, x=_pc(left), y=y, width=_pc(max(right - left, 0.4)), height=_FALL_BAR)


def _off_scale(value: float, y: int, scale: _Scale) -> SafeString:
    if scale.holds(value):
        return _NOTHING
    if value < scale.low:
        return _el("text", "◂", cls="name end", x=_pc(_FALL_FROM - 0.5), y=y + 11)
    return _el("text", "▸", cls="name start", x=_pc(_FALL_TO + 0.5), y=y + 11)


def _fall_axis(bottom: int, scale: _Scale) -> Iterable[SafeString]:
    for tick in _FALL_TICKS[scale.low]:
        x = _pc(scale.x(tick))
        yield _el("line", cls="threshold" if tick == 1 else "grid", x1=x, x2=x, y1=0, y2=bottom)
        yield _el("text", f"{tick:g}", cls="middle", x=x, y=bottom + 11)


def _fall_in_words(steps: Sequence[tuple[str, float]], name: str, end: float, product: float) -> str:
    told = " × ".join(f"{label} {factor!r}" for label, factor in steps) or "no factor"
    words = f"Exact values: {told} = {end!r}."
    if math.isclose(product, end, rel_tol=1e-9):
        return words
    if product == 0 < end:
        return (
            f"{words} The product is smaller than a float can say; the smallest positive one stands for it."
        )
    return f"{words} The recorded {name} differs from the product of the recorded factors, {product!r}."


# --- grades per day -----------------------------------------------------------------------------------

_BARS_HEIGHT, _BARS_TOP, _BARS_BOTTOM = 190, 10, 168
_BARS_LEFT = 5.0  # percent of the width, for the counts


def grade_bars(*, days: Sequence[tuple[date, int, int, int]], uid: str) -> SafeString:
    """Counts of served hits by grade: one stacked bar for each (day, valid, stale, context invalid)."""
    highest = max((sum(counts) for _, *counts in days), default=0)
    if highest == 0:
        return _no_bars(uid)
    step = tick_step(highest)
    top = math.ceil(highest / step) * step
    width = (100 - _BARS_LEFT) / len(days)
    label_every = math.ceil(len(days) / 7)
    parts: list[SafeString] = [_hatch(uid)]
    for tick in range(0, top + 1, step):
        y = _bars_y(tick, top)
        parts.append(_el("line", cls="grid", x1=_pc(_BARS_LEFT), x2="100%", y1=y, y2=y))
        parts.append(_el("text", _compact(tick), cls="end", x=_pc(_BARS_LEFT - 0.6), y=y + 3.5))
    for i, (day, *counts) in enumerate(days):
        x = _BARS_LEFT + i * width
        parts.append(_bar(day, counts, x=x + width * 0.06, width=width * 0.88, top=top, uid=uid))
        if i % label_every == 0:
            middle = _pc(x + width / 2)
            parts.append(_el("text", f"{day:%d %b}", cls="middle", x=middle, y=_BARS_HEIGHT - 6))
    return _figure(
        uid,
        f"Served hits per day by grade, {days[0][0].isoformat()} to {days[-1][0].isoformat()}",
        _bars_in_words(days),
        *parts,
        cls="viz fluid bars",
        height=_BARS_HEIGHT,
    )


def tick_step(highest: int) -> int:
    """The step of 1, 2 or 5 times a power of ten that gives a count axis at most five steps."""
    power: int = 10 ** max(0, len(str(highest)) - 2)
    return next(step * power for step in (1, 2, 5, 10, 20) if highest <= 5 * step * power)


def _bars_y(count: float, top: int) -> float:
    return _BARS_BOTTOM - (_BARS_BOTTOM - _BARS_TOP) * count / top


def _bar(day: date, counts: Sequence[int], *, x: float, width: float, top: int, uid: str) -> SafeString:
    y = float(_BARS_BOTTOM)
    parts: list[SafeString] = [_el("title", f"{day.isoformat()}: {_counts_in_words(counts)}")]
    for grade, count in zip(GRADES, counts, strict=True):
        if count == 0:
            continue
        height = max(_BARS_BOTTOM - _bars_y(count, top), 1.5)  # one hit among thousands can still be seen
        y -= height
        place = {"x": _pc(x), "y": y, "width": _pc(width), "height": height}
        parts.append(_el("rect", cls=f"bar g-{grade}", **place))
        if grade == "context_invalid":
            parts.append(_el("rect", fill=f"url(#{uid}-hatch)", **place))
    return _el("g", *parts)


def _no_bars(uid: str) -> SafeString:
    return _figure(
        uid,
        "Served hits per day by grade",
        "No hit was served with a grade in this period.",
        _el("line", cls="grid", x1=0, x2="100%", y1=_BARS_BOTTOM, y2=_BARS_BOTTOM),
        _el("text", "No hit was served with a grade in this period.", cls="name middle", x="50%", y=96),
        cls="viz fluid",
        height=_BARS_HEIGHT,
    )


def _counts_in_words(counts: Sequence[int]) -> str:
    return ", ".join(f"{count:,} {GRADE_WORDS[grade]}" for grade, count in zip(GRADES, counts, strict=True))


def _bars_in_words(days: Sequence[tuple[date, int, int, int]]) -> str:
    totals = [sum(column) for column in zip(*(counts for _, *counts in days), strict=True)]
    return f"{sum(totals):,} hits in {len(days)} days: {_counts_in_words(totals)}."


def _compact(count: int) -> str:
    for size, letter in ((1_000_000, "M"), (1_000, "k")):
        if count >= size:
            return f"{count / size:g}{letter}"
    return str(count)


# --- supersession chain -------------------------------------------------------------------------------

_NODE_WIDTH, _NODE_HEIGHT, _NODE_GAP = 204, 62, 30
_MOST_NODES = 5
_GAP_WIDTH = 72


@dataclass(frozen=True, slots=True)
class ChainNode:
    """One link of a chain. `marked`: the one the page is about; `when`: a date, `state`: why it is not current.

    `look` is the grade whose colours it has, where neither current nor replaced says it. No `href`: not a link.
    """

    id: str
    href: str
    when: str
    label: str
    current: bool
    marked: bool
    state: str = "superseded"
    look: str = ""


def chain(*, nodes: Sequence[ChainNode], uid: str) -> SafeString:
    """A linear supersession chain, oldest first, as linked boxes; beyond five the middle is collapsed.

    The first, the last two and the marked nodes stay; "… N more …" stands for each gap. The page lists all.
    """
    shown = _collapsed(nodes)
    x = 2
    parts: list[SafeString] = []
    for place, node in enumerate(shown):
        if place:
            parts.append(_straight(x, x + _NODE_GAP, 2))
            x += _NODE_GAP
        width = _GAP_WIDTH if isinstance(node, int) else _NODE_WIDTH
        parts.append(_gap_box(node, x, 2) if isinstance(node, int) else _node_box(node, x, 2))
        x += width
    return _figure(
        uid,
        "Supersession chain, oldest first",
        f"{len(nodes)} in the chain; each was superseded by the next.",
        *parts,
        role="group",  # an img would hide its links
        cls="viz chain",
        viewBox=f"0 0 {x + 2} {_NODE_HEIGHT + 4}",
        width=x + 2,
        height=_NODE_HEIGHT + 4,
    )


def _collapsed(nodes: Sequence[ChainNode], also: Iterable[int] = ()) -> list[ChainNode | int]:
    """The nodes to draw, with the number of those left out in each gap. A gap of one is drawn instead.

    `also` are places that are kept beside the first, the last two and the marked ones.
    """
    if len(nodes) <= _MOST_NODES:
        return list(nodes)
    last = len(nodes) - 1
    marked = [i for i, node in enumerate(nodes) if node.marked][:2]
    kept = sorted({0, last - 1, last, *marked, *also})
    shown: list[ChainNode | int] = []
    for before, here in zip([-1, *kept], kept, strict=False):
        between = here - before - 1
        if between == 1:
            shown.append(nodes[here - 1])
        elif between:
            shown.append(between)
        shown.append(nodes[here])
    return shown


def _node_box(node: ChainNode, x: int, y: int) -> SafeString:
    look = f"g-{node.look}" if node.look else "g-valid" if node.current else "g-context_invalid old"
    status = [node.when, "current" if node.current else node.state, *(["this one"] if node.marked else [])]
    drawn = [
        _el("title", f"{node.id}: {node.label}"),
        _el(
            "rect",
            cls=f"node {look}{' marked' if node.marked else ''}",
            x=x,
            y=y,
            width=_NODE_WIDTH,
            height=_NODE_HEIGHT,
            rx=6,
        ),
        _el("text", _shorten(node.id, 31), cls="id" if node.href else "name", x=x + 8, y=y + 16),
        _el("text", _shorten(node.label, 28), cls="name", x=x + 8, y=y + 34),
        _el("text", " · ".join(filter(None, status)), x=x + 8, y=y + 52),
    ]
    return _el("a", *drawn, href=node.href) if node.href else _el("g", *drawn)


def _gap_box(left_out: int, x: int, y: int) -> SafeString:
    return _el(
        "text", f"… {left_out} more …", cls="name middle", x=x + _GAP_WIDTH // 2, y=y + _NODE_HEIGHT / 2 + 4
    )


def _straight(start: int, end: int, top: int, *, look: str = "edge") -> SafeString:
    y = top + _NODE_HEIGHT // 2
    return _join(
        _el("path", cls=look, d=f"M{start + 3},{y} H{end - 8}"),
        _el("path", cls="arrow", d=f"M{end - 9},{y - 4} l7,4 l-7,4 z"),
    )


@dataclass(frozen=True, slots=True)
class Arrow:
    """`new` took the place of `old`; voided: until somebody undid it."""

    old: str
    new: str
    voided: bool = False


@dataclass(frozen=True, slots=True)
class _Place:
    """Where something is drawn: its column from the left, its lane from the top, and the pixel it begins at."""

    column: int
    lane: int
    x: int

    @property
    def y(self) -> int:
        return 2 + self.lane * (_NODE_HEIGHT + _LANE_GAP)

    @property
    def middle(self) -> int:
        return self.y + _NODE_HEIGHT // 2


_LANE_GAP = 26
_MOST_BESIDE = 6  # events beside the way of the marked one that are drawn; the page lists all


def succession(
    *, nodes: Sequence[ChainNode], arrows: Sequence[Arrow], uid: str, cycle: bool = False
) -> SafeString:
    """Events and what took whose place, oldest first: the marked one's way in the first lane, branches in others.

    Beyond five the middle of the way is collapsed, but for where branches join it. What was undone is dashed and
    crossed out; a cycle, which only tampering makes, is named.
    """
    way = _way_of(nodes, arrows)
    beside = [node for node in nodes if node.id not in {one.id for one in way}]
    drawn, hidden = beside[:_MOST_BESIDE], len(beside[_MOST_BESIDE:])
    touched = _touched({node.id for node in drawn}, arrows)
    shown = _collapsed(way, [i for i, node in enumerate(way) if node.id in touched])
    columns = _columns_of(shown, drawn, arrows)
    starts, width = _starts(columns)
    places = {key: _Place(column, lane, starts[column]) for key, (column, lane) in columns.items()}
    parts = [*_way_edges(shown, places), *_branch_edges(way, arrows, places)]
    parts += [_item(item, places[_key(i, item)]) for i, item in enumerate(shown)]
    parts += [_item(node, places[node.id]) for node in drawn]
    height = max(place.y for place in places.values()) + _NODE_HEIGHT + 2
    arcs = any(_arches(arrow, places) for arrow in arrows)
    remarks = ["Cycle: the oldest link of it is ignored"] if cycle else []
    remarks += [f"and {hidden} more beside this way"] if hidden else []
    y = height + (_LANE_GAP if arcs else 0)
    for remark in remarks:
        y += 16
        parts.append(_el("text", remark, cls="flag" if remark.startswith("Cycle") else "name", x=4, y=y - 2))
    undone = sum(arrow.voided for arrow in arrows)
    return _figure(
        uid,
        "Supersession chain, oldest first",
        f"{len(nodes)} in the chain, {sum(node.current for node in nodes)} current; "
        f"{len(arrows) - undone} successions hold, {undone} undone.",
        *parts,
        role="group",  # an img would hide its links
        cls="viz chain",
        viewBox=f"0 0 {width} {y + 2}",
        width=width,
        height=y + 2,
    )


def _way_of(nodes: Sequence[ChainNode], arrows: Sequence[Arrow]) -> list[ChainNode]:
    """The marked node's way, from its oldest predecessor to its head, along what holds."""
    known = {node.id: node for node in nodes}
    order = {node.id: place for place, node in enumerate(nodes)}
    holding = [a for a in arrows if not a.voided and a.old in known and a.new in known]
    following = {arrow.old: arrow.new for arrow in holding}
    leading: dict[str, str] = {}
    for arrow in sorted(holding, key=lambda arrow: order[arrow.old]):
        leading[arrow.new] = arrow.old
    start = next((node.id for node in nodes if node.marked), nodes[-1].id)
    way = [start]
    while (after := following.get(way[-1])) is not None and after not in way:
        way.append(after)
    while (before := leading.get(way[0])) is not None and before not in way:
        way.insert(0, before)
    return [known[id_] for id_ in way]


def _touched(ids: set[str], arrows: Iterable[Arrow]) -> set[str]:
    return {
        other
        for arrow in arrows
        for one, other in ((arrow.old, arrow.new), (arrow.new, arrow.old))
        if one in ids
    }


def _key(place: int, item: ChainNode | int) -> str:
    return f"gap {place}" if isinstance(item, int) else item.id


def _columns_of(
    shown: Sequence[ChainNode | int], beside: Sequence[ChainNode], arrows: Sequence[Arrow]
) -> dict[str, tuple[int, int]]:
    """(column, lane) of each thing drawn: a branch stands right of what it took the place of, in a free lane."""
    placed = {_key(i, item): (i, 0) for i, item in enumerate(shown)}
    waiting = [node.id for node in beside]
    while waiting:
        near = _touched(set(placed), arrows)
        id_ = next((id_ for id_ in waiting if id_ in near), waiting[0])
        waiting.remove(id_)
        olds = [placed[a.old][0] for a in arrows if a.new == id_ and a.old in placed]
        news = [placed[a.new][0] for a in arrows if a.old == id_ and a.new in placed]
        column = max(olds) + 1 if olds else min(news) - 1 if news else 0
        lane = 1
        while (column, lane) in placed.values():
            lane += 1
        placed[id_] = (column, lane)
    first = min(column for column, _ in placed.values())
    return {key: (column - first, lane) for key, (column, lane) in placed.items()}


def _starts(columns: Mapping[str, tuple[int, int]]) -> tuple[dict[int, int], int]:
    """The pixel at which each column begins, and the width of them all: a column of gaps alone is narrow."""
    starts, x = {}, 2
    for column in range(max(column for column, _ in columns.values()) + 1):
        starts[column] = x
        keys = [key for key, (at, _) in columns.items() if at == column]
        x += (_GAP_WIDTH if all(key.startswith("gap ") for key in keys) else _NODE_WIDTH) + _NODE_GAP
    return starts, x - _NODE_GAP + 2


def _item(item: ChainNode | int, place: _Place) -> SafeString:
    if isinstance(item, int):
        return _gap_box(item, place.x, place.y)
    return _node_box(item, place.x, place.y)


def _way_edges(shown: Sequence[ChainNode | int], places: Mapping[str, _Place]) -> Iterable[SafeString]:
    for i, item in enumerate(shown[:-1]):
        here, there = places[_key(i, item)], places[_key(i + 1, shown[i + 1])]
        width = _GAP_WIDTH if isinstance(item, int) else _NODE_WIDTH
        yield _straight(here.x + width, there.x, here.y)


def _branch_edges(
    way: Sequence[ChainNode], arrows: Sequence[Arrow], places: Mapping[str, _Place]
) -> Iterable[SafeString]:
    """Every arrow that is not a step of the way itself; of two between the same ends, the one that holds."""
    steps = {(one.id, other.id) for one, other in itertools.pairwise(way)}
    holding = {(arrow.old, arrow.new) for arrow in arrows if not arrow.voided}
    drawn: set[tuple[str, str]] = set()
    for arrow in arrows:
        ends = arrow.old, arrow.new
        if ends in steps | drawn or (arrow.voided and ends in holding):
            continue
        if arrow.old in places and arrow.new in places:
            drawn.add(ends)
            yield _branch_edge(arrow, places)


def _arches(arrow: Arrow, places: Mapping[str, _Place]) -> bool:
    """Whether an arrow goes below the boxes: back, or past others in its own lane."""
    if arrow.old not in places or arrow.new not in places:
        return False
    old, new = places[arrow.old], places[arrow.new]
    return new.column <= old.column or (old.lane == new.lane and new.column > old.column + 1)


def _branch_edge(arrow: Arrow, places: Mapping[str, _Place]) -> SafeString:
    old, new = places[arrow.old], places[arrow.new]
    look = "edge voided" if arrow.voided else "edge"
    if _arches(arrow, places):
        x1, x2 = old.x + _NODE_WIDTH // 2, new.x + _NODE_WIDTH // 2
        y1, y2 = old.y + _NODE_HEIGHT, new.y + _NODE_HEIGHT
        low = max(y1, y2) + _LANE_GAP - 8
        cross = (x1 + x2) // 2, low - 2
        line = _el("path", cls=look, d=f"M{x1},{y1} C{x1},{low} {x2},{low} {x2},{y2 + 8}")
        tip = _el("path", cls="arrow", d=f"M{x2 - 4},{y2 + 9} l4,-7 l4,7 z")
    else:
        x1, x2 = old.x + _NODE_WIDTH + 3, new.x
        cross = (x1 + x2) // 2 - 2, (old.middle + new.middle) // 2 + 4
        bend = (x1 + x2) // 2
        line = _el(
            "path",
            cls=look,
            d=f"M{x1},{old.middle} C{bend},{old.middle} {bend},{new.middle} {x2 - 8},{new.middle}",
        )
        tip = _el("path", cls="arrow", d=f"M{x2 - 9},{new.middle - 4} l7,4 l-7,4 z")
    mark = _el("text", "✕", cls="name middle", x=cross[0], y=cross[1]) if arrow.voided else _NOTHING
    return _join(line, tip, mark)


def _shorten(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"


# --- a memory's time ----------------------------------------------------------------------------------

_SPAN_LANE, _SPAN_TOP = 24, 6
_SPAN_FROM, _SPAN_TO = 32.0, 98.0  # percent of the width: lane names before


@dataclass(frozen=True, slots=True)
class Span:
    """The instants of one memory, and the anchor `at` that it is looked at from."""

    created_at: UnixMs
    at: UnixMs
    weights: Weights
    t_valid: UnixMs | None = None
    t_invalid: UnixMs | None = None
    expires_at: UnixMs | None = None
    superseded_at: UnixMs | None = None


@dataclass(frozen=True, slots=True)
class _Axis:
    start: UnixMs
    end: UnixMs

    def x(self, at: float) -> float:
        at = min(max(at, self.start), self.end)
        return _SPAN_FROM + (_SPAN_TO - _SPAN_FROM) * (at - self.start) / (self.end - self.start)


def timeline(*, span: Span, uid: str) -> SafeString:
    """A memory in time: what its age alone allows, the window in which it holds, its events, the anchor.

    One lane each, so that no two labels can collide. The window is half-open. An instant beyond the axis is
    drawn at its edge with an arrow; its lane names the true date.
    """
    axis = _span_axis(span)
    lanes: list[tuple[str, SafeString]] = [
        ("Grade by age alone", _join(*_span_bands(span, axis, uid))),
        (_window_in_words(span), _span_window(span, axis)),
    ]
    for name, at, look in _span_events(span):
        lanes.append((f"{name} {_day(at)}", _span_mark(at, axis, look)))
    bottom = _SPAN_TOP + _SPAN_LANE * len(lanes)
    parts: list[SafeString] = [_hatch(uid, "context_invalid"), *_span_ticks(axis, bottom)]
    for i, (name, drawing) in enumerate(lanes):
        y = _SPAN_TOP + i * _SPAN_LANE
        parts.append(_el("text", name, cls="name", x=0, y=y + 15))
        parts.append(_el("g", drawing, transform=f"translate(0 {y})"))
    anchor = _pc(axis.x(span.at))
    parts.append(_el("line", cls="anchor", x1=anchor, x2=anchor, y1=0, y2=bottom))
    return _figure(
        uid,
        "This memory in time",
        _span_in_words(span, [name for name, _ in lanes[1:]]),
        *parts,
        cls="viz fluid span",
        height=bottom + 16,
    )


def _span_axis(span: Span) -> _Axis:
    """From the first to the last instant that matters; a bound far outside does not stretch it."""
    thresholds = [span.created_at + band.start for band in age_bands(span.weights)]
    near = [int(at) for at in thresholds if at - span.created_at <= 400 * DAY]
    core = [span.created_at, span.at, *near]
    if span.superseded_at is not None:
        core.append(span.superseded_at)
    start, end = min(core), max(core)
    reach = max(end - start, DAY)
    bounds = [at for at in (span.t_valid, span.t_invalid, span.expires_at) if at is not None]
    close = [at for at in bounds if start - reach <= at <= end + reach]
    start, end = min([start, *close]), max([end, *close])
    margin = max((end - start) // 25, HOUR)
    return _Axis(start - margin, end + margin)


def _span_bands(span: Span, axis: _Axis, uid: str) -> Iterable[SafeString]:
    for band in age_bands(span.weights):
        x, end = axis.x(span.created_at + band.start), axis.x(span.created_at + band.end)
        if end <= x:
            continue
        place = {"x": _pc(x), "y": 2, "width": _pc(end - x), "height": 18}
        yield _el("rect", cls=f"band g-{band.grade}", **place)
        if band.grade == "context_invalid":
            yield _el("rect", fill=f"url(#{uid}-hatch)", **place)
        word = GRADE_WORDS[band.grade]
        if end - x > len(word) + 3:  # about a character per percent at the narrowest
            yield _el("text", word, cls="middle", x=_pc((x + end) / 2), y=15)


def _span_window(span: Span, axis: _Axis) -> SafeString:
    opens = axis.start if span.t_valid is None else span.t_valid
    until = _expiry(span)
    closes = axis.end if until is None else until
    left, right = axis.x(opens), axis.x(closes)
    return _join(
        _el("rect", cls="window", x=_pc(left), y=6, width=_pc(max(right - left, 0.0)), height=10),
        _edge_arrow(left, "◂") if opens < axis.start or span.t_valid is None else _NOTHING,
        _edge_arrow(right, "▸") if closes > axis.end or until is None else _NOTHING,
    )


def _span_mark(at: UnixMs, axis: _Axis, look: str) -> SafeString:
    x = axis.x(at)
    if at < axis.start or at > axis.end:
        return _edge_arrow(x, "◂" if at < axis.start else "▸")
    return _el("circle", cls=f"mark {look}".strip(), cx=_pc(x), cy=11, r=5)


def _edge_arrow(x: float, sign: str) -> SafeString:
    outward = "end" if sign == "◂" else "start"
    return _el("text", sign, cls=f"name {outward}", x=_pc(x), y=15)


def _span_events(span: Span) -> Iterable[tuple[str, UnixMs, str]]:
    yield "Recorded", span.created_at, "g-valid"
    if span.superseded_at is not None:
        yield "Superseded", span.superseded_at, "g-context_invalid"
    expiry = _expiry(span)
    if expiry is not None:
        yield ("Expired" if expiry <= span.at else "Expires"), expiry, "g-context_invalid"
    yield "Seen as of", span.at, ""


def _expiry(span: Span) -> UnixMs | None:
    """The earlier of `t_invalid` and `expires_at`."""
    return min((at for at in (span.t_invalid, span.expires_at) if at is not None), default=None)


def _window_in_words(span: Span) -> str:
    until = _expiry(span)
    since = [] if span.t_valid is None else [f"from {_day(span.t_valid)}"]
    up_to = [] if until is None else [f"to {_day(until)}"]
    return " ".join(["Holds", *since, *up_to]) if since or up_to else "Holds without bounds"


def _span_in_words(span: Span, lanes: Sequence[str]) -> str:
    age = _short_age(max(0, span.at - span.created_at))
    return f"{'; '.join(lanes)}. {age} old then. {_bands_in_words(age_bands(span.weights), span.weights)}"


def _span_ticks(axis: _Axis, bottom: int) -> Iterable[SafeString]:
    for quarter in range(5):
        at = axis.start + (axis.end - axis.start) * quarter // 4
        x = _pc(axis.x(at))
        yield _el("line", cls="grid", x1=x, x2=x, y1=0, y2=bottom)
        yield _el("text", _day(at), cls="end" if quarter == 4 else "middle", x=x, y=bottom + 12)


# --- SVG ----------------------------------------------------------------------------------------------


def _figure(uid: str, title: str, desc: str, *children: SafeString, **attrs: object) -> SafeString:
    """An `<svg>` that says what it shows to those who cannot see it."""
    return _el(
        "svg",
        _el("title", title, id=f"{uid}-t"),
        _el("desc", desc, id=f"{uid}-d"),
        *children,
        **{"role": "img", "aria_labelledby": f"{uid}-t {uid}-d"} | attrs,
    )


def _hatch(uid: str, grade: str | None = None) -> SafeString:
    """The pattern of everything context invalid; with a grade in its colour, for pale grounds."""
    look = "hatch" if grade is None else f"hatch soft g-{grade}"
    size = {"width": 6, "height": 6, "patternUnits": "userSpaceOnUse", "patternTransform": "rotate(45)"}
    line = _el("line", cls=look, x1=0, y1=0, x2=0, y2=6)
    return _el("defs", _el("pattern", line, id=f"{uid}-hatch", **size))


def _el(name: str, *children: str, **attrs: object) -> SafeString:
    """One element, `cls` for `class`. Text and attributes are escaped, children already markup are not."""
    pairs = ((key.replace("cls", "class").replace("_", "-"), _attr(value)) for key, value in attrs.items())
    attributes = format_html_join("", ' {}="{}"', pairs)
    if not children:
        return format_html("<{}{}/>", name, attributes)
    return format_html("<{}{}>{}</{}>", name, attributes, _join(*children), name)


def _join(*parts: str) -> SafeString:
    return format_html_join("", "{}", ((part,) for part in parts))


def _attr(value: object) -> str:
    return f"{value:.1f}" if isinstance(value, float) else str(value)


def _pc(value: float) -> str:
    return f"{value:.2f}%"
