"""The job killed under load, and fed with mutated records: short runs of what the long ones do."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

import pytest
from benchmarks import fuzz
from benchmarks.clients import create, read_committed
from benchmarks.crash import Crash
from benchmarks.processes import INJECTED, Clock
from kafka.admin import NewTopic
from tests.streaming.conftest import Jobs

KILLS: Final = "kill driver,kill java,kill job"
TRANSACTION: Final = """
import sys
from confluent_kafka import Producer
producer = Producer({"bootstrap.servers": sys.argv[1], "transactional.id": sys.argv[2]})
producer.init_transactions()
producer.begin_transaction()
producer.produce(sys.argv[2], b"written")
producer.commit_transaction()
"""


@pytest.mark.parametrize("step", ["begun", "written", "committed"])
def test_a_command_is_killed_at_a_step_of_its_transaction(
    bootstrap_servers: str, step: str
) -> None:
    topic = f"killed-when-{step}"
    create(bootstrap_servers, NewTopic(topic, 1, 1))
    done = subprocess.run(
        [sys.executable, "-c", TRANSACTION, bootstrap_servers, topic],
        env={**os.environ, "BENCHMARK_DEATH": step, "PYTHONPATH": str(INJECTED)},
        check=False,
    )
    assert done.returncode == -signal.SIGKILL
    expected = [b"written"] if step == "committed" else []
    deadline = time.monotonic() + 60  # a commit returns before its markers are written
    values: list[bytes] = []
    while time.monotonic() < deadline:
        values = [record.value for record in read_committed(bootstrap_servers, [topic])]
        if values == expected:
            break
    assert values == expected


def test_the_clock_of_a_process_follows_what_is_set(tmp_path: Path) -> None:
    clock = Clock(tmp_path / "clock")
    with subprocess.Popen(
        [sys.executable, "-uc", "import time\nwhile input():\n print(time.time())"],
        env={**os.environ, "BENCHMARK_CLOCK": str(clock.file), "PYTHONPATH": str(INJECTED)},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
    ) as process:  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        for ahead in (0.0, 6_000_000.0, 0.0):
            clock.set(ahead)
            process.stdin.write("?\n")
            shown = float(process.stdout.readline())
            assert abs(shown - time.time() - ahead) < 1_000_000
        process.stdin.write("\n")
    assert clock.offsets == [0.0, 6_000_000.0]


def test_kill_9_under_load_loses_nothing_and_does_nothing_twice() -> None:
    seed = random.SystemRandom().randrange(1 << 31)
    findings = (
        Crash(rounds=1, seed=seed, rate=30, patience=300, commands=1, faults=KILLS).run().findings
    )
    assert findings.are_clean, f"seed {seed}: {findings.line()} {findings}"
    assert findings.inputs > 100


def test_every_mutated_record_has_an_outcome_and_the_job_lives(jobs: Jobs) -> None:
    seed, queue = random.SystemRandom().randrange(1 << 31), jobs.unique_name("dlq")
    fuzz.prepare(jobs.bootstrap_servers, queue, 1500, seed)
    jobs.create("target")
    configuration = jobs.configure({queue: fuzz.TABLE})
    jobs.start(configuration).join()
    problem = fuzz.judge(jobs.bootstrap_servers, queue, configuration.outcomes_topic, 1500)
    assert problem == "", f"seed {seed}"
