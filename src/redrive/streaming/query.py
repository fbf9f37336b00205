"""The query: the union of Spark's Kafka source and the held source.

All rows pass through Spark: the rows of ``foreachBatch`` are decided and written. So Spark's own
progress has correct counts and rates, and a frame can be enriched before the decision.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from redrive.checkpoints.held import NewMessages
from redrive.errors import RestartRequired
from redrive.kafka.deadline import SILENCE
from redrive.messages import TopicPartition
from redrive.streaming.held_reader import HeldSettings
from redrive.streaming.held_source import NAME
from redrive.streaming.kafka_options import kafka_options
from redrive.streaming.rows import COLUMNS
from redrive.streaming.session import Spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from redrive.checkpoints.epoch import RunIdentity
    from redrive.configuration import JobConfiguration
    from redrive.streaming.start import Start


_MOST_PARTITIONS: Final = 64
"""Maximum partitions for Spark's own Kafka source. It keeps that many consumers open, opens one for
each further partition in each batch, and plans a task for each."""


class RunningQuery:
    """A query of Spark, asked with deadlines; every method raises as ``Spark.ask``."""

    def __init__(self, spark: Spark, query: StreamingQuery, name: str) -> None:
        """``name`` is the name of the query in messages: ``the query``."""
        self._spark = spark
        self._query = query
        self._name = name

    @property
    def is_active(self) -> bool:
        """Whether it runs."""
        return self._spark.ask(f"state of {self._name}", lambda: self._query.isActive)

    @property
    def exception(self) -> str:
        """The error that ended it; empty if there is none."""
        problem = self._spark.ask(f"error of {self._name}", self._query.exception)
        return "" if problem is None else str(problem)

    @property
    def status(self) -> dict[str, Any]:
        """Spark's status message."""
        return self._spark.ask(f"state of {self._name}", lambda: self._query.status)

    @property
    def last_progress(self) -> Mapping[str, Any] | None:
        """Spark's progress of its last batch; None before the first."""
        return self._spark.ask(f"progress of {self._name}", lambda: self._query.lastProgress)

    def stop(self) -> None:
        """Stops it; if Java is gone or hangs, it emits nothing more.

        The same applies if its thread still waits for a broker when Spark gives up: its batches are
        over, and it ends with that answer.
        """
        from py4j.protocol import Py4JError  # noqa: PLC0415 - comes with pyspark, slow to import

        with suppress(RestartRequired, Py4JError):
            self._spark.ask(f"stop of {self._name}", self._query.stop, seconds=SILENCE)


def start_query(
    spark: SparkSession,
    configuration: JobConfiguration,
    start: Start,
    batch: Callable[[DataFrame, int], None],
    *,
    run: RunIdentity,
    checkpoint: Path,
) -> StreamingQuery:
    """Starts the query, with a new checkpoint folder for this run only.

    ``batch`` handles one micro-batch, whose frame has the columns of ``held_source.SCHEMA``.

    Raises:
        PySparkException: Spark does not start it.
    """
    return (
        _frame(spark, configuration, start, run)
        .writeStream.foreachBatch(batch)
        .option("checkpointLocation", checkpoint.as_uri())
        # Includes the run: Spark refuses the name of any query, even a stopping one.
        .queryName(f"redrive {configuration.application} {configuration.share} {checkpoint.name}")
        .trigger(processingTime="0 seconds")
        .start()
    )


def _frame(
    spark: SparkSession, configuration: JobConfiguration, start: Start, run: RunIdentity
) -> DataFrame:
    by_spark = len(start.positions) <= _MOST_PARTITIONS
    free = [] if by_spark else [NewMessages(*new) for new in start.positions.items()]
    settings = HeldSettings(
        held=(*start.held, *free),
        connection=configuration.connection,
        max_rows=configuration.max_records_per_batch,
        clock=start.clock,
        run=run,
        watched=tuple(start.positions),
        rate=configuration.reevaluation_rate,
    )
    held = spark.readStream.format(NAME).options(**settings.options()).load()
    if free or not start.positions:
        return held
    # This order: the held source waits for a record that the other then finds.
    return held.unionByName(_kafka_frame(spark, configuration, start.positions))


def _kafka_frame(
    spark: SparkSession, configuration: JobConfiguration, positions: Mapping[TopicPartition, int]
) -> DataFrame:
    assignment: dict[str, list[int]] = {}
    starting: dict[str, dict[str, int]] = {}
    for lane, position in positions.items():
        assignment.setdefault(lane.topic, []).append(lane.partition)
        starting.setdefault(lane.topic, {})[str(lane.partition)] = position
    options = {
        "kafka.receive.buffer.bytes": "1048576",
        **kafka_options(spark, configuration.connection),
        "assign": json.dumps(assignment),
        "startingOffsets": json.dumps(starting),
        "includeHeaders": "true",
        "failOnDataLoss": "true",
        "maxOffsetsPerTrigger": str(configuration.max_records_per_batch),
        "kafka.isolation.level": "read_committed",
        # With the default of 500 ms every batch waits that long per partition.
        "kafka.fetch.max.wait.ms": "1",
        "kafka.max.poll.records": "5000",
        "kafkaConsumer.pollTimeoutMs": "30000",
    }
    return spark.readStream.format("kafka").options(**options).load().select(*COLUMNS)
