"""A job under load, while how it signs in changes."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from benchmarks.clients import create
from deltalake import DeltaTable
from kafka.admin import NewTopic
from tests.conftest import eventually, send_records
from tests.security.secure_broker import SecureBroker
from tests.security.test_secrets import SETTINGS, TABLE, running
from tests.streaming.conftest import letter


@dataclass
class LoadedJob:
    """A job that runs, and what it has to handle."""

    secure: SecureBroker
    folder: Path
    queue: str
    process: subprocess.Popen[bytes]
    sent: int = 0

    @property
    def log(self) -> str:
        return (self.folder / "output.log").read_text()

    def send(self, count: int = 1) -> None:
        letters = [letter(1, "x")] * count
        send_records(self.secure.open_servers, f"{self.queue}.dlq", letters)
        self.sent += count

    def send_for(self, seconds: float) -> None:
        """Sends five dead letters a second."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.send()
            time.sleep(0.2)

    def handles_all(self, what: str) -> None:
        """Waits until it has handled each of them once."""
        eventually(self._is_done, what)

    def _is_done(self) -> bool:
        assert self.process.poll() is None, self.log[-3000:]
        ledger = self.folder / "job" / "ledger"
        if not (ledger / "_delta_log").exists():
            return self.sent == 0
        table = DeltaTable(str(ledger)).to_pyarrow_table(columns=["result"])
        return int(table.num_rows) == self.sent


@contextmanager
def loaded_job(
    secure: SecureBroker, folder: Path, servers: str, sign_in: str, **environment: str
) -> Iterator[LoadedJob]:
    """One that has handled what came first; ``sign_in`` are settings of [kafka]."""
    folder.mkdir(exist_ok=True)
    queue = f"signed-{uuid4().hex[:8]}"
    (folder / "table.rul").write_text(TABLE)
    values = {"name": queue, "servers": servers, "sign_in": sign_in}
    (folder / "redrive.toml").write_text(SETTINGS.format(authority=secure.authority, **values))
    create(secure.open_servers, NewTopic(f"{queue}.dlq", 1, 1))
    with running(folder, "--debug", "run", "-c", "redrive.toml", **environment) as process:
        job = LoadedJob(secure, folder, queue, process)
        job.send_for(1)
        job.handles_all("the first letters are handled")
        yield job
