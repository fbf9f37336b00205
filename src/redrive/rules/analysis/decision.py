"""What a table does with a message, without regard to how its rules say it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from types import MappingProxyType
from typing import Final, TypeAlias

from redrive.rules.analysis.search import Message
from redrive.rules.backoff import Backoff
from redrive.rules.rule import Action, Authority, Rule
from redrive.rules.selection import rules_of
from redrive.rules.table import RulesTable
from redrive.rules.targets import resolve_target

__all__ = ["Decision", "Put", "decide", "put_of"]

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
    backoff: Backoff | None = None
    """The delays between its attempts; None for RETRYINT."""


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
    tried = [index for index in rules if table.rules[index].action.can_fail]
    puts = [(put_of(table.rules[index], message), index, table.rules[index]) for index in tried]
    steps = tuple(
        (put, sum(rule.retry - failed.get(index, 0) for _, index, rule in same))
        for (put, _), same in groupby(puts, key=_alike)
    )
    end = last.action if last is not None else None
    return Decision(steps, end is Action.DISCARD, end is Action.QUARANTINE), rules


def _alike(tried: tuple[Put, int, Rule]) -> tuple[Put, int]:
    """What attempts have in common that are one step: with each BACKOFF delays begin anew."""
    put, _, rule = tried
    return put, 0 if rule.backoff is None else id(rule)


def _applied(table: RulesTable, candidates: int, failed: Mapping[int, int]) -> Iterator[int]:
    for index in rules_of(candidates):
        rule = table.rules[index]
        if not rule.action.can_fail:
            yield index
            return
        if failed.get(index, 0) < rule.retry:
            yield index


def put_of(rule: Rule, message: Message) -> Put:
    """How a rule whose action can fail puts a message."""
    target = resolve_target(rule, message)
    header = rule.action is Action.FWD and rule.header
    return Put(
        target.queue,
        target.queue_manager,
        header,
        rule.authority,
        bool(rule.forward_topic),
        rule.backoff,
    )
