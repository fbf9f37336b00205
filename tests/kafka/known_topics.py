"""Topics in memory, which are asked as a cluster is."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from redrive.errors import TransientFault
from redrive.kafka.cluster import Extent
from redrive.kafka.records import StoredRecord
from redrive.messages import TopicPartition


@dataclass
class KnownTopics:
    """Records of some partitions, without keys and headers."""

    logs: Mapping[TopicPartition, Sequence[tuple[int, bytes]]]
    """Timestamps in milliseconds and values, from ``begin`` on."""
    begin: int = 0
    """The offset of the first record that there ever was."""
    first: int = 0
    """The offset before which records are deleted."""
    settings: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    positions: Mapping[TopicPartition, int] = field(default_factory=dict)
    """What is committed."""
    is_silent: bool = False
    """Whether it does not give records in time."""
    identity: str = "known"

    def topics(self) -> Mapping[str, int]:
        return self.partitions({lane.topic for lane in self.logs})

    def partitions(self, topics: Collection[str]) -> dict[str, int]:
        return {topic: len(self.lanes([topic])) for topic in topics}

    def topic_ids(self, topics: Collection[str]) -> dict[str, str]:
        return {topic: f"id-{topic}" for topic in topics if self.lanes([topic])}

    def lanes(self, topics: Collection[str]) -> list[TopicPartition]:
        return [lane for lane in self.logs if lane.topic in topics]

    def led(
        self, topics: Collection[str]
    ) -> tuple[list[TopicPartition], frozenset[TopicPartition]]:
        return self.lanes(topics), frozenset()

    def ends(self, lanes: Collection[TopicPartition], **_: object) -> dict[TopicPartition, int]:
        return {lane: self.begin + len(self.logs[lane]) for lane in lanes}

    def extents(self, lanes: Collection[TopicPartition]) -> dict[TopicPartition, Extent]:
        begin = max(self.begin, self.first)
        return {lane: Extent(begin, end) for lane, end in self.ends(lanes).items()}

    def committed(
        self, _: str, lanes: Collection[TopicPartition]
    ) -> dict[TopicPartition, int | None]:
        return {lane: self.positions.get(lane) for lane in lanes}

    def settings_of(self, names: Collection[str]) -> dict[str, Mapping[str, str]]:
        return {name: self.settings.get(name, {}) for name in names}

    def offsets_at(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        return {
            lane: next((at for at, (time, _) in self._records(lane) if time >= since), -1)
            for lane, since in times.items()
        }

    def read(
        self,
        starts: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int] | None = None,
        **_: object,
    ) -> Iterator[StoredRecord]:
        if self.is_silent:
            raise TransientFault("the time is over")
        ends = self.ends(starts) if ends is None else ends
        for lane, start in starts.items():
            for offset, (time, value) in self._records(lane):
                if max(start, self.first) <= offset < ends[lane]:
                    yield StoredRecord(lane, offset, time, None, value, [])

    def _records(self, lane: TopicPartition) -> Iterator[tuple[int, tuple[int, bytes]]]:
        return enumerate(self.logs[lane], self.begin)
