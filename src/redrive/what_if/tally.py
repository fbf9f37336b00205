"""Two tables tried on the same, mostly equal messages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import Final, NamedTuple

import numpy as np

from redrive.engine.cache import DecisionCache
from redrive.engine.context import SliceContext
from redrive.engine.decision import Decision
from redrive.engine.facts import Answers, Facts, Questions
from redrive.engine.put_record import risks_of
from redrive.engine.rules_decider import RulesDecider
from redrive.engine.sources import PartitionRecords, SourceKind
from redrive.masking import NO_MASK, Mask
from redrive.messages import NO_VALID_SCHEME, DeadLetterProfile
from redrive.rules import FieldValue
from redrive.rules.analysis import hidden_field
from redrive.what_if.answer import Sample
from redrive.what_if.equal_messages import BatchDecisions, SharedDecoder, Trial, verdict_of
from redrive.what_if.reasons import course_text, reasons
from redrive.what_if.sources import Over, Part
from redrive.what_if.totals import SAMPLES, Side, Totals

_EVERY: Final = 1 << 62
"""Above every offset."""


@dataclass(slots=True)
class _TriedTable:
    decider: RulesDecider
    decoder: SharedDecoder
    context: SliceContext
    released: int = 0
    """Offset below which the job would reset attempt counts."""
    trials: dict[SourceKind, Trial] = field(default_factory=dict)
    """The trial for each kind of source, which continues with the next part."""

    def decided(self, part: Part) -> tuple[Trial, BatchDecisions]:
        records = PartitionRecords(
            part.lane, self.decider, part.kind, part.records, released=self.released
        )
        trial = self.trials.get(part.kind)
        if trial is None:
            trial = self.trials[part.kind] = self.trial()
        return trial, trial.decided(records)

    def trial(self) -> Trial:
        return Trial(self.decider, self.decoder, self.context)

    def side_of(self, decision: Decision) -> Side:
        profile = decision.profile
        matched = self.decider.profiles.candidates_of(profile) if profile.is_dead_letter else 0
        verdict = verdict_of(self.decider, decision)
        return Side(replace(verdict, risks=tuple(risks_of(decision, self.context))), matched)


class _PairKey(NamedTuple):
    kind: SourceKind
    old: int
    """The messages' kind in the trial of each table."""
    new: int


@dataclass(slots=True)
class _Pair:
    old: Side
    new: Side
    samples: list[Sample] | None
    """The samples of this kind of change; None if nothing changes."""
    count: int = 0


class Tally:
    """Tries two tables on messages, deciding and counting equal messages together."""

    def __init__(
        self,
        old: RulesDecider,
        new: RulesDecider,
        facts: Facts,
        answers: Callable[[Questions], Answers],
        *,
        now: int,
        decoders: tuple[SharedDecoder, SharedDecoder] | None = None,
        mask: Mask = NO_MASK,
    ) -> None:
        """Start empty; ``now`` is the time of the attempts, in milliseconds.

        Without decoders, one for both tables is used, with the built-in schemes.
        """
        self._mask = mask
        reads_old, reads_new = decoders or (SharedDecoder(),) * 2
        self._old = _TriedTable(old, reads_old, SliceContext(facts, "", now))
        self._new = _TriedTable(new, reads_new, SliceContext(facts, "", now))
        is_another = old.table.hash != new.table.hash or reads_old is not reads_new
        self._new.released = _EVERY if is_another else 0
        self._facts = facts
        self._answers = answers
        self._pairs: dict[_PairKey, _Pair] = {}
        self._totals = Totals()

    def add(self, part: Part) -> None:
        """Try both tables on some messages."""
        (old, by_old), (new, by_new) = self._decide(part)
        self._totals.messages[part.over] += len(part.records)
        for was, becomes, row, count in _pairs_of(by_old, by_new):
            key = _PairKey(part.kind, was, becomes)
            pair = self._pairs.get(key)
            if pair is None:
                sides = (
                    self._old.side_of(by_old.decisions[was]),
                    self._new.side_of(by_new.decisions[becomes]),
                )
                pair = self._pairs[key] = _Pair(*sides, self._totals.samples(*sides))
            pair.count += count
            if pair.samples is not None and len(pair.samples) < SAMPLES:
                fields = {**old.fields_of(row), **new.fields_of(row)}
                sample = self._sample(old.identity_of(row), fields, pair.old, pair.new)
                pair.samples.append(sample)
        if old.is_full or new.is_full:
            self._flush()

    def add_known(
        self, scheme: str, fields: Mapping[str, FieldValue], example: str, n: int
    ) -> None:
        """Try both tables on messages of which only the match fields are known."""
        problem = "no valid dead-letter header" if scheme == NO_VALID_SCHEME else ""
        profile = DeadLetterProfile(scheme, problem, fields, None)
        self._totals.messages[Over.HISTORY] += n
        both = self._old, self._new
        old, new = self._facts.answered(
            lambda: [one.side_of(one.trial().decide_profile(profile)) for one in both],
            self._answers,
        )
        self._totals.count(old, new, n)
        samples = self._totals.samples(old, new)
        if samples is not None and len(samples) < SAMPLES:
            samples.append(self._sample(example, fields, old, new))

    def totals(self) -> Totals:
        """The counts so far."""
        self._flush()
        return self._totals

    def _decide(
        self, part: Part
    ) -> tuple[tuple[Trial, BatchDecisions], tuple[Trial, BatchDecisions]]:
        tried = self._old, self._new
        before = [Counter(one.context.puts) for one in tried]
        while True:
            decided = self._old.decided(part), self._new.decided(part)
            questions = self._facts.take_questions()
            if not questions:
                return decided
            self._facts.learn(self._answers(questions))
            self._flush()
            for one, puts in zip(tried, before, strict=True):
                one.context.puts = Counter(puts)

    def _flush(self) -> None:
        for pair in self._pairs.values():
            self._totals.count(pair.old, pair.new, pair.count)
        self._pairs.clear()
        for one in (self._old, self._new):
            one.trials.clear()
            one.context.cache = DecisionCache()

    def _sample(
        self, identity: str, fields: Mapping[str, FieldValue], old: Side, new: Side
    ) -> Sample:
        was = self._old.decider.table, old.verdict
        becomes = self._new.decider.table, new.verdict
        return Sample(
            message=identity,
            fields={name: hidden_field(self._mask, name, value) for name, value in fields.items()},
            old=self._mask.text(course_text(old.verdict)),
            new=self._mask.text(course_text(new.verdict)),
            because=tuple(reasons(was, becomes, fields, self._mask)),
        )


def _pairs_of(old: BatchDecisions, new: BatchDecisions) -> Iterator[tuple[int, int, int, int]]:
    number = len(new.decisions)
    keys, rows, counts = np.unique(
        old.codes * number + new.codes, return_index=True, return_counts=True
    )
    found = zip(keys.tolist(), rows.tolist(), counts.tolist(), strict=True)
    for key, row, count in sorted(found, key=itemgetter(1)):
        was, becomes = divmod(key, number)
        yield was, becomes, row, count
