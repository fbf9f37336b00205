"""Plans and reads held partitions, for the streaming source of ``redrive.streaming.held_source``.

Spark asks ``latestOffset`` before every batch. For each held partition the answer is the first
offset that is not free yet (``redrive.checkpoints.held``). While nothing is free the answer does
not change, so no batch starts and nothing else is delayed. Spark's Python workers read the planned
ranges, with the columns of Spark's own Kafka source.

Planning runs in a separate process beside the driver.
"""

from __future__ import annotations

import logging
import os
import pickle
import sys
import time
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows

from redrive.checkpoints.clock import SteadyClock
from redrive.checkpoints.control import TableFollower, Wait
from redrive.checkpoints.epoch import RunIdentity
from redrive.checkpoints.held import (
    HeldInstructions,
    HeldPartition,
    HeldPartitions,
    Parked,
    TransmissionQueue,
)
from redrive.checkpoints.states import StatesFollower
from redrive.collector import collector_paused
from redrive.engine.commands import NO_STATES, States
from redrive.engine.names import control_topic, tables_topic
from redrive.errors import TransientFault
from redrive.kafka.cluster import Cluster
from redrive.kafka.connection import Connection
from redrive.kafka.deadline import AGAIN, ONE_TRY, PAUSE, pause_after
from redrive.kafka.records import Watch, read_parts
from redrive.messages import OffsetRange, TopicPartition
from redrive.streaming.rows import arrow_batch
from redrive.text_log import log_to_standard_error

if TYPE_CHECKING:
    import pyarrow as pa

_ROWS_OF_A_TASK: Final = 1_000
"""Rows above which a task gets no further lane: starting a task costs as much as reading them."""
_IDLE: Final = 1.0
"""Seconds between two checks while nothing arrives and nothing becomes due."""
_SHARE_FOR_DUE: Final = 0.1
"""Maximum processor time for checks of due or released messages, as a share of one core."""
_SILENCE: Final = 30.0
"""Seconds between two log lines about a broker that does not answer."""
_OPTION: Final = "settings_secret"
"""The source's only option. They contain passwords: Spark redacts it because of its name."""

_LOGGER: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldSettings:
    """What the source reads, and how it plans."""

    held: tuple[HeldPartition, ...]
    connection: Connection
    max_rows: int
    """Maximum rows of one batch."""
    clock: SteadyClock
    """The run's clock. The planning process reads the same clock of the machine."""
    run: RunIdentity
    watched: tuple[TopicPartition, ...]
    """Partitions of the query's other sources, which Spark asks after this one: an idle system
    waits here for their records."""
    rate: float
    """Maximum messages per second to evaluate again by a changed table."""

    def options(self) -> dict[str, str]:
        """The options of the source, which are text."""
        return {_OPTION: b64encode(pickle.dumps(self)).decode()}

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> Self:
        """The settings that Spark passed as options."""
        settings = pickle.loads(b64decode(options[_OPTION]))  # noqa: S301 - made by this job's driver
        assert isinstance(settings, cls)
        return settings


Offsets = dict[str, dict[str, int]]
"""Topic to partition (as text, for JSON) to offset."""


@dataclass(frozen=True)
class HeldRanges(InputPartition):
    """The input of one task: a lane belongs to one task, a task may have several lanes."""

    ranges: tuple[OffsetRange, ...]


