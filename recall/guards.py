"""The records' guards in the database (ledger/triggers.py): written once, whatever the client."""

from __future__ import annotations

from ledger.triggers import Guard
from recall.models import RecallRecord

RECORDS = Guard(
    table="recall_recallrecord",
    keys=("seq", "id"),
    # Erasure may write the document anew, and only of a record that met an erased memory or event.
    kept=tuple(
        str(field.column) for field in RecallRecord._meta.concrete_fields if field.column != "document"
    ),
    when=(
        "(EXISTS (SELECT 1 FROM vault_memory m JOIN recall_recordhit h "
        "ON h.memory_id = m.seq AND h.record_id = OLD.seq WHERE m.erased_at IS NOT NULL) "
        "OR EXISTS (SELECT 1 FROM ledger_tombstone t JOIN recall_recordevent e "
        "ON e.event_id = t.event_id AND e.record_id = OLD.seq))"
    ),
)
HITS = Guard(table="recall_recordhit", keys=("memory_id,record_id",))
EVENTS = Guard(table="recall_recordevent", keys=("event_id,record_id",))
