"""The recall record: everything about one recall, written once, and read back as it was.

A record is one row to find it by, one compressed document that holds the whole of it, and one small row for each
memory it served, suppressed or replaced. The document:

    version      of this layout
    request      the full request, defaults filled in
    scope        the workspaces covered (null: every one there was)
    asked_at, anchor, anchor_past
    actor, surface
    policy       {name, version, weights}
    index        {lexical: engine and version}, embedder, reranker: the models, where there are any
    ledger_head  {seq, hash}
    answer       as it was sent; of a projection three lists of hits, of a fused batch also its members' ids; of a
                 context search its own kind of hits
    candidates   every candidate with every factor, its position and its verdict, a list for each fact
    text_sha256  of each memory served (of each hit of a context search, by rank), which stays when its text is erased
    digest       SHA-256 over what the answer says, ids of the recall and timings aside

It keeps the text of what was served, and no text of what was not.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import orjson
from django.db import DatabaseError, connection, transaction
from django.db.models import Q
from zstandard import ZstdCompressor, ZstdDecompressor

from ledger.domain.hashchain import digest as sha256_of
from ledger.domain.ids import new_id
from ledger.domain.instants import UnixMs
from ledger.domain.refusals import NotFound, Unavailable
from ledger.erasure import Eraser, Place, Subject
from ledger.queries import head
from recall.answers import answer_json, grade_counts
from recall.domain.policy import NAME, VERSION
from recall.domain.projecting import LISTS
from recall.domain.request import RecallRequest
from recall.models import RecallRecord, RecallScope
from recall.pipeline import Candidate, Run, timed
from vault.domain.access import Reach, Scope
from vault.services import Caller, sha256

LAYOUT = 2


AnswerOf: TypeAlias = Callable[..., dict[str, Any]]  # (run, *, recall_id) -> the answer's JSON


class ServedEvent(NamedTuple):
    """A context event whose text an answer holds, with its first hit's grade and rank, and whether it was stale."""

    id: str
    grade: str
    rank: int
    stale: bool


@dataclass(frozen=True, slots=True)
class Draft:
    """A record that stands and is not written yet: until it is, its answer is nobody's."""

    run: Run
    answer: dict[str, Any]
    row: dict[str, Any]
    events: Sequence[ServedEvent] = ()


def write(
    run: Run,
    *,
    caller: Caller,
    surface: str,
    at: UnixMs,
    engine: Mapping[str, str],
    answer_of: AnswerOf = answer_json,
    asked: Mapping[str, Any] | None = None,
    events: Sequence[ServedEvent] = (),
) -> dict[str, Any]:
    """Write the record of a finished run and return the answer; raises Unavailable, and then nothing is served."""
    (answer,) = keep(
        [
            draft(
                run,
                caller=caller,
                surface=surface,
                at=at,
                engine=engine,
                answer_of=answer_of,
                asked=asked,
                events=events,
            )
        ]
    )
    return answer


def draft(
    run: Run,
    *,
    caller: Caller,
    surface: str,
    at: UnixMs,
    engine: Mapping[str, str],
    answer_of: AnswerOf = answer_json,
    asked: Mapping[str, Any] | None = None,
    events: Sequence[ServedEvent] = (),
) -> Draft:
    """The record of a finished run. `asked` is the request as it was made, where it was not the run's own question."""
    recall_id = new_id("rcl", at)
    with timed(run.timings_us, "answer"):
        answer = answer_of(run, recall_id=recall_id)
    total_us = sum(run.timings_us.values())
    with timed(run.timings_us, "record"):
        document = _document(run, answer, caller=caller, surface=surface, at=at, engine=engine, asked=asked)
        row = _row(run, document, recall_id, caller=caller, surface=surface, at=at, total_us=total_us)
    return Draft(run, answer, row, events)


