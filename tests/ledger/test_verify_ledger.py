"""`manage.py verify_ledger`: exit 0 intact, 1 broken or unguarded, with the first broken event named."""

from __future__ import annotations

import io
import json
from collections.abc import Callable

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from ledger import triggers
from ledger.models import ContextEvent
from vault.models import Memory

pytestmark = pytest.mark.django_db


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
    assert _verify() == (0, f"Intact: 0 events, head {'0' * 64}\n")


def test_an_intact_ledger_tells_its_length_and_its_head(remember: Callable[..., Memory]) -> None:
    remember("one")
    remember("two")
    head = ContextEvent.objects.get(seq=2).hash
    assert _verify() == (0, f"Intact: 2 events, head {head}\n")
    status, told = _verify("--json")
    assert (status, json.loads(told)) == (0, {"ok": True, "events": 2, "head_hash": head})


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
