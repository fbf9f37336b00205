"""The demo's own way to the broker; it reads by kafka-python, which the job's data never pass."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Final, Self

from redrive.demo.expectation import Outcome
from redrive.demo.queues import DEAD_LETTER_QUEUE, QUEUES, Queue
from redrive.demo.reconciliation import Found, Observation
from redrive.demo.samples import NUMBER_HEADER, Record, Sample
from redrive.errors import EnvironmentFault
from redrive.kafka.administration import NewTopic, TopicAdministration
from redrive.kafka.connection import Connection

__all__ = [
    "Cluster",
    "DeadLetterWriter",
    "SlowConsumer",
    "explained",
    "found_as",
    "read_to_end",
    "remaining_among",
]

_TIMEOUT: Final = 60.0
"""Seconds for the broker to take what was written, or to give more of what is there."""
_BROKER_LOG: Final = "the broker's log is in the demo's folder, which --directory keeps"
_OWN: Final = "redrive."
"""Headers that begin so are Redrive's."""


@contextmanager
def explained(what: str) -> Iterator[None]:
    """Raises what kafka-python raises as ``EnvironmentFault``.

    Args:
        what: What did not work, as the beginning of a sentence.
    """
    from kafka.errors import KafkaError  # noqa: PLC0415 - slow to import

    try:
        yield
    except (KafkaError, TimeoutError) as error:
        message = f"{what}: {type(error).__name__}: {error}"
        raise EnvironmentFault(message, hint=_BROKER_LOG) from error


class Cluster:
    """Makes topics, fills them and reads them to the end."""

    def __init__(self, bootstrap_servers: str) -> None:
        """Take the broker's address.

        Args:
            bootstrap_servers: ``host:port``
        """
        self._connection = Connection(bootstrap_servers=bootstrap_servers)
        self._settings = dict(self._connection.kafka_python())

    def create(self, names: Mapping[str, int], settings: Mapping[str, str] | None = None) -> None:
        """Create topics.

        Args:
            names: Name -> number of partitions.
            settings: Their settings.
        """
        TopicAdministration(self._connection).ensure(
            NewTopic(name, count, settings or {}) for name, count in names.items()
        )

    def create_queue(self, queue: Queue) -> None:
        """Create the topic of a queue."""
        limit = queue.max_message_bytes
        self.create({queue.name: 1}, {"max.message.bytes": str(limit)} if limit else None)

    def writer(self) -> DeadLetterWriter:
        """Something to write records with, as applications and channels would."""
        return DeadLetterWriter(self._connection.librdkafka())

    def slow_consumer(self, queue: str, group: str) -> SlowConsumer:
        """A consumer that reads a queue as slowly as it is told to."""
        return SlowConsumer(self._settings, queue, group)

    def observe(self, application: str, progress: Callable[[str], None]) -> Observation:
        """Read everything that the job can have touched, as a reader of committed records.

        Args:
            application: The job's application name.
            progress: Told the name of each topic before it is read.
        """
        prefix = f"{_OWN[:-1]}-{application}"
        remaining = f"{prefix}-{DEAD_LETTER_QUEUE}-remaining"
        outcomes = f"{prefix}-outcomes"

        def read(topic: str) -> list[Any]:
            progress(topic)
            return list(self._records(topic))

        return Observation(
            inputs=[found_as(record) for record in read(DEAD_LETTER_QUEUE)],
            puts=[found_as(record) for queue in QUEUES for record in read(queue)],
            remaining=list(remaining_among(read(remaining))),
            outcomes=sorted(map(_outcome, read(outcomes)), key=lambda outcome: outcome.time),
        )

    def _records(self, topic: str) -> Iterator[Any]:
        """Every committed record of a topic, each partition in offset order."""
        from kafka import KafkaConsumer, TopicPartition  # noqa: PLC0415 - slow to import

        with explained(f"{topic} can't be read"):
            consumer = KafkaConsumer(
                **self._settings,
                isolation_level="read_committed",
                auto_offset_reset="earliest",
                enable_auto_commit=False,
            )
            try:
                numbers = consumer.partitions_for_topic(topic) or ()
                lanes = [TopicPartition(topic, number) for number in numbers]
                consumer.assign(lanes)
                consumer.seek_to_beginning(*lanes)
                yield from read_to_end(consumer, consumer.end_offsets(lanes))
            finally:
                consumer.close()


def read_to_end(consumer: Any, ends: Mapping[Any, int]) -> Iterator[Any]:  # noqa: ANN401 - untyped client
    """The records from where a consumer stands.

    Args:
        consumer: Reads committed records.
        ends: Where to stop, by partition.

    Raises:
        TimeoutError: Nothing came for a long time.
    """
    last_progress = time.monotonic()
    # Positions and not records: the last offsets may be markers of transactions.
    while any(consumer.position(lane) < end for lane, end in ends.items()):
        polled = consumer.poll(timeout_ms=200)
        if polled:
            last_progress = time.monotonic()
        elif time.monotonic() - last_progress > _TIMEOUT:
            raise TimeoutError(f"nothing came for {_TIMEOUT:.0f} s")
        for records in polled.values():
            yield from records


