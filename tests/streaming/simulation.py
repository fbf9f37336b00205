"""A simulated cluster that drives the job's own protocol, handlers and attempts.

It models what the protocol relies on: transactions that become visible as a whole, one epoch per
transactional id, committed offsets that move with a transaction. Everything can fail at every call,
before or after it took effect, and the process can die there.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from redrive.checkpoints.protocol import Emitter, Flushed, Spoiled
from redrive.decisions.attempts import Attempts
from redrive.decisions.handlers import Handler
from redrive.decisions.processor import LaneRecords, Role, Summary
from redrive.errors import FatalFault, OutcomeUnknown, TransientFault
from redrive.messages import DeadLetterDecoder, OutputRecord, Records, Refused, TopicPartition
from redrive.messages import own_headers as own
from redrive.rules import RulesTable
from redrive.streaming.wait import WaitRule
from redrive.topology.names import HandlerIdentity
from redrive.topology.put import Destination, QueueLimits, Refusal

OUTCOMES = "outcomes"


class ProcessDied(Exception):
    """The process was killed at this point."""


class Chaos:
    """Decides at every call whether something breaks, from one seed."""

    def __init__(self, seed: int, rate: float) -> None:
        self._random = random.Random(seed)
        self._rate = rate
        self.breaks = 0

    def before(self) -> None:
        """Breaks before a call took effect."""
        if self._random.random() < self._rate:
            self.breaks += 1
            raise self._random.choice([TransientFault("lost request"), ProcessDied()])

    def after(self) -> None:
        """Breaks after a call took effect: its answer is lost."""
        if self._random.random() < self._rate:
            self.breaks += 1
            raise self._random.choice([OutcomeUnknown("lost answer"), ProcessDied()])


class Calm(Chaos):
    """Nothing breaks."""

    def __init__(self) -> None:
        super().__init__(0, 0.0)


@dataclass
class SimulatedCluster:
    """Topics, committed offsets and transactions."""

    topics: dict[TopicPartition, list[OutputRecord]] = field(default_factory=dict)
    offsets: dict[TopicPartition, int] = field(default_factory=dict)
    epochs: dict[str, int] = field(default_factory=dict)
    refuse: Callable[[OutputRecord], int | None] = lambda _record: None
    """The reason code with which the broker refuses a record, if it does."""

    def records(self, topic: str) -> list[OutputRecord]:
        """Everything visible in a topic, partition by partition."""
        return [
            record
            for lane in sorted(self.topics)
            if lane.topic == topic
            for record in self.topics[lane]
        ]

    def append(self, record: OutputRecord) -> None:
        """Makes a record visible."""
        lane = TopicPartition(record.topic, max(record.partition, 0))
        self.topics.setdefault(lane, []).append(record)

    def committed(self, lanes: Sequence[TopicPartition]) -> Mapping[TopicPartition, int | None]:
        """The seam ``CommittedOffsets``."""
        return {lane: self.offsets.get(lane) for lane in lanes}


class SimulatedProducer:
    """The seam ``Producer`` on a simulated cluster."""

    def __init__(self, cluster: SimulatedCluster, name: str, chaos: Chaos) -> None:
        chaos.before()
        cluster.epochs[name] = cluster.epochs.get(name, 0) + 1
        self._cluster, self._name, self._chaos = cluster, name, chaos
        self._epoch = cluster.epochs[name]
        self._records: list[tuple[int, OutputRecord]] = []
        self._ends: dict[TopicPartition, int] = {}
        self._with_reports = True
        self._refused: list[Refused] = []
        self._again = False
        chaos.after()

    def begin(self) -> None:
        self._guard()
        self._records, self._ends = [], {}

    def produce(
        self, outputs: Iterable[tuple[int, OutputRecord]], *, with_reports: bool = True
    ) -> None:
        self._guard()
        self._with_reports = with_reports
        self._records.extend(outputs)
        self._chaos.after()

    def flush(self) -> Flushed:
        self._guard()
        # What is produced again with reports is refused again: a put is asked about once.
        if not self._again:
            self._refused = self._refused_now()
        self._again = False
        if not self._with_reports:
            return Flushed()
        return Flushed(tuple(self._refused), bool(self._refused))

    def _refused_now(self) -> list[Refused]:
        return [
            Refused(entry, reason, "refused by the simulation")
            for entry, record in self._records
            if (reason := self._cluster.refuse(record)) is not None
        ]

    def send_offsets(self, ends: Mapping[TopicPartition, int]) -> None:
        self._guard()
        self._ends = dict(ends)
        self._chaos.after()

    def commit(self) -> None:
        self._guard()
        if not self._with_reports and self._refused:
            self._again = True
            raise Spoiled("refused by the simulation")
        for _, record in self._records:
            self._cluster.append(record)
        self._cluster.offsets.update(self._ends)
        self._chaos.after()

    def abort(self) -> None:
        self._guard()
        self._records, self._ends = [], {}

    def close(self) -> None:
        """Leaves an open transaction to be aborted."""

    def _guard(self) -> None:
        self._chaos.before()
        if self._cluster.epochs[self._name] != self._epoch:
            raise FatalFault("fenced")


class SimulatedClock:
    """A clock that only waiting moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class OpenQueues:
    """Every queue exists and takes everything."""

    def max_message_bytes(self, topic: str) -> int:
        del topic
        return 1 << 40

    def depth(self, topic: str, limits: QueueLimits) -> int | None:
        del topic, limits
        return None


