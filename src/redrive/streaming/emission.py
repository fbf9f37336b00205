"""From Arrow batches to committed transactions, in any emitting process.

The driver and Spark's Python workers run the same code: an ``Emission`` holds the handlers, the
decoder, the facts and one producer. Records are taken slice by slice: each transaction is bounded
in records, bytes and seconds, whatever the size of a batch.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, Self

import numpy as np
import pyarrow as pa

from redrive.checkpoints.epoch import RunEntry, RunIdentity
from redrive.checkpoints.protocol import Emitter, FailedTry
from redrive.checkpoints.states import StatesFollower
from redrive.collector import collector_paused
from redrive.configuration import JobConfiguration
from redrive.configuration.deciders import DeciderFactory
from redrive.engine.breaker import NO_BREAKERS, BreakerKey, OpenBreaker
from redrive.engine.commands import NO_STATES, Replay, States, orders_on
from redrive.engine.facts import Answers, Facts, Program, Questions
from redrive.engine.slice import Slice, SliceSettings
from redrive.engine.sources import PartitionRecords
from redrive.kafka.cluster import Cluster
from redrive.kafka.compacted import LiveCopies
from redrive.kafka.facts import ClusterFacts, FollowedPuts, FollowedReplays
from redrive.kafka.producer import KafkaProducer
from redrive.kafka.waiting_keys import LiveOrder
from redrive.messages import Records, TopicPartition
from redrive.messages.dead_letters import DeadLetterDecoder
from redrive.streaming.lifecycle import Emitted

if TYPE_CHECKING:
    from redrive.streaming.start import Start

_LOGGER: Final = logging.getLogger(__name__)

_WARNED_FROM: Final = 3
"""Failed tries above which each is logged; a moving coordinator causes one or two."""


class GroupCluster:
    """Implements ``redrive.checkpoints.protocol.Cluster`` for one consumer group."""

    def __init__(self, cluster: Cluster, configuration: JobConfiguration) -> None:
        """The offsets of the job's consumer group are its progress."""
        self._cluster = cluster
        self._facts = ClusterFacts(cluster, creates=True)
        self._configuration = configuration
        self._group = configuration.application
        self._copies = LiveCopies(cluster)
        self._ordered = LiveOrder(cluster, configuration.application)
        replays = {handler.identity.replay_topic for handler in configuration.handlers} - {""}
        self._replayed = FollowedReplays(cluster, configuration.outcomes_topic, replays)
        self._puts = FollowedPuts(cluster, configuration.outcomes_topic)
        self._replays: StatesFollower | None = None

    def committed(self, lanes: Sequence[TopicPartition]) -> Mapping[TopicPartition, int | None]:
        """The offsets that the group has committed."""
        return self._cluster.committed(self._group, lanes, stable=True)

    def answers(self, questions: Questions) -> Answers:
        """An answer to each question."""
        answers = self._facts.answers(questions)
        if questions.puts:
            answers = replace(answers, puts=self._puts.last(questions.puts))
        if questions.about_order:
            # Rounds first: a message that has come back is then among what waits.
            rounds = self._ordered.rounds(questions.rounds)
            waiting = {question: self._ordered.waiting(question) for question in questions.waiting}
            answers = replace(answers, rounds=rounds, waiting=waiting)
        if not questions.about_replays:
            return answers
        accepted = self._accepted_replays() if questions.replays or questions.orders else {}
        return replace(
            answers,
            copies={lane: self._copies.on(lane) for lane in questions.copies},
            replays={plan: accepted.get(plan) for plan in questions.replays},
            orders={lane: orders_on(lane, accepted.values()) for lane in questions.orders},
            replayed={place: self._replayed.since(place) for place in questions.replayed},
        )

    def close(self) -> None:
        """Closes the clients that follow topics."""
        self._copies.close()
        if self._replays is not None:
            self._replays.close()

    def _accepted_replays(self) -> Mapping[str, Replay]:
        """Replays by the id of their plan.

        They include all that the planner saw, and it passes no instruction before it saw the plan.
        """
        if self._replays is None:
            self._replays = StatesFollower(self._cluster, self._configuration.application)
        return self._replays.states(to_the_end=True).replays


