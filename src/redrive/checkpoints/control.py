"""The control topic: which run may emit, the tables of handlers, where lanes began.

The topic has one partition and is compacted. Only starting instances write to it in transactions,
with one transactional id for the whole application, so only one writes at a time: the second fences
the first before it reads, and the first cannot write conclusions from old records. Emitters
register their ids outside of any transaction. So nothing hides committed entries: a writer waits
until readers see them, and a reader never waits.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

import orjson

from redrive.errors import ConfigurationError, FencedFault, OutcomeUnknown, TransientFault
from redrive.kafka.cluster import Cluster, settled_ends
from redrive.kafka.compacted import RARE_END_WAIT, CompactedTopic
from redrive.kafka.producer import KafkaProducer
from redrive.kafka.records import StoredRecord
from redrive.messages import OutputRecord, TopicPartition
from redrive.version import __version__

if TYPE_CHECKING:
    from redrive.checkpoints.protocol import Producer

Entries = dict[str, dict[str, Any]]
"""Key and JSON value of each live entry."""


@dataclass(frozen=True, slots=True)
class TableIdentity:
    """The table of one partition of a dead-letter topic, and what it released."""

    table: str
    """Hash of the rules table."""
    retry_release: int
    """Parked messages below this offset of the retry partition are due at once."""
    remaining_release: int
    """Remaining messages below this offset are to be evaluated again."""
    backoff_releases: Sequence[int] = ()
    """Like ``retry_release``, for each partition where messages wait by BACKOFF."""


class Wait(NamedTuple):
    """How long messages of one partition wait under the current table."""

    release: int
    """Messages below this offset are free at any age."""
    interval: float | None
    """Seconds after its timestamp at which a message is due; None: never by age."""


@dataclass(frozen=True, slots=True)
class TopicIdentity:
    """The topic that the job knows by a name."""

    identity: str
    """Kafka's id of the topic; empty while a topic of that name is awaited."""
    incarnation: int = 1
    """The number of topics of that name that the job has read, including this one."""

    def is_anew(self, known: TopicIdentity | None) -> bool:
        """Whether another topic of this name was read before."""
        return known is not None and self.incarnation > known.incarnation


class LaneBegin(NamedTuple):
    """The beginning of a lane."""

    begin: int
    """The offset at which the job began to read it."""
    topic_id: str
    """Kafka's id of its topic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LostPosition:
    """A lane where the job cannot continue: Kafka no longer has the records at its position."""

    source: str
    """The topic that is read for it; the handler of this topic is stopped."""
    found: int
    """When a start first found it, in milliseconds since 1970."""
    identity: str
    """Kafka's id of the lane's topic."""
    committed: int | None
    """The job's position; None if the broker has lost it."""
    first: int
    """The oldest record on the topic."""
    end: int
    is_anew: bool
    """Whether another topic now has the name."""
    problem: str
    hint: str

    @property
    def gone(self) -> int:
        """How many offsets Kafka has deleted unread, if known."""
        return 0 if self.is_anew else max(0, self.first - (self.committed or 0))

    def is_again(self, known: LostPosition | None) -> bool:
        """Whether an earlier start found the same.

        The broker deletes the position of a deleted topic, sooner or later.
        """
        if known is None or (known.identity, known.is_anew) != (self.identity, self.is_anew):
            return False
        return self.is_anew or known.committed == self.committed


FORMAT: Final = 2
"""Version of an application's stored state: entries of the control topic, headers of parked and
remaining copies, instructions, outcomes. It grows when earlier versions could not read what a later
one writes."""
_TOPIC: Final = "topic/"
_TABLE: Final = "table/"
_LANE: Final = "lane/"
_LOST: Final = "lost/"
_CHANGED: Final = "changed/"
FORMAT_KEY: Final = "format"
"""Key of the entry that holds it."""


