"""Spring's @RetryableTopic against Redrive, on the same failing service.

    python -m benchmarks.retryable_topic [--records 2000] [--rate 50] [--json]

A service made with Spring Kafka processes payments; one of twenty always fails, and others fail
once or twice before they pass. It retries after 1, 2 and 4 seconds, and then gives up:

    spring    with @RetryableTopic, which has a topic for each delay and one for dead letters
    redrive   with DeadLetterPublishingRecoverer at the first failure; the rounds are Redrive's

Counted from what the service prints: how often each payment was processed, how late each retry
came, whether payments of one key passed in their order, the load on the service, and the topics.
The service is compiled as it starts, which needs a JDK.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from benchmarks.clients import Sent, create, listener, send
from benchmarks.command_line import broker, parser, show
from benchmarks.job import cpu_seconds, percentiles, running_job
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from kafka.admin import NewTopic

from redrive.java import fetch_jars, find_java, jar_files

SERVICE: Final = Path(__file__).with_name("spring") / "Payments.java"
TOPIC: Final = "payments"
DEAD_LETTERS: Final = f"{TOPIC}-dlt"
"""What Spring calls the topic of dead letters."""
PARTITIONS: Final = 4
KEYS: Final = 97
"""No multiple of what decides which payments fail: each key has some of them."""
DELAYS: Final = (1000, 2000, 4000)
"""Milliseconds from each failure to the next try; after the last one there is none."""
TABLE: Final = """DIALECT(KAFKA) RETRYINT(1) WAIT(YES)
ACTION(RETRY) RETRY(3) BACKOFF(1s,2,4s)
ACTION(QUARANTINE)
"""
_START: Final = 240.0
"""Seconds that the service, or the job, may take to start."""
_QUIET: Final = 30.0
"""Seconds without any processing after which nothing more is expected."""


def failures_of(number: int) -> int:
    """How often the processing of a payment fails."""
    return {3: 1_000, 7: 1, 12: 2}.get(number % 20, 0)


@dataclass
class Service:
    """The running service, and what it printed."""

    process: subprocess.Popen[str]
    tries: defaultdict[int, list[tuple[int, bool]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    """By payment: when each processing was, in milliseconds, and whether it passed."""
    dead: Counter[int] = field(default_factory=Counter)
    """Payments that Spring's own handler of dead letters got."""
    heard_at: float = field(default_factory=time.monotonic)
    is_ready: threading.Event = field(default_factory=threading.Event)

    def read(self) -> None:
        """Reads what it prints, to the end."""
        for line in self.process.stdout or ():
            what, at, number = line.split()
            self.heard_at = time.monotonic()
            if what == "ready":
                self.is_ready.set()
            elif what == "dead":
                self.dead[int(number)] += 1
            else:
                self.tries[int(number)].append((int(at), what == "ok"))

    def is_done(self, records: int) -> bool:
        """Whether every payment has passed, or failed as often as it may."""
        most = len(DELAYS) + 1
        ends = [tries[-1][1] or len(tries) >= most for tries in list(self.tries.values())]
        return len(ends) == records and all(ends)


@contextlib.contextmanager
def service(servers: str, kind: str, folder: Path) -> Iterator[Service]:
    """The service, once it listens.

    Args:
        servers: The broker.
        kind: "retryable" or "recoverer".
        folder: Takes its log.

    Raises:
        SystemExit: It does not start.
    """
    lock = SERVICE.with_name("jars.lock").read_text(encoding="utf-8")
    fetch_jars(lock)
    jars = os.pathsep.join(map(str, jar_files("spring", lock)))
    with (folder / "service.log").open("w+", encoding="utf-8") as log:
        command = [str(find_java().executable), "-cp", jars, str(SERVICE), servers, kind]
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True
        )
        running = Service(process)
        reader = threading.Thread(target=running.read)
        reader.start()
        try:
            if not running.is_ready.wait(_START):
                log.seek(0)
                raise SystemExit(f"the service did not start:\n{log.read()[-4000:]}")
            yield running
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            reader.join()


def load(servers: str, records: int, rate: float) -> None:
    """Sends the payments; those of one key are on one partition."""
    producer, began = Producer({"bootstrap.servers": servers, "linger.ms": 5}), time.monotonic()
    for number in range(records):
        key = number % KEYS
        value = b"%d %d" % (number, failures_of(number))
        send(producer, Sent(TOPIC, key % PARTITIONS, value, key=b"k%d" % key))
        producer.poll(0)
        time.sleep(max(0.0, began + number / rate - time.monotonic()))
    producer.flush()