class HeldReader(DataSourceStreamReader):
    """Plans and reads ranges of held partitions."""

    def __init__(self, settings: HeldSettings) -> None:
        """Clients are opened when first needed, in the planning process."""
        self._settings = settings
        self._planner: _Planner | None = None

    def initialOffset(self) -> Offsets:  # noqa: N802 - Spark's name
        """Where every partition starts."""
        return _nested({held.lane: held.start for held in self._settings.held})

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """The limit from the options."""
        return ReadMaxRows(self._settings.max_rows)

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:  # noqa: N802 - Spark's name
        """The first offset of each partition that is not free yet, never below ``start``.

        While the broker does not answer, nothing becomes free: an outage must not end the query,
        and a message may be late but never early.
        """
        self._planner = self._planner or _Planner(self._settings)
        begin = _flat(start)
        free = self._planner.free(begin)
        most = None if isinstance(limit, ReadAllAvailable) else getattr(limit, "maxRows", None)
        return _nested(_limited(begin, free, most))

    def partitions(self, start: Offsets, end: Offsets) -> list[InputPartition]:
        """Tasks for the planned ranges; grouped, as messages by BACKOFF are few on many lanes."""
        begin = _flat(start)
        ranges = [
            OffsetRange(*lane, begin[lane], stop)
            for lane, stop in _flat(end).items()
            if stop > begin[lane]
        ]
        return [HeldRanges(packed) for packed in _packed(ranges)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The committed records of some ranges; runs in a Python worker."""
        assert isinstance(partition, HeldRanges)
        with collector_paused():
            for lane, records in read_parts(self._settings.connection, partition.ranges):
                yield arrow_batch(lane, records)

    def stop(self) -> None:
        """Ends the planning process at once when Java has closed its connection."""
        if isinstance(sys.exception(), EOFError):
            os._exit(0)  # Spark's program would print that it cannot send an answer


class _Planner:
    """Asks the cluster, in the planning process."""

    def __init__(self, settings: HeldSettings) -> None:
        log_to_standard_error(logging.WARNING)
        held, run = settings.held, settings.run
        self._held = held
        self._cluster = Cluster(settings.connection, timeout=ONE_TRY)
        self._clock = settings.clock
        self._partitions = HeldPartitions(held, self._cluster, settings.clock, rate=settings.rate)
        self._application = run.application
        self._watched = settings.watched
        self._watch = Watch(settings.connection)
        follows = any(partition.follows_states for partition in held)
        self._follower = StatesFollower(self._cluster, run.application) if follows else None
        topic = control_topic(run.application)
        self._tables = TableFollower(self._cluster, topic, str(run.share), run.number)
        self._orders = [TopicPartition(topic, 0)]
        """Where changed tables are written, and operators' commands if they free anything."""
        if follows:
            self._orders.append(TopicPartition(tables_topic(run.application), 0))
        self._waits: Mapping[TopicPartition, Wait] = {}
        self._instructions = [
            partition.lane for partition in held if isinstance(partition, HeldInstructions)
        ]
        self._last_ends: Mapping[TopicPartition, int] = {}
        self._silent_since: float | None = None
        self._next_report = 0.0

    def free(self, begin: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        """The offsets up to which partitions are free; waits briefly without records to read."""
        began = time.process_time()
        try:
            ends = self._cluster.ends([*begin, *self._watched, *self._orders])
            known = {**ends, **self._instructed(begin, ends)}
            self._follow_tables()
            free = self._partitions.free(begin, known, self._states())
            if free == begin and self._is_idle(ends):
                self._wait(begin, ends, time.process_time() - began)
        except TransientFault as fault:
            self._report_silence(fault)
            return begin
        self._silent_since = None
        return free

    def _report_silence(self, fault: TransientFault) -> None:
        now = time.monotonic()
        if self._silent_since is None:
            self._silent_since = self._next_report = now
        if now >= self._next_report:
            self._next_report = now + _SILENCE
            seconds = round(now - self._silent_since)
            facts = {"seconds": seconds, "error": fault.message}
            _LOGGER.warning("no answer from the broker; retries are paused", extra={"facts": facts})
        time.sleep(AGAIN)

    def _follow_tables(self) -> None:
        """Uses changed tables, once the ends are known.

        Whatever a new table parked below them, and each later instruction, is then read by that
        table.
        """
        waits = self._tables.waits()
        if waits is not self._waits:
            self._waits = waits
            self._partitions.change(waits)

    def _instructed(
        self, begin: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """The offsets up to which instructions are read: emitters find the plan of each."""
        if self._follower is None:
            return {}
        known = self._follower.known_ends({lane: ends[lane] for lane in self._instructions})
        return {lane: max(begin[lane], end) for lane, end in known.items()}

    def _states(self) -> States:
        return NO_STATES if self._follower is None else self._follower.states()

    def _is_idle(self, ends: Mapping[TopicPartition, int]) -> bool:
        before, self._last_ends = self._last_ends, ends
        if ends != before:
            return False
        committed = self._cluster.committed(self._application, self._watched)
        return not any((committed[lane] or 0) < ends[lane] for lane in self._watched)

    def _wait(
        self,
        begin: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
        spent: float,
    ) -> None:
        """Waits for a record that is read as soon as it arrives, or for the next due time.

        Args:
            begin: Where each held partition is read next.
            ends: Their ends, and those of the partitions that the other source reads.
            spent: Seconds of processor time of this check.
        """
        moving = {
            held.lane
            for held in self._held
            if isinstance(held, TransmissionQueue | HeldInstructions)
            or (isinstance(held, Parked) and held.channel)
        }
        watched = {lane: ends[lane] for lane in (*self._watched, *self._orders, *moving)}
        is_releasing = self._partitions.is_releasing or any(
            isinstance(held, HeldInstructions) and ends[held.lane] > begin[held.lane]
            for held in self._held
        )
        until_due = self._partitions.next_due - self._clock.now()
        soonest = pause_after(spent, 0.0, share=_SHARE_FOR_DUE)
        latest = max(soonest, PAUSE) if is_releasing else pause_after(spent, _IDLE)
        self._watch.wait(watched, min(latest, max(soonest, until_due)))


def _packed(ranges: Iterable[OffsetRange]) -> Iterator[tuple[OffsetRange, ...]]:
    """The ranges, grouped so that each task is worth its start."""
    task: list[OffsetRange] = []
    rows = 0
    for offset_range in ranges:
        task.append(offset_range)
        rows += offset_range.end - offset_range.start
        if rows >= _ROWS_OF_A_TASK:
            yield tuple(task)
            task, rows = [], 0
    if task:
        yield tuple(task)


def _limited(
    begin: Mapping[TopicPartition, int], free: Mapping[TopicPartition, int], most: int | None
) -> dict[TopicPartition, int]:
    if most is None:
        return dict(free)
    # Long lanes get what short ones leave of their shares.
    left, lanes = most, len(free)
    limited = dict(free)
    for lane in sorted(free, key=lambda free_lane: free[free_lane] - begin[free_lane]):
        share = max(1, left // lanes)
        limited[lane] = min(free[lane], begin[lane] + share)
        left, lanes = left - (limited[lane] - begin[lane]), lanes - 1
    return limited


def _flat(offsets: Offsets) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic, int(partition)): offset
        for topic, partitions in offsets.items()
        for partition, offset in partitions.items()
    }


def _nested(flat: Mapping[TopicPartition, int]) -> Offsets:
    offsets: Offsets = {}
    for (topic, partition), offset in flat.items():
        offsets.setdefault(topic, {})[str(partition)] = offset
    return offsets
