"""ORDER(KEY): which messages of a key wait, and which of them is next.

A message of a key waits while a copy of it is parked or remains, or while a round of it is not
over. Later dead letters of its key wait behind it. The position of a message is its identity, the
place where Redrive first saw it, which never changes.

A put that begins a round leaves a note of the round where messages of its partition are parked. The
note has no body; it is checked whenever it is due, and removed once the round is over.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Mapping
from typing import Final, NamedTuple, Self

import orjson

from redrive.engine.message import Message
from redrive.messages import Headers, OutputRecord, TopicPartition
from redrive.messages import own_headers as own

SETTLED: Final = 600.0
"""Seconds after which a round counts as over whose group is unknown or has no offsets."""

_OF_THE_SLICE: Final = TopicPartition("", 0)
"""The place of copies that a slice has not written yet."""


class Position(NamedTuple):
    """Where Redrive first saw a message; orders messages."""

    topic: str
    incarnation: int
    partition: int
    offset: int

    @property
    def identity(self) -> str:
        """The identity of the message."""
        name = own.name_in_identities(self.topic, self.incarnation)
        return f"{name}:{self.partition}:{self.offset}"


class Place(NamedTuple):
    """Where a copy of a message, or a note of its round, is."""

    lane: TopicPartition
    offset: int


class WaitingMessage(NamedTuple):
    """A message that waits: a copy of it, or a note of its round."""

    position: Position
    since: int
    """Timestamp of the copy or note, in milliseconds; its delay counts from it."""


WaitingKeys = Mapping[bytes, Mapping[Place, WaitingMessage]]
"""The waiting messages by key, with their places."""


class Ahead(NamedTuple):
    """What waits ahead of a message."""

    first: WaitingMessage
    """The first waiting message of the key."""
    lane: TopicPartition | None
    """Where that one waits; None if this slice made it wait."""
    messages: int
    """The number of messages ahead."""


def position_of(identity: str) -> Position:
    """The position of the message with an identity ``topic:partition:offset``."""
    name, partition, offset = identity.rsplit(":", 2)
    return Position(
        name.partition("~")[0], own.incarnation_of(identity), int(partition), int(offset)
    )


class KeyOrder:
    """The waiting messages of one partition by key, while a slice is decided.

    It starts with what waited before the slice, and includes the effects of the slice.
    """

    def __init__(self, waiting: WaitingKeys) -> None:
        """Take what waited before the slice, by key, without changing it."""
        self._waiting = waiting
        self._lines: dict[bytes, list[tuple[WaitingMessage, Place]]] = {}
        self._gone: set[Place] = set()

    def ahead(self, key: bytes, identity: str) -> Ahead | None:
        """What waits ahead of a message of a key; None if the message is next.

        A message never waits behind itself.
        """
        line = self._line(key)
        while line and line[0][1] in self._gone:
            del line[0]
        position = position_of(identity)
        if not line or line[0][0].position >= position:
            return None
        first, (lane, _) = line[0]
        messages = bisect_left(line, position, key=lambda entry: entry[0].position)
        return Ahead(first, None if lane == _OF_THE_SLICE else lane, messages)

    def add(self, key: bytes, identity: str, now: int) -> None:
        """Note that the slice made a message wait, at a time in milliseconds."""
        # It is on no topic yet, so the slice does not read it.
        insort(
            self._line(key), (WaitingMessage(position_of(identity), now), Place(_OF_THE_SLICE, -1))
        )

    def remove(self, place: Place) -> None:
        """Note that the slice has read a copy or a note, and moves it."""
        self._gone.add(place)

    def _line(self, key: bytes) -> list[tuple[WaitingMessage, Place]]:
        line = self._lines.get(key)
        if line is None:
            waiting = self._waiting.get(key, {})
            line = self._lines[key] = sorted(
                (waiting_message, place) for place, waiting_message in waiting.items()
            )
        return line


_Offsets = tuple[tuple[int, int], ...]
"""Partitions with an offset each."""


class Round(NamedTuple):
    """A round that may not be over: a message was put and may come back as a dead letter."""

    target: str
    """The topic that it was put to."""
    partition: int
    """The partition of the target; -1 if the key chose it."""
    group: str
    """The consumer group that processes it; empty if unknown."""
    put_at: int
    """Milliseconds; the time of the put."""
    letters: TopicPartition
    """The partition of the dead-letter queue to which it may return."""
    processed: _Offsets | None = None
    """Ends of the target after the put, which the group must pass; None if not yet known."""
    returned: int | None = None
    """End of ``letters`` after the group had passed those, which the job must pass."""
    is_over: bool = False
    """Whether the message can no longer return."""

    @classmethod
    def read(cls, value: bytes | None, headers: Headers) -> Self | None:
        """The round of a note; None for other records."""
        raw = dict(headers).get(own.IN_ROUND) if value is None else None
        try:
            target, partition, group, put_at, letters, processed, returned = orjson.loads(
                raw or b""
            )
            return cls(
                str(target),
                int(partition),
                str(group),
                int(put_at),
                TopicPartition(str(letters[0]), int(letters[1])),
                None if processed is None else tuple((int(a), int(b)) for a, b in processed),
                None if returned is None else int(returned),
            )
        except (ValueError, TypeError, IndexError):
            return None

    def note(self, message: Message, place: TopicPartition, now: int) -> OutputRecord:
        """The note of this round, with a time in milliseconds; it is checked once due."""
        headers: Headers = [
            (own.ID, message.identity.encode("ascii")),
            (own.IN_ROUND, self.value),
        ]
        return OutputRecord(place.topic, message.key, None, headers, now, place.partition)

    @property
    def value(self) -> bytes:
        """The value of the header."""
        target, partition, group, put_at, letters, processed, returned, _ = self
        return orjson.dumps([target, partition, group, put_at, [*letters], processed, returned])
