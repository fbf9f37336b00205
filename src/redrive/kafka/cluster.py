"""The current state of a Kafka cluster, by questions with deadlines that change nothing."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, Self, TypeVar

from confluent_kafka import (
    OFFSET_INVALID,
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
)
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # public, not in the stub's list
    AclOperation,
    AdminClient,
    ConfigResource,
    ConfigSource,
    OffsetSpec,
    ResourceType,
)

from redrive.engine.names import instances_group
from redrive.errors import EnvironmentFault, TransientFault
from redrive.kafka.administration import NewTopic, client_topic, error_in
from redrive.kafka.connection import Connection
from redrive.kafka.deadline import ANSWER, LOOK, ONE_TRY, PAUSE, answer_of, under_way
from redrive.kafka.errors import ASK_AGAIN, NOT_ALLOWED, SIGN_IN_REFUSED, error_of, translated
from redrive.kafka.producer import Appender, in_parts
from redrive.kafka.records import Readers, StoredRecord
from redrive.messages import TopicPartition

_Answer = TypeVar("_Answer")
_Description = TypeVar("_Description")

_LONGEST_PAUSE: Final = 2.0
"""Maximum seconds between two attempts. Some errors come at once, such as that of a partition
without a leader, and each try opens clients anew."""
_HOPELESS: Final = SIGN_IN_REFUSED | {
    KafkaError._ALL_BROKERS_DOWN,  # noqa: SLF001 - no public name
    KafkaError._RESOLVE,  # noqa: SLF001
}
"""Errors after which waiting for a first answer is useless."""
_LEGAL_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")
"""Valid topic names; a broker refuses others even in a question."""
_NAMED: Final = 10
"""Maximum partitions in one message."""
_SET_ON_TOPIC: Final = ConfigSource.DYNAMIC_TOPIC_CONFIG.value
_EARLIEST: Final[OffsetSpec] = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
_LATEST: Final[OffsetSpec] = OffsetSpec.latest()  # type: ignore[no-untyped-call]

_PENDING: Final = (
    "the offsets of {group} wait for a transaction to end. The broker ends that of a dead process"
    " after two minutes; an older one hangs: find it with kafka-transactions.sh find-hanging,"
    " and abort it"
)


class AskingClients:
    """The clients of one cluster: an admin client, readers, and a consumer for each group."""

    def __init__(self, connection: Connection, *, timeout: float) -> None:
        """Create clients of a cluster; an answer may take ``timeout`` seconds."""
        self._settings = {**connection.librdkafka(), "log_level": 0}
        self.readers = Readers(connection)
        self._servers = connection.bootstrap_servers
        self._timeout = timeout
        self._failures: list[KafkaError] = []
        self._admin: AdminClient | None = None
        self._is_connected = False
        """Whether a broker has answered the admin client."""
        self._consumers: dict[tuple[str, bool], Consumer] = {}

    @property
    def admin(self) -> AdminClient:
        """The admin client; replaced after a question without an answer."""
        if self._admin is None:
            # A list, not a method of this object: a client in a reference cycle is destroyed in
            # whichever thread collects garbage, including its own.
            settings: dict[str, Any] = {**self._settings, "error_cb": self._failures.append}
            self._admin = AdminClient(settings)
        return self._admin

    def connected_admin(self, seconds: float) -> AdminClient:
        """The admin client, once a broker has answered it within ``seconds``.

        For questions to partition leaders: an unconnected client finds none, and retries only one
        second and then three seconds later.

        Raises:
            KafkaException: No broker answers.
        """
        admin = self.admin
        if not self._is_connected:
            answer_of(admin.describe_cluster(request_timeout=seconds), seconds)
            self._is_connected = True
        return admin

    def consumer(self, group: str, *, stable: bool) -> Consumer:
        """A consumer that never subscribes, reads or commits, for questions about offsets.

        Args:
            group: The consumer group of whose offsets it asks.
            stable: Whether its answers wait for a transaction that moves offsets (KIP-447).
        """
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

    def forget(self) -> None:
        """Drop every client; the next question opens new ones."""
        self._admin = None
        self._is_connected = False
        self._consumers.clear()
        self._failures.clear()
        self.readers.forget()

    def reach(self, ask: Callable[[float], _Answer]) -> _Answer:
        """The first answer of a cluster.

        Args:
            ask: The question, with the seconds that one attempt may take.

        Raises:
            EnvironmentFault: The cluster cannot be reached in time, or refuses this user.
        """
        deadline = time.monotonic() + self._timeout
        while True:
            try:
                return ask(PAUSE)
            except KafkaException as exception:
                self.admin.poll(0)
                failure = next(
                    (error for error in self._failures if error.code() in _HOPELESS), None
                )
                if failure is not None or time.monotonic() > deadline:
                    error = failure or exception.args[0]
                    raise EnvironmentFault(
                        f"the broker at {self._servers} cannot be reached: {error.str()}",
                        hint="check that it runs, bootstrap_servers and the security settings",
                    ) from exception

    def answer(self, step: str, ask: Callable[[float], _Answer]) -> _Answer:
        """The answer to a question, repeated by fresh clients until the time is over.

        The first attempt is short: a client that lost its coordinator never answers, and a slow
        broker answers the second attempt.

        Args:
            step: Name of the question, for the error.
            ask: The question, with the seconds that one attempt may take.

        Raises:
            TransientFault: No answer in time, or an error that retries cannot fix.
        """
        deadline = time.monotonic() + self._timeout
        seconds = min(ONE_TRY, self._timeout)
        pause = PAUSE
        while True:
            try:
                with under_way(step), translated(f"{step} at {self._servers}"):
                    return ask(seconds)
            except TransientFault as fault:
                error = error_of(fault.__cause__) if fault.__cause__ is not None else None
                code = None if error is None else error.code()
                left = deadline - time.monotonic()
                if code == KafkaError.UNSTABLE_OFFSET_COMMIT and left > 0:
                    time.sleep(LOOK)
                    continue
                self.forget()
                if left <= 0 or not (code is None or code in ASK_AGAIN):
                    raise
            seconds = max(ONE_TRY, left)
            time.sleep(min(pause, left))
            pause = min(2 * pause, _LONGEST_PAUSE)


class Extent(NamedTuple):
    """The offsets of a partition."""

    first: int
    """Offset of the oldest record."""
    end: int
    """Offset after the last committed record (the last stable offset)."""

    def position(self, committed: int | None, *, from_end: bool = False) -> int:
        """Where a consumer group continues.

        Args:
            committed: Its committed offset; None for none.
            from_end: Whether to begin at the end, not at the oldest record, without one.
        """
        if committed is None:
            return self.end if from_end else self.first
        return min(max(committed, self.first), self.end)


class Cluster:
    """One cluster; use it in a ``with`` statement, or keep it for as long as a process lives.

    Every question raises ``TransientFault`` if the broker does not answer in time.
    """

    def __init__(self, connection: Connection, *, timeout: float = ANSWER) -> None:
        """Create clients of a cluster; each answer may take ``timeout`` seconds."""
        self.connection = connection
        self._clients = AskingClients(connection, timeout=timeout)
        self._appender = Appender(connection)
        self._timeout = timeout
        self._topics: Mapping[str, int] = {}
        self._identity = ""

    @classmethod
    def open(cls, connection: Connection, *, timeout: float) -> Self:
        """Connects; arguments as for the class.

        Raises:
            EnvironmentFault: The cluster cannot be reached in time, or refuses this user.
        """
        cluster = cls(connection, timeout=timeout)
        cluster._topics = cluster._clients.reach(cluster._list_topics)
        return cluster

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Close every client; another question opens new ones."""
        self._clients.forget()
        self._appender.close()

    # -- topics --------------------------------------------------------------------------------

    def topics(self) -> Mapping[str, int]:
        """Every existing topic with its number of partitions."""
        self._topics = self._clients.answer("list of topics", self._list_topics)
        return self._topics

    @property
    def identity(self) -> str:
        """Kafka's unique id of the cluster."""
        if not self._identity:
            self.topics()
        return self._identity

    def partitions(self, topics: Iterable[str]) -> dict[str, int]:
        """The partitions of those topics that existed at the last query."""
        return {name: self._topics[name] for name in topics if name in self._topics}

    def lanes(self, topics: Iterable[str]) -> list[TopicPartition]:
        """Every partition of those topics that existed at the last query."""
        counts = self.partitions(topics).items()
        return [TopicPartition(name, number) for name, count in counts for number in range(count)]

    def topic_ids(self, topics: Collection[str]) -> dict[str, str]:
        """Kafka's id of each topic, which changes if the topic is recreated (KIP-516).

        Missing topics, and those that this user may not describe, are omitted.
        """
        return self.identified(topics, ())[0]

    def identified(
        self, topics: Collection[str], lanes: Iterable[TopicPartition]
    ) -> tuple[dict[str, str], frozenset[TopicPartition]]:
        """The ``topic_ids`` of topics, and the ``leaderless`` of their lanes, by one question."""
        described = {name: topic for name, topic in self.descriptions(topics).items() if topic}
        silent = (
            TopicPartition(name, partition.id)
            for name, topic in described.items()
            for partition in topic.partitions
            if not has_leader(partition)
        )
        ids = {name: str(topic.topic_id) for name, topic in described.items()}
        return ids, frozenset(lanes).intersection(silent)

    def descriptions(self, names: Collection[str], *, with_rights: bool = False) -> dict[str, Any]:
        """The client's descriptions of topics; ``with_rights`` adds this user's rights.

        Returns:
            None for a topic that does not exist or is hidden from this user.
        """
        legal = [name for name in names if _LEGAL_NAME.fullmatch(name)]
        return dict.fromkeys(names) | self._described(
            "description of topics", legal, _answer_or_none, with_rights=with_rights
        )

    def unreadable(self, topics: Collection[str]) -> frozenset[str]:
        """The topics that this user may not read, or not even describe."""
        readable = self._described("rights on topics", topics, _is_readable, with_rights=True)
        return frozenset(name for name, is_readable in readable.items() if not is_readable)

    def leaderless(self, lanes: Collection[TopicPartition]) -> frozenset[TopicPartition]:
        """The partitions without a leader, which cannot be asked."""
        return self.identified({lane.topic for lane in lanes}, lanes)[1]

    def led(self, topics: Iterable[str]) -> tuple[list[TopicPartition], frozenset[TopicPartition]]:
        """The partitions of topics with a leader, and those without.

        Topics that did not exist at the last look are omitted.
        """
        lanes = self.lanes(topics)
        silent = self.leaderless(lanes)
        return [lane for lane in lanes if lane not in silent], silent

    def settings_of(
        self, names: Collection[str], *, explicit_only: bool = False
    ) -> dict[str, Mapping[str, Any]]:
        """The settings of topics by name; empty for a topic that this user may not describe.

        ``explicit_only`` omits those of the cluster. The client fails if a topic is named twice.
        """

        def ask(seconds: float) -> dict[str, Mapping[str, Any]]:
            settings: dict[str, Mapping[str, Any]] = {}
            for part in in_parts([ConfigResource(ResourceType.TOPIC, name) for name in {*names}]):
                answers = self._clients.admin.describe_configs(part, request_timeout=seconds)
                for resource in part:
                    entries = _answer_or_none(answers[resource], seconds)
                    settings[resource.name] = {
                        key: entry.value
                        for key, entry in (entries or {}).items()
                        if not explicit_only or entry.source == _SET_ON_TOPIC
                    }
            return settings

        return self._clients.answer("settings of topics", ask)

    def create(self, topic: NewTopic, *, validate_only: bool) -> KafkaError | None:
        """Create a topic, or only validate it; an existing one is fine.

        Returns:
            Why the cluster refuses; None if it does not.
        """

        def ask(seconds: float) -> KafkaError | None:
            answers = self._clients.admin.create_topics(
                [client_topic(topic)], request_timeout=seconds, validate_only=validate_only
            )
            error = error_in(answers[topic.name], seconds)
            if error is not None and error.code() in ASK_AGAIN:
                raise KafkaException(error)
            return error

        return self._clients.answer(f"creation of topic {topic.name}", ask)

    # -- offsets -------------------------------------------------------------------------------

    def extents(self, lanes: Iterable[TopicPartition]) -> dict[TopicPartition, Extent]:
        """The offsets of partitions now."""
        lanes = list(lanes)
        first = self._offsets(dict.fromkeys(lanes, _EARLIEST))
        end = self.ends(lanes)
        return {lane: Extent(first[lane], end[lane]) for lane in lanes}

    def ends(
        self, lanes: Iterable[TopicPartition], *, committed_only: bool = True
    ) -> dict[TopicPartition, int]:
        """The ends of partitions: last stable offsets, or with open transactions the very ends."""
        level = IsolationLevel.READ_COMMITTED if committed_only else IsolationLevel.READ_UNCOMMITTED
        return self._offsets(dict.fromkeys(lanes, _LATEST), level)

    def offsets_at(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """By partition, the first offset at or after a time (ms since 1970); -1 if none."""
        return {lane: offset for lane, (offset, _) in self.first_since(times).items()}

    def first_since(
        self, times: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, tuple[int, int]]:
        """Offset and timestamp of the first record at or after a time; -1 and -1 if none."""
        return self._positions({lane: OffsetSpec.for_timestamp(at) for lane, at in times.items()})

    def committed(
        self, group: str, lanes: Iterable[TopicPartition], *, stable: bool = False
    ) -> dict[TopicPartition, int | None]:
        """The committed offsets of a group.

        Args:
            group: The consumer group.
            lanes: The partitions to ask for.
            stable: Whether to wait for a transaction that is moving them (KIP-447).

        Returns:
            The offset of each partition; None where nothing is committed.

        Raises:
            TransientFault: The broker did not answer in time, or that transaction did not end.
        """
        places = [ClientPartition(*lane) for lane in lanes]
        if not places:
            return {}

        def ask(seconds: float, *, stable: bool = stable) -> list[ClientPartition]:
            # By a consumer: the admin client ends the process (a null pointer in its handling of
            # OffsetFetch, librdkafka 2.16) when the group's coordinator has just moved.
            consumer, answer = self._clients.consumer(group, stable=stable), []
            for part in in_parts(places):
                answer += consumer.committed(part, timeout=seconds)
            for entry in answer:
                if entry.error is not None:
                    raise KafkaException(entry.error)
            return answer

        try:
            answer = self._clients.answer(f"committed offsets of {group}", ask)
        except TransientFault as fault:
            if not stable:
                raise
            # The client only reports a timeout; a short question shows whether the broker answers
            # at all.
            with contextlib.suppress(KafkaException):
                ask(ONE_TRY, stable=False)
                raise TransientFault(_PENDING.format(group=group)) from fault
            raise
        return {
            TopicPartition(partition.topic, partition.partition): partition.offset
            if partition.offset >= 0
            else None
            for partition in answer
        }

    def delete_records(self, below: Mapping[TopicPartition, int]) -> None:
        """Make the broker delete the records below some offsets; ``TransientFault`` if refused."""
        ends = [ClientPartition(*lane, end) for lane, end in below.items() if end]
        if not ends:
            return
        with translated("deletion of old records"):
            answers = self._clients.admin.delete_records(ends, request_timeout=self._timeout)
            for answer in answers.values():
                answer_of(answer, self._timeout)

    # -- instances and records -----------------------------------------------------------------

    def instances(self, application: str) -> tuple[str, ...] | None:
        """``host:process`` of an application's running instances; None if unknown."""
        try:
            members = self.members(application)
        except TransientFault:
            return None
        return tuple(sorted(member.rpartition("@")[2] for member in members))

    def members(self, application: str) -> tuple[str, ...]:
        """Client ids of the running instances; ``TransientFault`` without an answer."""
        group = instances_group(application)

        def ask(seconds: float) -> tuple[str, ...]:
            answers = self._clients.admin.describe_consumer_groups([group], request_timeout=seconds)
            return tuple(member.client_id for member in answer_of(answers[group], seconds).members)

        return self._clients.answer(f"members of {group}", ask)

    def read(
        self,
        starts: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int] | None = None,
        *,
        seconds: float | None = None,
        until: Callable[[StoredRecord], bool] = lambda _: False,
        committed_only: bool = True,
        passes_gone: bool = True,
    ) -> Iterator[StoredRecord]:
        """Records from given offsets on.

        Args:
            starts: Where to begin in each partition.
            ends: The offset after the last record to read in each; None for all records.
            seconds: The longest time for reading; None for as long as records arrive.
            until: Whether a record is the last one to read in its partition.
            committed_only: Whether to omit records of open and aborted transactions.
            passes_gone: Whether records deleted by retention are skipped; otherwise they are a
                fault.

        Raises:
            TransientFault: After the records read so far: the broker sends no more, or the time is
                over.
        """
        runs = self._clients.readers.read(
            starts,
            ends,
            seconds=seconds,
            committed_only=committed_only,
            passes_gone=passes_gone,
        )
        for run in runs:
            for record in run.records():
                yield record
                if until(record):
                    run.is_last = True
                    break

    def places(
        self, starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
    ) -> Iterator[tuple[bytes | None, int, bool]]:
        """Key and offset of each record, and whether it has a value; the rest as for ``read``.

        Without headers, which cost the most.
        """
        for run in self._clients.readers.read(starts, ends):
            for message in run.messages:
                place: Any = message.key(), message.offset(), message.value() is not None
                yield place

    def append(self, topic: str, entries: Sequence[tuple[bytes, bytes | None]]) -> None:
        """Write records to partition 0 of a topic, in any order, until every replica has them."""
        self._appender.append(topic, entries)

    def _list_topics(self, timeout: float) -> Mapping[str, int]:
        answer = self._clients.admin.list_topics(timeout=timeout)
        self._identity = str(answer.cluster_id)
        return {name: len(topic.partitions) for name, topic in answer.topics.items()}

    def _described(
        self,
        step: str,
        names: Collection[str],
        read: Callable[[Any, float], _Description],
        *,
        with_rights: bool,
    ) -> dict[str, _Description]:
        if not names:
            return {}

        def ask(seconds: float) -> dict[str, _Description]:
            answers = self._clients.admin.describe_topics(
                TopicCollection(list(names)),
                include_authorized_operations=with_rights,
                request_timeout=seconds,
            )
            return {name: read(answer, seconds) for name, answer in answers.items()}

        return self._clients.answer(step, ask)

    def _offsets(
        self,
        specs: Mapping[TopicPartition, OffsetSpec],
        level: IsolationLevel = IsolationLevel.READ_COMMITTED,
    ) -> dict[TopicPartition, int]:
        return {lane: offset for lane, (offset, _) in self._positions(specs, level).items()}

    def _positions(
        self,
        specs: Mapping[TopicPartition, OffsetSpec],
        level: IsolationLevel = IsolationLevel.READ_COMMITTED,
    ) -> dict[TopicPartition, tuple[int, int]]:
        if not specs:
            return {}
        places = [(ClientPartition(*lane), spec) for lane, spec in specs.items()]

        def ask(seconds: float) -> dict[TopicPartition, tuple[int, int]]:
            admin = self._clients.connected_admin(seconds)
            answers = [
                admin.list_offsets(dict(part), isolation_level=level, request_timeout=seconds)
                for part in in_parts(places)
            ]
            positions = {}
            for place, future in (entry for part in answers for entry in part.items()):
                position = answer_of(future, seconds)
                if position.offset == OFFSET_INVALID:
                    # librdkafka 2.16 answers so, without an error, while brokers restart.
                    raise TransientFault(f"the client knows no offset of {place}")
                lane = TopicPartition(place.topic, place.partition)
                positions[lane] = position.offset, position.timestamp
            return positions

        return self._clients.answer("offsets of partitions", ask)


