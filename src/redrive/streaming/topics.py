"""The job's own topics: which ones it needs, and whether existing ones are safe."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from types import MappingProxyType

from redrive.checkpoints.own_topics import (
    OwnTopic,
    outcomes_topic,
    remaining_topic,
    state_topic,
    waiting_topic,
)
from redrive.configuration import JobConfiguration
from redrive.configuration.deciders import identity_of, sources_of, table_of
from redrive.engine import names
from redrive.errors import ConfigurationError
from redrive.kafka.cluster import Cluster
from redrive.rules.backoff import PARTITIONS
from redrive.streaming.kept_lanes import count_kept_lanes


def own_topics(
    configuration: JobConfiguration,
    sources: Mapping[str, int],
    existing: Mapping[str, int] = MappingProxyType({}),
) -> list[OwnTopic]:
    """The own topics that the job needs.

    Args:
        configuration: The job.
        sources: Partitions of each topic that exists and is read.
        existing: Partitions of all topics: messages may wait by a BACKOFF no longer in the table,
            for a receiver that no longer retries, or for a topic that had more partitions.
    """
    topics = [
        state_topic(configuration.control_topic),
        outcomes_topic(configuration.outcomes_topic),
        state_topic(configuration.tables_topic),
        *(
            waiting_topic(names.cluster_topic(configuration.application, cluster))
            for cluster in configuration.clusters
        ),
    ]
    if any(handler.held_keys for handler in configuration.handlers):
        topics.append(state_topic(names.held_keys_topic(configuration.application)))
    for handler in configuration.handlers:
        partitions = count_kept_lanes(handler.identity, sources, existing)
        if not partitions:
            continue
        topics.append(waiting_topic(handler.identity.retry_topic, partitions))
        name = handler.identity.backoff_topic
        if name in existing or table_of(handler).has_backoff:
            topics.append(waiting_topic(name, partitions * PARTITIONS))
        topics.append(remaining_topic(handler.identity.remaining_topic, partitions))
        if handler.identity.replay_topic:
            topics.append(waiting_topic(handler.identity.replay_topic, partitions))
    for source in sources_of(configuration).values():
        identity = identity_of(configuration.application, source)
        partitions = count_kept_lanes(identity, sources, existing)
        if partitions:
            topics.append(remaining_topic(identity.remaining_topic, partitions))
            if source.message_retries or identity.retry_topic in existing:
                topics.append(waiting_topic(identity.retry_topic, partitions))
    return topics


def count_own_partitions(
    configuration: JobConfiguration,
    sources: Mapping[str, int],
    existing: Mapping[str, int] = MappingProxyType({}),
) -> int:
    """The number of partitions of the job's own topics; arguments as for ``own_topics``."""
    return sum(topic.partitions for topic in own_topics(configuration, sources, existing))


def check_own_topics(
    cluster: Cluster, wanted: Sequence[OwnTopic], existing: Container[str]
) -> None:
    """Refuses existing own topics whose settings would delete or change what is on them.

    Raises:
        ConfigurationError: Topics with wrong settings; all of them are named, with the commands
            that correct them.
        TransientFault: The broker gave no answer in time.
    """
    present = [topic for topic in wanted if topic.name in existing]
    settings = cluster.settings_of([topic.name for topic in present])
    problems, commands = [], []
    for topic in present:
        present_settings = settings.get(topic.name, {})
        corrections = topic.corrections(present_settings)
        if corrections:
            wrong = (
                f"{name}={present_settings[name]}, not {value}"
                for name, value in corrections.items()
            )
            problems.append(f"{topic.name} has {' and '.join(wrong)}")
            commands.append(_command(cluster, topic.name, corrections))
    if problems:
        raise ConfigurationError(
            "topics of the job would lose messages: " + "; ".join(problems),
            hint="correct them with\n" + "\n".join(commands),
        )


def _command(cluster: Cluster, topic: str, settings: Mapping[str, str]) -> str:
    added = ",".join(f"{name}={value}" for name, value in settings.items())
    return (
        f"kafka-configs.sh --bootstrap-server {cluster.connection.bootstrap_servers} --alter"
        f" --entity-type topics --entity-name {topic} --add-config {added}"
    )
