"""The watch over a job: it reports what is due and not handled, and nothing else."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from tests.streaming.conftest import configuration_of

from redrive.checkpoints.clock import SteadyClock
from redrive.checkpoints.held import (
    HeldChannel,
    HeldInstructions,
    HeldPartition,
    Kept,
    Parked,
    TransmissionQueue,
)
from redrive.engine.commands import NO_STATES, States
from redrive.kafka.administration import OpenTransaction
from redrive.kafka.records import StoredRecord
from redrive.messages import TopicPartition
from redrive.operations.supervision import Activity, SupervisionState
from redrive.streaming import supervision
from redrive.streaming.lifecycle import JobControl, JobObserver
from redrive.streaming.start import Start
from redrive.streaming.supervision import Supervisor

LETTERS, RETRIES, REMAINING, REPLAY, QUEUE = (
    TopicPartition(name, 0) for name in ("dlq", "retry", "remaining", "replay", "xmitq")
)
CHANNEL = ("A", "A.TO.B")
WAITS_FOR = 60.0
"""Seconds that a parked message waits."""


@dataclass
class Kafka:
    """What the watch is answered: where lanes are committed and end, and what lies there."""

    now: float = 1_000_000.0
    committed_at: dict[TopicPartition, int] = field(default_factory=dict)
    records: dict[TopicPartition, list[float]] = field(default_factory=dict)
    """Timestamps of the records of each lane, in seconds."""
    markers: int = 0
    """Markers behind the last record of each lane."""
    hidden: dict[TopicPartition, int] = field(default_factory=dict)
    """Records that an open transaction hides."""
    transactions: dict[TopicPartition, OpenTransaction] = field(default_factory=dict)
    """What the broker says of open transactions."""
    connection: Any = None
    states_now: States = NO_STATES

    def time(self) -> float:
        return self.now

    monotonic = time

    def clock_gettime(self, _: int) -> float:
        return self.now

    def committed(self, _: str, lanes: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return {lane: self.committed_at.get(lane, 0) for lane in lanes}

    def ends(
        self, lanes: Collection[TopicPartition], *, committed_only: bool = True
    ) -> dict[TopicPartition, int]:
        return {
            lane: len(self.records.get(lane, []))
            + self.markers
            + (0 if committed_only else self.hidden.get(lane, 0))
            for lane in lanes
        }

    def open_transactions(
        self, _: object, lanes: Collection[TopicPartition]
    ) -> dict[TopicPartition, OpenTransaction]:
        return {
            lane: transaction for lane, transaction in self.transactions.items() if lane in lanes
        }

    def first_since(
        self, times: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, tuple[int, int]]:
        positions = {
            lane: [(offset, int(second * 1000)) for offset, second in enumerate(seconds)]
            for lane, seconds in self.records.items()
        }
        return {
            lane: next((place for place in positions.get(lane, ()) if place[1] >= since), (-1, -1))
            for lane, since in times.items()
        }

    def read(
        self, starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], **_: object
    ) -> Iterator[StoredRecord]:
        for lane, start in starts.items():
            for offset in range(start, min(ends[lane], len(self.records.get(lane, [])))):
                yield StoredRecord(lane, offset, 0, None, b"x", [])

    def states(self) -> States:
        return self.states_now

    def close(self) -> None:
        """Nothing to close."""


class Told(JobObserver):
    """Keeps notices and warnings."""

    def __init__(self) -> None:
        self.warnings: list[tuple[str, dict[str, object]]] = []
        self.notices: list[tuple[str, dict[str, object]]] = []

    def warning(self, message: str, /, **facts: object) -> None:
        self.warnings.append((message, facts))

    def notice(self, message: str, /, **facts: object) -> None:
        self.notices.append((message, facts))


@dataclass
class Watched:
    """A supervisor whose thread is the test's own."""

    kafka: Kafka
    supervisor: Supervisor

    def passes(self, seconds: float) -> SupervisionState:
        """What it says after so many seconds."""
        for _ in range(round(seconds / 5)):
            self.kafka.now += 5
            self.supervisor._probe()
        return self.supervisor._state(self.kafka.now)


HELD = (
    Parked(RETRIES, 0, interval=WAITS_FOR),
    Kept(REMAINING, 0),
    HeldInstructions(REPLAY, 0, behind=REMAINING),
    TransmissionQueue(QUEUE, 0, channel=HeldChannel(CHANNEL)),
)


@pytest.fixture
def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Watched:
    """A job with a lane of each kind, all of which are idle."""
    kafka = Kafka()
    for module in ("streaming.supervision", "checkpoints.held", "checkpoints.clock"):
        monkeypatch.setattr(f"redrive.{module}.time", kafka)
    monkeypatch.setattr(supervision, "Cluster", lambda *_, **__: kafka)
    monkeypatch.setattr("redrive.operations.supervision.open_transactions", kafka.open_transactions)
    monkeypatch.setattr(supervision, "StatesFollower", lambda *_: kafka)
    job = configuration_of(tmp_path, "localhost:1", {}, stalled_after=60.0)
    watched = Watched(kafka, Supervisor(job, JobControl(), None))
    watched.supervisor.watch(start_of(HELD))
    return watched


def start_of(lanes: tuple[HeldPartition, ...], *, only_replays: bool = False) -> Start:
    """Where a run begins; one for replays only reads no dead letters."""
    positions = {} if only_replays else {LETTERS: 0}
    return Start(positions, lanes, frozenset(), {}, clock=SteadyClock.of_wall())


