"""A cluster of three brokers and the job: whatever dies or stands still, count every effect.

Dead letters arrive as in ``benchmarks.crash``. Round by round something happens that a random seed
chooses: a broker, the coordinator of the job's group, the driver, its Java or a worker is killed
with -9; a broker or the whole job is stopped where it is (SIGSTOP), the job for longer than a
transaction may take; the brokers are restarted one after the other; the broker that alone holds one
partition of a target is away, while all else has to go on; the job goes on with another table, by a
restart in the process or after a kill. A supervisor starts a job again that ended. In the end
everything is reconciled, by the rules of the audit there.

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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
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
    TABLE,
    Findings,
    Job,
    Load,
    create,
    outcome_count,
    processes_of,
    told,
    write_settings,
)
from benchmarks.reconciliation import Reader, Reconciliation
from confluent_kafka.admin import AdminClient
from kafka.admin import NewTopic
from kafka.errors import KafkaError

from redrive.broker import EmbeddedBroker, EmbeddedCluster
from redrive.kafka.producer import TRANSACTION_TIMEOUT

REPLICAS: Final = 3
STANDING: Final = 20.0
"""Seconds that a broker stands still: three times its session's timeout."""
CHANGED: Final = f"""* What the other table leaves is placed, what it discards is left.
RETRYINT(2)
REASON(MQRC_Q_FULL) ACTION(RETRY) RETRY(2)
REASON(MQRC_UNKNOWN_OBJECT_NAME) ACTION(RETRY) RETRY(4)
REASON(MQRC_PUT_INHIBITED) ACTION(IGNORE)
REASON(MQRC_NOT_AUTHORIZED) ACTION(DISCARD)
REASON(MQRC_Q_DELETED) ACTION(FWD) FWDQ('{OPEN}')
ACTION(FWD) FWDQ('{LAST}')
"""


@dataclass
class Scene:
    """What a fault can reach."""

    cluster: EmbeddedCluster
    job: Job
    chance: random.Random
    table: str = TABLE
    """What decides."""

    def configure(self, emitter: str) -> None:
        """Writes the settings of the job, with one emitter and the table of now."""
        folder = self.job.settings.parent
        write_settings(folder, self.cluster.bootstrap_servers, emitter)
        (folder / "crash.rul").write_text(self.table)

    def change_table(self) -> str:
        """Lets the job go on with the other table: at once, or after it was killed."""
        assert self.job.process is not None
        self.table = CHANGED if self.table == TABLE else TABLE
        (self.job.settings.parent / "crash.rul").write_text(self.table)
        if self.chance.random() < 0.5:
            self.job.kill("group")
            return "killed, and goes on with it"
        with contextlib.suppress(ProcessLookupError):
            self.job.process.send_signal(signal.SIGHUP)
        return "restarted in the process"

    def stop_job(self) -> str:
        """Stops the job in order."""
        return f"exit code {self.job.stop()}"

    def take_leader(self) -> str:
        """Kills the broker that alone holds a partition; until it is back, all else has to go on.

        Raises:
            SystemExit: Nothing was decided meanwhile.
        """
        servers = self.cluster.bootstrap_servers
        known = AdminClient({"bootstrap.servers": servers}).list_topics(LATE, timeout=30)
        leaders = [one.leader for one in known.topics[LATE].partitions.values() if one.leader > 0]
        if not leaders:
            return "no topic yet whose partitions have one replica"
        broker = self.cluster.brokers[self.chance.choice(leaders) - 1]
        broker.kill()
        try:
            time.sleep(STANDING)  # until the others lead what it led, and its puts were given up
            before = outcome_count(servers)
            time.sleep(STANDING)
            decided = outcome_count(servers) - before
        finally:
            broker.start()
        if not decided:
            raise SystemExit(f"one partition of {LATE} had no leader, and everything stood still")
        return f"{broker.log.parent.name}, {decided} outcomes in {STANDING:g} s without it"

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
    "no leader": (Scene.take_leader, 2),
    "change table": (Scene.change_table, 2),
    "stop job": (Scene.stop_job, 0.5),
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


