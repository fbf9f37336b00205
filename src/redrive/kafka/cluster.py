"""What a Kafka cluster tells at this moment: the one place that asks, with deadlines.

Nothing here joins a group, commits or produces. A client that got no answer, or an answer for an
older cluster, is thrown away: the next question is asked by a fresh one. Some answers of a client
that lived through a restart of its broker never change (FENCED_LEADER_EPOCH).
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any, Final, NamedTuple, Self, TypeVar

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    TopicCollection,
)
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # public, not in the stub's list
    AdminClient,
    ConfigResource,
    OffsetSpec,
    ResourceType,
)

from redrive.errors import EnvironmentFault, TransientFault
from redrive.kafka.connection import Connection
from redrive.kafka.errors import STALE_METADATA, described, error_of, translated
from redrive.messages import TopicPartition
from redrive.topology.names import instances_group

_Answer = TypeVar("_Answer")

ANSWER_TIMEOUT: Final = 15.0
"""Seconds for one answer, unless whoever asks says otherwise."""
LEGAL_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")
"""Names that a topic may have; a broker does not take others even in a question."""
_LOOK: Final = 0.1
"""Seconds between two looks whether the connection has failed for good."""
_FIRST_TRY: Final = 5.0
"""Seconds for the first try of a question."""
_GRACE: Final = 2.0
"""Seconds that a client has to give up by itself: it is not to be destroyed in the middle of it."""
_UNSTABLE_LOOK: Final = 0.01
"""Seconds after which offsets are asked for again that a transaction is just moving."""
_CHUNK: Final = 5_000
"""Records taken from the client at once."""

_EARLIEST: Final[OffsetSpec] = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
_LATEST: Final[OffsetSpec] = OffsetSpec.latest()  # type: ignore[no-untyped-call]

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
_AGAIN: Final = frozenset(
    {
        KafkaError._TIMED_OUT,  # noqa: SLF001 - no public name
        KafkaError._TRANSPORT,  # noqa: SLF001
        KafkaError._ALL_BROKERS_DOWN,  # noqa: SLF001
        KafkaError._WAIT_COORD,  # noqa: SLF001
        KafkaError.REQUEST_TIMED_OUT,
        *STALE_METADATA,
    }
)
"""Errors after which a fresh client is worth a try."""
_NOT_ALLOWED: Final = frozenset(
    {KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED}
)


_PENDING: Final = (
    "the offsets of {group} wait for a transaction to end. One of a process that died is ended by"
    " the broker after two minutes; one that is older hangs on the broker: find it with"
    " kafka-transactions.sh find-hanging, and end it with abort"
)


class Extent(NamedTuple):
    """What a partition holds."""

    first: int
    """Offset of the oldest record that is kept."""
    end: int
    """Offset after the last committed record (the last stable offset)."""


class Cluster:
    """One cluster; use it in a ``with`` statement, or keep it for as long as a process lives."""

    def __init__(self, connection: Connection, *, timeout: float = ANSWER_TIMEOUT) -> None:
        """Does not connect yet; ``open`` does, or the first question.

        Args:
            connection: The cluster.
            timeout: Seconds that the first answer, and each further one, may take.
        """
        self._settings = {**connection.librdkafka(), "log_level": 0}
        self._servers = connection.bootstrap_servers
        self._timeout = timeout
        self._failures: list[KafkaError] = []
        self._client: AdminClient | None = None
        self._consumers: dict[tuple[str, bool], Consumer] = {}
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
                cluster._topics = cluster._list_topics(_LOOK)
            except KafkaException as exception:
                cluster._admin.poll(0)
                failure = cluster._hopeless()
                if failure is not None or time.monotonic() > deadline:
                    raise cluster._unreachable(failure or exception.args[0]) from exception
            else:
                return cluster

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._forget_clients()  # they end with their objects

    # -- topics --------------------------------------------------------------------------------

    def topics(self) -> Mapping[str, int]:
        """Every topic that exists now, with its number of partitions.

        Raises:
            TransientFault: The broker gave no answer in time.
        """
        self._topics = self._asked("list of topics", self._list_topics)
        return self._topics

    def partitions(self, topics: Iterable[str]) -> dict[str, int]:
        """The partitions of those topics that existed at the last look."""
        return {name: self._topics[name] for name in topics if name in self._topics}

    def lanes(self, topics: Iterable[str]) -> list[TopicPartition]:
        """Every partition of those topics that existed at the last look."""
        counts = self.partitions(topics)
        return [
            TopicPartition(name, number)
            for name, count in counts.items()
            for number in range(count)
        ]

    def topic_ids(self, topics: Collection[str]) -> dict[str, str]:
        """Kafka's id of each topic: another one if it was deleted and made anew (KIP-516).

        Args:
            topics: Topics. One that does not exist or that this user may not describe is left out.

        Raises:
            TransientFault: The broker gave no answer in time.
        """
        described = self.descriptions(topics)
        return {name: str(one.topic_id) for name, one in described.items() if one is not None}

    def descriptions(self, names: Collection[str], *, with_rights: bool = False) -> dict[str, Any]:
        """The client's descriptions of topics.

        Args:
            names: The topics.
            with_rights: Whether to ask what this user may do with them.

        Returns:
            None for a topic that does not exist, or not for this user.

        Raises:
            TransientFault: The broker gave no answer in time.
        """
        if not names:
            return {}

        def ask(seconds: float) -> dict[str, Any]:
            answers = self._admin.describe_topics(
                TopicCollection(list(names)),
                include_authorized_operations=with_rights,
                request_timeout=seconds,
            )
            return {name: _answer_or_none(one, seconds) for name, one in answers.items()}

        return self._asked("description of topics", ask)

    def settings_of(self, names: Collection[str]) -> dict[str, Mapping[str, Any]]:
        """The settings of topics, by name; none of a topic that this user may not look at.

        Raises:
            TransientFault: The broker gave no answer in time.
        """
        if not names:
            return {}
        resources = {name: ConfigResource(ResourceType.TOPIC, name) for name in names}

        def ask(seconds: float) -> dict[str, Mapping[str, Any]]:
            answers = self._admin.describe_configs(
                list(resources.values()), request_timeout=seconds
            )
            found: dict[str, Mapping[str, Any]] = {}
            for name, resource in resources.items():
                entries = _answer_or_none(answers[resource], seconds)
                found[name] = {key: entry.value for key, entry in (entries or {}).items()}
            return found

        return self._asked("settings of topics", ask)

    # -- offsets -------------------------------------------------------------------------------

    def extents(self, lanes: Iterable[TopicPartition]) -> dict[TopicPartition, Extent]:
        """What partitions hold now.

        Raises:
            TransientFault: The broker gave no answer in time.
        """
        asked = list(lanes)
        first = self._offsets(dict.fromkeys(asked, _EARLIEST))
        end = self.ends(asked)
        return {lane: Extent(first[lane], end[lane]) for lane in asked}

    def ends(
        self, lanes: Iterable[TopicPartition], *, committed_only: bool = True
    ) -> dict[TopicPartition, int]:
        """Where partitions end: their last stable offset, or with open transactions the very end.

        Raises:
            TransientFault: The broker gave no answer in time.
        """
        level = IsolationLevel.READ_COMMITTED if committed_only else IsolationLevel.READ_UNCOMMITTED
        return self._offsets(dict.fromkeys(lanes, _LATEST), level)

    def offsets_at(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """The first offset whose timestamp is not before a time; -1 if there is none.

        Args:
            times: Milliseconds since 1970 for each partition.

        Raises:
            TransientFault: The broker gave no answer in time.
        """
        asked = {lane: OffsetSpec.for_timestamp(time_) for lane, time_ in times.items()}
        return self._offsets(asked)

    def committed(
        self, group: str, lanes: Iterable[TopicPartition], *, stable: bool = False
    ) -> dict[TopicPartition, int | None]:
        """The committed offsets of a group.

        Args:
            group: The consumer group.
            lanes: The partitions to ask for.
            stable: Whether to wait for a transaction that is just moving them (KIP-447).

        Returns:
            The offset of each partition; None where nothing is committed.

        Raises:
            TransientFault: The broker gave no answer in time, or that transaction did not end.
        """
        places = [ClientPartition(*lane) for lane in lanes]
        if not places:
            return {}
        try:
            answer = self._asked(
                f"committed offsets of {group}",
                lambda seconds: self._committed(group, places, seconds, stable=stable),
            )
        except TransientFault as fault:
            if not stable:
                raise
            # The client says no more than that time is over; whether the broker answers a short
            # question tells why.
            with contextlib.suppress(KafkaException):
                self._committed(group, places, _FIRST_TRY, stable=False)
                raise TransientFault(_PENDING.format(group=group)) from fault
            raise
        return {
            TopicPartition(entry.topic, entry.partition): (
                entry.offset if entry.offset >= 0 else None
            )
            for entry in answer
        }

    def _committed(
        self, group: str, places: list[ClientPartition], seconds: float, *, stable: bool
    ) -> list[ClientPartition]:
        # By a consumer: the admin client ends the process (a null pointer in its handling of
        # OffsetFetch, librdkafka 2.16) when the group's coordinator has just moved.
        answer = self._asking_consumer(group, stable=stable).committed(places, timeout=seconds)
        for entry in answer:
            if entry.error is not None:
                raise KafkaException(entry.error)
        return answer

    def delete_records(self, below: Mapping[TopicPartition, int]) -> None:
        """Lets the broker delete what lies below some offsets.

        Raises:
            TransientFault: The broker refused, or gave no answer in time.
        """
        asked = [ClientPartition(*lane, end) for lane, end in below.items() if end]
        if not asked:
            return
        with translated("deletion of old records"):
            answers = self._admin.delete_records(asked, request_timeout=self._timeout)
            for answer in answers.values():
                answer.result(self._timeout + _GRACE)

    # -- instances and records -----------------------------------------------------------------

    def instances(self, application: str) -> tuple[str, ...] | None:
        """``host:process`` of the instances of an application that run now; None if unknown."""
        group = instances_group(application)
        try:
            described = self._asked(
                f"members of {group}",
                lambda seconds: self._admin.describe_consumer_groups(
                    [group], request_timeout=seconds
                )[group].result(seconds + _GRACE),
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
        if not starts:
            return
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

    # -- asking --------------------------------------------------------------------------------

    @property
    def _admin(self) -> AdminClient:
        if self._client is None:
            # A list and no method of this object: a client that is part of a reference cycle is
            # destroyed in whatever thread collects garbage, its own included.
            settings: dict[str, Any] = {**self._settings, "error_cb": self._failures.append}
            self._client = AdminClient(settings)
        return self._client

    def _asking_consumer(self, group: str, *, stable: bool) -> Consumer:
        """A consumer that never subscribes, reads or commits: it only asks."""
        consumer = self._consumers.get((group, stable))
        if consumer is None:
            consumer = self._consumers[group, stable] = Consumer(
                {
                    **self._settings,
                    "group.id": group,
                    "enable.auto.commit": False,
                    # With read_committed the answer waits for a transaction that moves offsets.
                    "isolation.level": "read_committed" if stable else "read_uncommitted",
                }
            )
        return consumer

    def _forget_clients(self) -> None:
        self._client = None
        self._consumers.clear()
        self._failures.clear()

    def _list_topics(self, timeout: float) -> Mapping[str, int]:
        topics = self._admin.list_topics(timeout=timeout).topics.items()
        return {name: len(topic.partitions) for name, topic in topics}

    def _offsets(
        self,
        asked: Mapping[TopicPartition, OffsetSpec],
        level: IsolationLevel = IsolationLevel.READ_COMMITTED,
    ) -> dict[TopicPartition, int]:
        if not asked:
            return {}
        places = {ClientPartition(*lane): spec for lane, spec in asked.items()}

        def ask(seconds: float) -> dict[TopicPartition, int]:
            answers = self._admin.list_offsets(
                places, isolation_level=level, request_timeout=seconds
            )
            return {
                TopicPartition(place.topic, place.partition): answer.result(seconds + _GRACE).offset
                for place, answer in answers.items()
            }

        return self._asked("offsets of partitions", ask)

    def _asked(self, step: str, ask: Callable[[float], _Answer]) -> _Answer:
        """An answer, asked for again, by a fresh client, while none comes and there is time.

        The first try is short: a client that lost its coordinator never answers, and a broker that
        is only slow answers the second one.
        """
        deadline = time.monotonic() + self._timeout
        seconds = min(_FIRST_TRY, self._timeout)
        while True:
            try:
                with translated(f"{step}, asked of {self._servers}"):
                    return ask(seconds)
            except TransientFault as fault:
                error = error_of(fault.__cause__) if fault.__cause__ is not None else None
                code = None if error is None else error.code()
                left = deadline - time.monotonic()
                if code == KafkaError.UNSTABLE_OFFSET_COMMIT and left > 0:
                    time.sleep(_UNSTABLE_LOOK)
                    continue
                self._forget_clients()
                if left <= 0 or not (code is None or code in _AGAIN):
                    raise
            seconds = max(_FIRST_TRY, left)
            time.sleep(_LOOK)

    def _hopeless(self) -> KafkaError | None:
        """An error of the connection after which waiting is no use."""
        return next((error for error in self._failures if error.code() in _HOPELESS), None)

    def _unreachable(self, error: KafkaError) -> EnvironmentFault:
        return EnvironmentFault(
            f"the broker at {self._servers} can't be reached: {error.str()}",
            hint="check that it runs, bootstrap_servers and the security settings",
        )


def _answer_or_none(answer: Any, timeout: float) -> Any:  # noqa: ANN401 - the client's future
    """What was said of a topic; None if it does not exist, or not for this user."""
    try:
        return answer.result(timeout + _GRACE)
    except KafkaException as exception:
        if exception.args[0].code() in {KafkaError.UNKNOWN_TOPIC_OR_PART, *_NOT_ALLOWED}:
            return None
        raise


def _is_end(message: Message) -> bool:
    """Whether this is no record but the news that a partition was read to its end."""
    error = message.error()
    if error is None:
        return False
    if error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - no public name
        return True
    raise TransientFault(f"{message.topic()} can't be read: {described(error)}")
