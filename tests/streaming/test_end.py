"""A process that runs the job ends in time and says why, whatever hangs and however Java dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
from tests.configurations import write_settings
from tests.conftest import PATIENCE, eventually
from tests.streaming import faulty_job
from tests.streaming.conftest import Jobs, letter

from redrive.errors import EXIT_STALLED

IN_TIME: Final = 20.0
"""Seconds from SIGTERM to the end of the process, as documented."""
BUSY: Final = 3
"""A busy machine may take so many times as long for all that is no waiting."""
LINES: Final = {
    "closing_a_consumer": "stopped: SIGTERM",  # nothing waits for it longer than it may take
    "begin_transaction": "begin_transaction of ",
    "flush": "flush of ",
    "administration_of_topics": "administration of topics",
    "start_of_Spark": "start of Spark",
    "start_of_the_query": "start of the query",
    "state_of_the_query": "state of the query",
    "stop_of_the_query": "stop of the query",
    "state_of_the_ledger_s_query": "state of the ledger's query",
    "stop_of_Spark": "stop of Spark",
    "stop_of_Spark_unwatched": "stop of Spark",
    "the_running_batch": "the running batch",
    "count_of_the_rows": "count of the rows that the enrichment",
}
"""What hangs, and how the log names it."""
WHEN_STOPPED: Final = frozenset(
    {
        "closing_a_consumer",
        "stop_of_the_query",
        "state_of_the_ledger_s_query",
        "stop_of_Spark",
        "stop_of_Spark_unwatched",
    }
)
"""What hangs only once the job is to stop."""


@dataclass
class Process:
    """``redrive run`` in a folder of its own, with a fault in it or none."""

    folder: Path
    process: subprocess.Popen[bytes]

    @classmethod
    def started(cls, folder: Path, fault: str = "") -> Process:
        """Starts one in a folder with ``redrive.toml``."""
        program = ["-m", "redrive"] if not fault else [faulty_job.__file__, fault]
        (folder / "fault").unlink(missing_ok=True)
        with (folder / "job.log").open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, *program, "run", "-c", "redrive.toml"],
                cwd=folder,
                stdout=output,
                stderr=output,
                start_new_session=True,
                env={**os.environ, "PYTHONPATH": str(Path(faulty_job.__file__).parent)},
            )
        return cls(folder, process)

    @property
    def log(self) -> str:
        return (self.folder / "job.log").read_text()

    @property
    def has_fault(self) -> bool:
        return (self.folder / "fault").exists()

    @property
    def runs(self) -> bool:
        """Whether it handles dead letters."""
        return "handling the dead letters" in self.log

    def ended(self) -> int:
        """Its exit code, once it has ended."""
        eventually(lambda: self.process.poll() is not None, f"the end of the process: {self.log}")
        return int(self.process.returncode)

    def kill(self) -> None:
        """Ends whatever is left of it."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            return
        self.process.wait()

    def lives(self) -> bool:
        """Whether any process of it is left."""
        try:
            os.killpg(self.process.pid, 0)
        except ProcessLookupError:
            return False
        return True


@pytest.fixture
def queue(jobs: Jobs) -> str:
    """A dead-letter queue with three dead letters for a queue that exists."""
    dlq, target = jobs.topic("dlq"), jobs.topic("orders")
    jobs.produce(dlq, [letter(2053, target, b"%d" % number) for number in range(3)])
    return dlq


@pytest.fixture
def start(tmp_path: Path, bootstrap_servers: str, queue: str) -> Iterator[Callable[[str], Process]]:
    """Start processes of one job: ``start("flush")``; none outlives the test."""
    rules = "RETRYINT(1)\nACTION(RETRY) RETRY(2)\n"
    started: list[Process] = []

    def start(fault: str) -> Process:
        job = '[job]\nemitter = "driver"\n'
        if fault == "count_of_the_rows":
            job += 'enrichment = "faulty_job:same"\n'
        write_settings(
            tmp_path, queue, rules=rules, application=queue, servers=bootstrap_servers, more=job
        )
        started.append(Process.started(tmp_path, fault))
        return started[-1]

    yield start
    for process in started:
        process.kill()


@pytest.mark.parametrize("fault", LINES)
def test_sigterm_ends_the_process_in_time_whatever_hangs(
    fault: str, start: Callable[[str], Process]
) -> None:
    """The code is 0, the log names what did not answer, and no Java outlives the process."""
    process = start(fault)
    if fault in WHEN_STOPPED:
        eventually(lambda: process.runs, f"the job runs: {process.log}")
    else:
        eventually(lambda: process.has_fault, f"the fault: {process.log}")
    if fault == "state_of_the_ledger_s_query":
        eventually((process.folder / "ledger_runs").exists, "the ledger's query runs")
    process.process.send_signal(signal.SIGTERM)
    asked = time.monotonic()
    assert process.ended() == 0, process.log
    assert time.monotonic() - asked < BUSY * IN_TIME
    assert process.has_fault
    assert LINES[fault] in process.log, process.log
    assert "Traceback" not in process.log, process.log
    if fault != "start_of_Spark":  # that Java is not known yet: it ends when it goes on
        eventually(lambda: not process.lives(), "no process of it is left")


@pytest.mark.parametrize(
    ("fault", "code", "said"),
    [
        ("killed_at_its_start", 1, "error: Spark does not start: "),
        ("killed_before_the_query", EXIT_STALLED, "was ended by SIGKILL: start of the query"),
        ("killed_while_it_waits", EXIT_STALLED, "error: Spark's Java process was ended by"),
        ("killed_in_a_batch", EXIT_STALLED, "error: Spark's Java process was ended by"),
        ("killed_in_the_projection", EXIT_STALLED, "error: Spark's Java process was ended"),
        ("killed_at_the_stop", 0, "stopped: SIGTERM"),
    ],
)
def test_a_java_that_dies_ends_the_process_with_a_sentence_and_harms_nothing(
    fault: str, code: int, said: str, start: Callable[[str], Process], queue: str, jobs: Jobs
) -> None:
    process = start(fault)
    if fault == "killed_at_the_stop":
        eventually(lambda: process.runs, f"the job runs: {process.log}")
        process.process.send_signal(signal.SIGTERM)
    assert process.ended() == code, process.log
    assert process.has_fault
    assert said in process.log, process.log
    assert "Traceback" not in process.log, process.log
    assert "Py4J" not in process.log, process.log
    process = start("")
    target = queue_of(queue)
    # The one before may have put all of them without its Java.
    eventually(lambda: process.runs, f"the job runs: {process.log}")
    eventually(lambda: len(jobs.read(target)) >= 3, f"every message is put: {process.log}")
    process.process.send_signal(signal.SIGTERM)
    assert process.ended() == 0, process.log
    assert Counter(jobs.values(target)) == {b"0": 1, b"1": 1, b"2": 1}


def queue_of(dlq: str) -> str:
    """The target that the fixture ``queue`` made right after the dead-letter queue."""
    number = int(dlq.removeprefix("t").partition(".")[0])
    return f"t{number + 1}.orders"


def test_every_hanging_call_is_tried() -> None:
    killed = {name for name in faulty_job.FAULTS if name.startswith("killed_")}
    assert faulty_job.FAULTS.keys() - killed == LINES.keys()
    assert PATIENCE > BUSY * IN_TIME
