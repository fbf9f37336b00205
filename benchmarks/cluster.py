"""The job on a Spark standalone cluster whose executors and workers are killed under load.

A master and two workers of one core and 2 GB each run on this machine, started by the scripts of
``deploy/standalone``. Dead letters of every kind go through them, with retries and refusals, while

    - an executor is killed (SIGKILL), which the cluster replaces;
    - a worker is killed with all it runs, and the job goes on with the other one;
    - that worker is started again.

In the end a kafka-python reader at read_committed looks at every topic, as in ``benchmarks.crash``:
every input has one final outcome, every put is there once, no retry is early, order is kept.

Run it as ``python -m benchmarks.cluster`` (``make cluster``); it prints a report in JSON.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from benchmarks.crash import (
    LATE,
    Findings,
    Job,
    Load,
    audit,
    create,
    create_topics,
    wait_for_progress,
    wait_until_settled,
    write_settings,
)
from kafka.admin import NewTopic

from redrive.broker import EmbeddedBroker

SCRIPT: Final = Path(__file__).parents[1] / "deploy" / "standalone" / "spark_daemon.py"
HOST: Final = "127.0.0.1"
WORKERS: Final = ("1", "2")
WEIGHTS: Final = (70, 2, 8, 5, 5, 5, 5)
"""How many of a hundred dead letters are of each of the kinds: most can be delivered at once."""
OUTAGE: Final = 5.0
"""Seconds that the job has only one worker, at least."""


class StandaloneCluster:
    """A master and two workers on this machine.

    Args:
        directory: For pid files, logs and the work of executors.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        with socket.create_server((HOST, 0)) as free:
            self.master = f"spark://{HOST}:{free.getsockname()[1]}"

    def __enter__(self) -> Self:
        self._call("start-master", "--port", self.master.rpartition(":")[2], "--web-port", "0")
        for name in WORKERS:
            self.start_worker(name)
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._call("stop")

    @property
    def executors(self) -> int:
        """How many executors were started until now."""
        return len(list(self._directory.glob("worker-*/app-*/*")))

    def start_worker(self, name: str) -> None:
        """Starts a worker, for the first time or again."""
        options = ("--name", name, "--cores", "1", "--memory", "2g", "--web-port", "0")
        self._call("start-worker", self.master, *options)

    def kill_worker(self, name: str) -> None:
        """Kills a worker; its executor notices and ends."""
        os.kill(self._pid(name), signal.SIGKILL)

    def kill_executor(self, name: str) -> None:
        """Kills the executor of a worker."""
        listed = subprocess.run(
            [shutil.which("ps") or "ps", "-o", "pid=,args=", "--ppid", str(self._pid(name))],
            capture_output=True,
            text=True,
            check=False,
        )
        for line in listed.stdout.splitlines():
            if "CoarseGrainedExecutorBackend" in line:
                os.kill(int(line.split()[0]), signal.SIGKILL)
                return
        raise SystemExit(f"worker {name} has no executor: see {self._directory}")

    def _pid(self, name: str) -> int:
        return int((self._directory / f"worker-{name}.pid").read_text())

    def _call(self, *arguments: str) -> None:
        subprocess.run(
            [sys.executable, str(SCRIPT), *arguments, "--directory", str(self._directory)],
            stdout=sys.stderr,
            check=True,
        )


@dataclass(frozen=True, slots=True)
class Report:
    """What a run was and what became of it."""

    findings: Findings
    seconds: float
    """From the start of the job until the last input had its final outcome."""
    executors: int
    """How many were started, those in place of killed ones included."""

    def as_json(self) -> dict[str, Any]:
        """The report for programs, with a few examples of whatever is wrong."""
        wrong = {
            name: {"count": len(cases), "first": cases[:10]}
            for name, cases in asdict(self.findings).items()
            if isinstance(cases, list)
        }
        return {
            "inputs": self.findings.inputs,
            "results": self.findings.results,
            "puts": self.findings.puts,
            "seconds": round(self.seconds, 1),
            "inputs_per_second": round(self.findings.inputs / self.seconds),
            "executors": self.executors,
            **wrong,
        }


def run(records: int, seed: int, *, patience: float = 180) -> Report:
    """Runs the whole thing and reconciles.

    Args:
        records: How many dead letters.
        seed: Of everything random.
        patience: Seconds to wait for any progress.
    """
    with (
        tempfile.TemporaryDirectory(prefix="redrive-cluster-") as folder,
        EmbeddedBroker(Path(folder) / "broker") as broker,
        StandaloneCluster(Path(folder) / "spark") as cluster,
    ):
        directory, servers = Path(folder), broker.bootstrap_servers
        create_topics(servers)
        job = Job(_write_settings(directory, servers, cluster.master), directory / "job.log")
        started = time.monotonic()
        job.start()
        try:
            numbers = _disturb(cluster, job, servers, records=records, seed=seed, patience=patience)
            wait_until_settled(servers, len(numbers), patience)
            seconds = time.monotonic() - started
            code = job.stop()
        finally:
            job.kill("group")
        findings = audit(servers, numbers, interval=2)
        if code:
            findings.lost.append(
                f"the job ended with exit code {code}: {job.log.read_text()[-3000:]}"
            )
        return Report(findings, seconds, cluster.executors)


def _write_settings(directory: Path, servers: str, master: str) -> Path:
    """The settings of a job that leaves all work to executors."""
    more = (
        f'master = "{master}"\n'
        f'spark_properties = {{ "spark.driver.host" = "{HOST}", "spark.executor.memory" = "1g" }}\n'
    )
    return write_settings(directory, servers, "lanes", more=more)


def _disturb(
    cluster: StandaloneCluster,
    job: Job,
    servers: str,
    *,
    records: int,
    seed: int,
    patience: float,
) -> dict[tuple[int, int], int]:
    """Sends all inputs, and kills while they are handled; gives their partitions and offsets."""
    numbers: dict[tuple[int, int], int] = {}
    for part in range(3):
        count = records // 3 + (part < records % 3)
        load = Load(servers, math.inf, seed + part, count=count, weights=WEIGHTS)
        load.start()
        wait_for_progress(servers, job, patience)
        if part == 0:
            _say("killing an executor")
            cluster.kill_executor(WORKERS[0])
        elif part == 1:
            _say("killing a worker")
            cluster.kill_worker(WORKERS[1])
        else:
            time.sleep(OUTAGE)
            _say("starting the worker again, creating a queue that was missing")
            cluster.start_worker(WORKERS[1])
            create(servers, NewTopic(LATE, 2, 1))
        numbers |= load.finish()
    return numbers


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--records", type=int, default=200_000, help="how many dead letters")
    parser.add_argument("--seed", type=int, default=None)
    arguments = parser.parse_args()
    seed = random.SystemRandom().randrange(1 << 31) if arguments.seed is None else arguments.seed
    _say(f"seed {seed}, {arguments.records} dead letters")
    report = run(arguments.records, seed)
    print(json.dumps(report.as_json(), indent=2))
    return 0 if report.findings.are_clean else 1


if __name__ == "__main__":
    sys.exit(main())
