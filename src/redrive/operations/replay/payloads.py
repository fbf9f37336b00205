"""Where payloads are: on the remaining topic, only on the dead-letter topic, or nowhere."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from redrive.configuration import HandlerConfiguration, JobConfiguration
from redrive.engine.facts import TAKEN_AWAY
from redrive.kafka.cluster import Cluster
from redrive.kafka.compacted import LiveCopies
from redrive.messages import TopicPartition
from redrive.messages.own_headers import name_in_identities
from redrive.operations.durations import duration
from redrive.operations.replay.plan import Warned
from redrive.outcomes.rows import Row
from redrive.printable import counted

_SOON: Final = 24 * 3600
"""A plan warns if a payload will be deleted within this many seconds."""


@dataclass(frozen=True, slots=True)
class MissingCopies:
    """Messages without a copy on the remaining topic."""

    lost: list[Row] = field(default_factory=list)
    """The dead-letter topic still has the message."""
    taken_away: list[Row] = field(default_factory=list)
    """They no longer remain."""
    gone: list[Row] = field(default_factory=list)
    """They are on neither topic."""

    def notes(self) -> Iterator[str]:
        """Why a plan has fewer messages than asked for."""
        if self.taken_away:
            yield f"{left_out(len(self.taken_away))}: they no longer remain"
        if self.gone:
            yield (
                f"{left_out(len(self.gone))}: their payload was deleted from both the remaining"
                " topic and their dead-letter topic"
            )


class Payloads:
    """Looks for the payloads of a job's messages; nothing is written."""

    def __init__(
        self, job: JobConfiguration, cluster: Cluster, entries: Mapping[str, Mapping[str, Any]]
    ) -> None:
        self._entries = entries
        self._cluster = cluster
        self._handlers: Mapping[str, HandlerConfiguration] = {
            handler.identity.name: handler for handler in job.handlers
        }

    def missing(self, rows: Sequence[Row]) -> MissingCopies:
        """The remaining messages, of handlers of the job, that have no remaining copy."""
        missing = MissingCopies()
        lost = []
        following = LiveCopies(self._cluster)
        try:
            for lane, those in self._by_lane(rows).items():
                copies = following.on(lane) if self._cluster.partitions([lane.topic]) else {}
                for row in those:
                    place = copies.get(row.origin.encode("ascii"))
                    if place is None:
                        lost.append(row)
                    elif place == TAKEN_AWAY:
                        missing.taken_away.append(row)
        finally:
            following.close()
        for row, is_there in zip(lost, self._still_present(lost), strict=True):
            (missing.lost if is_there else missing.gone).append(row)
        return missing

    def _still_present(self, rows: Sequence[Row]) -> Iterator[bool]:
        """Whether the dead-letter topic still has each message; a recreated topic has others."""
        places = [self._source_of(row) for row in rows]
        there = self._cluster.lanes(sorted({lane.topic for lane, _ in places}))
        extents = self._cluster.extents(there)
        for row, (lane, offset) in zip(rows, places, strict=True):
            yield (
                row.origin.rsplit(":", 2)[0] == name_in_origins(self._entries, lane.topic)
                and lane in extents
                and extents[lane].first <= offset < extents[lane].end
            )

    def warnings(self, lost: Sequence[Row]) -> Iterator[Warned]:
        """Warnings about messages only on their dead-letter topic (``MissingCopies.lost``)."""
        by_topic = defaultdict(list)
        for row in lost:
            by_topic[self._source_of(row)[0].topic].append(row)
        settings = self._cluster.settings_of(list(by_topic))
        for topic, rows in by_topic.items():
            text = f"payload only on {topic}: fetched from there"
            yield Warned("restored", text, len(rows))
            kept = int(settings.get(topic, {}).get("retention.ms") or -1) / 1000
            # On a topic that keeps records for a day, every message would be late.
            within = min(_SOON, kept / 2)
            if within > 0 and (soon := self._older_than(rows, kept - within)):
                yield Warned("expires", f"deleted from {topic} within {duration(within)}", soon)

    def _older_than(self, rows: Sequence[Row], age: float) -> int:
        places = [self._source_of(row) for row in rows]
        time = int(1000 * (datetime.now(UTC).timestamp() - age))
        bounds = self._cluster.offsets_at({lane: time for lane, _ in places})
        # Below 0: every record of the partition is older.
        return sum(bounds[lane] < 0 or offset < bounds[lane] for lane, offset in places)

    def _source_of(self, row: Row) -> tuple[TopicPartition, int]:
        _, partition, offset = row.origin.rsplit(":", 2)
        topic = self._handlers[row.handler].identity.topic
        return TopicPartition(topic, int(partition)), int(offset)

    def _by_lane(self, rows: Sequence[Row]) -> dict[TopicPartition, list[Row]]:
        by_lane: defaultdict[TopicPartition, list[Row]] = defaultdict(list)
        for row in rows:
            partition = int(row.origin.rsplit(":", 2)[1])
            topic = self._handlers[row.handler].identity.remaining_topic
            by_lane[TopicPartition(topic, partition)].append(row)
        return dict(sorted(by_lane.items()))


def name_in_origins(entries: Mapping[str, Mapping[str, Any]], topic: str) -> str:
    """Prefix of the identities of a topic's dead letters; a recreated topic has a number."""
    return name_in_identities(topic, int(entries.get(f"topic/{topic}", {}).get("incarnation", 1)))


def left_out(count: int) -> str:
    """The sentence that some messages are left out of a plan."""
    return f"{counted(count, 'message')} {'is' if count == 1 else 'are'} left out"
