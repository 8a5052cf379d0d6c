"""People: what a signed-in user reaches, by grants, on pages and in the administration."""

from __future__ import annotations

import os
import pwd
from typing import Any

from ledger.domain.actors import Actor
from recall.models import WorkspaceGrant
from vault.domain.access import GLOBAL, Reach
from vault.services import Caller


def caller_of(user: Any) -> Caller:
    """A user's reach: superusers everything; else the workspaces granted, and the global rows to read."""
    actor = Actor("user", str(user.pk), user.get_username())
    if user.is_superuser:
        return Caller(actor, Reach.everything())
    grants = list(WorkspaceGrant.objects.filter(user=user))
    curated = [grant.workspace for grant in grants if grant.role in ("curator", "administrator")]
    return Caller(
        actor,
        Reach(
            readable=_named([grant.workspace for grant in grants], plus=GLOBAL),
            writable=_named(curated),
            asserts_provenance=bool(curated),
        ),
    )


def _named(workspaces: list[str | None], *, plus: str | None = None) -> frozenset[str] | None:
    """The names; None, which is every workspace, where one grant says so."""
    if None in workspaces:
        return None
    names = {name for name in workspaces if name is not None}
    return frozenset(names if plus is None else {*names, plus})


def system_caller() -> Caller:
    """Whoever runs a command here: nobody is more privileged than who reads and writes the database's file.

    The user is the one the system knows by its number; LOGNAME and USER say whatever the caller likes.
    """
    number = os.getuid()
    try:
        user = pwd.getpwuid(number).pw_name
    except KeyError:  # a container may run under a number that has no name
        user = str(number)
    return Caller(Actor("cli", user[:64], user[:200]), Reach.everything())


def readable_in_administration(user: Any) -> list[str] | None:
    """The workspaces whose rows the administration shows to a user; None: every one."""
    return caller_of(user).reach.workspaces
