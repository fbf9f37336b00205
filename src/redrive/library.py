"""The public functions of ``import redrive``: the job in a Spark session of the caller's own.

The command line starts the job by the same steps. What runs here leaves the process alone: no
signal is sent or handled, no log is configured, and no session is stopped.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Final

from redrive.configuration import Conflict, JobConfiguration
from redrive.diagnostics import Diagnostic, Severity, SourceLocation
from redrive.errors import ConfigurationError, EnvironmentFault, RedriveError
from redrive.kafka.cluster import Cluster
from redrive.kafka.deadline import PATIENCE, PAUSE, SILENCE
from redrive.operations.process import PidFile, check_directory
from redrive.operations.rights import check_start
from redrive.printable import counted
from redrive.settings import Settings, SettingsSource, read_settings
from redrive.streaming.lifecycle import Emitted, JobControl, JobObserver

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from redrive.operations.supervision import SupervisionState

_RESTART: Final = 300.0
"""Seconds for the answer to a restart: the job may still be starting on a busy machine."""
_FIXED: Final = (
    "application", "instance", "directory", "cores", "master", "driver_memory", "spark_ui",
    "spark_properties", "listen", "watch",
)  # fmt: skip
"""Settings that a running job keeps."""


def session(settings: SettingsSource) -> SparkSession:
    """A Spark session as ``redrive run`` has it: with the jars, Delta, and measured settings.

    A session that this process has already is returned as it is, and so is that of
    ``spark-submit``. Stop the session as any other.

    Args:
        settings: A settings file, or a dict as TOML would give. Of ``[job]`` it takes ``master``,
            ``cores``, ``driver_memory`` and ``spark_properties``.

    Raises:
        ConfigurationError: There is an error in the settings; every finding is attached.
        EnvironmentFault: Java or jars are missing, or an existing session lacks some.
    """
    from redrive.streaming.session import check_session, current_session, start_session  # noqa: PLC0415 - Spark is slow to import

    job = read_settings(settings).job
    spark = current_session()
    if spark is None:
        return start_session(job, with_delta=job.ledger.enabled)
    check_session(spark, _on(spark, job))
    return spark


def start(spark: SparkSession, settings: SettingsSource) -> Job:
    """Start the job in a session; it runs in a thread until it is stopped, or WAIT ends it.

    Several jobs of different applications may run in one session.

    Args:
        spark: The session. Its master counts, not that of the settings.
        settings: A settings file, or a dict as TOML would give.

    Returns:
        The running job.

    Raises:
        ConfigurationError: There is an error in the settings; every finding is attached.
        EnvironmentFault: No broker answers, or it refuses the job; the session lacks jars, or its
            Python on a cluster lacks redrive; or the job's folder cannot be written.
        AlreadyRunningError: Another process, or another job of this one, has the job's folder.
    """
    return Job(spark, settings)


def run_once(spark: SparkSession, settings: SettingsSource) -> Summary:
    """Handle what is due now, and return: for a nightly run, a notebook or a scheduler.

    Due are the messages that wait when it begins: dead letters, puts, parked messages whose time
    has come, what a changed table releases, and replays. What is parked for later waits for the
    next run, whatever WAIT of the tables says.

    Args:
        spark: The session. Its master counts, not that of the settings.
        settings: A settings file, or a dict as TOML would give.

    Returns:
        The counts of what was done.

    Raises:
        ConfigurationError: There is an error in the settings; every finding is attached.
        EnvironmentFault: As for ``start``. Or all else was handled, and a dead-letter topic does
            not exist or its handler is stopped.
        AlreadyRunningError: Another process works on the same job.
    """
    own = _settings_on(spark, settings)  # first, as the job cannot be imported on an older Spark
    from redrive.streaming.job import run  # noqa: PLC0415 - Spark is slow to import

    observer = SummaryObserver()
    control = JobControl(observer)
    with prepared(own, control, takes_signals=False, once=True):
        run(own.job, control, spark, once=True)
    return observer.summary()


def ledger(spark: SparkSession, settings: SettingsSource) -> DataFrame:
    """Every outcome up to now, a row each, with the columns that docs/ledger.md names.

    The rows are those of the ledger and the outcomes that are still on their topic alone. Times are
    timestamps, ``day`` is a date, sizes are bytes. ``[mask]`` hides nothing here. Executors read
    the files of a ledger in a folder; one in an object store passes through the driver.

    Args:
        spark: The session; it needs neither Delta nor the Kafka connector.
        settings: A settings file, or a dict as TOML would give.

    Raises:
        ConfigurationError: There is an error in the settings; every finding is attached.
        EnvironmentFault: The ledger cannot be read, or no broker answers.
    """
    from redrive.outcomes.ledger import Ledger  # noqa: PLC0415 - the library of Delta is slow to import
    from redrive.streaming.ledger_query import ledger_frame  # noqa: PLC0415 - Spark is slow to import

    job = read_settings(settings).job
    with Cluster.open(job.connection, timeout=SILENCE) as cluster:
        outcomes = Ledger.open(job.ledger.path, cluster, topic=job.outcomes_topic, seconds=PATIENCE)
    return ledger_frame(spark, outcomes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What one run did; as text one line."""

    records: int
    """Messages handled; one that was parked and tried again counts twice."""
    results: Mapping[str, int]
    """Messages by result: ``retried``, ``forwarded``, ``discarded``, ``parked``, ``remains`` ..."""
    handlers: Mapping[str, Mapping[str, int]]
    """The same by handler."""
    seconds: float
    """From the start of the run to its end."""

    def __str__(self) -> str:
        parts = ", ".join(
            f"{count} {result if count == 1 else result.replace('remains', 'remain')}"
            for result, count in self.results.items()
        )
        line = f"handled {counted(self.records, 'message')} in {self.seconds:.0f} s"
        return f"{line}: {parts}" if parts else line


