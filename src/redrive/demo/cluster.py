"""The demo's own access to the broker, by kafka-python, which the job does not use."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Self

from redrive.configuration import JobConfiguration
from redrive.configuration.deciders import identity_of, topology_of
from redrive.demo.messages import NUMBER_HEADER, Found, Outcome, Record, State
from redrive.errors import EnvironmentFault
from redrive.kafka.administration import NewTopic, TopicAdministration
from redrive.messages.own_headers import PREFIX, identity, without_own
from redrive.topology.layout import topics_of

_PATIENCE: Final = 300.0
"""Seconds without an answer after which the broker counts as dead; a busy one takes a few."""
_AT_ONCE: Final = 10_000
"""Records to write before waiting for acknowledgements."""
_NOT_OF_QUEUES: Final = ("redrive-", "__")
"""Prefixes of topics of Redrive or Kafka, which are not queues."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """All committed records on the broker."""

    inputs: Sequence[Found]
    """Every record on the topics of the demo's puts."""
    found: Sequence[Found]
    """All messages where they are now; those that the job has read are not on their topic."""
    outcomes: Mapping[str, Sequence[Outcome]]


@contextmanager
def _translate_errors(what: str) -> Iterator[None]:
    from kafka.errors import KafkaError  # noqa: PLC0415 - slow to import

    try:
        yield
    except (KafkaError, TimeoutError) as error:
        message = f"{what}: {type(error).__name__}: {error}"
        hint = "the broker's log is in the demo's folder, which --directory keeps"
        raise EnvironmentFault(message, hint=hint) from error


class Cluster:
    """Creates topics, puts messages, and reads every topic of a job; a context manager.

    It writes with confluent-kafka, because kafka-python does not write headers without a value.
    """

    def __init__(self, job: JobConfiguration) -> None:
        from confluent_kafka import Producer  # noqa: PLC0415 - slow to import

        self._job = job
        self._producer = Producer(
            {**job.connection.librdkafka(), "enable.idempotence": True, "log_level": 2}
        )
        # They use the job's group only to read its offsets, and never join it.
        self._consumer, self._follower = (_consumer(job, job.application) for _ in range(2))
        self._outcomes: dict[str, list[Outcome]] = defaultdict(list)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._producer.purge()
        self._consumer.close()
        self._follower.close()

    def create(self, topics: Sequence[NewTopic]) -> None:
        """Create topics."""
        TopicAdministration(self._job.connection).ensure(topics)

    def put(self, records: Iterable[tuple[str, Record]]) -> list[str]:
        """Write records with their topics, and return each acknowledged position.

        It raises ``EnvironmentFault`` if the broker did not accept one.
        """
        places: dict[int, str] = {}
        written = 0
        for written, (topic, record) in enumerate(records, 1):
            self._producer.produce(
                topic,
                record.value,
                record.key,
                on_delivery=partial(_note_delivery, places, written),
                timestamp=record.timestamp,
                headers=list(record.headers),
            )
            if written % _AT_ONCE == 0:
                self._producer.flush(_PATIENCE)
        self._producer.flush(_PATIENCE)
        if len(places) < written:
            message = f"{written - len(places)} of {written} messages were not put: no answer"
            raise EnvironmentFault(message, hint="check that the broker still runs")
        return [places[number] for number in range(1, written + 1)]

    def consumer(self, topic: str, group: str) -> Consumer:
        """A consumer of a topic."""
        return Consumer(_consumer(self._job, group), topic)

    def waiting(self, topic: str) -> int:
        """The number of messages of a topic that the job has not taken."""
        return sum(is_waiting for _, is_waiting in self._records(topic, only_waiting=True))

    def outcomes(self) -> Mapping[str, Sequence[Outcome]]:
        """The outcomes of each message so far, in the order of time."""
        follower, topic = self._follower, self._job.outcomes_topic
        with _translate_errors(f"{topic} cannot be read"):
            if not follower.assignment():
                follower.assign(_partitions(follower, topic))
                follower.seek_to_beginning()
            ends = follower.end_offsets(list(follower.assignment()))
            for record in _read_to(follower, ends):
                outcome = _outcome(record.value)
                self._outcomes[outcome.message].append(outcome)
                # A message's outcomes may be on several partitions.
                self._outcomes[outcome.message].sort(key=lambda one: one.time)
        return self._outcomes

    def observe(self, inputs: set[str], progress: Callable[[str], None]) -> Observation:
        """Read every topic; ``inputs`` are those of the demo's puts."""
        job = self._job
        routed = (
            identity_of(job.application, one)
            for one in topics_of(topology_of(job.topology))
            if one.is_read
        )
        handled = [handler.identity for handler in job.handlers]
        # The queues that the job reads, each with the topic of its remaining messages.
        read = {one.topic: one.remaining_topic for one in (*routed, *handled)}
        put: list[Found] = []
        found: list[Found] = []
        queues = {name for name in self._consumer.topics() if not name.startswith(_NOT_OF_QUEUES)}
        retries = {one.retry_topic for one in handled}
        for topic in sorted(queues) + sorted(retries):
            progress(topic)
            is_taken = topic in read or topic in retries
            only_waiting = is_taken and topic not in inputs
            for record, is_waiting in self._records(topic, only_waiting=only_waiting):
                if topic in inputs:
                    put.append(_found_message(record))
                if not is_taken or is_waiting:
                    state = State.WAITING if is_taken else State.LEFT
                    found.append(_found_message(record, state))
        for topic, remaining in read.items():
            progress(remaining)
            records = [record for record, _ in self._records(remaining)]
            found += remaining_among(records, topic)
        progress(job.outcomes_topic)
        return Observation(inputs=put, found=found, outcomes=self.outcomes())

    def _records(self, topic: str, *, only_waiting: bool = False) -> Iterator[tuple[Any, bool]]:
        """Each committed record of a topic, and whether the job's group has yet to take it."""
        consumer = self._consumer
        with _translate_errors(f"{topic} cannot be read"):
            partitions = _partitions(consumer, topic)
            consumer.assign(partitions)
            consumer.seek_to_beginning(*partitions)
            taken = {one.partition: consumer.committed(one) or 0 for one in partitions}
            for one in partitions if only_waiting else ():
                consumer.seek(one, taken[one.partition])
            for record in _read_to(consumer, consumer.end_offsets(partitions)):
                yield record, record.offset >= taken[record.partition]


