"""The job's own decisions and transactions on a real broker, step by step and without Spark."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import starmap
from typing import Any

from click.testing import Result
from kafka.admin import OffsetSpec
from kafka.protocol.consumer.offsets import IsolationLevel
from tests.commands import json_of, redrive
from tests.conftest import KafkaClient, eventually, partitions_of

from redrive.checkpoints.control import ControlTopic
from redrive.checkpoints.epoch import begin_run, fencer_of
from redrive.configuration import JobConfiguration
from redrive.engine.names import HandlerIdentity
from redrive.kafka.cluster import Cluster
from redrive.kafka.records import read_parts
from redrive.messages import OffsetRange
from redrive.streaming.emission import Emission, EmissionOrder
from redrive.streaming.lifecycle import Emitted
from redrive.streaming.rows import arrow_batch


@dataclass
class SmallJob:
    """One handler on topics of its own."""

    configuration: JobConfiguration
    target: str
    """A topic that exists."""
    config_file: str
    kafka: KafkaClient
    interval: int = 60_000
    """RETRYINT of the table in milliseconds."""
    _emission: Emission | None = field(default=None, repr=False)

    @property
    def identity(self) -> HandlerIdentity:
        return self.configuration.handlers[0].identity

    def run(self, *words: str, typed: str | None = None, code: int | None = None) -> Result:
        """What a command says about the job."""
        return redrive(*words, "-c", self.config_file, typed=typed, code=code)

    def json_of(self, *words: str) -> Any:
        """What a command that succeeds says about the job in JSON."""
        return json_of(*words, "-c", self.config_file)

    def produce(self, records: Iterable[Mapping[str, Any]]) -> None:
        self.kafka.produce(self.identity.topic, records)

    def step(self, now: int, *, most: int = 1_000_000, evaluate_remaining: bool = False) -> None:
        """One batch: dead letters and due retries, and what remains if it is asked for.

        Args:
            now: Time of the attempts in milliseconds.
            most: Dead letters to take at most from each partition.
            evaluate_remaining: Whether a new table wants what remains.
        """
        parked = self.waiting(self.identity.retry_topic)
        due = [record for record in parked if record.timestamp + self.interval <= now]
        sources = [self.waiting(self.identity.topic, most), due]
        if evaluate_remaining:
            sources.append(self.waiting(self.identity.remaining_topic))
        if self._emission is None:
            self._emission = self._opened()
        connection = self.configuration.connection
        ranges = [asked for records in sources for asked in _ranges(records)]
        batches = [*starmap(arrow_batch, read_parts(connection, ranges))]
        self._emission.emit(batches, now, Emitted())
        self.wait_for_markers()

    def _opened(self) -> Emission:
        """The emission of a run that has just begun."""
        configuration = self.configuration
        connection, share = configuration.connection, configuration.share
        with ControlTopic(Cluster(connection), configuration.control_topic) as control:
            run = begin_run(
                control,
                fencer_of(connection),
                application=configuration.application,
                share=share,
                details={},
            )
        return Emission(EmissionOrder(configuration, run))

    def wait_for_markers(self) -> None:
        """Waits until what is committed is visible: the broker writes markers a moment later."""
        identity = self.identity
        names = [identity.topic, identity.retry_topic, identity.remaining_topic]
        names.append(self.configuration.outcomes_topic)
        eventually(
            lambda: (
                self._ends(names, IsolationLevel.READ_COMMITTED)
                == self._ends(names, IsolationLevel.READ_UNCOMMITTED)
            ),
            "markers",
        )

    def _ends(self, names: list[str], isolation_level: IsolationLevel) -> Any:
        admin = self.kafka.admin
        latest = dict.fromkeys(partitions_of(admin, names), OffsetSpec.LATEST)
        return admin.list_partition_offsets(latest, isolation_level)

    def close(self) -> None:
        if self._emission is not None:
            self._emission.close()

    def committed(self) -> Mapping[tuple[str, int], int]:
        """Committed offsets of the application, by kafka-python."""
        group = self.configuration.application
        offsets = self.kafka.admin.list_group_offsets({group: None})[group]
        return {(lane.topic, lane.partition): position.offset for lane, position in offsets.items()}

    def waiting(self, topic: str, most: int = 1_000_000) -> list[Any]:
        """Records at or beyond the committed offsets of a topic."""
        committed = self.committed()
        taken: dict[int, int] = {}
        waiting = []
        for record in self.kafka.read(topic):
            done = committed.get((topic, record.partition), 0)
            if record.offset >= done and taken.get(record.partition, 0) < most:
                taken[record.partition] = taken.get(record.partition, 0) + 1
                waiting.append(record)
        return sorted(waiting, key=lambda record: (record.partition, record.offset))


def _ranges(records: Iterable[Any]) -> list[OffsetRange]:
    """The ranges that hold these records of one topic, one for each partition."""
    offsets: dict[tuple[str, int], list[int]] = {}
    for record in records:
        offsets.setdefault((record.topic, record.partition), []).append(record.offset)
    return [
        OffsetRange(*lane, min(offsets_of_lane), max(offsets_of_lane) + 1)
        for lane, offsets_of_lane in offsets.items()
    ]


def dead_letter(number: int, reason: str, queue: str = "", **more: Any) -> dict[str, Any]:
    """A dead letter in the form of headers, as ``produce`` takes it."""
    headers = [("mqdlh.Reason", reason.encode()), ("mqdlh.DestQName", queue.encode())]
    return {"key": f"key-{number}".encode(), "value": b"x" * number, "headers": headers, **more}
