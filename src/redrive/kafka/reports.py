"""What a transaction's producer has to tell: values, without the client.

The protocol decides by them (``redrive.checkpoints.verdicts``); the adapter only makes them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

LARGEST_BATCH: Final = 512 * 1024
"""Bytes of a produce batch: below a topic's default ``max.message.bytes`` (1 MiB), because a batch
above it is refused whole, with every innocent record inside."""


class Batching(NamedTuple):
    """How a producer makes its batches."""

    size: int = LARGEST_BATCH
    """Bytes of records that share a batch; one that is larger has a batch of its own."""
    is_packed: bool = False
    """Whether to compress as much as possible, and not as fast."""

    def joined(self, other: Batching) -> Batching:
        """What does for both."""
        return Batching(min(self.size, other.size), self.is_packed or other.is_packed)


class FailureKind(StrEnum):
    """What the failure of one record says."""

    CULPRIT = "culprit"
    """This record can't be placed now: a failed attempt."""
    UNANSWERED = "unanswered"
    """Its partition took nothing for too long: no leader, or too few replicas."""
    INNOCENT = "innocent"
    """Collateral damage of another record's failure: do it again."""
    TRANSIENT = "transient"
    """Nothing was decided; try again."""
    FENCED = "fenced"
    """A newer producer with the same transactional id was opened."""
    FATAL = "fatal"
    """The broker will never accept this."""


class FailedRecord(NamedTuple):
    """One record that was not written."""

    entry: int
    """Entry number that the record was produced with."""
    topic: str
    kind: FailureKind
    reason: int
    """MQ reason code of a failed attempt; 0 for an innocent."""
    detail: str
    """What Kafka said, with its code."""


@dataclass(frozen=True, slots=True)
class TransactionReport:
    """What is known of a transaction once everything produced in it was flushed."""

    failed: tuple[FailedRecord, ...] = ()
    """Records that were not written, as far as they are known by name."""
    abort_required: bool = False
    """Whether the client can't commit this transaction any more."""

    @property
    def may_commit(self) -> bool:
        """Whether nothing speaks against the commit."""
        return not self.failed and not self.abort_required
