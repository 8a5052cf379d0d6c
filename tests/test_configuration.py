"""What an operator gets wrong is answered in one line that names it, and never with a traceback."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Callable

import pytest

Manage = Callable[..., subprocess.CompletedProcess[str]]


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("RECALL_RATE_LIMIT", "abc"),
        ("RECALL_RATE_LIMIT", "0"),
        ("RECALL_INDEX", "elsewhere"),
        ("RECALL_RERANKER", "elsewhere"),
        ("RECALL_RERANKER_TIMEOUT_MS", "0"),
        ("RECALL_LOG_LEVEL", "LOUD"),
        ("RECALL_SECRET_KEY", "short"),
        ("RECALL_HTTPS", "perhaps"),
        ("RECALL_DATA_DIR", "/dev/null/var"),
    ],
)
def test_a_wrong_setting_is_named_in_one_line(manage: Manage, variable: str, value: str) -> None:
    done = manage("check", env={variable: value})

    assert done.returncode == 1
    assert done.stderr.startswith(f"configuration: {variable}")
    assert len(done.stderr.splitlines()) == 1


def test_a_reranker_elsewhere_without_its_address_is_named_in_one_line(manage: Manage) -> None:
    done = manage("check", env={"RECALL_RERANKER": "http"})

    assert done.returncode == 1
    assert done.stderr == "configuration: RECALL_RERANKER_URL must be set where RECALL_RERANKER is http\n"


def test_serve_refuses_a_port_that_is_taken_or_cannot_be(manage: Manage) -> None:
    assert manage("migrate", "-v0").returncode == 0
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        busy = manage("serve", "--port", str(taken.getsockname()[1]))
    impossible = manage("serve", "--port", "99999")

    assert "cannot be used (Address already in use)" in busy.stderr
    assert "cannot be used (ports end at 65535)" in impossible.stderr
    assert "Traceback" not in busy.stderr + impossible.stderr


def test_a_key_that_has_expired_already_is_not_made(manage: Manage) -> None:
    assert manage("migrate", "-v0").returncode == 0

    dead = manage("create_api_key", "late", "--expires", "2020-01-01")
    spaced = manage("create_api_key", "agent", "--scopes", "read, write")

    assert (dead.returncode, dead.stderr) == (1, "CommandError: expires lies in the past\n")
    assert (spaced.returncode, spaced.stdout[:4]) == (0, "rlk_")


def test_an_export_that_cannot_be_written_says_so(manage: Manage) -> None:
    assert manage("migrate", "-v0").returncode == 0

    done = manage("export_memories", "--output", "/no/such/folder/file")

    assert done.stderr == "CommandError: /no/such/folder/file cannot be written: No such file or directory\n"
