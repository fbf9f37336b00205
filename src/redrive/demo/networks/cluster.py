"""The way of a network's demo to the broker, by kafka-python, which the job's data never pass."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from redrive.checkpoints.control import ControlTopic
from redrive.demo.cluster import explained, found_as, read_to_end, remaining_among
from redrive.demo.reconciliation import Found
from redrive.demo.samples import Record
from redrive.kafka.administration import NewTopic, TopicAdministration
from redrive.messages import TopicPartition
from redrive.messages.own_headers import identity
from redrive.streaming.factory import identity_of, topology_of
from redrive.topology.layout import topics_of
from redrive.topology.names import put_topic
from redrive.topology.plan import FoundTopic, PlannedTopic, plan_topics
from redrive.topology.states import Entry

if TYPE_CHECKING:
    from redrive.configuration import JobConfiguration
    from redrive.demo.networks.puts import Put

__all__ = ["NetworkCluster", "Outcome", "Written"]

_ANSWER_TIMEOUT: Final = 60.0
"""Seconds to wait for the acknowledgement of what was written."""


@dataclass(frozen=True, slots=True)
class Written:
    """A put as it lies on an intake."""

    identity: str
    """``topic:partition:offset``"""
    record: Record
    """The message, without the names of the put."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a message once, as the outcomes topic tells."""

    message: str
    """Identity of the message."""
    result: str
    topic: str
    """Where it was put; empty if nowhere."""
    rule_line: int
    reason: int


class NetworkCluster:
    """Makes the topics of a topology, puts messages, and reads everything there is.

    A context manager, which closes its connections.
    """

    def __init__(self, job: JobConfiguration) -> None:
        """Connect to the cluster.

        Args:
            job: The job, whose topology, topics and consumer group are looked at.
        """
        from kafka import KafkaConsumer, KafkaProducer  # noqa: PLC0415 - slow to import

        self._job = job
        self._outcomes: dict[str, list[Outcome]] = defaultdict(list)
        settings: dict[str, Any] = dict(job.connection.kafka_python())
        with explained("the broker can't be reached"):
            self._producer = KafkaProducer(**settings, acks="all")
            # They have the group's name to see what the job has taken, and never join the group.
            self._consumer, self._follower = (
                KafkaConsumer(
                    **settings,
                    group_id=job.application,
                    isolation_level="read_committed",
                    enable_auto_commit=False,
                )
                for _ in range(2)
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._producer.close(timeout=0 if exc else None)
        self._consumer.close()
        self._follower.close()

    def create_topics(self) -> Sequence[PlannedTopic]:
        """Create the topics that ``redrive topology apply`` would.

        Returns:
            What was created.
        """
        administration = TopicAdministration(self._job.connection)
        there = administration.partitions().items()
        found = {name: FoundTopic(count, {}) for name, count in there}
        plan = plan_topics(topology_of(self._job.topology), found, partitions=1)
        administration.ensure(
            NewTopic(one.topic, one.partitions, one.settings) for one in plan.missing
        )
        return plan.missing

    def put(self, puts: Sequence[Put]) -> dict[int, Written]:
        """Put messages, each as an application that is connected to its queue manager.

        Args:
            puts: The messages.

        Returns:
            Where each lies, by its number.

        Raises:
            EnvironmentFault: The broker did not take one.
        """
        now = int(time.time() * 1000)
        written: dict[int, Written] = {}
        with explained("messages were not put"):
            sent = [
                self._producer.send(
                    put_topic(one.kind.at),
                    one.body,
                    key=one.key,
                    headers=one.headers,
                    timestamp_ms=now,
                )
                for one in puts
            ]
            for one, future in zip(puts, sent, strict=True):
                there = future.get(timeout=_ANSWER_TIMEOUT)
                record = Record(one.key, one.body, tuple(one.message_headers), now)
                place = identity(there.topic, there.partition, there.offset)
                written[one.number] = Written(place, record)
        return written

    def set_states(self, *entries: Entry) -> None:
        """Change states of channels and queues, as an operator does."""
        ControlTopic(self._job.connection, self._job.control_topic).write(dict(entries))

    def waiting(self, topic: str) -> list[Found]:
        """The records of a topic that the job has not taken yet, in their order."""
        return [found_as(record) for record in self._records(topic, is_taken=True)]

    def end(self, topic: str) -> tuple[TopicPartition, int]:
        """The only partition of a topic, and the offset after its last record."""
        with explained(f"{topic} can't be looked at"):
            (end,) = self._consumer.end_offsets(_lanes(self._consumer, topic)).values()
        return TopicPartition(topic, 0), end

    def outcomes(self) -> Mapping[str, Sequence[Outcome]]:
        """What became of each message so far, by its identity, in the order of time."""
        follower, topic = self._follower, self._job.outcomes_topic
        with explained(f"{topic} can't be read"):
            if not follower.assignment():
                lanes = _lanes(follower, topic)
                follower.assign(lanes)
                follower.seek_to_beginning(*lanes)
            ends = follower.end_offsets(list(follower.assignment()))
            for record in read_to_end(follower, ends):
                outcome = _outcome(json.loads(record.value))
                self._outcomes[outcome.message].append(outcome)
        return self._outcomes

    def messages(self, progress: Callable[[str], None]) -> Iterator[tuple[str, Found]]:
        """Every message that is anywhere, with the topic that it belongs to.

        What the job has taken from a topic is not there any more, although Kafka still keeps it.

        Args:
            progress: Told the name of each topic before it is read.

        Yields:
            The topic, and the record; of what remains the topic from which it could not be put.
        """
        taken = self._taken_topics()
        for one in topics_of(topology_of(self._job.topology)):
            progress(one.topic)
            records = self._records(one.topic, is_taken=one.topic in taken)
            yield from ((one.topic, found_as(record)) for record in records)
        for topic, remaining in taken.items():
            progress(remaining)
            records = self._records(remaining, is_taken=False)
            yield from ((topic, found) for found in remaining_among(records))
        for handler in self._job.handlers:
            topic = handler.identity.retry_topic
            progress(topic)
            records = self._records(topic, is_taken=True)
            yield from ((topic, found_as(record)) for record in records)

    def _taken_topics(self) -> Mapping[str, str]:
        """The topics that the job reads, each with the one that keeps what it cannot put."""
        taken = {
            one.topic: identity_of(self._job.application, one).remaining_topic
            for one in topics_of(topology_of(self._job.topology))
            if one.is_read
        }
        handlers = (handler.identity for handler in self._job.handlers)
        return taken | {one.topic: one.remaining_topic for one in handlers}

    def _records(self, topic: str, *, is_taken: bool) -> Iterator[Any]:
        """The records of a topic; of one that the job takes from, those that it left."""
        consumer = self._consumer
        with explained(f"{topic} can't be read"):
            lanes = _lanes(consumer, topic)
            consumer.assign(lanes)
            consumer.seek_to_beginning(*lanes)
            for lane in lanes if is_taken else ():
                consumer.seek(lane, consumer.committed(lane) or 0)
            yield from read_to_end(consumer, consumer.end_offsets(lanes))


def _lanes(consumer: Any, topic: str) -> list[Any]:  # noqa: ANN401 - untyped client
    from kafka import TopicPartition as ClientPartition  # noqa: PLC0415 - slow to import

    return [ClientPartition(topic, number) for number in consumer.partitions_for_topic(topic) or ()]


def _outcome(told: Mapping[str, Any]) -> Outcome:
    return Outcome(
        message=told["message"],
        result=told["result"],
        topic=told["target_topic"],
        rule_line=told["rule_line"],
        reason=told["reason"],
    )
