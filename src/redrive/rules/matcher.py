"""Which rules match: a bitset index over the rules of a table.

For each field that some rule looks at there is an index from a value to an integer whose bit i
says that rule i accepts this value. The rules that match a message are the AND of these integers,
so the work hardly grows with the number of rules. Wildcards and regular expressions are evaluated
once for each distinct value.

Of a field that has another value in nearly every message, such as the text of an error, nothing is
remembered, and what cannot be looked up is asked only of the rules whose other patterns match.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from redrive.rules.dialect.keywords import field_order, pattern_keyword
from redrive.rules.dialect.patterns import ListPattern, RangePattern, RegexPattern
from redrive.rules.patterns import FieldValue, NumberPattern, Pattern, StringPattern
from redrive.rules.table import RulesTable

__all__ = ["MEMO_LIMIT", "Matcher"]

MEMO_LIMIT: Final = 100_000
"""Distinct values of one field that are remembered at most.

Senders choose the values, so their number has no bound; a full memory is emptied.
"""


class Matcher:
    """Tells which rules of a table match a message.

    Not safe for use by several threads at once, because it remembers what it has seen.

    Args:
        table: The rules table.
    """

    def __init__(self, table: RulesTable) -> None:
        self._all = (1 << len(table.rules)) - 1
        indexed: dict[str, dict[int, Pattern]] = defaultdict(dict)
        self._left: dict[int, list[tuple[str, Pattern]]] = defaultdict(list)
        """Bit of a rule -> its patterns that are no part of an index."""
        for index, rule in enumerate(table.rules):
            for name, pattern in rule.patterns.items():
                if pattern.matches_anything:
                    continue
                if pattern_keyword(name).is_varied and not _can_be_looked_up(pattern):
                    self._left[1 << index].append((name, pattern))
                else:
                    indexed[name][index] = pattern
        self._unsure = sum(self._left)
        self._fields = [
            _Field(name, self._all, indexed[name]) for name in sorted(indexed, key=field_order)
        ]

    def candidates_of(self, fields: Mapping[str, FieldValue]) -> int:
        """The rules that match one message.

        Args:
            fields: Match fields by pattern keyword; a missing one is blank or 0.

        Returns:
            An integer whose bit i says that rule i's pattern matches.
        """
        candidates = self._looked_up(fields)
        unsure = candidates & self._unsure
        while unsure:
            bit = unsure & -unsure
            if not self._accepts(bit, fields):
                candidates ^= bit
            unsure ^= bit
        return candidates

    def first_of(self, fields: Mapping[str, FieldValue]) -> int | None:
        """The first rule that matches one message: what applies to it before anything failed.

        Patterns of the rules behind it are not evaluated.

        Args:
            fields: As for ``candidates_of``.

        Returns:
            The index of the rule; None if no rule matches.
        """
        candidates = self._looked_up(fields)
        while candidates:
            bit = candidates & -candidates
            if not bit & self._unsure or self._accepts(bit, fields):
                return bit.bit_length() - 1
            candidates ^= bit
        return None

    def _looked_up(self, fields: Mapping[str, FieldValue]) -> int:
        candidates = self._all
        for index in self._fields:
            candidates &= index.rules_for(fields.get(index.name))
        return candidates

    def _accepts(self, bit: int, fields: Mapping[str, FieldValue]) -> bool:
        for name, pattern in self._left[bit]:
            if not pattern.matches(fields.get(name, pattern.default)):
                return False
        return True


def _members(pattern: Pattern) -> Iterable[Pattern]:
    return pattern.members if isinstance(pattern, ListPattern) else (pattern,)


def _can_be_looked_up(pattern: Pattern) -> bool:
    """Whether an index finds the pattern by a value without evaluating it."""
    return all(
        not isinstance(one, RegexPattern)
        and (not isinstance(one, StringPattern) or one.is_literal or _is_head(one))
        for one in _members(pattern)
    )


def _is_head(pattern: StringPattern) -> bool:
    """Whether the pattern is a text and one asterisk behind it."""
    return pattern.normal == f"{pattern.head}*"


@dataclass(slots=True)
class _Head:
    """The patterns with the same text before the first wildcard, for values that begin with it."""

    rules: int = 0
    """Rules whose pattern is this text and one asterisk: there is nothing left to compare."""
    patterns: list[tuple[int, StringPattern]] = field(default_factory=list)
    """The other rules, as bits, with their patterns."""

    def add(self, bit: int, pattern: StringPattern) -> None:
        if _is_head(pattern):
            self.rules |= bit
        else:
            self.patterns.append((bit, pattern))

    def rules_for(self, value: str) -> int:
        rules = self.rules
        for bit, pattern in self.patterns:
            if pattern.matches(value):
                rules |= bit
        return rules


@dataclass(slots=True)
class _Ranges:
    """Comparisons: between two neighbouring bounds the same rules accept all numbers."""

    bounds: list[int] = field(default_factory=list)
    rules: list[int] = field(default_factory=list)
    """For each bound the rules that accept the numbers from it up to the next one."""

    @classmethod
    def of(cls, patterns: Iterable[tuple[int, RangePattern]]) -> _Ranges:
        changes: dict[int, int] = defaultdict(int)
        for bit, pattern in patterns:
            for one in pattern.intervals:
                changes[one.low] ^= bit
                if one.high is not None:
                    changes[one.high + 1] ^= bit
        ranges, rules = cls(), 0
        for bound in sorted(changes):
            rules ^= changes[bound]
            ranges.bounds.append(bound)
            ranges.rules.append(rules)
        return ranges

    def rules_for(self, value: int) -> int:
        at = bisect_right(self.bounds, value)
        return self.rules[at - 1] if at else 0


@dataclass(slots=True)
class _Field:
    """The index of one field."""

    name: str
    all: int
    """The bits of all rules of the table."""
    patterns: Mapping[int, Pattern]
    """Rule index -> pattern, for the rules that look at the field."""

    default: FieldValue = field(init=False)
    """The value of a message that does not have the field."""
    indifferent: int = field(init=False)
    """Rules that accept any value."""
    literal: dict[FieldValue, int] = field(init=False)
    """Value -> rules that accept this one only."""
    heads: dict[int, dict[str, _Head]] = field(init=False)
    """Length of a head -> head -> the patterns that begin with it."""
    expressions: list[tuple[int, RegexPattern]] = field(default_factory=list)
    """Rules, as bits, with their regular expressions."""
    ranges: _Ranges = field(init=False)
    """The comparisons."""
    is_remembered: bool = field(init=False)
    """Whether values come again often enough."""
    known: dict[FieldValue | None, int] = field(default_factory=dict)
    """Value -> rules that accept it, for values seen before."""

    def __post_init__(self) -> None:
        literal: dict[FieldValue, int] = defaultdict(int)
        heads: dict[int, dict[str, _Head]] = defaultdict(dict)
        ranges: list[tuple[int, RangePattern]] = []
        self.is_remembered = not pattern_keyword(self.name).is_varied
        self.indifferent = self.all
        for bit, pattern in self._bits():
            self.indifferent &= ~bit
            self.default = pattern.default
            if isinstance(pattern, NumberPattern):
                literal[pattern.value or 0] |= bit
            elif isinstance(pattern, RangePattern):
                ranges.append((bit, pattern))
            elif isinstance(pattern, RegexPattern):
                self.expressions.append((bit, pattern))
            elif isinstance(pattern, StringPattern) and pattern.is_literal:
                literal[pattern.normal] |= bit
            elif isinstance(pattern, StringPattern):
                heads[len(pattern.head)].setdefault(pattern.head, _Head()).add(bit, pattern)
        self.literal, self.heads = dict(literal), dict(heads)
        self.ranges = _Ranges.of(ranges)

    def _bits(self) -> Iterator[tuple[int, Pattern]]:
        for index, pattern in self.patterns.items():
            for one in _members(pattern):
                yield 1 << index, one

    def rules_for(self, value: FieldValue | None) -> int:
        """The rules that accept a value; None stands for a field that is not there."""
        if not self.is_remembered:
            return self._evaluated(self.default if value is None else value)
        rules = self.known.get(value)
        if rules is None:
            if len(self.known) >= MEMO_LIMIT:
                self.known.clear()
            rules = self.known[value] = self._evaluated(self.default if value is None else value)
        return rules

    def _evaluated(self, value: FieldValue) -> int:
        if isinstance(value, int):
            return self.indifferent | self.literal.get(value, 0) | self.ranges.rules_for(value)
        value = value.rstrip(" ")
        rules = self.indifferent | self.literal.get(value, 0)
        for length, heads in self.heads.items():
            # A head may end in blanks, and those of the padding match too.
            head = heads.get(value[:length].ljust(length))
            if head is not None:
                rules |= head.rules_for(value)
        for bit, expression in self.expressions:
            if not rules & bit and expression.matches(value):
                rules |= bit
        return rules
