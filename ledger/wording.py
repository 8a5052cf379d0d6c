"""Event kinds as people read them; storage never holds prose."""

from ledger.domain import events

_WORDS = {
    events.MEMORY_CREATED: "Memory stored",
    events.MEMORY_REVISED: "Memory changed",
    events.MEMORY_ARCHIVED: "Memory archived",
    events.MEMORY_RESTORED: "Memory restored",
    events.MEMORY_VERIFIED: "Memory verified",
    events.MEMORY_ERASED: "Memory erased",
    events.LINK_CREATED: "Link made",
    events.LINK_REMOVED: "Link removed",
}


def in_words(kind: str) -> str:
    """`Memory stored` for `memory_created`; a kind without words of its own is shown as it is."""
    return _WORDS.get(kind, kind)
