"""A message as deciders see it, wherever it was read or waited."""

from __future__ import annotations

from typing import Final, NamedTuple
from zlib import crc32

from redrive.messages import DeadLetterProfile, Headers
from redrive.messages.own_headers import GroupTopic

_SEEDS: Final = 1024
"""Number of seeds for the choice among instances of a cluster queue."""


class Message(NamedTuple):
    """One message: a dead letter, or a put."""

    key: bytes | None
    value: bytes | None
    headers: Headers
    """Without Redrive's own headers, except the names of a put."""
    timestamp: int
    """Milliseconds; from the original record, not from a copy."""
    identity: str
    """``topic:partition:offset`` where Redrive first saw the message."""
    origin: str
    """``topic:partition:offset`` of this record on its dead-letter queue, intake or transmission
    queue."""
    hops: int
    """The number of Redrive's puts of it on queues."""
    cut: str = ""
    """What is cut from the key, the value or the headers; empty for a whole message."""
    unreadable: str = ""
    """The header that clients cannot read, so that the message cannot be written unchanged."""
    profile: DeadLetterProfile | None = None
    """Its failure, from its headers; None for a put."""
    failed_at: int = 0
    """Milliseconds; when the processing failed, from which a delay counts; now if that is not in
    the past. 0 for a message that has already waited."""
    group_topic: GroupTopic | None = None
    """The group's topic of its last put; see ``GroupTopic``."""
    put_at: int = 0
    """Milliseconds; when the failed round was put; 0 for other messages."""
    may_be_round: bool = False
    """Whether it is a dead letter without Redrive's headers that was written after the job first
    began: a failed round, if its program drops headers."""


class Attempts(NamedTuple):
    """The failed attempts on a message under one table."""

    failures: int
    """The number of attempts."""
    by_rule: tuple[tuple[int, int], ...] = ()
    """Failed attempts by rule number, if they determine the next rule."""
    is_quarantined: bool = False
    """Whether no table evaluates the message again."""
    counted: int = 0
    """Earlier puts that a RETRY of the same queue counted, under any table."""


NO_ATTEMPTS: Final = Attempts(0)
"""No attempts."""


def seed_of(identity: str) -> int:
    """The seed of one message, the same for every decision about it.

    The identity is ``topic:partition:offset`` where Redrive first saw the message, or the name of
    the open of its put.
    """
    return 1 + crc32(identity.encode()) % _SEEDS
