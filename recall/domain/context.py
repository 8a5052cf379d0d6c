"""Questions to a memory bank: about one item, or to the whole bank of a workspace. Two types, never one with a hole."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from ledger.domain.instants import UnixMs
from vault.domain.items import check_item_id, item_tag

# A time the caller prefers: it may order what a bank found, and never leaves anything out.
Temporal: TypeAlias = tuple[UnixMs | None, UnixMs | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class BankQuery:
    """A question to everything in the bank of one workspace."""

    text: str
    workspace: str
    limit: int = 10
    temporal: Temporal | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemQuery:
    """A question about one item, in the bank of one workspace.

    Its tags follow from the item: no argument could leave them out, widen them, or match them loosely.
    """

    item_id: str
    text: str
    workspace: str
    limit: int = 10
    temporal: Temporal | None = None

    def __post_init__(self) -> None:
        check_item_id(self.item_id)

    @classmethod
    def about(
        cls,
        item_id: str,
        *,
        text: str,
        workspace: str,
        limit: int = 10,
        temporal: Temporal | None = None,
    ) -> ItemQuery:
        """Raises Invalid where the id is empty or too long."""
        return cls(item_id=item_id, text=text, workspace=workspace, limit=limit, temporal=temporal)

    @property
    def tags(self) -> tuple[str, ...]:
        return (item_tag(self.item_id),)

    @property
    def tags_match(self) -> Literal["all_strict"]:
        return "all_strict"


Query: TypeAlias = ItemQuery | BankQuery
