"""The job's own topics: which ones it needs, and whether existing ones are safe."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from redrive.checkpoints.own_topics import (
    outcomes_topic,
    remaining_topic,
    state_topic,
    waiting_topic,
)
from redrive.configuration import JobConfiguration
from redrive.configuration.deciders import identity_of, sources_of, table_of
from redrive.engine import names
from redrive.errors import ConfigurationError
from redrive.kafka.administration import NewTopic
from redrive.kafka.cluster import Cluster
from redrive.streaming.kept_lanes import count_kept_lanes, count_shared_lanes

_POLICY: Final = "cleanup.policy"


def own_topics(
    configuration: JobConfiguration,
    sources: Mapping[str, int],
    existing: Mapping[str, int] = MappingProxyType({}),
) -> list[NewTopic]:
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
        retry = handler.identity.retry_topic
        if shared := count_shared_lanes(handler, existing):
            topics.append(waiting_topic(handler.identity.backoff_topic, shared))
        if not table_of(handler).has_backoff:
            topics.append(waiting_topic(retry, partitions))
        earlier = (retry, handler.identity.earlier_backoff_topic)
        topics += [
            waiting_topic(name, existing[name])
            for name in earlier
            if name in existing and name not in {topic.name for topic in topics}
        ]
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


def count_own_partitions(configuration: JobConfiguration, sources: Mapping[str, int]) -> int:
    """How many partitions the own topics have of a job that starts for the first time.

    ``sources`` has the partitions of its dead-letter topics and of the topology's.
    """
    return sum(topic.partitions for topic in own_topics(configuration, sources))


def check_own_topics(
    cluster: Cluster, wanted: Sequence[NewTopic], existing: Container[str]
) -> None:
    """Refuses existing own topics whose settings would lose messages.

    Raises:
        ConfigurationError: Topics with a wrong cleanup policy; all of them are named.
        TransientFault: The broker gave no answer in time.
    """
    present = [topic for topic in wanted if topic.name in existing]
    settings = cluster.settings_of([topic.name for topic in present])
    wrong = []
    for topic in present:
        policy = topic.settings.get(_POLICY, "delete")
        actual = str(settings.get(topic.name, {}).get(_POLICY) or policy)
        if actual != policy:
            wrong.append(f"{topic.name} has {_POLICY}={actual} but needs {policy}")
    if wrong:
        raise ConfigurationError(
            "topics of the job would lose messages: " + "; ".join(wrong),
            hint="set it with `kafka-configs --alter --entity-type topics --entity-name NAME"
            f" --add-config {_POLICY}=...`",
        )
