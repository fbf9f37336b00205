"""The topics that queue managers need: plan them, and create those that are missing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

from redrive.errors import ConfigurationError
from redrive.kafka.access import check_access
from redrive.kafka.administration import NewTopic, TopicAdministration
from redrive.operations.network import Network
from redrive.topology.layout import topics_of
from redrive.topology.plan import FoundTopic, TopicPlan, plan_topics

__all__ = ["TopicCreation"]


@dataclass(frozen=True, slots=True)
class TopicCreation:
    """A plan that the cluster has agreed to, and its execution."""

    plan: TopicPlan
    _new: tuple[NewTopic, ...]
    _administration: TopicAdministration

    @classmethod
    def planned(cls, network: Network, *, partitions: int, replication_factor: int | None) -> Self:
        """Compare what there is with what is needed; nothing is created yet.

        Args:
            network: The definitions and the cluster.
            partitions: Partitions of each new topic.
            replication_factor: Replicas of each; None for what the brokers are configured to.

        Raises:
            ConfigurationError: Queues are bound to topics that do not exist.
            EnvironmentFault: The cluster can't be reached, or would refuse a topic.
        """
        check_access(network.connection)
        administration = TopicAdministration(network.connection)
        existing = administration.partitions()
        wanted = (one.topic for one in topics_of(network.topology))
        settings = administration.settings(name for name in wanted if name in existing)
        found = {name: FoundTopic(n, settings.get(name, {})) for name, n in existing.items()}
        plan = plan_topics(network.topology, found, partitions=partitions)
        if plan.problems:
            raise ConfigurationError(
                "nothing is created: queues are bound to topics that do not exist",
                hint="put every error right and apply again",
                diagnostics=plan.problems,
            )
        new = tuple(
            NewTopic(one.topic, one.partitions, one.settings, replication_factor)
            for one in plan.missing
        )
        administration.create(new, validate_only=True)
        return cls(plan, new, administration)

    def execute(self, progress: Callable[[int], None]) -> None:
        """Create the topics that are missing.

        Args:
            progress: Told how many are done, if it takes several requests.

        Raises:
            EnvironmentFault: The cluster refuses one after all; how many were created is told.
        """
        self._administration.create(self._new, progress=progress)
