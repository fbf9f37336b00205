"""The status of a job: waiting messages, outcomes and rates (``redrive status``).

Kafka has the waiting messages, the outcomes have the results. Parked, remaining and quarantined
messages are counted by the last outcome of each. If not all outcomes can be read, as on a machine
without the ledger, the messages on the topics themselves are counted. Offsets would be wrong: on
topics that are written in transactions they also count markers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from itertools import accumulate, islice
from typing import TYPE_CHECKING, Final, Self, TypeAlias

from redrive.configuration.deciders import inhibited_queues, sources_of, table_of
from redrive.engine.names import message_retry_topic, remaining_topic
from redrive.engine.outcome import Result
from redrive.errors import EnvironmentFault, TransientFault
from redrive.kafka.cluster import Cluster, without_leader
from redrive.kafka.deadline import ANSWER, CONNECT, GLIMPSE
from redrive.kafka.records import StoredRecord
from redrive.masking import NO_MASK, Mask
from redrive.messages import DeadLetterDecoder, Records, TopicPartition
from redrive.messages import own_headers as own
from redrive.outcomes.acknowledgements import ReadAcknowledgements, no_acknowledgements
from redrive.outcomes.inventory import Inventory, Standing, State
from redrive.outcomes.ledger import Batch, Flow, Ledger
from redrive.outcomes.rows import Values, moment

if TYPE_CHECKING:
    from redrive.configuration import HandlerConfiguration, JobConfiguration
    from redrive.engine.names import HandlerIdentity
    from redrive.topology.layout import QueueTopic

_AT_ONCE: Final = 1_000
"""Records to decode at a time."""
_BATCHES: Final = 5
_COUNTED: Final = 1_000
"""Offsets that are read at most to count the waiting messages of dead-letter queues."""
_SHOWN: Final = 10
"""Maximum topics in a note."""

AskRates: TypeAlias = Callable[[Inventory], Sequence[Values] | None]
"""Reads the rates of outcomes from an inventory."""


class Precision(StrEnum):
    """How reliable a number is."""

    EXACT = "exact"
    LAST_KNOWN = "last known"
    """The broker does not answer."""
    UNKNOWN = "unknown"
    """Neither the outcomes nor the topics could be read in time."""


@dataclass(frozen=True, slots=True)
class Count:
    """A number of messages."""

    number: int | None
    """None if unknown."""
    precision: Precision


@dataclass(frozen=True, slots=True)
class Results:
    """Numbers of outcomes by result."""

    last_minute: Mapping[str, int]
    last_hour: Mapping[str, int]
    in_all: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerStatus:
    """One handler: one dead-letter queue with one rules table."""

    identity: HandlerIdentity
    topic_exists: bool | None
    """None if the broker does not answer."""
    waiting: int | None
    """Dead letters not read yet; None if unknown."""
    is_exact: bool
    """Whether all of them were counted; else the number is one of offsets, with markers."""
    because: str
    """Why its messages wait although the job runs; empty if they do not."""
    parked: Count
    """Messages that wait for their next attempt."""
    held: int | None
    """Parked messages that wait behind an earlier one of their key; None if unknown."""
    next_due: datetime | None
    """When the next of them is tried; None if there is none or it is unknown."""
    remaining: Count
    """Messages that no rule could place."""
    acknowledged: int | None
    """Remaining messages that an operator acknowledged; None if unknown."""
    quarantined: Count
    """Messages that no table evaluates any more, which do not count as remaining."""
    invalid: int | None
    """Remaining messages without a valid dead-letter header; None if unknown."""
    oldest: datetime | None
    """When the oldest failed of those that wait; of unread ones the time of the first on each
    partition, and of all others too while there is no ledger."""
    results: Results


@dataclass(frozen=True, slots=True, kw_only=True)
class PutsStatus:
    """The puts that a job carries out for applications and channels."""

    undelivered: Mapping[str, int]
    """Undeliverable messages by the queue on which they wait, as far as known."""
    retried: Mapping[str, int]
    """Messages that a channel's receiver retries (MRRTY), likewise."""
    results: Results


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """One job at one moment."""

    application: str
    time: datetime
    instances: tuple[str, ...] | None
    """``host:process`` of running instances; None if unknown."""
    handlers: tuple[HandlerStatus, ...]
    puts: PutsStatus | None
    """None if the job carries out no puts."""
    batches: tuple[Batch, ...]
    """The last batches, newest first."""
    outcomes: int | None
    """Number of known outcomes; None if they could not be read."""
    unprojected: int
    """Outcomes that are not yet in the ledger."""
    notes: tuple[str, ...]
    """What is unknown, and why."""
    rates: Sequence[Values] | None = None
    """The rates asked for in ``status_of``; None without, or if the outcomes are unknown."""
    hidden: Mapping[TopicPartition, int] = field(default_factory=dict)
    """Records that an open transaction hides now, by partition of the handlers' topics."""

    @property
    def gap(self) -> str:
        """Why numbers of waiting messages are unknown; empty if all are known."""
        known = [
            number
            for handler in self.handlers
            for number in (handler.waiting, handler.parked.number, handler.remaining.number)
        ]
        return "; ".join(self.notes) or "no answer" if None in known else ""


