"""Corrections as people make them: a form, what it would do, and then one new event, or nothing."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from django import forms
from django.db.models import Q, QuerySet
from django.utils.text import capfirst

from ledger import services
from ledger.domain.events import DELIVERED
from ledger.domain.instants import UnixMs
from ledger.domain.refusals import Forbidden, NotFound, Refused
from ledger.models import ContextEvent
from ledger.services import Preview
from recall.models import RecallRecord, RecordEvent, RecordHit
from vault.domain.access import Reach
from vault.models import Memory
from vault.services import Caller

KINDS = {
    "supersede": "Supersede: something else holds now",
    "retract": "Retract: it should never have been said, and nothing stands in its place",
    "link": "Link a missing supersession: another event has taken its place",
    "annotate": "Annotate: a remark that changes nothing",
    "restore": "Restore: undo an earlier correction",
}
_FIELDS = {"supersedes_context_id": "successor"}
ID = forms.TextInput(attrs={"size": 34, "spellcheck": "false", "autocomplete": "off"})
_OUTDATED = "not_as_previewed"


class CorrectionForm(forms.Form):
    """What somebody corrects, and why. The actor is whoever is signed in, and no field.

    `key` makes a form that is sent twice one correction; `seen` is the digest of the preview that was shown.
    """

    kind = forms.ChoiceField(label="What kind of correction", choices=list(KINDS.items()))
    text = forms.CharField(
        label="What holds instead",
        required=False,
        widget=forms.Textarea(attrs={"rows": 3}),
        help_text="For supersede and annotate; left empty, the reason stands for it.",
    )
    successor = forms.CharField(
        label="Successor",
        required=False,
        max_length=64,
        widget=ID,
        help_text="For link, and where an event that exists supersedes: its id, which begins with evt_.",
    )
    reason = forms.CharField(
        label="Reason",
        widget=forms.Textarea(attrs={"rows": 3}),
        help_text="At least 10 characters. It stays in the ledger for good.",
    )
    key = forms.CharField(
        widget=forms.HiddenInput,
        max_length=200,
        error_messages={"required": "The form lost its key: open it anew."},
    )
    seen = forms.CharField(required=False, widget=forms.HiddenInput, max_length=64)

    @classmethod
    def opened(cls, **initial: str) -> Self:
        return cls(initial={**initial, "key": _new_key()})

    def asked(self, caller: Caller) -> dict[str, Any]:
        """The arguments of `services.preview` and `services.correct`, but for key and time."""
        given: Mapping[str, Any] = self.cleaned_data
        return {
            "kind": given["kind"],
            "reason": given["reason"],
            "text": given["text"] or None,
            "successor": given["successor"] or None,
            "actor": caller.actor,
            "readable": caller.reach.reads,
            "writable": caller.reach.writes,
        }

    def put(self, **values: str) -> None:
        """Have hidden fields say something else when the form is shown again."""
        self.data = {name: self.data.get(name) for name in self.fields} | values

    def add_refusal(self, refusal: Refused) -> None:
        if (
            refusal.code == "idempotency_conflict"
        ):  # sent before, and changed since: another correction by now
            self.put(key=_new_key(), seen="")
        field = _FIELDS.get(refusal.field or "", refusal.field)
        message = f"{capfirst(refusal.message)} ({refusal.code})."
        if refusal.hint:
            message += f" {capfirst(refusal.hint)}."
        self.add_error(field if field in self.fields else None, message)


def _new_key() -> str:
    return secrets.token_hex(16)


def correctable(event_id: str, reach: Reach) -> ContextEvent:
    """The event, which the caller reads and may correct; raises Refused."""
    event = ContextEvent.objects.filter(id=event_id, kind__in=DELIVERED).first()
    if event is None or not reach.reads(event.workspace):
        raise NotFound(f"no context event {event_id}", hint="ids begin with evt_")
    if not reach.writes(event.workspace):
        raise Forbidden("only a curator of its workspace may correct an event")
    return event


@dataclass(frozen=True, slots=True)
class Submitted:
    """What became of a form: the event it made, or what it would do. A refusal stands in the form's errors."""

    made: ContextEvent | None = None
    preview: Preview | None = None
    outdated: bool = False  # what it would do has changed since it was shown


