"""The demo: what it loads, what its records say, what it refuses to touch, and that it starts and ends."""

from __future__ import annotations

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from django.contrib.auth import authenticate, get_user_model
from django.core.management import CommandError
from django.db import transaction
from django.db.models import QuerySet

from ledger.domain.instants import DAY, UnixMs
from ledger.models import ContextEvent, OutboxEntry
from ledger.queries import verify
from recall import records
from recall.domain.state import Anchor
from recall.domain.validity import grade
from recall.management.commands.demo import require_free
from recall.management.demo import load, story
from recall.models import ApiKey, RecallRecord
from recall.queries import quality, states_of
from vault.domain.access import Scope
from vault.models import Memory, MemoryLink
from vault.services import Caller

ROOT = Path(__file__).resolve().parents[2]
Manage = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def _loaded_once(django_db_setup: None, django_db_blocker: Any, now: UnixMs) -> Iterator[load.Loaded]:
    """The story, loaded at `now` in a transaction around the tests of this module: it takes seconds."""
    with django_db_blocker.unblock():
        around = transaction.atomic()
        around.__enter__()
        told = load.load(now)
        assert told is not None
    yield told
    with django_db_blocker.unblock():
        transaction.set_rollback(True)
        around.__exit__(None, None, None)


@pytest.fixture
def loaded(_loaded_once: load.Loaded, db: None) -> load.Loaded:
    """The story, loaded; what a test adds is taken back after it."""
    return _loaded_once


def questions_asked() -> QuerySet[RecallRecord]:
    """The records of the story's questions; context searches leave records as well."""
    return RecallRecord.objects.exclude(mode="context")


# --------------------------------------------------------------------------------------------- the story


def test_the_story_is_the_same_on_every_day_of_the_year(now: UnixMs) -> None:
    for day in range(0, 366, 7):
        told = story.read(now + day * DAY + day * 3_141_592)
        when = {step.id: step.at for step in told.steps if isinstance(step, story.Note)}
        assert len(when) == sum(isinstance(step, story.Note) for step in told.steps)
        replacing = [
            s for s in told.steps if isinstance(s, story.Tie) and s.type in ("EVOLVED_INTO", "INVALIDATED_BY")
        ]
        backwards = [tie for tie in replacing if when[tie.source] >= when[tie.target]]
        assert [(tie.source, tie.target) for tie in backwards] == [
            ("cache-ttl-60", "cache-ttl-300")
        ]  # the cycle


def test_days_in_a_text_become_dates(now: UnixMs) -> None:
    assert story.dated("from {-2} to {+9}", now) == "from 28 November to 9 December"
    assert not [s for s in story.read(now).steps if isinstance(s, story.Note) and "{" in s.sent["text"]]


def test_every_state_and_grade_is_there_to_be_seen(loaded: load.Loaded, now: UnixMs) -> None:
    memories = list(Memory.objects.select_related("workspace").filter(source_event_id=None))
    states = states_of(memories, Anchor(now))
    reasons = Counter(state.reason for state in states.values())
    assert set(reasons) == {
        None, "archived", "not_yet_valid", "expired", "deprecated", "superseded", "replacement_erased"
    }  # fmt: skip
    assert any(state.inactive for state in states.values())
    current = [memory.facts for memory in memories if states[memory.id].current]
    grades = Counter(grade(facts, at=now, workspace=facts.workspace).grade for facts in current)
    assert min(grades[name] for name in ("valid", "stale", "context_invalid")) >= 20
    assert set(Memory.objects.values_list("provenance_class", flat=True)) == {
        "verified", "corroborated", "candidate", "rejected", "defensively_recalled", "unknown"
    }  # fmt: skip
    assert {"CONTRADICTS", "DERIVED_FROM", "RELATES_TO"} <= set(
        MemoryLink.objects.values_list("type", flat=True)
    )
    assert max(state.steps for state in states.values()) == 4
    assert loaded.memories == len(memories) > 300


def test_the_quality_list_holds_the_cycle_and_the_two_fallen_replacements(
    loaded: load.Loaded, now: UnixMs
) -> None:
    codes = [finding.code for finding in quality(Scope(None), Anchor(now))]
    assert codes == ["supersession_cycle", "replacement_inactive", "replacement_erased"]


def test_the_postponed_outline_is_answered_with_the_completed_one(
    loaded: load.Loaded, caller: Caller, now: UnixMs
) -> None:
    asked = {"query": "Why is the portfolio outline postponed?", "workspace": "studio", "profile": "validity"}
    first = load.ask(story.Asked(now, "", asked), caller)["results"][0]
    assert first["memory"]["text"].startswith("User completed the portfolio outline")
    postponed = Memory.objects.get(text="User chose to postpone the portfolio outline until next week.")
    assert first["state_replaces"] == [postponed.id]


