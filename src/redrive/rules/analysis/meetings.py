"""Which rules may match the same message, by a quick look: none is left out, some may not."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from redrive.rules.patterns import (
    Interval,
    ListPattern,
    NumberPattern,
    Pattern,
    RangePattern,
    StringPattern,
)

__all__ = ["Meetings"]


class Meetings:
    """For each rule the rules that may match one of its messages.

    Each field has an index of how the texts that a pattern matches begin and end, and of the
    numbers that it matches; so a table of thousands of rules needs no look at each pair of them.

    Args:
        patterns: For each rule its patterns by field, without those that match anything.
    """

    def __init__(self, patterns: Sequence[Mapping[str, Pattern]]) -> None:
        self._patterns = patterns
        self._all = (1 << len(patterns)) - 1
        self._fields: dict[str, _Field] = defaultdict(_Field)
        for index, one in enumerate(patterns):
            for name, pattern in one.items():
                self._fields[name].add(1 << index, pattern)

    def of(self, rule: int) -> int:
        """The rules, as bits, that may match messages of a rule, which is one of them."""
        meeting = self._all
        for name, pattern in self._patterns[rule].items():
            its_field = self._fields[name]
            meeting &= its_field.meeting(pattern) | (self._all & ~its_field.rules)
        return meeting


@dataclass(slots=True)
class _Ends:
    """Rules by one end of the texts that they match, as far as it is known."""

    exactly: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    at_least: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    """For each beginning of such an end, the rules whose end begins so."""

    def add(self, bit: int, end: str) -> None:
        self.exactly[end] |= bit
        for size in range(len(end) + 1):
            self.at_least[end[:size]] |= bit

    def meeting(self, end: str) -> int:
        """The rules whose end is a beginning of this one, or begins with it."""
        rules = self.at_least.get(end, 0)
        for size in range(len(end)):
            rules |= self.exactly.get(end[:size], 0)
        return rules


@dataclass(slots=True)
class _Field:
    """The rules that look at one field."""

    rules: int = 0
    unknown: int = 0
    """Rules of whose values nothing is known."""
    literals: int = 0
    exactly: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    heads: _Ends = field(default_factory=_Ends)
    tails: _Ends = field(default_factory=_Ends)
    """Written backwards."""
    intervals: list[tuple[Interval, int]] = field(default_factory=list)
    known: dict[Pattern, int] = field(default_factory=dict)
    _segments: tuple[Sequence[int], Sequence[int]] | None = None

    def add(self, bit: int, pattern: Pattern) -> None:
        self.rules |= bit
        for one in _members(pattern):
            if isinstance(one, StringPattern):
                head, tail = _ends(one)
                self.heads.add(bit, head)
                self.tails.add(bit, tail)
                if one.is_literal:
                    self.exactly[one.normal] |= bit
            elif (intervals := _intervals(one)) is not None:
                self.intervals += [(it, bit) for it in intervals]
            else:
                self.unknown |= bit
        if isinstance(pattern, StringPattern) and pattern.is_literal:
            self.literals |= bit

    def meeting(self, pattern: Pattern) -> int:
        if pattern not in self.known:
            rules = self.unknown
            for one in _members(pattern):
                rules |= self._meeting(one)
            self.known[pattern] = rules
        return self.known[pattern]

    def _meeting(self, pattern: Pattern) -> int:
        if isinstance(pattern, StringPattern):
            head, tail = _ends(pattern)
            rules = self.heads.meeting(head) & self.tails.meeting(tail)
            if pattern.is_literal:
                rules = (rules & ~self.literals) | self.exactly.get(pattern.normal, 0)
            return rules
        intervals = _intervals(pattern)
        if intervals is None:
            return self.rules
        rules = 0
        for one in intervals:
            rules |= self._within(one)
        return rules

    def _within(self, interval: Interval) -> int:
        """The rules that match a number of an interval: those of each stretch that it touches."""
        if self._segments is None:
            self._segments = _segments(self.intervals)
        bounds, rules = self._segments
        first = max(0, bisect_right(bounds, interval.low) - 1)
        last = len(bounds)
        if interval.high is not None:
            last = bisect_left(bounds, interval.high + 1)
        found = 0
        for index in range(first, last):
            found |= rules[index]
        return found


def _segments(intervals: Iterable[tuple[Interval, int]]) -> tuple[Sequence[int], Sequence[int]]:
    """The numbers at which other rules begin to match, and the rules from each of them on."""
    changes: dict[int, int] = defaultdict(int)
    for one, bit in intervals:
        changes[one.low] ^= bit
        if one.high is not None:
            changes[one.high + 1] ^= bit
    bounds, rules, current = sorted(changes), [], 0
    for bound in bounds:
        current ^= changes[bound]
        rules.append(current)
    return bounds, rules


def _members(pattern: Pattern) -> Iterator[Pattern]:
    yield from pattern.members if isinstance(pattern, ListPattern) else (pattern,)


def _ends(pattern: StringPattern) -> tuple[str, str]:
    """How every value that a pattern matches begins, and backwards how it ends, but for blanks."""
    # Trailing blanks of a head may be those of the padding.
    tail = re.split(r"[*?]", pattern.normal)[-1]
    return pattern.head.rstrip(" "), tail[::-1]


def _intervals(pattern: Pattern) -> Sequence[Interval] | None:
    if isinstance(pattern, NumberPattern):
        return () if pattern.value is None else (Interval(pattern.value, pattern.value),)
    return pattern.intervals if isinstance(pattern, RangePattern) else None
