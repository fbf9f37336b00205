"""The Spark session of the job, with the settings that matter by measurement.

Spark runs in a Java process that may die or hang. ``Spark`` calls it with deadlines, and is the
only place that translates errors of the Java bridge.

``python -m redrive.streaming.session FILE`` is the training run that archives Spark's Java classes.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from redrive.configuration import JobConfiguration, LedgerConfiguration
from redrive.errors import (
    ConfigurationError,
    EnvironmentFault,
    OutcomeUnknown,
    RedriveError,
    RestartRequired,
)
from redrive.java import (
    ClassArchive,
    JarGroup,
    Java,
    find_java,
    jar_files,
    locked_jars,
    training_options,
)
from redrive.kafka.connection import Connection
from redrive.kafka.deadline import CLOSE, SILENCE, DeadlineThread, PendingCall, within
from redrive.streaming.batch import LARGEST_RESULT
from redrive.streaming.kafka_options import executor_options
from redrive.streaming.workers import keep_warm

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_Answer = TypeVar("_Answer")

_START: Final = 300.0
"""Seconds for Spark to start: a busy machine needs a minute."""
_ANSWER: Final = 120.0
"""Seconds for one answer of Java, including garbage collection."""
_DEATH: Final = 2.0
"""Seconds until the end of a process with broken connections is visible."""
_ARCHIVE_END: Final = 900.0
"""Seconds for Java to write the archive; the whole run has as many."""
_RESTART_HINT: Final = "restart it: it continues where the last transaction ended"

_SETTINGS: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    # Few enough rows to be in the processor's cache while they are decided and produced.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "2000",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(16 * 1024 * 1024),
    "spark.sql.adaptive.streaming.stateless.enabled": "false",
    "spark.speculation": "false",
    # A failed task is not retried: the next run fences it and begins at its position.
    "spark.task.maxFailures": "1",
    "spark.stage.maxConsecutiveAttempts": "1",
    "spark.python.worker.reuse": "true",
    # A busy machine is slow to start a process.
    "spark.python.authenticate.socketTimeout": "60s",
    "spark.driver.maxResultSize": str(LARGEST_RESULT),
    "spark.sql.streaming.stopTimeout": "10s",
    "spark.sql.streaming.numRecentProgressUpdates": "20",
    "spark.sql.streaming.minBatchesToRetain": "10",
    "spark.ui.showConsoleProgress": "false",
    # Spark's own, and the options that give Kafka's Java client a password or a key.
    "spark.redaction.regex": "(?i)secret|password|token|access[.]?key|jaas|keystore[.]key",
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing"
        ".FileSystemBasedCheckpointFileManager"
    ),
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
}

_ON_THIS_MACHINE: Final = {
    "spark.driver.host": "localhost",
    "spark.driver.bindAddress": "127.0.0.1",
    # A machine that slept wakes up after any heartbeat timeout. Spark would declare its only
    # executor, the driver, lost, and complain every few seconds forever.
    "spark.storage.blockManagerHeartbeatTimeoutMs": str(7 * 24 * 3600 * 1000),
    "spark.python.daemon.module": "redrive.streaming.workers",
}
"""Only while executors are threads of the driver."""

_DELTA: Final = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # The ledger has a few hundred files: the default of 50 tasks reads its log in 10 s, 2 in 0.5.
    "spark.databricks.delta.snapshotPartitions": "2",
    # Like the other writer and all readers of the ledger, not Spark's INT96.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}
"""Properties for reading and writing the ledger."""

_ENCRYPTION: Final = ("spark.authenticate", "spark.network.crypto.enabled")
"""Properties that protect a password on the way to executors."""

_JAVA_OPTIONS: Final = (
    "-XX:+UseParallelGC -XX:MaxNewSize=160m -XX:MetaspaceSize=128m"
    " -XX:Tier4InvocationThreshold=50000 -XX:Tier4MinInvocationThreshold=20000"
    " -XX:Tier4CompileThreshold=100000 -XX:Tier4BackEdgeThreshold=1000000"
)
"""Throughput matters, pauses of milliseconds do not. Rows are short-lived: a larger heap only takes
memory from the machine. Without room for the classes of a start Java collects all of it twice. Its
second compiler is for code that runs for each of many rows: compiling the planner took half the
time of a start."""

_LAUNCHER_OPTIONS: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For the short-lived Java that only computes the command line of Spark's."""