@pytest.mark.parametrize(
    ("query", "brought"),
    [
        ("someone's illness or salary", {"dense"}),  # asked in other words than the memory's
        ("What did Ruth agree to last week?", {"links"}),  # a RELATES_TO link from what she agreed to
    ],
)
def test_the_first_look_shows_what_words_alone_would_not_find(
    loaded: load.Loaded, query: str, brought: set[str]
) -> None:
    stored = records.read(RecallRecord.objects.get(query=query))
    assert brought in [set(row["strategies"]) for row in stored.candidates if row["position"] is not None]


def test_a_question_names_a_time_that_some_of_its_hits_are_near(loaded: load.Loaded) -> None:
    stored = records.read(RecallRecord.objects.get(query="What did Ruth agree to last week?"))
    assert any("temporal" in row["strategies"] for row in stored.candidates if row["position"] is not None)


def test_what_was_decided_is_delivered_corrected_and_found(loaded: load.Loaded) -> None:
    entries = OutboxEntry.objects.filter(kind="context")
    assert [entry.state for entry in entries] == ["delivered"] * loaded.events
    found = {row.query: records.read(row).answer for row in RecallRecord.objects.filter(mode="context")}
    told = {
        query: [(_text(hit["source_event_id"]), hit["is_stale"]) for hit in answer["hits"]]
        for query, answer in found.items()
    }
    assert told["Why is the outline postponed?"] == [("Task postponed until next week.", False)]
    moved = told["When are the kiln photographs taken?"]
    assert [stale for _, stale in moved] == [False, True, True]
    assert moved[0][0].startswith("The kiln photographs are taken at the open day")
    assert ("The tax return is cancelled this year.", True) in told["Is the tax return still due?"]
    assert told["Who answers at night?"][0][0].startswith("The winter rota goes back")


def _text(event_id: str) -> str:
    return ContextEvent.objects.get(id=event_id).text or ""


# --------------------------------------------------------------------------------------------- its records


def test_no_answer_in_the_default_view_serves_what_was_superseded(loaded: load.Loaded) -> None:
    rows = [records.read(row) for row in questions_asked()]
    assert len(rows) == loaded.recalls > 120
    default = [one for one in rows if one.document["request"]["current_only"]]
    assert sum(one.row.superseded_served for one in default) == 0
    assert sum(one.row.suppressed for one in default) > 100
    history = [one for one in rows if not one.document["request"]["current_only"]]
    assert all(one.row.superseded_served for one in history)


def test_no_answer_in_the_default_view_serves_what_did_not_exist_at_its_instant(loaded: load.Loaded) -> None:
    for row in questions_asked():
        assert row.anchor == row.created_at - 1
        one = records.read(row)
        if one.document["request"]["current_only"]:
            served = [hit["memory"]["created_at_unix_ms"] for hit in one.answer["results"]]
            assert all(created_at <= row.anchor for created_at in served)


