"""An applied plan: operator, reason, and the partitions that its messages came from."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from redrive.configuration import HandlerConfiguration, JobConfiguration
from redrive.errors import UsageError
from redrive.kafka.cluster import Cluster
from redrive.messages import TopicPartition
from redrive.operations.replay.plan import ReplayPlan


@dataclass(frozen=True, slots=True)
class PlannedLane:
    """The messages of a plan that came from one partition of a dead-letter topic."""

    handler: HandlerConfiguration
    partition: int
    origins: frozenset[bytes]

    @property
    def remaining(self) -> TopicPartition:
        """Where their remaining copies are."""
        return TopicPartition(self.handler.identity.remaining_topic, self.partition)

    @property
    def replay(self) -> TopicPartition:
        """Where instructions about them go."""
        return TopicPartition(self.handler.identity.replay_topic, self.partition)


class AppliedPlan:
    """A plan to apply, of any kind of order."""

    def __init__(
        self,
        job: JobConfiguration,
        cluster: Cluster,
        plan: ReplayPlan,
        *,
        operator: str,
        purpose: str,
        written: Callable[[int], None] = lambda _: None,
    ) -> None:
        """Take a plan; nothing is written yet. Arguments and errors as for ``accept``."""
        self._job = job
        self._cluster = cluster
        self._plan = plan
        self._operator = operator
        self._purpose = purpose
        self._written = written
        if plan.cluster and plan.cluster != cluster.identity:
            raise UsageError(
                f"the plan was made on the cluster {plan.cluster}, and this is {cluster.identity}:"
                " its offsets mean other messages here",
                hint="name the settings that it was made with, or make another plan",
            )
        self._lanes = list(_lanes_of(job, plan))


def _lanes_of(job: JobConfiguration, plan: ReplayPlan) -> Iterator[PlannedLane]:
    if plan.application != job.application:
        raise UsageError(
            f"this is a plan for the application {plan.application}, not {job.application}",
            hint="name the settings of that application with -c",
        )
    handlers = {one.identity.name: one for one in job.handlers}
    for name, places in plan.messages.items():
        handler = handlers.get(name)
        if handler is None:
            raise UsageError(
                f"the plan has messages of the handler {name}, which the settings do not have",
                hint="name the settings that it was made with, or make another plan",
            )
        yield from _lanes_of_handler(handler, places)


def _lanes_of_handler(
    handler: HandlerConfiguration, places: Mapping[str, Sequence[int]]
) -> Iterator[PlannedLane]:
    origins: dict[int, set[bytes]] = {}
    for place, offsets in places.items():
        partition = int(place.rpartition(":")[2])
        found = origins.setdefault(partition, set())
        found.update(f"{place}:{offset}".encode("ascii") for offset in offsets)
    for partition, keys in sorted(origins.items()):
        yield PlannedLane(handler, partition, frozenset(keys))
