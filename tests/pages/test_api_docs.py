"""The API reference: complete, true to the sources, and open to whoever has no key yet."""

from __future__ import annotations

import json
import re
from html import unescape
from pathlib import Path

import pytest
from django.conf import settings
from django.test import Client

from recall.api import docs
from recall.services import create_api_key

SOURCES = (
    "recall/api",
    "recall/shapes.py",
    "recall/records.py",
    "recall/domain",
    "vault/services.py",
    "vault/domain",
)


@pytest.fixture
def text(db: None, client: Client) -> str:
    response = client.get("/v1/docs")
    assert response.status_code == 200
    return unescape(response.content.decode())


def test_every_operation_of_the_schema_stands_in_the_reference(text: str) -> None:
    paths = docs.document()["paths"]
    assert len(paths) > 10
    for path, methods in paths.items():
        for method, told in methods.items():
            assert re.search(rf'<span class="method">{method.upper()}</span> {re.escape(path)}</h3>', text)
            assert f'id="{told["operationId"]}"' in text


def test_every_field_and_parameter_of_the_schema_stands_in_the_reference(text: str) -> None:
    for group in docs.groups():
        for operation in group.operations:
            for field in (*operation.parameters, *operation.fields):
                assert f'class="mono">{field.name}</th>' in text
    fields = {
        field.name: field
        for g in docs.groups()
        for o in g.operations
        if o.id == "recall"
        for field in o.fields
    }
    assert (fields["limit"].type, fields["limit"].default) == ("integer", "10")
    assert fields["fusion"].type.startswith("one of ")


def test_the_reference_names_the_scope_that_the_view_asks_for() -> None:
    scopes = {o.id: o.scope for group in docs.groups() for o in group.operations}
    assert scopes["recall"] == "read"
    assert scopes["memories_create"] == "write"
    assert scopes["memory_erase"] == scopes["event_erase"] == "admin"


def test_summaries_notes_and_examples_speak_of_what_exists() -> None:
    operations = [o for group in docs.groups() for o in group.operations]
    assert docs.SUMMARIES.keys() | docs.EXAMPLES.keys() <= {o.id for o in operations}
    names = {field.name for o in operations for field in (*o.parameters, *o.fields)}
    assert docs.NOTES.keys() <= names
    assert all(o.summary for o in operations)


def test_every_code_in_the_sources_stands_in_the_table(text: str) -> None:
    root = Path(settings.BASE_DIR)
    files = [
        file
        for name in SOURCES
        for file in ([root / name] if name.endswith(".py") else (root / name).rglob("*.py"))
    ]
    used = {code for file in files for code in re.findall(r'code="(\w+)"', file.read_text())}
    assert used <= {code for _, code, _ in docs.codes()}
    for status, code, _ in docs.codes():
        assert f'<td class="mono">{status}</td><td><code>{code}</code></td>' in text


def test_an_example_body_is_one_that_the_api_takes(db: None, client: Client) -> None:
    _, secret = create_api_key("docs", scopes=["read", "write"], at=0)
    examples = {
        "memories_create": 201,
        "recall": 200,
        "projection": 200,
        "context_add": 201,
        "context_search": 200,
    }
    for name, status in examples.items():
        path = next(o.path for group in docs.groups() for o in group.operations if o.id == name)
        response = client.post(
            path,
            json.dumps(docs.EXAMPLES[name]),
            "application/json",
            headers={"Authorization": f"Bearer {secret}", "Idempotency-Key": name},
        )
        assert response.status_code == status, response.content


def test_the_reference_loads_nothing_from_elsewhere(text: str) -> None:
    assert not re.findall(r'(?:src|href)="(?:https?:)?//', text)
    assert "<script>" not in text
