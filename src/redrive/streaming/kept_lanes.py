"""Lanes where messages wait until something changes, and when each of them is set free.

What no rule could place remains until a table or a person deals with it; what is tried again is
parked until it is due; what a channel moves waits until it runs (design 6, "Retry").
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain, repeat
from typing import TYPE_CHECKING

from redrive.checkpoints.held import HeldPartition
from redrive.configuration.deciders import identity_of, sources_of, table_id_of, table_of
from redrive.messages import TopicPartition
from redrive.rules.backoff import PARTITIONS
from redrive.topology.layout import TopicRole

if TYPE_CHECKING:
    from redrive.checkpoints.control import TableIdentity
    from redrive.configuration import JobConfiguration
    from redrive.rules import RulesTable
    from redrive.topology.layout import QueueTopic


@dataclass(frozen=True, slots=True)
class KeptLane:
    """A lane of a topic where messages wait until definitions change, and what belongs to it."""

    source: TopicPartition
    """The lane whose messages it keeps."""
    table: str
    """Hash of the rules table or of the definitions that decide."""
    remaining: TopicPartition
    retry: TopicPartition | None = None
    """Where messages of the lane wait for their next attempt."""
    interval: float | None = None
    """Seconds that they wait there."""
    replay: TopicPartition | None = None
    """Where the instructions are to replay what remains of the lane."""
    backoff: Mapping[TopicPartition, float] = field(default_factory=dict)
    """Where they wait by BACKOFF, and how long."""
    channel: QueueTopic | None = None
    """The transmission queue whose channel moves the lane's messages; None if none does."""
    is_of_handler: bool = True
    """Whether a rules table decides about the lane; otherwise definitions do."""

    @property
    def waiting(self) -> tuple[TopicPartition, ...]:
        """All lanes where messages of the lane may be."""
        own = (self.remaining, self.retry, self.replay)
        return (*(lane for lane in own if lane is not None), *self.backoff)


def owned_lanes(
    configuration: JobConfiguration, topic: str, layout: Mapping[str, int]
) -> list[TopicPartition]:
    """The lanes of a topic that belong to this instance's share.

    Args:
        configuration: The job.
        topic: The topic.
        layout: Partitions of the topics that exist.
    """
    return [
        TopicPartition(topic, number)
        for number in range(layout.get(topic, 0))
        if configuration.share.owns(number)
    ]


def kept_lanes(
    configuration: JobConfiguration, layout: Mapping[str, int], existing: Collection[str]
) -> list[KeptLane]:
    """Every lane of this instance's share of which messages may wait.

    Args:
        configuration: The job.
        layout: Partitions of the topics that are read and exist.
        existing: All topics that exist, the job's own among them.
    """
    return [
        *_kept_by_handlers(configuration, layout, existing),
        *_kept_by_routers(configuration, layout, existing),
    ]


def _kept_by_handlers(
    configuration: JobConfiguration, layout: Mapping[str, int], existing: Collection[str]
) -> Iterator[KeptLane]:
    for handler in configuration.handlers:
        table, identity = table_of(handler), handler.identity
        # Messages may still wait by the BACKOFF of an earlier table.
        has_backoff = table.has_backoff or identity.backoff_topic in existing
        for lane in owned_lanes(configuration, identity.topic, layout):
            yield KeptLane(
                lane,
                table.hash + configuration.schemes_id,
                TopicPartition(identity.remaining_topic, lane.partition),
                TopicPartition(identity.retry_topic, lane.partition),
                float(table.control.retry_interval),
                TopicPartition(identity.replay_topic, lane.partition)
                if identity.replay_topic
                else None,
                _backoff_lanes(lane.partition, identity.backoff_topic, table)
                if has_backoff
                else {},
            )


