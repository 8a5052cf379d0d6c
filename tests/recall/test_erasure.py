"""Erasing a text: wherever it lives, whoever is at it meanwhile, and down to the bytes of the files."""

from __future__ import annotations

import json
import secrets
import signal
import sqlite3
import subprocess
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from hindsight_fake import FakeHindsight
from hindsight_peer import Peer

from ledger import erasure as storage
from ledger import outbox
from ledger.clock import now_ms
from ledger.domain.context import NewContext
from ledger.erasure import Eraser, Place, Subject
from ledger.models import ContextEvent, Operation, OutboxEntry, Tombstone
from ledger.queries import verify
from ledger.services import add_context, correct
from recall import banks, context, erasure, records
from recall.domain.rationale import ContextSearch
from recall.domain.request import RecallRequest
from recall.erasure import erase, survey
from recall.models import RecallRecord
from recall.services import recall
from vault.domain.access import Reach
from vault.models import Memory
from vault.services import Caller, revise

Api = Any
Manage = Callable[..., subprocess.CompletedProcess[str]]
SECRET = "zanzibarquux"
TEXT = f"Tom waits for the {SECRET} before the report"
WHY = "asked for by its subject"


@pytest.fixture
def told(caller: Caller, db: None) -> Callable[..., str]:
    """`told("a text")`: a context event that stands; its id."""

    def recorded(text: str = TEXT, **fields: Any) -> str:
        key, new = secrets.token_hex(8), NewContext(text, **fields)
        return add_context(new, key=key, actor=caller.actor, at=now_ms()).event_id

    return recorded


@pytest.fixture
def fake(fake: tuple[Peer, FakeHindsight]) -> Peer:
    return fake[0]


def deliver() -> outbox.Tally:
    return outbox.run(threading.Event(), clock=now_ms, lease_ms=60_000, once=True)


def delivered(event_id: str) -> Memory:
    assert deliver().delivered == 1
    return Memory.objects.get(external_id=event_id)


def searched(caller: Caller, query: str = "what about the report") -> RecallRecord:
    answer = context.search(ContextSearch(query=query), caller=caller, surface="api", at=now_ms())
    return RecallRecord.objects.get(id=answer["recall_id"])


def recalled(caller: Caller, query: str = "what about the report") -> RecallRecord:
    answer = recall(RecallRequest(query), caller=caller, surface="api", at=now_ms())
    return RecallRecord.objects.get(id=answer["recall_id"])


