"""What a table does with one message, rule by rule and clause by clause."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

from redrive.rules.keywords import field_order
from redrive.rules.patterns import FieldValue, Pattern
from redrive.rules.rule import Rule
from redrive.rules.selection import Turn, harsher_puts, turns
from redrive.rules.table import RulesTable


@dataclass(frozen=True, slots=True)
class ClauseVerdict:
    """Whether one pattern of a rule matches the message."""

    keyword: str
    pattern: Pattern
    value: FieldValue
    """The field of the message that the pattern looks at."""
    matches: bool


@dataclass(frozen=True, slots=True)
class RuleVerdict:
    """Whether a rule matches the message, and which of its patterns do."""

    index: int
    rule: Rule
    clauses: tuple[ClauseVerdict, ...]

    @property
    def matches(self) -> bool:
        """Whether all patterns match."""
        return all(clause.matches for clause in self.clauses)


@dataclass(frozen=True, slots=True)
class Explanation:
    """What a table does with one message."""

    verdicts: tuple[RuleVerdict, ...]
    """One for each rule, in order."""
    turns: tuple[Turn, ...]
    """The rules that apply in turn, and when, if every attempt that can fail does."""
    warnings: tuple[str, ...] = ()
    """What is odd about the order of the turns, one sentence each."""


def explain(table: RulesTable, fields: Mapping[str, FieldValue]) -> Explanation:
    """Compare a message with every pattern of every rule; a missing field is blank or 0.

    The patterns are evaluated one by one, without the index of ``Matcher``.
    """
    verdicts = tuple(explain_rule(table, index, fields) for index in range(len(table.rules)))
    candidates = sum(1 << verdict.index for verdict in verdicts if verdict.matches)
    course = tuple(turns(table, candidates))
    rules = [table.rules[turn.rule] for turn in course if turn.rule is not None]
    warnings = (
        f"once the attempts of the rule at line {spent.line} have failed, the rule at line"
        f" {following.line} puts it {' and '.join(puts)}"
        for spent, following in pairwise(rules)
        if (puts := harsher_puts(spent, following, table.control))
    )
    return Explanation(verdicts, course, tuple(warnings))


def explain_rule(table: RulesTable, index: int, fields: Mapping[str, FieldValue]) -> RuleVerdict:
    """Compare a message with every pattern of one rule; rules count from 0."""
    rule = table.rules[index]
    verdicts = []
    for keyword in sorted(rule.patterns, key=field_order):
        pattern = rule.patterns[keyword]
        value = fields.get(keyword, pattern.default)
        verdicts.append(ClauseVerdict(keyword, pattern, value, pattern.matches(value)))
    return RuleVerdict(index, rule, tuple(verdicts))
