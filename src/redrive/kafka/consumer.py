"""Reading ranges of offsets with a kept consumer, in whatever process."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Any, TypeVar, cast

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient

from redrive.messages import Headers, OffsetRange, Records

_READ_TIMEOUT = 40.0
"""Seconds without any progress after which reading a range is given up: sooner than the broker
gives up the transaction in which the range is read."""
_LOOK = 0.02
"""Seconds of one look for messages."""
_ROWS = 1_000
"""Messages taken from the client at a time: few enough to be in the processor's cache until they
are written, and many enough that what is done once for all of them costs little."""


# Clients by process: a client must not cross a fork, and Spark uses its Python workers again.
_clients: dict[tuple[int, str, str], Any] = {}
_Client = TypeVar("_Client", AdminClient, Consumer)


def kept_admin(client: Mapping[str, Any]) -> AdminClient:
    """This process's admin client of a cluster."""
    return _kept("admin", client, lambda: AdminClient({**client, "log_level": 2}))


def kept_consumer(client: Mapping[str, Any]) -> Consumer:
    """This process's consumer of a cluster, at read_committed and in no group's way.

    Reading what is gone raises: it is never passed over in silence.

    Args:
        client: librdkafka settings of the cluster.
    """
    settings = {
        **client,
        "group.id": "redrive-ranges",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "isolation.level": "read_committed",
        "auto.offset.reset": "error",
        "enable.partition.eof": True,
        "fetch.wait.max.ms": 5,
        "queued.min.messages": 100_000,
        "log_level": 2,
    }
    return _kept("consumer", client, lambda: Consumer(settings))


def _kept(kind: str, client: Mapping[str, Any], make: Callable[[], _Client]) -> _Client:
    key = (os.getpid(), kind, json.dumps(dict(client), sort_keys=True))
    if key not in _clients:
        _clients[key] = make()
    kept: _Client = _clients[key]
    return kept


def read_ranges(
    consumer: Consumer, asked: Sequence[OffsetRange]
) -> Generator[tuple[OffsetRange, list[Message]], None, None]:
    """The records of some ranges of different partitions, each range in offset order.

    Args:
        consumer: Reads; it is assigned to nothing else meanwhile.
        asked: The ranges.

    Yields:
        Some messages of one range at a time, never none.

    Raises:
        KafkaException: A range can't be read.
        TimeoutError: The broker gave nothing for too long.
    """
    waiting = {(one.topic, one.partition): one for one in asked}
    positions = {key: one.start for key, one in waiting.items()}
    consumer.assign([TopicPartition(one.topic, one.partition, one.start) for one in asked])
    last_progress = time.monotonic()
    try:
        while waiting:
            rest = sum(one.end - positions[key] for key, one in waiting.items())
            # Never more than is wanted: the client waits until it has as many as it is asked for.
            messages = consumer.consume(min(_ROWS, rest), timeout=_LOOK)
            yield from _by_range(messages, waiting)
            if _advance(consumer, waiting, positions):
                last_progress = time.monotonic()
            elif time.monotonic() - last_progress > _READ_TIMEOUT:
                stuck = next(iter(waiting.values()))
                raise TimeoutError(
                    f"{stuck.topic}:{stuck.partition} gave nothing for {_READ_TIMEOUT:g} s"
                )
    finally:
        consumer.unassign()


def _by_range(
    messages: list[Message], waiting: Mapping[tuple[str, int], OffsetRange]
) -> Iterator[tuple[OffsetRange, list[Message]]]:
    rows: dict[tuple[str, int], list[Message]] = {key: [] for key in waiting}
    if len(waiting) == 1:
        ((key, one),) = waiting.items()
        end = one.end
        rows[key] = [m for m in messages if _is_record(m) and (m.offset() or 0) < end]
    else:
        for message in filter(_is_record, messages):
            key = message.topic() or "", message.partition() or 0
            if key in waiting and (message.offset() or 0) < waiting[key].end:
                rows[key].append(message)
    return ((waiting[key], found) for key, found in rows.items() if found)


def _advance(
    consumer: Consumer,
    waiting: dict[tuple[str, int], OffsetRange],
    positions: dict[tuple[str, int], int],
) -> bool:
    """Notes how far each range was read and takes out those that are done; whether any moved."""
    moved, done = False, []
    # The position, not the last record: a range may end in markers of transactions.
    for lane in consumer.position([TopicPartition(*key) for key in waiting]):
        key = lane.topic, lane.partition
        if lane.offset > positions[key]:
            positions[key], moved = lane.offset, True
        if positions[key] >= waiting[key].end:
            del waiting[key]
            done.append(lane)
    if done and waiting:
        consumer.incremental_unassign(done)
    return moved


def records_of(messages: list[Message]) -> Records:
    """Messages as records."""
    return Records(
        keys=[message.key() for message in messages],
        values=[message.value() for message in messages],
        headers=[headers_of(message) for message in messages],
        timestamps=[message.timestamp()[1] for message in messages],
        offsets=[message.offset() or 0 for message in messages],
    )


def headers_of(message: Message) -> Headers:
    """A message's headers; the client's stub allows more forms than what it reads can take."""
    return cast("Headers", message.headers() or [])


def _is_record(message: Message) -> bool:
    error = message.error()
    if error is None:
        return True
    if error.code() == KafkaError._PARTITION_EOF or error.retriable():  # noqa: SLF001 - no public name
        return False
    if error.code() in {KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN}:  # noqa: SLF001 - no public name
        return False
    raise KafkaException(error)
