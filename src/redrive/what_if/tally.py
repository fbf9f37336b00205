"""Two tables tried on the same messages, and what became different counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from redrive.decisions.handlers import Handler
from redrive.decisions.processor import PartitionRecords, SliceContext, SourceKind
from redrive.decisions.trial import Deed, SharedDecoder, Trial, Verdict, Weighed, verdict_of
from redrive.decisions.waiting import NONE_YET
from redrive.masking import NO_MASK, Mask
from redrive.messages import NO_VALID_SCHEME, DeadLetterProfile, TopicPartition
from redrive.rules import RulesTable, write_rule
from redrive.rules.analysis import hidden_field
from redrive.topology.names import Names
from redrive.what_if.answer import (
    Cell,
    Change,
    Loss,
    Refused,
    RuleCount,
    Sample,
    TargetCount,
)
from redrive.what_if.reasons import course_text, reasons
from redrive.what_if.sources import Over, Part

if TYPE_CHECKING:
    from redrive.rules import FieldValue
    from redrive.topology.facts import Answers, Facts, Questions

__all__ = ["Tally"]

_SAMPLES: Final = 3
"""Messages shown of each kind of change."""
_TARGETS: Final = 10_000
"""Queues that are counted one by one; names come from messages, so there is no end of them."""


class _Pair(NamedTuple):
    """Messages of one part of which both tables make the same."""

    old: Weighed
    new: Weighed
    row: int
    """The first of them."""
    number: int


class _ChangeKey(NamedTuple):
    loss: Loss
    old: Deed
    old_line: int
    new: Deed
    new_line: int


@dataclass(slots=True)
class _Counted:
    """What was counted of one table."""

    handler: Handler
    decoder: SharedDecoder
    context: SliceContext
    by_line: Counter[int] = field(default_factory=Counter)
    by_target: Counter[tuple[Deed, Names]] = field(default_factory=Counter)
    matched: int = 0
    """Rules that matched any message, as bits."""
    released: int = 0
    """Offset below which the job would begin counts of attempts again."""
    trials: dict[tuple[TopicPartition, SourceKind], Trial] = field(default_factory=dict)
    """The trial of each lane, which goes on with its next part."""

    def trial_of(self, part: PartitionRecords) -> Trial:
        """The trial for a part."""
        lane = part.lane, part.kind
        trial = self.trials.get(lane)
        if trial is None or trial.is_full:
            trial = self.trials[lane] = Trial(part, self.handler, self.decoder, self.context)
        return trial

    def take(self, weighed: Weighed, verdict: Verdict, count: int) -> None:
        self.by_line[verdict.line] += count
        if verdict.target != _NOWHERE:
            target = verdict.target if len(self.by_target) < _TARGETS else _OTHERS
            self.by_target[verdict.deed, target] += count
        if weighed.letter.is_dead_letter:
            self.matched |= self.handler.candidates_of(weighed.letter)


_EVERY: Final = 1 << 62
"""Above every offset."""
_NOWHERE: Final = Names()
_OTHERS: Final = Names(queue="(others)")


class Tally:
    """Tries two tables on messages.

    This class is responsible for: what the cluster has to be asked for, once; counting kinds of
    messages and not messages, as most are alike; some messages of each kind of change.
    """

    def __init__(
        self,
        old: Handler,
        new: Handler,
        facts: Facts,
        answers: Callable[[Questions], Answers],
        *,
        now: int,
        decoders: tuple[SharedDecoder, SharedDecoder] | None = None,
        mask: Mask = NO_MASK,
    ) -> None:
        """Count nothing yet.

        Args:
            old: The handler with one table.
            new: The same with the other.
            facts: What both of them ask for what is known of the cluster.
            answers: Asks the cluster.
            now: The time of the attempts, in milliseconds.
            decoders: What reads dead letters for the old table and for the new one, which may be
                one decoder; by default one that knows no schemes of a user's own.
            mask: What is not to be shown.
        """
        self._mask = mask
        reads_old, reads_new = decoders or (SharedDecoder(),) * 2
        self._old = _Counted(old, reads_old, SliceContext(facts, "", now))
        self._new = _Counted(new, reads_new, SliceContext(facts, "", now))
        is_another = old.table.hash != new.table.hash or reads_old is not reads_new
        self._new.released = _EVERY if is_another else 0
        self._facts = facts
        self._answers = answers
        self.messages: Counter[Over] = Counter()
        self.matrix: Counter[Cell] = Counter()
        self._changes: Counter[_ChangeKey] = Counter()
        self._samples: dict[_ChangeKey, list[Sample]] = {}
        self._refused: Counter[tuple[Names, int, str]] = Counter()

    def add(self, part: Part) -> None:
        """Tries both tables on some messages.

        Raises:
            TransientFault: The broker gave no answer in time.
        """
        pairs, trial, other = self._weighed(part)
        self.messages[part.over] += len(part.records)
        for old, new, row, count in pairs:
            self._count(old, new, count, partial(_shown, trial, other, row))

    def add_known(
        self, scheme: str, fields: Mapping[str, FieldValue], example: str, n: int
    ) -> None:
        """Tries both tables on messages of which only the match fields are known.

        Args:
            scheme: Name of their scheme.
            fields: Their match fields.
            example: Identity of one of them.
            n: How many there are.
        """
        problem = "no valid dead-letter header" if scheme == NO_VALID_SCHEME else ""
        profile = DeadLetterProfile(scheme, problem, fields, None)
        self.messages[Over.HISTORY] += n
        old, new = (_weighed_profile(one.handler, profile) for one in (self._old, self._new))
        if questions := self._facts.take_questions():
            self._facts.learn(self._answers(questions))
            old, new = (_weighed_profile(one.handler, profile) for one in (self._old, self._new))
        self._count(old, new, n, lambda: (example, dict(fields)))

    def _weighed(self, part: Part) -> tuple[Sequence[_Pair], Trial, Trial]:
        """The kinds of messages of a part, once nothing more has to be asked."""
        counted = self._old, self._new
        before = [Counter(one.context.puts) for one in counted]
        while True:
            records = [
                PartitionRecords(
                    part.lane, one.handler, part.kind, part.records, released=one.released
                )
                for one in counted
            ]
            old, new = (one.trial_of(each) for one, each in zip(counted, records, strict=True))
            pairs = _pairs(old.weighed(records[0]), new.weighed(records[1]))
            questions = self._facts.take_questions()
            if not questions:
                return pairs, old, new
            self._facts.learn(self._answers(questions))
            for one, puts in zip(counted, before, strict=True):
                one.context.puts = Counter(puts)
                one.trials.clear()

    def _count(
        self,
        old: Weighed,
        new: Weighed,
        count: int,
        sample: Callable[[], tuple[str, dict[str, FieldValue]]],
    ) -> None:
        was, becomes = verdict_of(self._old.handler, old), verdict_of(self._new.handler, new)
        self._old.take(old, was, count)
        self._new.take(new, becomes, count)
        is_changed = was.course != becomes.course
        self.matrix[Cell(was.deed, becomes.deed, is_changed)] += count
        if becomes.reason:
            self._refused[becomes.target, becomes.reason, becomes.detail] += count
        if not is_changed:
            return
        key = _ChangeKey(_loss(was, becomes), was.deed, was.line, becomes.deed, becomes.line)
        self._changes[key] += count
        shown = self._samples.setdefault(key, [])
        if len(shown) < _SAMPLES:
            identity, fields = sample()
            shown.append(self._sample(identity, fields, was, becomes))

    def _sample(
        self, identity: str, fields: dict[str, FieldValue], was: Verdict, becomes: Verdict
    ) -> Sample:
        old, new = (self._old.handler.table, was), (self._new.handler.table, becomes)
        return Sample(
            message=identity,
            fields={name: hidden_field(self._mask, name, value) for name, value in fields.items()},
            old=self._mask.text(course_text(was)),
            new=self._mask.text(course_text(becomes)),
            because=tuple(reasons(old, new, fields, self._mask)),
        )

    # -- the answer ----------------------------------------------------------------------------

    def changes(self) -> tuple[Change, ...]:
        """The kinds of changes: new discards first, then the most frequent."""
        order = sorted(self._changes.items(), key=lambda it: (it[0].loss, -it[1], it[0]))
        return tuple(
            Change(
                old=key.old,
                old_line=key.old_line,
                new=key.new,
                new_line=key.new_line,
                loss=key.loss,
                count=count,
                samples=tuple(self._samples[key]),
            )
            for key, count in order
        )

    def rules(self) -> Iterator[RuleCount]:
        """To how many messages each rule of both tables applies next, in the order of the new."""
        old, new = _texts(self._old.handler.table), _texts(self._new.handler.table)
        for key in {**new, **old}:
            before, after = old.get(key), new.get(key)
            yield RuleCount(
                key[0],
                before,
                self._old.by_line[before] if before is not None else 0,
                after,
                self._new.by_line[after] if after is not None else 0,
            )

    def targets(self) -> list[TargetCount]:
        """How many messages go where next, the most first."""
        old, new = self._old.by_target, self._new.by_target
        found = [
            TargetCount(deed, self._shown(target), old[deed, target], new[deed, target])
            for deed, target in {**old, **new}
        ]
        return sorted(found, key=lambda it: (-max(it.old, it.new), it.deed, it.target))

    def refused(self) -> list[Refused]:
        """Puts of the new table that would fail now, the most frequent first."""
        return [
            Refused(self._shown(target), reason, self._mask.text(detail), count)
            for (target, reason, detail), count in self._refused.most_common()
        ]

    def _shown(self, target: Names) -> Names:
        text = self._mask.text
        return Names(queue=text(target.queue), queue_manager=text(target.queue_manager))

    def never_matched(self) -> Iterator[tuple[int, str]]:
        """The rules of the new table that match none of the messages."""
        for index, rule in enumerate(self._new.handler.table.rules):
            if not self._new.matched >> index & 1:
                yield rule.line, write_rule(rule)


def _pairs(old: Sequence[Weighed], new: Sequence[Weighed]) -> list[_Pair]:
    # Alike are the same objects, and the trials keep them: ids are quick to count.
    ids = [*zip(map(id, old), map(id, new), strict=True)]
    first = {pair: row for row, pair in reversed([*enumerate(ids)])}
    return [
        _Pair(old[row := first[pair]], new[row], row, count) for pair, count in Counter(ids).items()
    ]


def _shown(old: Trial, new: Trial, row: int) -> tuple[str, dict[str, FieldValue]]:
    """Identity of a message, and what the rules of two tables look at."""
    return old.identity_of(row), {**old.fields_of(row), **new.fields_of(row)}


def _weighed_profile(handler: Handler, profile: DeadLetterProfile) -> Weighed:
    letter = profile if handler.letters is None else handler.letters.shared(profile)
    return Weighed(letter, handler.plan(letter, NONE_YET, 0))


def _loss(was: Verdict, becomes: Verdict) -> Loss:
    if was.course.discarded or not becomes.course.discarded:
        return Loss.NONE
    return Loss.AT_ONCE if becomes.deed is Deed.DISCARD else Loss.IN_THE_END


def _texts(table: RulesTable) -> dict[tuple[str, int], int]:
    """The line of each rule by its text, and by how many of the same text come before it."""
    seen: Counter[str] = Counter()
    lines = {}
    for rule in table.rules:
        text = write_rule(rule)
        lines[text, seen[text]] = rule.line
        seen[text] += 1
    return lines
