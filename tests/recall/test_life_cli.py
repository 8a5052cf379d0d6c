"""The `life` command as somebody at a shell runs it: a process of its own, its output, errors and exit status."""

from __future__ import annotations

import json
import os
import pwd
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any

import pytest

from recall import cli

LIFE = Path(sys.executable).parent / "life"
Ran = subprocess.CompletedProcess[str]
Life = Callable[..., Ran]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory with a migrated database, and two events in the vault: the second in the first's place."""
    home = tmp_path_factory.mktemp("life")
    manage = [sys.executable, str(Path(cli.__file__).parent.parent / "manage.py")]
    subprocess.run([*manage, "migrate"], env=environment(home), check=True, capture_output=True, timeout=120)
    first = json.loads(
        life_in(home, "context", "add", "--input", "-", "--json", body={**REPORT, "reason": "a call"}).stdout
    )
    successor = {"text": "The report goes on", "item_id": "itm_1", "supersedes_context_id": first["event_id"]}
    assert life_in(home, "context", "add", "--input", "-", body=successor).returncode == 0
    subprocess.run(
        [*manage, "deliver", "--once"], env=environment(home), check=True, capture_output=True, timeout=120
    )
    (home / "first").write_text(first["event_id"])
    return home


REPORT = {"text": "The report waits: Tom is ill", "item_id": "itm_1"}


def environment(home: Path) -> dict[str, str]:
    return {**os.environ, "DJANGO_SETTINGS_MODULE": "recall.settings", "RECALL_DATA_DIR": str(home)}


def life_in(home: Path, *arguments: str, body: Any = None) -> Ran:
    sent = body if isinstance(body, str) else "" if body is None else json.dumps(body)
    return subprocess.run(
        [str(LIFE), *arguments],
        input=sent,
        env=environment(home),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], db: None) -> Life:
    """The same in this process, for what ends before it has begun: status, output and errors."""

    def run(*arguments: str, body: Any = None) -> Ran:
        sent = body if isinstance(body, str) else json.dumps(body)
        monkeypatch.setattr(sys, "stdin", TextIOWrapper(BytesIO(sent.encode())))
        try:
            status = cli.run(arguments)
        except SystemExit as ended:
            status = int(ended.code or 0)
        told = capsys.readouterr()
        return subprocess.CompletedProcess([*arguments], status, told.out, told.err)

    return run


@pytest.fixture
def life(home: Path) -> Life:
    def run(*arguments: str, body: Any = None) -> Ran:
        return life_in(home, *arguments, body=body)

    return run


def test_the_command_is_installed_with_the_project() -> None:
    assert LIFE.exists()


def test_context_is_added_from_a_file_and_told_in_words(life: Life, tmp_path: Path) -> None:
    file = tmp_path / "body.json"
    file.write_text(json.dumps({"text": "Closed on Mondays", "workspace": "team"}))
    ran = life("context", "add", "--input", str(file))
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.startswith("Recorded evt_")
    assert "waits to be delivered" in ran.stdout
    assert "Operation op_" in ran.stdout


def test_the_same_operation_id_records_once_and_another_payload_is_refused(life: Life) -> None:
    once = ("context", "add", "--input", "-", "--operation-id", "k1", "--json")
    first, second = (life(*once, body=REPORT) for _ in range(2))
    assert (first.returncode, second.returncode, second.stderr) == (0, 0, "")
    assert json.loads(first.stdout) == json.loads(second.stdout)
    assert json.loads(first.stdout).keys() == {"operation_id", "event_id", "context_delivery"}
    other = life(*once, body={"text": "another"})
    assert (other.returncode, other.stdout) == (1, "")
    told = json.loads(other.stderr)["error"]
    assert (told["code"], told["field"]) == ("idempotency_conflict", "Idempotency-Key")


def test_without_an_operation_id_every_call_is_a_new_event(life: Life) -> None:
    body = {"text": "said twice", "workspace": "twice"}
    ids = {
        json.loads(life("context", "add", "--input", "-", "--json", body=body).stdout)["event_id"]
        for _ in range(2)
    }
    assert len(ids) == 2


def test_a_search_answers_as_the_api_does(life: Life, home: Path) -> None:
    ran = life("context", "search", "--input", "-", "--json", body={"query": "report", "item_id": "itm_1"})
    assert (ran.returncode, ran.stderr) == (0, "")
    answer = json.loads(ran.stdout)
    assert answer["hits"][0]["content"] == "The report goes on"
    assert answer["hits"][-1]["source_event_id"] == (home / "first").read_text()
    assert [warning["code"] for warning in answer["warnings"]] == ["context_stale"]
    assert answer["recall_id"].startswith("rcl_")


def test_a_search_in_words_tells_what_is_current_what_is_superseded_and_what_is_on_record(
    life: Life, home: Path
) -> None:
    ran = life("context", "search", "--input", "-", body={"query": "report", "item_id": "itm_1"})
    old = (home / "first").read_text()
    lines = ran.stdout.splitlines()
    assert lines[0].startswith("2 hits about item itm_1. Fresh.")
    assert lines[1].startswith(f"! Recalled context from event {old} was superseded by evt_")
    current, stale = (next(line for line in lines if line.startswith(f"{n}. ")) for n in (1, 2))
    assert current.endswith("valid, current")
    assert old in stale
    assert "context_invalid, superseded by evt_" in stale
    assert "   Reason: a call" in lines
    assert "1 superseded" in lines[-2]
    assert lines[-1].startswith("Recall rcl_")
    none = life("context", "search", "--input", "-", body={"query": "report", "item_id": "itm_9"})
    assert none.stdout.startswith("0 hits about item itm_9. Empty: the bank returned nothing.")


