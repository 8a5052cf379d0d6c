"""The database's own refusal: no UPDATE and no DELETE on guarded tables, raw SQL included.

`ledger_contextevent` allows one UPDATE, for erasure: payload columns to NULL, nothing else touched, and a
tombstone for the event present. Django's SQLite schema editor rebuilds tables and loses their triggers
silently, so `install` runs after every migrate, and `missing` is asked before `serve` and `verify_ledger`
start.
"""

from __future__ import annotations

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

_KEPT = (
    *("seq", "id", "kind", "workspace", "actor_kind", "actor_id", "actor_label", "subject_id", "object_id"),
    *("item_id", "occurrence", "reason", "metadata", "occurred_at", "recorded_at"),
    *("payload_hash", "prev_hash", "hash"),
)
_ERASABLE = ("text", "before", "after", "salt")


def _erasure(differs: str) -> str:
    untouched = " AND ".join(f"NOT (NEW.{c} {differs} OLD.{c})" for c in _KEPT)
    blanked = " AND ".join(f"NEW.{c} IS NULL" for c in _ERASABLE)
    return (
        f"({untouched} AND {blanked} AND EXISTS (SELECT 1 FROM ledger_tombstone t WHERE t.event_id = OLD.id))"
    )


def _sqlite() -> dict[str, str]:
    triggers = {}
    for table, allowed, taken in (
        ("ledger_contextevent", _erasure("IS NOT"), "seq = NEW.seq OR id = NEW.id OR hash = NEW.hash"),
        ("ledger_tombstone", "0", "event_id = NEW.event_id"),
    ):
        message = f"{table} is append-only"
        triggers[f"{table}_no_update"] = (
            f"CREATE TRIGGER {table}_no_update BEFORE UPDATE ON {table} WHEN NOT {allowed} "
            f"BEGIN SELECT RAISE(ABORT, '{message}'); END"
        )
        triggers[f"{table}_no_delete"] = (
            f"CREATE TRIGGER {table}_no_delete BEFORE DELETE ON {table} "
            f"BEGIN SELECT RAISE(ABORT, '{message}'); END"
        )
        # REPLACE INTO deletes the old row and fires no DELETE trigger (unless recursive_triggers is on).
        triggers[f"{table}_no_replace"] = (
            f"CREATE TRIGGER {table}_no_replace BEFORE INSERT ON {table} "
            f"WHEN EXISTS (SELECT 1 FROM {table} WHERE {taken}) "
            f"BEGIN SELECT RAISE(ABORT, '{message}'); END"
        )
    return triggers


def _postgresql() -> dict[str, str]:
    triggers = {}
    for table, allowed in (
        ("ledger_contextevent", _erasure("IS DISTINCT FROM")),
        ("ledger_tombstone", "FALSE"),
    ):
        function = (
            f"CREATE OR REPLACE FUNCTION {table}_guard() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
            f"IF TG_OP = 'UPDATE' THEN IF {allowed} THEN RETURN NEW; END IF; END IF; "
            f"RAISE EXCEPTION '{table} is append-only'; END $$; "
        )
        triggers[f"{table}_no_update"] = (
            function + f"CREATE TRIGGER {table}_no_update BEFORE UPDATE ON {table} "
            f"FOR EACH ROW EXECUTE FUNCTION {table}_guard()"
        )
        triggers[f"{table}_no_delete"] = (
            f"CREATE TRIGGER {table}_no_delete BEFORE DELETE ON {table} "
            f"FOR EACH ROW EXECUTE FUNCTION {table}_guard()"
        )
        triggers[f"{table}_no_truncate"] = (
            f"CREATE TRIGGER {table}_no_truncate BEFORE TRUNCATE ON {table} "
            f"FOR EACH STATEMENT EXECUTE FUNCTION {table}_guard()"
        )
    return triggers


def _wanted(connection: BaseDatabaseWrapper) -> dict[str, str]:
    return _postgresql() if connection.vendor == "postgresql" else _sqlite()


def _present(connection: BaseDatabaseWrapper) -> set[str]:
    sql = (
        "SELECT tgname FROM pg_trigger WHERE NOT tgisinternal AND tgenabled <> 'D'"
        if connection.vendor == "postgresql"
        else "SELECT name FROM sqlite_master WHERE type = 'trigger'"
    )
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return {row[0] for row in cursor.fetchall()}


def missing(using: str = "default") -> list[str]:
    """The names of guards that the database lacks; empty when the ledger is protected."""
    connection = connections[using]
    return sorted(set(_wanted(connection)) - _present(connection))


def install(using: str = "default") -> None:
    """Create the guards that are missing, for the guarded tables that exist."""
    connection = connections[using]
    tables = set(connection.introspection.table_names())
    present = _present(connection)
    with connection.cursor() as cursor:
        for name, statement in _wanted(connection).items():
            if name not in present and name.rsplit("_no_", 1)[0] in tables:
                cursor.execute(statement)


def lift(using: str = "default") -> None:
    """Drop the guards, for a test that must flush its tables; `install` puts them back."""
    connection = connections[using]
    with connection.cursor() as cursor:
        for name in _wanted(connection):
            on_table = f" ON {name.rsplit('_no_', 1)[0]}" if connection.vendor == "postgresql" else ""
            cursor.execute(f"DROP TRIGGER IF EXISTS {name}{on_table}")
