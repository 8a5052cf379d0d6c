"""The outbox: what still has to reach the memory bank, what the bank refused, and asking for it again."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_POST, require_safe

from ledger import services
from ledger.clock import now_ms
from ledger.domain.instants import MINUTE, UnixMs
from ledger.domain.outbox import ERASED, FAILED, OPEN, STATES
from ledger.domain.refusals import Forbidden, Invalid, NotFound
from ledger.models import OutboxEntry
from ledger.queries import OutboxSummary, outbox_entries, outbox_summary
from recall.pages.access import show, signed_in
from vault.domain.access import Reach
from vault.domain.values import check_choice
from vault.services import Caller

PAGE = 50
_ALL_DELIVERED = "Everything that was recorded has reached the memory bank."
RETRIED = (*OPEN, FAILED)  # what was delivered is not sent again


@require_safe
@signed_in
def outbox_page(request: HttpRequest, *, caller: Caller) -> HttpResponse:
    state = request.GET.get("state", "")
    if state:
        check_choice(state, STATES, field="state")
    workspaces = caller.reach.workspaces
    entries = outbox_entries(workspaces, state=state or None, before=_before(request), limit=PAGE + 1)
    summary = outbox_summary(workspaces)
    context = {
        "section": "outbox",
        "state": state,
        "summary": summary,
        "sentence": sentence(summary, at=now_ms()),
        "facets": [(name, getattr(summary, name)) for name in STATES],
        "rows": [(entry, _may_retry(entry, caller.reach)) for entry in entries[:PAGE]],
        "older": entries[PAGE - 1].id if len(entries) > PAGE else None,
        "may_resume": caller.reach.sees_all and caller.reach.writable is None,
    }
    return show(request, "outbox.html", context, part="results")


def _before(request: HttpRequest) -> int | None:
    given = request.GET.get("before", "")
    if not given:
        return None
    if not (given.isascii() and given.isdigit() and len(given) < 19):
        raise Invalid("before must be the number of an entry", field="before")
    return int(given)


def sentence(summary: OutboxSummary, *, at: UnixMs) -> str:
    """The queue as an auditor would write it."""
    waiting, age = summary.waiting, summary.oldest_age(at=at)
    told = []
    if waiting:
        told.append(f"{_events(waiting)} to be delivered; the oldest has waited for {_age(age or 0)}.")
    if summary.refused:
        told.append(f"{_events(summary.refused, 'was', 'were')} refused by the memory bank.")
    if summary.taken_back:
        told.append(f"{_events(summary.taken_back, 'was', 'were')} erased before delivery.")
    if not waiting and not summary.refused:
        told.append(
            "Everything else that was recorded has reached the memory bank." if told else _ALL_DELIVERED
        )
    return " ".join(told)


def _events(count: int, one: str = "waits", many: str = "wait") -> str:
    return f"1 event {one}" if count == 1 else f"{count:,} events {many}"


def _age(ms: UnixMs) -> str:
    minutes = ms // MINUTE
    if minutes < 1:
        return "less than a minute"
    if minutes < 120:
        return "1 minute" if minutes == 1 else f"{minutes} minutes"
    return f"{minutes // 60:,} hours"


def _may_retry(entry: OutboxEntry, reach: Reach) -> bool:
    tried = entry.attempts > 0 and entry.error_code != ERASED
    return entry.state in RETRIED and tried and reach.writes(entry.workspace)


@require_POST
@signed_in
def retry(_: HttpRequest, entry_id: int, *, caller: Caller) -> HttpResponse:
    """Make an entry due now; the ledger records who asked for it."""
    entry = OutboxEntry.objects.filter(id=entry_id).first()
    if entry is None or not caller.reach.reads(entry.workspace):
        raise NotFound(f"no outbox entry {entry_id}")
    if not caller.reach.writes(entry.workspace):
        raise Forbidden("only a curator of its workspace may ask for a delivery again")
    services.retry_delivery(entry.id, actor=caller.actor, at=now_ms(), reason="asked for on the outbox page")
    return redirect("outbox")


@require_POST
@signed_in
def resume(_: HttpRequest, *, caller: Caller) -> HttpResponse:
    """Lift every pause; the ledger records who did."""
    if not (caller.reach.sees_all and caller.reach.writable is None):
        raise Forbidden("only an administrator of every workspace may resume delivery")
    services.resume_delivery(actor=caller.actor, at=now_ms())
    return redirect("outbox")
