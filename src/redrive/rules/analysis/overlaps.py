"""Overlap prefilter: rules that may match the same message, no false negatives."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from redrive.rules.matcher import IntervalIndex
from redrive.rules.patterns import (
    Interval,
    Pattern,
    StringPattern,
    intervals_of,
    members_of,
)


class Overlaps:
    """For each rule the rules that may match one of its messages.

    Each field has an index of the prefixes and suffixes of the texts that a pattern matches, and of
    the numbers that it matches, so a table of thousands of rules needs no comparison of all pairs.
    Rules are represented by their patterns, without those that match anything.
    """

    def __init__(self, patterns: Sequence[Mapping[str, Pattern]]) -> None:
        self._patterns = patterns
        self._all = (1 << len(patterns)) - 1
        self._fields: dict[str, _Field] = defaultdict(_Field)
        for index, one in enumerate(patterns):
            for name, pattern in one.items():
                self._fields[name].add(1 << index, pattern)

    def of(self, rule: int) -> int:
        """The rules, as bits, that may match messages of a rule, including itself."""
        rules = self._all
        for name, pattern in self._patterns[rule].items():
            of_field = self._fields[name]
            rules &= of_field.overlapping(pattern) | (self._all & ~of_field.rules)
        return rules


@dataclass(slots=True)
class _Ends:
    """Rules by the known prefix (or suffix) of the texts that they match."""

    exactly: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    at_least: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    """Text -> the rules whose end starts with it."""

    def add(self, bit: int, end: str) -> None:
        self.exactly[end] |= bit
        for size in range(len(end) + 1):
            self.at_least[end[:size]] |= bit

    def overlapping(self, end: str) -> int:
        """The rules whose end is a prefix of this one, or starts with it."""
        rules = self.at_least.get(end, 0)
        for size in range(len(end)):
            rules |= self.exactly.get(end[:size], 0)
        return rules


@dataclass(slots=True)
class _Field:
    """The patterns of one field."""

    rules: int = 0
    unknown: int = 0
    """Rules with patterns whose prefixes and suffixes are unknown."""
    heads: _Ends = field(default_factory=_Ends)
    tails: _Ends = field(default_factory=_Ends)
    """Reversed."""
    intervals: list[tuple[int, Interval]] = field(default_factory=list)
    index: IntervalIndex | None = None
    """The intervals, once all are known."""
    known: dict[Pattern, int] = field(default_factory=dict)

    def add(self, bit: int, pattern: Pattern) -> None:
        self.rules |= bit
        for one in members_of(pattern):
            if isinstance(one, StringPattern):
                head, tail = _ends(one)
                self.heads.add(bit, head)
                self.tails.add(bit, tail)
            elif not intervals_of(one):
                self.unknown |= bit
            self.intervals += [(bit, it) for it in intervals_of(one)]

    def overlapping(self, pattern: Pattern) -> int:
        if pattern not in self.known:
            rules = self.unknown
            for one in members_of(pattern):
                rules |= self._overlapping(one)
            self.known[pattern] = rules
        return self.known[pattern]

    def _overlapping(self, pattern: Pattern) -> int:
        if isinstance(pattern, StringPattern):
            head, tail = _ends(pattern)
            return self.heads.overlapping(head) & self.tails.overlapping(tail)
        if not intervals_of(pattern):
            return self.rules
        self.index = self.index or IntervalIndex(self.intervals)
        rules = 0
        for one in intervals_of(pattern):
            rules |= self.index.rules_within(one)
        return rules


def _ends(pattern: StringPattern) -> tuple[str, str]:
    """The prefix of all values that a pattern matches, and the reversed suffix, except for blanks.

    A NUL marks the other end of a text without wildcards, so that no longer one has the same
    prefix.
    """
    if pattern.is_literal:
        return f"{pattern.normal}\0", f"{pattern.normal[::-1]}\0"
    # Trailing blanks of a head may be padding.
    tail = re.split(r"[*?]", pattern.normal)[-1]
    return pattern.head.rstrip(" "), tail[::-1]
