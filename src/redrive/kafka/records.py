"""Records as they lie on a topic, without the client's types."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self

from confluent_kafka import Message

from redrive.kafka.cluster import Cluster
from redrive.messages import Headers, TopicPartition

__all__ = ["StoredRecord", "read_records"]


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """One record on a topic."""

    lane: TopicPartition
    offset: int
    timestamp: int
    """Milliseconds since the epoch."""
    key: bytes | None
    value: bytes | None
    headers: Headers

    @classmethod
    def of(cls, message: Message) -> Self:
        """The record that the client read."""
        place: Any = message.topic(), message.partition(), message.offset()
        key: Any = message.key()
        value: Any = message.value()
        given: Any = message.headers() or []
        headers = [(name, one.encode() if isinstance(one, str) else one) for name, one in given]
        lane = TopicPartition(*place[:2])
        return cls(lane, place[2], message.timestamp()[1], key, value, headers)


def read_records(
    cluster: Cluster,
    starts: Mapping[TopicPartition, int],
    *,
    seconds: float,
    until: Callable[[StoredRecord], bool] = lambda _: False,
) -> Iterator[StoredRecord]:
    """Committed records; arguments and errors as for ``Cluster.read``."""
    record: StoredRecord | None = None

    def is_last(_: Message) -> bool:
        """Asked about a message once it has been given out, so that each is converted once."""
        return record is not None and until(record)

    for message in cluster.read(starts, seconds=seconds, until=is_last):
        record = StoredRecord.of(message)
        yield record
