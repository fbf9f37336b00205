"""The job for hours at 70 % of what it can do, while something dies or is restarted now and then.

Three brokers, one job, dead letters with retries, refusals and discards. First as many come as can
be sent, for a while: how many a second the job takes then, with load, brokers, job and audit all on
this machine, is its capacity here. 70 % of that come from then on. Now and then, at moments that a
seed chooses, the driver, Java, the whole job, a worker, a broker or the coordinator is killed with
-9, all brokers are restarted one after the other, or the job is stopped and started in order.
Inputs, outcomes and puts are reconciled all the while, and memory and open files of the job are
noted. Topics keep ten minutes of records, so that the disk lasts.

Run it as ``python -m benchmarks.soak --hours 2`` (``make soak HOURS=2``), on Linux; a printed seed
repeats the schedule. It leaves a report in JSON and a picture of the curves.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import random
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from benchmarks.cluster import WEIGHTS
from benchmarks.crash import (
    APPLICATION,
    DEAD_LETTERS,
    LAST,
    LATE,
    OPEN,
    OUTCOMES,
    PARTITIONS,
    SMALL,
    Findings,
    Job,
    Load,
    create,
    outcome_count,
    processes_of,
    told,
    write_settings,
)
from benchmarks.crash_cluster import FAULTS, REPLICAS, Scene, await_progress, reconcile
from benchmarks.crash_cluster import Report as Restarts
from benchmarks.plot import Panel, svg
from benchmarks.reconciliation import Reader, Reconciliation
from kafka.admin import NewTopic
from kafka.errors import KafkaError

from redrive.broker import EmbeddedCluster
from redrive.errors import ProtocolError
from redrive.kafka.cluster import Cluster
from redrive.kafka.connection import Connection
from redrive.messages import TopicPartition

SHARE: Final = 0.7
"""Part of the measured capacity that comes."""
BOUNCES: Final = (
    "kill driver", "kill java", "kill job", "kill worker", "kill broker", "kill coordinator",
    "rolling restart", "stop job",
)  # fmt: skip
FLOOD: Final = 100_000.0
"""Dead letters a second: more than can be sent."""
FLOOD_SECONDS: Final = 90.0
"""Seconds for which as many come as can be sent, at most: a fifth of a short run."""
KEPT: Final = {"retention.ms": "600000", "segment.bytes": "16777216"}
"""Settings of topics that would else fill the disk."""
_PATIENCE: Final = 240.0
_LOOK: Final = 2.0
"""Seconds between two looks of the audit."""
_SAMPLES: Final = 1_000
"""Points of a curve."""
_ANSWER: Final = 10.0
"""Seconds for an answer of the brokers."""
_AT_ONCE: Final = 1_000
"""Dead letters that are sent in one go at most."""
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")


class SteadyLoad(Load):
    """Dead letters at a rate that may change, of which none is remembered."""

    def __init__(self, servers: str, seed: int) -> None:
        super().__init__(servers, 0.0, seed, weights=WEIGHTS)
        self.count = 0
        """How many were sent."""
        self.refused: list[str] = []
        self._due = 0.0

    def change(self, rate: float) -> None:
        """Sends so many a second from now on."""
        self._rate = rate

    def finish(self) -> dict[tuple[int, int], int]:
        """Waits until all are on the broker."""
        self._thread.join()
        self._producer.flush(timeout=_PATIENCE)
        self._producer.close()
        return {}

    def _run(self) -> None:
        before = time.monotonic()
        while not self._stopping.wait(0.02):
            now = time.monotonic()
            self._due, before = self._due + (now - before) * self._rate, now
            for _ in range(min(int(self._due), _AT_ONCE)):
                try:
                    future = self._send(self.count)
                    future.add_errback(lambda error: self.refused.append(str(error)))
                except KafkaError as error:  # no room in the client for a minute
                    self.refused.append(str(error))
                self.count += 1
            self._due %= 1


@dataclass
class Sample:
    """How the job was at one moment."""

    at: float
    """Seconds since the load began."""
    waiting: int | None
    """Dead letters that were not committed; None while nobody answered."""
    ended: int
    """Inputs that had come to their end."""
    kept: int
    """Inputs that the audit had in memory."""
    memory: dict[str, float]
    """Resident memory in MB of the driver, of Java, and of Spark's Python workers together."""
    files: dict[str, float]
    """Open files of the driver and of Java."""


