"""A simulated instance of the job: the project's own code, in processes that may die anywhere.

What is Spark's is written out here: it asks its sources how far to read, reads, and hands rows to
``foreachBatch`` or to Python workers. So is the loop of ``redrive.streaming.job``. All else is the
project's: preparing a run, planning what is held, batches, upkeep, emission and protocol.
"""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from json import loads
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, Literal

from tests.simulation.clients import Network, Received, Rows
from tests.simulation.cluster import SimulatedCluster
from tests.simulation.scheduler import ROUNDING, Process

from redrive.checkpoints.epoch import RunIdentity, instance_key
from redrive.checkpoints.held import HeldInstructions, Parked
from redrive.checkpoints.instances import Share
from redrive.configuration import (
    Conflict,
    DataLoss,
    EmitterChoice,
    HandlerConfiguration,
    JobConfiguration,
    LedgerConfiguration,
)
from redrive.engine.breaker import BreakerSettings
from redrive.engine.names import HandlerIdentity, cluster_topic, control_topic, tables_topic
from redrive.errors import FatalFault, ProtocolError, SupersededFault, TransientFault
from redrive.kafka.cluster import Cluster
from redrive.messages import OutputRecord, TopicPartition
from redrive.messages import own_headers as own
from redrive.streaming.batch import BatchProcessor
from redrive.streaming.emission import BatchState, Emission, EmissionOrder
from redrive.streaming.forwarding import Forwarding
from redrive.streaming.held_keys import HeldKeysTopic
from redrive.streaming.held_reader import HeldReader, HeldSettings
from redrive.streaming.lifecycle import JobControl
from redrive.streaming.preparation import Preparation
from redrive.streaming.start import Start
from redrive.streaming.upkeep import Upkeep
from redrive.streaming.workers import TaskResult, refuse_second_attempt
from redrive.topology.put import QueueLimits

APPLICATION: Final = "app"
DEAD_LETTERS: Final = "DLQ"
RETRY: Final = "redrive-app-dlq-retry"
BACKOFF: Final = f"{RETRY}-backoff"
REMAINING: Final = "redrive-app-dlq-remaining"
REPLAY: Final = "redrive-app-dlq-replay"
FAR: Final = "far"
"""Name of the other cluster, to which messages are forwarded."""
TO_FAR: Final = cluster_topic(APPLICATION, FAR)
_LOST_AFTER: Final = 60.0
"""Seconds after which Spark takes a worker that says nothing for lost."""
_REPLAYED: Final = 0.05
"""Share of the batches that are done a second time."""
_STALE: Final = 0.05
"""Share of the batches after which positions are committed as they were before."""
_STALE_BESIDE: Final = 0.2
"""Share of the looks of upkeep beside the batches at which positions are committed again."""
_DOUBLED_AFTER: Final = (0.0, 0.0, 0.02, 0.05, 0.2)
"""Seconds into a task after which its second attempt starts: it takes about as long as itself."""
_FETCH: Final = 0.05
"""Seconds for which the driver fetches the rows of a batch."""
_LOOK: Final = 0.2
"""Seconds between two looks of a driver whether its workers have answered."""
_LONG_OVERTAKEN: Final = 20.0
"""Seconds after which a run that another one overtook must have noticed."""
_LATE_LOOK: Final = 0.5
"""Share of the ends of runs at which upkeep looks before it hears of the end."""
_LOOKS: Final = (0.3, 1.0, 2.0)
"""Seconds between two looks of upkeep beside the batches."""
_LIMITS: Final = (2, 6, 12)
"""Rows that a batch takes of one source at most."""
_SLICE: Final = 5
"""Records of a slice unless a schedule is about large ones."""
_FEW: Final = 2
"""Rows up to which the driver emits a batch where there are workers."""
_NEVER: Final[Any] = SimpleNamespace(is_over=lambda _: False)
"""A WAIT that never ends the job."""
_NOBODY: Final[Any] = SimpleNamespace(
    troubled=lambda *_: None, waits_for=lambda *_: None, stands_by=lambda: None
)
"""A supervisor that nobody asks."""
_IDLE: Final = ((0.5, 4.0, 12.0), (4.0, 12.0))
"""Seconds between two looks of an idle job, while something new may come and afterwards."""


