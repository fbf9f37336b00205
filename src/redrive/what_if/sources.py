"""The messages to try tables on: waiting on topics, or in the ledger."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from enum import StrEnum
from typing import NamedTuple, TypeAlias

from redrive.configuration import HandlerConfiguration, JobConfiguration
from redrive.engine.ordering import Round
from redrive.engine.sources import SourceKind
from redrive.kafka.cluster import Cluster
from redrive.kafka.connection import Connection
from redrive.kafka.records import read_parts, surviving_offsets
from redrive.messages import OffsetRange, Records, TopicPartition


class Over(StrEnum):
    """Which messages to try."""

    REMAINING = "remaining"
    """Messages that no rule could place."""
    PARKED = "parked"
    """Messages that wait for their next attempt."""
    BACKLOG = "backlog"
    """Dead letters that the job has not read yet."""
    HISTORY = "history"
    """Dead letters in the ledger, with any result."""

    @property
    def kind(self) -> SourceKind:
        """The kind of the topics, for the decider."""
        kinds = {Over.REMAINING: SourceKind.REMAINING, Over.PARKED: SourceKind.RETRIES}
        return kinds.get(self, SourceKind.DEAD_LETTERS)


Waiting: TypeAlias = Mapping[Over, list[OffsetRange]]
"""The offsets of the messages that wait."""


class LaneRecords(NamedTuple):
    """Some messages of one lane, in offset order."""

    over: Over
    lane: TopicPartition
    records: Records


def waiting_for(
    job: JobConfiguration, handler: HandlerConfiguration, cluster: Cluster, over: Collection[Over]
) -> Waiting:
    """The offsets of one handler's messages that currently wait on topics."""
    identity = handler.identity
    topics = {
        Over.REMAINING: (identity.remaining_topic,),
        Over.PARKED: identity.waiting_topics,
        Over.BACKLOG: (identity.topic,),
    }
    cluster.topics()
    waiting: dict[Over, list[OffsetRange]] = {}
    for place in filter(over.__contains__, topics):
        lanes = cluster.lanes(topics[place])
        extents, is_whole = cluster.extents(lanes), place is Over.REMAINING
        committed = {} if is_whole else cluster.committed(job.application, lanes)
        is_later = place is Over.BACKLOG and job.starting_offsets == "latest"
        starts = {
            lane: extents[lane].position(committed.get(lane), from_end=is_later) for lane in lanes
        }
        waiting[place] = [
            OffsetRange(*lane, start, extents[lane].end)
            for lane, start in starts.items()
            if start < extents[lane].end
        ]
    return waiting


def number_of_reads(waiting: Waiting) -> int:
    """Offsets to read; twice for remaining topics: for the live copies, and their content."""
    return sum(
        (offsets.end - offsets.start) * (1 + (place is Over.REMAINING))
        for place, ranges in waiting.items()
        for offsets in ranges
    )


def parts_of(
    waiting: Waiting, connection: Connection, advance: Callable[[int], None]
) -> Iterator[LaneRecords]:
    """The messages that wait; raises ``TransientFault`` if a topic cannot be read to its end.

    ``advance`` is called with the number of offsets read since the last call.
    """
    for place, ranges in waiting.items():
        is_compacted = place is Over.REMAINING
        kept = surviving_offsets(connection, ranges, advance) if is_compacted else {}
        for lane, read in read_parts(connection, ranges):
            records = read
            advance(read.offsets[-1] + 1 - read.offsets[0])
            if is_compacted:
                records = records.only(kept[lane])
            elif place is Over.PARKED:
                records = _without_notes(records)
            if len(records):
                yield LaneRecords(place, lane, records)


def _without_notes(records: Records) -> Records:
    """The records without notes of rounds, which lie among parked messages."""
    notes = {
        records.offsets[row]
        for row, value in enumerate(records.values)
        if Round.read(value, records.headers[row]) is not None
    }
    return records.only(set(records.offsets) - notes) if notes else records
