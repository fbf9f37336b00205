"""Kill -9 under load, again and again, and count every effect.

Dead letters of every kind arrive while the job is killed at random moments: its driver and its JVM,
or one of the two, or everything with the workers; between rounds its directory is sometimes deleted
and the emitter changes. Meanwhile an operator applies overlapping plans about what remains and what
is parked, by processes that are killed too. In the end a kafka-python reader at read_committed
looks at every topic:

    - every input has come to one end, and attempts are without gaps unless a person asked for more;
    - no message was dealt with twice for one plan;
    - every put that an outcome claims is there exactly once, and no other;
    - messages that needed no retry kept their order per key within a partition.

Run it as ``python -m benchmarks.crash --rounds 20`` (``make crash``); a printed seed repeats it.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from benchmarks.crash_replays import REPAIR, Operator, check_replays
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient, NewTopic
from kafka.future import Future

from redrive.broker import EmbeddedBroker
from redrive.messages import DeadLetterHeader, encode_header

APPLICATION: Final = "crash"
DEAD_LETTERS: Final = "crash.dlq"
PARTITIONS: Final = 4
OPEN, SMALL, LATE, LAST = "orders", "small", "late", "real.dead.queue"
OUTCOMES: Final = f"redrive-{APPLICATION}-outcomes"

TABLE: Final = f"""* Every action, with failures on the way.
RETRYINT(2)
REASON(MQRC_Q_FULL) ACTION(RETRY) RETRY(3)
REASON(MQRC_UNKNOWN_OBJECT_NAME) ACTION(RETRY) RETRY(2)
REASON(MQRC_PUT_INHIBITED) ACTION(DISCARD)
REASON(MQRC_NOT_AUTHORIZED) ACTION(FWD) FWDQ('{OPEN}') HEADER(NO)
REASON(MQRC_Q_DELETED) ACTION(IGNORE)
ACTION(FWD) FWDQ('{LAST}')
"""

KINDS: Final = (
    (2053, OPEN, 60),  # delivered at once
    (2053, SMALL, 3000),  # refused for its size each time, then forwarded
    (2085, LATE, 60),  # refused until the queue appears, or forwarded
    (2051, OPEN, 60),  # discarded
    (2035, OPEN, 60),  # forwarded without header
    (2052, OPEN, 60),  # ignored: remains
    (0, "", 60),  # no dead-letter header: remains
)

_AUDITED: Final = ("result", "attempt", "time", "target_topic", "origin", "replay")
"""What an audit looks at of an outcome: there may be hundreds of thousands."""

FINAL: Final = {"retried", "forwarded", "discarded", "remains"}
_PUT: Final = {"retried", "forwarded"}
_UNTOUCHED: Final = {"skipped", "cancelled"}
"""Results of a replay that changed nothing."""


class Load:
    """Produces numbered dead letters in a thread, at a steady rate.

    Args:
        bootstrap_servers: The broker.
        rate: Dead letters a second; infinite for as fast as they can be produced.
        seed: Of everything random.
        count: How many to produce; by default until it is stopped.
        weights: How often to choose each of ``KINDS``; by default all alike.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        rate: float,
        seed: int,
        *,
        count: int | None = None,
        weights: tuple[int, ...] | None = None,
    ) -> None:
        self._producer = KafkaProducer(
            bootstrap_servers=bootstrap_servers, acks="all", linger_ms=5, enable_idempotence=True
        )
        self._rate = rate
        self._random = random.Random(seed)
        self._count = count
        self._weights = weights
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.sent: list[Future] = []
        self.expected: list[str] = []
        """What an audit is to find of each, if a load says so."""

    def start(self) -> None:
        """Begins."""
        self._thread.start()

    def stop(self) -> dict[tuple[int, int], int]:
        """Ends, and gives the number of each record by partition and offset."""
        self._stopping.set()
        return self.finish()

    def finish(self) -> dict[tuple[int, int], int]:
        """Waits until all are produced, and gives the number of each as ``stop`` does."""
        self._thread.join()
        self._producer.flush()
        places = [future.get(timeout=60) for future in self.sent]
        self._producer.close()
        return {(place.partition, place.offset): n for n, place in enumerate(places)}

    def _run(self) -> None:
        for number in itertools.count() if self._count is None else range(self._count):
            if self._stopping.is_set():
                return
            self.sent.append(self._send(number))
            time.sleep(1 / self._rate)

    def _send(self, number: int) -> Future:
        reason, queue, size = self._random.choices(KINDS, self._weights)[0]
        body = b"%08d" % number + self._random.randbytes(size)
        if reason:
            header = DeadLetterHeader(reason=reason, dest_q_name=queue, format="MQSTR")
            body = encode_header(header) + body
        return self._producer.send(
            DEAD_LETTERS,
            key=b"k%d" % (number % 9),
            value=body,
            headers=[("number", str(number).encode())],
            partition=number % 9 % PARTITIONS,
        )


