"""An archive of the Java classes that Spark loads, which saves seconds at the start.

Java reads and verifies some fifteen thousand classes whenever Spark starts. An application
class-data archive (JEP 350) keeps them in their memory layout. Java takes an archive only with the
version and the very files that it was made with, and silently starts without it otherwise: so the
name of an archive stands for all of them.

``python -m redrive.streaming.class_archive FILE`` is the training run that makes one.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from redrive.cache import cache_directory, exclusively
from redrive.configuration import JobConfiguration, LedgerConfiguration
from redrive.errors import EnvironmentFault
from redrive.jars import JarGroup, jar_files
from redrive.java import Java, find_java
from redrive.kafka.connection import Connection

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

_PATIENCE: Final = 900.0
"""Seconds that a training run may take: half a minute, but more than three on a busy machine."""


def archive_path(java: Java) -> Path:
    """Path of the archive that fits a Java and the jars of this installation, if it exists.

    Raises:
        EnvironmentFault: A jar is missing.
    """
    digest = sha256(java.release.encode())
    for jar in (*jar_files(JarGroup.SPARK), *sorted(_pyspark_jars().iterdir())):
        file = jar.stat()
        digest.update(f"\0{jar}\0{file.st_size}\0{int(file.st_mtime)}".encode())
    name = f"{_archive_prefix(java)}-{digest.hexdigest()[:16]}.jsa"
    return cache_directory() / "class-archives" / name


def _pyspark_jars() -> Path:
    """The folder of pyspark's own jars, found without the time that its import takes."""
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "jars"


def _archive_prefix(java: Java) -> str:
    """What the names of an installation's archives begin with: only the newest of them fits."""
    return sha256(f"{java.home}\0{_pyspark_jars()}".encode()).hexdigest()[:16]


def archive_options(java: Java) -> str:
    """The Java options that use the archive; empty if there is none."""
    path = archive_path(java)
    if not path.exists():
        return ""
    # Java ignores an archive that no longer fits; users need no warning.
    return f'"-XX:SharedArchiveFile={path}" -Xshare:auto -Xlog:disable -Xlog:all=error:stderr'


def make_archive() -> Path:
    """Makes the archive by a short run of Spark, unless it exists.

    Several processes may call this at once: one makes the archive, the others wait.

    Returns:
        Its path.

    Raises:
        EnvironmentFault: The run failed; Spark works without an archive.
    """
    java = find_java()
    path = archive_path(java)
    with exclusively(path.parent):
        if not path.exists():
            _make(path)
            for older in path.parent.glob(f"{_archive_prefix(java)}-*.jsa"):
                if older != path:
                    older.unlink()
    return path


def _make(path: Path) -> None:
    scratch = path.with_suffix(".new")
    scratch.unlink(missing_ok=True)
    problem = _write_archive(scratch)
    if problem:
        scratch.unlink(missing_ok=True)
        raise EnvironmentFault(
            f"no archive of Spark's classes could be made: {problem}",
            hint="Spark starts without one too, a few seconds later",
        )
    scratch.replace(path)


def _write_archive(path: Path) -> str:
    """Writes the archive in a separate process; returns the error, or an empty text."""
    # A separate session: Java has to end with the process.
    with subprocess.Popen(
        [sys.executable, "-m", __name__, str(path)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            _, errors = process.communicate(timeout=_PATIENCE)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return f"it took longer than {_PATIENCE:g} s"
    if process.returncode or not path.exists():
        return "\n".join(errors.splitlines()[-3:]) or f"exit code {process.returncode}"
    return ""


def train(path: Path) -> None:
    """Starts Spark, runs it like the job does, and writes the archive, which does not exist yet."""
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
            java_options=f'"-XX:ArchiveClassesAtExit={path}" -Xlog:disable',
        )
        exercise(session, directory)
        gateway = session.sparkContext._gateway  # noqa: SLF001 - Java writes as it ends
        session.stop()
        if gateway is not None:
            gateway.shutdown()
            gateway.proc.stdin.close()
            gateway.proc.wait(_PATIENCE)


def exercise(session: SparkSession, directory: Path) -> None:
    """Lets Spark do once what it does for a job, so that Java has loaded and compiled it.

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
