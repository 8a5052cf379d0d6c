"""The conformance cases of state and validity, through the public API: stored, linked, recalled and compared."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from django.test import override_settings

from ledger.domain.instants import parse_instant

ENGINES = ("resident", "sqlite")
CASES = Path(__file__).parent.parent / "conformance"
STATE = json.loads((CASES / "state.json").read_text())["cases"]
VALIDITY = json.loads((CASES / "validity.json").read_text())["cases"]
# Recall never serves another workspace's memory, so this one is held against the pure function alone.
SERVABLE = [
    case
    for case in VALIDITY
    if case["query_workspace"] in (None, case["entity_workspace"]) or not case["entity_workspace"]
]


def names(cases: list[dict[str, Any]]) -> list[str]:
    return [case["name"] for case in cases]


class Stage:
    """A case set up in the store: its own short ids stand for the real ones."""

    def __init__(self, api: Any, case: dict[str, Any]) -> None:
        self.api, self.case = api, case
        self.real: dict[str, str] = {}
        for memory in case["memories"]:
            fields = {name: value for name, value in memory.items() if name != "id"}
            self.real[memory["id"]] = api.stored(**fields)["id"]
        for link in case["links"]:
            api.linked(
                self.real[link["from"]], self.real[link["to"]], link["type"], created_at=link["created_at"]
            )
        self.short = {real: short for short, real in self.real.items()}

    def ask(self, **asked: Any) -> tuple[int, dict[str, Any]]:
        body = {"query_time_unix_ms": parse_instant(self.case["anchor"]), **self.case["request"], **asked}
        return self.api.post("/v1/recall", body)

    def ids(self, answer: dict[str, Any]) -> list[str]:
        return [self.short[hit["memory"]["id"]] for hit in answer["results"]]

    def hit(self, answer: dict[str, Any], short: str) -> dict[str, Any]:
        return next(hit for hit in answer["results"] if hit["memory"]["id"] == self.real[short])

    def suppressed(self, answer: dict[str, Any]) -> dict[str, str]:
        return {self.short[entry["id"]]: entry["reason"] for entry in answer["state_filter"]["suppressed"]}


MODES: dict[str, dict[str, Any]] = {
    "as given": {},
    **{mode: {"mode": mode} for mode in ("fused", "dense", "hybrid")},
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("case", STATE, ids=names(STATE))
def test_state_case(api: Any, case: dict[str, Any], mode: str) -> None:
    hold(Stage(api, case), case["expect"], MODES[mode])


@pytest.mark.parametrize("case", STATE, ids=names(STATE))
def test_state_case_by_time_alone(api: Any, case: dict[str, Any]) -> None:
    """By time every memory is a candidate: one more may be suppressed, and a replacement is moved, not injected."""
    expect = dict(case["expect"])
    for words_only in ("match_type", "suppressed_count", "replacement_count"):
        expect.pop(words_only, None)
    if "suppressed" in expect:
        expect["suppressed_among"] = expect.pop("suppressed")
    hold(Stage(api, case), expect, {"mode": "temporal", "temporal": {"start": "2026-08-01"}})


@pytest.mark.parametrize("case", STATE, ids=names(STATE))
def test_state_case_by_links_alone(api: Any, case: dict[str, Any]) -> None:
    """Links alone bring what they lead to: no more than the case expects, and all of it where a link joins all."""
    stage, expect = Stage(api, case), case["expect"]
    if "error_field" not in expect and case["request"]["query"]:
        served = expect.get("ids") or expect.get("ids_set") or expect.get("all_from", [])
        absent = {"absent_everywhere": expect.get("absent_everywhere", [])}
        joined = any(link["type"] == "CONTRADICTS" for link in case["links"])
        expect = {"ids_set" if joined else "all_from": served, **absent}
    hold(stage, expect, {"mode": "links"})


def hold(stage: Stage, expect: dict[str, Any], asked: dict[str, Any]) -> None:
    """Both engines meet the expectations, and answer alike."""
    answers = []
    for engine in ENGINES:
        with override_settings(RECALL_INDEX=engine):
            status, answer = stage.ask(**asked)
            assert status == expect.get("status", 200), answer
            check(stage, answer, expect)
            answers.append(answer)
    assert len({json.dumps(told(answer)) for answer in answers}) == 1


def told(answer: dict[str, Any]) -> Any:
    """What an answer says, but for its id, its timings, and scores, whose last digits are an engine's own."""
    if "error" in answer:
        return answer
    hits = [{name: of for name, of in hit.items() if name != "score"} for hit in answer["results"]]
    return [hits, answer["outcome"], answer["warnings"], answer.get("state_filter")]


