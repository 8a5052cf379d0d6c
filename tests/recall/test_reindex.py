"""`manage.py reindex`, and the vectors of an import: nothing is missing in the end, and no two models are mixed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.test import override_settings

from recall import embedders
from vault.models import Embedding

Api = Any

LETTERS = "engines_for_tests.Letters"
OTHER = override_settings(RECALL_EMBEDDER=LETTERS)


def by_model() -> dict[str, int]:
    """How many memories each model has vectors of."""
    found: dict[str, set[int]] = {}
    for model, seq in Embedding.objects.values_list("model__name", "memory_id"):
        found.setdefault(model, set()).add(seq)
    return {model: len(seqs) for model, seqs in found.items()}


def test_reindex_makes_the_vectors_that_are_missing(api: Api, capsys: pytest.CaptureFixture[str]) -> None:
    api.stored("a fence")
    api.post("/v1/memories/bulk", {"memories": [{"text": "a hedge"}, {"text": "a wall"}]})
    minilm = embedders.installed().model_id
    assert by_model() == {minilm: 1}

    call_command("reindex")

    assert by_model() == {minilm: 3}
    assert f"2 texts were embedded with {minilm}." in capsys.readouterr().out
    assert set(api.texts("fence", mode="dense")) == {"a fence", "a hedge", "a wall"}
    call_command("reindex")
    assert "0 texts were embedded" in capsys.readouterr().out


def test_another_embedder_is_prepared_beside_the_present_one_and_then_takes_over(
    api: Api, capsys: pytest.CaptureFixture[str]
) -> None:
    minilm = embedders.installed().model_id
    for text in ("stressed", "a pudding after dinner"):
        api.stored(text)

    call_command("reindex", embedder=LETTERS)

    assert by_model() == {minilm: 2, "letters": 2}
    assert f"RECALL_EMBEDDER={LETTERS}" in capsys.readouterr().out
    assert api.recalled("desserts", mode="dense")["outcome"]["status"] != "partial"
    with OTHER:
        answer = api.recalled("desserts", mode="dense", limit=1)
        assert [hit["memory"]["text"] for hit in answer["results"]] == ["stressed"], "the same letters"
        call_command("reindex")
    assert by_model() == {"letters": 2}
    assert "2 vectors of other models were dropped." in capsys.readouterr().out


def test_vectors_of_another_model_are_never_compared_with(api: Api) -> None:
    api.stored("stressed")
    with OTHER:
        answer = api.recalled("desserts", mode="dense")
    assert (answer["results"], answer["outcome"]["status"]) == ([], "partial")


@pytest.mark.parametrize(
    ("name", "status"), [("magic", 2), ("no.such.Class", 1), ("engines_for_tests.EmbedderThatIsDown", 1)]
)
def test_an_embedder_that_is_not_there_is_named(api: Api, name: str, status: int) -> None:
    api.stored("a fence")
    with pytest.raises(CommandError) as refused:
        call_command("reindex", embedder=name)
    assert refused.value.returncode == status
    assert set(by_model()) == {embedders.installed().model_id}


@pytest.mark.parametrize(("asked", "status"), [((), "fresh"), (("--no-vectors",), "partial")])
def test_an_import_makes_its_vectors_unless_told_not_to(
    api: Api, tmp_path: Path, asked: tuple[str, ...], status: str
) -> None:
    path = tmp_path / "in.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in ("a fence", "a hedge")))
    call_command("import_memories", str(path), "--format", "jsonl", *asked)
    assert api.recalled("fence")["outcome"]["status"] == status
