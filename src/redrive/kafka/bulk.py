"""Reading ranges of many partitions at once, as fast as the client can.

The consumer that the job keeps reads what a batch asks for and holds little beside it; here the
client fetches all partitions ahead, which is what a look at a whole backlog needs.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as ClientPartition

from redrive.errors import TransientFault
from redrive.kafka.connection import Connection
from redrive.kafka.errors import translated
from redrive.messages import OffsetRange, Records, TopicPartition

__all__ = ["read_parts", "surviving_offsets"]

_CHUNK: Final = 5_000
"""Messages taken from the client at a time."""
_LOOK: Final = 0.1
"""Seconds of one look for messages."""
_PATIENCE: Final = 30.0
"""Seconds without any progress after which reading is given up."""
_SETTINGS: Final = {
    "isolation.level": "read_committed",
    "auto.offset.reset": "error",
    "enable.partition.eof": True,
    "fetch.wait.max.ms": 20,
    # A full queue otherwise makes the client wait for a second before it fetches again.
    "fetch.queue.backoff.ms": 5,
    "queued.max.messages.kbytes": 65_536,
    "log_level": 2,
}


def read_parts(
    connection: Connection, ranges: Iterable[OffsetRange], *, rows: int, size: int
) -> Iterator[tuple[TopicPartition, Records]]:
    """The committed records of some ranges, so many at a time that deciding is worth it.

    Args:
        connection: The cluster.
        ranges: At most one of each partition.
        rows: Records at a time, or a few more.
        size: Bytes of their values at a time.

    Yields:
        A lane, and the next of its records in offset order.

    Raises:
        TransientFault: A range can't be read: the broker gave nothing for too long, or records
            of it are gone.
    """
    held: dict[TopicPartition, list[Message]] = {}
    lengths: dict[TopicPartition, int] = {}
    for lane, message in _read(connection, ranges):
        held.setdefault(lane, []).append(message)
        lengths[lane] = lengths.get(lane, 0) + len(message)
        if len(held[lane]) >= rows or lengths[lane] >= size:
            yield lane, _records_of(held.pop(lane))
            lengths[lane] = 0
    for lane, messages in held.items():
        yield lane, _records_of(messages)


def surviving_offsets(
    connection: Connection, ranges: Iterable[OffsetRange]
) -> dict[TopicPartition, frozenset[int]]:
    """The offsets that compaction has to keep: the last of each key, if it has a value.

    Args:
        connection: The cluster.
        ranges: Whole partitions of compacted topics.

    Raises:
        TransientFault: As ``read_parts``.
    """
    last: dict[TopicPartition, dict[bytes, int]] = {}
    for lane, message in _read(connection, ranges):
        offsets = last.setdefault(lane, {})
        key: Any = message.key() or b""
        if message.value() is None:
            offsets.pop(key, None)
        else:
            offsets[key] = message.offset() or 0
    return {lane: frozenset(offsets.values()) for lane, offsets in last.items()}


def _read(
    connection: Connection, ranges: Iterable[OffsetRange]
) -> Iterator[tuple[TopicPartition, Message]]:
    """Each record of the ranges with its lane; those of one lane in offset order."""
    asked = {(one.topic, one.partition): one for one in ranges if one.start < one.end}
    lanes = {place: TopicPartition(*place) for place in asked}
    ends = {place: one.end for place, one in asked.items()}
    consumer = Consumer({**connection.reader(), **_SETTINGS})
    seen = time.monotonic()
    try:
        with translated("reading messages"):
            consumer.assign([ClientPartition(*place, asked[place].start) for place in asked])
            while ends:
                messages = consumer.consume(_CHUNK, timeout=_LOOK)
                if messages:
                    seen = time.monotonic()
                elif time.monotonic() - seen > _PATIENCE:
                    topic, partition = min(ends)
                    raise TransientFault(f"{topic}:{partition} gave nothing for {_PATIENCE:g} s")
                for message in messages:
                    place: Any = (message.topic(), message.partition())
                    offset = message.offset() or 0
                    is_record = message.error() is None or not _passes(message.error())
                    if is_record and offset < ends.get(place, 0):
                        yield lanes[place], message
                    reached = offset + 1 if is_record else offset
                    if place in ends and reached >= ends[place] and _is_position(message):
                        del ends[place]
                        consumer.incremental_unassign([ClientPartition(*place)])
    finally:
        consumer.close()


def _passes(error: KafkaError | None) -> bool:
    """Whether an error is no more than news; one that is for good is raised."""
    if error is None:
        return False
    if error.code() == KafkaError._PARTITION_EOF or error.retriable():  # noqa: SLF001 - no public name
        return True
    if error.code() in {KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN}:  # noqa: SLF001
        return True
    raise KafkaException(error)


def _is_position(message: Message) -> bool:
    """Whether the message tells how far its partition was read: a record, or its end."""
    error = message.error()
    return error is None or error.code() == KafkaError._PARTITION_EOF  # noqa: SLF001 - as above


def _records_of(messages: list[Message]) -> Records:
    """What the client read of one lane, as the job decides about it."""
    given: Any = [message.headers() or [] for message in messages]
    timestamps: Any = [message.timestamp()[1] for message in messages]
    places: Any = [message.offset() for message in messages]
    keys: Any = [message.key() for message in messages]
    values: Any = [message.value() for message in messages]
    return Records(keys, values, given, [max(0, one) for one in timestamps], places)