@dataclass(frozen=True, slots=True)
class EmissionOrder:
    """The emission config of one run; workers get it pickled."""

    configuration: JobConfiguration
    run: RunIdentity
    incarnations: Mapping[str, int] = field(default_factory=dict)
    """Recreated topics, and how many of that name the job has read."""
    replayed: frozenset[TopicPartition] = frozenset()
    """Lanes with remaining copies that may have been replayed before the run."""
    released: Mapping[TopicPartition, int] = field(default_factory=dict)
    """Lanes whose copies are evaluated again, and the offset below which they are."""
    late: float = 0.0
    """The maximum seconds by which stamps of parked messages may be too old."""
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    """Kafka's ids of the topics that the run reads."""
    since: Mapping[TopicPartition, int] = field(default_factory=dict)
    """Where lanes ended before the job's first decision about their topic."""

    @classmethod
    def of(cls, configuration: JobConfiguration, run: RunIdentity, start: Start) -> Self:
        """The emission config of a run from its start."""
        return cls(
            configuration,
            run,
            start.incarnations,
            start.replayed,
            start.released,
            start.late,
            start.identities,
            start.since,
        )


class BatchState(NamedTuple):
    """What a batch needs to know about earlier ones."""

    breakers: Mapping[BreakerKey, OpenBreaker]
    """The open breakers."""
    dropping: frozenset[Program] = frozenset()
    """Programs that drop headers, as any process of the run has seen."""


NO_STATE: Final = BatchState(NO_BREAKERS)


class Emission:
    """Decides and emits records for one run.

    This class is responsible for:
        - the handlers of this process, made once from the configuration;
        - cutting its input into slices;
        - one emitter with one transactional id.
    """

    def __init__(self, order: EmissionOrder) -> None:
        """Make the handlers; clients connect when they are first needed."""
        configuration = order.configuration
        self._cluster = Cluster(configuration.connection)
        self._facts = Facts(time.monotonic)
        self._follower = (
            StatesFollower(self._cluster, configuration.application)
            if configuration.topology
            else None
        )
        self._states = NO_STATES
        self.change_tables(order)
        self._decoder = DeadLetterDecoder()
        self.transactional_id = order.run.new_transactional_id()
        self._group = GroupCluster(self._cluster, configuration)
        self.emitter = Emitter(
            partial(
                KafkaProducer,
                configuration.connection.librdkafka(),
                self.transactional_id,
                configuration.application,
            ),
            self._group,
            RunEntry(self._cluster, configuration.control_topic, order.run),
            time,
            failed=_log_failed_try,
        )

    @property
    def run(self) -> RunIdentity:
        """The run."""
        return self._order.run

    def change_tables(self, order: EmissionOrder) -> None:
        """Decides by the rules tables of another order of this run, from the next batch on."""
        self._order, self._configuration = order, order.configuration
        self._factory = DeciderFactory(self._configuration, self._facts)
        self._renew_deciders(self._states)

    def _renew_deciders(self, states: States) -> None:
        self._deciders = self._factory.deciders(states)

    def emit(
        self,
        batches: Iterable[pa.RecordBatch],
        now: int,
        emitted: Emitted,
        known: BatchState = NO_STATE,
    ) -> None:
        """Emits rows, slice by slice.

        Args:
            batches: Rows with the columns of ``held_source.SCHEMA``; the rows of one
                lane are in offset order.
            now: Time of the attempts, in milliseconds.
            emitted: Receives the committed work, slice by slice.
            known: What earlier batches did; allows one probe of each open breaker in all slices.

        Raises:
            TransientFault: The broker did not answer in time. Earlier commits hold; no
                transaction is partly applied.
            FatalFault: This process must stop.
        """
        self._follow_states(now)
        self.emitter.begin_batch()
        self._facts.begin_batch()
        for program in known.dropping:
            self._facts.note_dropped(program)
        settings = SliceSettings(
            outcomes_topic=self._configuration.outcomes_topic,
            tables_topic=self._configuration.tables_topic,
            discovered=self._states.discovered,
            now=now,
            late=int(self._order.late * 1000),
            breakers=known.breakers,
            topic_ids=self._order.topic_ids,
        )
        try:
            with collector_paused():
                self._emit_slices(batches, settings, emitted)
        finally:
            # Also after a fault, since the slices before it stay committed.
            emitted.figures.add(self.emitter.take_figures())
            emitted.dropping |= self._facts.dropping

    def _emit_slices(
        self, batches: Iterable[pa.RecordBatch], settings: SliceSettings, emitted: Emitted
    ) -> None:
        for parts, size in self._slices(batches):
            self._emit_slice(parts, settings, emitted)
            settings = _next_settings(settings, emitted.probed)
            emitted.size += size

    def _emit_slice(
        self, parts: Sequence[PartitionRecords], settings: SliceSettings, emitted: Emitted
    ) -> None:
        slice_ = Slice(parts, self._decoder, self._facts, settings)
        for done in self.emitter.emit(slice_):
            assert isinstance(done, Slice)
            emitted.add(done.summary())
        emitted.rows += len(slice_)
        # A lane may have several parts, in offset order: the end of the last one counts.
        emitted.ends.update({part.lane: part.records.offsets[-1] + 1 for part in parts})

    def close(self) -> None:
        """Closes the clients."""
        if self._follower is not None:
            self._follower.close()
        self._group.close()
        self.emitter.drop_producer()
        self._cluster.close()

    def _slices(
        self, batches: Iterable[pa.RecordBatch]
    ) -> Iterator[tuple[list[PartitionRecords], int]]:
        settings = self._configuration
        parts: list[PartitionRecords] = []
        rows = size = 0
        began = time.monotonic()
        for piece in _pieces(batches, settings.slice_records, settings.slice_bytes):
            is_full = (
                rows + piece.num_rows > settings.slice_records
                or size + piece.nbytes > settings.slice_bytes
                or time.monotonic() - began > settings.slice_seconds
            )
            # A single row may exceed the bytes alone: then it is a slice of its own.
            if parts and is_full:
                yield parts, size
                parts, rows, size = [], 0, 0
            if not parts:
                began = time.monotonic()
            parts += self._parts(piece)
            rows, size = rows + piece.num_rows, size + piece.nbytes
        if parts:
            yield parts, size

    def _parts(self, batch: pa.RecordBatch) -> Iterator[PartitionRecords]:
        for lane, rows in _lanes(batch):
            handler, kind = self._deciders[lane.topic]
            yield PartitionRecords(
                lane,
                handler,
                kind,
                Records.from_arrow(rows),
                self._order.incarnations.get(lane.topic, 1),
                may_be_gone=lane in self._order.replayed,
                released=self._order.released.get(lane, 0),
                since=self._order.since.get(lane, 0),
            )

    def _follow_states(self, now: int) -> None:
        if self._follower is None:
            return
        states: States = self._follower.states().as_of(now)
        if states.definitions != self._states.definitions:
            self._renew_deciders(states)
        self._states = states


