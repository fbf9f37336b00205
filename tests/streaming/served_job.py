"""``redrive run`` in a process of its own, with its pages."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, Final

from tests.conftest import PATIENCE, eventually

from redrive.broker.configuration import free_port

SETTINGS: Final = """\
[application]
name = "{name}"
directory = "{directory}"
[kafka]
bootstrap_servers = "{servers}"
{more}
[[handlers]]
queue = "{queue}"
rules = "orders.rul"
[observe]
listen = "127.0.0.1:{page}"
"""


class ServedJob:
    """A job in a folder: its log, its pages, and its end."""

    def __init__(self, folder: Path, servers: str, *options: str) -> None:
        """Nothing starts yet; options are those of ``redrive run``."""
        self.folder = folder
        self.page = free_port()
        self._servers = servers
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None

    def settings(self, queue: str = "orders.dlq", more: str = "") -> str:
        """A settings file; ``more`` belongs to [kafka], or begins with a table of its own."""
        directory = self.folder / "job"
        return SETTINGS.format(
            name=f"job-of-{queue}",
            directory=directory,
            servers=self._servers,
            more=more,
            queue=queue,
            page=self.page,
        )

    def start(self, settings: Path) -> None:
        with (self.folder / "job.log").open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "redrive", "run", "-c", settings, *self._options],
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    @property
    def log(self) -> str:
        return (self.folder / "job.log").read_text()

    def says(self, text: str, times: int = 1) -> None:
        """Waits until it has said something so many times."""
        eventually(lambda: self.log.count(text) >= times, f"{text!r} in the log")

    def get(self, path: str) -> tuple[int, str]:
        """Status and body of a page."""
        with closing(HTTPConnection("127.0.0.1", self.page, timeout=PATIENCE)) as connection:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()

    def health(self) -> dict[str, Any]:
        """How it is, as its checks tell."""
        loads: dict[str, Any] = json.loads(self.get("/readyz")[1])
        return loads

    def ended(self) -> int:
        """Its exit code, once it has ended."""
        process = self._process
        assert process is not None
        eventually(lambda: process.poll() is not None, f"the end of the job: {self.log}")
        return int(process.returncode)

    def stopped(self, number: signal.Signals = signal.SIGTERM) -> float:
        """Asks it to stop; the seconds until it had ended in order."""
        assert self._process is not None
        begun = time.monotonic()
        self._process.send_signal(number)
        assert self.ended() == 0, self.log
        return time.monotonic() - begun

    def kill(self) -> None:
        """Ends whatever is left of it."""
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
