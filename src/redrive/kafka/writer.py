"""Writing a few records outside of any transaction, as an application does."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import KafkaError, Message, Producer

from redrive.errors import OutcomeUnknown
from redrive.kafka.connection import Connection
from redrive.kafka.deadline import GRACE, within
from redrive.messages import OutputRecord
from redrive.messages.own_headers import identity

__all__ = ["Delivery", "write_records"]

_LARGEST_RECORD: Final = 1_000_000_000
"""Bytes: the topic decides what is too large, not the client."""
_LOOK: Final = 0.1
"""Seconds to wait for room in the client's queue."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """What became of records that were written."""

    positions: tuple[str, ...]
    """``topic:partition:offset`` of each one that the cluster has."""
    refusal: str = ""
    """What was said of the first one that it does not have; empty if it has all."""
    is_too_large: bool = False
    """Whether that one is larger than its topic takes."""


def write_records(
    connection: Connection, records: Iterable[OutputRecord], *, timeout: float
) -> Delivery:
    """Write records and wait until the cluster has them or has refused them.

    Args:
        connection: The cluster.
        records: The records; equal keys keep their order.
        timeout: Seconds that each may take.
    """
    positions: list[str] = []
    errors: list[KafkaError] = []

    def report(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            errors.append(error)
        else:
            where: Any = message.topic(), message.partition(), message.offset()
            positions.append(identity(*where))

    producer = Producer(
        {
            **connection.librdkafka(),
            "enable.idempotence": True,
            "message.timeout.ms": int(timeout * 1000),
            "message.max.bytes": _LARGEST_RECORD,
            "partitioner": "murmur2_random",  # Java's choice: a key has one partition for everybody
            "log_level": 2,
        }
    )
    for record in records:
        while True:
            try:
                producer.produce(
                    record.topic,
                    record.value,
                    record.key,
                    partition=record.partition,
                    on_delivery=report,
                    timestamp=record.timestamp,
                    headers=list(record.headers or ()),
                )
            except BufferError:
                producer.poll(_LOOK)
                continue
            break
        producer.poll(0)
    most = timeout + GRACE
    try:
        within("flush of what was written", most + GRACE, lambda: producer.flush(most))
    except OutcomeUnknown as unknown:
        return Delivery(tuple(positions), unknown.message)
    if len(producer):
        return Delivery(tuple(positions), f"no answer within {most:g} s")
    if not errors:
        return Delivery(tuple(positions))
    is_too_large = errors[0].code() == KafkaError.MSG_SIZE_TOO_LARGE
    return Delivery(tuple(positions), errors[0].str(), is_too_large)
