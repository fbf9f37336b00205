"""What can happen to the job, its brokers and its machines: faults by name, for every program.

A fault is a function of the scene that makes something happen, waits as long as it lasts, and says
what it was. The program chooses which of them it takes; a seed chooses among these.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from benchmarks.fault_proxy import Rule, What
from benchmarks.load import APPLICATION, CHANGED, LATE, TABLE
from benchmarks.processes import processes_of
from confluent_kafka.admin import AdminClient

from redrive.kafka.deadline import TRANSACTION

if TYPE_CHECKING:
    from benchmarks.engine import Scene

    from redrive.broker import EmbeddedBroker

STANDING: Final = 20.0
"""Seconds that a broker stands still: three times its session's timeout."""
AHEAD: Final = 600.0
"""Seconds by which the clock is set."""
LATE_COMMITS: Final = (
    Rule("EndTxn", What.LATE_COPY, share=0.5, seconds=0.05),
    Rule("TxnOffsetCommit", What.LATE_COPY, share=0.1),
)
LATE_COPY: Final = "late copy of EndTxn"
"""What the relay counts."""
_COPIES: Final = 50
"""Late copies of one fault."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One kind of fault."""

    happen: Callable[[Scene], str]
    weight: float = 1.0
    """How often, beside the others of a program."""


# -- the job ------------------------------------------------------------------------------------


def _kill_in_job(scene: Scene, *, victims: str) -> str:
    """Kills the driver, its Java or all processes; of the first two, all others a moment later."""
    scene.job.kill(victims, pause=scene.chance.random())
    return "-9"


def _kill_worker(scene: Scene) -> str:
    """Kills one Python worker of Spark's, if one lives."""
    workers = processes_of(scene.job.leader, "worker")
    if not workers:
        return "no worker"
    with contextlib.suppress(ProcessLookupError):
        os.kill(scene.chance.choice(workers), signal.SIGKILL)
    return f"one of {len(workers)} workers"


def _pause_job(scene: Scene) -> str:
    """Lets every process of the job stand still until its transactions were aborted."""
    seconds = TRANSACTION + 15
    scene.job.signal(signal.SIGSTOP, all_processes=True)
    try:
        time.sleep(seconds)
    finally:
        scene.job.signal(signal.SIGCONT, all_processes=True)
    return f"{seconds:g} s"


def _stop_job(scene: Scene) -> str:
    """Stops the job in order."""
    return f"exit code {scene.job.stop()}"


def _lose_directory(scene: Scene) -> str:
    """Kills the job and deletes its directory."""
    scene.job.kill("job")
    shutil.rmtree(scene.job.settings.parent / "job", ignore_errors=True)
    return "killed"


def _change_table(scene: Scene) -> str:
    """Lets the job go on with the other table: at once, or after it was killed."""
    scene.write_table(CHANGED if scene.table == TABLE else TABLE)
    if scene.chance.random() < 0.5:
        scene.job.kill("job")
        return "killed, and goes on with it"
    scene.job.signal(signal.SIGHUP)
    return "restarted in the process"


def _set_clock(scene: Scene) -> str:
    """Sets the clock of the job ahead, restarts the query meanwhile, and sets the clock back."""
    scene.clock.set(AHEAD)
    try:
        time.sleep(scene.chance.uniform(0, 3))
        scene.job.signal(signal.SIGHUP)
        time.sleep(STANDING)
    finally:
        scene.clock.set(0.0)
    return f"{AHEAD:g} s ahead for {STANDING:g} s, with a restart in the process"


# -- brokers ------------------------------------------------------------------------------------


def _kill_broker(scene: Scene) -> str:
    """Kills any broker, and starts it again after some seconds."""
    return _killed(scene, scene.chance.choice(scene.brokers))


def _kill_coordinator(scene: Scene) -> str:
    """Kills the broker that keeps the offsets of the job's group."""
    topic = "__consumer_offsets"
    client = AdminClient({"bootstrap.servers": scene.servers})
    partitions = client.list_topics(topic, timeout=30).topics[topic].partitions
    leader = partitions[(_java_hash(APPLICATION) & 0x7FFFFFFF) % len(partitions)].leader
    return "no coordinator" if leader < 1 else _killed(scene, scene.brokers[leader - 1])


def _pause_broker(scene: Scene) -> str:
    """Lets a broker stand still until the others have a new leader for what it led."""
    broker = scene.chance.choice(scene.brokers)
    broker.pause()
    try:
        time.sleep(STANDING)
    finally:
        broker.resume()
    return f"{broker.log.parent.name}, {STANDING:g} s"


