"""Who emits a batch, and what commits positions: the driver while it is small, else workers."""

from __future__ import annotations

import pickle
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import Producer
from tests.configurations import handled, job_of
from tests.conftest import KafkaClient, eventually

from redrive.checkpoints.epoch import RunIdentity
from redrive.checkpoints.held import Kept
from redrive.checkpoints.protocol import EmissionFigures, PositionsOnly
from redrive.configuration import EmitterChoice, JobConfiguration
from redrive.engine.breaker import BreakerCounts, BreakerKey, Breakers, BreakerSettings
from redrive.engine.commands import Span
from redrive.errors import TransientFault
from redrive.kafka.cluster import Cluster
from redrive.messages import TopicPartition
from redrive.operations.replay.progress import _waiting
from redrive.streaming.batch import LARGEST_RESULT, BatchProcessor
from redrive.streaming.emission import EmissionOrder
from redrive.streaming.forwarding import Forwarding
from redrive.streaming.lifecycle import Emitted
from redrive.streaming.start import Start
from redrive.streaming.upkeep import Backlog
from redrive.streaming.workers import TaskResult

LIMIT = 1_000
"""Rows of a batch that the driver fetches where the choice is open."""
LETTERS = TopicPartition("letters", 0)
LARGE = 1_000_000
"""Bytes of a large row."""


def job_in(folder: Path, **settings: Any) -> JobConfiguration:
    """A job that looks at 1,000 messages a second again at most."""
    return job_of(
        directory=folder, reevaluation_rate=1_000, **{"driver_batch_limit": LIMIT, **settings}
    )


@dataclass
class Frame:
    """The rows of a batch, of which none is left to decide, and who asked for them."""

    row_size: int = 0
    """Bytes of the one row that workers say that they emitted; 0 for no row."""
    fetched: Callable[[], None] = lambda: None
    """Called when the driver fetches the rows."""
    by: list[EmitterChoice] = field(default_factory=list)

    def toArrow(self) -> Any:  # noqa: N802 - Spark's name
        self.by.append(EmitterChoice.DRIVER)
        self.fetched()
        return SimpleNamespace(to_batches=list)

    def mapInArrow(self, *_: object) -> Any:  # noqa: N802 - Spark's name
        self.by.append(EmitterChoice.LANES)
        emitted = Emitted(rows=1, size=self.row_size) if self.row_size else Emitted()
        row = SimpleNamespace(result=pickle.dumps(TaskResult(emitted)))
        return SimpleNamespace(collect=lambda: [row])


@pytest.fixture
def committed(monkeypatch: pytest.MonkeyPatch) -> list[PositionsOnly]:
    """What processors commit, which need no broker for it."""
    committed: list[PositionsOnly] = []
    emitter = SimpleNamespace(
        begin_batch=lambda: None, emit=committed.append, take_figures=EmissionFigures,
        drop_producer=lambda: None,
    )  # fmt: skip
    monkeypatch.setattr("redrive.streaming.emission.Emitter", lambda *_, **__: emitter)
    return committed


def processor_of(
    job: JobConfiguration,
    start: Start,
    ends: Callable[[Collection[TopicPartition]], dict[TopicPartition, int]] = lambda _: {},
    **more: Any,
) -> BatchProcessor:
    """A processor of the first run."""
    return BatchProcessor(
        job,
        EmissionOrder(job, RunIdentity("app", job.share, 1)),
        start,
        cast("Any", SimpleNamespace(ends=ends, close=lambda: None)),
        done=lambda _: None,
        emitted=lambda _: None,
        **more,
    )


def start_at(**positions: int) -> Start:
    return Start(
        {TopicPartition(name, 0): offset for name, offset in positions.items()}, (), frozenset(), {}
    )