def test_whoever_asks_is_on_record(life: Life, home: Path) -> None:
    life("context", "search", "--input", "-", body={"query": "who asks"})
    with sqlite3.connect(home / "recall.sqlite3") as database:
        recalls = database.execute(
            "SELECT actor_kind, actor_label, surface, mode FROM recall_recallrecord WHERE query = 'who asks'"
        ).fetchall()
        events = database.execute(
            "SELECT DISTINCT actor_kind, actor_label FROM ledger_contextevent"
        ).fetchall()
    database.close()
    user = pwd.getpwuid(os.getuid()).pw_name
    assert recalls == [("cli", user, "cli", "context")]
    assert ("cli", user) in events


@pytest.mark.parametrize(
    ("verb", "body", "field"),
    [
        ("add", {"txet": "a"}, "txet"),
        ("add", {"text": "a", "item_id": ""}, "item_id"),
        ("add", {"text": "a", "supersedes_context_id": "evt_unknown"}, "supersedes_context_id"),
        ("search", {"query": ""}, "query"),
        ("search", {"query": "a", "limit": 0}, "limit"),
    ],
)
def test_what_is_refused_is_told_on_stderr_with_its_field(
    called: Life, verb: str, body: dict[str, Any], field: str
) -> None:
    ran = called("context", verb, "--input", "-", body=body)
    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr.startswith("life: ")
    assert f"({field})" in ran.stderr
    assert "Traceback" not in ran.stderr


@pytest.mark.parametrize("body", ["", "{", "[]", "nonsense", '{"text": NaN}', "x" * (2 * 1024 * 1024 + 1)])
def test_what_is_no_json_object_is_refused(called: Life, body: str) -> None:
    ran = called("context", "add", "--input", "-", "--json", body=body)
    assert ran.returncode == 1
    assert json.loads(ran.stderr)["error"]["code"] in ("malformed", "too_large")


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("context",),
        ("context", "forget"),
        ("context", "add"),
        ("context", "add", "--input"),
        ("context", "add", "--input", "/nonexistent/body.json"),
        ("context", "search", "--input", "-", "--operation-id", "k"),
    ],
)
def test_a_wrong_call_is_told_with_how_to_call_it(called: Life, arguments: tuple[str, ...]) -> None:
    ran = called(*arguments)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.startswith("usage: life")
    assert "Traceback" not in ran.stderr


def test_help_is_no_error(called: Life) -> None:
    ran = called("context", "search", "--help")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "--input" in ran.stdout


def test_a_refusal_reaches_the_shell(life: Life) -> None:
    ran = life("context", "add", "--input", "-", body={"text": "a", "item_id": ""})
    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr == (
        "life: invalid (item_id): item_id must not be empty\n      leave it out to ask the whole bank\n"
    )
    assert life("context", "add").returncode == 2


def test_a_database_that_is_not_migrated_is_told(tmp_path: Path) -> None:
    ran = life_in(tmp_path, "context", "search", "--input", "-", body={"query": "report"})
    assert ran.returncode == 1
    assert "manage.py migrate" in ran.stderr
    assert "Traceback" not in ran.stderr


def test_a_wrong_configuration_is_told(home: Path) -> None:
    ran = subprocess.run(
        [str(LIFE), "context", "add", "--input", "-"],
        input=json.dumps(REPORT),
        env={**environment(home), "RECALL_RATE_LIMIT": "many"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert ran.returncode == 1
    assert ran.stderr.startswith("life: misconfigured: configuration: RECALL_RATE_LIMIT")


def test_what_was_recalled_cannot_steer_the_terminal(life: Life) -> None:
    bell = {"text": "stay \x1b[31mcalm\x07\nnext line", "item_id": "itm_esc", "workspace": "escape"}
    assert life("context", "add", "--input", "-", body=bell).returncode == 0
    successor = life("context", "search", "--input", "-", body={"query": "\x1b[2Jcalm"})
    assert "\x1b" not in successor.stdout
    hit = {
        "rank": 1,
        "content": bell["text"],
        "context": "",
        "current_rationale": True,
        "is_stale": False,
        "interpretation": False,
        "source_event_id": "evt_1",
        "document_id": None,
        "labels": ["unverifiable_occurrence"],
        "timestamp": None,
        "validity": {"grade": "valid"},
    }
    answer = {
        "scope": "bank",
        "count": 1,
        "outcome": {"status": "fresh", "reason": None},
        "warnings": [],
        "hits": [hit],
        "coverage": dict.fromkeys(("events", "superseded", "pending", "delivered", "failed"), 0)
        | {"first": None},
        "recall_id": "rcl_1",
    }
    shown = cli._printable(cli._found_in_words(answer))
    assert "stay \N{REPLACEMENT CHARACTER}[31mcalm\N{REPLACEMENT CHARACTER}" in shown
    assert "[unverifiable_occurrence]" in shown
