"""A network whose messages move by the job's own decisions, hop by hop, without a broker."""

from __future__ import annotations

import json
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from tests.engine.known_cluster import OPEN
from tests.engine.samples import identity_of, slice_of

from redrive.engine.commands import States
from redrive.engine.put_decider import PutDecider
from redrive.engine.sources import SourceKind
from redrive.messages import OutputRecord, Records
from redrive.messages.reasons import Reason
from redrive.topology.layout import QueueTopic, TopicRole, Topology, topics_of
from redrive.topology.put import Destination, Refusal
from redrive.topology.receiving import receiving_queue_managers

Answer: TypeAlias = Destination | Refusal
NOW: Final = 1_000_000
"""Milliseconds: the time of every decision."""
REMAINING: Final = "REMAINING"
_OUTCOMES: Final = "OUT"
_TABLES: Final = "TABLES"
HOPS: Final = 25
"""How often one message is put before it counts as looping."""


def put_deciders(
    topology: Topology,
    further: Iterable[QueueTopic] = (),
    running: Mapping[tuple[str, str], bool] = MappingProxyType({}),
    check: Callable[[Answer], Answer] = lambda answer: answer,
) -> dict[str, tuple[PutDecider, SourceKind]]:
    """What decides about puts and their retries, by the topic that holds them.

    Args:
        topology: The definitions.
        further: Topics besides those of their layout.
        running: Channels that were started or stopped; a stopped one holds what its topic holds.
        check: What the cluster makes of the answer about a put; nothing by default.
    """
    topics = [topic for topic in [*topics_of(topology), *further] if topic.is_read]
    states = States(running=running)
    sources = {
        topic.topic: topic
        for topic in topics
        if states.moves(topic.channel, topic.via, is_running=topic.is_running)
    }
    deciders = {}
    receivers = receiving_queue_managers(topology, sources, stopped=states.stopped)
    for topic, receiver in receivers.items():
        source, retries = sources[topic], f"{topic}-retry"
        decider = PutDecider(
            identity_of(topic, retry_topic=retries), receiver, check,
            table_id="0" * 16, hop_limit=HOPS, message_retries=source.message_retries,
            by_priority=source.role is TopicRole.TRANSMISSION and source.by_priority,
        )  # fmt: skip
        deciders[topic] = decider, SourceKind.PUTS
        deciders[retries] = decider, SourceKind.RETRIES
    return deciders


@dataclass
class DecidedNetwork:
    """Queue managers whose channels run until everything rests, on the topics of the layout."""

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
        topics = {topic.topic for topic in topics_of(self.topology)}

        def check(answer: Answer) -> Answer:
            if isinstance(answer, Destination) and answer.topic not in topics:
                return Refusal(Reason.UNKNOWN_OBJECT_NAME, f"{answer.topic} does not exist")
            return answer

        self._deciders = put_deciders(self.topology, running=self.running, check=check)
        self._read = 0

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
                        places = following if topic in self._deciders else self.lying
                        places.setdefault(topic, []).append(written)
                        self.put.append(written)
            moving.extend(following.values())

    def _decided(self, records: Sequence[OutputRecord]) -> list[OutputRecord]:
        """What the job writes for some records of one topic."""
        decider, kind = self._deciders[records[0].topic]
        read = Records(
            [record.key for record in records], [record.value for record in records],
            [record.headers or [] for record in records], [record.timestamp for record in records],
            list(range(self._read, self._read + len(records))),
        )  # fmt: skip
        self._read += len(records)
        work = slice_of(
            read, decider, kind=kind, topic=decider.identity.topic, partition=0, now=NOW
        )
        return [written for _, written in OPEN.decided(work)]
