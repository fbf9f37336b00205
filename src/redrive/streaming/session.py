"""The Spark session of the job: local, with the settings that were measured to matter."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from redrive.errors import ConfigurationError
from redrive.jars import JarGroup, jar_files
from redrive.java import find_java
from redrive.streaming.batch import LARGEST_RESULT
from redrive.streaming.class_archive import archive_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from redrive.configuration import JobConfiguration

_SETTINGS: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    # Few enough rows to be in the processor's cache while they are decided and produced.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "2000",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(16 * 1024 * 1024),
    "spark.sql.adaptive.streaming.stateless.enabled": "false",
    "spark.speculation": "false",
    # A task that failed is not tried again: the next run fences it and begins where it stands.
    "spark.task.maxFailures": "1",
    "spark.stage.maxConsecutiveAttempts": "1",
    "spark.python.worker.reuse": "true",
    # A busy machine takes its time to start a process.
    "spark.python.authenticate.socketTimeout": "60s",
    "spark.driver.maxResultSize": str(LARGEST_RESULT),
    "spark.sql.streaming.stopTimeout": "10s",
    "spark.sql.streaming.numRecentProgressUpdates": "20",
    "spark.sql.streaming.minBatchesToRetain": "10",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing"
        ".FileSystemBasedCheckpointFileManager"
    ),
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
}

_ON_THIS_MACHINE: Final = {
    "spark.driver.host": "localhost",
    "spark.driver.bindAddress": "127.0.0.1",
    # A machine that slept wakes up later than any heartbeat. Its only executor is the driver,
    # which Spark would take for lost, and complain about every few seconds for ever.
    "spark.storage.blockManagerHeartbeatTimeoutMs": str(7 * 24 * 3600 * 1000),
}
"""Only while executors are threads of the driver."""

_ENCRYPTION: Final = ("spark.authenticate", "spark.network.crypto.enabled")
"""Properties that keep a password safe which Spark hands to executors."""

_JAVA_OPTIONS: Final = (
    "-XX:+UseParallelGC -XX:MaxNewSize=160m"
    " -XX:Tier4InvocationThreshold=50000 -XX:Tier4MinInvocationThreshold=20000"
    " -XX:Tier4CompileThreshold=100000 -XX:Tier4BackEdgeThreshold=1000000"
)
"""Throughput counts, pauses of milliseconds do not. Rows live for a moment: more room for them only
keeps memory from the machine. Java's second compiler is for what rows pass through a hundred
thousand times: to compile what plans batches took half the time of a start."""


def start_session(
    configuration: JobConfiguration,
    *,
    java_options: str | None = None,
) -> SparkSession:
    """Starts Spark with the locked jars.

    Args:
        configuration: The job.
        java_options: More options for Java; by default those that start it quickly.

    Raises:
        EnvironmentFault: No Java, or jars that are missing or wrong.
    """
    _check_encryption(configuration)
    java = find_java()
    os.environ["JAVA_HOME"] = str(java.home)
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    if _is_local(configuration):
        os.environ["PYSPARK_PYTHON"] = str(_python_of_workers(configuration))
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("SPARK_LOCAL_DIRS", str(configuration.own_directory / "spark"))
    from pyspark.sql import SparkSession  # noqa: PLC0415 - reads the environment when imported

    if java_options is None:
        java_options = archive_options(java)
    java_options = f"{_JAVA_OPTIONS} {_quiet(configuration)} {java_options}"
    settings = {
        **_SETTINGS,
        **(_ON_THIS_MACHINE if _is_local(configuration) else {}),
        **_jars(configuration),
        "spark.ui.enabled": str(configuration.spark_ui).lower(),
        "spark.driver.extraJavaOptions": java_options,
        "spark.driver.memory": configuration.driver_memory,
        "spark.sql.streaming.pollingDelay": f"{int(configuration.polling_delay * 1000)}ms",
        "spark.sql.warehouse.dir": str(configuration.directory / "warehouse"),
        **configuration.spark_properties,
    }
    builder = SparkSession.builder.appName(f"redrive {configuration.application}")
    builder = builder.master(configuration.master or f"local[{configuration.cores}]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def _python_of_workers(configuration: JobConfiguration) -> Path:
    """A program that starts Python without the archive of pyspark that Spark puts on its path.

    What is imported from an archive is compiled anew in every process: that made a worker take
    three times as long to start, and on a busy machine too long for Spark.
    """
    own_path = shlex.quote(os.environ.get("PYTHONPATH", ""))
    program = configuration.own_directory / "python"
    program.parent.mkdir(parents=True, exist_ok=True)
    command = f'exec {shlex.quote(sys.executable)} "$@"'
    program.write_text(f"#!/bin/sh\nPYTHONPATH={own_path}\nexport PYTHONPATH\n{command}\n")
    program.chmod(0o755)
    return program.resolve()


def _is_local(configuration: JobConfiguration) -> bool:
    return not configuration.master or configuration.master.startswith("local")


def _check_encryption(configuration: JobConfiguration) -> None:
    """Refuses to send a password to executors in the clear: Spark's own Kafka source has to."""
    if _is_local(configuration) or not configuration.connection.sasl_password:
        return
    properties = configuration.spark_properties
    missing = [name for name in _ENCRYPTION if properties.get(name, "").lower() != "true"]
    if missing:
        raise ConfigurationError(
            f"with the master {configuration.master} Spark would send the password for Kafka to"
            " executors unencrypted",
            hint="switch Spark's own encryption on, in the settings' spark_properties and on its"
            f" master and workers: {' and '.join(f'{name}=true' for name in missing)}",
        )


def _jars(configuration: JobConfiguration) -> dict[str, str]:
    """How Spark gets the locked jars: by its class path, unless executors are on other machines."""
    paths = [str(path) for path in jar_files(JarGroup.SPARK)]
    if _is_local(configuration):
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
"""Why a query failed comes with its exception, which the job tells; it need not be told thrice."""


def _quiet(configuration: JobConfiguration) -> str:
    """The Java option that lets Spark speak of errors only, from its first line on."""
    path = configuration.own_directory / "log4j2.properties"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(_LOGGING)
    return f'"-Dlog4j2.configurationFile={path}"'
