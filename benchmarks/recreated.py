"""A dead-letter topic that is deleted and recreated under load, each of its records counted.

    python -m benchmarks.recreated [--rounds 30] [--rate 1000] [--seed N]

A thousand dead letters a second come to a topic. Round by round it is deleted with what the job has
not read, and recreated with fewer, as many or more partitions; 2,000 dead letters are there at
once, so its offsets soon pass those of the topic before. One dead letter in eleven waits for an
attempt meanwhile. A quarter of the rounds runs with each emitter and each ``on_data_loss``; where a
handler stops, an operator resumes it. In the end kafka-python reads every target:

    - no dead letter is there twice;
    - one that is nowhere was on a topic that was deleted, behind all that were read of its
      partition, and the log names the partition, with the right offset if it has one: the broker
      forgets positions on deleted topics;
    - all of the last topic are there, and so are all that had an outcome.
"""

from __future__ import annotations

import itertools
import json
import random
import re
import statistics
import sys
import threading
import time
from collections import Counter, defaultdict
from contextlib import closing, suppress
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, NamedTuple

from benchmarks.clients import Sent, listener, read_committed, send
from benchmarks.engine import CrashProgram, Report, Scene, main, option, say
from benchmarks.load import DEAD_LETTERS, LAST, OPEN, OUTCOMES, SMALL
from confluent_kafka import KafkaError, Message, Producer
from kafka import KafkaConsumer, TopicPartition
from kafka.admin import KafkaAdminClient, NewTopic
from kafka.errors import TopicAlreadyExistsError

from redrive.configuration import DataLoss, JobConfiguration
from redrive.engine.commands import ResumeFrom
from redrive.errors import UsageError
from redrive.messages import DeadLetterHeader, encode_header
from redrive.operations.handlers import read_topics, resume
from redrive.settings import read_settings

OTHER: Final = "other.dlq"
"""A topic that stays: its handler keeps a job running whose only other handler is stopped."""
AT_ONCE: Final = 2_000
"""Dead letters that a new topic has before the steady load begins."""
MOST: Final = 30_000
"""Dead letters of one topic at most, so that a busy machine has no backlog."""
SIZES: Final = {"fewer": (-2, -1), "as many": (0,), "more": (1, 2)}
"""By how many the partitions may change, in the order of the rounds."""
_STILL: Final = 20.0
"""Seconds without anything new on targets and outcomes after which everything is at its end: many
times the delay of an attempt."""
_GONE: Final = re.compile(
    rf"topic {DEAD_LETTERS} was deleted and recreated: the old {DEAD_LETTERS}:(\d+) is gone"
    r"(?:, which the job had read up to offset (\d+))?"
)


class Place(NamedTuple):
    """Where a dead letter was."""

    topic: int
    """The number of the topic; the first is 1."""
    partition: int
    offset: int


@dataclass
class Topic:
    """The dead-letter topic as it is now, under load."""

    servers: str
    rate: float
    chance: random.Random
    partitions: int = 3
    number: int = 1
    """How many of its name there were."""
    count: int = 0
    """How many dead letters were sent to all of them."""
    places: dict[int, Place] = field(default_factory=dict)
    """Where each acknowledged dead letter is or was, by its number."""
    refused: list[str] = field(default_factory=list)
    first: int = 0
    """The first of the present topic's dead letters."""
    _ended: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def load(self, at_once: int = 0) -> None:
        """Sends dead letters: some at once, then at the steady rate."""
        self._ended = threading.Event()
        producer = Producer(
            {
                "bootstrap.servers": self.servers,
                "enable.idempotence": True,
                "linger.ms": 5,
                "log_level": 0,
            }
        )
        self._send(producer, at_once)
        self._thread = threading.Thread(target=self._run, args=(producer,), daemon=True)
        self._thread.start()

    def pause(self) -> None:
        """Ends the load; each of its dead letters is on the topic."""
        if self._thread is not None:
            self._ended.set()
            self._thread.join()

    def recreate(self, partitions: int) -> None:
        """Deletes the topic with what the job has not read, and creates it."""
        with closing(KafkaAdminClient(bootstrap_servers=self.servers)) as admin:
            admin.delete_topics([DEAD_LETTERS])
            while True:
                try:
                    admin.create_topics([NewTopic(DEAD_LETTERS, partitions, 1)])
                except TopicAlreadyExistsError:  # the deletion is not complete
                    time.sleep(0.02)
                else:
                    break
        self.partitions, self.number, self.first = partitions, self.number + 1, self.count

    def _run(self, producer: Producer) -> None:
        before, due = time.monotonic(), 0.0
        while not self._ended.wait(0.02):
            now = time.monotonic()
            due, before = min(due + (now - before) * self.rate, self.rate), now
            self._send(producer, min(int(due), self.first + MOST - self.count))
            due -= int(due)
        if left := producer.flush(300):
            self.refused.append(f"{left} were not acknowledged")

    def _send(self, producer: Producer, count: int) -> None:
        for _ in range(count):
            number, self.count = self.count, self.count + 1
            queue, size = (SMALL, 3_000) if number % 11 == 0 else (OPEN, 60)
            header = encode_header(DeadLetterHeader(reason=2053, dest_q_name=queue, format="MQSTR"))
            value = header + b"%08d" % number + self.chance.randbytes(size)
            sent = Sent(DEAD_LETTERS, number % self.partitions, value)
            send(producer, sent, on_delivery=self._delivered)
        producer.poll(0)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.refused.append(str(error))
            return
        number = _number((message.value() or b"")[172:])
        self.places[number] = Place(self.number, message.partition() or 0, message.offset() or 0)


