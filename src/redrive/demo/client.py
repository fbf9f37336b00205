"""The independent client: kafka-python, which the job's data never pass, and none of our code.

It knows what any reader of a job's topics must know: headers that begin with ``redrive.`` are the
job's own, an outcome is a JSON object, and of the copies of a remaining message the last one counts
unless it is a tombstone.
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Self

NUMBER_HEADER: Final = "demo.number"
"""Header with the number of a message, which identifies it wherever it ends."""
_PATIENCE: Final = 300
"""Seconds without an answer after which the broker counts as dead; a busy one takes a few."""
_OWN: Final = "redrive."
"""Prefix of the job's own headers."""
_INTERNAL: Final = ("redrive-", "__")
"""Prefixes of the topics of Redrive and Kafka themselves, which are not queues."""


class ClientError(Exception):
    """The broker did not answer, or did not accept a record."""


@dataclass(frozen=True, slots=True)
class Record:
    """The parts of a Kafka record that must stay unchanged."""

    key: bytes | None
    value: bytes | None = field(repr=False)
    headers: tuple[tuple[str, bytes | None], ...] = field(repr=False)
    timestamp: int = 0
    """Milliseconds since 1970; 0 for the time of the put."""

    def without_own_headers(self) -> Record:
        """The record as it was, with the timestamp that the job's headers name, if they do."""
        headers = tuple(header for header in self.headers if not header[0].startswith(_OWN))
        timestamp = dict(self.headers).get(f"{_OWN}timestamp") or self.timestamp
        return Record(self.key, self.value, headers, int(timestamp))


@dataclass(frozen=True, slots=True)
class TopicRecord:
    """A record on a topic."""

    topic: str
    partition: int
    offset: int
    record: Record

    @property
    def position(self) -> str:
        """``topic:partition:offset``."""
        return f"{self.topic}:{self.partition}:{self.offset}"

    @property
    def number(self) -> int | None:
        """Number of the message; None if it is not the demo's."""
        number = dict(self.record.headers).get(NUMBER_HEADER)
        return None if number is None else int(number)


@dataclass(frozen=True, slots=True)
class OutcomeRecord:
    """One record of the outcomes topic."""

    message: str
    """``topic:partition:offset`` where the message was first put."""
    time: int
    """Milliseconds since 1970."""
    result: str
    rule_line: int
    """0 if no rule was applied."""
    attempt: int
    """From 1; 0 if nothing was attempted."""
    reason_name: str = ""
    """Why the attempt failed; empty if it did not."""


@dataclass(frozen=True, slots=True)
class BrokerRecords:
    """All committed records on the broker."""

    inputs: Sequence[TopicRecord]
    """Every record on a dead-letter queue."""
    ends: Sequence[tuple[str, TopicRecord]]
    """``arrived`` and a record on a topic that the job does not read, ``waiting`` and one that it
    has not taken, or ``remaining`` and a message that it keeps, where that was put."""
    outcomes: Mapping[str, Sequence[OutcomeRecord]]
    """The outcomes of each message, by the position where it was first put."""


