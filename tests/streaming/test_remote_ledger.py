"""A job whose ledger is in an object store: what the store does is never the job's trouble."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from tests.conftest import eventually
from tests.outcomes.s3_server import BUCKET, S3, SECRET
from tests.streaming.conftest import Jobs, letter
from tests.streaming.served_job import ServedJob

from redrive.outcomes.table import LedgerTable

IN_TIME: Final = 20.0
"""Seconds from SIGTERM to the end of the process, as documented."""
BUSY: Final = 4
"""A busy machine may take so many times as long."""


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3]:
    """An S3, and credentials for it in the environment."""
    with S3.running(monkeypatch) as running:
        yield running


def test_a_job_handles_messages_while_the_store_of_its_ledger_stands_still(
    jobs: Jobs, store: S3, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    dlq, target = jobs.topic("dlq"), jobs.topic("orders")
    job = ServedJob(tmp_path, jobs.bootstrap_servers, "--log-level", "debug")
    request.addfinalizer(job.kill)
    ledger = f'[ledger]\npath = "s3://{BUCKET}/x"\nendpoint = "{store.url}"\nregion = "eu"\n'
    settings = tmp_path / "redrive.toml"
    settings.write_text(f"{job.settings(dlq)}{ledger}allow_http = true\ninterval = 1\n")
    (tmp_path / "orders.rul").write_text(f"ACTION(FWD) FWDQ('{target}')\n")

    def held() -> Counter[str]:
        table = LedgerTable.open(store.folder("x", tmp_path / "beside"))
        return (
            Counter()
            if table is None
            else Counter(row["origin"] for row in table.rows("", columns="origin"))
        )

    job.start(settings)
    job.says("handling the dead letters")
    jobs.produce(dlq, [letter(2053, "gone") for _ in range(3)])
    eventually(lambda: len(held()) == 3, "the ledger is written")

    thawed, met = threading.Event(), threading.Event()

    def freezes(_method: str, _key: str) -> bool:
        met.set()
        return thawed.wait()

    store.dropped = freezes
    jobs.produce(dlq, [letter(2053, "gone") for _ in range(2)])
    eventually(lambda: len(jobs.read(target)) == 5, "messages are handled all the same")
    eventually(met.is_set, "the ledger was to be written")
    assert job.stopped() < IN_TIME * BUSY
    assert SECRET not in job.log
    store.dropped = lambda _method, _key: False
    thawed.set()

    job.start(settings)
    eventually(lambda: len(held()) == 5, "the ledger catches up")
    job.stopped()
    assert set(held().values()) == {1}
    assert not list(tmp_path.rglob("s3*"))