def test_a_retry_that_is_due_and_not_handled_is_a_stall(watched: Watched) -> None:
    watched.kafka.records[RETRIES] = [watched.kafka.now + 200]
    state = watched.passes(255)
    assert state.state is Activity.RUNNING
    for handled in range(16):
        watched.kafka.records[LETTERS] = [0.0] * (handled + 2)
        watched.kafka.committed_at[LETTERS] = handled
        state = watched.passes(5)
    assert (state.state, state.lane) == (Activity.STALLED, str(RETRIES))
    assert "retry" in state.cause
    watched.kafka.committed_at[RETRIES] = 1
    assert watched.passes(5).state is Activity.RUNNING


@pytest.mark.parametrize("lane", [LETTERS, REPLAY, QUEUE])
def test_each_kind_of_work_that_stands_still_is_a_stall(
    watched: Watched, lane: TopicPartition
) -> None:
    watched.kafka.records[lane] = [0.0]
    assert watched.passes(50).state is Activity.RUNNING
    state = watched.passes(20)
    assert (state.state, state.lane) == (Activity.STALLED, str(lane))


def test_a_run_for_replays_only_is_watched_too(watched: Watched) -> None:
    watched.supervisor.watch(start_of(HELD[1:3], only_replays=True))
    assert watched.passes(100).state is Activity.RUNNING
    watched.kafka.records[REPLAY] = [0.0, 0.0]
    assert watched.passes(70).state is Activity.STALLED


def test_what_waits_for_a_person_or_for_its_time_is_no_stall(watched: Watched) -> None:
    kafka = watched.kafka
    kafka.states_now = States(running={CHANNEL: False})
    kafka.records = {QUEUE: [0.0], REMAINING: [0.0], RETRIES: [kafka.now + 1e6]}
    assert watched.passes(300).state is Activity.RUNNING
    kafka.states_now = NO_STATES
    assert watched.passes(70).lane == str(QUEUE)


def test_what_a_new_table_is_to_look_at_is_work(watched: Watched) -> None:
    remaining = replace(HELD[1], release=1)
    watched.supervisor.watch(start_of((HELD[0], remaining)))
    watched.kafka.records[REMAINING] = [0.0, 0.0]
    assert watched.passes(70).lane == str(REMAINING)


def test_markers_are_no_work(watched: Watched) -> None:
    watched.kafka.markers = 1
    assert watched.passes(300).state is Activity.RUNNING


@pytest.mark.parametrize("lane", [LETTERS, RETRIES, REMAINING, REPLAY, QUEUE])
def test_what_nobody_can_read_is_no_stall_at_any_moment(
    watched: Watched, lane: TopicPartition
) -> None:
    """Markers, and records that compaction removed, end a lane; looks are seconds apart.

    A report between two looks says the same.
    """
    held = tuple(
        replace(partition, release=3) if partition.lane == REMAINING else partition
        for partition in HELD
    )
    watched.supervisor.watch(start_of(held))
    watched.kafka.records[lane] = [0.0] * 10
    watched.kafka.committed_at[lane] = 10
    watched.kafka.markers = 3
    states = set()
    for second in range(300):
        watched.kafka.now += 1
        if second % 7 == 0:
            watched.supervisor._probe()
        states.add(watched.supervisor._state(watched.kafka.now).state)
    assert states == {Activity.RUNNING}


def test_an_open_transaction_is_told_after_a_minute_and_until_it_ends(watched: Watched) -> None:
    kafka, observer = watched.kafka, Told()
    watched.supervisor._control.add_observer(observer)
    for handled in range(30):
        kafka.records[LETTERS] = [0.0] * handled
        kafka.committed_at[LETTERS] = handled
        kafka.hidden[LETTERS] = 1
        watched.passes(5)
        watched.supervisor._report(kafka.now)
    assert observer.warnings == []
    kafka.hidden[LETTERS] = 30
    kafka.transactions[LETTERS] = OpenTransaction("importer-1", kafka.now)
    seconds = 0
    while not observer.warnings and seconds < 600:
        seconds += 5
        watched.passes(5)
        watched.supervisor._report(kafka.now)
    assert seconds <= 65
    [(message, facts)] = observer.warnings
    assert message.startswith("an open transaction hides records")
    assert (facts["lane"], facts["records"]) == (str(LETTERS), 30)
    assert "importer-1" in str(facts["hint"])
    [hidden] = watched.supervisor._hidden()
    assert hidden.is_problem(kafka.now)
    assert f"{LETTERS} has hidden 30 records for 1 min" in hidden.sentence(kafka.now)
    kafka.hidden.clear()
    watched.passes(5)
    watched.supervisor._report(kafka.now)
    assert observer.notices == [("the open transaction has ended", {"lane": str(LETTERS)})]
    assert watched.supervisor._hidden() == ()


def test_an_open_transaction_that_may_not_be_described_has_the_command_for_it(
    watched: Watched,
) -> None:
    watched.kafka.hidden[LETTERS] = 1
    watched.passes(120)
    [hidden] = watched.supervisor._hidden()
    assert "kafka-transactions.sh describe-producers --topic dlq --partition 0" in hidden.owner


def test_runs_that_begin_again_and_again_are_no_progress(watched: Watched) -> None:
    watched.kafka.records[RETRIES] = [0.0]
    state = watched.passes(5)
    for _ in range(8):
        watched.supervisor.watch(start_of(HELD))
        state = watched.passes(10)
    assert state.state is Activity.STALLED