@dataclass
class Job:
    """The job as a process of its own, as an operator runs it."""

    settings: Path
    log: Path
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Starts it in a process group of its own."""
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "redrive", "run", "-c", str(self.settings)],
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def kill(self, victims: str) -> None:
        """Kills the driver, its JVM, or the whole group, without warning."""
        assert self.process is not None
        if victims != "group":
            for pid in processes_of(self.process.pid, victims):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(random.random())
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def stop(self) -> int:
        """Stops it in order, and gives its exit code."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=120)


def processes_of(leader: int, victims: str) -> list[int]:
    """The processes of a job that are meant.

    Args:
        leader: The driver, which leads the job's process group.
        victims: ``driver``, ``java``, or ``worker`` for Spark's Python workers.
    """
    if victims == "driver":
        return [leader]
    listed = subprocess.run(
        [shutil.which("ps") or "ps", "-o", "pid=,ppid=,args=", "-g", str(leader)],
        capture_output=True,
        text=True,
        check=False,
    )
    rows = [line.split(None, 2) for line in listed.stdout.splitlines()]
    if victims == "java":
        return [int(pid) for pid, _, command in rows if command.split()[0].endswith("java")]
    daemons = {pid for pid, _, command in rows if "pyspark.daemon" in command}
    return [int(pid) for pid, parent, _ in rows if parent in daemons]


@dataclass
class Findings:
    """What the audit counted."""

    inputs: int = 0
    results: Counter[str] = field(default_factory=Counter)
    puts: int = 0
    replayed: Counter[str] = field(default_factory=Counter)
    """What became of the messages of plans, those that did not have to be touched included."""
    lost: list[str] = field(default_factory=list)
    duplicated: list[str] = field(default_factory=list)
    disordered: list[str] = field(default_factory=list)
    early: list[str] = field(default_factory=list)

    @property
    def are_clean(self) -> bool:
        """Whether everything adds up."""
        return not (self.lost or self.duplicated or self.disordered or self.early)

    def line(self) -> str:
        """One line for a person."""
        results = " + ".join(f"{count} {result}" for result, count in sorted(self.results.items()))
        replays = ", ".join(f"{count} {result}" for result, count in sorted(self.replayed.items()))
        return (
            f"{self.inputs} in = {results}; {self.puts} puts;"
            f"{f' by plans: {replays};' if replays else ''} {len(self.lost)} lost,"
            f" {len(self.duplicated)} duplicated, {len(self.disordered)} out of order,"
            f" {len(self.early)} early"
        )


def _committed_reader(bootstrap_servers: str, topics: list[str]) -> KafkaConsumer:
    """A consumer at the beginning of some topics."""
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap_servers,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    partitions = [
        TopicPartition(topic, number)
        for topic in topics
        for number in consumer.partitions_for_topic(topic) or ()
    ]
    consumer.assign(partitions)
    consumer.seek_to_beginning(*partitions)
    return consumer


def read_committed(bootstrap_servers: str, topics: list[str]) -> Iterator[Any]:
    """Every committed record of some topics, partition by partition in offset order."""
    consumer = _committed_reader(bootstrap_servers, topics)
    ends = consumer.end_offsets(list(consumer.assignment()))
    while any(consumer.position(partition) < end for partition, end in ends.items()):
        for records in consumer.poll(timeout_ms=200).values():
            yield from records
    consumer.close()


def audit(bootstrap_servers: str, numbers: dict[tuple[int, int], int], interval: float) -> Findings:
    """Compares inputs, outcomes and puts.

    Args:
        bootstrap_servers: The broker.
        numbers: Number of each input by partition and offset.
        interval: RETRYINT in seconds.
    """
    findings = Findings(inputs=len(numbers))
    courses: dict[str, list[dict[str, Any]]] = defaultdict(list)
    seen: set[str] = set()
    for record in read_committed(bootstrap_servers, [OUTCOMES]):
        outcome = json.loads(record.value)
        if outcome["outcome"] in seen:
            findings.duplicated.append(f"outcome {outcome['outcome']}")
        seen.add(outcome["outcome"])
        courses[outcome["origin"]].append({name: outcome.get(name) for name in _AUDITED})
    findings.duplicated += check_replays(itertools.chain.from_iterable(courses.values()))
    findings.replayed.update(
        one["result"] for course in courses.values() for one in course if one["replay"]
    )
    puts: Counter[tuple[str, str]] = Counter()
    order: dict[tuple[str, int, bytes], list[tuple[int, int]]] = defaultdict(list)
    for record in read_committed(bootstrap_servers, [OPEN, SMALL, LATE, LAST, REPAIR]):
        identity = dict(record.headers)["redrive.id"].decode()
        puts[record.topic, identity] += 1
        if len(courses[identity]) == 1:
            partition, offset = map(int, identity.rsplit(":", 2)[1:])
            order[record.topic, record.partition, record.key].append((partition, offset))
    _check_courses(findings, numbers, courses, puts, interval)
    findings.puts = puts.total()
    for place, path in order.items():
        if path != sorted(path):
            findings.disordered.append(str(place))
    return findings


