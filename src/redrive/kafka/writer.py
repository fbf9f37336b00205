"""Writes a few records outside of any transaction, like an application."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import KafkaError, Message, Producer

from redrive.errors import OutcomeUnknown, TransientFault
from redrive.kafka.connection import Connection
from redrive.kafka.deadline import ANSWER, GRACE, PAUSE, SILENCE, within
from redrive.kafka.errors import translated
from redrive.messages import OutputRecord
from redrive.messages.own_headers import identity

_LARGEST_RECORD: Final = 1_000_000_000
"""Bytes: the topic limits the size, not the client."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """The result of writing records."""

    positions: tuple[str, ...]
    """``topic:partition:offset`` of each written record."""
    refusal: str = ""
    """The error of the first record that was not written; empty if all were."""
    is_too_large: bool = False
    """Whether that record is larger than its topic allows."""


class Appender:
    """Writes single records, with a client that is kept open."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._producer: Producer | None = None

    def append(self, topic: str, key: bytes, value: bytes | None) -> None:
        """Write a record to partition 0, and wait until every replica has it.

        Raises:
            TransientFault: The broker gave no answer in time.
        """
        producer, self._producer = self._producer or self._new_producer(), None
        problems: list[KafkaError | None] = []
        with translated(f"writing to {topic}"):
            producer.produce(topic, value, key, 0, lambda error, _: problems.append(error))
            left = producer.flush(ANSWER + GRACE)
        if left or problems != [None]:
            producer.purge()
            producer.poll(0)
            why = str(problems[0]) if problems else "no answer"
            raise TransientFault(f"{topic} cannot be written: {why}")
        self._producer = producer

    def close(self) -> None:
        """Drop the client: nothing is in flight between two records."""
        self._producer = None

    def _new_producer(self) -> Producer:
        return Producer(
            {
                **self._connection.librdkafka(),
                # An entry may be written twice, and an idempotent producer waits half a
                # second for its id.
                "enable.idempotence": False,
                "acks": "all",
                "message.timeout.ms": int(ANSWER * 1000),
                "message.max.bytes": _LARGEST_RECORD,
                "log_level": 2,
            }
        )


def write_records(connection: Connection, records: Iterable[OutputRecord]) -> Delivery:
    """Write records, and wait ``SILENCE`` seconds for each to be stored or refused.

    Equal keys keep their order.
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
            "message.timeout.ms": int(SILENCE * 1000),
            "message.max.bytes": _LARGEST_RECORD,
            "partitioner": "murmur2_random",  # as Java: all clients agree on a partition
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
                producer.poll(PAUSE)
            else:
                break
        producer.poll(0)
    most = SILENCE + GRACE
    try:
        within("flush of written records", most + GRACE, lambda: producer.flush(most))
    except OutcomeUnknown as unknown:
        return Delivery(tuple(positions), unknown.message)
    if len(producer):
        return Delivery(tuple(positions), f"no answer within {most:g} s")
    if not errors:
        return Delivery(tuple(positions))
    is_too_large = errors[0].code() == KafkaError.MSG_SIZE_TOO_LARGE
    return Delivery(tuple(positions), errors[0].str(), is_too_large)
