"""The topics that queue managers need: plan and create them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Self

from redrive.diagnostics import Diagnostic, Severity
from redrive.errors import ConfigurationError
from redrive.kafka.administration import NewTopic, TopicAdministration
from redrive.operations.network import Network
from redrive.topology.bindings import QueueBinding
from redrive.topology.layout import QueueTopic, TopicRole, Topology, topics_of
from redrive.topology.mq.objects import LocalQueue
from redrive.topology.names import topic_name, unescape

HEADER_ROOM: Final = 65_536
"""Bytes of a record above MAXMSGL: key, headers, and a binary dead-letter header."""
UNLIMITED_LENGTH: Final = 64 * 1024 * 1024
"""Longest body in bytes on a queue of MQ Everyplace without its own limit."""

_MAX_MESSAGE_BYTES: Final = "max.message.bytes"
_KEPT: Final = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
"""A queue keeps its messages until they are read, however long that takes."""


class TopicState(StrEnum):
    """How a topic compares with the definitions."""

    MISSING = "missing"
    EXISTS = "exists"
    DIFFERS = "differs"
    """It exists, with settings under which messages could be lost or refused."""
    UNKNOWN = "unknown"
    """It is named after a queue of a manager, but is not in the definitions."""


@dataclass(frozen=True, slots=True)
class FoundTopic:
    """An existing topic."""

    partitions: int
    settings: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedTopic:
    """One line of the topic plan."""

    topic: str
    state: TopicState
    purpose: str
    """Its purpose; empty for an unknown topic."""
    partitions: int
    """Its partitions; for a missing topic, those it gets."""
    settings: Mapping[str, str]
    """Settings that a missing topic gets."""
    differences: tuple[str, ...] = ()
    """Settings of an existing topic that differ."""


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """The topics that exist and those to create."""

    topics: tuple[PlannedTopic, ...]
    """Those of the definitions in their order, then the unknown ones."""
    problems: tuple[Diagnostic, ...]
    """Bindings to topics that do not exist; then nothing is created."""

    @property
    def missing(self) -> tuple[PlannedTopic, ...]:
        """The topics to create."""
        return tuple(topic for topic in self.topics if topic.state is TopicState.MISSING)


def plan_topics(
    topology: Topology, existing: Mapping[str, FoundTopic], *, partitions: int
) -> TopicPlan:
    """Compare the topics of a topology with those that exist.

    Args:
        topology: The definitions.
        existing: Every topic of the cluster; only topics of the topology need settings.
        partitions: Partitions of a new topic; several keep the order by key, not that of the queue.
    """
    wanted = topics_of(topology)
    planned = [
        _planned_topic(topology, topic, existing.get(topic.topic), partitions) for topic in wanted
    ]
    names = {topic.topic for topic in wanted}
    managers = {topic.queue_manager for topic in wanted}
    unknown = [
        PlannedTopic(
            topic=name,
            state=TopicState.UNKNOWN,
            purpose="",
            partitions=item.partitions,
            settings={},
        )
        for name, item in sorted(existing.items())
        if name not in names and "--" in name and unescape(name.partition("--")[0]) in managers
    ]
    problems = (
        binding.location.finding(
            Severity.ERROR,
            "MISSING_TOPIC",
            f"{topic.queue}@{topic.queue_manager} is bound to topic {topic.topic}, which is"
            " missing",
            hint="create the topic, correct its name, or remove the binding",
        )
        for topic in wanted
        if topic.topic not in existing and (binding := _binding(topology, topic))
    )
    return TopicPlan((*planned, *unknown), tuple(problems))


def topic_settings(topology: Topology, queue_topic: QueueTopic) -> dict[str, str]:
    """The Kafka settings of a new topic of the topology.

    Nothing is deleted by age or size, and a body of MAXMSGL with its headers is accepted.
    """
    return {**_KEPT, _MAX_MESSAGE_BYTES: str(_longest_body(topology, queue_topic) + HEADER_ROOM)}


def _planned_topic(
    topology: Topology, queue_topic: QueueTopic, existing_topic: FoundTopic | None, partitions: int
) -> PlannedTopic:
    settings = topic_settings(topology, queue_topic)
    differences = tuple(_differences(settings, existing_topic.settings)) if existing_topic else ()
    state = TopicState.DIFFERS if differences else TopicState.EXISTS
    return PlannedTopic(
        topic=queue_topic.topic,
        state=state if existing_topic else TopicState.MISSING,
        purpose=_purpose(queue_topic),
        partitions=existing_topic.partitions if existing_topic else partitions,
        settings=settings,
        differences=differences,
    )


def _differences(wanted: Mapping[str, str], actual: Mapping[str, str]) -> Iterator[str]:
    for name, value in wanted.items():
        present = actual.get(name)
        if present is None or present == value:
            continue
        if name != _MAX_MESSAGE_BYTES:
            yield f"{name} is {present} instead of {value}"
        elif int(present) < int(value):
            yield f"{name} is {present}, less than {value}"


def _purpose(queue_topic: QueueTopic) -> str:
    match queue_topic.role:
        case TopicRole.PUTS:
            return f"puts to {queue_topic.queue_manager}"
        case TopicRole.QUEUE:
            return f"queue {queue_topic.queue}@{queue_topic.queue_manager}"
        case TopicRole.TRANSMISSION:
            to = f", to {queue_topic.to}" if queue_topic.to else ""
            return f"transmission queue {queue_topic.queue}@{queue_topic.queue_manager}{to}"


def _longest_body(topology: Topology, queue_topic: QueueTopic) -> int:
    for manager in topology.mq.queue_managers.values():
        if queue_topic.queue_manager not in {manager.name, manager.holder_of(queue_topic.queue)}:
            continue
        queue = manager.every_queue.get(queue_topic.queue)
        held = queue if isinstance(queue, LocalQueue) else manager.attributes
        return held.max_message_length
    far = topology.mqe.queue_manager(queue_topic.queue_manager)
    lengths = (
        queue.maximum_message_size
        for queue in (far.queues if far else ())
        if queue.name == queue_topic.queue
    )
    return next((length for length in lengths if length is not None), UNLIMITED_LENGTH)


def _binding(topology: Topology, queue_topic: QueueTopic) -> QueueBinding | None:
    binding = topology.bindings.queue(
        queue=queue_topic.queue, queue_manager=queue_topic.queue_manager
    )
    is_default = queue_topic.topic == topic_name(
        queue=queue_topic.queue, queue_manager=queue_topic.queue_manager
    )
    return binding if binding and binding.topic == queue_topic.topic and not is_default else None


@dataclass(frozen=True, slots=True)
class TopicCreation:
    """A topic plan that the cluster has accepted, and its execution."""

    plan: TopicPlan
    _new: tuple[NewTopic, ...]
    _administration: TopicAdministration

    @classmethod
    def planned(cls, network: Network, *, partitions: int, replication_factor: int | None) -> Self:
        """Compare existing with needed topics; nothing is created yet.

        Without a replication factor the configuration of the brokers decides.

        Raises:
            ConfigurationError: Queues are bound to topics that do not exist.
            EnvironmentFault: The cluster can't be reached, or would refuse a topic.
        """
        plan = plan_topics(network.topology, _existing_topics(network), partitions=partitions)
        if plan.problems:
            raise ConfigurationError(
                "nothing was created: queues are bound to topics that do not exist",
                hint="fix all errors and apply again",
                diagnostics=plan.problems,
            )
        new = tuple(
            NewTopic(topic.topic, topic.partitions, topic.settings, replication_factor)
            for topic in plan.missing
        )
        administration = TopicAdministration(network.connection)
        administration.create(new, validate_only=True)
        return cls(plan, new, administration)

    def execute(self, progress: Callable[[int], None]) -> None:
        """Create the missing topics; ``progress`` is called with the number done."""
        self._administration.create(self._new, progress=progress)


def _existing_topics(network: Network) -> dict[str, FoundTopic]:
    with network.cluster() as cluster:
        existing = cluster.topics()
        needed = [topic.topic for topic in topics_of(network.topology) if topic.topic in existing]
        settings = cluster.settings_of(needed)
    return {
        name: FoundTopic(number, {key: str(value) for key, value in settings.get(name, {}).items()})
        for name, number in existing.items()
    }
