from typing import Any

from django.apps import AppConfig
from django.db.models.signals import post_migrate


class LedgerConfig(AppConfig):
    name = "ledger"
    verbose_name = "Ledger"

    def ready(self) -> None:
        # A migration that rebuilds a table on SQLite drops its triggers without a word: put them back.
        post_migrate.connect(_guard_tables, dispatch_uid="ledger.triggers")


def _guard_tables(*, using: str, **_: Any) -> None:
    from ledger import triggers

    triggers.install(using)