_VERSIONS: Final = ("4.2",)
"""The versions of Spark that run the job, as in docs/versions.md: 4.1 has no admission control for
sources in Python."""


class Spark:
    """A Spark session and the Java process behind it.

    This class has the thread that calls Java and the deadline of each answer, and reports that Java
    has died or hangs, which only a new process can fix.
    """

    def __init__(
        self, configuration: JobConfiguration, session: SparkSession | None = None
    ) -> None:
        """Start nothing yet; the caller stops a session that is passed in."""
        self._configuration = configuration
        self._session = session
        self.is_own = session is None
        """Whether Java and its Python workers belong to this job alone, which may end them."""
        self._thread = DeadlineThread("redrive-spark")
        self._starting: PendingCall[SparkSession] | None = None

    def begin(self) -> None:
        """Begins to start the session in the background."""
        if self._session is None and self._starting is None:
            self._starting = self._thread.submit(
                "start of Spark", lambda: start_session(self._configuration)
            )

    @property
    def session(self) -> SparkSession:
        """The session, once it has started.

        Raises:
            EnvironmentFault: Java is missing, jars are missing or wrong, or Spark refuses to start.
            RestartRequired: Java died, or did not answer in time.
        """
        if self._session is None:
            self._session = self.translated("start of Spark", self._await_start)
        return self._session

    def ask(self, step: str, call: Callable[[], _Answer], *, seconds: float = _ANSWER) -> _Answer:
        """The answer of Java.

        Args:
            step: Name of the call: ``state of the query``.
            call: Calls Java.
            seconds: How long the answer may take.

        Raises:
            RestartRequired: Java is gone, or does not answer.
            BaseException: Whatever else the call raises.
        """
        return self.translated(step, lambda: self._thread.run(step, seconds, call))

    def cancel(self, tag: str) -> None:
        """Cancels the jobs of Spark with a tag; does nothing if Java is gone or hangs."""
        from py4j.protocol import Py4JError  # noqa: PLC0415 - comes with pyspark, slow to import

        context = self.session.sparkContext
        with suppress(RestartRequired, Py4JError):
            self.ask("cancellation", lambda: context.cancelJobsWithTag(tag), seconds=CLOSE)

    def stop(self) -> None:
        """Stops its own session; if Java does not stop in time, it is killed."""
        if self._starting is not None:
            try:
                session = self.session
                self.ask("stop of Spark", session.stop, seconds=SILENCE)
            except RedriveError:
                self.kill()
        self._thread.end()

    def kill(self) -> None:
        """Kills the Java process of its own session."""
        process = _java_process()
        if self.is_own and process is not None:
            process.kill()

    def killed_before(self, end_process: Callable[[int], None]) -> Callable[[int], None]:
        """The error that ends this process; kills Java first, which might outlive it."""

        def end(code: int) -> None:
            with suppress(OutcomeUnknown):
                within("end of Java", CLOSE, self.kill)
            end_process(code)

        return end

    def _await_start(self) -> SparkSession:
        self.begin()
        # pyspark imports pandas by it at the first call of Java: 0.3 s that pass while Java starts.
        import pyspark.testing.utils  # noqa: F401, PLC0415 - as said

        assert self._starting is not None
        return self._starting.answer(_START)

    def translated(self, step: str, ask: Callable[[], _Answer]) -> _Answer:
        """The result of a call to Java in this thread, without its own deadline.

        Raises:
            RestartRequired: Java is gone, or does not answer.
            EnvironmentFault: Spark does not start.
            BaseException: Whatever else the call raises.
        """
        from py4j.protocol import Py4JError, Py4JJavaError  # noqa: PLC0415 - slow to import
        from pyspark.errors import PySparkException  # noqa: PLC0415 - as above

        try:
            return ask()
        except OutcomeUnknown as unknown:
            raise RestartRequired(
                f"Spark's Java process does not answer: {unknown.message}", hint=_RESTART_HINT
            ) from unknown
        except (Py4JError, PySparkException, ConnectionError) as error:
            if not isinstance(error, Py4JJavaError | PySparkException) and _is_gone(error):
                raise RestartRequired(
                    f"Spark's Java process {_end_of_java()}: {step}", hint=_RESTART_HINT
                ) from error
            if self._session is None:
                lines = str(error).strip().splitlines() or ["no reason was given"]
                raise EnvironmentFault(
                    f"Spark does not start: {lines[0]}",
                    hint="see Java's output above, and driver_memory, master and spark_properties"
                    " in [job]",
                ) from error
            raise


