"""Counts of what two tables do with messages: the numbers of the answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from redrive.masking import Mask
from redrive.printable import counted
from redrive.rules import RulesTable, write_rule
from redrive.topology.names import Names
from redrive.what_if.answer import Cell, Change, Loss, Refused, RuleCount, Sample, TargetCount
from redrive.what_if.equal_messages import Disposition, Verdict
from redrive.what_if.sources import Over

SAMPLES: Final = 3
"""Maximum samples of each kind of change."""
_TARGETS: Final = 10_000
"""Maximum queues to count individually; messages may name any number."""
_NOWHERE: Final = Names()
_OTHERS: Final = Names(queue="(others)")


class Side(NamedTuple):
    """The result of one table for equal messages."""

    verdict: Verdict
    matched: int
    """The rules that match them, as bits."""


class _ChangeKey(NamedTuple):
    loss: Loss
    old: Disposition
    old_line: int
    new: Disposition
    new_line: int

    @classmethod
    def of(cls, was: Verdict, becomes: Verdict) -> _ChangeKey:
        return cls(
            _loss(was, becomes), was.disposition, was.line, becomes.disposition, becomes.line
        )


@dataclass(slots=True)
class _TableCounts:
    by_line: Counter[int] = field(default_factory=Counter)
    by_target: Counter[tuple[Disposition, Names]] = field(default_factory=Counter)
    matched: int = 0

    def take(self, side: Side, count: int) -> None:
        verdict = side.verdict
        self.by_line[verdict.line] += count
        self.matched |= side.matched
        if verdict.target != _NOWHERE:
            target = verdict.target if len(self.by_target) < _TARGETS else _OTHERS
            self.by_target[verdict.disposition, target] += count

    def add(self, other: _TableCounts) -> None:
        self.by_line.update(other.by_line)
        self.by_target.update(other.by_target)
        self.matched |= other.matched


class Totals:
    """Counts messages by what two tables do with them; processes exchange it."""

    def __init__(self) -> None:
        self._old, self._new = _TableCounts(), _TableCounts()
        self.messages: Counter[Over] = Counter()
        self.matrix: Counter[Cell] = Counter()
        self._changes: Counter[_ChangeKey] = Counter()
        self._samples: dict[_ChangeKey, list[Sample]] = {}
        self._refused: Counter[tuple[Names, int, str]] = Counter()
        self._risks: Counter[str] = Counter()

    def count(self, old: Side, new: Side, count: int) -> None:
        """Counts equal messages."""
        was, becomes = old.verdict, new.verdict
        self._old.take(old, count)
        self._new.take(new, count)
        is_changed = was.course != becomes.course
        self.matrix[Cell(was.disposition, becomes.disposition, is_changed)] += count
        if becomes.reason:
            self._refused[becomes.target, becomes.reason, becomes.detail] += count
        self._risks.update(dict.fromkeys(becomes.risks, count))
        if is_changed:
            self._changes[_ChangeKey.of(was, becomes)] += count

    def samples(self, old: Side, new: Side) -> list[Sample] | None:
        """The samples of a kind of change; None if nothing changes for them."""
        was, becomes = old.verdict, new.verdict
        if was.course == becomes.course:
            return None
        return self._samples.setdefault(_ChangeKey.of(was, becomes), [])

    def add(self, other: Totals) -> None:
        """Adds the counts of other messages."""
        self._old.add(other._old)
        self._new.add(other._new)
        self.messages.update(other.messages)
        self.matrix.update(other.matrix)
        self._changes.update(other._changes)
        self._refused.update(other._refused)
        self._risks.update(other._risks)
        for key, samples in other._samples.items():
            known = self._samples.setdefault(key, [])
            known += samples[: SAMPLES - len(known)]

    def changes(self) -> tuple[Change, ...]:
        """The kinds of changes: new discards first, then the most frequent."""
        order = sorted(self._changes.items(), key=lambda it: (it[0].loss, -it[1], it[0]))
        return tuple(
            Change(**key._asdict(), count=count, samples=tuple(self._samples[key]))
            for key, count in order
        )

    def rules(self, old: RulesTable, new: RulesTable) -> Iterator[RuleCount]:
        """How many messages each rule of both tables applies to next, in the new table's order."""
        was, becomes = _texts(old), _texts(new)
        for key in {**becomes, **was}:
            before, after = was.get(key), becomes.get(key)
            yield RuleCount(
                key[0],
                before,
                self._old.by_line[before] if before is not None else 0,
                after,
                self._new.by_line[after] if after is not None else 0,
            )

    def targets(self, mask: Mask) -> list[TargetCount]:
        """How many messages go where next, in descending order."""
        old, new = self._old.by_target, self._new.by_target
        found = [
            TargetCount(key[0], _masked(key[1], mask), old[key], new[key]) for key in {**old, **new}
        ]
        return sorted(found, key=lambda it: (-max(it.old, it.new), it.disposition, it.target))

    def refused(self, mask: Mask) -> list[Refused]:
        """Puts of the new table that would fail now, the most frequent first."""
        return [
            Refused(_masked(target, mask), reason, mask.text(detail), count)
            for (target, reason, detail), count in self._refused.most_common()
        ]

    def risks(self, mask: Mask) -> list[str]:
        """What may happen to messages after their puts by the new table, with their number."""
        return [
            mask.text(f"{counted(count, 'message')}: {risk}")
            for risk, count in self._risks.most_common()
        ]

    def never_matched(self, new: RulesTable) -> Iterator[tuple[int, str]]:
        """The rules of the new table that match none of the messages."""
        for index, rule in enumerate(new.rules):
            if not self._new.matched >> index & 1:
                yield rule.line, write_rule(rule)


def _masked(target: Names, mask: Mask) -> Names:
    return Names(queue=mask.text(target.queue), queue_manager=mask.text(target.queue_manager))


def _loss(was: Verdict, becomes: Verdict) -> Loss:
    if was.course.discarded or not becomes.course.discarded:
        return Loss.NONE
    return Loss.AT_ONCE if becomes.disposition is Disposition.DISCARD else Loss.IN_THE_END


def _texts(table: RulesTable) -> dict[tuple[str, int], int]:
    """The line of each rule by its text, and by how many earlier ones have the same text."""
    seen: Counter[str] = Counter()
    lines = {}
    for rule in table.rules:
        text = write_rule(rule)
        lines[text, seen[text]] = rule.line
        seen[text] += 1
    return lines
