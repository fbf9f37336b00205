"""Messages whose AGE a rule looks at: while they wait for an attempt, other rules come to match."""

from __future__ import annotations

from collections import Counter
from typing import Final, TypeAlias

from redrive.rules.analysis.decision import Put, put_of
from redrive.rules.analysis.search import Message
from redrive.rules.matcher import Matcher
from redrive.rules.selection import select_untried
from redrive.rules.table import RulesTable

__all__ = ["AGE", "fate", "has_age"]

AGE: Final = "AGE"

_ATTEMPTS: Final = 1_000
"""Attempts that are followed at most."""

_Fate: TypeAlias = tuple[tuple[tuple[int, Put], ...], str]
"""The attempts with their seconds, and the last action."""


def has_age(table: RulesTable) -> bool:
    """Whether some rule looks at how old a message is."""
    return AGE in table.asked


def fate(table: RulesTable, message: Message) -> _Fate:
    """What becomes of a message that grows older, as long as every attempt fails.

    Args:
        table: The table.
        message: The match fields; AGE is the age at the first attempt.
    """
    matcher = Matcher(table)
    age = int(message.get(AGE, 0))
    failed: Counter[int] = Counter()
    puts: list[tuple[int, Put]] = []
    seconds = 0
    for _ in range(_ATTEMPTS):
        candidates = matcher.candidates_of({**message, AGE: age + seconds})
        index = select_untried(table, candidates, failed)
        rule = None if index is None else table.rules[index]
        if index is None or rule is None or not rule.action.can_fail:
            return tuple(puts), rule.action if rule else "IGNORE"
        puts.append((seconds, put_of(rule, message)))
        failed[index] += 1
        seconds += rule.delay(failed[index], table.control.retry_interval)
    return tuple(puts), ""
