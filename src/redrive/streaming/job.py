"""The job: one Structured Streaming query from dead letters and due retries to transactions.

Every start takes its positions from Kafka (the committed offsets of the application's group), never
from an old checkpoint: so there is one way to start, after a stop, a crash or the loss of the
directory, and sources may change between two starts. The checkpoint directory of a run serves Spark
for that run only.

``JobProcess`` leads each run through these states, in this order:

    prepared  its topics exist, its share is taken, older runs are fenced, then positions are read
    planned   its query runs, and Spark plans the first batch, which may not begin yet
    begun     positions and tables are committed, then batches may begin
    watched   until a request, a fault, a chore of upkeep or WAIT ends it
    ended     its last batch is over, then its query and its clients are closed
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Final

from redrive.configuration import JobConfiguration
from redrive.engine.breaker import Breakers
from redrive.errors import (
    ConfigurationError,
    EnvironmentFault,
    FatalFault,
    ProtocolError,
    RedriveError,
    SupersededFault,
    TransientFault,
)
from redrive.kafka.cluster import Cluster
from redrive.kafka.deadline import COORDINATOR, under_way
from redrive.streaming.batch import BatchProcessor
from redrive.streaming.emission import EmissionOrder
from redrive.streaming.forwarding import Forwarding
from redrive.streaming.held_keys import HeldKeysTopic
from redrive.streaming.held_source import HeldSource
from redrive.streaming.lifecycle import BatchSummary, EndDeadline, JobControl, Restart, Stop
from redrive.streaming.preparation import Preparation, no_folder
from redrive.streaming.query import RunningQuery, start_query
from redrive.streaming.session import Spark, exercise
from redrive.streaming.start import Start
from redrive.streaming.supervision import Supervisor, cause_of
from redrive.streaming.upkeep import InvalidReport, Upkeep, due_now
from redrive.streaming.wait import WaitRule, wait_rule

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from redrive.checkpoints.epoch import RunIdentity
    from redrive.messages import TopicPartition
    from redrive.streaming.projection import Projection

_LOOK: Final = 0.2
"""Seconds between two checks of the main thread for requests and the query's state."""
_IDLE_AGE: Final = 0.5
"""Seconds between two checks for remaining work, when WAIT can end the job."""
_PROJECTION_DELAY: Final = 10.0
"""Seconds from the job's start to the projection's, whose first append is slow."""


def run(
    configuration: JobConfiguration,
    control: JobControl,
    session: SparkSession | None = None,
    *,
    end_process: Callable[[int], None] | None = None,
    once: bool = False,
) -> int:
    """Runs the job until it is stopped or its tables' WAIT ends it.

    Args:
        configuration: The job.
        control: Requests to the job, and its observers.
        session: A Spark session to use; None to start one and stop it at the end.
        end_process: Ends this process at once with an exit code, if a stop hangs or the job stalled
            for too long; None to let it hang.
        once: Whether the job ends when what was due at its start is handled, whatever WAIT says.

    Returns:
        0, after a normal end.

    Raises:
        RestartRequired: Java died or hangs; a new process must continue.
        EnvironmentFault: Java, jars or the broker are missing; or the job ended by itself and a
            dead-letter topic does not exist.
        AlreadyRunningError: Another instance works on the same share.
        ConfigurationError: What Kafka holds contradicts the settings.
        FatalFault: Another instance took over, or the broker refuses for good.
    """
    try:
        configuration.directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise no_folder(configuration, error) from error
    control.stopped(JobProcess(configuration, control, session, end_process, once=once).run())
    return 0


