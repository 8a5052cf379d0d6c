"""Hostile input over the API: a 4xx in the envelope that names the field, or the right answer; never a 500."""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass, replace
from typing import Any

import pytest
from django.test import Client
from hypothesis import HealthCheck, settings
from hypothesis import given as for_any
from hypothesis import strategies as st

Api = Any

UNKNOWN = "mem_00000000000000000000000000"


@dataclass(frozen=True)
class Store:
    """One memory with a successor and the link between them, for addresses that need one."""

    api: Api
    old: str
    new: str
    link: str
    recall: str
    event: str

    def at(self, path: str) -> str:
        return path.format(old=self.old, new=self.new, link=self.link, recall=self.recall, event=self.event)


@pytest.fixture
def store(api: Api) -> Store:
    """The client is as strict as the product's server: CSRF is checked wherever a view does not say otherwise."""
    api = replace(api, client=Client(enforce_csrf_checks=True))
    old, new = api.stored("the old plan of the fence"), api.stored("the new plan of the fence")
    link = api.linked(old["id"], new["id"], "EVOLVED_INTO")
    answer = api.recalled("fence")
    _, history = api.get(f"/v1/memories/{old['id']}/history")
    return Store(api, old["id"], new["id"], link["id"], answer["recall_id"], history["results"][0]["id"])


def require_envelope(response: Any, *, field: str | None = None, status: int | None = None) -> dict[str, Any]:
    """A 4xx in the envelope, in JSON, short, without a stack trace; it names the field where one is given."""
    assert 400 <= response.status_code < 500, (response.status_code, response.content[:400])
    assert status is None or response.status_code == status, (response.status_code, response.content[:400])
    assert response.headers["Content-Type"].startswith("application/json"), response.content[:200]
    assert b"Traceback" not in response.content
    assert len(response.content) < 2_000, "an error does not repeat a megabyte"
    told = json.loads(response.content)
    assert set(told) == {"error"}
    error: dict[str, Any] = told["error"]
    assert {"code", "message"} <= set(error) <= {"code", "message", "field", "hint"}
    assert all(isinstance(value, str) and value for value in error.values()), error
    if field is not None:
        assert error.get("field") == field, error
    return error


# ------------------------------------------------------------------------------------------- every field of a body

TEXT, FLAG, WHOLE, NUMBER, TEXTS, OBJECT, TIME, MS = "text flag whole number texts object time ms".split()

MEMORY = {
    "text": TEXT,
    "tags": TEXTS,
    "category": TEXT,
    "provenance_class": TEXT,
    "status": TEXT,
    "archived": FLAG,
    "created_at": TIME,
    "created_at_unix_ms": MS,
    "t_valid": TIME,
    "t_valid_unix_ms": MS,
    "t_invalid": TIME,
    "t_invalid_unix_ms": MS,
    "expires_at": TIME,
    "expires_at_unix_ms": MS,
    "source_event_id": TEXT,
    "external_id": TEXT,
    "metadata": OBJECT,
    "workspace": TEXT,
    "reason": TEXT,
}
RECALL = {
    "query": TEXT,
    "workspace": TEXT,
    "limit": WHOLE,
    "mode": TEXT,
    "strategies": TEXTS,
    "strategy_weights": OBJECT,
    "fusion": TEXT,
    "profile": TEXT,
    "validity_annotate": FLAG,
    "query_time_unix_ms": MS,
    "current_only": FLAG,
    "state_mode": TEXT,
    "state_debug": FLAG,
    "tags": TEXTS,
    "tags_match": TEXT,
    "exclude_tags": TEXTS,
    "category": TEXT,
    "provenance_class": TEXT,
    "start": TIME,
    "end": TIME,
    "temporal": OBJECT,
    "rerank": FLAG,
    "sort": TEXT,
    "max_tokens": WHOLE,
    "trace": FLAG,
}
LINK = {
    "from": TEXT,
    "to": TEXT,
    "type": TEXT,
    "strength": NUMBER,
    "reason": TEXT,
    "created_at": TIME,
    "created_at_unix_ms": MS,
}
BODIES: list[tuple[str, str, dict[str, Any], dict[str, str]]] = [
    ("POST", "/v1/memories", {"text": "a fence"}, MEMORY),
    ("PATCH", "/v1/memories/{old}", {}, {k: v for k, v in MEMORY.items() if k != "workspace"}),
    ("POST", "/v1/memories/{old}/supersede", {"text": "a fence"}, {**MEMORY, "by": TEXT, "relation": TEXT}),
    ("POST", "/v1/memories/{old}/verify", {}, {"reason": TEXT}),
    ("POST", "/v1/memories/{old}/erase", {}, {"reason": TEXT}),
    ("POST", "/v1/links", {"from": UNKNOWN, "to": UNKNOWN, "type": "RELATES_TO"}, LINK),
    ("POST", "/v1/memories/bulk", {}, {"memories": TEXTS}),
    ("POST", "/v1/recall", {"query": "fence"}, RECALL),
]
VALUES = {
    TEXT: ["a text", ""],
    FLAG: [True],
    WHOLE: [1, 0, -1, 201],
    NUMBER: [0.5, 1],
    TEXTS: [["a"], []],
    OBJECT: [{}],
    TIME: ["2026-01-01T00:00:00Z", "2026-01-01"],
    MS: [1_700_000_000_000],
}
WRONG: dict[str, list[Any]] = {
    TEXT: [True, 1, 1.5, ["a"], {}],
    FLAG: ["true", "yes", 1, 0.0, [], {}],
    WHOLE: [True, "1", 1.5, 10**30, -(10**30), [1], {}],
    NUMBER: [True, "1", [1], {}],
    TEXTS: ["a", 1, True, {}, {"a": 1}],
    OBJECT: ["a", 1, True, [], [1]],
    TIME: [True, 1, 1.5, [], {}, "yesterday", "2026-02-30", "2026-01-01T00:00:00", "2026-01-01T25:00:00Z"],
    MS: [True, "1", 1.5, 10**15, -(10**15), 10**30, [], {}],
}


