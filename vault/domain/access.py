"""Who may reach what: a caller's workspaces. Built at the edge from a key or user, applied in each query."""

from __future__ import annotations

from dataclasses import dataclass

from ledger.domain.refusals import Forbidden

GLOBAL = ""


@dataclass(frozen=True, slots=True)
class Reach:
    """The workspaces that a caller may read and write; None stands for every one there is.

    `asserts_provenance` lets the caller call a memory verified or corroborated.
    """

    readable: frozenset[str] | None
    writable: frozenset[str] | None
    asserts_provenance: bool = False

    @classmethod
    def everything(cls) -> Reach:
        return cls(readable=None, writable=None, asserts_provenance=True)

    @classmethod
    def bound(cls, workspace: str, *, asserts_provenance: bool = False) -> Reach:
        """One workspace, and the global rows to read."""
        return cls(
            readable=frozenset({workspace, GLOBAL}),
            writable=frozenset({workspace}),
            asserts_provenance=asserts_provenance,
        )

    @property
    def sees_all(self) -> bool:
        """Numbers that count everybody's rows (an event's seq, say) are only for whoever may see them all."""
        return self.readable is None

    @property
    def home(self) -> str:
        """The workspace of a request that names none: a bound caller's own, else the global one."""
        return next(iter(self.writable)) if self.writable is not None and len(self.writable) == 1 else GLOBAL

    @property
    def workspaces(self) -> list[str] | None:
        """The readable ones in order, as queries take them; None: every one."""
        return None if self.readable is None else sorted(self.readable)

    def reads(self, workspace: str) -> bool:
        return self.readable is None or workspace in self.readable

    def writes(self, workspace: str) -> bool:
        return self.writable is None or workspace in self.writable

    def require_readable(self, workspace: str) -> None:
        if not self.reads(workspace):
            raise Forbidden("this workspace is outside your reach", field="workspace")

    def require_writable(self, workspace: str) -> None:
        if not self.writes(workspace):
            what = "the global workspace is read-only for you" if workspace == GLOBAL else None
            raise Forbidden(what or "this workspace is outside your reach", field="workspace")


@dataclass(frozen=True, slots=True)
class Scope:
    """The workspaces that one question covers: None for every one, else their names, sorted."""

    workspaces: tuple[str, ...] | None

    def covers(self, workspace: str) -> bool:
        return self.workspaces is None or workspace in self.workspaces


def scope_of(asked: str | None, reach: Reach) -> Scope:
    """None asked: everything the caller may read; "" global only; W means W and global."""
    if asked is None:
        return Scope(None if reach.readable is None else tuple(sorted(reach.readable)))
    reach.require_readable(asked)
    return Scope(tuple(sorted({asked, GLOBAL} if reach.reads(GLOBAL) else {asked})))
