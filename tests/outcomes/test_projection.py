"""The projection: every outcome is one row of the ledger, whatever died in between."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from kafka import KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient, NewTopic
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from tests.outcomes.projection_process import make_configuration
from tests.outcomes.samples import outcome
from tests.outcomes.test_rows import MALFORMED

from redrive.configuration import JobConfiguration
from redrive.errors import AlreadyRunningError, EnvironmentFault
from redrive.outcomes.rows import GONE, Row, row_of
from redrive.outcomes.table import LedgerTable, lock_file
from redrive.streaming import projection
from redrive.streaming.lifecycle import JobControl
from redrive.streaming.projection import rebuild, start_projection
from redrive.streaming.session import Spark, start_session

_PATIENCE = 240.0
"""Seconds after which a test gives up on a projection; it takes a few."""


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The session of a job with a ledger."""
    configuration = make_configuration(tmp_path_factory.mktemp("spark"), "localhost:1", "any")
    session = start_session(configuration)
    yield session
    session.stop()


@pytest.fixture
def configuration(
    tmp_path: Path, bootstrap_servers: str, topics: Callable[..., str]
) -> JobConfiguration:
    """A job whose outcomes topic exists and is empty."""
    application = topics("app").removesuffix(".app")
    made = make_configuration(tmp_path, bootstrap_servers, application)
    _create(made.outcomes_topic, bootstrap_servers)
    return made


def _create(topic: str, bootstrap_servers: str) -> None:
    client = KafkaAdminClient(bootstrap_servers=bootstrap_servers)
    client.create_topics([NewTopic(topic, 3, 1)], wait_for_metadata=True)
    client.close()


def _write(configuration: JobConfiguration, numbers: range) -> None:
    """Outcomes in transactions, one of them aborted, so that offsets have gaps."""
    producer = KafkaProducer(
        bootstrap_servers=configuration.connection.bootstrap_servers,
        transactional_id=configuration.application,
    )
    producer.init_transactions()
    for start in range(numbers.start, numbers.stop, 10):
        producer.begin_transaction()
        for number in range(start, min(start + 10, numbers.stop)):
            value = orjson.dumps(outcome(number))
            producer.send(configuration.outcomes_topic, value, partition=number % 3)
        if start % 30 == 10:
            producer.abort_transaction()
        else:
            producer.commit_transaction()
    producer.close()


def _expected(configuration: JobConfiguration, read_all: Callable[..., list[Any]]) -> list[Row]:
    """What the ledger has to hold: the topic as kafka-python reads it."""
    records = read_all(configuration.outcomes_topic)
    return _in_order(row_of(it.value, it.timestamp, it.partition, it.offset) for it in records)


def _in_order(rows: Any) -> list[Row]:
    return sorted(rows, key=lambda row: (row["outcomes_partition"], row["outcomes_offset"]))


def _held(configuration: JobConfiguration) -> list[Row]:
    table = LedgerTable.open(configuration.ledger.path)
    return [] if table is None else _in_order(table.rows(""))


def _project(
    spark: SparkSession, configuration: JobConfiguration, expected: list[Row]
) -> list[Row]:
    """What the ledger holds once a projection has had its time."""
    deadline = time.monotonic() + _PATIENCE
    while (query := start_projection(spark, configuration)) is None:
        assert time.monotonic() < deadline, "a killed process still holds the lock"
        time.sleep(0.1)
    while len(_held(configuration)) < len(expected) and time.monotonic() < deadline:
        assert query.exception() is None
        time.sleep(0.2)
    query.processAllAvailable()
    query.stop()
    return _held(configuration)


def test_a_lost_checkpoint_neither_repeats_nor_loses_an_outcome(
    spark: SparkSession, configuration: JobConfiguration, read_all: Callable[..., list[Any]]
) -> None:
    """Every start goes on after the positions that the ledger holds."""
    for numbers in (range(40), range(40, 90), range(90, 95)):
        _write(configuration, numbers)
        expected = _expected(configuration, read_all)
        assert _project(spark, configuration, expected) == expected
        shutil.rmtree(lock_file(configuration.ledger.path).with_name("checkpoint"))


