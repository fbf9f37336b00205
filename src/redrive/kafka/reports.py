"""Reports about a producer's transaction, which the protocol judges, without a client's types."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

LARGEST_BATCH: Final = 512 * 1024
"""Bytes of a produce batch: below a topic's default ``max.message.bytes`` (1 MiB), because a larger
batch is refused as a whole, with all innocent records in it."""


class Batching(NamedTuple):
    """How a producer makes its batches."""

    size: int = LARGEST_BATCH
    """Bytes of records that share a batch; a larger record has its own batch."""
    is_packed: bool = False
    """Whether to compress as much, instead of as fast, as possible."""

    def joined(self, other: Batching) -> Batching:
        """A batching that satisfies both."""
        return Batching(min(self.size, other.size), self.is_packed or other.is_packed)


class FailureKind(StrEnum):
    """The meaning of the failure of one record."""

    CULPRIT = "culprit"
    """This record cannot be written now: a failed attempt."""
    UNANSWERED = "unanswered"
    """Its partition accepted nothing for too long: no leader, or too few replicas."""
    INNOCENT = "innocent"
    """Collateral damage of another record's failure: retry."""
    TRANSIENT = "transient"
    """The result is unknown; try again."""
    FENCED = "fenced"
    """A newer producer with the same transactional id was opened."""
    FATAL = "fatal"
    """The broker will never accept this."""


class FailedRecord(NamedTuple):
    """One record that was not written."""

    entry: int
    topic: str
    kind: FailureKind
    reason: int
    """MQ reason code of a failed attempt; 0 for an innocent record."""
    detail: str


@dataclass(frozen=True, slots=True)
class TransactionReport:
    """The state of a transaction once all its records were flushed."""

    failed: tuple[FailedRecord, ...] = ()
    """Records that were not written, as far as they are identified."""
    abort_required: bool = False
    """Whether the client can no longer commit this transaction."""

    @property
    def may_commit(self) -> bool:
        """Whether the transaction can be committed."""
        return not self.failed and not self.abort_required
