"""A partition of a compacted topic, read to its end and then followed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final

from redrive.errors import TransientFault
from redrive.kafka.cluster import Cluster
from redrive.kafka.deadline import LOOK, SILENCE
from redrive.kafka.errors import translated
from redrive.kafka.reader import Reader
from redrive.kafka.records import StoredRecord
from redrive.messages import TopicPartition

_AT_ONCE: Final = 1_000
"""Records taken at one look."""


class CompactedTopic:
    """Follows a compacted topic; close it in the end.

    This class is responsible for: one consumer that goes on to read, and knowing when everything
    was read that was written before it was asked.
    """

    def __init__(self, cluster: Cluster, lane: TopicPartition) -> None:
        """Open the consumer at the beginning.

        Args:
            cluster: The cluster.
            lane: A partition of a topic that exists.
        """
        self._cluster = cluster
        self._lane = lane
        self._reader = Reader(cluster.connection)
        self._reader.assign({lane: 0})

    def records_to_end(self) -> Iterator[StoredRecord]:
        """Everything up to the end of the topic as it is now, open transactions awaited.

        A commit returns before readers see it; so the very end is what is read up to, and
        nothing that was committed before this call is missed. However long the topic is: time is up
        when nothing more comes.

        Raises:
            TransientFault: The broker gave no answer in time.
        """
        yield from self._records_up_to(self.very_end())

    def visible(self) -> Iterator[StoredRecord]:
        """Everything up to the last stable offset as it is now; no open transaction is awaited.

        The broker that leads the partition never moves that offset back, so a later look sees at
        least as much.

        Raises:
            TransientFault: The broker gave no answer in time.
        """
        yield from self._records_up_to(self._cluster.ends([self._lane])[self._lane])

    def news(self) -> Iterator[StoredRecord]:
        """What came since the last look, without waiting."""
        with translated(f"reading {self._lane.topic}"):
            for run in self._reader.take(_AT_ONCE, 0):
                yield from run.records()

    def very_end(self) -> int:
        """The offset behind the last record that is there now, open transactions included.

        Raises:
            TransientFault: The broker gave no answer in time.
        """
        return self._cluster.ends([self._lane], committed_only=False)[self._lane]

    @property
    def position(self) -> int:
        """The offset behind what was read."""
        return self._reader.positions[self._lane]

    def close(self) -> None:
        """Closes the consumer."""
        self._reader.close()

    def _records_up_to(self, end: int) -> Iterator[StoredRecord]:
        heard = time.monotonic()
        while (before := self.position) < end:
            if time.monotonic() - heard > SILENCE:
                raise TransientFault(f"{self._lane} gave nothing from offset {before} on")
            with translated(f"reading {self._lane.topic}"):
                for run in self._reader.take(_AT_ONCE, LOOK):
                    yield from run.records()
            if self.position > before:
                heard = time.monotonic()