def _check_courses(
    findings: Findings,
    numbers: dict[tuple[int, int], int],
    courses: dict[str, list[dict[str, Any]]],
    puts: Counter[tuple[str, str]],
    interval: float,
) -> None:
    expected: Counter[tuple[str, str]] = Counter()
    for partition, offset in numbers:
        identity = f"{DEAD_LETTERS}:{partition}:{offset}"
        course = [one for one in courses.get(identity, []) if one["result"] not in _UNTOUCHED]
        if problem := _problem(course):
            kind = findings.lost if problem == "lost" else findings.duplicated
            kind.append(f"{identity}: {[outcome['result'] for outcome in course]}")
            continue
        findings.results[course[-1]["result"]] += 1
        is_replayed = any(outcome["replay"] for outcome in course)
        tries = [outcome["attempt"] for outcome in course]
        if tries != sorted(set(tries)) and not is_replayed:
            findings.duplicated.append(f"{identity}: attempts {tries}")
        if any(
            after["time"] - before["time"] < interval * 1000 and not after["replay"]
            for before, after in itertools.pairwise(course)
        ):
            findings.early.append(f"{identity}: {[outcome['time'] for outcome in course]}")
        for outcome in course:
            if outcome["result"] in _PUT:
                expected[outcome["target_topic"], identity] += 1
    findings.lost += [f"put {place}" for place in expected - puts]
    findings.duplicated += [f"put {place}" for place in puts - expected]


def _problem(course: list[dict[str, Any]]) -> str:
    """What is wrong with the outcomes of one dead letter: one end, and none after it.

    What remains may go on, if a replay asked for it.
    """
    if not course or course[-1]["result"] not in FINAL:
        return "lost"
    for before, after in itertools.pairwise(course):
        goes_on = before["result"] == "parked" or (
            before["result"] == "remains" and after["replay"]
        )
        if not goes_on:
            return "duplicated"
    return ""


def write_settings(
    directory: Path, bootstrap_servers: str, emitter: str, *, more: str = "", table: str = TABLE
) -> Path:
    """The settings of the job, with one emitter and maybe more lines for [job], and its table."""
    (directory / "crash.rul").write_text(table)
    path = directory / "redrive.toml"
    path.write_text(
        f'[application]\nname = "{APPLICATION}"\ndirectory = "job"\n'
        f'[kafka]\nbootstrap_servers = "{bootstrap_servers}"\n'
        f'[[handlers]]\nqueue = "{DEAD_LETTERS}"\nrules = "crash.rul"\nname = "crash"\n'
        f'[job]\nemitter = "{emitter}"\n{more}[ledger]\nenabled = false\n'
    )
    return path


def outcome_count(bootstrap_servers: str) -> int:
    """About how many outcomes are committed: enough to see that something moves."""
    consumer = KafkaConsumer(bootstrap_servers=bootstrap_servers)
    try:
        partitions = consumer.partitions_for_topic(OUTCOMES) or set()
        ends = consumer.end_offsets([TopicPartition(OUTCOMES, n) for n in partitions])
        return sum(ends.values())
    finally:
        consumer.close()


def wait_for_progress(bootstrap_servers: str, job: Job, patience: float) -> None:
    """Waits until the job commits something, so that every round kills a job at work."""
    before, deadline = outcome_count(bootstrap_servers), time.monotonic() + patience
    while outcome_count(bootstrap_servers) <= before:
        problem = ""
        if job.process is not None and job.process.poll() is not None:
            problem = "the job ended by itself"
        elif time.monotonic() > deadline:
            problem = f"the job made no progress in {patience:g} s"
        if problem:
            raise SystemExit(f"{problem}; its log {job.log} ends in\n{job.log.read_text()[-3000:]}")
        time.sleep(0.3)


def wait_until_settled(bootstrap_servers: str, inputs: int, patience: float) -> None:
    """Waits until every input has a final outcome, or gives up and lets the audit tell.

    Args:
        bootstrap_servers: The broker.
        inputs: How many there are.
        patience: Seconds without any outcome after which to give up.
    """
    final: dict[str, bool] = {}
    deadline = time.monotonic() + patience
    with contextlib.closing(_committed_reader(bootstrap_servers, [OUTCOMES])) as consumer:
        while sum(final.values()) < inputs and time.monotonic() < deadline:
            for records in consumer.poll(timeout_ms=500).values():
                for outcome in (json.loads(record.value) for record in records):
                    if outcome["result"] not in _UNTOUCHED:
                        final[outcome["origin"]] = outcome["result"] in FINAL
                deadline = time.monotonic() + patience