def status_of(
    configuration: JobConfiguration,
    *,
    acknowledgements: ReadAcknowledgements = no_acknowledgements,
    rates: AskRates = lambda _: None,
    now: datetime | None = None,
    mask: Mask = NO_MASK,
) -> Status:
    """Ask the broker and the ledger for the state of a job.

    The last minute and hour end at ``now``, by default the present. ``rates`` reads further rates;
    conditions of acknowledgements see columns as the mask shows them.

    Raises:
        EnvironmentFault: The ledger exists and cannot be read, and the broker does not answer.
    """
    now = now or datetime.now(UTC)
    queues, notes = _Queues.of(configuration)
    outcomes = _Outcomes.of(configuration, queues, acknowledgements, rates, now=now, mask=mask)
    inhibited = inhibited_queues(configuration)
    return Status(
        application=configuration.application,
        time=now,
        instances=queues.instances,
        handlers=tuple(
            _handler(handler, queues, outcomes, inhibited) for handler in configuration.handlers
        ),
        puts=_puts(configuration, outcomes),
        batches=outcomes.batches,
        outcomes=outcomes.totals.total() if outcomes.is_complete else None,
        unprojected=outcomes.unprojected,
        notes=(*notes, *outcomes.notes),
        rates=outcomes.rates,
        hidden=queues.hidden,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Outcomes:
    """The outcomes of a job, if all of them could be read."""

    totals: Counter[Flow] = field(default_factory=Counter)
    hour: Counter[Flow] = field(default_factory=Counter)
    minute: Counter[Flow] = field(default_factory=Counter)
    standing: Mapping[tuple[str, State], Standing] | None = None
    """Messages by handler and state, without zeros; None if unknown."""
    knows_acknowledged: bool = False
    precision: Precision = Precision.EXACT
    batches: tuple[Batch, ...] = ()
    unprojected: int = 0
    is_complete: bool = False
    rates: Sequence[Values] | None = None
    notes: Sequence[str] = ()
    """Why some may be missing."""

    @classmethod
    def of(
        cls,
        configuration: JobConfiguration,
        queues: _Queues,
        acknowledgements: ReadAcknowledgements,
        ask_rates: AskRates,
        *,
        now: datetime,
        mask: Mask,
    ) -> Self:
        """Read the ledger and the later outcomes; raises ``EnvironmentFault``."""
        path, topic = configuration.ledger.path, configuration.outcomes_topic
        cluster = queues.cluster
        try:
            only = configuration.only_handlers
            ledger = Ledger.open(path, cluster, topic=topic, seconds=ANSWER, handlers=only)
            if ledger.notes or (ledger.table is None and cluster is None):
                return cls._by_topics(configuration, cluster, ledger.notes)
            totals, hour, minute = ledger.flows(
                now - timedelta(hours=1), now - timedelta(minutes=1)
            )
            known = None if cluster is None else acknowledgements(cluster)
            with Inventory(ledger, known or (), mask) as inventory:
                standing, rates = inventory.standing(), ask_rates(inventory)
            return cls(
                totals=totals,
                hour=hour,
                minute=minute,
                standing=standing,
                knows_acknowledged=known is not None,
                precision=Precision.EXACT if cluster else Precision.LAST_KNOWN,
                batches=tuple(ledger.last_batches(_BATCHES)),
                unprojected=len(ledger.tail),
                is_complete=True,
                rates=rates,
            )
        except TransientFault as fault:
            return cls._by_topics(configuration, cluster, [fault.message])
        except EnvironmentFault as fault:
            # The broker knows the waiting messages, and the job's state does not depend on the
            # ledger.
            if cluster is None:
                raise
            return cls._by_topics(configuration, cluster, [f"{fault.message} ({fault.hint})"])

    @classmethod
    def _by_topics(
        cls, configuration: JobConfiguration, cluster: Cluster | None, notes: Sequence[str]
    ) -> Self:
        notes = [f"{note}; results are unknown" for note in notes]
        if cluster is None:
            return cls(notes=notes)
        try:
            counts = _count_on_topics(configuration, cluster)
            return cls(
                standing={key: Standing(number) for key, number in counts.items()}, notes=notes
            )
        except TransientFault as fault:
            return cls(notes=[*notes, fault.message])

    def results(self, handlers: Collection[str]) -> Results:
        """The outcomes of some handlers."""

        def by_result(flows: Counter[Flow]) -> dict[str, int]:
            numbers: Counter[str] = Counter()
            for (handler, result), number in flows.items():
                if handler in handlers:
                    numbers[result] += number
            return {known.value: numbers[known] for known in Result if numbers[known]}

        return Results(*map(by_result, (self.minute, self.hour, self.totals)))


def _count_on_topics(
    configuration: JobConfiguration, cluster: Cluster
) -> Mapping[tuple[str, State], int]:
    """Count the parked and remaining messages on their topics, one by one.

    Raises:
        TransientFault: Not all of them could be read in time.
    """
    places = dict(_places(configuration))
    lanes, silent = cluster.led(places)
    if silent:
        raise TransientFault(without_leader(silent)[0])
    parked = [lane for lane in lanes if places[lane.topic][1] is State.PARKED]
    committed = cluster.committed(configuration.application, parked)
    extents = cluster.extents(lanes)
    starts = {lane: extents[lane].position(committed.get(lane)) for lane in lanes}
    ends = {lane: extents[lane].end for lane in lanes}
    counts: Counter[tuple[str, State]] = Counter()
    copies: dict[tuple[str, bytes | None], State] = {}
    for record in cluster.read(starts, ends, seconds=ANSWER):
        name, state = places[record.lane.topic]
        if state is State.PARKED:
            counts[name, state] += record.value is not None
        elif record.value is None:
            copies.pop((name, record.key), None)
        else:
            is_quarantined = own.read_own(record.headers).is_quarantined
            copies[name, record.key] = State.QUARANTINED if is_quarantined else State.REMAINING
    counts.update((name, state) for (name, _), state in copies.items())
    return counts


def invalid_remaining(configuration: JobConfiguration, cluster: Cluster) -> dict[str, int]:
    """Count the remaining messages without a valid dead-letter header, by dead-letter queue.

    They are counted on their topics, one by one, so the number depends on no process and no ledger.

    Raises:
        TransientFault: The broker did not answer in time.
    """
    queues = {
        handler.identity.remaining_topic: handler.identity.queue
        for handler in configuration.handlers
        if not handler.origin_topic  # with it every message is a dead letter
    }
    cluster.topics()
    lanes, _ = cluster.led(queues)
    extents = cluster.extents(lanes)
    starts = {lane: extent.first for lane, extent in extents.items()}
    ends = {lane: extent.end for lane, extent in extents.items()}
    decoder, schemes = DeadLetterDecoder(), configuration.scheme_table
    invalid: set[tuple[TopicPartition, bytes | None]] = set()
    remaining = cluster.read(starts, ends)
    while records := list(islice(remaining, _AT_ONCE)):
        codes, profiles = decoder.decode(
            Records(
                [record.key for record in records],
                [record.value for record in records],
                [record.headers for record in records],
                [record.timestamp for record in records],
                [record.offset for record in records],
            ),
            schemes,
        )
        for record, code in zip(records, codes, strict=True):
            copy = record.lane, record.key
            if record.value is None or profiles[code].is_dead_letter:
                invalid.discard(copy)
            else:
                invalid.add(copy)
    return dict(Counter(queues[lane.topic] for lane, _ in invalid))


def _places(configuration: JobConfiguration) -> Iterator[tuple[str, tuple[str, State]]]:
    for handler in configuration.handlers:
        identity = handler.identity
        yield from ((topic, (identity.name, State.PARKED)) for topic in identity.waiting_topics)
        yield identity.remaining_topic, (identity.name, State.REMAINING)
    application = configuration.application
    for source in sources_of(configuration):
        yield message_retry_topic(application, source), (source, State.PARKED)
        yield remaining_topic(application, source), (source, State.REMAINING)


def _handler(
    handler: HandlerConfiguration,
    queues: _Queues,
    outcomes: _Outcomes,
    inhibited: Mapping[str, QueueTopic],
) -> HandlerStatus:
    identity = handler.identity
    name = identity.name
    parked, remaining, quarantined = (
        (outcomes.standing or {}).get((name, state), Standing())
        for state in (State.PARKED, State.REMAINING, State.QUARANTINED)
    )

    def count(figures: Standing) -> Count:
        if outcomes.standing is None:
            return Count(None, Precision.UNKNOWN)
        return Count(figures.count, outcomes.precision)

    # Copies of messages that were placed stay on their topics until Kafka compacts these.
    places = identity.topics if outcomes.standing is None else (identity.topic,)
    times = [queues.oldest(places), *(state.oldest for state in (parked, remaining, quarantined))]
    depth = queues.depth(identity.topic)
    queue = inhibited.get(identity.topic)
    return HandlerStatus(
        identity=identity,
        topic_exists=queues.exists(identity.topic),
        waiting=depth and depth[0],
        is_exact=depth is not None and depth[1],
        because=f"the handler {name} waits: {queue.place} has GET(DISABLED)" if queue else "",
        parked=count(parked),
        held=parked.held if outcomes.is_complete else None,
        next_due=queues.next_due(handler),
        remaining=count(remaining),
        quarantined=count(quarantined),
        invalid=remaining.invalid if outcomes.is_complete else None,
        acknowledged=remaining.acknowledged if outcomes.knows_acknowledged else None,
        oldest=min(filter(None, times), default=None),
        results=outcomes.results([name]),
    )


def _puts(configuration: JobConfiguration, outcomes: _Outcomes) -> PutsStatus | None:
    sources = sources_of(configuration)
    if not sources:
        return None
    undelivered: Counter[str] = Counter()
    retried: Counter[str] = Counter()
    for (name, state), figures in (outcomes.standing or {}).items():
        if name in sources:
            counts = retried if state is State.PARKED else undelivered
            counts[sources[name].place] += figures.count
    return PutsStatus(
        undelivered=dict(+undelivered),
        retried=dict(+retried),
        results=outcomes.results(sources),
    )


@dataclass(frozen=True, slots=True)
class _Queues:
    """What the broker reports about all topics of a job; empty if it does not answer."""

    cluster: Cluster | None
    instances: tuple[str, ...] | None
    lags: Mapping[TopicPartition, int]
    """Offsets that the job has not read, of each partition that has some."""
    first: Mapping[TopicPartition, StoredRecord]
    """The first waiting record in each partition that has one."""
    counts: Mapping[TopicPartition, int] = field(default_factory=dict)
    """Waiting records of partitions whose records were all read."""
    silent: Collection[TopicPartition] = ()
    """Partitions without a leader."""
    hidden: Mapping[TopicPartition, int] = field(default_factory=dict)
    """Records behind the last stable offset, of each partition that has some."""

    @classmethod
    def of(cls, configuration: JobConfiguration) -> tuple[_Queues, list[str]]:
        """Ask the broker; the second value lists what is unknown."""
        try:
            cluster = Cluster.open(configuration.connection, timeout=CONNECT)
            queues = cls._ask(cluster, configuration)
            return queues, [*without_leader(queues.silent), *_left_out(configuration, cluster)]
        except (EnvironmentFault, TransientFault) as fault:
            note = f"{fault.message}; the following is from the ledger"
            return cls(None, None, {}, {}), [note]

    @classmethod
    def _ask(cls, cluster: Cluster, configuration: JobConfiguration) -> _Queues:
        dead_letters = {handler.identity.topic for handler in configuration.handlers}
        topics = [topic for handler in configuration.handlers for topic in handler.identity.topics]
        lanes, silent = cluster.led(topics)
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
        lags = {lane: ends[lane] - start for lane, start in waiting.items()}
        first: dict[TopicPartition, StoredRecord] = {}
        counts = _count_records(cluster, waiting, ends, dead_letters, first)
        instances = cluster.instances(configuration.application)
        written = cluster.ends(lanes, committed_only=False)
        hidden = {lane: end - ends[lane] for lane, end in written.items() if end > ends[lane]}
        return cls(cluster, instances, lags, first, counts, silent, hidden)

    def exists(self, topic: str) -> bool | None:
        """Whether a topic exists; None if unknown."""
        return None if self.cluster is None else bool(self.cluster.partitions([topic]))

    def depth(self, topic: str) -> tuple[int, bool] | None:
        """Messages that the job has not read, and whether they were counted; None if unknown."""
        if self.cluster is None or any(lane.topic == topic for lane in self.silent):
            return None
        lags = {lane: lag for lane, lag in self.lags.items() if lane.topic == topic}
        return sum(self.counts.get(lane, lag) for lane, lag in lags.items()), (
            lags.keys() <= self.counts.keys()
        )

    def next_due(self, handler: HandlerConfiguration) -> datetime | None:
        """When the next parked message of a handler is due; None if there is none."""
        identity = handler.identity
        parked = self._first_of(identity.waiting_topics)
        if not parked:
            return None
        table = table_of(handler)
        waits = {
            lane: table.backoff_partitions.seconds(lane.partition)
            if lane.topic == identity.backoff_topic
            else table.control.retry_interval
            for lane in {record.lane for record in parked}
        }
        return min(
            moment(record.timestamp) + timedelta(seconds=waits[record.lane]) for record in parked
        )

    def oldest(self, topics: Collection[str]) -> datetime | None:
        """Time of the oldest of the first waiting dead letters; None if none waits."""
        times = [record.original_time for record in self._first_of(topics)]
        return moment(min(times)) if times else None

    def _first_of(self, topics: Iterable[str]) -> list[StoredRecord]:
        return [record for lane, record in self.first.items() if lane.topic in topics]


def _left_out(configuration: JobConfiguration, cluster: Cluster) -> Iterator[str]:
    for subscription in configuration.subscriptions:
        topics = subscription.handlers(configuration.application, cluster.topics())[1]
        if topics:
            some = ", ".join(topics[:_SHOWN]) + ", ..." * (len(topics) > _SHOWN)
            yield (
                f"{subscription.name} matches {len(topics)} more than"
                f" max_topics = {subscription.max_topics}; not read: {some}"
            )


def _count_records(
    cluster: Cluster,
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    dead_letters: set[str],
    first: dict[TopicPartition, StoredRecord],
) -> Mapping[TopicPartition, int]:
    """Find the first record of each partition, and count those of dead-letter queues with a few.

    Offsets also count markers of transactions. Tombstones count only on a dead-letter queue.
    """
    lags = {lane: ends[lane] - start for lane, start in starts.items()}
    smallest = sorted((lag, lane) for lane, lag in lags.items() if lane.topic in dead_letters)
    totals = accumulate(lag for lag, _ in smallest)
    counts = {
        lane: 0 for (_, lane), total in zip(smallest, totals, strict=True) if total <= _COUNTED
    }

    def is_enough(record: StoredRecord) -> bool:
        if record.value is None and record.lane.topic not in dead_letters:
            return False
        first.setdefault(record.lane, record)
        if record.lane not in counts:
            return True
        counts[record.lane] += 1
        return False

    try:
        for _ in cluster.read(starts, seconds=GLIMPSE, until=is_enough):
            pass
    except TransientFault:
        return {}  # the ages of the others stay unknown
    return counts