@dataclass
class Report:
    """What a run was and what became of it."""

    seed: int
    hours: float
    capacity: float = 0.0
    """Dead letters a second that the job took when as many came as could be sent."""
    rate: float = 0.0
    """Dead letters a second that came."""
    bounces: list[dict[str, Any]] = field(default_factory=list)
    restarts: int = 0
    """How often the job ended by itself, with an error, and was started again."""
    result: str = ""
    findings: dict[str, Any] = field(default_factory=dict)
    samples: list[Sample] = field(default_factory=list)

    def picture(self) -> str:
        """The curves."""
        samples = self.samples
        gone = [
            (later.ended - one.ended) / (later.at - one.at)
            for one, later in itertools.pairwise(samples)
        ]
        panels = [
            Panel("dead letters a second", {"ended": [None, *gone]}),
            Panel("dead letters that wait", {"not committed": [one.waiting for one in samples]}),
            Panel("memory, MB", _curves([one.memory for one in samples])),
            Panel("open files", _curves([one.files for one in samples])),
        ]
        marks = {one["at"]: one["fault"] for one in self.bounces}
        title = f"{self.hours:g} h at {self.rate:.0f} dead letters a second: {self.result}"
        return svg(title, [one.at for one in samples], panels, marks)


def _curves(values: list[dict[str, float]]) -> dict[str, list[float | None]]:
    names = {name: None for one in values for name in one}
    return {name: [one.get(name) for one in values] for name in names}


class Watch:
    """Reconciles and takes samples in a thread, for as long as the load goes on.

    Args:
        servers: The brokers.
        job: The job.
        seconds: How long it is to be watched.
    """

    def __init__(self, servers: str, job: Job, seconds: float) -> None:
        self.reader = Reader(servers, Reconciliation(interval=2))
        self.samples: list[Sample] = []
        self._servers = servers
        self._job = job
        self._age = max(_LOOK, seconds / _SAMPLES)
        self._began = time.monotonic()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    @property
    def seconds(self) -> float:
        """Since the load began."""
        return time.monotonic() - self._began

    def start(self) -> None:
        """Begins."""
        self._thread.start()

    def stop(self) -> None:
        """Ends."""
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        sampled = -float("inf")
        while not self._ended.wait(_LOOK):
            with contextlib.suppress(KafkaError):  # a broker is away: the next look goes on
                self.reader.look()
            if self.seconds - sampled >= self._age:
                sampled = self.seconds
                self.samples.append(self._sample())

    def _sample(self) -> Sample:
        waiting = None
        with contextlib.suppress(ProtocolError):
            committed, there = stand(self._servers)
            waiting = there - committed
        memory: dict[str, float] = {}
        files: dict[str, float] = {}
        leader = self._job.process.pid if self._job.process is not None else 0
        for name in ("driver", "java", "worker"):
            pids = processes_of(leader, name) if leader else []
            if resident := sum(map(_resident, pids)):
                memory[name] = resident
            if name != "worker" and (count := sum(map(_open_files, pids))):
                files[name] = count
        known = self.reader.reconciliation
        return Sample(round(self.seconds, 1), waiting, known.ended, known.kept, memory, files)


def stand(servers: str) -> tuple[int, int]:
    """How many dead letters the job has committed, and how many there are.

    Args:
        servers: The brokers.

    Raises:
        ProtocolError: They do not answer in time.
    """
    lanes = [TopicPartition(DEAD_LETTERS, number) for number in range(PARTITIONS)]
    with Cluster(Connection(bootstrap_servers=servers), timeout=_ANSWER) as cluster:
        committed = cluster.committed(APPLICATION, lanes)
        return sum(one or 0 for one in committed.values()), sum(cluster.ends(lanes).values())


def _resident(pid: int) -> float:
    """Resident memory of a process in MB; 0 if it is gone (proc_pid_statm(5))."""
    try:
        return round(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE / 1e6, 1)
    except OSError:
        return 0.0


def _open_files(pid: int) -> int:
    """Open files of a process; 0 if it is gone (proc_pid_fd(5))."""
    try:
        return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return 0


def run(report: Report, *, rate: float | None, every: float) -> Findings:
    """Runs the whole thing and gives the findings.

    Args:
        report: Takes what happens.
        rate: Dead letters a second; None to measure what the job can do, and take 70 % of it.
        every: Seconds between two bounces, about.
    """
    with (
        tempfile.TemporaryDirectory(prefix="redrive-soak-") as folder,
        EmbeddedCluster(Path(folder) / "brokers", REPLICAS) as cluster,
    ):
        directory, servers = Path(folder), cluster.bootstrap_servers
        create_topics(servers)
        job = Job(write_settings(directory, servers, "auto"), directory / "job.log")
        load = SteadyLoad(servers, report.seed)
        job.start()
        load.change(50.0)
        load.start()
        _await_first(servers, job)
        watch = Watch(servers, job, report.hours * 3600)
        watch.start()
        if rate is None:
            load.change(FLOOD)
            report.capacity = _measured(servers, min(FLOOD_SECONDS, report.hours * 720))
        report.rate = rate or SHARE * report.capacity
        load.change(report.rate)
        print(f"capacity {report.capacity:.0f}/s, now {report.rate:.0f}/s", flush=True)
        restarts = Restarts(report.seed)
        scene = Scene(cluster, job, random.Random(report.seed))
        end = report.hours * 3600
        for pause in _pauses(report.seed, every):
            _supervise(watch, job, restarts, until=min(end, watch.seconds + pause))
            if watch.seconds > 0.9 * end:
                break
            _bounce(report, scene, watch)
        _supervise(watch, job, restarts, until=end)
        load.stop()
        watch.stop()
        findings = _settled(servers, job, restarts, watch.reader, load)
        report.restarts, report.samples = restarts.restarts, watch.samples
        return findings


