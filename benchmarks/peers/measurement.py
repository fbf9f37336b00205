"""One run of a contestant: started, watched from outside, checked, and stopped.

Written is what the ends of the target topics say, so every contestant is measured alike. What comes
before ``WARM`` of all records is warm-up and does not count; the end is the moment when the last
record or marker of a transaction was written.
"""

from __future__ import annotations

import contextlib
import os
import signal
import statistics
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from benchmarks.clients import create
from benchmarks.job import cpu_seconds, resident_bytes
from benchmarks.peers.contestants import Assignment, Contestant
from benchmarks.peers.dlq_route import (
    PARTITIONS,
    TARGET_PARTITIONS,
    Check,
    Findings,
    Work,
    write_rules,
)
from benchmarks.processes import kill_session
from confluent_kafka import Consumer, KafkaException, TopicPartition
from kafka.admin import KafkaAdminClient, NewTopic

ROOT: Final = Path(__file__).parents[2]
WARM: Final = 0.2
_PERIOD: Final = 0.25
"""Seconds between two looks at processes and topics."""
_QUIET: Final = 3.0
"""Seconds without anything written after which a run may have ended."""
_ENDING: Final = 10.0
"""Seconds that a contestant has to commit its offsets at last, and then to end in order."""


@dataclass(frozen=True, slots=True)
class Look:
    """What was seen at one moment."""

    time: float
    written: int
    peer: float
    """CPU seconds so far."""
    broker: float