def inside(field: str, path: str) -> str | None:
    """What a refusal names. Entries of lists and objects are named with their place: `tags.0`."""
    return None if path.endswith("/bulk") else field


@pytest.mark.parametrize(
    ("method", "path", "body", "fields"), BODIES, ids=[f"{m} {p}" for m, p, _, _ in BODIES]
)
def test_a_wrong_type_is_refused_and_named(
    store: Store, method: str, path: str, body: dict[str, Any], fields: dict[str, str]
) -> None:
    for field, kind in fields.items():
        for wrong in WRONG[kind]:
            response = store.api.raw(method, store.at(path), {**body, field: wrong})
            error = require_envelope(response, status=400)
            assert error["field"].split(".")[0] == field, (field, wrong, error)


@pytest.mark.parametrize(
    ("method", "path", "body", "fields"), BODIES, ids=[f"{m} {p}" for m, p, _, _ in BODIES]
)
def test_null_for_a_field_clears_it_or_is_refused_and_named(
    store: Store, method: str, path: str, body: dict[str, Any], fields: dict[str, str]
) -> None:
    for field in fields:
        response = store.api.raw(method, store.at(path), {**body, field: None})
        if response.status_code >= 400 and "reason" not in json.loads(response.content)["error"].get(
            "field", ""
        ):
            error = require_envelope(response)
            # A link between unknown memories, or a supersession by nothing, is refused for that in the end.
            assert error["field"] in (field, field.removesuffix("_unix_ms"), "to", "by"), (field, error)


@pytest.mark.parametrize(
    ("method", "path", "body", "fields"), BODIES, ids=[f"{m} {p}" for m, p, _, _ in BODIES]
)
def test_an_unknown_field_is_refused_and_named_and_a_long_name_is_cut(
    store: Store, method: str, path: str, body: dict[str, Any], fields: dict[str, str]
) -> None:
    for unknown in ("colour", "id", "version", "__proto__", "", "a.b", "seq", "self"):
        error = require_envelope(store.api.raw(method, store.at(path), {**body, unknown: 1}), status=400)
        assert (error.get("field", ""), error["code"]) == (unknown, "unknown_field")
    error = require_envelope(store.api.raw(method, store.at(path), {**body, "x" * 1_000_000: 1}), status=400)
    assert error["code"] == "unknown_field"


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(b"[]", id="a list"),
        pytest.param(b'"text"', id="a text"),
        pytest.param(b"1", id="a number"),
        pytest.param(b"null", id="null"),
        pytest.param(b"true", id="a boolean"),
        pytest.param(b"{", id="unfinished"),
        pytest.param(b'{"text": "a"} x', id="something after the end"),
        pytest.param(b'{"text": NaN}', id="NaN"),
        pytest.param(b'{"metadata": {"a": Infinity}}', id="Infinity"),
        pytest.param(b'{"metadata": {"a": 1e999}}', id="a number that is too large for a float"),
        pytest.param(b'{"text": "\\ud800"}', id="half a surrogate pair"),
        pytest.param(b'{"\\udfff": 1}', id="half a surrogate pair as a name"),
        pytest.param(b'{"text": "\xff\xfe"}', id="invalid UTF-8"),
        pytest.param(b'{"text": "\xed\xa0\x80"}', id="a surrogate in UTF-8"),
        pytest.param(b"\xef\xbb\xbf{}", id="a byte order mark"),
        pytest.param("{}".encode("utf-16"), id="UTF-16"),
        pytest.param(gzip.compress(b'{"text": "a"}'), id="gzip"),
        pytest.param(b'{"metadata": ' + b'{"a":' * 10_000 + b"1" + b"}" * 10_001, id="10,000 objects deep"),
        pytest.param(b"[" * 10_000 + b"]" * 10_000, id="10,000 lists deep"),
        pytest.param(b"\x00", id="NUL"),
        pytest.param(b" " * 1_000_000, id="1 MB of blanks"),
        pytest.param(b'{"text": ' + b"9" * 100_000 + b"}", id="a number of 100,000 digits"),
    ],
)
def test_a_body_that_is_no_json_object_is_refused(store: Store, raw: bytes) -> None:
    for method, path, _, _ in BODIES:
        require_envelope(store.api.raw(method, store.at(path), raw), status=400)


@pytest.mark.parametrize(
    ("method", "path", "body", "fields"), BODIES, ids=[f"{m} {p}" for m, p, _, _ in BODIES]
)
def test_another_content_type_is_refused_and_an_empty_body_lacks_its_fields(
    store: Store, method: str, path: str, body: dict[str, Any], fields: dict[str, str]
) -> None:
    headers = {"Authorization": f"Bearer {store.api.secret}"}
    for content_type in (
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data",
        "x",
        "text/html",
    ):
        response = store.api.client.generic(
            method, store.at(path), b"text=a", content_type=content_type, headers=headers
        )
        require_envelope(response, status=415)
    packed = store.api.raw(method, store.at(path), gzip.compress(b"{}"), **{"Content-Encoding": "gzip"})
    require_envelope(packed)
    empty = store.api.raw(method, store.at(path), b"")
    assert empty.status_code < 500
    if body:
        require_envelope(empty, status=400)


def test_the_last_of_two_equal_names_counts(store: Store) -> None:
    status, memory = store.api.call("POST", "/v1/memories", b'{"text": "first", "text": "second"}')
    assert (status, memory["text"]) == (201, "second")