class ControlTopic:
    """Reads and writes the control topic; open one, use it, close it."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        """Open the writer, which fences another writing instance and aborts its transaction.

        The topic exists, and the clients of the cluster read it.

        Raises:
            TransientFault: The broker did not answer in time, or another instance opened the topic.
            ConfigurationError: A later version of Redrive has written it.
        """
        self._topic = topic
        self._cluster = cluster
        writer = f"{topic}-writer"
        self._producer = KafkaProducer(cluster.connection.librdkafka(), writer, writer)
        try:
            with _to_be_opened_again():
                self._producer.initialise()
            self._await_readers()
            self.entries: Entries = read_entries(cluster, topic)
            check_format(self.entries, topic)
        except BaseException:
            self._producer.close()
            raise

    def close(self) -> None:
        """Close the writer."""
        self._producer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def write(self, entries: Mapping[str, Mapping[str, Any] | None]) -> None:
        """Write entries in one transaction, until readers see them; None removes an entry.

        Raises:
            TransientFault: Another instance opened the topic for writing meanwhile, or the broker
                gave no answer in time. Open the topic again.
        """
        if not entries:
            return
        if self.entries.get(FORMAT_KEY) != format_entry():
            entries = {**entries, FORMAT_KEY: format_entry()}
        now = int(time.time() * 1000)
        outputs = [
            (0, OutputRecord(self._topic, key.encode(), value_of(value), None, now, 0))
            for key, value in entries.items()
        ]
        # A late copy of an earlier commit is harmless: the entries are one produce batch, and an
        # instance that cannot commit reopens the topic and reads it.
        with _to_be_opened_again():
            commit_records(self._producer, outputs, f"the control topic {self._topic}")
        self._await_readers()
        for key, value in entries.items():
            if value is None:
                self.entries.pop(key, None)
            else:
                self.entries[key] = dict(value)

    def registered(self, prefix: str) -> dict[str, dict[str, Any]]:
        """The entries of emitters, to the very end of the topic, including open transactions."""
        everything = read_entries(self._cluster, self._topic, to_the_very_end=True)
        return {key: entry for key, entry in everything.items() if key.startswith(prefix)}

    def _await_readers(self) -> None:
        """Wait until a newly opened emitter would read everything that is committed."""
        settled_ends(self._cluster, [TopicPartition(self._topic, 0)])

    def table_of(self, lane: TopicPartition) -> TableIdentity | None:
        """The table that last decided on a partition of a dead-letter topic."""
        entry = self.entries.get(_lane_key(_TABLE, lane))
        with contextlib.suppress(TypeError):
            return None if entry is None else TableIdentity(**entry)
        return None

    def set_tables(
        self,
        tables: Mapping[TopicPartition, TableIdentity],
        more: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        """Record the current tables by partition of a dead-letter topic.

        Other entries may go into the same transaction. Errors as for ``write``.
        """
        entries = {_lane_key(_TABLE, lane): asdict(identity) for lane, identity in tables.items()}
        self.write({**entries, **(more or {})})

    def topic_of(self, name: str) -> TopicIdentity | None:
        """The topic of a name when positions were last committed; None if unknown."""
        entry = self.entries.get(f"{_TOPIC}{name}")
        with contextlib.suppress(TypeError):
            return None if entry is None else TopicIdentity(**entry)
        return None

    def set_topics(self, topics: Mapping[str, TopicIdentity]) -> None:
        """Record topics; raises ``TransientFault``."""
        self.write({f"{_TOPIC}{name}": asdict(topic) for name, topic in topics.items()})

    def begin_of(self, lane: TopicPartition) -> int | None:
        """Where a lane began when it was first seen; None if never seen."""
        begin = self.entries.get(_lane_key(_LANE, lane), {}).get("begin")
        return begin if isinstance(begin, int) else None

    def lost(self) -> dict[TopicPartition, LostPosition]:
        """The lanes whose position was lost at the last start."""
        return lost_positions(self.entries)

    def set_lost(self, lost: Mapping[TopicPartition, LostPosition | None]) -> None:
        """Record lost positions, and None for recovered ones; raises ``TransientFault``."""
        self.write(
            {
                _lane_key(_LOST, lane): asdict(position) if position else None
                for lane, position in lost.items()
            }
        )

    def topic_id_of(self, lane: TopicPartition) -> str:
        """Kafka's id of the topic that a lane began with; empty if an earlier version noted none.

        Instances start one after the other, so it is known by lane and not only by topic.
        """
        return str(self.entries.get(_lane_key(_LANE, lane), {}).get("topic_id", ""))

    def first_end_of(self, lane: TopicPartition) -> int:
        """Where a lane ended before the job's first decision about its topic; 0 if unknown."""
        end = self.entries.get(_lane_key(_LANE, lane), {}).get("end")
        return end if isinstance(end, int) else 0

    def set_begins(
        self, begins: Mapping[TopicPartition, LaneBegin], ends: Mapping[TopicPartition, int]
    ) -> None:
        """Record where new lanes begin, and ``first_end_of`` some; raises ``TransientFault``."""
        self.write(
            {
                _lane_key(_LANE, lane): begin._asdict()
                | ({"end": ends[lane]} if lane in ends else {})
                for lane, begin in begins.items()
            }
        )


