"""Kill -9 while consumers fail under a table in DIALECT(KAFKA): count rounds of put and processing.

Events come in on two topics. Their consumer fails on each of them once, a few times or always, and
writes dead letters as Kafka Connect, Spring and Kafka Streams do: with or without the headers of
the record, with the time of the failure or that of the event. One program drops the headers, and no
setting says so. The job is killed as by ``benchmarks.crash``. Counted is every delivery of every
event:

    - an event that recovers is put as often as it failed, any other exactly as RETRY says;
    - no put comes before its delay since the failure is over;
    - what never recovers is put once more, by the next rule;
    - how late each put is, kills included.

With ``--ordered`` the table has ORDER(KEY), and the consumer commits what it has processed. Then no
message of a key is delivered once a later one was, in the order of the dead-letter topic: neither
to the consumer, across topics, nor to another client that reads each topic in the end.

Run it as ``python -m benchmarks.rounds --rounds 20`` (``make crash``); a printed seed repeats it.
"""

from __future__ import annotations

import contextlib
import random
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

from benchmarks.clients import Pairs, Sent
from benchmarks.crash import Crash
from benchmarks.engine import Scene, main, option
from benchmarks.job import percentiles
from benchmarks.load import DEAD_LETTERS, LAST, OUTCOMES, PARTITIONS
from benchmarks.reconciliation import Findings
from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, Producer, TopicPartition
from kafka import KafkaConsumer
from kafka import TopicPartition as Place
from kafka.admin import NewTopic

from redrive.messages import own_headers as own
from redrive.rules import Rule, RulesTable, parse
from redrive.rules.backoff import jitter_of

GROWING, STEADY = "growing", "steady"
"""Topics that the consumer reads, by the delays of what fails on them."""
TABLE: Final = f"""* Rounds with growing and with steady delays, then another queue.
DIALECT(KAFKA) RETRYINT(2)
TOPIC({GROWING}) ACTION(RETRY) RETRY(4) BACKOFF(1s,2,4s)
TOPIC({STEADY}) ACTION(RETRY) RETRY(3)
ACTION(FWD) FWDT('{LAST}')
"""
_ORDERED: Final = TABLE.replace("RETRYINT", "ORDER(KEY) RETRYINT")
FAILURES: Final = (1, 2, 3, 99)
"""How often the processing of an event fails; the last means always."""
COPIES: Final = ("connect", "streams")
"""Kinds of dead letters that have the time of the event, not that of the failure."""
KINDS: Final = ("spring", "bare", *COPIES)
GROUPS: Final = {"spring": "bench-failing", "bare": "bench-bare"}
"""By kind: programs of one scheme, topic and group count as one, and these differ."""
KEYS: Final = {False: 9, True: 97}
"""How many keys there are, without and with ORDER(KEY)."""
_TOPICS: Final = {GROWING: 3, STEADY: 2, LAST: 2}
_QUIET: Final = 15.0
"""Seconds in which a put that is one too many would come."""


@dataclass(slots=True)
class Course:
    """What the consumer saw of one event; times in milliseconds."""

    puts: list[tuple[int, str]] = field(default_factory=list)
    """Time of each put after the first, which was the load's, and the identity that it names."""
    failures: list[int] = field(default_factory=list)
    """What is known to the job of each failure, or will be as it reads the dead letter."""
    forwarded: int = 0
    """How often it came to the queue of the last rule."""


@dataclass(slots=True)
class KeyOrder:
    """Counts deliveries of a key that come after one of a later message of that key."""

    seen: dict[tuple[object, ...], int] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)

    def take(self, identity: str, *of: object) -> None:
        """One delivery of the message with an identity, in the order of what it is one of."""
        place = int(identity.rsplit(":", 1)[1])
        last = self.seen.setdefault(of, place)
        if place < last:
            self.wrong.append(f"{identity} came after {last}: {of}")
        self.seen[of] = max(place, last)


