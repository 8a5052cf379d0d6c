"""Write memories out as JSON lines: `export_memories [--workspace W] [--history] [--validity-annotate] [--at T]
[--output FILE]`."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from django.core.management.base import BaseCommand, CommandError

from ledger.clock import now_ms
from ledger.domain.instants import NotAnInstant, UnixMs, format_instant, parse_instant
from recall.answers import state_json
from recall.domain.state import Anchor, State, Successions, states_of
from recall.domain.validity import grade_in_state
from recall.pipeline import anchored
from vault.importers.jsonl import link_line, memory_line
from vault.models import Memory, MemoryLink, Workspace
from vault.queries import chains_from, snapshot

PAGE = 500
USAGE = 2


@dataclass(frozen=True, slots=True)
class Export:
    """What is written: one workspace or every one (None), at the anchor what is current or with all of the history."""

    workspace: str | None
    anchor: Anchor
    history: bool = False
    annotated: bool = False


class Command(BaseCommand):
    help = (
        "Export memories and the links between them, as import_memories --format jsonl reads them. Only what "
        "is current, unless --history asks for everything: that is what a restore needs."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--workspace", help='only this workspace ("" is the global one); default: every one'
        )
        parser.add_argument(
            "--history", action="store_true", help="also what is no longer, or not yet, current"
        )
        parser.add_argument(
            "--validity-annotate",
            action="store_true",
            help="say of each memory how it stands: state and validity, which an import passes over",
        )
        parser.add_argument(
            "--at", type=_instant, metavar="INSTANT", help="judge at this instant (RFC 3339); default: now"
        )
        parser.add_argument("--output", type=Path, metavar="FILE", help="default: standard output")

    def handle(
        self,
        *,
        workspace: str | None,
        history: bool,
        validity_annotate: bool,
        at: UnixMs | None,
        output: Path | None,
        **_: Any,
    ) -> None:
        if workspace is not None and not Workspace.objects.filter(name=workspace).exists():
            raise CommandError(f"there is no workspace {workspace!r}", returncode=USAGE)
        if at is not None and history and not validity_annotate:
            raise CommandError("--at changes nothing in all of the history, unannotated", returncode=USAGE)
        asked = Export(workspace, Anchor(*anchored(at, now=now_ms())), history, validity_annotate)
        if output is None:
            _write(sys.stdout.buffer, asked)
            return
        unfinished = output.with_name(output.name + ".part")  # whoever finds FILE finds all of it
        try:
            file = unfinished.open("wb")
        except OSError as error:
            raise CommandError(f"{output} cannot be written: {error.strerror}") from error
        with file:
            _write(file, asked)
        unfinished.replace(output)


def _instant(text: str) -> UnixMs:
    try:
        return parse_instant(text)
    except NotAnInstant as error:
        raise ArgumentTypeError(str(error)) from error


def _write(file: BinaryIO, asked: Export) -> None:
    with snapshot():
        file.writelines(lines(asked))


def lines(asked: Export) -> Iterator[bytes]:
    """Memories as they were made, then links from the oldest."""
    for memories in _pages_of_memories(asked.workspace):
        states = _states({memory.id for memory in memories}, asked)
        for memory in memories:
            if asked.history or states[memory.id].current:
                judged = _judged(memory, states[memory.id], asked) if asked.annotated else None
                yield memory_line(memory, judged=judged)
    for links in _pages_of_links(asked.workspace):
        if asked.history:
            yield from (link_line(link) for link in links)
            continue
        states = _states({end.id for link in links for end in (link.source, link.target)}, asked)
        for link in links:
            if states[link.source.id].current and states[link.target.id].current:
                yield link_line(link)


def _states(ids: set[str], asked: Export) -> Mapping[str, State]:
    """The state of each memory, where anything in the export depends on it."""
    if asked.history and not asked.annotated:
        return {}
    chains = chains_from(ids, until=asked.anchor.until)
    successions = Successions(chains.edges, asked.anchor)
    return states_of(ids, chains.facts, successions, asked.anchor)


def _judged(memory: Memory, state: State, asked: Export) -> dict[str, Any]:
    """How a memory stands at the anchor: the blocks of the API."""
    validity = grade_in_state(memory.facts, state, at=asked.anchor.at, workspace=asked.workspace)
    return {
        "at": format_instant(asked.anchor.at),
        "state": state_json(state),
        "validity": validity.block(),
        **({"context_invalid": True} if validity.grade == "context_invalid" else {}),
    }


def _pages_of_memories(workspace: str | None) -> Iterator[list[Memory]]:
    memories = Memory.objects.select_related("workspace").prefetch_related("tags").order_by("seq")
    if workspace is not None:
        memories = memories.filter(workspace__name=workspace)
    last = 0
    while page := list(memories.filter(seq__gt=last)[:PAGE]):
        yield page
        last = page[-1].seq


def _pages_of_links(workspace: str | None) -> Iterator[list[MemoryLink]]:
    """In order of (created_at, id), which decides between links; no index has it, so no keyset walks it."""
    links = MemoryLink.objects.select_related("source__workspace", "target__workspace").order_by(
        "created_at", "id"
    )
    if workspace is not None:
        links = links.filter(source__workspace__name=workspace)
    yield from _paged(links.iterator(chunk_size=PAGE))


def _paged(links: Iterable[MemoryLink]) -> Iterator[list[MemoryLink]]:
    page: list[MemoryLink] = []
    for link in links:
        page.append(link)
        if len(page) == PAGE:
            yield page
            page = []
    if page:
        yield page