class TableFollower:
    """Follows what changed tables release during one run.

    Its answers must be exact: a plan must not read messages that the new table parked by the delays
    of the old one, nor replay instructions about messages that the new table evaluates.
    """

    def __init__(self, cluster: Cluster, topic: str, share: str, run: int) -> None:
        """Follow one run of a share; changes within other runs do not count."""
        self._topic = CompactedTopic(cluster, TopicPartition(topic, 0), end_wait=RARE_END_WAIT)
        self._key, self._run = changed_key(share), run
        self._waits: Mapping[TopicPartition, Wait] = {}

    def waits(self) -> Mapping[TopicPartition, Wait]:
        """The lanes of changed tables; the same value while nothing changes.

        It has every change that was complete before this call.

        Raises:
            TransientFault: The broker did not answer in time.
        """
        for record in self._topic.visible():
            if key_of(record) == self._key and record.value is not None:
                self._take(orjson.loads(record.value))
        return self._waits

    def _take(self, entry: Mapping[str, Any]) -> None:
        if entry["run"] == self._run:
            self._waits = {
                TopicPartition(topic, int(partition)): Wait(*wait)
                for topic, partitions in entry["lanes"].items()
                for partition, wait in partitions.items()
            }


def changed_key(share: str) -> str:
    """Key of the entry about what changed tables release within the run of a share."""
    return f"{_CHANGED}{share}"


def changed_entry(run: int, waits: Mapping[TopicPartition, Wait]) -> Mapping[str, Any]:
    """The entry for ``TableFollower``, with all lanes where messages wait in a run."""
    lanes: dict[str, dict[str, list[float | None]]] = {}
    for lane, wait in waits.items():
        lanes.setdefault(lane.topic, {})[str(lane.partition)] = [*wait]
    return {"run": run, "lanes": lanes}


def format_entry() -> Mapping[str, Any]:
    """The entry with the state version of this release."""
    return {"format": FORMAT, "version": __version__}


def check_format(entries: Mapping[str, Mapping[str, Any]], topic: str) -> None:
    """Refuse state that this release cannot read; state without an entry is readable.

    Raises:
        ConfigurationError: A later version has written the control topic.
    """
    entry = entries.get(FORMAT_KEY, {})
    number = entry.get("format", FORMAT)
    if not isinstance(number, int) or number > FORMAT:
        raise ConfigurationError(
            f"{topic} was written by redrive {entry.get('version', 'of a later version')} in the"
            f" format {number}; redrive {__version__} reads up to {FORMAT}",
            hint="run that version again, or a later one: nothing is lost meanwhile",
        )