def keep(drafts: Sequence[Draft]) -> list[dict[str, Any]]:
    """Write records, all or none, in one short transaction; only then are there answers. Raises Unavailable."""
    took: dict[str, int] = {}
    with timed(took, "record"):
        try:
            with transaction.atomic(), connection.cursor() as cursor:
                for drafted in drafts:
                    _require_not_erased(cursor, drafted)
                    _insert(cursor, drafted)
        except DatabaseError as error:
            raise Unavailable(
                "the record of this recall could not be written, so nothing is served",
                code="record_unavailable",
            ) from error
    for drafted in drafts:
        timings_us = drafted.run.timings_us
        timings_us["record"] += took["record"]
        drafted.answer["timings_ms"] = {name: us / 1000 for name, us in timings_us.items()}
    return [drafted.answer for drafted in drafts]


def _document(
    run: Run,
    answer: Mapping[str, Any],
    *,
    caller: Caller,
    surface: str,
    at: UnixMs,
    engine: Mapping[str, str],
    asked: Mapping[str, Any] | None,
) -> dict[str, Any]:
    question = run.question
    seq, hash_ = head()
    hashes = _hashes(run, answer)
    return {
        "version": LAYOUT,
        "request": question.request.as_dict() if asked is None else asked,
        "scope": question.scope.workspaces,
        "asked_at": at,
        "anchor": question.anchor.at,
        "anchor_past": question.anchor.past,
        "actor": {"kind": caller.actor.kind, "id": caller.actor.id, "label": caller.actor.label},
        "surface": surface,
        "policy": {"name": NAME, "version": VERSION, "weights": run.weights.as_dict()},
        "index": {"lexical": engine["lexical"]},
        "embedder": engine["dense"] or None,
        "reranker": engine["reranker"] or None,
        "ledger_head": {"seq": seq, "hash": hash_},
        "answer": answer,
        "candidates": _columns(_in_order(run)),
        "text_sha256": hashes,
        "digest": digest_of(answer, hashes),
    }


def _hashes(run: Run, answer: Mapping[str, Any]) -> dict[str, str]:
    if "hits" not in answer:
        return {c.id: run.memories[c.id].text_sha256 for c in run.served}
    return {str(hit["rank"]): sha256(hit["content"]) for hit in answer["hits"]}


def _in_order(run: Run) -> list[Candidate]:
    """Served ones first, in order; then the rest of the pool; then what was taken out, by fused score."""

    def place(candidate: Candidate) -> tuple[int, float, str]:
        if candidate.position is not None:
            return 0, candidate.position, candidate.id
        if candidate.pool_rank is not None:
            return 1, -candidate.final, candidate.id
        return 2, -candidate.fused, candidate.id

    return sorted(run.considered.values(), key=place)


def _columns(candidates: list[Candidate]) -> dict[str, list[Any]]:
    """The candidates, a list for each fact: built in a third of the time that a row for each takes, and smaller."""
    validities = [c.graded for c in candidates]
    return {
        "id": [c.facts.id for c in candidates],
        "workspace": [c.facts.workspace for c in candidates],
        "strategies": [{name: seen[:] for name, seen in c.sightings.items()} for c in candidates],
        "words": [c.measured and c.measured.lexical for c in candidates],
        "cosine": [c.measured and c.measured.cosine for c in candidates],
        "fused": [c.fused for c in candidates],
        "pool_rank": [c.pool_rank for c in candidates],
        "reranked": [c.reranked for c in candidates],
        "base": [c.base for c in candidates],
        "judgements": [[judged[:3] for judged in v.judgements] for v in validities],  # rule, factor, signal
        "multiplier": [v.multiplier for v in validities],
        "final": [c.final for c in candidates],
        "position": [c.position for c in candidates],
        "grade": [v.grade for v in validities],
        "cause": [v.cause for v in validities],
        "reason": [c.state.reason for c in candidates],
        "verdict": [c.verdict for c in candidates],
        "detail": [c.detail for c in candidates],
        "replaces": [c.replaces for c in candidates],
        "injected": [c.injected for c in candidates],
        "age_ms": [v.age_ms for v in validities],
    }


