"""A demo that is really served, once for each test process; people signed in to it; what a page is watched for."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
WIDTHS = {"wide": {"width": 1240, "height": 900}, "phone": {"width": 320, "height": 800}}
AXE_SOURCE = (files("axe_playwright_python") / "axe.min.js").read_text()
BY_COLOUR = ["color-contrast", "link-in-text-block"]  # the rules that a theme can break and a layout cannot
AXE_TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
PROFILE = {"reduced_motion": "reduce", "timezone_id": "UTC", "locale": "en-GB"}
STARTS_WITHIN = 90  # seconds: two of these may load their stories at once on two cores


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.browser)
            item.add_marker(pytest.mark.slow)


@dataclass(frozen=True)
class Site:
    """A running demo: where it is, and the two secrets that it printed."""

    url: str
    password: str
    key: str
    folder: Path

    def administered(self, path: str, body: Any) -> Any:
        """The same with a key of scope `admin`, made for it."""
        command = [
            sys.executable,
            str(ROOT / "manage.py"),
            "create_api_key",
            "corrector",
            "--scopes",
            "admin",
            "--json",
        ]
        environment = {
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "recall.settings",
            "RECALL_DATA_DIR": str(self.folder),
        }
        made = subprocess.run(command, env=environment, capture_output=True, check=True)
        return replace(self, key=json.loads(made.stdout)["key"]).api(path, body)

    def api(self, path: str, body: Any = None, **more: str) -> Any:
        sent = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {self.key}", "Content-Type": "application/json", **more}
        request = urllib.request.Request(self.url + path, sent, headers)
        with urllib.request.urlopen(request) as response:
            return json.load(response)

    def memory(self, name: str) -> str:
        """The id of the story's memory of that name."""
        if not hasattr(self, "_ids"):
            object.__setattr__(self, "_ids", dict(self._named()))
        return self._ids[f"demo/{name}"]  # type: ignore[attr-defined]

    def _named(self) -> Iterator[tuple[str, str]]:
        url = "/v1/memories?state=all&limit=200"
        while url:
            page = self.api(url.removeprefix(self.url))
            yield from ((row["external_id"], row["id"]) for row in page["results"])
            url = page["next"]


@pytest.fixture(scope="session")
def site(chromium: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """`manage.py demo` in a directory and on a port of its own, ended by its process id."""
    folder = tmp_path_factory.mktemp("demo")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [
        sys.executable,
        str(ROOT / "manage.py"),
        "demo",
        "--port",
        str(port),
        "--data-dir",
        str(folder / "var"),
    ]
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "recall.settings"}
    printed = folder / "printed"
    with printed.open("w") as out:
        process = subprocess.Popen(command, env=environment, stdout=out, stderr=subprocess.STDOUT)
    try:
        url = f"http://127.0.0.1:{port}"
        _wait_for(url + "/healthz", process, printed)
        told = printed.read_text()
        yield Site(url, _after("Password", told), _after("API key", told), folder / "var")
    finally:
        process.terminate()
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_for(url: str, process: subprocess.Popen[bytes], printed: Path) -> None:
    deadline = time.monotonic() + STARTS_WITHIN
    while time.monotonic() < deadline:
        if process.poll() is not None:
            break
        try:
            urllib.request.urlopen(url).close()
            return
        except OSError:
            time.sleep(0.1)
    pytest.fail(f"the demo does not serve:\n{printed.read_text()}")


def _after(label: str, told: str) -> str:
    found = re.search(rf"{label}\s+(\S+)", told)
    assert found, told
    return found[1]


@pytest.fixture(scope="session")
def signed_in(site: Site, chromium: Any) -> dict[str, Any]:
    """The browser state of the operator, signed in once through the form."""
    context = chromium.new_context()
    page = context.new_page()
    page.goto(f"{site.url}/sign-in/")
    page.get_by_label("Username").fill("operator")
    page.get_by_label("Password").fill(site.password)
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url(f"{site.url}/")
    state: dict[str, Any] = context.storage_state()
    context.close()
    return state


@pytest.fixture(scope="session")
def recalls(site: Site) -> dict[str, dict[str, Any]]:
    """Records of the story, by what is telling about them."""
    rows = site.api("/v1/recalls?limit=200")["results"]
    kinds: dict[str, Callable[[dict[str, Any]], bool]] = {
        "full": lambda r: r["served"] == 10 and r["suppressed"] > 2 and r["grades"]["context_invalid"] > 0,
        "history": lambda r: r["history"],
        "empty": lambda r: r["served"] == 0,
        "warned": lambda r: bool(r["warnings"]),
    }
    kinds |= {f"asked: {query}": _asking(query) for query in ASKED}
    return {name: next(row for row in rows if holds(row)) for name, holds in kinds.items()}


