"""Memories and links over the API: write, read back, change, supersede, undo, list."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

Api = Any
UNKNOWN = "mem_00000000000000000000000000"


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def kinds(api: Api, memory_id: str) -> list[str]:
    status, told = api.get(f"/v1/memories/{memory_id}/history")
    assert status == 200
    return [event["kind"] for event in told["results"]]


# -------------------------------------------------------------------------------------------------- one memory

FULL: dict[str, Any] = {
    "text": "The fence is green 🦊",
    "workspace": "red",
    "tags": ["b", "a"],
    "category": "plan",
    "provenance_class": "corroborated",
    "status": "active",
    "archived": False,
    "created_at": "2026-01-02T03:04:05.678Z",
    "t_valid": "2026-01-01",
    "t_invalid": "2099-01-01T00:00:00+02:00",
    "expires_at": "2098-01-01T00:00:00Z",
    "external_id": "x/1",
    "metadata": {"a": [1, 2.5, None, True, {"b": "ü"}]},
}


def test_a_memory_comes_back_as_it_was_sent(api: Api, event_in: Callable[..., str]) -> None:
    sent = {**FULL, "source_event_id": event_in("red")}
    status, made = api.post("/v1/memories", {**sent, "reason": "because"})
    assert status == 201
    shown = {name: made[name] for name in sent}
    assert shown == {
        **sent,
        "tags": ["a", "b"],
        "t_valid": "2026-01-01T00:00:00Z",
        "t_invalid": "2098-12-31T22:00:00Z",
    }
    assert made["created_at_unix_ms"] == 1_767_323_045_678
    assert (made["version"], made["verified_at"], made["state"]) == (1, None, {"current": True})
    assert made["id"].startswith("mem_")
    assert api.get(f"/v1/memories/{made['id']}") == (200, made)
    event = api.get(f"/v1/memories/{made['id']}/history")[1]["results"][0]
    assert (event["kind"], event["reason"], event["actor"]["id"]) == ("memory_created", "because", api.key_id)


def test_only_text_is_required_and_the_defaults_are_told(api: Api) -> None:
    at = now_ms()
    made = api.stored("a fence")
    assert at <= made["created_at_unix_ms"] <= now_ms()
    assert (made["workspace"], made["tags"], made["metadata"], made["category"]) == ("", [], {}, "")
    assert (made["provenance_class"], made["status"], made["archived"]) == ("candidate", "active", False)
    assert {
        made[name] for name in ("t_valid", "t_invalid", "expires_at", "external_id", "source_event_id")
    } == {None}


def test_times_are_taken_as_milliseconds_too(api: Api) -> None:
    made = api.stored("a", created_at_unix_ms=1_000, t_valid_unix_ms=0, expires_at_unix_ms=4_102_444_800_000)
    assert made["created_at"] == "1970-01-01T00:00:01Z"
    assert made["t_valid"] == "1970-01-01T00:00:00Z"
    assert made["expires_at"] == "2100-01-01T00:00:00Z"
    same = api.stored("a", t_valid="2026-01-01", t_valid_unix_ms=1_767_225_600_000)
    assert same["t_valid"] == "2026-01-01T00:00:00Z"


def test_the_answer_carries_the_version_as_etag_and_if_match_refuses_a_lost_update(api: Api) -> None:
    memory = api.stored("one")
    path = f"/v1/memories/{memory['id']}"
    assert api.raw("GET", path).headers["ETag"] == '"1"'
    patched = api.raw("PATCH", path, {"text": "two"}, **{"If-Match": '"1"'})
    assert (patched.status_code, patched.headers["ETag"]) == (200, '"2"')
    for method, body, address in (
        ("PATCH", {"text": "three"}, path),
        ("DELETE", None, path),
        ("POST", {"text": "four"}, f"{path}/supersede"),
        ("POST", {"reason": "five"}, f"{path}/erase"),
    ):
        status, told = api.call(method, address, body, **{"If-Match": '"1"'})
        assert (status, told["error"]["code"], told["error"]["field"]) == (
            412,
            "version_mismatch",
            "If-Match",
        )
    assert api.get(path)[1]["text"] == "two"
    assert api.call("PATCH", path, {"text": "six"}, **{"If-Match": "*"})[0] == 200
    assert api.call("PATCH", path, {"text": "seven"})[1]["version"] == 4
    assert api.call("DELETE", path, **{"If-Match": 'W/"4"'})[0] == 200
    assert kinds(api, memory["id"]) == [
        "memory_created",
        *["memory_revised"] * 3,
        "memory_archived",
    ]


def test_patch_changes_what_is_named_and_null_clears(api: Api, event_in: Callable[..., str]) -> None:
    memory = api.stored(**{**FULL, "archived": False, "source_event_id": event_in("red")})
    path = f"/v1/memories/{memory['id']}"
    status, changed = api.call("PATCH", path, {"category": "note", "tags": ["c"], "reason": "tidy"})
    assert (status, changed["category"], changed["tags"], changed["version"]) == (200, "note", ["c"], 2)
    assert changed["text"] == FULL["text"]
    for name, empty in (
        ("t_valid", None), ("t_invalid", None), ("expires_at", None), ("external_id", None), ("tags", []),
        ("source_event_id", None), ("metadata", {}), ("category", ""), ("provenance_class", "unknown"),
    ):  # fmt: skip
        status, changed = api.call("PATCH", path, {name: None})
        assert (status, changed[name]) == (200, empty), name
    for name in ("text", "status", "archived", "created_at"):
        status, told = api.call("PATCH", path, {name: None})
        assert (status, told["error"]["field"]) == (400, name)
    assert api.call("PATCH", path, {})[1]["version"] == changed["version"], "nothing named, nothing changed"


def test_what_changes_a_memory_reaches_recall_at_once(api: Api) -> None:
    memory = api.stored("a green fence", tags=["t"])
    path = f"/v1/memories/{memory['id']}"
    for change, found in (
        ({"t_invalid": "2026-01-01"}, False),
        ({"t_invalid": None}, True),
        ({"t_valid": "2099-01-01"}, False),
        ({"t_valid": None}, True),
        ({"archived": True}, False),
        ({"archived": False}, True),
        ({"status": "deprecated"}, False),
        ({"status": "active"}, True),
        ({"tags": []}, False),
        ({"tags": ["t", "u"]}, True),
        ({"text": "invoices are due on Friday"}, False),
        ({"text": "a fence again"}, True),
    ):
        assert api.call("PATCH", path, change)[0] == 200
        for mode in ("fused", "lexical", "dense", "hybrid"):
            assert bool(api.texts("fence", tags=["t"], mode=mode)) == found, (change, mode)
        assert bool(api.texts("", tags=["t"]) if "text" not in change else found) == found, change


def test_delete_archives_with_a_reason_and_patch_restores(api: Api) -> None:
    memory = api.stored("a fence")
    path = f"/v1/memories/{memory['id']}"
    status, gone = api.call("DELETE", f"{path}?reason=too%20old")
    assert (status, gone["archived"], gone["state"]) == (200, True, {"current": False, "reason": "archived"})
    assert api.call("DELETE", path)[1]["version"] == gone["version"], "archived already"
    status, back = api.call("PATCH", path, {"archived": False})
    assert (status, back["state"]) == (200, {"current": True})
    assert kinds(api, memory["id"]) == ["memory_created", "memory_archived", "memory_restored"]
    history = api.get(f"{path}/history")[1]["results"]
    assert (history[1]["reason"], history[1]["before"], history[1]["after"]) == (
        "too old", {"archived": False}, {"archived": True},
    )  # fmt: skip


def test_verifying_needs_admin_and_a_new_text_loses_it(api: Api, api_for: Callable[..., Api]) -> None:
    writer = api_for("read,write")
    memory = writer.stored("a fence")
    path = f"/v1/memories/{memory['id']}"
    assert writer.post(f"{path}/verify", {"reason": "sure"})[0] == 403
    for claimed in ("verified", "corroborated"):
        status, told = writer.post("/v1/memories", {"text": "a", "provenance_class": claimed})
        assert (status, told["error"]["field"]) == (403, "provenance_class")
        assert writer.call("PATCH", path, {"provenance_class": claimed})[0] == 403
        status, bulk = writer.post(
            "/v1/memories/bulk", {"memories": [{"text": "a", "provenance_class": claimed}]}
        )
        assert (status, bulk["created"]) == (207, 0)
    status, verified = api.post(f"{path}/verify", {"reason": "I saw it"})
    assert (status, verified["provenance_class"], verified["version"]) == (200, "verified", 2)
    assert verified["verified_at"] is not None
    changed = writer.call("PATCH", path, {"text": "another fence"})[1]
    assert (changed["provenance_class"], changed["verified_at"]) == ("candidate", None)


def test_erasing_needs_admin_and_a_reason_and_leaves_no_text(api: Api, api_for: Callable[..., Api]) -> None:
    memory = api.stored(
        "a zanzibar fence", tags=["zanzibar"], metadata={"a": "zanzibar"}, category="zanzibar"
    )
    path = f"/v1/memories/{memory['id']}"
    assert api_for("read,write").post(f"{path}/erase", {"reason": "a"})[0] == 403
    assert api.post(f"{path}/erase", {})[1]["error"]["field"] == "reason"
    status, erased = api.post(f"{path}/erase", {"reason": "asked for"})
    assert (status, erased["erased"], erased["text"]) == (200, True, "")
    for address in (path, f"{path}/history", "/v1/memories?state=all", "/v1/events"):
        assert b"zanzibar" not in api.raw("GET", address).content
    status, told = api.call("PATCH", path, {"text": "back"})
    assert (status, told["error"]["code"]) == (409, "erased")
    status, told = api.post(f"{path}/supersede", {"text": "the fence is red"})
    assert status == 201 or told["error"]["code"] == "erased"


# --------------------------------------------------------------------------------------------------- external ids


def test_the_same_external_id_with_the_same_values_is_the_same_memory(api: Api) -> None:
    made = api.stored("a fence", external_id="x", tags=["b", "a"], metadata={"n": 1})
    for same in (
        {"text": "a fence", "external_id": "x"},
        {"text": "a fence", "external_id": "x", "tags": ["a", "b", "a"]},
        {"text": "a fence", "external_id": "x", "metadata": {"n": 1}, "reason": "again"},
    ):
        status, again = api.post("/v1/memories", same)
        assert (status, again) == (200, made)
    for name, other in (("text", "a hedge"), ("tags", ["a"]), ("metadata", {"n": 2}), ("category", "c")):
        status, told = api.post("/v1/memories", {"text": "a fence", "external_id": "x", name: other})
        assert (status, told["error"]["code"], told["error"]["field"]) == (409, "external_id_conflict", name)
    assert api.post("/v1/memories", {"text": "a fence", "external_id": "x", "workspace": "red"})[0] == 201
    other = api.stored("b", external_id="y")
    status, told = api.call("PATCH", f"/v1/memories/{other['id']}", {"external_id": "x"})
    assert (status, told["error"]["field"]) == (409, "external_id")


def test_true_is_not_one(api: Api) -> None:
    made = api.stored("a fence", external_id="x", metadata={"n": 1})
    status, told = api.post("/v1/memories", {"text": "a fence", "external_id": "x", "metadata": {"n": True}})
    assert (status, told["error"]["field"]) == (409, "metadata")
    changed = api.call("PATCH", f"/v1/memories/{made['id']}", {"metadata": {"n": True}})[1]
    assert (changed["metadata"], changed["version"]) == ({"n": True}, 2)


def test_a_bulk_tells_created_unchanged_and_failed_with_their_places(api: Api) -> None:
    api.stored("known", external_id="known")
    rows: list[Any] = [
        {"text": "new"},
        {"text": "known", "external_id": "known"},
        {"text": "other", "external_id": "known"},
        {"text": ""},
        {"text": "twin", "external_id": "twin"},
        {"text": "twin", "external_id": "twin"},
        {"text": "b", "t_valid": "2026-02-01", "t_invalid": "2026-01-01"},
    ]
    status, told = api.post("/v1/memories/bulk", {"memories": rows})
    assert (status, told["created"], told["unchanged"]) == (207, 2, 2)
    assert [(f["index"], f["error"]["field"]) for f in told["failed"]] == [
        (2, "text"),
        (3, "text"),
        (6, "t_invalid"),
    ]
    assert [entry["index"] for entry in told["memories"]] == [0, 1, 4, 5]
    assert told["memories"][2]["id"] == told["memories"][3]["id"]
    assert api.post("/v1/memories/bulk", {"memories": []})[1]["created"] == 0


# ------------------------------------------------------------------------------------------- superseding and links


def test_superseding_with_a_text_makes_memory_link_and_events_in_one_step(api: Api) -> None:
    old = api.stored("the fence is green", tags=["t"], category="plan", workspace="red")
    path = f"/v1/memories/{old['id']}"
    status, told = api.post(f"{path}/supersede", {"text": "the fence is red", "reason": "painted"})
    new, link = told["memory"], told["link"]
    assert (status, new["tags"], new["category"], new["workspace"]) == (201, ["t"], "plan", "red")
    assert (link["from"], link["to"], link["type"]) == (old["id"], new["id"], "EVOLVED_INTO")
    assert api.texts("fence") == ["the fence is red"]
    assert api.get(path)[1]["state"] == {
        "current": False,
        "reason": "superseded",
        "replacement_id": new["id"],
    }
    assert kinds(api, old["id"]) == ["memory_created", "link_created"]
    assert kinds(api, new["id"]) == ["memory_created", "link_created"]

    assert api.call("DELETE", f"/v1/links/{link['id']}?reason=mistake")[0] == 204
    assert api.get(path)[1]["state"] == {"current": True}
    assert kinds(api, old["id"])[-1] == "link_removed"
    assert api.call("DELETE", f"/v1/links/{link['id']}")[0] == 404
    assert sorted(api.texts("fence")) == ["the fence is green", "the fence is red"]


def test_superseding_by_a_stored_memory(api: Api) -> None:
    old, new = api.stored("old"), api.stored("new")
    path = f"/v1/memories/{old['id']}/supersede"
    status, told = api.post(path, {"by": new["id"], "relation": "INVALIDATED_BY", "workspace": None})
    assert (status, told["link"]["type"], told["memory"]["id"]) == (201, "INVALIDATED_BY", new["id"])
    assert api.post(path, {"by": new["id"], "relation": "INVALIDATED_BY"})[0] == 409
    before = api.get("/v1/memories", state="all")[1]
    assert api.post(path, {"text": "a", "workspace": "elsewhere"})[0] == 422
    assert api.post(path, {"text": "a", "created_at": "9999-01-01"})[0] == 400
    assert api.get("/v1/memories", state="all")[1] == before, "refused whole"


def test_links_of_a_memory_are_listed_both_ways(api: Api) -> None:
    one, two, three = (api.stored(name)["id"] for name in ("one", "two", "three"))
    first = api.linked(one, two, "RELATES_TO", strength=0.5, created_at="2026-01-01")
    second = api.linked(three, one, "CONTRADICTS", created_at_unix_ms=1_767_312_000_000)
    assert (first["strength"], second["created_at"]) == (0.5, "2026-01-02T00:00:00Z")
    assert api.get("/v1/links", memory=one)[1]["results"] == [first, second]
    assert api.get("/v1/links", memory=two)[1]["results"] == [first]
    assert api.get("/v1/links")[1]["error"]["field"] == "memory"
    assert api.texts("one", mode="lexical") == ["one"], "a contradiction suppresses nothing"
    assert set(api.texts("one")) == {"one", "two", "three"}, "links bring in what they join"


def test_related_memories_come_by_steps_and_current_ones_only(api: Api) -> None:
    ids = [api.stored(f"step {n}")["id"] for n in range(5)]
    for before, after in pairwise(ids):
        api.linked(before, after, "RELATES_TO")
    old = api.stored("old")["id"]
    api.linked(ids[0], old, "LEADS_TO")
    api.linked(old, ids[1], "EVOLVED_INTO")
    path = f"/v1/memories/{ids[0]}/related"

    def reached(**asked: Any) -> dict[str, int]:
        status, told = api.get(path, **asked)
        assert status == 200
        return {hit["memory"]["id"]: hit["depth"] for hit in told["results"]}

    assert reached() == {ids[1]: 1}
    assert reached(depth=3) == {ids[1]: 1, ids[2]: 2, ids[3]: 3}
    assert reached(depth=3, types="LEADS_TO") == {}
    assert reached(depth=2, types="RELATES_TO,LEADS_TO") == {ids[1]: 1, ids[2]: 2}


def test_a_memory_is_shown_with_its_state_at_an_instant(api: Api) -> None:
    old = api.stored("old", created_at="2026-01-10", t_valid="2026-01-01", t_invalid="2026-06-01")["id"]
    new = api.stored("new", created_at="2026-01-11")["id"]
    api.linked(old, new, "EVOLVED_INTO", created_at="2026-03-01")
    for at, state in (
        ("2025-12-01", {"current": False, "reason": "not_yet_valid"}),
        ("2026-01-05", {"current": False, "reason": "not_yet_valid"}),
        ("2026-02-01", {"current": True}),
        ("2026-02-28T23:59:59.999Z", {"current": True}),
        ("2026-03-01T00:00:00Z", {"current": False, "reason": "superseded", "replacement_id": new}),
        ("2026-06-01", {"current": False, "reason": "expired", "replacement_id": new}),
    ):
        status, shown = api.get(f"/v1/memories/{old}", at=at)
        assert (status, shown["state"]) == (200, state), at


# -------------------------------------------------------------------------------------------------------- lists


def read_on(api: Api, page: dict[str, Any], way: str) -> list[dict[str, Any]]:
    pages = []
    while page[way]:
        status, page = api.call("GET", page[way])
        assert status == 200
        pages.append(page)
    return pages


def texts(pages: list[dict[str, Any]]) -> list[str]:
    return [memory["text"] for page in pages for memory in page["results"]]


@pytest.mark.parametrize("state", ["current", "all"])
def test_a_list_is_paged_both_ways_while_rows_arrive_and_leave(api: Api, state: str) -> None:
    made = [api.stored(f"m{n}") for n in range(10)]
    _, first = api.get("/v1/memories", limit=3, state=state)
    assert (texts([first]), first["previous"]) == (["m9", "m8", "m7"], None)
    api.stored("late")
    if state == "current":
        api.call("DELETE", f"/v1/memories/{made[5]['id']}")
    rest = read_on(api, first, "next")
    gone = ["m5"] if state == "current" else []
    assert texts([first, *rest]) == [f"m{n}" for n in range(9, -1, -1) if f"m{n}" not in gone]
    back = read_on(api, rest[-1], "previous")
    assert texts([*back[::-1], rest[-1]]) == [
        name for name in ["late", *(f"m{n}" for n in range(9, -1, -1))] if name not in gone
    ]


def test_the_current_list_is_never_starved(api: Api) -> None:
    api.stored("kept 0")
    rows = [{"text": f"gone {n}", "archived": True} for n in range(300)]
    api.post("/v1/memories/bulk", {"memories": rows})
    ids = [api.stored(f"old {n}")["id"] for n in range(30)]
    head = api.stored("kept 1")["id"]
    for old in ids:
        api.linked(old, head, "EVOLVED_INTO")
    _, page = api.get("/v1/memories", limit=2)
    assert texts([page]) == ["kept 1", "kept 0"]
    assert page["next"] is None


def test_a_list_is_narrowed_by_each_filter(api: Api) -> None:
    api.stored("a green fence", category="plan", tags=["t"], workspace="red", created_at="2026-01-01")
    api.stored("a red hedge", provenance_class="verified", created_at="2026-01-02")
    api.stored("a 100% wall", status="deprecated", created_at="2026-01-03")
    api.stored("gone", archived=True, created_at="2026-01-04")
    for asked, found in (
        ({}, ["a red hedge", "a green fence"]),
        ({"state": "all"}, ["gone", "a 100% wall", "a red hedge", "a green fence"]),
        ({"category": "plan"}, ["a green fence"]),
        ({"tags": "t"}, ["a green fence"]),
        ({"workspace": "red"}, ["a red hedge", "a green fence"]),
        ({"workspace": ""}, ["a red hedge"]),
        ({"provenance_class": "verified"}, ["a red hedge"]),
        ({"status": "deprecated", "state": "all"}, ["a 100% wall"]),
        ({"archived": "true", "state": "all"}, ["gone"]),
        ({"archived": "false", "state": "all"}, ["a 100% wall", "a red hedge", "a green fence"]),
        ({"q": "HEDGE"}, ["a red hedge"]),
        ({"q": "100%", "state": "all"}, ["a 100% wall"]),
        ({"q": "_", "state": "all"}, []),
        ({"created_after": "2026-01-02", "state": "all"}, ["gone", "a 100% wall", "a red hedge"]),
        ({"created_before": "2026-01-02", "state": "all"}, ["a green fence"]),
    ):
        status, told = api.get("/v1/memories", **asked)
        assert (status, texts([told])) == (200, found), asked


def test_a_list_grades_each_row_when_asked(api: Api) -> None:
    api.stored("old", created_at="2020-01-01", workspace="red")
    api.stored("new")
    _, told = api.get("/v1/memories", validity_annotate="true", workspace="red")
    graded = {row["text"]: (row["validity"]["grade"], row.get("context_invalid")) for row in told["results"]}
    assert graded == {"old": ("context_invalid", True), "new": ("valid", None)}
    scopes = {row["text"]: row["validity"]["scope_match"] for row in told["results"]}
    assert scopes == {"old": "exact", "new": "global"}
    _, plain = api.get("/v1/memories")
    assert all("validity" not in row for row in plain["results"])


def test_the_ledger_lists_what_happened_newest_first(api: Api) -> None:
    one, two = api.stored("one")["id"], api.stored("two")["id"]
    api.linked(one, two, "EVOLVED_INTO")
    api.call("PATCH", f"/v1/memories/{one}", {"category": "c", "reason": "tidy"})
    _, told = api.get("/v1/events")
    assert [event["kind"] for event in told["results"]] == [
        "memory_revised", "link_created", "memory_created", "memory_created",
    ]  # fmt: skip
    assert [event["seq"] for event in told["results"]] == [4, 3, 2, 1]
    newest = told["results"][0]
    assert (newest["before"], newest["after"], newest["reason"]) == (
        {"category": ""},
        {"category": "c"},
        "tidy",
    )
    status, whole = api.get(f"/v1/events/{newest['id']}")
    assert (status, {name: whole[name] for name in newest}) == (200, newest)
    _, of_one = api.get("/v1/events", memory=one, kind="memory_created")
    assert [event["memory_id"] for event in of_one["results"]] == [one]
    pages = [api.get("/v1/events", limit=3)[1]]
    pages += read_on(api, pages[0], "next")
    assert [event["seq"] for page in pages for event in page["results"]] == [4, 3, 2, 1]


def test_an_unknown_id_is_not_found_and_says_what_ids_look_like(api: Api) -> None:
    for path in ("", "/history", "/related"):
        status, told = api.get(f"/v1/memories/{UNKNOWN}{path}")
        assert (status, told["error"]["hint"]) == (404, "ids begin with mem_")
