"""The topics the job works on: its own are created with the right settings, others are awaited."""

from __future__ import annotations

import contextlib
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from redrive.errors import ConfigurationError, EnvironmentFault
from redrive.streaming.factory import identity_of, sources_of

if TYPE_CHECKING:
    from redrive.configuration import JobConfiguration
    from redrive.kafka.cluster import Cluster
    from redrive.kafka.connection import Connection

MAX_MESSAGE_BYTES = 64 * 1024 * 1024
"""Bytes that the retry and remaining topics take: more than any dead letter, whose copy must never
be refused."""

OUTCOME_PARTITIONS = 4
"""Partitions of the outcomes topic."""

_FOREVER = {"retention.ms": "-1", "retention.bytes": "-1"}
_POLICY: Final = "cleanup.policy"
_COMPACTED = {
    _POLICY: "compact",
    "min.cleanable.dirty.ratio": "0.1",
    "max.message.bytes": str(MAX_MESSAGE_BYTES),
}


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic of ours that should exist."""

    name: str
    partitions: int
    settings: Mapping[str, str]


def own_topics(configuration: JobConfiguration, sources: Mapping[str, int]) -> list[NewTopic]:
    """The topics of ours that the job needs.

    Args:
        configuration: The job.
        sources: Partitions of each topic that exists and is read.
    """
    topics = [
        NewTopic(configuration.control_topic, 1, {**_COMPACTED, **_FOREVER}),
        NewTopic(configuration.outcomes_topic, OUTCOME_PARTITIONS, _FOREVER),
    ]
    for handler in configuration.handlers:
        partitions = sources.get(handler.identity.topic)
        if partitions is None:
            continue
        parked = {**_FOREVER, "max.message.bytes": str(MAX_MESSAGE_BYTES)}
        topics.append(NewTopic(handler.identity.retry_topic, partitions, parked))
        topics.append(NewTopic(handler.identity.remaining_topic, partitions, _COMPACTED))
    for source in sources_of(configuration).values():
        if source.topic in sources:
            name = identity_of(configuration.application, source).remaining_topic
            topics.append(NewTopic(name, sources[source.topic], _COMPACTED))
    return topics


def check_own_topics(
    cluster: Cluster, wanted: Sequence[NewTopic], existing: Container[str]
) -> None:
    """Refuses topics of ours that somebody made, or changed, so that messages would be lost.

    Args:
        cluster: Answers.
        wanted: The topics that the job needs.
        existing: Topics that exist.

    Raises:
        ConfigurationError: Topics with another cleanup policy than theirs; all of them are named.
        TransientFault: The broker gave no answer in time.
    """
    there = [topic for topic in wanted if topic.name in existing]
    found = cluster.settings_of([topic.name for topic in there])
    wrong = []
    for topic in there:
        policy = topic.settings.get(_POLICY, "delete")
        actual = str(found.get(topic.name, {}).get(_POLICY) or policy)
        if actual != policy:
            wrong.append(f"{topic.name} has {_POLICY}={actual} and needs {policy}")
    if wrong:
        raise ConfigurationError(
            "topics of the job would lose messages: " + "; ".join(wrong),
            hint="set it with `kafka-configs --alter --entity-type topics --entity-name NAME"
            f" --add-config {_POLICY}=...`",
        )


class TopicAdministration:
    """Looks at topics and creates ours, by kafka-python's admin client."""

    def __init__(self, connection: Connection) -> None:
        """Connect to the cluster.

        Args:
            connection: The cluster.

        Raises:
            EnvironmentFault: The broker can't be reached or does not let this user in.
        """
        from kafka.admin import KafkaAdminClient  # noqa: PLC0415 - slow to import
        from kafka.errors import KafkaError  # noqa: PLC0415

        self._connection = connection
        self._kafka_error: type[Exception] = KafkaError
        with self._explained("reached"):
            self._admin: Any = KafkaAdminClient(
                **connection.kafka_python(), request_timeout_ms=20_000
            )

    def partitions(self) -> dict[str, int]:
        """Every topic that exists, with its number of partitions."""
        with self._explained("asked for its topics"):
            described = self._admin.describe_topics()
        return {_name(topic): len(topic["partitions"]) for topic in described}

    def ensure(self, wanted: list[NewTopic]) -> list[str]:
        """Creates the topics that are missing and adds the partitions that are.

        Returns:
            The names of the topics that were created.

        Raises:
            EnvironmentFault: The broker refused.
        """
        existing = self.partitions()
        missing = [topic for topic in wanted if topic.name not in existing]
        if missing:
            self._create(missing)
        for topic in wanted:
            if 0 < existing.get(topic.name, 0) < topic.partitions:
                self._grow(topic)
        return [topic.name for topic in missing]

    def close(self) -> None:
        """Closes the client."""
        self._admin.close()

    def _create(self, missing: list[NewTopic]) -> None:
        from kafka.admin import NewTopic as KafkaTopic  # noqa: PLC0415
        from kafka.errors import TopicAlreadyExistsError  # noqa: PLC0415

        topics = [
            KafkaTopic(
                name=topic.name,
                num_partitions=topic.partitions,
                replication_factor=-1,
                topic_configs=dict(topic.settings),
            )
            for topic in missing
        ]
        with (
            self._explained("made to create topics"),
            # Another instance of the application may have been quicker.
            contextlib.suppress(TopicAlreadyExistsError),
        ):
            self._admin.create_topics(topics, wait_for_metadata=True)

    def _grow(self, topic: NewTopic) -> None:
        from kafka.admin import NewPartitions  # noqa: PLC0415

        with self._explained("made to add partitions"):
            self._admin.create_partitions({topic.name: NewPartitions(topic.partitions)})

    @contextlib.contextmanager
    def _explained(self, what: str) -> Iterator[None]:
        try:
            yield
        except self._kafka_error as error:
            raise EnvironmentFault(
                f"the broker at {self._connection.bootstrap_servers} can't be {what}:"
                f" {type(error).__name__}: {error}",
                hint="check bootstrap_servers, the security settings, and that this user may"
                " describe and create topics",
            ) from error


def _name(described: Mapping[str, Any]) -> str:
    name = described.get("topic") or described.get("name")
    return str(name)
