"""The outcomes that the ledger has not seen, and those that nothing holds any more."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from redrive.messages import TopicPartition

if TYPE_CHECKING:
    from redrive.kafka.cluster import Extent


class Unseen(NamedTuple):
    """Where the outcomes topic goes on behind the ledger."""

    starts: Mapping[TopicPartition, int]
    """Where to read; partitions with nothing new are left out."""
    gone: Mapping[TopicPartition, int]
    """Partitions where the topic does not go on where the ledger ends, and the offset from which on
    no outcome is missing."""


def outcomes_unseen(seen: Mapping[int, int], extents: Mapping[TopicPartition, Extent]) -> Unseen:
    """Compares what the ledger has seen with what the topic holds.

    Args:
        seen: By partition, the next outcome that the ledger wants; empty without a ledger.
        extents: What each partition of the outcomes topic holds.
    """
    starts, gone = {}, {}
    for lane, extent in extents.items():
        position = seen.get(lane.partition, 0)
        if position < extent.first:
            gone[lane] = extent.first
        elif position > extent.end:  # the topic was made anew
            gone[lane] = position
        starts[lane] = extent.first if lane in gone else position
    unread = {lane: start for lane, start in starts.items() if start < extents[lane].end}
    return Unseen(unread, gone)
