"""The message of a row of the ledger, read from its present or its original topic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from redrive.engine.ordering import position_of
from redrive.engine.outcome import LONGEST_KEY, Result
from redrive.errors import TransientFault
from redrive.kafka.cluster import without_leader
from redrive.kafka.deadline import BROWSING
from redrive.kafka.records import StoredRecord
from redrive.messages import TopicPartition
from redrive.messages.own_headers import read_own
from redrive.outcomes.rows import Row

if TYPE_CHECKING:
    from redrive.configuration import HandlerConfiguration
    from redrive.kafka.cluster import Cluster


@dataclass(frozen=True, slots=True)
class Lost:
    """A message that was not found."""

    reason: str
    """The reason: deleted from its topics, or unreadable at present."""


def find_record(
    cluster: Cluster, handler: HandlerConfiguration | None, row: Row
) -> StoredRecord | Lost:
    """The record of a dead letter: the dead letter itself or its waiting copy, if found.

    The dead letter is tried first, as its position is known; a copy must be searched. A record at
    that position counts only if it has the size and the key from the ledger, as the topic may have
    been recreated. The row is the last outcome; the settings may no longer have the handler.
    """
    waiting: dict[str, Sequence[str]] = {}
    if handler is not None:
        waiting[Result.PARKED] = handler.identity.waiting_topics
        waiting[Result.REMAINS] = (handler.identity.remaining_topic,)
    own = _origin(row)[0]
    try:
        lanes, silent = cluster.led([own.topic, *waiting.get(row.result, ())])
        record = _original(cluster, row) if own in lanes else None
        if record is None:
            record = _copy(cluster, [lane for lane in lanes if lane.topic != own.topic], row)
    except TransientFault as fault:
        return Lost(f"it could not be read: {fault.message}")
    if record is not None:
        return record
    # Only one partition of the dead-letter topic matters.
    if missing := [lane for lane in silent if lane == own or lane.topic != own.topic]:
        return Lost(f"it was not found; {without_leader(missing)[0]}")
    if row.result in {Result.PARKED, Result.REMAINS}:
        return Lost("it was deleted from its dead-letter topic and from the topic where it waits")
    return Lost("it was deleted from its dead-letter topic")


def _origin(row: Row) -> tuple[TopicPartition, int]:
    place = position_of(row.origin)
    return TopicPartition(place.topic, place.partition), place.offset


def _original(cluster: Cluster, row: Row) -> StoredRecord | None:
    lane, place = _origin(row)
    extent = cluster.extents([lane])[lane]
    if not extent.first <= place < extent.end:
        return None
    records = cluster.read({lane: place}, {lane: place + 1})
    return next((record for record in records if _is_same(record, row)), None)


def _is_same(record: StoredRecord, row: Row) -> bool:
    key = None if record.key is None else record.key[:LONGEST_KEY]
    is_copied = row.outcome != row.origin
    has_size = is_copied or len(record.value or b"") == row.body_size
    return has_size and bool(key == row.message_key)


def _copy(cluster: Cluster, lanes: Sequence[TopicPartition], row: Row) -> StoredRecord | None:
    last: StoredRecord | None = None
    for record in cluster.read(dict.fromkeys(lanes, 0), seconds=BROWSING):
        own = read_own(record.headers)
        if row.origin == own.origin:
            last = record
    return last
