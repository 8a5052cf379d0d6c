"""Items: how a to-do or an event of a calendar is named, and the tag that its context carries."""

from __future__ import annotations

import hashlib

from ledger.domain.refusals import Invalid
from vault.domain.values import check_unicode

GENERAL_TAG = "life-scope:general"  # of context about no item: nothing is ever delivered untagged
ITEM_TAG_PREFIX = "life-item:"
RESERVED_TAGS = (ITEM_TAG_PREFIX, "life-scope:")  # prefixes that no caller's tag may have
MAX_ITEM_ID = 256


def check_item_id(value: str, *, field: str = "item_id") -> str:
    """The caller's own opaque string of 1 to 256 characters; raises Invalid."""
    check_unicode(value, field=field)
    if not value:
        raise Invalid(f"{field} must not be empty", field=field, hint="leave it out to ask the whole bank")
    if len(value) > MAX_ITEM_ID:
        raise Invalid(
            f"{field} has {len(value):,} characters; at most {MAX_ITEM_ID} are taken",
            field=field,
            code="too_large",
        )
    return value


def item_tag(item_id: str) -> str:
    """`life-item:` and the SHA-256 of the id in lower-case hex: whatever the id holds, a tag can."""
    return ITEM_TAG_PREFIX + hashlib.sha256(item_id.encode()).hexdigest()
