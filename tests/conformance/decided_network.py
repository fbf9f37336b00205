"""A network whose messages move by the job's own decisions, hop by hop, without a broker."""

from __future__ import annotations

import json
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tests.engine.known_cluster import OPEN
from tests.engine.samples import identity_of, slice_of

from redrive.engine.put_decider import PutDecider
from redrive.engine.sources import SourceKind
from redrive.messages import OutputRecord, Records
from redrive.topology.files import Topology
from redrive.topology.layout import TopicRole, topics_of
from redrive.topology.receiving import receiving_queue_managers

NOW: Final = 1_000_000
"""Milliseconds: the time of every decision."""
REMAINING: Final = "REMAINING"
_OUTCOMES: Final = "OUT"
_TABLES: Final = "TABLES"
HOPS: Final = 25


@dataclass
class DecidedNetwork:
    """Queue managers whose channels run until everything rests."""

    topology: Topology
    running: Mapping[tuple[str, str], bool] = field(default_factory=dict)
    """Channels that were started or stopped; all others are as they are defined."""
    put: list[OutputRecord] = field(default_factory=list)
    """What was written on topics, in the order of the decisions."""
    lying: dict[str, list[OutputRecord]] = field(default_factory=lambda: defaultdict(list))
    """What rests, by topic."""
    outcomes: list[dict[str, Any]] = field(default_factory=list)
    """In the order of the decisions."""
    states: list[OutputRecord] = field(default_factory=list)
    """Entries of the tables topic."""

    def __post_init__(self) -> None:
        self._sources = {one.topic: one for one in topics_of(self.topology) if one.is_read}
        self._receivers = receiving_queue_managers(self.topology, self._sources)
        self._read = 0
        self._retries = {f"{topic}-retry": topic for topic in self._sources}

    def run(self, records: Iterable[OutputRecord]) -> None:
        """Moves messages from their intakes until every one of them, and what they cause, rests."""
        for record in records:
            self.run_together([record])

    def run_together(self, records: Sequence[OutputRecord]) -> None:
        """Moves messages of one intake; what one decision puts on a topic is decided together."""
        moving = deque([list(records)])
        while moving:
            following: dict[str, list[OutputRecord]] = {}
            for written in self._decided(moving.popleft()):
                match written.topic:
                    case topic if topic == _OUTCOMES:
                        self.outcomes.append(json.loads(written.value or b""))
                    case topic if topic == _TABLES:
                        self.states.append(written)
                    case topic:
                        is_moved = topic in self._retries or self._is_moved(topic)
                        places = following if is_moved else self.lying
                        places.setdefault(topic, []).append(written)
                        self.put.append(written)
            moving.extend(following.values())

    def _is_moved(self, topic: str) -> bool:
        source = self._sources.get(topic)
        return source is not None and self.running.get(source.channel, source.is_running)

    def _decided(self, records: Sequence[OutputRecord]) -> list[OutputRecord]:
        """What the job writes for some records of one topic."""
        topic = records[0].topic
        kind = SourceKind.RETRIES if topic in self._retries else SourceKind.PUTS
        source = self._retries.get(topic, topic)
        definition = self._sources[source]
        router = PutDecider(
            identity_of(source, retry_topic=f"{source}-retry"), self._receivers[source],
            lambda one: one, table_id="0" * 16, hop_limit=HOPS,
            message_retries=definition.message_retries,
            by_priority=definition.role is TopicRole.TRANSMISSION and definition.by_priority,
        )  # fmt: skip
        read = Records(
            [one.key for one in records], [one.value for one in records],
            [one.headers or [] for one in records], [one.timestamp for one in records],
            list(range(self._read, self._read + len(records))),
        )  # fmt: skip
        self._read += len(records)
        work = slice_of(read, router, kind=kind, topic=source, partition=0, now=NOW)
        return [written for _, written in OPEN.decided(work)]
