"""Restart under load, again and again, with tables that alternate and some that are broken.

    python -m benchmarks.restarts [--restarts 50] [--rate 1000] [--seed N] [--json]

Dead letters arrive at a steady rate while the job, started as an operator starts it, is asked to
restart: with the other table, or, one time in five, with one that has an error. Told is the time
from the request until the first outcome by the new table can be read. In the end a kafka-python
reader at read_committed looks at every topic:

    - every dead letter has one final outcome and the put that it claims, once, and no other;
    - every outcome is what the whole table that it names says, down to the line of the rule, and
      that table is kept;
    - what was answered held: nothing later was decided by the table before, and nothing by a table
      that was refused;
    - under another table the attempts of a message began again at 1.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from benchmarks.crash import read_committed
from benchmarks.job import create, listener, running_job
from confluent_kafka import Producer
from kafka.admin import NewTopic

from redrive.broker import EmbeddedBroker
from redrive.checkpoints.tables import read_tables
from redrive.configuration import JobConfiguration
from redrive.messages import DeadLetterHeader, encode_header
from redrive.operations.restart import restart
from redrive.rules import parse
from redrive.settings import read_settings

APPLICATION: Final = "restarts"
QUEUE: Final = "busy.dlq"
OUTCOMES: Final = f"redrive-{APPLICATION}-outcomes"
PARTITIONS: Final = 2
PAUSE: Final = 2.0
"""Seconds from the first batch by a table to the next request, at most."""
PATIENCE: Final = 60.0
"""Seconds for anything to happen."""
FILLER: Final = 100
"""Rules between the first and the last, which match nothing."""
KINDS: Final = {2053: 90, 2085: 6, 2051: 2, 2030: 2}
"""Reasons of dead letters, and how many of a hundred have them."""
BROKEN: Final = "REASON(2053) ACTION(FWD) FWDQ('one.even')\nREASON(2085) ACTION(FORWARD)\n"

Verdict = tuple[str, str]
"""Action and target."""


@dataclass(frozen=True)
class Table:
    """One of the tables that alternate."""

    name: str
    verdicts: Mapping[int, Verdict]
    """What it does with each reason, in the order of its rules."""

    @property
    def text(self) -> str:
        """The rules; the first and the last far apart, so that half a table would show."""
        rules = [_rule(reason, *verdict) for reason, verdict in self.verdicts.items()]
        filler = [f"DESTQ(NO.{number}.*) ACTION(DISCARD)" for number in range(FILLER)]
        return "\n".join(["RETRYINT(1)", rules[0], *filler, *rules[1:]]) + "\n"

    @property
    def hash(self) -> str:
        """What outcomes name it by."""
        return parse(self.text).required().hash[:16]

    def line(self, reason: int) -> int:
        """The line of the rule for a reason."""
        number = list(self.verdicts).index(reason)
        return 2 if number == 0 else 2 + FILLER + number


def _rule(reason: int, action: str, target: str) -> str:
    if action == "FWD":
        return f"REASON({reason}) ACTION(FWD) FWDQ('{target}') HEADER(NO)"
    return f"REASON({reason}) ACTION({action})" + " RETRY(2)" * (action == "RETRY")


EVEN: Final = Table(
    "even",
    {2053: ("FWD", "one.even"), 2085: ("FWD", "two.even"), 2051: ("IGNORE", ""),
     2030: ("FWD", "two.even")},
)  # fmt: skip
ODD: Final = Table(
    "odd",
    {2053: ("FWD", "one.odd"), 2085: ("FWD", "two.odd"), 2051: ("FWD", "two.odd"),
     2030: ("RETRY", "nowhere")},
)  # fmt: skip
LAST: Final = Table("last", dict.fromkeys(KINDS, ("FWD", "the.end")))
TABLES: Final = {one.hash: one for one in (EVEN, ODD, LAST)}
TARGETS: Final = ("one.even", "two.even", "one.odd", "two.odd", "the.end")


@dataclass
class Requests:
    """What was asked of the job, and what it did."""

    seconds: list[float] = field(default_factory=list)
    """From each request to the first outcome by its table."""
    answers: list[tuple[float, str]] = field(default_factory=list)
    """When a table was known to decide alone, and its hash."""
    refused: int = 0
    wrong: list[str] = field(default_factory=list)
    """Answers that should have been others."""


class Load:
    """Dead letters at a steady rate, in a thread."""

    def __init__(self, servers: str, rate: float, seed: int) -> None:
        self._producer = Producer({"bootstrap.servers": servers, "linger.ms": 5})
        self._rate, self._random = rate, random.Random(seed)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.sent = 0
        self._headers = {
            reason: encode_header(DeadLetterHeader(reason=reason, dest_q_name="nowhere"))
            for reason in KINDS
        }

    def start(self) -> None:
        """Begins."""
        self._thread.start()

    def stop(self) -> None:
        """Ends; everything is in Kafka then."""
        self._stopping.set()
        self._thread.join()
        self._producer.flush()

    def _run(self) -> None:
        begun = time.monotonic()
        while not self._stopping.is_set():
            [reason] = self._random.choices(list(KINDS), list(KINDS.values()))
            body = self._headers[reason] + b"%d" % reason + b" " * 300
            self._producer.produce(QUEUE, body, partition=self.sent % PARTITIONS)
            self._producer.poll(0)
            self.sent += 1
            time.sleep(max(0.0, begun + self.sent / self._rate - time.monotonic()))


class Watch:
    """Reads outcomes as they become visible, in a thread."""

    def __init__(self, servers: str) -> None:
        self._consumer = listener(servers, [OUTCOMES])
        self.first: dict[str, float] = {}
        """When the first outcome by a table came, since it was asked for."""
        self.settled = 0
        """Dead letters that were placed."""
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ends."""
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping.is_set():
            for message in self._consumer.consume(500, timeout=0.01):
                if message.error() is None:
                    self._take(json.loads(message.value() or b"{}"), time.time())

    def _take(self, outcome: dict[str, Any], now: float) -> None:
        self.first.setdefault(outcome["table"], now)
        self.settled += outcome["result"] == "forwarded"


