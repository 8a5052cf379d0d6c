"""From a text to the claims it makes about one item (calendar.md, section 3).

1. The language: as told, else by its words; an unknown one yields no claims.
2. Sentences, and clauses in them; the dates.
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

from recall.domain.claims.claim import Claim, Kind
from recall.domain.claims.clauses import SIGNS_OF_STATE, Clause, Sentence, clauses_of, sentences_of
from recall.domain.claims.dates import Dated, Direction
from recall.domain.claims.finality import Said, final_states
from recall.domain.claims.languages import language_of
from recall.domain.claims.lexicon import END, SHARE, Lexicon, Trigger, lexicon_for
from recall.domain.claims.subjects import (
    Item,
    Named,
    anywhere,
    item_of,
    object_after,
    owner_before,
    related,
    subject_before,
)
from recall.domain.claims.tokens import Token, tokens_of

DECIDED = frozenset(("postponed", "rescheduled", "cancelled"))  # deciding on these is doing them
BACK = frozenset(("completed", "in_progress", "not_started"))  # their dates lie behind, other kinds' ahead
GAP_AT_MOST = 6
_ABOUT_THE_ITEM = ("item", "pronoun", "nothing", "person")


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
class _Found:
    """A trigger at the places `start` to `end`; the places between `gap` are its object."""

    trigger: Trigger
    start: int
    end: int
    gap: tuple[int, int] | None


@dataclass(slots=True)
class _Scope:
    """What stands before a trigger in its clause: negators, a hedge, and a governor that ends right before it."""

    negators: int = 0
    hedged: bool = False
    governor: str = ""
    governor_end: int = -1
    prior: bool = False
    subordinate: bool = False


@dataclass(slots=True)
class _Reader:
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
        first = len(self.said)
        clauses = clauses_of(sentence, self.lexicon)
        dated = [False] * len(sentence.words)
        for one in sentence.dates:
            dated[one.start : one.end] = [True] * (one.end - one.start)
        if self._checkbox(sentence):
            return
        condition = sentence.question
        loose_hedge = False
        self.theme = "nothing"
        for clause in clauses:
            before = len(self.said)
            conditional, hedge_alone = self._clause(sentence, clause, dated, loose_hedge)
            condition = condition or conditional
            self.theme = self._theme(sentence.words, clause, dated)
            if hedge_alone and len(self.said) == before:
                if clause.end - clause.start <= 5 and before > first and clause is clauses[-1]:
                    self.said[-1] = replace(self.said[-1], hedged=True)
                loose_hedge = True
            elif clause.connective or len(self.said) > before:
                loose_hedge = False
        if condition:
            for place in range(first, len(self.said)):
                self.said[place] = replace(self.said[place], hedged=True)

    def _checkbox(self, sentence: Sentence) -> bool:
        """`- [x] outline`, `✅ outline`: read when the line names the item, or names nothing."""
        words = sentence.words
        here = 1 if sentence.starts_line and words[0] in ("-", "*", "+", "•") else 0
        signs, negated = 0, False
        if words[here : here + 3] in (["[", "x", "]"], ["[", "✓", "]"], ["[", "✔", "]"]):
            signs = 3
        elif words[here : here + 2] == ["[", "]"]:
            signs, negated = 2, True
        elif here < len(words) and words[here] in SIGNS_OF_STATE:
            signs, negated = 1, words[here] in "☐"
            if words[here] == "❌":
                return False
        elif words[-1] in SIGNS_OF_STATE and words[-1] not in "☐❌" and len(words) <= 8:
            rest = words[here:-1]
            if object_after(rest, 0, len(rest), [False] * len(rest), self.item, self.lexicon) == "item":
                self._say(
                    "completed",
                    None,
                    negated=False,
                    hedged=False,
                    span=_span(sentence.tokens, here, len(words)),
                )
                return True
            return False
        if not signs:
            return False
        start = here + signs
        rest_dated = [False] * len(words)
        named = (
            object_after(words, start, len(words), rest_dated, self.item, self.lexicon)
            if self.lexicon.language == "en"
            else anywhere(words, start, len(words), rest_dated, self.item, self.lexicon)
        )
        own = (
            self.item.verb
            and start < len(words)
            and self.lexicon.title_verbs.get(words[start], ("",))[0] == self.item.verb
        )
        if own:
            named = object_after(words, start + 1, len(words), rest_dated, self.item, self.lexicon)
        if named not in ("item", "nothing"):
            return True
        self._say(
            "completed", None, negated=negated, hedged=False, span=_span(sentence.tokens, here, len(words))
        )
        return True

    def _say(
        self,
        kind: str,
        value: str | None,
        *,
        negated: bool,
        hedged: bool,
        span: tuple[int, int],
        prior: bool = False,
        last: bool = False,
    ) -> None:
        claim = Claim(cast(Kind, kind), value, negated, hedged, span)
        self.said.append(Said(claim, hedged, prior, last, self.sentence_no))

    # ---- a clause

    def _clause(
        self, sentence: Sentence, clause: Clause, dated: list[bool], loose_hedge: bool
    ) -> tuple[bool, bool]:
        """Add what a clause says; whether it makes the sentence conditional, and whether it holds a hedge."""
        words, lexicon = sentence.words, self.lexicon
        phrases = lexicon.phrases
        connective = clause.connective
        scope = _Scope(
            hedged=loose_hedge
            or connective in lexicon.sets["hedging_connectives"]
            or connective in lexicon.raw["hedging"],
            prior=connective in lexicon.sets["prior_connectives"],
        )
        conditional = (
            connective in lexicon.sets["conditions"] or connective in lexicon.raw["condition_phrases"]
        )
        hedge_seen = False
        found: list[tuple[_Found, _Scope]] = []
        place = clause.start
        at_start = True
        while place < clause.end:
            word = words[place]
            if dated[place]:
                place += 1
                at_start = False
                continue
            trigger = self._trigger_at(words, place, clause, dated, sentence)
            if trigger is not None:
                if trigger.trigger.kind is not None:
                    found.append((trigger, replace(scope)))
                place = trigger.end
            elif length := phrases["neutral"].at(words, place):
                place += length
            elif length := phrases["refusals"].at(words, place):
                scope.governor, scope.governor_end = "refusal", place + length
                place += length
            elif length := phrases["failures"].at(words, place):
                scope.governor, scope.governor_end = "failure", place + length
                place += length
            elif length := phrases["decisions"].at(words, place):
                scope.governor, scope.governor_end = "decision", place + length
                place += length
            elif length := phrases["achievements"].at(words, place):
                scope.governor, scope.governor_end = "achievement", place + length
                place += length
            elif at_start and (length := phrases["instructions"].at(words, place)):
                scope.hedged = True
                place += length
            elif length := phrases["hedges"].at(words, place):
                scope.hedged = True
                hedge_seen = hedge_seen or phrases["late_hedges"].at(words, place) > 0
                place += length
            elif length := phrases["negators"].at(words, place):
                scope.negators += 1
                place += length
            else:
                if word in lexicon.sets["that_words"]:
                    if scope.negators:
                        scope.hedged, scope.negators = True, 0
                    at_start = True
                    place += 1
                    continue
                if word in lexicon.sets["prior_words"]:
                    scope.prior = True
                if word in lexicon.sets["conditions"] and place > clause.start:
                    conditional = True
                place += 1
            at_start = at_start and word in lexicon.sets["before_instructions"]
        late_hedge = False
        if found and any(
            word in lexicon.sets["now_words"] for word in words[clause.start : found[0][0].start]
        ):
            self._make_prior()
        if found and phrases["late_hedges"].by_first:
            late_hedge = any(
                phrases["late_hedges"].at(words, here) for here in range(found[-1][0].end, clause.end)
            )
        deadline = self._obligation(sentence, clause, dated)
        if lexicon.dates["verb_last"] and found:
            late_hedge = late_hedge or scope.hedged
            if not lexicon.spaced and scope.negators:  # the negation of a Japanese verb is its ending
                found[-1][1].negators += scope.negators
        previous: _Found | None = None
        for one, before in found:
            before.hedged = before.hedged or late_hedge
            shared = previous is not None and self._joined(words, previous.end, one.start)
            self._judge(sentence, clause, dated, one, before, shared)
            previous = one
        if not found and not deadline:
            self._echo(sentence, clause, dated)
            self._later_date(sentence, clause)
        if hedge_seen and not found:
            return conditional, True
        return conditional, False

    def _theme(self, words: list[str], clause: Clause, dated: list[bool]) -> Named:
        """What a clause is about by the noun phrase it begins with; an elliptic clause after it is about the same."""
        sets = self.lexicon.sets
        if self.lexicon.language != "en" or words[clause.start] not in sets["articles"]:
            return self.theme
        verb = next(
            (
                place
                for place in range(clause.start + 1, min(clause.end, clause.start + 5))
                if words[place] in sets["finite"]
            ),
            None,
        )
        return (
            self.theme
            if verb is None
            else subject_before(words, verb, clause.start, dated, self.item, self.lexicon)
        )

    def _make_prior(self) -> None:
        """What the sentence said before "now" lies before it in time."""
        for place in range(len(self.said) - 1, -1, -1):
            if self.said[place].sentence != self.sentence_no:
                return
            self.said[place] = replace(self.said[place], prior=True)

    def _joined(self, words: list[str], start: int, end: int) -> bool:
        """Whether two triggers share their subject: "neither cancelled nor postponed"."""
        sets = self.lexicon.sets
        between = words[start:end]
        return any(word in sets["joints"] for word in between) and all(
            word in sets["joints"] or word in sets["skipped"] or word in sets["not_words"] for word in between
        )

    def _trigger_at(
        self, words: list[str], place: int, clause: Clause, dated: list[bool], sentence: Sentence
    ) -> _Found | None:
        every = self.lexicon.triggers
        share = every.get(SHARE, ()) if _is_share(words, place) else ()
        for trigger in (*every.get(words[place], ()), *share):
            fit = self._fit(trigger, words, place, clause.end, dated)
            if fit is None:
                continue
            if trigger.kind is None and fit.end < len(words) and dated[fit.end]:
                continue  # "done by Friday" is more than "done by hand"
            if trigger.needs_date and self._date_for(trigger, sentence, clause, fit) is None:
                continue
            return fit
        verbs = self.lexicon.title_verbs
        own = verbs.get(f"{words[place]}={self.item.verb}") or verbs.get(words[place])
        if own is not None and own[0] == self.item.verb:
            form = own[1]
            if place > clause.start and words[place - 1] in self.lexicon.sets["articles"]:
                return None  # a noun: "the paint", "an order"
            trigger = Trigger((), "completed", form, "verb", own[0])  # type: ignore[arg-type]
            return _Found(trigger, place, place + 1, None)
        return None

    def _fit(
        self, trigger: Trigger, words: list[str], place: int, end: int, dated: list[bool]
    ) -> _Found | None:
        """Read a trigger's elements from a place on; its one gap takes as few words as will do."""
        here, gap = place, None
        for number, element in enumerate(trigger.elements):
            if END in element.words:
                if here != end:
                    return None
                continue
            if not element.words:
                after = trigger.elements[number + 1].words
                stop = here
                while stop < end and stop - here <= GAP_AT_MOST and words[stop] not in after:
                    if words[stop] in self.lexicon.sets["no_gap"]:
                        return None
                    stop += 1
                if stop >= end or words[stop] not in after:
                    return None
                gap = (here, stop)
                here = stop
                continue
            if (
                here < end
                and not (dated[here] and number)
                and (words[here] in element.words or (SHARE in element.words and _is_share(words, here)))
            ):
                here += 1
            elif not element.optional:
                return None
        return _Found(trigger, place, here, gap)

    # ---- one trigger

    def _judge(
        self,
        sentence: Sentence,
        clause: Clause,
        dated: list[bool],
        found: _Found,
        scope: _Scope,
        shared: bool,
    ) -> None:
        """Add the claim of one trigger, if it is a fact or a hedged one, and about the item."""
        words, lexicon, trigger = sentence.words, self.lexicon, found.trigger
        kind = trigger.kind
        assert kind is not None
        if lexicon.language == "en" and self._attributive(words, clause, found):
            return
        standing = self._standing(words, clause, found, scope)
        if standing is None:
            return
        negated, hedged, kind = standing
        named = self.last_named if shared else self._named(sentence, clause, dated, found)
        self.last_named = named
        excepted = self._excepted(words, clause, dated, found)
        if excepted == "item":
            negated, named = not negated, "item"
        elif excepted is not None:
            hedged = True
        self.last_kind = kind
        if named not in _ABOUT_THE_ITEM:
            self.elsewhere = named == "other" or self.elsewhere
            return
        if named == "item":
            self.elsewhere = False
        elif self.elsewhere and not self._points_here(words, clause):
            return
        refused = scope.governor == "refusal" and scope.governor_end == found.start
        own = trigger.lemma == self.item.verb and trigger.lemma in lexicon.raw["title_kinds"]
        if own and trigger.form != "state" and kind == trigger.kind and not refused:
            kind = "completed"
        if kind == "in_progress" and negated and trigger.lemma in lexicon.raw["starting"]:
            kind, negated = "not_started", False
        value, span_end = self._value(trigger, kind, sentence, clause, found)
        if kind == "due":
            if value is None and trigger.needs_date:
                return
            negated = negated and not self._until(sentence, clause, found)
            hedged = scope.hedged
        if kind == "completed" and negated and self._until(sentence, clause, found):
            hedged = True
        if kind == "postponed" and trigger.needs_date and trigger.lemma == "not":
            negated = False
        end = max(found.end, span_end)
        self._say(
            kind,
            value,
            negated=negated,
            hedged=hedged,
            span=_span(sentence.tokens, found.start, end),
            prior=scope.prior or self._prior_form(words, clause, found),
            last=trigger.last,
        )

    def _standing(
        self, words: list[str], clause: Clause, found: _Found, scope: _Scope
    ) -> tuple[bool, bool, str] | None:
        """Whether it is negated, whether hedged, and the kind: by the trigger's form and what governs it."""
        trigger, sets = found.trigger, self.lexicon.sets
        kind = trigger.kind
        assert kind is not None
        negated = (scope.negators % 2 == 1) ^ trigger.negated
        before = found.start - 1
        while before >= clause.start and (
            words[before] in sets["skipped"] or words[before] in sets["not_words"]
        ):
            before -= 1
        word = words[before] if before >= clause.start else ""
        governed = (
            scope.governor if scope.governor_end == before + 1 or scope.governor_end == found.start else ""
        )
        form = trigger.form
        if form in ("past", "state") and word in sets["infinitive_be"] and not governed:
            further = before - 1
            while further >= clause.start and (
                words[further] in sets["skipped"] or words[further] in sets["not_words"]
            ):
                further -= 1
            governed = scope.governor if scope.governor_end in (further + 1, before) else ""
            form = "base"
            word = words[further] if further >= clause.start else ""
        elif form in ("past", "state") and word in sets["to_infinitive"]:
            form = "base"
        if governed == "refusal":
            own = trigger.lemma == self.item.verb
            return (
                negated ^ (kind in DECIDED and not own),
                scope.hedged,
                kind if kind in DECIDED else "cancelled",
            )
        if governed == "failure":
            return (not negated, scope.hedged, kind)
        if governed == "achievement":
            return (negated, scope.hedged, kind)
        if governed == "decision":
            return (negated, scope.hedged or kind not in (*DECIDED, "confirmed", "tentative"), kind)
        if word in sets["future_words"] and kind not in (*DECIDED, "due", "confirmed", "tentative"):
            return (negated, True, kind)
        if form == "base":
            if word in sets["be"] and word not in sets["infinitive_be"] and trigger.form == "base":
                return (negated, scope.hedged, kind)  # "is complete"
            if word in sets["did_words"]:
                return (negated, scope.hedged, kind)
            if word in sets["deciders"] and kind in DECIDED and before == found.start - 1:
                return (negated, scope.hedged, kind)
            return (negated, True, kind)
        if form == "gerund":
            if word in sets["privatives"]:
                return (True, scope.hedged, kind)
            if kind == "completed" and word not in sets["after_words"]:
                return (negated, scope.hedged or word in sets["prepositions"], "in_progress")
            if word in sets["prepositions"] and word not in sets["factual_prepositions"]:
                return (negated, True, kind)
        return (negated, scope.hedged, kind)

    def _named(self, sentence: Sentence, clause: Clause, dated: list[bool], found: _Found) -> Named:
        """What a trigger speaks of, by its role."""
        words, trigger, lexicon, item = sentence.words, found.trigger, self.lexicon, self.item
        if trigger.role == "free":
            return "nothing"
        if lexicon.language != "en":
            return anywhere(words, clause.start, clause.end, self._skipped(sentence, found), item, lexicon)
        if trigger.role == "noun":
            return self._named_by_noun(words, clause, dated, found)
        subject = subject_before(words, found.start, clause.start, dated, item, lexicon)
        if subject in ("nothing", "pronoun") and words[clause.start] in ("which", "who"):
            subject = related(words, clause.start, item, lexicon)
        elif subject == "nothing" and self.theme == "other":
            subject = "other"
        if trigger.kind == "due" and words[found.start - 2 : found.start - 1]:
            near = words[max(clause.start, found.start - 3) : found.start]
            if (
                subject == "other"
                and len(near) < 3
                and any(word in lexicon.sets["due_subjects"] for word in near)
            ):
                subject = "nothing"
        if trigger.role == "state":
            if (
                found.end < clause.end
                and words[found.end] in ("on", "with")
                and not any(dated[found.end : found.end + 3])
            ):
                further = object_after(words, found.end + 1, clause.end, dated, item, lexicon)
                if further == "item" or (
                    further == "other" and words[found.end + 1 : found.end + 2] == ["the"]
                ):
                    return further
            return subject
        passive = trigger.form == "past" and self._passive(words, clause, found)
        if passive:
            return subject
        after: Named = "nothing"
        within = words[found.start : found.end]
        if (
            found.gap is None
            and len(within) > 2
            and any(word in ("it", "this", "that", "them") for word in within)
        ):
            return "pronoun"
        if found.gap is not None and found.gap[1] > found.gap[0]:
            after = object_after(words, found.gap[0], found.gap[1], dated, item, lexicon)
        else:
            after = object_after(words, found.end, clause.end, dated, item, lexicon)
        if after != "nothing":
            return "other" if after == "person" and subject == "other" else after
        return subject

    def _named_by_noun(self, words: list[str], clause: Clause, dated: list[bool], found: _Found) -> Named:
        """Of "deadline": what stands before it as its owner, or after it with "for"."""
        lexicon, item = self.lexicon, self.item
        if (
            found.end < clause.end
            and words[found.end] in lexicon.sets["noun_links"]
            and not any(dated[found.end + 1 : found.end + 2])
        ):
            named = object_after(words, found.end + 1, clause.end, dated, item, lexicon)
            if named != "nothing":
                return named
        owner, here = owner_before(words, found.start, clause.start, dated, lexicon)
        named = (
            object_after(owner, 0, len(owner), [False] * len(owner), item, lexicon) if owner else "nothing"
        )
        if named in ("other", "item"):
            stems = {word for word in owner if word not in lexicon.sets["determiners"]}
            return named if stems else "nothing"
        having = here
        while having >= clause.start and words[having] in lexicon.sets["not_words"]:
            having -= 1
        if having >= clause.start and words[having] in lexicon.sets["having"]:
            return subject_before(words, having, clause.start, dated, item, lexicon)
        return "nothing"

    def _skipped(self, sentence: Sentence, found: _Found) -> list[bool]:
        skip = [False] * len(sentence.words)
        for one in sentence.dates:
            skip[one.start : one.end] = [True] * (one.end - one.start)
        skip[found.start : found.end] = [True] * (found.end - found.start)
        return skip

    def _passive(self, words: list[str], clause: Clause, found: _Found) -> bool:
        sets = self.lexicon.sets
        before = found.start - 1
        while before >= clause.start and (
            words[before] in sets["skipped"] or words[before] in sets["not_words"]
        ):
            before -= 1
        return before >= clause.start and words[before] in sets["be"]

    def _attributive(self, words: list[str], clause: Clause, found: _Found) -> bool:
        """A participle that only describes: "the finished look", "Cancelled cheques go into the folder"."""
        trigger, sets = found.trigger, self.lexicon.sets
        if trigger.form != "past" or found.end - found.start != 1 or found.gap:
            return False
        if found.start > clause.start and words[found.start - 1] in sets["articles"]:
            return True
        if found.start > clause.start or found.end >= clause.end or not words[found.end].isalpha():
            return False
        if words[found.end] in sets["be"]:  # '"Cancelled" is the title', "Done is better than perfect"
            return True
        if words[found.end] in sets["phrase_ends"] or words[found.end] in sets["adverbs"]:
            return False
        if words[found.end] in sets["determiners"] or words[found.end] in sets["pronouns"]:
            return False
        if words[found.end] in sets["persons"]:
            return False
        return any(word in sets["finite"] for word in words[found.end : min(clause.end, found.end + 6)])

    def _excepted(self, words: list[str], clause: Clause, dated: list[bool], found: _Found) -> Named | None:
        """What a trigger leaves out: "all done except the essay"."""
        for place in range(clause.start, clause.end):
            if length := self.lexicon.phrases["exceptions"].at(words, place):
                end = found.start if place < found.start else clause.end
                return object_after(words, place + length, end, dated, self.item, self.lexicon)
        return None

    def _points_here(self, words: list[str], clause: Clause) -> bool:
        return any(
            words[place] in self.lexicon.sets["here_words"] for place in range(clause.start, clause.end)
        )

    def _prior_form(self, words: list[str], clause: Clause, found: _Found) -> bool:
        before = words[max(clause.start, found.start - 3) : found.start]
        return (
            any(word in self.lexicon.sets["being_words"] for word in before) and found.trigger.form == "past"
        )

    # ---- dates of triggers

    def _value(
        self, trigger: Trigger, kind: str, sentence: Sentence, clause: Clause, found: _Found
    ) -> tuple[str | None, int]:
        if trigger.value is not None:
            return trigger.value, found.end
        for place in range(clause.start, clause.end):
            share = _share(sentence.words, place, clause.end)
            if share and kind == "in_progress":
                return share, place + 1
        dated = self._date_for(trigger, sentence, clause, found)
        if dated is None:
            return None, found.end
        direction: Direction = "back" if kind in BACK else "ahead"
        return dated.value(
            self.today, self.zone, direction
        ), dated.end if dated.start >= found.start else found.end

    def _date_for(self, trigger: Trigger, sentence: Sentence, clause: Clause, found: _Found) -> Dated | None:
        """The date that belongs to a trigger: the one its kind may be led to, nearest after it, else before it."""
        kind = trigger.kind
        relations = self.lexicon.raw["relations_of"].get(kind)
        reach = min(len(sentence.words), clause.end + (12 if kind == "due" else 4))
        after = [one for one in sentence.dates if found.start <= one.start < reach and one.end > found.start]
        before = [one for one in sentence.dates if clause.start <= one.start < found.start]
        if kind == "due":
            return self._due_date(trigger, sentence, clause, found, after, before)
        if relations is None:
            return next(iter(after + before[::-1]), None)
        for one in after + before[::-1]:
            if one.relation in relations and one.lead <= clause.end + 1:
                return one
            if one.relation == "" and self._names_new_date(sentence.words, one):
                return one
        return None

    def _due_date(
        self,
        trigger: Trigger,
        sentence: Sentence,
        clause: Clause,
        found: _Found,
        after: list[Dated],
        before: list[Dated],
    ) -> Dated | None:
        words, sets = sentence.words, self.lexicon.sets
        if trigger.role == "noun":
            usable = [
                one
                for one in after
                if one.relation not in ("from", "since", "after") and one.start < clause.end
            ]
            led = [one for one in usable if one.relation in ("to", "until")]
            if not usable and clause.end < len(words) and words[clause.end] in (":", "-", "–", "(", ","):
                usable = [one for one in after if one.lead <= clause.end + 1]
            if not usable and before and before[-1].end == found.start:  # "a Friday deadline"
                usable = before[-1:]
            return next(iter(led + usable), None)
        for one in after:
            between = words[found.end : one.lead]
            if all(word in sets["due_links"] or word in (":", ",", "(") for word in between):
                return one
        if self.lexicon.dates["verb_last"] and before:
            return before[-1]
        return None

    def _names_new_date(self, words: list[str], dated: Dated) -> bool:
        return any(
            word in self.lexicon.sets["now_said"] for word in words[max(0, dated.lead - 3) : dated.lead]
        )

    def _until(self, sentence: Sentence, clause: Clause, found: _Found) -> bool:
        """ "Not due until Friday" says Friday."""
        return any(
            one.relation in ("until",) and found.start <= one.start < clause.end for one in sentence.dates
        )

    def _obligation(self, sentence: Sentence, clause: Clause, dated: list[bool]) -> bool:
        """Add the deadline of "must be in by Friday"; whether there is one."""
        words, lexicon = sentence.words, self.lexicon
        by = [one for one in sentence.dates if one.relation == "by" and clause.start < one.start < clause.end]
        if not by:
            return False
        for place in range(clause.start, by[0].lead):
            length = lexicon.phrases["obligations"].at(words, place)
            if not length:
                continue
            if any(lexicon.phrases["negators"].at(words, here) for here in range(clause.start, by[0].lead)):
                return False
            if any(lexicon.phrases["hedges"].at(words, here) for here in range(clause.start, place)):
                return False
            verb = place + length
            while verb < by[0].lead and words[verb] in lexicon.sets["be"]:
                verb += 1
            arriving = any(word in lexicon.sets["arriving"] for word in words[place + length - 1 : verb + 1])
            if lexicon.language == "en":
                subject = subject_before(words, place, clause.start, dated, self.item, lexicon)
                after = object_after(words, verb + 1, by[0].lead, dated, self.item, lexicon)
            else:
                subject, after = (
                    anywhere(words, clause.start, by[0].lead, dated, self.item, lexicon),
                    "nothing",
                )
            if (after == "other" and not arriving) or (subject == "other" and after == "nothing"):
                self.elsewhere = True
                return False
            if self.elsewhere and "item" not in (subject, after):
                return False
            value = by[0].value(self.today, self.zone, "ahead")
            if value is not None:
                span = _span(sentence.tokens, place, by[0].end)
                self._say("due", value, negated=False, hedged=sentence.question, span=span)
            return value is not None
        return False

    def _echo(self, sentence: Sentence, clause: Clause, dated: list[bool]) -> None:
        """ "... but the outline isn't": the last state again, of the item."""
        words, sets = sentence.words, self.lexicon.sets
        if self.last_kind is None or not 2 <= clause.end - clause.start <= 8:
            return
        end = clause.end
        while end > clause.start and words[end - 1] in sets["echo_tail"]:
            end -= 1
        negated = end > clause.start and words[end - 1] in sets["not_words"]
        auxiliary = end - 2 if negated else end - 1
        if (
            auxiliary <= clause.start
            or words[auxiliary] not in sets["echo_verbs"]
            or self.lexicon.language != "en"
        ):
            return
        subject = subject_before(words, auxiliary, clause.start, dated, self.item, self.lexicon)
        meant = subject == "item" or (subject == "pronoun" and not self.elsewhere)
        if meant and self.last_kind in ("completed", "cancelled", "postponed", "in_progress", "confirmed"):
            span = _span(sentence.tokens, clause.start, end)
            self._say(self.last_kind, None, negated=negated, hedged=False, span=span)

    def _later_date(self, sentence: Sentence, clause: Clause) -> None:
        """ "..., now 2 October" and "..., new target 9 October": the date of what was said before."""
        words, sets = sentence.words, self.lexicon.sets
        dates = [one for one in sentence.dates if clause.start <= one.start < clause.end]
        if not dates or not self.said or self.elsewhere:
            return
        before = self.said[-1]
        if before.hedged or before.claim.negated:
            return
        lead = words[clause.start : dates[0].lead]
        if not lead or not any(word in sets["new_date_words"] for word in lead):
            return
        if any(word not in sets["new_date_words"] and word not in sets["due_links"] for word in lead):
            return
        value = dates[-1].value(self.today, self.zone, "ahead")
        kind = {"due": "due", "postponed": "rescheduled", "rescheduled": "rescheduled"}.get(before.claim.kind)
        if kind and value:
            span = _span(sentence.tokens, clause.start, dates[-1].end)
            self._say(kind, value, negated=False, hedged=False, span=span)


def _is_share(words: list[str], place: int) -> bool:
    word = words[place]
    if word.endswith("%"):
        return word[:-1].isdigit() and len(word) <= 4
    return word.isdigit() and len(word) <= 3 and words[place + 1 : place + 2] == ["percent"]


def _share(words: list[str], place: int, end: int) -> str | None:
    """`40%` of "40%", "40 percent", "halfway"."""
    word = words[place]
    if word.endswith("%") and word[:-1].isdigit() and len(word) <= 4:
        return word
    if (
        word.isdigit()
        and len(word) <= 3
        and place + 1 < end
        and words[place + 1] in ("%", "percent", "prozent", "prosent")
    ):
        return f"{word}%"
    return "50%" if word in ("halfway", "half", "half-done", "half-finished") else None


def _span(tokens: list[Token], start: int, end: int) -> tuple[int, int]:
    return tokens[start].start, tokens[max(start, end - 1)].end
