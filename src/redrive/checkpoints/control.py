"""The control topic: which run may emit, which tables decided, where lanes began (design 6).

The topic has one partition and is compacted. Whoever writes entries opens a producer with one
transactional id for the whole application, so that two starting instances take turns: the second
fences the first before it reads, and the first cannot write what it concluded from old records.
Emitters register their ids beside that, outside of any transaction.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Self

import orjson

import redrive
from redrive.errors import ConfigurationError, FencedFault, OutcomeUnknown, TransientFault
from redrive.kafka.compacted import CompactedTopic, append_record
from redrive.kafka.connection import Connection
from redrive.kafka.producer import KafkaProducer
from redrive.messages import OutputRecord, TopicPartition

Entries = dict[str, dict[str, Any]]
"""Key and JSON value of each live entry."""


@dataclass(frozen=True, slots=True)
class TableIdentity:
    """The table that decides on one partition of a dead-letter topic, and what it set free."""

    table: str
    """Hash of the rules table."""
    retry_release: int
    """Parked messages below this offset of the retry partition are due at once."""
    remaining_release: int
    """Remaining messages below this offset are to be evaluated again."""
    backoff_releases: Sequence[int] = ()
    """As ``retry_release``, for each partition where messages wait by BACKOFF."""


@dataclass(frozen=True, slots=True)
class TopicIdentity:
    """Which topic of a name the job knows."""

    identity: str
    """Kafka's id of the topic; empty while a topic of that name is awaited."""
    incarnation: int = 1
    """How many topics of that name the job has read, this one included."""

    def is_anew(self, known: TopicIdentity | None) -> bool:
        """Whether another topic of this name was read before."""
        return known is not None and self.incarnation > known.incarnation


FORMAT: Final = 1
"""The form in which an application keeps its state: entries of the control topic, headers of parked
and remaining copies, instructions, outcomes. It grows when an earlier version could not read what a
later one writes."""
FORMAT_KEY: Final = "format"
"""Key of the entry that says so."""


class ControlTopic:
    """Reads and writes the control topic; open one, use it, close it."""

    def __init__(self, connection: Connection, topic: str) -> None:
        """Opens the writer, which fences an instance that is about to write.

        Raises:
            TransientFault: The broker gave no answer in time, or another instance opened the topic.
            ConfigurationError: A later version of Redrive has written it.
        """
        self._topic = topic
        self._connection = connection
        self._producer = KafkaProducer(
            connection.librdkafka(), f"{topic}-writer", f"{topic}-writer"
        )
        try:
            with _to_be_opened_again():
                self._producer.initialise()
            self.entries: Entries = read_entries(connection, topic)
            check_format(self.entries, topic)
        except BaseException:
            self._producer.close()
            raise

    def close(self) -> None:
        """Lets go of the writer."""
        self._producer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def write(self, entries: Mapping[str, Mapping[str, Any] | None]) -> None:
        """Writes entries in one transaction; None removes an entry.

        Raises:
            TransientFault: Another instance opened the topic for writing meanwhile, or the broker
                gave no answer in time. Open the topic again.
        """
        if not entries:
            return
        if self.entries.get(FORMAT_KEY) != _format_entry():
            entries = {**entries, FORMAT_KEY: _format_entry()}
        now = int(time.time() * 1000)
        outputs = [
            (0, OutputRecord(self._topic, key.encode(), _content(value), None, now, 0))
            for key, value in entries.items()
        ]
        # A late copy of an earlier commit does no harm here: the entries are one produce batch, and
        # whoever can't commit opens the topic again and reads what is there.
        with _to_be_opened_again():
            self._producer.begin()
            self._producer.produce(outputs)
            report = self._producer.flush()
            if report.may_commit:
                report = self._producer.commit()
        if not report.may_commit:
            detail = report.failed[0].detail if report.failed else "records were refused"
            raise TransientFault(f"the control topic {self._topic} can't be written: {detail}")
        for key, value in entries.items():
            if value is None:
                self.entries.pop(key, None)
            else:
                self.entries[key] = dict(value)

    def registered(self, prefix: str) -> dict[str, dict[str, Any]]:
        """The entries of emitters, to the very end of the topic, whatever is open there."""
        everything = read_entries(self._connection, self._topic, to_the_very_end=True)
        return {key: entry for key, entry in everything.items() if key.startswith(prefix)}

    def table_of(self, lane: TopicPartition) -> TableIdentity | None:
        """The table that last decided on a partition of a dead-letter topic."""
        entry = self.entries.get(_table_key(lane))
        with contextlib.suppress(TypeError):
            return None if entry is None else TableIdentity(**entry)
        return None

    def set_tables(self, tables: Mapping[TopicPartition, TableIdentity]) -> None:
        """Records the tables that decide from now on; errors as for ``write``."""
        self.write({_table_key(lane): asdict(identity) for lane, identity in tables.items()})

    def topic_of(self, name: str) -> TopicIdentity | None:
        """The topic of a name when positions were last committed; None if never looked for."""
        entry = self.entries.get(_topic_key(name))
        with contextlib.suppress(TypeError):
            return None if entry is None else TopicIdentity(**entry)
        return None

    def set_topics(self, topics: Mapping[str, TopicIdentity]) -> None:
        """Records topics; errors as for ``write``."""
        self.write({_topic_key(name): asdict(one) for name, one in topics.items()})

    def begin_of(self, lane: TopicPartition) -> int | None:
        """Where a lane began when it was first seen; None if it never was."""
        begin = self.entries.get(_lane_key(lane), {}).get("begin")
        return begin if isinstance(begin, int) else None

    def set_begins(self, begins: Mapping[TopicPartition, int]) -> None:
        """Records where new lanes begin; errors as for ``write``."""
        self.write({_lane_key(lane): {"begin": offset} for lane, offset in begins.items()})


