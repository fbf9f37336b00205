"""Waits for records on an idle system without polling.

Spark asks its sources for new records in a loop. The held source is asked first; on an idle system
it answers only when a record has arrived anywhere that the job reads, or after a moment. That costs
one fetch that the broker holds open, instead of a hundred requests per second, and wakes the job at
once.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as ClientPartition

from redrive.kafka.connection import Connection
from redrive.kafka.deadline import PAUSE, close_client
from redrive.messages import TopicPartition


class Watch:
    """Wakes up when a record arrives on some partitions; ignores its content."""

    def __init__(self, connection: Connection) -> None:
        self._watched: dict[TopicPartition, int] = {}
        self._consumer = Consumer(
            {
                **connection.reader(),
                "isolation.level": "read_committed",
                # One record is enough.
                "fetch.message.max.bytes": 1024,
                "queued.max.messages.kbytes": 1,
                "log_level": 2,
            }
        )

    def wait(self, ends: Mapping[TopicPartition, int], seconds: float) -> None:
        """Wait up to ``seconds`` for a record at or after one of the ends."""
        if self._watched != ends:
            self._watched = dict(ends)
            self._consumer.assign([ClientPartition(*lane, end) for lane, end in ends.items()])
        message = self._consumer.poll(seconds)
        if message is not None and message.error() is not None:
            time.sleep(min(seconds, PAUSE))

    def close(self) -> None:
        """Close the consumer."""
        close_client(self._consumer, "the consumer that watches for records")
