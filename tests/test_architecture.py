"""The house keeps its rules, and its README tells the truth."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.core.management import get_commands
from django.test import Client
from importlinter.cli import lint_imports

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text()
PYPROJECT = (ROOT / "pyproject.toml").read_text()
CI = (ROOT / ".ci" / "run").read_text()

ROOMS = {"ledger", "vault", "recall", "templates", "static", "tests"}
PAPERS = {"manage.py", "pyproject.toml", "requirements.lock", "README.md", "LICENSE"}


def _committed() -> list[str]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    return [name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]


def _section(title: str) -> str:
    found = re.search(rf"^#+ {re.escape(title)}\n(.*?)(?=^#+ |\Z)", README, re.M | re.S)
    assert found is not None, f"README has no section {title}"
    return found[1]


def _shell(title: str) -> list[str]:
    return re.findall(r"```sh\n(.*?)```", _section(title), re.S)


# ---- the house


def test_imports_go_from_recall_to_vault_to_ledger_and_never_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert lint_imports(config_filename=str(ROOT / "pyproject.toml"), no_cache=True) == 0


def test_the_root_holds_the_rooms_and_their_papers_and_nothing_else() -> None:
    top = {name.split("/")[0] for name in _committed()}
    assert {name for name in top if not name.startswith(".")} <= ROOMS | PAPERS


def test_no_committed_file_names_a_registry_or_a_place_of_one_machine() -> None:
    spelled = (
        "pypi dot org",
        "pythonhosted dot org",
        "npmjs dot org",
        "deb dot debian dot org",
        "unpkg dot com",
    )
    banned = [name.replace(" dot ", ".") for name in spelled] + ["/".join(("", "work", "shared"))]
    found = [
        (name, word)
        for name in _committed()
        for word in banned
        if word.encode() in (ROOT / name).read_bytes().lower()
    ]
    assert found == []


def test_every_dependency_is_pinned_and_says_why_it_is_there() -> None:
    settings = tomllib.loads(PYPROJECT)
    wanted = [*settings["project"]["dependencies"], *settings["dependency-groups"]["dev"]]
    silent = [one for one in wanted if not re.search(rf'^    "{re.escape(one)}", *# \w', PYPROJECT, re.M)]
    assert silent == []
    assert [one for one in wanted if "==" not in one] == []


def test_the_lock_holds_every_dependency_with_hashes_and_no_address() -> None:
    lock = (ROOT / "requirements.lock").read_text()
    settings = tomllib.loads(PYPROJECT)
    for wanted in [*settings["project"]["dependencies"], *settings["dependency-groups"]["dev"]]:
        pinned = re.sub(r"\[.*\]", "", wanted)
        assert re.search(rf"^{re.escape(pinned)}\b", lock, re.M | re.I), (
            f"{wanted} is not in requirements.lock"
        )
    assert "://" not in lock
    assert "--index-url" not in lock
    packages = re.findall(r"^([a-z0-9._-]+(?:\[[a-z,]+\])?)==(?:.|\\\n)*", lock, re.M)
    assert len(packages) > 40
    assert all("--hash=sha256:" in entry for entry in re.split(r"\n(?=\S)", lock.strip()))


# ---- the README


def test_the_readme_names_its_two_commands_and_both_exist() -> None:
    assert _shell("See it") == ["pip install uv && uv run manage.py demo\n"]
    assert _shell("Run the tests") == ["pip install uv && uv run pytest\n"]
    assert "demo" in get_commands()


def test_ci_runs_the_readmes_own_test_command() -> None:
    command = _shell("Run the tests")[0].strip()
    assert f"\n{command}\n" in CI


def test_ci_checks_the_lock_with_the_readmes_own_lock_command() -> None:
    command = _shell("Development")[1].strip().removesuffix("requirements.lock").strip()
    assert command in CI


def test_every_environment_variable_of_the_settings_stands_in_the_readme_and_no_other() -> None:
    source = (ROOT / "recall" / "settings.py").read_text()
    plain = set(re.findall(r'(?:os\.environ(?:\.get\(|\[)|flag\(|whole_number\(|choice\()"(\w+)"', source))
    secret = set(re.findall(r'\bsecret\("(\w+)"', source))
    assert len(plain) > 5
    assert len(secret) > 4
    told = set(
        re.findall(r"`(\w+)`", "\n".join(re.findall(r"^\| (`[^|]*`) \|", _section("Configuration"), re.M)))
    )
    assert told == plain | secret | {f"{name}_FILE" for name in secret}


def test_every_command_stands_in_the_readme_and_no_other() -> None:
    ours = {name for name, app in get_commands().items() if app in ("ledger", "vault", "recall")}
    assert set(re.findall(r"^\| `manage\.py (\w+)` \|", _section("Commands"), re.M)) == ours


def test_every_room_stands_in_the_readme() -> None:
    told = set(re.findall(r"`(\w+)/`", _section("The house")))
    assert told >= ROOMS


@pytest.mark.django_db
def test_the_quick_tour_works_as_it_is_written(key_for_the_tour: str) -> None:
    client, answers, memory_id = Client(), [], ""
    for command in _shell("The API in five minutes"):
        arguments = shlex.split(command.replace("\\\n", " ").replace("$KEY", key_for_the_tour))
        assert arguments[0] == "curl"
        path = arguments[1].removeprefix("http://localhost:8000").replace("$ID", memory_id)
        named = dict(
            arguments[place + 1].split(": ", 1) for place, one in enumerate(arguments) if one == "-H"
        )
        body = arguments[arguments.index("-d") + 1]
        answer = client.post(path, body, content_type=named.pop("Content-Type"), headers=named)
        assert answer.status_code in (200, 201), answer.content
        answers.append(json.loads(answer.content))
        memory_id = memory_id or answers[-1]["id"]
    _, _, recalled = answers
    hits = recalled["results"]
    assert [hit["memory"]["text"] for hit in hits] == ["The team deploys on Thursdays"]
    assert hits[0]["state_replaces"] == [memory_id]
    assert hits[0]["validity"]["grade"] == "valid"


@pytest.fixture
def key_for_the_tour(db: None, now: int) -> str:
    from recall.services import create_api_key

    _, secret = create_api_key("tour", scopes=["read", "write"], workspace=None, expires_at=None, at=now)
    return secret


@pytest.mark.django_db
@pytest.mark.parametrize("method", ["get", "post"])
def test_an_unknown_argument_is_named_as_the_readme_says(key_for_the_tour: str, method: str) -> None:
    send: Callable[..., Any] = getattr(
        Client(headers={"Authorization": f"Bearer {key_for_the_tour}"}), method
    )
    arguments: Any = {"query": "x", "workspce": "team"}
    answer = send(
        "/v1/recall", arguments, **({"content_type": "application/json"} if method == "post" else {})
    )
    assert answer.status_code == 400
    told = answer.json()["error"]
    assert (told["code"], told["field"]) == ("unknown_field", "workspce")
