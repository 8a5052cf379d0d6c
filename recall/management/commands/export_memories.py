"""Write memories out as JSON lines: `export_memories [--workspace W] [--history] [--output FILE]`."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from django.core.management.base import BaseCommand, CommandError

from ledger.clock import now_ms
from recall.domain.state import Anchor, Successions, states_of
from vault.importers.jsonl import link_line, memory_line
from vault.models import Memory, MemoryLink, Workspace
from vault.queries import chains_from, snapshot

PAGE = 500
USAGE = 2


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
        parser.add_argument("--output", type=Path, metavar="FILE", help="default: standard output")

    def handle(self, *, workspace: str | None, history: bool, output: Path | None, **_: Any) -> None:
        if workspace is not None and not Workspace.objects.filter(name=workspace).exists():
            raise CommandError(f"there is no workspace {workspace!r}", returncode=USAGE)
        anchor = None if history else Anchor(now_ms())
        if output is None:
            _write(sys.stdout.buffer, workspace, anchor)
            return
        unfinished = output.with_name(output.name + ".part")  # whoever finds FILE finds all of it
        try:
            file = unfinished.open("wb")
        except OSError as error:
            raise CommandError(f"{output} cannot be written: {error.strerror}") from error
        with file:
            _write(file, workspace, anchor)
        unfinished.replace(output)


def _write(file: BinaryIO, workspace: str | None, anchor: Anchor | None) -> None:
    with snapshot():
        file.writelines(lines(workspace=workspace, anchor=anchor))


def lines(*, workspace: str | None, anchor: Anchor | None) -> Iterator[bytes]:
    """Memories as they were made, then links from the oldest; with an anchor, only what is current at it."""
    for memories in _pages_of_memories(workspace):
        current = _current({memory.id for memory in memories}, anchor)
        yield from (memory_line(memory) for memory in memories if memory.id in current)
    for links in _pages_of_links(workspace):
        current = _current({end.id for link in links for end in (link.source, link.target)}, anchor)
        yield from (link_line(link) for link in links if {link.source.id, link.target.id} <= current)


def _current(ids: set[str], anchor: Anchor | None) -> set[str]:
    if anchor is None:
        return ids
    chains = chains_from(ids, until=anchor.until)
    successions = Successions(chains.edges, anchor)
    states = states_of(ids, chains.facts, successions, anchor)
    return {id_ for id_, state in states.items() if state.current}


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