def _java_process() -> subprocess.Popen[bytes] | None:
    from pyspark import SparkContext  # noqa: PLC0415 - slow to import

    gateway: Any = SparkContext._gateway  # noqa: SLF001 - it has no public name
    return getattr(gateway, "proc", None)


def _is_gone(error: Exception) -> bool:
    process = _java_process()
    if process is None:
        return isinstance(error, ConnectionError)
    try:
        process.wait(_DEATH)
    except subprocess.TimeoutExpired:
        return False
    return True


def _end_of_java() -> str:
    """How Java ended: ``was ended by SIGKILL``."""
    process = _java_process()
    code = None if process is None else process.poll()
    if code is None:
        return "is gone"
    return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"


def start_session(
    configuration: JobConfiguration,
    *,
    java_options: Sequence[str] | None = None,
    with_delta: bool | None = None,
) -> SparkSession:
    """Starts Spark with the locked jars.

    Args:
        configuration: The job.
        java_options: More options for Java; by default those for a quick start.
        with_delta: Whether Spark reads or writes the ledger; by default on a cluster only, as it
            makes a start slower.

    Raises:
        ConfigurationError: Executors on other machines could not sign in to Kafka, or only with a
            secret sent to them unencrypted.
        EnvironmentFault: Java or jars are missing, jars are wrong, or pyspark has another version.
    """
    _check_sign_in(configuration)
    java = find_java()
    os.environ["JAVA_HOME"] = str(java.home)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    if configuration.is_local:
        os.environ["PYSPARK_PYTHON"] = str(_python_of_workers(configuration))
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("SPARK_LOCAL_DIRS", str(configuration.own_directory / "spark"))
    os.environ.setdefault("SPARK_LAUNCHER_OPTS", _LAUNCHER_OPTIONS)
    from pyspark import __version__  # noqa: PLC0415 - reads the environment when imported
    from pyspark.sql import SparkSession  # noqa: PLC0415 - as above

    _check_version(__version__)
    if java_options is None:
        java_options = spark_archive(java).options()
    options = [_logging_option(configuration), *java_options]
    if with_delta is None:
        with_delta = configuration.ledger.enabled and not configuration.is_local
    settings = {
        **_SETTINGS,
        **(_ON_THIS_MACHINE if configuration.is_local else {}),
        **(_DELTA if with_delta else {}),
        **_jars(configuration, with_delta=with_delta),
        "spark.ui.enabled": str(configuration.spark_ui).lower(),
        "spark.driver.extraJavaOptions": " ".join(
            [_JAVA_OPTIONS, *(f'"{option}"' for option in options)]
        ),
        "spark.driver.memory": configuration.driver_memory,
        "spark.sql.streaming.pollingDelay": f"{int(configuration.polling_delay * 1000)}ms",
        "spark.sql.warehouse.dir": str(configuration.directory / "warehouse"),
        **configuration.spark_properties,
        **executor_options(configuration),
    }
    builder = SparkSession.builder.appName(f"redrive {configuration.application}")
    builder = builder.master(configuration.master or f"local[{configuration.cores}]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    with _no_sources_of_packages():
        session = builder.getOrCreate()
    context: Any = session.sparkContext
    context.setLogLevel("ERROR")
    # ``Spark`` reports a lost Java process in one sentence; this server prints a stack trace.
    context._accumulatorServer.handle_error = lambda *_: None  # noqa: SLF001 - no public name
    return session


@contextmanager
def _no_sources_of_packages() -> Iterator[None]:
    """Keeps a session that starts meanwhile from looking for data sources of Python packages.

    Spark would start a Python process for it, by the program that this variable of Java's
    environment names, and wait about a second. The job registers the only source it needs.
    """
    name = "PYSPARK_DRIVER_PYTHON"
    program = os.environ.get(name, sys.executable)
    os.environ[name] = os.devnull
    try:
        yield
    finally:
        os.environ[name] = program


def current_session() -> SparkSession | None:
    """The session of this process, or that of ``spark-submit``; None if there is none yet."""
    from pyspark import SparkContext  # noqa: PLC0415 - slow to import
    from pyspark.sql import SparkSession  # noqa: PLC0415 - as above

    has_java = "PYSPARK_GATEWAY_PORT" in os.environ  # as Spark's launcher names it
    context: Any = SparkContext._active_spark_context  # noqa: SLF001 - no public name
    return None if context is None and not has_java else SparkSession.builder.getOrCreate()


def check_session(session: SparkSession, configuration: JobConfiguration) -> None:
    """Checks that a session made elsewhere has what the job needs.

    Raises:
        EnvironmentFault: It lacks jars or properties, which are named, or is of another version.
    """
    _check_version(session.version)
    lacks, properties = [], {}
    if not _knows(session, "kafka"):
        lacks.append(_coordinate("spark-sql-kafka"))
    ledger = configuration.ledger
    if ledger.enabled and not configuration.is_local and isinstance(ledger.path, Path):
        if not _knows(session, "delta"):
            lacks.append(_coordinate("delta-spark"))
        properties = {
            name: value
            for name, value in _DELTA.items()
            if value.startswith("io.delta") or value.endswith("DeltaCatalog")
            if value not in (session.conf.get(name, "") or "")
        }
    if session.conf.get("spark.speculation", "false") == "true":
        properties["spark.speculation"] = "false"
    if not (lacks or properties):
        return
    named = [*lacks, *(f"the property {name}={value}" for name, value in properties.items())]
    raise EnvironmentFault(
        f"the Spark session lacks {' and '.join(named)}",
        hint="give it the jars that `redrive setup --print-jars` prints (spark-submit --jars, or"
        " spark.jars), or these by --packages; or use redrive.session(settings)",
    )


def _check_version(version: str) -> None:
    if not version.startswith(tuple(f"{known}." for known in _VERSIONS)):
        raise EnvironmentFault(
            f"the job does not run on Spark {version}",
            hint=f"use Spark {' or '.join(_VERSIONS)}; if SPARK_HOME is set, it decides which",
        )


def _knows(session: SparkSession, source: str) -> bool:
    """Whether a session has a data source; nothing is read."""
    from pyspark.errors import AnalysisException  # noqa: PLC0415 - slow to import

    options = {"kafka.bootstrap.servers": "localhost:1", "subscribe": "none", "path": "/"}
    try:
        session.readStream.format(source).options(**options).load()
    except AnalysisException as error:
        return "Failed to find" not in str(error)
    return True


def _coordinate(name: str) -> str:
    return next(jar.coordinate for jar in locked_jars() if f":{name}" in jar.coordinate)


def _python_of_workers(configuration: JobConfiguration) -> Path:
    """A program that starts Python without Spark's archive of pyspark on its path.

    Imports from an archive are compiled again in every process: a worker then took three times as
    long to start, and on a busy machine too long for Spark.
    """
    own_path = shlex.quote(os.environ.get("PYTHONPATH", ""))
    program = configuration.own_directory / "python"
    program.parent.mkdir(parents=True, exist_ok=True)
    command = f'exec {shlex.quote(sys.executable)} "$@"'
    program.write_text(f"#!/bin/sh\nPYTHONPATH={own_path}\nexport PYTHONPATH\n{command}\n")
    program.chmod(0o755)
    return program.resolve()


def _check_sign_in(configuration: JobConfiguration) -> None:
    """Refuses sign-in that executors on other machines do not support, and unencrypted secrets."""
    connection = configuration.connection
    if connection.oauth_token_function and not configuration.is_local:
        raise ConfigurationError(
            f"with the master {configuration.master} Spark's Java client on other machines"
            f" cannot call oauth_token_function = {connection.oauth_token_function!r}",
            hint="run the job on one machine, or sign in by oauth_endpoint, SCRAM-SHA-512 or a"
            " client certificate",
        )
    password = connection.sasl_password or connection.oauth_client_secret
    if configuration.is_local or not (password or connection.ssl_key_file):
        return
    properties = configuration.spark_properties
    missing = [name for name in _ENCRYPTION if properties.get(name, "").lower() != "true"]
    if missing:
        raise ConfigurationError(
            f"with the master {configuration.master} Spark would send the"
            f" {'password' if password else 'key'} for Kafka to executors"
            " unencrypted",
            hint="switch Spark's own encryption on, in the settings' spark_properties and on its"
            f" master and workers: {' and '.join(f'{name}=true' for name in missing)}",
        )


def _jars(configuration: JobConfiguration, *, with_delta: bool) -> dict[str, str]:
    """Properties that give Spark the locked jars: by class path, or by upload to other machines."""
    groups = [JarGroup.SPARK, *([JarGroup.DELTA] if with_delta else [])]
    paths = [str(path) for group in groups for path in jar_files(group)]
    if configuration.is_local:
        return {"spark.driver.extraClassPath": os.pathsep.join(paths)}
    return {"spark.jars": ",".join(paths)}


_LOGGING = """\
rootLogger.level = error
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = spark: %p %c{1}: %m%n%ex{short}
logger.query.name = org.apache.spark.sql.execution.streaming
logger.query.level = fatal
logger.scheduler.name = org.apache.spark.scheduler
logger.scheduler.level = fatal
logger.executor.name = org.apache.spark.executor
logger.executor.level = fatal
"""
"""The job logs the exception of a failed query; Spark need not log it too."""


def _logging_option(configuration: JobConfiguration) -> str:
    path = configuration.own_directory / "log4j2.properties"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(_LOGGING)
    return f"-Dlog4j2.configurationFile={path}"


def spark_archive(java: Java) -> ClassArchive:
    """The archive that fits a Java and the jars of this installation.

    Raises:
        EnvironmentFault: A jar is missing.
    """
    folder = _pyspark_jars()
    return ClassArchive(
        program="Spark",
        java=java,
        jars=(*jar_files(JarGroup.SPARK), *sorted(folder.iterdir())),
        installation=folder,
        training=__name__,
    )


def _pyspark_jars() -> Path:
    """The folder of Spark's own jars, found without importing pyspark, which is slow.

    ``spark-submit`` imports pyspark from an archive, and its jars are those of ``SPARK_HOME``.
    """
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    folder = Path(spec.origin).parent / "jars"
    home = os.environ.get("SPARK_HOME", "")
    return folder if folder.is_dir() or not home else Path(home) / "jars"


def train(path: Path) -> None:
    """Starts Spark, runs it as the job does, and writes the archive, which must not exist yet."""
    with tempfile.TemporaryDirectory(prefix="redrive-classes-") as folder:
        directory = Path(folder)
        configuration = JobConfiguration(
            application="classes",
            connection=Connection(bootstrap_servers="localhost:1"),
            handlers=(),
            directory=directory,
            ledger=LedgerConfiguration(path=directory / "ledger"),
        )
        session = start_session(configuration, java_options=training_options(path))
        exercise(session, directory)
        gateway = session.sparkContext._gateway  # noqa: SLF001 - Java writes as it ends
        session.stop()
        if gateway is not None:
            gateway.shutdown()
            gateway.proc.stdin.close()
            gateway.proc.wait(_ARCHIVE_END)


def exercise(session: SparkSession, directory: Path) -> None:
    """Runs once what Spark does for a job, so that Java has loaded and compiled it.

    The directory is for a checkpoint, and does not exist yet.
    """
    keep_warm(session, 2)
    session.readStream.format("kafka").options(
        **{"kafka.bootstrap.servers": "localhost:1", "subscribe": "none"}
    ).load()
    query = (
        session.readStream.format("rate")
        .load()
        .selectExpr("*", "unix_millis(current_timestamp()) AS now")
        .writeStream.foreachBatch(_fetch)
        .option("checkpointLocation", (directory / "checkpoint").as_uri())
        .start()
    )
    query.awaitTermination(3)
    query.stop()


def _fetch(frame: DataFrame, batch: int) -> None:
    del batch
    frame.toArrow()


if __name__ == "__main__":
    train(Path(sys.argv[1]))
