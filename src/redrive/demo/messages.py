"""The messages of a demo, and their ends."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

SETTINGS: Final = "redrive.toml"
"""The settings of the job, in the folder of the demo."""
NUMBER_HEADER: Final = "demo.number"
"""Header with the number of a message, which identifies it wherever it ends."""
WAITING: Final = "waiting"
"""No end: the message waits for the job, a channel or its next attempt."""


@dataclass(frozen=True, slots=True)
class Record:
    """The parts of a Kafka record that must stay unchanged."""

    key: bytes | None
    value: bytes | None = field(repr=False)
    headers: tuple[tuple[str, bytes | None], ...] = field(repr=False)
    """Headers without Redrive's own."""
    timestamp: int = 0
    """Milliseconds since 1970; 0 for the time of the put."""


@dataclass(frozen=True, slots=True)
class End:
    """Where a message ends."""

    what: str
    """Its name in the totals, such as ``forwarded``."""
    place: str = ""
    """The queue; for a remaining message, the queue from which it could not be put."""
    reason: int = field(default=0, compare=False)
    """Why it is not on its queue; 0 for any reason."""

    def __str__(self) -> str:
        return f"{self.what} {self.place}".strip()


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a demo."""

    number: int
    """From 0, unique."""
    kind: str
    topic: str
    record: Record
    original: Record
    """What has to arrive, after a dead-letter header is removed."""
    ends: tuple[End, ...]
    made: frozenset[str] = frozenset()
    """Headers that a put adds to it."""
    stage: str = ""
    """The part of the script in which it is put."""
    failures: int = 0
    """How often an application fails again to process it, and dead-letters it again."""


class State(StrEnum):
    """Whether a record on a topic is still the job's."""

    LEFT = "left"
    """The job does not read the topic: the message has arrived."""
    WAITING = WAITING
    """The job reads the topic and has not taken the message yet."""
    REMAINING = "remaining"
    """The job has taken the message and keeps it, because no rule can place it."""


@dataclass(frozen=True, slots=True)
class Found:
    """A message that was found on the broker."""

    place: str
    """``topic:partition:offset``"""
    topic: str
    """Its topic; for a remaining message, the topic from which it could not be put."""
    number: int | None
    """Number of the message; None if it is not the demo's."""
    record: Record
    """The record itself; for a copy kept by the job, its original."""
    state: State = State.LEFT
    rule_line: int = 0
    own_time: int | None = None
    """The record's own timestamp in milliseconds, if it has another one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One record of the outcomes topic."""

    message: str
    """``topic:partition:offset`` where the message was put."""
    time: int
    """Milliseconds since 1970."""
    result: str
    topic: str
    """Where it was put; empty if nowhere."""
    rule_line: int
    """0 if no rule was applied."""
    attempt: int
    """From 1; 0 if nothing was attempted."""
    reason: int