def configuration(
    network: Network,
    table: str,
    share: Share,
    *,
    starting_offsets: Literal["earliest", "latest"] = "earliest",
    limits: Mapping[str, QueueLimits] | None = None,
    data_loss: DataLoss = DataLoss.STOP,
    emitter: EmitterChoice = EmitterChoice.DRIVER,
    rebalances: bool = False,
    slice_records: int | None = None,
    breaker: BreakerSettings | None = None,
    has_held_keys: bool = False,
    far: Network | None = None,
) -> JobConfiguration:
    """The settings of a simulated job with one handler and slices of a few records.

    Args:
        network: What its clients connect to.
        table: Text of the rules table.
        share: Which partitions the instance works on.
        starting_offsets: Where a partition starts that was never seen.
        limits: Limits of queues.
        data_loss: What to do when records are gone.
        emitter: Who emits.
        rebalances: Whether instances share the partitions out among themselves.
        slice_records: Records of a slice; None for a few.
        breaker: Breakers of the handler, if it has any.
        has_held_keys: Whether it writes the topic of held keys.
        far: What lies before the other cluster, if messages are forwarded to one.
    """
    identity = HandlerIdentity(
        name="dlq", queue_manager="", queue=DEAD_LETTERS, topic=DEAD_LETTERS,
        retry_topic=RETRY, remaining_topic=REMAINING, replay_topic=REPLAY,
    )  # fmt: skip
    handler = HandlerConfiguration(
        identity=identity,
        rules=table,
        rules_name="table",
        breaker=breaker,
        held_keys=has_held_keys,
    )
    return JobConfiguration(
        application=APPLICATION,
        connection=network.connection(),
        handlers=(handler,),
        directory=Path("unused"),
        ledger=LedgerConfiguration(enabled=False, path=Path("unused")),
        share=share,
        rebalances=rebalances,
        starting_offsets=starting_offsets,
        on_data_loss=data_loss,
        limits=limits or {},
        slice_records=slice_records or _SLICE,
        on_conflict=Conflict.TAKE_OVER,
        emitter=emitter,
        driver_batch_limit=_FEW,
        operator="ann",
        clusters={} if far is None else {FAR: far.connection()},
    )


@dataclass
class _Worker:
    """One of Spark's Python workers, for as long as the instance keeps it."""

    emission: Emission
    order: EmissionOrder
    process: Process | None = None
    """What it does at the moment, or died in; None once it has answered."""
    result: TaskResult = field(default_factory=TaskResult)

    @property
    def is_busy(self) -> bool:
        """Whether it lives and has not answered."""
        return self.process is not None and self.process.is_alive


