"""Who did it: the actor that every event and every record names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

ActorKind: TypeAlias = Literal["user", "key", "mcp", "cli", "system"]
ACTOR_KINDS: tuple[str, ...] = get_args(ActorKind)


@dataclass(frozen=True, slots=True)
class Actor:
    """An acting person, key or command: `id` is stable, `label` is what people read."""

    kind: ActorKind
    id: str
    label: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.label}"


SYSTEM = Actor(kind="system", id="system", label="system")
