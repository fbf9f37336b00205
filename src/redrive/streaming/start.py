"""Where one run of the query begins: every position comes from Kafka, none from an old checkpoint.

A run reads three kinds of topics: sources that are never held (dead-letter queues, intakes),
topics that a channel or a home-server queue empties, and what waits on topics of the job's own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from redrive.checkpoints.control import ControlTopic, TableIdentity
from redrive.checkpoints.positions import Extent, extents, topic_identities
from redrive.configuration import DataLoss, HandlerConfiguration, JobConfiguration
from redrive.errors import ConfigurationError
from redrive.kafka.producer import KafkaCommittedOffsets
from redrive.messages import TopicPartition
from redrive.rules import parse
from redrive.streaming.factory import identity_of, sources_of, table_id_of
from redrive.streaming.held_source import Gate
from redrive.topology.layout import TopicRole

if TYPE_CHECKING:
    from collections.abc import Iterable

    from redrive.rules import RulesTable
    from redrive.streaming.lifecycle import JobControl
    from redrive.topology.layout import QueueTopic


@dataclass(frozen=True, slots=True)
class Start:
    """Where one run of the query begins."""

    positions: Mapping[TopicPartition, int]
    """Lanes that are never held, and the offset each starts at."""
    gates: tuple[Gate, ...]
    """Lanes that are held: retries, what remains, transmission queues."""
    missing: frozenset[str]
    """Topics that are to be read and do not exist yet."""
    layout: Mapping[str, int]
    """Partitions of the topics that exist and are not the job's own."""
    moved: frozenset[TopicPartition] = frozenset()
    """Lanes whose committed offset means nothing any more."""
    identities: Mapping[str, str] = field(default_factory=dict)
    """Identities of topics to record once the positions are committed."""

    @property
    def held(self) -> Mapping[TopicPartition, Gate]:
        """The gates by lane."""
        return {TopicPartition(gate.topic, gate.partition): gate for gate in self.gates}


def read_topics(configuration: JobConfiguration) -> list[str]:
    """The topics that the job reads and does not own: dead-letter queues and the topology's."""
    handled = [handler.identity.topic for handler in configuration.handlers]
    return [*handled, *(name for name in sources_of(configuration) if name not in handled)]


def table_of(handler: HandlerConfiguration) -> RulesTable:
    """The rules table of a handler.

    Raises:
        ConfigurationError: It has errors; whoever made the configuration checks it before.
    """
    table = parse(handler.rules, name=handler.rules_name).table
    if table is None:
        raise ConfigurationError(f"the rules table {handler.rules_name} has errors")
    return table


def committed_offsets(
    configuration: JobConfiguration, lanes: list[TopicPartition]
) -> Mapping[TopicPartition, int | None]:
    """Where the application's group stands; errors as for ``CommittedOffsets.committed``."""
    offsets = KafkaCommittedOffsets(
        configuration.connection.librdkafka(), configuration.application
    )
    try:
        return offsets.committed(lanes)
    finally:
        offsets.close()


@dataclass(frozen=True, slots=True)
class _Kept:
    """A lane of a topic where messages wait until definitions change, and what belongs to it."""

    source: TopicPartition
    """The lane whose messages it keeps."""
    table: str
    """Hash of the rules table or of the definitions that decide."""
    remaining: TopicPartition
    retry: TopicPartition | None = None
    """Where messages of the lane wait for their next attempt."""
    interval: float | None = None
    """Seconds that they wait there."""


