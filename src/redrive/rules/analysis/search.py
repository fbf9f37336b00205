"""A message that some rules match and others do not, or proof that there is none."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from redrive.rules.analysis.decision import Message
from redrive.rules.analysis.field_values import usual_value, value_of
from redrive.rules.analysis.overlaps import Overlaps
from redrive.rules.analysis.text_automata import Effort, Undecided
from redrive.rules.matcher import Matcher
from redrive.rules.patterns import FieldValue, Pattern
from redrive.rules.rule import Control, Rule
from redrive.rules.selection import rules_of
from redrive.rules.table import RulesTable

_ALWAYS_SHOWN: Final = ("DESTQ", "REASON")
"""Fields that every realistic dead letter has."""

_Question: TypeAlias = tuple[str, frozenset[Pattern], frozenset[Pattern]]
"""A question about a field: its keyword, the patterns that match, those that do not."""

STEP_LIMIT: Final = 1_000
"""Maximum messages to try for one answer."""


def bits_of(rules: Iterable[int]) -> int:
    """Rules as a number in which bit i stands for the rule with index i."""
    return sum(1 << rule for rule in set(rules))


_Demand: TypeAlias = Mapping[tuple[str, bool], tuple[Pattern, ...]]
"""By field, the patterns that have to match (True) and those that must not (False)."""


def _with(demand: _Demand, field: tuple[str, bool], pattern: Pattern) -> _Demand:
    there = demand.get(field, ())
    return demand if pattern in there else {**demand, field: (*there, pattern)}


class Search:
    """Searches all possible messages, not only known ones.

    It builds a message with the demanded fields. While a rule matches that must not, one of this
    rule's patterns has to fail: each is tried in turn, with the ones before it matching. The
    ``Matcher`` checks every answer.
    """

    def __init__(self, rules: Sequence[Rule], effort: Effort | None = None) -> None:
        self._effort = effort or Effort()
        self._cost = 20 + len(rules) // 20
        """Approximate steps for one message: a value new to the index is compared with all patterns
        that start with a wildcard."""
        self._patterns = [rule.selective for rule in rules]
        named = (name for one in self._patterns for name in one)
        self._names = tuple(dict.fromkeys((*_ALWAYS_SHOWN, *named)))
        self.candidates_of = Matcher(RulesTable(Control(), tuple(rules))).candidates_of
        self.possible_overlaps = Overlaps(self._patterns).of
        self._values: dict[_Question, FieldValue | Undecided | None] = {}

    def find(
        self,
        matching: int = 0,
        avoiding: int = 0,
        *,
        apart_from: Mapping[str, Sequence[Pattern]] | None = None,
    ) -> Message | None:
        """A message that all of some rules match and none of others; None if there is none.

        ``find(0b01, 0b10)`` matches the first rule and not the second; ``apart_from`` are patterns
        of fields that must not match either.

        Raises:
            Undecided: The search took too long, or depends on regular expressions.
        """
        demand: _Demand = {}
        for rule in rules_of(matching):
            for name, pattern in self._patterns[rule].items():
                demand = _with(demand, (name, True), pattern)
        for name, patterns in (apart_from or {}).items():
            for pattern in patterns:
                demand = _with(demand, (name, False), pattern)
        return self._search(demand, avoiding)

    def _search(self, demand: _Demand, avoiding: int) -> Message | None:
        waiting = [demand]
        is_decided = True
        for _ in range(STEP_LIMIT):
            if not waiting:
                break
            demand = waiting.pop()
            self._effort.spend(self._cost + sum(map(len, demand.values())))
            try:
                message = self._message(demand)
            except Undecided:
                is_decided = False  # there may be one of another kind
                continue
            if message is None:
                continue
            matched = self.candidates_of(message) & avoiding
            if not matched:
                return message
            waiting += self._without(demand, matched)
        if waiting or not is_decided:
            raise Undecided
        return None

    def _without(self, demand: _Demand, matched: int) -> Iterator[_Demand]:
        """The ways to avoid one of the rules that match; they have no message in common."""
        rule = min(rules_of(matched), key=lambda index: len(self._patterns[index]))
        for name, pattern in self._patterns[rule].items():
            if pattern not in demand.get((name, True), ()):
                yield _with(demand, (name, False), pattern)
                demand = _with(demand, (name, True), pattern)

    def _message(self, demand: _Demand) -> Message | None:
        message = {}
        for name in dict.fromkeys((*self._names, *(name for name, _ in demand))):
            value = self._value(name, *(demand.get((name, side), ()) for side in (True, False)))
            if value is None:
                return None
            message[name] = value
        return message

    def _value(
        self, name: str, matching: Sequence[Pattern], avoiding: Sequence[Pattern]
    ) -> FieldValue | None:
        if not matching and not avoiding:
            return usual_value(name)
        key = name, frozenset(matching), frozenset(avoiding)
        if key not in self._values:
            try:
                self._values[key] = value_of(name, matching, avoiding, self._effort)
            except Undecided as undecided:
                self._values[key] = undecided
        value = self._values[key]
        if isinstance(value, Undecided):
            raise value
        return value
