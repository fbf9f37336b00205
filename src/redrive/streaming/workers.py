"""Emission in Spark's Python workers, which have the rows of their task.

Spark reuses workers for later batches, so this module keeps open what is expensive to open. A
worker emits with one transactional id for as long as it works for one run; Spark gives a lane to
another worker in nearly every batch, so an id belongs to a process, not to a lane.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import pickle
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from importlib import import_module
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from redrive.checkpoints.machine import stopped_descendants
from redrive.errors import ProtocolError, TransientFault
from redrive.kafka.deadline import MOST_ABANDONED, abandoned_calls
from redrive.streaming.emission import BatchState, Emission, EmissionOrder
from redrive.streaming.enrichment import numbered_in_order
from redrive.streaming.lifecycle import Emitted
from redrive.text_log import log_to_standard_error

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MOST_STOPPED: Final = 30.0
"""Seconds after which a process that stands still is ended."""
_STOPPED_AGE: Final = 10.0
"""Seconds between two looks at the states of processes."""
_SPARK_PYTHON: Final = "pyspark"
"""Part of the command line of Spark's Python processes: workers and planners."""
RESULT_SCHEMA: Final = "result binary"
"""One row per task: its ``TaskResult``, pickled."""

_RESULT: Final = pa.schema([("result", pa.binary())])

_emissions: dict[tuple[int, bytes], Emission] = {}
"""By process, since a client must not be used after a fork, and by emission config."""


@dataclass(slots=True)
class TaskResult:
    """The result of one task."""

    emitted: Emitted = field(default_factory=Emitted)
    fault: ProtocolError | None = None
    """The fault that ended it early; the work in ``emitted`` is committed."""


def emit_task(
    order: bytes,
    now: int,
    known: BatchState,
    batches: Iterable[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """Emits the rows of one task.

    Args:
        order: A pickled ``EmissionOrder``.
        now: Time of the attempts, in milliseconds.
        known: What earlier batches did; each task may put a probe of each open breaker.
        batches: Rows with the columns of ``redrive.streaming.held_source.SCHEMA``.

    Yields:
        One row with a ``TaskResult``, which has the fault that ended the task. Only an error that
        is not a fault of the protocol fails the task.
    """
    result = TaskResult()
    try:
        refuse_second_attempt(_attempt())
        _emission(order).emit(numbered_in_order(batches), now, result.emitted, known)
    except ProtocolError as fault:
        result.fault = fault
    if abandoned_calls() > MOST_ABANDONED:
        os._exit(1)  # Spark starts another worker; the next run fences open transactions
    yield pa.RecordBatch.from_pydict({"result": [pickle.dumps(result)]}, schema=_RESULT)


def refuse_second_attempt(attempt: int) -> None:
    """Refuses a task's second attempt: the first may still be alive.

    Raises:
        TransientFault: Spark started it before; a new run, which fences the first attempt, repeats
            the rows.
    """
    if attempt > 0:
        raise TransientFault("an executor was lost; a new run repeats its tasks")


class StoppedWorkers:
    """Ends Spark's Python processes on this machine that stand still for ``MOST_STOPPED``.

    Spark waits for them without a bound, and so does every lane of the batch. A busy process is
    never ended, however slow it is: only one that the operating system does not let run.
    """

    def __init__(self, ended: Callable[[int], None]) -> None:
        """``ended`` is called with the number of each process that was ended."""
        self._ended = ended
        self._looks: Counter[int] = Counter()
        self._next_look = 0.0

    def look(self, now: float) -> None:
        """Looks for them; the time is in seconds from an arbitrary start."""
        if now < self._next_look:
            return
        self._next_look = now + _STOPPED_AGE
        # Looks are counted, not seconds: this process may have stood still together with them.
        stopped = stopped_descendants(os.getpid(), _SPARK_PYTHON)
        self._looks = Counter({pid: self._looks[pid] + 1 for pid in stopped})
        for pid, looks in self._looks.items():
            if (looks - 1) * _STOPPED_AGE >= MOST_STOPPED:
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
                    self._ended(pid)


def _attempt() -> int:
    """The number of this attempt at the task, as Spark counts; 0 outside a task."""
    from pyspark import TaskContext  # noqa: PLC0415 - slow to import

    context = TaskContext.get()
    return 0 if context is None else context.attemptNumber()


def _emission(order: bytes) -> Emission:
    key = os.getpid(), sha256(order).digest()
    emission = _emissions.get(key)
    if emission is None:
        own: EmissionOrder = pickle.loads(order)  # noqa: S301 - made by this job's driver
        emission = _reused_emission(own)
        if emission is None:
            log_to_standard_error(logging.WARNING)
            emission = Emission(own)
        _emissions.clear()
        _emissions[key] = emission
    return emission


def _reused_emission(order: EmissionOrder) -> Emission | None:
    """The emission of this process, with changed tables, if it is of the same run; else None."""
    for (process, _), old in _emissions.items():
        if process == os.getpid() and old.run == order.run:
            old.change_tables(order)
            return old
        old.close()
    return None


def keep_warm(session: SparkSession, workers: int) -> None:
    """Starts Spark's Python workers and lets each import what batches need.

    Otherwise the first retries would wait for it, for seconds or longer on a busy machine. Spark
    ends workers that are idle for a minute, so this is repeated sooner: each new one that emits
    registers an id, which the next start must fence.
    """
    session.range(0, workers, 1, workers).mapInArrow(_pass_on, "id long").collect()


def _pass_on(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import redrive.streaming.held_reader  # noqa: F401, PLC0415 - here only workers import it

    # Importing was the work; a short pause gives each task its own worker.
    time.sleep(0.05)
    yield from batches


def serve() -> None:
    """Spark's daemon, with the imports of its workers, which share their memory.

    Spark's program runs Python's collector after each task, which would look at all imports and
    caches: a seventh of a worker's time. Python's own rules for it suffice. Nothing but imports may
    happen here, as no client survives a fork.
    """
    for name in ("pyspark.worker", "redrive.streaming.held_reader", "redrive.streaming.workers"):
        import_module(name)
    gc.freeze()
    daemon: Any = import_module("pyspark.daemon")
    daemon.gc = SimpleNamespace(collect=lambda: 0)
    daemon.manager()


if __name__ == "__main__":
    serve()
