"""Which operations an application can use on which kind of queue (specification A.1)."""

from __future__ import annotations

from enum import StrEnum

from redrive.topology.mqe.failures import Failure
from redrive.topology.mqe.objects import (
    BridgeQueue,
    HomeServerQueue,
    Mode,
    Queue,
    RemoteQueue,
    StoreAndForwardQueue,
)


class Operation(StrEnum):
    """What an application can ask of a queue."""

    PUT = "put"
    GET = "get"
    BROWSE = "browse"
    BROWSE_AND_LOCK = "browse and lock"


_EVERYTHING = frozenset(Operation)


def operations(queue: Queue) -> frozenset[Operation]:
    """What a kind of queue offers to applications.

    Args:
        queue: A queue.

    Returns:
        The operations. Store-and-forward and home-server queues offer none: the former take what
        is put for the managers they list, nobody addresses them.
    """
    match queue:
        case StoreAndForwardQueue() | HomeServerQueue():
            return frozenset()
        case RemoteQueue() if queue.mode is Mode.ASYNC:
            return frozenset({Operation.PUT})
        case BridgeQueue():
            return _EVERYTHING - {Operation.BROWSE_AND_LOCK}
    return _EVERYTHING


def refusal(queue: Queue, operation: Operation) -> Failure | None:
    """How a queue answers an operation that it does not offer.

    Args:
        queue: A queue.
        operation: What is asked of it.

    Returns:
        ``NOT_SUPPORTED``, the product's ``Except_NotSupported``, or None if it is offered.
    """
    return None if operation in operations(queue) else Failure.NOT_SUPPORTED
