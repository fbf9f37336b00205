"""Where the time of a dead letter goes: one emitter, stage by stage, without Spark.

    python -m benchmarks.emission [--records 100000] [--json]

Each stage does all that the stages before it do, on the records of the throughput benchmark and an
embedded broker, so what a stage adds is its own cost. Microseconds of processor time for each
record: of the thread that runs Python, and of the process with the client's own threads.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable
from contextlib import closing
from pathlib import Path
from typing import TypeAlias

from benchmarks.job import PARTITIONS, TARGETS, configuration_of, create, fill
from confluent_kafka import Message
from kafka.admin import NewTopic

from redrive.broker import EmbeddedBroker
from redrive.decisions.attempts import Attempts
from redrive.decisions.processor import LaneRecords
from redrive.kafka.consumer import kept_consumer, read_ranges, records_of
from redrive.kafka.queues import ClusterQueues
from redrive.messages import DeadLetterDecoder, OffsetRange, TopicPartition
from redrive.streaming.emission import Emission
from redrive.streaming.factory import RoleMaker
from redrive.streaming.lanes import driver_id

Messages: TypeAlias = Generator[tuple[OffsetRange, list[Message]], None, None]
Stage: TypeAlias = Callable[[OffsetRange], object]


def exhaust(items: Iterable[object]) -> None:
    """Takes everything and keeps nothing."""
    deque(items, maxlen=0)


class Stages:
    """The stages, each with all that comes before it."""

    def __init__(self, servers: str, directory: str) -> None:
        """Open the clients.

        Args:
            servers: The broker.
            directory: For the job's files.
        """
        self._configuration = configuration_of(servers, directory, "stages", "driver")
        self._queues = ClusterQueues(self._configuration.connection)
        self._roles = RoleMaker(self._configuration, self._queues).roles()
        self._decoder = DeadLetterDecoder()
        self._emission = Emission(self._configuration, driver_id(self._configuration))
        self._now = int(time.time() * 1000)

    def all(self) -> dict[str, Stage]:
        """Name of each stage, and what it does with a range."""
        return {
            "messages from the broker": self.messages,
            "their keys, values, headers": self.records,
            "decoding": self.decoded,
            "decisions and what to write": self.outputs,
            "produce, flush, commit": self.emitted,
        }

    def messages(self, asked: OffsetRange) -> None:
        """Reads a range and looks at nothing."""
        with closing(self._read(asked)) as messages:
            exhaust(messages)

    def records(self, asked: OffsetRange) -> None:
        """Reads a range as the job reads it."""
        with closing(self._read(asked)) as messages:
            exhaust(self._parts(messages))

    def decoded(self, asked: OffsetRange) -> None:
        """Reads a range and finds what kind of dead letter each record is."""
        with closing(self._read(asked)) as messages:
            exhaust(self._decoder.decode(part.records) for part in self._parts(messages))

    def outputs(self, asked: OffsetRange) -> None:
        """Makes everything that the job writes for a range, and writes nothing."""
        with closing(self._read(asked)) as messages:
            attempts = Attempts(
                self._parts(messages),
                {TopicPartition(asked.topic, asked.partition): asked.end},
                self._decoder,
                self._queues,
                outcomes_topic=self._configuration.outcomes_topic,
                now=self._now,
            )
            exhaust(attempts.outputs())

    def emitted(self, asked: OffsetRange) -> None:
        """Emits a range in a transaction, as the job does."""
        self._emission.emit([asked], self._now)

    def close(self) -> None:
        """Closes the clients."""
        self._emission.close()

    def _read(self, asked: OffsetRange) -> Messages:
        client = self._configuration.connection.librdkafka()
        return read_ranges(kept_consumer(client), [asked])

    def _parts(self, messages: Messages) -> Iterable[LaneRecords]:
        for asked, found in messages:
            handler, role = self._roles[asked.topic]
            lane = TopicPartition(asked.topic, asked.partition)
            yield LaneRecords(lane, handler, role, records_of(found))


def measured(stage: Stage, partitions: Iterable[int], count: int) -> tuple[float, float]:
    """Microseconds a record of the thread and of the process."""
    thread, process = time.thread_time(), time.process_time()
    ranges = [OffsetRange("backlog", number, 0, count) for number in partitions]
    for asked in ranges:
        stage(asked)
    thread, process = time.thread_time() - thread, time.process_time() - process
    records = count * len(ranges)
    return thread / records * 1e6, process / records * 1e6


def measure(records: int) -> dict[str, dict[str, float]]:
    """What each stage adds; the second half of the partitions counts, the first one warms up."""
    count = records // PARTITIONS
    with tempfile.TemporaryDirectory() as directory, EmbeddedBroker(Path(directory)) as broker:
        servers = broker.bootstrap_servers
        topics = [NewTopic(target, 2, 1) for target in TARGETS]
        outcomes = NewTopic("redrive-stages-outcomes", PARTITIONS, 1)
        create(servers, NewTopic("backlog", PARTITIONS, 1), outcomes, *topics)
        fill(servers, "backlog", records)
        stages = Stages(servers, f"{directory}/job")
        figures = {}
        for name, stage in stages.all().items():
            measured(stage, range(PARTITIONS // 2), count)
            figures[name] = measured(stage, range(PARTITIONS // 2, PARTITIONS), count)
        stages.close()
    added, before = {}, (0.0, 0.0)
    for name, (thread, process) in figures.items():
        added[name] = {
            "thread": round(thread - before[0], 2),
            "process": round(process - before[1], 2),
        }
        before = thread, process
    added["all"] = {"thread": round(before[0], 2), "process": round(before[1], 2)}
    return added


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--json", action="store_true", help="for programs")
    arguments = parser.parse_args()
    figures = measure(arguments.records)
    if arguments.json:
        print(json.dumps(figures))
        return 0
    print(f"{'microseconds a record':32}{'thread':>8}{'process':>9}")
    for name, figure in figures.items():
        print(f"{name:32}{figure['thread']:8.2f}{figure['process']:9.2f}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