def measure(kind: str, records: int, rate: float) -> dict[str, Any]:
    """The figures of one contestant.

    Args:
        kind: "spring" or "redrive".
        records: Payments.
        rate: Payments a second.
    """
    with contextlib.ExitStack() as stack:
        folder, servers = stack.enter_context(broker())
        names = [TOPIC] if kind == "spring" else [TOPIC, DEAD_LETTERS]
        create(servers, *(NewTopic(name, PARTITIONS, 1) for name in names))
        job = None
        if kind == "redrive":
            job = stack.enter_context(
                running_job(servers, folder / "payments", {DEAD_LETTERS: TABLE})
            )
            _await_job(servers)
        spring = {"spring": "retryable", "redrive": "recoverer"}[kind]
        running = stack.enter_context(service(servers, spring, folder))
        before = _spent(running, job)
        load(servers, records, rate)
        deadline = time.monotonic() + _START
        while not running.is_done(records) and time.monotonic() < deadline:
            time.sleep(0.5)
        while time.monotonic() < running.heard_at + _QUIET:  # what comes once too often
            time.sleep(0.5)
        after = _spent(running, job)
        topics = AdminClient({"bootstrap.servers": servers}).list_topics(timeout=30).topics
        return {
            **figures(running, records),
            "topics": sorted(set(topics) - {"__consumer_offsets", "__transaction_state"}),
            "partitions": sum(
                len(topic.partitions) for name, topic in topics.items() if not name.startswith("__")
            ),
            "CPU seconds": {name: round(after[name] - before[name], 1) for name in after},
        }


def figures(running: Service, records: int) -> dict[str, Any]:
    """What the service saw, against what its settings promise."""
    expected = {number: min(failures_of(number), len(DELAYS)) + 1 for number in range(records)}
    tries_of_number = {number: len(running.tries.get(number, ())) for number in range(records)}
    late = [
        second - first - delay
        for tries in running.tries.values()
        for ((first, _), (second, _)), delay in zip(pairwise(tries), DELAYS, strict=False)
    ]
    seconds = Counter(at // 1000 for tries in running.tries.values() for at, _ in tries)
    return {
        "payments": records,
        "processed": sum(tries_of_number.values()),
        "processed too seldom": sum(
            tries_of_number[number] < expected[number] for number in expected
        ),
        "processed too often": sum(
            tries_of_number[number] > expected[number] for number in expected
        ),
        "given up": sum(not tries[-1][1] for tries in running.tries.values()),
        "most in one second": max(seconds.values()),
        "retry after its delay, ms": percentiles([float(milliseconds) for milliseconds in late]),
        "passed out of order": _disordered(running),
    }


def _disordered(running: Service) -> dict[str, int]:
    """Payments that passed after a later one of their key, and keys with such payments."""
    passed: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    for number, tries in running.tries.items():
        if tries[-1][1]:
            passed[number % KEYS].append((tries[-1][0], number))
    late: Counter[int] = Counter()
    for key, times in passed.items():
        latest = -1
        for _, number in sorted(times):
            late[key] += number < latest
            latest = max(latest, number)
    return {"payments": sum(late.values()), "keys": sum(map(bool, late.values()))}


def _spent(running: Service, job: subprocess.Popen[bytes] | None) -> dict[str, float]:
    spent = {"service": sum(cpu_seconds(running.process.pid).values())}
    return spent if job is None else {**spent, "job": sum(cpu_seconds(job.pid).values())}


def _await_job(servers: str) -> None:
    """Waits until the job has handled a first dead letter, which no round follows."""
    producer = Producer({"bootstrap.servers": servers})
    producer.produce(DEAD_LETTERS, b"a first one, without a header")
    producer.flush()
    outcomes, deadline = "redrive-payments-outcomes", time.monotonic() + _START
    while outcomes not in producer.list_topics(timeout=10).topics:
        time.sleep(0.5)
    consumer = listener(servers, [outcomes])
    lanes = consumer.assignment()
    while sum(consumer.get_watermark_offsets(lane)[1] for lane in lanes) == 0:
        if time.monotonic() > deadline:
            raise SystemExit("the job handles nothing")
        time.sleep(0.5)
    consumer.close()


def main() -> int:
    """The command line."""
    asked = parser(__doc__, records=2_000, rate=50.0)
    asked.add_argument("--only", choices=["spring", "redrive"])
    arguments = asked.parse_args()
    report = {}
    for kind in ("spring", "redrive"):
        if arguments.only in {None, kind}:
            report[kind] = measure(kind, arguments.records, arguments.rate)
            if not arguments.json:
                print(f"{kind}: {json.dumps(report[kind], indent=2)}", flush=True)
    if arguments.json:
        show(report)
    return 0


if __name__ == "__main__":
    sys.exit(main())
