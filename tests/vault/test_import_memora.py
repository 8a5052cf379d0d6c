"""Memora sessions: each add, update and delete finds what it refers to, and forgets what it must."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from ledger.domain.instants import DAY, UnixMs, parse_instant
from ledger.models import ContextEvent
from vault.importers import memora
from vault.importers.run import Import, finish, started
from vault.models import ImportRun, Memory, MemoryLink
from vault.services import Caller

pytestmark = pytest.mark.django_db

FIRST, SECOND = parse_instant("2025-06-01"), parse_instant("2025-06-02")


def session(
    number: int,
    operation: str | None,
    details: dict[str, Any],
    *words: str,
    date: str = "2025-06-01",
    **fields: Any,
) -> dict[str, Any]:
    """A session; every given text is a turn of the user that is worth remembering."""
    turns = [{"turn": 1, "speaker": "ai_agent", "message": "Hello!", "share_memory": False}]
    turns += [{"turn": 2, "speaker": "user_agent", "message": said, "share_memory": True} for said in words]
    return {
        "session_id": number,
        "session_type": "preference",
        "operation": operation,
        "operation_details": details,
        "date": date,
        "persona": "gardener",
        "conversation": turns,
        **fields,
    }


def likes(item: str, *, group: str = "actors", preference: str = "like", **more: str) -> dict[str, Any]:
    return {"item": item, "preference": preference, "subcategory": group, **more}


def todo(task: str) -> dict[str, Any]:
    return {"category": "todo_list", "item": {"task_type": "work_tasks", "description": task}}


def event(name: str, ahead: str) -> dict[str, Any]:
    item = {"event_type": "work_meetings", "event_name": name, "date": ahead, "created_at": "2025-06-01"}
    return {"category": "calendar_event", "item": item}


def proposal(budget: int, *stakeholders: str) -> dict[str, Any]:
    content = {"project_title": "A pond", "budget": budget, "stakeholders": list(stakeholders)}
    return {"item": "project_proposal_1", "content_data": content}


@pytest.fixture
def importing(caller: Caller, now: UnixMs, tmp_path: Path) -> Callable[..., ImportRun]:
    """`importing(session, …)`: the finished run over a folder that holds these sessions."""

    def run(*sessions: dict[str, Any], folder: str = "gardener", workspace: str | None = None) -> ImportRun:
        conversations = tmp_path / folder / "conversations"
        conversations.mkdir(parents=True, exist_ok=True)
        for told in sessions:
            (conversations / f"session_{told['session_id']:04d}.json").write_text(json.dumps(told))
        job = Import(tmp_path, memora.FORMAT, workspace, caller, lambda: now)
        return finish(started(job), job)

    return run


def of(number: int) -> Memory:
    return Memory.objects.get(external_id=f"memora:gardener:{number:04d}")


def test_an_add_is_stored_with_the_details_and_the_users_own_words(
    importing: Callable[..., ImportRun],
) -> None:
    run = importing(
        session(1, "add", likes("Joan Crawford"), "I absolutely love Joan Crawford!", date="2025-06-02")
    )
    memory = of(1)
    assert (run.created, run.refused_count) == (1, 0)
    assert memory.text == "The user likes Joan Crawford (movies: actors).\n“I absolutely love Joan Crawford!”"
    assert memory.workspace.name == "gardener"
    assert memory.created_at == SECOND
    assert memory.tag_names == ["actors", "like", "movies", "preference"]
    assert memory.category == "preference"


def test_an_update_replaces_the_old_memory_and_does_not_repeat_it(
    importing: Callable[..., ImportRun],
) -> None:
    words = "I used to prefer Joan Crawford, but now it is Grace Kelly."
    details = likes("Grace Kelly", old_item="Joan Crawford", old_preference="like")
    importing(
        session(1, "add", likes("Joan Crawford"), "I love Joan Crawford."),
        session(2, "update", details, words, date="2025-06-02"),
    )
    link = MemoryLink.objects.get()
    assert (link.source, link.target, link.type, link.created_at) == (of(1), of(2), "EVOLVED_INTO", SECOND)
    assert of(2).text == "The user likes Grace Kelly (movies: actors)."
    assert of(1).t_invalid is None
    assert {event.reason for event in ContextEvent.objects.touching(of(2).id)} == {words}


def test_a_change_of_mind_about_one_thing_replaces_the_old_opinion(
    importing: Callable[..., ImportRun],
) -> None:
    importing(
        session(1, "add", likes("crime", group="topics", preference="dislike")),
        session(2, "update", likes("crime", group="topics", old_preference="dislike")),
    )
    assert MemoryLink.objects.get().source == of(1)
    assert of(2).text == "The user likes crime (books: topics)."


def test_a_delete_ends_the_memory_on_its_day(importing: Callable[..., ImportRun]) -> None:
    importing(
        session(1, "add", todo("Prune the roses")),
        session(2, "add", todo("Order seeds")),
        session(3, "delete", todo("Prune the roses"), "I no longer need that.", date="2025-06-02"),
    )
    assert (of(1).t_invalid, of(2).t_invalid) == (SECOND, None)
    assert not MemoryLink.objects.exists()
    assert Memory.objects.count() == 2
    assert ContextEvent.objects.about(of(1).id).reverse()[0].reason == "I no longer need that."


def test_a_delete_on_the_day_of_the_add_leaves_a_memory_that_never_held(
    importing: Callable[..., ImportRun],
) -> None:
    run = importing(session(1, "add", todo("Prune")), session(2, "delete", todo("Prune")))
    assert run.refused == []
    assert of(1).created_at == of(1).t_invalid == FIRST


def test_what_was_deleted_may_be_added_again_and_the_newest_is_meant(
    importing: Callable[..., ImportRun],
) -> None:
    prune = todo("Prune")
    importing(
        session(1, "add", prune),
        session(2, "delete", prune),
        session(3, "add", prune, date="2025-06-02"),
        session(4, "delete", prune, date="2025-06-02"),
        session(5, "add", prune, date="2025-06-02"),
    )
    assert [of(number).t_invalid for number in (1, 3, 5)] == [FIRST, SECOND, None]


def test_a_document_that_loses_a_part_lives_on_without_it(importing: Callable[..., ImportRun]) -> None:
    importing(
        session(1, "add", proposal(800, "the council", "the neighbours"), "The budget is €800."),
        session(2, "update", proposal(900, "the council", "the neighbours"), "From 800 to 900, please."),
        session(3, "delete", proposal(900, "the council"), "Remove the neighbours.", date="2025-06-02"),
    )
    assert [(link.source, link.target) for link in MemoryLink.objects.order_by("id")] == [
        (of(1), of(2)),
        (of(2), of(3)),
    ]
    assert (of(1).t_invalid, of(2).t_invalid, of(3).t_invalid) == (None, SECOND, None)
    assert "800" not in of(2).text
    assert "neighbours" not in of(3).text
    assert of(3).text == (
        "Project proposal (project proposal 1)\n"
        "Project title: A pond\nBudget: 900\nStakeholders:\n- the council"
    )


def test_what_was_replaced_does_not_come_back_when_its_replacement_is_deleted(
    importing: Callable[..., ImportRun],
) -> None:
    importing(
        session(1, "add", likes("Joan Crawford")),
        session(2, "update", likes("Grace Kelly", old_item="Joan Crawford")),
        session(3, "update", likes("Rita Hayworth", old_item="Grace Kelly")),
        session(4, "delete", likes("Rita Hayworth"), date="2025-06-02"),
    )
    assert [of(number).t_invalid for number in (1, 2, 3)] == [SECOND] * 3


def test_an_event_that_moved_to_an_earlier_day_is_over_everywhere_on_that_day(
    importing: Callable[..., ImportRun],
) -> None:
    importing(
        session(1, "add", event("Seed fair", "+11 days")),
        session(2, "update", event("Seed fair", "+7 days")),
        session(3, "update", event("Seed fair", "+4 days")),
    )
    assert [of(number).facts.expiry for number in (1, 2, 3)] == [FIRST + 5 * DAY] * 3


def test_an_event_that_moves_replaces_itself_and_expires_when_its_day_is_over(
    importing: Callable[..., ImportRun],
) -> None:
    importing(
        session(1, "add", event("Seed fair", "+3 days")),
        session(2, "update", event("Seed fair", "+10 days"), date="2025-06-02"),
    )
    assert of(1).expires_at == FIRST + 4 * DAY
    assert of(2).expires_at == SECOND + 11 * DAY
    assert of(2).text == "Calendar event (work meetings): Seed fair on 2025-06-12."
    assert MemoryLink.objects.get().target == of(2)


def test_expenses_steps_and_goals_are_stored(importing: Callable[..., ImportRun]) -> None:
    coffee = {"category": "food_expenses", "item": {"expense_type": "coffee", "amount": 3.66}}
    steps = {"category": "step_tracker", "item": {"activity_type": "daily_steps", "step_count": 6200}}
    goal = {"subcategory": "daily_steps", "item": 11000, "actual_operation": "add"}
    importing(
        session(1, "add", coffee), session(2, "add", steps), session(3, "add", goal, session_type="goal")
    )
    assert [of(number).text for number in (1, 2, 3)] == [
        "Food expense on 2025-06-01: 3.66 for coffee.",
        "Steps walked on 2025-06-01: 6200.",
        "Goal for daily steps: 11000 steps a day.",
    ]


def test_genres_belong_to_what_the_conversation_was_about(importing: Callable[..., ImportRun]) -> None:
    importing(
        session(1, "add", likes("noir", group="genres"), "I like noir films."),
        session(2, "add", likes("bebop", group="genres"), "I listen to bebop."),
        session(3, "add", likes("drama", group="genres"), "I like drama."),
    )
    assert [of(number).text.splitlines()[0] for number in (1, 2, 3)] == [
        "The user likes noir (movies: genres).",
        "The user likes bebop (music: genres).",
        "The user likes drama (genres).",
    ]


def test_sessions_are_taken_in_order_of_their_id_and_not_of_their_files(
    importing: Callable[..., ImportRun],
) -> None:
    numbers = (11, 2, 10)
    run = importing(*(session(number, "add", todo(f"task {number}")) for number in numbers))
    assert run.created == 3
    assert [memory.text for memory in Memory.objects.order_by("id")] == [
        f"Todo list, work tasks: task {number}." for number in (2, 10, 11)
    ]


@pytest.mark.parametrize(
    ("told", "field", "word"),
    [
        (session(2, "delete", todo("Never told")), "operation_details", "Never told"),
        (session(2, "update", likes("A", old_item="B")), "operation_details", "B"),
        (session(2, "delete", likes("Joan Crawford", group="artists")), "operation_details", "artists"),
        (
            session(2, "delete", {"category": "food_expenses", "item": {"expense_type": "x", "amount": 1}}),
            "operation_details",
            "food_expenses",
        ),
        (session(2, "forget", todo("x")), "operation", "must be"),
        (session(2, "add", {"colour": "red"}), "operation_details", "colour"),
        (
            session(2, "add", likes("x", preference="adore")),
            "operation_details.preference",
            "like or dislike",
        ),
        (session(2, "add", {"category": "horoscope", "item": {}}), "operation_details.category", "horoscope"),
        (session(2, "add", event("Fair", "soon")), "operation_details.item.date", "soon"),
        (session(2, "add", todo("")), "description", "blank"),
        (session(2, "add", todo("x"), date="June 1st"), "date", "RFC 3339"),
        (session(2, "add", todo("x"), date="2031-01-01"), "created_at", "ahead"),
        (session(2, "add", todo("x"), conversation="none"), "conversation", "turns"),
        (session(2, "add", todo("x"), persona=7), "persona", "string"),
        (session(2, "add", todo("x" * 70_000)), "text", "65,536"),
        (session(2, "add", todo("x\u0000y")), "text", "NUL"),
    ],
)
def test_a_session_that_cannot_be_taken_is_refused_and_loses_no_other(
    told: dict[str, Any], field: str, word: str, importing: Callable[..., ImportRun]
) -> None:
    run = importing(
        session(1, "add", likes("Joan Crawford")), told, session(3, "delete", likes("Joan Crawford"))
    )
    assert (run.rows_done, run.created) == (3, 2)
    (refusal,) = run.refused
    assert (refusal["row"], refusal["place"], refusal["field"]) == (2, "gardener, session 2", field)
    assert word in refusal["message"]
    assert of(1).t_invalid == FIRST
    assert Memory.objects.count() == 1


def test_files_that_are_no_sessions_are_refused(importing: Callable[..., ImportRun], tmp_path: Path) -> None:
    conversations = tmp_path / "gardener" / "conversations"
    conversations.mkdir(parents=True)
    (conversations / "session_0002.json").write_text("{")
    (conversations / "session_0003.json").write_text("[]")
    (conversations / "session_0004.json").write_text(json.dumps(session(5, "add", todo("x"))))
    (conversations / "notes.json").write_text("not looked at")
    run = importing(session(1, "add", todo("Prune")))
    assert (run.rows_done, run.created) == (4, 1)
    assert [(entry["row"], entry["field"]) for entry in run.refused] == [
        (2, None),
        (3, None),
        (4, "session_id"),
    ]


def test_the_sessions_of_two_personas_do_not_meet(importing: Callable[..., ImportRun]) -> None:
    importing(session(1, "add", todo("Prune")), folder="gardener")
    run = importing(session(1, "delete", todo("Prune"), persona="baker"), folder="baker")
    assert [entry["place"] for entry in run.refused] == ["baker, session 1"]
    assert of(1).t_invalid is None


def test_an_import_that_grew_by_a_session_adds_that_session_only(importing: Callable[..., ImportRun]) -> None:
    importing(
        session(1, "add", likes("Joan Crawford")),
        session(2, "update", likes("Grace Kelly", old_item="Joan Crawford")),
        session(3, "add", todo("Prune")),
        session(4, "delete", todo("Prune")),
        session(6, "add", event("Seed fair", "+11 days")),
        session(7, "update", event("Seed fair", "+7 days")),
        session(8, "update", event("Seed fair", "+4 days")),
    )
    events = ContextEvent.objects.count()
    run = importing(session(5, "add", todo("Order seeds")))
    assert (run.unchanged, run.created) == (7, 1)
    assert ContextEvent.objects.count() == events + 1


def test_an_archive_is_read_whatever_the_order_of_its_files(tmp_path: Path) -> None:
    path = tmp_path / "sessions.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for number, operation in ((2, "delete"), (1, "add")):
            raw = json.dumps(session(number, operation, todo("Prune"))).encode()
            member = tarfile.TarInfo(f"data/weekly/gardener/conversations/session_{number:04d}.json")
            member.size = len(raw)
            archive.addfile(member, io.BytesIO(raw))
    call_command("import_memories", str(path), "--format", "memora")
    assert of(1).t_invalid == FIRST


def test_a_damaged_archive_is_refused_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "sessions.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        raw = json.dumps(session(1, "add", todo("x" * 5_000))).encode()
        member = tarfile.TarInfo("gardener/conversations/session_0001.json")
        member.size = len(raw)
        archive.addfile(member, io.BytesIO(raw))
    whole = path.read_bytes()
    for damaged in (whole[: len(whole) // 2], whole[:40] + b"\x00" * 40 + whole[80:], b"", b"text"):
        path.write_bytes(damaged)
        with pytest.raises(CommandError) as refused:
            call_command("import_memories", str(path), "--format", "memora")
        assert refused.value.returncode == 2
    assert not ImportRun.objects.exists()
