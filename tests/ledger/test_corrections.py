"""Corrections: a new event with a reason, one effect on the chain, and a way back; history stays as it was."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ledger import queries, services
from ledger.domain.actors import SYSTEM, Actor
from ledger.domain.instants import UnixMs
from ledger.domain.refusals import Forbidden, NotFound, Refused
from ledger.models import ContextEvent, Operation, OutboxEntry, Supersession
from ledger.queries import chain_of, heads_of, verify
from ledger.services import NewContext, add_context, preview
from ledger.wording import delivered_text

pytestmark = pytest.mark.django_db

ADA = Actor(kind="user", id="1", label="ada")
REASON = "it was decided otherwise"
UNKNOWN = "evt_00000000000000000000000000"
Add = Callable[..., str]
Correct = Callable[..., ContextEvent]


@pytest.fixture
def add(now: UnixMs) -> Add:
    keys = iter(range(1_000_000))

    def added(text: str = "a rationale", **fields: Any) -> str:
        new = NewContext(text, **{"item_id": "itm_demo", **fields})
        return add_context(new, key=f"key {next(keys)}", actor=SYSTEM, at=now).event_id

    return added


@pytest.fixture
def correct(now: UnixMs) -> Correct:
    def corrected(target: str, kind: Any, **fields: Any) -> ContextEvent:
        return services.correct(target, kind=kind, **{"reason": REASON, "actor": ADA, "at": now, **fields})

    return corrected


@pytest.fixture
def previewed(now: UnixMs) -> Callable[..., services.Preview]:
    def shown(target: str, kind: Any, **fields: Any) -> services.Preview:
        return preview(target, kind=kind, **{"reason": REASON, "actor": ADA, "at": now, **fields})

    return shown


def _head(event_id: str) -> tuple[str, bool, str | None]:
    found = heads_of([event_id])[event_id]
    return found.id, found.retracted, found.text_event_id


def _refusal(call: Callable[[], object]) -> Refused:
    before = ContextEvent.objects.count(), OutboxEntry.objects.count()
    with pytest.raises(Refused) as refused:
        call()
    assert (ContextEvent.objects.count(), OutboxEntry.objects.count()) == before
    return refused.value


# ---- the five kinds


def test_a_correction_that_supersedes_takes_the_targets_place_with_its_own_text(
    add: Add, correct: Correct
) -> None:
    old = add("old", occurrence="2026-12-01")
    event = correct(old, "supersede", text="what holds now")
    assert _head(old) == (event.id, False, event.id)
    assert (event.subject_id, event.object_id, event.text) == (old, "", "what holds now")
    assert (event.item_id, event.occurrence, event.workspace) == ("itm_demo", "2026-12-01", "")
    assert (event.actor_label, event.reason) == ("ada", REASON)
    assert ContextEvent.objects.get(id=old).text == "old"
    assert [entry.event_id for entry in OutboxEntry.objects.order_by("id")] == [old, event.id]


def test_without_a_text_the_reason_is_what_holds_now(add: Add, correct: Correct) -> None:
    assert correct(add(), "supersede").text == REASON


def test_after_a_retraction_the_head_is_the_retraction_and_there_is_no_current_text(
    add: Add, correct: Correct
) -> None:
    first = add()
    second = add(supersedes=first)
    event = correct(second, "retract")
    assert _head(first) == _head(second) == (event.id, True, None)


def test_a_link_joins_two_events_that_exist(add: Add, correct: Correct) -> None:
    old, new = add("old"), add("new")
    event = correct(old, "link", successor=new)
    assert _head(old) == (new, False, new)
    assert (event.subject_id, event.object_id) == (old, new)
    assert not heads_of([event.id])[event.id].superseded


def test_a_correction_may_put_an_existing_event_in_the_targets_place(add: Add, correct: Correct) -> None:
    old, new = add("old"), add("new")
    correct(old, "supersede", successor=new)
    assert _head(old) == (new, False, new)


def test_an_annotation_changes_no_standing(add: Add, correct: Correct) -> None:
    event_id = add()
    note = correct(event_id, "annotate", text="see the minutes")
    assert _head(event_id) == (event_id, False, event_id)
    assert note.text == "see the minutes"
    assert Supersession.objects.count() == 0
    assert [event.id for event in chain_of(event_id).corrections] == [note.id]


@pytest.mark.parametrize("kind", ["supersede", "retract", "link"])
def test_a_restore_undoes_a_correction(add: Add, correct: Correct, kind: str) -> None:
    old, other = add("old"), add("other")
    wrong = correct(old, kind, **({"successor": other} if kind == "link" else {}))
    restored = correct(wrong.id, "restore")
    assert _head(old) == (old, False, old)
    row = Supersession.objects.get()
    assert (row.voided_by_id, row.voided_at) == (restored.id, restored.recorded_at)
    assert (restored.subject_id, restored.object_id) == (old, wrong.id)
    assert verify().ok


def test_a_restore_may_name_the_event_that_was_corrected(add: Add, correct: Correct) -> None:
    old = add()
    correct(old, "retract")
    correct(old, "restore")
    assert _head(old) == (old, False, old)


def test_a_restore_of_a_restore_brings_the_supersession_back(add: Add, correct: Correct) -> None:
    old = add()
    wrong = correct(old, "supersede", text="new")
    undone = correct(wrong.id, "restore")
    again = correct(undone.id, "restore")
    assert _head(old) == (wrong.id, False, wrong.id)
    assert Supersession.objects.count() == 2, "the voided one stays on record"
    assert verify().ok
    correct(again.id, "restore")
    assert _head(old) == (old, False, old)
    assert verify().ok


def test_a_correction_that_was_corrected_is_undone_itself(add: Add, correct: Correct) -> None:
    old = add()
    first = correct(old, "supersede", text="first")
    second = correct(first.id, "supersede", text="second")
    correct(first.id, "restore")
    assert _head(old) == (old, False, old)
    assert _head(first.id) == (second.id, False, second.id)
    assert verify().ok


def test_a_correction_that_stands_in_no_chain_shows_the_chain_it_speaks_about(
    add: Add, correct: Correct
) -> None:
    old, new = add("old"), add("new")
    link = correct(old, "link", successor=new)
    note = correct(correct(new, "annotate").id, "annotate")
    for event_id in (link.id, note.id):
        assert [event.id for event in chain_of(event_id).events] == [old, new]


# ---- what is refused


def test_a_second_successor_is_refused_and_the_head_is_named(add: Add, correct: Correct) -> None:
    first = add()
    head = add(supersedes=add(supersedes=first))
    for kind, fields in (("supersede", {}), ("retract", {}), ("link", {"successor": add()})):
        refusal = _refusal(lambda kind=kind, fields=fields: correct(first, kind, **fields))
        assert (refusal.status, refusal.code) == (409, "already_superseded")
        assert head in refusal.message


def test_a_cycle_is_refused(add: Add, correct: Correct) -> None:
    first = add()
    second = add(supersedes=first)
    third = add(supersedes=second)
    for successor in (first, second, third):
        refusal = _refusal(lambda successor=successor: correct(third, "link", successor=successor))
        assert (refusal.status, refusal.code) == (409, "supersession_cycle")


def test_bringing_back_a_supersession_that_would_close_a_cycle_is_refused(add: Add, correct: Correct) -> None:
    one, two = add("one"), add("two")
    undone = correct(correct(one, "link", successor=two).id, "restore")
    correct(two, "link", successor=one)
    assert _refusal(lambda: correct(undone.id, "restore")).code == "supersession_cycle"


def test_bringing_back_a_supersession_of_what_has_another_successor_is_refused(
    add: Add, correct: Correct
) -> None:
    old = add()
    undone = correct(correct(old, "retract").id, "restore")
    taken = correct(old, "supersede", text="another")
    refusal = _refusal(lambda: correct(undone.id, "restore"))
    assert (refusal.status, refusal.code) == (409, "already_superseded")
    assert taken.id in refusal.message


def test_a_correction_is_undone_once(add: Add, correct: Correct) -> None:
    wrong = correct(add(), "retract")
    undone = correct(wrong.id, "restore")
    refusal = _refusal(lambda: correct(wrong.id, "restore"))
    assert (refusal.status, refusal.code) == (409, "already_undone")
    assert undone.id in (refusal.hint or "")


def test_what_no_correction_superseded_cannot_be_restored(add: Add, correct: Correct) -> None:
    old = add()
    new = add(supersedes=old)
    assert _refusal(lambda: correct(new, "restore")).code == "nothing_to_restore"
    refusal = _refusal(lambda: correct(old, "restore"))
    assert (refusal.code, refusal.hint) == ("nothing_to_restore", f"correct {new} instead")


@pytest.mark.parametrize("reason", ["", "   ", "too short", "  a reason   "])
def test_a_correction_needs_a_reason(add: Add, correct: Correct, reason: str) -> None:
    target = add()
    refusal = _refusal(lambda: correct(target, "annotate", reason=reason))
    assert (refusal.status, refusal.code, refusal.field) == (400, "reason_required", "reason")


@pytest.mark.parametrize(
    ("kind", "fields", "field"),
    [
        ("forget", {}, "kind"),
        ("retract", {"text": "x"}, "text"),
        ("link", {}, "successor"),
        ("link", {"successor": UNKNOWN, "text": "x"}, "text"),
        ("retract", {"successor": UNKNOWN}, "successor"),
        ("restore", {"successor": UNKNOWN}, "successor"),
        ("supersede", {"text": " "}, "text"),
    ],
)
def test_what_a_kind_does_not_take_is_refused(
    add: Add, correct: Correct, kind: str, fields: dict[str, Any], field: str
) -> None:
    target = add()
    refusal = _refusal(lambda: correct(target, kind, **fields))
    assert (refusal.status, refusal.field) == (400, field)


def test_a_successor_is_in_the_same_workspace_and_about_the_same_item(add: Add, correct: Correct) -> None:
    target = add()
    for successor in (UNKNOWN, add(workspace="red")):
        refusal = _refusal(lambda successor=successor: correct(target, "link", successor=successor))
        assert (refusal.status, refusal.code, refusal.field) == (422, "unknown_event", "successor")
    other_item = add(item_id="itm_other")
    refusal = _refusal(lambda: correct(target, "link", successor=other_item))
    assert (refusal.status, refusal.code) == (422, "other_item")


def test_an_event_outside_the_callers_reach_answers_like_an_unknown_one(add: Add, correct: Correct) -> None:
    red = add(workspace="red")
    foreign = _refusal(lambda: correct(red, "annotate", readable=lambda name: name == "blue"))
    unknown = _refusal(lambda: correct(UNKNOWN, "annotate"))
    assert isinstance(foreign, NotFound)
    assert isinstance(unknown, NotFound)
    assert foreign.message.replace(red, UNKNOWN) == unknown.message
    read_only = _refusal(
        lambda: correct(red, "annotate", readable=lambda _: True, writable=lambda name: name == "")
    )
    assert isinstance(read_only, Forbidden)


def test_a_change_of_a_memory_is_not_corrected_here(correct: Correct, memory_event: ContextEvent) -> None:
    assert _refusal(lambda: correct(memory_event.id, "retract")).code == "not_correctable"


def test_a_correction_with_a_key_is_made_once(add: Add, correct: Correct) -> None:
    target = add()
    first = correct(target, "retract", key="k")
    assert correct(target, "retract", key="k").id == first.id
    assert Operation.objects.filter(key="k").count() == 1
    refusal = _refusal(lambda: correct(target, "annotate", key="k"))
    assert refusal.code == "idempotency_conflict"


# ---- the preview


@pytest.mark.parametrize("kind", ["supersede", "retract", "link", "annotate"])
def test_a_preview_shows_what_the_correction_then_does(
    add: Add, correct: Correct, previewed: Callable[..., services.Preview], kind: str
) -> None:
    first = add("first")
    second, other = add("second", supersedes=first), add("other")
    fields = {"successor": other} if kind == "link" else {}
    shown = previewed(second, kind, **fields)
    assert (shown.refused, Supersession.objects.count()) == (False, 1)
    event = correct(second, kind, **fields)
    after = chain_of(first)
    named = {services.THIS: event.id}
    assert [named.get(e.id, e.id) for e in shown.chain_after.events] == [e.id for e in after.events]
    assert _edges(shown.chain_after, named) == _edges(after, {})
    assert [named.get(e.id, e.id) for e in shown.chain_after.corrections] == [e.id for e in after.corrections]
    head = shown.chain_after.walk(first).head
    assert named.get(head, head) == after.walk(first).head == _head(first)[0]
    assert shown.delivered_text == delivered_text(event, queries.named_in(event))


def _edges(chain: queries.Chain, named: dict[str, str]) -> set[tuple[str | None, ...]]:
    return {
        tuple(
            id_ if id_ is None else named.get(id_, id_)
            for id_ in (edge.old, edge.new, edge.event_id, edge.voided_by)
        )
        for edge in chain.edges
    }


def test_a_preview_of_a_restore_shows_the_voided_supersession(
    add: Add, correct: Correct, previewed: Callable[..., services.Preview]
) -> None:
    old = add()
    wrong = correct(old, "retract")
    shown = previewed(wrong.id, "restore")
    assert shown.chain_before.walk(old).head == wrong.id
    assert shown.chain_after.walk(old).head == old
    assert [edge.effective for edge in shown.chain_after.edges] == [False]
    undone = correct(wrong.id, "restore")
    back = previewed(undone.id, "restore")
    assert back.chain_after.walk(old).head == wrong.id
    assert {edge.effective for edge in back.chain_after.edges} == {True, False}


def test_a_preview_warns_of_what_would_be_refused_and_leaves_the_chain(
    add: Add, previewed: Callable[..., services.Preview]
) -> None:
    first = add()
    second = add(supersedes=first)
    for target, kind, fields, code in (
        (first, "retract", {}, "already_superseded"),
        (second, "link", {"successor": first}, "supersession_cycle"),
        (second, "link", {"successor": UNKNOWN}, "unknown_event"),
        (second, "link", {"successor": add(item_id=None)}, "other_item"),
        (second, "restore", {}, "nothing_to_restore"),
        (second, "retract", {"reason": ""}, "reason_required"),
    ):
        shown = previewed(target, kind, **fields)
        assert shown.refused
        assert code in [told for told, _ in shown.warnings]
        assert shown.chain_after == shown.chain_before


def test_a_preview_warns_of_a_successor_that_is_older(
    add: Add, previewed: Callable[..., services.Preview]
) -> None:
    older, newer = add(), add()
    shown = previewed(newer, "link", successor=older)
    assert ([code for code, _ in shown.warnings], shown.refused) == (["successor_is_older"], False)


def test_a_preview_writes_nothing(
    add: Add, previewed: Callable[..., services.Preview], django_assert_max_num_queries: Any
) -> None:
    target = add()
    before = ContextEvent.objects.count(), OutboxEntry.objects.count(), Supersession.objects.count()
    with django_assert_max_num_queries(12) as captured:
        previewed(target, "supersede", text="new")
    assert all(query["sql"].lstrip().startswith(("SELECT", "WITH")) for query in captured.captured_queries)
    assert (
        ContextEvent.objects.count(),
        OutboxEntry.objects.count(),
        Supersession.objects.count(),
    ) == before


# ---- what a bank is told


def test_a_superseding_text_begins_by_naming_the_old_event(add: Add, correct: Correct) -> None:
    old, other = add("old"), add("other")
    named = f"context event {old} of 2026-11-30T12:00:00Z"

    def told(event: ContextEvent) -> str:
        return delivered_text(event, queries.named_in(event))

    assert told(ContextEvent.objects.get(id=old)) == "old"
    new = ContextEvent.objects.get(id=add("new", supersedes=old))
    assert told(new) == f"This supersedes {named}: new"
    third = correct(new.id, "supersede", text="third")
    assert told(third) == f"This supersedes context event {new.id} of 2026-11-30T12:00:00Z: third"
    assert told(correct(third.id, "retract")).startswith(f"This retracts context event {third.id} of")
    link = correct(other, "link", successor=old)
    assert told(link).startswith(f"This supersedes context event {other} of 2026-11-30T12:00:00Z: context")
    assert f"context event {old} has taken its place. {REASON}" in told(link)
    assert told(correct(old, "annotate", text="a note")) == f"This is a note on {named}: a note"
    undone = correct(link.id, "restore")
    assert told(undone).startswith(f"This restores context event {other} of")
    assert f"correction {link.id} is void: {REASON}" in told(undone)
    assert f"again: context event {old} has taken its place" in told(correct(undone.id, "restore"))


# ---- whatever people do


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    moves=st.lists(
        st.tuples(
            st.sampled_from(["add", "supersede", "retract", "link", "annotate", "restore"]),
            st.integers(0, 30),
            st.integers(0, 30),
        ),
        max_size=25,
    )
)
def test_whatever_is_corrected_each_event_has_one_head_and_the_ledger_verifies(
    moves: list[tuple[str, int, int]], add: Add, correct: Correct
) -> None:
    events = [add()]
    for kind, one, other in moves:
        target, second = events[one % len(events)], events[other % len(events)]
        try:
            if kind == "add":
                events.append(add(**({"supersedes": target} if other % 2 else {})))
            elif kind == "link":
                events.append(correct(target, "link", successor=second).id)
            else:
                events.append(correct(target, kind).id)
        except Refused:
            continue
    found = heads_of(events)
    assert set(found) == set(events)
    effective = Supersession.objects.effective()
    assert not any(head.cycle for head in found.values())
    assert not effective.filter(old__in={head.id for head in found.values()}).exists()
    assert {id_ for id_, head in found.items() if head.superseded} == set(
        effective.filter(old__in=events).values_list("old_id", flat=True)
    )
    assert verify().ok
