"""How long topics hold waiting messages, and dead-letter topics the discarded ones.

Kafka deletes whole segments once their newest record is older than ``retention.ms``; so a message
is deleted at its own timestamp plus the retention at the earliest, and often later. Deletion by
``retention.bytes`` cannot be predicted and is ignored.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from typing import Any, Final, NamedTuple

from redrive.configuration import JobConfiguration
from redrive.configuration.deciders import sources_of
from redrive.engine.facts import NO_LIMIT
from redrive.engine.outcome import LAST_TIME
from redrive.errors import TransientFault
from redrive.kafka.cluster import Cluster, Extent
from redrive.kafka.deadline import CONNECT, GLIMPSE
from redrive.kafka.facts import retention_of
from redrive.messages import TopicPartition
from redrive.messages.own_headers import name_in_identities
from redrive.operations.durations import clock, duration
from redrive.operations.states import read_control
from redrive.outcomes.inventory import Inventory
from redrive.outcomes.selection import Selection, State
from redrive.printable import counted

FOREVER: Final = float("inf")
"""Retention in seconds of a topic that never deletes records for their age."""
_HOUR: Final = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """The messages that wait on one topic."""

    topic: str
    is_own: bool
    """Whether it is one of the job's own topics, of parked or remaining messages."""
    messages: int
    """Records that the job has not read yet, including transaction markers."""
    retention: float | None
    """Seconds that the topic keeps a record; None if this user may not see its settings."""
    expiring: int = 0
    """The records that the topic will delete within the alarm time."""
    first: float | None = None
    """When the first of them may be deleted, in seconds since 1970; None if unknown."""

    def sentence(self, now: float) -> str:
        """A sentence about messages that expire; ``now`` in seconds since 1970."""
        kept = duration(self.retention or 0)
        when = ""
        if self.first is not None:
            left = self.first - now
            when = f", the first {f'in {duration(left)}' if left > 0 else 'at any time'}"
        return (
            f"{self.topic} deletes up to {counted(self.expiring, 'message')} before handling{when}:"
            f" it keeps them for {kept}"
        )


def waiting_on_topics(
    configuration: JobConfiguration, cluster: Cluster, now: float
) -> tuple[Waiting, ...]:
    """The messages that wait on each topic that a job reads; ``now`` in seconds since 1970.

    A message counts as expiring if its topic deletes it within ``retention_alarm`` hours. If a
    topic keeps records for less than twice as long, a message counts in the second half of that
    time; otherwise all messages would count at once.

    Returns:
        The existing topics; partitions without a leader count as empty.
    """
    read, own = _topics(configuration)
    cluster.topics()
    lanes, _ = cluster.led([*read, *own])
    extents = cluster.extents(lanes)
    committed = cluster.committed(configuration.application, lanes)
    is_latest = configuration.starting_offsets == "latest"
    waiting = {
        lane: Extent(extent.position(committed[lane], from_end=is_latest), extent.end)
        for lane, extent in extents.items()
    }
    kept = _retentions(cluster.settings_of(sorted({lane.topic for lane in lanes})))
    bounds = _bounds(configuration, cluster, waiting, kept, now)
    first = _first_deletions(cluster, {lane: waiting[lane].first for lane in bounds}, kept)
    by_topic = []
    for topic, group in groupby(lanes, key=lambda lane: lane.topic):
        lanes_of_topic = list(group)
        by_topic.append(
            Waiting(
                topic=topic,
                is_own=topic in own,
                messages=sum(waiting[lane].end - waiting[lane].first for lane in lanes_of_topic),
                retention=kept[topic],
                expiring=sum(
                    bounds[lane] - waiting[lane].first for lane in lanes_of_topic if lane in bounds
                ),
                first=min((first[lane] for lane in lanes_of_topic if lane in first), default=None),
            )
        )
    return tuple(by_topic)


def expiring_of(configuration: JobConfiguration, now: float) -> tuple[Waiting, ...]:
    """The topics that will delete messages before they are handled, as far as the broker answers.

    ``now`` is in seconds since 1970.
    """
    cluster = Cluster(configuration.connection, timeout=CONNECT)
    with cluster, suppress(TransientFault):
        return tuple(
            waiting
            for waiting in waiting_on_topics(configuration, cluster, now)
            if waiting.expiring
        )
    return ()


class HeldPlace(NamedTuple):
    """The dead letters that one partition of their topic still holds."""

    lane: TopicPartition
    first: int
    end: int

    def holds(self, offset: int) -> bool:
        """Whether the record at an offset is still there."""
        return self.first <= offset < self.end


def held_places(
    cluster: Cluster, entries: Mapping[str, Mapping[str, Any]], topics: Collection[str]
) -> dict[str, HeldPlace]:
    """The partitions of dead-letter topics by their ``topic:partition`` in origins.

    A topic that is not the one that the job read last is left out: it was recreated, and has other
    messages at the same offsets. ``entries`` are those of the control topic; a topic without one is
    taken for the first of its name.
    """
    cluster.topics()  # with the partitions that they have now
    ids, places = cluster.topic_ids(topics), dict[TopicPartition, str]()
    for topic in sorted(ids):
        known = entries.get(f"topic/{topic}", {})
        if known.get("identity", ids[topic]) == ids[topic]:
            name = name_in_identities(topic, int(known.get("incarnation", 1)))
            places |= {lane: f"{name}:{lane.partition}" for lane in cluster.lanes([topic])}
    extents = cluster.extents(places)
    return {place: HeldPlace(lane, *extents[lane]) for lane, place in places.items()}


