"""Instants, ids and the hash chain, without a database."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.domain import hashchain, ids
from ledger.domain.hashchain import GENESIS, Break, Link, canonical, event_hash, first_break, payload_hash
from ledger.domain.ids import is_id, new_id
from ledger.domain.instants import (
    EARLIEST,
    LATEST,
    NotAnInstant,
    check_instant,
    format_instant,
    from_datetime,
    parse_instant,
    utc,
)

# ---- instants


@pytest.mark.parametrize(
    ("said", "unix_ms"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01t00:00:00z", 0),
        ("1970-01-01 00:00:00Z", 0),
        ("1970-01-01T00:00Z", 0),
        ("  1970-01-01T00:00:00Z ", 0),
        ("1970-01-01", 0),
        ("1969-12-31T23:59:59.999Z", -1),
        ("1970-01-01T01:00:00+01:00", 0),
        ("1969-12-31T19:30:00-04:30", 0),
        ("1970-01-01T00:00:00.0019Z", 1),
        ("1970-01-01T00:00:00.123456789Z", 123),
        ("1969-12-31T23:59:59.9999Z", -1),
        ("2024-02-29T12:00:00Z", 1_709_208_000_000),
        ("0001-01-01T00:00:00Z", EARLIEST),
        ("9999-12-31T23:59:59.999Z", LATEST),
    ],
)
def test_a_time_is_read_to_the_millisecond(said: str, unix_ms: int) -> None:
    assert parse_instant(said) == unix_ms


@pytest.mark.parametrize(
    ("said", "complaint"),
    [
        ("2026-11-30T13:58:02", "has no offset"),
        ("2026-11-30 13:58", "has no offset"),
        ("", "is not an RFC 3339 time"),
        ("yesterday", "is not an RFC 3339 time"),
        ("2026-11", "is not an RFC 3339 time"),
        ("2026-11-30T13Z", "is not an RFC 3339 time"),
        ("2026-W48-1", "is not an RFC 3339 time"),
        ("20261130T135802Z", "is not an RFC 3339 time"),
        ("٢٠٢٦-11-30T00:00:00Z", "is not an RFC 3339 time"),
        ("2026-11-30T24:00:00Z", "is not an RFC 3339 time"),
        ("2026-11-30T13:58:02+1", "is not an RFC 3339 time"),
        ("2025-02-29", "is not a time that exists"),
        ("2026-13-01T00:00:00Z", "is not a time that exists"),
        ("2016-12-31T23:59:60Z", "is not a time that exists"),
        ("0000-01-01T00:00:00Z", "is not a time that exists"),
        ("0001-01-01T00:00:00+00:01", "is not a time that exists"),
        ("9999-12-31T23:59:59-00:01", "is not a time that exists"),
        ("2026-11-30T13:58:02+25:00", "is not a time that exists"),
        ("x" * 10_000, "…"),
    ],
)
def test_what_names_no_instant_is_refused_in_words(said: str, complaint: str) -> None:
    with pytest.raises(NotAnInstant) as refused:
        parse_instant(said)
    assert complaint in str(refused.value)
    assert len(str(refused.value)) < 200


@pytest.mark.parametrize("unix_ms", [EARLIEST - 1, LATEST + 1])
def test_an_integer_outside_the_years_1_to_9999_is_no_instant(unix_ms: int) -> None:
    with pytest.raises(NotAnInstant):
        check_instant(unix_ms)


@pytest.mark.parametrize("unix_ms", [EARLIEST, 0, LATEST])
def test_the_first_and_the_last_millisecond_are_instants(unix_ms: int) -> None:
    assert check_instant(unix_ms) == unix_ms


@pytest.mark.parametrize(
    ("unix_ms", "text"),
    [
        (0, "1970-01-01T00:00:00Z"),
        (1, "1970-01-01T00:00:00.001Z"),
        (-1, "1969-12-31T23:59:59.999Z"),
        (EARLIEST, "0001-01-01T00:00:00Z"),
        (LATEST, "9999-12-31T23:59:59.999Z"),
    ],
)
def test_an_instant_has_one_spelling(unix_ms: int, text: str) -> None:
    assert format_instant(unix_ms) == text


@given(st.integers(EARLIEST, LATEST))
def test_what_is_written_is_read_back(unix_ms: int) -> None:
    assert parse_instant(format_instant(unix_ms)) == unix_ms
    assert from_datetime(utc(unix_ms)) == unix_ms


@given(st.integers(EARLIEST, LATEST), st.integers(EARLIEST, LATEST))
def test_spellings_sort_as_the_instants_do(one: int, other: int) -> None:
    # Only to the second: "Z" sorts after ".", so texts with and without milliseconds do not compare.
    one, other = one - one % 1000, other - other % 1000
    assert (format_instant(one) < format_instant(other)) == (one < other)


# ---- ids


def test_ids_of_one_millisecond_sort_in_the_order_of_making() -> None:
    made = [new_id("mem", 1_764_500_000_000) for _ in range(5_000)]
    assert made == sorted(made)
    assert len(set(made)) == len(made)


def test_an_id_made_after_the_clock_went_back_still_sorts_last() -> None:
    ahead = new_id("evt", 1_764_500_000_500)
    assert new_id("evt", 1_764_500_000_000) > ahead
    assert new_id("evt", -1) > ahead


def test_ids_of_a_later_millisecond_sort_later() -> None:
    after = ids._sequence()  # one of its own: the process's may stand at a later instant already
    assert ids._encode(after(1)) < ids._encode(after(2)) < ids._encode(after(1_764_500_000_000))


def test_threads_never_make_the_same_id_and_each_sees_its_own_in_order() -> None:
    made: dict[int, list[str]] = {}

    def make(number: int) -> None:
        made[number] = [new_id("lnk", 1_764_500_000_000) for _ in range(1_000)]

    threads = [threading.Thread(target=make, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({one for own in made.values() for one in own}) == 4_000
    assert all(own == sorted(own) for own in made.values())


def test_an_id_has_the_form_that_is_id_tells() -> None:
    made = new_id("mem", 1_764_500_000_000)
    assert is_id(made, "mem")
    assert not is_id(made, "evt")
    assert not is_id(made.upper(), "mem")
    assert not is_id(made + "\n", "mem")
    assert not is_id(made[:-1], "mem")


# ---- the chain


def _chain(length: int = 4) -> list[Link]:
    links: list[Link] = []
    for seq in range(1, length + 1):
        payload = ("0" * 32, f"text {seq}", None, '{"a":1}')
        payload_sha = payload_hash(salt=payload[0], text=payload[1], before=None, after=payload[3])
        metadata = {"id": f"evt_{seq}", "kind": "memory_created", "reason": ""}
        prev = links[-1].hash if links else GENESIS
        links.append(
            Link(
                seq=seq,
                id=f"evt_{seq}",
                metadata=metadata,
                payload=payload,
                payload_hash=payload_sha,
                prev_hash=prev,
                hash=event_hash(seq=seq, metadata=metadata, payload_hash=payload_sha, prev_hash=prev),
            )
        )
    return links


def _break(links: list[Link]) -> Break | None:
    steps = list(first_break(links))
    return steps[-1] if steps and isinstance(steps[-1], Break) else None


def test_an_untouched_chain_holds() -> None:
    assert _break(_chain()) is None
    assert _break([]) is None


def _payload(link: Link, **changed: Any) -> tuple[str, str | None, str | None, str | None]:
    assert link.payload is not None
    named = dict(zip(("salt", "text", "before", "after"), link.payload, strict=True)) | changed
    return named["salt"] or "", named["text"], named["before"], named["after"]


def _recomputed(link: Link, metadata: dict[str, Any]) -> Link:
    fresh = event_hash(
        seq=link.seq, metadata=metadata, payload_hash=link.payload_hash, prev_hash=link.prev_hash
    )
    return replace(link, metadata=metadata, hash=fresh)


@pytest.mark.parametrize(
    ("tamper", "reason"),
    [
        (lambda e: replace(e, payload=_payload(e, text="another")), "text, before or after was changed"),
        (lambda e: replace(e, payload=_payload(e, text=None)), "text, before or after was changed"),
        (lambda e: replace(e, payload=_payload(e, before="{}")), "text, before or after was changed"),
        (lambda e: replace(e, payload=_payload(e, after="{}")), "text, before or after was changed"),
        (lambda e: replace(e, payload=_payload(e, salt="1" * 32)), "text, before or after was changed"),
        (lambda e: replace(e, payload=_payload(e, salt="no hex")), "salt was changed"),
        (lambda e: replace(e, payload=_payload(e, salt="")), "salt was changed"),
        (lambda e: replace(e, payload=None), "the payload is gone, and no tombstone says why"),
        (lambda e: replace(e, payload=None, erased=True, payload_hash="0" * 64), "metadata or hash was"),
        (lambda e: replace(e, metadata={**e.metadata, "kind": "memory_erased"}), "metadata or hash was"),
        (lambda e: replace(e, metadata={**e.metadata, "reason": "because"}), "metadata or hash was changed"),
        (lambda e: replace(e, hash="0" * 64), "metadata or hash was changed"),
        (lambda e: replace(e, prev_hash="0" * 64), "prev_hash is not the hash of the event before it"),
    ],
)
def test_each_kind_of_tampering_is_named_at_the_event_it_was_done_to(tamper: Any, reason: str) -> None:
    links = _chain()
    links[1] = tamper(links[1])
    found = _break(links)
    assert found is not None
    assert (found.seq, found.id) == (2, "evt_2")
    assert reason in found.reason


def test_an_edit_with_a_recomputed_hash_breaks_the_chain_at_the_next_event() -> None:
    links = _chain()
    links[1] = _recomputed(links[1], {**links[1].metadata, "reason": "forged"})
    assert _break(links) == Break(3, "evt_3", "prev_hash is not the hash of the event before it")


def test_a_removed_event_is_missed() -> None:
    links = _chain()
    assert _break([links[0], *links[2:]]) == Break(3, "evt_3", "event 2 is missing")
    assert _break(links[1:]) == Break(2, "evt_2", "event 1 is missing")


def test_two_events_that_changed_places_are_found() -> None:
    one, two, three, four = _chain()
    assert _break([one, three, two, four]) == Break(3, "evt_3", "event 2 is missing")


def test_an_erased_payload_with_its_tombstone_leaves_the_chain_whole() -> None:
    links = _chain()
    links[1] = replace(links[1], payload=None, erased=True)
    assert _break(links) is None


def test_the_same_text_has_another_hash_under_another_salt() -> None:
    one = payload_hash(salt="00", text="yes", before=None, after=None)
    assert one != payload_hash(salt="01", text="yes", before=None, after=None)


def test_none_and_the_empty_text_are_two_payloads() -> None:
    empty = payload_hash(salt="00", text="", before=None, after=None)
    assert empty != payload_hash(salt="00", text=None, before=None, after=None)


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(exclude_categories=("Cs",))),
    lambda inner: (
        st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=("Cs",))), inner)
    ),
    max_leaves=8,
)


@given(st.dictionaries(st.text(st.characters(exclude_categories=("Cs",))), _json))
def test_canonical_json_does_not_depend_on_the_order_of_keys(value: dict[str, Any]) -> None:
    assert canonical(dict(reversed(value.items()))) == canonical(value)
    assert hashchain.digest(dict(reversed(value.items()))) == hashchain.digest(value)


def test_what_json_cannot_say_is_not_hashed() -> None:
    with pytest.raises(ValueError, match="Out of range float"):
        canonical({"strength": float("nan")})
