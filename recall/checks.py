"""System checks: refuse to start where a promise could not be kept."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, register


@register
def text_index_is_available(**_: Any) -> list[CheckMessage]:
    engine = settings.DATABASES["default"]["ENGINE"]
    if not engine.endswith("sqlite3"):
        return [
            Error(
                "DATABASE_URL names a database whose text index is not built yet",
                hint="use SQLite: leave DATABASE_URL unset, or sqlite:////path/to/file",
                id="recall.E001",
            )
        ]
    return []
