"""A job that is started before its broker waits for it, says so, and ends when it is asked to."""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from benchmarks.clients import create
from kafka.admin import NewTopic
from tests.commands import redrive
from tests.conftest import eventually, read_records, send_records
from tests.streaming.served_job import ServedJob

from redrive.broker import EmbeddedBroker
from redrive.broker.configuration import free_port

WAITS: Final = "waiting for a broker"
AT_ONCE: Final = 5.0
"""Seconds in which a process that only waits ends: an answer of a broker is not waited for."""
BUSY: Final = 4
"""A busy machine may take so many times as long."""


@pytest.fixture
def port() -> int:
    """Where the broker will be."""
    return free_port()


@pytest.fixture
def job(tmp_path: Path, port: int) -> Iterator[ServedJob]:
    """A job whose broker does not run yet; ends with the test."""
    served_job = ServedJob(tmp_path, f"127.0.0.1:{port}", "--wait")
    (tmp_path / "orders.rul").write_text("ACTION(FWD) FWDQ(orders)\n")
    (tmp_path / "redrive.toml").write_text(served_job.settings())
    yield served_job
    served_job.kill()


def test_a_job_that_is_started_before_its_broker_handles_what_comes(
    job: ServedJob, port: int, tmp_path: Path
) -> None:
    job.start(tmp_path / "redrive.toml")
    job.says(WAITS)
    why = f"waiting, because no broker can be reached (127.0.0.1:{port}: connection refused)"
    eventually(lambda: job.health()["state"] == "waiting", "the page tells that it waits")
    assert [job.get(path)[0] for path in ("/readyz", "/livez", "/healthz")] == [503, 200, 200]
    assert job.health()["message"] == why
    assert why in redrive("status", "-c", tmp_path / "redrive.toml", code=0).stdout
    assert job.log.count(WAITS) == 1, job.log

    with EmbeddedBroker(tmp_path / "broker", port=port) as broker:
        topics = (NewTopic(name, 1, 1) for name in ("orders.dlq", "orders"))
        create(broker.bootstrap_servers, *topics)
        send_records(broker.bootstrap_servers, "orders.dlq", [{"value": b"early"}])
        job.says("handling the dead letters of orders.dlq")
        eventually(lambda: job.get("/readyz")[0] == 200, "it is ready")
        kept = "redrive-job-2Dof-2Dorders.dlq-orders.dlq-remaining"
        eventually(
            lambda: [record.value for record in read_records(broker.bootstrap_servers, kept)],
            "the dead letter is handled",
        )
        job.stopped()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_job_that_waits_ends_at_once(
    job: ServedJob, port: int, tmp_path: Path, number: signal.Signals
) -> None:
    job.start(tmp_path / "redrive.toml")
    job.says("connection refused")
    with socket.create_server(("127.0.0.1", port)):
        job.says("does not answer as a Kafka broker")
        assert job.log.count(WAITS) == 2, job.log
        assert job.stopped(number) < AT_ONCE * BUSY
    assert not list(tmp_path.rglob("redrive.pid"))


def test_a_broker_that_refuses_is_not_waited_for(
    tmp_path: Path, bootstrap_servers: str, request: pytest.FixtureRequest
) -> None:
    """Settings that the broker contradicts are an error at once: code 1, and what to do."""
    job = ServedJob(tmp_path, bootstrap_servers, "--wait")
    request.addfinalizer(job.kill)
    (tmp_path / "orders.rul").write_text("ACTION(FWD) FWDQ(orders)\n")
    (tmp_path / "redrive.toml").write_text(job.settings(more='security_protocol = "SSL"'))
    job.start(tmp_path / "redrive.toml")
    assert job.ended() == 1
    assert "refuses the sign-in with SSL" in job.log
    assert WAITS not in job.log