ASKED = (
    "What did Ruth agree to last week?",  # a time, and what a link alone brought in
    "Slipway database host and backups",  # fused by ranks
    "edgectl purge",  # words alone
)


def _asking(query: str) -> Callable[[dict[str, Any]], bool]:
    return lambda row: bool(row["query"] == query)


@pytest.fixture(scope="session")
def partial(site: Site) -> str:
    """The id of a recall that was asked before the vectors of a bulk import were made."""
    for _ in range(5):  # the server makes them beside the requests, and may be faster than one question
        rows = [{"text": f"buoy {n} is painted in spring", "workspace": "bulk"} for n in range(400)]
        site.api("/v1/memories/bulk", {"memories": rows})
        answer = site.api("/v1/recall", {"query": "painted buoy", "workspace": "bulk", "profile": "validity"})
        if answer["outcome"]["status"] == "partial":
            return str(answer["recall_id"])
    pytest.fail(f"every vector was there at once: {answer['outcome']}")


@pytest.fixture(scope="session")
def batch(site: Site) -> str:
    body = {"queries": [{"query": "festival posters"}, {"query": "who prints them"}], "fuse": True}
    return str(site.api("/v1/recall/batch", body)["recall_id"])


@pytest.fixture(scope="session")
def projection(site: Site) -> str:
    body = {"workspace": "studio", "task": "festival posters", "max_tokens": 900, "include_history": True}
    return str(site.api("/v1/projection", body)["recall_id"])


@pytest.fixture(scope="session")
def context(site: Site) -> dict[str, str]:
    """A chain of six context events with a correction that was undone, and a search of them."""

    def add(text: str, **fields: str) -> str:
        body = {"text": text, "workspace": "studio", "item_id": "outline", **fields}
        return str(site.api("/v1/context", body, **{"Idempotency-Key": text})["event_id"])

    events = [add("The outline is postponed, because the budget is not signed.")]
    for n in range(5):
        events.append(add(f"The outline was moved, for the {n + 1}. time.", supersedes_context_id=events[-1]))
    retract = {"kind": "retract", "reason": "that was another outline, of last year"}
    wrong = site.administered(f"/v1/events/{events[-1]}/corrections", retract)
    restore = {"kind": "restore", "reason": "it was this one after all"}
    site.administered(f"/v1/events/{wrong['id']}/corrections", restore)
    search = {"query": "why was it moved", "item_id": "outline", "workspace": "studio"}
    found = site.api("/v1/context/search", search)
    return {"superseded": events[1], "undone": wrong["id"], "search": found["recall_id"]}


@pytest.fixture(scope="session")
def addresses(
    site: Site,
    recalls: dict[str, dict[str, Any]],
    partial: str,
    batch: str,
    projection: str,
    context: dict[str, str],
) -> dict[str, str]:
    """Every kind of page, by name."""
    chained, full = site.memory("run-failover-2"), recalls["full"]["id"]
    linked, ranked, worded = (recalls[f"asked: {query}"]["id"] for query in ASKED)
    event = site.api(f"/v1/memories/{chained}/history")["results"][0]["id"]
    return {
        "overview": "/",
        "recalls": "/recalls/",
        "recalls, none found": "/recalls/?q=nobody+asked+this",
        "recall": f"/recalls/{full}/",
        "recall, history view": f"/recalls/{recalls['history']['id']}/",
        "recall, no hits": f"/recalls/{recalls['empty']['id']}/",
        "recall, warned": f"/recalls/{recalls['warned']['id']}/",
        "recall, partial": f"/recalls/{partial}/",
        "recall, by a link and a time": f"/recalls/{linked}/",
        "recall, by ranks": f"/recalls/{ranked}/",
        "recall, by words alone": f"/recalls/{worded}/",
        "recall, batch": f"/recalls/{batch}/",
        "recall, projection": f"/recalls/{projection}/",
        "left out": f"/recalls/{full}/left-out/",
        "hit": f"/recalls/{full}/hits/2/",
        "hit, by a link and a time": f"/recalls/{linked}/hits/1/",
        "run a recall": "/recalls/new/",
        "run a recall, all of it": "/recalls/new/?limit=5",
        "memories": "/memories/",
        "memories, all": "/memories/?state=all",
        "memory, superseded": f"/memories/{chained}/",
        "memory, erased": f"/memories/{site.memory('marlow-merger')}/",
        "memory, window": f"/memories/{site.memory('deploy-freeze')}/",
        "memory, in the past": f"/memories/{chained}/?at={site.api(f'/v1/memories/{chained}')['created_at']}",
        "ledger": "/ledger/",
        "ledger, filtered": "/ledger/?q=outline&standing=superseded&workspace=studio",
        "ledger, none found": "/ledger/?q=nobody+said+this",
        "event": f"/ledger/{event}/",
        "event, context superseded": f"/ledger/{context['superseded']}/",
        "event, context undone": f"/ledger/{context['undone']}/",
        "correction, new": f"/ledger/{context['superseded']}/corrections/new/",
        "outbox": "/outbox/",
        "outbox, failed": "/outbox/?state=failed",
        "recall, of context": f"/recalls/{context['search']}/",
        "not found": "/recalls/rcl_nothing/",
        "no such address": "/nothing/here/",
        "API reference": "/v1/docs",
    }


