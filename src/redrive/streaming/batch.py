"""The processing of one micro-batch: its emitter, and its result.

For the least latency the driver fetches and emits a small batch; Spark's Python workers emit a
large one where its rows are. Both run ``redrive.streaming.emission``.
"""

from __future__ import annotations

import pickle
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Final

from redrive.checkpoints.held import HeldInstructions, HeldPartition, HeldPartitions
from redrive.checkpoints.protocol import PositionsOnly
from redrive.checkpoints.states import StatesFollower
from redrive.configuration import EmitterChoice, JobConfiguration
from redrive.configuration.deciders import counts_depths
from redrive.engine.breaker import Breakers, BreakerState
from redrive.engine.commands import NO_STATES
from redrive.engine.facts import Program
from redrive.errors import FatalFault, TransientFault
from redrive.kafka.deadline import LOOK, under_way
from redrive.messages import TopicPartition
from redrive.streaming.emission import BatchState, Emission, EmissionOrder
from redrive.streaming.enrichment import Enrichment
from redrive.streaming.lifecycle import BatchSummary, Emitted
from redrive.streaming.workers import RESULT_SCHEMA, TaskResult, emit_task

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from redrive.kafka.cluster import Cluster
    from redrive.streaming.start import Start

LARGEST_RESULT: Final = 128 * 1024 * 1024
"""Maximum bytes of one batch at the driver (``spark.driver.maxResultSize``)."""
_LARGEST_FETCH: Final = LARGEST_RESULT // 8
"""The driver fetches a batch with at most this expected size in bytes. If the batch is larger after
all, it fails, and workers emit the next one."""
_EXPECTED_SIZE: Final = 2_000
"""Assumed bytes of a row before a batch was measured."""


