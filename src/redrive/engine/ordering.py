"""ORDER(KEY): which messages of a key wait, and which one of them is next.

A message of a key waits while a copy of it is parked or remains, or while a round of it is not
over. Later dead letters of its key wait behind it. The position of a message is its identity: the
place where Redrive saw it first. It never changes, whatever happens to the message.

A put that begins a round leaves a note of the round where messages of its partition are parked. The
note has no body; it is looked at whenever it is due, and goes once the round is over.
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
"""Where copies are that a slice has not written yet."""


class Position(NamedTuple):
    """Where Redrive saw a message first; earlier messages come first."""

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


class Waiting(NamedTuple):
    """A message that waits: a copy of it, or a note of its round."""

    position: Position
    since: int
    """Timestamp of the copy or note, in milliseconds; its delay counts from it."""


WaitingKeys = Mapping[bytes, Mapping[Place, Waiting]]
"""By key, what waits, and where."""


class Ahead(NamedTuple):
    """What waits in front of a message."""

    first: Waiting
    """The first message that waits for the key."""
    lane: TopicPartition | None
    """Where that one waits; None if the slice itself has made it wait."""
    messages: int
    """The number of messages in front."""


def position_of(identity: str) -> Position:
    """The position of the message with an identity ``topic:partition:offset``."""
    name, partition, offset = identity.rsplit(":", 2)
    return Position(
        name.partition("~")[0], own.incarnation_of(identity), int(partition), int(offset)
    )


class KeyOrder:
    """What waits for the keys of one partition, while a slice is decided.

    It starts from what waited before the slice, and takes in what the slice itself does.
    """

    def __init__(self, waiting: WaitingKeys) -> None:
        """Take what waited before the slice, by key; it is not changed."""
        self._waiting = waiting
        self._lines: dict[bytes, list[tuple[Waiting, Place]]] = {}
        self._gone: set[Place] = set()

    def ahead(self, key: bytes, identity: str) -> Ahead | None:
        """What waits for a key in front of a message; None if the message is next.

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
        """Note that the slice itself has made a message wait, at a time in milliseconds."""
        # It is in no topic yet, so the slice does not read it.
        insort(self._line(key), (Waiting(position_of(identity), now), Place(_OF_THE_SLICE, -1)))

    def remove(self, place: Place) -> None:
        """Note that the slice itself has read a copy or a note, and moves it."""
        self._gone.add(place)

    def _line(self, key: bytes) -> list[tuple[Waiting, Place]]:
        line = self._lines.get(key)
        if line is None:
            waiting = self._waiting.get(key, {})
            line = self._lines[key] = sorted((one, place) for place, one in waiting.items())
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
    """The partition of the dead-letter queue to which it may come back."""
    processed: _Offsets | None = None
    """Ends of the target after the put, which the group has to pass; None if not looked up yet."""
    returned: int | None = None
    """End of ``letters`` after the group had passed those, which the job has to pass."""
    is_over: bool = False
    """Whether the message can't come back any more."""

    @classmethod
    def read(cls, value: bytes | None, headers: Headers) -> Self | None:
        """The round that a parked record is a note of; None for any other record."""
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
        """The note of this round, with a time in milliseconds; it is looked at once it is due."""
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
