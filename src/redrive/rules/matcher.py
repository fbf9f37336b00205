"""Which rules match: a bitset index over the rules of a table.

For each field that some rule looks at there is an index from a value to an integer whose bit i
says that rule i accepts this value. The rules that match a message are the AND of these integers,
so the work hardly grows with the number of rules. Wildcards are evaluated once for each distinct
value.

Columns are matched by their distinct rows. Values that the same rules accept are one *class*;
rows with the same classes are one row; and sorted, distinct rows form a tree in which rows that
begin alike share their first steps. Each node of the tree is one AND.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import and_
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from redrive.rules.keywords import PATTERN_KEYWORDS
from redrive.rules.patterns import FieldValue, NumberPattern, Pattern, StringPattern, default_value
from redrive.rules.table import RulesTable

__all__ = ["MEMO_LIMIT", "Matcher"]

MEMO_LIMIT: Final = 100_000
"""Distinct values of one field that are remembered at most.

Senders choose the values, so their number has no bound; a full memory is emptied.
"""

_KEY_LIMIT: Final = 2**62
"""Combinations of classes that can be told apart in one 64-bit key."""

_BLOCK: Final = 4096
"""Distinct rows whose trees are grown together: few enough to stay in the processor's cache."""

Codes: TypeAlias = npt.NDArray[np.int64]


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

    def candidates(self, columns: Mapping[str, Any], rows: int) -> list[int]:
        """The rules that match each row of some columns.

        Args:
            columns: Match fields by pattern keyword, each a ``pyarrow.DictionaryArray`` of strings
                or integers. A missing column or a null is blank or 0.
            rows: Length of the columns.

        Returns:
            One integer a row, as ``candidates_of`` gives it. Rows that are alike share one object.
        """
        codes, sets = self.groups(columns, rows)
        return list(map(sets.__getitem__, codes.tolist()))

    def groups(self, columns: Mapping[str, Any], rows: int) -> tuple[Codes, Sequence[int]]:
        """As ``candidates``, but each set of rules is given once.

        Args:
            columns: As in ``candidates``.
            rows: Length of the columns.

        Returns:
            For each row an index into the second value, int64; and the integers.
        """
        classified = [
            index.classified(columns[index.name])
            if index.name in columns
            else _Column(np.zeros(rows, dtype=np.int64), [index.rules_for(None)])
            for index in self._fields
        ]
        # Few classes first: rows then begin alike as far as possible.
        classified.sort(key=lambda column: len(column.sets))
        pending, size = [_Column(np.zeros(rows, dtype=np.int64), [self._all])], 1
        for column in classified:
            if size * len(column.sets) > _KEY_LIMIT:
                pending = [_intersected(pending, rows)]
                size = len(pending[0].sets)
            pending.append(column)
            size *= len(column.sets)
        return _intersected(pending, rows)


class _Column(NamedTuple):
    """Rows as codes of the rules that accept them."""

    codes: Codes
    """For each row an index into ``sets``."""
    sets: Sequence[int]
    """Sets of rules as bits."""


def _intersected(columns: Sequence[_Column], rows: int) -> _Column:
    """The rules that every column accepts, row by row."""
    keys = np.zeros(rows, dtype=np.int64)
    below = 1
    for column in columns:
        keys = keys * len(column.sets) + column.codes
        below *= len(column.sets)
    encoded = pa.array(keys).dictionary_encode()
    distinct = encoded.dictionary.to_numpy()
    order = np.argsort(distinct)
    ranks = np.empty_like(order)
    ranks[order] = np.arange(len(order))
    keys, sets = distinct[order], []
    for start in range(0, len(keys), _BLOCK):
        sets += _tree(keys[start : start + _BLOCK], below, columns)
    return _Column(ranks[encoded.indices.to_numpy()], sets)


def _tree(keys: Codes, below: int, columns: Sequence[_Column]) -> list[int]:
    """The rules that every column accepts, for sorted keys: one AND for each node of their tree.

    Args:
        keys: Classes of all columns in one number, the first column's in the highest place.
        below: How many keys there could be.
        columns: The columns.
    """
    nodes, sets = np.zeros(len(keys), dtype=np.int64), [-1]
    for column in columns:
        below //= len(column.sets)
        prefixes = keys // below
        is_first = np.ones(len(keys), dtype=np.bool_)
        np.not_equal(prefixes[1:], prefixes[:-1], out=is_first[1:])
        parents = nodes[is_first].tolist()
        classes = (prefixes[is_first] % len(column.sets)).tolist()
        sets = list(
            map(and_, map(sets.__getitem__, parents), map(column.sets.__getitem__, classes))
        )
        nodes = np.cumsum(is_first) - 1
    return sets


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
    classes: dict[FieldValue | None, int] = field(default_factory=dict)
    """Value -> class."""
    class_of: dict[int, int] = field(default_factory=dict)
    """Set of rules -> class."""
    sets: list[int] = field(default_factory=list)
    """Class -> set of rules."""

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
        if len(self.classes) > MEMO_LIMIT:
            self._forget()
        return self.sets[self._class(value)]

    def classified(self, column: Any) -> _Column:  # noqa: ANN401 - pyarrow has no types
        """The rules that accept the values of a dictionary-encoded column."""
        if len(self.classes) > MEMO_LIMIT:
            self._forget()
        values = column.dictionary.to_pylist()
        classes = np.fromiter(map(self._class, [*values, None]), np.int64, len(values) + 1)
        rows = column.indices.fill_null(len(values)).to_numpy()
        return _Column(classes[rows], self.sets)

    def _class(self, value: FieldValue | None) -> int:
        known = self.classes.get(value)
        if known is None:
            rules = self._evaluated(self.default if value is None else value)
            known = self.class_of.setdefault(rules, len(self.sets))
            if known == len(self.sets):
                self.sets.append(rules)
            self.classes[value] = known
        return known

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

    def _forget(self) -> None:
        self.classes.clear()
        self.class_of.clear()
        self.sets = []