class StartFinder:
    """Finds where a run begins.

    This class is responsible for: the lanes of this instance's share, their offsets, and the
    messages that changed tables or definitions set free.
    """

    def __init__(self, configuration: JobConfiguration, control: JobControl) -> None:
        """Take the configuration.

        Args:
            configuration: The job.
            control: Is told what an operator wants to know.
        """
        self._configuration = configuration
        self._control = control

    def find(self, layout: Mapping[str, int]) -> Start:
        """Where to begin.

        Args:
            layout: Partitions of the topics of ``read_topics`` that exist.

        Raises:
            TransientFault: The broker gave no answer in time.
            ConfigurationError: Records at a committed offset are gone, and that is not allowed.
        """
        sources = sources_of(self._configuration)
        kept = [*self._kept_by_handlers(layout), *self._kept_by_routers(sources, layout)]
        channels = [
            (lane, source)
            for source in sources.values()
            if source.role is TopicRole.TRANSMISSION
            for lane in self._owned(source.topic, layout)
        ]
        moved = {lane for lane, _ in channels}
        free = [one.source for one in kept if one.source not in moved]
        waiting = [lane for one in kept for lane in (one.remaining, one.retry) if lane]
        every = [*free, *moved, *waiting]
        committed = committed_offsets(self._configuration, every)
        extent = extents(self._configuration.connection, every)
        control = ControlTopic(self._configuration.connection, self._configuration.control_topic)
        identities = topic_identities(self._configuration.connection, list(layout))
        known = {name: control.topic_of(name) for name in identities}
        anew = {name for name, one in identities.items() if known[name] not in {"", one}}
        tables = self._identify_tables(kept, extent, control)
        begin = {
            lane: self._position(lane, committed[lane], extent[lane], is_anew=lane.topic in anew)
            for lane in (*free, *moved)
        }
        gates = [
            *(_channel_gate(lane, source, begin[lane]) for lane, source in channels),
            *_waiting_gates(kept, committed, extent, tables),
        ]
        return Start(
            positions={lane: begin[lane] for lane in free},
            gates=tuple(gates),
            missing=frozenset(read_topics(self._configuration)) - frozenset(layout),
            layout=dict(layout),
            moved=frozenset(lane for lane in begin if begin[lane] != committed[lane]),
            identities={name: one for name, one in identities.items() if known[name] != one},
        )

    def _owned(self, topic: str, layout: Mapping[str, int]) -> list[TopicPartition]:
        share = self._configuration.share
        return [
            TopicPartition(topic, number)
            for number in range(layout.get(topic, 0))
            if share.owns(number)
        ]

    def _kept_by_handlers(self, layout: Mapping[str, int]) -> Iterator[_Kept]:
        for handler in self._configuration.handlers:
            table, identity = table_of(handler), handler.identity
            for lane in self._owned(identity.topic, layout):
                yield _Kept(
                    lane,
                    table.hash,
                    TopicPartition(identity.remaining_topic, lane.partition),
                    TopicPartition(identity.retry_topic, lane.partition),
                    float(table.control.retry_interval),
                )

    def _kept_by_routers(
        self, sources: Mapping[str, QueueTopic], layout: Mapping[str, int]
    ) -> Iterator[_Kept]:
        table = table_id_of(self._configuration.topology)
        for source in sources.values():
            identity = identity_of(self._configuration.application, source)
            for lane in self._owned(source.topic, layout):
                yield _Kept(lane, table, TopicPartition(identity.remaining_topic, lane.partition))

    def _identify_tables(
        self, kept: Iterable[_Kept], extent: Mapping[TopicPartition, Extent], control: ControlTopic
    ) -> dict[TopicPartition, TableIdentity]:
        """The table of each lane; a changed one sets free what is parked and what remains."""
        known: dict[TopicPartition, TableIdentity] = {}
        changed: dict[TopicPartition, TableIdentity] = {}
        is_replaced = False
        for one in kept:
            identity = control.table_of(one.source)
            is_replaced = is_replaced or (identity is not None and identity.table != one.table)
            if identity is None or identity.table != one.table:
                parked = extent[one.retry].end if one.retry else 0
                identity = TableIdentity(one.table, parked, extent[one.remaining].end)
                changed[one.source] = identity
            known[one.source] = identity
        control.set_tables(changed)
        if is_replaced:
            self._control.notice(
                "new rules or definitions decide: parked and remaining messages are evaluated"
                " afresh",
                topics=", ".join(sorted({lane.topic for lane in changed})),
            )
        return known

    def _position(
        self, lane: TopicPartition, committed: int | None, extent: Extent, *, is_anew: bool
    ) -> int:
        if is_anew:
            return self._after_loss(
                extent,
                f"topic {lane.topic} was deleted and made anew since the job last started",
                hint='if that was meant, set on_data_loss = "continue" to read the new topic from'
                " its beginning",
            )
        if committed is None:
            latest = self._configuration.starting_offsets == "latest"
            return extent.end if latest else extent.first
        if extent.first <= committed <= extent.end:
            return committed
        return self._after_loss(
            extent,
            f"{lane} holds offsets {extent.first} to {extent.end}, but the job stands at"
            f" {committed}: records are gone",
            hint='find out why; then set on_data_loss = "continue" to go on with the oldest record'
            " that is kept",
        )

    def _after_loss(self, extent: Extent, problem: str, *, hint: str) -> int:
        if self._configuration.data_loss is DataLoss.STOP:
            raise ConfigurationError(problem, hint=hint)
        self._control.notice("going on with the oldest record that is kept", because=problem)
        return extent.first


def _channel_gate(lane: TopicPartition, source: QueueTopic, start: int) -> Gate:
    return Gate(
        lane.topic,
        lane.partition,
        start,
        release=0,
        interval=None,
        channel=source.channel,
        is_running=source.is_running,
    )


def _waiting_gates(
    kept: Iterable[_Kept],
    committed: Mapping[TopicPartition, int | None],
    extent: Mapping[TopicPartition, Extent],
    tables: Mapping[TopicPartition, TableIdentity],
) -> Iterator[Gate]:
    for one in kept:
        identity = tables[one.source]
        for lane, release, interval in (
            (one.retry, identity.retry_release, one.interval),
            (one.remaining, identity.remaining_release, None),
        ):
            if lane is not None:
                start = max(extent[lane].first, committed[lane] or 0)
                yield Gate(lane.topic, lane.partition, start, release, interval)
