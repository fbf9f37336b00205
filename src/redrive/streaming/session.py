"""The Spark session of the job: local, with the settings that were measured to matter."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from redrive.jars import JarGroup, jar_files
from redrive.java import find_java
from redrive.streaming.class_archive import archive_options

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

    from redrive.configuration import JobConfiguration

_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
    "spark.sql.adaptive.streaming.stateless.enabled": "false",
    "spark.speculation": "false",
    "spark.python.worker.reuse": "true",
    "spark.sql.streaming.stopTimeout": "60s",
    "spark.sql.streaming.numRecentProgressUpdates": "20",
    "spark.sql.streaming.minBatchesToRetain": "10",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "localhost",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing"
        ".FileSystemBasedCheckpointFileManager"
    ),
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
}

_JAVA_OPTIONS = "-XX:+UseParallelGC -XX:TieredStopAtLevel=1"
"""Throughput counts, pauses of milliseconds do not. Java only plans batches and keeps the ledger:
to compile its code again and again for the last bit of speed costs more than that ever brings."""


def start_session(
    configuration: JobConfiguration,
    extra: Mapping[str, str] | None = None,
    *,
    java_options: str | None = None,
) -> SparkSession:
    """Starts Spark with the locked jars.

    Args:
        configuration: The job.
        extra: More session settings, such as those of the ledger.
        java_options: More options for Java; by default those that start it quickly.

    Raises:
        EnvironmentFault: No Java, or jars that are missing or wrong.
    """
    java = find_java()
    os.environ["JAVA_HOME"] = str(java.home)
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("SPARK_LOCAL_DIRS", str(configuration.own_directory / "spark"))
    from pyspark.sql import SparkSession  # noqa: PLC0415 - reads the environment when imported

    if java_options is None:
        java_options = archive_options(java)
    java_options = f"{_JAVA_OPTIONS} {_quiet(configuration)} {java_options}"
    settings = {
        **_SETTINGS,
        **_jars(configuration),
        "spark.driver.extraJavaOptions": java_options,
        "spark.driver.memory": configuration.driver_memory,
        "spark.sql.streaming.pollingDelay": f"{int(configuration.polling_delay * 1000)}ms",
        "spark.sql.warehouse.dir": str(configuration.directory / "warehouse"),
        **(extra or {}),
    }
    builder = SparkSession.builder.appName(f"redrive {configuration.application}")
    builder = builder.master(configuration.master or f"local[{configuration.cores}]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def _jars(configuration: JobConfiguration) -> dict[str, str]:
    """How Spark gets the locked jars: by its class path, unless executors are on other machines."""
    paths = [str(path) for path in jar_files(JarGroup.SPARK)]
    if configuration.master and not configuration.master.startswith("local"):
        return {"spark.jars": ",".join(paths)}
    return {"spark.driver.extraClassPath": os.pathsep.join(paths)}


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
