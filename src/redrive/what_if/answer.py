"""The answer: what changes, for how many messages, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from redrive.rules.analysis import ControlChange
from redrive.topology.names import Names
from redrive.what_if.equal_messages import Disposition


class Loss(IntEnum):
    """Whether a change throws away a message that was kept; the worst first."""

    AT_ONCE = 0
    IN_THE_END = 1
    """Once every attempt before has failed."""
    NONE = 2


class Cell(NamedTuple):
    """A cell of the matrix: messages with the same actions."""

    old: Disposition
    new: Disposition
    is_changed: bool
    """Whether anything becomes different for them, now or after failed attempts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One message of a kind of change."""

    message: str
    """Its identity; of history, that of one of the messages that are alike."""
    fields: Mapping[str, str | int]
    """What rules look at."""
    old: str
    new: str
    because: Sequence[str]
    """Why the new table does something else, line by line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Messages for which the same two rules decide, and something becomes different."""

    old: Disposition
    old_line: int
    """Line of the rule in the old table; 0 for none."""
    new: Disposition
    new_line: int
    loss: Loss
    count: int
    samples: Sequence[Sample]


class RuleCount(NamedTuple):
    """To how many messages one rule applies next."""

    rule: str
    """Its text in one line."""
    old_line: int | None
    """None if the old table does not have it."""
    old: int
    new_line: int | None
    new: int


class TargetCount(NamedTuple):
    """How many messages are put on one queue next."""

    disposition: Disposition
    target: Names
    old: int
    new: int


@dataclass(frozen=True, slots=True)
class Refused:
    """Puts of the new table that would fail at this moment."""

    target: Names
    reason: int
    detail: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """What becomes different if one table takes the place of another."""

    handler: str
    old_name: str
    old_hash: str
    new_name: str
    new_hash: str
    messages: Mapping[str, int]
    """How many were looked at, by where they wait."""
    matrix: Mapping[Cell, int]
    changes: Sequence[Change]
    """New discards first, then the most frequent."""
    rules: Sequence[RuleCount]
    targets: Sequence[TargetCount]
    refused: Sequence[Refused]
    never_matched: Sequence[tuple[int, str]]
    """Line and text of the new table's rules that match none of the messages."""
    control: Sequence[ControlChange]
    schemes: Sequence[str]
    """Names of schemes of dead letters that the settings define otherwise, or do not define."""
    seconds: float
    """How long reading and deciding took."""
    notes: Sequence[str]
    """What was not taken into account, and why."""

    @property
    def total(self) -> int:
        """Messages that were looked at."""
        return sum(self.messages.values())

    @property
    def changed(self) -> int:
        """Messages for which something becomes different."""
        return sum(count for cell, count in self.matrix.items() if cell.is_changed)

    def lost(self, loss: Loss) -> int:
        """Messages that were kept and are thrown away."""
        return sum(change.count for change in self.changes if change.loss is loss)

    def dispositions(self, *, new: bool) -> dict[Disposition, int]:
        """Messages by what a table does with them next."""
        found = dict.fromkeys(Disposition, 0)
        for cell, count in self.matrix.items():
            found[cell.new if new else cell.old] += count
        return found