# --------------------------------------------------------------------------------------------------------- sizes

TOO_LARGE: list[tuple[str, str, dict[str, Any], str]] = [
    ("POST", "/v1/memories", {"text": "x" * (64 * 1024 + 1)}, "text"),
    ("POST", "/v1/memories", {"text": "é" * (32 * 1024 + 1)}, "text"),
    ("POST", "/v1/memories", {"text": "x" * 1_000_000}, "text"),
    ("POST", "/v1/memories", {"text": "a", "tags": ["x" * 129]}, "tags"),
    ("POST", "/v1/memories", {"text": "a", "tags": [str(n) for n in range(65)]}, "tags"),
    ("POST", "/v1/memories", {"text": "a", "tags": ["x"] * 100_000}, "tags"),
    ("POST", "/v1/memories", {"text": "a", "category": "x" * 129}, "category"),
    ("POST", "/v1/memories", {"text": "a", "workspace": "x" * 1_000_000}, "workspace"),
    ("POST", "/v1/memories", {"text": "a", "external_id": "x" * 257}, "external_id"),
    ("POST", "/v1/memories", {"text": "a", "source_event_id": "x" * 33}, "source_event_id"),
    ("POST", "/v1/memories", {"text": "a", "reason": "x" * 2_001}, "reason"),
    ("POST", "/v1/memories", {"text": "a", "metadata": {"a": "x" * (16 * 1024)}}, "metadata"),
    ("POST", "/v1/memories", {"text": "a", "metadata": {"x" * 100_000: 1}}, "metadata"),
    ("PATCH", "/v1/memories/{old}", {"text": "x" * 1_000_000}, "text"),
    ("PATCH", "/v1/memories/{old}", {"reason": "x" * 1_000_000}, "reason"),
    ("POST", "/v1/memories/{old}/supersede", {"text": "x" * 1_000_000}, "text"),
    ("POST", "/v1/memories/{old}/verify", {"reason": "x" * 1_000_000}, "reason"),
    ("POST", "/v1/memories/{old}/erase", {"reason": "x" * 1_000_000}, "reason"),
    ("POST", "/v1/links", {"from": "x" * 1_000_000, "to": UNKNOWN, "type": "RELATES_TO"}, "from"),
    ("POST", "/v1/links", {"from": UNKNOWN, "to": UNKNOWN, "type": "x" * 1_000_000}, "type"),
    ("POST", "/v1/memories/bulk", {"memories": [{"text": "a"}] * 1_001}, "memories"),
    ("POST", "/v1/recall", {"query": "x" * 4_097}, "query"),
    ("POST", "/v1/recall", {"query": "x" * 1_000_000}, "query"),
    ("POST", "/v1/recall", {"query": " " * 1_000_000, "tags": ["a"]}, "query"),
    ("POST", "/v1/recall", {"query": "a", "tags": [str(n) for n in range(65)]}, "tags"),
    ("POST", "/v1/recall", {"query": "a", "exclude_tags": ["x" * 129]}, "exclude_tags"),
    ("POST", "/v1/recall", {"query": "a", "category": "x" * 129}, "category"),
    ("POST", "/v1/recall", {"query": "a", "workspace": "x" * 129}, "workspace"),
    ("POST", "/v1/recall", {"query": "a", "profile": "x" * 1_000_000}, "profile"),
    ("POST", "/v1/recall", {"query": "a", "mode": "x" * 1_000_000}, "mode"),
    ("POST", "/v1/recall", {"query": "a", "strategies": ["x" * 1_000_000]}, "strategies"),
    ("POST", "/v1/recall", {"query": "a", "strategies": ["lexical"] * 100_000}, "strategies"),
    ("POST", "/v1/recall", {"query": "a", "strategy_weights": {"x" * 1_000_000: 1}}, "strategy_weights"),
    ("POST", "/v1/recall", {"query": "a", "strategy_weights": {"lexical": 101}}, "strategy_weights"),
    ("POST", "/v1/recall", {"query": "a", "strategy_weights": {"lexical": -1}}, "strategy_weights"),
    ("POST", "/v1/recall", {"query": "a", "start": "2" * 1_000_000}, "start"),
    ("POST", "/v1/recall", {"query": "a", "limit": 0}, "limit"),
    ("POST", "/v1/recall", {"query": "a", "limit": -1}, "limit"),
    ("POST", "/v1/recall", {"query": "a", "limit": 201}, "limit"),
    ("POST", "/v1/recall", {"query": "a", "limit": 10**30}, "limit"),
    ("POST", "/v1/recall", {"query": "a", "max_tokens": 0}, "max_tokens"),
    ("POST", "/v1/recall", {"query": "a", "max_tokens": 10**9}, "max_tokens"),
]


def test_an_absurd_size_is_refused_and_named(store: Store) -> None:
    for method, path, body, field in TOO_LARGE:
        error = require_envelope(store.api.raw(method, store.at(path), body))
        assert error["field"].split(".")[0] == field, error


def test_a_body_above_its_limit_is_too_large(store: Store) -> None:
    body = b'{"text": "' + b"x" * (2 * 1024 * 1024) + b'"}'
    for method, path, _, _ in BODIES:
        if not path.endswith("/bulk"):
            require_envelope(store.api.raw(method, store.at(path), body), status=413)
    bulk = b'{"memories": ["' + b"x" * (32 * 1024 * 1024) + b'"]}'
    require_envelope(store.api.raw("POST", "/v1/memories/bulk", bulk), status=413)


# --------------------------------------------------------------------------------------------------- hostile texts

