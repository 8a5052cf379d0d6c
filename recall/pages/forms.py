"""Forms of the pages. They read what was typed; what it means is decided by recall.shapes, as for every surface."""

from __future__ import annotations

from typing import Any

from django import forms

from ledger.domain.instants import NotAnInstant, UnixMs, parse_instant
from ledger.domain.refusals import Refused
from recall.domain.request import MAX_LIMIT, OUTCOMES, TAGS_MATCH, RecallRequest
from recall.domain.validity import GRADES
from recall.shapes import RecallBody, parse

GRADE_CHOICES = [("", "Any grade"), *((name, name.replace("_", " ").capitalize()) for name in GRADES)]
ANY_WORKSPACE = "*"
GLOBAL_WORKSPACE = "-"


def workspace_choices(names: list[str]) -> list[tuple[str, str]]:
    """Every workspace, the global one, and each by name (`""` cannot stand for global in a form: it reads as none)."""
    named = [(name, name) for name in names if name]
    return [(ANY_WORKSPACE, "Every workspace I may read"), (GLOBAL_WORKSPACE, "Global only"), *named]


class InstantField(forms.CharField):
    """An RFC 3339 instant in a text field: a date-and-time input would speak the browser's locale and hide the zone."""

    widget = forms.TextInput(attrs={"class": "mono", "placeholder": "2026-11-30T13:58:02Z", "size": "24"})

    def clean(self, value: Any) -> UnixMs | None:
        text = super().clean(value)
        if not text:
            return None
        try:
            return parse_instant(text)
        except NotAnInstant as error:
            raise forms.ValidationError(str(error)) from error


MODES = [
    ("fused", "Everything: words, meaning, links, time"),
    ("hybrid", "Words and meaning"),
    ("lexical", "Words only"),
    ("dense", "Meaning only"),
    ("links", "Links only"),
    ("temporal", "Time only"),
]


class AsOfForm(forms.Form):
    """The instant at which a memory is looked at."""

    at = InstantField(label="As of (UTC)", required=False)


