"""The projection: every outcome is one row of the ledger, whatever died in between."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import pytest
from kafka import KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from tests.commands import python
from tests.conftest import KafkaClient, eventually
from tests.outcomes.conftest import KEPT
from tests.outcomes.projection_process import make_configuration
from tests.outcomes.s3_server import S3
from tests.outcomes.samples import outcome
from tests.outcomes.test_rows import MALFORMED

from redrive.configuration import JobConfiguration
from redrive.errors import AlreadyRunningError, EnvironmentFault
from redrive.kafka.administration import TopicAdministration
from redrive.outcomes.rows import GONE, Row, row_of
from redrive.outcomes.storage import local_path, lock_file
from redrive.outcomes.table import LedgerTable
from redrive.streaming import projection
from redrive.streaming.lifecycle import JobControl, JobObserver
from redrive.streaming.projection import rebuild, start_projection
from redrive.streaming.session import Spark, start_session

_PATIENCE = 240.0
"""Seconds after which a test gives up on a projection; it takes a few."""
_LOOK = 0.5
"""Seconds between two looks at a ledger: each takes processor time from what is awaited."""


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The session of a job with a ledger."""
    configuration = make_configuration(tmp_path_factory.mktemp("spark"), "localhost:1", "any")
    session = start_session(configuration)
    yield session
    session.stop()


@dataclass(frozen=True)
class Job:
    """A job whose outcomes are projected."""

    spark: SparkSession
    configuration: JobConfiguration
    kafka: KafkaClient

    def write(self, numbers: range) -> None:
        """Outcomes in transactions, one of them aborted, so that offsets have gaps."""
        producer = KafkaProducer(
            bootstrap_servers=self.configuration.connection.bootstrap_servers,
            transactional_id=self.configuration.application,
        )
        producer.init_transactions()
        for start in range(numbers.start, numbers.stop, 10):
            producer.begin_transaction()
            for number in range(start, min(start + 10, numbers.stop)):
                value = orjson.dumps(outcome(number))
                producer.send(self.configuration.outcomes_topic, value, partition=number % 3)
            if start % 30 == 10:
                producer.abort_transaction()
            else:
                producer.commit_transaction()
        producer.close()

    def expected(self) -> list[Row]:
        """What the ledger has to hold: the topic as kafka-python reads it."""
        records = self.kafka.read(self.configuration.outcomes_topic)
        return _in_order(
            row_of(record.value, record.timestamp, record.partition, record.offset)
            for record in records
        )

    def held(self) -> list[Row]:
        table = LedgerTable.open(self.configuration.ledger.path)
        return [] if table is None else _in_order(table.outcomes("SELECT * FROM ledger"))

    def projected(self, rows: int) -> list[Row]:
        """What the ledger holds once a projection has had its time for so many rows."""
        deadline = time.monotonic() + _PATIENCE
        while (query := start_projection(self.spark, self.configuration)) is None:
            assert time.monotonic() < deadline, "a killed process still holds the lock"
            time.sleep(0.1)
        while len(self.held()) < rows and time.monotonic() < deadline:
            assert query.exception() is None
            time.sleep(0.2)
        query.processAllAvailable()
        query.stop()
        return self.held()

    def check_projected(self) -> None:
        """Projects all that is on the topic."""
        expected = self.expected()
        assert self.projected(len(expected)) == expected


def _in_order(rows: Any) -> list[Row]:
    return sorted(rows, key=lambda row: (row.outcomes_partition, row.outcomes_offset))


@pytest.fixture
def job(kafka: KafkaClient, spark: SparkSession, tmp_path: Path) -> Job:
    """A job whose outcomes topic exists and is empty."""
    application = kafka.topic("app").removesuffix(".app")
    configuration = make_configuration(tmp_path, kafka.bootstrap_servers, application)
    kafka.create(configuration.outcomes_topic, partitions=3, config=KEPT)
    return Job(spark, configuration, kafka)


def test_a_lost_checkpoint_neither_repeats_nor_loses_an_outcome(job: Job) -> None:
    for numbers in (range(40), range(40, 90), range(90, 95)):
        job.write(numbers)
        job.check_projected()
        shutil.rmtree(lock_file(job.configuration.ledger.path).with_name("checkpoint"))


def test_compaction_beside_a_running_projection_harms_neither(job: Job) -> None:
    query = start_projection(job.spark, job.configuration)
    assert query is not None
    path = local_path(job.configuration.ledger.path)
    for numbers in (range(30), range(30, 60), range(60, 90)):
        job.write(numbers)
        query.processAllAvailable()
        yesterday = time.time() - 86_400
        for file in (path / "_delta_log").iterdir():
            os.utime(file, (yesterday, yesterday))
        table = LedgerTable.open(path)
        assert table is not None
        table.compact()
    query.stop()
    assert job.held() == job.expected()
    assert len(list(path.rglob("day=*/*.parquet"))) > 1
    assert len(list((path / "_delta_log").glob("*[0-9].json"))) == 1


