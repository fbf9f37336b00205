"""Jobs that run in a thread, on the Spark session of all tests."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from kafka import KafkaAdminClient
from tests.configurations import handled, job_of
from tests.conftest import KafkaClient, eventually

from redrive.configuration import JobConfiguration, LedgerConfiguration
from redrive.errors import ConfigurationError
from redrive.messages import DeadLetterHeader, encode_header
from redrive.streaming.job import run
from redrive.streaming.lifecycle import BatchSummary, JobControl, JobObserver

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_numbers = itertools.count(1)


@dataclass
class RunningJob(JobObserver):
    """A job in a thread, and its events."""

    configuration: JobConfiguration
    session: Any
    control: JobControl = field(default_factory=JobControl)
    batches: list[BatchSummary] = field(default_factory=list)
    notices: list[tuple[str, dict[str, object]]] = field(default_factory=list)
    warnings: list[tuple[str, dict[str, object]]] = field(default_factory=list)
    refusals: list[Exception] = field(default_factory=list)
    restarts: int = 0
    new_runs: int = 0
    error: Exception | None = None
    is_started: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> RunningJob:
        self.control.add_observer(self)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def _run(self) -> None:
        try:
            run(self.configuration, self.control, self.session)
        except Exception as error:  # noqa: BLE001 - kept for the test to look at
            self.error = error

    def started(self, configuration: JobConfiguration) -> None:
        del configuration
        self.is_started.set()

    def batch(self, summary: BatchSummary) -> None:
        self.batches.append(summary)

    def notice(self, message: str, /, **facts: object) -> None:
        self.notices.append((message, facts))

    def warning(self, message: str, /, **facts: object) -> None:
        self.warnings.append((message, facts))

    def restarted(self, configuration: JobConfiguration, *, is_new_run: bool) -> None:
        del configuration
        self.restarts += 1
        self.new_runs += is_new_run

    def restart_refused(self, error: Exception) -> None:
        self.refusals.append(error)

    @property
    def is_alive(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    @property
    def records(self) -> int:
        """Inputs handled so far."""
        return sum(batch.records for batch in self.batches)

    def results(self) -> dict[str, int]:
        totals: dict[str, int] = {}
        for batch in self.batches:
            for result, count in batch.by_result.items():
                totals[result] = totals.get(result, 0) + count
        return totals

    def wait_for_records(self, count: int) -> None:
        eventually(lambda: self.records >= count or self.error, f"{count} records handled")
        self.check()

    def join(self) -> None:
        """Waits until the job has ended by itself."""
        eventually(lambda: not self.is_alive, "the job ended")
        self.check()

    def stop(self) -> None:
        self.control.request_stop("the test is over")
        self.join()

    def refused(self) -> ConfigurationError:
        """Why the job did not start."""
        eventually(lambda: not self.is_alive, "the start was refused")
        assert isinstance(self.error, ConfigurationError), self.error
        return self.error

    def check(self) -> None:
        """Raises what ended the job, if it was an error."""
        if self.error is not None:
            raise self.error


@dataclass
class Jobs(KafkaClient):
    """Jobs in threads of this process on the shared broker, and the topics that they work on."""

    folder: Path
    request: pytest.FixtureRequest

    @property
    def spark(self) -> SparkSession:
        """The session of all jobs; a test without jobs of this process needs none."""
        session: SparkSession = self.request.getfixturevalue("spark")
        return session

    def start(self, configuration: JobConfiguration) -> RunningJob:
        """Starts a job that ends with the test at the latest."""
        job: RunningJob = self.request.getfixturevalue("start_job")(configuration)
        return job

    def unique_name(self, name: str) -> str:
        """As above, and short enough for a dead-letter header and a rules table."""
        return f"t{next(_numbers)}.{name}"

    def delete(self, topic: str) -> None:
        """Deletes a topic, and waits until it is gone."""
        self.admin.delete_topics([topic])
        eventually(lambda: topic not in self.admin.list_topics(), f"{topic} is gone")

    def outcomes(self, configuration: JobConfiguration) -> list[dict[str, Any]]:
        return [json.loads(value) for value in self.values(configuration.outcomes_topic)]

    def configure(self, tables: dict[str, str], **settings: Any) -> JobConfiguration:
        """Makes a configuration: ``configure({"orders.dlq": "ACTION(DISCARD)"}, hop_limit=3)``."""
        return configuration_of(self.folder, self.bootstrap_servers, tables, **settings)


@pytest.fixture
def jobs(
    bootstrap_servers: str, admin: KafkaAdminClient, tmp_path: Path, request: pytest.FixtureRequest
) -> Jobs:
    return Jobs(bootstrap_servers, admin, "", tmp_path, request)


@pytest.fixture
def start_job(spark: SparkSession) -> Iterator[Callable[[JobConfiguration], RunningJob]]:
    """Start jobs, on any broker, that end with the test at the latest."""
    jobs: list[RunningJob] = []

    def start(configuration: JobConfiguration) -> RunningJob:
        jobs.append(RunningJob(configuration, spark).start())
        return jobs[-1]

    yield start
    for job in jobs:
        job.control.request_stop("the test is over")
    eventually(lambda: not any(job.is_alive for job in jobs), "the jobs ended")


def configuration_of(
    folder: Path, bootstrap_servers: str, tables: dict[str, str], **settings: Any
) -> JobConfiguration:
    """What ``Jobs.configure`` does, on any broker."""
    application = settings.pop("application", f"app{next(_numbers)}")
    handlers = (
        handled(
            queue, rules, replay_topic=f"redrive-{application}-{queue}-replay",
            retry_topic=f"redrive-{application}-{queue}-retry",
            remaining_topic=f"redrive-{application}-{queue}-remaining",
        )
        for queue, rules in tables.items()
    )  # fmt: skip
    directory = folder / application
    settings.setdefault("ledger", LedgerConfiguration(path=directory / "ledger", enabled=False))
    return job_of(
        *handlers, directory=directory, bootstrap_servers=bootstrap_servers,
        application=application, **settings,
    )  # fmt: skip


def letter(reason: int, queue: str, body: bytes = b"body", **record: Any) -> dict[str, Any]:
    """A dead letter in binary form, as a record to produce."""
    header = DeadLetterHeader(reason=reason, dest_q_name=queue, format="MQSTR")
    headers = [("JMS_IBM_MQMD_Format", b"MQDEAD"), ("x", b"1"), ("x", b"2")]
    return {"value": encode_header(header) + body, "headers": headers, **record}
