"""A cluster of three brokers and the job: whatever dies or stands still, count every effect.

Dead letters arrive as in ``benchmarks.crash``. Round by round something happens that a random seed
chooses: a broker, the coordinator of the job's group, the driver, its Java or a worker is killed
with -9; a broker or the whole job is stopped where it is (SIGSTOP), the job for longer than a
transaction may take; the brokers are restarted one after the other. A supervisor starts a job again
that ended. In the end the same audit as there.

Run it as ``python -m benchmarks.crash_cluster --rounds 20 --rate 400``; a printed seed repeats it,
``--report FILE`` keeps what happened.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.crash import (
    APPLICATION,
    DEAD_LETTERS,
    LAST,
    LATE,
    OPEN,
    PARTITIONS,
    SMALL,
    Findings,
    Job,
    Load,
    audit,
    create,
    outcome_count,
    processes_of,
    told,
    wait_until_settled,
    write_settings,
)
from confluent_kafka.admin import AdminClient
from kafka.admin import NewTopic

from redrive.broker import EmbeddedBroker, EmbeddedCluster
from redrive.kafka.producer import TRANSACTION_TIMEOUT

REPLICAS: Final = 3
STANDING: Final = 20.0
"""Seconds that a broker stands still: three times its session's timeout."""


@dataclass
class Scene:
    """What a fault can reach."""

    cluster: EmbeddedCluster
    job: Job
    chance: random.Random

    def kill_in_job(self, victims: str) -> str:
        """Kills the driver, its Java, or every process of the job."""
        self.job.kill(victims)
        return victims

    def kill_worker(self) -> str:
        """Kills one Python worker of Spark's, if one lives."""
        assert self.job.process is not None
        workers = processes_of(self.job.process.pid, "worker")
        if not workers:
            return "no worker"
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.chance.choice(workers), signal.SIGKILL)
        return f"one of {len(workers)} workers"

    def kill_broker(self) -> str:
        """Kills any broker, and starts it again after some seconds."""
        return self._kill(self.chance.choice(self.cluster.brokers))

    def kill_coordinator(self) -> str:
        """Kills the broker that keeps the offsets of the job's group."""
        client = AdminClient({"bootstrap.servers": self.cluster.bootstrap_servers})
        partitions = client.list_topics("__consumer_offsets", timeout=30).topics[
            "__consumer_offsets"
        ]
        number = (_java_hash(APPLICATION) & 0x7FFFFFFF) % len(partitions.partitions)
        leader = partitions.partitions[number].leader
        if leader < 1:
            return "no coordinator"
        return self._kill(self.cluster.brokers[leader - 1])

    def pause_broker(self) -> str:
        """Lets a broker stand still until the others have a new leader for what it led."""
        broker = self.chance.choice(self.cluster.brokers)
        broker.pause()
        try:
            time.sleep(STANDING)
        finally:
            broker.resume()
        return f"{broker.log.parent.name}, {STANDING:g} s"

    def pause_job(self) -> str:
        """Lets every process of the job stand still until its transactions were aborted."""
        assert self.job.process is not None
        seconds = TRANSACTION_TIMEOUT + 15
        os.killpg(self.job.process.pid, signal.SIGSTOP)
        try:
            time.sleep(seconds)
        finally:
            os.killpg(self.job.process.pid, signal.SIGCONT)
        return f"{seconds:g} s"

    def roll(self) -> str:
        """Restarts every broker in order, one after the other."""
        for broker in self.cluster.brokers:
            broker.stop()
            broker.start()
        return "all brokers"

    def _kill(self, broker: EmbeddedBroker) -> str:
        broker.kill()
        seconds = self.chance.uniform(0, 10)
        time.sleep(seconds)
        broker.start()
        return f"{broker.log.parent.name}, away for {seconds:.1f} s"


FAULTS: Final[Mapping[str, tuple[Callable[[Scene], str], float]]] = {
    "kill driver": (lambda scene: scene.kill_in_job("driver"), 1),
    "kill java": (lambda scene: scene.kill_in_job("java"), 1),
    "kill job": (lambda scene: scene.kill_in_job("group"), 1),
    "kill worker": (Scene.kill_worker, 1),
    "kill broker": (Scene.kill_broker, 2),
    "kill coordinator": (Scene.kill_coordinator, 2),
    "pause broker": (Scene.pause_broker, 1),
    "pause job": (Scene.pause_job, 0.3),
    "rolling restart": (Scene.roll, 1),
}
"""What can happen, and how often in proportion."""