def test_malformed_records_stop_nothing(kafka: KafkaClient, job: Job) -> None:
    values = [*MALFORMED.values(), orjson.dumps(outcome(7))]
    records = [{"value": value, "key": b"k", "timestamp_ms": 1_790_000_000_000} for value in values]
    kafka.produce(job.configuration.outcomes_topic, records)
    expected = job.expected()
    assert sum(row.malformed is None for row in expected) == 1
    assert job.projected(len(expected)) == expected


@contextlib.contextmanager
def _process(job: Job, *writer: str) -> Iterator[None]:
    """A projection in a process of its own, which has written something, and is killed."""
    script = Path(__file__).with_name("projection_process.py")
    servers = job.configuration.connection.bootstrap_servers
    arguments = [str(job.configuration.directory), servers, job.configuration.application, *writer]
    before = len(job.held())
    with subprocess.Popen(
        [sys.executable, str(script), *arguments], start_new_session=True
    ) as process:
        try:
            deadline = time.monotonic() + _PATIENCE
            while len(job.held()) == before:
                assert process.poll() is None
                assert time.monotonic() < deadline
                time.sleep(_LOOK)
            yield
        finally:
            os.killpg(process.pid, signal.SIGKILL)


def test_a_killed_projection_is_taken_up_where_its_ledger_ends(job: Job) -> None:
    """kill -9 of Python and Java, at a moment when rows are being appended."""
    job.write(range(30))
    with _process(job):
        for start in range(30, 330, 50):
            job.write(range(start, start + 50))
    job.check_projected()


