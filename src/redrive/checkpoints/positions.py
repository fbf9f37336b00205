"""Where the lanes stand when the job starts: Kafka is the truth, a checkpoint only a hint."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    TopicCollection,
)
from confluent_kafka import (
    TopicPartition as ClientPartition,
)
from confluent_kafka.admin import AdminClient

from redrive.errors import TransientFault
from redrive.kafka.offsets import EARLIEST, LATEST, OffsetSpec, list_offsets
from redrive.messages import OutputRecord, TopicPartition

if TYPE_CHECKING:
    from redrive.kafka.connection import Connection

_ANSWER_TIMEOUT = 30.0
"""Seconds to wait for one answer of the broker."""


def purge(admin: AdminClient, done: Mapping[TopicPartition, int | None]) -> None:
    """Lets the broker delete what lies below some offsets.

    Args:
        admin: The client to ask with.
        done: The offset below which nothing is needed any more; None for nothing.

    Raises:
        KafkaException: The broker refused, or gave no answer in time.
    """
    asked = [ClientPartition(lane.topic, lane.partition, end) for lane, end in done.items() if end]
    if asked:
        for answer in admin.delete_records(asked, request_timeout=_ANSWER_TIMEOUT).values():
            answer.result(_ANSWER_TIMEOUT)


@dataclass(frozen=True, slots=True)
class Extent:
    """What a partition holds now."""

    first: int
    """Offset of the oldest record that is kept."""
    end: int
    """Offset after the last record that is committed (the last stable offset)."""


def extents(
    connection: Connection, lanes: Sequence[TopicPartition]
) -> dict[TopicPartition, Extent]:
    """What the partitions hold now.

    Raises:
        TransientFault: The broker gave no answer in time.
    """
    if not lanes:
        return {}
    admin = AdminClient({**connection.librdkafka(), "log_level": 2})
    first = _list(admin, lanes, EARLIEST)
    end = _list(admin, lanes, LATEST)
    return {lane: Extent(first[lane], end[lane]) for lane in lanes}


def topic_identities(connection: Connection, topics: Collection[str]) -> dict[str, str]:
    """The identity of each topic: another one if a topic was deleted and made anew (KIP-516).

    Args:
        connection: The cluster.
        topics: Topics that exist. One that this user may not describe is left out.

    Raises:
        TransientFault: The broker gave no answer in time.
    """
    if not topics:
        return {}
    admin = AdminClient({**connection.librdkafka(), "log_level": 2})
    found = {}
    for name, answer in admin.describe_topics(
        TopicCollection(list(topics)), request_timeout=_ANSWER_TIMEOUT
    ).items():
        try:
            found[name] = str(answer.result().topic_id)
        except KafkaException as exception:
            if exception.args[0].retriable():
                raise TransientFault(f"the broker does not tell topics: {exception}") from exception
    return found


def _list(
    admin: AdminClient, lanes: Sequence[TopicPartition], spec: OffsetSpec
) -> dict[TopicPartition, int]:
    try:
        return list_offsets(admin, dict.fromkeys(lanes, spec), timeout=_ANSWER_TIMEOUT)
    except KafkaException as exception:
        raise TransientFault(f"the broker does not tell offsets: {exception}") from exception


class PositionsOnly:
    """A work without records: it commits where lanes stand, so that the group never forgets.

    Offsets of a group without members expire after a while (KIP-211); and a lane that starts at
    the end of its topic must still start there after a crash.
    """

    def __init__(
        self,
        positions: Mapping[TopicPartition, int],
        moved: Collection[TopicPartition] = frozenset(),
    ) -> None:
        """Take the positions.

        Args:
            positions: Where lanes stand that have no committed offset yet.
            moved: Lanes that stand there whatever is committed: records were lost, or the topic
                is another one of the same name.
        """
        self._positions = dict(positions)
        self._moved = moved

    def lanes(self) -> Sequence[TopicPartition]:
        """See ``protocol.Work.lanes``."""
        return list(self._positions)

    def resume(self, committed: Mapping[TopicPartition, int | None]) -> None:
        """Takes the committed offset wherever there is one."""
        for lane, offset in committed.items():
            if offset is not None and lane not in self._moved:
                self._positions[lane] = offset

    def ends(self) -> Mapping[TopicPartition, int]:
        """See ``protocol.Work.ends``."""
        return self._positions

    def outputs(self) -> Iterable[tuple[int, OutputRecord]]:
        """Nothing."""
        return ()

    def refuse(self, refusals: Sequence[object]) -> None:
        """Nothing can be refused."""


class RecordProbe:
    """Tells whether a partition holds any record in a range, beyond markers of transactions."""

    def __init__(self, connection: Connection) -> None:
        """Open the consumer that looks.

        Args:
            connection: The cluster.
        """
        self._consumer = Consumer(
            {
                **connection.librdkafka(),
                "group.id": "redrive-record-probe",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "enable.partition.eof": True,
                "log_level": 2,
            }
        )

    def has_records(self, lane: TopicPartition, start: int, end: int) -> bool:
        """Whether some record with a value has an offset in ``[start, end)``.

        Raises:
            TransientFault: The broker gave no answer in time.
        """
        if start >= end:
            return False
        partition = ClientPartition(lane.topic, lane.partition, start)
        self._consumer.assign([partition])
        deadline = time.monotonic() + _ANSWER_TIMEOUT
        try:
            while time.monotonic() < deadline:
                message = self._consumer.poll(1.0)
                if message is None:
                    continue
                error = message.error()
                if error is not None and error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - no public name
                    return False
                if error is None and (message.offset() or 0) >= end:
                    return False
                if error is None and message.value() is not None:
                    return True
        finally:
            self._consumer.unassign()
        raise TransientFault(f"{lane} could not be read within {_ANSWER_TIMEOUT:g} s")

    def close(self) -> None:
        """Closes the consumer."""
        self._consumer.close()
