"""Who emits a batch: the driver while it is small, Spark's workers otherwise."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.configurations import handled, job_of

from redrive.checkpoints.epoch import RunIdentity
from redrive.checkpoints.held import HeldPartition
from redrive.checkpoints.protocol import PositionsOnly
from redrive.configuration import EmitterChoice, JobConfiguration
from redrive.engine.breaker import BreakerCounts, BreakerKey, Breakers, BreakerSettings
from redrive.errors import TransientFault
from redrive.messages import TopicPartition
from redrive.streaming.batch import LARGEST_RESULT, BatchProcessor
from redrive.streaming.emission import EmissionOrder
from redrive.streaming.start import Start
from redrive.streaming.upkeep import Backlog

LIMIT = 5_000
SMALL, LARGE = 500.0, 1_000_000.0
"""Bytes of a row."""


def job_in(folder: Path) -> JobConfiguration:
    """A job that looks at 1,000 messages a second again at most."""
    return job_of(directory=folder, reevaluation_rate=1_000)


def uses_driver(
    choice: EmitterChoice,
    rows: int,
    row_size: float,
    *,
    workers_first: bool = False,
    is_first: bool = False,
) -> bool:
    """What a processor decides that has a bound on the rows of its batch."""
    processor = cast("Any", BatchProcessor.__new__(BatchProcessor))
    processor._configuration = SimpleNamespace(emitter=choice, driver_batch_limit=LIMIT)
    processor._workers_first = workers_first
    processor._is_first = is_first
    processor._row_size = row_size
    processor._most_rows = lambda: rows
    return bool(processor._uses_driver())


@pytest.mark.parametrize("choice", EmitterChoice)
def test_the_driver_never_fetches_more_than_spark_lets_it(choice: EmitterChoice) -> None:
    """Also where the driver is asked for: such a batch could not be fetched, now or ever."""
    rows = int(LARGEST_RESULT / LARGE)
    assert not uses_driver(choice, rows, LARGE)
    assert rows < LIMIT


def test_a_small_batch_is_the_drivers_unless_workers_are_asked_for() -> None:
    """By its rows where the choice is open, by its bytes always."""
    rows = {choice: uses_driver(choice, LIMIT, SMALL) for choice in EmitterChoice}
    assert rows == {
        EmitterChoice.AUTO: True, EmitterChoice.DRIVER: True, EmitterChoice.LANES: False,
    }  # fmt: skip
    assert not uses_driver(EmitterChoice.AUTO, LIMIT + 1, SMALL)
    assert uses_driver(EmitterChoice.DRIVER, LIMIT + 1, SMALL)


def test_the_first_batch_of_a_run_may_have_more_rows_for_the_driver() -> None:
    """Workers would have to open their producers first; by its bytes it is the driver's as ever."""
    rows = 4 * LIMIT
    assert uses_driver(EmitterChoice.AUTO, rows, SMALL, is_first=True)
    assert not uses_driver(EmitterChoice.AUTO, rows + 1, SMALL, is_first=True)
    assert not uses_driver(EmitterChoice.AUTO, rows, LARGE, is_first=True)
    assert not uses_driver(EmitterChoice.LANES, rows, SMALL, is_first=True)


@pytest.mark.parametrize(("ends", "expected"), [(False, [7]), (True, [])])
def test_no_batch_begins_before_it_may(tmp_path: Path, *, ends: bool, expected: list[int]) -> None:
    """Spark may be quicker than the commit of where lanes start; after an end nothing begins."""
    job = job_in(tmp_path)
    processor = cast("Any", BatchProcessor)(
        job,
        EmissionOrder(job, RunIdentity("app", job.share, 1)),
        Start({}, (), frozenset(), {}),
        SimpleNamespace(ends=lambda _: {}, close=lambda: None),
        done=lambda _: None,
        emitted=lambda _: None,
    )
    decided: list[int] = []
    processor._process = lambda _frame, batch, _started: decided.append(batch)
    batch = threading.Thread(target=processor, args=(None, 7))
    batch.start()
    assert not decided
    if ends:
        assert processor.end(60)
    else:
        processor.begin()
    batch.join(60)
    assert decided == expected
    processor.close()


