"""What every memory bank keeps to: the local one, and Hindsight, of which the fake is held to the real servers."""

from __future__ import annotations

import json
import subprocess
import uuid
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hindsight_peer import API_KEY, Peer
from hindsight_real import Server

from ledger.domain.instants import UnixMs, parse_instant
from recall.banks import Bank, BankUnavailable, Note, Recalled
from recall.banks.hindsight import HindsightBank, item_of, operation_id_of
from recall.banks.local import LocalBank
from recall.domain.context import BankQuery, ItemQuery
from vault.domain.items import GENERAL_TAG, item_tag

THEN = parse_instant("2026-11-02T09:30:00Z")


def note(
    text: str,
    *,
    item: str | None = None,
    workspace: str = "",
    event: str = "",
    at: UnixMs = THEN,
    context: str = "",
    tags: Sequence[str] = (),
    **metadata: str,
) -> Note:
    event = event or f"evt_{uuid.uuid4().hex[:26]}"
    own = GENERAL_TAG if item is None else item_tag(item)
    return Note(
        event_id=event,
        workspace=workspace,
        text=text,
        context=context,
        item_id=item,
        occurrence=None,
        tags=(own, *tags),
        occurred_at=at,
        metadata={"source_event_id": event, **metadata},
    )


def about(item: str, text: str, **rest: Any) -> ItemQuery:
    return ItemQuery.about(item, text=text, **{"workspace": "", **rest})


def anything(text: str, **rest: Any) -> BankQuery:
    return BankQuery(text=text, **{"workspace": "", **rest})


def texts(found: Sequence[Recalled]) -> set[str]:
    return {one.text for one in found}


class BankContract:
    """Subclasses give the fixture `bank`."""

    def test_what_is_retained_is_recalled_with_all_that_came_with_it(self, bank: Bank) -> None:
        given = note(
            "The report is deferred because Tom is ill.",
            item="itm 1/ü",
            context="told on the phone",
            tags=["report"],
            occurrence="20261102T090000",
        )
        bank.retain(given)
        (found,) = bank.recall(about("itm 1/ü", "why is the report deferred"))
        assert found.text == given.text
        assert found.source_event_id == given.event_id
        assert found.document_id == given.document_id
        assert found.timestamp == THEN
        assert set(found.tags) == set(given.tags)
        assert found.metadata == given.metadata
        assert found.context == "told on the phone"
        assert found.memory_id

    def test_a_question_about_an_item_finds_that_items_context_alone(self, bank: Bank) -> None:
        bank.retain(note("The report waits for Tom.", item="target", tags=["report"]))
        bank.retain(note("The report waits for Ann.", item="another", tags=["report"]))
        bank.retain(note("The report waits for nobody.", tags=["report"]))
        assert texts(bank.recall(about("target", "report waits"))) == {"The report waits for Tom."}

    def test_an_item_without_context_has_an_empty_answer(self, bank: Bank) -> None:
        bank.retain(note("The report waits for Ann.", item="another"))
        bank.retain(note("The report waits for nobody."))
        assert bank.recall(about("target", "report waits")) == ()

    def test_without_an_item_the_whole_bank_is_asked(self, bank: Bank) -> None:
        told = {"The report waits for Tom.", "The report waits for nobody."}
        bank.retain(note("The report waits for Tom.", item="target"))
        bank.retain(note("The report waits for nobody."))
        assert texts(bank.recall(anything("report waits"))) == told

    def test_a_repeat_changes_nothing(self, bank: Bank) -> None:
        given = note("The report waits for Tom.", item="target")
        assert bank.retain(given) == bank.retain(given)
        assert len(bank.recall(about("target", "report waits"))) == 1

    def test_workspaces_are_kept_apart(self, bank: Bank) -> None:
        for workspace in ("", "red", "Ünïcode / blanks"):
            bank.retain(note(f"The report of {workspace or 'all'}.", item="target", workspace=workspace))
        for workspace in ("", "red", "Ünïcode / blanks"):
            own = {f"The report of {workspace or 'all'}."}
            assert texts(bank.recall(about("target", "report", workspace=workspace))) == own
            assert texts(bank.recall(anything("report", workspace=workspace))) == own

    @pytest.mark.parametrize("ends", ["both", "start", "end"])
    def test_a_time_that_is_preferred_leaves_nothing_out(self, bank: Bank, ends: str) -> None:
        bank.retain(note("The report waits for Tom.", item="target"))
        start, end = parse_instant("2020-01-01"), parse_instant("2020-02-01")
        temporal = (start if ends != "end" else None, end if ends != "start" else None)
        found = bank.recall(about("target", "report waits", temporal=temporal))
        assert texts(found) == {"The report waits for Tom."}

    def test_no_more_is_served_than_was_asked_for(self, bank: Bank) -> None:
        for name in ("Tom", "Ann", "Eve"):
            bank.retain(note(f"The report waits for {name}.", item="target"))
        assert len(bank.recall(about("target", "report waits", limit=2))) == 2

    def test_what_was_forgotten_is_not_found_and_forgetting_twice_is_harmless(self, bank: Bank) -> None:
        given, other = (
            note("The report waits for Tom.", item="target"),
            note("The report waits.", item="target"),
        )
        bank.retain(given)
        bank.retain(other)
        bank.forget("", given.document_id)
        bank.forget("", given.document_id)
        assert texts(bank.recall(about("target", "report waits"))) == {"The report waits."}

    def test_a_text_of_the_full_size_after_a_statement_is_taken(self, bank: Bank) -> None:
        long = "The report waits for Tom. " * 2520
        bank.retain(
            note(f"This supersedes context event evt_x of 2026-11-01T00:00:00Z: {long}", item="target")
        )
        found = bank.recall(about("target", "report waits for Tom", limit=50))
        assert found
        assert {one.tags for one in found} == {(item_tag("target"),)}

    def test_hostile_text_comes_back_as_it_was(self, bank: Bank) -> None:
        hostile = "report <script>alert('x')</script> \"; DROP TABLE memory; -- \u202e 🙂 \\u0000 {{ x }}"
        bank.retain(note(hostile, item="target", quote='"\\\n', context=hostile))
        (found,) = bank.recall(about("target", "report script"))
        assert found.text == found.context == hostile
        assert found.metadata["quote"] == '"\\\n'

    def test_it_tells_that_all_is_well(self, bank: Bank) -> None:
        bank.check()
        assert bank.name in ("local", "hindsight")


