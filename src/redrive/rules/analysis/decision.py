"""What a table does with a message, independent of how its rules are written.

While every attempt fails, a table makes a sequence of attempts and then discards the message or
keeps it. Two tables treat a message the same if their sequences and ends are the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from operator import itemgetter
from typing import Final, TypeAlias

from redrive.rules.backoff import Backoff
from redrive.rules.keywords import GROWING, Dialect
from redrive.rules.patterns import FieldValue
from redrive.rules.rule import (
    Action,
    Authority,
    RetryTo,
    Rule,
    inserts,
    original_target,
    resolve_target,
)
from redrive.rules.selection import FailedAttempts, Matcher, attempts_left, select_rule
from redrive.rules.table import RulesTable

Message: TypeAlias = Mapping[str, FieldValue]
"""Match fields by pattern keyword."""

_FOLLOWED: Final = 1_000
"""Maximum attempts to follow on an ageing message."""


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
        (_put_of(rule, message), -1 if rule.backoff is None else index, left)
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
        puts.append((seconds, _put_of(rule, message)))
        failed[index] += 1
        following = select_rule(table, candidates, failed)
        if following is not None:
            interval = table.control.retry_interval
            seconds += table.rules[following].wait_before(failed[following], interval)
    return puts, ""


def _put_of(rule: Rule, message: Message) -> RulePut:
    is_retry = rule.action is Action.RETRY
    header = rule.header and not is_retry
    target = original_target(message) if is_retry else resolve_target(rule, message)
    is_topic = bool(rule.forward_topic)
    return RulePut(*target, header, rule.authority, is_topic, rule.backoff, rule.to, rule.transform)


@dataclass(frozen=True, slots=True)
class Attempt:
    """An attempt of a rule on any message."""

    rule: Rule
    """A rule that makes such an attempt, without its patterns."""
    references: frozenset[str]
    """Fields of the message that its target depends on."""
    delays: tuple[tuple[int, ...], int] | None
    """With a BACKOFF, its distinct delays and the number of attempts: the attempts of such a rule
    count as one, because another rule would restart with the first delay."""
    number: int
    """The rule's patterns, if the rule itself matters; else 0."""

    def on(self, message: Message) -> tuple[object, ...]:
        """The attempt on one message; attempts that do the same to it are equal."""
        return _put_of(self.rule, message), self.delays

    def on_any(self, known: Message) -> tuple[object, ...]:
        """The attempt on all messages in which some fields have known values."""
        return self.on({name: f"\0{name}" for name in self.references} | dict(known))


def attempts_of(rule: Rule, dialect: Dialect, number: int) -> tuple[Attempt, int]:
    """The attempt of a rule whose action can fail, and how often the rule makes it."""
    targets = (rule.forward_queue, rule.forward_queue_manager)
    names = {*inserts(rule), *(name[1:] for name in targets if name.startswith("&"))}
    if rule.action is Action.RETRY:
        names = {"DESTQ", "DESTQM"} | ({"TOPIC"} if dialect is Dialect.KAFKA else set())
    delays, times = None, rule.retry
    if rule.backoff is not None:
        distinct = rule.backoff.distinct(rule.retry)
        is_constant = len(distinct) == 1
        delays, times = (distinct, 1 if is_constant else times), times if is_constant else 1
    return Attempt(bare(rule), frozenset(names), delays, number), times


def bare(rule: Rule) -> Rule:
    """A rule without its patterns, attempts and delays."""
    return replace(rule, patterns={}, retry=1, backoff=None)


def meaning_of(rule: Rule) -> Rule:
    """A rule without its patterns, and without settings that have no effect."""
    return replace(rule, patterns={}) if rule.action.can_fail else Rule(action=rule.action)
