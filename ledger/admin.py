"""The ledger in the administration: to look at, never to change. Corrections and erasures are new events, which
recall/admin has pages for."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.http import HttpRequest
from django.urls import reverse

from ledger.domain.instants import format_instant
from ledger.models import ContextEvent, Operation, OutboxEntry, OutboxPause, Supersession


class LookOnlyAdmin(admin.ModelAdmin):
    """Rows to look at: none is added, changed or deleted here."""

    def has_add_permission(self, request: HttpRequest) -> bool:  # noqa: ARG002  Django's signature
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:  # noqa: ARG002
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:  # noqa: ARG002
        return False


@admin.register(ContextEvent)
class ContextEventAdmin(LookOnlyAdmin):
    list_display = ("seq", "kind", "workspace", "actor_label", "subject_id", "recorded")
    list_filter = ("kind",)
    search_fields = ("id", "subject_id")
    ordering = ("-seq",)
    change_form_template = "admin/event.html"

    def view_on_site(self, event: ContextEvent) -> str:
        return reverse("event", args=[event.id])

    @admin.display(description="recorded (UTC)", ordering="recorded_at")
    def recorded(self, event: ContextEvent) -> str:
        return format_instant(event.recorded_at)


@admin.register(Supersession)
class SupersessionAdmin(LookOnlyAdmin):
    list_display = ("old_id", "new_id", "event_id", "voided_by_id")
    search_fields = ("old__id", "new__id")
    ordering = ("-id",)


@admin.register(Operation)
class OperationAdmin(LookOnlyAdmin):
    list_display = ("id", "scope", "key", "event_id")
    search_fields = ("id", "key")
    ordering = ("-id",)


@admin.register(OutboxEntry)
class OutboxEntryAdmin(LookOnlyAdmin):
    list_display = ("id", "kind", "event_id", "workspace", "state", "attempts", "error_code")
    list_filter = ("state", "kind")
    ordering = ("-id",)


@admin.register(OutboxPause)
class OutboxPauseAdmin(LookOnlyAdmin):
    list_display = ("kind", "reason")
