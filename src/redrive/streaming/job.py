"""The job: one Structured Streaming query from dead letters and due retries to transactions.

Every start takes its positions from Kafka (the committed offsets of the application's group), never
from an old checkpoint: so there is one way to start, after a stop, a crash or the loss of the
directory, and sources may come and go between two starts. The checkpoint directory of a run serves
Spark for that run only.

What comes before a run is told by ``preparation``, what it does by five parts: the query
(``query``), its batches (``batch``), supervision (``supervision``), upkeep (``upkeep``) and
the ledger's projection (``projection``).
"""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from redrive.configuration import JobConfiguration
from redrive.errors import (
    ConfigurationError,
    EnvironmentFault,
    FatalFault,
    ProtocolError,
    SupersededFault,
    TransientFault,
)
from redrive.kafka.cluster import Cluster
from redrive.streaming.batch import BatchProcessor
from redrive.streaming.emission import EmissionOrder
from redrive.streaming.factory import sources_of, table_of
from redrive.streaming.held_source import HeldSource
from redrive.streaming.lifecycle import BatchSummary, JobControl, Restart, Stop
from redrive.streaming.preparation import Preparation, no_folder
from redrive.streaming.query import start_query
from redrive.streaming.session import start_session
from redrive.streaming.start import Start
from redrive.streaming.supervision import Supervisor, cause_of
from redrive.streaming.upkeep import Upkeep
from redrive.streaming.wait import Completion, WaitRule

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from redrive.checkpoints.epoch import RunIdentity
    from redrive.streaming.projection import Projection

_LOOK: Final = 0.2
"""Seconds between two looks of the main thread at requests and at the query."""
_IDLE_AGE: Final = 0.5
"""Seconds between two looks whether anything is left to do, when WAIT can end the job."""
_PROJECTION_DELAY: Final = 10.0
"""Seconds from the start to the projection's: its first append is slow, the job's is not to be."""
_BATCH_PATIENCE: Final = 10.0
"""Seconds that an orderly end waits for the running batch; what is cut off then is done again."""
_NOTHING_LEFT: Final = "nothing left that can be processed (WAIT)"


def run(
    configuration: JobConfiguration,
    control: JobControl,
    session: SparkSession | None = None,
    *,
    end_process: Callable[[int], None] | None = None,
) -> int:
    """Runs the job until it is stopped or its tables' WAIT ends it.

    Args:
        configuration: The job.
        control: Requests to the job, and who is told what it does.
        session: A Spark session to use; None to start one, and stop it in the end.
        end_process: Ends this process at once with an exit code, when something hangs on a stop or
            the job stalled for too long; None to let it hang.

    Returns:
        0, after an orderly end.

    Raises:
        EnvironmentFault: No Java, no jars, or no broker.
        AlreadyRunningError: Another instance works on the same share.
        ConfigurationError: What Kafka holds contradicts the settings.
        FatalFault: Another instance took over, or the broker refuses for good.
    """
    try:
        configuration.directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise no_folder(configuration, error) from error
    job = Job(configuration, control, session, end_process)
    try:
        reason = job.run()
    finally:
        job.close()
    control.stopped(reason)
    return 0


@dataclass(frozen=True, slots=True)
class _Run:
    """One run of the query, and what serves it."""

    start: Start
    query: StreamingQuery
    processor: BatchProcessor
    upkeep: Upkeep
    completion: Completion


