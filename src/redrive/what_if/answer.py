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
    """Whether a change discards a message that was kept; the worst first."""

    AT_ONCE = 0
    IN_THE_END = 1
    """Once all earlier attempts have failed."""
    NONE = 2


class Cell(NamedTuple):
    """A cell of the matrix: messages with the same actions."""

    old: Disposition
    new: Disposition
    is_changed: bool
    """Whether anything changes for them, now or after failed attempts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One message of a kind of change."""

    message: str
    """Its identity; for history, that of one of several equal messages."""
    fields: Mapping[str, str | int]
    """The match fields."""
    old: str
    new: str
    because: Sequence[str]
    """Why the new table differs, line by line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Messages with the same two deciding rules, for which something changes."""

    old: Disposition
    old_line: int
    """Line of the rule in the old table; 0 for none."""
    new: Disposition
    new_line: int
    loss: Loss
    count: int
    samples: Sequence[Sample]


class RuleCount(NamedTuple):
    """The number of messages that one rule applies to next."""

    rule: str
    """Its text in one line."""
    old_line: int | None
    """None if the old table does not have it."""
    old: int
    new_line: int | None
    new: int


class TargetCount(NamedTuple):
    """The number of messages put to one queue next."""

    disposition: Disposition
    target: Names
    old: int
    new: int


@dataclass(frozen=True, slots=True)
class Refused:
    """Puts of the new table that would fail now."""

    target: Names
    reason: int
    detail: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """What changes if one table replaces another."""

    handler: str
    old_name: str
    old_hash: str
    new_name: str
    new_hash: str
    messages: Mapping[str, int]
    """The number of messages, by where they wait."""
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
    """Names of dead-letter schemes that differ or are missing in the settings."""
    seconds: float
    """Seconds for reading and deciding."""
    notes: Sequence[str]
    """What was left out, and why."""

    @property
    def total(self) -> int:
        """The number of messages tried."""
        return sum(self.messages.values())

    @property
    def changed(self) -> int:
        """The number of messages for which something changes."""
        return sum(count for cell, count in self.matrix.items() if cell.is_changed)

    def lost(self, loss: Loss) -> int:
        """The number of kept messages that would be discarded."""
        return sum(change.count for change in self.changes if change.loss is loss)

    def dispositions(self, *, new: bool) -> dict[Disposition, int]:
        """The number of messages by what a table does with them next."""
        found = dict.fromkeys(Disposition, 0)
        for cell, count in self.matrix.items():
            found[cell.new if new else cell.old] += count
        return found
