"""The messages to try tables on: waiting on topics, or in the ledger."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, NamedTuple

from redrive.configuration import HandlerConfiguration, JobConfiguration
from redrive.engine.ordering import Round
from redrive.engine.sources import SourceKind
from redrive.kafka.cluster import Cluster
from redrive.kafka.reader import read_parts, surviving_offsets
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


_KINDS: Final = {
    Over.REMAINING: SourceKind.REMAINING,
    Over.PARKED: SourceKind.RETRIES,
    Over.BACKLOG: SourceKind.DEAD_LETTERS,
}


class Part(NamedTuple):
    """Some messages of one lane, in offset order."""

    over: Over
    lane: TopicPartition
    kind: SourceKind
    records: Records


@dataclass(frozen=True, slots=True)
class Waiting:
    """The messages of one handler that currently wait on topics."""

    job: JobConfiguration
    ranges: Mapping[Over, tuple[OffsetRange, ...]]

    @classmethod
    def of(
        cls,
        job: JobConfiguration,
        handler: HandlerConfiguration,
        cluster: Cluster,
        over: Collection[Over],
    ) -> Waiting:
        """Find the messages."""
        identity = handler.identity
        topics = {
            Over.REMAINING: (identity.remaining_topic,),
            Over.PARKED: identity.waiting_topics,
            Over.BACKLOG: (identity.topic,),
        }
        cluster.topics()
        return cls(
            job, {it: tuple(_ranges(job, cluster, it, topics[it])) for it in topics if it in over}
        )

    @property
    def offsets(self) -> int:
        """The number of offsets to read, never fewer than messages."""
        return _offsets((over, one) for over, found in self.ranges.items() for one in found)

    def shares(self, number: int) -> list[Waiting]:
        """At least one share for each process: whole partitions, with about as many offsets."""
        lanes = [(over, one) for over, found in self.ranges.items() for one in found]
        shares: list[list[tuple[Over, OffsetRange]]] = [[] for _ in range(number)]
        for over, one in sorted(lanes, key=lambda it: -_offsets([it])):
            min(shares, key=_offsets).append((over, one))
        return [
            replace(
                self,
                ranges={
                    over: tuple(one for there, one in share if there is over)
                    for over in self.ranges
                },
            )
            for share in shares
            if share is shares[0] or share
        ]

    def parts(self, advance: Callable[[int], None]) -> Iterator[Part]:
        """The messages; raises ``TransientFault`` if a topic cannot be read to its end."""
        connection = self.job.connection
        for over, ranges in self.ranges.items():
            is_compacted = over is Over.REMAINING
            kept = surviving_offsets(connection, ranges, advance) if is_compacted else {}
            for lane, records in read_parts(connection, ranges):
                advance(records.offsets[-1] + 1 - records.offsets[0])
                some = records.only(kept[lane]) if is_compacted else records
                if over is Over.PARKED:
                    some = _without_notes(some)
                if len(some):
                    yield Part(over, lane, _KINDS[over], some)


def _without_notes(records: Records) -> Records:
    notes = {
        records.offsets[row]
        for row, value in enumerate(records.values)
        if Round.read(value, records.headers[row]) is not None
    }
    return records.only(set(records.offsets) - notes) if notes else records


def _offsets(ranges: Iterable[tuple[Over, OffsetRange]]) -> int:
    """Offsets to read; twice for remaining topics: for the live copies, and their content."""
    return sum((one.end - one.start) * (1 + (over is Over.REMAINING)) for over, one in ranges)


def _ranges(
    job: JobConfiguration, cluster: Cluster, over: Over, topics: Sequence[str]
) -> Iterator[OffsetRange]:
    lanes = cluster.lanes(topics)
    extents = cluster.extents(lanes)
    committed = {} if over is Over.REMAINING else cluster.committed(job.application, lanes)
    is_later = over is Over.BACKLOG and job.starting_offsets == "latest"
    for lane in lanes:
        extent = extents[lane]
        start = extent.position(committed.get(lane), from_end=is_later)
        if start < extent.end:
            yield OffsetRange(*lane, start, extent.end)
