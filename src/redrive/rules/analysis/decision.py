"""What a table does with a message, without regard to how its rules say it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import TypeAlias

from redrive.rules.analysis.search import Message
from redrive.rules.backoff import Backoff
from redrive.rules.rule import Action, Authority, Rule
from redrive.rules.selection import rules_of
from redrive.rules.table import RulesTable
from redrive.rules.targets import resolve_target

__all__ = ["Decision", "Put", "decide"]


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
    table: RulesTable, candidates: int, message: Message
) -> tuple[Decision, tuple[int, ...]]:
    """What a table does with a message.

    Args:
        table: The table.
        candidates: The rules that match, as bits.
        message: The match fields.

    Returns:
        The decision, and the indexes of the rules that make it.
    """
    rules = tuple(_applied(table, candidates))
    last = table.rules[rules[-1]] if rules else None
    tried = [rule for rule in map(table.rules.__getitem__, rules) if rule.action.can_fail]
    steps = tuple(
        (put, sum(rule.retry for _, rule in same))
        for (put, _), same in groupby([(_put(rule, message), rule) for rule in tried], key=_alike)
    )
    end = last.action if last is not None else None
    return Decision(steps, end is Action.DISCARD, end is Action.QUARANTINE), rules


def _alike(tried: tuple[Put, Rule]) -> tuple[Put, int]:
    """What attempts have in common that are one step: with each BACKOFF delays begin anew."""
    put, rule = tried
    return put, 0 if rule.backoff is None else id(rule)


def _applied(table: RulesTable, candidates: int) -> Iterator[int]:
    for index in rules_of(candidates):
        yield index
        if not table.rules[index].action.can_fail:
            return


def _put(rule: Rule, message: Message) -> Put:
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
