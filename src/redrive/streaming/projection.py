"""The projection: outcome records become rows of the ledger, off the critical path.

Spark reads the records. On one machine the driver turns them into rows and appends them with the
library that commands use to read the ledger. On a cluster executors make the rows and Spark's Delta
sink writes them, if the executors see the folder of the ledger. Both use one table format: each
writer appends to the other's table.

The ledger is the only record of its projection's position: every row holds the partition and the
offset of its outcome record. Each start reads these positions and continues after them, with a new
query and a new checkpoint. So every start is the same: after a stop, a kill, a lost checkpoint or a
lost ledger.

It is exact because no other process appends between reading the positions and ending the query. On
one machine the appending process holds a lock of the operating system. In an object store another
machine may append too: an append to a ledger that has changed writes nothing, and its process waits
for a while.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import logging
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING, Final, Protocol

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from redrive.engine.names import own_prefix
from redrive.engine.outcome import COLUMNS
from redrive.errors import AlreadyRunningError, EnvironmentFault, RedriveError, RestartRequired
from redrive.kafka.cluster import Cluster, Extent
from redrive.kafka.deadline import ONE_TRY, PAUSE, SILENCE, DeadlineThread, PendingCall
from redrive.messages import TopicPartition
from redrive.outcomes.open_letters import write_open_letters
from redrive.outcomes.rows import GONE, row_of
from redrive.outcomes.storage import in_use, is_remote, local_path, lock_file
from redrive.outcomes.table import LedgerTable, arrow_of, remove, source_of
from redrive.streaming.kafka_options import kafka_options
from redrive.streaming.query import RunningQuery
from redrive.streaming.session import Spark
from redrive.streaming.supervision import cause_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from redrive.configuration import JobConfiguration, LedgerFolder
    from redrive.streaming.lifecycle import JobControl

_COMPACT_AGE: Final = 900
"""Seconds between two compactions: at most 180 small files at one append every 5 s."""

_LOOK: Final = 2
"""Seconds between two progress reports of a rebuild."""

_MOST: Final = 50_000
"""Maximum outcome records in one append: bounds memory, and the time for which a backlog uses a
core."""

_AT_ONCE: Final = 2_000
"""Maximum outcome records as Python objects at a time; a row takes some 4 kB."""

_SMALLEST: Final = 1_000
"""Outcome records that fit in an append, whatever their size."""


_PROJECTION_AGE: Final = 30.0
"""Seconds between two checks whether the projection is running."""

_STANDBY: Final = 300.0
"""Seconds for which the ledger is left to another process that writes it: if both try, each loses
an append; if the other one ends, the ledger is late by this time."""

_logger = logging.getLogger(__name__)

_SCHEMA: Final = ", ".join(f"{column.name} {column.kind}" for column in COLUMNS)
"""The ledger's columns as Spark's DDL."""

_locks: dict[Path, int] = {}
"""Open lock files that this process holds until it ends."""


class _Writer(Protocol):
    """Appends to the ledger and compacts it.

    One library does both, as commits on a local file system are only safe within one library.
    """

    def append(self, records: DataFrame) -> None:
        """Adds the rows of outcome records in one commit."""

    def compact(self) -> None:
        """Merges small files, and deletes those that are no longer read."""


class _DriverWriter:
    """Appends from the driver by ``deltalake``: no Spark job, some 10 ms."""

    def __init__(self, table: LedgerTable, superseded: Callable[[], None]) -> None:
        self._table = table
        self._superseded = superseded
        self._is_superseded = False

    def append(self, records: DataFrame) -> None:
        if self._is_superseded:
            return  # the next start continues where the ledger ends
        batches = records.toArrow().to_batches(max_chunksize=_AT_ONCE)
        try:
            self._table.append([_rows_of(batch) for batch in batches])
        except AlreadyRunningError:
            self._is_superseded = True
            self._superseded()

    def compact(self) -> None:
        table = LedgerTable.open(self._table.path, bridges_outages=True)
        if table is not None:
            table.compact()


class _SparkWriter:
    """Appends by Spark's Delta sink: executors make the rows and write the files."""

    def __init__(self, spark: SparkSession, path: Path) -> None:
        self._spark = spark
        self._path = str(path)

    def append(self, records: DataFrame) -> None:
        rows = records.mapInArrow(_row_batches, _SCHEMA)
        rows.write.format("delta").mode("append").save(self._path)

    def compact(self) -> None:
        from delta.tables import DeltaTable  # noqa: PLC0415 - only a cluster needs it

        table = DeltaTable.forPath(self._spark, self._path)
        table.optimize().executeCompaction()
        table.vacuum()