HOSTILE = [
    *('"', '""', '"""', "'", "*", "fence*", "*fence", "^fence", "- fence", "-fence", "+fence", "NEAR(", ")", "(("),
    *('fence AND', 'AND', 'OR', 'NOT', 'fence NOT plan', 'NEAR(fence plan, 5)', 'text:fence', 'col:', '{text}:', ":"),
    *('"fence', 'fence"', 'fence""', 'fen"ce', "fence; DROP TABLE vault_memory; --", "%", "_", "\\", "%s", "%(a)s"),
    *("fence \u202eecnef", "\u200b", "\ufeff", "fe\u0301nce", "\u0301"),
    *("🦊🦊", "👩‍👩‍👧‍👦", "مرحبا بالعالم", "שלום", "हिन्दी", "日本語の文"),
    *("\ufdd0", "\U0010ffff", "İ", "ß", "ﬁ"),
    *("\u2028", "\r\n\t\x0b\x1b", "\x7f", "<script>alert(1)</script>", "{{ 7*7 }}"),
    *("a" * 4_000, "fence " * 600, " ".join(str(n) for n in range(800)), '"' * 4_000, "(" * 4_000, "NEAR(" * 800),
    *("0", "-1", "null", "١٢٣", "½", "²", "𝟘", "…", "~"),
    *("|", "&", "`", "$", "#", "@", "!", "?", "/", "../../etc/passwd"),
]  # fmt: skip


def test_hostile_text_is_only_text_to_a_recall(store: Store) -> None:
    for query in HOSTILE:
        blank = not query.strip()
        response = store.api.raw("POST", "/v1/recall", {"query": query, "trace": True, "profile": "validity"})
        if blank:
            require_envelope(response, field="query", status=400)
            continue
        answer = json.loads(response.content)
        assert response.status_code == 200, (query, answer)
        assert answer["query"] == query
        spelt = store.api.client.get(
            "/v1/recall", {"query": query}, headers={"Authorization": f"Bearer {store.api.secret}"}
        )
        assert spelt.status_code == 200, query


def test_hostile_text_is_stored_as_it_is_and_found_by_its_words(store: Store) -> None:
    for number, text in enumerate(HOSTILE):
        told = f"{text} marker{number}"
        status, memory = store.api.post("/v1/memories", {"text": told, "metadata": {"text": text}})
        assert (status, memory["text"], memory["metadata"]) == (201, told, {"text": text}), text
        assert store.api.texts(f"{text} marker{number}", limit=200).count(told) == 1, text
        _, listed = store.api.get("/v1/memories", q=text[:40])
        assert "results" in listed


@pytest.mark.parametrize(
    "spelling", ["re\u0301sume\u0301s", "r\u00e9sum\u00e9s", "RÉSUMÉS", "resumes", "résume\u0301"]
)
def test_a_word_is_found_however_its_accent_is_spelt(api: Api, spelling: str) -> None:
    spellings = {"the r\u00e9sum\u00e9s of the town", "the re\u0301sume\u0301s of the village"}
    for text in (*spellings, "re, and a sume"):
        api.stored(text)
    assert set(api.texts(spelling)) == spellings


def test_a_word_with_vowel_signs_is_one_word(api: Api) -> None:
    api.stored("हिन्दी में लिखा")
    api.stored("न")
    assert api.texts("हिन्दी", mode="lexical") == ["हिन्दी में लिखा"]


NUL_FIELDS: list[tuple[str, str, dict[str, Any], str]] = [
    ("POST", "/v1/memories", {"text": "a\0b"}, "text"),
    ("POST", "/v1/memories", {"text": "a", "tags": ["a\0"]}, "tags"),
    ("POST", "/v1/memories", {"text": "a", "category": "\0"}, "category"),
    ("POST", "/v1/memories", {"text": "a", "workspace": "\0"}, "workspace"),
    ("POST", "/v1/memories", {"text": "a", "external_id": "\0"}, "external_id"),
    ("POST", "/v1/memories", {"text": "a", "source_event_id": "\0"}, "source_event_id"),
    ("POST", "/v1/memories", {"text": "a", "reason": "\0"}, "reason"),
    ("POST", "/v1/memories", {"text": "a", "status": "\0"}, "status"),
    ("POST", "/v1/memories", {"text": "a", "metadata": {"a": "\0"}}, "metadata"),
    ("POST", "/v1/memories", {"text": "a", "metadata": {"\0": 1}}, "metadata"),
    ("PATCH", "/v1/memories/{old}", {"text": "\0"}, "text"),
    ("PATCH", "/v1/memories/{old}", {"tags": ["\0"]}, "tags"),
    ("POST", "/v1/memories/{old}/supersede", {"text": "\0"}, "text"),
    ("POST", "/v1/memories/{old}/supersede", {"by": "\0"}, "by"),
    ("POST", "/v1/memories/{old}/supersede", {"text": "a", "relation": "\0"}, "relation"),
    ("POST", "/v1/memories/{old}/verify", {"reason": "\0"}, "reason"),
    ("POST", "/v1/memories/{old}/erase", {"reason": "\0"}, "reason"),
    ("POST", "/v1/links", {"from": "\0", "to": UNKNOWN, "type": "RELATES_TO"}, "from"),
    ("POST", "/v1/recall", {"query": "a\0b"}, "query"),
    ("POST", "/v1/recall", {"query": "a", "tags": ["\0"]}, "tags"),
    ("POST", "/v1/recall", {"query": "a", "exclude_tags": ["\0"]}, "exclude_tags"),
    ("POST", "/v1/recall", {"query": "a", "category": "\0"}, "category"),
    ("POST", "/v1/recall", {"query": "a", "workspace": "\0"}, "workspace"),
    ("POST", "/v1/recall", {"query": "a", "profile": "\0"}, "profile"),
]