class BatchProcessor:
    """Processes the batches of one run of the query, as ``foreachBatch``.

    This class is responsible for the choice of the emitter, the batch's clock, and lane positions.
    """

    def __init__(
        self,
        configuration: JobConfiguration,
        order: EmissionOrder,
        start: Start,
        cluster: Cluster,
        *,
        done: Callable[[BatchSummary], None],
        emitted: Callable[[Emitted], None],
        workers_first: bool = False,
        breakers: Breakers | None = None,
    ) -> None:
        """No batch begins before ``begin``.

        Args:
            configuration: The job.
            order: The emission config of workers.
            start: Where each lane begins.
            cluster: Answers questions; used only by this class.
            done: Called for each batch with at least one input.
            emitted: Called with the work of each batch, including failed ones.
            workers_first: Whether workers must emit the first batch, because a batch failed and may
                have been too large for the driver.
            breakers: Those of earlier runs.
        """
        self._configuration = configuration
        self._clock = start.clock
        self.run = order.run
        """The run."""
        self._order = pickle.dumps(order)
        self._emission = Emission(order)
        self._cluster = cluster
        bounded = _bounded(start)
        self._held = self._held_partitions(bounded)
        self._held_before: HeldPartitions | None = None
        """Until the end of the first batch by changed tables, which may have been planned before
        these were known."""
        self._waiting = [held.lane for held in bounded]
        follows = any(isinstance(held, HeldInstructions) for held in bounded)
        self._follower = StatesFollower(cluster, configuration.application) if follows else None
        self._done = done
        self._emitted = emitted
        self._enrichment = Enrichment.of(configuration)
        self._breakers = Breakers({}) if breakers is None else breakers
        self._breakers.begin_run(configuration.breakers, int(self._clock.now() * 1000))
        self.dropping: frozenset[Program] = frozenset()
        """Programs that drop headers, as seen in this run."""
        self._is_single = counts_depths(configuration)
        self._workers_first = workers_first
        self._row_size = float(_EXPECTED_SIZE)
        self.positions = start.every_position
        """The next offset to read of each lane, markers of transactions passed over."""
        self.read_up_to = dict(start.every_position)
        """The offset of each lane up to which batches of this run have read records. Spark's next
        batch may begin there: it does not know that markers behind it were passed."""
        self.failure: BaseException | None = None
        """What a batch or a change of tables failed with; a value, since Spark turns exceptions
        into text. Workers of that batch may still emit, a transaction in doubt may still be
        committed, and tables unknown to this run may be recorded. So nothing of this run decides,
        commits positions or changes tables any more."""
        self.began: float | None = None
        """Start of the running batch by the monotonic clock; None between batches."""
        self._may_begin = threading.Event()
        self._ending = threading.Event()
        self._busy = threading.Lock()
        self._deciding = threading.Lock()
        """Held while a table decides, until its decisions are committed."""
        self._commit_requested = threading.Event()
        """Whether to commit all positions again before the next batch."""

    def __call__(self, frame: DataFrame, batch: int) -> None:
        """Decides and writes the rows of a batch; returns when all are committed."""
        self._may_begin.wait()
        with self._busy:
            if self._ending.is_set():
                return  # nothing is emitted or committed: the next run reads it again
            self.began = time.monotonic()
            try:
                with under_way("the running batch"):
                    self._process(frame, batch, self.began)
                    self._commit_if_requested()
            except BaseException as failure:
                self.failure = failure  # before anybody else gets the lock
                raise
            finally:
                self.began = None

    def begin(self) -> None:
        """Lets the first batch begin, once the start positions are committed."""
        self._may_begin.set()

    def end(self, seconds: float) -> bool:
        """Waits for the running batch and starts no other; returns whether it ended in time."""
        self._ending.set()
        self._may_begin.set()
        if not self._busy.acquire(timeout=seconds):
            return False
        self._busy.release()
        return True

    def change_tables(
        self,
        configuration: JobConfiguration,
        record: Callable[[], Start],
        *,
        gives_up: Callable[[], bool],
    ) -> Start | None:
        """Decides by changed tables from the next batch on.

        This includes a batch whose rows the driver is still fetching: nothing is decided yet.

        Args:
            configuration: The job, with other rules tables.
            record: Records them while nothing is being decided, and returns the lanes of the run.
            gives_up: Whether to stop waiting.

        Returns:
            The lanes of the run; None if the batch did not end properly or in time.

        Raises:
            TransientFault: It is unknown whether they are recorded, so nothing more is decided.
            FatalFault: As for ``record``.
        """
        while not self._deciding.acquire(timeout=LOOK):
            if gives_up():
                return None
        try:
            if self._ending.is_set() or self.failure is not None:
                return None
            try:
                start = record()
            except BaseException as failure:
                self.failure = failure
                self._ending.set()
                raise
            self._take(configuration, start)
        finally:
            self._deciding.release()
        return start

    def commit_positions(
        self,
        positions: Mapping[TopicPartition, int],
        moved: frozenset[TopicPartition] = frozenset(),
    ) -> None:
        """Commits lane positions, unless a batch is running, which commits later ones itself.

        After a failed batch nothing is committed: a worker that still emits would commit between
        the look at the committed offsets and this commit, which would then move a lane backwards.

        Args:
            positions: The least position of each lane.
            moved: Lanes that get this position regardless of the committed one.

        Raises:
            TransientFault: The broker gave no answer in time.
        """
        if not self._busy.acquire(blocking=False):
            return  # the caller must stay responsive to a stop
        try:
            if self.failure is None:
                self._commit(positions, moved)
        finally:
            self._busy.release()

    def commit_again(self) -> None:
        """Commits all lane positions, now or right after the running batch.

        Raises:
            TransientFault: The broker gave no answer in time.
        """
        self._commit_requested.set()
        if self._busy.acquire(blocking=False):
            try:
                self._commit_if_requested()
            finally:
                self._busy.release()

    def breakers(self) -> tuple[BreakerState, ...]:
        """The open breakers; any thread may ask."""
        return tuple(self._breakers.states(int(self._clock.now() * 1000)))

    def close(self) -> None:
        """Closes the driver's clients."""
        if self._follower is not None:
            self._follower.close()
        self._emission.close()
        self._cluster.close()

    def _take(self, configuration: JobConfiguration, start: Start) -> None:
        self._configuration = configuration
        order = EmissionOrder.of(configuration, self.run, start)
        self._order = pickle.dumps(order)
        self._emission.change_tables(order)
        self._held_before, self._held = self._held, self._held_partitions(_bounded(start))

    def _held_partitions(self, bounded: Sequence[HeldPartition]) -> HeldPartitions:
        rate = self._configuration.reevaluation_rate
        return HeldPartitions(bounded, self._cluster, self._clock, rate=rate, at_most=True)

    def _commit_if_requested(self) -> None:
        is_over = self._ending.is_set() or self.failure is not None
        if self._commit_requested.is_set() and not is_over:
            self._commit(dict(self.positions))
            self._commit_requested.clear()

    def _commit(
        self,
        positions: Mapping[TopicPartition, int],
        moved: frozenset[TopicPartition] = frozenset(),
    ) -> None:
        self._emission.emitter.begin_batch()
        committed = PositionsOnly(dict(positions), moved)
        self._emission.emitter.emit(committed)
        self.positions.update(committed.ends())

    def _process(self, frame: DataFrame, batch: int, started: float) -> None:
        now = int(self._clock.now() * 1000)
        by_driver = self._uses_driver()
        emitter = EmitterChoice.DRIVER if by_driver else EmitterChoice.LANES
        summary = BatchSummary(batch=batch, time=now, emitter=emitter)
        emit = self._emit_here if by_driver else self._emit_in_workers
        try:
            emit(frame, now, summary)
        finally:
            # Also after a fault: what was committed before it is not read again.
            self.positions.update(summary.ends)
            self.read_up_to.update(summary.ends)
            self._emitted(summary)
            self._breakers.learn(summary.breakers, now)
            self.dropping |= summary.dropping
        self._workers_first = False
        self._held_before = None
        if summary.rows:
            self._row_size = summary.size / summary.rows
        if summary.inputs:
            summary.seconds = time.monotonic() - started
            self._done(summary)

    def _uses_driver(self) -> bool:
        choice = self._configuration.emitter
        if choice is EmitterChoice.LANES or self._workers_first:
            return False
        rows = self._most_rows()
        if rows * self._row_size > _LARGEST_FETCH:
            return False  # even if the settings say driver: it could not fetch the batch
        return choice is EmitterChoice.DRIVER or rows <= self._configuration.driver_batch_limit

    def _most_rows(self) -> int:
        """The maximum rows of this batch: ends only grow, and it was planned before."""
        ends = self._cluster.ends(self.positions)
        begin = {lane: self.positions[lane] for lane in self._waiting}
        states = NO_STATES if self._follower is None else self._follower.states()
        free = {**ends, **self._held.free(begin, ends, states)}
        if self._held_before is not None:
            before = self._held_before.free(begin, ends, states)
            free.update({lane: max(free[lane], end) for lane, end in before.items()})
        return sum(max(0, free[lane] - start) for lane, start in self.positions.items())

    def _known(self, now: int) -> BatchState:
        return BatchState(self._breakers.opened(now), self.dropping)

    def _emit_here(self, frame: DataFrame, now: int, emitted: Emitted) -> None:
        enriched = self._enrichment.applied(frame)
        batches = enriched.toArrow().to_batches()
        self._enrichment.check_fetched(batches)
        with self._tables_decide():
            self._emission.emit(self._enrichment.checked(batches), now, emitted, self._known(now))

    @contextmanager
    def _tables_decide(self) -> Iterator[None]:
        with self._deciding:
            if self.failure is not None:
                raise TransientFault("this run has failed: its tables no longer decide")
            try:
                yield
            except BaseException as failure:
                self.failure = failure  # before anybody else gets the lock
                raise

    def _emit_in_workers(self, frame: DataFrame, now: int, emitted: Emitted) -> None:
        enriched = self._enrichment.applied(frame)
        if self._is_single:
            enriched = enriched.coalesce(1)  # one process counts puts, so no queue overflows
        faults, lanes = [], 0
        with self._tables_decide():
            task = partial(emit_task, self._order, now, self._known(now))
            for row in enriched.mapInArrow(task, RESULT_SCHEMA).collect():
                result: TaskResult = pickle.loads(row.result)  # noqa: S301 - made by this job
                emitted.merge(result.emitted)
                lanes += len(result.emitted.ends)
                if result.fault is not None:
                    faults.append(result.fault)
            if faults:
                raise max(faults, key=lambda fault: isinstance(fault, FatalFault))
        self._enrichment.check_count(emitted.rows)
        # A lane is in one task of a batch: two would commit offsets past each other's records.
        assert lanes == len(emitted.ends)


def _bounded(start: Start) -> list[HeldPartition]:
    # Of operators' commands only replays are known here, by their rates.
    return [
        held for held in start.held if isinstance(held, HeldInstructions) or not held.follows_states
    ]
