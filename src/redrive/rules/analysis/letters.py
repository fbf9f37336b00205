"""What the rules of two tables do, as letters of words that can be compared rule by rule.

While every attempt fails, what a table does with a message is a word: a letter for each attempt.
Two tables treat a message alike if the words and their ends are the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from redrive.rules.keywords import Dialect
from redrive.rules.patterns import FieldValue, Pattern
from redrive.rules.rule import Action, Rule
from redrive.rules.targets import inserts, resolve_target

__all__ = ["Letter", "letter_of", "meaning_of", "patterns_of"]

_Delays: TypeAlias = tuple[tuple[int, ...], int]
"""The different delays of a BACKOFF, and how often the rule is tried."""


@dataclass(frozen=True, slots=True)
class Letter:
    """One attempt, and how often it comes in a row."""

    rule: Rule
    """A rule that makes such an attempt, without what it matches."""
    references: frozenset[str]
    """Fields of the message that its target depends on."""
    delays: _Delays | None
    """With a BACKOFF: all attempts of the rule are one letter, because delays begin anew."""
    number: int
    """The rule's patterns, if it matters whose attempt it is; else 0."""

    def target(self, message: Mapping[str, FieldValue]) -> tuple[object, ...]:
        """The attempt on one message, by which letters are compared."""
        found = resolve_target(self.rule, message)
        header = self.rule.action is Action.FWD and self.rule.header
        is_topic = bool(self.rule.forward_topic)
        return (*found, header, self.rule.authority, is_topic, self.delays)

    def with_values(self, pinned: Mapping[str, FieldValue]) -> tuple[object, ...]:
        """The attempt with only some fields of the message known."""
        symbols = {name: f"\0{name}" for name in self.references} | dict(pinned)
        return self.target(symbols)


def letter_of(rule: Rule, dialect: Dialect, number: int) -> tuple[Letter, int]:
    """The letter of a rule whose action can fail, and how often it stands in a row."""
    names: set[str] = set(inserts(rule))
    for name in (rule.forward_queue, rule.forward_queue_manager):
        names |= {name[1:]} if name.startswith("&") else set()
    if rule.action is Action.RETRY:
        names = {"DESTQ", "DESTQM"} | ({"TOPIC"} if dialect is Dialect.KAFKA else set())
    bare = replace(rule, patterns={}, retry=1, backoff=None)
    if rule.backoff is None:
        return Letter(bare, frozenset(names), None, number), rule.retry
    delays = rule.backoff.distinct(rule.retry), rule.retry
    if len(delays[0]) == 1:  # nothing begins anew
        return Letter(bare, frozenset(names), (delays[0], 1), number), rule.retry
    return Letter(bare, frozenset(names), delays, number), 1


def meaning_of(rule: Rule) -> tuple[object, ...]:
    """What a rule does, without settings that have no effect."""
    if not rule.action.can_fail:
        return (rule.action,)
    is_forward = rule.action is Action.FWD
    names = rule.forward_queue, rule.forward_queue_manager, rule.forward_topic
    target: Iterable[str] = names if is_forward else ()
    header = is_forward and rule.header
    return rule.action, *target, header, rule.authority, rule.retry, rule.backoff


def patterns_of(rule: Rule) -> frozenset[tuple[str, Pattern]]:
    """The patterns of a rule without those that match anything."""
    return frozenset(
        (name, pattern) for name, pattern in rule.patterns.items() if not pattern.matches_anything
    )