@dataclass(slots=True)
class Meter:
    """CPU time and memory of a process and all that it started."""

    leader: int
    peak: float = 0.0
    """MB, what processes share counted once."""
    _spent: dict[int, float] = field(default_factory=dict)
    _weighed: float = 0.0

    def look(self) -> float:
        """CPU seconds so far, those of processes that have ended included."""
        self._spent |= cpu_seconds(self.leader)
        if time.monotonic() > self._weighed + 1.0:
            self._weighed = time.monotonic()
            self.peak = max(self.peak, sum(map(resident_bytes, self._spent)) / 1e6)
        return sum(self._spent.values())


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of a run; rates and times are those behind the warm-up."""

    records_per_second: int | None
    """None if too few records were written behind the warm-up."""
    peer_cpu: float | None
    """CPU seconds a million records."""
    broker_cpu: float | None
    seconds: float
    """From the start of the process to the end, warm-up included."""
    peak_mb: int


class Field:
    """The broker, the work and its reference, on which contestants run one after the other.

    Args:
        servers: The broker.
        broker_pid: Its process.
        work: The rules.
        source: Topic of the backlog.
        count: How many records that has.
        folder: For the files of the runs.
        patience: Seconds that a run may take.
    """

    def __init__(
        self,
        servers: str,
        broker_pid: int,
        work: Work,
        source: str,
        count: int,
        *,
        folder: Path,
        patience: float,
    ) -> None:
        self._servers, self._broker = servers, broker_pid
        self._work, self._source, self._count, self._folder = work, source, count, folder
        self._check = Check(work, source, count)
        self._patience = patience
        asked = {"bootstrap.servers": servers, "group.id": "bench-ends", "log_level": 0}
        self._ends = Consumer(asked)

    def run(self, contestant: Contestant, name: str) -> dict[str, Any]:
        """One run.

        Args:
            contestant: Who runs.
            name: Of the run; another one each time.

        Raises:
            SystemExit: The contestant does not do the job, or not within its time.
        """
        work = replace(self._work, prefix=f"{name}.")
        folder = self._folder / name
        with started(contestant, self._servers, self._source, work, folder) as process:
            try:
                looks, findings, peak = self._watched(process, work)
            except TimeoutError as error:
                text = (folder / "log").read_text(encoding="utf-8", errors="replace")
                raise SystemExit(f"{error}\n{text[-3000:]}") from error
            left = self._uncommitted(name) if contestant.exactly_once else 0
        if not findings.is_right(exactly_once=contestant.exactly_once):
            raise SystemExit(f"it does not do the job: {findings}")
        if left:
            raise SystemExit(f"it has not committed {left} offsets")
        seen = {kind: getattr(findings, kind) for kind in ("doubled", "disordered", "reordered")}
        return {**asdict(figures_of(looks, self._count, peak)), **seen}

    def _watched(
        self, process: subprocess.Popen[bytes], work: Work
    ) -> tuple[list[Look], Findings, float]:
        peer, broker = Meter(process.pid), Meter(self._broker)
        began = time.monotonic()
        looks = [Look(began, 0, 0.0, broker.look())]
        while time.monotonic() < began + self._patience:
            time.sleep(_PERIOD)
            spent = peer.look()
            looks.append(Look(time.monotonic(), self._written(work.targets), spent, broker.look()))
            last = _end(looks)
            if looks[-1].written >= self._count and looks[-1].time > last.time + _QUIET:
                findings = self._check.of(self._servers, work)
                if not findings.lost:
                    return looks, findings, peer.peak
            elif process.poll() is not None:
                raise TimeoutError(f"it ended with {process.returncode}")
        findings = self._check.of(self._servers, work)
        raise TimeoutError(f"not done after {self._patience} s: {findings}")

    def _written(self, topics: Sequence[str]) -> int:
        lanes = [TopicPartition(topic, n) for topic in topics for n in range(TARGET_PARTITIONS)]
        try:
            return sum(self._ends.get_watermark_offsets(lane, timeout=10)[1] for lane in lanes)
        except KafkaException:  # a topic that was created this moment has no leader yet
            return 0

    def _uncommitted(self, group: str) -> int:
        """How far the committed offsets of a group stay from the ends of the backlog.

        Some commit them a moment after the transaction, for others to see.
        """
        asked = {"bootstrap.servers": self._servers, "group.id": group, "log_level": 0}
        consumer = Consumer(asked)
        lanes = [TopicPartition(self._source, number) for number in range(PARTITIONS)]
        end = sum(consumer.get_watermark_offsets(lane, timeout=10)[1] for lane in lanes)
        left, until = end, time.monotonic() + _ENDING
        while left and time.monotonic() < until:
            time.sleep(_PERIOD)
            left = end - sum(
                max(0, position.offset) for position in consumer.committed(lanes, timeout=30)
            )
        consumer.close()
        return left


@contextlib.contextmanager
def started(
    contestant: Contestant, servers: str, source: str, work: Work, folder: Path
) -> Iterator[subprocess.Popen[bytes]]:
    """A contestant while it runs, and the topics that it writes.

    Args:
        contestant: Who runs.
        servers: The broker.
        source: Topic of the records.
        work: The rules, with the targets of the run.
        folder: For the files of the run, whose name it has; it is made.
    """
    folder.mkdir()
    rules = write_rules(work, folder)
    table, case = work.as_table(), work.as_case()
    given = Assignment(servers, folder.name, source, work.form, table, case, rules, folder)
    command = contestant.command(given)
    create(servers, *(NewTopic(topic, TARGET_PARTITIONS, 1) for topic in work.targets))
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            command, stdout=log, stderr=log, cwd=ROOT, start_new_session=True
        )
    try:
        yield process
    finally:
        _stop(process)
        admin = KafkaAdminClient(bootstrap_servers=servers)
        admin.delete_topics(work.targets)
        admin.close()


def _end(looks: Sequence[Look]) -> Look:
    """The first look that saw everything that was written."""
    return next(look for look in looks if look.written == looks[-1].written)


def figures_of(looks: Sequence[Look], count: int, peak: float) -> Figures:
    """The figures behind the warm-up."""
    first = next(look for look in looks if look.written >= WARM * count)
    last = _end(looks)
    share = (last.written - first.written) / last.written
    seconds = last.time - looks[0].time
    if share < 0.5 or last.time <= first.time:
        return Figures(None, None, None, round(seconds, 1), round(peak))
    millions = count * share / 1e6
    return Figures(
        records_per_second=round(millions * 1e6 / (last.time - first.time)),
        peer_cpu=round((last.peer - first.peer) / millions, 1),
        broker_cpu=round((last.broker - first.broker) / millions, 1),
        seconds=round(seconds, 1),
        peak_mb=round(peak),
    )


def median_of(runs: Sequence[dict[str, Any]]) -> dict[str, float | None]:
    """The median of each figure over all runs that have it."""
    medians: dict[str, float | None] = {}
    for name in Figures.__dataclass_fields__:
        values = [run[name] for run in runs if run[name] is not None]
        medians[name] = round(statistics.median(values), 1) if values else None
    return medians


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Ends a contestant and all that it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_ENDING)
    kill_session(process)