def test_nul_is_refused_and_named(store: Store) -> None:
    for method, path, body, field in NUL_FIELDS:
        require_envelope(store.api.raw(method, store.at(path), body), field=field)


UNKNOWN_NAMES: list[tuple[str, str, dict[str, Any], str]] = [
    ("POST", "/v1/memories", {"text": "a", "provenance_class": "certain"}, "provenance_class"),
    ("POST", "/v1/memories", {"text": "a", "status": "fine"}, "status"),
    ("POST", "/v1/memories", {"text": " \n\t"}, "text"),
    ("POST", "/v1/memories", {"text": "a", "tags": [""]}, "tags"),
    ("POST", "/v1/memories", {"text": "a", "tags": [" a"]}, "tags"),
    ("POST", "/v1/memories", {"text": "a", "external_id": ""}, "external_id"),
    ("POST", "/v1/memories", {"text": "a", "t_valid": "2026-02-01", "t_invalid": "2026-01-01"}, "t_invalid"),
    ("POST", "/v1/memories", {"text": "a", "created_at": "9999-01-01"}, "created_at"),
    ("POST", "/v1/memories", {"text": "a", "t_valid": "2026-01-01", "t_valid_unix_ms": 1}, "t_valid_unix_ms"),
    ("PATCH", "/v1/memories/{old}", {"workspace": "red"}, "workspace"),
    ("PATCH", "/v1/memories/{old}", {"workspace": None}, "workspace"),
    ("POST", "/v1/memories/{old}/supersede", {}, "by"),
    ("POST", "/v1/memories/{old}/supersede", {"text": "a", "by": UNKNOWN}, "by"),
    ("POST", "/v1/memories/{old}/supersede", {"by": UNKNOWN}, "by"),
    ("POST", "/v1/memories/{old}/supersede", {"by": "{old}"}, "by"),
    ("POST", "/v1/memories/{old}/supersede", {"text": "a", "relation": "RELATES_TO"}, "relation"),
    ("POST", "/v1/links", {"from": "{old}", "to": "{old}", "type": "RELATES_TO"}, "to"),
    ("POST", "/v1/links", {"from": "{old}", "to": UNKNOWN, "type": "RELATES_TO"}, "to"),
    ("POST", "/v1/links", {"from": "{old}", "to": "{new}", "type": "LOVES"}, "type"),
    ("POST", "/v1/links", {"from": "{old}", "to": "{new}", "type": "EVOLVED_INTO"}, "type"),
    ("POST", "/v1/links", {"from": "{old}", "to": "{new}", "type": "PART_OF", "strength": 1.1}, "strength"),
    (
        "POST",
        "/v1/links",
        {"from": "{old}", "to": "{new}", "type": "PART_OF", "created_at": "9999-01-01"},
        "created_at",
    ),
    (
        "POST",
        "/v1/links",
        {
            "from": "{old}",
            "to": "{new}",
            "type": "PART_OF",
            "created_at": "2026-01-01",
            "created_at_unix_ms": 1,
        },
        "created_at_unix_ms",
    ),
    ("POST", "/v1/recall", {"query": "a", "mode": "magic"}, "mode"),
    ("POST", "/v1/recall", {"query": "a", "mode": "fused", "strategies": ["lexical"]}, "strategies"),
    ("POST", "/v1/recall", {"query": "a", "mode": "dense", "strategies": ["dense"]}, "strategies"),
    ("POST", "/v1/recall", {"query": "a", "strategies": ["magic"]}, "strategies"),
    ("POST", "/v1/recall", {"query": "a", "strategies": []}, "strategies"),
    ("POST", "/v1/recall", {"query": "a", "strategies": ["lexical", "lexical"]}, "strategies"),
    ("POST", "/v1/recall", {"query": "a", "strategies": ["links", "lexical", "graph"]}, "strategies"),
    ("POST", "/v1/recall", {"query": "a", "strategy_weights": {"magic": 1}}, "strategy_weights"),
    ("POST", "/v1/recall", {"query": "a", "strategy_weights": {"dense": -1}}, "strategy_weights"),
    ("POST", "/v1/recall", {"query": "a", "strategy_weights": {"dense": 101}}, "strategy_weights"),
    ("POST", "/v1/recall", {"query": "a", "fusion": "sum"}, "fusion"),
    ("POST", "/v1/recall", {"query": "a", "profile": "validty"}, "profile"),
    ("POST", "/v1/recall", {"query": "a", "state_mode": "past"}, "state_mode"),
    ("POST", "/v1/recall", {"query": "a", "tags": ["a"], "tags_match": "some"}, "tags_match"),
    ("POST", "/v1/recall", {"query": "a", "provenance_class": "sure"}, "provenance_class"),
    ("POST", "/v1/recall", {"query": "a", "sort": "random"}, "sort"),
    ("POST", "/v1/recall", {"query": "a", "start": "2026-02-01", "end": "2026-01-01"}, "end"),
    ("POST", "/v1/recall", {"query": "a", "rerank": True}, "rerank"),
    ("POST", "/v1/recall", {"query": "a", "rerank": True, "limit": 21}, "limit"),
    ("POST", "/v1/recall", {"query": "a", "temporal": {}}, "temporal"),
    ("POST", "/v1/recall", {"query": "a", "temporal": {"start": None}}, "temporal"),
    (
        "POST",
        "/v1/recall",
        {"query": "a", "temporal": {"start": "2026-01-01", "end": "2026-01-01"}},
        "temporal.end",
    ),
    (
        "POST",
        "/v1/recall",
        {"query": "a", "temporal": {"start": "2026-02-01", "end": "2026-01-01"}},
        "temporal.end",
    ),
    ("POST", "/v1/recall", {"query": "a", "temporal": {"since": 1}}, "temporal.since"),
    ("POST", "/v1/recall", {"query": "a", "temporal": {"start": "soon"}}, "temporal.start"),
    ("POST", "/v1/recall", {"query": ""}, "query"),
    ("POST", "/v1/recall", {"query": "\u3000\t\n"}, "query"),
]


