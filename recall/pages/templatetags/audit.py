"""Template tags of the pages: one spelling for instants, ages and scores, one look for grades and states.

Icons and words come in pairs; a colour never speaks alone (static/css/app.css).
"""

from __future__ import annotations

from django import template
from django.template.defaultfilters import floatformat
from django.templatetags.static import static
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from ledger.domain.instants import DAY, HOUR, MINUTE, SECOND, UnixMs, format_instant
from recall.pages.charts import spell
from recall.pages.origins import Part, Source

register = template.Library()

NOT_KNOWN = "–"

GRADES = {
    "valid": ("Valid", "check"),
    "stale": ("Stale", "triangle"),
    "context_invalid": ("Context invalid", "octagon-cross"),
    "ungraded": ("Ungraded", "dash-circle"),
}

STATES = {
    "current": ("Current", "check", "valid"),
    "archived": ("Archived", "archive", "ungraded"),
    "not_yet_valid": ("Not yet valid", "not-yet", "ungraded"),
    "expired": ("Expired", "hourglass", "context_invalid"),
    "deprecated": ("Deprecated", "history", "context_invalid"),
    "superseded": ("Superseded", "history", "context_invalid"),
    "erased": ("Erased", "eraser", "ungraded"),
    "replacement_erased": ("Replacement erased", "eraser", "context_invalid"),
}


@register.filter
def instant(at: UnixMs | None) -> str:
    """`2026-11-30 13:58:02Z`: to the second, for reading; `moment` keeps the milliseconds."""
    if at is None:
        return NOT_KNOWN
    return format_instant(at - at % SECOND).replace("T", " ")


@register.filter
def day(at: UnixMs | None) -> str:
    """`2026-11-30`, in UTC."""
    return instant(at).split(" ")[0]


@register.simple_tag
def moment(at: UnixMs | None) -> SafeString:
    """A `<time>` whose text is `instant` and whose machine form is exact."""
    if at is None:
        return SafeString(NOT_KNOWN)
    return format_html('<time class="mono nowrap" datetime="{}">{}</time>', format_instant(at), instant(at))


@register.filter
def age(length_ms: UnixMs | None) -> str:
    """A length of time in whole units, never rounded up: `6 days`, `3 h`, `12 min`, `40 s`."""
    if length_ms is None:
        return NOT_KNOWN
    length_ms = max(0, length_ms)
    if length_ms >= 2 * DAY:
        return f"{length_ms // DAY:,} days"
    for unit, name in ((HOUR, "h"), (MINUTE, "min")):
        if length_ms >= unit:
            return f"{length_ms // unit} {name}"
    return f"{length_ms // SECOND} s"


@register.filter
def score(value: float | None) -> str:
    """The one rounding of scores, factors and freshness; floats in JSON stay exact."""
    return NOT_KNOWN if value is None else spell(value)


@register.filter
def words(code: str) -> str:
    """A code of the API as people read it: `supersession_cycle` as Supersession cycle."""
    return code.replace("_", " ").capitalize()


@register.filter
def count(number: int) -> str:
    """`1,204`."""
    return f"{number:,}"


@register.filter
def short_id(id_: str) -> str:
    """`evt_…rzgcw3m`, for a link in a narrow place: what is made at one time begins alike and ends by chance."""
    return f"{id_[:4]}…{id_[-7:]}"


@register.simple_tag
def icon(name: str) -> SafeString:
    """A drawing of static/icons.svg beside a word; never alone, for it has no name of its own."""
    return format_html(
        '<svg class="icon" aria-hidden="true"><use href="{}#i-{}"/></svg>', static("icons.svg"), name
    )


@register.simple_tag
def grade_badge(grade: str | None) -> SafeString:
    """The badge of a grade; None and "" are Ungraded."""
    word, drawing = GRADES[grade or "ungraded"]
    return _badge(word, drawing, grade or "ungraded")


@register.filter
def grade_class(grade: str | None) -> str:
    """The class that lends its colours and border to whatever carries it."""
    return f"g-{grade or 'ungraded'}"


@register.filter
def grade_word(grade: str | None) -> str:
    """Valid, Stale, Context invalid or Ungraded."""
    return GRADES[grade or "ungraded"][0]


@register.simple_tag
def state_badge(reason: str | None) -> SafeString:
    """The badge of a state: None means current, else the one reason why not."""
    return _badge(*STATES[reason or "current"])


def _badge(word: str, drawing: str, grade: str) -> SafeString:
    return format_html('<span class="badge g-{}">{}{}</span>', grade, icon(drawing), word)


@register.simple_tag
def reason(source: Source) -> SafeString:
    """Why a strategy found a memory, with ids as links: a tag, for inside a sentence no blank may follow it."""
    if not source.parts:
        return format_html("score {}", floatformat(source.score, "-3"))
    return format_html_join("", "{}", ((_part(part),) for part in source.parts))


def _part(part: Part) -> str | SafeString:
    if not part.is_memory:
        return part.text
    link = format_html('<a class="mono" href="{}">{}</a>', reverse("memory", args=[part.text]), part.text)
    return format_html("{} (hit {})", link, part.position) if part.position else link
