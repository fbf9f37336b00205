"""Messages that replay instructions have moved, and recent puts, followed in the outcomes."""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import orjson

from redrive.engine.facts import Replayed, ReplayedQuestion
from redrive.engine.outcome import PUT_MEMBER, UNTOUCHED, read_put
from redrive.kafka.cluster import settled_ends
from redrive.messages import TopicPartition
from redrive.messages import own_headers as own

if TYPE_CHECKING:
    from redrive.kafka.cluster import Cluster

_DAY: Final = 86_400_000
"""Milliseconds for which a put is remembered by key and body."""
_REMEMBERED: Final = 100_000
"""Puts above which older ones are dropped."""
_PUT_MEMBER: Final = PUT_MEMBER.encode()


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
        """Follow an outcomes topic, for instructions on these topics; nothing is read yet."""
        self._cluster = cluster
        self._topic = topic
        self._sources = [f'"topic":"{name}"'.encode() for name in replay_topics]
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


class FollowedPuts:
    """The last puts of a key and body within a day, by their digest.

    Only outcomes of puts whose dead letters may lack Redrive's headers say so. Answers include
    everything committed before the question; nothing is read until asked.
    """

    def __init__(self, cluster: Cluster, topic: str) -> None:
        """Follow an outcomes topic; nothing is read yet."""
        self._cluster = cluster
        self._topic = topic
        self._positions: dict[TopicPartition, int] = {}
        self._last: dict[bytes, own.OwnHeaders] = {}

    def last(self, digests: Collection[bytes]) -> dict[bytes, own.OwnHeaders]:
        """Redrive's headers on the last put of each digest; none if there was none within a day.

        Raises:
            TransientFault: The broker did not answer in time.
        """
        oldest = int(time.time() * 1000) - _DAY
        count = self._cluster.topics().get(self._topic, 0)
        lanes = [TopicPartition(self._topic, number) for number in range(count)]
        ends = settled_ends(self._cluster, lanes)
        if new := [lane for lane in lanes if lane not in self._positions]:
            first = self._cluster.offsets_at(dict.fromkeys(new, oldest))
            self._positions.update(
                {lane: at if at >= 0 else ends[lane] for lane, at in first.items()}
            )
        behind = {lane: at for lane, at in self._positions.items() if at < ends[lane]}
        for record in self._cluster.read(behind, {lane: ends[lane] for lane in behind}):
            self._take(record.value or b"")
        self._positions.update({lane: ends[lane] for lane in behind})
        if len(self._last) > _REMEMBERED:
            self._last = {
                digest: headers
                for digest, headers in self._last.items()
                if _put_at(headers) >= oldest
            }
        last_put = {digest: self._last.get(digest, own.NO_OWN_HEADERS) for digest in digests}
        return {
            digest: headers if _put_at(headers) >= oldest else own.NO_OWN_HEADERS
            for digest, headers in last_put.items()
        }

    def _take(self, value: bytes) -> None:
        if _PUT_MEMBER not in value:  # quotes in a text are escaped
            return
        put = read_put(orjson.loads(value))
        if put is not None and _put_at(put[1]) >= _put_at(self._last.get(put[0])):
            self._last[put[0]] = put[1]


def _put_at(headers: own.OwnHeaders | None) -> int:
    return 0 if headers is None or headers.rounds is None else headers.rounds.put_at
