"""Changing the vault: what is stored, what is refused, and that each change has its event or never was."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from ledger.domain import events as kinds
from ledger.domain.instants import DAY, MINUTE, UnixMs
from ledger.domain.refusals import Conflict, Forbidden, Invalid, NotFound, Outdated, Refused, Unprocessable
from ledger.models import ContextEvent, Tombstone
from ledger.queries import verify
from vault import services
from vault.fulltext import table_of
from vault.models import Memory, MemoryLink, MemoryTag, Workspace
from vault.queries import memory_for
from vault.services import Caller

pytestmark = pytest.mark.django_db

Remember = Callable[..., Memory]
Link = Callable[..., MemoryLink]
Bound = Callable[..., Caller]


def _kinds(memory: Memory) -> list[str]:
    return [event.kind for event in services.history_of(memory)]


def _found(word: str, workspace: Workspace) -> list[int]:
    table = table_of(workspace.id)
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT rowid FROM {table} WHERE {table} MATCH %s", [f'"{word}"'])
        return [row[0] for row in cursor.fetchall()]


def _nothing_is_stored() -> bool:
    return not (Memory.objects.exists() or MemoryTag.objects.exists() or ContextEvent.objects.exists())


# ---- remembering


def test_a_memory_is_stored_with_its_event_and_its_words(remember: Remember, now: UnixMs) -> None:
    memory = remember(
        "The deploy runs on Tuesdays", workspace="red", tags=["ops", "deploy"], reason="told so"
    )
    stored = Memory.objects.get(id=memory.id)
    assert stored.values == {
        "text": "The deploy runs on Tuesdays",
        "workspace": "red",
        "tags": ["deploy", "ops"],
        "category": "",
        "provenance_class": "candidate",
        "status": "active",
        "archived": False,
        "created_at": now,
        "t_valid": None,
        "t_invalid": None,
        "expires_at": None,
        "source_event_id": None,
        "external_id": None,
        "metadata": {},
    }
    assert (stored.version, stored.updated_at, stored.verified_at) == (1, now, None)
    event = ContextEvent.objects.get()
    assert (event.kind, event.subject_id, event.workspace) == (kinds.MEMORY_CREATED, memory.id, "red")
    assert (event.actor_kind, event.actor_label, event.reason) == ("user", "ada", "told so")
    assert event.text == "The deploy runs on Tuesdays"
    assert event.values_after == {"tags": ["deploy", "ops"], "created_at": now}
    assert _found("deploy", stored.workspace) == [stored.seq]
    assert stored.workspace.memories == 1


def test_everything_that_was_sent_comes_back(
    remember: Remember, event_in: Callable[..., str], now: UnixMs
) -> None:
    fields = {
        "workspace": "red",
        "tags": ["b", "a", "b"],
        "category": "preference",
        "provenance_class": "corroborated",
        "status": "quarantined",
        "archived": True,
        "created_at": now - 400 * DAY,
        "t_valid": now - DAY,
        "t_invalid": now + DAY,
        "expires_at": now + 2 * DAY,
        "source_event_id": event_in("red"),
        "external_id": "their-1",
        "metadata": {"nested": [1, 2.5, None, {"ü": "🙂"}]},
    }
    memory = Memory.objects.get(id=remember("a text", **fields).id)
    assert memory.values == {**fields, "text": "a text", "tags": ["a", "b"]}


def test_an_empty_provenance_class_is_read_as_unknown(remember: Remember) -> None:
    assert remember("a text", provenance_class="").provenance_class == "unknown"


@pytest.mark.parametrize(
    "text",
    ["مرحبا بالعالم", "👩‍👩‍👧 family", '"quoted" OR NEAR(', "line\nbreak\ttab", "x" * 65_536, "‮reversed‬"],
)
def test_any_text_that_fits_is_stored_as_it_is(remember: Remember, text: str) -> None:
    assert Memory.objects.get(id=remember(text).id).text == text


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"text": ""}, "text"),
        ({"text": " \n\t"}, "text"),
        ({"text": "a\x00b"}, "text"),
        ({"text": "half \ud83d"}, "text"),
        ({"text": "x" * 65_537}, "text"),
        ({"text": "ü" * 32_769}, "text"),
        ({"workspace": "w" * 129}, "workspace"),
        ({"workspace": " red"}, "workspace"),
        ({"workspace": "r\ned"}, "workspace"),
        ({"tags": [""]}, "tags"),
        ({"tags": ["t" * 129]}, "tags"),
        ({"tags": [f"t{n}" for n in range(65)]}, "tags"),
        ({"category": "c" * 129}, "category"),
        ({"provenance_class": "certain"}, "provenance_class"),
        ({"status": "gone"}, "status"),
        ({"metadata": {"long": "x" * 16_384}}, "metadata"),
        ({"metadata": {"nul": "\x00"}}, "metadata"),
        ({"metadata": {"not": float("nan")}}, "metadata"),
        ({"external_id": ""}, "external_id"),
        ({"external_id": "e" * 257}, "external_id"),
        ({"source_event_id": "e" * 33}, "source_event_id"),
        ({"created_at": 10**18}, "created_at"),
        ({"t_valid": -(10**18)}, "t_valid"),
        ({"expires_at": 10**18}, "expires_at"),
        ({"t_valid": 5, "t_invalid": 5}, "t_invalid"),
        ({"t_valid": 6, "t_invalid": 5}, "t_invalid"),
    ],
)
def test_what_would_rot_is_refused_with_the_field_named(
    remember: Remember, fields: dict[str, Any], field: str
) -> None:
    with pytest.raises(Invalid) as refused:
        remember(**{"text": "a text", **fields})
    assert refused.value.field == field
    assert _nothing_is_stored()


def test_a_memory_without_text_is_refused(caller: Caller, now: UnixMs) -> None:
    with pytest.raises(Invalid, match="text is required"):
        services.remember({"workspace": "red"}, caller=caller, at=now)


def test_metadata_may_be_deep_and_not_bottomless(remember: Remember) -> None:
    def nested(depth: int) -> dict[str, Any]:
        value: dict[str, Any] = {}
        for _ in range(depth):
            value = {"in": value}
        return value

    remember("deep", metadata=nested(32))
    for depth in (33, 34, 500):
        with pytest.raises(Invalid) as refused:
            remember("bottomless", metadata=nested(depth))
        assert (refused.value.field, refused.value.code) == ("metadata", "too_large")


def test_created_at_may_lie_five_minutes_ahead_and_no_more(remember: Remember, now: UnixMs) -> None:
    assert remember("a", created_at=now + 5 * MINUTE).created_at == now + 5 * MINUTE
    with pytest.raises(Invalid) as refused:
        remember("b", created_at=now + 5 * MINUTE + 1)
    assert refused.value.field == "created_at"


def test_the_shortest_window_is_one_millisecond(remember: Remember, now: UnixMs) -> None:
    assert remember("a", t_valid=now, t_invalid=now + 1).t_invalid == now + 1


# ---- idempotency by external_id


def test_the_same_external_id_with_the_same_values_returns_the_stored_memory(
    caller: Caller, now: UnixMs
) -> None:
    sent = {"text": "a text", "tags": ["b", "a"], "external_id": "e1", "workspace": "red"}
    first = services.remember(sent, caller=caller, at=now, reason="once")
    again = services.remember(sent, caller=caller, at=now + DAY, reason="twice")
    assert (first.created, again.created) == (True, False)
    assert again.memory.id == first.memory.id
    assert ContextEvent.objects.count() == 1


def test_only_the_fields_that_were_sent_are_compared(caller: Caller, now: UnixMs) -> None:
    first = services.remember({"text": "a", "tags": ["t"], "external_id": "e"}, caller=caller, at=now)
    again = services.remember({"text": "a", "external_id": "e"}, caller=caller, at=now)
    assert again.memory.id == first.memory.id


@pytest.mark.parametrize(
    ("other", "field"),
    [
        ({"text": "another"}, "text"),
        ({"tags": ["x"]}, "tags"),
        ({"created_at": 0}, "created_at"),
        ({"archived": True}, "archived"),
        ({"metadata": {"a": 1}}, "metadata"),
    ],
)
def test_the_same_external_id_with_other_values_is_a_conflict_that_names_the_field(
    remember: Remember, other: dict[str, Any], field: str
) -> None:
    remember("a text", external_id="e")
    with pytest.raises(Conflict) as refused:
        remember(**{"text": "a text", **other}, external_id="e")
    assert (refused.value.field, refused.value.code) == (field, "external_id_conflict")


def test_an_external_id_is_taken_in_its_workspace_only(remember: Remember) -> None:
    assert remember("a", external_id="e", workspace="red").id != remember("b", external_id="e").id


# ---- bulk


def test_one_bad_row_never_loses_the_others(caller: Caller, now: UnixMs) -> None:
    rows: list[tuple[dict[str, Any], str]] = [
        ({"text": "one", "tags": ["t"], "workspace": "red"}, ""),
        ({"text": ""}, ""),
        ({"text": "two", "t_valid": 2, "t_invalid": 1}, ""),
        ({"text": "three"}, "r" * 2_001),
        ({"text": "four"}, "why"),
    ]
    outcomes = services.remember_many(rows, caller=caller, at=now)
    assert [one.field if isinstance(one, Refused) else one.memory.text for one in outcomes] == [
        "one",
        "text",
        "t_invalid",
        "reason",
        "four",
    ]
    assert list(Memory.objects.order_by("seq").values_list("text", flat=True)) == ["one", "four"]
    assert list(ContextEvent.objects.order_by("seq").values_list("text", flat=True)) == ["one", "four"]
    assert verify().ok


def test_an_external_id_counts_inside_one_bulk_too(caller: Caller, now: UnixMs) -> None:
    one = {"text": "a", "tags": ["t"], "external_id": "e"}
    outcomes = services.remember_many(
        [(one, ""), (one, ""), ({**one, "text": "b"}, ""), ({**one, "tags": ["u"]}, "")],
        caller=caller,
        at=now,
    )
    first, again, text_differs, tags_differ = outcomes
    assert isinstance(first, services.Remembered)
    assert first.created
    assert again == services.Remembered(first.memory, created=False)
    assert isinstance(text_differs, Conflict)
    assert text_differs.field == "text"
    assert isinstance(tags_differ, Conflict)
    assert tags_differ.field == "tags"
    assert Memory.objects.count() == 1


def test_more_than_a_thousand_rows_are_refused_whole(caller: Caller, now: UnixMs) -> None:
    with pytest.raises(Invalid) as refused:
        services.remember_many([({"text": "a"}, "")] * 1_001, caller=caller, at=now)
    assert (refused.value.field, refused.value.code) == ("memories", "too_large")
    assert _nothing_is_stored()


def test_a_thousand_rows_are_written_in_batches(
    caller: Caller, now: UnixMs, django_assert_max_num_queries: Any
) -> None:
    rows = [({"text": f"memory {number}", "tags": ["t"]}, "") for number in range(1_000)]
    with django_assert_max_num_queries(70):
        services.remember_many(rows, caller=caller, at=now)
    assert verify().events == 1_000


def test_an_empty_bulk_stores_nothing(caller: Caller, now: UnixMs) -> None:
    assert services.remember_many([], caller=caller, at=now) == []
    assert _nothing_is_stored()


# ---- all or nothing


def _break_the_ledger() -> None:
    """From here on no event can be written, so that every service fails after it wrote its row."""
    with connection.cursor() as cursor:
        cursor.execute(
            "CREATE TRIGGER broken BEFORE INSERT ON ledger_contextevent "
            "BEGIN SELECT RAISE(ABORT, 'broken'); END"
        )


CHANGES: dict[str, Callable[[str, str, str, Caller, UnixMs], object]] = {
    "remember": lambda a, b, lnk, who, at: services.remember({"text": "pelican"}, caller=who, at=at),
    "remember in a new workspace": lambda a, b, lnk, who, at: services.remember(
        {"text": "pelican", "workspace": "new"}, caller=who, at=at
    ),
    "revise": lambda a, b, lnk, who, at: services.revise(
        a, {"text": "pelican", "tags": ["new"], "expires_at": at}, caller=who, at=at
    ),
    "archive": lambda a, b, lnk, who, at: services.archive(a, caller=who, at=at),
    "verify": lambda a, b, lnk, who, at: services.verify(a, caller=who, at=at, reason="seen"),
    "erase": lambda a, b, lnk, who, at: services.erase(a, caller=who, at=at, reason="asked"),
    "link": lambda a, b, lnk, who, at: services.link(b, a, "EVOLVED_INTO", caller=who, at=at),
    "unlink": lambda a, b, lnk, who, at: services.unlink(lnk, caller=who, at=at),
    "supersede": lambda a, b, lnk, who, at: services.supersede(
        a, sent={"text": "pelican"}, caller=who, at=at
    ),
}


def _everything() -> list[list[Any]]:
    tables = ["vault_workspace", "vault_memory", "vault_memorytag", "vault_memorylink", "ledger_contextevent"]
    with connection.cursor() as cursor:
        rows = []
        for table in (*tables, "ledger_tombstone", "sqlite_master"):
            cursor.execute(f"SELECT * FROM {table} ORDER BY 1, 2")
            rows.append(cursor.fetchall())
    return rows


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_whose_event_cannot_be_written_leaves_nothing(
    remember: Remember, link: Link, caller: Caller, now: UnixMs, change: str
) -> None:
    one, two = remember("heron", tags=["t"]), remember("stork")
    joined = link(one, two, "EVOLVED_INTO")
    _break_the_ledger()
    before = _everything()
    with pytest.raises(Exception, match="broken"):
        CHANGES[change](one.id, two.id, joined.id, caller, now + 1)
    assert _everything() == before
    assert _found("heron", one.workspace) == [one.seq]
    assert _found("pelican", one.workspace) == []


@pytest.mark.parametrize("change", CHANGES)
def test_every_change_has_its_event(
    remember: Remember, link: Link, caller: Caller, now: UnixMs, change: str
) -> None:
    one, two = remember("heron", tags=["t"]), remember("stork")
    joined = link(one, two, "EVOLVED_INTO")
    before = ContextEvent.objects.count()
    CHANGES[change](one.id, two.id, joined.id, caller, now + 1)
    assert ContextEvent.objects.count() == before + (2 if change == "supersede" else 1)
    newest = ContextEvent.objects.newest_first()[0]
    assert (newest.actor_label, newest.recorded_at) == ("ada", now + 1)
    assert verify().ok


# ---- revising


def test_a_revision_changes_row_words_version_and_tells_before_and_after(
    remember: Remember, caller: Caller, now: UnixMs
) -> None:
    memory = remember("the old heron", tags=["a", "b"], expires_at=now + DAY)
    revised = services.revise(
        memory.id,
        {"text": "the new stork", "tags": ["b", "c"], "expires_at": now + DAY},
        caller=caller,
        at=now + 1,
        reason="it moved",
    )
    assert (revised.text, revised.tag_names, revised.version) == ("the new stork", ["b", "c"], 2)
    assert revised.updated_at == now + 1
    assert revised.text_sha256 == services.sha256("the new stork")
    assert _found("heron", memory.workspace) == []
    assert _found("stork", memory.workspace) == [memory.seq]
    event = services.history_of(memory)[-1]
    assert (event.kind, event.reason) == (kinds.MEMORY_REVISED, "it moved")
    assert event.values_before == {"text": "the old heron", "tags": ["a", "b"]}
    assert event.values_after == {"text": "the new stork", "tags": ["b", "c"]}


def test_a_revision_that_changes_nothing_is_no_change(
    remember: Remember, caller: Caller, now: UnixMs
) -> None:
    memory = remember("a text", tags=["t"])
    again = services.revise(memory.id, {"text": "a text", "tags": ["t"]}, caller=caller, at=now + 1)
    assert (again.version, again.updated_at) == (1, now)
    assert _kinds(memory) == [kinds.MEMORY_CREATED]


def test_each_change_of_a_value_adds_one_to_the_version(
    remember: Remember, caller: Caller, now: UnixMs
) -> None:
    memory = remember("a text")
    for turn, sent in enumerate(({"tags": ["t"]}, {"category": "c"}, {"archived": True}), start=2):
        assert services.revise(memory.id, sent, caller=caller, at=now).version == turn


@pytest.mark.parametrize("field", ["t_valid", "t_invalid", "expires_at", "external_id", "source_event_id"])
def test_null_clears(
    remember: Remember, event_in: Callable[..., str], caller: Caller, now: UnixMs, field: str
) -> None:
    filled = {"t_valid": now, "t_invalid": now + 9, "expires_at": now, "external_id": "e"}
    memory = remember("a text", **filled, source_event_id=event_in())
    assert getattr(services.revise(memory.id, {field: None}, caller=caller, at=now), field) is None


@pytest.mark.parametrize("unknown", [False, True], ids=["of another workspace", "that nobody has"])
def test_a_memory_cannot_come_from_an_event(
    remember: Remember, event_in: Callable[..., str], caller: Caller, now: UnixMs, unknown: bool
) -> None:
    source = "evt_x" if unknown else event_in("blue")
    stored = remember("stored", workspace="red")
    outcomes = services.remember_many(
        [({"text": "a", "workspace": "red", "source_event_id": source}, ""), ({"text": "b"}, "")],
        caller=caller,
        at=now,
    )
    refused = [outcomes[0]]
    assert not isinstance(outcomes[1], Refused)
    with pytest.raises(Unprocessable) as revised:
        services.revise(stored.id, {"source_event_id": source}, caller=caller, at=now)
    with pytest.raises(Unprocessable) as superseded:
        services.supersede(stored.id, sent={"text": "c", "source_event_id": source}, caller=caller, at=now)
    for one in (*refused, revised.value, superseded.value):
        assert isinstance(one, Unprocessable)
        assert (one.field, one.code) == ("source_event_id", "unknown_event")
        assert one.message == f"no event {source} in this workspace"


def test_the_source_events_of_a_whole_bulk_are_looked_up_in_two_queries(
    event_in: Callable[..., str], caller: Caller, now: UnixMs
) -> None:
    sources = [event_in("red") for _ in range(3)]
    services.remember({"text": "the workspace's first", "workspace": "red"}, caller=caller, at=now)

    def queries(*rows: dict[str, Any]) -> list[str]:
        with CaptureQueriesContext(connection) as captured:
            services.remember_many([({"workspace": "red", **row}, "") for row in rows], caller=caller, at=now)
        return [query["sql"] for query in captured.captured_queries]

    without = queries({"text": "a"}, {"text": "b"}, {"text": "c"})
    sourced = queries(*({"text": source, "source_event_id": source} for source in sources))
    assert len(sourced) == len(without) + 2, "one for the events, one for what superseded them"


def test_text_cannot_be_cleared_and_workspace_cannot_be_changed(
    remember: Remember, caller: Caller, now: UnixMs
) -> None:
    memory = remember("a text")
    for sent, field in (({"text": None}, "text"), ({"workspace": "red"}, "workspace")):
        with pytest.raises(Invalid) as refused:
            services.revise(memory.id, sent, caller=caller, at=now)
        assert refused.value.field == field


def test_a_window_is_checked_against_the_bound_that_stays(
    remember: Remember, caller: Caller, now: UnixMs
) -> None:
    memory = remember("a text", t_valid=now)
    for t_invalid in (now, now - 1):
        with pytest.raises(Invalid) as refused:
            services.revise(memory.id, {"t_invalid": t_invalid}, caller=caller, at=now)
        assert refused.value.field == "t_invalid"
    assert services.revise(memory.id, {"t_invalid": now + 1}, caller=caller, at=now).t_invalid == now + 1


def test_if_match_refuses_a_lost_update(remember: Remember, caller: Caller, now: UnixMs) -> None:
    memory = remember("a text")
    services.revise(memory.id, {"category": "c"}, caller=caller, at=now, if_match=1)
    for act in (
        lambda: services.revise(memory.id, {"category": "d"}, caller=caller, at=now, if_match=1),
        lambda: services.archive(memory.id, caller=caller, at=now, if_match=1),
        lambda: services.erase(memory.id, caller=caller, at=now, reason="asked", if_match=1),
        lambda: services.supersede(memory.id, sent={"text": "b"}, caller=caller, at=now, if_match=1),
    ):
        with pytest.raises(Outdated) as refused:
            act()
        assert refused.value.field == "If-Match"
    assert Memory.objects.get(id=memory.id).category == "c"


def test_without_if_match_the_last_write_wins(remember: Remember, caller: Caller, now: UnixMs) -> None:
    memory = remember("a text")
    services.revise(memory.id, {"category": "c"}, caller=caller, at=now)
    assert services.revise(memory.id, {"category": "d"}, caller=caller, at=now).category == "d"


def test_an_external_id_that_another_memory_has_cannot_be_taken(
    remember: Remember, caller: Caller, now: UnixMs
) -> None:
    remember("a", external_id="e")
    memory = remember("b")
    with pytest.raises(Conflict) as refused:
        services.revise(memory.id, {"external_id": "e"}, caller=caller, at=now)
    assert refused.value.field == "external_id"


def test_archiving_and_restoring_have_events_of_their_own(
    remember: Remember, caller: Caller, now: UnixMs
) -> None:
    memory = remember("a text")
    assert services.archive(memory.id, caller=caller, at=now).archived
    assert services.archive(memory.id, caller=caller, at=now).version == 2
    assert not services.revise(memory.id, {"archived": False}, caller=caller, at=now).archived
    assert _kinds(memory) == [kinds.MEMORY_CREATED, kinds.MEMORY_ARCHIVED, kinds.MEMORY_RESTORED]


def test_an_unknown_memory_is_not_found(caller: Caller, now: UnixMs) -> None:
    with pytest.raises(NotFound):
        services.revise("mem_nowhere", {"category": "c"}, caller=caller, at=now)


# ---- trust


def test_only_who_may_assert_provenance_may_call_a_memory_verified(
    remember: Remember, bound_caller: Bound, now: UnixMs
) -> None:
    agent, curator = bound_caller("red"), bound_caller("red", asserts_provenance=True)
    memory = remember("a text", by=agent)
    for claimed in ("verified", "corroborated"):
        with pytest.raises(Forbidden) as refused:
            remember("another", by=agent, provenance_class=claimed)
        assert refused.value.field == "provenance_class"
        with pytest.raises(Forbidden):
            services.revise(memory.id, {"provenance_class": claimed}, caller=agent, at=now)
        assert remember("another", by=curator, provenance_class=claimed).provenance_class == claimed


def test_verifying_sets_class_and_instant_with_an_event(
    remember: Remember, bound_caller: Bound, now: UnixMs
) -> None:
    memory = remember("a text", by=bound_caller("red"))
    with pytest.raises(Forbidden):
        services.verify(memory.id, caller=bound_caller("red"), at=now, reason="trust me")
    curator = bound_caller("red", asserts_provenance=True)
    verified = services.verify(memory.id, caller=curator, at=now + 1, reason="read the contract")
    assert (verified.provenance_class, verified.verified_at, verified.version) == ("verified", now + 1, 2)
    event = services.history_of(memory)[-1]
    assert (event.kind, event.reason) == (kinds.MEMORY_VERIFIED, "read the contract")
    assert event.values_after == {"provenance_class": "verified", "verified_at": now + 1}


def test_verifying_again_counts_again(remember: Remember, caller: Caller, now: UnixMs) -> None:
    memory = remember("a text")
    services.verify(memory.id, caller=caller, at=now, reason="one")
    again = services.verify(memory.id, caller=caller, at=now + DAY, reason="two")
    assert (again.verified_at, again.version) == (now + DAY, 3)


# ---- erasing


def test_an_erased_text_is_nowhere_any_more(
    remember: Remember, link: Link, caller: Caller, now: UnixMs
) -> None:
    secret = "flamingo"
    memory = remember(f"the {secret}", tags=[secret], category=secret, metadata={secret: secret})
    other = remember("an egret")
    services.revise(memory.id, {"text": f"the pink {secret}"}, caller=caller, at=now)
    link(memory, other, "RELATES_TO")
    erased = services.erase(memory.id, caller=caller, at=now + 1, reason="asked for by its subject")
    assert (erased.text, erased.tag_names, erased.category, erased.metadata) == ("", [], "", {})
    assert (erased.archived, erased.erased_at, erased.version) == (True, now + 1, 3)
    assert secret not in json.dumps(_everything(), default=str)
    assert _found(secret, memory.workspace) == []
    assert _found("egret", memory.workspace) == [other.seq]
    assert memory_for(caller.reach, memory.id).workspace.memories == 1
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT hex(block) FROM {table_of(memory.workspace.id)}_data")
        stored = "".join(row[0] for row in cursor.fetchall())
    assert b"amingo".hex().upper() not in stored
    assert b"egret".hex().upper() in stored
    assert verify().ok


def test_an_erasure_leaves_a_tombstone_for_each_event_and_an_event_of_its_own(
    remember: Remember, caller: Caller, now: UnixMs
) -> None:
    memory = remember("a text")
    services.erase(memory.id, caller=caller, at=now + 1, reason="asked for")
    created, erased = services.history_of(memory)
    assert created.erased
    assert erased.kind == kinds.MEMORY_ERASED
    tombstone = Tombstone.objects.get()
    assert (tombstone.event_id, tombstone.payload_hash) == (created.id, created.payload_hash)
    assert (tombstone.reason, tombstone.actor_label, tombstone.erased_at) == ("asked for", "ada", now + 1)


def test_erasing_needs_a_reason(remember: Remember, caller: Caller, now: UnixMs) -> None:
    memory = remember("a text")
    for reason in ("", "  "):
        with pytest.raises(Invalid) as refused:
            services.erase(memory.id, caller=caller, at=now, reason=reason)
        assert refused.value.field == "reason"


def test_an_erased_memory_stays_as_it_is(remember: Remember, caller: Caller, now: UnixMs) -> None:
    memory = remember("a text")
    services.erase(memory.id, caller=caller, at=now, reason="asked for")
    assert services.erase(memory.id, caller=caller, at=now + 1, reason="again").version == 2
    for act in (
        lambda: services.revise(memory.id, {"archived": False}, caller=caller, at=now),
        lambda: services.verify(memory.id, caller=caller, at=now, reason="seen"),
    ):
        with pytest.raises(Conflict) as refused:
            act()
        assert refused.value.code == "erased"


# ---- linking


def test_a_link_is_stored_with_its_event(remember: Remember, link: Link, now: UnixMs) -> None:
    one, two = remember("one"), remember("two")
    made = link(one, two, "CONTRADICTS", strength=0.5, reason="they differ", created_at=now - DAY)
    assert (made.source.id, made.target.id, made.type, made.strength) == (one.id, two.id, "CONTRADICTS", 0.5)
    event = services.history_of(two)[-1]
    assert (event.kind, event.subject_id, event.object_id) == (kinds.LINK_CREATED, one.id, two.id)
    assert (event.occurred_at, event.recorded_at, event.reason) == (now - DAY, now, "they differ")


def test_a_self_link_an_unknown_type_and_an_unknown_end_are_refused(
    remember: Remember, caller: Caller, now: UnixMs
) -> None:
    memory = remember("one")
    for target, type_, field, code in (
        (memory.id, "RELATES_TO", "to", "self_link"),
        ("mem_nowhere", "RELATES_TO", "to", "unknown_memory"),
        (remember("two").id, "LIKES", "type", "invalid"),
    ):
        with pytest.raises(Refused) as refused:
            services.link(memory.id, target, type_, caller=caller, at=now)
        assert (refused.value.field, refused.value.code) == (field, code)


def test_a_duplicate_link_is_a_conflict_and_another_type_is_none(remember: Remember, link: Link) -> None:
    one, two = remember("one"), remember("two")
    link(one, two, "RELATES_TO")
    link(one, two, "CONTRADICTS")
    link(two, one, "RELATES_TO")
    with pytest.raises(Conflict) as refused:
        link(one, two, "RELATES_TO")
    assert (refused.value.field, refused.value.code) == ("type", "duplicate_link")


def test_a_link_into_another_workspace_is_refused(remember: Remember, link: Link) -> None:
    with pytest.raises(Unprocessable) as refused:
        link(remember("one", workspace="red"), remember("two", workspace="blue"), "RELATES_TO")
    assert (refused.value.field, refused.value.code) == ("to", "foreign_workspace")


def test_a_cycle_of_links_is_stored(remember: Remember, link: Link) -> None:
    one, two = remember("one"), remember("two")
    link(one, two, "EVOLVED_INTO")
    link(two, one, "EVOLVED_INTO")
    assert MemoryLink.objects.count() == 2


def test_replaced_since_is_the_earliest_instant_of_a_replacing_link(
    remember: Remember, link: Link, caller: Caller, now: UnixMs
) -> None:
    one, two, three = remember("one"), remember("two"), remember("three")

    def since() -> UnixMs | None:
        return Memory.objects.get(id=one.id).replaced_since

    link(one, two, "CONTRADICTS")
    link(three, one, "EVOLVED_INTO")
    assert since() is None
    late = link(one, two, "EVOLVED_INTO", created_at=now - DAY)
    assert since() == now - DAY
    early = link(one, three, "INVALIDATED_BY", created_at=now - 2 * DAY)
    assert since() == now - 2 * DAY
    services.unlink(early.id, caller=caller, at=now)
    assert since() == now - DAY
    services.unlink(late.id, caller=caller, at=now)
    assert since() is None


def test_unlinking_removes_the_link_and_keeps_its_events(
    remember: Remember, link: Link, caller: Caller, now: UnixMs
) -> None:
    one, two = remember("one"), remember("two")
    made = link(one, two, "EVOLVED_INTO", created_at=now - DAY)
    services.unlink(made.id, caller=caller, at=now + 1, reason="a mistake")
    assert not MemoryLink.objects.exists()
    event = services.history_of(one)[-1]
    assert (event.kind, event.reason, event.occurred_at) == (kinds.LINK_REMOVED, "a mistake", now + 1)
    assert event.values_before["id"] == made.id
    with pytest.raises(NotFound):
        services.unlink(made.id, caller=caller, at=now)


# ---- superseding


def test_a_successor_takes_workspace_tags_and_category_where_it_names_none(
    remember: Remember, caller: Caller, now: UnixMs
) -> None:
    old = remember("old", workspace="red", tags=["t", "u"], category="fact")
    new, made = services.supersede(old.id, sent={"text": "new"}, caller=caller, at=now, reason="it changed")
    assert (new.workspace.name, new.tag_names, new.category) == ("red", ["t", "u"], "fact")
    assert (made.source.id, made.target.id, made.type) == (old.id, new.id, "EVOLVED_INTO")
    assert Memory.objects.get(id=old.id).replaced_since == now
    assert _kinds(new) == [kinds.MEMORY_CREATED, kinds.LINK_CREATED]
    own, _ = services.supersede(
        new.id, sent={"text": "newest", "tags": [], "category": ""}, caller=caller, at=now
    )
    assert (own.tag_names, own.category) == ([], "")


def test_a_stored_memory_can_take_the_place(remember: Remember, caller: Caller, now: UnixMs) -> None:
    old, new = remember("old"), remember("new")
    found, made = services.supersede(old.id, by=new.id, relation="INVALIDATED_BY", caller=caller, at=now)
    assert (found.id, made.type) == (new.id, "INVALIDATED_BY")
    assert Memory.objects.count() == 2


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"sent": {"text": "new"}, "relation": "CONTRADICTS"}, "relation"),
        ({}, "by"),
        ({"sent": {"text": "new"}, "by": "mem_x"}, "by"),
        ({"by": "mem_nowhere"}, "by"),
        ({"sent": {"text": "new", "workspace": "blue"}}, "workspace"),
        ({"sent": {"text": ""}}, "text"),
    ],
)
def test_a_supersession_that_cannot_be_is_refused_whole(
    remember: Remember, caller: Caller, now: UnixMs, arguments: dict[str, Any], field: str
) -> None:
    old = remember("old", workspace="red")
    with pytest.raises(Refused) as refused:
        services.supersede(old.id, caller=caller, at=now, **arguments)
    assert refused.value.field == field
    assert Memory.objects.count() == 1


def test_a_memory_cannot_supersede_itself(remember: Remember, caller: Caller, now: UnixMs) -> None:
    old = remember("old")
    with pytest.raises(Invalid) as refused:
        services.supersede(old.id, by=old.id, caller=caller, at=now)
    assert refused.value.code == "self_link"


# ---- workspaces


def test_a_bound_caller_writes_into_its_own_workspace_unless_it_names_one(
    remember: Remember, bound_caller: Bound
) -> None:
    assert remember("a text", by=bound_caller("red")).workspace.name == "red"
    for workspace in ("", "blue"):
        with pytest.raises(Forbidden) as refused:
            remember("a text", by=bound_caller("red"), workspace=workspace)
        assert refused.value.field == "workspace"
    assert not Workspace.objects.filter(name="blue").exists()


def test_an_unbound_caller_writes_into_the_global_workspace_unless_it_names_one(remember: Remember) -> None:
    assert remember("a text").workspace.name == ""


WRITES: dict[str, Callable[[str, Caller, UnixMs], object]] = {
    "revise": lambda memory, who, at: services.revise(memory, {"category": "c"}, caller=who, at=at),
    "archive": lambda memory, who, at: services.archive(memory, caller=who, at=at),
    "verify": lambda memory, who, at: services.verify(memory, caller=who, at=at, reason="seen"),
    "erase": lambda memory, who, at: services.erase(memory, caller=who, at=at, reason="asked"),
    "supersede": lambda memory, who, at: services.supersede(memory, sent={"text": "b"}, caller=who, at=at),
}


@pytest.mark.parametrize("write", WRITES)
def test_a_foreign_memory_is_answered_like_an_unknown_one(
    remember: Remember, bound_caller: Bound, now: UnixMs, write: str
) -> None:
    foreign = remember("a text", workspace="blue")
    who = bound_caller("red", asserts_provenance=True)
    with pytest.raises(NotFound) as foreign_answer:
        WRITES[write](foreign.id, who, now)
    with pytest.raises(NotFound) as unknown_answer:
        WRITES[write]("mem_nowhere", who, now)
    answers = [foreign_answer.value.message, unknown_answer.value.message.replace("mem_nowhere", foreign.id)]
    assert answers[0] == answers[1]
    assert Memory.objects.get().values == foreign.values


@pytest.mark.parametrize("write", WRITES)
def test_a_global_memory_is_read_only_to_a_bound_caller(
    remember: Remember, bound_caller: Bound, now: UnixMs, write: str
) -> None:
    shared = remember("a text")
    who = bound_caller("red", asserts_provenance=True)
    assert memory_for(who.reach, shared.id).id == shared.id
    with pytest.raises(Forbidden):
        WRITES[write](shared.id, who, now)
    assert Memory.objects.get().values == shared.values


def test_a_bound_caller_can_link_neither_foreign_nor_global_memories(
    remember: Remember, link: Link, bound_caller: Bound, caller: Caller, now: UnixMs
) -> None:
    red = bound_caller("red")
    own, foreign, shared = remember("own", by=red), remember("b", workspace="blue"), remember("shared")
    for source, target, refusal in (
        (own, foreign, Unprocessable),
        (foreign, own, Unprocessable),
        (own, shared, Forbidden),
        (shared, own, Forbidden),
    ):
        with pytest.raises(refusal):
            link(source, target, "EVOLVED_INTO", by=red)
    theirs = link(foreign, remember("c", workspace="blue"), "EVOLVED_INTO")
    ours = link(shared, remember("d"), "EVOLVED_INTO")
    with pytest.raises(NotFound):
        services.unlink(theirs.id, caller=red, at=now)
    with pytest.raises(Forbidden):
        services.unlink(ours.id, caller=red, at=now)
    assert MemoryLink.objects.count() == 2


def test_an_external_id_of_another_workspace_is_not_given_away(
    remember: Remember, bound_caller: Bound
) -> None:
    remember("blue secret", workspace="blue", external_id="e")
    assert remember("red text", by=bound_caller("red"), external_id="e").text == "red text"


def test_each_workspace_has_its_own_words(remember: Remember) -> None:
    red, blue = remember("heron", workspace="red"), remember("heron", workspace="blue")
    assert _found("heron", red.workspace) == [red.seq]
    assert _found("heron", blue.workspace) == [blue.seq]