class DeadLetterWriter:
    """Writes samples and other records; a context manager that waits for all acknowledgements.

    It uses confluent-kafka, because kafka-python does not write headers without a value.
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        """Open the producer.

        Args:
            settings: librdkafka's settings of the cluster.
        """
        from confluent_kafka import Producer  # noqa: PLC0415 - slow to import

        self._producer = Producer({**settings, "enable.idempotence": True, "log_level": 2})
        self._error = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if exc is None:
            self.flush()
        else:
            self._producer.purge()

    def write(self, samples: Iterable[Sample]) -> None:
        """Put samples on the dead-letter queue."""
        for sample in samples:
            self._send(DEAD_LETTER_QUEUE, sample.dead_letter)

    def fill(self, queue: str, count: int) -> None:
        """Put messages on a queue that are none of ours."""
        now = int(time.time() * 1000)
        for number in range(count):
            self._send(queue, Record(None, f"ordinary message {number}".encode(), (), now))

    def flush(self) -> None:
        """Wait until everything is acknowledged.

        Raises:
            EnvironmentFault: Something was not.
        """
        left = self._producer.flush(_TIMEOUT)
        if left or self._error:
            message = f"{left} records were not written: {self._error or 'no answer'}"
            raise EnvironmentFault(message, hint=_BROKER_LOG)

    def _send(self, topic: str, record: Record) -> None:
        self._producer.produce(
            topic,
            record.value,
            record.key,
            on_delivery=self._delivered,
            timestamp=record.timestamp,
            headers=list(record.headers),
        )
        self._producer.poll(0)

    def _delivered(self, error: object, _message: object) -> None:
        if error is not None:
            self._error = str(error)


class SlowConsumer:
    """Reads a queue and commits, never more than it was allowed to."""

    def __init__(self, settings: Mapping[str, Any], queue: str, group: str) -> None:
        """Open the consumer.

        Args:
            settings: kafka-python's settings of the cluster.
            queue: The queue to read.
            group: The consumer group to commit for.
        """
        from kafka import KafkaConsumer, TopicPartition  # noqa: PLC0415 - slow to import

        with explained(f"{queue} can't be read"):
            self._consumer = KafkaConsumer(
                **settings,
                group_id=group,
                isolation_level="read_committed",
                auto_offset_reset="earliest",
                enable_auto_commit=False,
            )
            self._consumer.assign([TopicPartition(queue, 0)])

    def read(self, at_most: int) -> int:
        """Read up to so many messages and commit; returns how many there were."""
        with explained("the slow consumer failed"):
            polled = self._consumer.poll(timeout_ms=50, max_records=at_most)
            count = sum(map(len, polled.values()))
            if count:
                self._consumer.commit()
            return count

    def close(self) -> None:
        """Close the consumer."""
        self._consumer.close()


def found_as(record: Any) -> Found:  # noqa: ANN401 - untyped client
    """A record of kafka-python as what was found."""
    own = {name: value for name, value in record.headers if name.startswith(_OWN)}
    headers = tuple((name, value) for name, value in record.headers if not name.startswith(_OWN))
    return Found(
        place=_place(record),
        topic=record.topic,
        number=_number(headers),
        record=Record(record.key, record.value, headers, record.timestamp),
        rule_line=int(own.get(f"{_OWN}rule") or 0),
    )


def remaining_among(records: Iterable[Any]) -> Iterator[Found]:
    """What is left of a compacted topic: the last record of each key, unless it is a tombstone.

    Args:
        records: All records of the topic.
    """
    last = {(record.partition, record.key): record for record in records}
    for record in last.values():
        if record.value is not None:
            yield _dead_letter_of(record)


def _dead_letter_of(copy: Any) -> Found:  # noqa: ANN401 - untyped client
    """The dead letter of which a record on the remaining topic is a copy."""
    own = dict(copy.headers)
    headers = tuple((name, value) for name, value in copy.headers if not name.startswith(_OWN))
    value = None if f"{_OWN}null" in own else copy.value
    timestamp = int(own.get(f"{_OWN}timestamp") or 0)
    record = Record(own.get(f"{_OWN}key"), value, headers, timestamp)
    return Found(_place(copy), copy.topic, _number(headers), record)


def _place(record: Any) -> str:  # noqa: ANN401 - untyped client
    return f"{record.topic}:{record.partition}:{record.offset}"


def _number(headers: Iterable[tuple[str, bytes | None]]) -> int | None:
    value = dict(headers).get(NUMBER_HEADER)
    return None if value is None else int(value)


def _outcome(record: Any) -> Outcome:  # noqa: ANN401 - untyped client
    told = json.loads(record.value)
    return Outcome(
        origin=told["origin"],
        time=told["time"],
        rule_line=told["rule_line"],
        attempt=told["attempt"],
        result=told["result"],
        reason=told["reason"],
        topic=told["target_topic"],
    )
