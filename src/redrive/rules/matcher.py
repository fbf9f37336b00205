"""Which rules match: a bitset index over the rules of a table.

For each field that some rule looks at there is an index from a value to an integer whose bit i
says that rule i accepts this value. The rules that match a message are the AND of these integers,
so the work hardly grows with the number of rules. Wildcards are evaluated once for each distinct
value.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from redrive.rules.keywords import PATTERN_KEYWORDS
from redrive.rules.patterns import FieldValue, NumberPattern, Pattern, StringPattern, default_value
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
        patterns: dict[str, dict[int, Pattern]] = defaultdict(dict)
        for index, rule in enumerate(table.rules):
            for name, pattern in rule.patterns.items():
                if not pattern.matches_anything:
                    patterns[name][index] = pattern
        self._fields = [
            _Field(name, self._all, patterns[name]) for name in PATTERN_KEYWORDS if name in patterns
        ]

    def candidates_of(self, fields: Mapping[str, FieldValue]) -> int:
        """The rules that match one message.

        Args:
            fields: Match fields by pattern keyword; a missing one is blank or 0.

        Returns:
            An integer whose bit i says that rule i's pattern matches.
        """
        candidates = self._all
        for index in self._fields:
            candidates &= index.rules_for(fields.get(index.name))
        return candidates


@dataclass(slots=True)
class _Head:
    """The patterns with the same text before the first wildcard, for values that begin with it."""

    rules: int = 0
    """Rules whose pattern is this text and one asterisk: there is nothing left to compare."""
    patterns: list[tuple[int, StringPattern]] = field(default_factory=list)
    """The other rules, as bits, with their patterns."""

    def add(self, bit: int, pattern: StringPattern) -> None:
        if pattern.normal == f"{pattern.head}*":
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
    known: dict[FieldValue | None, int] = field(default_factory=dict)
    """Value -> rules that accept it, for values seen before."""

    def __post_init__(self) -> None:
        literal: dict[FieldValue, int] = defaultdict(int)
        heads: dict[int, dict[str, _Head]] = defaultdict(dict)
        self.indifferent = self.all
        for index, pattern in self.patterns.items():
            bit = 1 << index
            self.indifferent &= ~bit
            self.default = default_value(pattern)
            if isinstance(pattern, NumberPattern):
                literal[pattern.value or 0] |= bit
            elif pattern.is_literal:
                literal[pattern.normal] |= bit
            else:
                heads[len(pattern.head)].setdefault(pattern.head, _Head()).add(bit, pattern)
        self.literal, self.heads = dict(literal), dict(heads)

    def rules_for(self, value: FieldValue | None) -> int:
        """The rules that accept a value; None stands for a field that is not there."""
        rules = self.known.get(value)
        if rules is None:
            if len(self.known) >= MEMO_LIMIT:
                self.known.clear()
            rules = self.known[value] = self._evaluated(self.default if value is None else value)
        return rules

    def _evaluated(self, value: FieldValue) -> int:
        if isinstance(value, int):
            return self.indifferent | self.literal.get(value, 0)
        value = value.rstrip(" ")
        rules = self.indifferent | self.literal.get(value, 0)
        for length, heads in self.heads.items():
            # A head may end in blanks, and those of the padding match too.
            head = heads.get(value[:length].ljust(length))
            if head is not None:
                rules |= head.rules_for(value)
        return rules