def _stop_broker(scene: Scene) -> str:
    """Stops a broker in order, and starts it again."""
    broker = scene.chance.choice(scene.brokers)
    broker.stop()
    time.sleep(scene.down)
    broker.start()
    return f"{broker.log.parent.name}, away for {scene.down:g} s"


def _roll(scene: Scene) -> str:
    """Restarts every broker in order, one after the other."""
    for broker in scene.brokers:
        broker.stop()
        broker.start()
    return "all brokers"


def _take_leader(scene: Scene) -> str:
    """Kills the broker that alone holds a partition; until it is back, all else has to go on."""
    client = AdminClient({"bootstrap.servers": scene.servers})
    late = client.list_topics(LATE, timeout=30).topics[LATE]
    leaders = [partition.leader for partition in late.partitions.values() if partition.leader > 0]
    if not leaders:
        return "no topic yet whose partitions have one replica"
    broker = scene.brokers[scene.chance.choice(leaders) - 1]
    broker.kill()
    try:
        time.sleep(STANDING)  # until the others lead what it led, and its puts were given up
        before = scene.outcome_count()
        time.sleep(STANDING)
        decided = scene.outcome_count() - before
    finally:
        broker.start()
    if not decided:
        scene.problems.append(f"one partition of {LATE} had no leader, and everything stood still")
    return f"{broker.log.parent.name}, {decided} outcomes in {STANDING:g} s without it"


def _killed(scene: Scene, broker: EmbeddedBroker) -> str:
    broker.kill()
    seconds = scene.chance.uniform(0, 10)
    time.sleep(seconds)
    broker.start()
    return f"{broker.log.parent.name}, away for {seconds:.1f} s"


def _java_hash(text: str) -> int:
    """``String.hashCode`` of Java, by which Kafka chooses the partition of a group."""
    value = 0
    for character in text:
        value = (31 * value + ord(character)) & 0xFFFFFFFF
    return value


# -- network, machines, operators ---------------------------------------------------------------


def _late_commits(scene: Scene) -> str:
    """Breaks connections in commits, and lets first copies arrive in the next transaction."""
    assert scene.relay is not None
    counts = scene.relay.counts
    before, deadline = counts[LATE_COPY], time.monotonic() + scene.patience
    scene.relay.apply(*LATE_COMMITS)
    while counts[LATE_COPY] - before < _COPIES and time.monotonic() < deadline:
        scene.job.supervise()
        time.sleep(0.5)
    scene.relay.apply()
    return f"{counts[LATE_COPY] - before} copies"


def _kill_executor(scene: Scene) -> str:
    """Kills an executor of the Spark cluster, which the cluster replaces."""
    assert scene.spark is not None
    return scene.spark.kill_executor()


def _kill_machine(scene: Scene) -> str:
    """Kills a worker of the Spark cluster, which comes back some seconds later."""
    assert scene.spark is not None
    return scene.spark.kill_worker()


def _kill_commands(scene: Scene) -> str:
    """Kills the operators' commands that still run, and nothing else."""
    time.sleep(STANDING / 2)
    scene.operators.kill()
    return "operators' commands"


FAULTS: Final[Mapping[str, Fault]] = {
    "kill driver": Fault(partial(_kill_in_job, victims="driver")),
    "kill java": Fault(partial(_kill_in_job, victims="java")),
    "kill job": Fault(partial(_kill_in_job, victims="job")),
    "kill worker": Fault(_kill_worker),
    "pause job": Fault(_pause_job, 0.3),
    "stop job": Fault(_stop_job, 0.5),
    "lose directory": Fault(_lose_directory),
    "change table": Fault(_change_table, 2),
    "set clock": Fault(_set_clock),
    "kill broker": Fault(_kill_broker, 2),
    "kill coordinator": Fault(_kill_coordinator, 2),
    "pause broker": Fault(_pause_broker),
    "stop broker": Fault(_stop_broker),
    "rolling restart": Fault(_roll),
    "no leader": Fault(_take_leader, 2),
    "late commits": Fault(_late_commits),
    "kill executor": Fault(_kill_executor),
    "kill machine": Fault(_kill_machine),
    "kill commands": Fault(_kill_commands),
}
"""What can happen."""
OF_THE_JOB: Final = (
    "kill driver", "kill java", "kill job", "kill worker", "lose directory", "set clock",
    "kill commands",
)  # fmt: skip
"""Faults that need no more than one broker."""
