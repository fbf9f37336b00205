"""A partition of a compacted topic, read to its end and then followed."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from types import TracebackType
from typing import Final, Self

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
)
from confluent_kafka import TopicPartition as ClientPartition

from redrive.errors import TransientFault
from redrive.kafka.cluster import ANSWER_TIMEOUT, Cluster
from redrive.kafka.connection import Connection
from redrive.kafka.deadline import close_client
from redrive.kafka.errors import translated
from redrive.kafka.records import StoredRecord
from redrive.messages import TopicPartition

_AT_ONCE: Final = 1_000
"""Records taken at one look."""
_LOOK: Final = 0.01
"""Seconds of one look, which lasts so long even when the last record comes at once."""

Pair = tuple[str, bytes | None]
"""Key and value; no value for an entry that was removed."""


class CompactedTopic:
    """Reads a compacted topic; use it in a ``with`` statement, or close it.

    This class is responsible for: one consumer, and knowing when everything was read that was
    written before it was asked.
    """

    def __init__(
        self,
        connection: Connection,
        topic: str,
        *,
        partition: int = 0,
        committed_only: bool = True,
    ) -> None:
        """Open the consumer at the beginning.

        Args:
            connection: The cluster.
            topic: The topic, which exists.
            partition: Its partition.
            committed_only: Whether records of open and aborted transactions are left out.
        """
        self._lane = TopicPartition(topic, partition)
        self._cluster = Cluster(connection)
        level = "read_committed" if committed_only else "read_uncommitted"
        self._consumer = Consumer(
            {
                **connection.reader(),
                "isolation.level": level,
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 10,
                "enable.partition.eof": True,
                "log_level": 2,
            }
        )
        # Not "the beginning": librdkafka asks for it before it knows whom to ask, and asks again
        # half a second later. What is gone before the oldest record that is kept is passed over.
        self._consumer.assign([ClientPartition(topic, partition, 0)])
        self._position = 0

    def read_to_end(self) -> list[Pair]:
        """Everything up to the end of the topic as it is now, open transactions awaited.

        Whoever commits learns of it before readers do; so the very end is what is read up to, and
        nothing that was committed before this call is missed.

        Raises:
            TransientFault: The broker gave no answer in time.
        """
        return [_pair(record) for record in self.records_to_end()]

    def read_visible(self) -> list[Pair]:
        """Everything up to the last stable offset as it is now; no open transaction is awaited.

        The broker that leads the partition never moves that offset back, so whoever asks later sees
        at least as much.

        Raises:
            TransientFault: The broker gave no answer in time.
        """
        end = self._cluster.ends([self._lane])[self._lane]
        return [_pair(record) for record in self._records_up_to(end)]

    def very_end(self) -> int:
        """The offset behind the last record that is there now, open transactions included.

        Raises:
            TransientFault: The broker gave no answer in time.
        """
        return self._cluster.ends([self._lane], committed_only=False)[self._lane]

    @property
    def position(self) -> int:
        """The offset behind what was read."""
        return self._position

    def records_to_end(self) -> Iterator[StoredRecord]:
        """The records that ``read_to_end`` takes, one by one; errors as there.

        However long the topic is: time is up when nothing more comes.
        """
        yield from self._records_up_to(self.very_end())

    def _records_up_to(self, end: int) -> Iterator[StoredRecord]:
        deadline = time.monotonic() + ANSWER_TIMEOUT
        while self._position < end:
            if time.monotonic() > deadline:
                raise TransientFault(
                    f"{self._lane.topic} was not read to its end within {ANSWER_TIMEOUT:g} s"
                )
            before = self._position
            yield from self._consume(_LOOK)
            if self._position > before:
                deadline = time.monotonic() + ANSWER_TIMEOUT

    def news(self) -> list[Pair]:
        """What came since the last look, without waiting."""
        return [_pair(record) for record in self._consume(0)]

    def close(self) -> None:
        """Closes the consumer."""
        close_client(self._consumer, f"the consumer of {self._lane.topic}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _consume(self, seconds: float) -> list[StoredRecord]:
        found: list[StoredRecord] = []
        with translated(f"reading {self._lane.topic}"):
            for message in self._consumer.consume(_AT_ONCE, timeout=seconds):
                error, offset = message.error(), message.offset() or 0
                if error is None:
                    found.append(StoredRecord.of(message))
                    self._position = offset + 1
                elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - no public name
                    # Behind the last record there are markers of transactions.
                    self._position = max(self._position, offset)
                elif not error.retriable():
                    raise KafkaException(error)
        return found


def _pair(record: StoredRecord) -> Pair:
    return (record.key or b"").decode(errors="replace"), record.value


def await_visible(
    cluster: Cluster, lanes: Collection[TopicPartition], *, seconds: float = ANSWER_TIMEOUT
) -> bool:
    """Waits until readers at ``read_committed`` see all that is written now; whether they do.

    A commit returns before its markers are written, and an open transaction hides what others
    committed behind it.

    Args:
        cluster: Answers.
        lanes: The partitions.
        seconds: How long to wait for transactions that are open.

    Raises:
        TransientFault: The broker gave no answer in time.
    """
    ends = cluster.ends(lanes, committed_only=False)
    deadline = time.monotonic() + seconds
    while any(stable < ends[lane] for lane, stable in cluster.ends(lanes).items()):
        if time.monotonic() > deadline:
            return False
        time.sleep(_LOOK)
    return True


def append_record(connection: Connection, topic: str, key: bytes, value: bytes | None) -> None:
    """Writes one record outside of any transaction, and waits until every replica has it.

    Raises:
        TransientFault: The broker gave no answer in time.
    """
    problems: list[str] = []
    settings = {
        **connection.librdkafka(),
        # An entry written twice is the same entry, and an idempotent producer waits half a second
        # for its id.
        "enable.idempotence": False,
        "acks": "all",
        "message.timeout.ms": int(ANSWER_TIMEOUT * 1000),
        # Above any topic's own limit: the topic decides, not the client.
        "message.max.bytes": 1_000_000_000,
        "log_level": 2,
    }
    producer = Producer(settings)
    with translated(f"writing to {topic}"):
        producer.produce(
            topic, value, key, 0, lambda error, _: problems.append(str(error)) if error else None
        )
        left = producer.flush(ANSWER_TIMEOUT + 1)
    if left or problems:
        producer.purge()
        producer.poll(0)
        raise TransientFault(f"{topic} can't be written: {', '.join(problems) or 'no answer'}")