def _next_settings(settings: SliceSettings, probed: Collection[BreakerKey]) -> SliceSettings:
    """The settings of the next slice: without the probes of earlier ones."""
    if not probed:
        return settings
    breakers = {
        key: breaker._replace(may_probe=breaker.may_probe and key not in probed)
        for key, breaker in settings.breakers.items()
    }
    return replace(settings, breakers=breakers)


def _pieces(batches: Iterable[pa.RecordBatch], rows: int, size: int) -> Iterator[pa.RecordBatch]:
    """The batches, split where one exceeds a slice's limits; a row is never split."""
    for batch in batches:
        if batch.num_rows > rows:
            cuts = range(0, batch.num_rows, rows)
            yield from _pieces((batch.slice(start, rows) for start in cuts), rows, size)
        elif batch.nbytes > size and batch.num_rows > 1:
            half = batch.num_rows // 2
            yield from _pieces([batch.slice(0, half), batch.slice(half)], rows, size)
        elif batch.num_rows:
            yield batch


def _lanes(batch: pa.RecordBatch) -> Iterator[tuple[TopicPartition, pa.RecordBatch]]:
    topics = batch.column("topic").dictionary_encode()
    partitions = batch.column("partition").to_numpy(zero_copy_only=False)
    codes = topics.indices.to_numpy(zero_copy_only=False)
    changes = np.flatnonzero((np.diff(codes) != 0) | (np.diff(partitions) != 0)) + 1
    for start, stop in zip([0, *changes], [*changes, batch.num_rows], strict=True):
        topic = topics.dictionary[int(codes[start])].as_py()
        lane = TopicPartition(topic, int(partitions[start]))
        yield lane, batch.slice(int(start), int(stop - start))


def _log_failed_try(failed: FailedTry) -> None:
    level = logging.WARNING if failed.tries >= _WARNED_FROM else logging.INFO
    lanes = ", ".join(map(str, failed.lanes[:3])) + (", ..." if len(failed.lanes) > 3 else "")  # noqa: PLR2004 - three are enough to see which
    _LOGGER.log(
        level,
        "%s",
        failed.fault.message,
        extra={
            "facts": {
                "try": failed.tries,
                "lanes": lanes,
                "transactional_id": failed.transactional_id,
                "seconds": round(failed.seconds, 1),
            }
        },
    )
