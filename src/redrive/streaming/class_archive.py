"""The archive of Spark's classes for Java.

``python -m redrive.streaming.class_archive FILE`` is the training run that makes one.
"""

from __future__ import annotations

import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from redrive.configuration import JobConfiguration, LedgerConfiguration
from redrive.java import ClassArchive, JarGroup, Java, jar_files, training_options
from redrive.kafka.connection import Connection

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

_END: Final = 900.0
"""Seconds for Java to write the archive; the whole run has as many."""


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
    """The folder of pyspark's own jars, found without importing pyspark, which is slow."""
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "jars"


def train(path: Path) -> None:
    """Starts Spark, runs it as the job does, and writes the archive, which must not exist yet."""
    from redrive.streaming.session import start_session  # noqa: PLC0415 - needs pyspark

    with tempfile.TemporaryDirectory(prefix="redrive-classes-") as folder:
        directory = Path(folder)
        configuration = JobConfiguration(
            application="classes",
            connection=Connection(bootstrap_servers="localhost:1"),
            handlers=(),
            directory=directory,
            ledger=LedgerConfiguration(path=directory / "ledger"),
        )
        session = start_session(
            configuration,
            java_options=training_options(path),
        )
        exercise(session, directory)
        gateway = session.sparkContext._gateway  # noqa: SLF001 - Java writes as it ends
        session.stop()
        if gateway is not None:
            gateway.shutdown()
            gateway.proc.stdin.close()
            gateway.proc.wait(_END)


def exercise(session: SparkSession, directory: Path) -> None:
    """Runs once what Spark does for a job, so that Java has loaded and compiled it.

    The directory is for a checkpoint, and does not exist yet.
    """
    session.range(0, 2, 1, 2).mapInArrow(_pass_on, "id long").collect()
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


def _pass_on(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return batches


def _fetch(frame: DataFrame, batch: int) -> None:
    del batch
    frame.toArrow()


if __name__ == "__main__":
    train(Path(sys.argv[1]))
