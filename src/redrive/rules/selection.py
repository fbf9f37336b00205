"""Which rule applies to a message, and when its attempts happen.

The rules that match a message are ``candidates``: bit i is set if rule i matches.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from redrive.rules.keywords import Dialect
from redrive.rules.rule import Action, Control, RetryTo, Rule
from redrive.rules.table import RulesTable


class Turn(NamedTuple):
    """A rule's turn on a message whose attempts all fail."""

    seconds: int
    """Time of its first attempt, since the message was first seen or first failed."""
    rule: int | None
    """Index of the rule; None when no rule is left and the message remains."""
    attempts: int
    """How often the rule is tried; 0 when the message remains."""


def rules_of(candidates: int) -> Iterator[int]:
    """The indexes of set bits in ascending order: ``rules_of(0b101)`` gives 0 and 2."""
    while candidates:
        lowest = candidates & -candidates
        yield lowest.bit_length() - 1
        candidates ^= lowest


def select_rule(table: RulesTable, candidates: int, failures: int) -> int | None:
    """The rule that applies to a message after some failed attempts; None if no rule is left.

    Walk the rules that match: IGNORE ends the walk, and so does QUARANTINE; otherwise each rule's
    RETRY is added to a total, and the first rule whose total exceeds the failures applies.
    """
    total = 0
    while candidates:  # rules_of inlined, because this runs once for every dead letter
        lowest = candidates & -candidates
        index = lowest.bit_length() - 1
        rule = table.rules[index]
        total += rule.retry
        if rule.action.keeps or total > failures:
            return index
        candidates ^= lowest
    return None


def select_untried(table: RulesTable, candidates: int, failed: Mapping[int, int]) -> int | None:
    """The first matching rule with attempts left.

    As long as the same rules match, this is the rule of ``select_rule``. If others begin to match,
    as with AGE, each of them has its own attempts: ``failed`` has the failed attempts by rule.
    """
    for index in rules_of(candidates):
        rule = table.rules[index]
        if not rule.action.can_fail or failed.get(index, 0) < rule.retry:
            return index
    return None


def harsher_puts(spent: Rule, following: Rule, control: Control) -> list[str]:
    """What a RETRY does to messages of another RETRY whose attempts have failed, if it is harsher.

    The walk goes on to the next rule that matches, which may be meant for other messages: it puts
    them to more readers, unchanged, or sooner than they came last. Empty if it does none of these.
    """
    is_kafka = control.dialect is Dialect.KAFKA
    if not is_kafka or not spent.action is following.action is Action.RETRY:
        return []
    found = []
    if spent.to is RetryTo.GROUP and following.to is not RetryTo.GROUP:
        found.append("to every reader of the topic, not only to the group that failed")
    if spent.transform and not following.transform:
        found.append(f"unchanged, without TRANSFORM({spent.transform})")
    return [*found, *filter(None, [sooner(spent, following, control)])]


def sooner(spent: Rule, following: Rule, control: Control) -> str:
    """That a RETRY waits less than the last delay of another one; empty if it does not."""
    last = spent.wait_before(spent.retry - 1, control.retry_interval)
    first = following.wait_before(0, control.retry_interval)
    return f"after {first} s, though the last delay was {last} s" if first < last else ""


def turns(table: RulesTable, candidates: int) -> Iterator[Turn]:
    """The rules that apply to a message in turn if every attempt fails.

    The next rule is tried at the next interval, or after the delay of its BACKOFF, not at once. In
    DIALECT(KAFKA) a RETRY has failed when the message comes back: it also waits for its first
    attempt, and the rule after its last attempt does not wait. Jitter and processing times are left
    out. A rule that cannot fail has one attempt and is the last turn; without one, the last turn
    has no rule.
    """
    seconds, has_to_wait = 0, False
    interval = table.control.retry_interval
    counts_rounds = table.control.dialect is Dialect.KAFKA
    for index in rules_of(candidates):
        rule = table.rules[index]
        is_round = counts_rounds and rule.action is Action.RETRY
        if has_to_wait or is_round:
            seconds += rule.wait_before(0, interval)
        if not rule.action.can_fail:
            yield Turn(seconds, index, 1)
            return
        yield Turn(seconds, index, rule.retry)
        seconds += rule.seconds_to(rule.retry - 1, interval)
        has_to_wait = not is_round  # a dead letter that comes back is decided at once
    # After the last failure there is nothing to wait for.
    yield Turn(seconds, None, 0)
