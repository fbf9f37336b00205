"""Lanes of waiting messages, and the conditions that release each of them.

Remaining messages wait until a table or an operator places them, messages to retry until they are
due, and a channel's messages until it runs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain, repeat

from redrive.checkpoints.control import TableIdentity
from redrive.checkpoints.held import HeldPartition
from redrive.configuration import HandlerConfiguration, JobConfiguration
from redrive.configuration.deciders import (
    identity_of,
    inhibited_queues,
    sources_of,
    table_id_of,
    table_of,
)
from redrive.engine.names import HandlerIdentity
from redrive.engine.waiting import seconds_on
from redrive.messages import TopicPartition
from redrive.rules import RulesTable
from redrive.rules.backoff import PARTITIONS
from redrive.topology.layout import QueueTopic, TopicRole


@dataclass(frozen=True, slots=True)
class KeptLane:
    """A lane of a topic where messages wait until definitions change, and its other lanes."""

    source: TopicPartition
    """The lane whose messages it keeps. A lane where messages of all lanes of a topic wait keeps
    its own."""
    topic: str
    """The dead-letter topic, or the other topic of its messages."""
    table: str
    """Hash of the deciding rules table or definitions."""
    remaining: TopicPartition | None
    retry: TopicPartition | None = None
    """The lane where its messages wait for their next attempt."""
    interval: float | None = None
    """Seconds that they wait there."""
    replay: TopicPartition | None = None
    """The lane of instructions to replay its remaining messages."""
    backoff: Mapping[TopicPartition, float] = field(default_factory=dict)
    """Lanes where they wait by BACKOFF, and how long."""
    channel: QueueTopic | None = None
    """The transmission queue whose channel moves the lane's messages, or the dead-letter queue with
    GET(DISABLED); None if neither."""
    is_of_handler: bool = True
    """Whether a rules table decides the lane; otherwise definitions do."""
    others: tuple[TopicPartition, ...] = ()
    """Lanes that it may write to and that belong to other kept lanes."""
    has_source: bool = True
    """Whether the source has the lane; a topic that was deleted, or made anew with fewer
    partitions, has left messages that wait."""

    @property
    def lanes(self) -> tuple[TopicPartition, ...]:
        """All lanes with messages of the lane: its source, and where they wait."""
        return (self.source, *self.waiting) if self.has_source else self.waiting

    @property
    def waiting(self) -> tuple[TopicPartition, ...]:
        """All lanes where messages of the lane may be."""
        own = (self.remaining, self.retry, self.replay)
        return (*(lane for lane in own if lane is not None), *self.backoff)


def owned_lanes(
    configuration: JobConfiguration, topic: str, layout: Mapping[str, int]
) -> list[TopicPartition]:
    """The lanes of a topic of the layout that belong to this instance's share."""
    lanes = (TopicPartition(topic, number) for number in range(layout.get(topic, 0)))
    return [lane for lane in lanes if configuration.share.owns(lane)]


def kept_identities(configuration: JobConfiguration) -> Iterator[HandlerIdentity]:
    """The names of everything whose messages may wait: handlers, and sources of the topology."""
    yield from (handler.identity for handler in configuration.handlers)
    for source in sources_of(configuration).values():
        yield identity_of(configuration.application, source)


def count_kept_lanes(
    identity: HandlerIdentity, layout: Mapping[str, int], existing: Mapping[str, int]
) -> int:
    """The number of lanes of a source: it may have had more partitions when messages were parked.

    Args:
        identity: The names of its topics.
        layout: Partitions of the topics to read.
        existing: Partitions of all topics.
    """
    topics = [identity.retry_topic, identity.remaining_topic, identity.replay_topic]
    of_backoff = existing.get(identity.earlier_backoff_topic, 0) // PARTITIONS
    return max(
        layout.get(identity.topic, 0), of_backoff, *(existing.get(name, 0) for name in topics)
    )


def count_shared_lanes(handler: HandlerConfiguration, existing: Mapping[str, int]) -> int:
    """The number of lanes where messages of all partitions of a dead-letter queue wait.

    ``existing`` has the partitions of all topics: messages may wait by an earlier table.
    """
    table = table_of(handler)
    needed = table.backoff_partitions.count if table.has_backoff else 0
    return max(needed, existing.get(handler.identity.backoff_topic, 0))


def kept_lanes(
    configuration: JobConfiguration,
    layout: Mapping[str, int],
    existing: Mapping[str, int],
    denied: Collection[str] = (),
) -> list[KeptLane]:
    """Every lane of this instance's share whose messages may wait.

    Args:
        configuration: The job.
        layout: Partitions of the topics to read.
        existing: Partitions of all topics, including the job's own.
        denied: Topics that this user may not read; what waits for them stays.
    """
    every = [
        *_kept_by_handlers(configuration, layout, existing),
        *_kept_by_routers(configuration, layout, existing),
    ]
    return [one for one in every if one.topic not in denied]


