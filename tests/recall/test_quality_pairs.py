"""The quality sets in tests/quality keep their promises. Every row was written for this project.

`pairs.jsonl` is one corpus: each row is a memory and a question that this memory alone answers. Rows of kind
"paraphrase" ask in other words than the memory's; rows of kind "words" come in families of near-duplicates that a
name, number or code tells apart. `updates.jsonl` has a memory, the memory that replaces it, and a question that
the outdated one matches better by words.
"""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path

import pytest

from recall.domain.words import STOP_WORDS, words_of

QUALITY = Path(__file__).resolve().parent.parent / "quality"
Row = dict[str, str]


def rows_of(name: str) -> list[Row]:
    return [json.loads(line) for line in (QUALITY / name).read_text().splitlines()]


PAIRS = rows_of("pairs.jsonl")
PARAPHRASES = [row for row in PAIRS if row["kind"] == "paraphrase"]
WORDS = [row for row in PAIRS if row["kind"] == "words"]
UPDATES = rows_of("updates.jsonl")


def content_words(text: str) -> set[str]:
    return {word for piece in text.split() for word in words_of(piece)} - STOP_WORDS


def shared(question: str, memory: str) -> float:
    """The share of the question's content words that the memory has too."""
    asked = content_words(question)
    return len(asked & content_words(memory)) / len(asked)


def test_the_sets_are_as_large_as_the_figures_say() -> None:
    assert len(PARAPHRASES) >= 140
    assert len(WORDS) >= 40
    assert len(UPDATES) >= 30
    assert len(PARAPHRASES) + len(WORDS) == len(PAIRS)


def test_each_row_has_its_fields_and_no_others() -> None:
    assert {frozenset(row) for row in PAIRS} == {frozenset({"memory", "question", "kind"})}
    assert {frozenset(row) for row in UPDATES} == {frozenset({"old", "new", "question", "kind"})}
    assert {row["kind"] for row in UPDATES} == {"update"}


def test_no_memory_and_no_question_stands_there_twice() -> None:
    memories = [row["memory"] for row in PAIRS] + [row[side] for row in UPDATES for side in ("old", "new")]
    questions = [row["question"] for row in [*PAIRS, *UPDATES]]
    assert len({text.lower() for text in memories}) == len(memories)
    assert len({text.lower() for text in questions}) == len(questions)


@pytest.mark.parametrize("row", PAIRS, ids=lambda row: row["question"])
def test_a_memory_has_12_to_35_words_and_its_question_5_to_14(row: Row) -> None:
    assert 12 <= len(row["memory"].split()) <= 35
    assert 5 <= len(row["question"].split()) <= 14
    assert row["question"].endswith("?")


@pytest.mark.parametrize("row", PARAPHRASES, ids=lambda row: row["question"])
def test_a_paraphrase_shares_at_most_a_third_of_its_content_words_with_its_memory(row: Row) -> None:
    assert shared(row["question"], row["memory"]) <= 1 / 3


@pytest.mark.parametrize("row", WORDS, ids=lambda row: row["question"])
def test_a_question_about_an_exact_word_names_one_that_only_its_memory_has(row: Row) -> None:
    named = exact(row["question"]) & exact(row["memory"])
    assert named.difference(*(exact(other["memory"]) for other in PAIRS if other is not row))


def exact(text: str) -> set[str]:
    """Runs of up to three words as spelt that hold a digit, a capital or an underscore: "ICE 126", "Jan de Wit"."""
    spelt = [word.strip("?,;.") for word in text.split()]
    runs = {
        " ".join(spelt[start:end])
        for start, end in combinations(range(len(spelt) + 1), 2)
        if end - start <= 3
    }
    return {run for run in runs if any(sign.isdigit() or sign.isupper() or sign == "_" for sign in run)}


def test_near_duplicates_come_in_families_of_four() -> None:
    alone = [
        row["memory"]
        for row in WORDS
        if sum(shared(other["memory"], row["memory"]) >= 0.5 for other in WORDS if other is not row) < 3
    ]
    assert alone == []


@pytest.mark.parametrize("row", UPDATES, ids=lambda row: row["question"])
def test_the_outdated_memory_matches_the_question_better_by_words(row: Row) -> None:
    assert shared(row["question"], row["old"]) >= shared(row["question"], row["new"]) + 0.25