@dataclass
class _Task:
    """The rows that a worker has to emit, and a second attempt at them if Spark starts one."""

    rows: list[list[Received]]
    order: EmissionOrder
    now: int
    known: BatchState
    attempts: list[_Worker] = field(default_factory=list)
    doubled_at: float = float("inf")
    """When Spark starts the second attempt, if the first has not answered by then."""
    is_first_lost: bool = False
    """Whether Spark takes the executor of the first attempt for lost, and hears it no more; else it
    only found it slow (speculation). The process lives on either way."""

    @property
    def answer(self) -> _Worker | None:
        """The attempt whose answer counts: the first that came."""
        return next((worker for worker in self._heard if worker.process is None), None)

    @property
    def is_awaited(self) -> bool:
        """Whether an answer may still come."""
        return self.answer is None and any(worker.is_busy for worker in self._heard)

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
        has_upkeep_beside: bool = False,
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
            has_upkeep_beside: Whether upkeep runs in a thread of its own, as in the job; else
                between two batches, which takes fewer steps.
        """
        self.name = name
        self.settings = settings
        self.share = settings.share
        """The one that it was started for."""
        self._network = network
        self._scheduler = network.scheduler
        self._workers = workers
        self.renewed = renewed
        self.doubled = doubled
        self.has_upkeep_beside = has_upkeep_beside
        self._is_over = is_over
        self._numbers = itertools.count(1)
        self.control = JobControl()
        self.preparation: Preparation | None = None
        """Made by the process itself."""
        self.start_begun = 0.0
        """When the start of its last run began."""
        self.is_to_stop = False
        """Whether somebody asked it to stop, whatever is left to do."""
        self.has_finished = False
        """Whether it ended because everything was done."""
        self.asked: JobConfiguration | None = None
        """What a restart is to bring (SIGHUP), until the driver takes it."""
        self.processes: list[Process] = []
        """The driver, then everything that it started."""

    def start(self) -> None:
        self.processes.append(self._scheduler.spawn(self.name, self.run))

    @property
    def is_alive(self) -> bool:
        return self.processes[0].is_alive and not self.processes[0].is_doomed

    def run(self) -> None:
        """One run after the other, until all is done or something is fatal."""
        preparation = self.preparation = Preparation(self.settings, self.control, _NOBODY)
        try:
            while (prepared := self._prepared(preparation)) is not None:
                if self._one_run(preparation, *prepared):
                    preparation.release(is_superseded=False)
                    self.has_finished = not self.is_to_stop
                    return
        except SupersededFault:
            preparation.release(is_superseded=True)
            raise

    def _prepared(self, preparation: Preparation) -> tuple[Start, RunIdentity] | None:
        self.start_begun = self._scheduler.now
        return preparation.prepare(_NEVER, is_first=False)

    def assigned_share(self, start: Start) -> Share | None:
        assert self.preparation is not None
        return self.preparation.assigned_share(start)

    def _one_run(self, preparation: Preparation, start: Start, identity: RunIdentity) -> bool:
        """One run; whether everything is done."""
        self.settings = preparation.configuration
        run = _Run(self, start, EmissionOrder.of(self.settings, identity, start))
        try:
            return self._batches(preparation, start, run)
        except ProtocolError as fault:
            if isinstance(fault, SupersededFault) and self.settings.rebalances:
                preparation.lose_share()
            elif isinstance(fault, FatalFault):
                raise
            self._scheduler.tell(f"the run ended: {type(fault).__name__} {fault.message}")
            preparation.failures += 1
            preparation.pause()
            return False

    def _batches(self, preparation: Preparation, start: Start, run: _Run) -> bool:
        """The batches of one run; also its end may find that another one has overtaken it."""
        try:
            preparation.commit(start, run.processor)
            run.check_commands(self.start_begun)
            return run.batches()
        except ProtocolError as fault:
            run.check_end(fault)
            raise
        finally:
            run.close()


@dataclass
class _Restart:
    """A restart under way, in the thread of the driver that hears of it."""

    asked: JobConfiguration
    start: Start | None = None
    """What changed tables set free; None if it takes another run."""
    fault: FatalFault | None = None


class _Processor(BatchProcessor):
    """Batches of a run that hears at once of changed tables."""

    taken: Callable[[Start], None]

    def _take(self, configuration: JobConfiguration, start: Start) -> None:
        super()._take(configuration, start)
        self.taken(start)


class _Run:
    """One run of the query."""

    def __init__(self, instance: Instance, start: Start, order: EmissionOrder) -> None:
        settings = instance.settings
        self._instance = instance
        self._network = instance._network
        self._scheduler = instance._scheduler
        self._start = start
        self._order = order
        self._workers: dict[int, _Worker] = {}
        self._cluster = Cluster(settings.connection)
        self._planner = HeldReader(
            HeldSettings(
                held=start.held,
                connection=settings.connection,
                max_rows=0,
                clock=start.clock,
                run=order.run,
                watched=tuple(start.positions),
                rate=settings.reevaluation_rate,
            )
        )
        self.processor = _Processor(
            settings, order, start, self._cluster, done=self._done, emitted=lambda _: None
        )
        self.processor.taken = self._tables_changed
        self._restart: tuple[Process, _Restart] | None = None
        self._take(start)
        self._read = dict(start.every_position)
        self._batches = 0
        query: Any = self  # which tells its progress
        spark: Any = None
        invalid: Any = SimpleNamespace(look=lambda _: None)  # it only counts, in a thread
        self._home = Cluster(settings.connection)
        self._upkeep = Upkeep(
            settings,
            instance.control,
            self._home,
            spark=spark,
            start=start,
            query=query,
            processor=self.processor,
            assigned_share=instance.assigned_share,
            invalid=invalid,
        )
        self._held_keys = HeldKeysTopic(settings, order.run, instance.control)
        self._forwarding = Forwarding(settings, order.run, instance.control)
        self._beside: Process | None = None
        """The thread of upkeep, where it is one of its own."""
        self._upkeep_rests = False
        """Whether upkeep does nothing, as its thread in the job does something else."""
        self._upkeep_is_over = False
        self._upkeep_looks = False
        self._upkeep_fault: FatalFault | None = None

    def _take(self, start: Start) -> None:
        self._start = start
        self._aging = {held.lane: held.interval for held in start.held if isinstance(held, Parked)}
        # Parked messages and instructions are free by themselves.
        self._releases = {
            held.lane: held.release for held in start.held if not isinstance(held, HeldInstructions)
        }

    @property
    def last_progress(self) -> dict[str, Any]:
        return {"inputRowsPerSecond": 0.0, "processedRowsPerSecond": 0.0}

    def batches(self) -> bool:
        """One batch after the other; whether everything is done, or another run has to begin."""
        if self._instance.has_upkeep_beside:
            driver = self._instance.processes[0]
            self._beside = self._scheduler.spawn(f"{driver.name}.upkeep", self._keep_up, driver)
            self._instance.processes.append(self._beside)
        while not self._upkeep.ends_run:
            if self._instance.is_to_stop:
                return True
            planned = self._planned()
            if not self._goes_on():
                return False
            if planned == self._read:
                is_over = self._instance._is_over()
                is_over = is_over and self._restart is None and self._has_forwarded()
                if is_over and not self._has_work():
                    with self._no_upkeep():
                        if self._upkeep.is_last_run():
                            self._upkeep.end()
                            return True
                idle = self._network.random.choice(_IDLE[is_over])
                # In the job, upkeep does not wait for the next batch to give up a share.
                most = _LOOKS[-1] if self._instance.settings.rebalances else idle
                self._scheduler.sleep(min(idle, most))
            else:
                self._batch(planned)
            if self._restart is None and self._beside is None:
                self._upkeep.look()
        return False

    def check_end(self, fault: ProtocolError) -> None:
        """A run that a newer one has overtaken notices, and does not begin again."""
        cluster, share = self._network.cluster, self._instance.settings.share
        is_told = isinstance(fault, FatalFault) or "does not show the run" not in fault.message
        if is_told or any(process.frozen[1] for process in self._instance.processes):
            return
        for _, _, entry, record in cluster.visible(control_topic(APPLICATION)):
            kind, _, other = (record.key or b"").decode().partition("/")
            is_long_ago = entry.written < self._scheduler.now - _LONG_OVERTAKEN
            if kind != "instance" or record.value is None or not is_long_ago:
                continue
            is_overlapping = share.overlaps(Share.parse(other))
            is_newer = loads(record.value)["run"] > self._order.run.number
            if is_overlapping and is_newer and self._is_last(record):
                cluster.violations.append(
                    f"{self._instance.name} begins again, though {other} has overtaken it"
                )

    def _is_last(self, entry: OutputRecord) -> bool:
        entries = self._network.cluster.visible(control_topic(APPLICATION))
        return [record for *_, record in entries if record.key == entry.key][-1] is entry

    def check_commands(self, begun: float) -> None:
        """A start ends what commands left open before it, which would hide what others decide."""
        for name, since in self._network.cluster.begun(tables_topic(APPLICATION)).items():
            if since < begun:
                self._network.cluster.violations.append(
                    f"{self._instance.name} started and left open what {name} had begun"
                )

    def _keep_up(self) -> None:
        """Upkeep at any moment, also while a batch runs or dies, as in the job's main thread."""
        while not self._upkeep_is_over:
            if self._restart is None and not self._upkeep_rests:
                self._upkeep_looks = True
                try:
                    self._upkeep.look()
                    if self._network.random.random() < _STALE_BESIDE:
                        self._commit_again()
                except FatalFault as fault:
                    self._upkeep_fault = fault
                    return
                finally:
                    self._upkeep_looks = False
            self._scheduler.sleep(self._network.random.choice(_LOOKS))

    def _commit_again(self) -> None:
        with suppress(TransientFault):
            self.processor.commit_again()

    @contextmanager
    def _no_upkeep(self) -> Iterator[None]:
        """Does something in place of upkeep, whose thread in the job would do it."""
        self._upkeep_rests = True
        while self._upkeep_looks:
            self._scheduler.sleep(_LOOK)
        if self._upkeep_fault is not None:
            raise self._upkeep_fault
        yield
        self._upkeep_rests = False

    def _goes_on(self) -> bool:
        """Lets a restart begin, or takes what it came to, as ``redrive.streaming.job`` does; False
        if it takes another run."""
        instance = self._instance
        if self._upkeep_fault is not None:
            raise self._upkeep_fault
        if self._restart is None and instance.asked is not None:
            restart, instance.asked = _Restart(instance.asked), None
            with self._no_upkeep():
                thread = self._scheduler.spawn(
                    f"{instance.name}.restart",
                    partial(self._change, restart),
                    instance.processes[0],
                )
                instance.processes.append(thread)
                self._restart = thread, restart
        if self._restart is None or self._restart[0].is_alive:
            return True
        (_, restart), self._restart = self._restart, None
        if restart.fault is not None:
            raise restart.fault
        assert instance.preparation is not None
        if restart.start is None:
            instance.preparation.configuration = replace(
                restart.asked, share=instance.settings.share
            )
            return False
        instance.settings = instance.preparation.configuration
        self._upkeep.change(instance.settings, restart.start)
        return True

    def _change(self, restart: _Restart) -> None:
        preparation = self._instance.preparation
        assert preparation is not None
        try:
            restart.start = preparation.change_tables(
                restart.asked, self._upkeep.start, self.processor
            )
        except FatalFault as fault:
            restart.fault = fault

    def _tables_changed(self, start: Start) -> None:
        self._scheduler.tell("other tables decide")
        self._take(start)
        self._network.on_first_plan()

    def _batch(self, planned: Mapping[TopicPartition, int]) -> None:
        before = dict(self.processor.positions)
        self._emit(planned)
        if self._network.random.random() < _REPLAYED:
            self._scheduler.tell("the batch is done again")
            self._emit(planned)
        self._read = dict(planned)
        if self._network.random.random() < _STALE:
            # Whoever commits again may have looked before the batch.
            self.processor.commit_positions(before)

    def close(self) -> None:
        """Ends the run; a worker that is busy goes on until it hears of it."""
        try:
            if self._beside is not None:
                self._look_late(self._beside)
        finally:
            self._end()

    def _look_late(self, upkeep: Process) -> None:
        """The main thread of the job looks a moment later how the query does."""
        try:
            self._scheduler.sleep(self._network.random.random() * _LOOK)
            if self._network.random.random() < _LATE_LOOK and self._upkeep_fault is None:
                self._commit_again()
        finally:
            self._upkeep_is_over = True
        while upkeep.is_alive:
            self._scheduler.sleep(_LOOK)

    def _end(self) -> None:
        while self._restart is not None and self._restart[0].is_alive:
            self._scheduler.sleep(_LOOK)
        if self._restart is not None and self._instance.preparation is not None:
            # As if its outcome had been looked at before the end.
            self._instance.preparation.configuration = self._restart[1].asked
        self.processor.end(0)
        self._forwarding.end()
        self._held_keys.end()
        self.processor.close()
        # A call that never came back may have left a transaction open; the next run ends it.
        self._network.cluster.leave(self._instance.name)
        for worker in self._workers.values():
            if worker.process is None:
                worker.emission.close()

    def _done(self, _: object) -> None:
        if self._instance.preparation is not None:
            self._instance.preparation.failures = 0

    def _planned(self) -> dict[TopicPartition, int]:
        """Up to where the next batch reads: each source is asked, the held one first."""
        chance, positions = self._network.random, self._start.positions
        held = {lane: begin for lane, begin in self._read.items() if lane not in positions}
        limit: Any = SimpleNamespace(maxRows=chance.choice(_LIMITS) * len(held))
        if not self._batches:
            self._network.on_first_plan()
        ends = {lane: self._network.cluster.stable_end(lane) for lane in self._aging}
        free = _flat(self._planner.latestOffset(_nested(held), limit))
        self._check_named(free, ends)
        most = chance.choice(_LIMITS)
        try:
            arrived = self._cluster.ends(positions)
        except TransientFault:
            arrived = {}  # Spark's own source asks again
        fresh = {
            lane: max(self._read[lane], min(arrived.get(lane, 0), self._read[lane] + most))
            for lane in positions
        }
        return {**fresh, **free}

    def _has_forwarded(self) -> bool:
        """Nothing waits for another cluster."""
        try:
            return self._forwarding.completed(self._home) is not None
        except ProtocolError:
            return False

    def _has_work(self) -> bool:
        """Whether anything waits that will be free by itself."""
        cluster = self._network.cluster
        if self._upkeep.backlog.leaderless:
            return True
        for lane, begin in self._read.items():
            is_held = lane in self._releases and lane not in self._aging
            end = min(cluster.end(lane), self._releases[lane] if is_held else cluster.end(lane))
            if cluster.has_open or any(
                not waits_for_ever(cluster, record)
                for _, _, record in cluster.read(lane, begin, end)
            ):
                return True
        return False

    def _rows(self, ends: Mapping[TopicPartition, int]) -> dict[TopicPartition, list[Received]]:
        """What Spark reads: the committed records of each lane."""
        cluster, rows = self._network.cluster, {}
        is_ordered = self._network.has_plans()
        for lane, end in ends.items():
            begin = self._read[lane]
            if cluster.starts.get(lane, 0) > begin and end > begin:
                raise TransientFault(f"records of {lane} are gone")
            records = list(cluster.read(lane, begin, end))
            if lane in self._aging and not is_ordered:
                # The planner hears of a changed table before the batches do.
                planner = self._planner._planner
                wait = None if planner is None else planner._waits.get(lane)
                free = max(self._releases[lane], wait.release if wait is not None else 0)
                self._check_waited(
                    lane, [record for offset, _, record in records if offset >= free]
                )
            received = [Received(lane, offset, record) for offset, _, record in records]
            if received:
                rows[lane] = received
        return rows

    def _check_named(
        self, free: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
    ) -> None:
        """What an accepted plan names is free as soon as the planner knows of the plan, or is being
        set free at its rate."""
        planner = self._planner._planner
        if planner is None or planner._follower is None or planner._silent_since is not None:
            return
        if planner._partitions.is_releasing:
            return
        for replay in planner._follower._states.replays.values():
            is_waited_for = replay.to.is_about_parked and not replay.cancelled_by
            for lane, span in replay.spans.items() if is_waited_for else ():
                begin = self._read.get(lane, 0)
                is_named = any(begin <= offset < ends.get(lane, 0) for offset in span.named)
                if is_named and free[lane] <= begin:
                    self._network.cluster.violations.append(
                        f"{lane} is held at {begin}, though {replay.plan} names what lies behind"
                    )

    def _check_waited(self, lane: TopicPartition, records: Sequence[OutputRecord]) -> None:
        """What no new table set free has waited, however the wall clock was set.

        A run that was superseded has the clock of before, and may read early what the newer one
        parked: it has no effect.
        """
        for record in records:
            attempted = self._network.cluster.attempted.get(record.timestamp)
            if attempted is None:  # the stamp of another program: the job's own clock counts
                passed = self._start.clock.now() - record.timestamp / 1000
            else:
                passed = self._scheduler.now - attempted
            if passed < self._aging[lane] - ROUNDING and self._is_current():
                self._network.cluster.violations.append(
                    f"{lane} was read {passed:.1f} s after the attempt, not {self._aging[lane]:g} s"
                )

    def _is_current(self) -> bool:
        """Whether the entry of the share still names this run."""
        key = instance_key(self._instance.settings.share).encode()
        entries = self._network.cluster.visible(control_topic(APPLICATION))
        values = [record.value for *_, record in entries if record.key == key]
        last = values[-1] if values else None
        return last is not None and loads(last)["run"] == self._order.run.number

    def _emit(self, ends: Mapping[TopicPartition, int]) -> None:
        now = int(self._start.clock.now() * 1000)
        self._network.cluster.attempted[now] = self._scheduler.now
        rows = self._rows(ends)
        shown = ", ".join(f"{lane} {r[0].at}-{r[-1].at}" for lane, r in rows.items())
        self._scheduler.tell(f"batch of {shown or 'nothing'}")
        self._batches += 1
        frame: Any = _Frame(self, rows)
        self.processor(frame, self._batches)

    def pause(self) -> None:
        """Lets time pass in which nothing is decided."""
        self._scheduler.sleep(_FETCH)

    def emitted_by_workers(
        self,
        rows: Mapping[TopicPartition, list[Received]],
        order: EmissionOrder,
        now: int,
        known: BatchState,
    ) -> list[Any]:
        """Gives each lane to a worker; Spark gives it to another one in nearly every batch."""
        lanes = list(rows)
        self._network.random.shuffle(lanes)
        tasks: dict[int, list[TopicPartition]] = {}
        for number, lane in enumerate(lanes):
            tasks.setdefault(number % self._instance._workers, []).append(lane)
        started = [
            self._start_task(slot, _Task([rows[lane] for lane in tasks_of_slot], order, now, known))
            for slot, tasks_of_slot in tasks.items()
        ]
        deadline = self._scheduler.now + _LOST_AFTER
        while any(task.is_awaited for task in started) and self._scheduler.now <= deadline:
            for task in started:
                self._double(task)
            doubled_at = min(task.doubled_at for task in started if task.is_awaited)
            self._scheduler.sleep(min(doubled_at - self._scheduler.now, _LOOK))
        answers = [task.answer for task in started if task.answer is not None]
        if len(answers) < len(started):
            raise TransientFault("an executor was lost")
        return [SimpleNamespace(result=pickle.dumps(answer.result)) for answer in answers]

    def _start_task(self, slot: int, task: _Task) -> _Task:
        worker = self._workers.get(slot)
        is_left = worker is not None and worker.is_busy  # with a task that another one answered
        if worker is None or is_left or self._network.random.random() < self._instance.renewed:
            # Spark ends workers that were idle, and starts others.
            if worker is not None and not is_left:
                worker.emission.close()
            worker = self._workers[slot] = _Worker(Emission(task.order), task.order)
        if worker.order is not task.order:
            worker.emission.change_tables(task.order)
            worker.order = task.order
        task.attempts.append(worker)
        if self._instance.doubled and self._network.random.random() < self._instance.doubled:
            task.doubled_at = self._scheduler.now + self._network.random.choice(_DOUBLED_AFTER)
            task.is_first_lost = self._network.random.random() < 0.5
        self._attempt(worker, task, f"w{slot}", 0)
        return task

    def _double(self, task: _Task) -> None:
        """Starts a second attempt when its time has come, in a worker on another executor."""
        if self._scheduler.now < task.doubled_at or not task.is_awaited:
            return
        task.doubled_at = float("inf")
        why = "its executor is taken for lost" if task.is_first_lost else "it is slow"
        self._scheduler.tell(f"the task of {task.rows[0][0].lane} is run twice: {why}")
        task.attempts.append(_Worker(Emission(task.order), task.order))
        self._attempt(task.attempts[-1], task, "w-second", 1)

    def _attempt(self, worker: _Worker, task: _Task, name: str, number: int) -> None:
        """Lets a worker do a task, as ``redrive.streaming.workers`` does in Spark's."""

        def body() -> None:
            try:
                refuse_second_attempt(number)
                parts: Any = [Rows(rows) for rows in task.rows]
                worker.emission.emit(parts, task.now, worker.result.emitted, task.known)
            except ProtocolError as fault:
                worker.result.fault = fault
            worker.process = None

        worker.result = TaskResult()
        full_name = f"{self._instance.name}.{name}.{next(self._instance._numbers)}"
        worker.process = self._scheduler.spawn(full_name, body)
        self._instance.processes.append(worker.process)


