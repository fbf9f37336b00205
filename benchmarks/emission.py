"""Where the time of a dead letter goes: one emitter, stage by stage, without Spark.

    python -m benchmarks.emission [--records 100000] [--replays | --puts] [--json]

Each stage does all that the stages before it do, on the records of the throughput benchmark and an
embedded broker, so what a stage adds is its own cost. With ``--replays`` no rule places the dead
letters, and the records are the instructions of a plan that puts them on a queue. With ``--puts``
they are messages on an intake that leads to a queue of the same manager. Rows are read as
the job reads what is held; dead letters themselves are read by Spark. Microseconds of processor
time for each record: of the thread that runs Python, and of the process with the client's own
threads.
"""

from __future__ import annotations

import gc
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import starmap
from typing import Final, TypeAlias

import pyarrow as pa
from benchmarks.clients import create
from benchmarks.command_line import broker, parser, show
from benchmarks.hops import SCRIPTS, put_all
from benchmarks.job import PARTITIONS, TARGETS, configuration_of, fill
from kafka.admin import NewTopic

from redrive.checkpoints.control import ControlTopic
from redrive.checkpoints.epoch import RunIdentity, begin_run, fencer_of
from redrive.configuration import JobConfiguration
from redrive.configuration.deciders import DeciderFactory
from redrive.engine.commands import Replay, To
from redrive.engine.facts import Facts
from redrive.engine.slice import Slice, SliceSettings
from redrive.engine.sources import PartitionRecords
from redrive.kafka.cluster import Cluster
from redrive.kafka.records import read_parts
from redrive.messages import DeadLetterDecoder, OffsetRange, Records, TopicPartition
from redrive.operations.replay.applying import accept
from redrive.operations.replay.plan import Plan, new_plan_id
from redrive.streaming.emission import Emission, EmissionOrder, GroupCluster
from redrive.streaming.lifecycle import Emitted
from redrive.streaming.rows import arrow_batch
from redrive.topology.layout import SourceText
from redrive.topology.names import put_topic

Stage: TypeAlias = Callable[[OffsetRange], object]

NOTHING_PLACED: Final = "REASON(1) ACTION(RETRY)\n"
"""A table that places none of the dead letters."""


def exhaust(items: Iterable[object]) -> None:
    """Takes everything and keeps nothing."""
    deque(items, maxlen=0)


class Stages:
    """The stages, each with all that comes before it."""

    def __init__(
        self, servers: str, directory: str, rules: str, topology: tuple[SourceText, ...] = ()
    ) -> None:
        """Open the clients.

        Args:
            servers: The broker.
            directory: For the job's files.
            rules: The table that decides.
            topology: The definitions that lead puts; then there is no handler.
        """
        configuration = configuration_of(servers, directory, "stages", "driver", rules)
        if topology:
            configuration = replace(configuration, handlers=(), topology=topology)
        self._configuration = configuration
        self._facts = Facts(time.monotonic)
        self._deciders = DeciderFactory(self._configuration, self._facts).deciders()
        self._decoder = DeadLetterDecoder()
        self._cluster = Cluster(self._configuration.connection)
        self._group = GroupCluster(self._cluster, self._configuration)
        order = EmissionOrder(self._configuration, begun_run(self._configuration))
        self._emission = Emission(order)
        self._now = int(time.time() * 1000)

    def all(self) -> dict[str, Stage]:
        """Name of each stage, and what it does with a range."""
        return {
            "messages from the broker": self.messages,
            "rows of Arrow batches": self.rows,
            "their keys, values, headers": self.records,
            "decoding": self.decoded,
            "decisions and what to write": self.outputs,
            "produce, flush, commit": self.emitted,
        }

    def messages(self, asked: OffsetRange) -> None:
        """Reads a range and looks at nothing."""
        exhaust(read_parts(self._configuration.connection, [asked]))

    def rows(self, asked: OffsetRange) -> None:
        """Reads a range as Spark gets it."""
        exhaust(self._batches(asked))

    def records(self, asked: OffsetRange) -> None:
        """Reads a range as it is decided about."""
        exhaust(self._parts(asked))

    def decoded(self, asked: OffsetRange) -> None:
        """Reads a range and finds what kind of dead letter each record is."""
        exhaust(self._decoder.decode(part.records) for part in self._parts(asked))

    def outputs(self, asked: OffsetRange) -> None:
        """Makes everything that the job writes for a range, and writes nothing."""
        settings = SliceSettings(outcomes_topic=self._configuration.outcomes_topic, now=self._now)
        for part in self._parts(asked):
            work = Slice([part], self._decoder, self._facts, settings)
            work.resume({})
            while questions := work.decide():
                work.learn(self._group.answers(questions))

    def emitted(self, asked: OffsetRange) -> None:
        """Emits a range in transactions, as the job does."""
        self._emission.emit(self._batches(asked), self._now, Emitted())

    def instruct(self, count: int) -> str:
        """Lets all dead letters remain, and applies a plan that puts them on a queue.

        Args:
            count: The dead letters of each partition.

        Returns:
            The topic of the instructions.
        """
        for number in range(PARTITIONS):
            self.emitted(OffsetRange("backlog", number, 0, count))
        plan = Plan(
            replay=Replay(plan=new_plan_id(), to=To.QUEUE, queue=TARGETS[0]),
            application=self._configuration.application,
            created="",
            messages={
                "b": {f"backlog:{partition}": range(count) for partition in range(PARTITIONS)}
            },
        )
        accept(self._configuration, self._cluster, plan, operator="bench", purpose="bench")
        return self._configuration.handlers[0].identity.replay_topic

    def close(self) -> None:
        """Closes the clients."""
        self._group.close()
        self._emission.close()

    def _batches(self, asked: OffsetRange) -> Iterator[pa.RecordBatch]:
        return starmap(arrow_batch, read_parts(self._configuration.connection, [asked]))

    def _parts(self, asked: OffsetRange) -> Iterator[PartitionRecords]:
        handler, kind = self._deciders[asked.topic]
        lane = TopicPartition(asked.topic, asked.partition)
        for batch in self._batches(asked):
            yield PartitionRecords(lane, handler, kind, Records.from_arrow(batch))