def asked(job: JobConfiguration, watch: Watch, table: Table, requests: Requests) -> None:
    """Asks for a restart with a table whose file is there, and waits for its first outcome."""
    watch.first.clear()
    begun = time.time()
    answer = restart(job, timeout=PATIENCE)
    if answer.message:
        requests.wrong.append(f"{table.name} was refused: {answer.message}")
        return
    requests.answers.append((time.time(), table.hash))
    deadline = begun + PATIENCE
    # Outcomes by the table before may have been read after the first one was forgotten.
    while table.hash not in watch.first:
        if time.time() > deadline:
            raise SystemExit(f"nothing was decided by the table {table.name} in {PATIENCE:g} s")
        time.sleep(0.002)
    requests.seconds.append(watch.first[table.hash] - begun)
    print(f"{table.name}: {requests.seconds[-1]:.2f} s", file=sys.stderr, flush=True)


def alternate(folder: Path, watch: Watch, count: int, seed: int) -> Requests:
    """Asks for all restarts; one in five has a table with an error."""
    job = read_settings(folder / "redrive.toml").job
    file, chance = folder / f"{QUEUE}.rul", random.Random(seed)
    requests, number = Requests(), 0
    broken = set(chance.sample(range(count), count // 5))
    for step in range(count):
        time.sleep(chance.uniform(0.2, PAUSE))
        if step in broken:
            file.write_text(BROKEN)
            answer = restart(job, timeout=PATIENCE)
            requests.refused += bool(answer.message)
            if not any("ACTION(FORWARD)" in finding for finding in answer.findings):
                requests.wrong.append(f"step {step}: the broken table gave {answer}")
            continue
        number += 1
        table = ODD if number % 2 else EVEN
        file.write_text(table.text)
        asked(job, watch, table, requests)
    return requests


def settle(folder: Path, watch: Watch, sent: int, requests: Requests) -> None:
    """Lets a last table place everything that is left."""
    (folder / f"{QUEUE}.rul").write_text(LAST.text)
    asked(read_settings(folder / "redrive.toml").job, watch, LAST, requests)
    deadline = time.monotonic() + PATIENCE
    while watch.settled < sent and time.monotonic() < deadline:
        time.sleep(0.2)


def audit(servers: str, folder: Path, sent: int, requests: Requests) -> dict[str, Any]:
    """Compares dead letters, outcomes and puts; everything that is wrong."""
    wrong = list(requests.wrong)
    reasons = {
        f"{QUEUE}:{record.partition}:{record.offset}": int(record.value[172:176])
        for record in read_committed(servers, [QUEUE])
    }
    if len(reasons) != sent:
        wrong.append(f"{sent} were sent and {len(reasons)} are there")
    job = read_settings(folder / "redrive.toml").job
    kept = {one.hash[:16] for one in read_tables(job.connection, job.tables_topic).tables}
    courses: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    by_table: Counter[str] = Counter()
    for record in read_committed(servers, [OUTCOMES]):
        outcome = json.loads(record.value)
        courses[outcome["origin"]].append(outcome)
        by_table[outcome["table"]] += 1
    wrong += [f"the table {one} is not kept" for one in by_table if one not in kept]
    claimed: Counter[tuple[str, str, str]] = Counter()
    for origin, reason in reasons.items():
        course = courses[origin]
        wrong += _course(origin, reason, course, [at for at, _ in requests.answers])
        claimed.update(
            (one["message"], one["table"], one["target_topic"])
            for one in course
            if one["result"] == "forwarded"
        )
    found: Counter[tuple[str, str, str]] = Counter()
    for record in read_committed(servers, list(TARGETS)):
        headers = {name: value.decode() for name, value in record.headers if value}
        found[headers["redrive.id"], headers["redrive.table"], record.topic] += 1
    wrong += [f"put {n} times too often: {one}" for one, n in (found - claimed).items()]
    wrong += [f"missing {n} times: {one}" for one, n in (claimed - found).items()]
    every = [one for course in courses.values() for one in course]
    wrong += _answers(every, requests.answers)
    decided = {TABLES[one].name if one in TABLES else one: n for one, n in by_table.items()}
    return {"dead letters": sent, "outcomes": decided, "wrong": len(wrong), "such as": wrong[:5]}


def _course(
    origin: str, reason: int, course: Sequence[dict[str, Any]], changes: Sequence[float]
) -> list[str]:
    """What is wrong with the outcomes of one dead letter, given when the table changed."""
    wrong = []
    if [one["result"] for one in course].count("forwarded") != 1:
        wrong.append(f"{origin} was not placed once: {[one['result'] for one in course]}")
    if len({one["outcome"] for one in course}) != len(course):
        wrong.append(f"{origin} has an outcome twice")
    attempts = {"": 0}
    for before, one in zip([None, *course], course, strict=False):
        table = TABLES.get(one["table"])
        if table is None:
            wrong.append(f"{origin} was decided by an unknown table {one['table']}")
            continue
        # A table may also come back before the one between has looked at the message.
        changed = before is None or any(before["time"] < 1000 * at <= one["time"] for at in changes)
        if before is None or before["table"] != one["table"] or (changed and one["attempt"] == 1):
            attempts = {one["table"]: 0}
        wrong += _outcome(origin, reason, table, one, attempts)
    return wrong


def _outcome(
    origin: str, reason: int, table: Table, one: dict[str, Any], attempts: dict[str, int]
) -> list[str]:
    """What is wrong with one outcome, given the whole table that it names."""
    action, target = table.verdicts[reason]
    if action == "IGNORE":
        expected: tuple[Any, ...] = ("remains", table.line(reason), "IGNORE", 0)
    else:
        number = attempts[one["table"]] = attempts[one["table"]] + 1
        is_last = number == 2
        result = {"FWD": "forwarded", "RETRY": "remains" if is_last else "parked"}[action]
        expected = (result, table.line(reason), action, number)
    told = (one["result"], one["rule_line"], one["action"], one["attempt"])
    if told != expected:
        return [f"{origin} under {table.name}: {told} instead of {expected}"]
    if action == "FWD" and one["target_topic"] != target:
        return [f"{origin} under {table.name} went to {one['target_topic']}"]
    return []


def _answers(every: Sequence[dict[str, Any]], answers: Sequence[tuple[float, str]]) -> list[str]:
    """Outcomes by a table that had been replaced when they were decided."""
    wrong = []
    ends = [at for at, _ in answers[1:]] + [float("inf")]
    for one in every:
        moment = one["time"] / 1000
        holding = [
            table for (at, table), end in zip(answers, ends, strict=True) if at <= moment < end
        ]
        following = [table for at, table in answers if at > moment][:1]
        if holding and one["table"] not in (*holding, *following):
            wrong.append(f"{one['origin']} was decided by {one['table']} after {holding[0]}")
    return wrong


def measure(servers: str, directory: Path, count: int, rate: float, seed: int) -> dict[str, Any]:
    """All of it."""
    create(
        servers,
        NewTopic(QUEUE, PARTITIONS, 1),
        NewTopic(OUTCOMES, 4, 1),
        *(NewTopic(target, 2, 1) for target in TARGETS),
    )
    folder = directory / APPLICATION
    load = Load(servers, rate, seed)
    with running_job(servers, folder, {QUEUE: EVEN.text}) as process:
        watch = Watch(servers)
        load.start()
        deadline = time.monotonic() + 2 * PATIENCE
        while EVEN.hash not in watch.first:
            if process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit((folder / "log").read_text()[-3000:])
            time.sleep(0.1)
        time.sleep(PAUSE)
        requests = alternate(folder, watch, count, seed)
        load.stop()
        settle(folder, watch, load.sent, requests)
        watch.stop()
    seconds = requests.seconds
    cut = statistics.quantiles(seconds, n=100, method="inclusive")
    return {
        "restarts": len(seconds),
        "refused": requests.refused,
        "request to first batch, ms": {
            "p50": round(cut[49] * 1000),
            "p95": round(cut[94] * 1000),
            "max": round(max(seconds) * 1000),
            "goal": 1000,
        },
        **audit(servers, folder, load.sent, requests),
    }


def main() -> int:
    """The command line; 1 if anything is wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--restarts", type=int, default=50)
    parser.add_argument("--rate", type=float, default=1_000)
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000))
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}", file=sys.stderr)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the job and the broker end too
    with (
        tempfile.TemporaryDirectory(prefix="redrive-bench-") as folder,
        EmbeddedBroker(Path(folder) / "broker") as broker,
    ):
        report = measure(
            broker.bootstrap_servers,
            Path(folder),
            arguments.restarts,
            arguments.rate,
            arguments.seed,
        )
    print(json.dumps(report) if arguments.json else json.dumps(report, indent=2))
    return 1 if report["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