class SummaryObserver(JobObserver):
    """Counts what a job does, from now on."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._counts: dict[str, Counter[str]] = {}

    def emitted(self, emitted: Emitted) -> None:
        """Count what was committed, also of a batch that did not complete."""
        for kind, count in emitted.inputs.items():
            self._counts.setdefault(kind.handler, Counter())[str(kind.result)] += count

    def summary(self) -> Summary:
        """The counts up to now."""
        results: Counter[str] = Counter()
        for counts in self._counts.values():
            results.update(counts)
        return Summary(
            records=results.total(),
            results=dict(results.most_common()),
            handlers={name: dict(self._counts[name]) for name in sorted(self._counts)},
            seconds=round(time.monotonic() - self._began, 1),
        )


class Job:
    """A job in a thread of this process, on a session that it never stops.

    The names are those of pyspark's ``StreamingQuery`` where both have one. ``start`` makes it.
    """

    def __init__(self, spark: SparkSession, settings: SettingsSource) -> None:
        """Start the job; arguments and errors as for ``start``."""
        self._spark = spark
        self._source = settings
        own = _settings_on(spark, settings)
        self._configuration = own.job
        self._watch = _Watch()
        self._control = JobControl(self._watch)
        self._error: Exception | None = None
        self._restarting = threading.Lock()
        self._context = ExitStack()
        self._context.enter_context(prepared(own, self._control, takes_signals=False))
        name = f"redrive {own.job.application}"
        self._thread = threading.Thread(target=self._run, args=(own.job,), name=name, daemon=True)
        self._thread.start()

    def _run(self, configuration: JobConfiguration) -> None:
        try:
            with self._context:
                from redrive.streaming.job import run  # noqa: PLC0415 - Spark is slow to import

                run(configuration, self._control, self._spark)
        except Exception as error:  # noqa: BLE001 - exception() has it
            self._error = error

    @property
    def isActive(self) -> bool:  # noqa: N802 - Spark's name
        """Whether the job runs; a problem that it waits out does not end it."""
        return self._thread.is_alive()

    @property
    def status(self) -> dict[str, Any]:
        """``message``, ``isDataAvailable`` and ``isTriggerActive``, as a query of Spark has them.

        The message says what the job itself says: ``running``, ``waiting: ...``, ``stalled: ...``.
        """
        query = self._query
        known = {} if query is None else query.status
        return {
            "message": self._message,
            "isDataAvailable": bool(known.get("isDataAvailable")),
            "isTriggerActive": bool(known.get("isTriggerActive")),
        }

    @property
    def lastProgress(self) -> Any:  # noqa: ANN401, N802 - Spark's name and type
        """Spark's progress of the last batch of the running query; None before it has one."""
        query = self._query
        return None if query is None else query.lastProgress

    def exception(self) -> Exception | None:
        """The error that ended the job; None while it runs, and after a stop or WAIT."""
        return self._error

    def awaitTermination(self, timeout: float | None = None) -> bool | None:  # noqa: N802 - Spark's name
        """Wait until the job has ended, by ``stop``, WAIT or an error.

        Args:
            timeout: The most seconds to wait; None for no limit.

        Returns:
            Whether it has ended; None without a timeout.

        Raises:
            Exception: The error that ended it.
        """
        self._thread.join(timeout)
        if self.isActive:
            return False
        if self._error is not None:
            raise self._error
        return None if timeout is None else True

    def stop(self) -> None:
        """Stop after the running batch, and wait for that; the session goes on.

        Stopping again does nothing. ``exception`` has an error that came meanwhile.
        """
        self._control.request_stop("stop() was called")
        self._thread.join()

    def restart(self, settings: SettingsSource | None = None, *, timeout: float = _RESTART) -> None:
        """Go on with the files of the settings as they are now: changed rules tables decide.

        Args:
            settings: Other settings; None for those that the job was started with.
            timeout: The most seconds to wait for a start, the running batch and the change.

        Raises:
            ConfigurationError: There is an error in them, or they change what a running job keeps.
                The job goes on as before.
            EnvironmentFault: The job has ended, or did not answer in time.
        """
        source = self._source if settings is None else settings
        with self._restarting:
            job = checked_restart(_settings_on(self._spark, source), self._configuration)
            answers = self._watch.answers = SimpleQueue()
            self._control.request_restart(lambda: job)
            refusal = self._answer(answers, time.monotonic() + timeout)
            if refusal is not None:
                raise refusal
            self._source, self._configuration = source, job

    def _answer(
        self, answers: SimpleQueue[RedriveError | None], deadline: float
    ) -> RedriveError | None:
        while True:
            try:
                return answers.get(timeout=PAUSE)
            except Empty:
                if not self.isActive:
                    return EnvironmentFault("the job has ended", hint="its exception() says why")
                if time.monotonic() > deadline:
                    return EnvironmentFault(
                        "the job has not answered in time",
                        hint="a long batch may still be running; the change is made after it",
                    )

    @property
    def _query(self) -> StreamingQuery | None:
        prefix = f"redrive {self._configuration.application} "
        active = self._spark.streams.active if self.isActive else []
        return next((query for query in active if (query.name or "").startswith(prefix)), None)

    @property
    def _message(self) -> str:
        if not self.isActive:
            return "stopped" if self._error is None else f"ended by an error: {self._error}"
        state = self._watch.state
        if state is None:
            return "starting"
        return f"{state.state}: {state.cause}" if state.cause else str(state.state)


