"""The job as a process of its own, its Java and its workers: started, killed, and measured.

Everything is read from /proc (proc(5)), so this needs Linux.
"""

from __future__ import annotations

import contextlib
import os
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

_KEPT: Final = 6_000
"""Characters of the end of a log that tell why a job ended."""
INJECTED: Final = Path(__file__).with_name("injected")
"""Folder of the module that injects faults into a process."""
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")


def redrive(
    *arguments: str, log: Path, clock: Path | None = None, death: str = ""
) -> subprocess.Popen[bytes]:
    """Starts a command of the product in a session of its own.

    Args:
        arguments: As on the command line.
        log: Takes all output.
        clock: File that says by how much the clock of the process is ahead; see ``Clock``.
        death: Step of a transaction at which the process is killed; see ``injected``.
    """
    injected = {"BENCHMARK_CLOCK": str(clock) if clock else "", "BENCHMARK_DEATH": death}
    added = {name: value for name, value in injected.items() if value}
    if added:
        added["PYTHONPATH"] = os.pathsep.join(
            filter(None, [str(INJECTED), os.environ.get("PYTHONPATH")])
        )
    with log.open("ab") as output:
        return subprocess.Popen(
            [sys.executable, "-m", "redrive", *arguments],
            stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            start_new_session=True, env={**os.environ, **added},
        )  # fmt: skip


def kill_session(process: subprocess.Popen[bytes]) -> None:
    """Kills a process and all that it started, without warning."""
    for pid in session_of(process.pid):
        _signal(pid, signal.SIGKILL)
    process.wait()


def session_of(leader: int) -> dict[int, tuple[int, str]]:
    """Parent and command line of every process of a session, by its id."""
    processes = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):  # it has ended
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                if int(fields[3]) == leader:
                    command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                    processes[int(entry.name)] = int(fields[1]), command
    return processes


def processes_of(leader: int, kind: str) -> list[int]:
    """The processes of a job that are meant.

    Args:
        leader: The driver, which leads the job's session.
        kind: ``driver``, ``java``, or ``worker`` for Spark's Python workers.
    """
    if kind == "driver":
        return [leader]
    session = session_of(leader)
    if kind == "java":
        return [pid for pid, (_, text) in session.items() if text.split(" ")[0].endswith("java")]
    daemons = {
        pid for pid, (_, text) in session.items() if text.rstrip().endswith("pyspark.worker")
    }
    return [pid for pid, (parent, _) in session.items() if parent in daemons]


class Clock:
    """The clock of the job's processes, which can be set while they run."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.offsets: list[float] = []
        """Seconds by which it was ahead, at any time until now."""
        self.set(0.0)

    def set(self, ahead: float) -> None:
        """Sets the clock so many seconds ahead of the true time."""
        if ahead not in self.offsets:
            self.offsets.append(ahead)
        with self.file.open("r+b" if self.file.exists() else "wb") as opened:
            opened.write(struct.pack("d", ahead))


@dataclass
class Job:
    """The job as a process of its own, as an operator runs it."""

    settings: Path
    log: Path
    clock: Clock
    process: subprocess.Popen[bytes] | None = None
    endings: list[str] = field(default_factory=list)
    """The end of its log whenever it ended by itself, with an error."""
    started_at: float = 0.0

    @property
    def is_running(self) -> bool:
        """Whether the driver runs."""
        return self.process is not None and self.process.poll() is None

    @property
    def leader(self) -> int:
        """The id of the driver's process."""
        assert self.process is not None
        return self.process.pid

    def start(self) -> None:
        """Starts the job."""
        self.process = redrive("run", "-c", str(self.settings), log=self.log, clock=self.clock.file)
        self.started_at = time.monotonic()

    def supervise(self) -> None:
        """Starts the job if it does not run, as a supervisor does."""
        if not self.is_running:
            if self.process is not None and self.process.returncode > 0:
                self.endings.append(self.log.read_text()[-_KEPT:])
            self.start()

    def kill(self, victims: str, pause: float = 0.0) -> None:
        """Kills the driver, its Java, or everything; what is left of it some seconds later."""
        if self.process is None:
            return
        if victims != "job":
            for pid in processes_of(self.leader, victims):
                _signal(pid, signal.SIGKILL)
            time.sleep(pause)
        kill_session(self.process)

    def signal(self, number: signal.Signals, *, all_processes: bool = False) -> None:
        """Sends a signal to the driver, or to every process of the job."""
        for pid in session_of(self.leader) if all_processes else [self.leader]:
            _signal(pid, number)

    def stop(self) -> int:
        """Stops the job in order, and gives its exit code."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=120)

    def last_lines(self) -> str:
        """The end of its log."""
        return f"its log {self.log} ends in\n{self.log.read_text()[-_KEPT:]}"


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


KINDS: Final = ("driver", "java", "worker", "emitting worker")
"""Kinds of process whose use is measured apart: a worker that emits has a producer as well."""


def usage(leader: int) -> dict[str, dict[str, float]]:
    """Resident memory in MB, open files and threads of the job, by kind of process.

    Of workers it is the largest of each kind: their number changes with the work. The threads of
    Spark's two bounded pools do not count.

    Args:
        leader: The driver.
    """
    measured: dict[str, dict[str, float]] = {"memory": {}, "files": {}, "threads": {}}
    for asked in ("driver", "java", "worker"):
        for pid in processes_of(leader, asked):
            with contextlib.suppress(OSError):  # it has ended
                kind = "emitting worker" if asked == "worker" and has_producer(pid) else asked
                for by_kind, value in zip(measured.values(), _usage(pid), strict=True):
                    by_kind[kind] = max(by_kind.get(kind, 0.0), round(value, 1))
    return measured


def has_producer(pid: int) -> bool:
    """Whether a process has a client of librdkafka, which names its threads."""
    return any(name.startswith("rdk:") for name in _thread_names(pid))


_BOUNDED_POOL: Final = "block-manager-"
"""Names of the threads of Spark's two pools for the block manager. Each task that they get starts a
thread, until each pool has its 100: they fill in the course of hours and then stay as they are."""


def _thread_names(pid: int) -> Iterator[str]:
    """Names of a process's threads, which Linux cuts off after 15 characters."""
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError):  # it has ended
            yield (thread / "comm").read_text().strip()


def _usage(pid: int) -> tuple[float, float, float]:
    """Memory, files and threads of one process."""
    folder = Path(f"/proc/{pid}")
    return (
        int((folder / "statm").read_text().split()[1]) * _PAGE / 1e6,
        sum(1 for _ in (folder / "fd").iterdir()),
        sum(1 for name in _thread_names(pid) if not name.startswith(_BOUNDED_POOL)),
    )