def held_until(cluster: Cluster, firsts: Mapping[TopicPartition, int]) -> dict[str, datetime]:
    """By topic, until when it holds its records from these offsets on, at least.

    A topic is missing if it does not delete records for their age, or if that is unknown.
    """
    kept = _retentions(cluster.settings_of(sorted({lane.topic for lane in firsts})))
    aging = {lane: at for lane, at in firsts.items() if (kept[lane.topic] or FOREVER) < FOREVER}
    until: dict[str, datetime] = {}
    for lane, at in _first_deletions(cluster, aging, kept).items():
        if at < LAST_TIME / 1000:
            moment = datetime.fromtimestamp(at, UTC)
            until[lane.topic] = min(moment, until.get(lane.topic, moment))
    return until


def until_text(until: datetime | None) -> str:
    """The clause that a topic holds a message until then; empty without a time."""
    return "" if until is None else f", the first of them until {clock(until)[:-7]} UTC"


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscardedMessages:
    """Discarded messages of a handler, and what its dead-letter topic still holds of them."""

    topic: str
    held: int
    gone: int
    until: datetime | None = None
    """When the first may be deleted; None if the topic does not delete by age, or if unknown."""

    def sentences(self) -> Iterator[str]:
        """What can be brought back, until when, and what cannot."""
        if self.held:
            yield (
                f"{self.topic} still holds {counted(self.held, 'discarded message')}"
                f"{until_text(self.until)}; `redrive replay plan --status discarded` takes them"
            )
        if self.gone:
            yield gone_from(self.topic, self.gone)


def gone_from(topic: str, count: int) -> str:
    """The sentence that a dead-letter topic has deleted messages."""
    is_gone = f"{counted(count, 'message')} {'is' if count == 1 else 'are'} gone"
    return f"{is_gone} from {topic}, which has deleted {'it' if count == 1 else 'them'}"


def discarded_messages(
    job: JobConfiguration, inventory: Inventory, selection: Selection
) -> Sequence[DiscardedMessages]:
    """What dead-letter topics still hold of discarded messages.

    Empty if the selection is of another state, or if the broker does not answer.
    """
    if selection.state is not State.DISCARDED:
        return ()
    topics = {handler.identity.name: handler.identity.topic for handler in job.handlers}
    cluster = Cluster(job.connection, timeout=CONNECT)
    with cluster, suppress(TransientFault):
        places = held_places(cluster, read_control(job, cluster), sorted(topics.values()))
        firsts = {place: held.first for place, held in places.items()}
        rows = inventory.held(selection, firsts)
        held = {places[row["place"]].lane: row["first"] for row in rows if row["held"]}
        until = held_until(cluster, held)
        return [
            DiscardedMessages(
                topic=topic,
                held=sum(row["held"] for row in rows if row["handler"] == name),
                gone=sum(row["n"] - row["held"] for row in rows if row["handler"] == name),
                until=until.get(topic),
            )
            for name, topic in sorted(topics.items())
        ]
    return ()


def _topics(configuration: JobConfiguration) -> tuple[list[str], set[str]]:
    identities = [handler.identity for handler in configuration.handlers]
    read = [identity.topic for identity in identities]
    read += [topic for topic in sources_of(configuration) if topic not in read]
    own = {
        topic
        for identity in identities
        for topic in (*identity.waiting_topics, identity.remaining_topic)
    }
    return read, own


def _retentions(settings: Mapping[str, Mapping[str, Any]]) -> dict[str, float | None]:
    milliseconds = {topic: retention_of(given) for topic, given in settings.items() if given}
    kept = {topic: FOREVER if ms == NO_LIMIT else ms / 1000 for topic, ms in milliseconds.items()}
    return {topic: kept.get(topic) for topic in settings}


def _bounds(
    configuration: JobConfiguration,
    cluster: Cluster,
    waiting: Mapping[TopicPartition, Extent],
    kept: Mapping[str, float | None],
    now: float,
) -> dict[TopicPartition, int]:
    within = configuration.retention_alarm * _HOUR
    times = {}
    for lane, (start, end) in waiting.items():
        retention = kept[lane.topic]
        if within and retention is not None and retention < FOREVER and start < end:
            times[lane] = max(0, int(1000 * (now - retention + min(within, retention / 2))))
    offsets = cluster.offsets_at(times)
    # -1: every record is older.
    ends = {lane: waiting[lane].end if at < 0 else at for lane, at in offsets.items()}
    return {
        lane: min(end, waiting[lane].end) for lane, end in ends.items() if end > waiting[lane].first
    }


def _first_deletions(
    cluster: Cluster, starts: Mapping[TopicPartition, int], kept: Mapping[str, float | None]
) -> dict[TopicPartition, float]:
    deletions: dict[TopicPartition, float] = {}
    try:
        for record in cluster.read(starts, seconds=GLIMPSE, until=lambda _: True):
            retention = kept[record.lane.topic] or 0
            deletions.setdefault(record.lane, record.timestamp / 1000 + retention)
    except TransientFault:
        return deletions  # the deletion times of the others stay unknown
    return deletions
