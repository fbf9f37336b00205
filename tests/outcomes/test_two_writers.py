"""Two processes write one ledger, of which one is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.conftest import eventually
from tests.outcomes.projected_job import LOOK, Job, projecting
from tests.outcomes.s3_server import S3
from tests.outcomes.samples import ledger_at

from redrive.outcomes.storage import lock_file
from redrive.streaming import projection
from redrive.streaming.projection import start_projection


@pytest.fixture
def remote(job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Job, S3]]:
    """The same job with its ledger in an object store, and that store."""
    with S3.running(monkeypatch) as store:
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
            eventually(job.held, "the other machine has written", every=LOOK)
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
    with projecting(job, "spark"):
        for start in range(60, 360, 50):
            job.write(range(start, start + 50))
    table = ledger_at(job.configuration.ledger.path)
    table.compact()
    job.check_projected()
