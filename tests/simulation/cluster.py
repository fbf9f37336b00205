"""A simulated Kafka cluster: what brokers and coordinators do, without any client.

Transactions with one epoch per transactional id, or with one of their own, a timeout, and markers
that are written after a commit returned and take an offset; consumer groups whose offsets move with
a transaction; topics that come, go, shrink and lose their leader.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from itertools import chain
from typing import Any, ClassVar, Final

from redrive.messages import OutputRecord, TopicPartition, wire_size

TRANSACTION_TIMEOUT: Final = 120.0
"""Seconds after which the coordinator aborts a transaction by itself."""
DELETE_RETENTION: Final = 24 * 3600.0
"""Seconds for which the log cleaner keeps a tombstone."""
DEFAULT_LIMIT: Final = 1_048_588
"""Bytes of the largest batch that a topic takes unless it says otherwise."""


class Fenced(Exception):
    """A newer producer of the id was initialised, or its transaction took too long."""


class Fate(Enum):
    """The end of a transaction."""

    OPEN = auto()
    COMMITTED = auto()
    ABORTED = auto()


_COMMITTED: Final = Fate.COMMITTED


@dataclass(eq=False, slots=True)
class Transaction:
    """One transaction of one transactional id."""

    transactional_id: str
    started: float
    fate: Fate = Fate.OPEN
    lanes: dict[TopicPartition, int] = field(default_factory=dict)
    """Partitions whose marker is not written yet, and the offset of its first record there."""
    offsets: dict[tuple[str, TopicPartition], int] = field(default_factory=dict)
    """Offsets of groups that wait for the marker."""

    @property
    def is_over(self) -> bool:
        """Whether every reader knows its end."""
        return self.fate is not Fate.OPEN and not self.lanes and not self.offsets


@dataclass(slots=True)
class Entry:
    """What lies at one offset."""

    record: OutputRecord | None
    """None for the marker of a transaction."""
    transaction: Transaction | None
    written: float
    """Seconds; the broker's clock."""
    cleaned: float | None = None
    """When the log cleaner came upon a tombstone for the first time."""


@dataclass(eq=False)
class Topic:
    """One topic."""

    name: str
    partitions: int
    identity: str
    limit: int = DEFAULT_LIMIT
    """Bytes of the largest batch of records."""
    packs: bool = True
    """Whether it keeps the compression of a producer; else records are as large as without any."""
    wants_keys: bool = False
    refuses: bytes | None = None
    """The value of records that the broker finds invalid, for reasons that nobody can ask for."""
    may_write: bool = True
    has_leader: bool = True
    leaderless: set[int] = field(default_factory=set)
    """Partitions without a leader, where others have one."""

    def finds_invalid(self, record: OutputRecord) -> bool:
        """Whether the broker takes a record for invalid."""
        return (self.wants_keys and record.key is None) or (
            self.refuses is not None and record.value == self.refuses
        )


