"""Recording a correction of a context event: a form, a preview computed here, and then one new event."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from ledger.clock import now_ms
from ledger.models import ContextEvent
from ledger.wording import in_words
from recall.corrections import CorrectionForm, Submitted, correctable, recalls_touched, submit
from recall.pages.access import show, signed_in
from recall.pages.rationale import drawing_of
from vault.services import Caller


@require_http_methods(["GET", "POST"])
@signed_in
def correction_new(request: HttpRequest, event_id: str, *, caller: Caller) -> HttpResponse:
    """GET shows the form; POST previews, and with `do=record` records what was previewed and goes to the new event."""
    event = correctable(event_id, caller.reach)
    if request.method != "POST":
        form = CorrectionForm.opened(kind=request.GET.get("kind", ""))
        return _shown(request, event, form, Submitted(), caller=caller)
    form = CorrectionForm(request.POST)
    record = request.POST.get("do") == "record"
    submitted = submit(form, event, caller=caller, at=now_ms(), record=record)
    if submitted.made is not None:
        return HttpResponseRedirect(reverse("event", args=[submitted.made.id]), status=303)
    return _shown(request, event, form, submitted, caller=caller)


def _shown(
    request: HttpRequest, event: ContextEvent, form: CorrectionForm, submitted: Submitted, *, caller: Caller
) -> HttpResponse:
    context: dict[str, Any] = {
        "section": "ledger",
        "event": event,
        "words": in_words(event.kind),
        "form": form,
        "fields": [form[name] for name in ("kind", "text", "successor", "reason")],
        "outdated": submitted.outdated,
    }
    preview = submitted.preview
    if preview is not None:
        refused = {(refusal.code, refusal.message) for refusal in preview.refusals}
        context |= {
            "preview": preview,
            "warnings": [warning for warning in preview.warnings if warning not in refused],
            "touched": recalls_touched(preview, caller.reach),
            "before": drawing_of(event.id, preview.chain_before, uid="before"),
            "after": drawing_of(event.id, preview.chain_after, uid="after"),
        }
    status = 422 if form.errors else 200
    return show(request, "correction_new.html", context, part="correction", status=status)