class Job:
    """One process of the job, over restarts of its query.

    This class is responsible for: one run after the other, each from what Kafka says, until
    something ends the job; waiting longer and longer between runs that failed.
    """

    def __init__(
        self,
        configuration: JobConfiguration,
        control: JobControl,
        session: SparkSession | None,
        end_process: Callable[[int], None] | None,
    ) -> None:
        """Prepare a job; nothing is started yet; arguments as for ``run``."""
        self._configuration = configuration
        self._control = control
        self._is_session_own = session is None
        self._session = session
        self._supervisor = Supervisor(configuration, control, end_process)
        self._preparation = Preparation(configuration, control, self._supervisor)
        self._projection: Projection | None = None
        self._wait = WaitRule({}, 0)
        self._invalid = 0
        self._is_started = False
        self._is_superseded = False
        self._replaced: JobConfiguration | None = None
        """What the job had before a restart, until a run has begun with what it has now."""

    # -- from start to end ---------------------------------------------------------------------

    def run(self) -> str:
        """Runs until something ends the job, and returns what."""
        self._load_tables()
        self._supervisor.start()
        with ThreadPoolExecutor(max_workers=1) as pool:
            # Spark takes longest to start, so it starts beside everything else.
            session = pool.submit(self._start_session)
            try:
                prepared = self._preparation.prepare(self._wait, is_first=True)
            finally:
                self._session = session.result()
        while prepared is not None:
            reason = self._one_run(*prepared)
            if reason is not None:
                return reason
            prepared = self._prepare_again()
        return self._control.stop_reason or _NOTHING_LEFT

    def _prepare_again(self) -> tuple[Start, RunIdentity] | None:
        """The next run: after a restart that Kafka contradicts, with the settings from before."""
        try:
            return self._preparation.prepare(self._wait, is_first=not self._is_started)
        except ConfigurationError as error:
            if self._replaced is None:
                raise
            self._configure(self._replaced)
            self._replaced = None
            self._control.restart_refused(error)
            return self._preparation.prepare(self._wait, is_first=False)

    def close(self) -> None:
        """Lets go of everything; the share is free for the next instance."""
        with _java_may_be_gone():
            if self._projection is not None:
                self._projection.stop()
        # The query, its workers and the driver's emitter have ended: only now may another come.
        self._preparation.release(is_superseded=self._is_superseded)
        with _java_may_be_gone():
            if self._session is not None and self._is_session_own:
                self._session.stop()
        shutil.rmtree(self._checkpoints, ignore_errors=True)
        self._supervisor.end()

    def _one_run(self, start: Start, identity: RunIdentity) -> str | None:
        """One run; why the job ends, or None to begin another."""
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
        )
        query = None
        try:
            query = self._start_query(start, processor, identity)
            self._preparation.commit(start, processor)
            return self._watch(self._run_of(start, query, processor))
        except _QueryFailed as failed:
            self._failed(failed.fault, failed.text)
        except (TransientFault, FatalFault) as fault:
            self._failed(fault, fault.message)
        finally:
            if query is not None:
                self._stop_query(query, processor)
            processor.close()
        return None

    def _run_of(self, start: Start, query: StreamingQuery, processor: BatchProcessor) -> _Run:
        configuration, spark = self._configuration, self._spark()
        self._supervisor.watch(tuple(start.positions))
        if not self._is_started:
            self._is_started = True
            self._control.started(configuration)
        if self._replaced is not None:
            # Told now and no sooner: nothing is decided any more by what was before.
            self._replaced = None
            self._control.restarted(configuration)
        cluster = Cluster(configuration.connection)
        upkeep = Upkeep(
            configuration,
            self._control,
            cluster,
            spark=spark,
            start=start,
            query=query,
            processor=processor,
        )
        completion = Completion(configuration, Cluster(configuration.connection), start)
        return _Run(start, query, processor, upkeep, completion)

    # -- Spark ---------------------------------------------------------------------------------

    def _spark(self) -> SparkSession:
        if self._session is None:
            raise RuntimeError("Spark is asked for before it was started")
        return self._session

    @property
    def _checkpoints(self) -> Path:
        return self._configuration.own_directory / "checkpoints"

    def _start_session(self) -> SparkSession:
        from redrive.streaming.projection import Projection  # noqa: PLC0415 - slow to import

        session = self._session
        if session is None:
            session = start_session(self._configuration)
        session.dataSource.register(HeldSource)
        self._projection = Projection(
            session, self._configuration, self._control, delay=_PROJECTION_DELAY
        )
        return session

    def _start_query(
        self, start: Start, processor: BatchProcessor, identity: RunIdentity
    ) -> StreamingQuery:
        from py4j.protocol import Py4JError  # noqa: PLC0415 - comes with pyspark, slow to import
        from pyspark.errors import PySparkException  # noqa: PLC0415 - as above

        checkpoint = self._checkpoints / str(identity.number)
        try:
            return start_query(self._spark(), self._configuration, start, processor, checkpoint)
        except (OSError, Py4JError, PySparkException) as error:
            if not self._is_started:
                raise EnvironmentFault(
                    f"Spark cannot start the query: {cause_of(None, str(error))}",
                    hint=f"is there room in {self._configuration.directory}?",
                ) from error
            raise _QueryFailed(None, str(error)) from error

    def _stop_query(self, query: StreamingQuery, processor: BatchProcessor) -> None:
        # stop() would interrupt a batch: the running one ends first, a later one does nothing.
        processor.end(_BATCH_PATIENCE)
        with _java_may_be_gone():
            query.stop()
        shutil.rmtree(self._checkpoints, ignore_errors=True)

    # -- while the query runs ------------------------------------------------------------------

    def _load_tables(self) -> None:
        tables = {
            handler.identity.name: table_of(handler) for handler in self._configuration.handlers
        }
        waits: dict[str, float | None] = {
            name: None if (seconds := table.control.wait.seconds) is None else float(seconds)
            for name, table in tables.items()
        }
        if sources_of(self._configuration):
            waits["puts"] = None  # applications may always put
        self._wait = WaitRule(waits, time.time())

    def _batch_done(self, summary: BatchSummary) -> None:
        self._preparation.failures = 0
        self._wait.useful({key[0] for key in summary.results}, time.time())
        self._invalid += summary.invalid
        self._control.batch(summary)

    def _watch(self, one: _Run) -> str | None:
        """Waits until the run has to end; why the job ends, or None to begin another run."""
        looked_at_work = time.monotonic()
        while True:
            request = self._control.next_request(timeout=_LOOK)
            if isinstance(request, Stop):
                return request.reason
            if isinstance(request, Restart) and self._accept(request):
                return None
            if not one.query.isActive:
                raise _QueryFailed(one.processor.fault, _exception_of(one.query))
            one.upkeep.invalid = self._invalid
            one.upkeep.look()
            if one.upkeep.layout_changed:
                return None
            if self._projection is not None:
                self._projection.look()
                self._supervisor.ledger_waits(self._projection.problem)
            if self._wait.ends and time.monotonic() - looked_at_work > _IDLE_AGE:
                looked_at_work = time.monotonic()
                if self._is_done(one):
                    return _NOTHING_LEFT

    def _accept(self, request: Restart) -> bool:
        fresh = self._control.load(request)
        if fresh is None:
            return False
        before = self._configuration
        self._replaced = before
        self._configure(replace(fresh, application=before.application, share=before.share))
        return True

    def _configure(self, configuration: JobConfiguration) -> None:
        self._configuration = self._preparation.configuration = configuration
        self._load_tables()

    def _is_done(self, one: _Run) -> bool:
        if not self._wait.is_over(time.time()) or one.query.status["isDataAvailable"]:
            return False
        try:
            return not one.completion.has_work() and self._wait.is_over(time.time())
        except ProtocolError:
            return False

    def _failed(self, fault: ProtocolError | None, text: str) -> None:
        """Ends the job if a fault is fatal; else says why the run ended, and waits a moment."""
        if isinstance(fault, FatalFault):
            self._is_superseded = isinstance(fault, SupersededFault)
            raise fault
        self._preparation.failures += 1
        cause = cause_of(fault, text)
        self._supervisor.troubled(cause, "batch")
        self._control.warning(
            "a run of the query ended and another is begun",
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


def _exception_of(query: StreamingQuery) -> str:
    problem = query.exception()
    return str(problem) if problem is not None else "the query ended by itself"


@contextmanager
def _java_may_be_gone() -> Iterator[None]:
    """Stops what may have stopped already: a signal to all processes of a group ends Java too."""
    from py4j.protocol import Py4JError  # noqa: PLC0415 - comes with pyspark, slow to import

    with contextlib.suppress(Py4JError, ConnectionError):
        yield


__all__ = ["Job", "run"]
