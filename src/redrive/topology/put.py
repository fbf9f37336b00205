"""Puts and where they end: the values that all resolvers share.

A put names a queue and a queue manager. A ``Resolver`` turns the two names into a ``Destination``
(the topic to write) or a ``Refusal`` (the reason code a putting application would get). What
depends on the message or the moment - its length, its persistence, the depth of the queue - is
checked afterwards by ``check_limits``, so that resolutions can be cached.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from redrive.messages.reasons import Reason
from redrive.printable import counted

_ANY_LENGTH = 1 << 62
"""Bytes: more than any body has."""
PERSISTENT = 1
"""MQPER_PERSISTENT, the persistence of a message that survives a restart."""


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """What can make a put fail although its names resolve."""

    put_enabled: bool = True
    """False if any object on the path has PUT(DISABLED)."""
    max_message_length: int | None = None
    """Longest body for the queue, in bytes; None for no limit."""
    max_depth: int | None = None
    """Most messages the queue holds; None for no limit."""
    consumer_group: str | None = None
    """Consumer group whose lag is the depth; a queue without one is never full."""
    queue_manager_max_message_length: int | None = None
    """Longest body for the queue manager, in bytes; None for no limit."""
    temporary: bool = False
    """True for a temporary dynamic queue, which accepts no persistent message."""

    @property
    def longest(self) -> int | None:
        """Length in bytes up to which any body passes; None if other limits apply."""
        if (
            not self.put_enabled
            or self.temporary
            or (self.max_depth is not None and self.consumer_group)
        ):
            return None
        limits = (self.max_message_length, self.queue_manager_max_message_length)
        return min((limit for limit in limits if limit is not None), default=_ANY_LENGTH)


UNLIMITED = QueueLimits()


class Discovered(NamedTuple):
    """A synchronous remote queue definition that queue discovery created."""

    at: str
    queue: str
    queue_manager: str


class DynamicQueue(NamedTuple):
    """A queue that an open created from a model queue."""

    queue_manager: str
    queue: str
    model: str
    until: int | None
    """When its lease ends, in milliseconds since 1970; None for a permanent queue."""

    def is_open(self, now: int) -> bool:
        """Whether it exists at a time, in milliseconds since 1970."""
        return self.until is None or now < self.until


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """Where to write a message."""

    topic: str
    queue: str
    """Resolved queue name, as a dead-letter header would show it."""
    queue_manager: str
    """Resolved queue manager name; empty if the local one has no name."""
    headers: tuple[tuple[str, bytes], ...] = ()
    """Headers to add, such as the destination names a transmission queue carries."""
    limits: QueueLimits = UNLIMITED
    is_arrival: bool = False
    """Whether the message then is on its final queue of IBM MQ, not on the way to it."""
    is_choice: bool = False
    """Whether another seed may lead to another instance of a cluster queue."""
    binds_groups: bool = False
    """Whether the messages of one group go to the same instance."""
    persistence: int = 0
    """MQPER value of a message that uses the queue's default."""
    priority: int = 0
    """MQPRI value of a message that uses the queue's default."""
    cap_expiry: int | None = None
    """Longest Expiry that the message may have, in tenths of a second; None for no limit."""
    discovered: tuple[Discovered, ...] = ()
    """Remote definitions that were discovered, which are permanent."""
    expiry: int | None = None
    """Milliseconds after which a message without an expiry expires; None for never."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a put failed."""

    reason: int
    detail: str
    """One sentence for users: the name or object, and the error."""
    is_kept: bool = False
    """Whether the message stays where it is instead of becoming a dead letter."""


class Resolver(Protocol):
    """Resolves the two names of a put to a destination."""

    def resolve(self, *, queue: str, queue_manager: str, seed: int = 0) -> Destination | Refusal:
        """Resolve names only; callers cache the result by pair of names.

        Args:
            queue: Name of the queue.
            queue_manager: Name of the queue manager; empty for the local one.
            seed: Determines the choice among equal instances of a cluster queue.
        """


def check_limits(
    limits: QueueLimits, length: int, depth: int | None, persistence: int
) -> Refusal | None:
    """Why a message cannot be put to a queue whose names resolved; None if it can.

    The order is ours, as the vendor documents none: what depends on definitions alone, then the
    message, then the moment. A message of exactly the maximum length passes; a queue whose depth
    has reached its limit is full.

    Args:
        limits: Limits of the destination.
        length: Bytes of the body.
        depth: Messages on the queue before the put; None if unknown, then it is not full.
        persistence: MQPER value of the message, settled if it was "as the queue is defined".
    """
    if not limits.put_enabled:
        return Refusal(Reason.PUT_INHIBITED, "puts are disabled on the path to the queue")
    if limits.temporary and persistence == PERSISTENT:
        return Refusal(
            Reason.PERSISTENT_NOT_ALLOWED,
            "a temporary dynamic queue accepts no persistent messages",
        )
    if limits.max_message_length is not None and length > limits.max_message_length:
        return Refusal(
            Reason.MSG_TOO_BIG_FOR_Q,
            f"{length} bytes are more than the queue's limit of {limits.max_message_length}",
        )
    manager_limit = limits.queue_manager_max_message_length
    if manager_limit is not None and length > manager_limit:
        return Refusal(
            Reason.MSG_TOO_BIG_FOR_Q_MGR,
            f"{length} bytes are more than the queue manager's limit of {manager_limit}",
        )
    if limits.max_depth is not None and depth is not None and depth >= limits.max_depth:
        return Refusal(
            Reason.Q_FULL,
            f"the queue holds {counted(depth, 'message')} and its limit is {limits.max_depth}",
        )
    return None
