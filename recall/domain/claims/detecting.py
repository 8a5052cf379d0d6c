"""From a text to the claims it makes about one item (calendar.md, section 3).

1. The language: as told, else by its words; an unknown one yields no claims.
2. Sentences, their dates, and the clauses in them.
3. In each clause, from left to right: triggers (the first of the lexicon's order that fits), and before them what
   turns them (negators), weakens them (hedges), or makes a fact of a mere infinitive (governors: "chose to").
4. The subject: what a trigger speaks of must be the item; after words about something else, "it" is that.
5. The item's own verb: in "Cancel gym membership", "cancelled it" claims `completed`.
6. The date that belongs to a trigger, and deadlines ("must be in by Friday").
7. The final state: of "first postponed, then cancelled", the last.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import date, datetime, tzinfo
from typing import cast

from recall.domain.claims.checkboxes import checkbox_in
from recall.domain.claims.claim import Claim, Kind
from recall.domain.claims.clauses import Clause, Passage, Sentence, clauses_of, sentences_of
from recall.domain.claims.deadlines import Obligation, obligation_in
from recall.domain.claims.finality import Said, final_states
from recall.domain.claims.languages import language_of
from recall.domain.claims.lexicon import Lexicon, lexicon_for
from recall.domain.claims.naming import ABOUT_THE_ITEM, left_out, named_by, theme_of
from recall.domain.claims.scopes import Scanned, Scope, Standing, scan, standing
from recall.domain.claims.subjects import Item, Named, item_of, subject_before
from recall.domain.claims.timing import date_of, held_until
from recall.domain.claims.tokens import tokens_of
from recall.domain.claims.triggers import Found, only_describes, share_in

_BACK = frozenset(("completed", "in_progress", "not_started"))  # their dates lie behind, other kinds' ahead
_ECHOED = frozenset(("completed", "cancelled", "postponed", "in_progress", "confirmed"))
_MOVED_TO = {"due": "due", "postponed": "rescheduled", "rescheduled": "rescheduled"}


def detect(
    text: str, *, summary: str, recorded_at: datetime, zone: tzinfo, language: str | None = None
) -> tuple[Claim, ...]:
    """The claims a text makes about the item with this summary, in the order of the text; never raises on any text.

    `recorded_at` is when the text was written, aware, or naive and then local; relative dates are seen from there, on
    a clock in `zone`. `language` is a tag such as `en` or `nb-NO`; None: it is told by the words.
    """
    lexicon = lexicon_for(language or language_of(text))
    if lexicon is None:
        return ()
    local = recorded_at if recorded_at.tzinfo is None else recorded_at.astimezone(zone)
    words = tuple(token.word for token in tokens_of(summary, lexicon))
    reader = _Reader(lexicon, item_of(words, lexicon.language), local.date(), zone)
    for sentence in sentences_of(tokens_of(text, lexicon), lexicon):
        reader.read(sentence)
    return final_states(reader.said)


@dataclass(slots=True)
class _Reader:
    """What is said so far, and what the next clause may refer to.

    `elsewhere`: the last thing named was not the item, so "it" is not either. `last_kind` is the last state spoken of,
    whosever it was; `last_named` what the last trigger spoke of, `theme` what the last clause did.
    """

    lexicon: Lexicon
    item: Item
    today: date
    zone: tzinfo
    said: list[Said] = field(default_factory=list)
    elsewhere: bool = False
    last_kind: str | None = None
    last_named: Named = "nothing"
    theme: Named = "nothing"
    sentence_no: int = 0

    def read(self, sentence: Sentence) -> None:
        """Add what one sentence says."""
        self.sentence_no += 1
        ticked = checkbox_in(sentence, self.item, self.lexicon)
        if ticked is not None:
            if ticked.claim is not None:
                self.said.append(Said(ticked.claim, False, False, False, self.sentence_no))
            return
        first, hypothetical, doubt = len(self.said), sentence.question, False
        self.theme = "nothing"
        clauses = clauses_of(sentence, self.lexicon)
        for clause in clauses:
            before = len(self.said)
            passage = self._passage(sentence, clause)
            scanned = self._read_clause(passage, hedged=doubt)
            hypothetical = hypothetical or scanned.conditional
            self.theme = theme_of(passage, self.theme)
            if scanned.doubts and len(self.said) == before:
                if clause is clauses[-1] and clause.end - clause.start <= 5 and before > first:
                    self._hedge(before - 1)  # "..., I think."
                doubt = True
            elif clause.connective or len(self.said) > before:
                doubt = False
        if hypothetical:
            for place in range(first, len(self.said)):
                self._hedge(place)

    def _passage(self, sentence: Sentence, clause: Clause) -> Passage:
        at = (clause.start, clause.end, clause.connective)
        return Passage(self.lexicon, self.item, sentence, sentence.words, sentence.dated, *at)

    def _hedge(self, place: int) -> None:
        self.said[place] = replace(self.said[place], hedged=True)

    def _read_clause(self, passage: Passage, *, hedged: bool) -> Scanned:
        """Add what a clause says."""
        scanned = scan(passage, hedged=hedged)
        if scanned.found and self._says_now(passage, scanned.found[0][0].start):
            self._make_prior()
        obligation = obligation_in(passage)
        if obligation is not None:
            self._add_obligation(passage, obligation)
        previous: Found | None = None
        for found, scope in scanned.found:
            shared = previous is not None and self._joined(passage, previous.end, found.start)
            self._add(passage, found, scope, shared=shared)
            previous = found
        if not scanned.found and obligation is None:
            self._echo(passage)
            self._add_later_date(passage)
        return scanned

    def _says_now(self, passage: Passage, before: int) -> bool:
        return any(word in self.lexicon.sets["now_words"] for word in passage.words[passage.start : before])

    def _make_prior(self) -> None:
        """What the sentence said before "now" lies before it in time."""
        for place in range(len(self.said) - 1, -1, -1):
            if self.said[place].sentence != self.sentence_no:
                return
            self.said[place] = replace(self.said[place], prior=True)

    def _joined(self, passage: Passage, start: int, end: int) -> bool:
        """Whether two triggers share their subject: "neither cancelled nor postponed"."""
        sets = self.lexicon.sets
        between = passage.words[start:end]
        light = sets["joints"] | sets["skipped"] | sets["not_words"]
        return not sets["joints"].isdisjoint(between) and light.issuperset(between)

    # ---- one trigger

    def _add(self, passage: Passage, found: Found, scope: Scope, *, shared: bool) -> None:
        """Add the claim of one trigger, if it is about the item."""
        if self.lexicon.language == "en" and only_describes(passage, found):
            return
        meant = standing(passage, found, scope)
        named = self.last_named if shared else named_by(passage, found, self.theme)
        self.last_named, self.last_kind = named, meant.kind
        excepted = left_out(passage, found)
        if excepted == "item":
            meant, named = replace(meant, negated=not meant.negated), "item"
        elif excepted is not None:
            meant = replace(meant, hedged=True)
        if not self._is_about_the_item(passage, named):
            return
        meant = self._by_title(meant, found, scope)
        value, end = self._value(passage, found, meant.kind)
        if meant.kind == "due" and value is None and found.trigger.needs_date:
            return
        meant = self._until(passage, found, meant, scope)
        prior = scope.prior or self._is_prior(passage, found)
        self._say(meant, value, passage.span(found.start, end), prior=prior, last=found.trigger.last)

    def _is_about_the_item(self, passage: Passage, named: Named) -> bool:
        """Also remember whether what is named now is something else, which a later "it" may mean."""
        if named not in ABOUT_THE_ITEM:
            self.elsewhere = True
            return False
        if named == "item":
            self.elsewhere = False
        here = self.lexicon.sets["here_words"]
        return not self.elsewhere or any(word in here for word in passage.words[passage.start : passage.end])

    def _by_title(self, meant: Standing, found: Found, scope: Scope) -> Standing:
        """In "Cancel gym membership", cancelling is completing; "not started" is a state of its own."""
        trigger, raw = found.trigger, self.lexicon.raw
        refused = scope.governor == "refusal" and scope.governor_end == found.start
        own = trigger.lemma == self.item.verb and trigger.lemma in raw["title_kinds"]
        if own and trigger.form != "state" and meant.kind == trigger.kind and not refused:
            return replace(meant, kind="completed")
        if meant.kind == "in_progress" and meant.negated and trigger.lemma in raw["starting"]:
            return replace(meant, kind="not_started", negated=False)
        return meant

    def _until(self, passage: Passage, found: Found, meant: Standing, scope: Scope) -> Standing:
        """Read "not due until Friday" as Friday; "not done until Friday" does not say that it is undone."""
        if meant.kind == "due":
            return Standing("due", meant.negated and not held_until(passage, found.start), scope.hedged)
        if meant.kind == "completed" and meant.negated and held_until(passage, found.start):
            return replace(meant, hedged=True)
        if meant.kind == "postponed" and found.trigger.lemma == "not":  # "not before November"
            return replace(meant, negated=False)
        return meant

    def _value(self, passage: Passage, found: Found, kind: str) -> tuple[str | None, int]:
        """A claim's value, and the place after the words it came from."""
        if found.trigger.value is not None:
            return found.trigger.value, found.end
        share = share_in(passage) if kind == "in_progress" else None
        if share is not None:
            return share, found.end
        dated = date_of(found.trigger, passage, found.start, found.end)
        if dated is None:
            return None, found.end
        value = dated.value(self.today, self.zone, "back" if kind in _BACK else "ahead")
        return value, max(found.end, dated.end) if dated.start >= found.start else found.end

    def _is_prior(self, passage: Passage, found: Found) -> bool:
        """Whether it lies before the rest: "after being postponed twice"."""
        before = passage.words[max(passage.start, found.start - 3) : found.start]
        return found.trigger.form == "past" and not self.lexicon.sets["being_words"].isdisjoint(before)

    def _say(
        self,
        meant: Standing,
        value: str | None,
        span: tuple[int, int],
        *,
        prior: bool = False,
        last: bool = False,
    ) -> None:
        claim = Claim(cast(Kind, meant.kind), value, meant.negated, meant.hedged, span)
        self.said.append(Said(claim, meant.hedged, prior, last, self.sentence_no))

    # ---- clauses without a trigger

    def _add_obligation(self, passage: Passage, obligation: Obligation) -> None:
        """Add the deadline of "must be in by Friday"."""
        if obligation.named == "other":
            self.elsewhere = True
        elif obligation.named == "item" or not self.elsewhere:
            value = obligation.by.value(self.today, self.zone, "ahead")
            if value is not None:
                meant = Standing("due", False, passage.sentence.question)
                self._say(meant, value, passage.span(obligation.start, obligation.end))

    def _echo(self, passage: Passage) -> None:
        """Say the last state again, of the item: "... but the outline isn't"."""
        words, sets, end = passage.words, self.lexicon.sets, passage.end
        while end > passage.start and words[end - 1] in sets["echo_tail"]:
            end -= 1
        negated = passage.word(end - 1) in sets["not_words"]
        auxiliary = end - 2 if negated else end - 1
        short = 2 <= passage.end - passage.start <= 8
        if not short or auxiliary <= passage.start or words[auxiliary] not in sets["echo_verbs"]:
            return
        subject = subject_before(words, auxiliary, passage.start, passage.dated, self.item, self.lexicon)
        meant = subject == "item" or (subject == "pronoun" and not self.elsewhere)
        if meant and self.last_kind in _ECHOED:
            self._say(Standing(self.last_kind, negated, False), None, passage.span(passage.start, end))

    def _add_later_date(self, passage: Passage) -> None:
        """Date anew what was said before: "..., now 2 October", "..., new target 9 October"."""
        dates = [one for one in passage.sentence.dates if passage.start <= one.start < passage.end]
        if not dates or not self.said or self.elsewhere:
            return
        lead, sets = passage.words[passage.start : dates[0].lead], self.lexicon.sets
        light = sets["new_date_words"] | sets["due_links"]
        if sets["new_date_words"].isdisjoint(lead) or not light.issuperset(lead):
            return
        before = self.said[-1]
        value = dates[-1].value(self.today, self.zone, "ahead")
        if value and before.claim.kind in _MOVED_TO and not before.hedged and not before.claim.negated:
            meant = Standing(_MOVED_TO[before.claim.kind], False, False)
            self._say(meant, value, passage.span(passage.start, dates[-1].end))