def test_an_unknown_name_or_a_contradiction_is_refused_and_named(store: Store) -> None:
    for method, path, body, field in UNKNOWN_NAMES:
        filled = {n: store.at(v) if isinstance(v, str) and v.startswith("{") else v for n, v in body.items()}
        require_envelope(store.api.raw(method, store.at(path), filled), field=field)


def test_an_unknown_field_of_a_link_is_told_the_names_that_links_have(store: Store) -> None:
    error = require_envelope(store.api.raw("POST", "/v1/links", {"source": store.old}), field="source")
    assert error["hint"] == "known: created_at, created_at_unix_ms, from, reason, strength, to, type"


def test_a_bad_row_of_a_bulk_is_named_with_its_place(store: Store) -> None:
    rows: list[Any] = [
        {"text": "one"}, None, 1, [], "x", {}, {"text": "\0"}, {"text": 1}, {"text": "a", "colour": "red"},
        {"text": "a", "t_valid": "soon"}, {"text": "two"},
    ]  # fmt: skip
    status, told = store.api.post("/v1/memories/bulk", {"memories": rows})
    assert (status, told["created"], told["unchanged"]) == (207, 2, 0)
    assert [failure["index"] for failure in told["failed"]] == list(range(1, 10))
    assert [failure["error"].get("field") for failure in told["failed"]] == [
        None, None, None, None, "text", "text", "text", "colour", "t_valid",
    ]  # fmt: skip


# ---------------------------------------------------------------------------------------- addresses and query strings

ADDRESSES: list[tuple[str, str]] = [
    ("GET", "/v1/memories"),
    ("GET", "/v1/memories/{old}"),
    ("DELETE", "/v1/memories/{old}"),
    ("GET", "/v1/memories/{old}/history"),
    ("GET", "/v1/memories/{old}/related"),
    ("GET", "/v1/links?memory={old}"),
    ("DELETE", "/v1/links/{link}"),
    ("GET", "/v1/recall?query=fence"),
    ("GET", "/v1/recalls"),
    ("GET", "/v1/recalls/{recall}"),
    ("GET", "/v1/events"),
    ("GET", "/v1/events/{event}"),
    ("GET", "/v1/quality"),
    *((method, path) for method, path, _, _ in BODIES),
]


def with_query(path: str, query: str) -> str:
    return f"{path}{'&' if '?' in path else '?'}{query}"


def test_an_unknown_parameter_is_refused_and_named(store: Store) -> None:
    for method, path in ADDRESSES:
        error = require_envelope(store.api.raw(method, with_query(store.at(path), "colour=red")), status=400)
        assert (error["code"], error["field"]) == ("unknown_field", "colour"), (method, path)
        long_name = with_query(store.at(path), "x" * 100_000 + "=1")
        require_envelope(store.api.raw(method, long_name), status=400)


PARAMETERS: list[tuple[str, str, str]] = [
    *(
        ("/v1/memories", "limit", v)
        for v in ("0", "-1", "201", "1.5", "x", "", "١", "1e2", "0" * 5 + "9" * 5_000)
    ),
    *(("/v1/memories", "limit", v) for v in ("00001999", " 5", "+5", "9" * 10_000)),
    *(
        ("/v1/memories", "cursor", v)
        for v in ("x", "o", "o-1", "n1.5", "o" + "9" * 10_000, "o99", "🦊", "oo1", "\0")
    ),
    *(("/v1/memories", "state", v) for v in ("", "old", "\0", "🦊")),
    *(("/v1/memories", "archived", v) for v in ("yes", "1", "", "True")),
    *(("/v1/memories", "validity_annotate", v) for v in ("yes", "1", "")),
    *(("/v1/memories", "status", v) for v in ("fine", "", "\0")),
    *(("/v1/memories", "provenance_class", v) for v in ("sure", "\0")),
    *(("/v1/memories", "tags_match", v) for v in ("some", "", "\0")),
    *(("/v1/memories", "created_after", v) for v in ("yesterday", "", "\0", "2026-02-30", "2" * 100_000)),
    *(("/v1/memories", "created_before", v) for v in ("2026-01-01T00:00:00", "99999-01-01")),
    *(("/v1/memories", "tags", v) for v in ("", "\0", "x" * 129, " a")),
    *(("/v1/memories", "q", v) for v in ("\0", "x" * 4_097, "%" * 60_000)),
    *(("/v1/memories", "category", v) for v in ("\0", "x" * 129)),
    *(("/v1/memories", "workspace", v) for v in ("\0", "x" * 129)),
    *(("/v1/memories/{old}", "at", v) for v in ("yesterday", "", "\0", "2026-13-01")),
    *(("/v1/memories/{old}/related", "depth", v) for v in ("0", "4", "-1", "x", "", "1.0", "9" * 5_000)),
    *(("/v1/memories/{old}/related", "types", v) for v in ("LOVES", "EVOLVED_INTO,LOVES", "\0")),
    *(("/v1/recalls", "limit", v) for v in ("0", "201", "x", "000001" + "9" * 5_000)),
    *(("/v1/recalls", "cursor", v) for v in ("x", "o99")),
    *(("/v1/recalls", "grade", v) for v in ("fine", "\0")),
    *(("/v1/recalls", "profile", v) for v in ("fine", "")),
    *(("/v1/recalls", "outcome", v) for v in ("fine", "")),
    *(("/v1/recalls", "from", v) for v in ("yesterday", "")),
    *(("/v1/recalls", "to", v) for v in ("yesterday", "\0")),
    *(("/v1/recalls", "q", v) for v in ("\0", "x" * 60_000)),
    *(("/v1/events", "limit", v) for v in ("0", "201")),
    *(("/v1/events", "cursor", v) for v in ("x", "o99")),
    *(("/v1/events", "kind", v) for v in ("fine", "", "\0")),
    *(("/v1/recall", "limit", v) for v in ("0", "-1", "201", "1.5", "x", "")),
    *(("/v1/recall", "current_only", v) for v in ("maybe", "2", "", "\0")),
    *(("/v1/recall", "current_only", v) for v in ("t", "on", "yes", "1", "True", " true")),
    *(("/v1/recall", "limit", v) for v in ("1_0", " 1", "1.0", "+5", "٣", "9" * 5_000)),
    *(("/v1/recall", "strategy_weights", v) for v in ('{"lexical": "1"}', '{"lexical": true}')),
    *(("/v1/recall", "state_mode", v) for v in ("past", "")),
    *(("/v1/recall", "strategy_weights", v) for v in ("x", "[]", "[" * 10_000, "{", "NaN")),
    *(("/v1/recall", "temporal", v) for v in ("x", "[]", "1")),
    *(("/v1/recall", "query_time_unix_ms", v) for v in ("x", "1e400", "9" * 5_000, "2026-01-01")),
    *(("/v1/recall", "start", v) for v in ("yesterday", "")),
    *(("/v1/recall", "query", v) for v in ("\0", "x" * 4_097)),
]


