"""The queues of the demo: topics of its broker, what they take and what is odd about them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

__all__ = [
    "DEAD_LETTER_QUEUE",
    "INVOICES",
    "ORDERS",
    "PARTITIONS",
    "QUEUES",
    "SLOW_CONSUMER",
    "Queue",
]

DEAD_LETTER_QUEUE: Final = "DEAD.LETTERS"
PARTITIONS: Final = 4
"""Partitions of the dead-letter queue."""

ORDERS: Final = "ORDERS"
"""The queue that is full when the job starts, because its consumer is slow."""
INVOICES: Final = "INVOICES.NEW"
"""The queue that does not exist yet when the job starts."""
SLOW_CONSUMER: Final = "order-processing"
"""Consumer group of the slow consumer."""


@dataclass(frozen=True, slots=True)
class Queue:
    """One queue that exists, now or later."""

    name: str
    max_message_bytes: int | None = None
    """``max.message.bytes`` of its topic; None for Kafka's default, which no sample exceeds."""
    max_message_length: int | None = None
    """MAXMSGL in the settings, in bytes; None for no limit."""
    may_be_full: bool = False
    """Whether it has a MAXDEPTH, and so refuses puts with 2053 now and then."""
    is_late: bool = False
    """Whether it is made while the job runs, and so refuses puts with 2085 before."""


QUEUES: Final[Mapping[str, Queue]] = MappingProxyType(
    {
        queue.name: queue
        for queue in (
            Queue(ORDERS, may_be_full=True),
            Queue(INVOICES, is_late=True),
            Queue("PAYMENTS"),
            Queue("SHIPMENTS"),
            Queue("CUSTOMERS"),
            Queue("EVENTS.SMALL", max_message_bytes=16 * 1024),
            Queue("TEXTS.SHORT", max_message_length=4096),
            Queue("WEB.REPLIES"),
            Queue("APP.REPLIES"),
            Queue("SECURITY.REVIEW"),
            Queue("TOO.BIG"),
        )
    }
)
"""Every queue that a message can be put on, by name; every other name is unknown."""