def create_topics(servers: str) -> None:
    """Creates topics that keep ten minutes of records."""
    create(
        servers,
        NewTopic(DEAD_LETTERS, PARTITIONS, REPLICAS, topic_configs=KEPT),
        NewTopic(OPEN, 3, REPLICAS, topic_configs=KEPT),
        NewTopic(SMALL, 1, REPLICAS, topic_configs={"max.message.bytes": "1000"}),
        NewTopic(LATE, 2, 1, topic_configs={"min.insync.replicas": "1", **KEPT}),
        NewTopic(LAST, 2, REPLICAS, topic_configs=KEPT),
        NewTopic(OUTCOMES, 4, REPLICAS, topic_configs=KEPT),
    )


def _await_first(servers: str, job: Job) -> None:
    """Waits until the job has handled something."""
    deadline = time.monotonic() + _PATIENCE
    while not outcome_count(servers):
        if time.monotonic() > deadline:
            raise SystemExit(f"the job does not start; its log:\n{job.log.read_text()[-3000:]}")
        time.sleep(0.5)


def _measured(servers: str, seconds: float) -> float:
    """Dead letters a second that the job takes in the second half of some seconds."""
    time.sleep(seconds / 2)
    began, first = time.monotonic(), stand(servers)[0]
    time.sleep(seconds / 2)
    return (stand(servers)[0] - first) / (time.monotonic() - began)


def _pauses(seed: int, every: float) -> Iterator[float]:
    """Seconds from one bounce to the next."""
    chance = random.Random(seed + 1)
    while True:
        yield every * chance.uniform(0.5, 1.5)


def _supervise(watch: Watch, job: Job, restarts: Restarts, *, until: float) -> None:
    """Starts the job whenever it does not run."""
    while True:
        if job.process is None or job.process.poll() is not None:
            restarts.restarts += job.process is not None and job.process.returncode > 0
            job.start()
        if watch.seconds >= until:
            return
        time.sleep(min(0.5, max(0.0, until - watch.seconds)))


def _bounce(report: Report, scene: Scene, watch: Watch) -> None:
    name = scene.chance.choice(BOUNCES)
    at = round(watch.seconds, 1)
    what = FAULTS[name][0](scene)
    report.bounces.append({"at": at, "fault": name, "what": what})
    known = watch.reader.reconciliation
    print(
        f"{at:8.0f} s  {name}: {what}; {known.ended} ended, {known.kept} on their way", flush=True
    )


def _settled(
    servers: str, job: Job, restarts: Restarts, reader: Reader, load: SteadyLoad
) -> Findings:
    """Waits for what is on its way, stops the job, and gives what was found."""
    if job.process is None or job.process.poll() is not None:
        await_progress(servers, job, restarts, _PATIENCE)
    inputs = reconcile(reader, _PATIENCE)
    code = job.stop()
    findings = reader.reconciliation.finish(inputs)
    reader.close()
    if load.refused or findings.inputs < load.count:
        what = f"{load.count} were sent, {findings.inputs} are there: {load.refused[:3]}"
        findings.lost.append(what)
    if code:
        findings.lost.append(f"the last job ended with exit code {code}")
    return findings


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--hours", type=float, default=2.0)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--rate", type=float, help="dead letters a second, instead of 70 %%")
    parser.add_argument("--every", type=float, help="seconds between two bounces, about")
    parser.add_argument("--report", type=Path, default=Path("build/soak"), help="files, no ending")
    arguments = parser.parse_args()
    seed = random.SystemRandom().randrange(1 << 31) if arguments.seed is None else arguments.seed
    every = arguments.every or min(300.0, arguments.hours * 3600 / 5)
    print(f"seed {seed}, {arguments.hours:g} h, a bounce every {every:.0f} s", flush=True)
    report = Report(seed, arguments.hours)
    findings = run(report, rate=arguments.rate, every=every)
    report.result = findings.line()
    report.findings = {**asdict(findings), "results": dict(findings.results)}
    arguments.report.parent.mkdir(parents=True, exist_ok=True)
    arguments.report.with_suffix(".json").write_text(json.dumps(asdict(report), indent=1))
    arguments.report.with_suffix(".svg").write_text(report.picture())
    print(f"report in {arguments.report}.json, curves in {arguments.report}.svg")
    return told(findings)


if __name__ == "__main__":
    sys.exit(main())