def _row_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for start in range(0, batch.num_rows, _AT_ONCE):
            yield from _rows_of(batch.slice(start, _AT_ONCE)).to_batches()


def _rows_of(batch: pa.RecordBatch) -> pa.Table:
    return arrow_of(list(map(row_of, *batch.to_pydict().values())))


def start_projection(
    spark: SparkSession,
    configuration: JobConfiguration,
    most: int = _MOST,
    superseded: Callable[[], None] = lambda: None,
    *,
    once: bool = False,
) -> StreamingQuery | None:
    """Starts the query that appends outcome records to the ledger.

    Never waits for another process. Call it again when the query failed, or if none was started: it
    continues where the ledger ends.

    Args:
        spark: The session of the job.
        configuration: The job; the outcomes topic must exist.
        most: Maximum outcome records of one append.
        superseded: Called once another machine wrote the same outcomes; the query writes nothing
            from then on.
        once: Whether the query ends after the outcomes that the topic has now.

    Returns:
        The query. None if the configuration has no ledger, or if another process already projects
        into it, such as another instance of the application on this machine.

    Raises:
        EnvironmentFault: The ledger cannot be used, the outcomes topic cannot be reached, or the
            ledger was made from another topic.
    """
    path = configuration.ledger.path
    if not configuration.ledger.enabled or not _lock(path):
        return None
    interval = f"{round(configuration.ledger.interval * 1000)} milliseconds"
    writer, prepared = _projection(spark, configuration, most, superseded)
    if once:
        return prepared.trigger(availableNow=True).start()
    query = prepared.trigger(processingTime=interval).start()
    Thread(target=_maintain, args=(query, writer, path), name="redrive-ledger", daemon=True).start()
    return query