def emitter_of(
    folder: Path,
    choice: EmitterChoice,
    *batches: int,
    row_size: int = 0,
    workers_first: bool = False,
) -> EmitterChoice:
    """Who emits the last of some batches, by the number of rows of each."""
    rows = iter(batches)
    processor = processor_of(
        job_in(folder, emitter=choice),
        start_at(letters=0),
        lambda lanes: dict.fromkeys(lanes, next(rows)),
        workers_first=workers_first,
    )
    processor.begin()
    frame = Frame(row_size)
    for number in range(len(batches)):
        processor(cast("Any", frame), number)
    processor.close()
    return frame.by[-1]


DRIVER, LANES, AUTO = EmitterChoice.DRIVER, EmitterChoice.LANES, EmitterChoice.AUTO
pytestmark = pytest.mark.usefixtures("committed")


@pytest.mark.parametrize("choice", EmitterChoice)
def test_the_driver_never_fetches_more_than_spark_lets_it(
    tmp_path: Path, choice: EmitterChoice
) -> None:
    rows = LARGEST_RESULT // LARGE
    assert rows < LIMIT
    # The first one is too large for the driver by what rows are expected to have.
    assert emitter_of(tmp_path, choice, LARGEST_RESULT, rows, row_size=LARGE) is LANES


@pytest.mark.parametrize(
    ("choice", "rows", "emitter"),
    [
        (AUTO, LIMIT, DRIVER),
        (DRIVER, LIMIT, DRIVER),
        (LANES, LIMIT, LANES),
        (AUTO, LIMIT + 1, LANES),
        (DRIVER, LIMIT + 1, DRIVER),
        (DRIVER, LARGEST_RESULT, LANES),
    ],
)
def test_a_small_batch_is_the_drivers_unless_workers_are_asked_for(
    tmp_path: Path, choice: EmitterChoice, rows: int, emitter: EmitterChoice
) -> None:
    assert emitter_of(tmp_path, choice, 0, rows) is emitter


def test_after_a_batch_that_failed_workers_go_first(tmp_path: Path) -> None:
    assert emitter_of(tmp_path, DRIVER, 1, workers_first=True) is LANES


@pytest.mark.parametrize(("ends", "expected"), [(False, [DRIVER]), (True, [])])
def test_no_batch_begins_before_it_may(
    tmp_path: Path, *, ends: bool, expected: list[EmitterChoice]
) -> None:
    processor, frame = processor_of(job_in(tmp_path), start_at()), Frame()
    batch = threading.Thread(target=processor, args=(frame, 7))
    batch.start()
    assert not frame.by
    if ends:
        assert processor.end(60)
    else:
        processor.begin()
    batch.join(60)
    assert frame.by == expected
    processor.close()


