"""Lists, creates and deletes topics of a cluster."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # public, not in the stub's list
    AdminClient,
    NewPartitions,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # as above
    NewTopic as ClientTopic,
)

from redrive.errors import EnvironmentFault
from redrive.kafka.connection import Connection
from redrive.kafka.deadline import COORDINATOR, PAUSE, SILENCE, answer_of, under_way

_PARTITIONS_AT_ONCE: Final = 1_000
"""Partitions in one request: a controller accepts 10,000 records in one."""


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic that should exist."""

    name: str
    partitions: int
    settings: Mapping[str, str] = field(default_factory=dict)
    replication_factor: int | None = None
    """Replicas of each partition; None for the brokers' default."""


class TopicAdministration:
    """Lists, creates and deletes topics of one cluster."""

    def __init__(self, connection: Connection) -> None:
        """Open the client, which connects on first use."""
        self._servers = connection.bootstrap_servers
        self._admin = AdminClient({**connection.librdkafka(), "log_level": 2})

    def partitions(self) -> dict[str, int]:
        """Every topic that exists, with its number of partitions.

        Raises:
            EnvironmentFault: The cluster cannot be reached, or refuses this user.
        """
        with self._explained("does not list its topics"):
            topics = self._admin.list_topics(timeout=COORDINATOR).topics
        return {name: len(topic.partitions) for name, topic in topics.items()}

    def ensure(self, wanted: Iterable[NewTopic]) -> list[str]:
        """Create missing topics, and add missing partitions.

        Args:
            wanted: Topics that should exist. Settings of existing topics stay unchanged.

        Returns:
            The names of the topics that were created.

        Raises:
            EnvironmentFault: The cluster refused.
        """
        existing, wanted = self.partitions(), list(wanted)
        missing = [topic for topic in wanted if topic.name not in existing]
        self.create(missing)
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
        return [topic.name for topic in missing]

    def create(
        self,
        topics: Sequence[NewTopic],
        *,
        validate_only: bool = False,
        progress: Callable[[int], None] = lambda _: None,
    ) -> None:
        """Create topics; existing topics are skipped.

        Args:
            topics: The topics.
            validate_only: Only check whether the cluster would create them.
            progress: Called with the number created, if it takes several requests.

        Raises:
            EnvironmentFault: The cluster refuses one; the message says how many were created.
        """
        done = 0
        for part in _requests(topics):
            refused = self._create_part(part, validate_only=validate_only)
            for name, error in refused.items():
                created = 0 if validate_only else done + len(part) - len(refused)
                raise self._fault(
                    f"does not create topic {name} ({created} were created)", error.str()
                )
            done += len(part)
            if not validate_only and len(part) < len(topics):
                progress(done)

    def delete(self, names: Sequence[str]) -> None:
        """Delete topics with all their records; those that do not exist are fine.

        Raises:
            EnvironmentFault: The cluster refused, or gave no answer in time.
        """
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
        if not validate_only:
            self._await_topics({name for name, error in errors.items() if error is None})
        return {name: error for name, error in errors.items() if error is not None}

    def _await_topics(self, names: set[str]) -> None:
        """Wait for a while until the broker in use knows the topics.

        They were acknowledged, so this only avoids an error in the next step.
        """
        deadline = time.monotonic() + SILENCE
        with contextlib.suppress(KafkaException):
            while not names <= set(self._admin.list_topics(timeout=COORDINATOR).topics):
                if time.monotonic() > deadline:
                    return
                time.sleep(PAUSE)

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


def _requests(topics: Sequence[NewTopic]) -> Iterator[Sequence[NewTopic]]:
    size = max(1, _PARTITIONS_AT_ONCE // max((topic.partitions for topic in topics), default=1))
    for first in range(0, len(topics), size):
        yield topics[first : first + size]


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
