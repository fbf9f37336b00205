"""A simulated instance of the job: the project's own code, in processes that may die anywhere.

What is Spark's is written out here, in the order of ``redrive.streaming.job``: prepare a run, plan
a batch from where the last one ended, hand its lanes to workers or emit it in the driver. All else
is the project's: the control topic, the epoch, the start, held partitions, emission and protocol.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.simulation.clients import Network, Received
from tests.simulation.cluster import Entry
from tests.simulation.scheduler import ROUNDING, Process

from redrive.checkpoints import epoch
from redrive.checkpoints.control import ControlTopic
from redrive.checkpoints.held import HeldPartitions
from redrive.checkpoints.instances import Share
from redrive.checkpoints.positions import PositionsOnly
from redrive.configuration import (
    DataLoss,
    HandlerConfiguration,
    JobConfiguration,
    LedgerConfiguration,
)
from redrive.errors import FatalFault, ProtocolError, TransientFault
from redrive.kafka.cluster import Cluster
from redrive.messages import OutputRecord, TopicPartition
from redrive.streaming.emission import Emission, EmissionOrder, Emitted
from redrive.streaming.lifecycle import JobControl
from redrive.streaming.rows import arrow_batch
from redrive.streaming.start import Start, StartFinder
from redrive.streaming.topics import own_topics
from redrive.streaming.workers import refuse_second_attempt
from redrive.topology.names import HandlerIdentity
from redrive.topology.put import QueueLimits
from redrive.topology.replays import CANCELLED
from redrive.topology.replays import REPLAY as REPLAYS
from redrive.topology.states import NO_STATES, States, states_of

APPLICATION: Final = "app"
DEAD_LETTERS: Final = "DLQ"
RETRY: Final = "redrive-app-dlq-retry"
BACKOFF: Final = f"{RETRY}-backoff"
REMAINING: Final = "redrive-app-dlq-remaining"
REPLAY: Final = "redrive-app-dlq-replay"
_ORDERS: Final = (REPLAYS.encode(), CANCELLED.encode())
_LOST_AFTER: Final = 60.0
"""Seconds after which Spark takes a worker that says nothing for lost."""
_REPLAYED: Final = 0.05
"""Share of the batches that are done a second time."""
_DOUBLED_AFTER: Final = (0.0, 0.0, 0.02, 0.05, 0.2)
"""Seconds into a task after which its second attempt starts: it takes about as long as itself."""
_BACKOFF: Final = (0.5, 1.0, 2.0, 5.0, 10.0)


def configuration(
    network: Network,
    table: str,
    share: Share,
    *,
    starting_offsets: str = "earliest",
    limits: Mapping[str, QueueLimits] | None = None,
    data_loss: DataLoss = DataLoss.STOP,
) -> JobConfiguration:
    """The settings of a simulated job with one handler and slices of a few records.

    Args:
        network: What its clients connect to.
        table: Text of the rules table.
        share: Which partitions the instance works on.
        starting_offsets: Where a partition starts that was never seen.
        limits: Limits of queues.
        data_loss: What to do when records are gone.
    """
    identity = HandlerIdentity(
        name="dlq", queue_manager="", queue=DEAD_LETTERS, topic=DEAD_LETTERS,
        retry_topic=RETRY, remaining_topic=REMAINING, replay_topic=REPLAY,
    )  # fmt: skip
    return JobConfiguration(
        application=APPLICATION,
        connection=network.connection(),
        handlers=(HandlerConfiguration(identity=identity, rules=table, rules_name="table"),),
        directory=Path("unused"),
        ledger=LedgerConfiguration(enabled=False, path=Path("unused")),
        share=share,
        starting_offsets=starting_offsets,
        data_loss=data_loss,
        limits=limits or {},
        slice_records=5,
    )


@dataclass
class _Worker:
    """One of Spark's Python workers, for as long as the instance keeps it."""

    emission: Emission
    process: Process | None = None
    """What it does at the moment, or died in; None once it has answered."""
    fault: ProtocolError | None = None

    @property
    def is_busy(self) -> bool:
        """Whether it lives and has not answered."""
        return self.process is not None and self.process.is_alive