def check(stage: Stage, answer: dict[str, Any], expect: dict[str, Any]) -> None:
    api = stage.api
    if "error_field" in expect:
        assert answer["error"]["field"] == expect["error_field"]
        return
    assert answer["outcome"]["status"] in ("fresh", "stale", "empty"), "every strategy looked at every vector"
    ids = stage.ids(answer)
    checks = {
        "ids": lambda want: ids == want,
        "ids_set": lambda want: sorted(ids) == sorted(want),
        "count": lambda want: answer["count"] == len(ids) == want,
        "all_from": lambda want: set(ids) <= set(want),
        "suppressed": lambda want: stage.suppressed(answer) == want,
        "suppressed_among": lambda want: want.items() <= stage.suppressed(answer).items(),
        "suppressed_set": lambda want: sorted(stage.suppressed(answer)) == sorted(want),
        "suppressed_count": lambda want: answer["state_filter"]["suppressed_count"] == want,
        "replacement_count": lambda want: answer["state_filter"]["replacement_count"] == want,
        "replacement_filtered_count": lambda want: (
            answer["state_filter"]["replacement_filtered_count"] == want
        ),
        "no_state_filter": lambda want: ("state_filter" not in answer) == want,
        "match_type": lambda want: all(
            stage.hit(answer, id_)["match_type"] == type_ for id_, type_ in want.items()
        ),
        "state_replaces": lambda want: all(
            stage.real[old] in stage.hit(answer, new)["state_replaces"] for new, old in want.items()
        ),
        "absent_everywhere": lambda want: all(stage.real[id_] not in json.dumps(answer) for id_ in want),
        "signal": lambda want: all(
            signal in stage.hit(answer, id_)["validity"]["signals"] for id_, signal in want.items()
        ),
        "quality": lambda want: set(want) <= reported(api, answer),
    }
    for name, want in expect.items():
        assert name == "status" or checks[name](want), (
            f"{name}: wanted {want}, got {json.dumps(answer, indent=1)}"
        )


def reported(api: Any, answer: dict[str, Any]) -> set[str]:
    """What both the answer and the data-quality list report."""
    warned = {warning["code"] for warning in answer["warnings"]}
    _, listed = api.get("/v1/quality")
    return warned & {finding["code"] for finding in listed["results"]}


PROFILES: dict[str, dict[str, Any]] = {
    "annotated": {"validity_annotate": True},
    "re-ranked": {"profile": "validity"},
}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("case", SERVABLE, ids=names(SERVABLE))
def test_validity_case(api: Any, case: dict[str, Any], profile: str, engine: str) -> None:
    fields: dict[str, Any] = {
        "workspace": case["entity_workspace"],
        "created_at_unix_ms": case["created_at_unix_ms"],
        "provenance_class": case["epistemic_state"],
        "status": case["status"],
    }
    if case["expires_at_unix_ms"] is not None:
        fields["expires_at_unix_ms"] = case["expires_at_unix_ms"]
    api.stored("the validity case", **fields)

    with override_settings(RECALL_INDEX=engine):
        answer = api.recalled(
            "validity case",
            workspace=case["query_workspace"],
            query_time_unix_ms=case["now_unix_ms"],
            current_only=False,
            **PROFILES[profile],
        )

    hit = answer["results"][0]
    block, expect = hit["validity"], case["expect"]
    for name, want in expect.items():
        if isinstance(want, float):
            assert math.isclose(block[name], want, rel_tol=1e-12), name
        else:
            assert block[name] == want, name
    assert hit.get("context_invalid", False) == (expect["grade"] == "context_invalid")
    assert hit["sources"] == {"lexical": 1, "dense": 1}
    if profile == "re-ranked":
        assert hit["score"]["final"] == hit["score"]["base"] * block["multiplier"]
