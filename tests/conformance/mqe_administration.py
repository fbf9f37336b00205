"""Other operations of the product: changes of aliases, operations on queues, polls."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from redrive.topology.mqe.objects import (
    BridgeQueue,
    HomeServerQueue,
    Mode,
    MqeQueue,
    MqeRemoteQueue,
    StoreAndForwardQueue,
    name_problem,
)
from redrive.topology.mqe.resolver import Addressable


class Answer(StrEnum):
    """The product's answers; with its own names where they are known, without numbers."""

    DONE = "done"
    INVALID_NAME = "invalid name"
    """An invalid name; the symbol is ours."""
    NOTHING_TO_DO = "MQERETURN_NOTHING_TO_DO, MQEREASON_DUPLICATE"
    """C: the alias already exists."""


def add_queue_alias(queue: Addressable, alias: str) -> tuple[Answer, Addressable]:
    """Add an alias of a queue, which stays unchanged unless the answer is ``DONE``.

    Only the C code base's answer to a duplicate is known; Java gets the same.
    """
    if name_problem(alias):
        return Answer.INVALID_NAME, queue
    if alias in queue.aliases:
        return Answer.NOTHING_TO_DO, queue
    return Answer.DONE, replace(queue, aliases=(*queue.aliases, alias))


class Operation(StrEnum):
    """What an application can ask of a queue."""

    PUT = "put"
    GET = "get"
    BROWSE = "browse"
    BROWSE_AND_LOCK = "browse and lock"


def operations(queue: MqeQueue) -> frozenset[Operation]:
    """The operations of a queue for applications; none can address a queue without operations."""
    match queue:
        case StoreAndForwardQueue() | HomeServerQueue():
            return frozenset()
        case MqeRemoteQueue(mode=Mode.ASYNC):
            return frozenset({Operation.PUT})
        case BridgeQueue():
            return frozenset(Operation) - {Operation.BROWSE_AND_LOCK}
    return frozenset(Operation)


@dataclass(frozen=True, slots=True, kw_only=True)
class Polling:
    """The polling of one home-server queue, in milliseconds of a monotonic clock."""

    interval: int
    """Time between polls; 0: only triggerTransmission polls."""
    next_poll: int | None = None
    """When the next poll is due; None if only triggerTransmission starts one."""

    def is_due(self, now: int) -> bool:
        """Whether the interval has passed."""
        return self.next_poll is not None and now >= self.next_poll

    def after_poll(self, now: int, *, connected: bool = True) -> Polling:
        """The polling after a poll, or after the queue was activated.

        If a poll does not reach the home server, polling stops until the next triggerTransmission.
        """
        goes_on = connected and self.interval > 0
        return replace(self, next_poll=now + self.interval if goes_on else None)