@pytest.fixture
def remote(job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Job, S3]]:
    """The same job with its ledger in an object store, and that store."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "reader")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "of a test")
    with S3.running() as store:
        ledger = replace(job.configuration.ledger, path=store.folder("ledger", tmp_path / "first"))
        yield replace(job, configuration=replace(job.configuration, ledger=ledger)), store


def test_two_machines_that_project_into_one_store_write_each_outcome_once(
    remote: tuple[Job, S3], tmp_path: Path
) -> None:
    """Both at once, through answers that are lost, an outage, and the end of one by kill -9."""
    job, store = remote
    commits = Counter[str]()

    def is_lost(method: str, key: str) -> bool:
        commits[method] += "_delta_log/" in key
        return method == "PUT" and "_delta_log/" in key and commits["PUT"] % 5 == 0

    store.lost = is_lost
    job.write(range(30))
    servers = job.configuration.connection.bootstrap_servers
    other = tmp_path / "other machine"
    url = str(job.configuration.ledger.path)
    arguments = [str(other), servers, job.configuration.application, url, store.url]
    script = Path(__file__).with_name("projection_process.py")
    with subprocess.Popen(
        [sys.executable, str(script), *arguments], start_new_session=True
    ) as process:
        try:
            eventually(job.held, "the other machine has written", every=_LOOK)
            for start in range(30, 230, 50):
                job.write(range(start, start + 50))
                query = start_projection(job.spark, job.configuration)
                assert query is not None
                if start == 130:
                    store.unavailable(3)
                query.processAllAvailable()
                query.stop()
            assert process.poll() is None
        finally:
            os.killpg(process.pid, signal.SIGKILL)
    job.check_projected()


def test_each_writer_appends_to_what_the_other_wrote(job: Job) -> None:
    job.write(range(30))
    job.check_projected()
    job.write(range(30, 60))
    # As if the process that projected had ended.
    os.close(projection._locks.pop(lock_file(job.configuration.ledger.path)))
    with _process(job, "spark"):
        for start in range(60, 360, 50):
            job.write(range(start, start + 50))
    table = LedgerTable.open(job.configuration.ledger.path)
    assert table is not None
    table.compact()
    job.check_projected()


def test_a_lost_ledger_is_built_again(job: Job) -> None:
    """By the next start, or by ``redrive ledger rebuild``."""
    job.write(range(50))
    expected = job.expected()
    job.projected(len(expected))
    shutil.rmtree(local_path(job.configuration.ledger.path))
    assert job.projected(len(expected)) == expected
    assert rebuild(job.spark, job.configuration, lambda _: None) == len(expected)
    assert job.held() == expected


def test_a_ledger_says_for_good_that_outcomes_were_deleted_before_it_had_them(job: Job) -> None:
    job.write(range(40))
    job.projected(len(job.expected()))
    known = {row.outcomes_partition: row.outcomes_offset + 1 for row in job.held()}
    job.write(range(40, 90))
    servers = job.configuration.connection.bootstrap_servers
    client = KafkaAdminClient(bootstrap_servers=servers)
    client.delete_records({TopicPartition(job.configuration.outcomes_topic, 1): -1})
    client.close()
    job.write(range(90, 95))
    left = job.expected()
    first = min(row.outcomes_offset for row in left if row.outcomes_partition == 1)
    wanted = len(job.held()) + len(
        [row for row in left if row.outcomes_offset >= known[row.outcomes_partition]]
    )
    held = job.projected(wanted + 1)
    (row,) = [candidate for candidate in held if (candidate.malformed or "").startswith(GONE)]
    assert (row.outcomes_partition, row.outcomes_offset) == (1, first - 1)
    assert row.malformed == f"{GONE}{known[1]} to {first - 1} of partition 1"
    assert len(held) == wanted + 1


def test_a_ledger_of_another_topic_is_not_mixed_with_this_one(job: Job) -> None:
    job.write(range(50))
    expected = job.expected()
    job.projected(len(expected))
    create = partial(job.kafka.create, partitions=3, config=KEPT)
    other = replace(job.configuration, application=f"{job.configuration.application}-2")
    create(other.outcomes_topic)
    with pytest.raises(EnvironmentFault, match="not those of"):
        start_projection(job.spark, other)
    topics = TopicAdministration(job.configuration.connection)
    topics.delete([job.configuration.outcomes_topic])
    eventually(lambda: job.configuration.outcomes_topic not in topics.partitions(), "it is gone")
    create(job.configuration.outcomes_topic)
    with pytest.raises(EnvironmentFault, match="was deleted and recreated"):
        start_projection(job.spark, job.configuration)
    assert job.held() == expected


def test_a_ledger_has_one_writer(job: Job) -> None:
    query = start_projection(job.spark, job.configuration)
    assert query is not None
    script = (
        "import sys, pathlib; from redrive.outcomes.storage import locked\n"
        "with locked(pathlib.Path(sys.argv[1])): pass"
    )
    path = str(job.configuration.ledger.path)
    second = python("-c", script, path)
    query.stop()
    assert AlreadyRunningError.__name__ in second.stderr


def test_after_an_append_that_failed_the_next_one_is_smaller(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def start(_: object, __: object, most: int, ___: object) -> StreamingQuery:
        asked.append(most)
        rows = job.spark.readStream.format("rate").load().selectExpr("raise_error('too large')")
        query = rows.writeStream.format("noop").start()
        with contextlib.suppress(StreamingQueryException):
            query.awaitTermination(int(_PATIENCE))
        return query

    monkeypatch.setattr(projection, "start_projection", start)
    monkeypatch.setattr(projection, "_PROJECTION_AGE", 0.0)
    monkeypatch.setattr(projection, "ONE_TRY", _PATIENCE)
    watched = projection.Projection(
        Spark(job.configuration, job.spark), job.configuration, JobControl(), delay=0.0
    )
    for _ in range(6):
        watched.look()
    assert asked == [50_000, 12_500, 3_125, 1_000, 1_000, 1_000]


def test_a_process_that_another_one_came_before_stands_by(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[StreamingQuery] = []
    said: list[str] = []

    def start(_: object, __: object, ___: int, superseded: Callable[[], None]) -> StreamingQuery:
        started.append(
            job.spark.readStream.format("rate").load().writeStream.format("noop").start()
        )
        superseded()
        return started[-1]

    class Heard(JobObserver):
        def notice(self, message: str, /, **facts: object) -> None:
            del facts
            said.append(message)

    monkeypatch.setattr(projection, "start_projection", start)
    monkeypatch.setattr(projection, "_PROJECTION_AGE", 0.0)
    monkeypatch.setattr(projection, "ONE_TRY", _PATIENCE)
    watched = projection.Projection(
        Spark(job.configuration, job.spark), job.configuration, JobControl(Heard()), delay=0.0
    )
    for _ in range(3):
        watched.look()
    assert (len(started), started[0].isActive, watched.problem) == (1, False, "")
    assert said == ["another process writes the ledger: this one waits"]


def test_without_a_ledger_nothing_is_started(job: Job) -> None:
    ledger = replace(job.configuration.ledger, enabled=False)
    disabled = replace(job.configuration, ledger=ledger)
    assert start_projection(job.spark, disabled) is None
    assert not local_path(job.configuration.ledger.path).exists()
