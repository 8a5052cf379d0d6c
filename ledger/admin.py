"""The ledger in the administration: to look at, never to change. Corrections and erasures are new events, which
recall/admin has pages for."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils.module_loading import import_string

from ledger.domain.instants import format_instant
from ledger.models import ContextEvent, Operation, OutboxEntry, OutboxPause, Supersession


class LookOnlyAdmin(admin.ModelAdmin):
    """Rows to look at: none is added, changed or deleted here.

    `workspace_at` is where a row's workspace stands: who was granted some sees the rows of those, as
    settings.LEDGER_READABLE says. None: the rows belong to no workspace.
    """

    workspace_at: str | None = None

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        rows: QuerySet[Any] = super().get_queryset(request)
        readable = import_string(settings.LEDGER_READABLE)(request.user)
        if self.workspace_at is None or readable is None:
            return rows
        return rows.filter(**{f"{self.workspace_at}__in": readable})

    def has_add_permission(self, request: HttpRequest) -> bool:  # noqa: ARG002  Django's signature
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:  # noqa: ARG002
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:  # noqa: ARG002
        return False


@admin.register(ContextEvent)
class ContextEventAdmin(LookOnlyAdmin):
    workspace_at = "workspace"
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
    workspace_at = "event__workspace"
    list_display = ("old_id", "new_id", "event_id", "voided_by_id")
    search_fields = ("old__id", "new__id")
    ordering = ("-id",)


@admin.register(Operation)
class OperationAdmin(LookOnlyAdmin):
    workspace_at = "event__workspace"
    list_display = ("id", "scope", "key", "event_id")
    search_fields = ("id", "key")
    ordering = ("-id",)


@admin.register(OutboxEntry)
class OutboxEntryAdmin(LookOnlyAdmin):
    workspace_at = "workspace"
    list_display = ("id", "kind", "event_id", "workspace", "state", "attempts", "error_code")
    list_filter = ("state", "kind")
    ordering = ("-id",)


@admin.register(OutboxPause)
class OutboxPauseAdmin(LookOnlyAdmin):
    list_display = ("kind", "reason")
