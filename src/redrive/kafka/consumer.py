"""Reading ranges of offsets with a consumer that a process keeps."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as ClientPartition

from redrive.errors import TransientFault
from redrive.kafka.connection import Connection
from redrive.kafka.errors import STALE_METADATA, translated
from redrive.kafka.records import StoredRecord
from redrive.messages import OffsetRange, TopicPartition

_READ_TIMEOUT: Final = 30.0
"""Seconds without any progress after which reading a range is given up."""
_LOOK: Final = 0.02
"""Seconds of one look for messages."""
_ROWS: Final = 1_000
"""Messages taken from the client at a time."""
_NAMED: Final = 3
"""Partitions that a fault names."""

# By process: a client must not cross a fork, and Spark uses its Python workers again.
_consumers: dict[tuple[int, Connection], Consumer] = {}


def read_ranges(
    connection: Connection, asked: Sequence[OffsetRange]
) -> Iterator[list[StoredRecord]]:
    """The committed records of ranges of several partitions.

    They are read side by side: what makes a short range slow is waiting for its first records.

    Args:
        connection: The cluster.
        asked: The ranges, each of another partition. What is gone of one, by retention, is never
            passed over in silence.

    Yields:
        Some records of one partition at a time, never none, in offset order.

    Raises:
        TransientFault: A range can't be read: the broker gave nothing for too long, or records
            of it are gone.
    """
    consumer = _kept(connection)
    places = [ClientPartition(one.topic, one.partition, one.start) for one in asked]
    names = ", ".join(f"{one.topic}:{one.partition}" for one in asked[:_NAMED])
    try:
        with translated(f"reading {names}"):
            consumer.assign(places)
            yield from _read(consumer, asked)
            consumer.unassign()
    except BaseException:
        _consumers.pop((os.getpid(), connection), None)  # the next range gets a fresh one
        raise


def _read(consumer: Consumer, asked: Sequence[OffsetRange]) -> Iterator[list[StoredRecord]]:
    ends = {TopicPartition(one.topic, one.partition): one.end for one in asked}
    left = {TopicPartition(one.topic, one.partition): one.start for one in asked}
    left = {lane: start for lane, start in left.items() if start < ends[lane]}
    last_progress = time.monotonic()
    while left:
        # Never more than is wanted: the client waits until it has as many as it is asked for.
        most = min(_ROWS, sum(ends[lane] - position for lane, position in left.items()))
        reached = dict(left)
        found: dict[TopicPartition, list[StoredRecord]] = {}
        for message in consumer.consume(most, timeout=_LOOK):
            lane = TopicPartition(str(message.topic()), int(message.partition() or 0))
            offset = message.offset() or 0
            if _is_record(message):
                if lane in left:
                    reached[lane] = offset + 1
                    if offset < ends[lane]:
                        found.setdefault(lane, []).append(StoredRecord.of(message))
            elif lane in left and message.error() is not None and _is_end(message.error()):
                reached[lane] = max(reached[lane], offset)  # markers lie before the end
        yield from found.values()
        now = time.monotonic()
        if reached != left:
            last_progress = now
        elif now - last_progress > _READ_TIMEOUT:
            raise TransientFault(_stuck(left))
        done = [lane for lane, position in reached.items() if position >= ends[lane]]
        if done:
            consumer.incremental_unassign([ClientPartition(*lane) for lane in done])
        left = {lane: position for lane, position in reached.items() if lane not in done}


def _stuck(left: Mapping[TopicPartition, int]) -> str:
    lane, position = next(iter(left.items()))
    others = f" and {len(left) - 1} other partitions" if len(left) > 1 else ""
    return f"{lane} gave nothing from offset {position} on for {_READ_TIMEOUT:g} s{others}"


def _kept(connection: Connection) -> Consumer:
    key = os.getpid(), connection
    consumer = _consumers.get(key)
    if consumer is None:
        consumer = _consumers[key] = Consumer(_settings(connection.reader()))
    return consumer


def _settings(client: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **client,
        "isolation.level": "read_committed",
        "auto.offset.reset": "error",
        "enable.partition.eof": True,
        "fetch.wait.max.ms": 5,
        "queued.min.messages": 10_000,
        # A client whose queue was full waits a second before it fetches again.
        "fetch.queue.backoff.ms": 20,
        "log_level": 2,
    }


def _is_end(error: KafkaError | None) -> bool:
    return error is not None and error.code() == KafkaError._PARTITION_EOF  # noqa: SLF001 - no public name


def _is_record(message: Message) -> bool:
    error = message.error()
    if error is None:
        return True
    passing = {KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, *STALE_METADATA}  # noqa: SLF001 - no public name
    if _is_end(error) or error.retriable() or error.code() in passing:
        return False
    raise KafkaException(error)