def digest_of(answer: Mapping[str, Any], text_sha256: Mapping[str, str]) -> str:
    """SHA-256 over the canonical JSON of what the answer says: results, state filter and outcome; of a
    projection, also where its lists end.

    Texts count by their hashes, so that the digest can be checked when a text has been erased.
    """
    if "hits" in answer:
        hits = [_identity(hit, text_sha256) for hit in answer["hits"]]
        return sha256_of({"hits": hits, "outcome": answer["outcome"]})
    results = [
        {
            "id": hit["memory"]["id"],
            "version": hit["memory"]["version"],
            "text_sha256": text_sha256[hit["memory"]["id"]],
            "rank": hit["rank"],
            "score": hit["score"],
            "validity": hit.get("validity"),
            "state_replaces": hit["state_replaces"],
        }
        for hit in hits_in(answer)
    ]
    told: dict[str, Any] = {
        "results": results,
        "state_filter": answer.get("state_filter"),
        "outcome": answer["outcome"],
    }
    if "results" not in answer:
        told["lists"] = {name: len(answer[name]) for name in LISTS}
    return sha256_of(told)


# Of a context search's hit: what may be taken away, by an erasure or from who may not see it.
_TEXTS = ("content", "context", "tags", "document_id", "occurrence", "erased", "withheld")


def _identity(hit: Mapping[str, Any], text_sha256: Mapping[str, str]) -> dict[str, Any]:
    """A hit of a context search as its digest covers it."""
    told = {name: value for name, value in hit.items() if name not in _TEXTS}
    return {**told, "text_sha256": text_sha256[str(hit["rank"])]}