def everything() -> str:
    """Every row of every table as text, recall records unpacked."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE '%fts%'")
        tables = [name for (name,) in cursor.fetchall()]
        rows = []
        for table in tables:
            cursor.execute(f'SELECT * FROM "{table}"')
            rows += [(table, row) for row in cursor.fetchall()]
    documents = [records.read(row).document for row in RecallRecord.objects.all()]
    return json.dumps([rows, documents], default=_plain)


def _plain(value: object) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)


def found_by_word(word: str) -> list[int]:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT name FROM sqlite_master WHERE name LIKE 'vault_fts_%' AND sql LIKE 'CREATE V%'"
        )
        tables = [name for (name,) in cursor.fetchall()]
        found: list[int] = []
        for table in tables:
            cursor.execute(f"SELECT rowid FROM {table} WHERE {table} MATCH %s", [word])
            found += [seq for (seq,) in cursor.fetchall()]
    return found


# ------------------------------------------------------------------------------------------------- everywhere


@pytest.mark.parametrize("named", ["event", "memory"])
def test_an_erased_text_is_in_no_row_of_any_table(
    told: Callable[..., str], caller: Caller, named: str
) -> None:
    event_id = told(item_id="itm_1")
    memory = delivered(event_id)
    shown = [searched(caller), recalled(caller)]
    assert SECRET in everything()
    assert found_by_word(SECRET) == [memory.seq]

    done = erase(event_id if named == "event" else memory.id, caller=caller, at=now_ms(), reason=WHY)

    assert (done.event_ids, done.memory_ids) == ((event_id,), (memory.id,))
    assert SECRET not in everything()
    assert found_by_word(SECRET) == []
    assert not memory.embeddings.exists()
    assert all(records.read(RecallRecord.objects.get(id=row.id)).digest_holds for row in shown)
    assert verify().ok


def test_an_erasure_leaves_a_tombstone_and_an_event_in_the_chain(
    told: Callable[..., str], caller: Caller
) -> None:
    event_id, at = told(), now_ms()
    hash_before = ContextEvent.objects.get(id=event_id).hash
    erase(event_id, caller=caller, at=at, reason=WHY)
    event = ContextEvent.objects.get(id=event_id)
    tombstone = Tombstone.objects.get(event=event)
    assert (tombstone.payload_hash, tombstone.erased_at) == (event.payload_hash, at)
    assert (tombstone.actor_label, tombstone.reason) == ("ada", WHY)
    assert (event.erased, event.hash) == (True, hash_before)
    said = ContextEvent.objects.get(kind="context_erased")
    assert (said.subject_id, said.reason, said.actor_label) == (event_id, WHY, "ada")
    assert said.values_of_metadata == {"payload_hash": event.payload_hash}


def test_other_events_keep_their_texts_and_the_chain_its_order(
    told: Callable[..., str], caller: Caller
) -> None:
    first = told()
    second = told("Tom has it now", supersedes=first)
    note = correct(second, kind="annotate", reason="he said so himself", actor=caller.actor, at=now_ms())
    deliver()
    erase(first, caller=caller, at=now_ms(), reason=WHY)
    texts = dict(ContextEvent.objects.values_list("id", "text"))
    assert (texts[first], texts[second], texts[note.id]) == (None, "Tom has it now", note.text)
    assert Memory.objects.get(external_id=second).text.endswith(": Tom has it now")
    assert context.queries.heads_of([first])[first].id == second


def test_a_memory_that_cites_the_event_in_its_own_words_stays_and_is_named(
    told: Callable[..., str], remember: Callable[..., Memory], caller: Caller
) -> None:
    event_id = told()
    summary = remember("Somebody is waiting", source_event_id=event_id)
    quote = remember(f"He wrote: {TEXT}", source_event_id=event_id)
    stays = {place.name: place.ids for place in survey(event_id, caller=caller).stays}
    assert stays["memories that cite the event"] == (summary.id,)
    assert erase(event_id, caller=caller, at=now_ms(), reason=WHY).memory_ids == (quote.id,)
    assert Memory.objects.get(id=summary.id).text == "Somebody is waiting"
    assert erase(summary.id, caller=caller, at=now_ms(), reason=WHY).memory_ids == (summary.id,)


def test_the_api_blanks_what_the_command_blanks(api: Api, told: Callable[..., str], caller: Caller) -> None:
    event_id = told()
    memory = delivered(event_id)
    status, answer = api.post(f"/v1/events/{event_id}/erase", {"reason": WHY})
    assert (status, answer["erased"], answer["text"]) == (200, True, None)
    assert (answer["delivery"]["state"], answer["erasure"]["state"]) == ("delivered", "pending")
    assert Memory.objects.get(id=memory.id).erased_at is not None
    other = delivered_late = told("the second secret")
    assert deliver().delivered == 2  # it, and the erasure of the first
    copy = Memory.objects.get(external_id=delivered_late)
    assert api.post(f"/v1/memories/{copy.id}/erase", {"reason": WHY})[0] == 200
    assert ContextEvent.objects.get(id=other).erased


def test_the_same_key_after_an_erasure_does_not_bring_the_text_back(caller: Caller, db: None) -> None:
    def post() -> str:
        return add_context(NewContext(TEXT), key="k", actor=caller.actor, at=now_ms()).event_id

    erase(post(), caller=caller, at=now_ms(), reason=WHY)
    with pytest.raises(Exception, match="erased since"):
        post()
    assert SECRET not in everything()


@pytest.mark.parametrize("times", [2, 3])
def test_erasing_again_changes_nothing(told: Callable[..., str], caller: Caller, times: int) -> None:
    event_id = told()
    erase(event_id, caller=caller, at=now_ms(), reason=WHY)
    before = everything()
    for _ in range(times):
        again = erase(event_id, caller=caller, at=now_ms(), reason="once more")
        assert (again.event_ids, again.memory_ids) == ((), ())
    assert everything() == before


def test_whoever_else_keeps_texts_is_asked_and_a_failure_undoes_all(
    told: Callable[..., str], caller: Caller, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    event_id = told()
    asked: list[Subject] = []

    def fails(subject: Subject) -> None:
        asked.append(subject)
        raise RuntimeError("no")

    notes = Eraser(lambda subject: [Place.of("notes", subject.event_ids, "blanked")], fails)
    monkeypatch.setattr(erasure, "NOTES", notes, raising=False)
    settings.LEDGER_ERASERS = [*settings.LEDGER_ERASERS, "recall.erasure.NOTES"]
    assert Place("notes", 1, "blanked", (event_id,)) in survey(event_id, caller=caller).places
    with pytest.raises(RuntimeError):
        erase(event_id, caller=caller, at=now_ms(), reason=WHY)
    assert asked == [Subject((event_id,), ())]
    assert ContextEvent.objects.get(id=event_id).text == TEXT
    assert not Tombstone.objects.exists()


# ------------------------------------------------------------------------------------------------- a dry run


def test_a_dry_run_lists_every_place_and_writes_nothing(
    told: Callable[..., str], caller: Caller, remember: Callable[..., Memory], capsys: Any
) -> None:
    event_id = told(reason="he called", tags=("calls",))
    memory = delivered(event_id)
    searched(caller)
    remember(f"copied: {TEXT}")
    quoting = told(f"As said: {TEXT}")
    before = everything()

    call_command("erase", event_id, dry_run=True, json=True)

    assert everything() == before
    (found,) = json.loads(capsys.readouterr().out)["surveys"]
    counts = {place["name"]: place["count"] for place in found["places"]}
    assert counts == {
        "ledger: the event": 1,
        "ledger: events of the memory": 1,
        "ledger: answers stored under an idempotency key": 1,
        "outbox: deliveries of the event": 1,
        "upstream: documents in the memory bank": 1,
        "vault: memories": 1,
        "vault: tags": memory.tags.count(),
        "text index (FTS)": 1,
        "vectors": memory.embeddings.count(),
        "index files": 0,
        "recall records: answers, reasons, candidates": 1,
    }
    assert memory.embeddings.count() == 1
    stays = {place["name"]: place["ids"] for place in found["stays"]}
    assert stays["reason and tags of the event"] == [event_id]
    assert stays["other events that quote it"][-1] == quoting
    assert stays["other memories that quote it"] == [Memory.objects.get(text__startswith="copied").id]
    erase(event_id, caller=caller, at=now_ms(), reason=WHY)
    call_command("erase", event_id, dry_run=True)
    assert "was erased already" in capsys.readouterr().out


def test_a_dry_run_finds_quotes_of_a_text_that_json_spells_otherwise(
    told: Callable[..., str], remember: Callable[..., Memory], caller: Caller
) -> None:
    awkward = 'He said "no"\nand left 🦊 100%_'
    event_id = told(awkward)
    memory = remember(f"{awkward}!")
    changed = remember("a plain text")
    revise(changed.id, {"text": awkward + "?"}, caller=caller, at=now_ms())
    revise(changed.id, {"text": "plain again"}, caller=caller, at=now_ms())
    stays = {place.name: place for place in survey(event_id, caller=caller).stays}
    assert stays["other memories that quote it"].ids == (memory.id,)
    assert stays["other events that quote it"].count == 3  # created, and both revisions


# ------------------------------------------------------------------------------------------------- refusals


def test_what_cannot_be_erased_is_refused_with_a_hint(
    told: Callable[..., str], remember: Callable[..., Memory], api: Api
) -> None:
    memory = remember("a text")
    change = ContextEvent.objects.get(subject_id=memory.id)
    status, answer = api.post(f"/v1/events/{change.id}/erase", {"reason": WHY})
    assert (status, answer["error"]["code"], answer["error"]["hint"]) == (
        422,
        "not_erasable",
        f"erase {memory.id}",
    )
    for path in ("/v1/events/evt_x/erase", "/v1/memories/mem_x/erase"):
        assert api.post(path, {"reason": WHY})[0] == 404
    event_id = told()
    for body in ({}, {"reason": ""}, {"reason": " \n"}, {"reason": "x" * 2_001}, {"reason": 7}):
        status, answer = api.post(f"/v1/events/{event_id}/erase", body)
        assert (status, answer["error"]["field"]) == (400, "reason"), body
    erase_told = api.post(f"/v1/events/{event_id}/erase", {"reason": WHY})
    said = ContextEvent.objects.get(kind="context_erased")
    assert erase_told[0] == 200
    assert api.post(f"/v1/events/{said.id}/erase", {"reason": WHY})[0] == 422


def test_a_foreign_event_is_unknown_and_a_global_one_read_only_for_a_bound_key(
    told: Callable[..., str], api_for: Callable[..., Api]
) -> None:
    blue, everybodys = told(workspace="blue"), told("for everybody to read")
    red = api_for(workspace="red")
    unknown = red.post("/v1/events/evt_x/erase", {"reason": WHY})
    foreign = red.post(f"/v1/events/{blue}/erase", {"reason": WHY})
    assert (foreign[0], json.dumps(foreign[1]).replace(blue, "evt_x")) == (404, json.dumps(unknown[1]))
    assert red.post(f"/v1/events/{everybodys}/erase", {"reason": WHY})[0] == 403
    writer = api_for("read,write", workspace="blue")
    assert writer.post(f"/v1/events/{blue}/erase", {"reason": WHY})[0] == 403
    assert api_for(workspace="blue").post(f"/v1/events/{blue}/erase", {"reason": WHY})[0] == 200
    assert not ContextEvent.objects.get(id=everybodys).erased


def test_only_the_privileged_may_erase_whatever_surface_asks(
    told: Callable[..., str], bound_caller: Callable[..., Caller], caller: Caller
) -> None:
    event_id = told(workspace="red")
    weak = Caller(caller.actor, Reach(None, None, asserts_provenance=False))
    for asking in (weak, bound_caller("red")):
        with pytest.raises(Exception, match="only an administrator may erase"):
            erase(event_id, caller=asking, at=now_ms(), reason=WHY)
    with pytest.raises(Exception, match="of every workspace"):
        survey(event_id, caller=bound_caller("red", asserts_provenance=True))
    assert not ContextEvent.objects.get(id=event_id).erased


@pytest.mark.parametrize(
    ("arguments", "options", "said", "status"),
    [
        ((), {}, "name what to erase", 2),
        (("evt_x",), {"compact": True}, "name what to erase", 2),
        (("evt_x",), {"reason": WHY}, "no event evt_x", 1),
        (("key_x",), {"reason": WHY}, "nothing has the id key_x", 1),
        (("{event}",), {}, "a reason is required", 1),
        (("{event}", "mem_x"), {"reason": WHY}, "no memory mem_x", 1),
    ],
)
def test_the_command_refuses_in_words_and_erases_nothing(
    told: Callable[..., str], arguments: tuple[str, ...], options: Any, said: str, status: int
) -> None:
    event_id = told()
    with pytest.raises(CommandError, match=said) as refused:
        call_command("erase", *(a.format(event=event_id) for a in arguments), **options)
    assert refused.value.returncode == status
    assert not ContextEvent.objects.get(id=event_id).erased


# ------------------------------------------------------------------------------------------------- upstream


def test_the_bank_is_told_to_forget_and_asked_again_while_it_is_down(
    fake: Peer, told: Callable[..., str], caller: Caller, settings: Any, other_bank: Callable[[], None]
) -> None:
    event_id = told()
    assert deliver().delivered == 1
    assert fake.document("banks", event_id) is not None
    erase(event_id, caller=caller, at=now_ms(), reason=WHY)
    settings.HINDSIGHT = {**settings.HINDSIGHT, "url": "http://127.0.0.1:9"}
    other_bank()
    assert outbox.deliver_one(clock=now_ms, lease_ms=60_000, token="t") is not None
    waiting = OutboxEntry.objects.get(kind="erasure")
    assert (waiting.state, waiting.error_code) == ("pending", "bank_unavailable")
    settings.HINDSIGHT = {**settings.HINDSIGHT, "url": fake.url}
    other_bank()
    tally = outbox.run(threading.Event(), clock=lambda: now_ms() + 60_000, lease_ms=60_000, once=True)
    assert (tally.delivered, tally.failed) == (1, 0)
    assert fake.document("banks", event_id) is None


@pytest.mark.parametrize("bank", ["local", "hindsight"])
def test_an_erasure_during_a_delivery_waits_for_it_and_then_removes_what_it_brought(
    request: pytest.FixtureRequest, told: Callable[..., str], caller: Caller, bank: str
) -> None:
    peer = request.getfixturevalue("fake") if bank == "hindsight" else None
    event_id = told()
    begun = outbox.claim(at=now_ms(), lease_ms=60_000, token="slow")
    assert begun is not None
    assert begun.event is not None  # the worker has read the text
    erase(event_id, caller=caller, at=now_ms(), reason=WHY)

    early = outbox.deliver_one(clock=now_ms, lease_ms=60_000, token="fast")
    assert early is not None
    assert (early.kind, early.state, early.error_code) == ("erasure", "pending", "delivery_under_way")

    outbox._settle_success(begun, banks.deliver(begun), at=now_ms())
    came_back = SECRET in everything() if peer is None else peer.document("banks", event_id) is not None
    assert came_back

    tally = outbox.run(threading.Event(), clock=lambda: now_ms() + 60_000, lease_ms=60_000, once=True)
    assert (tally.delivered, tally.failed) == (1, 0)
    assert peer is None or peer.document("banks", event_id) is None
    assert SECRET not in everything()
    assert verify().ok


def test_what_waits_in_the_outbox_is_not_delivered_any_more(
    fake: Peer, told: Callable[..., str], caller: Caller
) -> None:
    event_id = told()
    OutboxEntry.objects.update(payload=json.dumps({"text": TEXT}), error=TEXT)
    erase(event_id, caller=caller, at=now_ms(), reason=WHY)
    entry = OutboxEntry.objects.get(kind="context")
    assert (entry.state, entry.error_code, entry.payload) == ("failed", "erased", "{}")
    deliver()
    assert not any(asked.path.endswith("/memories") for asked in fake.asked)
    assert SECRET not in everything()
    assert Operation.objects.get().event_id == event_id


# ------------------------------------------------------------------------------------------------- meanwhile


def test_an_event_that_is_erased_while_it_is_searched_is_not_served(
    told: Callable[..., str], caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    event_id = told()
    delivered(event_id)
    drafted = records.draft

    def meanwhile(*arguments: Any, **named: Any) -> Any:
        erase(event_id, caller=caller, at=now_ms(), reason=WHY)
        return drafted(*arguments, **named)

    monkeypatch.setattr(records, "draft", meanwhile)
    with pytest.raises(Exception, match="was erased while it was recalled"):
        searched(caller)
    assert not RecallRecord.objects.exists()
    assert SECRET not in everything()


@pytest.mark.django_db(transaction=True)
def test_two_who_erase_at_once_leave_one_tombstone_each_event(
    told: Callable[..., str], caller: Caller
) -> None:
    event_id = told()
    memory = delivered(event_id)
    together = threading.Barrier(4)

    def act(id_: str) -> int:
        try:
            together.wait(10)
            done = erase(id_, caller=caller, at=now_ms(), reason=WHY)
            return len(done.event_ids) + len(done.memory_ids)
        finally:
            connection.close()

    with ThreadPoolExecutor(4) as pool:
        counts = sorted(pool.map(act, [event_id, memory.id, event_id, memory.id]))
    assert counts == [0, 0, 0, 2]
    assert ContextEvent.objects.filter(kind__in=["context_erased", "memory_erased"]).count() == 2
    assert OutboxEntry.objects.filter(kind="erasure").count() == 1
    assert verify().ok


# ------------------------------------------------------------------------------------------------- the files

PREPARE = f"""
from ledger.clock import now_ms
from ledger.domain.actors import SYSTEM
from ledger import outbox
from ledger.services import NewContext, add_context
from recall import context
from recall.domain.rationale import ContextSearch
from recall.domain.request import RecallRequest
from recall.services import recall
from vault.domain.access import Reach
from vault.models import Memory
from vault.services import Caller, remember_many
import threading
ada = Caller(SYSTEM, Reach.everything())
many = [({{"text": f"note {{n}} about the report"}}, "") for n in range(2_100)]
for begin in range(0, 2_100, 700):
    remember_many(many[begin : begin + 700], caller=ada, at=now_ms())