class TestLocal(BankContract):
    @pytest.fixture
    def bank(self, db: None) -> LocalBank:
        return LocalBank()


@pytest.fixture
def bank(hindsight: Peer) -> Iterator[HindsightBank]:
    """The client, before the fake and before each real server."""
    made = HindsightBank()
    yield made
    made.close()


class TestHindsight(BankContract):
    """The fake and the real servers keep the contract, and what goes over the wire is exactly this."""

    def test_a_retain_sends_exactly_this_and_watches_its_operation(
        self, bank: HindsightBank, hindsight: Peer
    ) -> None:
        given = note("The report waits.", item="target", context="a call", tags=["report"], event="evt_a")
        remote = bank.retain(given)
        checked, sent, *watched = hindsight.asked
        assert (checked.method, checked.path) == ("GET", f"/v1/default/banks/{hindsight.prefix}/config")
        assert (sent.method, sent.path) == ("POST", f"/v1/default/banks/{hindsight.prefix}/memories")
        assert sent.body == {
            "items": [
                {
                    "content": "The report waits.",
                    "timestamp": "2026-11-02T09:30:00Z",
                    "context": "a call",
                    "metadata": {"source_event_id": "evt_a"},
                    "document_id": "evt_a",
                    "tags": [item_tag("target"), "report"],
                }
            ],
            "async": True,
            "operation_id": operation_id_of(hindsight.prefix, "evt_a", item_of(given)),
        }
        assert remote == sent.body["operation_id"]
        assert watched
        place = f"/v1/default/banks/{hindsight.prefix}/operations/{remote}"
        assert {(one.method, one.path, one.body) for one in watched} == {("GET", place, None)}

    def test_an_item_recall_is_one_request_of_exactly_this(
        self, bank: HindsightBank, hindsight: Peer
    ) -> None:
        assert bank.recall(about("target", "report waits", limit=7)) == ()
        (asked,) = hindsight.asked
        assert (asked.method, asked.path) == ("POST", f"/v1/default/banks/{hindsight.prefix}/memories/recall")
        assert asked.body == {
            "query": "report waits",
            "types": ["world", "experience"],
            "prefer_observations": False,
            "include": {"entities": None},
            "budget": "mid",
            "max_tokens": 7168,
            "trace": False,
            "tags": [item_tag("target")],
            "tags_match": "all_strict",
        }

    def test_a_recall_of_the_whole_bank_is_one_request_of_exactly_this(
        self, bank: HindsightBank, hindsight: Peer
    ) -> None:
        start, end = parse_instant("2026-11-01"), parse_instant("2026-11-08")
        assert bank.recall(anything("report waits", temporal=(start, end))) == ()
        (asked,) = hindsight.asked
        assert asked.body == {
            "query": "report waits",
            "types": ["world", "experience"],
            "prefer_observations": False,
            "include": {"entities": None},
            "budget": "mid",
            "max_tokens": 10240,
            "trace": False,
            "temporal_window": {"start": "2026-11-01T00:00:00Z", "end": "2026-11-08T00:00:00Z"},
        }

    def test_no_field_that_is_sent_is_ignored(self, bank: HindsightBank, hindsight: Peer) -> None:
        """The server answers 200 to fields that it does not know; it names them in a header."""
        bank.retain(note("The report waits.", item="target"))
        bank.recall(about("target", "report waits", temporal=(THEN, None)))
        for asked in hindsight.asked:
            if asked.body is not None:
                path = asked.path.removeprefix("/v1/default/banks/")
                status, _, headers = hindsight.directly(asked.method, path, asked.body)
                assert status == 200
                assert "x-ignored-params" not in headers

    def test_untagged_and_foreign_memories_of_others_never_answer_for_an_item(
        self, bank: HindsightBank, hindsight: Peer
    ) -> None:
        hindsight.put(hindsight.prefix, "The report waits for the untagged.")
        hindsight.put(hindsight.prefix, "The report waits for the tagged.", tags=["report"])
        hindsight.put(hindsight.prefix, "The report waits for another.", tags=[item_tag("another")])
        bank.retain(note("The report waits for Tom.", item="target"))
        assert texts(bank.recall(about("target", "report waits"))) == {"The report waits for Tom."}
        assert len(bank.recall(anything("report waits"))) == 4

    def test_an_observation_that_merges_other_texts_under_an_items_tag_never_answers(
        self, bank: HindsightBank, hindsight: Peer
    ) -> None:
        bank.retain(note("The report waits for Tom.", item="target"))
        hindsight.merge(
            hindsight.prefix, "The report waits for Tom, and Ann is to be dismissed.", [item_tag("target")]
        )
        loose = {"query": "report waits", "tags": [item_tag("target")], "tags_match": "all_strict"}
        _, told, _ = hindsight.directly("POST", f"{hindsight.prefix}/memories/recall", loose)
        observed = [one for one in told["results"] if one["type"] == "observation"]
        assert [one["document_id"] for one in observed] == [None]
        assert not observed[0]["metadata"]
        assert texts(bank.recall(about("target", "report waits"))) == {"The report waits for Tom."}

    def test_what_others_retained_without_a_source_is_told_without_one(
        self, bank: HindsightBank, hindsight: Peer
    ) -> None:
        hindsight.put(hindsight.prefix, "The report waits for the untagged.")
        (found,) = bank.recall(anything("report waits"))
        assert found.source_event_id is None
        assert found.tags == ()

    def test_the_document_stands_there_as_it_was_sent(self, bank: HindsightBank, hindsight: Peer) -> None:
        given = note("The report waits.", item="target", tags=["report"], occurrence="20261102")
        bank.retain(given)
        document = hindsight.document(hindsight.prefix, given.document_id)
        assert document["original_text"] == given.text
        assert document["document_metadata"] == given.metadata
        assert sorted(document["tags"]) == sorted(given.tags)

    def test_another_text_of_the_same_document_replaces_it(self, bank: HindsightBank) -> None:
        bank.retain(note("The report waits for Tom.", item="target", event="evt_a"))
        bank.retain(note("The report waits for Ann.", item="target", event="evt_a"))
        assert texts(bank.recall(about("target", "report waits"))) == {"The report waits for Ann."}

    def test_a_missing_bank_is_unavailable_and_not_empty(self, bank: HindsightBank) -> None:
        with pytest.raises(BankUnavailable, match=r"there is no bank test-\w+\.nobody") as caught:
            bank.recall(anything("report", workspace="nobody"))
        assert caught.value.misconfigured

    def test_nothing_is_sent_where_the_global_bank_is_missing(self, hindsight: Peer, settings: Any) -> None:
        settings.HINDSIGHT = {**settings.HINDSIGHT, "bank_prefix": "misspelt"}
        bank = HindsightBank()
        for act in (lambda: bank.retain(note("x")), lambda: bank.forget("", "evt_x"), bank.check):
            with pytest.raises(BankUnavailable, match="there is no bank misspelt") as caught:
                act()
            assert caught.value.code == "bank_missing"
        assert {one.method for one in hindsight.asked} == {"GET"}
        assert not hindsight.exists("misspelt")
        bank.close()

    def test_a_refused_key_pauses(self, hindsight: Peer, settings: Any) -> None:
        settings.HINDSIGHT = {**settings.HINDSIGHT, "api_key": "stolen"}
        bank = HindsightBank()
        for act in (lambda: bank.recall(anything("report")), lambda: bank.retain(note("x")), bank.check):
            with pytest.raises(BankUnavailable, match="status 401") as caught:
                act()
            assert (caught.value.code, caught.value.pause) == ("bank_unauthorized", True)
        bank.close()

    def test_a_wrong_address_is_not_a_missing_bank(self, hindsight: Peer, settings: Any) -> None:
        settings.HINDSIGHT = {**settings.HINDSIGHT, "url": f"{hindsight.url}/elsewhere"}
        bank = HindsightBank()
        for act in (lambda: bank.recall(anything("report")), lambda: bank.retain(note("x")), bank.check):
            with pytest.raises(BankUnavailable, match="status 404") as caught:
                act()
            assert caught.value.code == "bank_misplaced"
        bank.close()

    # ---- quirks of the server on which the above relies

    def test_no_tags_are_the_whole_bank_however_strict(self, hindsight: Peer) -> None:
        hindsight.put(hindsight.prefix, "The report waits.", tags=["report"])
        hindsight.put(hindsight.prefix, "The report waits for Tom.")
        body = {"query": "report waits", "tags": [], "tags_match": "all_strict"}
        _, told, _ = hindsight.directly("POST", f"{hindsight.prefix}/memories/recall", body)
        assert len(told["results"]) == 2

    def test_a_field_that_it_does_not_know_is_ignored_with_200(self, hindsight: Peer) -> None:
        hindsight.put(hindsight.prefix, "The report waits.", tags=["report"])
        body = {"query": "report waits", "tag_match": "all_strict", "tags": ["report"]}
        status, _, headers = hindsight.directly("POST", f"{hindsight.prefix}/memories/recall", body)
        assert status == 200
        assert headers["x-ignored-params"] == "tag_match"

    def test_a_retain_makes_an_unknown_bank_without_a_word(self, hindsight: Peer) -> None:
        bank = f"{hindsight.prefix}.new"
        assert not hindsight.exists(bank)
        hindsight.put(bank, "The report waits.")
        assert hindsight.exists(bank)

    def test_a_known_operation_drops_another_payload_without_a_word(
        self, bank: HindsightBank, hindsight: Peer
    ) -> None:
        bank.retain(note("The report waits for Tom.", item="target", event="evt_a"))
        body = next(one.body for one in hindsight.asked if one.method == "POST")
        other = {**body, "items": [{**body["items"][0], "content": "The report waits for Ann."}]}
        status, told, _ = hindsight.directly("POST", f"{hindsight.prefix}/memories", other)
        assert (status, told["operation_id"]) == (200, body["operation_id"])
        assert hindsight.document(hindsight.prefix, "evt_a")["original_text"] == "The report waits for Tom."
        status, _, _ = hindsight.directly("POST", f"{hindsight.prefix}.new/memories", other)
        assert status == 409

    @pytest.mark.parametrize(
        "wrong", [{"items": [{"content": "x", "metadata": {"n": 1}}]}, {"items": [], "operation_id": "op_1"}]
    )
    def test_metadata_are_strings_and_operations_uuids(self, hindsight: Peer, wrong: dict[str, Any]) -> None:
        status, _, _ = hindsight.directly("POST", f"{hindsight.prefix}/memories", {**wrong, "async": True})
        assert status == 422

    def test_a_missing_bank_and_a_missing_document_answer_404_each_in_its_own_words(
        self, hindsight: Peer
    ) -> None:
        told = [
            hindsight.directly("POST", "nowhere/memories/recall", {"query": "report"})[:2],
            hindsight.directly("GET", "nowhere/config")[:2],
            hindsight.directly("DELETE", "nowhere/documents/evt_a")[:2],
            hindsight.directly("DELETE", f"{hindsight.prefix}/documents/evt_a")[:2],
            hindsight.directly("GET", "nowhere/no/such/place")[:2],
        ]
        no_bank, no_document = {"detail": "Bank 'nowhere' not found"}, {"detail": "Document not found"}
        details = [no_bank, no_bank, no_document, no_document, {"detail": "Not Found"}]
        assert told == [(404, detail) for detail in details]

    def test_an_operation_that_nobody_started_is_answered_with_200(self, hindsight: Peer) -> None:
        status, told, _ = hindsight.directly("GET", f"{hindsight.prefix}/operations/{uuid.uuid4()}")
        assert (status, told["status"]) == (200, "not_found")

    def test_a_question_without_a_word_is_refused(self, hindsight: Peer) -> None:
        status, _, _ = hindsight.directly("POST", f"{hindsight.prefix}/memories/recall", {"query": "?!"})
        assert status == 422

    TABLE = {
        ("any", "T"): {"none", "t", "tx"},
        ("all", "T"): {"none", "t", "tx"},
        ("any_strict", "T"): {"t", "tx"},
        ("all_strict", "T"): {"t", "tx"},
        ("exact", "T"): {"t"},
        ("any", "TX"): {"none", "t", "tx", "x"},
        ("all", "TX"): {"none", "tx"},
        ("any_strict", "TX"): {"t", "tx", "x"},
        ("all_strict", "TX"): {"tx"},
        ("exact", "TX"): {"tx"},
        ("exact", ""): {"none"},
    }

    def test_tags_match_as_they_were_measured(self, hindsight: Peer) -> None:
        for name, tags in {"none": [], "t": ["T"], "o": ["O"], "tx": ["T", "X"], "x": ["X"]}.items():
            hindsight.put(hindsight.prefix, f"report {name}", tags=tags)
        for (how, tags), expected in self.TABLE.items():
            body = {"query": "report", "tags": list(tags), "tags_match": how}
            _, told, _ = hindsight.directly("POST", f"{hindsight.prefix}/memories/recall", body)
            assert {one["text"].removeprefix("report ") for one in told["results"]} == expected, (how, tags)