def hits_in(answer: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Every memory served, in order of rank: a projection has three lists of them, a context search other hits."""
    if "results" in answer:
        return [*answer["results"]]
    return [hit for name in LISTS for hit in answer.get(name, ())]


def _row(
    run: Run,
    document: dict[str, Any],
    recall_id: str,
    *,
    caller: Caller,
    surface: str,
    at: UnixMs,
    total_us: int,
) -> dict[str, Any]:
    """The columns of `recall_recallrecord`."""
    request = run.question.request
    return dict(
        id=recall_id,
        created_at=at,
        anchor=run.question.anchor.at,
        actor_kind=caller.actor.kind,
        actor_id=caller.actor.id,
        actor_label=caller.actor.label,
        surface=surface,
        workspace=_belongs_to(request, caller.reach),
        scope_id=_scope_id(run.question.scope),
        profile=request.profile,
        mode=request.mode,
        history=not request.current_only,
        query=request.query,
        outcome=document["answer"]["outcome"]["status"],
        served=len(run.served),
        superseded_served=sum(c.graded.superseded for c in run.served),
        suppressed=len(run.suppressed),
        candidates=len(run.considered),
        warnings=" ".join(sorted(run.warnings)),
        total_us=total_us,
        digest=document["digest"],
        ledger_seq=document["ledger_head"]["seq"],
        ledger_hash=document["ledger_head"]["hash"],
        document=_packed(document),
        **grade_counts(run.served),
    )


def _packed(document: Mapping[str, Any]) -> bytes:
    return ZstdCompressor(level=1).compress(orjson.dumps(document))


def _belongs_to(request: RecallRequest, reach: Reach) -> str:
    """A bound caller's own workspace; else the one asked for, or the global one."""
    return reach.home or request.workspace or ""


def _scope_id(scope: Scope) -> int:
    names = None if scope.workspaces is None else sorted(scope.workspaces)
    text = json.dumps(names)
    with connection.cursor() as cursor:  # asked once a recall, and there at all but the first
        cursor.execute("SELECT id FROM recall_recallscope WHERE workspaces = %s", [text])
        row = cursor.fetchone()
    return row[0] if row else RecallScope.objects.get_or_create(workspaces=text)[0].pk


def _require_not_erased(cursor: Any, drafted: Draft) -> None:
    """A text that was erased since the recall read it must not come back into the store by its record."""
    if drafted.events:
        cursor.execute(
            "SELECT t.event_id FROM json_each(%s) AS hit JOIN ledger_tombstone t ON t.event_id = hit.value LIMIT 1",
            [json.dumps([event.id for event in drafted.events])],
        )
        _refuse_erased(cursor.fetchone())
    cursor.execute(
        "SELECT m.id FROM json_each(%s) AS hit JOIN vault_memory m ON m.id = hit.value "
        "WHERE m.erased_at IS NOT NULL LIMIT 1",
        [json.dumps([candidate.id for candidate in drafted.run.served])],
    )
    _refuse_erased(cursor.fetchone())


def _refuse_erased(row: tuple[str] | None) -> None:
    if row is not None:
        raise Unavailable(
            f"{row[0]} was erased while it was recalled", code="erased_meanwhile", hint="ask again"
        )


_VERDICTS = {"served": "served", "suppressed": "suppressed", "replaced_by": "replaced"}


def _insert(cursor: Any, drafted: Draft) -> None:
    """The record, and one small row for each memory served, suppressed or replaced, and for each event served.

    Plain SQL: this runs in every recall, which may suppress hundreds.
    """
    row, run = drafted.row, drafted.run
    columns, places = ", ".join(row), ", ".join(["%s"] * len(row))
    cursor.execute(
        f"INSERT INTO recall_recallrecord ({columns}) VALUES ({places}) RETURNING seq", list(row.values())
    )
    (seq,) = cursor.fetchone()
    hits = [
        (c.facts.seq, _VERDICTS[c.verdict], c.graded.grade, c.position)
        for c in run.considered.values()
        if c.verdict in _VERDICTS and c.facts.seq
    ]
    cursor.execute(
        "INSERT INTO recall_recordhit (record_id, memory_id, verdict, grade, rank) "
        "SELECT %s, value ->> 0, value ->> 1, value ->> 2, value ->> 3 FROM json_each(%s)",
        [seq, json.dumps(hits)],
    )
    if drafted.events:
        cursor.executemany(
            "INSERT INTO recall_recordevent (record_id, event_id, grade, rank, stale) VALUES (%s, %s, %s, %s, %s)",
            [(seq, *event) for event in drafted.events],
        )


# ----------------------------------------------------------------------------------------------------- reading


@dataclass(frozen=True, slots=True)
class Stored:
    """A record as it was written: the row, and its document."""

    row: RecallRecord
    document: dict[str, Any]

    @property
    def answer(self) -> dict[str, Any]:
        stored: dict[str, Any] = self.document["answer"]
        return stored

    @property
    def hits(self) -> list[dict[str, Any]]:
        """Every hit that was served, in order of rank."""
        return hits_in(self.answer)

    @property
    def digest_holds(self) -> bool:
        """Whether the stored answer still is the one whose digest was written beside it."""
        return digest_of(self.answer, self.document["text_sha256"]) == self.row.digest

    @property
    def candidates(self) -> list[dict[str, Any]]:
        columns = {**self._not_in_layout_1(), **self.document["candidates"]}
        rows = zip(*columns.values(), strict=True)
        return [_spelt_out(dict(zip(columns, row, strict=True))) for row in rows]

    def _not_in_layout_1(self) -> dict[str, list[Any]]:
        """Facts that the first layout did not hold."""
        absent = [None] * len(self.document["candidates"]["id"])
        return {"words": absent, "cosine": absent, "reranked": absent}


def _spelt_out(candidate: dict[str, Any]) -> dict[str, Any]:
    """A candidate with its judgements taken apart: the factors, and the signals."""
    judgements = candidate.pop("judgements")
    candidate["strategies"] = {name: [*seen, ""][:3] for name, seen in candidate["strategies"].items()}
    candidate["factors"] = [[rule, factor] for rule, factor, _ in judgements]
    candidate["signals"] = [signal for _, _, signal in judgements if signal is not None]
    return candidate


def read(row: RecallRecord) -> Stored:
    return Stored(row, orjson.loads(ZstdDecompressor().decompress(bytes(row.document))))


def record_for(reach: Reach, recall_id: str) -> Stored:
    """A record whose whole scope the viewer may read; any other is answered like an unknown one."""
    row = RecallRecord.objects.select_related("scope").visible_to(reach).filter(id=recall_id).first()
    if row is None:
        raise NotFound(f"no recall {recall_id}", hint="ids begin with rcl_")
    stored = read(row)
    if not reach.sees_all:
        stored.document["ledger_head"] = None  # it tells of every workspace: how much was written, and when
        _withhold_untraced(stored.answer)
    return stored


def _withhold_untraced(answer: dict[str, Any]) -> None:
    """What a bank returned without a source event is only for who sees everything: nobody knows whose it is."""
    for hit in answer.get("hits", ()):
        if hit["source_event_id"] is None:
            _blank(hit)
            hit.update(document_id=None, occurrence=None, withheld=True)


def blank_text(memory_id: str) -> int:
    """Take an erased memory's text, and which of the question's words it held, out of every record that has a row of
    it; returns how many records.

    Digests stay: they cover the text's hash. Not through the ORM, which refuses every change of a record.
    """
    changed = 0
    for row in RecallRecord.objects.filter(hits__memory__id=memory_id).distinct().iterator():
        document = read(row).document
        for hit in hits_in(document["answer"]):
            if hit["memory"]["id"] == memory_id:
                hit["memory"].update(text="", metadata={}, tags=[], category="", erased=True)
        _blank_context(document, "memory_id", memory_id)
        _blank_reasons(document, memory_id)
        _write_anew(row, document)
        changed += 1
    return changed


def blank_event(event_id: str) -> int:
    """Take an erased event's text out of every record that served it; returns how many records. Digests stay."""
    changed = 0
    for row in RecallRecord.objects.filter(events__event__id=event_id).iterator():
        document = read(row).document
        _blank_context(document, "source_event_id", event_id)
        _write_anew(row, document)
        changed += 1
    return changed


def _holding(subject: Subject) -> Iterator[Place]:
    served = Q(hits__memory__id__in=subject.memory_ids) | Q(events__event__id__in=subject.event_ids)
    rows = RecallRecord.objects.filter(served).distinct().order_by("seq")
    yield Place.of(
        "recall records: answers, reasons, candidates",
        rows.values_list("id", flat=True),
        "blanked; digests stay",
    )


def _blank_all(subject: Subject) -> None:
    for memory_id in subject.memory_ids:
        blank_text(memory_id)
    for event_id in subject.event_ids:
        blank_event(event_id)


ERASER = Eraser(_holding, _blank_all)


def _blank_context(document: Mapping[str, Any], name: str, id_: str) -> None:
    for hit in document["answer"].get("hits", ()):
        if hit[name] == id_:
            _blank(hit)
            hit["erased"] = True


def _blank(hit: dict[str, Any]) -> None:
    hit.update(content="", context="", tags=[])


def _write_anew(row: RecallRecord, document: Mapping[str, Any]) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE recall_recallrecord SET document = %s WHERE seq = %s", [_packed(document), row.seq]
        )


def _blank_reasons(document: dict[str, Any], memory_id: str) -> None:
    candidates = document["candidates"]
    found = candidates["strategies"][candidates["id"].index(memory_id)].get("lexical", [])
    found[2:] = ["matched words of an erased text" for _ in found[2:]]
    for placed in document["answer"].get("fused_trace", {}).get("placement", []):
        if placed["id"] == memory_id and isinstance(placed["sources"].get("lexical"), dict):
            placed["sources"]["lexical"]["reason"] = "matched words of an erased text"
