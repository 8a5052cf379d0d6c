"""Erasing a text in the administration, and the tombstones of what was erased."""

from __future__ import annotations

from dataclasses import asdict

from django import forms
from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import URLPattern, path

from ledger.admin import LookOnlyAdmin
from ledger.clock import now_ms
from ledger.domain.hashchain import digest
from ledger.domain.instants import format_instant
from ledger.domain.refusals import Refused
from ledger.models import Tombstone
from recall import erasure
from recall.people import caller_of


class EraseForm(forms.Form):
    """What to erase and why. `seen` is the digest of the dry run that was shown."""

    id = forms.CharField(
        label="Id", max_length=32, help_text="Of a context event (evt_…) or a memory (mem_…)."
    )
    reason = forms.CharField(
        max_length=2_000, help_text="Why. It is kept for good, so name nobody in it.", widget=forms.Textarea
    )
    seen = forms.CharField(required=False, widget=forms.HiddenInput)


@admin.register(Tombstone)
class TombstoneAdmin(LookOnlyAdmin):
    """What was erased, by whom, when and why; and the page on which a superuser erases a text."""

    workspace_at = "event__workspace"
    list_display = ("event_id", "actor_label", "when", "reason")
    search_fields = ("event__id", "event__subject_id")
    ordering = ("-erased_at",)
    change_list_template = "admin/tombstones.html"

    @admin.display(description="erased (UTC)", ordering="erased_at")
    def when(self, tombstone: Tombstone) -> str:
        return format_instant(tombstone.erased_at)

    def get_urls(self) -> list[URLPattern]:
        erase = path("erase/", self.admin_site.admin_view(self.erase), name="ledger_tombstone_erase")
        return [erase, *super().get_urls()]

    def erase(self, request: HttpRequest) -> HttpResponse:
        """First the dry run; the same once more erases, unless what it would erase has changed since it was shown."""
        if not (request.user.is_active and request.user.is_superuser):
            raise PermissionDenied
        form = EraseForm(request.POST if request.method == "POST" else None, initial=request.GET.dict())
        found = None
        if form.is_valid():
            caller, asked = caller_of(request.user), form.cleaned_data
            try:
                found = erasure.survey(asked["id"], caller=caller)
                shown = digest({"where": asdict(found)})
                if asked["seen"] == shown:
                    erasure.erase(found.id, caller=caller, at=now_ms(), reason=asked["reason"])
                    self.message_user(
                        request,
                        f"The text of {found.id} was erased. Rid the files of it: manage.py erase --compact.",
                    )
                    return redirect("admin:ledger_tombstone_changelist")
                form = EraseForm(initial={**asked, "seen": shown})
            except Refused as refusal:
                form.add_error(refusal.field if refusal.field in form.fields else None, refusal.message)
        context = {
            **self.admin_site.each_context(request),
            "title": "Erase a text",
            "form": form,
            "found": found,
        }
        return render(request, "admin/erase.html", context)
