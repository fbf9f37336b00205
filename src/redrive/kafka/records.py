"""Records: without the client's types, read from given offsets, or waited for.

Readers stay open between uses: a new client needs a tenth of a second for its first record, a
connected one some milliseconds.
"""

from __future__ import annotations

import gc
import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from operator import methodcaller
from typing import TYPE_CHECKING, Any, Final, Self

from confluent_kafka import Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as ClientPartition

from redrive.errors import TransientFault
from redrive.kafka.connection import Connection
from redrive.kafka.deadline import LOOK, ONE_TRY, PAUSE, SILENCE, close_client
from redrive.kafka.errors import PASSING, translated
from redrive.messages import Headers, OffsetRange, Records, TopicPartition
from redrive.messages import own_headers as own
from redrive.printable import counted

if TYPE_CHECKING:
    from redrive.masking import Mask

_ask_headers: Final = methodcaller("headers")
"""``Message.headers``, called so that its result is checked. The client may return a list and leave
an exception set; Python's specialized method call does not check that, and the exception then
surfaces anywhere later."""
_CLIENT_FAULTS: Final = (SystemError, ValueError)
"""Errors of the client for headers that it cannot decode: today SystemError; UnicodeDecodeError, a
ValueError, would be right."""


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

    @property
    def original_time(self) -> int:
        """The timestamp of the record that this is a copy of, or its own."""
        original = own.read_own(self.headers).timestamp
        return self.timestamp if original is None else original

    @property
    def place(self) -> str:
        """``topic:partition:offset``."""
        return own.identity(*self.lane, self.offset)

    def masked(self, mask: Mask) -> Self:
        """The record with secrets masked."""
        headers = [(name, mask.header(name, raw)) for name, raw in self.headers]
        key, value = mask.bytes_or_none(self.key), mask.bytes_or_none(self.value)
        return replace(self, key=key, value=value, headers=headers)

    @classmethod
    def of(cls, message: Message) -> Self:
        """A record from the client."""
        place: Any = message.topic(), message.partition(), message.offset()
        key: Any = message.key()
        value: Any = message.value()
        lane = TopicPartition(*place[:2])
        return cls(lane, place[2], message.timestamp()[1], key, value, headers_of(message))


def headers_of(message: Message) -> Headers:
    """The headers of a record, in order; no content makes this raise.

    Kafka's header names are UTF-8, but brokers do not check it. Like Java's and Spark's clients,
    this replaces invalid bytes with U+FFFD. Since that changes the name, ``redrive.unreadable``
    follows with the header's number. The headers of a message are read only once.
    """
    try:
        headers: Any = _ask_headers(message)
    except _CLIENT_FAULTS as fault:
        return _repaired(message, _undecoded(fault))
    return headers or []


def _repaired(message: Message, first: bytes) -> Headers:
    """The headers of a record with names that the client cannot decode.

    The second call of the client returns its list, with pairs that have no name. Unpacking such a
    pair would crash the process; its referents can be listed. ``first`` is the first name that is
    not UTF-8, if the client reported it.
    """
    try:
        pairs: Any = _ask_headers(message)
    except _CLIENT_FAULTS:
        return [(own.UNREADABLE, b"the client gives none of the headers")]
    headers: Headers = []
    undecodable: list[str] = []
    for number, pair in enumerate(pairs, 1):
        name, value = _parts(gc.get_referents(pair))
        if name is None:
            raw = b"" if undecodable else first
            undecodable.append(f"{number} ({ascii(raw)[2:-1]})" if raw else str(number))
            name = raw.decode(errors="replace") or "\ufffd"
        headers.append((name, value))
    problem = f"the name of header {', '.join(undecodable)} is not UTF-8"
    return [*headers, (own.UNREADABLE, problem.encode())]


def _parts(referents: Iterable[object]) -> tuple[str | None, bytes | None]:
    """Name and value of a pair, by their types: the order is not guaranteed."""
    name = value = None
    for referent in referents:
        if isinstance(referent, str):
            name = referent
        elif isinstance(referent, bytes):
            value = referent
    return name, value


