"""The ledger in the administration: to look at, never to change."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.http import HttpRequest

from ledger.domain.instants import format_instant
from ledger.models import ContextEvent


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

    @admin.display(description="recorded (UTC)", ordering="recorded_at")
    def recorded(self, event: ContextEvent) -> str:
        return format_instant(event.recorded_at)