class Consumer:
    """Reads a topic like an application."""

    def __init__(self, consumer: Any, topic: str) -> None:  # noqa: ANN401 - untyped client
        self._consumer = consumer
        self._failed = f"{topic} cannot be read"
        with _translate_errors(self._failed):
            consumer.assign(_partitions(consumer, topic))

    def read(self, at_most: int | None = None) -> Iterator[Any]:
        """Read up to ``at_most`` records, and commit them once all are processed."""
        with _translate_errors(self._failed):
            polled = self._consumer.poll(timeout_ms=50, max_records=at_most)
            for records in polled.values():
                yield from records
            if polled:
                self._consumer.commit()

    def close(self) -> None:
        """Close the consumer."""
        self._consumer.close()


def remaining_among(copies: Iterable[Any], topic: str) -> Iterator[Found]:
    """The last record of each key of a compacted topic, unless it is a tombstone."""
    last = {(copy.partition, copy.key): copy for copy in copies}
    for copy in last.values():
        if copy.value is not None:
            own = dict(copy.headers)
            value = None if f"{PREFIX}null" in own else copy.value
            timestamp = int(own.get(f"{PREFIX}timestamp") or 0)
            record = Record(
                own.get(f"{PREFIX}key"), value, tuple(without_own(copy.headers)), timestamp
            )
            yield Found(_place(copy), topic, _number(copy.headers), record, State.REMAINING)


def _consumer(job: JobConfiguration, group: str) -> Any:  # noqa: ANN401 - untyped client
    from kafka import KafkaConsumer  # noqa: PLC0415 - slow to import

    patience = int(_PATIENCE * 1000)
    with _translate_errors("the broker can't be reached"):
        return KafkaConsumer(
            **job.connection.kafka_python(),
            group_id=group,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            bootstrap_timeout_ms=patience,
            request_timeout_ms=patience,
        )


def _partitions(consumer: Any, topic: str) -> list[Any]:  # noqa: ANN401 - untyped client
    from kafka import TopicPartition as ClientPartition  # noqa: PLC0415 - slow to import

    numbers = sorted(consumer.partitions_for_topic(topic) or ())
    return [ClientPartition(topic, number) for number in numbers]


def _read_to(consumer: Any, ends: Mapping[Any, int]) -> Iterator[Any]:  # noqa: ANN401 - untyped
    last_progress = time.monotonic()
    # Positions rather than records: the last offsets may be transaction markers.
    while any(consumer.position(partition) < end for partition, end in ends.items()):
        polled = consumer.poll(timeout_ms=200)
        if polled:
            last_progress = time.monotonic()
        elif time.monotonic() - last_progress > _PATIENCE:
            raise TimeoutError(f"no records for {_PATIENCE:.0f} s")
        for records in polled.values():
            yield from records


def _note_delivery(places: dict[int, str], number: int, error: object, written: Any) -> None:  # noqa: ANN401
    if error is None:
        places[number] = identity(written.topic(), written.partition(), written.offset())


def _found_message(record: Any, state: State = State.LEFT) -> Found:  # noqa: ANN401 - untyped client
    own = dict(record.headers)
    line, time = own.get(f"{PREFIX}rule"), own.get(f"{PREFIX}timestamp")
    message = Record(record.key, record.value, tuple(without_own(record.headers)), record.timestamp)
    number = _number(record.headers)
    own_time = None if time is None else int(time)
    return Found(_place(record), record.topic, number, message, state, int(line or 0), own_time)


def _place(record: Any) -> str:  # noqa: ANN401 - untyped client
    return identity(record.topic, record.partition, record.offset)


def _number(headers: Iterable[tuple[str, bytes | None]]) -> int | None:
    value = dict(headers).get(NUMBER_HEADER)
    return None if value is None else int(value)


def _outcome(value: bytes) -> Outcome:
    document = json.loads(value)
    same = ("message", "time", "result", "rule_line", "attempt", "reason")
    return Outcome(topic=document["target_topic"], **{name: document[name] for name in same})
