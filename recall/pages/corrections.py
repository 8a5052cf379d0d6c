"""Recording a correction of a context event: a form, a preview computed here, and then one new event."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

from django import forms
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.safestring import SafeString
from django.views.decorators.http import require_http_methods

from ledger import services
from ledger.clock import now_ms
from ledger.domain.events import DELIVERED
from ledger.domain.refusals import Forbidden, NotFound, Refused
from ledger.models import ContextEvent
from ledger.services import Preview
from ledger.wording import in_words
from recall.context import Touched, recalls_touched
from recall.pages.access import show, signed_in
from recall.pages.ledger import readable
from recall.pages.rationale import drawing_of
from vault.domain.access import Reach
from vault.services import Caller

KINDS = {
    "supersede": "Supersede: something else holds now",
    "retract": "Retract: it should never have been said, and nothing stands in its place",
    "link": "Link a missing supersession: another event has taken its place",
    "annotate": "Annotate: a remark that changes nothing",
    "restore": "Restore: undo an earlier correction",
}
REFUSED_FIELDS = {"supersedes_context_id": "successor"}


class CorrectionForm(forms.Form):
    """What somebody corrects, and why. The actor is whoever is signed in, and no field."""

    kind = forms.ChoiceField(label="What kind of correction", choices=list(KINDS.items()))
    text = forms.CharField(
        label="What holds instead",
        required=False,
        widget=forms.Textarea(attrs={"rows": 3}),
        help_text="For supersede and annotate; left empty, the reason stands for it.",
    )
    successor = forms.CharField(
        label="Successor",
        required=False,
        max_length=64,
        help_text="For link, and where an event that exists supersedes: its id, which begins with evt_.",
    )
    reason = forms.CharField(
        label="Reason",
        widget=forms.Textarea(attrs={"rows": 3}),
        help_text="At least 10 characters. It stays in the ledger for good.",
    )
    key = forms.CharField(widget=forms.HiddenInput, max_length=200)

    def asked(self, caller: Caller) -> dict[str, Any]:
        """The arguments of `services.preview` and `services.correct`, but for key and time."""
        given: Mapping[str, Any] = self.cleaned_data
        return {
            "kind": given["kind"],
            "reason": given["reason"],
            "text": given["text"] or None,
            "successor": given["successor"] or None,
            "actor": caller.actor,
            "readable": caller.reach.reads,
            "writable": caller.reach.writes,
        }

    def add_refusal(self, refusal: Refused) -> None:
        if (
            refusal.code == "idempotency_conflict"
        ):  # sent before, and changed since: it is another correction now
            self.data = {name: self.data.get(name) for name in self.fields} | {"key": secrets.token_hex(16)}
        field = REFUSED_FIELDS.get(refusal.field or "", refusal.field)
        self.add_error(field if field in self.fields else None, refusal.message)


@require_http_methods(["GET", "POST"])
@signed_in
def correction_new(request: HttpRequest, event_id: str, *, caller: Caller) -> HttpResponse:
    """GET shows the form; POST previews, and with `do=record` records and goes to the new event."""
    event = _correctable(event_id, caller.reach)
    if request.method != "POST":
        form = CorrectionForm(initial={"kind": request.GET.get("kind", ""), "key": secrets.token_hex(16)})
        return _shown(request, event, form)
    form = CorrectionForm(request.POST)
    if not form.is_valid():
        return _shown(request, event, form, status=422)
    try:
        if request.POST.get("do") == "record":
            made = services.correct(event.id, key=form.cleaned_data["key"], at=now_ms(), **form.asked(caller))
            return HttpResponseRedirect(reverse("event", args=[made.id]), status=303)
        preview = services.preview(event.id, at=now_ms(), **form.asked(caller))
    except Refused as refusal:
        form.add_refusal(refusal)
        return _shown(request, event, form, status=422)
    return _shown(request, event, form, preview=preview, reach=caller.reach)


def _correctable(event_id: str, reach: Reach) -> ContextEvent:
    event = readable(reach).filter(id=event_id, kind__in=DELIVERED).first()
    if event is None:
        raise NotFound(f"no context event {event_id}", hint="ids begin with evt_")
    if not reach.writes(event.workspace):
        raise Forbidden("only a curator of its workspace may correct an event")
    return event


def _shown(
    request: HttpRequest,
    event: ContextEvent,
    form: CorrectionForm,
    *,
    preview: Preview | None = None,
    reach: Reach | None = None,
    status: int = 200,
) -> HttpResponse:
    context: dict[str, Any] = {
        "section": "ledger",
        "event": event,
        "words": in_words(event.kind),
        "form": form,
        "fields": [form[name] for name in ("kind", "text", "successor", "reason")],
        "key_errors": form["key"].errors,
    }
    if preview is not None and reach is not None:
        context |= _previewed(event, preview, recalls_touched(preview, reach))
    return show(request, "correction_new.html", context, status=status)


def _previewed(event: ContextEvent, preview: Preview, touched: Touched) -> dict[str, Any]:
    return {
        "preview": preview,
        "touched": touched,
        "before": _drawing(event, preview, "before"),
        "after": _drawing(event, preview, "after"),
    }


def _drawing(event: ContextEvent, preview: Preview, when: str) -> SafeString | None:
    chain = preview.chain_before if when == "before" else preview.chain_after
    return drawing_of(event.id, chain, uid=when)
