"""Reading ranges of many partitions at once, as fast as the client can.

The consumer that the job keeps reads what a batch asks for and holds little beside it; here the
client fetches all partitions ahead, which is what a look at a whole backlog needs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as ClientPartition

from redrive.errors import TransientFault
from redrive.kafka.connection import Connection
from redrive.kafka.deadline import close_client
from redrive.kafka.errors import translated
from redrive.kafka.records import headers_of
from redrive.messages import OffsetRange, Records, TopicPartition

__all__ = ["read_parts", "surviving_offsets"]

_CHUNK: Final = 5_000
"""Messages taken from the client at a time."""
_LOOK: Final = 0.1
"""Seconds of one look for messages."""
_PATIENCE: Final = 30.0
"""Seconds without any progress after which reading is given up."""
_NEWS: Final = {
    KafkaError._PARTITION_EOF,  # noqa: SLF001 - these have no public names
    KafkaError._TRANSPORT,  # noqa: SLF001
    KafkaError._ALL_BROKERS_DOWN,  # noqa: SLF001
}
"""Errors by which the client only tells how it is."""
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
    connection: Connection, ranges: Iterable[OffsetRange]
) -> Iterator[tuple[TopicPartition, Records]]:
    """The committed records of some ranges, up to ``_CHUNK`` at a time.

    Args:
        connection: The cluster.
        ranges: At most one of each partition.

    Yields:
        A lane, and the next of its records in offset order.

    Raises:
        TransientFault: A range can't be read: the broker gave nothing for too long, or records
            of it are gone.
    """
    for lane, messages in _read(connection, ranges):
        yield lane, _records_of(messages)


def surviving_offsets(
    connection: Connection, ranges: Iterable[OffsetRange], advance: Callable[[int], None]
) -> dict[TopicPartition, frozenset[int]]:
    """The offsets that compaction has to keep: the last of each key, if it has a value.

    Args:
        connection: The cluster.
        ranges: Whole partitions of compacted topics.
        advance: Told how many records were read since the last time.

    Raises:
        TransientFault: As ``read_parts``.
    """
    last: dict[TopicPartition, dict[Any, Any]] = {}
    taken_away: dict[TopicPartition, set[Any]] = {}
    for lane, messages in _read(connection, ranges):
        offsets = map(Message.offset, messages)
        last.setdefault(lane, {}).update(zip(map(Message.key, messages), offsets, strict=True))
        tombstones = {one.offset() for one in messages if one.value() is None}
        taken_away.setdefault(lane, set()).update(tombstones)
        advance(len(messages))
    return {lane: frozenset(offsets.values()) - taken_away[lane] for lane, offsets in last.items()}


def _read(
    connection: Connection, ranges: Iterable[OffsetRange]
) -> Iterator[tuple[TopicPartition, list[Message]]]:
    """The records of the ranges, some of a lane at a time, in offset order."""
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
                for place, run in _runs(messages):
                    end = ends.get(place, 0)
                    if records := _records_before(end, run):
                        yield lanes[place], records
                    if place in ends and _position(run) >= end:
                        del ends[place]
                        consumer.incremental_unassign([ClientPartition(*place)])
    finally:
        close_client(consumer, "the consumer of a backlog")


def _runs(messages: Iterable[Message]) -> Iterator[tuple[Any, list[Message]]]:
    """What the client gave, cut where another partition begins.

    A million messages pass here, so nothing is called for each of them that is not the client's.
    """
    for topic, of_topic in groupby(messages, Message.topic):
        for partition, run in groupby(of_topic, Message.partition):
            yield (topic, partition), list(run)


def _records_before(end: int, run: list[Message]) -> list[Message]:
    """The records of a run before an offset, without what is no more than news.

    Raises:
        KafkaException: The client tells of an error that is for good.
    """
    records = [one for one in run if one.error() is None]
    if len(records) < len(run):
        for one in run:
            _check(one.error())
    if records and (records[-1].offset() or 0) >= end:
        return [one for one in records if (one.offset() or 0) < end]
    return records


def _position(run: list[Message]) -> int:
    """How far a partition was read: behind its last record, or to its end."""
    for one in reversed(run):
        error = one.error()
        if error is None:
            return (one.offset() or 0) + 1
        if error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - no public name
            return one.offset() or 0
    return 0


def _check(error: KafkaError | None) -> None:
    """Raises an error that is for good."""
    if error is None or error.retriable() or error.code() in _NEWS:
        return
    raise KafkaException(error)


def _records_of(messages: list[Message]) -> Records:
    """What the client read of one lane, as the job decides about it."""
    headers = [*map(headers_of, messages)]
    keys: Any = [*map(Message.key, messages)]
    values: Any = [*map(Message.value, messages)]
    offsets: Any = [*map(Message.offset, messages)]
    timestamps = [max(0, milliseconds) for _, milliseconds in map(Message.timestamp, messages)]
    return Records(keys, values, headers, timestamps, offsets)
