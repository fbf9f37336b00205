"""A job whose outcomes are projected into a ledger."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import orjson
from kafka import KafkaProducer
from tests.conftest import PATIENCE, KafkaClient
from tests.outcomes.samples import outcome

from redrive.configuration import JobConfiguration
from redrive.outcomes.rows import Row, row_of
from redrive.outcomes.table import LedgerTable
from redrive.streaming.projection import start_projection

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOK: Final = 0.5
"""Seconds between two looks at a ledger: each takes processor time from what is awaited."""


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
        deadline = time.monotonic() + PATIENCE
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


@contextlib.contextmanager
def projecting(job: Job, *writer: str) -> Iterator[None]:
    """A projection in a process of its own, which has written something, and is killed."""
    script = Path(__file__).with_name("projection_process.py")
    servers = job.configuration.connection.bootstrap_servers
    arguments = [str(job.configuration.directory), servers, job.configuration.application, *writer]
    before = len(job.held())
    with subprocess.Popen(
        [sys.executable, str(script), *arguments], start_new_session=True
    ) as process:
        try:
            deadline = time.monotonic() + PATIENCE
            while len(job.held()) == before:
                assert process.poll() is None
                assert time.monotonic() < deadline
                time.sleep(LOOK)
            yield
        finally:
            os.killpg(process.pid, signal.SIGKILL)
