"""Lanes of waiting messages, and the conditions that release each of them.

Remaining messages wait until a table or an operator places them, messages to retry until they are
due, and a channel's messages until it runs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain, repeat

from redrive.checkpoints.control import TableIdentity
from redrive.checkpoints.held import (
    HeldChannel,
    HeldInstructions,
    HeldPartition,
    Kept,
    Parked,
    TransmissionQueue,
)
from redrive.configuration import JobConfiguration
from redrive.configuration.deciders import (
    identity_of,
    inhibited_queues,
    sources_of,
    table_id_of,
    table_of,
)
from redrive.engine.names import HandlerIdentity
from redrive.messages import TopicPartition
from redrive.rules import RulesTable
from redrive.rules.backoff import PARTITIONS
from redrive.topology.layout import QueueTopic, TopicRole


@dataclass(frozen=True, slots=True)
class KeptLane:
    """A lane of a topic where messages wait until definitions change, and its other lanes."""

    source: TopicPartition
    """The lane whose messages it keeps."""
    table: str
    """Hash of the deciding rules table or definitions."""
    remaining: TopicPartition
    retry: TopicPartition | None = None
    """The lane where its messages wait for their next attempt."""
    interval: float = 0.0
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
    of_backoff = existing.get(identity.backoff_topic, 0) // PARTITIONS
    return max(
        layout.get(identity.topic, 0), of_backoff, *(existing.get(name, 0) for name in topics)
    )


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
    return [kept_lane for kept_lane in every if kept_lane.source.topic not in denied]


def _kept_by_handlers(
    configuration: JobConfiguration, layout: Mapping[str, int], existing: Mapping[str, int]
) -> Iterator[KeptLane]:
    inhibited = inhibited_queues(configuration)
    for handler in configuration.handlers:
        table, identity = table_of(handler), handler.identity
        # Messages may still wait by the BACKOFF of an earlier table.
        has_backoff = table.has_backoff or identity.backoff_topic in existing
        count = count_kept_lanes(identity, layout, existing)
        for lane in owned_lanes(configuration, identity.topic, {identity.topic: count}):
            yield KeptLane(
                lane,
                table.hash + configuration.schemes_id(handler),
                TopicPartition(identity.remaining_topic, lane.partition),
                TopicPartition(identity.retry_topic, lane.partition),
                float(table.control.retry_interval),
                TopicPartition(identity.replay_topic, lane.partition)
                if identity.replay_topic
                else None,
                _backoff_lanes(lane.partition, identity.backoff_topic, table)
                if has_backoff
                else {},
                inhibited.get(identity.topic),
                has_source=lane.partition < layout.get(identity.topic, 0),
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
) -> Iterator[TransmissionQueue]:
    """Held partitions that channels move while they run: lanes of transmission queues."""
    kept_by_source = {kept_lane.source: kept_lane for kept_lane in kept}
    for lane, source in channels:
        kept_lane = kept_by_source.get(lane)
        yield TransmissionQueue(
            lane,
            positions[lane],
            channel=_channel(source),
            paused_by=kept_lane.retry if kept_lane else None,
            head=kept_lane.remaining if kept_lane else None,
        )


def held_until_due(
    kept: Iterable[KeptLane],
    positions: Mapping[TopicPartition, int],
    tables: Mapping[TopicPartition, TableIdentity],
) -> Iterator[HeldPartition]:
    """Held partitions that wait for their time, or until the table of their lane changes."""
    for kept_lane in kept:
        identity = tables[kept_lane.source]
        # Operators release messages that managers could not put; see operations.undelivered.
        yield Kept(
            kept_lane.remaining,
            positions[kept_lane.remaining],
            identity.remaining_release,
            can_be_released=not kept_lane.is_of_handler,
        )
        waits: list[tuple[TopicPartition, float, int]] = []
        if kept_lane.retry is not None:
            waits.append((kept_lane.retry, kept_lane.interval, identity.retry_release))
        # None are known if the topic was created or deleted after the table changed.
        releases = chain(identity.backoff_releases, repeat(0))
        waits += zip(kept_lane.backoff, kept_lane.backoff.values(), releases, strict=False)
        for lane, seconds, release in waits:
            channel = _channel(kept_lane.channel) if kept_lane.channel else None
            yield Parked(lane, positions[lane], release, interval=seconds, channel=channel)


def held_until_ordered(
    kept: Iterable[KeptLane], positions: Mapping[TopicPartition, int]
) -> Iterator[Kept]:
    """Parked messages of a run for replays only: none is due, a plan may name some."""
    for kept_lane in kept:
        for lane in (kept_lane.retry, *kept_lane.backoff):
            if lane is not None:
                yield Kept(lane, positions[lane], can_be_released=True)


def instructions(
    kept: Iterable[KeptLane], positions: Mapping[TopicPartition, int]
) -> Iterator[HeldInstructions]:
    """The instructions of replays, which wait until their copies are evaluated."""
    for kept_lane in kept:
        if kept_lane.replay is not None:
            yield HeldInstructions(
                kept_lane.replay, positions[kept_lane.replay], behind=kept_lane.remaining
            )


def _channel(queue: QueueTopic) -> HeldChannel:
    return HeldChannel(queue.channel, queue.via, queue.is_running)


def _backoff_lanes(source: int, topic: str, table: RulesTable) -> dict[TopicPartition, float]:
    numbers = range(source * PARTITIONS, (source + 1) * PARTITIONS)
    return {
        TopicPartition(topic, number): table.backoff_partitions.seconds(number)
        for number in numbers
    }
