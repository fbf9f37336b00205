"""How many messages wait on queues: messages, not offsets, which also count transaction markers."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from redrive.engine.names import message_retry_topic
from redrive.errors import TransientFault
from redrive.kafka.cluster import Cluster
from redrive.kafka.deadline import BROWSING
from redrive.kafka.records import StoredRecord
from redrive.messages import TopicPartition
from redrive.operations.network import Network
from redrive.operations.undelivered import handler_of, kept_for
from redrive.topology.layout import QueueTopic, TopicRole, topics_of

COUNTED: Final = 10_000
"""Maximum messages of a partition to count one by one; above it offsets are reported."""
FEW: Final = 1_000
"""The same for a view that is asked again and again."""


@dataclass(frozen=True, slots=True)
class Depth:
    """Unread messages on a topic."""

    messages: int
    is_exact: bool
    """Whether they were counted; otherwise the number is an upper bound."""
    silent: tuple[str, ...] = ()
    """Partitions without a leader, whose messages are not counted."""
    oldest: int | None = None
    """When the first was put, in milliseconds since the epoch; None if none was seen."""

    @property
    def age(self) -> float | None:
        """Seconds since the first was put; None if none was seen."""
        return None if self.oldest is None else max(0.0, time.time() - self.oldest / 1000)

    def __add__(self, other: Depth) -> Depth:
        times = [timestamp for timestamp in (self.oldest, other.oldest) if timestamp is not None]
        return Depth(
            self.messages + other.messages,
            is_exact=self.is_exact and other.is_exact,
            silent=self.silent + other.silent,
            oldest=min(times, default=None),
        )

    def __str__(self) -> str:
        """``12``, ``≤ 12``, or ``12, without orders:1 (no leader)``."""
        if self.silent:
            return f"{self.messages}, without {' '.join(self.silent)} (no leader)"
        return str(self.messages) if self.is_exact else f"≤ {self.messages}"


NO_DEPTH: Final = Depth(0, is_exact=True)
"""The depth of an empty topic."""


def reading_group(network: Network, topic: QueueTopic) -> str | None:
    """The group that reads a topic: the job's, or that of the bindings; None if unknown."""
    if topic.role is not TopicRole.QUEUE or handler_of(network, topic) is not None:
        return network.job.application if network.job else None
    return network.topology.bindings.consumer_group(
        queue=topic.queue, queue_manager=topic.queue_manager
    )


def unread(
    cluster: Cluster, network: Network, topics: Sequence[QueueTopic]
) -> dict[TopicPartition, int]:
    """Offsets that reading groups have committed, including those of retry topics."""
    by_group: dict[str, list[str]] = {}
    for topic in topics:
        if group := reading_group(network, topic):
            by_group.setdefault(group, []).extend([topic.topic, *retry_topics(network, [topic])])
    offsets: dict[TopicPartition, int] = {}
    for group, names in by_group.items():
        offsets |= read_offsets(cluster, group, names)
    return offsets


def read_offsets(cluster: Cluster, group: str, topics: Iterable[str]) -> dict[TopicPartition, int]:
    """The offsets that a group has committed on topics, as far as it has any."""
    committed = cluster.committed(group, cluster.lanes(topics))
    return {lane: offset for lane, offset in committed.items() if offset is not None}


def depths_of(network: Network) -> Mapping[str, Depth]:
    """The depth of every existing topic of a topology, by topic.

    Retried and undeliverable messages of a receiver count on its transmission queue, as in IBM MQ,
    and messages that a handler keeps on its dead-letter queue.
    """
    with network.cluster() as cluster:
        topics = topics_of(network.topology)
        existing = cluster.partitions(topic.topic for topic in topics)
        there = [topic for topic in topics if topic.topic in existing]
        names = [topic.topic for topic in there]
        depths = _depths(cluster, names, unread(cluster, network, there))
        again = retried(cluster, network, there)
        kept = kept_at_head(cluster, network, there)
        return {
            topic: depth + again.get(topic, NO_DEPTH) + kept.get(topic, NO_DEPTH)
            for topic, depth in depths.items()
        }


def kept_at_head(
    cluster: Cluster, network: Network, topics: Iterable[QueueTopic]
) -> Mapping[str, Depth]:
    """The depth of messages that are kept for a queue and belong to its head, by topic.

    They are undeliverable messages of transmission queues, and what no rule of a handler placed.
    """
    depths: dict[str, Depth] = {}
    for kept in kept_for(network, cluster, topics):
        topic = kept.source.topic
        depth = Depth(1, is_exact=True, oldest=kept.record.original_time)
        depths[topic] = depths.get(topic, NO_DEPTH) + depth
    return depths


def retry_topics(network: Network, topics: Iterable[QueueTopic]) -> dict[str, str]:
    """The topics where messages wait for a retry, by a channel's receiver (MRRTY) or a handler.

    Returns:
        The source topics, by the topic on which the messages wait. A topic on
        which none ever waited may not exist.
    """
    if network.job is None:
        return {}
    application = network.job.application
    by_topic = {}
    for topic in topics:
        if topic.role is TopicRole.TRANSMISSION and topic.is_read:
            by_topic[message_retry_topic(application, topic.topic)] = topic.topic
        if (handler := handler_of(network, topic)) is not None:
            by_topic |= dict.fromkeys(handler.waiting_topics, topic.topic)
    return by_topic


def retried(
    cluster: Cluster, network: Network, topics: Iterable[QueueTopic]
) -> Mapping[str, Depth]:
    """The depth of messages that receivers and handlers retry, by source topic."""
    sources = retry_topics(network, topics)
    if network.job is None or not sources:
        return {}
    depths = depths_of_group(cluster, network.job.application, sources)
    return {sources[topic]: depth for topic, depth in depths.items()}


def depths_of_group(
    cluster: Cluster, group: str, topics: Iterable[str], *, most: int = COUNTED
) -> Mapping[str, Depth]:
    """The depth of topics for a consumer group; missing topics are left out.

    ``most`` messages of a partition are counted one by one.
    """
    names = list(cluster.partitions(topics))
    return _depths(cluster, names, read_offsets(cluster, group, names), most)


def _depths(
    cluster: Cluster,
    topics: Sequence[str],
    committed: Mapping[TopicPartition, int],
    most: int = COUNTED,
) -> Mapping[str, Depth]:
    lanes, silent = cluster.led(topics)
    extents = cluster.extents(lanes)
    starts = {lane: extent.position(committed.get(lane)) for lane, extent in extents.items()}
    waiting = {lane: start for lane, start in starts.items() if start < extents[lane].end}
    numbers: Counter[TopicPartition] = Counter()
    oldest: dict[TopicPartition, int] = {}

    def is_enough(record: StoredRecord) -> bool:
        numbers[record.lane] += 1
        oldest.setdefault(record.lane, record.original_time)
        return numbers[record.lane] >= most

    is_complete = True
    try:
        for _ in cluster.read(waiting, seconds=BROWSING, until=is_enough):
            pass
    except TransientFault:
        is_complete = False
    depths = dict.fromkeys(topics, NO_DEPTH)
    for lane in sorted(silent):
        depths[lane.topic] += Depth(0, is_exact=False, silent=(str(lane),))
    for lane, start in waiting.items():
        is_exact = is_complete and numbers[lane] < most
        number = numbers[lane] if is_exact else extents[lane].end - start
        depths[lane.topic] += Depth(number, is_exact=is_exact, oldest=oldest.get(lane))
    return depths
