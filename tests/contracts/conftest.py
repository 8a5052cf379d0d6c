"""A database of its own for a whole class of tests: an engine keeps its index only outside of transactions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from index_worlds import World, database_in, template

from recall.domain import words


@pytest.fixture(scope="class")
def patched() -> Iterator[pytest.MonkeyPatch]:
    """Changes of constants that last as long as a class."""
    with pytest.MonkeyPatch.context() as patch:
        yield patch


@pytest.fixture(scope="class")
def world(
    tmp_path_factory: pytest.TempPathFactory,
    django_db_blocker: Any,
    patched: pytest.MonkeyPatch,
) -> Iterator[World]:
    """An empty vault to fill and ask. A word is frequent from 80 texts on."""
    patched.setattr(words, "FREQUENT_FLOOR", 80)
    with (
        django_db_blocker.unblock(),
        database_in(tmp_path_factory.mktemp("world"), template(tmp_path_factory)),
    ):
        yield World()
