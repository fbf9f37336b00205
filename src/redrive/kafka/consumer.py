"""Reading a range of offsets of one partition with a consumer that a process keeps."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as ClientPartition

from redrive.errors import TransientFault
from redrive.kafka.connection import Connection
from redrive.kafka.errors import STALE_METADATA, translated
from redrive.messages import OffsetRange

_READ_TIMEOUT: Final = 30.0
"""Seconds without any progress after which reading a range is given up."""
_LOOK: Final = 0.02
"""Seconds of one look for messages."""
_ROWS: Final = 1_000
"""Messages taken from the client at a time."""

# By process: a client must not cross a fork, and Spark uses its Python workers again.
_consumers: dict[tuple[int, Connection], Consumer] = {}


def read_range(connection: Connection, asked: OffsetRange) -> Iterator[list[Message]]:
    """The committed records of a range, in offset order.

    Args:
        connection: The cluster.
        asked: The range. What is gone of it, by retention, is never passed over in silence.

    Yields:
        Some messages at a time, never none.

    Raises:
        TransientFault: The range can't be read: the broker gave nothing for too long, or records
            of it are gone.
    """
    consumer = _kept(connection)
    place = ClientPartition(asked.topic, asked.partition, asked.start)
    try:
        with translated(f"reading {asked.topic}:{asked.partition}"):
            consumer.assign([place])
            yield from _read(consumer, asked)
            consumer.unassign()
    except BaseException:
        _consumers.pop((os.getpid(), connection), None)  # the next range gets a fresh one
        raise


def _read(consumer: Consumer, asked: OffsetRange) -> Iterator[list[Message]]:
    position, last_progress = asked.start, time.monotonic()
    while position < asked.end:
        # Never more than is wanted: the client waits until it has as many as it is asked for.
        most = min(_ROWS, asked.end - position)
        found = []
        reached = position
        for message in consumer.consume(most, timeout=_LOOK):
            offset = message.offset() or 0
            if _is_record(message):
                reached = offset + 1
                if offset < asked.end:
                    found.append(message)
            elif message.error() is not None and _is_end(message.error()):
                reached = max(reached, offset)  # markers of transactions lie before the end
        if found:
            yield found
        now = time.monotonic()
        if reached > position:
            position, last_progress = reached, now
        elif now - last_progress > _READ_TIMEOUT:
            raise TransientFault(
                f"{asked.topic}:{asked.partition} gave nothing from offset {position} on for"
                f" {_READ_TIMEOUT:g} s"
            )


def _kept(connection: Connection) -> Consumer:
    key = os.getpid(), connection
    consumer = _consumers.get(key)
    if consumer is None:
        consumer = _consumers[key] = Consumer(_settings(connection.librdkafka()))
    return consumer


def _settings(client: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **client,
        "group.id": "redrive-ranges",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "isolation.level": "read_committed",
        "auto.offset.reset": "error",
        "enable.partition.eof": True,
        "fetch.wait.max.ms": 5,
        "queued.min.messages": 10_000,
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