def test_records_say_that_nobody_asked_then_and_cover_the_month(loaded: load.Loaded, now: UnixMs) -> None:
    rows = questions_asked()
    assert {row.surface for row in rows} == {"demo"}
    assert {row.actor_id for row in rows} <= set(ApiKey.objects.values_list("id", flat=True))
    assert all(now - 30 * DAY < row.created_at < now for row in rows)
    assert len({row.created_at // DAY for row in rows}) >= 28
    assert {row.outcome for row in rows} >= {"fresh", "empty"}
    warned = " ".join(row.warnings for row in rows)
    assert "supersession_cycle" in warned
    assert "replacement_inactive" in warned


def test_the_ledger_verifies_and_the_erased_text_is_nowhere(loaded: load.Loaded) -> None:
    assert verify().ok
    told = story.read(0)
    (erased,) = (step.note for step in told.steps if isinstance(step, story.Act) and step.name == "erased")
    memory = Memory.objects.get(external_id=story.PREFIX + erased)
    assert (memory.text, memory.erased_at is not None) == ("", True)


def test_only_the_operator_can_sign_in_and_agents_are_bound(loaded: load.Loaded) -> None:
    assert authenticate(username="operator", password=loaded.password) is not None
    others = get_user_model().objects.exclude(username="operator")
    assert {user.username for user in others} == {"mira", "jonas"}
    assert not any(user.has_usable_password() for user in others)
    bound = dict(ApiKey.objects.values_list("name", "workspace"))
    assert (bound["planner-2"], bound["triage-1"], bound["librarian-1"]) == ("studio", "ops", None)
    key = ApiKey.objects.get(secret_sha256=ApiKey.hashed(loaded.key))
    assert (key.name, key.scopes) == ("demo", "read,write")


def test_a_second_load_adds_nothing(loaded: load.Loaded, now: UnixMs) -> None:
    before = (Memory.objects.count(), RecallRecord.objects.count(), ApiKey.objects.count())
    assert load.load(now + DAY) is None
    assert (Memory.objects.count(), RecallRecord.objects.count(), ApiKey.objects.count()) == before


# --------------------------------------------------------------------------------------------- the command


def test_a_directory_with_something_else_in_it_is_refused_and_left_alone(
    manage: Manage, tmp_path: Path
) -> None:
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "recall.sqlite3").write_text("precious")
    refused = manage("demo", "--no-serve", "--reset", "--data-dir", str(foreign))
    assert refused.returncode == 2
    assert "was not made by this command" in refused.stderr
    assert [(path.name, path.read_text()) for path in foreign.iterdir()] == [("recall.sqlite3", "precious")]


def test_a_busy_port_is_refused_before_anything_is_written(manage: Manage, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        refused = manage("demo", "--port", port, "--data-dir", str(tmp_path / "demo"))
    assert refused.returncode == 2
    assert f"port {port} cannot be used" in refused.stderr
    assert not (tmp_path / "demo").exists()
    with pytest.raises(CommandError, match="from 1 to 65535"):
        require_free(70_000)


@pytest.mark.slow
def test_the_demo_never_touches_the_configured_database_and_starts_over_only_when_told(
    manage: Manage, tmp_path: Path
) -> None:
    real = tmp_path / "real.sqlite3"
    configured = {
        "DATABASE_URL": f"sqlite:///{real}",
        "RECALL_HTTPS": "1",
        "RECALL_ALLOWED_HOSTS": "else.example",
        "MEMORY_BANK": "hindsight",
        "HINDSIGHT_URL": "http://127.0.0.1:1",
    }
    first = manage("demo", "--no-serve", env=configured)
    assert first.returncode == 0, first.stderr
    assert not real.exists()
    folder = tmp_path / "var" / "demo"
    assert (folder / "recall.sqlite3").exists()
    assert not (tmp_path / "var" / "recall.sqlite3").exists()
    password = _shown(first.stdout, "Password")

    again = manage("demo", "--no-serve", env=configured)
    assert again.returncode == 0, again.stderr
    assert "nothing was added" in again.stdout
    assert "Password  " not in again.stdout
    assert "changepassword operator" in again.stdout

    (folder / "notes.txt").write_text("mine")
    anew = manage("demo", "--no-serve", "--reset", env=configured)
    assert anew.returncode == 0, anew.stderr
    assert _shown(anew.stdout, "Password") != password
    assert (folder / "notes.txt").read_text() == "mine"


@pytest.mark.slow
def test_the_demo_serves_the_commands_that_it_prints_and_ends_on_ctrl_c(tmp_path: Path) -> None:
    port = _free_port()
    folder = tmp_path / "demo"
    command = [sys.executable, "manage.py", "demo", "--port", str(port), "--data-dir", str(folder)]
    environment = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "recall.settings",
        "RECALL_DATA_DIR": str(tmp_path / "var"),
    }
    started = time.monotonic()
    with (tmp_path / "out").open("w") as out, (tmp_path / "err").open("w") as err:
        demo = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=out, stderr=err, start_new_session=True
        )
    try:
        _wait_until_ready(f"http://127.0.0.1:{port}/readyz", demo)
        assert time.monotonic() - started < 60
        printed = (tmp_path / "out").read_text()
        curls = [line for line in printed.splitlines() if line.startswith("curl ")]
        assert len(curls) == 3
        asked, recorded, needing_a_look = (_as_curl_would(line) for line in curls)
        assert "User completed the portfolio outline" in asked
        assert '"surface":"demo"' in recorded
        assert "supersession_cycle" in needing_a_look

        second = subprocess.run(
            [*command[:3], "--no-serve", "--reset", "--data-dir", str(folder)],
            cwd=ROOT, env=environment, capture_output=True, text=True,
        )  # fmt: skip
        assert (second.returncode, "runs in" in second.stderr) == (2, True)
    finally:
        os.killpg(demo.pid, signal.SIGINT)  # as a terminal does
        code = demo.wait(timeout=45)  # gunicorn gives a worker 30 s that the signal met while it was starting
    assert code == 0
    assert "Traceback" not in (tmp_path / "err").read_text()


def _shown(printed: str, name: str) -> str:
    found = re.search(rf"^  {name} +(\S+)$", printed, re.MULTILINE)
    assert found is not None, printed
    return found[1]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _as_curl_would(line: str) -> str:
    """Send what a printed curl line says; a bare machine has no curl."""
    parser = ArgumentParser()
    parser.add_argument("-s", "-G", action="store_true")
    parser.add_argument("-H", dest="header", required=True)
    parser.add_argument("-d", "--data-urlencode", dest="query", action="append", default=[])
    parser.add_argument("url")
    given = parser.parse_args(shlex.split(line.removeprefix("curl ")))
    query = urlencode([tuple(pair.split("=", 1)) for pair in given.query])
    name, value = given.header.split(": ", 1)
    asking = urllib.request.Request(f"{given.url}?{query}" if query else given.url, headers={name: value})
    with urllib.request.urlopen(asking) as answer:
        text: str = answer.read().decode()
        return text


def _wait_until_ready(url: str, process: subprocess.Popen[bytes]) -> None:
    for _ in range(600):
        assert process.poll() is None, "the demo ended"
        try:
            with urllib.request.urlopen(url) as answer:
                if answer.status == 200:
                    return
        except OSError:
            time.sleep(0.1)
    pytest.fail(f"{url} did not answer")