class FailingConsumer:
    """Reads events and the last queue, and writes a dead letter for each failure; each once.

    Args:
        servers: The broker.
        commits: Whether it commits what it has processed.
    """

    def __init__(self, servers: str, *, commits: bool) -> None:
        self._commits = commits
        self.order = KeyOrder()
        """Of all rounds, whichever topic they went to."""
        self.courses: defaultdict[int, Course] = defaultdict(Course)
        """By number of the event."""
        self.events: dict[int, tuple[str, int, str]] = {}
        """Topic, failures and kind of each event."""
        self.taken = 0
        """Records that were read."""
        self._consumer = Consumer(
            {
                "bootstrap.servers": servers, "group.id": GROUPS["spring"], "log_level": 0,
                "isolation.level": "read_committed", "enable.auto.commit": False,
            }
        )  # fmt: skip
        self._consumer.assign(
            [
                TopicPartition(topic, number, OFFSET_BEGINNING)
                for topic, partitions in _TOPICS.items()
                for number in range(partitions)
            ]
        )
        self._producer = Producer(
            {
                "bootstrap.servers": servers, "enable.idempotence": True, "linger.ms": 5,
                "log_level": 0,
            }
        )  # fmt: skip
        self._stopping = threading.Event()
        self._threads = ThreadPoolExecutor(1)
        self._running = self._threads.submit(self._run)

    def check(self) -> None:
        """Raises what ended the consumer, if something did."""
        if self._running.done():
            self._running.result()

    def stop(self) -> None:
        """Ends it; its courses stay."""
        self._stopping.set()
        self._threads.shutdown()
        self._running.result()

    def _run(self) -> None:
        while not self._stopping.is_set():
            taken = self._consumer.consume(500, 0.1)
            for message in taken:
                assert message.error() is None, message.error()
                self._take(message)
            self._producer.poll(0)
            if self._commits and taken:
                self._producer.flush()
                self._consumer.commit(asynchronous=False)
        self._producer.flush()
        self._consumer.close()

    def _take(self, message: Message) -> None:
        self.taken += 1
        number, failures, kind = _parts(message.value() or b"")
        course, topic = self.courses[number], message.topic() or ""
        if topic == LAST:
            course.forwarded += 1
            return
        if number in self.events:
            headers = own.read_own(_headers(message))
            course.puts.append((headers.rounds.put_at if headers.rounds else 0, headers.identity))
            self.order.take(headers.identity, message.key())
        self.events[number] = topic, failures, kind
        if len(course.failures) < failures:
            is_copied = kind in COPIES
            now, before = time.time_ns() // 1_000_000, message.timestamp()[1]
            # A program that copies the time says too early a one of the first failure. Of later
            # ones it says a time before the put, and the job counts from when it reads that.
            course.failures.append(before if is_copied and not course.failures else now)
            self._producer.produce(
                DEAD_LETTERS,
                message.value(),
                message.key(),
                partition=_home(message.key() or b""),
                headers=dead_letter(message, kind),
                timestamp=before if is_copied else now,
            )


@dataclass(kw_only=True)
class Rounds(Crash):
    """Events, and a consumer that fails."""

    rate: float = option(20.0, "events a second")
    commands: int = option(0, "operators' commands in each round")
    calm: float = option(60.0, "seconds before the first fault, in which the load comes already")
    ordered: bool = option(default=False, text="under ORDER(KEY), with a consumer that commits")
    keys: int = option(0, "how many keys there are; by default 9, with --ordered 97")

    table = TABLE
    # A clock that is set ahead makes failures look old, which nobody can tell from a backlog.
    takes = ("kill driver", "kill java", "kill job", "kill worker", "lose directory")

    def __post_init__(self) -> None:
        """Chooses the number of keys."""
        super().__post_init__()
        self.keys = self.keys or KEYS[self.ordered]

    def topics(self) -> list[NewTopic]:
        """What exists from the beginning."""
        ours = {**_TOPICS, DEAD_LETTERS: PARTITIONS, OUTCOMES: 4}
        return [self.topic(name, partitions) for name, partitions in ours.items()]

    def make(self, number: int, chance: random.Random) -> Sent:
        """An event that will fail so often."""
        topic, place = chance.choice((GROWING, STEADY)), number % self.keys
        kind = "spring" if self.ordered else chance.choice(KINDS)
        value = b"%d %d %s" % (number, chance.choice(FAILURES), kind.encode())
        return Sent(topic, place % _TOPICS[topic], value, key=b"k%d" % place)

    def prepare(self, scene: Scene) -> None:
        """Starts the consumer."""
        if self.ordered:
            scene.table = _ORDERED
        self.consumer = FailingConsumer(scene.servers, commits=self.ordered)

    def disturb(self, scene: Scene) -> None:
        """Begins when the job runs, and measures for a while before faults happen."""
        scene.load.rate = 0.0
        scene.load.add(1)
        scene.await_progress()
        scene.load.rate = self.rate
        began = time.time()
        time.sleep(self.calm)
        self.calm_time = range(int(1000 * began), int(1000 * time.time()))
        super().disturb(scene)

    def await_end(self, scene: Scene) -> None:
        """Waits until each event has come to its end, or nothing comes any more; then a while."""
        deadline, taken = time.monotonic() + self.patience, -1
        while self._left(scene.load.acknowledged) and time.monotonic() < deadline:
            self.consumer.check()
            if self.consumer.taken > taken:
                deadline, taken = time.monotonic() + self.patience, self.consumer.taken
            time.sleep(1)
        time.sleep(_QUIET)

    def figures(self, scene: Scene) -> dict[str, Any]:
        """How late puts were, in milliseconds: those due before the first fault, and all."""
        every = [
            seconds_of_round
            for number in list(self.consumer.events)
            for seconds_of_round in self._times(number)
        ]
        calm = [put - due for put, due in every if int(due) in self.calm_time]
        late = {"before the first fault": calm, "all": [put - due for put, due in every]}
        figures = {
            f"put after it was due, {when}": percentiles(them) for when, them in late.items()
        }
        return {**figures, "outcomes": scene.outcome_count()}

    def audit(self, scene: Scene) -> Findings:
        """Compares what was delivered with what should have been."""
        self.consumer.stop()
        findings = Findings(inputs=scene.load.acknowledged)
        if missing := findings.inputs - len(self.consumer.events):
            findings.lost.append(f"{missing} events never came")
        for number in self.consumer.events:
            self._check(number, findings)
        if self.ordered:
            findings.disordered += [*self.consumer.order.wrong, *disorder(scene.servers)]
        return findings

    def _check(self, number: int, findings: Findings) -> None:
        """Compares the deliveries of one event."""
        event, course = self.consumer.events[number], self.consumer.courses[number]
        puts, forwards = self._expected(number)
        findings.puts += len(course.puts) + course.forwarded
        findings.results["forwarded" if forwards else "recovered"] += 1
        shown = f"{number} {event}: {course}"
        if len(course.puts) < puts or course.forwarded < forwards:
            findings.lost.append(shown)
        if len(course.puts) > puts or course.forwarded > forwards:
            findings.duplicated.append(shown)
        if len({identity for _, identity in course.puts}) > 1:
            findings.wrong.append(f"it has several identities: {shown}")
        if any(put < due for put, due in self._times(number)):
            findings.early.append(shown)

    def _expected(self, number: int) -> tuple[int, int]:
        """How often an event is put back, and by the last rule."""
        topic, failures, _ = self.consumer.events[number]
        retry = self._rules[topic].retry
        return min(failures, retry), int(failures > retry)

    def _left(self, events: int) -> bool:
        """Whether any of so many events has not come to its end."""
        courses = dict(self.consumer.courses)
        return len(courses) < events or any(
            (len(course.puts), course.forwarded) < self._expected(number)
            for number, course in courses.items()
        )

    def _times(self, number: int) -> Sequence[tuple[int, float]]:
        """When each put of an event was made and when it was due, in milliseconds."""
        topic, course = self.consumer.events[number][0], self.consumer.courses[number]
        rule, interval = self._rules[topic], self._table.control.retry_interval
        waits, times = self._table.backoff_partitions, []
        pairs = zip(course.failures, course.puts, strict=False)
        for tried, (failed, (put_at, identity)) in enumerate(pairs):
            seconds: float = rule.wait_before(tried, interval)
            if rule.backoff is not None:
                jitter = jitter_of(identity, tried)
                home = _home(b"k%d" % (number % self.keys))
                place = waits.partition(home, int(seconds), jitter)
                seconds = waits.seconds(place)
            times.append((put_at, failed + 1000 * seconds))
        return times

    @cached_property
    def _table(self) -> RulesTable:
        return parse(_ORDERED if self.ordered else self.table).required()

    @cached_property
    def _rules(self) -> Mapping[str, Rule]:
        """The rules that retry, by topic."""
        return dict(zip((GROWING, STEADY), self._table.rules, strict=False))