def test_a_malformed_parameter_is_refused_and_named(store: Store) -> None:
    for path, name, value in PARAMETERS:
        asked = {"query": "fence"} if path == "/v1/recall" else {}
        response = store.api.client.get(
            store.at(path), {**asked, name: value}, headers={"Authorization": f"Bearer {store.api.secret}"}
        )
        assert response.status_code == 400, (path, name, value[:20], response.content[:200])
        error = require_envelope(response, status=400)
        assert error["field"].split(".")[0] == name, (path, name, value[:20], error)


def test_a_parameter_given_twice_is_refused_and_named(store: Store) -> None:
    twice = [("/v1/memories", name) for name in "limit cursor state q category workspace archived".split()]
    twice += [
        ("/v1/recalls", "profile"),
        ("/v1/events", "kind"),
        ("/v1/links", "memory"),
        ("/v1/recall", "query"),
    ]
    twice += [
        ("/v1/memories/{old}", "at"),
        ("/v1/memories/{old}/related", "depth"),
        ("/v1/quality", "workspace"),
    ]
    for path, name in twice:
        response = store.api.raw("GET", f"{store.at(path)}?{name}=1&{name}=1")
        require_envelope(response, field=name, status=400)
    response = store.api.raw("DELETE", f"/v1/memories/{store.old}?reason=a&reason=b")
    require_envelope(response, field="reason", status=400)


@pytest.mark.parametrize(
    "query", ["q=%", "q=%zz", "q=%ff%fe", "q=%ed%a0%80", "q=%u1234", "%=1", "%ff=1", "&&&", "=", "q"]
)
def test_broken_percent_encoding_is_text_or_refused(store: Store, query: str) -> None:
    for path in ("/v1/memories", "/v1/recalls", "/v1/recall", "/v1/events"):
        response = store.api.raw("GET", f"{path}?{query}")
        assert response.status_code in (200, 400), (path, response.status_code)
        if response.status_code == 400:
            require_envelope(response)


STRANGE_IDS = [
    *("x", "mem_", UNKNOWN, UNKNOWN.upper(), "mem_" + "z" * 10_000, "🦊"),
    *("%00", "%ff", "%0a", "'", '"', "%25", "%2e%2e"),
    *("..", "...", "a b", "<script>", "null", "-1", "0", "*", "mem_%F0%9F%A6%8A", ";", "a;b", "%C3%28", "@", "%5C"),
]  # fmt: skip
BY_ID = [
    ("GET", "/v1/memories/{}", None),
    ("PATCH", "/v1/memories/{}", {"category": "a"}),
    ("DELETE", "/v1/memories/{}", None),
    ("POST", "/v1/memories/{}/verify", {"reason": "a"}),
    ("POST", "/v1/memories/{}/erase", {"reason": "a"}),
    ("POST", "/v1/events/{}/erase", {"reason": "a"}),
    ("POST", "/v1/memories/{}/supersede", {"text": "a"}),
    ("GET", "/v1/memories/{}/history", None),
    ("GET", "/v1/memories/{}/related", None),
    ("GET", "/v1/links?memory={}", None),
    ("DELETE", "/v1/links/{}", None),
    ("GET", "/v1/recalls/{}", None),
    ("GET", "/v1/events/{}", None),
]


def test_a_strange_id_is_not_found(store: Store) -> None:
    for method, path, body in BY_ID:
        for strange in STRANGE_IDS:
            response = store.api.raw(method, path.format(strange), body)
            require_envelope(response, status=400 if "?" in path and strange == "%00" else 404)


@pytest.mark.parametrize(
    "path",
    ["/v1/", "/v1/nothing", "/v1/memories/", "/v1/memories/a/b/c", "/v1//memories", "/v1/recall/", "/v1/%00",
     "/v1/%ff", "/v1/links/", "/v1/.", "/v1/<b>", "/v1/" + "x" * 10_000],
)  # fmt: skip
def test_an_unknown_address_is_told_in_the_envelope(store: Store, path: str) -> None:
    for method in ("GET", "POST", "PUT", "PATCH", "DELETE"):
        require_envelope(store.api.raw(method, path, {"a": 1}), status=404)


