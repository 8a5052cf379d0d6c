"""The hash chain: each event's hash covers its metadata, its payload's hash and the hash before it.

    payload_hash = SHA-256(salt ‖ canonical {text, before, after})
    hash         = SHA-256(canonical {seq, metadata…, payload_hash, prev_hash}), or HMAC-SHA-256 with a key

The payload is hashed with a salt of its own, so that an erased text cannot be guessed from what stays, and
the chain still verifies without it. Canonical JSON: keys sorted, no blanks, UTF-8, as RFC 8785 has it for our
value types.

Without a key the chain shows edits; it does not stop somebody who may write to the database and recomputes all of
it. With one (RFC 2104) it does, for whoever keeps the key elsewhere. A ledger may begin without and go on with one,
never the other way round: a plain hash after a keyed one is a break, or a forger would leave the key out.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

GENESIS = "0" * 64
_SALT = re.compile(r"[0-9a-f]{32}")


def canonical(value: Any) -> bytes:
    """Canonical JSON of a value: the same bytes for the same value, whatever the order of its keys."""
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    ).encode()


def digest(value: Any) -> str:
    """SHA-256 over the canonical JSON of a value, in lower-case hex."""
    return hashlib.sha256(canonical(value)).hexdigest()


def payload_hash(*, salt: str, text: str | None, before: str | None, after: str | None) -> str:
    """The hash of what may be erased; `before` and `after` are the canonical JSON texts as stored."""
    payload = canonical({"text": text, "before": before, "after": after})
    return hashlib.sha256(bytes.fromhex(salt) + payload).hexdigest()


@dataclass(frozen=True, slots=True)
class Link:
    """One event as the chain sees it. `payload` is None when it has been erased."""

    seq: int
    id: str
    metadata: Mapping[str, Any]
    payload: tuple[str, str | None, str | None, str | None] | None  # salt, text, before, after
    payload_hash: str
    prev_hash: str
    hash: str
    erased: bool = False


def event_hash(
    *, seq: int, metadata: Mapping[str, Any], payload_hash: str, prev_hash: str, key: bytes | None = None
) -> str:
    """The hash that the next event will carry as its `prev_hash`."""
    covered = canonical({**metadata, "seq": seq, "payload_hash": payload_hash, "prev_hash": prev_hash})
    if key is None:
        return hashlib.sha256(covered).hexdigest()
    return hmac.digest(key, covered, "sha256").hex()


@dataclass(frozen=True, slots=True)
class Break:
    """The first place where the chain does not hold, and why."""

    seq: int
    id: str
    reason: str


@dataclass(frozen=True, slots=True)
class Held:
    """A link that holds; `keyed` when its hash was made with the key."""

    link: Link
    keyed: bool


def first_break(links: Iterable[Link], *, key: bytes | None = None) -> Iterator[Held | Break]:
    """Walk the chain from its start; yield each intact link, and a Break at the first that is not.

    A generator, so that a million events verify in constant memory and a caller can show progress.
    """
    expected_seq, expected_prev, keyed = 1, GENESIS, False
    for link in links:
        reason = _misplaced(link, expected_seq, expected_prev) or _payload_fault(link)
        if reason:
            yield Break(link.seq, link.id, reason)
            return
        made = made_with(link, key, likely_keyed=keyed)
        if made is None or (keyed and made == "plain"):
            yield Break(link.seq, link.id, _hash_fault(made, key))
            return
        keyed = made == "keyed"
        yield Held(link, keyed)
        expected_seq, expected_prev = link.seq + 1, link.hash


def _misplaced(link: Link, expected_seq: int, expected_prev: str) -> str:
    if link.seq != expected_seq:
        return f"event {expected_seq} is missing"
    if link.prev_hash != expected_prev:
        return "prev_hash is not the hash of the event before it"
    return ""


def _payload_fault(link: Link) -> str:
    if link.payload is None:
        return "" if link.erased else "the payload is gone, and no tombstone says why"
    salt, text, before, after = link.payload
    if not _SALT.fullmatch(salt):
        return "salt was changed"
    if payload_hash(salt=salt, text=text, before=before, after=after) != link.payload_hash:
        return "text, before or after was changed"
    return ""


def made_with(
    link: Link, key: bytes | None, *, likely_keyed: bool = True
) -> Literal["keyed", "plain"] | None:
    """How an event's hash was made: with the key, without one, or in no way that is known here."""
    ways = (key, None) if likely_keyed else (None, key)
    for way in dict.fromkeys(ways):
        remade = event_hash(
            seq=link.seq,
            metadata=link.metadata,
            payload_hash=link.payload_hash,
            prev_hash=link.prev_hash,
            key=way,
        )
        if remade == link.hash:
            return "plain" if way is None else "keyed"
    return None


def _hash_fault(made: str | None, key: bytes | None) -> str:
    if made == "plain":
        return "it was written without the key, after events that were written with it"
    changed = "metadata or hash was changed"
    return f"{changed}, or it was written with {'a' if key is None else 'another'} key"
