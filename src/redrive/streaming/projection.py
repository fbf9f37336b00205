"""The projection: outcome records become rows of the ledger, off the critical path (design 6.12).

Spark reads the records; the driver makes rows of them, as the commands do of the newest ones, and
appends them with the library that the rest of the ledger stands on.

The ledger is the only record of where its projection stands: every row holds the partition and the
offset of its outcome record. Each start reads these positions and goes on after them, with a new
query and a new checkpoint. So there is one way to start, after a stop, a kill, a lost checkpoint or
a lost ledger, and it is taken every time.

What makes it exact is that nobody else appends between reading the positions and ending the query.
A lock that the operating system gives to the process that appends sees to that.
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
from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from redrive.errors import EnvironmentFault, RedriveError
from redrive.kafka.cluster import Cluster, Extent
from redrive.messages import TopicPartition
from redrive.outcomes.columns import row_of
from redrive.outcomes.open_letters import write_open_letters
from redrive.outcomes.table import LedgerTable, arrow_of, in_use, lock_file, remove
from redrive.streaming.supervision import cause_of
from redrive.topology.names import own_prefix

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from redrive.configuration import JobConfiguration
    from redrive.streaming.lifecycle import JobControl

_COMPACT_AGE: Final = 900
"""Seconds between two compactions: at most 180 small files at one append every 5 s."""

_LOOK: Final = 2
"""Seconds between two looks how far a rebuild has come."""

_MOST: Final = 50_000
"""Outcome records that one append takes at most: memory, and the time for which a backlog takes a
core from the job, are bounded."""

_AT_ONCE: Final = 2_000
"""Outcome records that are Python objects at a time; a row of them takes some 4 kB."""

_SMALLEST: Final = 1_000
"""Outcome records that an append can always take, however large each of them is."""

_ANSWER_TIMEOUT: Final = 30.0
"""Seconds the broker has to tell where the outcomes topic begins and ends."""

_PROJECTION_AGE: Final = 30.0
"""Seconds between two looks whether the projection still runs."""
_APPEND_PATIENCE: Final = 5.0
"""Seconds that an orderly stop waits for the running append."""

_logger = logging.getLogger(__name__)

_locks: dict[Path, int] = {}
"""Open files that this process holds locked until it ends."""


def start_projection(
    spark: SparkSession, configuration: JobConfiguration, most: int = _MOST
) -> StreamingQuery | None:
    """Starts the query that appends outcome records to the ledger.

    Never waits for another process. Call it again when the query has ended by an error, or if there
    was none to start: it goes on where the ledger ends.

    Args:
        spark: The session of the job.
        configuration: The job; the outcomes topic must exist.
        most: Outcome records that one append takes at most.

    Returns:
        The query. None if the configuration wants no ledger, or if another process projects into
        this one already, such as another instance of the application on this machine.

    Raises:
        EnvironmentFault: The ledger can't be used, the outcomes topic can't be reached, or the
            topic is not the one that the ledger was made from.
    """
    path = configuration.ledger.path
    if not configuration.ledger.enabled or not _lock(path):
        return None
    interval = f"{round(configuration.ledger.interval * 1000)} milliseconds"
    query = _projection(spark, configuration, most).trigger(processingTime=interval).start()
    Thread(target=_maintain, args=(query, path), name="redrive-ledger", daemon=True).start()
    return query


class Projection:
    """Keeps the ledger's query running beside the job; no fault of the ledger ends the job.

    This class is responsible for: starting the query, and starting it again when it has ended.
    """

    def __init__(
        self,
        spark: SparkSession,
        configuration: JobConfiguration,
        control: JobControl,
        *,
        delay: float,
    ) -> None:
        """Prepare; nothing is started yet.

        Args:
            spark: The session.
            configuration: The job.
            control: Is told what keeps the ledger from being written.
            delay: Seconds until the first start: its first append is slow.
        """
        self._spark = spark
        self._configuration = configuration
        self._control = control
        self._query: StreamingQuery | None = None
        self._most = _MOST
        self._looked_at = time.monotonic() - _PROJECTION_AGE + delay
        self.problem = ""
        """Why the ledger is not written, in one line; empty if it is, as far as is known."""

    def look(self) -> None:
        """Starts the query if it does not run; called now and then, waits for nothing."""
        if time.monotonic() - self._looked_at < _PROJECTION_AGE:
            return
        self._looked_at = time.monotonic()
        if self._query is not None and self._query.isActive:
            self.problem = ""
            return
        problem = None if self._query is None else self._query.exception()
        if problem is not None:
            if os.strerror(errno.ENOSPC) not in str(problem):
                # Records that are larger than most may be more than the driver takes at once.
                self._most = max(_SMALLEST, self._most // 4)
            self._tell("the ledger's projection ended and is started again", str(problem))
        try:
            self._query = start_projection(self._spark, self._configuration, self._most)
        except RedriveError as error:
            self._tell("the ledger is not written", error.message)
        except (OSError, Py4JError, PySparkException) as error:
            self._tell("the ledger is not written", str(error))

    def stop(self) -> None:
        """Stops between two appends: an interrupted one does no harm, but Spark complains of it."""
        query = self._query
        if query is None:
            return
        deadline = time.monotonic() + _APPEND_PATIENCE
        while query.isActive and time.monotonic() < deadline:
            if not query.status["isTriggerActive"]:
                break
            time.sleep(0.05)
        query.stop()

    def _tell(self, what: str, error: str) -> None:
        path, cause = self._configuration.ledger.path, cause_of(None, error)
        problem = f"the ledger in {path} is not written: {cause}"
        if problem != self.problem:  # the same again is no news
            self._control.warning(what, error=cause, path=str(path))
        self.problem = problem


def rebuild(
    spark: SparkSession, configuration: JobConfiguration, progress: Callable[[int], None]
) -> int:
    """Deletes the ledger and makes it again from the outcomes topic.

    Args:
        spark: A session.
        configuration: The job; no instance of it may be running.
        progress: Called now and then with the number of outcomes the new ledger holds.

    Returns:
        The number of outcomes in the new ledger.

    Raises:
        AlreadyRunningError: Another process projects into the ledger.
        EnvironmentFault: There is no outcomes topic, or the ledger can't be made.
    """
    path = configuration.ledger.path
    if not _lock(path):
        raise in_use(path)
    # Nothing is deleted before it is known that there is something to make it from.
    _starting_offsets(configuration, {})
    remove(path)
    query = _projection(spark, configuration, _MOST).trigger(availableNow=True).start()
    while not query.awaitTermination(_LOOK):
        progress(_size(path))
    _compact(path)
    return _size(path)


def _size(path: Path) -> int:
    table = LedgerTable.open(path)
    return 0 if table is None else table.size


def _projection(
    spark: SparkSession, configuration: JobConfiguration, most: int
) -> DataStreamWriter:
    """The query from where the ledger ends, ready to start, with ``most`` records a batch."""
    path = configuration.ledger.path
    table = LedgerTable.create(path)
    positions = table.positions()
    checkpoint = lock_file(path).with_name("checkpoint")
    shutil.rmtree(checkpoint, ignore_errors=True)
    outcomes = _read(spark, configuration, _starting_offsets(configuration, positions), most)
    return (
        # One file a batch, read by one task: the other cores stay with the job.
        outcomes.coalesce(1)
        .writeStream.foreachBatch(lambda records, _: _append(table, records))
        .queryName(f"ledger of {configuration.application}")
        .option("checkpointLocation", str(checkpoint))
    )


def _lock(path: Path) -> bool:
    """Takes the lock of a ledger for this process, for as long as it lives."""
    if path in _locks:
        return True
    file = lock_file(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    opened = os.open(file, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.lockf(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(opened)
        _logger.info("another process projects into the ledger %s", path)
        return False
    _locks[path] = opened
    return True


def _starting_offsets(
    configuration: JobConfiguration, positions: Mapping[int, int]
) -> Mapping[int, int]:
    """Where each partition of the outcomes topic is to be read from.

    Args:
        configuration: The job.
        positions: What the ledger says.
    """
    topic = configuration.outcomes_topic
    with Cluster.open(configuration.connection, timeout=_ANSWER_TIMEOUT) as cluster:
        extents = cluster.extents(cluster.lanes([topic]))
    if not extents:
        raise EnvironmentFault(
            f"the outcomes topic {topic} does not exist", hint="`redrive run` makes it"
        )
    return {lane.partition: _start(lane, positions, extents[lane]) for lane in extents}


def _start(lane: TopicPartition, positions: Mapping[int, int], extent: Extent) -> int:
    position = positions.get(lane.partition, 0)
    if position > extent.end:
        raise EnvironmentFault(
            f"the ledger knows offset {position - 1} of {lane}, which ends at {extent.end}: the"
            " topic was deleted and made again since",
            hint="move the ledger away to keep it, or `redrive ledger rebuild`",
        )
    if 0 < position < extent.first:
        _logger.warning(
            "outcomes %d to %d of %s were deleted before the ledger had them",
            position, extent.first - 1, lane,
        )  # fmt: skip
    return max(position, extent.first)


def _read(
    spark: SparkSession, configuration: JobConfiguration, offsets: Mapping[int, int], most: int
) -> DataFrame:
    topic = configuration.outcomes_topic
    options = {
        **{f"kafka.{name}": value for name, value in configuration.connection.java().items()},
        "kafka.isolation.level": "read_committed",
        # With the default of 500 ms an append holds a core that long for each of its partitions.
        "kafka.fetch.max.wait.ms": "1",
        "groupIdPrefix": f"{own_prefix(configuration.application)}ledger",
        "subscribe": topic,
        "startingOffsets": json.dumps({topic: offsets}),
        "maxOffsetsPerTrigger": str(most),
    }
    records = spark.readStream.format("kafka").options(**options).load()
    return records.selectExpr("value", "unix_millis(timestamp) AS time", "partition", "offset")


def _append(table: LedgerTable, records: DataFrame) -> None:
    """Adds the rows of outcome records to the ledger, in one append."""
    batches = records.toArrow().to_batches(max_chunksize=_AT_ONCE)
    table.append([arrow_of(list(map(row_of, *batch.to_pydict().values()))) for batch in batches])


def _maintain(query: StreamingQuery, path: Path) -> None:
    """Compacts the ledger every now and then, for as long as its query runs."""
    with contextlib.suppress(Exception):  # whatever ends the query is told by the query
        while not query.awaitTermination(_COMPACT_AGE):
            _compact(path)


def _compact(path: Path) -> None:
    try:
        table = LedgerTable.open(path)
        if table is not None:
            table.compact()
            write_open_letters(path)
    except RedriveError as error:
        # Many small files are slow and not wrong: the next time may do better.
        _logger.warning("%s", error.message)