def disorder(servers: str) -> list[str]:
    """What came after a later message of its key, topic by topic, as kafka-python reads them.

    Args:
        servers: The broker.
    """
    order = KeyOrder()
    with contextlib.closing(
        KafkaConsumer(
            bootstrap_servers=servers,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            consumer_timeout_ms=10_000,
        )
    ) as consumer:
        consumer.assign(
            [
                Place(name, partition)
                for name, count in _TOPICS.items()
                for partition in range(count)
            ]
        )
        for record in consumer:
            headers = own.read_own(list(record.headers))
            if headers.identity:
                order.take(headers.identity, record.key, record.topic)
    return order.wrong


def _home(key: bytes) -> int:
    """The partition of the dead letters of a key."""
    return int(key[1:]) % PARTITIONS


def _headers(message: Message) -> list[Any]:
    return list(message.headers() or [])


def dead_letter(message: Message, kind: str) -> Pairs:
    """The headers of a dead letter.

    Args:
        message: What could not be processed.
        kind: One of ``KINDS``.
    """
    topic, partition, offset = message.topic() or "", message.partition() or 0, message.offset()
    before = _headers(message)
    place = {"topic": topic, "partition": str(partition), "offset": str(offset)}
    match kind:
        case "spring" | "bare":
            before = before if kind == "spring" else []
            where = {
                "topic": topic.encode(),
                "partition": partition.to_bytes(4, "big"),
                "offset": (offset or 0).to_bytes(8, "big"),
            }
            added: Pairs = [(f"kafka_dlt-original-{name}", at) for name, at in where.items()]
            added.append(("kafka_dlt-original-consumer-group", GROUPS[kind].encode()))
            return [*before, *added, ("kafka_dlt-exception-fqcn", b"org.acme.WriteException")]
        case "connect":
            added = [(f"__connect.errors.{name}", at) for name, at in place.items()]
            return [*before, *added, ("__connect.errors.exception.class.name", "org.acme.Failed")]
    added = [(f"__streams.errors.{name}", at) for name, at in place.items()]
    return [("__streams.errors.exception", "org.acme.Failed: it failed"), *added]


def _parts(value: bytes) -> tuple[int, int, str]:
    """Number, failures and kind of an event."""
    number, failures, kind = value.decode().split()
    return int(number), int(failures), kind


if __name__ == "__main__":
    sys.exit(main(Rounds, __doc__))