@dataclass(slots=True)
class _Watch(JobObserver):
    """What a job says of itself."""

    state: SupervisionState | None = None
    answers: SimpleQueue[RedriveError | None] = field(default_factory=SimpleQueue)
    """The answers to requests to restart: None for done, or why not."""

    def supervised(self, state: SupervisionState) -> None:
        self.state = state

    def restarted(self, configuration: JobConfiguration, *, is_new_run: bool) -> None:
        del configuration, is_new_run
        self.answers.put(None)

    def restart_refused(self, error: RedriveError) -> None:
        self.answers.put(error)


@contextmanager
def prepared(
    settings: Settings, control: JobControl, *, takes_signals: bool, once: bool = False
) -> Iterator[None]:
    """Check that a job can start; while the context is open it is observed and has its folder.

    Args:
        settings: The settings of the job.
        control: Of the job, which runs in the context.
        takes_signals: Whether SIGHUP makes this process read its settings again.
        once: Whether the job ends when what was due at its start is handled.

    Raises:
        RedriveError: The job cannot start; every problem is in one error.
    """
    from redrive.observe.observation import Observation  # noqa: PLC0415 - slow to import

    job = settings.job
    if once and job.rebalances:
        raise ConfigurationError(
            'a run of what is due cannot wait for its share: [application] instance is "auto"',
            hint='leave instance out, or name a share, such as "1/2"',
        )
    with Observation(job, settings.mask) as observation:
        _check_start(settings, observation.listen)
        with PidFile.held(job, takes_signals=takes_signals):
            observation.start(control)
            yield


def _check_start(settings: Settings, listen: Callable[[], None]) -> None:
    job = settings.job
    problems: list[RedriveError] = []

    checks: Sequence[Callable[[], object]] = (
        lambda: None if job.wait_for_broker else check_start(job),
        lambda: _take_address(job, listen),
        lambda: None if problems else check_directory(job.directory),  # creates the folder
    )
    for check in checks:
        try:
            check()
        except RedriveError as problem:
            problems.append(problem)
    if len(problems) > 1:
        place = SourceLocation(settings.name)
        raise ConfigurationError(
            f"the job can't start: {len(problems)} problems",
            hint="fix all of them",
            diagnostics=[
                place.finding(Severity.ERROR, "CANNOT_START", problem.message, hint=problem.hint)
                for problem in problems
            ],
        )
    if problems:
        raise problems[0]


def _take_address(job: JobConfiguration, listen: Callable[[], None]) -> None:
    try:
        listen()
    except ConfigurationError:
        if job.on_conflict is Conflict.REFUSE:
            PidFile(job.directory, job.share).check()  # another process of the job listens there
        raise


def checked_restart(settings: Settings, running: JobConfiguration) -> JobConfiguration:
    """The job to continue with; raises ``ConfigurationError`` if a running job cannot."""
    changed = [name for name in _FIXED if getattr(settings.job, name) != getattr(running, name)]
    if changed:
        names = [name.replace("_", " ") for name in changed]
        listed = " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
        findings: Sequence[Diagnostic] = settings.warnings
        raise ConfigurationError(
            f"a running job cannot change its {listed}",
            hint="stop the job and start it again",
            diagnostics=findings,
        )
    return settings.job


def _settings_on(spark: SparkSession, source: SettingsSource) -> Settings:
    from redrive.streaming.session import check_session  # noqa: PLC0415 - Spark is slow to import

    settings = read_settings(source)
    job = _on(spark, settings.job)
    check_session(spark, job)
    if not job.is_local:
        from redrive.frames import check_workers  # noqa: PLC0415 - slow to import

        check_workers(spark)
    return replace(settings, job=job)


def _on(spark: SparkSession, job: JobConfiguration) -> JobConfiguration:
    return replace(job, master=spark.sparkContext.master or "")
