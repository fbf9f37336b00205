"""The job on a Spark standalone cluster whose executors and workers are killed under load.

A master and two workers of one core and 2 GB each run on this machine, started by the scripts of
``deploy/standalone``. Dead letters of every kind go through them, with retries and refusals, while

    - an executor is killed (SIGKILL), which the cluster replaces;
    - a worker is killed with all it runs, and the job goes on with the other one;
    - that worker is started again;
    - operators' commands are killed.

The executors write the ledger by Spark's Delta sink. It has to end with one row for each outcome.

Run it as ``python -m benchmarks.cluster`` (``make cluster``); it prints a report in JSON.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from benchmarks.clients import Sent, read_committed
from benchmarks.engine import CrashProgram, Scene, main, option
from benchmarks.load import MOSTLY_DELIVERED, OUTCOMES, dead_letter
from benchmarks.reconciliation import Findings
from deltalake import DeltaTable

SCRIPT: Final = Path(__file__).parents[1] / "deploy" / "standalone" / "spark_daemon.py"
HOST: Final = "127.0.0.1"
WORKERS: Final = ("1", "2")
OUTAGE: Final = 10.0
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

    def __exit__(self, *_: object) -> None:
        self._call("stop")

    @property
    def executors(self) -> int:
        """How many executors were started until now."""
        return len(list(self._directory.glob("worker-*/app-*/*")))

    def start_worker(self, name: str) -> None:
        """Starts a worker, for the first time or again."""
        options = ("--name", name, "--cores", "1", "--memory", "2g", "--web-port", "0")
        self._call("start-worker", self.master, *options)

    def kill_worker(self) -> str:
        """Kills the second worker, whose executor notices and ends, and starts it again later."""
        os.kill(self._pid(WORKERS[1]), signal.SIGKILL)
        time.sleep(OUTAGE)
        self.start_worker(WORKERS[1])
        return f"worker {WORKERS[1]}, away for {OUTAGE:g} s"

    def kill_executor(self) -> str:
        """Kills the executor of the first worker."""
        name = WORKERS[0]
        listed = subprocess.run(
            [shutil.which("ps") or "ps", "-o", "pid=,args=", "--ppid", str(self._pid(name))],
            capture_output=True,
            text=True,
            check=False,
        )
        for line in listed.stdout.splitlines():
            if "CoarseGrainedExecutorBackend" in line:
                os.kill(int(line.split()[0]), signal.SIGKILL)
                return f"of worker {name}"
        return f"worker {name} has none"

    def _pid(self, name: str) -> int:
        return int((self._directory / f"worker-{name}.pid").read_text())

    def _call(self, *arguments: str) -> None:
        subprocess.run(
            [sys.executable, str(SCRIPT), *arguments, "--directory", str(self._directory)],
            stdout=sys.stderr,
            check=True,
        )


@dataclass(kw_only=True)
class OnCluster(CrashProgram):
    """Executors and workers die, each while a part of the dead letters is handled."""

    rate: float = option(10.0, "inputs a second beside those that come as fast as they can")
    rounds: int = option(4, "how many faults")
    records: int = option(200_000, "how many dead letters come as fast as they can")

    takes = ("kill executor", "kill machine")
    emitters = ("lanes",)
    has_ledger = True

    def make(self, number: int, chance: random.Random) -> Sent:
        """Most dead letters can be delivered at once."""
        return dead_letter(number, chance, MOSTLY_DELIVERED)

    def more_of_job(self, scene: Scene) -> str:
        """Everything is left to executors."""
        assert scene.spark is not None
        return (
            f'master = "{scene.spark.master}"\nspark_properties = {{ "spark.driver.host" ='
            f' "{HOST}", "spark.executor.memory" = "1g" }}\n'
        )

    def machines(self, folder: Path) -> StandaloneCluster:
        """The cluster."""
        return StandaloneCluster(folder / "spark")

    def disturb(self, scene: Scene) -> None:
        """The faults take turns, each with its part of the dead letters."""
        assert scene.spark is not None
        for number in range(1, self.rounds + 1):
            scene.load.add(self.records // self.rounds)
            self.one_round(scene, number, self.takes[(number - 1) % len(self.takes)])
            if number == 2:
                self.create_late(scene)

    def await_end(self, scene: Scene) -> None:
        """Waits for the ledger too, as long as it grows."""
        super().await_end(scene)
        outcomes = sum(1 for _ in read_committed(scene.servers, [OUTCOMES]))
        rows, grown = 0, time.monotonic()
        while rows < outcomes and time.monotonic() < grown + self.patience:
            before, rows = rows, _ledger(scene).count()
            grown = time.monotonic() if rows > before else grown
            time.sleep(1)

    def audit(self, scene: Scene) -> Findings:
        """Compares outcomes and ledger too."""
        findings, table = super().audit(scene), _ledger(scene)
        outcomes = sum(1 for _ in read_committed(scene.servers, [OUTCOMES]))
        rows = table.to_pyarrow_table(columns=["outcome"]).column("outcome")
        distinct = len(rows.unique())
        if not len(rows) == distinct == outcomes:
            findings.wrong.append(f"the ledger has {len(rows)} rows of {distinct} of {outcomes}")
        writers = Counter(str(entry.get("engineInfo")) for entry in table.history())
        scene.report.figures |= {"ledger_rows": len(rows), "ledger_commits": dict(writers)}
        if not any(writer.startswith("Apache-Spark") for writer in writers):
            findings.wrong.append(f"not Spark's sink wrote the ledger: {dict(writers)}")
        return findings

    def figures(self, scene: Scene) -> dict[str, float]:
        """How fast everything came to its end, and how many executors that took."""
        assert scene.spark is not None
        return {
            "inputs": scene.load.count,
            "seconds": round(scene.seconds, 1),
            "inputs_per_second": round(scene.load.count / scene.seconds),
            "executors": scene.spark.executors,
        }


def _ledger(scene: Scene) -> DeltaTable:
    return DeltaTable(str(scene.folder / "job" / "ledger"))


if __name__ == "__main__":
    sys.exit(main(OnCluster, __doc__))