@dataclass(frozen=True, slots=True)
class _Frame:
    """``DataFrame``, as far as a batch uses one."""

    run: _Run
    rows: Mapping[TopicPartition, list[Received]]
    task: Any = None

    def toArrow(self) -> _Frame:  # noqa: N802 - Spark's name
        """The rows, in the driver; other threads go on while it fetches them."""
        self.run.pause()
        return self

    def to_batches(self) -> list[Rows]:
        return [Rows(rows) for rows in self.rows.values()]

    def mapInArrow(self, task: Any, _: object) -> _Frame:  # noqa: N802 - Spark's name
        """The frame of what a task makes of the rows."""
        return replace(self, task=task)

    def collect(self) -> list[Any]:
        return self.run.emitted_by_workers(self.rows, *self.task.args)


def waits_for_ever(cluster: SimulatedCluster, record: OutputRecord) -> bool:
    """Whether a parked message waits behind another that remains (ORDER(KEY))."""
    behind = own.read_own(record.headers or []).behind
    if not behind:
        return False
    last = {copy.key: copy for *_, copy in cluster.visible(REMAINING)}
    remaining = (copy for copy in last.values() if copy.value is not None)
    return any(own.read_own(copy.headers or []).identity == behind for copy in remaining)


def _nested(flat: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """Offsets as Spark keeps them."""
    offsets: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in flat.items():
        offsets.setdefault(topic, {})[str(partition)] = offset
    return offsets


def _flat(offsets: Mapping[str, Mapping[str, int]]) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic, int(number)): offset
        for topic, partitions in offsets.items()
        for number, offset in partitions.items()
    }
