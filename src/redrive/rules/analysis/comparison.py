"""What differs between two tables in meaning: messages of which they make something else."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Final

from redrive.rules.analysis.decision import Decision, decide
from redrive.rules.analysis.field_values import Undecided
from redrive.rules.analysis.search import Message, Search
from redrive.rules.keywords import KEYWORDS, Dialect
from redrive.rules.patterns import Pattern, StringPattern
from redrive.rules.rule import Action, Rule
from redrive.rules.selection import rules_of
from redrive.rules.table import RulesTable

__all__ = ["Comparison", "ControlChange", "Difference", "compare", "control_changes"]

QUESTION_LIMIT: Final = 20_000
"""Messages that are looked for at most."""

_REFERENCES: Final = ("DESTQ", "DESTQM", "REPLYQ", "REPLYQM")
"""Fields that name the target of a put."""


@dataclass(frozen=True, slots=True)
class ControlChange:
    """Control data that differ."""

    keyword: str
    old: str | int
    new: str | int


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Messages that two tables treat differently, by one of them."""

    witness: Message
    """Its match fields."""
    old: Decision
    old_rules: tuple[int, ...]
    """Indexes of the rules that decide in the old table."""
    new: Decision
    new_rules: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Two tables side by side."""

    control: tuple[ControlChange, ...]
    differences: tuple[Difference, ...]
    """One for each pair of rule sequences that make different decisions; messages that are newly
    discarded come first."""
    is_complete: bool
    """Whether there is certainly no other difference."""

    @property
    def is_equal(self) -> bool:
        """Whether the tables mean the same, which is proved."""
        return self.is_complete and not self.control and not self.differences


def compare(old: RulesTable, new: RulesTable) -> Comparison:
    """Compare what two tables mean.

    Args:
        old: A table.
        new: Another one.

    Returns:
        The differences, each with a message and what both tables make of it.
    """
    comparer = _Comparer(old, new)
    is_complete = True
    differences: dict[tuple[tuple[int, ...], tuple[int, ...]], Difference] = {}
    try:
        for found in comparer.differences():
            differences.setdefault((found.old_rules, found.new_rules), found)
    except Undecided:
        is_complete = False
    return Comparison(
        control=tuple(control_changes(old, new)),
        differences=tuple(sorted(differences.values(), key=_order)),
        is_complete=is_complete,
    )


def _order(difference: Difference) -> tuple[bool, tuple[int, ...], tuple[int, ...]]:
    newly_discarded = difference.new.discarded and not difference.old.discarded
    return not newly_discarded, difference.new_rules, difference.old_rules


def control_changes(old: RulesTable, new: RulesTable) -> Iterator[ControlChange]:
    """The control data of which two tables do not mean the same."""
    before, after = old.control, new.control
    same = {
        "RETRYINT": before.retry_interval == after.retry_interval,
        "WAIT": before.wait.seconds == after.wait.seconds,
    }
    was, now = before.keywords(), after.keywords()
    for name in {**was, **now}:
        # Only a table in a dialect tells one.
        value, other = was.get(name, Dialect.IBM.value), now.get(name, Dialect.IBM.value)
        if not same.get(name, value == other):
            yield ControlChange(name, value, other)


class _Comparer:
    """Walks through all kinds of messages that may be treated differently.

    A message on which the tables differ matches a rule that is not in both of them in the same
    order: with the others they decide alike. So the walk keeps to the messages of such rules, and
    tries each combination of other rules that may match too.
    """

    def __init__(self, old: RulesTable, new: RulesTable) -> None:
        self._tables = old, new
        numbers: dict[frozenset[tuple[str, Pattern]], int] = {}
        rules: list[Rule] = []
        self._numbers: list[list[int]] = []
        """For each table the numbers of its rules' patterns; the same ones have one number."""
        for table in self._tables:
            mine = []
            for rule in table.rules:
                number = numbers.setdefault(_patterns(rule), len(numbers))
                rules += [rule] * (number == len(rules))
                mine.append(number)
            self._numbers.append(mine)
        self._search = Search(rules)
        self._questions = 0

    def differences(self) -> Iterator[Difference]:
        """Every difference, some of them more than once.

        Raises:
            Undecided: There may be more.
        """
        done = 0
        for number in self._moved():
            yield from self._walk(1 << number, done, self._search.possible_overlaps(number))
            done |= 1 << number

    def _moved(self) -> Sequence[int]:
        """The patterns of the rules that are not in both tables in the same order."""
        before, after = (
            [(_patterns(rule), _deed(rule)) for rule in table.rules] for table in self._tables
        )
        matcher = SequenceMatcher(None, before, after, autojunk=False)
        numbers, others = self._numbers
        moved = [
            number
            for tag, start, end, first, last in matcher.get_opcodes()
            if tag != "equal"
            for number in (*numbers[start:end], *others[first:last])
        ]
        return tuple(dict.fromkeys(moved))

    def _walk(self, matching: int, avoiding: int, overlaps: int) -> Iterator[Difference]:
        waiting = [(matching, avoiding)]
        while waiting:
            matching, avoiding = waiting.pop()
            message = self._find(matching, avoiding)
            if message is None:
                continue
            matched = self._search.candidates_of(message)
            relevant = self._relevant(matched) & overlaps
            difference = self._difference(message, matched, relevant, avoiding)
            if difference:
                yield difference
            for number in rules_of(relevant & ~(matching | avoiding)):
                bit = 1 << number
                if matched & bit:
                    waiting.append((matching, avoiding | bit))
                    matching |= bit
                else:
                    waiting.append((matching | bit, avoiding))
                    avoiding |= bit

    def _find(
        self,
        matching: int,
        avoiding: int,
        apart_from: Mapping[str, Sequence[Pattern]] | None = None,
    ) -> Message | None:
        self._questions += 1
        if self._questions > QUESTION_LIMIT:
            raise Undecided
        return self._search.find(matching, avoiding, apart_from=apart_from)

    def _relevant(self, matched: int) -> int:
        """The rules up to the one, in each table, behind which no rule is asked."""
        relevant = 0
        for table, numbers in zip(self._tables, self._numbers, strict=True):
            for rule, number in zip(table.rules, numbers, strict=True):
                relevant |= 1 << number
                if matched >> number & 1 and not rule.action.can_fail:
                    break
        return relevant

    def _difference(
        self, message: Message, matched: int, relevant: int, avoiding: int
    ) -> Difference | None:
        """The difference on messages that match just these of the relevant rules, if any."""
        (old, old_rules), (new, new_rules) = self._decisions(message, matched)
        if self._meanings(0, old_rules) == self._meanings(1, new_rules):
            return None
        if old == new:  # perhaps by chance
            avoiding |= relevant & ~matched
            message = self._telling(message, matched & relevant, avoiding)
            (old, _), (new, _) = self._decisions(message, matched)
        if old == new:
            return None
        return Difference(
            witness=message, old=old, old_rules=old_rules, new=new, new_rules=new_rules
        )

    def _decisions(self, message: Message, matched: int) -> list[tuple[Decision, tuple[int, ...]]]:
        return [
            decide(table, self._candidates(numbers, matched), message)
            for table, numbers in zip(self._tables, self._numbers, strict=True)
        ]

    def _candidates(self, numbers: Sequence[int], matched: int) -> int:
        return sum(1 << index for index, number in enumerate(numbers) if matched >> number & 1)

    def _meanings(self, table: int, rules: Sequence[int]) -> list[tuple[object, ...]]:
        return [_deed(self._tables[table].rules[rule]) for rule in rules]

    def _telling(self, message: Message, matching: int, avoiding: int) -> Message:
        """A message of the same kind that goes to no queue by chance.

        On DESTQ=A the rules FWDQ(A) and FWDQ(&DESTQ) put alike. So fields that name a target get
        a value that no rule names, wherever that is possible.
        """
        apart: dict[str, list[Pattern]] = {}
        for name in _REFERENCES:
            length = KEYWORDS[name].length
            others = {str(message.get(it, "")) for it in _REFERENCES if it != name}
            values: list[Pattern] = [
                StringPattern(it or " ", length) for it in sorted(others | self._names())
            ]
            found = self._find(matching, avoiding, {**apart, name: values})
            if found is not None:
                apart[name], message = values, found
        return message

    def _names(self) -> set[str]:
        """The names that FWDQ and FWDQM name themselves, the blank one among them."""
        return {
            name
            for table in self._tables
            for rule in table.rules
            for name in (rule.forward_queue, rule.forward_queue_manager)
        }


def _patterns(rule: Rule) -> frozenset[tuple[str, Pattern]]:
    return frozenset(
        (name, pattern) for name, pattern in rule.patterns.items() if not pattern.matches_anything
    )


def _deed(rule: Rule) -> tuple[object, ...]:
    """What a rule does, without settings that have no effect."""
    if not rule.action.can_fail:
        return (rule.action,)
    is_forward = rule.action is Action.FWD
    names = rule.forward_queue, rule.forward_queue_manager, rule.forward_topic
    target = names if is_forward else ()
    header = is_forward and rule.header
    return rule.action, *target, header, rule.authority, rule.retry, rule.backoff
