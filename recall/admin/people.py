"""People and keys: who may see which workspace, and which keys exist (`create_api_key` makes them)."""

from __future__ import annotations

from django.contrib import admin
from django.contrib.auth.admin import UserAdmin
from django.contrib.auth.models import User
from django.db.models import QuerySet
from django.http import HttpRequest

from ledger.admin import LookOnlyAdmin
from ledger.clock import now_ms
from ledger.domain.instants import format_instant
from recall.models import ApiKey, WorkspaceGrant


class GrantInline(admin.TabularInline):
    model = WorkspaceGrant
    extra = 0


admin.site.unregister(User)


@admin.register(User)
class UserWithGrantsAdmin(UserAdmin):
    """Django's users, with the workspaces they may see beside them."""

    inlines = (GrantInline,)


@admin.register(ApiKey)
class ApiKeyAdmin(LookOnlyAdmin):
    """Keys to look at and to revoke. None is made here: a secret is shown once, to whoever runs the command."""

    list_display = ("name", "prefix", "scopes", "bound_to", "made", "used", "state")
    search_fields = ("name", "prefix")
    actions = ("revoke",)

    def has_revoke_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.is_active and request.user.is_superuser)

    @admin.action(description="Revoke the selected keys", permissions=["revoke"])
    def revoke(self, request: HttpRequest, keys: QuerySet[ApiKey]) -> None:
        revoked = keys.filter(revoked_at=None).update(revoked_at=now_ms())
        self.message_user(request, f"{revoked} revoked; requests with them are refused from now on.")

    @admin.display(description="workspace")
    def bound_to(self, key: ApiKey) -> str:
        return "every" if key.workspace is None else key.workspace or "global"

    @admin.display(description="made (UTC)")
    def made(self, key: ApiKey) -> str:
        return format_instant(key.created_at)

    @admin.display(description="last used (UTC)")
    def used(self, key: ApiKey) -> str:
        return "never" if key.last_used_at is None else format_instant(key.last_used_at)

    @admin.display(description="state")
    def state(self, key: ApiKey) -> str:
        if key.revoked_at is not None:
            return f"revoked {format_instant(key.revoked_at)}"
        return "usable" if key.usable_at(now_ms()) else "expired"