def killed(
    job: Job,
    configure: Callable[[str], object],
    servers: str,
    *,
    rounds: int,
    seed: int,
    patience: float,
) -> Iterator[int]:
    """Starts the job and kills it at a random moment, again and again.

    Args:
        job: The job; sometimes its directory is deleted too.
        configure: Writes its settings, with one emitter.
        servers: The broker.
        rounds: How often to kill.
        seed: Of everything random.
        patience: Seconds to wait for a start.

    Yields:
        The number of each round, while the job is at work and before it is killed.
    """
    chance = random.Random(seed)
    for number in range(1, rounds + 1):
        emitter = chance.choice(["auto", "driver", "lanes"])
        configure(emitter)
        job.start()
        wait_for_progress(servers, job, patience)
        yield number
        time.sleep(chance.uniform(0, 6))
        victims = chance.choice(["driver", "java", "group"])
        job.kill(victims)
        lost = chance.random() < 0.25
        if lost:
            shutil.rmtree(job.settings.parent / "job", ignore_errors=True)
        note = ", directory deleted" if lost else ""
        print(f"round {number}: {emitter} emitter, killed {victims}{note}", flush=True)


def run(
    rounds: int, seed: int, *, rate: float = 150, patience: float = 180, plans: int = 3
) -> Findings:
    """Runs the whole thing and gives the findings.

    Args:
        rounds: How often to kill.
        seed: Of everything random.
        rate: Dead letters a second.
        patience: Seconds to wait for a start, and for the end.
        plans: How many an operator applies in each round, at most five.
    """
    with (
        tempfile.TemporaryDirectory(prefix="redrive-crash-") as folder,
        EmbeddedBroker(Path(folder) / "broker") as broker,
    ):
        directory, servers = Path(folder), broker.bootstrap_servers
        create_topics(servers)
        load = Load(servers, rate, seed)
        load.start()
        configure = partial(write_settings, directory, servers)
        job = Job(configure("auto"), directory / "job.log")
        operator = Operator(
            job.settings, servers, handler="crash", application=APPLICATION,
            chance=random.Random(seed), read=read_committed,
        )  # fmt: skip
        for number in killed(job, configure, servers, rounds=rounds, seed=seed, patience=patience):
            if number == max(1, rounds // 2):
                create(servers, NewTopic(LATE, 2, 1))
            operator.kill()
            operator.act(plans)
        numbers = load.stop()
        operator.kill()
        job.start()
        wait_until_settled(servers, len(numbers), patience)
        problems = operator.finish()
        wait_until_settled(servers, len(numbers), patience)
        code = job.stop()
        findings = audit(servers, numbers, interval=2)
        findings.lost += problems
        if code:
            findings.lost.append(f"the last job ended with exit code {code}")
        return findings


def create_topics(servers: str) -> None:
    """Creates what exists from the beginning: not ``LATE``."""
    create(
        servers,
        NewTopic(DEAD_LETTERS, PARTITIONS, 1),
        NewTopic(OPEN, 3, 1),
        NewTopic(SMALL, 1, 1, topic_configs={"max.message.bytes": "1000"}),
        NewTopic(LAST, 2, 1),
        NewTopic(REPAIR, 2, 1),
    )


def create(servers: str, *topics: NewTopic) -> None:
    """Creates topics."""
    admin = KafkaAdminClient(bootstrap_servers=servers)
    admin.create_topics(list(topics), wait_for_metadata=True)
    admin.close()


def main(run: Callable[..., Findings], description: str | None) -> int:
    """The command line of a benchmark that kills.

    Args:
        run: The benchmark.
        description: The docstring of its module.
    """
    parser = argparse.ArgumentParser(description=(description or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--rate", type=float, default=150, help="inputs a second")
    arguments = parser.parse_args()
    seed = random.SystemRandom().randrange(1 << 31) if arguments.seed is None else arguments.seed
    print(f"seed {seed}, {arguments.rounds} rounds", flush=True)
    findings = run(arguments.rounds, seed, rate=arguments.rate)
    return told(findings)


def told(findings: Findings) -> int:
    """Prints what an audit found, and gives the exit code."""
    print(findings.line())
    for name in ("lost", "duplicated", "disordered", "early"):
        for text in getattr(findings, name)[:10]:
            print(f"  {name}: {text}")
    print(f"lost {len(findings.lost)}, duplicated {len(findings.duplicated)}")
    return 0 if findings.are_clean else 1


if __name__ == "__main__":
    sys.exit(main(run, __doc__))