SECOND_EYES = """
import json, sys
from hindsight_client import Hindsight
url, key, bank, document = sys.argv[1:]
with Hindsight(base_url=url, api_key=key) as client:
    found = client.recall(bank_id=bank, query="report waits", tags=[sys.stdin.read()], tags_match="all_strict")
    print(json.dumps([[one.text, one.document_id, one.metadata, one.tags] for one in found.results]))
"""


@pytest.mark.hindsight
@pytest.mark.parametrize("hindsight", ["0.10.1", "1.1.0"], indirect=True)
def test_the_official_client_reads_what_ours_wrote(
    request: pytest.FixtureRequest, bank: HindsightBank, hindsight: Peer
) -> None:
    version = request.node.callspec.params["hindsight"]
    server: Server = request.getfixturevalue("real_hindsights")(version)
    given = note("The report waits for Tom.", item="target", tags=["report"])
    bank.retain(given)
    read = subprocess.run(
        [server.python, "-c", SECOND_EYES, hindsight.upstream, API_KEY, hindsight.prefix, given.document_id],
        input=item_tag("target"),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert read.returncode == 0, read.stderr
    ((text, document, metadata, tags),) = json.loads(read.stdout)
    assert (text, document, metadata, sorted(tags)) == (
        given.text,
        given.document_id,
        given.metadata,
        sorted(given.tags),
    )
