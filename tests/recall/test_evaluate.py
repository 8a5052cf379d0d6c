"""`manage.py evaluate`: its figures, its data sets, its scenario, and what it says where something is missing."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from recall.domain import policy
from recall.domain.policy import Weights
from recall.management.evaluation import memora, scenario
from recall.management.evaluation.figures import found_within, mean_reciprocal
from recall.management.evaluation.measure import Remembered, Updated
from recall.management.evaluation.memora import Persona, Thing
from recall.management.evaluation.report import (
    Report,
    Row,
    as_text,
    figures_of_memora,
    figures_of_pairs,
    figures_of_updates,
)
from recall.management.evaluation.scenario import Claim
from recall.management.evaluation.sets import NotASet, pairs_in, updates_in
from recall.models import RecallRecord
from vault.models import Memory

PAIRS = [
    {
        "memory": "Marta cannot eat peanuts.",
        "question": "Which food makes my spouse ill?",
        "kind": "paraphrase",
    },
    {"memory": "Gate B17 opens at nine.", "question": "When does gate B17 open?", "kind": "words"},
]
UPDATES = [
    {"old": "We meet on Monday at ten.", "new": "We meet on Friday now.", "question": "When do we meet?"}
]


def lines(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


# ------------------------------------------------------------------------------------------------ figures


def test_the_figures_of_ranks() -> None:
    ranks = [1, 2, None, 4]
    assert [found_within(ranks, k) for k in (1, 2, 3, 4)] == [0.25, 0.5, 0.5, 0.75]
    assert mean_reciprocal(ranks) == (1 + 1 / 2 + 1 / 4) / 4


def test_both_kinds_of_pairs_count_by_question_not_by_kind() -> None:
    figures = figures_of_pairs({"paraphrase": [1, 1, 1], "words": [None]})
    assert (figures["paraphrase R@1"], figures["words R@1"], figures["both R@1"]) == (1.0, 0.0, 0.75)


def test_the_figures_of_updates_and_of_memora() -> None:
    assert figures_of_updates(Updated(1, [1, 2])) == {"old above new": 0.5, "new R@1": 0.5}
    assert figures_of_memora(Remembered(4, 3, 2)) == {"evidence in 10": 0.75, "forgotten served": 2}


@pytest.mark.parametrize(
    ("figures", "claims", "broken"),
    [
        ({"old above new": 0.0, "forgotten served": 0}, [Claim("it holds", True)], []),
        ({"old above new": 0.5}, [], ["a way: old above new is 0.5"]),
        ({"forgotten served": 2}, [Claim("it fails", False)], ["it fails", "a way: forgotten served is 2"]),
    ],
)
def test_a_report_names_what_must_hold_and_does_not(
    figures: dict[str, float], claims: list[Claim], broken: list[str]
) -> None:
    report = Report("model", "index", {"pairs": 0}, [Row("a way", figures)], claims, {})
    assert report.broken == broken
    assert json.loads(json.dumps(report.as_dict()))["broken"] == broken


def test_the_table_is_markdown_with_each_kind_named_once() -> None:
    rows = [Row("lexical alone", figures_of_pairs({"words": [1, None]}))]
    text = as_text(Report("model", "index", {"pairs": 2}, rows, [], {"memora": "no --memora"}))
    head, rule, row = (line for line in text.splitlines() if line.startswith("|"))
    assert [cell.strip() for cell in head.strip("|").split("|")][:6] == [
        "",
        "words R@1",
        "R@5",
        "R@10",
        "MRR",
        "both R@1",
    ]
    assert [cell.strip() for cell in row.strip("|").split("|")][:3] == ["lexical alone", ".500", ".500"]
    assert len(head) == len(rule) == len(row)
    assert "memora: skipped, no --memora" in text


# ------------------------------------------------------------------------------------------------ data sets


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("{}", "line 2: there is no 'kind'"),
        (
            '{"memory": "a", "question": "b", "kind": "riddle"}',
            "line 2: kind must be one of paraphrase, words",
        ),
        ("no JSON", "line 2: Expecting value"),
        ("[]", "line 2: list indices must be"),
    ],
)
def test_a_line_that_is_no_pair_is_named(tmp_path: Path, line: str, problem: str) -> None:
    file = lines(tmp_path / "pairs.jsonl", PAIRS[:1])
    file.write_text(file.read_text() + line + "\n")
    with pytest.raises(NotASet, match=problem):
        pairs_in(file)


def test_an_empty_set_is_none(tmp_path: Path) -> None:
    with pytest.raises(NotASet, match="the file is empty"):
        updates_in(lines(tmp_path / "updates.jsonl", []))


SESSION = {"category": "todo_list", "item": {"description": "call the bank"}}
LIKED = {"preference": "like", "item": "jazz", "subcategory": "genres"}
PERSONA = Persona(
    "ada",
    sessions={
        1: {"operation_details": SESSION},
        2: {"operation_details": LIKED},
        3: {
            "operation_details": {
                "item": "meeting_notes_1",
                "content_data": {"attendees": ["Bo"], "place": 7},
            }
        },
        4: {"operation_details": {"category": "calendar_event", "item": {"event_name": "Fair"}}},
        5: {"operation_details": {"category": "calendar_event"}},  # a change that names no item
        9: {"operation_details": {**LIKED, "preference": "dislike"}},
    },
)


@pytest.mark.parametrize(
    ("thing", "before", "sessions"),
    [
        (Thing("todo", "call the bank"), None, {1}),
        (Thing("preference", "jazz", "genres", "like"), None, {2}),
        (Thing("preference", "jazz"), None, {2, 9}),
        (Thing("preference", "jazz"), 9, {2}),
        (Thing("preference", "jazz", "artists"), None, set()),
        (Thing("content", "Bo", "attendees"), None, {3}),
        (Thing("content", "7", "place"), None, {3}),
        (Thing("event", "Fair"), None, {4}),
    ],
)
def test_a_labelled_thing_is_found_in_the_sessions_that_say_it(
    thing: Thing, before: int | None, sessions: set[int]
) -> None:
    question = {"question_id": "ada_meeting_notes_1"}
    assert memora.telling(PERSONA, question, thing, before=before) == sessions


def test_what_labels_want_remembered_and_what_they_call_forgotten() -> None:
    question = {
        "question": "What do I like?",
        "memory_evidence": {
            "remaining_tasks": [{"value": "call the bank"}],
            "calendar_events": [{"value": "Fair"}],
            "subcategory_data": {"likes": [{"item": "jazz"}]},
            "content_data": {"attendees": ["Bo"], "place": 7},
        },
        "forgetting_evidence": {
            "forgotten_items": [{"session_id": 9, "value": "jazz"}, {"session_id": 10, "event": True}]
        },
        "evaluation": {
            "evaluation_questions": [
                {
                    "evaluation_question": "Does it avoid the past event: Fair?",
                    "evaluation_type": "forgetting_absence",
                },
                {"evaluation_question": "Is jazz named?", "evaluation_type": "presence"},
            ]
        },
    }
    assert list(memora.present(question)) == [
        Thing("todo", "call the bank"),
        Thing("event", "Fair"),
        Thing("preference", "jazz", "", "like"),
        Thing("content", "Bo", "attendees"),
        Thing("content", "7", "place"),
    ]
    assert list(memora.forgotten(PERSONA, question)) == [
        (Thing("preference", "jazz", "genres"), 9),
        (Thing("event", "Fair"), None),
    ]


# ------------------------------------------------------------------------------------------------ scenario


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("weights", "fails"),
    [
        (policy.DEFAULT, []),
        (replace(policy.DEFAULT, freshness_half_life_secs=10**12), ["a fresh one comes above it"]),
        (replace(policy.DEFAULT, scope_bonus=0.0), ["one of the workspace, as old, comes above it"]),
    ],
    ids=["the policy", "without freshness", "without scope"],
)
def test_the_scenario_fails_where_freshness_or_scope_is_taken_out_of_the_policy(
    weights: Weights, fails: list[str]
) -> None:
    assert [claim.text for claim in scenario.kept(weights) if not claim.holds] == fails


# ------------------------------------------------------------------------------------------------ command


@pytest.mark.django_db
def test_the_command_measures_in_a_database_of_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], remember: Callable[..., Memory]
) -> None:
    kept = remember("Gate B17 opens at noon.", workspace="pairs")
    pairs = lines(tmp_path / "pairs.jsonl", PAIRS)
    updates = lines(tmp_path / "updates.jsonl", UPDATES)
    call_command("evaluate", pairs=pairs, updates=updates, memora=tmp_path / "memora.tar.gz", json=True)
    report = json.loads(capsys.readouterr().out)
    fused = {row["way"]: row["figures"] for row in report["rows"]}["fused score"]
    assert (fused["both R@1"], fused["old above new"], fused["new R@1"]) == (1.0, 0.0, 1.0)
    assert report["skipped"] == {"memora": f"{tmp_path / 'memora.tar.gz'} is not there"}
    assert report["sizes"] == {"pairs": 2, "updates": 1, "memora questions": 0, "memora evidence": 0}
    assert list(Memory.objects.all()) == [kept]
    assert not RecallRecord.objects.exists()


@pytest.mark.django_db
def test_without_data_sets_the_scenario_is_played_and_the_rest_is_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    call_command("evaluate")
    said = capsys.readouterr().out
    assert said.count("holds: ") == 8
    assert "FAILS" not in said
    assert "pairs: skipped, no --pairs" in said


@pytest.mark.django_db
def test_a_file_that_is_no_set_is_said_and_nothing_is_left_behind(tmp_path: Path, settings: Any) -> None:
    before = set(settings.DATA_DIR.iterdir())
    with pytest.raises(CommandError, match="line 1: there is no 'memory'") as refused:
        call_command("evaluate", pairs=lines(tmp_path / "pairs.jsonl", [{"kind": "words"}]))
    assert refused.value.returncode == 2
    assert set(settings.DATA_DIR.iterdir()) == before


@pytest.mark.django_db
def test_the_command_fails_where_something_must_hold_and_does_not(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    without_scope = replace(policy.DEFAULT, scope_bonus=0.0)
    monkeypatch.setattr(scenario.kept, "__defaults__", (without_scope,))
    with pytest.raises(CommandError, match="one of the workspace, as old, comes above it") as failed:
        call_command("evaluate")
    assert failed.value.returncode == 1
    assert "FAILS: one of the workspace, as old, comes above it" in capsys.readouterr().out
