"""What a table does with a message, independent of how its rules are written.

While every attempt fails, a table makes a sequence of attempts and then discards the message or
keeps it. Two tables treat a message the same if their sequences and ends are the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from types import MappingProxyType
from typing import Final, TypeAlias

from redrive.rules.backoff import Backoff
from redrive.rules.keywords import Dialect
from redrive.rules.matcher import Matcher
from redrive.rules.patterns import FieldValue
from redrive.rules.rule import Action, Authority, RetryTo, Rule
from redrive.rules.selection import rules_of, select_untried
from redrive.rules.table import RulesTable
from redrive.rules.targets import inserts, original_target, resolve_target

Message: TypeAlias = Mapping[str, FieldValue]
"""Match fields by pattern keyword."""

AGE: Final = "AGE"
_NOTHING: Final[Mapping[int, int]] = MappingProxyType({})
_FOLLOWED: Final = 1_000
"""Maximum attempts to follow on an ageing message."""


@dataclass(frozen=True, slots=True)
class Put:
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
    """The transform that changes the message."""


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision about a message, as long as every attempt fails."""

    steps: tuple[tuple[Put, int], ...]
    """The puts in order, each with its number of attempts; equal successive puts are one step."""
    discarded: bool
    """Whether it is discarded at the end; otherwise it remains, by IGNORE or without a rule."""
    quarantined: bool = False
    """Whether it is quarantined at the end."""


def decide(
    table: RulesTable, candidates: int, message: Message, failed: Mapping[int, int] = _NOTHING
) -> tuple[Decision, tuple[int, ...]]:
    """What a table does with a message, and the indexes of the rules that apply to it.

    ``candidates`` are the matching rules, as bits; ``failed`` has the attempts that have failed
    already, by rule index.
    """
    applied: list[int] = []
    tried: list[tuple[Put, int, int]] = []
    end = None
    for index in rules_of(candidates):
        rule = table.rules[index]
        attempts = rule.retry - failed.get(index, 0)
        if rule.action.can_fail and attempts <= 0:
            continue
        applied.append(index)
        if not rule.action.can_fail:
            end = rule.action
            break
        # Each BACKOFF restarts with its first delay, so its attempts are a separate step.
        step = -1 if rule.backoff is None else index
        tried.append((_put_of(rule, message), step, attempts))
    steps = tuple(
        (put, sum(attempts for _, _, attempts in same))
        for (put, _), same in groupby(tried, key=lambda it: it[:2])
    )
    return Decision(steps, end is Action.DISCARD, end is Action.QUARANTINE), tuple(applied)


def decide_while_ageing(table: RulesTable, message: Message) -> tuple[list[tuple[int, Put]], str]:
    """The attempts on a message whose AGE grows while all fail, and the last action.

    Attempts have their times in seconds; AGE of the message is its age at the first attempt.
    """
    matcher = Matcher(table)
    age = int(message.get(AGE, 0))
    failed: Counter[int] = Counter()
    puts: list[tuple[int, Put]] = []
    seconds = 0
    for _ in range(_FOLLOWED):
        candidates = matcher.candidates_of({**message, AGE: age + seconds})
        index = select_untried(table, candidates, failed)
        rule = None if index is None else table.rules[index]
        if index is None or rule is None or not rule.action.can_fail:
            return puts, rule.action if rule else Action.IGNORE
        puts.append((seconds, _put_of(rule, message)))
        failed[index] += 1
        following = select_untried(table, candidates, failed)
        if following is not None:
            interval = table.control.retry_interval
            seconds += table.rules[following].wait_before(failed[following], interval)
    return puts, ""


def _put_of(rule: Rule, message: Message) -> Put:
    header = rule.action is Action.FWD and rule.header
    is_retry = rule.action is Action.RETRY
    target = original_target(message) if is_retry else resolve_target(rule, message)
    return Put(
        *target,
        header,
        rule.authority,
        bool(rule.forward_topic),
        rule.backoff,
        rule.to,
        rule.transform,
    )


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


def meaning_of(rule: Rule) -> tuple[object, ...]:
    """What a rule does, without settings that have no effect."""
    if not rule.action.can_fail:
        return (rule.action,)
    is_forward = rule.action is Action.FWD
    names = (rule.forward_queue, rule.forward_queue_manager, rule.forward_topic)
    header = is_forward and rule.header
    return (
        rule.action,
        names if is_forward else (),
        header,
        rule.authority,
        rule.retry,
        rule.backoff,
        rule.to,
        rule.transform,
    )
