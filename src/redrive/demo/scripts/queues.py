"""The queues of the demo with dead letters: topics of its broker, and what they take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

__all__ = ["DEAD_LETTER_QUEUE", "INVOICES", "ORDERS", "QUEUES", "Limits"]

DEAD_LETTER_QUEUE: Final = "DEAD.LETTERS"
ORDERS: Final = "ORDERS"
"""The queue that is full when the job starts, because its consumer is slow."""
INVOICES: Final = "INVOICES.NEW"
"""The queue that does not exist yet when the job starts."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a queue takes, in bytes; None for no limit that a sample exceeds."""

    max_message_bytes: int | None = None
    """``max.message.bytes`` of its topic."""
    max_message_length: int | None = None
    """MAXMSGL in the settings."""


QUEUES: Final[Mapping[str, Limits]] = MappingProxyType(
    {
        ORDERS: Limits(),
        INVOICES: Limits(),
        "PAYMENTS": Limits(),
        "SHIPMENTS": Limits(),
        "CUSTOMERS": Limits(),
        "EVENTS.SMALL": Limits(max_message_bytes=16 * 1024),
        "TEXTS.SHORT": Limits(max_message_length=4096),
        "WEB.REPLIES": Limits(),
        "APP.REPLIES": Limits(),
        "SECURITY.REVIEW": Limits(),
        "TOO.BIG": Limits(),
    }
)
"""Every queue that a message can be put on, by name; every other name is unknown."""
