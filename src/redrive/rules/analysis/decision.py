"""What a table does with a message, without regard to how its rules say it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from types import MappingProxyType
from typing import Final, TypeAlias

from redrive.rules.analysis.search import Message
from redrive.rules.rule import Action, Authority, Rule
from redrive.rules.selection import rules_of
from redrive.rules.table import RulesTable
from redrive.rules.targets import resolve_target

__all__ = ["Decision", "Put", "decide"]

_NOTHING: Final[Mapping[int, int]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Put:
    """One way to put a message: rules that put it alike are the same here."""

    queue: str
    queue_manager: str
    """Empty for the local one."""
    header: bool
    """Whether the dead-letter header stays on."""
    authority: Authority
    is_topic: bool = False
    """Whether FWDT names the queue, which then is a topic."""


Step: TypeAlias = tuple[Put, int]
"""A put, and how often it is tried if every attempt fails."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What becomes of a message, as long as every attempt fails."""

    steps: tuple[Step, ...]
    """The puts in order; those that are alike and follow each other are one."""
    discarded: bool
    """Whether it is deleted in the end; otherwise it remains, by IGNORE or for want of a rule."""
    quarantined: bool = False
    """Whether it remains for good, by QUARANTINE."""


def decide(
    table: RulesTable, candidates: int, message: Message, failed: Mapping[int, int] = _NOTHING
) -> tuple[Decision, tuple[int, ...]]:
    """What a table does with a message.

    Args:
        table: The table.
        candidates: The rules that match, as bits.
        message: The match fields.
        failed: Rule index -> attempts of it that have failed already.

    Returns:
        The decision, and the indexes of the rules that make it.
    """
    rules = tuple(_applied(table, candidates, failed))
    last = table.rules[rules[-1]] if rules else None
    puts = [
        (_put(table.rules[index], message), table.rules[index].retry - failed.get(index, 0))
        for index in rules
        if table.rules[index].action.can_fail
    ]
    steps = tuple(
        (put, sum(retry for _, retry in same)) for put, same in groupby(puts, key=itemgetter(0))
    )
    end = last.action if last is not None else None
    return Decision(steps, end is Action.DISCARD, end is Action.QUARANTINE), rules


def _applied(table: RulesTable, candidates: int, failed: Mapping[int, int]) -> Iterator[int]:
    for index in rules_of(candidates):
        rule = table.rules[index]
        if not rule.action.can_fail:
            yield index
            return
        if failed.get(index, 0) < rule.retry:
            yield index


def _put(rule: Rule, message: Message) -> Put:
    target = resolve_target(rule, message)
    header = rule.action is Action.FWD and rule.header
    return Put(target.queue, target.queue_manager, header, rule.authority, bool(rule.forward_topic))
