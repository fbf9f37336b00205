"""Where a job stands: what waits, what became of the rest, and how fast (``redrive status``).

Kafka tells what waits where; the outcomes tell what became of what. Numbers of parked and of
remaining messages are counted by outcomes, what went in less what came out, because offsets on
topics that are written in transactions count more than messages.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from redrive.engine.names import message_retry_topic, remaining_topic
from redrive.engine.outcome import UNTOUCHED, Result
from redrive.errors import EnvironmentFault, TransientFault
from redrive.kafka.cluster import Cluster, without_leader
from redrive.kafka.deadline import CONNECT, GLIMPSE
from redrive.kafka.records import StoredRecord
from redrive.messages import NO_VALID_SCHEME, TopicPartition
from redrive.outcomes.ledger import Batch, Flow, Ledger
from redrive.outcomes.put_sources import put_sources
from redrive.outcomes.rows import moment
from redrive.rules import parse

if TYPE_CHECKING:
    from redrive.configuration import HandlerConfiguration, JobConfiguration
    from redrive.engine.names import HandlerIdentity

_BATCHES: Final = 5


class Precision(StrEnum):
    """How far a number is to be believed."""

    EXACT = "exact"
    AT_MOST = "at most"
    """Counted by offsets, which outcomes did not confirm."""
    LAST_KNOWN = "last known"
    """The broker can't be asked."""
    UNKNOWN = "unknown"
    """Neither can the ledger be read."""


class Count(NamedTuple):
    """A number of messages."""

    number: int | None
    """None if nothing is known of it."""
    precision: Precision


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerStatus:
    """One handler: one dead-letter queue with one rules table."""

    identity: HandlerIdentity
    topic_exists: bool | None
    """None if the broker can't be asked."""
    depth: int | None
    """Dead letters not read yet: the lag of the application's group; None if unknown."""
    parked: Count
    """Messages that wait for their next attempt."""
    next_due: datetime | None
    """When the next of them is tried; None if none waits or it is unknown."""
    remaining: Count
    """Messages that no rule can place."""
    invalid: int | None
    """Those of them without a valid dead-letter header; None if outcomes are not known."""
    oldest: datetime | None
    """Time of the oldest dead letter among the first that wait in each partition."""
    totals: Mapping[str, int]
    """Outcomes by result, of all times."""
    last_hour: Mapping[str, int]
    last_minute: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class PutsStatus:
    """The puts that a job routes: what applications put, and what channels move."""

    undelivered: Mapping[str, int]
    """Messages that could be put nowhere, by the queue on which they wait."""
    retried: Mapping[str, int]
    """Messages that a channel's receiver tries to put again (MRRTY), likewise."""
    totals: Mapping[str, int]
    """Outcomes by result, of all times."""
    last_hour: Mapping[str, int]
    last_minute: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """One job at one moment."""

    application: str
    time: datetime
    instances: tuple[str, ...] | None
    """``host:process`` of those that run now; None if unknown."""
    handlers: tuple[HandlerStatus, ...]
    puts: PutsStatus | None
    """None if the job routes no puts."""
    batches: tuple[Batch, ...]
    """The last ones, newest first."""
    outcomes: int | None
    """Outcomes known; None if they could not be read."""
    unprojected: int
    """Those of them that the ledger does not hold yet."""
    notes: tuple[str, ...]
    """What could not be found out, and why."""


