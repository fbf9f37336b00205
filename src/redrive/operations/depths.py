"""How many messages wait on queues: messages, not offsets, which count ends of transactions too."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from redrive.errors import TransientFault
from redrive.kafka.cluster import Cluster
from redrive.kafka.records import StoredRecord, read_records
from redrive.messages import TopicPartition
from redrive.operations.network import Network
from redrive.topology.layout import QueueTopic, TopicRole, topics_of

__all__ = ["Depth", "depths_of", "reading_group", "unread"]

COUNTED: Final = 10_000
"""Messages of a partition that are counted one by one; beyond them offsets are told."""
_SECONDS: Final = 20.0
"""For counting the messages of all queues; then offsets are told."""


@dataclass(frozen=True, slots=True)
class Depth:
    """Messages on a topic that nobody has read yet."""

    messages: int
    is_exact: bool
    """Whether they were counted; otherwise there are so many at most."""

    def __str__(self) -> str:
        """``12``, or ``≤ 12``."""
        return str(self.messages) if self.is_exact else f"≤ {self.messages}"


def reading_group(network: Network, one: QueueTopic) -> str | None:
    """The consumer group that takes messages from a topic.

    Args:
        network: The definitions, and the job that moves messages.
        one: The topic.

    Returns:
        The job's for what it reads, the one that bindings name for a queue; None if none is known.
    """
    if one.role is not TopicRole.QUEUE:
        return network.job.application if network.job else None
    return network.topology.bindings.consumer_group(
        queue=one.queue, queue_manager=one.queue_manager
    )


def unread(
    cluster: Cluster, network: Network, topics: Sequence[QueueTopic]
) -> dict[TopicPartition, int]:
    """Where those partitions go on of which a consumer group has read something.

    Args:
        cluster: Answers.
        network: The definitions and the job.
        topics: Topics that exist.

    Raises:
        TransientFault: The broker gave no answer in time.
    """
    by_group: dict[str, list[str]] = {}
    for one in topics:
        if group := reading_group(network, one):
            by_group.setdefault(group, []).append(one.topic)
    found: dict[TopicPartition, int] = {}
    for group, names in by_group.items():
        committed = cluster.committed(group, cluster.lanes(names))
        found |= {lane: offset for lane, offset in committed.items() if offset is not None}
    return found


def depths_of(network: Network) -> Mapping[str, Depth]:
    """What waits on every topic of a topology that exists, by topic.

    Args:
        network: The definitions and the cluster.

    Raises:
        EnvironmentFault: The broker can't be reached.
        TransientFault: It gave no answer in time.
    """
    with network.cluster() as cluster:
        topics = topics_of(network.topology)
        existing = cluster.partitions(one.topic for one in topics)
        there = [one for one in topics if one.topic in existing]
        return _depths(cluster, network, there)


def _depths(
    cluster: Cluster, network: Network, topics: Sequence[QueueTopic]
) -> Mapping[str, Depth]:
    extents = cluster.extents(cluster.lanes(one.topic for one in topics))
    committed = unread(cluster, network, topics)
    starts = {lane: max(one.first, committed.get(lane, 0)) for lane, one in extents.items()}
    waiting = {lane: start for lane, start in starts.items() if start < extents[lane].end}
    counted, is_complete = _counted(cluster, waiting)
    depths = {one.topic: Depth(0, is_exact=True) for one in topics}
    for lane, start in waiting.items():
        before = depths[lane.topic]
        is_exact = is_complete and counted[lane] < COUNTED
        more = counted[lane] if is_exact else extents[lane].end - start
        depths[lane.topic] = Depth(before.messages + more, before.is_exact and is_exact)
    return depths


def _counted(
    cluster: Cluster, starts: Mapping[TopicPartition, int]
) -> tuple[Counter[TopicPartition], bool]:
    """The messages of each partition, up to a limit, and whether the time was enough."""
    counted: Counter[TopicPartition] = Counter()

    def is_enough(record: StoredRecord) -> bool:
        counted[record.lane] += 1
        return counted[record.lane] >= COUNTED

    try:
        for _ in read_records(cluster, starts, seconds=_SECONDS, until=is_enough) if starts else ():
            pass
    except TransientFault:
        return counted, False
    return counted, True