def settled_ends(
    cluster: Cluster, lanes: Collection[TopicPartition], *, seconds: float = ANSWER
) -> dict[TopicPartition, int]:
    """The ends of partitions now, once all transactions open there have ended.

    A commit returns before readers see it, and an open transaction hides what others committed
    behind it. A reader that reaches it has read everything committed before this call.

    Raises:
        TransientFault: The broker did not answer, or a transaction did not end in ``seconds``.
    """
    written = cluster.ends(lanes, committed_only=False)
    deadline = time.monotonic() + seconds
    while True:
        stable = cluster.ends(lanes)
        hidden = [lane for lane, end in written.items() if stable[lane] < end]
        if not hidden:
            return written
        if time.monotonic() > deadline:
            raise TransientFault(
                f"an open transaction on {hidden[0]} did not end in {seconds:g} s",
                hint="find its client with kafka-transactions.sh find-hanging",
            )
        time.sleep(LOOK)


def next_offsets(
    cluster: Cluster,
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    *,
    seconds: float | None = None,
) -> dict[TopicPartition, int]:
    """Offset of the first committed record in each range; the range's end without one.

    Offsets without a record are transaction markers, records of aborted transactions, and what
    compaction removed.

    Args:
        cluster: Reads them.
        starts: The begin of each range.
        ends: The offset after each range; it may have more lanes.
        seconds: The longest time for reading; None for as long as records arrive.

    Raises:
        TransientFault: The broker did not answer in time, or a range begins before the oldest
            record that is kept.
    """
    offsets = {lane: ends[lane] for lane in starts}
    for record in cluster.read(
        starts, ends, seconds=seconds, until=lambda _: True, passes_gone=False
    ):
        offsets[record.lane] = record.offset
    return offsets