def status_of(configuration: JobConfiguration, *, now: datetime | None = None) -> Status:
    """Asks the broker and the ledger where a job stands.

    Args:
        configuration: The job.
        now: The end of the last minute and hour; None for this moment.

    Raises:
        EnvironmentFault: The ledger is there and can't be read, nor can the broker be asked.
    """
    now = now or datetime.now(UTC)
    queues, notes = _Queues.of(configuration)
    told = _Outcomes.of(configuration, queues, now)
    return Status(
        application=configuration.application,
        time=now,
        instances=queues.instances,
        handlers=tuple(_handler(handler, queues, told) for handler in configuration.handlers),
        puts=_puts(configuration, told),
        batches=told.batches,
        outcomes=told.totals.total() if told.is_known else None,
        unprojected=told.unprojected,
        notes=(*notes, *told.notes),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Outcomes:
    """What the outcomes of a job tell, as far as they could be read."""

    totals: Counter[Flow] = field(default_factory=Counter)
    hour: Counter[Flow] = field(default_factory=Counter)
    minute: Counter[Flow] = field(default_factory=Counter)
    batches: tuple[Batch, ...] = ()
    unprojected: int = 0
    is_known: bool = False
    """Whether there is anything that they could be read from."""
    notes: Sequence[str] = ()
    """Why some may be missing."""

    @classmethod
    def of(cls, configuration: JobConfiguration, queues: _Queues, now: datetime) -> Self:
        """Reads the ledger and what it does not hold yet; errors as for ``status_of``."""
        try:
            ledger, notes = _open_ledger(configuration, queues)
            flows = ledger.flows(now - timedelta(hours=1), now - timedelta(minutes=1))
            totals, hour, minute = flows
            return cls(
                totals=totals,
                hour=hour,
                minute=minute,
                batches=tuple(ledger.last_batches(_BATCHES)),
                unprojected=len(ledger.tail),
                is_known=ledger.table is not None or queues.cluster is not None,
                notes=notes,
            )
        except EnvironmentFault as fault:
            # What waits is the broker's to tell, and how the job is is not the ledger's.
            if queues.cluster is None:
                raise
            return cls(notes=[f"{fault.message}; results are not known ({fault.hint})"])


def _open_ledger(configuration: JobConfiguration, queues: _Queues) -> tuple[Ledger, list[str]]:
    path, topic = configuration.ledger.path, configuration.outcomes_topic
    try:
        ledger = Ledger.open(path, queues.cluster, topic=topic, seconds=GLIMPSE)
    except TransientFault as fault:
        return Ledger.open(path, None, topic=topic, seconds=0), [fault.message]
    return ledger, list(ledger.notes)


def _handler(
    handler: HandlerConfiguration,
    queues: _Queues,
    told: _Outcomes,
) -> HandlerStatus:
    identity = handler.identity
    mine = Counter({flow: n for flow, n in told.totals.items() if flow.handler == identity.name})
    # What a person's decision left alone was not taken out of where it waits.
    moved = Counter({flow: n for flow, n in mine.items() if flow.result not in UNTOUCHED})
    parked = _net(moved, Result.PARKED, *identity.waiting_topics)
    remaining = _remaining(moved, identity)
    invalid = Counter({flow: n for flow, n in moved.items() if flow.form == NO_VALID_SCHEME})
    return HandlerStatus(
        identity=identity,
        topic_exists=queues.exists(identity.topic),
        depth=queues.lag(identity.topic),
        parked=_count(parked, queues.lag(*identity.waiting_topics), told),
        next_due=queues.next_due(handler),
        remaining=_count(remaining, queues.lag(identity.remaining_topic), told),
        invalid=max(0, _remaining(invalid, identity)) if told.is_known else None,
        oldest=queues.oldest(identity),
        totals=_by_result(mine, [identity.name]),
        last_hour=_by_result(told.hour, [identity.name]),
        last_minute=_by_result(told.minute, [identity.name]),
    )


def _remaining(flows: Counter[Flow], identity: HandlerIdentity) -> int:
    """Messages that remain."""
    replayed = sum(n for flow, n in flows.items() if flow.source_topic == identity.replay_topic)
    return _net(flows, Result.REMAINS, identity.remaining_topic) - replayed


def _puts(configuration: JobConfiguration, told: _Outcomes) -> PutsStatus | None:
    sources = put_sources(configuration)
    if not sources:
        return None
    undelivered: Counter[str] = Counter()
    retried: Counter[str] = Counter()
    application = configuration.application
    for name, source in sources.items():
        mine = Counter({flow: n for flow, n in told.totals.items() if flow.handler == name})
        undelivered[source.place] += _net(mine, Result.REMAINS, remaining_topic(application, name))
        retried[source.place] += _net(mine, Result.PARKED, message_retry_topic(application, name))
    return PutsStatus(
        undelivered=+undelivered,
        retried=+retried,
        totals=_by_result(told.totals, sources),
        last_hour=_by_result(told.hour, sources),
        last_minute=_by_result(told.minute, sources),
    )


def _net(flows: Counter[Flow], kept: Result, *topics: str) -> int:
    """Messages that went to topics of ours and did not come out.

    A message that is read from such a topic and kept there again is on it once.
    """
    entered = sum(n for flow, n in flows.items() if flow.result == kept)
    return entered - sum(n for flow, n in flows.items() if flow.source_topic in topics)


def _count(number: int, lag: int | None, told: _Outcomes) -> Count:
    if lag is None and not told.is_known:
        return Count(None, Precision.UNKNOWN)
    if lag is None:
        return Count(max(0, number), Precision.LAST_KNOWN)
    if told.is_known and not told.notes and 0 <= number <= lag:
        return Count(number, Precision.EXACT)
    return Count(lag, Precision.AT_MOST)


def _by_result(flows: Counter[Flow], handlers: Collection[str]) -> dict[str, int]:
    results: Counter[str] = Counter()
    for flow, number in flows.items():
        if flow.handler in handlers:
            results[flow.result] += number
    return {result.value: results[result] for result in Result if results[result]}


@dataclass(frozen=True, slots=True)
class _Queues:
    """What the broker says of all topics of a job; nothing if it can't be asked."""

    cluster: Cluster | None
    instances: tuple[str, ...] | None
    starts: Mapping[TopicPartition, int]
    """Where the job goes on in each partition."""
    ends: Mapping[TopicPartition, int]
    first: Mapping[TopicPartition, StoredRecord]
    """The first record that waits in each partition where one does."""
    silent: Collection[TopicPartition] = ()
    """Partitions that no broker leads."""

    @classmethod
    def of(cls, configuration: JobConfiguration) -> tuple[_Queues, list[str]]:
        """Asks the broker; the second value says what could not be asked."""
        try:
            cluster = Cluster.open(configuration.connection, timeout=CONNECT)
            queues = cls._asked(cluster, configuration)
            return queues, without_leader(queues.silent)
        except (EnvironmentFault, TransientFault) as fault:
            note = f"{fault.message}; what follows is what the ledger knows"
            return cls(None, None, {}, {}, {}), [note]

    @classmethod
    def _asked(cls, cluster: Cluster, configuration: JobConfiguration) -> _Queues:
        dead_letters = {handler.identity.topic for handler in configuration.handlers}
        lanes, silent = cluster.led(_topics(configuration))
        extents = cluster.extents(lanes)
        committed = cluster.committed(configuration.application, lanes)
        starts = {
            lane: extents[lane].position(
                committed[lane],
                from_end=lane.topic in dead_letters and configuration.starting_offsets == "latest",
            )
            for lane in lanes
        }
        ends = {lane: extent.end for lane, extent in extents.items()}
        waiting = {lane: start for lane, start in starts.items() if start < ends[lane]}
        found = _first_records(cluster, waiting, dead_letters)
        first = {record.lane: record for record in found}
        instances = cluster.instances(configuration.application)
        return cls(cluster, instances, starts, ends, first, silent)

    def exists(self, topic: str) -> bool | None:
        """Whether a topic exists; None if unknown."""
        return None if self.cluster is None else bool(self.cluster.partitions([topic]))

    def lag(self, *topics: str) -> int | None:
        """Offsets between where the job stands and the end of topics; None if unknown."""
        if self.cluster is None or any(lane.topic in topics for lane in self.silent):
            return None
        return sum(
            self.ends[lane] - start for lane, start in self.starts.items() if lane.topic in topics
        )

    def next_due(self, handler: HandlerConfiguration) -> datetime | None:
        """When the next parked message of a handler is due; None if there is none."""
        identity = handler.identity
        parked = self._first_of(identity.waiting_topics)
        table = parse(handler.rules, name=handler.rules_name).table if parked else None
        if table is None:
            return None
        waits = {
            lane: table.backoff_partitions.seconds(lane.partition)
            if lane.topic == identity.backoff_topic
            else table.control.retry_interval
            for lane in {record.lane for record in parked}
        }
        return min(
            moment(record.timestamp) + timedelta(seconds=waits[record.lane]) for record in parked
        )

    def oldest(self, identity: HandlerIdentity) -> datetime | None:
        """Time of the oldest of the first dead letters that wait; None if none does."""
        topics = [identity.topic, *identity.waiting_topics, identity.remaining_topic]
        times = [record.original_time for record in self._first_of(topics)]
        return moment(min(times)) if times else None

    def _first_of(self, topics: Iterable[str]) -> list[StoredRecord]:
        return [record for lane, record in self.first.items() if lane.topic in topics]


def _topics(configuration: JobConfiguration) -> list[str]:
    topics = []
    for handler in configuration.handlers:
        identity = handler.identity
        topics += [identity.topic, *identity.waiting_topics, identity.remaining_topic]
    return topics


def _first_records(
    cluster: Cluster, starts: Mapping[TopicPartition, int], dead_letters: set[str]
) -> Iterator[StoredRecord]:
    """The first record of each partition; a tombstone is none, except on a dead-letter queue."""

    def counts(record: StoredRecord) -> bool:
        return record.value is not None or record.lane.topic in dead_letters

    try:
        yield from filter(counts, cluster.read(starts, seconds=GLIMPSE, until=counts))
    except TransientFault:
        return  # the ages of the others stay unknown
