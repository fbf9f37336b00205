"""What a task of Spark's Python workers tells the driver."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from types import SimpleNamespace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conftest import PATIENCE, eventually

from redrive.checkpoints.machine import stopped_descendants
from redrive.checkpoints.protocol import EmissionFigures
from redrive.engine.statistics import (
    AGE_BOUNDS,
    LATENESS_BOUNDS,
    Ages,
    Distribution,
    Failure,
    OutcomeKind,
)
from redrive.errors import FatalFault, FencedFault, ProtocolError, SupersededFault, TransientFault
from redrive.messages import TopicPartition
from redrive.streaming.emission import NO_STATE, BatchState
from redrive.streaming.lifecycle import Emitted
from redrive.streaming.workers import StoppedWorkers, TaskResult, _emission, emit_task

COUNTS = st.integers(0, 1 << 40)
SECONDS = st.floats(0, 1e9)


def distributions(bounds: tuple[float, ...]) -> st.SearchStrategy[dict[str, Distribution]]:
    """Some handlers with seconds by bucket."""
    counts = st.lists(COUNTS, min_size=len(bounds) + 1, max_size=len(bounds) + 1)
    some = st.builds(Distribution, st.just(bounds), counts, SECONDS)
    return st.dictionaries(st.text(), some, max_size=2)


EMITTED = st.builds(
    Emitted,
    rows=COUNTS,
    size=COUNTS,
    inputs=st.dictionaries(
        st.builds(OutcomeKind, st.text(), COUNTS, st.text(), COUNTS), COUNTS
    ).map(Counter),
    failures=st.dictionaries(
        st.builds(Failure, st.text(), COUNTS, COUNTS, st.text(), st.text()), COUNTS
    ).map(Counter),
    invalid=COUNTS,
    ends=st.dictionaries(st.builds(TopicPartition, st.text(), st.integers(0, 999)), COUNTS),
    ages=st.builds(Ages, distributions(AGE_BOUNDS), distributions(LATENESS_BOUNDS)),
    figures=st.builds(
        EmissionFigures,
        st.lists(SECONDS, max_size=3),
        COUNTS,
        COUNTS,
        st.dictionaries(COUNTS, COUNTS).map(Counter),
        COUNTS,
        COUNTS,
    ),
)


@given(EMITTED)
def test_what_was_emitted_comes_back_as_it_was(emitted: Emitted) -> None:
    assert again(TaskResult(emitted)) == TaskResult(emitted)


def again(result: TaskResult) -> TaskResult:
    """A result on its way from a worker to the driver."""
    restored: TaskResult = pickle.loads(pickle.dumps(result))  # noqa: S301 - made here
    return restored


@pytest.mark.parametrize("fault", [TransientFault, FatalFault, SupersededFault, FencedFault])
def test_a_fault_comes_back_with_its_words(fault: type[ProtocolError]) -> None:
    emitted = Emitted(rows=3, ends={TopicPartition("DLQ", 1): 7})
    result = again(TaskResult(emitted, fault("no answer", hint="look")))
    assert type(result.fault) is fault
    assert (result.fault.message, result.fault.hint) == ("no answer", "look")
    assert result.emitted == emitted


class FailingEmission:
    """Commits one slice, then finds that it can't go on."""

    def emit(
        self, batches: Iterable[pa.RecordBatch], now: int, emitted: Emitted, known: BatchState
    ) -> None:
        assert known is NO_STATE
        emitted.rows += sum(batch.num_rows for batch in batches)
        emitted.invalid["DLQ"] = now
        raise SupersededFault("a newer run took over")


class RecordedEmission:
    """Knows its order, and by which changed tables it went on."""

    def __init__(self, order: SimpleNamespace) -> None:
        self.run, self.orders, self.is_closed = order.run, [order], False

    def change_tables(self, order: SimpleNamespace) -> None:
        self.orders.append(order)

    def close(self) -> None:
        self.is_closed = True


def test_a_worker_keeps_its_producer_where_only_tables_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("redrive.streaming.workers.Emission", RecordedEmission)
    monkeypatch.setattr("redrive.streaming.workers._emissions", {})
    monkeypatch.setattr("redrive.streaming.workers.log_to_standard_error", lambda _level: None)
    orders = [SimpleNamespace(run=run, tables=tables) for run, tables in ((1, "a"), (1, "b"))]
    first, again, changed = (_emission(pickle.dumps(orders[number])) for number in (0, 0, 1))
    assert first is again is changed
    assert first.orders == orders  # type: ignore[attr-defined]  # the one above
    other = _emission(pickle.dumps(SimpleNamespace(run=2)))
    assert other is not first
    assert first.is_closed  # type: ignore[attr-defined]


def task_result() -> TaskResult:
    """What a task tells that emits two rows."""
    batch = pa.RecordBatch.from_pydict({"value": [b"x"] * 2})
    (answer,) = emit_task(b"", 5, NO_STATE, [batch])
    (data,) = answer.column("result").to_pylist()
    restored: TaskResult = pickle.loads(data)  # noqa: S301 - made here
    return restored


def test_a_task_tells_its_fault_as_a_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("redrive.streaming.workers._emission", lambda _: FailingEmission())
    result = task_result()
    assert isinstance(result.fault, SupersededFault)
    assert (result.emitted.rows, result.emitted.invalid) == (2, {"DLQ": 5})


def test_a_second_attempt_emits_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    context = SimpleNamespace(attemptNumber=lambda: 1)
    monkeypatch.setattr("pyspark.TaskContext.get", lambda: context)
    monkeypatch.setattr("redrive.streaming.workers._emission", lambda _: FailingEmission())
    result = task_result()
    assert type(result.fault) is TransientFault
    assert "an executor was lost" in result.fault.message
    assert result.emitted == Emitted()


@pytest.fixture
def children() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Two processes with the command line of Spark's workers."""
    code = "import sys; sys.stdin.read()"
    command = [sys.executable, "-c", code, "pyspark.daemon"]
    started = [subprocess.Popen(command, stdin=subprocess.PIPE) for _ in range(2)]
    yield started
    for process in started:
        process.kill()
        process.communicate()


def test_only_a_worker_that_stands_still_is_ended(children: list[subprocess.Popen[bytes]]) -> None:
    stopped, idle = children
    ended: list[int] = []
    watch = StoppedWorkers(ended.append)
    os.kill(stopped.pid, signal.SIGSTOP)
    eventually(lambda: stopped_descendants(os.getpid(), "pyspark.daemon"), "it stands still")
    for now in (0.0, 1.0, 10.0, 11.0, 20.0):
        watch.look(now)
    assert not ended
    watch.look(30.0)
    assert ended == [stopped.pid]
    assert stopped.wait(PATIENCE) == -signal.SIGKILL
    watch.look(40.0)
    assert ended == [stopped.pid]
    assert idle.poll() is None


def test_a_job_that_stood_still_with_its_workers_ends_none(
    children: list[subprocess.Popen[bytes]],
) -> None:
    ended: list[int] = []
    watch = StoppedWorkers(ended.append)
    os.kill(children[0].pid, signal.SIGSTOP)
    eventually(lambda: stopped_descendants(os.getpid(), "pyspark.daemon"), "it stands still")
    for now in (0.0, 1_000.0):
        watch.look(now)
    assert not ended