class Client:
    """Puts messages, reads topics like an application, and reads every topic; a context manager.

    Args:
        settings: Of a kafka-python client.
        group: The job's, whose committed offsets say what it has taken; the client never joins it.
        outcomes_topic: The job's outcomes.
    """

    def __init__(self, settings: Mapping[str, Any], group: str, outcomes_topic: str) -> None:
        from kafka import KafkaProducer  # noqa: PLC0415 - slow to import

        self._settings = {**settings, "bootstrap_timeout_ms": _PATIENCE * 1000}
        self._outcomes_topic = outcomes_topic
        with _translated_errors("the broker can't be reached"):
            self._producer = KafkaProducer(**self._settings)
            self._reader, self._follower = self._consumer(group), self._consumer(group)
            self._application = self._consumer("demo-application")
        self._outcomes: dict[str, list[OutcomeRecord]] = defaultdict(list)

    def _consumer(self, group: str) -> Any:  # noqa: ANN401 - untyped client
        from kafka import KafkaConsumer  # noqa: PLC0415 - slow to import

        return KafkaConsumer(
            **self._settings,
            group_id=group,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            request_timeout_ms=_PATIENCE * 1000,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._producer.close(timeout=0)
        for consumer in (self._reader, self._follower, self._application):
            consumer.close()

    def put(self, records: Iterable[tuple[str, Record]]) -> list[str]:
        """Write records to their topics, and return the acknowledged position of each."""
        with _translated_errors("a message was not put"):
            sent = [
                self._producer.send(
                    topic,
                    record.value,
                    record.key,
                    list(record.headers),
                    timestamp_ms=record.timestamp or None,
                )
                for topic, record in records
            ]
            written = [future.get(timeout=_PATIENCE) for future in sent]
        return [f"{place.topic}:{place.partition}:{place.offset}" for place in written]

    def process(self, topic: str, at_most: int | None) -> Iterator[TopicRecord]:
        """Read up to ``at_most`` new records as an application: a commit follows the last one."""
        with _translated_errors(f"{topic} cannot be read"):
            if not self._application.assignment():
                self._application.assign(_partitions(self._application, topic))
            polled = self._application.poll(timeout_ms=50, max_records=at_most)
            for records in polled.values():
                yield from map(_stored, records)
            if polled:
                self._application.commit()

    def outcomes(self) -> Mapping[str, Sequence[OutcomeRecord]]:
        """The outcomes of each message so far, in the order of time; none before the job starts."""
        follower, topic = self._follower, self._outcomes_topic
        with _translated_errors(f"{topic} cannot be read"):
            if not follower.assignment() and (partitions := _partitions(follower, topic)):
                follower.assign(partitions)
                follower.seek_to_beginning()
            for record in _read_to_end(follower):
                outcome = json.loads(record.value)
                outcomes = self._outcomes[outcome["message"]]
                outcomes.append(
                    OutcomeRecord(**{name: outcome[name] for name in OutcomeRecord.__slots__})
                )
                # A message's outcomes may be on several partitions.
                outcomes.sort(key=lambda outcome: outcome.time)
        return self._outcomes

    def observe(
        self,
        handled: Collection[str],
        retry_topics: Collection[str],
        remaining_topics: Collection[str],
    ) -> BrokerRecords:
        """Read every topic.

        Args:
            handled: The dead-letter queues.
            retry_topics: Where the job's messages wait for their next attempt.
            remaining_topics: Where the job keeps the messages that remain.
        """
        inputs: list[TopicRecord] = []
        ends: list[tuple[str, TopicRecord]] = []
        queues = {topic for topic in self._reader.topics() if not topic.startswith(_INTERNAL)}
        for topic in sorted({*queues, *retry_topics}):
            for stored, is_taken in self._records(topic):
                if topic in handled:
                    inputs.append(stored)
                if topic not in handled and topic not in retry_topics:
                    ends.append(("arrived", stored))
                elif not is_taken:
                    ends.append(("waiting", stored))
        for topic in remaining_topics:
            copies = (stored.record for stored, _ in self._records(topic))
            ends += (("remaining", stored) for stored in remaining_among(copies))
        return BrokerRecords(inputs, ends, self.outcomes())

    def _records(self, topic: str) -> Iterator[tuple[TopicRecord, bool]]:
        """Each committed record of a topic, and whether the job has taken it."""
        consumer = self._reader
        with _translated_errors(f"{topic} cannot be read"):
            partitions = _partitions(consumer, topic)
            consumer.assign(partitions)
            consumer.seek_to_beginning()
            taken = {place.partition: consumer.committed(place) or 0 for place in partitions}
            for record in _read_to_end(consumer):
                yield _stored(record), record.offset < taken[record.partition]


def remaining_among(copies: Iterable[Record]) -> Iterator[TopicRecord]:
    """The messages of which the last copy is not a tombstone; a copy's key is their position."""
    last = {copy.key: copy for copy in copies}
    for position, copy in last.items():
        if copy.value is not None and position is not None:
            own = dict(copy.headers)
            value = None if f"{_OWN}null" in own else copy.value
            record = Record(own.get(f"{_OWN}key"), value, copy.headers, copy.timestamp)
            topic, partition, offset = position.decode().rsplit(":", 2)
            yield TopicRecord(topic, int(partition), int(offset), record)


@contextmanager
def _translated_errors(what: str) -> Iterator[None]:
    from kafka.errors import KafkaError  # noqa: PLC0415 - slow to import

    try:
        yield
    except (KafkaError, TimeoutError) as error:
        raise ClientError(f"{what}: {type(error).__name__}: {error}") from error


def _partitions(consumer: Any, topic: str) -> list[Any]:  # noqa: ANN401 - untyped client
    from kafka import TopicPartition  # noqa: PLC0415 - slow to import

    numbers = sorted(consumer.partitions_for_topic(topic) or ())
    return [TopicPartition(topic, number) for number in numbers]


def _read_to_end(consumer: Any) -> Iterator[Any]:  # noqa: ANN401 - untyped client
    """Records up to the end that the assigned partitions have now."""
    ends = consumer.end_offsets(list(consumer.assignment()))
    last_progress = time.monotonic()
    # Positions rather than records: the last offsets may be transaction markers.
    while any(consumer.position(partition) < end for partition, end in ends.items()):
        polled = consumer.poll(timeout_ms=200)
        if polled:
            last_progress = time.monotonic()
        elif time.monotonic() - last_progress > _PATIENCE:
            raise TimeoutError(f"no records for {_PATIENCE} s")
        for records in polled.values():
            yield from records


def _stored(record: Any) -> TopicRecord:  # noqa: ANN401 - untyped client
    content = Record(record.key, record.value, tuple(record.headers), record.timestamp)
    return TopicRecord(record.topic, record.partition, record.offset, content)
