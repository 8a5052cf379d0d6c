"""Asking the questions of a data set in every way that recall can be asked, and counting what was served.

Everything happens in an empty database that is thrown away after, through the same services as a live one, and at one
instant, so that the figures of a day are those of any other. The memories of the pairs are of all ages up to a year,
spread evenly by chance from a fixed seed: without ages the validity profile would have nothing to tell apart.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from django.conf import settings
from django.core.management import call_command
from django.db import connections

from ledger.domain.actors import Actor
from ledger.domain.instants import DAY, UnixMs, parse_instant
from ledger.domain.refusals import Invalid, Refused
from recall import embedders
from recall.domain.request import OF_MODE, RecallRequest
from recall.domain.state import Anchor, Successions, states_of
from recall.management.evaluation import memora
from recall.management.evaluation.figures import Ranks
from recall.management.evaluation.memora import Labels, Persona
from recall.management.evaluation.sets import KINDS, Pair, Update
from recall.services import recall
from vault import vectors
from vault.domain.access import Reach
from vault.domain.links import EVOLVED_INTO
from vault.importers.memora import FORMAT
from vault.importers.run import Import, finish, started
from vault.models import Memory
from vault.queries import chains_from
from vault.services import Caller, link, remember_many

AT: UnixMs = parse_instant("2026-06-01T12:00:00Z")
CALLER = Caller(Actor("cli", "evaluate", "evaluate"), Reach.everything())
TOP = 10
PAIRS, UPDATES = "pairs", "updates"  # workspaces
SEED = 1
YEAR = 365 * DAY
BETWEEN_UPDATES = 60 * DAY


@dataclass(frozen=True, slots=True)
class Way:
    """One way to ask. Validity decides the order in fused mode only, so the others are not asked with it."""

    mode: str
    fusion: str = "score"
    profile: str = "default"

    @property
    def name(self) -> str:
        if self.mode in ("lexical", "dense"):
            return f"{self.mode} alone"
        return f"{self.mode} {self.fusion}{', validity' if self.profile == 'validity' else ''}"

    def ask(self, query: str, *, workspace: str, at: UnixMs | None = None) -> list[str]:
        """The ids of the ten that are served, best first."""
        request = RecallRequest(
            query=query,
            workspace=workspace,
            limit=TOP,
            mode=self.mode,
            strategies=OF_MODE.get(self.mode, (self.mode,)),
            fusion=self.fusion,
            profile=self.profile,
            query_time_unix_ms=at,
        )
        answer = recall(request, caller=CALLER, surface="evaluate", at=AT)
        return [hit["memory"]["id"] for hit in answer["results"]]


WAYS = (
    Way("lexical"),
    Way("dense"),
    Way("hybrid"),
    Way("fused"),
    Way("fused", "rrf"),
    Way("fused", profile="validity"),
    Way("fused", "rrf", profile="validity"),
)


@contextmanager
def empty_database() -> Iterator[None]:
    """Let the code inside work in an empty database beside the real one; it is thrown away after."""
    real = connections["default"]
    if real.vendor != "sqlite":
        raise Invalid("an evaluation needs SQLite: it works in a database of its own")
    with TemporaryDirectory(dir=settings.DATA_DIR, prefix="evaluate-") as folder:
        scratch = real.copy()
        scratch.settings_dict["NAME"] = str(Path(folder) / "scratch.sqlite3")
        connections["default"] = scratch
        try:
            call_command("migrate", verbosity=0, interactive=False)
            yield
        finally:
            connections["default"] = real
            scratch.close()


def embed() -> None:
    """Make all vectors that are missing. Raises EmbedderUnavailable."""
    for _ in vectors.embed_missing(embedders.installed()):
        pass


def store(rows: Sequence[tuple[str, str, UnixMs]]) -> list[str]:
    """Store (text, workspace, created_at); the ids, in order."""
    sent = [
        ({"text": text, "workspace": workspace, "created_at": created_at}, "")
        for text, workspace, created_at in rows
    ]
    ids = []
    for start in range(0, len(sent), 1000):
        for outcome in remember_many(sent[start : start + 1000], caller=CALLER, at=AT):
            if isinstance(outcome, Refused):
                raise outcome
            ids.append(outcome.memory.id)
    return ids


def place_of(wanted: str, served: Sequence[str]) -> int | None:
    return served.index(wanted) + 1 if wanted in served else None


# -------------------------------------------------------------------------------------------------- pairs


def store_pairs(pairs: Sequence[Pair]) -> list[str]:
    chance = random.Random(SEED)  # noqa: S311 - ages, no secrets
    return store([(pair.memory, PAIRS, AT - int(chance.random() * YEAR)) for pair in pairs])


def ranks_of_pairs(pairs: Sequence[Pair], ids: Sequence[str], way: Way) -> dict[str, Ranks]:
    """By kind: at which place each question's memory is served."""
    ranks: dict[str, list[int | None]] = {kind: [] for kind in KINDS}
    for pair, wanted in zip(pairs, ids, strict=True):
        ranks[pair.kind].append(place_of(wanted, way.ask(pair.question, workspace=PAIRS)))
    return {kind: of_kind for kind, of_kind in ranks.items() if of_kind}


