"""A key of workspace red sees nothing of workspace blue: not a memory, count, id, record or cursor."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from django.utils import timezone

from recall.models import ApiKey

Api = Any

MEM, LNK, EVT, RCL = (f"{prefix}_00000000000000000000000000" for prefix in ("mem", "lnk", "evt", "rcl"))
SECRET = "zanzibar"  # a word that only blue's memories hold


@dataclass(frozen=True)
class Town:
    """Three keys, and in each workspace a memory that evolved into another."""

    everyone: Api
    red: Api
    blue: Api
    ids: dict[str, dict[str, str]]


def furnished(api: Api, workspace: str, words: str) -> dict[str, str]:
    old = api.stored(f"the old gate {words}", workspace=workspace, tags=[f"tag-{words}"], external_id="gate")
    new = api.stored(f"the new gate {words}", workspace=workspace, tags=[f"tag-{words}"])
    link = api.linked(old["id"], new["id"], "EVOLVED_INTO", reason=f"because of {words}")
    _, history = api.get(f"/v1/memories/{old['id']}/history")
    recall = api.recalled("gate", workspace=workspace)["recall_id"]
    return {
        "memory": old["id"],
        "other": new["id"],
        "link": link["id"],
        "event": history["results"][0]["id"],
        "recall": recall,
    }


@pytest.fixture
def town(api: Api, api_for: Callable[..., Api]) -> Town:
    red, blue = api_for(workspace="red"), api_for(workspace="blue")
    ids = {
        "": furnished(api, "", "global"),
        "red": furnished(red, "red", "red"),
        "blue": furnished(blue, "blue", SECRET),
    }
    return Town(api, red, blue, ids)


def nothing_of_blue(town: Town, shown: Any) -> None:
    told = json.dumps(shown)
    assert SECRET not in told
    assert "blue" not in told
    for id_ in town.ids["blue"].values():
        assert id_ not in told


# ------------------------------------------------------------------------------------------------- foreign ids

BY_ID: list[tuple[str, str, str, Any]] = [
    ("GET", "/v1/memories/{memory}", MEM, None),
    ("GET", "/v1/memories/{memory}?at=2020-01-01", MEM, None),
    ("PATCH", "/v1/memories/{memory}", MEM, {"category": "a"}),
    ("PATCH", "/v1/memories/{memory}", MEM, {"external_id": "gate"}),
    ("DELETE", "/v1/memories/{memory}", MEM, None),
    ("POST", "/v1/memories/{memory}/verify", MEM, {"reason": "a"}),
    ("POST", "/v1/memories/{memory}/erase", MEM, {"reason": "a"}),
    ("POST", "/v1/memories/{memory}/supersede", MEM, {"text": "a"}),
    ("POST", "/v1/memories/{memory}/supersede", MEM, {"by": MEM}),
    ("GET", "/v1/memories/{memory}/history", MEM, None),
    ("GET", "/v1/memories/{memory}/related?depth=3", MEM, None),
    ("GET", "/v1/links?memory={memory}", MEM, None),
    ("DELETE", "/v1/links/{link}", LNK, None),
    ("GET", "/v1/recalls/{recall}", RCL, None),
    ("GET", "/v1/events/{event}", EVT, None),
    ("POST", "/v1/events/{event}/erase", EVT, {"reason": "a"}),
]


@pytest.mark.parametrize(
    ("method", "path", "unknown", "body"), BY_ID, ids=[f"{m} {p}" for m, p, _, _ in BY_ID]
)
def test_a_foreign_id_is_answered_like_an_unknown_one(
    town: Town, method: str, path: str, unknown: str, body: Any
) -> None:
    ids = town.ids["blue"]
    foreign = ids[re.findall(r"{(\w+)}", path)[0]]
    for headers in ({}, {"If-Match": '"99"'}):
        of_foreign = town.red.raw(method, path.format(**ids), body, **headers)
        of_unknown = town.red.raw(method, re.sub(r"{\w+}", unknown, path), body, **headers)
        assert (of_foreign.status_code, of_unknown.status_code) == (404, 404)
        assert of_foreign.content.replace(foreign.encode(), unknown.encode()) == of_unknown.content
        assert {*of_foreign.headers} == {*of_unknown.headers}


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/v1/links", {"from": "{blue}", "to": "{red}", "type": "EVOLVED_INTO"}, "from"),
        ("/v1/links", {"from": "{red}", "to": "{blue}", "type": "EVOLVED_INTO"}, "to"),
        ("/v1/links", {"from": "{blue}", "to": "{blue2}", "type": "EVOLVED_INTO"}, "from"),
        ("/v1/memories/{red}/supersede", {"by": "{blue}"}, "by"),
    ],
)
def test_a_foreign_id_inside_a_body_is_answered_like_an_unknown_one(
    town: Town, path: str, body: dict[str, str], field: str
) -> None:
    def sent(**names: str) -> Any:
        filled = {name: value.format(**names) for name, value in body.items()}
        return town.red.raw("POST", path.format(**names), filled)

    red, blue = town.ids["red"]["memory"], town.ids["blue"]["memory"]
    of_foreign = sent(red=red, blue=blue, blue2=town.ids["blue"]["other"])
    of_unknown = sent(red=red, blue=MEM, blue2=town.ids["blue"]["other"])
    assert (of_foreign.status_code, of_unknown.status_code) == (422, 422)
    assert json.loads(of_foreign.content)["error"]["field"] == field
    assert of_foreign.content.replace(blue.encode(), MEM.encode()) == of_unknown.content


def test_a_foreign_workspace_is_forbidden_whether_it_exists_or_not(town: Town) -> None:
    for workspace in ("blue", "nowhere"):
        asked: list[tuple[int, Any]] = [
            town.red.get(path, workspace=workspace)
            for path in ("/v1/memories", "/v1/recalls", "/v1/events", "/v1/quality")
        ]
        asked += [
            town.red.get("/v1/recall", query="gate", workspace=workspace),
            town.red.post("/v1/recall", {"query": "gate", "workspace": workspace}),
            town.red.post("/v1/memories", {"text": "a", "workspace": workspace}),
            town.red.post(
                f"/v1/memories/{town.ids['red']['memory']}/supersede", {"text": "a", "workspace": workspace}
            ),
        ]
        for status, told in asked:
            assert (status, told["error"]["field"]) == (403, "workspace"), told
            assert told == asked[0][1] or "read-only" not in told["error"]["message"]
        _, bulk = town.red.post("/v1/memories/bulk", {"memories": [{"text": "a", "workspace": workspace}]})
        assert (bulk["created"], bulk["failed"][0]["error"]["field"]) == (0, "workspace")
    status, _ = town.red.call("PATCH", f"/v1/memories/{town.ids['red']['memory']}", {"workspace": "blue"})
    assert status == 400


def test_an_external_id_of_another_workspace_cannot_be_probed(town: Town) -> None:
    status, memory = town.red.post("/v1/memories", {"text": "probing", "external_id": "only-blue"})
    assert status == 201
    town.blue.stored("mine", external_id="only-blue-2")
    status, _ = town.red.call("PATCH", f"/v1/memories/{memory['id']}", {"external_id": "only-blue-2"})
    assert status == 200
    _, told = town.red.post(
        "/v1/memories/bulk", {"memories": [{"text": "b", "external_id": "only-blue-3"}, {"text": "c"}]}
    )
    assert (told["created"], told["failed"]) == (2, [])


# ------------------------------------------------------------------------------------------------------- lists

LISTS = [
    "/v1/memories", "/v1/memories?state=all", f"/v1/memories?q={SECRET}", f"/v1/memories?tags=tag-{SECRET}",
    "/v1/memories?state=all&validity_annotate=true", "/v1/memories?tags_match=exact", "/v1/recalls",
    "/v1/recalls?q=gate", "/v1/recalls?surface=api", "/v1/recalls?actor=key of blue", "/v1/events",
    "/v1/events?kind=link_created", "/v1/quality",
]  # fmt: skip


def everything(api: Api, path: str, limit: int = 2) -> list[Any]:
    """A list read to its end through its own links."""
    if path.startswith("/v1/quality"):
        return [api.get(path)[1]]
    pages = []
    following: str | None = f"{path}{'&' if '?' in path else '?'}limit={limit}"
    while following:
        status, page = api.call("GET", following)
        assert status == 200, page
        pages.append(page)
        following = page["next"]
    return pages


def cycle(api: Api, workspace: str, words: str) -> None:
    first = api.stored(f"one {words}", workspace=workspace)["id"]
    second = api.stored(f"two {words}", workspace=workspace)["id"]
    api.linked(first, second, "EVOLVED_INTO")
    api.linked(second, first, "EVOLVED_INTO")


def test_no_list_names_or_counts_a_foreign_row(town: Town) -> None:
    cycle(town.blue, "blue", SECRET)
    for path in LISTS:
        for page in everything(town.red, path):
            nothing_of_blue(town, page)
    assert town.red.get("/v1/quality")[1]["results"] == []
    blue = {"memory": town.ids["blue"]["memory"]}
    for path in ("/v1/events?memory={memory}", f"/v1/events?memory={MEM}"):
        assert town.red.get(path.format(**blue))[1] == {"results": [], "next": None, "previous": None}


def test_what_another_workspace_writes_moves_no_list_and_no_cursor(town: Town) -> None:
    """Numbers of rows are shared by all workspaces; nothing that a bound key is shown may be made of them."""

    def seen() -> list[Any]:
        return [everything(town.red, path) for path in LISTS if "annotate" not in path]  # that one ages

    before = seen()
    for number in range(20):
        town.blue.stored(f"gate {number} {SECRET}")
    town.blue.recalled("gate")
    cycle(town.blue, "blue", SECRET)
    assert seen() == before


def test_a_bound_key_learns_no_number_that_counts_everybodys_rows(town: Town) -> None:
    _, one = town.red.get(f"/v1/events/{town.ids['red']['event']}")
    _, listed = town.red.get("/v1/events", limit=1)
    _, history = town.red.get(f"/v1/memories/{town.ids['red']['memory']}/history")
    for event in (one, *listed["results"], *history["results"]):
        assert {"seq", "prev_hash"} & set(event) == set()
        assert event["hash"]
    _, record = town.red.get(f"/v1/recalls/{town.ids['red']['recall']}")
    assert record["ledger_head"] is None
    _, whole = town.everyone.get(f"/v1/recalls/{town.ids['red']['recall']}")
    assert set(whole["ledger_head"]) == {"seq", "hash"}
    assert len(re.findall(r"cursor=([^&]+)", listed["next"])[0]) == 22, "a cursor is sealed"


def test_a_cursor_of_another_key_opens_nothing(town: Town) -> None:
    for path in ("/v1/memories?state=all", "/v1/events", "/v1/recalls"):
        town.blue.recalled("gate")
        town.blue.recalled("gate")
        _, page = town.blue.call("GET", f"{path}{'&' if '?' in path else '?'}limit=1")
        status, shown = town.red.call("GET", page["next"])
        assert status == 200
        nothing_of_blue(town, shown)


# ------------------------------------------------------------------------------------------------------ records


def test_records_of_another_workspace_are_not_there(town: Town) -> None:
    of_everything = town.everyone.recalled("gate")["recall_id"]
    of_blue = town.everyone.recalled("gate", workspace="blue")["recall_id"]
    of_global_by_blue = town.blue.recalled(f"gate {SECRET}", workspace="")["recall_id"]
    of_global_by_all = town.everyone.recalled("gate", workspace="")["recall_id"]
    of_red_by_all = town.everyone.recalled("gate", workspace="red")["recall_id"]
    mine = town.red.recalled("gate")["recall_id"]

    listed = {row["id"] for page in everything(town.red, "/v1/recalls") for row in page["results"]}
    assert {mine, of_global_by_all, of_red_by_all} <= listed
    assert not {of_everything, of_blue, of_global_by_blue} & listed
    for hidden in (of_everything, of_blue, of_global_by_blue):
        status, told = town.red.get(f"/v1/recalls/{hidden}")
        assert (status, told["error"]["message"]) == (404, f"no recall {hidden}")
    for shown in (mine, of_global_by_all, of_red_by_all):
        assert town.red.get(f"/v1/recalls/{shown}")[0] == 200


def test_a_record_of_a_bound_key_belongs_to_its_workspace(town: Town) -> None:
    for workspace in (None, "", "red"):
        recall = town.red.recalled("gate", workspace=workspace)["recall_id"]
        assert town.red.get(f"/v1/recalls/{recall}")[1]["workspace"] == "red"
        assert town.blue.get(f"/v1/recalls/{recall}")[0] == 404


# ------------------------------------------------------------------------------------------------------ recalls

QUESTIONS: list[dict[str, Any]] = [
    {"query": "gate"},
    {"query": "gate", "profile": "validity", "trace": True, "state_debug": True},
    {"query": "gate", "current_only": False, "profile": "validity"},
    {"query": f"gate {SECRET}", "state_debug": True, "trace": True},
    {"query": SECRET, "current_only": False},
    {"query": "gate old new", "workspace": "red", "fusion": "rrf", "trace": True},
    {"query": "gate", "workspace": ""},
    {"query": "", "tags": ["tag-red", f"tag-{SECRET}"], "current_only": False},
    {"query": "", "tags_match": "exact"},
    {"query": "the", "sort": "time_desc"},
    {"query": "gate", "limit": 200, "max_tokens": 20},
]


def answers(api: Api, anchor: int) -> list[bytes]:
    """Every answer as bytes, its id and its timings aside."""
    given = []
    for question in QUESTIONS:
        answer = api.recalled(**{"query_time_unix_ms": anchor, **question})
        del answer["recall_id"], answer["timings_ms"]
        for strategy in answer.get("fused_trace", {"strategies": {}})["strategies"].values():
            del strategy["time_ms"]
        given.append(json.dumps(answer, sort_keys=True).encode())
    return given


def test_what_another_workspace_writes_changes_no_byte_of_an_answer(town: Town) -> None:
    for number in range(30):
        town.red.stored(f"gate of red {'and gate ' * (number % 4)}{number}", tags=["tag-red"])
    anchor = int(timezone.now().timestamp() * 1000) + 1_000
    before = answers(town.red, anchor)
    rows = [{"text": f"gate gate old new the {SECRET} {n}", "tags": ["tag-red"]} for n in range(1_000)]
    assert town.blue.post("/v1/memories/bulk", {"memories": rows})[1]["created"] == 1_000
    for one in answers(town.red, anchor):
        assert SECRET.encode() not in one.replace(f"gate {SECRET}".encode(), b"").replace(
            f'"query": "{SECRET}"'.encode(), b""
        )
    assert answers(town.red, anchor) == before


def test_without_a_workspace_a_bound_key_covers_its_own_and_the_global_one(town: Town) -> None:
    assert set(town.red.texts("gate")) == {"the new gate red", "the new gate global"}
    assert set(town.red.texts("gate", workspace="red")) == {"the new gate red", "the new gate global"}
    assert town.red.texts("gate", workspace="") == ["the new gate global"]
    assert len(town.everyone.texts("gate")) == 3
    assert town.red.texts(SECRET) == []
    answer = town.red.recalled("gate", state_debug=True, current_only=True)
    nothing_of_blue(town, answer)
    _, record = town.red.get(f"/v1/recalls/{answer['recall_id']}")
    nothing_of_blue(town, record)
    assert record["scope"] == ["", "red"]


def test_global_rows_are_readable_and_not_writable(town: Town) -> None:
    ids = town.ids[""]
    memory = ids["memory"]
    before = town.everyone.get(f"/v1/memories/{memory}")[1]
    for path in ("{memory}", "{memory}/history", "{memory}/related"):
        assert town.red.get(f"/v1/memories/{path.format(**ids)}")[0] == 200
    assert town.red.get("/v1/links", memory=memory)[1]["results"][0]["id"] == ids["link"]
    assert town.red.get(f"/v1/events/{ids['event']}")[0] == 200
    mine = town.ids["red"]["memory"]
    refused = [
        town.red.post("/v1/memories", {"text": "a", "workspace": ""}),
        town.red.call("PATCH", f"/v1/memories/{memory}", {"category": "a"}),
        town.red.call("DELETE", f"/v1/memories/{memory}"),
        town.red.post(f"/v1/memories/{memory}/verify", {"reason": "a"}),
        town.red.post(f"/v1/memories/{memory}/erase", {"reason": "a"}),
        town.red.post(f"/v1/memories/{memory}/supersede", {"text": "a"}),
        town.red.post(f"/v1/memories/{memory}/supersede", {"by": mine}),
        town.red.post("/v1/links", {"from": mine, "to": memory, "type": "RELATES_TO"}),
        town.red.post("/v1/links", {"from": memory, "to": mine, "type": "RELATES_TO"}),
        town.red.post(f"/v1/memories/{mine}/supersede", {"by": memory}),
        town.red.call("DELETE", f"/v1/links/{ids['link']}"),
    ]
    assert {status for status, _ in refused} == {403}, refused
    assert town.everyone.get(f"/v1/memories/{memory}")[1] == before


def test_related_and_links_stay_inside_the_workspace(town: Town) -> None:
    for path in ("related?depth=3", "history"):
        _, told = town.red.get(f"/v1/memories/{town.ids['red']['memory']}/{path}")
        assert told["results"]
        nothing_of_blue(town, told)
    status, told = town.everyone.post(
        "/v1/links",
        {"from": town.ids["red"]["memory"], "to": town.ids["blue"]["memory"], "type": "RELATES_TO"},
    )
    assert (status, told["error"]["field"]) == (422, "to")


# ---------------------------------------------------------------------------------------------------- the keys


def test_a_key_without_the_scope_is_refused_everywhere(town: Town, api_for: Callable[..., Api]) -> None:
    reader, writer = api_for("read", workspace="red"), api_for("write", workspace="red")
    scopeless = api_for("read", workspace="red")
    ApiKey.objects.filter(id=scopeless.key_id).update(scopes="")
    memory = town.ids["red"]["memory"]
    reads = [
        "/v1/memories",
        f"/v1/memories/{memory}",
        "/v1/recall?query=gate",
        "/v1/recalls",
        "/v1/events",
        "/v1/quality",
    ]
    writes: list[tuple[str, str, Any]] = [
        ("POST", "/v1/memories", {"text": "a"}),
        ("POST", "/v1/memories/bulk", {"memories": []}),
        ("PATCH", f"/v1/memories/{memory}", {"category": "a"}),
        ("DELETE", f"/v1/memories/{memory}", None),
        ("POST", f"/v1/memories/{memory}/verify", {}),
        ("POST", f"/v1/memories/{memory}/supersede", {"text": "a"}),
        ("POST", "/v1/links", {}),
        ("DELETE", f"/v1/links/{town.ids['red']['link']}", None),
        ("POST", f"/v1/memories/{memory}/erase", {"reason": "a"}),
    ]
    for path in reads:
        assert reader.call("GET", path)[0] == 200
        assert writer.call("GET", path)[0] == scopeless.call("GET", path)[0] == 403
    assert writer.post("/v1/recall", {"query": "gate"})[0] == 403
    for method, path, body in writes:
        assert reader.call(method, path, body)[0] == scopeless.call(method, path, body)[0] == 403, path
    assert writer.post(f"/v1/memories/{memory}/erase", {"reason": "a"})[0] == 403
    assert writer.post(f"/v1/memories/{memory}/verify", {"reason": "a"})[0] == 403
    assert writer.post("/v1/memories", {"text": "a", "provenance_class": "verified"})[0] == 403


def test_unknown_revoked_and_expired_keys_are_answered_alike(town: Town, api_for: Callable[..., Api]) -> None:
    revoked, expired, unknown = api_for(), api_for(), api_for()
    ApiKey.objects.filter(id=revoked.key_id).update(revoked_at=1)
    ApiKey.objects.filter(id=expired.key_id).update(expires_at=1)
    ApiKey.objects.filter(id=unknown.key_id).delete()
    answers = [api.raw("GET", "/v1/memories") for api in (revoked, expired, unknown)]
    assert {answer.status_code for answer in answers} == {401}
    assert len({answer.content for answer in answers}) == 1
    for api in (revoked, expired, unknown):
        assert api.post("/v1/recall", {"query": "gate"})[0] == 401
        assert api.post("/v1/memories", {"text": "a"})[0] == 401


def test_neither_a_key_nor_its_hash_is_in_any_answer(town: Town) -> None:
    shown = json.dumps([everything(town.everyone, path) for path in LISTS])
    for api in (town.everyone, town.red, town.blue):
        assert api.secret not in shown
        assert api.secret[:10] not in shown
        assert ApiKey.hashed(api.secret) not in shown
