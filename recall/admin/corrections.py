"""Corrections in the administration: what was corrected, and recording one more after a preview."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.db.models import OuterRef, QuerySet, Subquery
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.text import Truncator, capfirst

from ledger.admin import LookOnlyAdmin
from ledger.clock import now_ms
from ledger.domain.events import CORRECTION_RESTORE, CORRECTIONS
from ledger.domain.refusals import Refused
from ledger.models import ContextEvent, Correction
from ledger.wording import in_words
from recall.corrections import ID, CorrectionForm, Submitted, correctable, recalls_touched, submit
from recall.pages.rationale import nodes_of
from recall.pages.templatetags.audit import instant
from recall.people import caller_of


class TargetedForm(CorrectionForm):
    """A correction with the event that it is about. The actor is whoever is signed in, and no field."""

    target = forms.CharField(
        label="Event",
        widget=ID,
        max_length=64,
        help_text="The context event to correct: its id, which begins with evt_.",
    )
    field_order = ("target", "kind", "text", "successor", "reason")


@admin.register(Correction)
class CorrectionAdmin(LookOnlyAdmin):
    """Every correction, and whether a later one undid it. One is added as on an event's page: form, preview, event."""

    workspace_at = "workspace"
    list_display = ("id", "what", "subject_id", "actor_label", "recorded", "undone", "why")
    search_fields = ("id", "subject_id", "object_id")
    ordering = ("-seq",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        undoing = ContextEvent.objects.filter(kind=CORRECTION_RESTORE, object_id=OuterRef("id"))
        rows: QuerySet[Any] = super().get_queryset(request).filter(kind__in=CORRECTIONS)
        annotated: QuerySet[Any] = rows.annotate(
            undone_by=Subquery(undoing.order_by("-seq").values("id")[:1])
        )
        return annotated

    def view_on_site(self, correction: Correction) -> str:
        return reverse("event", args=[correction.id])

    @admin.display(description="kind", ordering="kind")
    def what(self, correction: Correction) -> str:
        return in_words(correction.kind)

    @admin.display(description="recorded (UTC)", ordering="recorded_at")
    def recorded(self, correction: Correction) -> str:
        return instant(correction.recorded_at)

    @admin.display(description="undone by", empty_value="–")
    def undone(self, correction: Any) -> str | None:
        by: str | None = correction.undone_by
        return by

    @admin.display(description="reason")
    def why(self, correction: Correction) -> str:
        return Truncator(correction.reason).chars(60)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.is_active and request.user.has_perm("ledger.add_correction"))

    def add_view(self, request: HttpRequest, form_url: str = "", extra_context: Any = None) -> HttpResponse:  # noqa: ARG002  Django's signature
        """GET shows the form; POST previews, and with `_record` records what was previewed."""
        if not self.has_add_permission(request):
            raise PermissionDenied
        if request.method != "POST":
            form = TargetedForm.opened(target=request.GET.get("event", ""), kind=request.GET.get("kind", ""))
            return self._shown(request, form, Submitted())
        form = TargetedForm(request.POST)
        submitted = _submit(form, request)
        if submitted.made is None:
            return self._shown(request, form, submitted)
        self.message_user(request, f"{in_words(submitted.made.kind)}: {submitted.made.id} was recorded.")
        if self.has_view_permission(request):
            return redirect("admin:ledger_correction_changelist")
        return redirect("event", submitted.made.id)

    def _shown(self, request: HttpRequest, form: TargetedForm, submitted: Submitted) -> HttpResponse:
        context: dict[str, Any] = {
            **self.admin_site.each_context(request),
            "title": "Record a correction",
            "opts": self.opts,
            "form": form,
            "outdated": submitted.outdated,
        }
        preview = submitted.preview
        if preview is not None:
            target = form.cleaned_data["target"]
            context |= {
                "preview": preview,
                "touched": recalls_touched(preview, caller_of(request.user).reach),
                "chains": [
                    ("The chain now", nodes_of(target, preview.chain_before)),
                    ("The chain after it", nodes_of(target, preview.chain_after)),
                ],
            }
        return render(request, "admin/correction.html", context, status=422 if form.errors else 200)


def _submit(form: TargetedForm, request: HttpRequest) -> Submitted:
    caller = caller_of(request.user)
    if not form.is_valid():
        return Submitted()
    try:
        event = correctable(form.cleaned_data["target"], caller.reach)
    except Refused as refusal:
        form.add_error("target", f"{capfirst(refusal.message)}.")
        return Submitted()
    return submit(form, event, caller=caller, at=now_ms(), record="_record" in request.POST)
