"""Changes of topics, and questions that the admin client of librdkafka cannot ask.

It does not know open transactions, and asks about one group at a time. kafka-python asks these
questions, by a client of its own for each call.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeVar

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # public, not in the stub's list
    AdminClient,
    NewPartitions,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # as above
    NewTopic as ClientTopic,
)

from redrive.errors import EnvironmentFault, OutcomeUnknown, TransientFault
from redrive.kafka.connection import Connection
from redrive.kafka.deadline import (
    ANSWER,
    CONNECT,
    COORDINATOR,
    GRACE,
    PAUSE,
    SILENCE,
    answer_of,
    under_way,
    within,
)
from redrive.kafka.errors import NOT_ALLOWED
from redrive.messages import TopicPartition

_Answer = TypeVar("_Answer")

_PARTITIONS_AT_ONCE: Final = 200
"""Partitions in one request: a broker shows later ones only after these, each in 3 to 30 ms."""
_MILLISECONDS: Final = 1000


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic that should exist."""

    name: str
    partitions: int
    settings: Mapping[str, str] = field(default_factory=dict)
    replication_factor: int | None = None
    """Replicas of each partition; None for the brokers' default."""


class TopicAdministration:
    """Lists, creates and deletes topics of one cluster; connects on first use.

    Every method raises ``EnvironmentFault`` if the cluster refuses, or does not answer in time.
    """

    def __init__(self, connection: Connection) -> None:
        self._servers = connection.bootstrap_servers
        self._admin = AdminClient({**connection.librdkafka(), "log_level": 2})

    def partitions(self) -> dict[str, int]:
        """Every topic that exists, with its number of partitions."""
        with self._explained("does not list its topics"):
            topics = self._admin.list_topics(timeout=COORDINATOR).topics
        return {name: len(topic.partitions) for name, topic in topics.items()}

    def ensure(self, wanted: Iterable[NewTopic]) -> None:
        """Create missing topics, and add missing partitions; settings of others stay unchanged."""
        existing, wanted = self.partitions(), list(wanted)
        self.create([topic for topic in wanted if topic.name not in existing])
        grown = [
            NewPartitions(topic.name, topic.partitions)
            for topic in wanted
            if 0 < existing.get(topic.name, 0) < topic.partitions
        ]
        if grown:
            with self._explained("adds no partitions"):
                answers = self._admin.create_partitions(grown, request_timeout=SILENCE)
                for answer in answers.values():
                    answer_of(answer, SILENCE)

    def create(
        self,
        topics: Sequence[NewTopic],
        *,
        validate_only: bool = False,
        progress: Callable[[int], None] = lambda _: None,
    ) -> None:
        """Create topics; existing topics are skipped. A refusal says how many were created.

        Args:
            topics: The topics.
            validate_only: Only check whether the cluster would create them.
            progress: Called with the number created, if it takes several requests.
        """
        size = max(1, _PARTITIONS_AT_ONCE // max((topic.partitions for topic in topics), default=1))
        for first in range(0, len(topics), size):
            part = topics[first : first + size]
            refused = self._create_part(part, validate_only=validate_only)
            created = 0 if validate_only else first + len(part) - len(refused)
            for name, error in refused.items():
                raise self._fault(
                    f"does not create topic {name} ({created} were created)", error.str()
                )
            if created and len(part) < len(topics):
                progress(created)

    def delete(self, names: Sequence[str]) -> None:
        """Delete topics with all their records; those that do not exist are fine."""
        if not names:
            return
        with self._explained("does not delete topics"):
            answers = self._admin.delete_topics(list(names), request_timeout=SILENCE)
            for answer in answers.values():
                error = error_in(answer, SILENCE)
                if error is not None and error.code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise KafkaException(error)

    def _create_part(
        self, topics: Sequence[NewTopic], *, validate_only: bool
    ) -> dict[str, KafkaError]:
        answers = self._admin.create_topics(
            [client_topic(topic) for topic in topics],
            request_timeout=SILENCE,
            validate_only=validate_only,
        )
        with self._explained("does not say whether it creates topics"):
            errors = {name: error_in(answer, SILENCE) for name, answer in answers.items()}
        refused = {name: error for name, error in errors.items() if error is not None}
        if not validate_only:
            self._await_topics(errors.keys() - refused.keys())
        return refused

    def _await_topics(self, names: Collection[str]) -> None:
        """Wait until the broker in use shows new topics; a busy one learns of them much later."""
        deadline = time.monotonic() + SILENCE
        while hidden := self._hidden(names):
            if len(hidden) < len(names):
                deadline = time.monotonic() + SILENCE
            elif time.monotonic() > deadline:
                raise self._fault(
                    f"created topic {hidden[0]} and does not show it", f"waited {SILENCE:g} s"
                )
            names = hidden
            time.sleep(PAUSE)

    def _hidden(self, names: Collection[str]) -> list[str]:
        """The topics that the broker in use does not show, but would to this user."""
        if not names:
            return []
        answers = self._admin.describe_topics(TopicCollection(list(names)), request_timeout=ANSWER)
        with self._explained("does not describe its topics"):
            errors = {name: error_in(answer, ANSWER) for name, answer in answers.items()}
        return [
            name
            for name, error in errors.items()
            if error is not None and error.code() not in NOT_ALLOWED
        ]

    @contextlib.contextmanager
    def _explained(self, what: str) -> Iterator[None]:
        try:
            with under_way("administration of topics"):
                yield
        except KafkaException as exception:
            raise self._fault(what, exception.args[0].str()) from exception
        except TimeoutError as exception:
            raise self._fault(what, "no answer in time") from exception

    def _fault(self, what: str, error: str) -> EnvironmentFault:
        return EnvironmentFault(
            f"the cluster at {self._servers} {what}: {error}",
            hint="check bootstrap_servers and the security settings; this user needs Describe,"
            " DescribeConfigs and Create on the topics. Existing topics are skipped next time",
        )


def client_topic(topic: NewTopic) -> ClientTopic:
    """A topic, in the client's form."""
    return ClientTopic(
        topic.name,
        num_partitions=topic.partitions,
        replication_factor=topic.replication_factor or -1,
        config=dict(topic.settings),
    )


def error_in(answer: Any, seconds: float) -> KafkaError | None:  # noqa: ANN401 - the client's future
    """Why a topic was not created; None if it was, or if it already exists."""
    try:
        answer_of(answer, seconds)
    except KafkaException as exception:
        error: KafkaError = exception.args[0]
        return None if error.code() == KafkaError.TOPIC_ALREADY_EXISTS else error
    return None


class OpenTransaction(NamedTuple):
    """The oldest open transaction on a partition."""

    transactional_id: str
    """Empty if this user may not see it."""
    since: float | None
    """When it began, or wrote last, in seconds since 1970; None if unknown."""


def group_positions(
    connection: Connection, groups: Collection[str], lanes: Collection[TopicPartition]
) -> dict[str, dict[TopicPartition, int] | None]:
    """The committed offsets of several groups, by one request for each of their coordinators.

    Returns:
        By group the partitions with an offset; None if this user may not see the group.

    Raises:
        TransientFault: The broker did not answer in time.
    """
    if not groups or not lanes:
        return {group: {} for group in groups}
    from kafka import TopicPartition as ClientPartition  # noqa: PLC0415 - slow to import
    from kafka.errors import AuthorizationError  # noqa: PLC0415 - as above

    def ask(client: Any) -> dict[str, dict[TopicPartition, int] | None]:  # noqa: ANN401 - untyped
        partitions = [ClientPartition(*lane) for lane in lanes]

        def offsets_of(names: Iterable[str]) -> dict[str, dict[TopicPartition, int] | None]:
            answers = client.list_group_offsets(dict.fromkeys(names, partitions))
            return {
                name: {
                    TopicPartition(place.topic, place.partition): position.offset
                    for place, position in offsets.items()
                    if position.offset >= 0
                }
                for name, offsets in answers.items()
            }

        try:
            return offsets_of(groups)
        except AuthorizationError:
            positions: dict[str, dict[TopicPartition, int] | None] = {}
            for group in groups:  # the answer does not say which one was refused
                try:
                    positions |= offsets_of([group])
                except AuthorizationError:
                    positions[group] = None
            return positions

    return _answer_of("positions of other applications", connection, ask)


def groups_with_members(connection: Connection, groups: Collection[str]) -> frozenset[str]:
    """The groups that have members, as far as this user may see them.

    Raises:
        TransientFault: The broker did not answer in time.
    """
    if not groups:
        return frozenset()

    def ask(client: Any) -> frozenset[str]:  # noqa: ANN401 - an untyped client
        described = client.describe_groups(list(groups))
        return frozenset(name for name, group in described.items() if group.get("members"))

    return _answer_of("members of other applications", connection, ask)


def open_transactions(
    connection: Connection, lanes: Collection[TopicPartition]
) -> dict[TopicPartition, OpenTransaction]:
    """The oldest open transaction on each partition that has one (KIP-664).

    Raises:
        TransientFault: The broker did not answer in time, or refuses the question.
    """
    if not lanes:
        return {}
    from kafka import TopicPartition as ClientPartition  # noqa: PLC0415 - slow to import

    def ask(client: Any) -> dict[TopicPartition, OpenTransaction]:  # noqa: ANN401 - as above
        described = client.describe_producers([ClientPartition(*lane) for lane in lanes])
        oldest = {
            TopicPartition(place.topic, place.partition): min(
                producers, key=lambda producer: producer.current_transaction_start_offset
            )
            for place, state in described.items()
            if (
                producers := [
                    producer
                    for producer in state.active_producers
                    if producer.current_transaction_start_offset >= 0
                ]
            )
        }
        if not oldest:
            return {}
        producer_ids = {producer.producer_id for producer in oldest.values()}
        listed = client.list_transactions(producer_id_filters=list(producer_ids))
        ids = {
            transaction.producer_id: transaction.transactional_id
            for broker in listed.values()
            for transaction in broker
        }
        described = client.describe_transactions(list(ids.values())) if ids else {}
        begins = {
            name: transaction.transaction_start_time_ms for name, transaction in described.items()
        }
        transactions = {}
        for lane, producer in oldest.items():
            name = ids.get(producer.producer_id, "")
            since = begins.get(name, producer.last_timestamp)
            transactions[lane] = OpenTransaction(name, since / _MILLISECONDS if since > 0 else None)
        return transactions

    return _answer_of("open transactions", connection, ask)


def _answer_of(step: str, connection: Connection, ask: Callable[[Any], _Answer]) -> _Answer:
    """The answer of a new client, which is closed again; the client retries by itself."""
    from kafka import KafkaAdminClient  # noqa: PLC0415 - slow to import
    from kafka.errors import KafkaError  # noqa: PLC0415 - as above

    def call() -> _Answer:
        client = KafkaAdminClient(
            **connection.kafka_python(),
            bootstrap_timeout_ms=int(CONNECT * _MILLISECONDS),
            request_timeout_ms=int(ANSWER * _MILLISECONDS),
        )
        try:
            return ask(client)
        finally:
            client.close()

    try:
        return within(step, ANSWER + GRACE, call)
    except (KafkaError, OSError, OutcomeUnknown, TimeoutError) as error:
        why = getattr(error, "message", "") or str(error) or type(error).__name__
        raise TransientFault(f"{step} at {connection.bootstrap_servers}: {why}") from error
