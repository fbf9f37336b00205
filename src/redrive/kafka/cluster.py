"""What a Kafka cluster tells at this moment, asked by a command that cannot wait.

Nothing here joins a group, commits or writes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any, Final, NamedTuple, Self, TypeVar

from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Message,
    admin,
)
from confluent_kafka import (
    TopicPartition as ClientPartition,
)

from redrive.errors import EnvironmentFault, TransientFault
from redrive.kafka.connection import Connection
from redrive.kafka.offsets import EARLIEST, LATEST, OffsetSpec, list_offsets
from redrive.messages import TopicPartition
from redrive.topology.names import instances_group

_Answer = TypeVar("_Answer")

_LOOK: Final = 0.1
"""Seconds between two looks whether the connection has failed for good."""
_CHUNK: Final = 5_000
"""Records taken from the client at once."""
_HOPELESS: Final = frozenset(
    {
        KafkaError._ALL_BROKERS_DOWN,  # noqa: SLF001 - no public name
        KafkaError._AUTHENTICATION,  # noqa: SLF001
        KafkaError._SSL,  # noqa: SLF001
        KafkaError._RESOLVE,  # noqa: SLF001
        KafkaError.SASL_AUTHENTICATION_FAILED,
    }
)
"""Errors after which waiting for a first answer is no use."""


_NOT_READY: Final = frozenset(
    {
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    }
)
"""Answers of a broker that has just started, or a topic that was just made."""


class Extent(NamedTuple):
    """What a partition holds."""

    first: int
    """Offset of the oldest record that is kept."""
    end: int
    """Offset after the last committed record (the last stable offset)."""


class Cluster:
    """One cluster; use it in a ``with`` statement."""

    def __init__(self, connection: Connection, *, timeout: float) -> None:
        """Does not connect yet; ``open`` does.

        Args:
            connection: The cluster.
            timeout: Seconds that the first answer, and each further one, may take.
        """
        self._settings = {**connection.librdkafka(), "log_level": 0}
        self._servers = connection.bootstrap_servers
        self._timeout = timeout
        self._failure: KafkaError | None = None
        settings: dict[str, Any] = {**self._settings, "error_cb": self._failed}
        self._admin = admin.AdminClient(settings)
        self._topics: Mapping[str, int] = {}

    @classmethod
    def open(cls, connection: Connection, *, timeout: float) -> Self:
        """Connects; arguments as for the class.

        Raises:
            EnvironmentFault: The cluster can't be reached in time, or lets nobody in.
        """
        cluster = cls(connection, timeout=timeout)
        deadline = time.monotonic() + timeout
        while True:
            try:
                metadata = cluster._admin.list_topics(timeout=_LOOK)
            except KafkaException as exception:
                cluster._admin.poll(0)
                if cluster._failure is not None or time.monotonic() > deadline:
                    raise cluster._unreachable(cluster._failure or exception.args[0]) from exception
            else:
                topics = metadata.topics.items()
                cluster._topics = {name: len(topic.partitions) for name, topic in topics}
                return cluster

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        pass  # the clients end with their objects

    def partitions(self, topics: Iterable[str]) -> dict[str, int]:
        """The partitions of those topics that exist."""
        return {name: self._topics[name] for name in topics if name in self._topics}

    def lanes(self, topics: Iterable[str]) -> list[TopicPartition]:
        """Every partition of those topics that exist."""
        counts = self.partitions(topics)
        return [
            TopicPartition(name, number)
            for name, count in counts.items()
            for number in range(count)
        ]

    def extents(self, lanes: Iterable[TopicPartition]) -> dict[TopicPartition, Extent]:
        """What partitions hold now.

        Raises:
            TransientFault: The broker gave no answer in time.
        """
        asked = list(lanes)
        if not asked:
            return {}
        first = self._asked(lambda: self._offsets(asked, EARLIEST))
        end = self._asked(lambda: self._offsets(asked, LATEST))
        return {lane: Extent(first[lane], end[lane]) for lane in asked}

    def committed(
        self, group: str, lanes: Iterable[TopicPartition]
    ) -> dict[TopicPartition, int | None]:
        """The committed offsets of a group, as they are: a transaction under way is not awaited.

        Raises:
            TransientFault: The broker gave no answer in time.
        """
        places = [ClientPartition(*lane) for lane in lanes]
        if not places:
            return {}
        wanted = [ConsumerGroupTopicPartitions(group, places)]
        answer = self._asked(
            lambda: self._admin.list_consumer_group_offsets(wanted, request_timeout=self._timeout)[
                group
            ].result(self._timeout)
        )
        return {
            TopicPartition(entry.topic, entry.partition): entry.offset
            if entry.offset >= 0
            else None
            for entry in answer.topic_partitions
        }

    def instances(self, application: str) -> tuple[str, ...] | None:
        """``host:process`` of the instances of an application that run now; None if unknown."""
        group = instances_group(application)
        try:
            described = self._asked(
                lambda: self._admin.describe_consumer_groups(
                    [group], request_timeout=self._timeout
                )[group].result(self._timeout)
            )
        except TransientFault:
            return None
        return tuple(sorted(member.client_id.rpartition("@")[2] for member in described.members))

    def read(
        self,
        starts: Mapping[TopicPartition, int],
        *,
        seconds: float,
        until: Callable[[Message], bool] = lambda _: False,
    ) -> Iterator[Message]:
        """Committed records from given offsets to the end of their partitions.

        Args:
            starts: Where to begin in each partition.
            seconds: How long reading may take.
            until: Whether a record is the last one wanted of its partition.

        Raises:
            TransientFault: After the records read so far, because the time is over.
        """
        consumer = self._consumer()
        consumer.assign([ClientPartition(*lane, offset) for lane, offset in starts.items()])
        left = set(starts)
        deadline = time.monotonic() + seconds
        try:
            while left:
                for message in consumer.consume(_CHUNK, timeout=_LOOK):
                    lane = TopicPartition(str(message.topic()), int(message.partition() or 0))
                    if lane not in left:
                        continue
                    if not _is_end(message):
                        yield message
                        if not until(message):
                            continue
                    left.discard(lane)
                    consumer.incremental_unassign([ClientPartition(*lane)])
                if left and time.monotonic() > deadline:
                    raise TransientFault(f"{len(left)} partitions were not read to their end")
        finally:
            consumer.close()

    def _consumer(self) -> Consumer:
        return Consumer(
            {
                **self._settings,
                "group.id": "redrive-status",  # needed by the client, never used
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 20,
            }
        )

    def _offsets(self, lanes: list[TopicPartition], spec: OffsetSpec) -> dict[TopicPartition, int]:
        return list_offsets(self._admin, dict.fromkeys(lanes, spec), timeout=self._timeout)

    def _asked(self, ask: Callable[[], _Answer]) -> _Answer:
        """An answer, asked for again while the broker is only not ready to give it."""
        deadline = time.monotonic() + self._timeout
        while True:
            try:
                return ask()
            except (KafkaException, TimeoutError) as exception:
                code = exception.args[0].code() if isinstance(exception, KafkaException) else None
                if code not in _NOT_READY or time.monotonic() > deadline:
                    message = f"the broker at {self._servers} gave no answer: {exception}"
                    raise TransientFault(message) from exception
            time.sleep(_LOOK)

    def _failed(self, error: KafkaError) -> None:
        if error.code() in _HOPELESS:
            self._failure = error

    def _unreachable(self, error: KafkaError) -> EnvironmentFault:
        return EnvironmentFault(
            f"the broker at {self._servers} can't be reached: {error.str()}",
            hint="check that it runs, bootstrap_servers and the security settings",
        )


def _is_end(message: Message) -> bool:
    """Whether this is no record but the news that a partition was read to its end."""
    error = message.error()
    if error is None:
        return False
    if error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - no public name
        return True
    raise TransientFault(f"{message.topic()} can't be read: {error.str()}")