def resolve_anything(queue_manager: str, queue: str) -> Destination | Refusal:
    """A resolver for which every queue with a name exists."""
    if not queue:
        return Refusal(2085, "the queue name is blank")
    return Destination(topic=queue, queue=queue, queue_manager=queue_manager)


class SimulatedJob:
    """One handler on a simulated cluster; what Spark does is one call of ``step``."""

    def __init__(
        self,
        cluster: SimulatedCluster,
        table: RulesTable,
        *,
        chaos: Chaos | None = None,
        resolve: Callable[[str, str], Destination | Refusal] = resolve_anything,
        partitions: int = 1,
        started: float = 0.0,
    ) -> None:
        self.cluster = cluster
        self.table = table
        self.identity = HandlerIdentity(
            name="dlq", queue_manager="", queue="DLQ", topic="DLQ",
            retry_topic="DLQ-retry", remaining_topic="DLQ-remaining",
        )  # fmt: skip
        self.handler = Handler(
            self.identity, table, lambda manager, queue, _: resolve(manager, queue), hop_limit=25
        )
        self.partitions = partitions
        self.interval = table.control.retry_interval
        chaos = chaos or Calm()
        self.emitter = Emitter(
            lambda: SimulatedProducer(cluster, "job", chaos), cluster, SimulatedClock()
        )
        seconds = table.control.wait.seconds
        self.wait = WaitRule({"dlq": None if seconds is None else float(seconds)}, started)
        self.released = {
            lane: len(cluster.topics.get(lane, ()))
            for number in range(partitions)
            for lane in (
                TopicPartition(self.identity.retry_topic, number),
                TopicPartition(self.identity.remaining_topic, number),
            )
        }
        self.keep_releases = False

    def step(self, now: float, limit: int = 1_000_000) -> Summary | None:
        """One micro-batch of at most ``limit`` records a lane; None if nothing is due."""
        parts = [part for part in self._lanes(now, limit) if part.records.offsets]
        if not parts:
            return None
        work = Attempts(
            parts,
            ends_of(parts),
            DeadLetterDecoder(),
            OpenQueues(),
            outcomes_topic=OUTCOMES,
            now=int(now * 1000),
        )
        self.emitter.emit(work)
        self.wait.useful(["dlq"], now)
        return work.summary()

    def due_at(self) -> float | None:
        """When the next parked message is due."""
        times = [
            self._due(self.cluster.topics[lane][at])
            for number in range(self.partitions)
            for lane in [TopicPartition(self.identity.retry_topic, number)]
            for at in [self.cluster.offsets.get(lane, 0)]
            if at < len(self.cluster.topics.get(lane, ()))
        ]
        return min(times, default=None)

    def _due(self, record: OutputRecord) -> float:
        return record.timestamp / 1000 + self.interval

    def _lanes(self, now: float, limit: int) -> Iterable[LaneRecords]:
        for number in range(self.partitions):
            letters = TopicPartition(self.identity.topic, number)
            end = len(self.cluster.topics.get(letters, ()))
            yield self._lane(letters, Role.DEAD_LETTERS, end, limit)
            retries = TopicPartition(self.identity.retry_topic, number)
            yield self._lane(retries, Role.RETRIES, self._free(retries, now), limit)
            remaining = TopicPartition(self.identity.remaining_topic, number)
            free = self.released.get(remaining, 0)
            yield self._lane(remaining, Role.REMAINING, free, limit)

    def _free(self, lane: TopicPartition, now: float) -> int:
        records = self.cluster.topics.get(lane, [])
        free = self.released.get(lane, 0) if self.keep_releases else 0
        while free < len(records) and self._due(records[free]) <= now:
            free += 1
        return free

    def _lane(self, lane: TopicPartition, role: Role, end: int, limit: int) -> LaneRecords:
        start = self.cluster.offsets.get(lane, 0)
        end = max(start, min(end, start + limit))
        rows = self.cluster.topics.get(lane, [])[start:end]
        records = Records(
            keys=[row.key for row in rows],
            values=[row.value for row in rows],
            headers=[list(row.headers or []) for row in rows],
            timestamps=[row.timestamp for row in rows],
            offsets=list(range(start, end)),
        )
        return LaneRecords(lane, self.handler, role, records)


def ends_of(parts: Iterable[LaneRecords]) -> dict[TopicPartition, int]:
    """The next offset of each lane once its records are done."""
    return {part.lane: part.records.offsets[-1] + 1 for part in parts}


def identity_of(record: OutputRecord) -> str:
    """The identity that a record of the job carries."""
    return own.read_own(record.headers or []).identity