# ----------------------------------------------------------------------------------------------- watching a page


@dataclass
class Watched:
    """A page, with all that went wrong on it."""

    page: Any
    url: str
    console: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def open(self, path: str, *, status: int = 200) -> Any:
        self.console.clear()
        self.requests.clear()
        response = self.page.goto(self.url + path)
        assert response.status == status, path
        return response

    def violations_of_policy(self) -> list[str]:
        found: list[str] = self.page.evaluate("window.policyViolations ?? []")
        return found

    def axe(self, only: list[str] | None = None) -> list[str]:
        """What axe finds: by AXE_TAGS, or by the named rules alone."""
        self.page.evaluate(AXE_SOURCE)  # through the debug protocol: the policy blocks script elements
        run = "only => axe.run(document, {runOnly: only, resultTypes: ['violations']})"
        found = self.page.evaluate(run, only or AXE_TAGS)["violations"]
        return [
            f"{rule['id']}: {node['html'][:160]} {node['failureSummary'][:300]}"
            for rule in found
            for node in rule["nodes"]
        ]


_LISTEN = """
window.policyViolations = [];
document.addEventListener("securitypolicyviolation", (event) =>
  window.policyViolations.push(`${event.violatedDirective} ${event.blockedURI}`));
"""


@pytest.fixture
def watch(site: Site, chromium: Any, signed_in: dict[str, Any]) -> Iterator[Callable[..., Watched]]:
    """`watch(viewport=WIDTHS["phone"])`: a page in a browser profile of its own, signed in unless told otherwise."""
    contexts: list[Any] = []

    def opened(*, anonymous: bool = False, **options: Any) -> Watched:
        state = None if anonymous else signed_in
        defaults = PROFILE
        context = chromium.new_context(
            storage_state=state, **{**defaults, "viewport": WIDTHS["wide"], **options}
        )
        context.set_default_timeout(15_000)
        contexts.append(context)
        return watched(context, site.url)

    yield opened
    for context in contexts:
        context.close()


@pytest.fixture(scope="session")
def _kept(site: Site, chromium: Any, signed_in: dict[str, Any]) -> Iterator[Callable[[str], Watched]]:
    kept: dict[str, Watched] = {}

    def of(width: str) -> Watched:
        if width not in kept:
            context = chromium.new_context(storage_state=signed_in, viewport=WIDTHS[width], **PROFILE)
            kept[width] = watched(context, site.url)
        return kept[width]

    yield of
    for page in kept.values():
        page.page.context.close()


@pytest.fixture
def look(request: pytest.FixtureRequest, _kept: Callable[[str], Watched]) -> Watched:
    """A page of one of WIDTHS, in a profile that is kept for the next test."""
    page = _kept(request.param)
    page.page.emulate_media(color_scheme="light")
    return page


def watched(context: Any, url: str) -> Watched:
    page = context.new_page()
    page.add_init_script(_LISTEN)
    seen = Watched(page, url)
    page.on("console", lambda m: seen.console.append(m.text) if m.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: seen.console.append(str(error)))
    page.on("request", lambda request: seen.requests.append(request.url.removeprefix(url)))
    return seen
