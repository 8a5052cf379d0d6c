"""What the validity policy promises, asked of real memories with real ages, one claim after the other.

Each of the first two hangs on one weight alone: take freshness or scope out of the policy, and its order turns round.
That is what `kept` takes weights for.
"""

from __future__ import annotations

from typing import NamedTuple

from ledger.domain.instants import DAY
from recall import embedders
from recall.domain import policy
from recall.domain.policy import Weights
from recall.domain.request import RecallRequest
from recall.domain.state import Anchor
from recall.domain.words import words_of
from recall.indexes import Question
from recall.management.evaluation.measure import AT, CALLER, embed, place_of, store
from recall.pipeline import Candidate, run
from recall.services import installed_index
from vault.domain.access import GLOBAL, scope_of
from vault.domain.links import EVOLVED_INTO
from vault.services import link, remember


class Claim(NamedTuple):
    """What must hold, and whether it does."""

    text: str
    holds: bool


def kept(weights: Weights = policy.DEFAULT) -> list[Claim]:
    """Store the scenario into an empty database, ask, and say of each claim whether it holds."""
    told = _Told()
    embed()
    return [*_of_freshness(told, weights), *_of_scope(told, weights), *_of_state(told, weights)]


class _Told:
    """The memories, by what they are for."""

    def __init__(self) -> None:
        self.better, self.fresh = store(
            [
                ("The outline of the thesis is due to the reviewer on Friday.", "ages", AT - 60 * DAY),
                ("The reviewer now expects the outline by Tuesday.", "ages", AT - DAY),
            ]
        )
        # A base by rank loses 1 / n from the first place to the second, which 1.10 makes up for from n = 12 on.
        self.elsewhere, self.inside, *_ = store(
            [
                ("The reviewer of the thesis outline is Ada Berg.", GLOBAL, AT - DAY),
                (
                    "The reviewer of our thesis outline, as we agreed, is Jan Wirth from Bonn.",
                    "scope",
                    AT - DAY,
                ),
                *[
                    (f"Chapter {number} of the thesis needs a reviewer.", "scope", AT - DAY)
                    for number in range(1, 21)
                ],
            ]
        )
        self.outdated, self.successor = store(
            [
                ("The grant report goes to the office in Bonn.", "states", AT - 20 * DAY),
                ("From now on the report for the grant is sent to Berlin.", "states", AT - 10 * DAY),
            ]
        )
        link(self.outdated, self.successor, EVOLVED_INTO, caller=CALLER, at=AT)
        self.expired = _lasting("The grant report goes to the office until the end of May.", -1)
        self.expiring = _lasting("The grant report is to be in the office by next week.", 7)


def _lasting(text: str, days: int) -> str:
    """A memory that expires so many days from now."""
    sent = {
        "text": text,
        "workspace": "states",
        "created_at": AT - 5 * DAY,
        "expires_at": AT + days * DAY,
    }
    return remember(sent, caller=CALLER, at=AT, embed=False).memory.id


def _of_freshness(told: _Told, weights: Weights) -> list[Claim]:
    question = "When is the outline of the thesis due to the reviewer?"
    by_match = _served(question, "ages", weights, profile="default")
    by_validity = _served(question, "ages", weights)
    return [
        Claim("the older memory matches better", _is_above(told.better, told.fresh, by_match)),
        Claim("a fresh one comes above it", _is_above(told.fresh, told.better, by_validity)),
    ]


def _of_scope(told: _Told, weights: Weights) -> list[Claim]:
    question = "Who is the reviewer of the thesis outline?"
    by_match = _served(question, "scope", weights, profile="default")
    by_validity = _served(question, "scope", weights)
    return [
        Claim("the global memory matches better", _is_above(told.elsewhere, told.inside, by_match)),
        Claim(
            "one of the workspace, as old, comes above it",
            _is_above(told.inside, told.elsewhere, by_validity),
        ),
    ]


def _of_state(told: _Told, weights: Weights) -> list[Claim]:
    served = _served("Where does the grant report go, to which office?", "states", weights)
    grades = {hit.id: hit.graded.grade for hit in served}
    return [
        Claim("what was superseded is not served", told.outdated not in grades),
        Claim("its successor is", told.successor in grades),
        Claim("what has expired is not served", told.expired not in grades),
        Claim("what expires soon is served as stale", grades.get(told.expiring) == "stale"),
    ]


def _served(query: str, workspace: str, weights: Weights, *, profile: str = "validity") -> list[Candidate]:
    """What a recall serves under these weights: it is `recall.services.recall` without a record."""
    request = RecallRequest(query=query, workspace=workspace, profile=profile, limit=30)
    scope = scope_of(workspace, CALLER.reach)
    vector = embedders.installed().embed_query(query)
    index = installed_index()
    with index.opened(scope) as workspaces:
        anchor = Anchor(AT, past=False)
        question = Question(request, scope, workspaces, anchor, tuple(words_of(query)), vector)
        return run(question, index=index, weights=weights).served


def _is_above(one: str, other: str, served: list[Candidate]) -> bool:
    ids = [hit.id for hit in served]
    first, second = place_of(one, ids), place_of(other, ids)
    return first is not None and second is not None and first < second