@dataclass
class _Task:
    """The rows that a worker has to emit, and a second attempt at them if Spark starts one."""

    rows: list[list[Received]]
    attempts: list[_Worker]
    doubled_at: float = float("inf")
    """When Spark starts the second attempt, if the first has not answered by then."""
    is_first_lost: bool = False
    """Whether Spark takes the executor of the first attempt for lost, and hears it no more; else it
    only found it slow (speculation). The process lives on either way."""

    @property
    def answer(self) -> _Worker | None:
        """The attempt whose answer counts: the first that came."""
        return next((one for one in self._heard if one.process is None), None)

    @property
    def is_awaited(self) -> bool:
        """Whether an answer may still come."""
        return self.answer is None and any(one.is_busy for one in self._heard)

    @property
    def _heard(self) -> list[_Worker]:
        is_first_gone = self.is_first_lost and len(self.attempts) > 1
        return self.attempts[1:] if is_first_gone else self.attempts


class Instance:
    """One process of the job with its workers; ``run`` is the body of its driver."""

    def __init__(
        self,
        name: str,
        network: Network,
        settings: JobConfiguration,
        *,
        workers: int,
        is_over: Callable[[], bool],
        renewed: float = 0.0,
        doubled: float = 0.0,
    ) -> None:
        """Prepare an instance.

        Args:
            name: For the trace.
            network: What lies between it and the cluster.
            settings: The job.
            workers: Processes that emit; 0 for the driver alone.
            is_over: Whether nothing new will come: it may end once all is done.
            renewed: Share of the tasks for which Spark starts another worker.
            doubled: Share of the tasks that Spark runs twice at once.
        """
        self.name = name
        self.settings = settings
        self._network = network
        self._scheduler = network.scheduler
        self._workers = workers
        self.renewed = renewed
        self.doubled = doubled
        self._is_over = is_over
        self._failures = 0
        self._numbers = itertools.count(1)
        self.has_finished = False
        """Whether it ended because everything was done."""
        self.processes: list[Process] = []
        """The driver, then everything that it started."""

    def start(self) -> None:
        """Starts the driver."""
        self.processes.append(self._scheduler.spawn(self.name, self.run))

    @property
    def is_alive(self) -> bool:
        """Whether the driver lives."""
        return self.processes[0].is_alive and not self.processes[0].is_doomed

    def run(self) -> None:
        """One run after the other, until all is done or something is fatal."""
        while True:
            try:
                start, identity = self._prepare()
                if self._one_run(start, identity):
                    self.has_finished = True
                    return
            except TransientFault as fault:
                self._scheduler.tell(f"begins another run: {fault.message}")
                self._pause()

    def _pause(self) -> None:
        self._failures += 1
        seconds = _BACKOFF[min(self._failures, len(_BACKOFF)) - 1]
        # Instances that start together must not go on fencing each other in step.
        self._scheduler.sleep(seconds * self._network.random.uniform(0.5, 1.5))

    def _prepare(self) -> tuple[Start, epoch.RunIdentity]:
        settings, cluster = self.settings, self._network.cluster
        partitions = cluster.topics[DEAD_LETTERS].partitions
        for topic in own_topics(settings, {DEAD_LETTERS: partitions}, cluster.topics):
            if topic.name in {RETRY, BACKOFF, REMAINING, REPLAY}:
                cluster.create(topic.name, topic.partitions)
        with ControlTopic(settings.connection, settings.control_topic) as control:
            return prepare(settings, control, {DEAD_LETTERS: partitions})

    def _one_run(self, start: Start, identity: epoch.RunIdentity) -> bool:
        """One run; whether everything is done."""
        order = EmissionOrder.of(self.settings, identity, start)
        run = _Run(self, start, order)
        try:
            run.commit_start()
            run.batches()
        except FatalFault:
            raise
        except ProtocolError as fault:
            if not run.has_begun and not isinstance(fault, TransientFault):
                raise  # nothing of Spark is there to make another run of it
            self._scheduler.tell(f"the run ended: {type(fault).__name__} {fault.message}")
            self._pause()
            return False
        finally:
            run.close()
        return True


def prepare(
    settings: JobConfiguration, control: ControlTopic, layout: Mapping[str, int]
) -> tuple[Start, epoch.RunIdentity]:
    """What the job does before its query starts: begin the run, then read positions."""
    identity = epoch.begin_run(
        control,
        epoch.fencer_of(settings.connection),
        application=settings.application,
        share=settings.share,
        details={},
    )
    cluster = Cluster(settings.connection)
    return StartFinder(settings, JobControl(), cluster, control).find(layout), identity