# -------------------------------------------------------------------------------------------------- updates


@dataclass(frozen=True, slots=True)
class Updated:
    """How many outdated memories were served above their successors, or in their stead, and the successors' places."""

    outdated_above: int
    successors: Ranks


def store_updates(updates: Sequence[Update]) -> list[tuple[str, str]]:
    """Store old and new ones, each pair with its link; their ids."""
    chance = random.Random(SEED)  # noqa: S311
    rows = []
    for update in updates:
        told = AT - BETWEEN_UPDATES - int(chance.random() * (YEAR - BETWEEN_UPDATES))
        rows += [(update.old, UPDATES, told), (update.new, UPDATES, told + BETWEEN_UPDATES)]
    ids = store(rows)
    joined = list(zip(ids[::2], ids[1::2], strict=True))
    for old, new in joined:
        link(old, new, EVOLVED_INTO, caller=CALLER, at=AT)
    return joined


def updated(updates: Sequence[Update], ids: Sequence[tuple[str, str]], way: Way) -> Updated:
    above = 0
    successors = []
    for update, (old, new) in zip(updates, ids, strict=True):
        served = way.ask(update.question, workspace=UPDATES)
        above += old in served and (new not in served or served.index(old) < served.index(new))
        successors.append(place_of(new, served))
    return Updated(above, successors)


# -------------------------------------------------------------------------------------------------- memora


@dataclass(frozen=True, slots=True)
class Wanted:
    """A question of a persona with what its labels come to: for each thing to be remembered the memories that say it
    and are current, and all those that hold something forgotten."""

    workspace: str
    query: str
    at: UnixMs
    evidence: tuple[frozenset[str], ...]
    forgotten: frozenset[str]


@dataclass(frozen=True, slots=True)
class Remembered:
    evidence: int
    in_top: int
    forgotten_served: int


def store_memora(source: Path) -> list[Wanted]:
    """Import the sessions and read the labels. Raises Refused where a session cannot be taken."""
    job = Import(source, FORMAT, None, CALLER, lambda: AT)
    run = finish(started(job), job)
    if run.refused:
        raise Invalid(f"{run.refused_count} sessions were refused, the first: {run.refused[0]['message']}")
    return [
        _wanted(persona, question) for persona in memora.personas(source) for question in persona.questions
    ]


def _wanted(persona: Persona, question: Labels) -> Wanted:
    at = memora.asked_at(question)
    memories = {
        memory.metadata["session_id"]: memory.id
        for memory in Memory.objects.filter(workspace__name=persona.name)
    }
    current = _current(sorted(memories.values()), Anchor(at, past=True))
    evidence = [memora.telling(persona, question, thing) for thing in memora.present(question)]
    gone = [
        memora.telling(persona, question, thing, before=session)
        for thing, session in memora.forgotten(persona, question)
    ]
    return Wanted(
        workspace=persona.name,
        query=question["question"],
        at=at,
        evidence=tuple(_ids(memories, sessions) & current for sessions in evidence),
        forgotten=frozenset().union(*(_ids(memories, sessions) for sessions in gone)),
    )


def _ids(memories: dict[int, str], sessions: set[int]) -> frozenset[str]:
    return frozenset(memories[number] for number in sessions if number in memories)


def _current(ids: Sequence[str], anchor: Anchor) -> set[str]:
    chains = chains_from(ids, until=anchor.until)
    states = states_of(ids, chains.facts, Successions(chains.edges, anchor), anchor)
    return {id_ for id_, state in states.items() if state.current}


def remembered(wanted: Sequence[Wanted], way: Way) -> Remembered:
    evidence = in_top = forgotten_served = 0
    for question in wanted:
        served = way.ask(question.query, workspace=question.workspace, at=question.at)
        evidence += len(question.evidence)
        in_top += sum(not standing.isdisjoint(served) for standing in question.evidence)
        forgotten_served += len(question.forgotten.intersection(served))
    return Remembered(evidence, in_top, forgotten_served)