def _format_entry() -> Mapping[str, Any]:
    """The entry that says in which form this version keeps the state."""
    return {"format": FORMAT, "version": redrive.__version__}


def check_format(entries: Mapping[str, Mapping[str, Any]], topic: str) -> None:
    """Refuses the state of an application that this version can't read; without an entry it can.

    Args:
        entries: Of the control topic.
        topic: The control topic.

    Raises:
        ConfigurationError: A later version has written it.
    """
    entry = entries.get(FORMAT_KEY, {})
    found = entry.get("format", FORMAT)
    if not isinstance(found, int) or found > FORMAT:
        raise ConfigurationError(
            f"{topic} was written by redrive {entry.get('version', 'of a later version')} in the"
            f" format {found}; redrive {redrive.__version__} reads up to {FORMAT}",
            hint="run that version again, or a later one: nothing is lost meanwhile",
        )


def read_entries(connection: Connection, topic: str, *, to_the_very_end: bool = False) -> Entries:
    """The live entries of a control topic.

    Args:
        connection: The cluster.
        topic: The control topic.
        to_the_very_end: Whether records of open and aborted transactions count too.

    Raises:
        TransientFault: The broker gave no answer in time.
    """
    entries: Entries = {}
    with CompactedTopic(connection, topic, committed_only=not to_the_very_end) as compacted:
        for key, value in compacted.read_to_end():
            if value is None:
                entries.pop(key, None)
                continue
            with contextlib.suppress(orjson.JSONDecodeError):
                content = orjson.loads(value)
                if isinstance(content, dict):
                    entries[key] = content
    return entries


def register(connection: Connection, topic: str, key: str, value: Mapping[str, Any]) -> None:
    """Writes one entry outside of any transaction, and waits until it is there.

    Raises:
        TransientFault: The broker gave no answer in time.
    """
    append_record(connection, topic, key.encode(), orjson.dumps(value))


@contextlib.contextmanager
def _to_be_opened_again() -> Iterator[None]:
    """What a lost answer left open is settled by opening the topic again, so it is transient."""
    try:
        yield
    except FencedFault as fault:
        raise TransientFault(
            "another instance of this application is starting at this moment",
            hint="start this one again",
        ) from fault
    except OutcomeUnknown as fault:
        raise TransientFault(fault.message, hint=fault.hint) from fault


def _content(value: Mapping[str, Any] | None) -> bytes | None:
    return None if value is None else orjson.dumps(value)


def _topic_key(name: str) -> str:
    return f"topic/{name}"


def _table_key(lane: TopicPartition) -> str:
    return f"table/{lane.topic}/{lane.partition}"


def _lane_key(lane: TopicPartition) -> str:
    return f"lane/{lane.topic}/{lane.partition}"