class RecallForm(forms.Form):
    """A question to the vault: first what is always chosen, then what mostly stays as it is."""

    FIRST = ("query", "workspace", "mode", "profile")

    query = forms.CharField(
        label="Question",
        required=False,
        widget=forms.Textarea(attrs={"rows": 2, "data-search": ""}),
        help_text="Words, as an agent would ask. May stay empty where tags or a category are named.",
    )
    workspace = forms.ChoiceField(label="Workspace")
    mode = forms.ChoiceField(label="Look by", choices=MODES, initial="fused")
    profile = forms.ChoiceField(
        choices=[("validity", "validity: re-rank and grade"), ("default", "default: by relevance alone")],
        initial="validity",
        help_text="Validity re-ranks where everything is looked by; otherwise it grades and leaves the order.",
    )
    state = forms.ChoiceField(
        label="What to serve",
        choices=[
            ("current", "Current state: what is no longer true is left out"),
            ("history", "History: everything, marked"),
        ],
        initial="current",
    )
    query_time = InstantField(
        label="As of (UTC)",
        required=False,
        help_text="Empty means now. At a past instant, what was stored or linked later is not seen.",
    )
    tags = forms.CharField(required=False, help_text="Separated by commas.")
    tags_match = forms.ChoiceField(
        label="Tags match", choices=[(name, name) for name in TAGS_MATCH], initial="any_strict"
    )
    category = forms.CharField(required=False)
    limit = forms.IntegerField(min_value=1, max_value=MAX_LIMIT, initial=10)

    def __init__(self, *args: Any, workspaces: list[str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        field = self.fields["workspace"]
        assert isinstance(field, forms.ChoiceField)
        field.choices = workspace_choices(workspaces)
        field.initial = ANY_WORKSPACE

    @property
    def first(self) -> list[forms.BoundField]:
        return [self[name] for name in self.FIRST]

    @property
    def rest(self) -> list[forms.BoundField]:
        return [field for field in self if field.name not in self.FIRST]

    @property
    def rest_matters(self) -> bool:
        """Whether something in the rest is in error, or not as it begins."""
        return any(
            field.errors or str(field.value() or "") != str(field.field.initial or "") for field in self.rest
        )

    @property
    def fields_in_error(self) -> list[forms.BoundField]:
        return [field for field in self if field.errors]

    def request(self) -> RecallRequest | None:
        """The checked request, or None with the errors put beside their fields."""
        if not self.is_valid():
            return None
        asked = self.cleaned_data
        body: dict[str, Any] = {
            "query": asked["query"],
            "workspace": {ANY_WORKSPACE: None, GLOBAL_WORKSPACE: ""}.get(
                asked["workspace"], asked["workspace"]
            ),
            "mode": asked["mode"],
            "profile": asked["profile"],
            "validity_annotate": True,
            "state_mode": asked["state"],
            "state_debug": True,
            "query_time_unix_ms": asked["query_time"],
            "tags": [tag.strip() for tag in asked["tags"].split(",") if tag.strip()],
            "tags_match": asked["tags_match"],
            "category": asked["category"] or None,
            "limit": asked["limit"],
            "trace": True,
        }
        try:
            return parse(RecallBody, body).request()
        except Refused as refusal:
            self.add_refusal(refusal)
            return None

    def add_refusal(self, refusal: Refused) -> None:
        names = {"query_time_unix_ms": "query_time", "state_mode": "state"}
        name = names.get(refusal.field or "", refusal.field)
        if name in self.fields:
            self.add_error(name, refusal.message)
        else:
            self.add_error(None, f"{refusal.field}: {refusal.message}" if refusal.field else refusal.message)


class RecallFilter(forms.Form):
    """The filters of the list of recalls."""

    q = forms.CharField(
        label="Question contains", required=False, widget=forms.SearchInput(attrs={"data-search": ""})
    )
    actor = forms.CharField(label="Who", required=False)
    profile = forms.ChoiceField(
        choices=[("", "Any profile"), ("default", "default"), ("validity", "validity")], required=False
    )
    grade = forms.ChoiceField(label="Served a hit graded", choices=GRADE_CHOICES, required=False)
    outcome = forms.ChoiceField(
        choices=[("", "Any outcome"), *((name, name.capitalize()) for name in OUTCOMES)],
        required=False,
    )
    warning = forms.ChoiceField(
        choices=[
            ("", "Any, or none"),
            ("replacement_inactive", "Replacement inactive"),
            ("supersession_cycle", "Cycle"),
            ("chain_too_long", "Chain too long"),
            ("rerank_unavailable", "Rerank unavailable"),
            ("candidates_cut", "Candidates cut"),
        ],
        required=False,
    )


class MemoryFilter(forms.Form):
    """The filters of the list of memories."""

    q = forms.CharField(
        label="Text contains", required=False, widget=forms.SearchInput(attrs={"data-search": ""})
    )
    workspace = forms.ChoiceField(required=False)
    tag = forms.CharField(required=False)
    state = forms.ChoiceField(
        choices=[("current", "Current"), ("all", "All, also what is not current")], required=False
    )

    def __init__(self, *args: Any, workspaces: list[str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        field = self.fields["workspace"]
        assert isinstance(field, forms.ChoiceField)
        field.choices = workspace_choices(workspaces)


class LedgerFilter(forms.Form):
    """What the ledger is searched for, beside its facets."""

    q = forms.CharField(
        label="Text or reason contains, or an id",
        required=False,
        max_length=200,
        widget=forms.SearchInput(attrs={"data-search": ""}),
    )
    workspace = forms.ChoiceField(required=False)

    def __init__(self, *args: Any, workspaces: list[str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        field = self.fields["workspace"]
        assert isinstance(field, forms.ChoiceField)
        field.choices = workspace_choices(workspaces)
