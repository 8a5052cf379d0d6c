"""The database's own refusal: no UPDATE and no DELETE on tables that are written once, raw SQL included.

Which tables those are stands in settings.GUARDS, as dotted paths to a Guard, so that rooms above the ledger can
have theirs guarded too. Django's SQLite schema editor rebuilds tables and loses their triggers silently, so
`install` runs after every migrate, and `missing` is asked before `serve` and `verify_ledger` start.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from django.conf import settings
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.utils.module_loading import import_string


@dataclass(frozen=True, slots=True)
class Guard:
    """A table whose rows are written once.

    One UPDATE may be allowed, as for erasure: `kept` columns as they are, `blanked` ones to NULL, and `when` true (an
    SQL condition on OLD and NEW). `keys` are the unique columns by which REPLACE INTO would find a row to overwrite (a
    key of several is spelt "a,b"; a partial one ends with its condition, "a WHERE b IS NULL"): it fires no DELETE
    trigger on SQLite.
    """

    table: str
    keys: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    blanked: tuple[str, ...] = ()
    when: str | None = None

    def allows(self, differs: str) -> str | None:
        """The condition of the one UPDATE that is allowed; `differs` is the database's null-safe inequality."""
        if self.when is None:
            return None
        untouched = [f'NOT (NEW."{column}" {differs} OLD."{column}")' for column in self.kept]
        blanked = [f'NEW."{column}" IS NULL' for column in self.blanked]
        return " AND ".join([*untouched, *blanked, self.when])


EVENTS = Guard(
    table="ledger_contextevent",
    keys=("seq", "id", "hash"),
    kept=(
        *(
            "seq",
            "id",
            "kind",
            "workspace",
            "actor_kind",
            "actor_id",
            "actor_label",
            "subject_id",
            "object_id",
        ),
        *("item_id", "occurrence", "reason", "metadata", "occurred_at", "recorded_at"),
        *("payload_hash", "prev_hash", "hash"),
    ),
    blanked=("text", "before", "after", "salt"),
    when="EXISTS (SELECT 1 FROM ledger_tombstone t WHERE t.event_id = OLD.id)",
)
TOMBSTONES = Guard(table="ledger_tombstone", keys=("event_id",))
SUPERSESSIONS = Guard(
    table="ledger_supersession",
    keys=("id", "event_id", "voided_by_id", "old_id WHERE voided_by_id IS NULL"),
    kept=("id", "old_id", "new_id", "event_id", "created_at"),
    when="OLD.voided_by_id IS NULL AND NEW.voided_by_id IS NOT NULL AND NEW.voided_at IS NOT NULL",
)
OPERATIONS = Guard(table="ledger_operation", keys=("id", "scope,key"))


def _sqlite(guard: Guard) -> dict[str, str]:
    table = guard.table
    refuse = f"BEGIN SELECT RAISE(ABORT, '{table} is append-only'); END"
    allowed = guard.allows("IS NOT")
    unless = "" if allowed is None else f"WHEN NOT ({allowed}) "
    triggers = {
        f"{table}_no_update": f"CREATE TRIGGER {table}_no_update BEFORE UPDATE ON {table} {unless}{refuse}",
        f"{table}_no_delete": f"CREATE TRIGGER {table}_no_delete BEFORE DELETE ON {table} {refuse}",
    }
    if guard.keys:
        taken = " OR ".join(f"({_taken(key)})" for key in guard.keys)
        triggers[f"{table}_no_replace"] = (
            f"CREATE TRIGGER {table}_no_replace BEFORE INSERT ON {table} "
            f"WHEN EXISTS (SELECT 1 FROM {table} WHERE {taken}) {refuse}"
        )
    return triggers


def _taken(key: str) -> str:
    columns, _, partial = key.partition(" WHERE ")
    same = [f"{column} = NEW.{column}" for column in columns.split(",")]
    return " AND ".join([*same, partial] if partial else same)


