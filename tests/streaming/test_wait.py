"""A job that is started before its broker waits for it, says so, and ends whenever it is asked to.

The job is ``redrive run --wait`` in a process of its own.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, Final

import pytest
from kafka import KafkaAdminClient
from kafka.admin import NewTopic
from tests.conftest import PATIENCE, eventually, read_records, send_records

from redrive.broker import EmbeddedBroker
from redrive.broker.ports import free_port

SETTINGS: Final = """\
[application]
name = "early"
[kafka]
bootstrap_servers = "127.0.0.1:{broker}"
[[handlers]]
queue = "orders.dlq"
rules = "orders.rul"
[observe]
listen = "127.0.0.1:{page}"
"""
WAITS: Final = "waiting for a broker"
AT_ONCE: Final = 5.0
"""Seconds in which a process that only waits ends: an answer of a broker is not waited for."""
BUSY: Final = 4
"""A busy machine may take so many times as long."""


class Job:
    """``redrive run --wait`` in a folder of its own."""

    def __init__(self, folder: Path, more: str = "") -> None:
        self.folder = folder
        self.broker, self.page = free_port(), free_port()
        (folder / "orders.rul").write_text("ACTION(FWD) FWDQ(orders)\n")
        settings = SETTINGS.format(broker=self.broker, page=self.page)
        (folder / "redrive.toml").write_text(
            settings.replace("[[handlers]]", f"{more}[[handlers]]")
        )
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with (self.folder / "job.log").open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "redrive", "run", "--wait"],
                cwd=self.folder,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    @property
    def log(self) -> str:
        return (self.folder / "job.log").read_text()

    def says(self, text: str) -> None:
        eventually(lambda: text in self.log, f"{text!r} in the log: {self.log}")

    def get(self, path: str) -> tuple[int, dict[str, Any]]:
        with closing(HTTPConnection("127.0.0.1", self.page, timeout=PATIENCE)) as connection:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())

    def ended(self) -> int:
        assert self.process is not None
        eventually(lambda: self.process.poll() is not None, f"the end: {self.log}")  # type: ignore[union-attr]
        return int(self.process.returncode)

    def stopped(self, number: signal.Signals) -> float:
        """Asks it to stop; returns the seconds until it had ended in order."""
        assert self.process is not None
        begun = time.monotonic()
        self.process.send_signal(number)
        assert self.ended() == 0, self.log
        return time.monotonic() - begun


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    """A job whose broker does not run; ends with the test."""
    one = Job(tmp_path)
    yield one
    if one.process is not None and one.process.poll() is None:
        os.killpg(one.process.pid, signal.SIGKILL)
        one.process.wait()


def test_a_job_that_is_started_before_its_broker_handles_what_comes(
    job: Job, tmp_path: Path
) -> None:
    """It says once that it waits, on its pages and in status too, and goes on with the broker."""
    job.start()
    job.says(WAITS)
    why = f"no broker can be reached (127.0.0.1:{job.broker}: connection refused)"
    eventually(lambda: job.get("/readyz")[1]["state"] == "waiting", "the page tells that it waits")
    status, ready = job.get("/readyz")
    assert (status, job.get("/livez")[0], job.get("/healthz")[0]) == (503, 200, 200)
    assert ready["message"] == f"waiting, because {why}"
    shown = subprocess.run(
        [sys.executable, "-m", "redrive", "status"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (shown.returncode, f"waiting, because {why}" in shown.stdout) == (0, True), shown
    assert job.log.count(WAITS) == 1, job.log

    with EmbeddedBroker(tmp_path / "broker", port=job.broker) as broker:
        admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
        admin.create_topics([NewTopic(one, 1, 1) for one in ("orders.dlq", "orders")])
        admin.close()
        send_records(broker.bootstrap_servers, "orders.dlq", [{"value": b"early"}])
        job.says("handling the dead letters of orders.dlq")
        eventually(lambda: job.get("/readyz")[0] == 200, "it is ready")
        kept = "redrive-early-orders.dlq-remaining"
        eventually(
            lambda: [one.value for one in read_records(broker.bootstrap_servers, kept)],
            "the dead letter is handled",
        )
        job.stopped(signal.SIGTERM)
    assert "exit_code" not in job.log, job.log


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_job_that_waits_ends_at_once(job: Job, number: signal.Signals) -> None:
    """Also while something that is no broker keeps its question open; what it waits for changed."""
    job.start()
    job.says("connection refused")
    with socket.create_server(("127.0.0.1", job.broker)):
        job.says("does not answer as a Kafka broker")
        assert job.log.count(WAITS) == 2, job.log
        assert job.stopped(number) < AT_ONCE * BUSY
    assert not list(job.folder.rglob("redrive.pid"))


def test_a_broker_that_refuses_is_not_waited_for(tmp_path: Path, bootstrap_servers: str) -> None:
    """Settings that the broker contradicts are an error at once: code 1, and what to do."""
    job = Job(tmp_path, 'security_protocol = "SSL"\n')
    settings = tmp_path / "redrive.toml"
    settings.write_text(settings.read_text().replace(f"127.0.0.1:{job.broker}", bootstrap_servers))
    job.start()
    assert job.ended() == 1
    assert "does not let us in with SSL" in job.log
    assert WAITS not in job.log
