"""Emission in Spark's Python workers: one lane, one task, one transaction.

Workers are used again from batch to batch, so what is costly to open stays open in this module. A
worker takes a slot by an exclusive file lock and keeps it for life; the slot is part of its
transactional id.

Two things keep a worker of an earlier run from emitting beside those of a new one. The driver holds
all slot locks for a moment when it starts, which waits until such workers are gone. And every run
has a token in a file: the driver writes it before it fences the transactional ids, a worker
compares it after it opened its producer. A producer opened before the fence is fenced, one opened
after it finds the new token and stops (design 6).
"""

from __future__ import annotations

import fcntl
import json
import os
import pickle
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from redrive.decisions.processor import Failure, Summary
from redrive.errors import EnvironmentFault, FatalFault
from redrive.messages import OffsetRange
from redrive.streaming.emission import Emission

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from redrive.configuration import JobConfiguration

RESULT_SCHEMA: Final = "summary string"
"""One row per lane: its summary as JSON."""

_RESULT = pa.schema([("summary", pa.string())])
_WAIT_FOR_SLOTS = 60.0
"""Seconds the driver waits for the workers of an earlier run to go away."""


@dataclass(frozen=True, slots=True)
class LanePayload:
    """What a worker needs to emit for one run of the query."""

    configuration: JobConfiguration
    run: str
    """Token of the run."""


_slot_files: list[int] = []
_emissions: dict[tuple[int, bytes], Emission] = {}


def slot_count(configuration: JobConfiguration) -> int:
    """How many slots there are: a worker that lingers keeps its own, so twice the cores."""
    return max(4, 2 * configuration.cores)


def driver_id(configuration: JobConfiguration) -> str:
    """Transactional id of the driver emitter."""
    return f"{_prefix(configuration)}-driver"


def lane_id(configuration: JobConfiguration, slot: int) -> str:
    """Transactional id of the worker in one slot."""
    return f"{_prefix(configuration)}-lane-{slot}"


def transactional_ids(configuration: JobConfiguration) -> list[str]:
    """Every transactional id that this instance emits with."""
    slots = range(slot_count(configuration))
    return [driver_id(configuration), *(lane_id(configuration, slot) for slot in slots)]


def _prefix(configuration: JobConfiguration) -> str:
    share = configuration.share
    return f"redrive-{configuration.application}-{share.number}of{share.total}"


def emit_lanes(
    payload: bytes, ranges: Sequence[OffsetRange], now: int, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Emits the records of some ranges, each range in one transaction.

    Args:
        payload: A pickled ``LanePayload``.
        ranges: The ranges of the batch, one for each lane.
        now: Time of the attempts, in milliseconds.
        batches: Numbers of the ranges that this task is to do, in a column ``id``.

    Yields:
        One row with the summary of what was committed for each range.
    """
    for batch in batches:
        for number in batch.column("id").to_pylist():
            summary = _emit_range(payload, ranges[number], now)
            yield pa.RecordBatch.from_pydict({"summary": [pack(summary)]}, schema=_RESULT)


def _emit_range(payload: bytes, asked: OffsetRange, now: int) -> Summary:
    return _emission(payload).emit([asked], now)


def pack(summary: Summary) -> str:
    """A summary as JSON text."""
    return json.dumps(
        [
            [[*key, count] for key, count in summary.results.items()],
            [[*failure, count] for failure, count in summary.failures.items()],
            summary.invalid,
            summary.time,
        ]
    )


def _emission(payload: bytes) -> Emission:
    key = os.getpid(), sha256(payload).digest()
    emission = _emissions.get(key)
    if emission is None:
        for old in _emissions.values():
            old.close()
        _emissions.clear()
        own: LanePayload = pickle.loads(payload)  # noqa: S301 - made by this job's driver
        slot = _take_slot(own.configuration)
        emission = Emission(
            own.configuration, lane_id(own.configuration, slot), partial(_check_run, own)
        )
        _emissions[key] = emission
    return emission


def begin_run(configuration: JobConfiguration, run: str) -> None:
    """Makes ``run`` the current run: producers opened from now on for another one stop."""
    path = _run_file(configuration)
    scratch = path.with_suffix(".new")
    scratch.write_text(run)
    scratch.replace(path)


def _check_run(payload: LanePayload) -> None:
    current = _run_file(payload.configuration).read_text()
    if current != payload.run:
        raise FatalFault("this worker belongs to a run of the query that is over")


def _run_file(configuration: JobConfiguration) -> Path:
    return slot_directory(configuration) / "run"


def slot_directory(configuration: JobConfiguration) -> Path:
    """Where the slot locks lie."""
    return configuration.own_directory / "slots"


def _take_slot(configuration: JobConfiguration) -> int:
    while _slot_files:
        os.close(_slot_files.pop())
    count = slot_count(configuration)
    for slot in range(count):
        descriptor = os.open(
            slot_directory(configuration) / f"{slot}.lock", os.O_CREAT | os.O_RDWR, 0o644
        )
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            continue
        _slot_files.append(descriptor)
        return slot
    raise EnvironmentFault(
        f"all {count} emitter slots of {slot_directory(configuration)} are taken",
        hint="end the processes of an earlier run that still hold them",
    )


def hold_all_slots(configuration: JobConfiguration) -> ExitStack:
    """Takes every slot lock, which waits until the workers of an earlier run are gone.

    Returns:
        A context whose end lets go of the locks; fence all transactional ids inside it.

    Raises:
        EnvironmentFault: A process of an earlier run holds a slot and does not end.
    """
    slot_directory(configuration).mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + _WAIT_FOR_SLOTS
    with ExitStack() as stack:
        for slot in range(slot_count(configuration)):
            _hold(slot_directory(configuration) / f"{slot}.lock", deadline, stack)
        return stack.pop_all()


def _hold(path: Path, deadline: float, stack: ExitStack) -> None:
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR, 0o644)
    stack.callback(os.close, descriptor)
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise EnvironmentFault(
                    f"a process of an earlier run still holds {path}",
                    hint=f"find it with `fuser {path}` and end it",
                ) from None
            time.sleep(0.05)
        else:
            return


def unpack(text: str) -> Summary:
    """The summary that ``pack`` wrote."""
    results, failures, invalid, now = json.loads(text)
    return Summary(
        {(handler, line, result): count for handler, line, result, count in results},
        {Failure(*failure): count for *failure, count in failures},
        invalid,
        now,
    )


def warm_up(session: SparkSession, workers: int) -> None:
    """Starts Spark's Python workers and lets each import what batches need.

    The first retries would otherwise wait for it: seconds, on a busy machine many of them.
    """
    session.range(0, workers, 1, workers).mapInArrow(_imported, "id long").collect()


def _imported(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    # Importing this module was the work; a moment more keeps the workers apart.
    time.sleep(0.2)
    yield from batches
