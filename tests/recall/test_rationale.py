"""The pure rules of a context search: what is dropped, what is labelled, and what stands before what."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recall.domain.context import BankQuery, ItemQuery
from recall.domain.rationale import Placed, Source, Standing, arranged, fault_of, labels_of
from vault.domain.items import item_tag

ITEM = ItemQuery.about("itm_1", text="why", workspace="red")
BANK = BankQuery(text="why", workspace="red")
TAG = item_tag("itm_1")
OURS = Source("evt_1", "context_added", "red", "itm_1", None, 0, "", erased=False)


@pytest.mark.parametrize(
    ("tags", "source", "merged", "fault"),
    [
        ([TAG], OURS, False, None),
        ([TAG, "report"], OURS, False, None),
        ([], OURS, False, "scope_violation"),
        (["report"], OURS, False, "scope_violation"),
        ([TAG, item_tag("itm_2")], OURS, False, "scope_violation"),
        ([TAG], replace(OURS, item_id="itm_2"), False, "scope_violation"),
        ([TAG], replace(OURS, item_id=None), False, "scope_violation"),
        ([TAG], replace(OURS, workspace="blue"), False, "scope_violation"),
        ([TAG], replace(OURS, erased=True), False, "erased"),
        ([TAG], OURS, True, "scope_violation"),
    ],
)
def test_about_an_item_only_what_is_the_items_own_is_shown(
    tags: list[str], source: Source, merged: bool, fault: str | None
) -> None:
    for sees_all in (True, False):
        assert fault_of(tags, source, merged=merged, query=ITEM, sees_all=sees_all) == fault


@pytest.mark.parametrize(("sees_all", "fault"), [(True, None), (False, "untraced")])
def test_without_a_source_only_who_sees_everything_gets_it(sees_all: bool, fault: str | None) -> None:
    assert fault_of([TAG], None, merged=False, query=ITEM, sees_all=sees_all) == fault
    assert fault_of(["any"], None, merged=True, query=BANK, sees_all=sees_all) == fault


def test_the_whole_bank_is_any_items_and_still_of_one_workspace() -> None:
    assert fault_of([item_tag("itm_2")], OURS, merged=False, query=BANK, sees_all=True) is None
    foreign = replace(OURS, workspace="")
    assert fault_of([], foreign, merged=False, query=BANK, sees_all=True) == "scope_violation"


def test_only_the_very_part_of_a_series_is_unlabelled() -> None:
    assert [labels_of(*pair) for pair in ((None, None), ("a", "a"))] == [(), ()]
    for pair in ((None, "a"), ("a", None), ("a", "b")):
        assert labels_of(*pair) == ("unverifiable_occurrence",)


@pytest.mark.parametrize(
    ("kind", "object_id", "speaks"),
    [
        ("context_added", "", True),
        ("context_added", "evt_0", True),
        ("correction_supersede", "", True),
        ("correction_supersede", "evt_2", False),  # it puts another event in the place
        ("correction_retract", "", False),
        ("correction_annotate", "", False),
        ("correction_link", "evt_2", False),
        ("correction_restore", "evt_2", False),
    ],
)
def test_a_correction_that_speaks_about_an_event_is_no_rationale(
    kind: str, object_id: str, speaks: bool
) -> None:
    assert replace(OURS, kind=kind, object_id=object_id).speaks is speaks


def current(event: str) -> Standing:
    return Standing(event, speaks=True)


def stale(event: str, head: str | None) -> Standing:
    return Standing(event, speaks=True, stale=True, text_event_id=head)


def test_a_head_takes_the_better_of_two_places() -> None:
    assert arranged([stale("a", "h"), current("b"), current("h")]) == [
        Placed(2, "h", current=True),
        Placed(1, current=True),
        Placed(0),
    ]
    assert arranged([current("h"), current("b"), stale("a", "h")])[0] == Placed(0, "h", current=True)


def test_without_a_current_text_there_is_only_history() -> None:
    assert arranged([stale("a", None)]) == [Placed(0)]


EVENTS = st.sampled_from("abcdef")
STANDINGS = st.lists(
    st.one_of(
        st.builds(current, EVENTS),
        st.builds(stale, EVENTS, st.one_of(st.none(), st.sampled_from("uvw"))),
        st.builds(current, st.sampled_from("uvw")),
        st.just(Standing(None, speaks=False)),
    ),
    max_size=12,
)


@given(STANDINGS)
def test_nothing_is_lost_and_nothing_stands_twice(found: list[Standing]) -> None:
    placed = arranged(found)
    heads = {one.text_event_id for one in found if one.stale and one.text_event_id}
    indexes = [one.index for one in placed if one.index is not None]
    assert len(indexes) == len(set(indexes))
    folded = {index for index, one in enumerate(found) if not one.stale and one.event_id in heads}
    assert set(range(len(found))) - set(indexes) <= folded
    assert sorted(one.head for one in placed if one.head) == sorted(heads)


@given(STANDINGS)
def test_what_is_current_comes_first_and_what_is_stale_last(found: list[Standing]) -> None:
    placed = arranged(found)

    def rank(one: Placed) -> int:
        if one.current:
            return 0
        assert one.index is not None
        return 2 if found[one.index].stale else 1

    ranks = [rank(one) for one in placed]
    assert ranks == sorted(ranks)
    for level in (1, 2):
        kept = [one.index for one, at in zip(placed, ranks, strict=True) if at == level]
        assert kept == sorted(kept, key=lambda index: -1 if index is None else index), "in the bank's order"