def begun_run(configuration: JobConfiguration) -> RunIdentity:
    """A run of the job that has just begun."""
    connection = configuration.connection
    with ControlTopic(Cluster(connection), configuration.control_topic) as control:
        return begin_run(
            control,
            fencer_of(connection),
            application=configuration.application,
            share=configuration.share,
            details={},
        )


def measured(
    stage: Stage, topic: str, partitions: Iterable[int], count: int
) -> tuple[float, float]:
    """Microseconds a record of the thread and of the process."""
    ranges = [OffsetRange(topic, number, 0, count) for number in partitions]
    gc.collect()
    gc.disable()  # as the job does while it emits
    thread, process = time.thread_time(), time.process_time()
    for asked in ranges:
        stage(asked)
    thread, process = time.thread_time() - thread, time.process_time() - process
    gc.enable()
    records = count * len(ranges)
    return thread / records * 1e6, process / records * 1e6


def measure(
    records: int, *, replays: bool = False, puts: bool = False
) -> dict[str, dict[str, float]]:
    """What each stage adds; the second half of the partitions counts, the first one warms up.

    Args:
        records: How many dead letters.
        replays: Whether they remain first, and are replayed.
        puts: Whether they are puts on an intake.
    """
    count = records // PARTITIONS
    with broker() as (folder, servers):
        topics = [NewTopic(target, 2, 1) for target in TARGETS]
        parts = ("outcomes", "b-remaining", "b-replay")
        own = [NewTopic(f"redrive-stages-{part}", PARTITIONS, 1) for part in parts]
        compact = {"cleanup.policy": "compact"}
        own += [
            NewTopic(f"redrive-stages-{part}", 1, 1, topic_configs=compact)
            for part in ("control", "tables")
        ]
        topic = put_topic("NEAR") if puts else "backlog"
        topics.append(NewTopic("NEAR--IN", PARTITIONS, 1))
        create(servers, NewTopic(topic, PARTITIONS, 1), *own, *topics)
        if puts:
            put_all(servers, b"IN", records)
        else:
            fill(servers, topic, records)
        rules = NOTHING_PLACED if replays else ""
        stages = Stages(servers, str(folder / "job"), rules, SCRIPTS if puts else ())
        if replays:
            topic = stages.instruct(count)
        figures = {}
        for name, stage in stages.all().items():
            measured(stage, topic, range(PARTITIONS // 2), count)
            figures[name] = measured(stage, topic, range(PARTITIONS // 2, PARTITIONS), count)
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
    options = parser(__doc__, records=100_000)
    options.add_argument("--replays", action="store_true", help="of instructions to replay")
    options.add_argument("--puts", action="store_true", help="of messages on an intake")
    arguments = options.parse_args()
    figures = measure(arguments.records, replays=arguments.replays, puts=arguments.puts)
    if arguments.json:
        show(figures)
        return 0
    print(f"{'microseconds a record':32}{'thread':>8}{'process':>9}")
    for name, figure in figures.items():
        print(f"{name:32}{figure['thread']:8.2f}{figure['process']:9.2f}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