@dataclass
class Report:
    """What happened, to be kept."""

    seed: int
    rounds: list[dict[str, str | float]] = field(default_factory=list)
    restarts: int = 0
    """How often the job ended by itself and was started again."""
    result: str = ""
    findings: dict[str, object] = field(default_factory=dict)


def run(rounds: int, report: Report, *, rate: float, patience: float) -> Findings:
    """Runs the whole thing and gives the findings.

    Args:
        rounds: How many faults.
        report: Takes what happens.
        rate: Dead letters a second.
        patience: Seconds to wait for progress, and for the end.
    """
    with (
        tempfile.TemporaryDirectory(prefix="redrive-crash-") as folder,
        EmbeddedCluster(Path(folder) / "brokers", REPLICAS) as cluster,
    ):
        directory, servers = Path(folder), cluster.bootstrap_servers
        create_topics(servers)
        load = Load(servers, rate, report.seed)
        load.start()
        scene = Scene(
            cluster,
            Job(write_settings(directory, servers, "auto"), directory / "job.log"),
            random.Random(report.seed),
        )
        for number in range(1, rounds + 1):
            _round(number, scene, partial(write_settings, directory, servers), report, patience)
            if number == max(1, rounds // 2):
                create(servers, NewTopic(LATE, 2, REPLICAS))
        numbers = load.stop()
        _await_progress(servers, scene.job, report, patience)
        wait_until_settled(servers, len(numbers), patience)
        code = scene.job.stop()
        findings = audit(servers, numbers, interval=2)
        if code:
            findings.lost.append(f"the last job ended with exit code {code}")
        return findings


def _round(
    number: int, scene: Scene, configure: Callable[[str], Path], report: Report, patience: float
) -> None:
    emitter = scene.chance.choice(["auto", "driver", "lanes"])
    configure(emitter)
    _await_progress(scene.cluster.bootstrap_servers, scene.job, report, patience)
    time.sleep(scene.chance.uniform(0, 6))
    name = scene.chance.choices(list(FAULTS), [weight for _, weight in FAULTS.values()])[0]
    began = time.monotonic()
    what = FAULTS[name][0](scene)
    seconds = round(time.monotonic() - began, 1)
    report.rounds.append(
        {"round": number, "emitter": emitter, "fault": name, "what": what, "seconds": seconds}
    )
    print(f"round {number}: {emitter} emitter, {name}: {what}", flush=True)


def _await_progress(servers: str, job: Job, report: Report, patience: float) -> None:
    """Waits until the job commits something; starts it where it does not run, as a supervisor."""
    before, deadline = outcome_count(servers), time.monotonic() + patience
    while outcome_count(servers) <= before:
        if job.process is None or job.process.poll() is not None:
            report.restarts += job.process is not None and job.process.returncode > 0
            job.start()
        if time.monotonic() > deadline:
            raise SystemExit(
                f"the job made no progress in {patience:g} s; its log {job.log} ends in\n"
                f"{job.log.read_text()[-3000:]}"
            )
        time.sleep(0.5)


def create_topics(servers: str) -> None:
    """Creates what exists from the beginning, with three replicas of each partition."""
    create(
        servers,
        NewTopic(DEAD_LETTERS, PARTITIONS, REPLICAS),
        NewTopic(OPEN, 3, REPLICAS),
        NewTopic(SMALL, 1, REPLICAS, topic_configs={"max.message.bytes": "1000"}),
        NewTopic(LAST, 2, REPLICAS),
    )


def _java_hash(text: str) -> int:
    """``String.hashCode`` of Java, by which Kafka chooses the partition of a group."""
    value = 0
    for character in text:
        value = (31 * value + ord(character)) & 0xFFFFFFFF
    return value


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--rate", type=float, default=150, help="inputs a second")
    parser.add_argument("--patience", type=float, default=240, help="seconds without progress")
    parser.add_argument("--report", type=Path, help="file for what happened, as JSON")
    arguments = parser.parse_args()
    seed = random.SystemRandom().randrange(1 << 31) if arguments.seed is None else arguments.seed
    print(f"seed {seed}, {arguments.rounds} rounds, {REPLICAS} brokers", flush=True)
    report = Report(seed)
    findings = run(arguments.rounds, report, rate=arguments.rate, patience=arguments.patience)
    report.result = findings.line()
    report.findings = {**asdict(findings), "results": dict(findings.results)}
    print(f"the job ended by itself and was started again {report.restarts} times")
    if arguments.report is not None:
        arguments.report.write_text(json.dumps(asdict(report), indent=2))
    return told(findings)


if __name__ == "__main__":
    sys.exit(main())