def lost_positions(entries: Mapping[str, Mapping[str, Any]]) -> dict[TopicPartition, LostPosition]:
    """The lanes with a lost position, by the entries of the control topic."""
    positions = {}
    for key, entry in entries.items():
        topic, _, partition = key.removeprefix(_LOST).rpartition("/")
        if key.startswith(_LOST) and partition.isdecimal():
            with contextlib.suppress(TypeError):
                positions[TopicPartition(topic, int(partition))] = LostPosition(**entry)
    return positions


def read_entries(cluster: Cluster, topic: str, *, to_the_very_end: bool = False) -> Entries:
    """The live entries of a control topic, or of a topic in the same form, as readers see them.

    With ``to_the_very_end``, records of open and aborted transactions are included.

    Raises:
        TransientFault: The broker did not answer in time.
    """
    entries: Entries = {}
    for key, value in read_pairs(cluster, topic, committed_only=not to_the_very_end):
        set_entry(entries, key, value)
    return entries


def read_pairs(
    cluster: Cluster, topic: str, *, committed_only: bool
) -> Iterator[tuple[str, bytes | None]]:
    """Keys and values of a topic with one partition, up to its present end, oldest first.

    With ``committed_only``, records of open and aborted transactions are left out.

    Raises:
        TransientFault: The broker did not answer in time.
    """
    lane = TopicPartition(topic, 0)
    ends = cluster.ends([lane], committed_only=committed_only)
    for record in cluster.read({lane: 0}, ends, committed_only=committed_only):
        yield key_of(record), record.value


def key_of(record: StoredRecord) -> str:
    """The key of an entry."""
    return (record.key or b"").decode(errors="replace")


def set_entry(entries: Entries, key: str, value: bytes | None) -> None:
    """Add an entry; without a value it is removed, and an entry of another form is ignored."""
    if value is None:
        entries.pop(key, None)
        return
    with contextlib.suppress(orjson.JSONDecodeError):
        content = orjson.loads(value)
        if isinstance(content, dict):
            entries[key] = content


def register(cluster: Cluster, topic: str, key: str, value: Mapping[str, Any] | None) -> None:
    """Write one entry outside of any transaction, and wait until it is there; None removes it.

    Raises:
        TransientFault: The broker did not answer in time.
    """
    cluster.append(topic, [(key.encode(), value_of(value))])


def commit_records(
    producer: Producer, records: Sequence[tuple[int, OutputRecord]], what: str
) -> None:
    """Write records in one transaction of a producer that is open.

    The producer must be reopened after any fault, which names ``what`` was to be written.

    Raises:
        TransientFault: They were refused, or the broker gave no answer in time.
        FencedFault: Another producer of this id was opened.
        OutcomeUnknown: The answer to the commit was lost.
    """
    producer.begin()
    producer.produce(records)
    report = producer.flush()
    if report.may_commit:
        report = producer.commit()
    if not report.may_commit:
        detail = report.failed[0].detail if report.failed else "records were refused"
        raise TransientFault(f"{what} cannot be written: {detail}")


@contextlib.contextmanager
def _to_be_opened_again() -> Iterator[None]:
    """A lost answer as a transient fault: reopening the topic settles it."""
    try:
        yield
    except FencedFault as fault:
        raise TransientFault(
            "another instance of this application is starting",
            hint="start this one again",
        ) from fault
    except OutcomeUnknown as fault:
        raise TransientFault(fault.message, hint=fault.hint) from fault


def is_table_of(key: str, topic: str) -> bool:
    """Whether an entry names the table of a partition of a topic; see ``set_tables``."""
    return key.startswith(_TABLE) and key.removeprefix(_TABLE).rpartition("/")[0] == topic


def value_of(value: Mapping[str, Any] | None) -> bytes | None:
    """The value of the record of an entry; None removes the entry."""
    return None if value is None else orjson.dumps(value)


def _lane_key(kind: str, lane: TopicPartition) -> str:
    return f"{kind}{lane.topic}/{lane.partition}"