class JobProcess:
    """One process of the job, over restarts of its query.

    This class starts one run after another, each from Kafka's state, until something ends the job,
    with growing pauses between failed runs.
    """

    def __init__(
        self,
        configuration: JobConfiguration,
        control: JobControl,
        session: SparkSession | None,
        end_process: Callable[[int], None] | None,
        *,
        once: bool = False,
    ) -> None:
        """Prepare a job; nothing is started yet; arguments as for ``run``."""
        self._configuration = configuration
        self._control = control
        self._spark = Spark(configuration, session)
        end = None if end_process is None else self._spark.killed_before(end_process)
        self._supervisor = Supervisor(configuration, control, end, ends_workers=self._spark.is_own)
        self._end = EndDeadline(control, end)
        self._preparation = Preparation(configuration, control, self._supervisor)
        self._breakers = Breakers({})
        """They outlive a run: a new partition or a clock that was set does not close them."""
        self._projection: Projection | None = None
        self._once = once
        self._wait = self._wait_rule()
        self._due: Mapping[TopicPartition, int] | None = None
        """What was due at the start, of a job that runs once: the end of each lane."""
        self._invalid = InvalidReport(control)
        self._is_started = False
        self._replaced: JobConfiguration | None = None
        """The configuration before a restart, until a run begins with the new one."""

    # -- from start to end ---------------------------------------------------------------------

    def run(self) -> str:
        """Runs until something ends the job; returns why, once everything is released."""
        error: RedriveError | None = None
        self._end.start()
        try:
            return self._run()
        except Exception as raised:
            error = raised if isinstance(raised, RedriveError) else RedriveError(repr(raised))
            raise
        finally:
            self._end.begin(error)
            self._close(is_superseded=isinstance(error, SupersededFault))

    def _run(self) -> str:
        self._supervisor.start()
        if self._configuration.wait_for_broker and not self._preparation.await_broker():
            return self._control.stop_reason
        self._spark.begin()  # the slowest part of a start, so it runs in parallel
        if self._configuration.rebalances:
            # Others give up partitions once a run is prepared: by then Java is warm.
            self._prepare_spark()
            self._exercise_spark()
        while (prepared := self._prepare()) is not None:
            self._prepare_spark()
            self._take_subscribed_topics()
            if self._run_once(*prepared):
                break
        if self._once and self._projection is not None and not self._control.is_stopping:
            self._projection.catch_up()
        return self._control.stop_reason or self._preparation.nothing_left(once=self._once)

    def _wait_rule(self) -> WaitRule:
        # A job that runs once waits for nothing that does not exist.
        return WaitRule({}, 0) if self._once else wait_rule(self._configuration)

    def _prepare(self) -> tuple[Start, RunIdentity] | None:
        """The next run; with the earlier settings if Kafka contradicts the new ones."""
        try:
            with under_way("preparation of a run"):
                return self._preparation.prepare(self._wait, is_first=not self._is_started)
        except ConfigurationError as error:
            if self._replaced is None:
                raise
            self._configure(self._replaced)
            self._replaced = None
            self._control.restart_refused(error)
            return self._preparation.prepare(self._wait, is_first=False)

    def _close(self, *, is_superseded: bool) -> None:
        """Releases everything; the share is free for the next instance."""
        if self._projection is not None:
            self._projection.stop()
        # The query, its workers and the driver's emitter have ended: only now may another instance
        # start.
        self._preparation.release(is_superseded=is_superseded)
        self._spark.stop()
        shutil.rmtree(self._checkpoints, ignore_errors=True)
        self._supervisor.end()
        self._end.met()

    def _run_once(self, start: Start, identity: RunIdentity) -> bool:
        """One run, from its query's start to its last commit; returns whether the job ends."""
        configuration, control = self._configuration, self._control
        control.run_began(identity.number)
        processor = BatchProcessor(
            configuration,
            EmissionOrder.of(configuration, identity, start),
            start,
            Cluster(configuration.connection),
            done=self._batch_done,
            emitted=control.emitted,
            workers_first=self._preparation.failures > 0,
            breakers=self._breakers,
        )
        query, cluster = None, Cluster(configuration.connection)
        forwarding = Forwarding(configuration, identity, control)
        held_keys = HeldKeysTopic(configuration, identity, control)
        try:
            if self._once and self._due is None:
                self._due = due_now(configuration, cluster, start)
            query = self._start_query(start, processor, identity)
            self._preparation.commit(start, processor)
            self._report_start(start)
            upkeep = Upkeep(
                configuration,
                control,
                cluster,
                spark=self._spark,
                start=start,
                query=query,
                processor=processor,
                assigned_share=self._preparation.assigned_share,
                invalid=self._invalid,
            )
            with closing(upkeep):
                ends_job = self._watch(upkeep, forwarding)
                if processor.end(COORDINATOR):
                    upkeep.end()
        except ProtocolError as fault:
            self._handle_failure(fault)
            return False
        else:
            return ends_job
        finally:
            if query is not None:
                self._stop_query(query, processor)
            forwarding.end()
            held_keys.end()
            processor.close()
            cluster.close()

    def _report_start(self, start: Start) -> None:
        self._supervisor.watch(start)
        if not self._is_started:
            self._is_started = True
            self._control.started(self._configuration)
        if self._replaced is not None:
            # Reported only now: the earlier settings no longer decide anything.
            self._replaced = None
            self._control.restarted(self._configuration, is_new_run=True)

    # -- Spark ---------------------------------------------------------------------------------

    @property
    def _checkpoints(self) -> Path:
        return self._configuration.own_directory / "checkpoints"

    def _prepare_spark(self) -> None:
        from redrive.streaming.projection import Projection  # noqa: PLC0415 - slow to import

        if self._projection is not None:
            return
        session = self._spark.session
        self._spark.ask("registration of a source", lambda: session.dataSource.register(HeldSource))
        self._projection = Projection(
            self._spark, self._configuration, self._control, delay=_PROJECTION_DELAY
        )

    def _exercise_spark(self) -> None:
        session, folder = self._spark.session, self._configuration.own_directory / "exercise"
        shutil.rmtree(folder, ignore_errors=True)
        self._spark.ask("a first query of Spark", lambda: exercise(session, folder))
        shutil.rmtree(folder, ignore_errors=True)

    def _start_query(
        self, start: Start, processor: BatchProcessor, identity: RunIdentity
    ) -> RunningQuery:
        from py4j.protocol import Py4JError  # noqa: PLC0415 - comes with pyspark, slow to import
        from pyspark.errors import PySparkException  # noqa: PLC0415 - as above

        checkpoint = self._checkpoints / str(identity.number)
        session, configuration = self._spark.session, self._configuration
        try:
            query = self._spark.ask(
                "start of the query",
                lambda: start_query(
                    session, configuration, start, processor, run=identity, checkpoint=checkpoint
                ),
            )
        except (OSError, Py4JError, PySparkException) as error:
            if not self._is_started:
                raise EnvironmentFault(
                    f"Spark cannot start the query: {cause_of(str(error))}",
                    hint=f"is there room in {self._configuration.directory}?",
                ) from error
            raise TransientFault(cause_of(str(error))) from error
        return RunningQuery(self._spark, query, "the query")

    def _stop_query(self, query: RunningQuery, processor: BatchProcessor) -> None:
        # stop() would interrupt a batch: wait for the running one; a later one does nothing.
        processor.end(COORDINATOR)
        query.stop()
        shutil.rmtree(self._checkpoints, ignore_errors=True)

    # -- while the query runs ------------------------------------------------------------------

    def _batch_done(self, summary: BatchSummary) -> None:
        self._preparation.failures = 0
        self._wait.useful(summary.active, time.time())
        self._control.batch(summary)

    def _watch(self, upkeep: Upkeep, forwarding: Forwarding) -> bool:
        """Waits until the run must end; returns whether the job ends with it."""
        checked_work_at = time.monotonic()
        while True:
            request = self._control.next_request(timeout=_LOOK)
            if isinstance(request, Stop):
                return True
            if request is not None and self._accept(request, upkeep):
                return False
            if not upkeep.query.is_active:
                if isinstance(failure := upkeep.processor.failure, ProtocolError):
                    raise failure
                problem = upkeep.query.exception or "the query ended by itself"
                raise TransientFault(cause_of(problem))
            self._note_progress(upkeep.processor, forwarding)
            upkeep.look()
            if upkeep.ends_run:
                return False
            if self._projection is not None and not self._once:
                self._projection.look()
            if self._wait.ends and time.monotonic() - checked_work_at > _IDLE_AGE:
                checked_work_at = time.monotonic()
                if self._has_nothing_left(upkeep, forwarding):
                    return True

    def _note_progress(self, processor: BatchProcessor, forwarding: Forwarding) -> None:
        """Warns of what is new since the last look, and notes all of it for ``redrive status``."""
        noted = self._supervisor.noted
        before = {breaker.key: breaker for breaker in noted.breakers}
        breakers = {breaker.key: breaker for breaker in processor.breakers()}
        for key in breakers.keys() - before.keys():
            self._control.warning("a breaker opened: retries wait", **asdict(breakers[key]))
        for key in before.keys() - breakers.keys():
            self._control.notice("a breaker closed: retries continue", **asdict(before[key]))
        dropping = {program.sentence for program in processor.dropping}
        for sentence in sorted(dropping.difference(noted.dropping)):
            self._control.warning("a program drops headers", because=sentence)
        self._supervisor.noted = replace(
            noted,
            breakers=tuple(breakers.values()),
            dropping=tuple(sorted(dropping.union(noted.dropping))),
            ledger="" if self._projection is None else self._projection.problem,
            clusters=forwarding.problem,
            forwards=forwarding.waiting,
        )

    def _accept(self, request: Restart, upkeep: Upkeep) -> bool:
        """Changes tables or settings; returns whether that needs another run."""
        fresh = self._control.load(request)
        if fresh is None:
            return False
        before = self._configuration
        fresh = replace(fresh, application=before.application, share=before.share)
        with under_way("change of tables"):
            start = self._preparation.change_tables(fresh, upkeep.start, upkeep.processor)
        if start is None:
            self._replaced = before
            self._preparation.refuses_others = True
            self._configure(fresh)
            return True
        self._configure(self._preparation.configuration)
        self._supervisor.watch(start)
        upkeep.change(self._configuration, start)
        self._control.restarted(self._configuration, is_new_run=False)
        return False

    def _configure(self, configuration: JobConfiguration) -> None:
        self._configuration = self._preparation.configuration = configuration
        self._wait = self._wait_rule()

    def _take_subscribed_topics(self) -> None:
        before, fresh = self._configuration, self._preparation.configuration
        if fresh is before:
            return
        self._configure(fresh)
        old_topics = {handler.identity.topic for handler in before.handlers}
        topics = {handler.identity.topic for handler in fresh.handlers}
        if self._is_started and topics != old_topics:
            self._control.notice(
                "the topics of subscriptions changed",
                added=", ".join(sorted(topics - old_topics)),
                removed=", ".join(sorted(old_topics - topics)),
            )
            self._control.resubscribed(fresh)

    def _has_nothing_left(self, upkeep: Upkeep, forwarding: Forwarding) -> bool:
        """Whether the job ends by itself: by WAIT, or because what was due is handled."""
        try:
            if self._due is not None:
                # Nobody waits for a cluster that cannot be reached.
                return upkeep.backlog.handled(self._due) and bool(
                    forwarding.problem or forwarding.completed(upkeep.cluster) is not None
                )
            if not self._wait.is_over(time.time()) or upkeep.query.status["isDataAvailable"]:
                return False
            forwarded = forwarding.completed(upkeep.cluster)
            if forwarded is None or upkeep.backlog.pass_markers():
                return False
            # A batch or a message returned meanwhile would have moved an end, or is waited for.
            is_done = self._wait.is_over(time.time()) and (
                forwarded == forwarding.completed(upkeep.cluster)
            )
        except FatalFault:
            raise
        except ProtocolError:
            return False
        return is_done and upkeep.is_last_run()

    def _handle_failure(self, fault: ProtocolError) -> None:
        """Ends the job if a fault is fatal; else reports why the run ended, and pauses."""
        if isinstance(fault, SupersededFault) and self._configuration.rebalances:
            self._preparation.lose_share()
        elif isinstance(fault, FatalFault):
            raise fault
        self._preparation.failures += 1
        self._supervisor.troubled(fault.message, "batch")
        self._control.warning(
            "the query ended and is restarted",
            tries=self._preparation.failures,
            error=fault.message,
        )
        self._preparation.pause()
