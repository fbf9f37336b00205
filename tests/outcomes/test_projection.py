"""The projection: every outcome is one row of the ledger, whatever died in between."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import orjson
import pytest
from kafka import TopicPartition
from kafka.admin import KafkaAdminClient
from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.query import StreamingQuery
from tests.commands import python
from tests.conftest import PATIENCE, KafkaClient, eventually
from tests.outcomes.conftest import KEPT
from tests.outcomes.projected_job import Job, projecting
from tests.outcomes.samples import ledger_at, outcome
from tests.outcomes.test_rows import MALFORMED

from redrive.errors import AlreadyRunningError, EnvironmentFault
from redrive.kafka.administration import TopicAdministration
from redrive.outcomes.rows import GONE
from redrive.outcomes.storage import local_path, lock_file
from redrive.streaming import projection
from redrive.streaming.lifecycle import JobControl, JobObserver
from redrive.streaming.projection import rebuild, start_projection
from redrive.streaming.session import Spark


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
        table = ledger_at(path)
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


def test_a_killed_projection_is_taken_up_where_its_ledger_ends(job: Job) -> None:
    """kill -9 of Python and Java, at a moment when rows are being appended."""
    job.write(range(30))
    with projecting(job):
        for start in range(30, 330, 50):
            job.write(range(start, start + 50))
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
            query.awaitTermination(int(PATIENCE))
        return query

    monkeypatch.setattr(projection, "start_projection", start)
    monkeypatch.setattr(projection, "_PROJECTION_AGE", 0.0)
    monkeypatch.setattr(projection, "ONE_TRY", PATIENCE)
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
    monkeypatch.setattr(projection, "ONE_TRY", PATIENCE)
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