@dataclass
class SimulatedCluster:
    """Topics, committed offsets and transactions."""

    identity: ClassVar[str] = "simulated"
    """What brokers tell as the id of the cluster."""
    now: Callable[[], float] = lambda: 0.0
    owners: dict[str, str] = field(default_factory=dict)
    """The process that initialised each transactional id last."""
    writers: dict[str, str] = field(default_factory=dict)
    """The process that wrote last with each transactional id."""
    topics: dict[str, Topic] = field(default_factory=dict)
    logs: dict[TopicPartition, list[Entry]] = field(default_factory=dict)
    starts: dict[TopicPartition, int] = field(default_factory=dict)
    """The oldest offset that is kept, where it is not 0."""
    offsets: dict[tuple[str, TopicPartition], int] = field(default_factory=dict)
    """Committed offsets by group and partition."""
    restarts: int = 0
    """How often the broker was started again: clients from before hold stale metadata."""
    bumps_epochs: bool = False
    """Whether each transaction has an epoch of its own (KIP-890): the coordinator raises it when it
    ends one, and tells the client with the answer."""
    attempted: dict[int, float] = field(default_factory=dict)
    """When attempts were, by the time in milliseconds that the job says of them."""
    processed: dict[tuple[str, int, int], float | None] = field(default_factory=dict)
    """When consumers had processed a record of a topic with an id; None if they failed on it."""
    violations: list[str] = field(default_factory=list)
    """What no correct client does."""
    tables: list[tuple[TopicPartition, str, Entry]] = field(default_factory=list)
    """The tables that the control topic names, each with its lane, and the entry, which a log
    cleaner may empty."""
    on_entry: Callable[[str, Mapping[str, Any]], None] = lambda *_: None
    """Called when the entry of an instance is removed, with its key and what it was."""
    changes: int = 0
    """How often something was written, or a transaction ended."""
    may_move_back: set[TopicPartition] = field(default_factory=set)
    """Partitions whose progress may go back: their topic was made anew."""
    deleted: dict[str, list[Entry]] = field(default_factory=dict)
    """What was on topics that were deleted."""
    incarnations: dict[str, int] = field(default_factory=dict)
    """How many topics of a name there have been, where it is more than one."""
    former_ends: dict[tuple[TopicPartition, int], int] = field(default_factory=dict)
    """Where partitions of these topics ended, by their number."""
    _epochs: dict[str, int] = field(default_factory=dict)
    _initialised: dict[str, float] = field(default_factory=dict)
    """When each transactional id was initialised last."""
    _initialised_by: dict[tuple[str, str], float] = field(default_factory=dict)
    """The same for each process that did."""
    _without_entry: set[str] = field(default_factory=set)
    """Ids of emitters that were initialised when no reader saw that their run may emit."""
    _open: dict[str, Transaction] = field(default_factory=dict)
    _unmarked: list[Transaction] = field(default_factory=list)
    _made: int = 0

    # -- topics --------------------------------------------------------------------------------

    def create(self, name: str, partitions: int = 1, *, wants_keys: bool = False) -> Topic:
        """Makes a topic, or gives it more partitions."""
        topic = self.topics.get(name)
        if topic is None:
            self._made += 1
            topic = Topic(name, partitions, f"id-{self._made}", wants_keys=wants_keys)
            self.topics[name] = topic
        topic.partitions = max(partitions, topic.partitions)
        for number in range(topic.partitions):
            self.logs.setdefault(TopicPartition(name, number), [])
        return topic

    def make_anew(self, name: str, *, keeps_positions: bool = True) -> None:
        """Deletes a topic and makes another of its name.

        Args:
            name: Of the topic.
            keeps_positions: Whether the group's offsets are still there.
        """
        partitions, incarnation = self.topics[name].partitions, self.incarnations.get(name, 1)
        lanes = [TopicPartition(name, number) for number in range(partitions)]
        self.former_ends.update({(lane, incarnation): self.end(lane) for lane in lanes})
        kept = {place: end for place, end in self.offsets.items() if place[1].topic == name}
        self.delete(name)
        self.create(name, partitions)
        self.offsets.update(kept if keeps_positions else {})
        self.may_move_back.update(lanes)
        self.incarnations[name] = incarnation + 1

    def has_leader(self, lane: TopicPartition) -> bool:
        """Whether a partition has a leader, for itself."""
        return lane.partition not in self.topics[lane.topic].leaderless

    def delete(self, name: str) -> None:
        """Removes a topic with everything in it."""
        for number in range(self.topics.pop(name).partitions):
            lane = TopicPartition(name, number)
            self.deleted.setdefault(name, []).extend(self.logs.pop(lane))
            self.starts.pop(lane, None)
            for transaction in [*self._open.values(), *self._unmarked]:
                transaction.lanes.pop(lane, None)
            for place in [place for place in self.offsets if place[1] == lane]:
                del self.offsets[place]

    def lane_of(self, record: OutputRecord) -> TopicPartition:
        """Where the partitioner puts a record."""
        count = self.topics[record.topic].partitions
        if record.partition >= 0:
            return TopicPartition(record.topic, record.partition)
        return TopicPartition(record.topic, zlib.crc32(record.key or b"") % count)

    # -- reading -------------------------------------------------------------------------------

    def end(self, lane: TopicPartition) -> int:
        """The very end of a partition."""
        return len(self.logs[lane])

    def stable_end(self, lane: TopicPartition) -> int:
        """The last stable offset: before the first record of a transaction without its marker."""
        end = len(self.logs[lane])
        if not self.has_open:
            return end
        return min(
            transaction.lanes.get(lane, end)
            for transaction in chain(self._open.values(), self._unmarked)
        )

    def read(
        self, lane: TopicPartition, start: int, end: int, *, committed_only: bool = True
    ) -> Iterator[tuple[int, Entry, OutputRecord]]:
        """The records in ``[start, end)`` that a reader gets to see."""
        return self._records(lane, max(start, self.starts.get(lane, 0)), end, committed_only)

    def _records(
        self,
        lane: TopicPartition,
        start: int,
        end: int,
        committed_only: bool,  # noqa: FBT001
    ) -> Iterator[tuple[int, Entry, OutputRecord]]:
        log = self.logs[lane]
        for offset in range(start, end):
            entry = log[offset]
            record, transaction = entry.record, entry.transaction
            if record is None:
                continue
            if transaction is None or not committed_only or transaction.fate is _COMMITTED:
                yield offset, entry, record

    def visible(self, topic: str) -> Iterator[tuple[TopicPartition, int, Entry, OutputRecord]]:
        """Every committed record of a topic, partition by partition, those that were deleted by a
        purge included."""
        count = self.topics[topic].partitions if topic in self.topics else 0
        for number in range(count):
            lane = TopicPartition(topic, number)
            for offset, entry, record in self._records(lane, 0, self.stable_end(lane), True):  # noqa: FBT003
                yield lane, offset, entry, record

    def visible_before_deletion(self, topic: str) -> Iterator[OutputRecord]:
        """Every committed record of topics of this name that were deleted."""
        for entry in self.deleted.get(topic, ()):
            is_open = entry.transaction and entry.transaction.fate is not Fate.COMMITTED
            if entry.record is not None and not is_open:
                yield entry.record

    def open_records(self, topic: str) -> int:
        """Records of a topic whose transaction is still open or waits for its markers."""
        if not self.has_open:
            return 0
        return sum(
            entry.record is not None
            and entry.transaction is not None
            and lane in entry.transaction.lanes
            for lane, log in self.logs.items()
            if lane.topic == topic
            for entry in log
        )

    def begun(self, prefix: str) -> dict[str, float]:
        """When open transactions were begun, by their ids with a prefix."""
        return {
            name: transaction.started
            for name, transaction in self._open.items()
            if name.startswith(prefix)
        }

    def emits(self, process: str) -> bool:
        """Whether a process has records in an open transaction with an id that is its own.

        One without was begun by a late request.
        """
        return self._has_records(process, self.owners)

    def is_writing(self, process: str) -> bool:
        """Whether a process has written records of an open transaction.

        Upkeep may have initialised the producer with which a batch of its instance writes.
        """
        return self._has_records(process, self.writers)

    def _has_records(self, process: str, processes: Mapping[str, str]) -> bool:
        return any(
            transaction.lanes and processes.get(name) == process
            for name, transaction in self._open.items()
            if not name.endswith("-writer")
        )

    def leave(self, process: str) -> None:
        """Lets a process give up its producers, whatever they have left open."""
        for name, owner in self.owners.items():
            if owner in {process, f"{process}.upkeep"}:
                self.owners[name] = f"{owner}, given up"

    def moving(self, group: str, lane: TopicPartition) -> list[str]:
        """Who is just moving an offset (KIP-447); no process any more once that is decided."""
        if not self.has_open:
            return []
        place = group, lane
        return [
            self.owners.get(transaction.transactional_id, "")
            if transaction.fate is Fate.OPEN
            else ""
            for transaction in [*self._open.values(), *self._unmarked]
            if place in transaction.offsets
        ]

    # -- writing -------------------------------------------------------------------------------

    def append(self, record: OutputRecord) -> None:
        """Writes a record outside of any transaction."""
        self.changes += 1
        entry = Entry(record, None, self.now())
        self.logs[self.lane_of(record)].append(entry)

    def initialise(self, transactional_id: str, owner: str) -> int:
        """Fences older producers of an id, and ends what they left open; the new epoch.

        Args:
            transactional_id: The id.
            owner: The process that asks for it.
        """
        self.expire()
        self.owners[transactional_id] = owner
        self._initialised[transactional_id] = self._initialised_by[transactional_id, owner] = (
            self.now()
        )
        self._note_entry(transactional_id)
        self._finish(transactional_id, Fate.ABORTED)
        self._complete(transactional_id)
        return self._raise_epoch(transactional_id)

    def _note_entry(self, transactional_id: str) -> None:
        """Notes whether an emitter may find its run where runs are written."""
        entries: dict[str, dict[str, Any]] = {}
        for topic in self.topics:
            for *_, record in self.visible(topic) if topic.endswith("-control") else ():
                key = (record.key or b"").decode()
                entries.pop(key, None)
                if record.value is not None:
                    entries[key] = json.loads(record.value)
        runs = {entry["run"] for key, entry in entries.items() if key.startswith("instance/")}
        runs_of_producer = [
            entry["run"]
            for key, entry in entries.items()
            if key.startswith("emitter/")
            and key.endswith(f"/{transactional_id}")
            and "run" in entry
        ]
        if runs_of_producer and runs_of_producer[-1] not in runs:
            self._without_entry.add(transactional_id)
        else:
            self._without_entry.discard(transactional_id)

    def check(self, transactional_id: str, epoch: int) -> None:
        """Raises ``Fenced`` unless this is the newest producer of its id."""
        self.expire()
        if self._epochs.get(transactional_id) != epoch:
            raise Fenced

    def write(self, transactional_id: str, epoch: int, record: OutputRecord) -> None:
        """Writes a record of a transaction."""
        self.changes += 1
        self.check(transactional_id, epoch)
        if transactional_id in self._without_entry:
            self._without_entry.remove(transactional_id)
            self.violations.append(f"{transactional_id} emits, and nobody may have seen its run")
        transaction, lane = self._transaction(transactional_id), self.lane_of(record)
        log = self.logs[lane]
        transaction.lanes.setdefault(lane, len(log))
        log.append(Entry(record, transaction, self.now()))
        kind, _, place = (record.key or b"").decode(errors="replace").partition("/")
        if kind == "instance" and record.value is None:
            for *_, known in reversed(list(self.read(lane, 0, len(log) - 1))):
                if known.key == record.key:
                    self.on_entry(f"instance/{place}", json.loads(known.value or b"{}"))
                    break
        if kind == "emitter" and place.startswith("operator/") and record.value is None:
            self._check_removed(transactional_id, record)
        if kind == "table" and record.value:
            topic, _, number = place.rpartition("/")
            table = json.loads(record.value)["table"]
            self.tables.append((TopicPartition(topic, int(number)), table, log[-1]))

    def _check_removed(self, writer: str, removed: OutputRecord) -> None:
        """A start removes no command that began after it, and that it has not fenced: the next
        start would not know of it."""
        key = (removed.key or b"").decode()
        name = key.split("/", 3)[3]
        for entry in reversed(self.logs[TopicPartition(removed.topic, 0)]):
            known = entry.record
            if (
                known is None
                or known.value is None
                or not (known.key or b"").startswith(b"emitter/")
            ):
                continue
            if (known.key or b"").decode().endswith(f"/{name}"):
                is_later = entry.written > self._initialised[writer]
                fenced_at = self._initialised_by.get((name, self.owners[writer]), 0.0)
                if known.key == removed.key and is_later and fenced_at < entry.written:
                    self.violations.append(f"{writer} removes {key}, which it has not fenced")
                return

    def add_offsets(
        self, transactional_id: str, epoch: int, group: str, ends: Mapping[TopicPartition, int]
    ) -> None:
        """Adds the offsets of a group to a transaction."""
        self.check(transactional_id, epoch)
        transaction = self._transaction(transactional_id)
        transaction.offsets.update({(group, lane): end for lane, end in ends.items()})

    def end_transaction(self, transactional_id: str, epoch: int, fate: Fate) -> int:
        """Decides; markers follow later, for readers to see it. The epoch of what comes next."""
        self.check(transactional_id, epoch)
        self._finish(transactional_id, fate)
        return self._raise_epoch(transactional_id) if self.bumps_epochs else epoch

    def expire(self) -> None:
        """Aborts what was open for too long, and fences its producer."""
        limit = self.now() - TRANSACTION_TIMEOUT
        for name in [
            name for name, transaction in self._open.items() if transaction.started < limit
        ]:
            self._finish(name, Fate.ABORTED)
            self._complete(name)
            self._raise_epoch(name)

    def write_marker(self) -> None:
        """Writes one marker that is due, if there is any."""
        if self._unmarked:
            self._mark(self._unmarked[0])

    def settle(self) -> None:
        """Writes every marker that is due."""
        while self._unmarked:
            self._mark(self._unmarked[0])

    def compact(self, name: str) -> None:
        """Removes what a later record of the same key replaces, and tombstones that it came upon
        longer ago than ``delete.retention.ms``."""
        for lane in [lane for lane in self.logs if lane.topic == name]:
            newest: set[bytes | None] = set()
            for _, entry, record in reversed(list(self.read(lane, 0, self.stable_end(lane)))):
                if record.key in newest or self._is_outdated(entry, record):
                    entry.record = None
                newest.add(record.key)

    def _is_outdated(self, entry: Entry, record: OutputRecord) -> bool:
        """Whether an entry is a tombstone that no reader needs any more."""
        if record.value is not None:
            return False
        if entry.cleaned is None:
            entry.cleaned = self.now()
        return self.now() > entry.cleaned + DELETE_RETENTION

    @property
    def has_open(self) -> bool:
        """Whether a transaction is open or waits for its markers."""
        return bool(self._open or self._unmarked)

    def wire_size(self, record: OutputRecord) -> int:
        """Bytes of a record in a batch."""
        return wire_size(record.key, record.value, record.headers or [])

    def _raise_epoch(self, name: str) -> int:
        self._epochs[name] = self._epochs.get(name, 0) + 1
        return self._epochs[name]

    def _transaction(self, name: str) -> Transaction:
        transaction = self._open.get(name)
        if transaction is None:
            self._complete(name)  # the coordinator lets a new one wait for the markers
            transaction = self._open[name] = Transaction(name, self.now())
        return transaction

    def _finish(self, name: str, fate: Fate) -> None:
        transaction = self._open.pop(name, None)
        self.changes += 1
        if transaction is not None:
            transaction.fate = fate
            if not transaction.is_over:
                self._unmarked.append(transaction)

    def _complete(self, name: str) -> None:
        for transaction in [
            transaction for transaction in self._unmarked if transaction.transactional_id == name
        ]:
            while not transaction.is_over:
                self._mark(transaction)

    def _mark(self, transaction: Transaction) -> None:
        self.changes += 1
        if transaction.lanes:
            lane = min(transaction.lanes)
            del transaction.lanes[lane]
            self.logs[lane].append(Entry(None, transaction, self.now()))
        else:
            offsets, transaction.offsets = transaction.offsets, {}
            if transaction.fate is Fate.COMMITTED:
                self._move(offsets)
        if transaction.is_over:
            self._unmarked.remove(transaction)

    def _move(self, offsets: Mapping[tuple[str, TopicPartition], int]) -> None:
        for place, end in offsets.items():
            lane, before = place[1], self.offsets.get(place, 0)
            if end < before and lane not in self.may_move_back:
                self.violations.append(f"the progress of {lane} went back from {before} to {end}")
            self.offsets[place] = end