def _undecoded(fault: BaseException) -> bytes:
    """The bytes that could not be decoded; empty if the client does not report them."""
    cause: BaseException | None = fault
    while cause is not None:
        if isinstance(cause, UnicodeDecodeError):
            return cause.object
        cause = cause.__cause__
    return b""


END_WAIT: Final = 0.01
"""Seconds for which the broker holds a fetch open at the end of a partition."""
_AT_ONCE: Final = 1_000
"""Messages to take from the client at a time."""
_NAMED: Final = 3
"""Maximum topics in a fault."""
_topic, _partition = methodcaller("topic"), methodcaller("partition")


@dataclass(slots=True)
class RecordRun:
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

    def take(self, most: int, seconds: float) -> Iterator[RecordRun]:
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
    ) -> Iterator[RecordRun]:
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
                lane, position = next(iter(self.positions.items()))
                count = len(self.positions) - 1
                more = f" and {count} other partitions" if count else ""
                raise TransientFault(
                    f"{lane} returned nothing from offset {position} on for {SILENCE:g} s{more}"
                )
            if self.positions and seconds is not None and now - began > seconds:
                left = len(self.positions)
                raise TransientFault(f"{counted(left, 'partition')} not read to the end")

    def close(self) -> None:
        """Close the consumer."""
        close_client(self._consumer.close, "a consumer that reads")

    def _missing(self, ends: Mapping[TopicPartition, int] | None) -> int:
        if ends is None:
            return _AT_ONCE
        return min(_AT_ONCE, sum(ends[lane] - at for lane, at in self.positions.items()))

    def _run(self, lane: TopicPartition, messages: list[Message]) -> RecordRun:
        records = [message for message in messages if message.error() is None]
        # Transaction markers follow the last record of a lane.
        ends = [] if len(records) == len(messages) else [*map(_offset, filter(_is_end, messages))]
        position = self.positions.get(lane)
        if position is not None:
            if records and _offset(records[0]) < position:
                raise TransientFault(f"{lane} restarts before offset {position}")
            behind = [_offset(record) + 1 for record in records[-1:]]
            self.positions[lane] = max([position, *behind, *ends])
        return RecordRun(lane, records, is_last=bool(ends))

    def _cut(self, run: RecordRun, end: int) -> None:
        run.is_last = self.positions[run.lane] >= end
        if run.is_last:
            run.messages = [message for message in run.messages if _offset(message) < end]


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
    ) -> Iterator[RecordRun]:
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
            were deleted.
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


def _runs(connection: Connection, ranges: Iterable[OffsetRange]) -> Iterator[RecordRun]:
    readers = _readers.setdefault((os.getpid(), connection), Readers(connection))
    by_lane = {TopicPartition(offsets.topic, offsets.partition): offsets for offsets in ranges}
    starts = {lane: offsets.start for lane, offsets in by_lane.items()}
    ends = {lane: offsets.end for lane, offsets in by_lane.items()}
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
    if error.retriable() or error.code() in PASSING:
        return False
    raise KafkaException(error)


class Watch:
    """Wakes up when a record arrives on some partitions; ignores its content."""

    def __init__(self, connection: Connection) -> None:
        self._watched: dict[TopicPartition, int] = {}
        self._consumer = Consumer(
            {
                **connection.reader(),
                "isolation.level": "read_committed",
                # One record is enough.
                "fetch.message.max.bytes": 1024,
                "queued.max.messages.kbytes": 1,
                "log_level": 2,
            }
        )

    def wait(self, ends: Mapping[TopicPartition, int], seconds: float) -> None:
        """Wait up to ``seconds`` for a record at or after one of the ends."""
        if self._watched != ends:
            self._watched = dict(ends)
            self._consumer.assign([ClientPartition(*lane, end) for lane, end in ends.items()])
        message = self._consumer.poll(seconds)
        if message is not None and message.error() is not None:
            time.sleep(min(seconds, PAUSE))

    def close(self) -> None:
        """Close the consumer."""
        close_client(self._consumer.close, "the consumer that watches for records")
