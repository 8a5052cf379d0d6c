"""The first page: is recall healthy today?"""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_safe

from ledger.clock import now_ms
from ledger.queries import outbox_summary
from recall.pages.access import show, signed_in
from recall.pages.charts import grade_bars
from recall.pages.outbox import sentence
from recall.queries import overview as overview_of
from recall.queries import recalls_to_look_at
from vault.services import Caller


@require_safe
@signed_in
def overview(request: HttpRequest, *, caller: Caller) -> HttpResponse:
    at = now_ms()
    numbers = overview_of(caller.reach, at=at)
    outbox = outbox_summary(caller.reach.workspaces)
    return show(
        request,
        "overview.html",
        {
            "section": "overview",
            "numbers": numbers,
            "bars": grade_bars(days=numbers.days, uid="grades"),
            "outbox": outbox,
            "delivery": sentence(outbox, at=at),
            "attention": recalls_to_look_at(caller.reach, at=at),
        },
    )
