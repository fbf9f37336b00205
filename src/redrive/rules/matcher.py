"""Which rules match: a bitset index over the rules of a table.

Each field has an index from a value to an integer whose bit i says that rule i accepts this value.
The rules that match a message are the AND of these integers, so the cost grows slowly with the
number of rules. Wildcards and regular expressions are evaluated once for each distinct value.

The first rule that matches is usually near the top of the table. The first rules have their own
index, with small integers, and the index of the whole table is used only if none of them matches.
Fields whose value differs in nearly every message, such as the text of an error, are not cached,
and patterns that cannot be looked up are evaluated only for rules whose other patterns match.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import reduce
from itertools import accumulate
from operator import or_, xor
from typing import Final

from redrive.rules.keywords import field_order, pattern_keyword
from redrive.rules.patterns import (
    FieldValue,
    Interval,
    Pattern,
    StringPattern,
    intervals_of,
    members_of,
)
from redrive.rules.table import RulesTable

MEMO_LIMIT: Final = 100_000
"""Maximum cached values of one field.

Senders choose the values, so their number is unbounded; a full cache is cleared.
"""

FIRST_RULES: Final = 1_000
"""Number of rules at the top of a table with their own index.

The AND of this many bits takes little longer than a lookup, that of 10,000 several times as long.
"""


class Matcher:
    """Finds the rules of a table that match a message.

    Not thread-safe, because it caches the values it has seen.
    """

    def __init__(self, table: RulesTable) -> None:
        indexed: dict[str, dict[int, Pattern]] = defaultdict(dict)
        self._left: dict[int, list[tuple[str, Pattern]]] = defaultdict(list)
        """Bit of a rule -> its patterns that are not part of an index."""
        for index, rule in enumerate(table.rules):
            for name, pattern in rule.selective.items():
                if pattern_keyword(name).is_varied and not _can_be_looked_up(pattern):
                    self._left[1 << index].append((name, pattern))
                else:
                    indexed[name][index] = pattern
        self._unsure = sum(self._left)
        self._all = _Index(indexed, len(table.rules))
        self._parts = [(self._all.rules, self._all)]
        """Rules, as bits, with the index that ``first_of`` uses for them."""
        if len(table.rules) > FIRST_RULES:
            first = _Index(indexed, FIRST_RULES)
            self._parts = [(first.rules, first), (self._all.rules ^ first.rules, self._all)]

    def candidates_of(self, fields: Mapping[str, FieldValue]) -> int:
        """The rules that match one message, as bits.

        ``matcher.candidates_of({"REASON": 2053})`` has bit i set if rule i matches; a missing field
        is blank or 0.
        """
        candidates = self._all.matching(fields, self._all.rules)
        unsure = candidates & self._unsure
        while unsure:
            bit = unsure & -unsure
            if not self._accepts(bit, fields):
                candidates ^= bit
            unsure ^= bit
        return candidates

    def first_of(self, fields: Mapping[str, FieldValue]) -> int | None:
        """The index of the first rule that matches one message; None if no rule matches.

        Patterns of later rules are not evaluated.
        """
        for rules, index in self._parts:
            candidates = index.matching(fields, rules)
            while candidates:
                bit = candidates & -candidates
                if not bit & self._unsure or self._accepts(bit, fields):
                    return bit.bit_length() - 1
                candidates ^= bit
        return None

    def _accepts(self, bit: int, fields: Mapping[str, FieldValue]) -> bool:
        for name, pattern in self._left[bit]:
            if not pattern.matches(fields.get(name, pattern.default)):
                return False
        return True


def _can_be_looked_up(pattern: Pattern) -> bool:
    """Whether an index finds the pattern by a value without evaluating it."""
    return all(
        intervals_of(member)
        or (isinstance(member, StringPattern) and (member.is_literal or member.tail is not None))
        for member in members_of(pattern)
    )


class IntervalIndex:
    """Which rules accept a number: between adjacent bounds the same rules accept all.

    Built from rules, as bits, with their intervals; those of one rule are disjoint.
    """

    def __init__(self, intervals: Iterable[tuple[int, Interval]]) -> None:
        changes: dict[int, int] = defaultdict(int)
        for bit, interval in intervals:
            changes[interval.low] ^= bit
            if interval.high is not None:
                changes[interval.high + 1] ^= bit
        self._bounds = sorted(changes)
        self._rules = list(accumulate((changes[bound] for bound in self._bounds), xor, initial=0))
        """The rules that accept the numbers below all bounds, then from each up to the next one."""

    def rules_for(self, number: int) -> int:
        """The rules, as bits, that accept a number."""
        return self._rules[bisect_right(self._bounds, number)]

    def rules_within(self, interval: Interval) -> int:
        """The rules, as bits, that accept some number of an interval."""
        first = bisect_right(self._bounds, interval.low)
        end = None if interval.high is None else bisect_right(self._bounds, interval.high) + 1
        return reduce(or_, self._rules[first:end], 0)


@dataclass(slots=True)
class _Head:
    """The patterns with the same text before the first wildcard, for values that start with it."""

    length: int
    tails: dict[int, dict[str, int]] = field(default_factory=dict)
    """Length of a tail -> tail -> the rules, as bits, whose pattern is ``head*tail``."""
    patterns: dict[StringPattern, int] = field(default_factory=dict)
    """The other patterns, with their rules."""

    def add(self, pattern: StringPattern, bit: int) -> None:
        """Adds the pattern of a rule."""
        tail = pattern.tail
        if tail is None:
            self.patterns[pattern] = self.patterns.get(pattern, 0) | bit
        else:
            tails = self.tails.setdefault(len(tail), {})
            tails[tail] = tails.get(tail, 0) | bit

    def rules_for(self, value: str) -> int:
        """The rules that accept a value, which begins with the head."""
        rules, rest = 0, max(0, len(value) - self.length)
        for length, tails in self.tails.items():
            if length <= rest:
                rules |= tails.get(value[len(value) - length :], 0)
        for pattern, bits in self.patterns.items():
            if pattern.matches(value):
                rules |= bits
        return rules


class _Index:
    """The index of the first ``size`` rules of a table."""

    def __init__(self, patterns: Mapping[str, Mapping[int, Pattern]], size: int) -> None:
        """Build it from the patterns of each field by the index of their rule."""
        self.rules = (1 << size) - 1
        self.fields: list[tuple[str, _FieldIndex]] = []
        self.varied: list[tuple[str, _FieldIndex]] = []
        """Fields whose values are not cached."""
        for name in sorted(patterns, key=field_order):
            own = {index: of_rule for index, of_rule in patterns[name].items() if index < size}
            fields = self.varied if pattern_keyword(name).is_varied else self.fields
            if own:
                fields.append((name, _FieldIndex(self.rules, own)))

    def matching(self, fields: Mapping[str, FieldValue], rules: int) -> int:
        """The rules among some, as bits, that match a message as far as it can be looked up."""
        value_of = fields.get
        for name, accepting in self.fields:
            rules &= accepting[value_of(name)]
        for name, accepting in self.varied:
            rules &= accepting.rules_for(value_of(name))
        return rules


class _FieldIndex(dict[FieldValue | None, int]):
    """Value of one field -> the rules that accept it; None stands for a missing field.

    Values are evaluated on first use. ``every`` has the bits of all rules.
    """

    def __init__(self, every: int, patterns: Mapping[int, Pattern]) -> None:
        super().__init__()
        self._answers: dict[int, int] = {}
        """Interns equal integers, such as that of all values that no rule names."""
        self._default = next(iter(patterns.values())).default
        """The value of a message without the field."""
        self._indifferent = every & ~sum(1 << index for index in patterns)
        """Rules that accept any value."""
        self._literal: dict[str, int] = {}
        """Text -> rules that accept this one only."""
        self._heads: dict[int, dict[str, _Head]] = {}
        """Length of a head -> head -> the patterns that begin with it."""
        self._expressions: list[tuple[int, Pattern]] = []
        """Rules, as bits, with their patterns that are neither texts nor numbers."""
        for index, pattern in patterns.items():
            for member in members_of(pattern):
                self._add(1 << index, member)
        self._numbers = IntervalIndex(
            (1 << index, interval)
            for index, pattern in patterns.items()
            for interval in intervals_of(pattern)
        )

    def _add(self, bit: int, pattern: Pattern) -> None:
        if intervals_of(pattern):
            return
        if not isinstance(pattern, StringPattern):
            self._expressions.append((bit, pattern))
        elif pattern.is_literal:
            self._literal[pattern.normal] = self._literal.get(pattern.normal, 0) | bit
        else:
            text = pattern.head
            heads = self._heads.setdefault(len(text), {})
            heads.setdefault(text, _Head(len(text))).add(pattern, bit)

    def __missing__(self, value: FieldValue | None) -> int:
        if len(self) >= MEMO_LIMIT:
            self.clear()
            self._answers.clear()
        rules = self.rules_for(value)
        rules = self[value] = self._answers.setdefault(rules, rules)
        return rules

    def rules_for(self, value: FieldValue | None) -> int:
        """The rules that accept a value, without caching it."""
        if value is None:
            value = self._default
        if isinstance(value, int):
            return self._indifferent | self._numbers.rules_for(value)
        value = value.rstrip(" ")
        rules = self._indifferent | self._literal.get(value, 0)
        for length, heads in self._heads.items():
            # A head may end in blanks, which the padding matches.
            head = heads.get(value[:length].ljust(length))
            if head is not None:
                rules |= head.rules_for(value)
        for bit, expression in self._expressions:
            if not rules & bit and expression.matches(value):
                rules |= bit
        return rules