def submit(
    form: CorrectionForm, event: ContextEvent, *, caller: Caller, at: UnixMs, record: bool
) -> Submitted:
    """Preview a correction, or record it as it was previewed: what nobody has seen is never recorded."""
    if not form.is_valid():
        return Submitted()
    asked = form.asked(caller)
    try:
        if record:
            given = form.cleaned_data
            return Submitted(services.correct(event.id, key=given["key"], seen=given["seen"], at=at, **asked))
        return _previewed(form, event, at=at, asked=asked)
    except Refused as refusal:
        if refusal.code == _OUTDATED:
            return _previewed(form, event, at=at, asked=asked, outdated=bool(form.cleaned_data["seen"]))
        form.add_refusal(refusal)
        return Submitted()


def _previewed(
    form: CorrectionForm, event: ContextEvent, *, at: UnixMs, asked: Mapping[str, Any], outdated: bool = False
) -> Submitted:
    preview = services.preview(event.id, at=at, **asked)
    for refusal in preview.refusals:
        form.add_refusal(refusal)
    form.put(seen="" if preview.refused else preview.digest)
    return Submitted(preview=preview, outdated=outdated)


# ----------------------------------------------------------------------------------------------- what it touches


@dataclass(frozen=True, slots=True)
class Touched:
    """The recorded recalls whose hits a correction would grade otherwise, as far as the viewer may see them."""

    count: int = 0
    falling: int = 0  # hits that were served as current, of what would be superseded
    rising: int = 0  # hits that were marked superseded, of what would be current again
    newest: tuple[RecallRecord, ...] = ()


def recalls_touched(preview: Preview, reach: Reach, *, limit: int = 20) -> Touched:
    """Which recalls served an event that the correction makes stale, or marked one that it makes current again.

    What came from such an event into the vault counts too. Records stay as they are: they tell what was served then.
    """
    fallen, risen = _turned(preview)
    if not fallen and not risen:
        return Touched()
    visible = RecallRecord.objects.visible_to(reach)
    falling, rising = _hits(fallen, visible, superseded=False), _hits(risen, visible, superseded=True)
    touched = Q()
    for hits in (*falling, *rising):
        touched |= Q(seq__in=hits.values("record_id"))
    rows = visible.filter(touched)
    return Touched(
        rows.count(),
        falling=sum(hits.count() for hits in falling),
        rising=sum(hits.count() for hits in rising),
        newest=tuple(rows.defer("document").order_by("-seq")[:limit]),
    )


def _hits(
    event_ids: list[str], visible: QuerySet[RecallRecord], *, superseded: bool
) -> tuple[QuerySet[RecordEvent], QuerySet[RecordHit]]:
    """The hits that told these events, and those of memories that came from them, by how they were marked then.

    Of a context search its events tell, not the memories by which the local bank found them.
    """
    told = RecordEvent.objects.filter(
        event__id__in=event_ids, stale=superseded, record__in=visible.values("seq")
    )
    remembered = RecordHit.objects.filter(
        verdict="served",
        memory__in=Memory.objects.filter(source_event_id__in=event_ids),
        record__in=visible.exclude(mode="context").values("seq"),
    )
    marked = Q(grade="context_invalid")
    return told, remembered.filter(marked if superseded else ~marked)


def _turned(preview: Preview) -> tuple[list[str], list[str]]:
    """The events that would become superseded, and those that would no longer be."""
    before, after = preview.chain_before, preview.chain_after
    ids = [event.id for event in after.events if event.id]
    was = {event.id: before.walk(event.id).steps > 0 for event in before.events}
    will = {id_: after.walk(id_).steps > 0 for id_ in ids}
    fallen = [id_ for id_ in ids if will[id_] and not was.get(id_, False)]
    return fallen, [id_ for id_ in ids if was.get(id_, False) and not will[id_]]
