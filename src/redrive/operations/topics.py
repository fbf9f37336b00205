"""The topics that queue managers need: plan and create them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

from redrive.errors import ConfigurationError
from redrive.kafka.administration import NewTopic, TopicAdministration
from redrive.operations.network import Network
from redrive.topology.layout import topics_of
from redrive.topology.plan import FoundTopic, TopicPlan, plan_topics


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