def run(
    rounds: int, report: Report, *, faults: Sequence[str], rate: float, patience: float
) -> Findings:
    """Runs the whole thing and gives the findings.

    Args:
        rounds: How many faults.
        report: Takes what happens.
        faults: Which of ``FAULTS`` may happen.
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
            _round(number, scene, report, faults, patience)
            if number == max(1, rounds // 3):
                create_alone(servers)
        sent = len(load.stop())
        await_progress(servers, scene.job, report, patience)
        reader = Reader(servers, Reconciliation(interval=2, tables_change=True))
        inputs = reconcile(reader, patience)
        code = scene.job.stop()
        findings = reader.reconciliation.finish(inputs)
        reader.close()
        if findings.inputs < sent:
            findings.lost.append(f"{sent} were sent, and {findings.inputs} are there")
        if code:
            findings.lost.append(f"the last job ended with exit code {code}")
        return findings


def reconcile(reader: Reader, patience: float) -> dict[int, int]:
    """Reads until every input has an outcome that may be its last, or nothing comes any more.

    Args:
        reader: Reads.
        patience: Seconds without any outcome after which to give up.

    Returns:
        How many inputs each partition has.
    """
    inputs, deadline = reader.inputs(), time.monotonic() + patience
    while not reader.reconciliation.has_ended(inputs) and time.monotonic() < deadline:
        time.sleep(1)
        taken = reader.reconciliation.taken
        with contextlib.suppress(KafkaError):  # a broker that has just come back
            reader.look()
        if reader.reconciliation.taken > taken:
            deadline = time.monotonic() + patience
    time.sleep(2)  # what was committed last is visible everywhere
    reader.look()
    return inputs


def _round(
    number: int, scene: Scene, report: Report, faults: Sequence[str], patience: float
) -> None:
    emitter = scene.chance.choice(["auto", "driver", "lanes"])
    scene.configure(emitter)
    await_progress(scene.cluster.bootstrap_servers, scene.job, report, patience)
    time.sleep(scene.chance.uniform(0, 6))
    [name] = scene.chance.choices(faults, [FAULTS[one][1] for one in faults])
    began = time.monotonic()
    what = FAULTS[name][0](scene)
    seconds = round(time.monotonic() - began, 1)
    report.rounds.append(
        {"round": number, "emitter": emitter, "fault": name, "what": what, "seconds": seconds}
    )
    print(f"round {number}: {emitter} emitter, {name}: {what}", flush=True)


def await_progress(servers: str, job: Job, report: Report, patience: float) -> None:
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


def create_alone(servers: str) -> None:
    """Creates ``LATE``, each partition of which is on one broker alone."""
    create(servers, NewTopic(LATE, 2, 1, topic_configs={"min.insync.replicas": "1"}))


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
    parser.add_argument("--faults", help="only these, with commas between them")
    arguments = parser.parse_args()
    seed = random.SystemRandom().randrange(1 << 31) if arguments.seed is None else arguments.seed
    print(f"seed {seed}, {arguments.rounds} rounds, {REPLICAS} brokers", flush=True)
    report = Report(seed)
    faults = arguments.faults.split(",") if arguments.faults else list(FAULTS)
    findings = run(
        arguments.rounds, report, faults=faults, rate=arguments.rate, patience=arguments.patience
    )
    report.result = findings.line()
    report.findings = {**asdict(findings), "results": dict(findings.results)}
    print(f"the job ended by itself and was started again {report.restarts} times")
    if arguments.report is not None:
        arguments.report.parent.mkdir(parents=True, exist_ok=True)
        arguments.report.write_text(json.dumps(asdict(report), indent=2))
    return told(findings)


if __name__ == "__main__":
    sys.exit(main())
