"""A message as it is decided about, wherever it was read or waited in between."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple
from zlib import crc32

if TYPE_CHECKING:
    from redrive.messages import DeadLetterProfile, Headers

__all__ = ["NO_ATTEMPTS", "Attempts", "Message", "seed_of"]

_SEEDS: Final = 1024
"""Different seeds for the choice among instances of a cluster queue."""


class Message(NamedTuple):
    """One message: a dead letter, or a put."""

    key: bytes | None
    value: bytes | None
    headers: Headers
    """Without Redrive's own headers; those of a put keep the names that it gives."""
    timestamp: int
    """Milliseconds; the record's own, not that of a copy."""
    identity: str
    """``topic:partition:offset`` of the first time Redrive saw the message."""
    origin: str
    """``topic:partition:offset`` of this record on its dead-letter queue, intake or transmission
    queue."""
    hops: int
    """How often Redrive has put it on a queue."""
    cut: str = ""
    """What is cut of the key, the value or the headers; empty for a whole message."""
    unreadable: str = ""
    """Which header no client can read, so that the message can't be written again as it was."""
    profile: DeadLetterProfile | None = None
    """What it says of its failure; None for a put."""
    failed_at: int = 0
    """Milliseconds; when the processing failed that a delay counts from: now, if that is no time of
    the past. 0 for a message that has waited already."""


class Attempts(NamedTuple):
    """The failed attempts on a message under one table."""

    failures: int
    """How many there were."""
    by_rule: tuple[tuple[int, int], ...] = ()
    """Rules by number with their failed attempts, where that decides which rule is next."""
    is_quarantined: bool = False
    """Whether no table looks at the message again."""
    counted: int = 0
    """How many of the puts before a RETRY of the same queue counted, whichever table it had."""


NO_ATTEMPTS: Final = Attempts(0)
"""Nothing was tried."""


def seed_of(identity: str) -> int:
    """The seed of one message, the same whenever it is decided again.

    Args:
        identity: ``topic:partition:offset`` where Redrive saw the message first, or the name of the
            open that its put belongs to.
    """
    return 1 + crc32(identity.encode()) % _SEEDS
