"""The answer: what changes, for how many messages, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from redrive.rules.analysis import ControlChange
from redrive.what_if.verdict import Disposition


class Loss(StrEnum):
    """Whether a change discards a message that was kept; the worst first."""

    AT_ONCE = "newly discarded"
    IN_THE_END = "newly discarded if every attempt fails"
    NONE = ""


@dataclass(frozen=True, slots=True)
class TableActions:
    """One of the two tables."""

    name: str
    hash: str
    actions: Mapping[str, int]
    """The number of messages by what it does with them next."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of the matrix: messages with the same actions."""

    old: Disposition
    new: Disposition
    changed: bool
    """Whether anything changes for them, now or after failed attempts."""
    count: int


@dataclass(frozen=True, slots=True)
class Sample:
    """One message of a kind of change."""

    message: str
    """Its identity; for history, that of one of several equal messages."""
    fields: Mapping[str, str | int]
    shown: str
    old: str
    new: str
    because: Sequence[str]
    """Why the new table differs, line by line."""


@dataclass(frozen=True, slots=True, order=True)
class NextAction:
    """What a table does next, and the line of its rule; 0 for none."""

    action: Disposition
    line: int


@dataclass(frozen=True, slots=True)
class ChangedMessages:
    """Messages with the same two deciding rules, for which something changes."""

    loss: Loss
    count: int
    old: NextAction
    new: NextAction
    samples: Sequence[Sample]


@dataclass(frozen=True, slots=True)
class RuleCount:
    """The number of messages that one rule applies to next."""

    rule: str
    old_line: int | None
    """None if the old table does not have it."""
    old: int
    new_line: int | None
    new: int


@dataclass(frozen=True, slots=True)
class IdleRule:
    """A rule that matches none of the messages."""

    line: int
    rule: str


@dataclass(frozen=True, slots=True)
class TargetCount:
    """The number of messages put to one queue next."""

    action: Disposition
    target: str
    old: int
    new: int


@dataclass(frozen=True, slots=True)
class RefusedPuts:
    """Puts of the new table that would fail now."""

    target: str
    reason: int
    reason_name: str
    detail: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """What changes if one table replaces another; ``asdict`` makes its document."""

    handler: str
    old: TableActions
    new: TableActions
    messages: Mapping[str, int]
    """The number of messages, by where they wait, and in total."""
    changed: int
    newly_discarded: int
    newly_discarded_in_the_end: int
    changes: Sequence[ChangedMessages]
    """New discards first, then the most frequent."""
    matrix: Sequence[Cell]
    rules: Sequence[RuleCount]
    never_matched: Sequence[IdleRule]
    targets: Sequence[TargetCount]
    failing_now: Sequence[RefusedPuts]
    control: Sequence[ControlChange]
    schemes: Sequence[str]
    """Names of dead-letter schemes that differ or are missing in the settings."""
    seconds: float
    notes: Sequence[str]

    @property
    def total(self) -> int:
        """The number of messages tried."""
        return self.messages["total"]


def document_of_table(answer: WhatIf) -> dict[str, Any]:
    """The results of the messages, if both tables of the answer are the job's."""
    whole = asdict(answer)
    return {
        "handler": answer.handler,
        "table": {"name": answer.new.name, "hash": answer.new.hash},
        "messages": answer.messages,
        "actions": answer.new.actions,
        "rules": [
            {"line": rule.new_line, "rule": rule.rule, "count": rule.new} for rule in answer.rules
        ],
        "targets": [
            {"action": row.action, "target": row.target, "count": row.new} for row in answer.targets
        ],
        **{name: whole[name] for name in ("failing_now", "never_matched", "seconds", "notes")},
    }