def test_compaction_beside_a_running_projection_harms_neither(
    spark: SparkSession, configuration: JobConfiguration, read_all: Callable[..., list[Any]]
) -> None:
    """Even when the log that the projection has read is old enough to be deleted under it."""
    query = start_projection(spark, configuration)
    assert query is not None
    path = configuration.ledger.path
    for numbers in (range(30), range(30, 60), range(60, 90)):
        _write(configuration, numbers)
        query.processAllAvailable()
        yesterday = time.time() - 86_400
        for file in (path / "_delta_log").iterdir():
            os.utime(file, (yesterday, yesterday))
        table = LedgerTable.open(path)
        assert table is not None
        table.compact()
    query.stop()
    assert _held(configuration) == _expected(configuration, read_all)
    assert len(list(path.rglob("day=*/*.parquet"))) > 1
    assert len(list((path / "_delta_log").glob("*[0-9].json"))) == 1


def test_malformed_records_stop_nothing(
    spark: SparkSession,
    configuration: JobConfiguration,
    produce: Callable[..., None],
    read_all: Callable[..., list[Any]],
) -> None:
    """Each is a row with its text, and what comes after is projected."""
    values = [*MALFORMED.values(), orjson.dumps(outcome(7))]
    records = [{"value": it, "key": b"k", "timestamp_ms": 1_790_000_000_000} for it in values]
    produce(configuration.outcomes_topic, records)
    expected = _expected(configuration, read_all)
    assert sum(row["malformed"] is None for row in expected) == 1
    assert _project(spark, configuration, expected) == expected


@contextlib.contextmanager
def _process(configuration: JobConfiguration, *writer: str) -> Iterator[None]:
    """A projection in a process of its own, which has written something, and is killed."""
    script = Path(__file__).with_name("projection_process.py")
    servers = configuration.connection.bootstrap_servers
    arguments = [str(configuration.directory), servers, configuration.application, *writer]
    before = len(_held(configuration))
    with subprocess.Popen(
        [sys.executable, str(script), *arguments], start_new_session=True
    ) as process:
        try:
            deadline = time.monotonic() + _PATIENCE
            while len(_held(configuration)) == before:
                assert process.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.1)
            yield
        finally:
            os.killpg(process.pid, signal.SIGKILL)


def test_a_killed_projection_is_taken_up_where_its_ledger_ends(
    spark: SparkSession,
    configuration: JobConfiguration,
    read_all: Callable[..., list[Any]],
) -> None:
    """kill -9 of Python and Java, at a moment when rows are being appended."""
    _write(configuration, range(30))
    with _process(configuration):
        for start in range(30, 330, 50):
            _write(configuration, range(start, start + 50))
    expected = _expected(configuration, read_all)
    assert _project(spark, configuration, expected) == expected


def test_each_writer_appends_to_what_the_other_wrote(
    spark: SparkSession, configuration: JobConfiguration, read_all: Callable[..., list[Any]]
) -> None:
    """The driver's library, Spark's Delta sink, which is killed, a compaction, and the library."""
    _write(configuration, range(30))
    expected = _expected(configuration, read_all)
    assert _project(spark, configuration, expected) == expected
    _write(configuration, range(30, 60))
    # As if the process that projected had ended.
    os.close(projection._locks.pop(configuration.ledger.path))
    with _process(configuration, "spark"):
        for start in range(60, 360, 50):
            _write(configuration, range(start, start + 50))
    table = LedgerTable.open(configuration.ledger.path)
    assert table is not None
    table.compact()
    expected = _expected(configuration, read_all)
    assert _project(spark, configuration, expected) == expected


def test_a_lost_ledger_is_built_again(
    spark: SparkSession, configuration: JobConfiguration, read_all: Callable[..., list[Any]]
) -> None:
    """By the next start, or by ``redrive ledger rebuild``."""
    _write(configuration, range(50))
    expected = _expected(configuration, read_all)
    _project(spark, configuration, expected)
    shutil.rmtree(configuration.ledger.path)
    assert _project(spark, configuration, expected) == expected
    assert rebuild(spark, configuration, lambda _: None) == len(expected)
    assert _held(configuration) == expected


