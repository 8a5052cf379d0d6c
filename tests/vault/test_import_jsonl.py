"""Our own format: what is exported comes back, what is wrong is refused by line, nothing is fatal."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from ledger.domain.instants import DAY, UnixMs, format_instant
from ledger.models import ContextEvent
from ledger.queries import verify
from recall.domain.state import Anchor
from recall.management.commands.export_memories import Export, lines
from vault import services
from vault.importers import Format, jsonl
from vault.importers.run import BATCH, MAX_KEPT, Import, finish, on_a_copy, started
from vault.models import ImportRun, Memory, MemoryLink
from vault.services import Caller

pytestmark = pytest.mark.django_db


@pytest.fixture
def file_of(tmp_path: Path) -> Callable[..., Path]:
    """`file_of(row, row, …)`: a file with a line for each; a text stands as it is."""

    def written(*rows: Any, name: str = "in.jsonl") -> Path:
        path = tmp_path / name
        path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
        return path

    return written


@pytest.fixture
def importing(caller: Caller, now: UnixMs) -> Callable[..., ImportRun]:
    """`importing(path)`: the run, brought to its end."""

    def run(path: Path, *, workspace: str | None = None, format: Format = jsonl.FORMAT) -> ImportRun:
        job = Import(path, format, workspace, caller, lambda: now)
        return finish(started(job), job)

    return run


def exported(*, workspace: str | None = None, anchor: Anchor | None = None) -> str:
    asked = Export(workspace, anchor or Anchor(0), history=anchor is None)
    return b"".join(lines(asked)).decode()


class Undone(Exception):
    pass


def restored(text: str, tmp_path: Path, importing: Callable[..., ImportRun]) -> tuple[ImportRun, str]:
    """Import a text into an empty vault; the run, and what that vault exports then."""
    path = tmp_path / "restore.jsonl"
    path.write_text(text)
    with on_a_copy():  # of what is committed: nothing, for this test's transaction stays open
        assert not Memory.objects.exists()
        run = importing(path)
        return run, exported()


def test_every_field_and_link_comes_back_from_an_export(
    remember: Callable[..., Memory],
    event_in: Callable[..., str],
    link: Callable[..., MemoryLink],
    caller: Caller,
    importing: Callable[..., ImportRun],
    tmp_path: Path,
    now: UnixMs,
) -> None:
    source = event_in("red")
    full = remember(
        "Zoë's 4 o'clock: “quoted”, العربية, 🎉\nand a second line",
        workspace="red",
        tags=["b", "a"],
        category="note",
        provenance_class="verified",
        status="deprecated",
        archived=True,
        created_at=now - 7 * DAY + 123,
        t_valid=now - 5 * DAY,
        t_invalid=now + DAY,
        expires_at=now + 2 * DAY,
        source_event_id=source,
        external_id="their-17",
        metadata={"depth": {"list": [1, 2.5, None, True]}},
    )
    bare = remember("bare", workspace="red")
    newer = remember("newer", workspace="red")
    gone = remember("a secret", workspace="red", created_at=now - DAY)
    elsewhere = remember("elsewhere")
    link(full, bare, "RELATES_TO", strength=0.25, created_at=now - DAY)
    link(bare, newer, "EVOLVED_INTO", created_at=now - DAY)
    link(newer, gone, "INVALIDATED_BY")
    services.erase(gone.id, caller=caller, at=now, reason="asked for")
    first = exported()

    run, second = restored(first, tmp_path, importing)

    assert run.refused == []
    assert run.created == run.rows_done == 8
    assert second == first
    assert "a secret" not in first
    told = [json.loads(line) for line in first.splitlines()]
    assert told[0] == {
        "kind": "memory",
        "text": full.text,
        "workspace": "red",
        "tags": ["a", "b"],
        "category": "note",
        "provenance_class": "verified",
        "status": "deprecated",
        "archived": True,
        "created_at": "2026-11-23T12:00:00.123Z",
        "t_valid": "2026-11-25T12:00:00Z",
        "t_invalid": "2026-12-01T12:00:00Z",
        "expires_at": "2026-12-02T12:00:00Z",
        "source_event_id": source,
        "external_id": "their-17",
        "metadata": {"depth": {"list": [1, 2.5, None, True]}},
    }
    assert told[1]["external_id"] == bare.id
    assert told[3] == {
        "kind": "erased",
        "workspace": "red",
        "external_id": gone.id,
        "created_at": "2026-11-29T12:00:00Z",
    }
    assert told[4]["external_id"] == elsewhere.id


def test_of_two_links_of_one_instant_the_same_one_decides_after_a_restore(
    remember: Callable[..., Memory],
    link: Callable[..., MemoryLink],
    importing: Callable[..., ImportRun],
    tmp_path: Path,
    now: UnixMs,
) -> None:
    old, one, two = (remember(name, external_id=name) for name in ("old", "one", "two"))
    link(old, two, "EVOLVED_INTO", created_at=now)
    link(old, one, "EVOLVED_INTO", created_at=now)
    path = tmp_path / "restore.jsonl"
    path.write_text(exported())
    with on_a_copy():
        importing(path)
        newest = MemoryLink.objects.order_by("created_at", "id").last()
        assert newest is not None
        assert newest.target.external_id == "one"


def test_an_export_imported_where_it_came_from_adds_nothing(
    remember: Callable[..., Memory],
    link: Callable[..., MemoryLink],
    caller: Caller,
    importing: Callable[..., ImportRun],
    tmp_path: Path,
    now: UnixMs,
) -> None:
    first, second = remember("first", tags=["t"]), remember("second", external_id="x")
    link(first, second, "EVOLVED_INTO")
    services.erase(remember("third").id, caller=caller, at=now, reason="asked for")
    events = ContextEvent.objects.count()
    path = tmp_path / "out.jsonl"
    path.write_text(exported())

    run = importing(path)

    assert (run.created, run.unchanged, run.refused_count) == (0, 4, 0)
    assert ContextEvent.objects.count() == events


def test_what_changed_since_the_export_is_refused_and_not_overwritten(
    remember: Callable[..., Memory],
    caller: Caller,
    importing: Callable[..., ImportRun],
    tmp_path: Path,
    now: UnixMs,
) -> None:
    memory = remember("as it was")
    path = tmp_path / "out.jsonl"
    path.write_text(exported())
    services.revise(memory.id, {"text": "as it is"}, caller=caller, at=now)

    run = importing(path)

    assert [(entry["row"], entry["field"]) for entry in run.refused] == [(1, "text")]
    assert Memory.objects.get().text == "as it is"


def test_a_finished_import_changes_nothing(
    file_of: Callable[..., Path], importing: Callable[..., ImportRun]
) -> None:
    path = file_of({"text": "one"}, {"text": "one"})
    first = importing(path)
    again = importing(path)
    assert (first.created, again.created, Memory.objects.count()) == (2, 2, 2)
    assert again.id == first.id
    assert again.finished_at == first.finished_at


def test_the_export_holds_only_what_is_current_unless_history_is_asked_for(
    remember: Callable[..., Memory], link: Callable[..., MemoryLink], now: UnixMs
) -> None:
    old, new = remember("old"), remember("new")
    link(old, new, "EVOLVED_INTO")
    remember("archived", archived=True)
    remember("expired", expires_at=now - 1)
    remember("to come", t_valid=now + DAY)
    remember("deprecated", status="deprecated")
    friend = remember("friend")
    link(new, friend, "RELATES_TO")
    link(old, friend, "RELATES_TO")

    told = [json.loads(line) for line in exported(anchor=Anchor(now)).splitlines()]

    assert [line["text"] for line in told if line["kind"] == "memory"] == ["new", "friend"]
    assert [(line["from"], line["to"]) for line in told if line["kind"] == "link"] == [(new.id, friend.id)]
    assert exported().count('"kind":"memory"') == 7


def test_an_export_of_one_workspace_holds_nothing_of_another(remember: Callable[..., Memory]) -> None:
    remember("red", workspace="red")
    remember("blue", workspace="blue")
    remember("global")
    assert [json.loads(line)["text"] for line in exported(workspace="red").splitlines()] == ["red"]
    assert [json.loads(line)["text"] for line in exported(workspace="").splitlines()] == ["global"]


@pytest.mark.parametrize(
    ("line", "field", "word"),
    [
        ("{not json", None, "not valid JSON"),
        ("[1]", None, "JSON object"),
        ('{"text": "\\ud800"}', None, "not valid JSON"),
        ({"kind": "thought", "text": "t"}, "kind", "kind"),
        ({"kind": 7, "text": "t"}, "kind", "kind"),
        ({"tags": []}, "text", "required"),
        ({"text": 7}, "text", "string"),
        ({"text": "   "}, "text", "blank"),
        ({"text": "a\u0000b"}, "text", "NUL"),
        ({"text": "x" * 65_537}, "text", "65,536"),
        ({"text": "t", "colour": "red"}, "colour", "unknown field"),
        ({"text": "t", "id": "mem_1"}, "id", "unknown field"),
        ({"text": "t", "tags": "a"}, "tags", "list"),
        ({"text": "t", "tags": [1]}, "tags", "list"),
        ({"text": "t", "tags": ["x" * 129]}, "tags", "128"),
        ({"text": "t", "archived": 1}, "archived", "true or false"),
        ({"text": "t", "metadata": []}, "metadata", "object"),
        ({"text": "t", "status": "sleeping"}, "status", "one of"),
        ({"text": "t", "provenance_class": "sworn"}, "provenance_class", "one of"),
        ({"text": "t", "created_at": "2026-11-01T10:00:00"}, "created_at", "offset"),
        ({"text": "t", "created_at": "2026-02-30"}, "created_at", "exists"),
        ({"text": "t", "created_at": 17}, "created_at", "string"),
        ({"text": "t", "created_at": "2030-01-01"}, "created_at", "ahead"),
        ({"text": "t", "t_valid": "2026-02-02", "t_invalid": "2026-02-01"}, "t_invalid", "not after"),
        ({"text": "t", "t_valid": "2026-02-02", "t_invalid": "2026-02-02"}, "t_invalid", "not after"),
        ({"kind": "link", "from": "a", "to": "b"}, "type", "required"),
        ({"kind": "link", "from": "good", "to": "nowhere", "type": "RELATES_TO"}, "to", "no memory"),
        ({"kind": "link", "from": "nowhere", "to": "good", "type": "RELATES_TO"}, "from", "no memory"),
        ({"kind": "link", "from": "good", "to": "good", "type": "RELATES_TO"}, "to", "itself"),
        ({"kind": "link", "from": "good", "to": "better", "type": "LIKES"}, "type", "one of"),
        (
            {"kind": "link", "from": "good", "to": "better", "type": "RELATES_TO", "strength": 2},
            "strength",
            "0 to 1",
        ),
        ({"kind": "erased", "workspace": ""}, "external_id", "required"),
        ({"text": "other", "external_id": "good"}, "text", "taken"),
    ],
)
def test_a_bad_row_is_refused_with_its_line_and_field_and_loses_no_other(
    line: Any, field: str | None, word: str, file_of: Callable[..., Path], importing: Callable[..., ImportRun]
) -> None:
    path = file_of(
        {"text": "g", "external_id": "good"}, {"text": "b", "external_id": "better"}, line, {"text": "z"}
    )

    run = importing(path)

    assert (run.rows_done, run.created, run.refused_count) == (4, 3, 1)
    (refusal,) = run.refused
    assert (refusal["row"], refusal["place"], refusal["field"]) == (3, "line 3", field)
    assert word in refusal["message"]
    assert Memory.objects.count() == 3
    assert verify().ok


def test_a_line_beyond_every_limit_is_refused_without_being_read_whole(
    file_of: Callable[..., Path], importing: Callable[..., ImportRun]
) -> None:
    run = importing(file_of("x" * (3 * jsonl.MAX_LINE_BYTES), {"text": "after it"}))
    assert [(entry["row"], entry["code"]) for entry in run.refused] == [(1, "too_large")]
    assert [memory.text for memory in Memory.objects.all()] == ["after it"]


def test_a_blank_line_counts_as_a_row_that_holds_nothing(
    file_of: Callable[..., Path], importing: Callable[..., ImportRun]
) -> None:
    run = importing(file_of("", {"text": "one"}, "  "))
    assert (run.rows_done, run.created, run.skipped) == (3, 1, 2)


def test_a_byte_order_mark_and_a_missing_last_line_end_are_no_errors(
    tmp_path: Path, importing: Callable[..., ImportRun]
) -> None:
    path = tmp_path / "in.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"text": "one"}\r\n{"text": "two"}')
    assert importing(path).created == 2


def test_refusals_are_counted_beyond_those_that_are_kept(
    file_of: Callable[..., Path], importing: Callable[..., ImportRun]
) -> None:
    run = importing(file_of(*["{"] * (MAX_KEPT + 7)))
    assert run.refused_count == MAX_KEPT + 7
    assert len(run.refused) == MAX_KEPT


def test_an_interrupted_import_goes_on_after_the_last_batch(
    file_of: Callable[..., Path], caller: Caller, now: UnixMs
) -> None:
    path = file_of(*[{"text": f"row {number}"} for number in range(BATCH * 2 + 50)])

    def rows_until_the_plug_is_pulled(source: Path, *, workspace: str | None) -> Iterator[Any]:
        for row in jsonl.rows(source, workspace=workspace):
            if row.number > BATCH + 30:
                raise Undone
            yield row

    torn = Import(
        path, Format("jsonl", rows_until_the_plug_is_pulled, jsonl.count), None, caller, lambda: now
    )
    whole = Import(path, jsonl.FORMAT, None, caller, lambda: now)
    with pytest.raises(Undone):
        finish(started(torn), torn)
    stopped = started(whole)
    assert (stopped.rows_done, Memory.objects.count(), stopped.finished_at) == (BATCH, BATCH, None)

    run = finish(stopped, whole)

    assert (run.rows_done, run.created, Memory.objects.count()) == (BATCH * 2 + 50,) * 3
    assert list(Memory.objects.order_by("seq").values_list("text", flat=True))[-1] == f"row {BATCH * 2 + 49}"


def test_a_second_import_of_the_same_source_at_the_same_time_is_refused(
    file_of: Callable[..., Path], caller: Caller, now: UnixMs
) -> None:
    path = file_of(*[{"text": f"row {number}"} for number in range(5)])
    job = Import(path, jsonl.FORMAT, None, caller, lambda: now)
    mine, theirs = started(job), started(job)
    finish(theirs, job)
    with pytest.raises(Exception, match="under way"):
        finish(mine, job)
    assert Memory.objects.count() == 5


def test_a_workspace_that_is_named_takes_every_row(
    file_of: Callable[..., Path], importing: Callable[..., ImportRun]
) -> None:
    path = file_of(
        {"text": "a", "external_id": "a", "workspace": "blue"},
        {"text": "b", "external_id": "b"},
        {"kind": "link", "workspace": "blue", "from": "a", "to": "b", "type": "RELATES_TO"},
    )
    run = importing(path, workspace="red")
    assert run.created == 3
    assert {memory.workspace.name for memory in Memory.objects.all()} == {"red"}


def test_a_dry_run_says_the_same_and_writes_nothing(
    file_of: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    rows = (
        {"text": "a", "external_id": "a"},
        {"kind": "link", "from": "a", "to": "b", "type": "RELATES_TO"},
        "{",
    )
    path = file_of(*rows)
    with pytest.raises(SystemExit) as tried:
        call_command("import_memories", str(path), "--format", "jsonl", "--dry-run")
    dry = capsys.readouterr().out
    assert not Memory.objects.exists()
    assert not ImportRun.objects.exists()
    assert not ContextEvent.objects.exists()

    with pytest.raises(SystemExit) as done:
        call_command("import_memories", str(path), "--format", "jsonl")

    assert tried.value.code == done.value.code == 1
    assert dry == capsys.readouterr().out + "Dry run: nothing was written.\n"
    assert "refused row 2 (line 2, to)" in dry
    assert "3 rows: 1 stored, 0 there already, 0 with nothing to store, 2 refused." in dry
    assert Memory.objects.count() == 1


# ---- annotated


def told(capsysbinary: Any, *arguments: str) -> list[dict[str, Any]]:
    """The lines that export_memories prints."""
    call_command("export_memories", *arguments)
    return [json.loads(line) for line in capsysbinary.readouterr().out.splitlines()]


def test_an_annotated_export_says_how_each_memory_stands(
    remember: Callable[..., Memory],
    link: Callable[..., MemoryLink],
    caller: Caller,
    now: UnixMs,
    capsysbinary: Any,
) -> None:
    fresh = remember("fresh", workspace="red", provenance_class="verified", created_at=now - DAY)
    old = remember("old", workspace="red", created_at=now - 40 * DAY)
    link(old, fresh, "EVOLVED_INTO")
    remember("gone", workspace="red", t_invalid=now - DAY, created_at=now - 2 * DAY)
    remember("erased", workspace="red")
    services.erase(Memory.objects.get(text="erased").id, caller=caller, at=now, reason="asked for")
    at = format_instant(now)
    asked = ("--validity-annotate", "--workspace", "red", "--at", at)

    current = told(capsysbinary, *asked)
    every = told(capsysbinary, *asked, "--history")

    assert [row["text"] for row in current] == ["fresh"]
    judged = {row["text"]: row["judged"] for row in every if row["kind"] == "memory"}
    assert judged["fresh"] == current[0]["judged"]
    assert judged["fresh"]["at"] == at
    assert judged["fresh"]["state"] == {"current": True}
    assert judged["fresh"]["validity"]["signals"] == ["freshness:0.977", "scope:exact", "provenance:verified"]
    assert "context_invalid" not in judged["fresh"]
    assert judged["old"]["state"] == {"current": False, "reason": "superseded", "replacement_id": fresh.id}
    assert (judged["old"]["validity"]["grade"], judged["old"]["context_invalid"]) == ("context_invalid", True)
    assert judged["gone"]["state"] == {"current": False, "reason": "expired"}
    assert [sorted(row) for row in every if row["kind"] == "erased"] == [
        ["created_at", "external_id", "kind", "workspace"]
    ]
    assert all("judged" not in row for row in every if row["kind"] == "link")


def test_an_annotated_export_comes_back_as_one_without(
    remember: Callable[..., Memory],
    link: Callable[..., MemoryLink],
    tmp_path: Path,
    importing: Callable[..., ImportRun],
    capsysbinary: Any,
) -> None:
    link(remember("old", tags=["t"]), remember("new", metadata={"judged": 1}), "EVOLVED_INTO")
    plain = exported()
    call_command("export_memories", "--history", "--validity-annotate")
    annotated = capsysbinary.readouterr().out.decode()
    assert annotated != plain

    run, again = restored(annotated, tmp_path, importing)

    assert (run.created, run.refused) == (3, [])
    assert again == plain


def test_what_is_judged_is_an_object_and_only_of_a_memory(
    file_of: Callable[..., Path], importing: Callable[..., ImportRun]
) -> None:
    run = importing(
        file_of({"text": "a", "judged": "valid"}, {"kind": "erased", "external_id": "x", "judged": {}})
    )
    told_of = [(refused["field"], refused["code"]) for refused in run.refused]
    assert told_of == [("judged", "invalid"), ("judged", "unknown_field")]


def test_an_export_at_an_instant_holds_what_was_current_then(
    remember: Callable[..., Memory], now: UnixMs, capsysbinary: Any
) -> None:
    remember("expired since", created_at=now - 9 * DAY, t_invalid=now - DAY)
    remember("made since", created_at=now - DAY)
    then = ("--at", format_instant(now - 2 * DAY))
    assert [row["text"] for row in told(capsysbinary, *then)] == ["expired since"]
    assert [row["text"] for row in told(capsysbinary, *then, "--validity-annotate")] == ["expired since"]
    with pytest.raises(CommandError) as refused:
        call_command("export_memories", "--history", *then)
    assert refused.value.returncode == 2
    with pytest.raises(CommandError):
        call_command("export_memories", "--at", "2026-01-01T10:00")


def test_a_command_that_cannot_run_ends_with_status_2(tmp_path: Path, file_of: Callable[..., Path]) -> None:
    path = file_of({"text": "one"})
    for arguments in (
        (str(tmp_path / "absent"), "--format", "jsonl"),
        (str(tmp_path), "--format", "jsonl"),
        (str(tmp_path), "--format", "memora"),
        (str(path), "--format", "memora"),
        (str(path), "--format", "jsonl", "--workspace", " padded "),
    ):
        with pytest.raises(CommandError) as refused:
            call_command("import_memories", *arguments)
        assert refused.value.returncode == 2
    assert not Memory.objects.exists()
    assert not ImportRun.objects.exists()


def test_the_commands_as_an_operator_runs_them(
    manage: Callable[..., Any], file_of: Callable[..., Path], tmp_path: Path
) -> None:
    path = file_of({"text": "one", "workspace": "red"}, {"text": "two", "created_at": "2026-01-01T10:00"})
    assert manage("migrate").returncode == 0
    absent = manage("import_memories", str(tmp_path / "absent"), "--format", "jsonl")
    unknown = manage("import_memories", str(path), "--format", "xml")
    assert (absent.returncode, unknown.returncode) == (2, 2)
    assert "absent" in absent.stderr
    assert "xml" in unknown.stderr

    first = manage("import_memories", str(path), "--format", "jsonl")
    again = manage("import_memories", str(path), "--format", "jsonl")
    out = manage("export_memories", "--history", "--output", str(tmp_path / "out.jsonl"))
    printed = manage("export_memories", "--history", "--workspace", "red")
    wrong = manage("export_memories", "--workspace", "green")

    assert (first.returncode, again.returncode, out.returncode, wrong.returncode) == (1, 1, 0, 2)
    assert "refused row 2 (line 2, created_at)" in first.stdout
    assert "finished already; nothing was changed" in again.stdout
    assert (tmp_path / "out.jsonl").read_text() == printed.stdout
    assert json.loads(printed.stdout)["text"] == "one"
