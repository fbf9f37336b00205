"""Reading a range of offsets of one partition with a kept consumer, in whatever process."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar, cast

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient

from redrive.messages import Headers, Records

_READ_TIMEOUT = 120.0
"""Seconds without any progress after which reading a range is given up."""
_ROWS = 10_000
"""Messages taken from the client at a time."""


class Range(NamedTuple):
    """The offsets ``[start, end)`` of one partition."""

    topic: str
    partition: int
    start: int
    end: int


# Clients by process: a client must not cross a fork, and Spark uses its Python workers again.
_clients: dict[tuple[int, str, str], Any] = {}
_Client = TypeVar("_Client", AdminClient, Consumer)


def kept_admin(client: Mapping[str, Any]) -> AdminClient:
    """This process's admin client of a cluster."""
    return _kept("admin", client, lambda: AdminClient({**client, "log_level": 2}))


def kept_consumer(client: Mapping[str, Any], *, skips_what_is_gone: bool) -> Consumer:
    """This process's consumer of a cluster, at read_committed and in no group's way.

    Args:
        client: librdkafka settings of the cluster.
        skips_what_is_gone: Whether to go on with the oldest record if a range begins before it;
            otherwise reading raises.
    """
    reset = "earliest" if skips_what_is_gone else "error"
    settings = {
        **client,
        "group.id": "redrive-ranges",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "isolation.level": "read_committed",
        "auto.offset.reset": reset,
        "enable.partition.eof": True,
        "fetch.wait.max.ms": 5,
        "queued.min.messages": 100_000,
        "log_level": 2,
    }
    return _kept(f"consumer, {reset}", client, lambda: Consumer(settings))


def _kept(kind: str, client: Mapping[str, Any], make: Callable[[], _Client]) -> _Client:
    key = (os.getpid(), kind, json.dumps(dict(client), sort_keys=True))
    if key not in _clients:
        _clients[key] = make()
    kept: _Client = _clients[key]
    return kept


def read_range(consumer: Consumer, asked: Range) -> Iterator[list[Message]]:
    """The records of a range, in offset order.

    Yields:
        Some messages at a time, never none.

    Raises:
        KafkaException: The range can't be read.
        TimeoutError: The broker gave nothing for too long.
    """
    lane = TopicPartition(asked.topic, asked.partition, asked.start)
    consumer.assign([lane])
    try:
        position, last_progress = asked.start, time.monotonic()
        while position < asked.end:
            messages = [m for m in consumer.consume(_ROWS, timeout=0.5) if _is_record(m)]
            rows = [message for message in messages if (message.offset() or 0) < asked.end]
            if rows:
                yield rows
            # The position, not the last record: a range may end in markers of transactions.
            reached = max(position, consumer.position([lane])[0].offset)
            if reached > position:
                position, last_progress = reached, time.monotonic()
            elif time.monotonic() - last_progress > _READ_TIMEOUT:
                raise TimeoutError(
                    f"{asked.topic}:{asked.partition} gave nothing from offset {position}"
                    f" for {_READ_TIMEOUT:g} s"
                )
    finally:
        consumer.unassign()


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
