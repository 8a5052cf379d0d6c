"""What tests share: a clock, callers, memories and links, a database that can be emptied, a browser."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import hindsight_real
import pytest
from django.db import connection
from hindsight_fake import fake_hindsight
from hindsight_peer import API_KEY, Peer, recorded
from hindsight_real import VERSIONS
from hypothesis import settings as hypothesis_settings

from ledger import triggers
from ledger.domain.actors import Actor
from ledger.domain.context import NewContext
from ledger.domain.instants import UnixMs, parse_instant
from ledger.services import add_context
from recall import banks
from recall.banks.hindsight import HindsightBank
from vault import services
from vault.domain.access import Reach
from vault.models import Memory, MemoryLink
from vault.services import Caller

ROOT = Path(__file__).resolve().parent.parent
CHROMIUM = Path("/usr/bin/chromium")

# No deadline: two workers on two busy cores say nothing about the code when one example takes 200 ms.
hypothesis_settings.register_profile("house", deadline=None)
hypothesis_settings.load_profile("house")


@pytest.fixture(autouse=True)
def _emptied_by_flush(request: pytest.FixtureRequest) -> Iterator[None]:
    """Let the flush after a test with real transactions empty the tables that refuse to be emptied.

    It runs before that flush, whose post_migrate puts the guards back. The text indexes go too: Django does
    not know them, and ids of workspaces may begin again after the flush.
    """
    marker = request.node.get_closest_marker("django_db")
    wanted = {"transactional_db", "live_server", "django_db_reset_sequences", "django_db_serialized_rollback"}
    if not (wanted & set(request.fixturenames) or (marker and marker.kwargs.get("transaction"))):
        yield
        return
    request.getfixturevalue("transactional_db")
    yield
    triggers.lift()
    if connection.vendor != "sqlite":
        return
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT name FROM sqlite_master "
            "WHERE name LIKE 'vault_fts_%' AND sql LIKE 'CREATE VIRTUAL TABLE%'"
        )
        for (table,) in cursor.fetchall():
            cursor.execute(f"DROP TABLE {table}")


@pytest.fixture(scope="session")
def now() -> UnixMs:
    """The instant at which tests act unless they say otherwise."""
    return parse_instant("2026-11-30T12:00:00Z")


@pytest.fixture(scope="session")
def caller() -> Caller:
    """Somebody who may do everything."""
    return Caller(Actor(kind="user", id="1", label="ada"), Reach.everything())


@pytest.fixture(scope="session")
def bound_caller() -> Callable[..., Caller]:
    """`bound_caller("red")`: a key that is bound to the workspace red."""

    def bound(workspace: str, *, asserts_provenance: bool = False) -> Caller:
        actor = Actor(kind="key", id=f"key_{workspace}", label=f"{workspace} agent")
        return Caller(actor, Reach.bound(workspace, asserts_provenance=asserts_provenance))

    return bound


@pytest.fixture
def remember(db: None, caller: Caller, now: UnixMs) -> Callable[..., Memory]:
    """`remember("a text", tags=["t"])`: a stored memory."""

    def stored(
        text: str, *, by: Caller = caller, at: UnixMs = now, reason: str = "", **fields: Any
    ) -> Memory:
        return services.remember({"text": text, **fields}, caller=by, at=at, reason=reason).memory

    return stored


@pytest.fixture
def event_in(db: None, caller: Caller, now: UnixMs) -> Callable[..., str]:
    """`event_in("red")`: the id of a context event of that workspace."""

    def recorded(workspace: str = "", text: str = "Tom is ill", **fields: Any) -> str:
        new = NewContext(text, workspace=workspace, **fields)
        return add_context(new, key=secrets.token_hex(8), actor=caller.actor, at=now).event_id

    return recorded


@pytest.fixture
def link(db: None, caller: Caller, now: UnixMs) -> Callable[..., MemoryLink]:
    """`link(old, new, "EVOLVED_INTO")`: a stored link."""

    def made(
        source: Memory, target: Memory, type_: str, *, by: Caller = caller, at: UnixMs = now, **fields: Any
    ) -> MemoryLink:
        return services.link(source.id, target.id, type_, caller=by, at=at, **fields)

    return made


@pytest.fixture
def manage(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """`manage("migrate")`: manage.py in a process and a data directory of its own, as an operator runs it."""

    def run(
        *arguments: str, env: Mapping[str, str] | None = None, **options: Any
    ) -> subprocess.CompletedProcess[str]:
        environment = {
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "recall.settings",
            "RECALL_DATA_DIR": str(tmp_path / "var"),
            **(env or {}),
        }
        command = [sys.executable, str(ROOT / "manage.py"), *arguments]
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, check=False, **options
        )

    return run


HINDSIGHTS = ["fake", *(pytest.param(version, marks=pytest.mark.hindsight) for version in VERSIONS)]


@pytest.fixture(scope="session")
def real_hindsights() -> Iterator[Callable[[str], hindsight_real.Server]]:
    """Real Hindsight servers by version, each started when it is first asked for, and all ended with the session."""
    with ExitStack() as servers:
        started: dict[str, hindsight_real.Server] = {}

        def server(version: str) -> hindsight_real.Server:
            if version not in started:
                started[version] = servers.enter_context(hindsight_real.real_hindsight(version))
            return started[version]

        yield server


@pytest.fixture(params=HINDSIGHTS)
def hindsight(request: pytest.FixtureRequest, settings: Any) -> Iterator[Peer]:
    """A Hindsight server, the fake and each real one, as the installed memory bank: the global bank is there, empty."""
    with ExitStack() as stack:
        if request.param == "fake":
            peer, _ = stack.enter_context(fake_hindsight())
        else:
            server = request.getfixturevalue("real_hindsights")(request.param)
            peer = stack.enter_context(recorded(server.url, server.merge))
        peer.prefix = f"test-{secrets.token_hex(8)}"
        peer.create(peer.prefix)
        settings.MEMORY_BANK = "hindsight"
        settings.HINDSIGHT = {
            "url": peer.url,
            "api_key": API_KEY,
            "bank_prefix": peer.prefix,
            "timeout_ms": 10_000,
        }
        let_go_of_banks()
        yield peer
        let_go_of_banks()


def let_go_of_banks() -> None:
    """Close and forget the installed banks: the next one is made by the settings of then."""
    for bank in banks._made.values():
        if isinstance(bank, HindsightBank):
            bank.close()
    banks._made.clear()


@pytest.fixture
def other_bank() -> Callable[[], None]:
    """`other_bank()`: what to call when the settings of the bank have changed."""
    return let_go_of_banks


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """Debian's chromium under Playwright; its absence fails with RECALL_REQUIRE_BROWSER=1, as in CI."""
    if not CHROMIUM.exists():
        absent = f"{CHROMIUM} is not there (apt-get install chromium)"
        if os.environ.get("RECALL_REQUIRE_BROWSER") == "1":
            pytest.fail(absent)
        pytest.skip(absent)
    from playwright.sync_api import sync_playwright

    # Playwright keeps an event loop in this thread, which Django takes for a reason to refuse its ORM here.
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "true"
    with sync_playwright() as playwright:
        # Without a sandbox: chromium refuses to start as root with one, and only our own pages are opened.
        browser = playwright.chromium.launch(
            executable_path=str(CHROMIUM), args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        yield browser
        browser.close()
    del os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"]


@pytest.fixture
def page(chromium: Any) -> Iterator[Any]:
    """A fresh page in a fresh browser profile."""
    context = chromium.new_context()
    yield context.new_page()
    context.close()
