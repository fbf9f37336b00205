"""A partition of a compacted topic, read to its end and then followed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from operator import methodcaller
from typing import Final

from redrive.engine.facts import TAKEN_AWAY, Copies
from redrive.errors import TransientFault
from redrive.kafka.cluster import Cluster
from redrive.kafka.deadline import LOOK, SILENCE
from redrive.kafka.errors import translated
from redrive.kafka.records import END_WAIT, Reader, RecordRun, StoredRecord
from redrive.messages import TopicPartition

RARE_END_WAIT: Final = 0.05
"""``end_wait`` for a topic that seldom changes: an idle job fetches from it 20 times a second."""
_AT_ONCE: Final = 1_000
_MOST: Final = 8
"""Partitions to follow at once: each has a consumer, and its keys are in memory."""

_key, _value, _offset = methodcaller("key"), methodcaller("value"), methodcaller("offset")


class CompactedTopic:
    """Follows a compacted topic; close it at the end.

    It has one consumer that keeps reading, and knows when it has read everything written before a
    call. Every question raises ``TransientFault`` if the broker does not answer in time.
    """

    def __init__(
        self, cluster: Cluster, lane: TopicPartition, *, end_wait: float = END_WAIT
    ) -> None:
        """Open the consumer at the beginning of a partition of an existing topic.

        ``end_wait`` is that of ``Reader``.
        """
        self._cluster = cluster
        self._lane = lane
        self._reader = Reader(cluster.connection, end_wait=end_wait)
        self._reader.assign({lane: 0})

    def records_to_end(self) -> Iterator[StoredRecord]:
        """The records of ``runs_to_end``."""
        for run in self.runs_to_end():
            yield from run.records()

    def runs_to_end(self) -> Iterator[RecordRun]:
        """All records up to the current end of the topic; waits for open transactions.

        A commit returns before readers see it, so this reads up to the very end and misses nothing
        that was committed before the call. The topic may be long: it times out only when nothing
        more arrives.
        """
        yield from self._runs_up_to(self.very_end())

    def visible(self) -> Iterator[StoredRecord]:
        """All records up to the current last stable offset; does not wait for transactions.

        The leader never moves that offset back, so a later call sees at least as much.
        """
        for run in self._runs_up_to(self._cluster.ends([self._lane])[self._lane]):
            yield from run.records()

    def new_records(self) -> Iterator[StoredRecord]:
        """New records since the last call, without waiting."""
        with translated(f"reading {self._lane.topic}"):
            for run in self._reader.take(_AT_ONCE, 0):
                yield from run.records()

    def very_end(self) -> int:
        """The offset after the last record, including open transactions."""
        return self._cluster.ends([self._lane], committed_only=False)[self._lane]

    @property
    def position(self) -> int:
        """The offset after the last record read."""
        return self._reader.positions[self._lane]

    def close(self) -> None:
        """Close the consumer."""
        self._reader.close()

    def _runs_up_to(self, end: int) -> Iterator[RecordRun]:
        last_progress = time.monotonic()
        while (before := self.position) < end:
            if time.monotonic() - last_progress > SILENCE:
                raise TransientFault(f"{self._lane} returned nothing from offset {before} on")
            with translated(f"reading {self._lane.topic}"):
                yield from self._reader.take(_AT_ONCE, LOOK)
            if self.position > before:
                last_progress = time.monotonic()


class LiveCopies:
    """The last copy of each message on remaining topics.

    It follows each requested partition, and its answers include everything committed before the
    question.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._followed: dict[TopicPartition, tuple[CompactedTopic, dict[bytes, int]]] = {}

    def on(self, lane: TopicPartition) -> Copies:
        """The remaining copies of a partition; the mapping changes with every question.

        The first question reads the whole partition, later ones only new records.

        Raises:
            TransientFault: The broker gave no answer in time.
        """
        followed = self._followed.get(lane)
        if followed is None:
            if len(self._followed) >= _MOST:
                self._forget(next(iter(self._followed)))
            followed = self._followed[lane] = CompactedTopic(self._cluster, lane), {}
        topic, copies = followed
        try:
            for run in topic.runs_to_end():  # without their headers, which cost the most
                keys, values = map(_key, run.messages), map(_value, run.messages)
                offsets = map(_offset, run.messages)
                for key, value, offset in zip(keys, values, offsets, strict=True):
                    copies[key or b""] = TAKEN_AWAY if value is None else offset
        except TransientFault:
            self._forget(lane)  # a fresh client will be asked
            raise
        return copies

    def close(self) -> None:
        """Close every consumer."""
        for lane in list(self._followed):
            self._forget(lane)

    def _forget(self, lane: TopicPartition) -> None:
        topic, _ = self._followed.pop(lane)
        topic.close()