def test_a_batch_that_runs_while_ends_are_asked_for_leaves_work() -> None:
    """What it parked lies behind the end that was read before: WAIT(NO) must not end the job."""
    retries = TopicPartition("retries", 0)
    ends = {LETTERS: 20, retries: 0}
    processor = SimpleNamespace(began=None, positions={LETTERS: 0, retries: 0})

    def answer(_: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        answered = dict(ends)
        processor.positions[LETTERS], ends[retries] = 20, 20  # a batch that parks 20 retries
        return answered

    record = SimpleNamespace(lane=LETTERS, offset=0)
    cluster = SimpleNamespace(ends=answer, read=lambda *_, **__: [record])
    start = start_at(letters=0, retries=0)
    backlog = Backlog(cast("Any", cluster), start, cast("Any", processor))
    assert backlog.pass_markers()


def test_what_is_committed_and_not_yet_shown_to_readers_is_left(kafka: KafkaClient) -> None:
    """A commit returns before the brokers have its markers: then an open transaction is seen."""
    lane = TopicPartition(kafka.topic("retries"), 0)
    cluster, positions = Cluster(kafka.connection), {lane: 0}
    processor = SimpleNamespace(began=None, positions=positions, commit_positions=positions.update)
    backlog = Backlog(cluster, Start(positions, (), frozenset(), {}), cast("Any", processor))
    forwarding = SimpleNamespace(_forwarders=[SimpleNamespace(lane=lane, completed=0)])
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": lane[0]})
    producer.init_transactions(60)

    def left() -> list[bool]:
        completed = Forwarding.completed(cast("Any", forwarding), cluster)
        ends = cluster.ends([lane])[lane], cluster.ends([lane], committed_only=False)[lane]
        instructions = _waiting(cluster, lane, Span(first=0, count=1, end=1), 0, ends)
        return [backlog.pass_markers(), completed is None, instructions > 0]

    assert left() == [False, False, False]
    producer.begin_transaction()
    producer.produce(*lane[:1], b"parked", partition=0)
    producer.flush(60)
    assert left() == [True, True, True]
    producer.commit_transaction(60)
    eventually(lambda: cluster.ends([lane])[lane] == 2, "the marker is written")
    assert left() == [True, True, True]
    cluster.close()


@pytest.mark.parametrize("fault", [TransientFault("a worker is lost"), RuntimeError("of Spark")])
def test_nothing_commits_positions_after_a_failed_batch(
    tmp_path: Path, committed: list[PositionsOnly], fault: Exception
) -> None:
    def fail() -> None:
        raise fault

    processor = processor_of(job_in(tmp_path), start_at(letters=7), lambda _: {LETTERS: 8})
    processor.begin()
    with pytest.raises(type(fault)):
        processor(cast("Any", Frame(fetched=fail)), 7)
    processor.commit_positions({LETTERS: 9})
    processor.commit_again()
    assert processor.end(0)
    processor.commit_positions({LETTERS: 9})
    assert not committed
    assert processor.positions == {LETTERS: 7}
    processor.close()


def test_offsets_are_committed_again_behind_a_batch_that_runs_at_that_moment(
    tmp_path: Path, committed: list[PositionsOnly]
) -> None:
    asked, may_end = threading.Event(), threading.Event()

    def fetch() -> None:
        asked.set()
        assert may_end.wait(60)

    processor = processor_of(job_in(tmp_path), start_at(letters=7), lambda _: {LETTERS: 8})
    processor.begin()
    batch = threading.Thread(target=processor, args=(Frame(fetched=fetch), 7))
    batch.start()
    assert asked.wait(60)
    processor.commit_again()
    assert not committed
    may_end.set()
    batch.join(60)
    assert [dict(positions.ends()) for positions in committed] == [{LETTERS: 7}]
    processor(cast("Any", Frame()), 8)
    assert len(committed) == 1
    processor.commit_again()
    assert len(committed) == 2
    processor.close()


def test_an_open_breaker_outlives_its_run(tmp_path: Path) -> None:
    handler = replace(handled("dlq", "ACTION(RETRY)\n"), breaker=BreakerSettings(1))
    job = replace(job_in(tmp_path), handlers=(handler,))
    key, breakers = BreakerKey(handler.identity.name, 1, "orders", ""), Breakers({})
    for is_first in (True, False):
        processor = processor_of(job, start_at(), breakers=breakers)
        if is_first:
            breakers.learn({key: BreakerCounts(refused=1)}, int(time.time() * 1000))
        assert [breaker.key for breaker in processor.breakers()] == [key]
        processor.close()


@pytest.mark.parametrize(
    ("release", "limit", "emitter"),
    [
        (0, 6, LANES), (0, 7, DRIVER),  # 7 new ones
        (10, 16, LANES), (10, 17, DRIVER),  # and 10 that remain
        (50_000, 1_007, LANES), (50_000, 1_008, DRIVER),  # and as many as the rate allows, 1,001
    ],
)  # fmt: skip
def test_what_remains_counts_as_far_as_a_changed_table_wants_it_now(
    tmp_path: Path, release: int, limit: int, emitter: EmitterChoice
) -> None:
    remaining = TopicPartition("remaining", 0)
    held = Kept(remaining, 0, release)

    def ends(lanes: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return {lane: {LETTERS: 10, remaining: 90_000}[lane] for lane in lanes}

    start = replace(start_at(letters=3), held=(held,))
    processor = processor_of(job_in(tmp_path, driver_batch_limit=limit), start, ends)
    processor.begin()
    frame = Frame()
    processor(cast("Any", frame), 0)
    assert frame.by == [emitter]
    processor.close()
