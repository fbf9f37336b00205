"""Messages that replay instructions have moved, followed in the outcomes."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import orjson

from redrive.engine.facts import Replayed, ReplayedQuestion
from redrive.engine.outcome import UNTOUCHED
from redrive.kafka.cluster import settled_ends
from redrive.messages import TopicPartition

if TYPE_CHECKING:
    from redrive.kafka.cluster import Cluster


@dataclass(slots=True)
class _Followed:
    first: int
    """The offset from which every outcome was read."""
    position: int
    last: dict[str, int] = field(default_factory=dict)


class FollowedReplays:
    """The messages that instructions have moved since some outcome.

    Answers include everything committed before the question, and the offset from which they are
    complete. It keeps only messages of replays, which are few, and reads nothing until asked.
    """

    def __init__(self, cluster: Cluster, topic: str, replay_topics: Collection[str]) -> None:
        """Take the outcomes topic and the topics of instructions; nothing is read yet."""
        self._cluster = cluster
        self._topic = topic
        self._sources = [f'"topic":"{one}"'.encode() for one in replay_topics]
        self._followed: dict[int, _Followed] = {}

    def since(self, question: ReplayedQuestion) -> Replayed:
        """The messages that instructions have moved since an outcome; the returned mapping grows.

        Raises:
            TransientFault: The broker did not answer in time.
        """
        followed = self._followed.get(question.partition)
        if followed is None or question.since < followed.first:
            followed = _Followed(question.since, question.since)
        lane = TopicPartition(self._topic, question.partition)
        end = settled_ends(self._cluster, [lane])[lane]
        self._read(lane, followed, end)
        # Checked after reading: records deleted before they were read are unknown.
        oldest = self._cluster.extents([lane])[lane].first
        if oldest > followed.position:
            followed.first = max(followed.first, oldest)
        followed.position = max(followed.position, end)
        self._followed[question.partition] = followed
        return Replayed(followed.first, followed.last)

    def _read(self, lane: TopicPartition, followed: _Followed, end: int) -> None:
        for record in self._cluster.read({lane: followed.position}, {lane: end}):
            value = record.value or b""
            # Quotes in a text are escaped, so only the member itself matches.
            if any(source in value for source in self._sources):
                outcome = orjson.loads(value)
                if outcome["result"] not in UNTOUCHED:
                    followed.last[outcome["origin"]] = record.offset
