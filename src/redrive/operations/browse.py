"""The messages of a queue by MQ names, read without removing them."""

from __future__ import annotations

import heapq
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final, NamedTuple, Self

from redrive.errors import UsageError
from redrive.kafka.cluster import Cluster, Extent
from redrive.kafka.records import StoredRecord
from redrive.masking import Mask
from redrive.messages import (
    MQMD,
    DeadLetterProfile,
    TopicPartition,
    decode_dead_letter,
    remove_header,
)
from redrive.messages.fields import deadline_of, read_long
from redrive.messages.schemes import KNOWN, SchemeTable
from redrive.operations.depths import read_offsets, retry_topics, unread
from redrive.operations.network import Network, check_topics, queue_names, unknown
from redrive.operations.put import NewMessage
from redrive.operations.put_trace import ResolutionTrace, assuming_tracer
from redrive.operations.record_view import existing_topic
from redrive.operations.undelivered import kept_for
from redrive.topology.layout import QueueTopic, TopicRole, Topology, topics_of

LOOKED_AT: Final = 1000
"""Oldest messages of a queue that are read to find those of the highest priority."""
_PRIORITY: Final = MQMD["Priority"].header


class Start(StrEnum):
    """Where browsing begins."""

    WAITING = "waiting"
    """With the unread messages, in the order in which the queue delivers them."""
    EARLIEST = "earliest"
    LATEST = "latest"


@dataclass(frozen=True, slots=True)
class BrowsedMessage:
    """One message on a queue."""

    record: StoredRecord
    timestamp: int
    """Milliseconds since the epoch; of a copy that Redrive keeps, those of its original."""
    dead_letter: DeadLetterProfile
    body: bytes | None
    """Without a binary dead-letter header."""
    is_retried: bool = False
    """Whether the receiving end of its channel retries the put (MRRTY)."""
    is_undeliverable: bool = False
    """Whether its channel stopped at it, as no queue of the receiver accepted it."""
    is_remaining: bool = False
    """Whether no rule of its handler placed it."""

    @classmethod
    def of(cls, record: StoredRecord, schemes: SchemeTable = KNOWN) -> Self:
        """The message that a record holds."""
        schemes = schemes.at(record.lane.topic)
        profile = decode_dead_letter(record.value, record.headers, key=record.key, schemes=schemes)
        body, _ = remove_header(profile, record.value, record.headers)
        return cls(record, record.original_time, profile, body)

    def masked(self, mask: Mask) -> Self:
        """The message, masked."""
        return replace(self, record=self.record.masked(mask), body=mask.bytes_or_none(self.body))

    @property
    def priority(self) -> int:
        """Its Priority; 0 if it has none."""
        return read_long(dict(self.record.headers).get(_PRIORITY))

    def is_expired(self, now: int) -> bool:
        """Whether its Expiry (tenths of a second) has passed; ``now`` in milliseconds."""
        deadline = deadline_of(dict(self.record.headers), self.timestamp)
        return deadline is not None and deadline < now

    @property
    def time(self) -> datetime:
        """When it was put."""
        return datetime.fromtimestamp(self.timestamp / 1000, UTC)


class Browsed(NamedTuple):
    """Messages of a queue."""

    messages: list[BrowsedMessage]
    """By time, or by priority and time; in offset order for the same partition and priority."""
    silent: Collection[TopicPartition]
    """Partitions without a leader, which were left out."""


def topics_of_queue(topology: Topology, queue_manager: str, queue: str) -> list[QueueTopic]:
    """The topics of a queue's messages; raises ``UsageError`` if the queue keeps none."""
    manager = topology.mq.queue_managers.get(queue_manager)
    holder = manager.holder_of(queue) if manager else queue_manager
    topics = [
        topic
        for topic in topics_of(topology)
        if (topic.queue_manager, topic.queue) == (holder, queue)
        and topic.role is not TopicRole.PUTS
    ]
    if topics:
        return topics
    trace = assuming_tracer(topology).trace(queue_manager, NewMessage(queue=queue))
    raise _no_messages_error(topology, queue_manager, queue, trace)


def browse(network: Network, topics: Sequence[QueueTopic], *, start: Start, count: int) -> Browsed:
    """Messages of a queue, without removing them.

    A message counts as read once the job has taken it from a transmission queue or handled it, or
    the consumer group of the bindings has read it; a queue without a group keeps all messages of
    its topic. Messages that the receiving end of a channel retries are on its transmission queue,
    as in IBM MQ, and an undeliverable one is at the head of that queue; messages that a handler
    retries, or that no rule placed, are on the dead-letter queue. Expired messages are left out, as
    in MQ. A queue with MSGDLVSQ(PRIORITY) is ordered by priority within its first ``LOOKED_AT``
    messages.

    Raises:
        EnvironmentFault: The broker cannot be reached, or a topic is missing.
    """
    with network.cluster() as cluster:
        names = [topic.topic for topic in topics]
        check_topics(cluster, names)
        if start is not Start.WAITING:
            view = _View(cluster, names)
            return Browsed(view.from_an_end(start, count), view.silent)
        retries = cluster.partitions(retry_topics(network, topics))
        waiting = unread(cluster, network, topics)
        by_priority = any(topic.by_priority for topic in topics)
        view = _View(cluster, [*names, *retries])
        browsed = view.waiting(waiting, count, by_priority=by_priority)
        messages = [
            replace(message, is_retried=message.record.lane.topic in retries) for message in browsed
        ]
        at_head = [
            replace(
                BrowsedMessage.of(kept.record),
                is_undeliverable=kept.source.role is TopicRole.TRANSMISSION,
                is_remaining=kept.source.role is TopicRole.QUEUE,
            )
            for kept in kept_for(network, cluster, topics)
        ]
        return Browsed([*at_head, *messages][:count], view.silent)