def test_a_batch_that_runs_while_ends_are_asked_for_leaves_work() -> None:
    """What it parked lies behind the end that was told before: WAIT(NO) must not end the job."""
    letters, retries = TopicPartition("letters", 0), TopicPartition("retries", 0)
    ends = {letters: 20, retries: 0}
    processor = SimpleNamespace(began=None, positions={letters: 0, retries: 0})

    def answer(_: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        told = dict(ends)
        processor.positions[letters], ends[retries] = 20, 20  # a batch that parks 20 retries
        return told

    record = SimpleNamespace(lane=letters, offset=0)
    cluster = SimpleNamespace(ends=answer, read=lambda *_, **__: [record])
    start = Start({letters: 0, retries: 0}, (), frozenset(), {})
    backlog = Backlog(cast("Any", cluster), start, cast("Any", processor))
    assert backlog.pass_markers()


def processor_that_commits(
    job: JobConfiguration, lane: TopicPartition, committed: list[PositionsOnly]
) -> Any:
    """A processor of one lane that stands at 7; what it would commit is put into a list."""
    processor = cast("Any", BatchProcessor)(
        job,
        EmissionOrder(job, RunIdentity("app", job.share, 1)),
        Start({lane: 7}, (), frozenset(), {}),
        SimpleNamespace(close=lambda: None),
        done=lambda _: None,
        emitted=lambda _: None,
    )
    processor._emission.emitter = SimpleNamespace(
        begin_batch=lambda: None, emit=committed.append, drop_producer=lambda: None
    )
    return processor


@pytest.mark.parametrize("fault", [TransientFault("a worker is lost"), RuntimeError("of Spark")])
def test_nothing_commits_positions_after_a_failed_batch(tmp_path: Path, fault: Exception) -> None:
    """A worker of the batch may still commit, between the look at the offsets and the commit."""
    lane, committed = TopicPartition("letters", 0), list[PositionsOnly]()
    processor = processor_that_commits(job_in(tmp_path), lane, committed)

    def process(*_: object) -> None:
        raise fault

    processor._process = process
    processor.begin()
    with pytest.raises(type(fault)):
        processor(None, 7)
    processor.commit_positions({lane: 9})
    processor.commit_again()
    assert processor.end(0)
    processor.commit_positions({lane: 9})
    assert not committed
    assert processor.positions == {lane: 7}
    processor.close()


def test_offsets_are_committed_again_behind_a_batch_that_runs_at_that_moment(
    tmp_path: Path,
) -> None:
    """Under a constant load one always does, and the offsets of quiet lanes must not expire."""
    quiet, committed = TopicPartition("quiet", 0), list[PositionsOnly]()
    processor = processor_that_commits(job_in(tmp_path), quiet, committed)
    asked, may_end = threading.Event(), threading.Event()

    def process(*_: object) -> None:
        asked.set()
        assert may_end.wait(60)

    processor._process = process
    processor.begin()
    batch = threading.Thread(target=processor, args=(None, 7))
    batch.start()
    assert asked.wait(60)
    processor.commit_again()
    assert not committed
    may_end.set()
    batch.join(60)
    assert [dict(one.ends()) for one in committed] == [{quiet: 7}]
    processor(None, 8)
    assert len(committed) == 1
    processor.commit_again()
    assert len(committed) == 2
    processor.close()


def test_after_a_batch_that_failed_workers_go_first() -> None:
    """It may have been too large, whatever was expected of it."""
    assert not uses_driver(EmitterChoice.DRIVER, 1, SMALL, workers_first=True)


def test_an_open_breaker_outlives_its_run(tmp_path: Path) -> None:
    """A new partition begins another run: what waits must not use up its attempts then."""
    handler = replace(handled("dlq", "ACTION(RETRY)\n"), breaker=BreakerSettings(1))
    job = replace(job_in(tmp_path), handlers=(handler,))
    key, breakers = BreakerKey(handler.identity.name, 1, "orders", ""), Breakers({})
    for is_first in (True, False):
        processor = BatchProcessor(
            job,
            EmissionOrder(job, RunIdentity("app", job.share, 1)),
            Start({}, (), frozenset(), {}),
            cast("Any", SimpleNamespace(close=lambda: None)),
            done=lambda _: None,
            emitted=lambda _: None,
            breakers=breakers,
        )
        if is_first:
            breakers.learn({key: BreakerCounts(refused=1)}, int(time.time() * 1000))
        assert [breaker.key for breaker in processor.breakers()] == [key]
        processor.close()


@pytest.mark.parametrize(("release", "rows"), [(0, 7), (10, 17), (50_000, 7 + 1_001)])
def test_what_remains_counts_as_far_as_a_changed_table_wants_it_now(
    tmp_path: Path, release: int, rows: int
) -> None:
    """However much remains: a batch has what the rate allows of it, and is the driver's."""
    job = job_in(tmp_path)
    letters, remaining = TopicPartition("dlq", 0), TopicPartition("remaining", 0)
    held = HeldPartition(*remaining, start=0, release=release, interval=None)
    start = Start({letters: 3}, (held,), frozenset(), {})

    def ends(lanes: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return {lane: {letters: 10, remaining: 90_000}[lane] for lane in lanes}

    order = EmissionOrder(job, RunIdentity("app", job.share, 1))
    processor = BatchProcessor(
        job,
        order,
        start,
        cast("Any", SimpleNamespace(ends=ends, close=lambda: None)),
        done=lambda _: None,
        emitted=lambda _: None,
    )
    assert processor._most_rows() == rows
    processor.close()