def _kept_by_routers(
    configuration: JobConfiguration, layout: Mapping[str, int], existing: Collection[str]
) -> Iterator[KeptLane]:
    table = table_id_of(configuration.topology)
    for source in sources_of(configuration).values():
        identity = identity_of(configuration.application, source)
        # Messages may still wait for a receiver that does not try again any more.
        has_retry = source.message_retries > 0 or identity.retry_topic in existing
        for lane in owned_lanes(configuration, source.topic, layout):
            yield KeptLane(
                lane,
                table,
                TopicPartition(identity.remaining_topic, lane.partition),
                TopicPartition(identity.retry_topic, lane.partition) if has_retry else None,
                source.message_retry_interval / 1000,
                channel=source if source.role is TopicRole.TRANSMISSION else None,
                is_of_handler=False,
            )


def held_by_channels(
    channels: Iterable[tuple[TopicPartition, QueueTopic]],
    kept: Iterable[KeptLane],
    positions: Mapping[TopicPartition, int],
) -> Iterator[HeldPartition]:
    """What channels move, while they run.

    Args:
        channels: Lanes of transmission queues, and the queues.
        kept: Every kept lane of the run.
        positions: Where each lane starts.
    """
    retries = {one.source: one.retry for one in kept}
    for lane, source in channels:
        yield HeldPartition(
            *lane,
            positions[lane],
            release=0,
            interval=None,
            channel=source.channel,
            is_running=source.is_running,
            paused_by=retries.get(lane),
        )


def held_until_due(
    kept: Iterable[KeptLane],
    positions: Mapping[TopicPartition, int],
    tables: Mapping[TopicPartition, TableIdentity],
) -> Iterator[HeldPartition]:
    """What waits for its time, or for another table.

    Args:
        kept: Every kept lane of the run.
        positions: Where each lane starts.
        tables: The table that decides about each lane, and what it set free.
    """
    for one in kept:
        identity = tables[one.source]
        # A person releases what managers could put nowhere; see operations.undelivered.
        yield HeldPartition(
            *one.remaining,
            positions[one.remaining],
            identity.remaining_release,
            None,
            can_be_released=not one.is_of_handler,
        )
        if one.retry is not None:
            yield HeldPartition(
                *one.retry,
                positions[one.retry],
                identity.retry_release,
                one.interval,
                channel=one.channel.channel if one.channel else None,
                is_running=one.channel.is_running if one.channel else True,
            )
        # None are known if the topic came, or went, after the table did.
        releases = chain(identity.backoff_releases, repeat(0))
        for (lane, seconds), release in zip(one.backoff.items(), releases, strict=False):
            yield HeldPartition(*lane, positions[lane], release, seconds)


def held_until_ordered(
    kept: Iterable[KeptLane], positions: Mapping[TopicPartition, int]
) -> Iterator[HeldPartition]:
    """Parked messages of a run for replays only: none is due, some may be named by a plan.

    Args:
        kept: Every kept lane of the run.
        positions: Where each lane starts.
    """
    for one in kept:
        for lane in (one.retry, *one.backoff):
            if lane is not None:
                yield HeldPartition(*lane, positions[lane], 0, None, can_be_released=True)


def instructions(
    kept: Iterable[KeptLane], positions: Mapping[TopicPartition, int]
) -> Iterator[HeldPartition]:
    """The instructions of replays, which wait behind the copies that they are about.

    Args:
        kept: Every kept lane of the run.
        positions: Where each lane starts.
    """
    for one in kept:
        if one.replay is not None:
            yield HeldPartition(*one.replay, positions[one.replay], 0, None, behind=one.remaining)


def _backoff_lanes(source: int, topic: str, table: RulesTable) -> dict[TopicPartition, float]:
    """Where messages of a partition of the dead-letter queue wait by BACKOFF, and how long."""
    numbers = range(source * PARTITIONS, (source + 1) * PARTITIONS)
    return {
        TopicPartition(topic, number): table.backoff_partitions.seconds(number)
        for number in numbers
    }