@dataclass(eq=False)
class Projection:
    """Keeps the ledger's query running beside the job; the ledger's faults never end the job.

    This class starts the query, and restarts it when it has ended.
    """

    spark: Spark
    configuration: JobConfiguration
    control: JobControl
    delay: float
    """Seconds until the query starts, as its first append is slow."""
    problem: str = ""
    """Why the ledger is not written, in one line; empty if no problem is known."""

    def __post_init__(self) -> None:
        self._query: RunningQuery | None = None
        # Not the job's thread for Java: a start reads the ledger first.
        self._thread = DeadlineThread("redrive-ledger-start")
        self._starting: PendingCall[StreamingQuery | None] | None = None
        self._most = _MOST
        self._superseded = Event()
        self._looked_at = time.monotonic() - _PROJECTION_AGE + self.delay

    def look(self) -> None:
        """Starts the query if it does not run; called periodically.

        Raises:
            RestartRequired: Java is gone, or does not answer.
        """
        if time.monotonic() - self._looked_at < _PROJECTION_AGE:
            return
        self._looked_at = time.monotonic()
        if self._superseded.is_set():
            self._stand_by()
            return
        if self._query is not None and self._query.is_active:
            self.problem = ""
            return
        problem = "" if self._query is None else self._query.exception
        if problem:
            if os.strerror(errno.ENOSPC) not in problem:
                # Unusually large records may exceed the driver's limit.
                self._most = max(_SMALLEST, self._most // 4)
            self._report("the ledger's projection ended and is restarted", problem)
        self._query = None
        self._start()

    def _stand_by(self) -> None:
        self._stop_query()
        self._superseded.clear()
        self._query, self.problem = None, ""
        self._looked_at += _STANDBY
        self.control.notice(
            "another process writes the ledger: this one waits",
            path=str(self.configuration.ledger.path),
        )

    def _start(self) -> None:
        session, most = self.spark.session, self._most
        is_late = self._starting is not None  # a second start beside it would append twice
        self._starting = self._starting or self._thread.submit(
            "start of the ledger's projection",
            lambda: start_projection(session, self.configuration, most, self._superseded.set),
        )
        if not self._starting.is_made_within(ONE_TRY):
            if is_late:
                self._report("the ledger is not written", "the start of its query does not answer")
            return
        starting, self._starting = self._starting, None
        try:
            query = starting.answer(0)
        except RedriveError as error:
            self._report("the ledger is not written", error.message)
        except (OSError, Py4JError, PySparkException) as error:
            self._report("the ledger is not written", str(error))
        else:
            if query is not None:
                self._query = RunningQuery(self.spark, query, "the ledger's query")

    def catch_up(self) -> None:
        """Appends the outcomes that the topic has now; for a job that ends and never looked.

        Raises:
            RestartRequired: Java is gone, or does not answer.
        """
        session, superseded = self.spark.session, self._superseded.set
        try:
            query = start_projection(session, self.configuration, self._most, superseded, once=True)
        except RedriveError as error:
            self._report("the ledger is not written", error.message)
        except (OSError, Py4JError, PySparkException) as error:
            self._report("the ledger is not written", str(error))
        else:
            if query is None:
                return
            self._query = RunningQuery(self.spark, query, "the ledger's query")
            while self._query.is_active and not self.control.is_stopping:
                time.sleep(PAUSE)
            if problem := self._query.exception:
                self._report("the ledger is not written", problem)

    def stop(self) -> None:
        """Stops between two appends: an interruption is harmless, but Spark logs an error.

        Raises nothing if Java is gone or hangs: then there are no more appends either.
        """
        self._thread.end()
        self._stop_query()

    def _stop_query(self) -> None:
        query = self._query
        if query is None:
            return
        deadline = time.monotonic() + ONE_TRY
        with contextlib.suppress(RestartRequired):
            while query.is_active and time.monotonic() < deadline:
                if not query.status["isTriggerActive"]:
                    break
                time.sleep(0.05)
        query.stop()

    def _report(self, what: str, error: str) -> None:
        path, cause = self.configuration.ledger.path, cause_of(error)
        problem = f"the ledger in {path} is not written: {cause}"
        if problem != self.problem:  # report only changes
            self.control.warning(what, error=cause, path=str(path))
        self.problem = problem


def rebuild(
    spark: SparkSession, configuration: JobConfiguration, progress: Callable[[int], None]
) -> int:
    """Deletes the ledger and rebuilds it from the outcomes topic.

    Args:
        spark: A session.
        configuration: The job; no instance of it may be running.
        progress: Called periodically with the number of outcomes in the new ledger.

    Returns:
        The number of outcomes in the new ledger.

    Raises:
        AlreadyRunningError: Another process projects into the ledger.
        EnvironmentFault: There is no outcomes topic, or the ledger cannot be created.
    """
    path = configuration.ledger.path
    if not _lock(path):
        raise in_use(path)
    # Delete nothing before a source for the rebuild is known to exist.
    with Cluster.open(configuration.connection, timeout=SILENCE) as cluster:
        _starting_offsets(cluster, configuration.outcomes_topic, {})
    remove(path)
    superseded = Event()
    writer, prepared = _projection(spark, configuration, _MOST, superseded.set)
    query = prepared.trigger(availableNow=True).start()
    while not query.awaitTermination(_LOOK):
        progress(_size(path))
    if superseded.is_set():
        raise in_use(path)
    _compact(writer, path)
    return _size(path)


def _size(path: LedgerFolder) -> int:
    table = LedgerTable.open(path)
    return 0 if table is None else table.size


def _writer(
    spark: SparkSession,
    configuration: JobConfiguration,
    table: LedgerTable,
    superseded: Callable[[], None],
) -> _Writer:
    if configuration.is_local or is_remote(table.path):
        return _DriverWriter(table, superseded)
    path = local_path(table.path)
    if _is_shared(spark, path):
        return _SparkWriter(spark, path)
    _logger.warning(
        "executors do not see the ledger's folder %s: the driver writes the ledger",
        table.path,
    )
    return _DriverWriter(table, superseded)


def _is_shared(spark: SparkSession, path: Path) -> bool:
    log = path.absolute() / "_delta_log"
    tasks = range(spark.sparkContext.defaultParallelism)
    seen = spark.sparkContext.parallelize(tasks, len(tasks)).map(lambda _: log.is_dir())
    return all(seen.collect())


def _projection(
    spark: SparkSession,
    configuration: JobConfiguration,
    most: int,
    superseded: Callable[[], None],
) -> tuple[_Writer, DataStreamWriter]:
    """The writer of the ledger, and its query, which begins where the ledger ends."""
    topic = configuration.outcomes_topic
    with Cluster.open(configuration.connection, timeout=SILENCE) as cluster:
        table = LedgerTable.create(configuration.ledger.path, source_of(cluster, topic))
        positions = table.positions()
        starts = _starting_offsets(cluster, topic, positions)
    writer = _writer(spark, configuration, table, superseded)
    _mark_gone(table, positions, starts)
    checkpoint = lock_file(table.path).with_name("checkpoint")
    shutil.rmtree(checkpoint, ignore_errors=True)
    outcomes = _read(spark, configuration, starts, most)
    prepared = (
        # One file a batch, read by one task: the other cores stay with the job.
        outcomes.coalesce(1)
        .writeStream.foreachBatch(lambda records, _: writer.append(records))
        .queryName(f"ledger of {configuration.application}")
        .option("checkpointLocation", str(checkpoint))
    )
    return writer, prepared


def _lock(path: LedgerFolder) -> bool:
    file = lock_file(path)
    if file in _locks:
        return True
    file.parent.mkdir(parents=True, exist_ok=True)
    opened = os.open(file, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.lockf(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(opened)
        _logger.info("another process projects into the ledger %s", path)
        return False
    _locks[file] = opened
    return True


def _starting_offsets(
    cluster: Cluster, topic: str, positions: Mapping[int, int]
) -> Mapping[int, int]:
    """The offset from which to read each partition; ``positions`` are those in the ledger."""
    extents = cluster.extents(cluster.lanes([topic]))
    if not extents:
        raise EnvironmentFault(
            f"the outcomes topic {topic} does not exist", hint="`redrive run` creates it"
        )
    return {lane.partition: _start(lane, positions, extents[lane]) for lane in extents}


def _start(lane: TopicPartition, positions: Mapping[int, int], extent: Extent) -> int:
    position = positions.get(lane.partition, 0)
    if position > extent.end:
        raise EnvironmentFault(
            f"the ledger knows offset {position - 1} of {lane}, which ends at {extent.end}: the"
            " topic was deleted and recreated since",
            hint="move the ledger to keep it, or run `redrive ledger rebuild`",
        )
    return max(position, extent.first)


def _mark_gone(table: LedgerTable, positions: Mapping[int, int], starts: Mapping[int, int]) -> None:
    """Records in the ledger a gap of outcomes that no longer exist.

    Otherwise it would look complete, and its last row of a message would count as the last outcome.
    """
    rows = []
    for partition, start in starts.items():
        position = positions.get(partition, 0)
        if 0 < position < start:
            gap = f"{GONE}{position} to {start - 1} of partition {partition}"
            _logger.warning(gap)
            now = round(time.time() * 1000)
            rows.append(row_of(gap.encode(), now, partition, start - 1))
    if rows:
        table.append([arrow_of(rows)])


def _read(
    spark: SparkSession, configuration: JobConfiguration, offsets: Mapping[int, int], most: int
) -> DataFrame:
    topic = configuration.outcomes_topic
    options = {
        **kafka_options(spark, configuration.connection),
        "kafka.isolation.level": "read_committed",
        # With the default of 500 ms an append holds a core that long per partition.
        "kafka.fetch.max.wait.ms": "1",
        "groupIdPrefix": f"{own_prefix(configuration.application)}ledger",
        "subscribe": topic,
        "startingOffsets": json.dumps({topic: offsets}),
        "maxOffsetsPerTrigger": str(most),
    }
    records = spark.readStream.format("kafka").options(**options).load()
    return records.selectExpr("value", "unix_millis(timestamp) AS time", "partition", "offset")


def _maintain(query: StreamingQuery, writer: _Writer, path: LedgerFolder) -> None:
    with contextlib.suppress(Exception):  # the query itself reports what ends it
        while not query.awaitTermination(_COMPACT_AGE):
            _compact(writer, path)


def _compact(writer: _Writer, path: LedgerFolder) -> None:
    try:
        writer.compact()
        write_open_letters(path)
    except (RedriveError, PySparkException) as error:
        # Many small files are slow but correct; the next time may succeed.
        _logger.warning("the ledger in %s was not compacted: %s", path, cause_of(str(error)))