@dataclass
class Round:
    """One topic that was deleted."""

    kind: str
    how: str
    """The emitter, and what the job does when records are lost."""
    partitions: int
    """Of the new topic."""
    logged: int
    """Characters of the log when the topic was deleted."""
    seconds: float = 0.0
    """Until the first put of the new topic's."""
    gone: int = 0
    """Dead letters that were never read."""


@dataclass(kw_only=True)
class Recreated(CrashProgram):
    """A dead-letter topic that is recreated, and one that stays."""

    rounds: int = option(30, "how often to recreate the topic")
    rate: float = option(1_000.0, "dead letters a second")

    emitters: ClassVar = ("driver", "lanes")
    interval = 2.0
    table = (
        "RETRYINT(2)\nREASON(MQRC_Q_FULL) ACTION(RETRY) RETRY(3)\n"
        f"ACTION(FWD) FWDQ('{LAST}') HEADER(NO)\n"
    )
    targets = (OPEN, LAST)
    loss = DataLoss.CONTINUE

    def topics(self) -> list[NewTopic]:
        """Two dead-letter topics, the outcomes, and the queues of the table."""
        names = {DEAD_LETTERS, OUTCOMES, OPEN, SMALL, LAST}
        kept = [topic for topic in super().topics() if topic.name in names - {DEAD_LETTERS}]
        return [*kept, self.topic(DEAD_LETTERS, 3), self.topic(OTHER, 1)]

    def handled(self, folder: Any) -> str:  # noqa: ANN401 - a path
        """Two handlers with one table."""
        more = f'[[handlers]]\nqueue = "{OTHER}"\nrules = "crash.rul"\nname = "other"\n'
        return super().handled(folder) + more

    def more_of_job(self, scene: Scene) -> str:
        """What to do when records are lost."""
        del scene
        return f'on_data_loss = "{self.loss.value}"\n'

    def run(self) -> Report:
        """Recreates the topic, lets everything come to its end, and counts."""
        with self.scene() as scene:
            self.topic_now = topic = Topic(scene.servers, self.rate, random.Random(self.seed))
            self.done: list[Round] = []
            chance, kinds = scene.chance, itertools.cycle(SIZES)
            ways = [(emitter, loss) for loss in DataLoss for emitter in self.emitters]
            ends = [round(self.rounds * (part + 1) / len(ways)) for part in range(len(ways))]
            for (emitter, self.loss), end in zip(ways, ends, strict=True):
                self.configure(scene, emitter)
                self._start(scene)
                topic.load()
                scene.await_progress()
                while len(self.done) < end:
                    self._recreate(scene, next(kinds), f"{emitter}, {self.loss.value}", chance)
                time.sleep(2)
                topic.pause()
                if end == self.rounds:
                    self._await_still(scene)
                self._stop(scene)
            scene.report.endings = scene.job.endings
            self._count(scene)
            scene.report.figures = self.figures(scene)
        return scene.report

    def figures(self, scene: Scene) -> dict[str, Any]:
        """The results of the rounds."""
        del scene
        kinds = {
            kind: [finished for finished in self.done if finished.kind == kind] for kind in SIZES
        }
        seconds = [finished.seconds for finished in self.done]
        return {
            "recreated": {kind: len(rounds) for kind, rounds in kinds.items()},
            "never read": {
                kind: sum(finished.gone for finished in rounds) for kind, rounds in kinds.items()
            },
            "until the first put of the new topic, s": {
                "median": round(statistics.median(seconds), 1), "longest": round(max(seconds), 1),
            },
        }  # fmt: skip

    def _recreate(self, scene: Scene, kind: str, how: str, chance: random.Random) -> None:
        topic, job = self.topic_now, read_settings(scene.job.settings).job
        time.sleep(chance.uniform(0, 4))
        change = [step for step in SIZES[kind] if topic.partitions + step > 0]
        partitions = topic.partitions + chance.choice(change or [0])
        topic.pause()
        recreation = Round(kind, how, partitions, len(scene.job.log.read_text()))
        began = time.monotonic()
        puts = listener(scene.servers, [OPEN])
        topic.recreate(partitions)
        topic.load(AT_ONCE)
        with closing(puts):
            while not any(
                message.error() is None and _number(message.value() or b"") >= topic.first
                for message in puts.consume(500, timeout=0.2)
            ):
                if self.loss is DataLoss.STOP:
                    _resume(job)
                if not scene.job.is_running or time.monotonic() > began + self.patience:
                    raise SystemExit(f"nothing was put; {scene.job.last_lines()}")
        recreation.seconds = time.monotonic() - began
        self.done.append(recreation)
        say(
            f"round {len(self.done)}: {how}, {kind} partitions ({partitions}), first put after"
            f" {recreation.seconds:.1f} s"
        )

    def _start(self, scene: Scene) -> None:
        """Starts the job, and waits until it reads: no backlog is to be there first."""
        sentence, log = "handling the dead letters", scene.job.log
        before = log.read_text().count(sentence) if log.exists() else 0
        scene.job.start()
        deadline = time.monotonic() + self.patience
        while log.read_text().count(sentence) == before:
            if not scene.job.is_running or time.monotonic() > deadline:
                raise SystemExit(f"the job did not start; {scene.job.last_lines()}")
            time.sleep(0.5)

    def _stop(self, scene: Scene) -> None:
        if code := scene.job.stop():
            scene.report.findings.wrong.append(f"the job ended with exit code {code}")

    def _await_still(self, scene: Scene) -> None:
        """Waits until nothing new comes to targets and outcomes."""
        with closing(KafkaConsumer(bootstrap_servers=scene.servers)) as consumer:
            lanes = [
                TopicPartition(name, number)
                for name in (OPEN, LAST, OUTCOMES)
                for number in consumer.partitions_for_topic(name) or ()
            ]
            before, since = consumer.end_offsets(lanes), time.monotonic()
            while time.monotonic() < since + _STILL:
                time.sleep(1)
                if (now := consumer.end_offsets(lanes)) != before:
                    before, since = now, time.monotonic()

    def _count(self, scene: Scene) -> None:
        """Compares what was acknowledged with the targets, the outcomes and the log."""
        findings, places = scene.report.findings, self.topic_now.places
        findings.inputs, findings.wrong[:0] = len(places), self.topic_now.refused[:3]
        puts: Counter[int] = Counter()
        origins = set()
        for record in read_committed(scene.servers, [OPEN, LAST]):
            puts[_number(record.value)] += 1
            origins.add(dict(record.headers)["redrive.id"].decode())
        findings.puts = puts.total()
        findings.duplicated = [
            f"{places.get(n)}: {count} puts" for n, count in puts.items() if count > 1
        ]
        findings.wrong += [f"{n} was put and never sent" for n in puts.keys() - places.keys()]
        for record in read_committed(scene.servers, [OUTCOMES]):
            outcome = json.loads(record.value)
            findings.results[outcome["result"]] += 1
            if outcome["origin"] not in origins:
                origins.add(outcome["origin"])
                findings.lost.append(f"{outcome['origin']} has an outcome and no put")
        log = scene.job.log.read_text()
        lanes: defaultdict[tuple[int, int], list[tuple[int, bool]]] = defaultdict(list)
        for number, place in places.items():
            lanes[place.topic, place.partition].append((place.offset, number in puts))
        for (topic, partition), course in lanes.items():
            gone = sorted(offset for offset, is_put in course if not is_put)
            if not gone:
                continue
            lane = f"partition {partition} of topic {topic}"
            if topic > len(self.done):
                findings.lost.append(f"{lane}: {len(gone)}, such as offset {gone[0]}")
                continue
            after = self.done[topic].logged if topic < len(self.done) else None
            lost = dict(_GONE.findall(log[self.done[topic - 1].logged : after]))
            read = 1 + max((offset for offset, is_put in course if is_put), default=-1)
            if str(partition) not in lost:
                findings.lost.append(f"{lane}: {len(gone)} without a word, the first at {gone[0]}")
            elif gone[0] < read or lost[str(partition)] not in {"", f"{read}"}:
                findings.lost.append(
                    f"{lane}: offset {gone[0]} is gone, {read - 1} was put, and the log says that"
                    f" it was read to {lost[str(partition)] or 'an unknown offset'}"
                )
            self.done[topic - 1].gone += len(gone)
        findings.results["never read"] = sum(finished.gone for finished in self.done)


def _resume(job: JobConfiguration) -> None:
    """Resumes the handler of the topic if it is stopped."""
    stopped = any(topic.topic == DEAD_LETTERS and topic.lost for topic in read_topics(job))
    with suppress(UsageError):  # the answer before this one became visible meanwhile
        if stopped:
            resume(job, DEAD_LETTERS, ResumeFrom.OLDEST, "it was meant")


def _number(body: bytes) -> int:
    return int(body[:8])


if __name__ == "__main__":
    sys.exit(main(Recreated, __doc__))
