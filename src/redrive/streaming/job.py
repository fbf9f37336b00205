"""The job: one Structured Streaming query from dead letters and due retries to transactions.

Every start takes its positions from Kafka (the committed offsets of the application's group), never
from an old checkpoint: so there is one way to start, after a stop, a crash or the loss of the
directory, and sources may change between two starts. The checkpoint directory of a run serves Spark
for that run only.

``preparation`` does the work before a run, and five parts do its work: the query (``query``), its
batches (``batch``), supervision (``supervision``), upkeep (``upkeep``) and the ledger's projection
(``projection``).
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
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
    from redrive.engine.breaker import BreakerKey, BreakerState
    from redrive.engine.facts import Program
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
    job = JobProcess(configuration, control, session, end_process, once=once)
    try:
        reason = job.run()
    finally:
        job.close()
    control.stopped(reason)
    return 0


@dataclass(frozen=True, slots=True)
class _Run:
    """One run of the query, and its parts."""

    query: RunningQuery
    processor: BatchProcessor
    upkeep: Upkeep
    forwarding: Forwarding
    cluster: Cluster


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
        self._wait = WaitRule({}, 0)
        self._once = once
        self._due: Mapping[TopicPartition, int] | None = None
        """What was due at the start, of a job that runs once: the end of each lane."""
        self._is_finished = False
        """Whether nothing is left for which the job would begin another run."""
        self._invalid = InvalidReport(control)
        self._open_breakers: dict[BreakerKey, BreakerState] = {}
        self._dropping: frozenset[Program] = frozenset()
        self._is_started = False
        self._is_superseded = False
        self._replaced: JobConfiguration | None = None
        """The configuration before a restart, until a run begins with the new one."""

    # -- from start to end ---------------------------------------------------------------------

    def run(self) -> str:
        """Runs until something ends the job, and returns the exit code."""
        error: RedriveError | None = None
        self._end.start()
        try:
            return self._run()
        except Exception as raised:
            error = raised if isinstance(raised, RedriveError) else RedriveError(repr(raised))
            raise
        finally:
            self._end.begin(error)

    def _run(self) -> str:
        self._wait = self._wait_rule()
        self._supervisor.start()
        if self._configuration.wait_for_broker and not self._preparation.await_broker():
            return self._control.stop_reason
        self._spark.begin()  # the slowest part of a start, so it runs in parallel
        if self._configuration.rebalances:
            # Others give up partitions once a run is prepared: by then Java is warm.
            self._prepare_spark()
            self._exercise_spark()
        while not self._is_finished and (prepared := self._prepare()) is not None:
            self._prepare_spark()
            self._take_subscribed_topics()
            reason = self._run_once(*prepared)
            if reason is not None:
                return reason
        if self._once and self._projection is not None:
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

    def close(self) -> None:
        """Releases everything; the share is free for the next instance."""
        if self._projection is not None:
            self._projection.stop()
        # The query, its workers and the driver's emitter have ended: only now may another instance
        # start.
        self._preparation.release(is_superseded=self._is_superseded)
        self._spark.stop()
        shutil.rmtree(self._checkpoints, ignore_errors=True)
        self._supervisor.end()
        self._end.met()

    def _run_once(self, start: Start, identity: RunIdentity) -> str | None:
        """One run; returns why the job ends, or None for another run."""
        self._control.run_began(identity.number)
        order = EmissionOrder.of(self._configuration, identity, start)
        processor = BatchProcessor(
            self._configuration,
            order,
            start,
            Cluster(self._configuration.connection),
            done=self._batch_done,
            emitted=self._control.emitted,
            workers_first=self._preparation.failures > 0,
            breakers=self._breakers,
        )
        query, cluster = None, Cluster(self._configuration.connection)
        forwarding = Forwarding(self._configuration, identity, self._control)
        held_keys = HeldKeysTopic(self._configuration, identity, self._control)
        try:
            if self._once and self._due is None:
                self._due = due_now(self._configuration, cluster, start)
            query = self._start_query(start, processor, identity)
            self._preparation.commit(start, processor)
            return self._run_to_end(self._begin_run(start, query, processor, cluster, forwarding))
        except _QueryFailed as failed:
            self._handle_failure(failed.fault, failed.text)
        except (TransientFault, FatalFault) as fault:
            self._handle_failure(fault, fault.message)
        finally:
            if query is not None:
                self._stop_query(query, processor)
            forwarding.end()
            held_keys.end()
            processor.close()
            cluster.close()
        return None

    def _begin_run(
        self,
        start: Start,
        query: RunningQuery,
        processor: BatchProcessor,
        cluster: Cluster,
        forwarding: Forwarding,
    ) -> _Run:
        configuration = self._configuration
        self._supervisor.watch(start)
        if not self._is_started:
            self._is_started = True
            self._control.started(configuration)
        if self._replaced is not None:
            # Reported only now: the earlier settings no longer decide anything.
            self._replaced = None
            self._control.restarted(configuration, is_new_run=True)
        upkeep = Upkeep(
            configuration,
            self._control,
            cluster,
            spark=self._spark,
            start=start,
            query=query,
            processor=processor,
            assigned_share=self._preparation.assigned_share,
            invalid=self._invalid,
        )
        return _Run(query, processor, upkeep, forwarding, cluster)

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
                    f"Spark cannot start the query: {cause_of(None, str(error))}",
                    hint=f"is there room in {self._configuration.directory}?",
                ) from error
            raise _QueryFailed(None, str(error)) from error
        return RunningQuery(self._spark, query, "the query")

    def _stop_query(self, query: RunningQuery, processor: BatchProcessor) -> None:
        # stop() would interrupt a batch: wait for the running one; a later one does nothing.
        processor.end(COORDINATOR)
        query.stop()
        shutil.rmtree(self._checkpoints, ignore_errors=True)

    # -- while the query runs ------------------------------------------------------------------

    def _batch_done(self, summary: BatchSummary) -> None:
        self._preparation.failures = 0
        self._wait.useful({kind.handler for kind in summary.inputs}, time.time())
        self._control.batch(summary)

    def _run_to_end(self, run: _Run) -> str | None:
        """Ends the run properly once it must end; returns the result of ``_watch``."""
        try:
            reason = self._watch(run)
            if run.processor.end(COORDINATOR):
                run.upkeep.end()
        finally:
            run.upkeep.close()
        return reason

    def _watch(self, run: _Run) -> str | None:
        """Waits until the run must end; returns why the job ends, or None for another run."""
        checked_work_at = time.monotonic()
        while True:
            request = self._control.next_request(timeout=_LOOK)
            if isinstance(request, Stop):
                return request.reason
            if isinstance(request, Restart) and self._accept(request, run):
                return None
            if not run.query.is_active:
                problem = run.query.exception or "the query ended by itself"
                raise _QueryFailed(run.processor.fault, problem)
            self._report_breakers(run.processor)
            run.upkeep.look()
            if run.upkeep.ends_run:
                return None
            if self._projection is not None and not self._once:
                self._projection.look()
            self._supervisor.noted = replace(
                self._supervisor.noted,
                ledger="" if self._projection is None else self._projection.problem,
                clusters=run.forwarding.problem,
                forwards=run.forwarding.waiting,
            )
            if self._wait.ends and time.monotonic() - checked_work_at > _IDLE_AGE:
                checked_work_at = time.monotonic()
                if self._due is not None:
                    self._is_finished = self._is_handled(run, self._due)
                else:
                    self._is_finished = self._is_done(run) and run.upkeep.is_last_run()
                if self._is_finished:
                    return None

    def _report_breakers(self, processor: BatchProcessor) -> None:
        before = self._open_breakers
        breakers = {breaker.key: breaker for breaker in processor.breakers()}
        for key in breakers.keys() - before.keys():
            self._control.warning("a breaker opened: retries wait", **asdict(breakers[key]))
        for key in before.keys() - breakers.keys():
            self._control.notice("a breaker closed: retries continue", **asdict(before[key]))
        self._open_breakers = breakers
        for program in sorted(processor.dropping - self._dropping):
            self._control.warning("a program drops headers", because=program.sentence)
        self._dropping |= processor.dropping
        self._supervisor.noted = replace(
            self._supervisor.noted,
            breakers=tuple(breakers.values()),
            dropping=tuple(program.sentence for program in sorted(self._dropping)),
        )

    def _accept(self, request: Restart, run: _Run) -> bool:
        fresh = self._control.load(request)
        if fresh is None:
            return False
        before = self._configuration
        fresh = replace(fresh, application=before.application, share=before.share)
        with under_way("change of tables"):
            start = self._preparation.change_tables(fresh, run.upkeep.start, run.processor)
        if start is None:
            self._replaced = before
            self._preparation.refuses_others = True
            self._configure(fresh)
            return True
        self._configure(self._preparation.configuration)
        self._supervisor.watch(start)
        run.upkeep.change(self._configuration, start)
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

    def _is_done(self, run: _Run) -> bool:
        is_idle = self._wait.is_over(time.time()) and not run.query.status["isDataAvailable"]
        if not is_idle:
            return False
        try:
            forwarded = run.forwarding.completed(run.cluster)
            if forwarded is None or run.upkeep.backlog.pass_markers():
                return False
            # A batch or a message returned meanwhile would have moved an end, or is waited for.
            return self._wait.is_over(time.time()) and (
                forwarded == run.forwarding.completed(run.cluster)
            )
        except ProtocolError:
            return False

    def _is_handled(self, run: _Run, due: Mapping[TopicPartition, int]) -> bool:
        """Whether what was due is handled, and forwarded to the clusters that can be reached."""
        try:
            return run.upkeep.backlog.handled(due) and bool(
                run.forwarding.problem or run.forwarding.completed(run.cluster) is not None
            )
        except FatalFault:
            raise
        except ProtocolError:
            return False

    def _handle_failure(self, fault: ProtocolError | None, text: str) -> None:
        """Ends the job if a fault is fatal; else reports why the run ended, and pauses."""
        if isinstance(fault, SupersededFault) and self._configuration.rebalances:
            self._preparation.lose_share()
        elif isinstance(fault, FatalFault):
            self._is_superseded = isinstance(fault, SupersededFault)
            raise fault
        self._preparation.failures += 1
        cause = cause_of(fault, text)
        self._supervisor.troubled(cause, "batch")
        self._control.warning(
            "the query ended and is restarted",
            tries=self._preparation.failures,
            error=cause,
        )
        self._preparation.pause()


class _QueryFailed(Exception):
    """The query ended by itself."""

    def __init__(self, fault: ProtocolError | None, text: str) -> None:
        super().__init__(text)
        self.fault = fault
        self.text = text