class _Run:
    """One run of the query."""

    def __init__(self, instance: Instance, start: Start, order: EmissionOrder) -> None:
        self._instance = instance
        self._network = instance._network
        self._scheduler = instance._scheduler
        self._start = start
        self._order = order
        self._emission = Emission(order)
        self._workers: dict[int, _Worker] = {}
        self._cluster = Cluster(instance.settings.connection)
        aging = [held for held in start.held if held.interval is not None]
        self._held = HeldPartitions(start.held, self._cluster)
        self._aging = {held.lane: held.interval or 0.0 for held in aging}
        self._begun = self._scheduler.now
        # Parked messages and instructions are free by themselves.
        self._releases = {held.lane: held.release for held in start.held if held.behind is None}
        self._positions = start.every_position
        self._read = dict(self._positions)
        self._states = NO_STATES
        """What operators want, as the source has seen it."""
        self.has_begun = False
        """Whether the query runs."""

    def commit_start(self) -> None:
        """Commits where every lane stands, and notes what was found."""
        start, settings = self._start, self._instance.settings
        self._emission.emitter.begin_batch()
        self._emission.emitter.emit(PositionsOnly(start.every_position, start.moved))
        if start.topics or start.begins:
            with ControlTopic(settings.connection, settings.control_topic) as control:
                control.set_begins(start.begins)
                control.set_topics(start.topics)

    def batches(self) -> None:
        """One batch after the other, until everything is done."""
        self.has_begun = True
        partitions = self._start.layout[DEAD_LETTERS]
        while self._network.cluster.topics[DEAD_LETTERS].partitions == partitions:
            planned = self._planned()
            if planned == self._read:
                if self._instance._is_over() and not self._has_work():
                    self._commit_positions(planned)
                    return
                self._scheduler.sleep(self._network.random.choice([0.5, 4.0, 12.0]))
                continue
            before = dict(self._positions)
            self._emit(planned)
            if self._network.random.random() < _REPLAYED:
                self._scheduler.tell("the batch is done again")
                self._emit(planned)
            self._instance._failures = 0
            self._read = planned
            if self._network.random.random() < 0.1:
                # Upkeep: behind the last records there may only be markers, and offsets expire.
                self._commit_positions(self._network.random.choice([planned, before]))
        raise TransientFault("topics or partitions came")

    def close(self) -> None:
        """Ends the run; a worker that is busy goes on until it hears of it."""
        self._emission.close()
        for worker in self._workers.values():
            if worker.process is None:
                worker.emission.close()

    def _commit_positions(self, positions: Mapping[TopicPartition, int]) -> None:
        self._emission.emitter.begin_batch()
        self._emission.emitter.emit(PositionsOnly(positions))

    def _planned(self) -> dict[TopicPartition, int]:
        """Up to where the next batch reads: a few offsets of each lane."""
        try:
            # In this order: else what is parked meanwhile would be free at once.
            ends = self._cluster.ends(self._read)
            free = {**ends, **self._held.free(self._read, ends, self._followed())}
        except TransientFault:
            return self._read  # what is held stays held
        most = self._network.random.choice([2, 6, 12])
        return {lane: min(free[lane], begin + most) for lane, begin in self._read.items()}

    def _followed(self) -> States:
        """What operators want, as of now or as it was known before."""
        if self._network.random.random() < 0.5:
            topic = self._instance.settings.control_topic
            visible = self._network.cluster.visible(topic)
            told = (one for *_, one in visible if (one.key or b"").startswith(_ORDERS))
            values = {(one.key or b"").decode(): json.loads(one.value or b"") for one in told}
            self._states = states_of(values) if values else NO_STATES
        return self._states

    def _has_work(self) -> bool:
        """Whether anything waits that will be free by itself."""
        cluster = self._network.cluster
        for lane, begin in self._read.items():
            is_held = lane in self._releases and lane not in self._aging
            end = min(cluster.end(lane), self._releases[lane] if is_held else cluster.end(lane))
            if cluster.has_open or any(True for _ in cluster.read(lane, begin, end)):
                return True
        return False

    def _rows(self, ends: Mapping[TopicPartition, int]) -> dict[TopicPartition, list[Received]]:
        """What Spark reads: the committed records of each lane."""
        cluster, rows = self._network.cluster, {}
        for lane, end in ends.items():
            records = list(cluster.read(lane, self._read[lane], end))
            if lane in self._aging and not self._states.replays:  # nobody asked for it
                self._check_waited(lane, [(entry, record) for _, entry, record in records])
            found = [Received(lane, offset, record) for offset, _, record in records]
            if found:
                rows[lane] = found
        return rows

    def _check_waited(
        self, lane: TopicPartition, records: Sequence[tuple[Entry, OutputRecord]]
    ) -> None:
        """What was parked in this run has waited, whatever became of the clock on the wall."""
        for entry, record in records:
            passed = self._scheduler.now - self._scheduler.when(record.timestamp / 1000)
            if entry.written >= self._begun and passed < self._aging[lane] - ROUNDING:
                self._network.cluster.violations.append(
                    f"{lane} was read {passed:.1f} s after the attempt, not {self._aging[lane]:g} s"
                )

    def _emit(self, ends: Mapping[TopicPartition, int]) -> None:
        now = int(self._scheduler.wall * 1000)
        rows = self._rows(ends)
        shown = ", ".join(f"{lane} {r[0].at}-{r[-1].at}" for lane, r in rows.items())
        self._scheduler.tell(f"batch of {shown or 'nothing'}")
        if not self._instance._workers or self._network.random.random() < 0.3:
            emitted = Emitted()
            try:
                self._emission.emit(
                    [arrow_batch(found) for found in rows.values()],  # type: ignore[arg-type]
                    now,
                    emitted,
                )
            finally:
                self._positions.update(emitted.ends)
            return
        self._emit_in_workers(rows, now)

    def _emit_in_workers(self, rows: Mapping[TopicPartition, list[Received]], now: int) -> None:
        """Gives each lane to a worker; Spark gives it to another one in nearly every batch."""
        lanes = list(rows)
        self._network.random.shuffle(lanes)
        tasks: dict[int, list[TopicPartition]] = {}
        for number, lane in enumerate(lanes):
            tasks.setdefault(number % self._instance._workers, []).append(lane)
        started = [
            self._start_task(slot, [rows[lane] for lane in mine], now)
            for slot, mine in tasks.items()
        ]
        deadline = self._scheduler.now + _LOST_AFTER
        while any(task.is_awaited for task in started) and self._scheduler.now <= deadline:
            for task in started:
                self._double(task, now)
            self._scheduler.sleep(0.05)
        answers = [task.answer for task in started]
        faults = [one.fault for one in answers if one is not None and one.fault is not None]
        if faults:
            raise max(faults, key=lambda fault: not isinstance(fault, TransientFault))
        if None in answers:
            raise TransientFault("an executor was lost")

    def _start_task(self, slot: int, rows: list[list[Received]], now: int) -> _Task:
        worker = self._workers.get(slot)
        is_left = worker is not None and worker.is_busy  # with a task that another one answered
        if worker is None or is_left or self._network.random.random() < self._instance.renewed:
            # Spark ends workers that were idle, and starts others.
            if worker is not None and not is_left:
                worker.emission.close()
            worker = self._workers[slot] = _Worker(Emission(self._order))
        task = _Task(rows, [worker])
        if self._instance.doubled and self._network.random.random() < self._instance.doubled:
            task.doubled_at = self._scheduler.now + self._network.random.choice(_DOUBLED_AFTER)
            task.is_first_lost = self._network.random.random() < 0.5
        self._attempt(worker, rows, now, f"w{slot}", 0)
        return task

    def _double(self, task: _Task, now: int) -> None:
        """Starts a second attempt when its time has come, in a worker on another executor."""
        if self._scheduler.now < task.doubled_at or not task.is_awaited:
            return
        task.doubled_at = float("inf")
        why = "its executor is taken for lost" if task.is_first_lost else "it is slow"
        self._scheduler.tell(f"the task of {task.rows[0][0].lane} is run twice: {why}")
        task.attempts.append(_Worker(Emission(self._order)))
        self._attempt(task.attempts[-1], task.rows, now, "w-second", 1)

    def _attempt(
        self, worker: _Worker, rows: list[list[Received]], now: int, name: str, number: int
    ) -> None:
        """Lets a worker do a task, as ``redrive.streaming.workers`` does in Spark's."""

        def body() -> None:
            try:
                refuse_second_attempt(number)
                batches = [arrow_batch(found) for found in rows]  # type: ignore[arg-type]
                worker.emission.emit(batches, now, Emitted())
            except ProtocolError as fault:
                worker.fault = fault
            worker.process = None

        worker.fault = None
        full_name = f"{self._instance.name}.{name}.{next(self._instance._numbers)}"
        worker.process = self._scheduler.spawn(full_name, body)
        self._instance.processes.append(worker.process)
