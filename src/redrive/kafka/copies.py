"""Remaining copies on partitions of remaining topics, followed for replays."""

from __future__ import annotations

from operator import methodcaller
from typing import Final

from redrive.engine.facts import TAKEN_AWAY, Copies
from redrive.errors import TransientFault
from redrive.kafka.cluster import Cluster
from redrive.kafka.compacted import CompactedTopic
from redrive.messages import TopicPartition

_key, _value, _offset = methodcaller("key"), methodcaller("value"), methodcaller("offset")
_MOST: Final = 8
"""Partitions to follow at once: each has a consumer, and its keys are in memory."""


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