def browse_topic(
    cluster: Cluster,
    topic: str,
    *,
    start: Start,
    count: int,
    group: str = "",
    schemes: SchemeTable = KNOWN,
) -> Browsed:
    """Messages of a topic, without any definitions.

    What ``group``, if it is not empty, has committed counts as read.

    Raises:
        EnvironmentFault: The topic does not exist.
    """
    existing_topic(cluster, topic)
    view = _View(cluster, [topic], schemes)
    if start is not Start.WAITING:
        return Browsed(view.from_an_end(start, count), view.silent)
    waiting = read_offsets(cluster, group, [topic]) if group else {}
    return Browsed(view.waiting(waiting, count, by_priority=False), view.silent)


class _View:
    def __init__(
        self, cluster: Cluster, topics: Sequence[str], schemes: SchemeTable = KNOWN
    ) -> None:
        self._cluster = cluster
        self._schemes = schemes
        lanes, self.silent = cluster.led(topics)
        self._extents = cluster.extents(lanes)
        self._firsts = {lane: extent.first for lane, extent in self._extents.items()}

    def from_an_end(self, start: Start, count: int) -> list[BrowsedMessage]:
        if start is Start.LATEST:
            by_lane = [self._last(lane, extent, count) for lane, extent in self._extents.items()]
            return list(heapq.merge(*by_lane, key=lambda message: message.timestamp))[-count:]
        return self._by_time(self._firsts, count)

    def waiting(
        self, unread_from: Mapping[TopicPartition, int], count: int, *, by_priority: bool
    ) -> list[BrowsedMessage]:
        firsts = {
            lane: max(unread_from.get(lane, 0), first) for lane, first in self._firsts.items()
        }
        if not by_priority:
            return self._by_time(firsts, count)
        looked_at = self._by_time(firsts, max(count, LOOKED_AT))
        return sorted(looked_at, key=lambda message: -message.priority)[:count]

    def _by_time(self, firsts: Mapping[TopicPartition, int], count: int) -> list[BrowsedMessage]:
        by_lane: dict[TopicPartition, list[BrowsedMessage]] = {lane: [] for lane in firsts}
        for message in self._read(firsts, count):
            by_lane[message.record.lane].append(message)
        return list(heapq.merge(*by_lane.values(), key=lambda message: message.timestamp))[:count]

    def _last(self, lane: TopicPartition, extent: Extent, count: int) -> list[BrowsedMessage]:
        """The last messages of one partition. Offsets also count transaction markers."""
        window = 2 * count
        while True:
            first = max(extent.first, extent.end - window)
            messages = list(self._read({lane: first}, window))
            if len(messages) >= count or first == extent.first:
                return messages[-count:]
            window *= 4

    def _read(self, firsts: Mapping[TopicPartition, int], most: int) -> Iterator[BrowsedMessage]:
        taken: Counter[TopicPartition] = Counter()
        now = int(time.time() * 1000)

        def is_enough(record: StoredRecord) -> bool:
            taken[record.lane] += not self._message(record).is_expired(now)
            return taken[record.lane] >= most

        ends = {lane: extent.end for lane, extent in self._extents.items()}
        browsed = map(self._message, self._cluster.read(firsts, ends, until=is_enough))
        yield from (message for message in browsed if not message.is_expired(now))

    def _message(self, record: StoredRecord) -> BrowsedMessage:
        return BrowsedMessage.of(record, self._schemes)


def _no_messages_error(
    topology: Topology, queue_manager: str, queue: str, trace: ResolutionTrace
) -> UsageError:
    known = queue_names(topology, queue_manager)
    steps = [step for visit in trace.visits for step in visit.steps]
    if queue not in known and not steps:
        return unknown(f"queue manager {queue_manager} has no queue {queue}", queue, known)
    by = steps[0].definition if steps else queue
    if not trace.is_good:
        why = trace.problem.detail if trace.problem else trace.end
        return UsageError(
            f"{by} of {queue_manager} keeps no messages, and puts to it fail: {why}",
            hint=f"redrive resolve {queue} --at {queue_manager} traces the put",
        )
    name, _, manager = trace.final.rpartition("@")
    return UsageError(
        f"{by} of {queue_manager} keeps no messages: puts to it end on {trace.final}",
        hint=f"redrive browse {manager} {name}",
    )