def without_leader(lanes: Collection[TopicPartition] | Collection[str]) -> list[str]:
    """A note that names partitions without a leader; empty if there are none."""
    if not lanes:
        return []
    names = ", ".join(sorted(map(str, lanes))[:_NAMED]) + ", ..." * (len(lanes) > _NAMED)
    return [f"left out without a leader: {names}"]


def may_read(topic: Any) -> bool:  # noqa: ANN401 - the client's
    """Whether this user may read a topic, as described with rights.

    A broker without access control reports no rights: then everything is allowed.
    """
    return not topic.authorized_operations or AclOperation.READ in topic.authorized_operations


def may_write(topic: Any) -> bool:  # noqa: ANN401 - the client's
    """Whether this user may write to a topic; as ``may_read``."""
    return not topic.authorized_operations or AclOperation.WRITE in topic.authorized_operations


def has_leader(partition: Any) -> bool:  # noqa: ANN401 - the client's
    """Whether a broker leads a partition, as the client describes it."""
    return partition.leader is not None and partition.leader.id >= 0


def _is_readable(answer: Any, timeout: float) -> bool:  # noqa: ANN401 - the client's future
    """Whether a topic may be read; a missing one may."""
    try:
        return may_read(answer_of(answer, timeout))
    except KafkaException as exception:
        code = exception.args[0].code()
        if code == KafkaError.UNKNOWN_TOPIC_OR_PART:
            return True
        if code in NOT_ALLOWED:
            return False
        raise


def _answer_or_none(answer: Any, timeout: float) -> Any:  # noqa: ANN401 - the client's future
    """The description of a topic; None if it does not exist or is hidden from this user."""
    try:
        return answer_of(answer, timeout)
    except KafkaException as exception:
        if exception.args[0].code() in {KafkaError.UNKNOWN_TOPIC_OR_PART, *NOT_ALLOWED}:
            return None
        raise