event = add_context(NewContext("{TEXT}"), key="k", actor=SYSTEM, at=now_ms()).event_id
outbox.run(threading.Event(), clock=now_ms, lease_ms=60_000, once=True)
recall(RecallRequest("who waits"), caller=ada, surface="api", at=now_ms())
context.search(ContextSearch(query="who waits"), caller=ada, surface="api", at=now_ms())
print(event, Memory.objects.get(external_id=event).id)
"""
KILLED = """
import os, signal
from ledger.clock import now_ms
from ledger.domain.actors import SYSTEM
from recall import erasure
from vault.domain.access import Reach
from vault.services import Caller
erasure.erase("{event}", caller=Caller(SYSTEM, Reach.everything()), at=now_ms(), reason="asked for")
os.kill(os.getpid(), signal.SIGKILL)
"""


def files_holding(data: Path, word: str) -> list[str]:
    wanted = word.encode()
    return sorted(
        str(path.relative_to(data))
        for path in data.rglob("*")
        if path.is_file() and wanted in path.read_bytes()
    )


@pytest.mark.slow
def test_no_byte_of_an_erased_text_is_left_in_any_file_even_when_it_was_killed_in_between(
    manage: Manage, tmp_path: Path
) -> None:
    data = tmp_path / "var"
    assert manage("migrate", "-v", "0").returncode == 0
    written = manage("shell", "-v", "0", "-c", PREPARE, timeout=300)
    assert written.returncode == 0, written.stderr
    event, memory = written.stdout.split()
    holding = files_holding(data, SECRET)
    assert any("recall.sqlite3" in name for name in holding)
    assert any("index/" in name and "terms-keys" in name for name in holding)

    listed = manage("erase", memory, "--dry-run")
    assert listed.returncode == 0, listed.stderr
    assert event in listed.stdout
    assert "1  index files" in listed.stdout
    assert files_holding(data, SECRET) == holding

    killed = manage("shell", "-v", "0", "-c", KILLED.format(event=event))
    assert killed.returncode == -signal.SIGKILL
    assert files_holding(data, SECRET) != []

    again = manage("erase", event, "--reason", WHY, "--json")
    assert again.returncode == 0, again.stderr
    answer = json.loads(again.stdout)
    assert answer["erased"] == [{"id": event, "event_ids": [], "memory_ids": []}]
    assert [step["seconds"] >= 0 for step in answer["compacted"]["steps"]] == [True] * 3
    assert files_holding(data, SECRET) == []
    assert list((data / "index").rglob("generation-*"))  # written anew, not only thrown away
    with closing(sqlite3.connect(data / "recall.sqlite3")) as database:
        (memories,) = database.execute("SELECT count(*) FROM vault_memory WHERE erased_at IS NULL").fetchone()
    assert memories == 2_100
    assert manage("verify_ledger").returncode == 0
    assert manage("erase", "--compact").returncode == 0


@pytest.mark.django_db(transaction=True)
def test_a_reader_of_an_old_state_is_waited_for_and_then_told_of(
    told: Callable[..., str], monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    event_id = told()
    database = Path(connection.settings_dict["NAME"])
    log = Path(f"{database}-wal")
    monkeypatch.setattr(storage, "PATIENCE", 0.3)
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA busy_timeout = 200")
    with closing(sqlite3.connect(database)) as reader:
        reader.execute("BEGIN")
        assert reader.execute("SELECT text FROM ledger_contextevent").fetchone() == (TEXT,)
        with pytest.raises(CommandError, match="its bytes are still in the files: a reader"):
            call_command("erase", event_id, reason=WHY)
        assert ContextEvent.objects.get(id=event_id).erased
        assert SECRET.encode() in database.read_bytes() + log.read_bytes()
    call_command("erase", compact=True)
    assert SECRET.encode() not in database.read_bytes() + log.read_bytes()
    assert log.stat().st_size == 0
    assert "database rewritten, its log emptied" in capsys.readouterr().out
