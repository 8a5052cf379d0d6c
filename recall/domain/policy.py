"""The validity policy: a name, a version, and the weights that a recall is graded with."""

from __future__ import annotations

from dataclasses import asdict, dataclass

NAME = "validity-multiplier-v1"
VERSION = 1


@dataclass(frozen=True, slots=True)
class Weights:
    """The numbers of `validity-multiplier-v1` (behaviour.md, section 4); defaults are the specification's."""

    freshness_half_life_secs: int = 2_592_000
    scope_bonus: float = 0.10
    provenance_boost: float = 0.15
    superseded_penalty: float = 0.35
    expiring_penalty: float = 0.70
    stale_freshness: float = 0.5
    context_invalid_freshness: float = 0.125

    @property
    def half_life_ms(self) -> int:
        return self.freshness_half_life_secs * 1000

    def as_dict(self) -> dict[str, float]:
        return asdict(self)


DEFAULT = Weights()