def _kept_by_handlers(
    configuration: JobConfiguration, layout: Mapping[str, int], existing: Mapping[str, int]
) -> Iterator[KeptLane]:
    inhibited = inhibited_queues(configuration)
    for handler in configuration.handlers:
        table, identity = table_of(handler), handler.identity
        count = count_kept_lanes(identity, layout, existing)
        if not count:
            continue
        table_hash, channel = table.hash + configuration.schemes_id, inhibited.get(identity.topic)
        remaining = [TopicPartition(identity.remaining_topic, number) for number in range(count)]
        shared = [
            TopicPartition(identity.backoff_topic, number)
            for number in range(count_shared_lanes(handler, existing))
        ]
        retries = existing.get(identity.retry_topic, 0 if table.has_backoff else count)
        for lane in owned_lanes(configuration, identity.topic, {identity.topic: count}):
            yield KeptLane(
                lane,
                identity.topic,
                table_hash,
                remaining[lane.partition],
                TopicPartition(identity.retry_topic, lane.partition)
                if lane.partition < retries
                else None,
                float(table.control.retry_interval),
                TopicPartition(identity.replay_topic, lane.partition)
                if identity.replay_topic
                else None,
                _earlier_lanes(lane.partition, identity, table, existing),
                channel,
                others=tuple(shared),
                has_source=lane.partition < layout.get(identity.topic, 0),
            )
        for lane in shared:
            if configuration.share.owns(lane):
                yield KeptLane(
                    lane,
                    identity.topic,
                    table_hash,
                    None,
                    lane,
                    seconds_on(lane, identity, table),
                    channel=channel,
                    others=(*shared, *remaining),
                    has_source=False,
                )


def _kept_by_routers(
    configuration: JobConfiguration, layout: Mapping[str, int], existing: Mapping[str, int]
) -> Iterator[KeptLane]:
    table = table_id_of(configuration.topology)
    for source in sources_of(configuration).values():
        identity = identity_of(configuration.application, source)
        # Messages may still wait for a receiver that no longer retries.
        has_retry = source.message_retries > 0 or identity.retry_topic in existing
        count = count_kept_lanes(identity, layout, existing)
        for lane in owned_lanes(configuration, source.topic, {source.topic: count}):
            yield KeptLane(
                lane,
                source.topic,
                table,
                TopicPartition(identity.remaining_topic, lane.partition),
                TopicPartition(identity.retry_topic, lane.partition) if has_retry else None,
                source.message_retry_interval / 1000,
                channel=source if source.role is TopicRole.TRANSMISSION else None,
                is_of_handler=False,
                has_source=lane.partition < layout.get(source.topic, 0),
            )


def held_by_channels(
    channels: Iterable[tuple[TopicPartition, QueueTopic]],
    kept: Iterable[KeptLane],
    positions: Mapping[TopicPartition, int],
) -> Iterator[HeldPartition]:
    """Held partitions that channels move while they run: lanes of transmission queues."""
    kept_by_source = {one.source: one for one in kept}
    for lane, source in channels:
        yield HeldPartition(
            *lane,
            positions[lane],
            release=0,
            interval=None,
            channel=source.channel,
            via=source.via,
            is_running=source.is_running,
            paused_by=kept_by_source[lane].retry if lane in kept_by_source else None,
            head=kept_by_source[lane].remaining if lane in kept_by_source else None,
        )


def held_until_due(
    kept: Iterable[KeptLane],
    positions: Mapping[TopicPartition, int],
    tables: Mapping[TopicPartition, TableIdentity],
) -> Iterator[HeldPartition]:
    """Held partitions that wait for their time, or until the table of their lane changes."""
    for one in kept:
        identity = tables[one.source]
        # Operators release messages that managers could not put; see operations.undelivered.
        if one.remaining is not None:
            yield HeldPartition(
                *one.remaining,
                positions[one.remaining],
                identity.remaining_release,
                None,
                can_be_released=not one.is_of_handler,
            )
        waits: list[tuple[TopicPartition, float | None, int]] = []
        if one.retry is not None:
            waits.append((one.retry, one.interval, identity.retry_release))
        # None are known if the topic was created or deleted after the table changed.
        releases = chain(identity.backoff_releases, repeat(0))
        waits += zip(one.backoff, one.backoff.values(), releases, strict=False)
        for lane, seconds, release in waits:
            yield HeldPartition(
                *lane,
                positions[lane],
                release,
                seconds,
                channel=one.channel.channel if one.channel else None,
                via=one.channel.via if one.channel else (),
                is_running=one.channel.is_running if one.channel else True,
            )


def held_until_ordered(
    kept: Iterable[KeptLane], positions: Mapping[TopicPartition, int]
) -> Iterator[HeldPartition]:
    """Parked messages of a run for replays only: none is due, a plan may name some."""
    for one in kept:
        for lane in (one.retry, *one.backoff):
            if lane is not None:
                yield HeldPartition(*lane, positions[lane], 0, None, can_be_released=True)


def instructions(
    kept: Iterable[KeptLane], positions: Mapping[TopicPartition, int]
) -> Iterator[HeldPartition]:
    """The instructions of replays, which wait until their copies are evaluated."""
    for one in kept:
        if one.replay is not None:
            yield HeldPartition(*one.replay, positions[one.replay], 0, None, behind=one.remaining)


def _earlier_lanes(
    source: int, identity: HandlerIdentity, table: RulesTable, existing: Mapping[str, int]
) -> dict[TopicPartition, float]:
    """The lanes where an earlier version parked messages of a partition with a BACKOFF."""
    topic = identity.earlier_backoff_topic
    first = source * PARTITIONS
    numbers = range(first, min(first + PARTITIONS, existing.get(topic, 0)))
    lanes = (TopicPartition(topic, number) for number in numbers)
    return {lane: seconds_on(lane, identity, table) for lane in lanes}
