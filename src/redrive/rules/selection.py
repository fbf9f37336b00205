"""Which rules match a message, which of them applies, and when its attempts happen.

The rules that match a message are ``candidates``: bit i is set if rule i matches. A bitset index
finds them. Each field has an index from a value to an integer whose bit i says that rule i accepts
this value. The rules that match a message are the AND of these integers, so the cost grows slowly
with the number of rules. Wildcards and regular expressions are evaluated once for each distinct
value.

The first rule that matches is usually near the top of the table. The first rules have their own
index, with small integers, and the index of the whole table is used only if none of them matches.
Fields whose value differs in nearly every message, such as the text of an error, are not cached,
and patterns that cannot be looked up are evaluated only for rules whose other patterns match.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import reduce
from itertools import accumulate, groupby, pairwise
from operator import itemgetter, or_, xor
from typing import Final, NamedTuple, TypeAlias

from redrive.rules.backoff import Backoff
from redrive.rules.keywords import GROWING, Dialect, field_order, pattern_keyword
from redrive.rules.patterns import (
    FieldValue,
    Interval,
    Pattern,
    StringPattern,
    intervals_of,
    members_of,
)
from redrive.rules.rule import (
    Action,
    Authority,
    Control,
    RetryTo,
    Rule,
    original_target,
    resolve_target,
)
from redrive.rules.table import RulesTable

_FOLLOWED: Final = 1_000
"""Maximum attempts to follow on an ageing message."""
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

    def add(self, pattern: StringPattern, bit: int) -> None:
        """Add the pattern of a rule."""
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
        """``patterns`` has the patterns of each field by the index of their rule."""
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


Message: TypeAlias = Mapping[str, FieldValue]
"""Match fields by pattern keyword."""
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
class TableExplanation:
    """What a table does with one message."""

    verdicts: tuple[RuleVerdict, ...]
    turns: tuple[Turn, ...]
    """The rules that apply in turn, and when, if every attempt that can fail does."""
    warnings: tuple[str, ...] = ()
    """What is odd about the order of the turns, one sentence each."""


def explain(table: RulesTable, fields: Mapping[str, FieldValue]) -> TableExplanation:
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
    return TableExplanation(verdicts, course, tuple(warnings))


def explain_rule(table: RulesTable, index: int, fields: Mapping[str, FieldValue]) -> RuleVerdict:
    """Compare a message with every pattern of one rule; rules count from 0."""
    rule = table.rules[index]
    verdicts = []
    for keyword in sorted(rule.patterns, key=field_order):
        pattern = rule.patterns[keyword]
        value = fields.get(keyword, pattern.default)
        verdicts.append(ClauseVerdict(keyword, pattern, value, pattern.matches(value)))
    return RuleVerdict(index, rule, tuple(verdicts))


# What a table does with a message, however its rules are written: while every attempt fails, a
# sequence of attempts, and then it discards the message or keeps it.


@dataclass(frozen=True, slots=True)
class RulePut:
    """A way to put a message; rules that put it in the same way are equal here."""

    queue: str
    queue_manager: str
    """Empty for the local one."""
    header: bool
    """Whether the dead-letter header stays on the message."""
    authority: Authority
    is_topic: bool = False
    """Whether FWDT names the queue, which then is a topic."""
    backoff: Backoff | None = None
    """The delays between its attempts; None for RETRYINT."""
    to: RetryTo = RetryTo.TOPIC
    """Whether it goes to the topic of its group instead of the queue."""
    transform: str = ""


@dataclass(frozen=True, slots=True)
class TableDecision:
    """The decision about a message, as long as every attempt fails."""

    steps: tuple[tuple[RulePut, int], ...]
    """The puts in order, each with its number of attempts; equal successive puts are one step."""
    discarded: bool
    """Whether it is discarded at the end; otherwise it remains, by IGNORE or without a rule."""
    quarantined: bool = False


def decide(
    table: RulesTable, candidates: int, message: Message, failed: FailedAttempts = 0
) -> tuple[TableDecision, tuple[int, ...]]:
    """What a table does with a message, and the indexes of the rules that apply to it.

    ``candidates`` are the matching rules, as bits; ``failed`` are the attempts that have failed
    already.
    """
    turns = [
        (index, table.rules[index], left)
        for index, left in attempts_left(table, candidates, failed)
    ]
    # Each BACKOFF restarts with its first delay, so its attempts are a separate step.
    tried = [
        (put_of(rule, message), -1 if rule.backoff is None else index, left)
        for index, rule, left in turns
        if rule.action.can_fail
    ]
    steps = tuple(
        (put, sum(left for _, _, left in same))
        for (put, _), same in groupby(tried, key=itemgetter(0, 1))
    )
    end = turns[-1][1].action if turns else Action.IGNORE
    decision = TableDecision(steps, end is Action.DISCARD, end is Action.QUARANTINE)
    return decision, tuple(index for index, _, _ in turns)


def decide_while_ageing(
    table: RulesTable, message: Message
) -> tuple[list[tuple[int, RulePut]], str]:
    """The attempts on a message that ages while all fail, and the last action.

    Attempts have their times in seconds; the message is as old as at the first attempt.
    """
    matcher = Matcher(table)
    ages = {name: int(message.get(name, 0)) for name in GROWING}
    failed: Counter[int] = Counter()
    puts: list[tuple[int, RulePut]] = []
    seconds = 0
    for _ in range(_FOLLOWED):
        now = {name: age + seconds for name, age in ages.items()}
        candidates = matcher.candidates_of({**message, **now})
        index = select_rule(table, candidates, failed)
        rule = None if index is None else table.rules[index]
        if index is None or rule is None or not rule.action.can_fail:
            return puts, rule.action if rule else Action.IGNORE
        puts.append((seconds, put_of(rule, message)))
        failed[index] += 1
        following = select_rule(table, candidates, failed)
        if following is not None:
            interval = table.control.retry_interval
            seconds += table.rules[following].wait_before(failed[following], interval)
    return puts, ""


def put_of(rule: Rule, message: Message) -> RulePut:
    """The put of a rule for a message."""
    is_retry = rule.action is Action.RETRY
    header = rule.header and not is_retry
    target = original_target(message) if is_retry else resolve_target(rule, message)
    is_topic = bool(rule.forward_topic)
    return RulePut(*target, header, rule.authority, is_topic, rule.backoff, rule.to, rule.transform)