def _postgresql(guard: Guard) -> dict[str, str]:
    table = guard.table
    allowed = guard.allows("IS DISTINCT FROM")
    let_pass = (
        "" if allowed is None else f"IF TG_OP = 'UPDATE' THEN IF {allowed} THEN RETURN NEW; END IF; END IF; "
    )
    function = (
        f"CREATE OR REPLACE FUNCTION {table}_guard() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        f"{let_pass}RAISE EXCEPTION '{table} is append-only'; END $$; "
    )
    run = f"EXECUTE FUNCTION {table}_guard()"
    return {
        f"{table}_no_update": f"{function}CREATE TRIGGER {table}_no_update BEFORE UPDATE ON {table} "
        f"FOR EACH ROW {run}",
        f"{table}_no_delete": f"CREATE TRIGGER {table}_no_delete BEFORE DELETE ON {table} FOR EACH ROW {run}",
        f"{table}_no_truncate": f"CREATE TRIGGER {table}_no_truncate BEFORE TRUNCATE ON {table} "
        f"FOR EACH STATEMENT {run}",
    }


class Wanted(NamedTuple):
    """A trigger that should be there: the statement that makes it, and what the database then says that it does."""

    table: str
    name: str
    statement: str
    does: str


def _wanted(connection: BaseDatabaseWrapper) -> Iterable[Wanted]:
    """The triggers of each guarded table that exists."""
    tables = set(connection.introspection.table_names())
    spell = _postgresql if connection.vendor == "postgresql" else _sqlite
    for path in settings.GUARDS:
        guard: Guard = import_string(path)
        if guard.table in tables:
            triggers = spell(guard)
            body = triggers[f"{guard.table}_no_update"].split("$$")[
                1:2
            ]  # on PostgreSQL one function for all of them
            for name, statement in triggers.items():
                yield Wanted(guard.table, name, statement, *(body or [statement]))


def _present(connection: BaseDatabaseWrapper) -> dict[str, str]:
    """The triggers by name, with what they do: on SQLite the statement, on PostgreSQL the body of the function."""
    sql = (
        "SELECT t.tgname, p.prosrc FROM pg_trigger t JOIN pg_proc p ON p.oid = t.tgfoid "
        "WHERE NOT t.tgisinternal AND t.tgenabled <> 'D'"
        if connection.vendor == "postgresql"
        else "SELECT name, sql FROM sqlite_master WHERE type = 'trigger'"
    )
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return dict(cursor.fetchall())


def _lacking(connection: BaseDatabaseWrapper) -> list[Wanted]:
    """The triggers that are not there, or do not do what they should: a name alone protects nothing."""
    present = _present(connection)
    return [trigger for trigger in _wanted(connection) if present.get(trigger.name) != trigger.does]


def missing(using: str = "default") -> list[str]:
    """The names of guards that the database lacks; empty when everything written once is protected."""
    return sorted(trigger.name for trigger in _lacking(connections[using]))


def fault(using: str = "default") -> str:
    """The sentence of a command that does not run on an unprotected ledger; empty where it may."""
    lacking = missing(using)
    return f"the ledger is not protected: the database lacks {', '.join(lacking)}" if lacking else ""


def install(using: str = "default") -> None:
    """Create the guards that are missing, or do something else, for the guarded tables that exist."""
    connection = connections[using]
    with connection.cursor() as cursor:
        for trigger in _lacking(connection):
            cursor.execute(_dropping(connection, trigger))
            cursor.execute(trigger.statement)


def lift(using: str = "default") -> None:
    """Drop the guards, for a test that must flush its tables; `install` puts them back."""
    connection = connections[using]
    with connection.cursor() as cursor:
        for trigger in list(_wanted(connection)):
            cursor.execute(_dropping(connection, trigger))


def _dropping(connection: BaseDatabaseWrapper, trigger: Wanted) -> str:
    on_table = f" ON {trigger.table}" if connection.vendor == "postgresql" else ""
    return f"DROP TRIGGER IF EXISTS {trigger.name}{on_table}"