def test_a_ledger_says_for_good_that_outcomes_were_deleted_before_it_had_them(
    spark: SparkSession, configuration: JobConfiguration, read_all: Callable[..., list[Any]]
) -> None:
    """Else what it says last of a message would pass for the last that there was."""
    _write(configuration, range(40))
    _project(spark, configuration, _expected(configuration, read_all))
    known = {it["outcomes_partition"]: it["outcomes_offset"] + 1 for it in _held(configuration)}
    _write(configuration, range(40, 90))
    servers = configuration.connection.bootstrap_servers
    client = KafkaAdminClient(bootstrap_servers=servers)
    client.delete_records({TopicPartition(configuration.outcomes_topic, 1): -1})
    client.close()
    _write(configuration, range(90, 95))
    left = _expected(configuration, read_all)
    first = min(it["outcomes_offset"] for it in left if it["outcomes_partition"] == 1)
    wanted = len(_held(configuration)) + len(
        [it for it in left if it["outcomes_offset"] >= known[it["outcomes_partition"]]]
    )
    held = _project(spark, configuration, [{}] * (wanted + 1))
    (row,) = [it for it in held if (it["malformed"] or "").startswith(GONE)]
    assert (row["outcomes_partition"], row["outcomes_offset"]) == (1, first - 1)
    assert row["malformed"] == f"{GONE}{known[1]} to {first - 1} of partition 1"
    assert len(held) == wanted + 1


def test_a_ledger_of_another_topic_is_not_mixed_with_this_one(
    spark: SparkSession, configuration: JobConfiguration, read_all: Callable[..., list[Any]]
) -> None:
    """A topic that ends before the ledger does was deleted and made again: a person decides."""
    _write(configuration, range(50))
    expected = _expected(configuration, read_all)
    _project(spark, configuration, expected)
    other = replace(configuration, application=f"{configuration.application}-2")
    _create(other.outcomes_topic, configuration.connection.bootstrap_servers)
    with pytest.raises(EnvironmentFault, match="was deleted and made again"):
        start_projection(spark, other)
    assert _held(configuration) == expected


def test_a_ledger_has_one_writer(spark: SparkSession, configuration: JobConfiguration) -> None:
    """While the job projects nobody compacts or rebuilds beside it, nor projects itself."""
    query = start_projection(spark, configuration)
    assert query is not None
    script = (
        "import sys, pathlib; from redrive.outcomes.table import locked\n"
        "with locked(pathlib.Path(sys.argv[1])): pass"
    )
    path = str(configuration.ledger.path)
    second = subprocess.run(
        [sys.executable, "-c", script, path], capture_output=True, text=True, check=False
    )
    query.stop()
    assert AlreadyRunningError.__name__ in second.stderr


def test_after_an_append_that_failed_the_next_one_is_smaller(
    spark: SparkSession, configuration: JobConfiguration, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the driver could not take at once it gets in parts, and not in ever smaller ones."""
    asked: list[int] = []

    def start(_: object, __: object, most: int) -> StreamingQuery:
        asked.append(most)
        rows = spark.readStream.format("rate").load().selectExpr("raise_error('too large')")
        query = rows.writeStream.format("noop").start()
        with contextlib.suppress(StreamingQueryException):
            query.awaitTermination(int(_PATIENCE))
        return query

    monkeypatch.setattr(projection, "start_projection", start)
    monkeypatch.setattr(projection, "_PROJECTION_AGE", 0.0)
    monkeypatch.setattr(projection, "ONE_TRY", _PATIENCE)
    watched = projection.Projection(
        Spark(configuration, spark), configuration, JobControl(), delay=0.0
    )
    for _ in range(6):
        watched.look()
    assert asked == [50_000, 12_500, 3_125, 1_000, 1_000, 1_000]


def test_without_a_ledger_nothing_is_started(
    spark: SparkSession, configuration: JobConfiguration
) -> None:
    """The setting is enough."""
    ledger = replace(configuration.ledger, enabled=False)
    disabled = replace(configuration, ledger=ledger)
    assert start_projection(spark, disabled) is None
    assert not configuration.ledger.path.exists()
