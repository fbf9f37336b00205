"""Reads records from given offsets, for all of Redrive.

Readers stay open between uses: a new client needs a tenth of a second for its first record, a
connected one some milliseconds.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from operator import methodcaller
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as ClientPartition

from redrive.errors import TransientFault
from redrive.kafka.connection import Connection
from redrive.kafka.deadline import LOOK, ONE_TRY, SILENCE, close_client
from redrive.kafka.errors import STALE_METADATA, translated
from redrive.kafka.records import StoredRecord, headers_of
from redrive.messages import OffsetRange, Records, TopicPartition
from redrive.printable import counted

END_WAIT: Final = 0.01
"""Seconds for which the broker holds a fetch open at the end of a partition."""
_AT_ONCE: Final = 1_000
"""Messages to take from the client at a time."""
_NAMED: Final = 3
"""Maximum topics in a fault."""
_PASSING: Final = frozenset(
    {
        KafkaError._TRANSPORT,  # noqa: SLF001 - these have no public names
        KafkaError._ALL_BROKERS_DOWN,  # noqa: SLF001
        *STALE_METADATA,
    }
)
"""Errors that only report the client's state; it recovers by itself."""

_topic, _partition = methodcaller("topic"), methodcaller("partition")


@dataclass(slots=True)
class Run:
    """Consecutive records of one lane."""

    lane: TopicPartition
    messages: list[Message]
    is_last: bool = False
    """Whether no more of the lane is needed; the consumer of the run may set it too."""

    def records(self) -> Iterator[StoredRecord]:
        """The records without the client's types."""
        return map(StoredRecord.of, self.messages)


class Reader:
    """A consumer that joins no group and commits nothing.

    It knows which errors of the client are harmless, and the position of each lane, including
    transaction markers.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        committed_only: bool = True,
        passes_gone: bool = True,
        end_wait: float = END_WAIT,
    ) -> None:
        """Open the consumer.

        Args:
            connection: The cluster.
            committed_only: Whether records of open and aborted transactions are left out.
            passes_gone: Whether records deleted by retention are skipped, or else are a fault.
            end_wait: Seconds for which the broker holds a fetch open at the end of a partition. The
                end is reported no sooner, and an idle partition is fetched again each time.
        """
        self._consumer = Consumer(
            {
                **connection.reader(),
                "isolation.level": "read_committed" if committed_only else "read_uncommitted",
                "auto.offset.reset": "earliest" if passes_gone else "error",
                "enable.partition.eof": True,
                "fetch.wait.max.ms": int(end_wait * 1000),
                "queued.min.messages": 10_000,
                # A client with a full queue waits a second before it fetches again.
                "fetch.queue.backoff.ms": 5,
                "log_level": 2,
            }
        )
        self.positions: dict[TopicPartition, int] = {}
        """The offset after the last record read, for each lane."""
        self._topics: set[str] = set()

    def assign(self, starts: Mapping[TopicPartition, int]) -> None:
        """Read only these lanes from now on.

        Args:
            starts: The first offset of each. 0, not "the beginning": librdkafka asks for that
                before it knows the leader, and retries half a second later.
        """
        topics = {lane.topic for lane in starts}
        if self._topics and (unknown := topics - self._topics):
            # The client looks up leaders of new topics once a second; a request does it at once.
            topic = min(unknown) if len(unknown) == 1 else None
            self._consumer.list_topics(topic, timeout=ONE_TRY)
        self._topics |= topics
        self.positions = dict(starts)
        self._consumer.assign([ClientPartition(*lane, at) for lane, at in starts.items()])

    def take(self, most: int, seconds: float) -> Iterator[Run]:
        """The client's records, run by run; a lane's position is after its last run.

        Args:
            most: The number of messages, for which the client waits.
            seconds: The longest wait for them.

        Yields:
            Runs, which are empty at the end of a lane; the last run of a lane reached its end. A
            lane may have several, because the client alternates between fetched lanes.

        Raises:
            KafkaException: A permanent error.
            TransientFault: A lane was truncated or recreated.
        """
        # A million messages pass here: each costs only calls of the client.
        messages = self._consumer.consume(most, timeout=seconds)
        for topic, of_topic in groupby(messages, _topic):
            for partition, run in groupby(of_topic, _partition):
                yield self._run(TopicPartition(topic, partition), list(run))

    def read(
        self,
        starts: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int] | None,
        seconds: float | None,
    ) -> Iterator[Run]:
        """Read lanes in parallel; arguments and errors as for ``Readers.read``."""
        self.assign(starts)
        began = last_progress = time.monotonic()
        while self.positions:
            for run in self.take(self._missing(ends), LOOK):
                if run.lane not in self.positions:
                    continue
                if run.messages or run.is_last:
                    last_progress = time.monotonic()
                if ends is not None:
                    self._cut(run, ends[run.lane])
                if run.messages:
                    yield run
                if run.is_last:
                    del self.positions[run.lane]
                    self._consumer.incremental_unassign([ClientPartition(*run.lane)])
            now = time.monotonic()
            if self.positions and now - last_progress > SILENCE:
                raise TransientFault(self._stuck())
            if self.positions and seconds is not None and now - began > seconds:
                left = len(self.positions)
                raise TransientFault(f"{counted(left, 'partition')} not read to the end")

    def close(self) -> None:
        """Close the consumer."""
        close_client(self._consumer, "a consumer that reads")

    def _missing(self, ends: Mapping[TopicPartition, int] | None) -> int:
        if ends is None:
            return _AT_ONCE
        return min(_AT_ONCE, sum(ends[lane] - at for lane, at in self.positions.items()))

    def _run(self, lane: TopicPartition, messages: list[Message]) -> Run:
        records = [message for message in messages if message.error() is None]
        # Transaction markers follow the last record of a lane.
        ends = [] if len(records) == len(messages) else [*map(_offset, filter(_is_end, messages))]
        position = self.positions.get(lane)
        if position is not None:
            if records and _offset(records[0]) < position:
                raise TransientFault(f"{lane} restarts before offset {position}")
            behind = [_offset(record) + 1 for record in records[-1:]]
            self.positions[lane] = max([position, *behind, *ends])
        return Run(lane, records, is_last=bool(ends))

    def _cut(self, run: Run, end: int) -> None:
        run.is_last = self.positions[run.lane] >= end
        if run.is_last:
            run.messages = [message for message in run.messages if _offset(message) < end]

    def _stuck(self) -> str:
        lane, position = next(iter(self.positions.items()))
        count = len(self.positions) - 1
        more = f" and {count} other partitions" if count else ""
        return f"{lane} returned nothing from offset {position} on for {SILENCE:g} s{more}"


class Readers:
    """The readers of one cluster; nested reads use several.

    They belong to one process: a client must not cross a fork.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._idle: defaultdict[tuple[bool, bool], list[Reader]] = defaultdict(list)

    def read(
        self,
        starts: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int] | None = None,
        *,
        seconds: float | None = None,
        committed_only: bool = True,
        passes_gone: bool = True,
    ) -> Iterator[Run]:
        """Records of several lanes, read in parallel; arguments as for ``Cluster.read``.

        A short range is slow because of the wait for its first records.

        Yields:
            Some records of one lane at a time, at least one, in offset order.

        Raises:
            TransientFault: After the records read so far: the broker sent nothing for too long, the
                time is over, or a lane cannot be read.
        """
        wanted = {lane: at for lane, at in starts.items() if ends is None or at < ends[lane]}
        if not wanted:
            return
        topics = list(dict.fromkeys(lane.topic for lane in wanted))
        idle = self._idle[committed_only, passes_gone]
        reader = (
            idle.pop()
            if idle
            else Reader(self._connection, committed_only=committed_only, passes_gone=passes_gone)
        )
        try:
            with translated(f"reading {', '.join(topics[:_NAMED])}"):
                yield from reader.read(wanted, ends, seconds)
        except Exception:
            reader.close()  # the next lanes get a fresh one
            raise
        except GeneratorExit:
            _set_idle(reader, idle)  # the caller has enough
            raise
        _set_idle(reader, idle)

    def forget(self) -> None:
        """Drop idle readers: a consumer without a group ends by itself."""
        self._idle.clear()


