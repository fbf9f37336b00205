"""Which rule applies to a message, when its attempts happen, and which patterns decide that.

The rules that match a message are ``candidates``: bit i is set if rule i matches.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple, TypeAlias

from redrive.rules.keywords import Dialect, field_order
from redrive.rules.patterns import FieldValue, Pattern
from redrive.rules.rule import Action, Control, RetryTo, Rule
from redrive.rules.table import RulesTable

FailedAttempts: TypeAlias = int | Mapping[int, int]
"""The failed attempts of a message: all together, or those of each rule by its index."""


def rules_of(candidates: int) -> Iterator[int]:
    """The indexes of set bits in ascending order: ``rules_of(0b101)`` gives 0 and 2."""
    while candidates:
        lowest = candidates & -candidates
        yield lowest.bit_length() - 1
        candidates ^= lowest


def attempts_left(
    table: RulesTable, candidates: int, failed: FailedAttempts = 0
) -> Iterator[tuple[int, int]]:
    """The rules that apply in turn while every attempt fails, each with its attempts left.

    Every rule that matches has as many attempts as its RETRY. A number of failed attempts uses up
    those of the first rules. Where rules may begin to match between two attempts, as with AGE,
    failed attempts are counted for each rule, so that each has its own attempts. IGNORE and
    QUARANTINE always apply, and no rule comes after one that cannot fail.
    """
    used, by_rule = (failed, None) if isinstance(failed, int) else (0, failed)
    while candidates:  # rules_of inlined, because every decision begins here
        lowest = candidates & -candidates
        candidates ^= lowest
        index = lowest.bit_length() - 1
        rule = table.rules[index]
        left = rule.retry - (used if by_rule is None else by_rule.get(index, 0))
        if left > 0 or rule.action.keeps:
            yield index, left
            if not rule.action.can_fail:
                return
        used = max(0, -left)


def select_rule(table: RulesTable, candidates: int, failed: FailedAttempts) -> int | None:
    """The rule that applies to a message after some failed attempts; None if no rule is left."""
    for index, _ in attempts_left(table, candidates, failed):
        return index
    return None


class Turn(NamedTuple):
    """A rule's turn on a message whose attempts all fail."""

    seconds: int
    """Time of its first attempt, since the message was first seen or first failed."""
    rule: int | None
    """Index of the rule; None when no rule is left and the message remains."""
    attempts: int
    """How often the rule is tried; 0 when the message remains."""


def turns(table: RulesTable, candidates: int) -> Iterator[Turn]:
    """The rules that apply to a message in turn if every attempt fails, with their times.

    The next rule is tried at the next interval, or after the delay of its BACKOFF, not at once. In
    DIALECT(KAFKA) a RETRY has failed when the message comes back: it also waits for its first
    attempt, and the rule after its last attempt does not wait. Jitter and processing times are left
    out. A rule that cannot fail has one attempt and is the last turn; without one, the last turn
    has no rule.
    """
    seconds, has_to_wait = 0, False
    interval = table.control.retry_interval
    counts_rounds = table.control.dialect is Dialect.KAFKA
    for index, attempts in attempts_left(table, candidates):
        rule = table.rules[index]
        is_round = counts_rounds and rule.action is Action.RETRY
        if has_to_wait or is_round:
            seconds += rule.wait_before(0, interval)
        if not rule.action.can_fail:
            yield Turn(seconds, index, 1)
            return
        yield Turn(seconds, index, attempts)
        seconds += rule.seconds_to(attempts - 1, interval)
        has_to_wait = not is_round  # a dead letter that comes back is decided at once
    # After the last failure there is nothing to wait for.
    yield Turn(seconds, None, 0)


def harsher_puts(spent: Rule, following: Rule, control: Control) -> list[str]:
    """What a RETRY does to messages of another RETRY whose attempts have failed, if it is harsher.

    The next rule that matches may be meant for other messages: it puts them to more readers,
    unchanged, or sooner than they came last. Empty if it does none of these.
    """
    is_kafka = control.dialect is Dialect.KAFKA
    if not is_kafka or not spent.action is following.action is Action.RETRY:
        return []
    puts = []
    if spent.to is RetryTo.GROUP and following.to is not RetryTo.GROUP:
        puts.append("to every reader of the topic, not only to the group that failed")
    if spent.transform and not following.transform:
        puts.append(f"unchanged, without TRANSFORM({spent.transform})")
    return [*puts, *filter(None, [sooner(spent, following, control)])]


def sooner(spent: Rule, following: Rule, control: Control) -> str:
    """That a RETRY waits less than the last delay of another one; empty if it does not."""
    last = spent.wait_before(spent.retry - 1, control.retry_interval)
    first = following.wait_before(0, control.retry_interval)
    return f"after {first} s, though the last delay was {last} s" if first < last else ""


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
