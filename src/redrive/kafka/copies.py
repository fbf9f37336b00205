"""Remaining copies on partitions of remaining topics, followed by a process that replays."""

from __future__ import annotations

from typing import Final

from redrive.engine.facts import TAKEN_AWAY, Copies
from redrive.errors import TransientFault
from redrive.kafka.cluster import Cluster
from redrive.kafka.compacted import CompactedTopic
from redrive.messages import TopicPartition

_MOST: Final = 8
"""Partitions that are followed at once: each has a consumer, and its keys are in memory."""


class LiveCopies:
    """Knows the last copy of each message on remaining topics.

    This class is responsible for one follower per requested partition, and for answers that hold
    everything that was committed before the question.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._followed: dict[TopicPartition, tuple[CompactedTopic, dict[bytes, int]]] = {}

    def on(self, lane: TopicPartition) -> Copies:
        """The remaining copies of a partition now; the same mapping grows with every question.

        The first question reads the whole partition, later ones only new records.

        Args:
            lane: A partition of a remaining topic, which exists.

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
            for record in topic.records_to_end():
                is_copy = record.value is not None
                copies[record.key or b""] = record.offset if is_copy else TAKEN_AWAY
        except TransientFault:
            self._forget(lane)  # a fresh client will be asked
            raise
        return copies

    def close(self) -> None:
        """Closes every consumer."""
        for lane in list(self._followed):
            self._forget(lane)

    def _forget(self, lane: TopicPartition) -> None:
        topic, _ = self._followed.pop(lane)
        topic.close()