_readers: Final[dict[tuple[int, Connection], Readers]] = {}
"""By process, as Spark reuses its Python workers."""


def read_parts(
    connection: Connection, ranges: Iterable[OffsetRange]
) -> Iterator[tuple[TopicPartition, Records]]:
    """The committed records of ranges, read by this process's cached readers.

    Args:
        connection: The cluster.
        ranges: The ranges, each of another partition. Records that retention deleted are never
            skipped silently.

    Yields:
        A partition and some records of it, at least one, in offset order.

    Raises:
        TransientFault: A range cannot be read: the broker sent nothing for too long, or records
        were
            deleted.
    """
    for run in _runs(connection, ranges):
        messages = run.messages
        keys: Any = [*map(Message.key, messages)]
        values: Any = [*map(Message.value, messages)]
        offsets: Any = [*map(Message.offset, messages)]
        timestamps = [max(0, milliseconds) for _, milliseconds in map(Message.timestamp, messages)]
        headers = [*map(headers_of, messages)]
        yield run.lane, Records(keys, values, headers, timestamps, offsets)


def surviving_offsets(
    connection: Connection, ranges: Iterable[OffsetRange], advance: Callable[[int], None]
) -> dict[TopicPartition, frozenset[int]]:
    """The offsets that compaction must keep: the last of each key, if it has a value.

    Args:
        connection: The cluster.
        ranges: Whole partitions of compacted topics.
        advance: Called with the number of records read since the last call.

    Raises:
        TransientFault: As ``read_parts``.
    """
    last: defaultdict[TopicPartition, dict[Any, Any]] = defaultdict(dict)
    deleted: defaultdict[TopicPartition, set[Any]] = defaultdict(set)
    for run in _runs(connection, ranges):
        offsets = map(Message.offset, run.messages)
        last[run.lane].update(zip(map(Message.key, run.messages), offsets, strict=True))
        deleted[run.lane].update(
            message.offset() for message in run.messages if message.value() is None
        )
        advance(len(run.messages))
    return {lane: frozenset(offsets.values()) - deleted[lane] for lane, offsets in last.items()}


def _runs(connection: Connection, ranges: Iterable[OffsetRange]) -> Iterator[Run]:
    readers = _readers.setdefault((os.getpid(), connection), Readers(connection))
    by_lane = {
        TopicPartition(offsets_of_lane.topic, offsets_of_lane.partition): offsets_of_lane
        for offsets_of_lane in ranges
    }
    starts = {lane: offsets_of_lane.start for lane, offsets_of_lane in by_lane.items()}
    ends = {lane: offsets_of_lane.end for lane, offsets_of_lane in by_lane.items()}
    return readers.read(starts, ends, passes_gone=False)


def _set_idle(reader: Reader, idle: list[Reader]) -> None:
    reader.assign({})
    idle.append(reader)


def _offset(message: Message) -> int:
    offset = message.offset()
    assert offset is not None
    return offset


def _is_end(message: Message) -> bool:
    """Whether this event reports the end of a partition.

    Raises:
        KafkaException: It is a permanent error.
    """
    error = message.error()
    if error is None:
        return False
    if error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - no public name
        return True
    if error.retriable() or error.code() in _PASSING:
        return False
    raise KafkaException(error)
