"""`manage.py verify_ledger`: exit 0 intact, 1 broken or unguarded, with the first broken event named."""

from __future__ import annotations

import io
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from ledger import triggers
from ledger.domain.hashchain import event_hash
from ledger.domain.refusals import Unavailable
from ledger.models import ContextEvent
from ledger.services import _require_fitting_key
from vault.models import Memory

pytestmark = pytest.mark.django_db

WITHOUT_A_KEY = (
    "That shows edits, but no forger who recomputes the whole chain: RECALL_LEDGER_KEY is not set.\n"
)
KEY = "k" * 32


def _verify(*arguments: str) -> tuple[int, str]:
    out, status = io.StringIO(), 0
    try:
        call_command("verify_ledger", *arguments, stdout=out)
    except SystemExit as ended:
        status = int(str(ended.code))
    return status, out.getvalue()


def _tamper() -> str:
    """Change the text of event 2 as somebody would who then tidies up behind himself; its id."""
    triggers.lift()
    with connection.cursor() as cursor:
        cursor.execute("UPDATE ledger_contextevent SET text = 'forged' WHERE seq = 2")
    triggers.install()
    return ContextEvent.objects.get(seq=2).id


def test_an_empty_ledger_is_intact() -> None:
    assert _verify() == (0, f"Intact: 0 events, head {'0' * 64}\n{WITHOUT_A_KEY}")


def test_an_intact_ledger_tells_its_length_and_its_head(remember: Callable[..., Memory]) -> None:
    remember("one")
    remember("two")
    head = ContextEvent.objects.get(seq=2).hash
    assert _verify() == (0, f"Intact: 2 events, head {head}\n{WITHOUT_A_KEY}")
    status, told = _verify("--json")
    assert (status, json.loads(told)) == (0, {"ok": True, "events": 2, "head_hash": head, "keyed_from": None})


def test_a_broken_ledger_names_the_first_broken_event(remember: Callable[..., Memory]) -> None:
    for text in ("one", "two", "three"):
        remember(text)
    forged = _tamper()
    assert _verify() == (1, f"Broken at event 2 ({forged}): text, before or after was changed\n")
    status, told = _verify("--json")
    assert status == 1
    assert json.loads(told)["first_broken"] == {
        "seq": 2,
        "id": forged,
        "reason": "text, before or after was changed",
    }


def test_an_unguarded_ledger_is_not_called_intact() -> None:
    with connection.cursor() as cursor:
        cursor.execute("DROP TRIGGER ledger_tombstone_no_delete")
    with pytest.raises(CommandError, match="lacks ledger_tombstone_no_delete"):
        _verify()


# ---- with a key


def test_a_ledger_written_with_a_key_says_so_and_names_what_to_ask_next_time(
    remember: Callable[..., Memory], settings: Any
) -> None:
    settings.LEDGER_KEY = KEY.encode()
    remember("one")
    status, told = _verify()
    assert status == 0
    assert "Events from 1 on were written with the key" in told
    assert "--keyed-from 1 from now on" in told
    assert json.loads(_verify("--json", "--keyed-from", "1")[1])["keyed_from"] == 1


def test_a_ledger_that_went_on_with_a_key_tells_from_where(
    remember: Callable[..., Memory], settings: Any
) -> None:
    remember("one")
    remember("two")
    settings.LEDGER_KEY = KEY.encode()
    remember("three")
    status, told = _verify()
    assert status == 0
    assert "Events from 3 on were written with the key, which covers the hashes of those before" in told
    assert _verify("--keyed-from", "3")[0] == 0
    status, told = _verify("--keyed-from", "2")
    assert (status, "it was written without the key (--keyed-from)" in told) == (1, True)


def test_a_forger_who_leaves_the_key_out_is_found(remember: Callable[..., Memory], settings: Any) -> None:
    settings.LEDGER_KEY = KEY.encode()
    for text in ("one", "two", "three"):
        remember(text)
    _recompute_from(2, reason="forged")
    status, told = _verify()
    assert status == 1
    assert told.startswith("Broken at event 2")
    assert "it was written without the key, after events that were written with it" in told
    _recompute_from(
        1, reason="forged"
    )  # and one who rewrites everything, by whoever remembers that there was a key
    status, told = _verify()
    assert (status, "none was written with the key" in told) == (0, True)
    status, told = _verify("--keyed-from", "1")
    assert (status, told.startswith("Broken at event 1")) == (1, True)


def _recompute_from(seq: int, *, reason: str) -> None:
    """Write events anew, as somebody would who knows how hashes are made and has no key."""
    triggers.lift()
    prev_hash = ContextEvent.objects.get(seq=seq - 1).hash if seq > 1 else "0" * 64
    for event in ContextEvent.objects.filter(seq__gte=seq).order_by("seq"):
        event.reason, event.prev_hash = reason, prev_hash
        prev_hash = event_hash(
            seq=event.seq,
            metadata=event.chained_metadata,
            payload_hash=event.payload_hash,
            prev_hash=event.prev_hash,
        )
        with connection.cursor() as cursor:
            cursor.execute(
                "UPDATE ledger_contextevent SET reason = %s, prev_hash = %s, hash = %s WHERE seq = %s",
                [reason, event.prev_hash, prev_hash, event.seq],
            )
    triggers.install()


def test_a_keyed_ledger_is_not_verified_with_another_key_or_with_none(
    remember: Callable[..., Memory], settings: Any
) -> None:
    settings.LEDGER_KEY = KEY.encode()
    remember("one")
    settings.LEDGER_KEY = b"another" * 5
    assert "or it was written with another key" in _verify()[1]
    settings.LEDGER_KEY = None
    status, told = _verify()
    assert (status, "or it was written with a key" in told) == (1, True)
    with pytest.raises(CommandError, match="--keyed-from needs the key"):
        _verify("--keyed-from", "1")


@pytest.mark.parametrize("key", [None, b"another" * 5])
def test_nothing_is_appended_to_a_keyed_ledger_with_another_key_or_with_none(
    remember: Callable[..., Memory], settings: Any, key: bytes | None
) -> None:
    settings.LEDGER_KEY = KEY.encode()
    remember("one")
    settings.LEDGER_KEY = key
    _require_fitting_key.cache_clear()
    with pytest.raises(Unavailable) as refused:
        remember("two")
    assert refused.value.code == "ledger_key_mismatch"
    assert ContextEvent.objects.count() == 1
    settings.LEDGER_KEY = KEY.encode()
    remember("two")
    assert _verify()[0] == 0


def test_the_key_may_stand_in_a_file_and_must_be_long(
    manage: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    (tmp_path / "key").write_text(KEY + "\n")
    shown = "from django.conf import settings; print(settings.LEDGER_KEY)"
    asked = manage(
        "shell", "--no-imports", "-c", shown, env={"RECALL_LEDGER_KEY_FILE": str(tmp_path / "key")}
    )
    assert asked.stdout == f"{KEY.encode()!r}\n"
    short = manage("check", env={"RECALL_LEDGER_KEY": "short"})
    assert short.stderr == "configuration: RECALL_LEDGER_KEY has fewer than 32 characters\n"
