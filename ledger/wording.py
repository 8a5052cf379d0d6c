"""Event kinds as people read them; storage never holds prose."""

from __future__ import annotations

from ledger.domain import chain, events
from ledger.domain.chain import CORRECTED
from ledger.domain.instants import format_instant
from ledger.models import ContextEvent

_WORDS = {
    events.MEMORY_CREATED: "Memory stored",
    events.MEMORY_REVISED: "Memory changed",
    events.MEMORY_ARCHIVED: "Memory archived",
    events.MEMORY_RESTORED: "Memory restored",
    events.MEMORY_VERIFIED: "Memory verified",
    events.MEMORY_ERASED: "Memory erased",
    events.LINK_CREATED: "Link made",
    events.LINK_REMOVED: "Link removed",
    events.CONTEXT_ADDED: "Context recorded",
    events.CORRECTION_SUPERSEDE: "Context superseded by a correction",
    events.CORRECTION_RETRACT: "Context retracted",
    events.CORRECTION_LINK: "Missing supersession linked",
    events.CORRECTION_ANNOTATE: "Context annotated",
    events.CORRECTION_RESTORE: "Correction undone",
    events.CONTEXT_ERASED: "Context erased",
    events.DELIVERY_RETRIED: "Delivery asked for again",
    events.DELIVERY_RESUMED: "Delivery resumed",
}


def in_words(kind: str) -> str:
    """`Memory stored` for `memory_created`; a kind without words of its own is shown as it is."""
    return _WORDS.get(kind, kind)


_CHOICES = {
    "standing": {
        chain.CURRENT: "Current",
        chain.SUPERSEDED: "Superseded",
        chain.RETRACTED: "Retracted",
        chain.UNDONE: "Undone",
        CORRECTED: "Has a correction",
    },
    "source": {
        "user": "People",
        "key": "Agents, by key",
        "mcp": "Agents, over MCP",
        "cli": "Command line",
        "system": "The service itself",
    },
}


def choice_in_words(facet: str, value: str) -> str:
    """A value of one of queries.FACETS as people read it: `People` for the source `user`."""
    if facet == "kind":
        return in_words(value)
    return _CHOICES.get(facet, {}).get(value, value.capitalize())


def delivered_text(event: ContextEvent, supersedes: ContextEvent | None) -> str:
    """What a bank is given of an event.

    `supersedes` is the event that this one supersedes or corrects (queries.named_in): where there is one, the text
    begins with a statement that names it, because a bank's own model reads texts and not our links.
    """
    if supersedes is None:
        return event.text or ""
    old = f"context event {supersedes.id} of {format_instant(supersedes.occurred_at)}"
    if event.kind == events.CORRECTION_RETRACT:
        return f"This retracts {old}, which holds no longer: {event.reason}"
    if event.kind == events.CORRECTION_ANNOTATE:
        return f"This is a note on {old}: {event.text or ''}"
    if event.kind == events.CORRECTION_RESTORE:
        return _restored(event, old)
    if event.object_id and event.kind in (events.CORRECTION_LINK, events.CORRECTION_SUPERSEDE):
        statement = f"This supersedes {old}: context event {event.object_id} has taken its place"
        return f"{statement}. {event.text or event.reason}"
    return f"This supersedes {old}: {event.text or ''}"


def _restored(event: ContextEvent, old: str) -> str:
    if event.values_of_metadata.get(chain.EFFECT) == chain.REINSTATED:
        successor = event.values_of_metadata[chain.SUCCESSOR]
        return f"This supersedes {old} again: context event {successor} has taken its place. {event.reason}"
    return f"This restores {old}, because correction {event.object_id} is void: {event.reason}"