@pytest.mark.parametrize(
    ("method", "path"),
    [("PUT", "/v1/memories"), ("DELETE", "/v1/recall"), ("PATCH", "/v1/links"), ("GET", "/v1/memories/bulk"),
     ("PUT", "/v1/memories/{old}"), ("GET", "/v1/memories/{old}/verify"), ("POST", "/v1/events"),
     ("DELETE", "/v1/recalls/{recall}"), ("PATCH", "/v1/events/{event}"), ("DELETE", "/v1/events/{event}"),
     ("BREW", "/v1/memories"), ("TRACE", "/v1/memories"), ("GET", "/v1/links/{link}")],
)  # fmt: skip
def test_a_method_that_is_not_there_is_told(store: Store, method: str, path: str) -> None:
    response = store.api.raw(method, store.at(path), {})
    if path == "/v1/memories/bulk":  # read as the id of a memory, which it is not
        require_envelope(response)
        return
    require_envelope(response, status=405)
    assert response.headers["Allow"]


# --------------------------------------------------------------------------------------------------------- headers


@pytest.mark.parametrize(
    "given", ["", "x", '"', '"x"', "1.5", "-1", '"1", "2"', "9" * 10_000, "🦊", "W/", "\xff", "١"]
)
def test_a_malformed_if_match_is_refused_and_named(store: Store, given: str) -> None:
    for method, path, body in (
        ("PATCH", "/v1/memories/{old}", {"category": "a"}),
        ("DELETE", "/v1/memories/{old}", None),
        ("POST", "/v1/memories/{old}/supersede", {"text": "a"}),
        ("POST", "/v1/memories/{old}/erase", {"reason": "a"}),
    ):
        response = store.api.raw(method, store.at(path), body, **{"If-Match": given})
        require_envelope(response, field="If-Match", status=400)


GARBLED = (
    ["", "Bearer", "Bearer ", "Basic YTpi", "bearer x", "Bearer x y", "x", "\xff\xfe", "Bearer \xff", "🦊",
     "Bearer " + "x" * 100_000, "Bearer ' OR 1=1 --", "Bearer %00", "Bearer null"]
)  # fmt: skip


def test_a_garbled_authorization_is_unauthorized(store: Store) -> None:
    for given in GARBLED:
        for method, path in ADDRESSES:
            response = store.api.client.generic(method, store.at(path), headers={"Authorization": given})
            require_envelope(response, status=401)
            assert response.headers["WWW-Authenticate"].startswith("Bearer")


def test_a_strange_host_accept_or_request_id_never_brings_html(store: Store) -> None:
    for name, given in (
        ("Host", "evil.example"), ("Host", "a b"), ("Host", "[::1"), ("Accept", "text/html"), ("Accept", "x"),
        ("Accept", "🦊"), ("X-Request-Id", "<script>"), ("X-Forwarded-Host", "evil.example"),
        ("Content-Length", "x"), ("Accept-Language", "\xff"), ("Cookie", "sessionid=\xff; csrftoken=<"),
        ("HX-Request", "true"), ("Sec-Purpose", "\xff"), ("If-None-Match", "*"), ("Range", "bytes=0-1"),
    ):  # fmt: skip
        response = store.api.raw("GET", "/v1/memories", None, **{name: given})
        assert response.status_code in (200, 400, 406), (name, given, response.status_code)
        assert response.headers["Content-Type"].startswith("application/json"), (name, given)
        assert "<" not in response.headers["X-Request-Id"] if "X-Request-Id" in response.headers else True


# ------------------------------------------------------------------------------------------------------ properties

QUIET = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@QUIET
@for_any(
    query=st.text(
        alphabet=st.characters(blacklist_categories=["Cs"], blacklist_characters="\0"), max_size=200
    )
)
def test_any_text_is_a_question(store: Store, query: str) -> None:
    response = store.api.raw("POST", "/v1/recall", {"query": query, "tags": [], "state_debug": True})
    assert response.status_code == (200 if query.strip() else 400), response.content


ANY_TEXT = st.text(max_size=20) | st.sampled_from(
    ["text", "from", "to", "by", "tags", "query", "memories", "\ud800"]
)
ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | ANY_TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(ANY_TEXT, inner, max_size=4),
    max_leaves=20,
)
NAMES = sorted({name for _, _, _, fields in BODIES for name in fields})


@QUIET
@for_any(
    place=st.sampled_from(range(len(BODIES))),
    body=ANY_JSON | st.dictionaries(st.sampled_from(NAMES), ANY_JSON, max_size=5),
    complete=st.booleans(),
)
def test_no_json_brings_a_500(store: Store, place: int, body: Any, complete: bool) -> None:
    method, path, enough, _ = BODIES[place]
    sent = {**enough, **body} if complete and isinstance(body, dict) else body
    raw = json.dumps(sent).encode("utf-8", "surrogatepass")
    response = store.api.raw(method, store.at(path), raw)
    assert response.status_code < 500, response.content
    if response.status_code >= 400:
        require_envelope(response)


@QUIET
@for_any(
    path=st.sampled_from([path for method, path in ADDRESSES if method == "GET"]),
    asked=st.dictionaries(
        st.sampled_from(
            "limit cursor q state tags workspace kind at depth types query sort start trace".split()
        )
        | st.text(max_size=5),
        st.text(max_size=20),
        max_size=3,
    ),
)
def test_no_query_string_brings_a_500(store: Store, path: str, asked: dict[str, str]) -> None:
    clean = {k.encode("utf-8", "replace"): v.encode("utf-8", "replace") for k, v in asked.items()}
    response = store.api.client.get(
        store.at(path).partition("?")[0], clean, headers={"Authorization": f"Bearer {store.api.secret}"}
    )
    assert response.status_code < 500, response.content
    if response.status_code >= 400:
        require_envelope(response)
