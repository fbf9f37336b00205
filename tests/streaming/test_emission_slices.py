"""What comes as Arrow batches is cut into slices by rows, bytes and seconds."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.configurations import handled, job_of
from tests.engine.known_cluster import OPEN

from redrive.checkpoints.epoch import RunIdentity
from redrive.checkpoints.instances import Share
from redrive.checkpoints.protocol import EmissionFigures
from redrive.configuration import JobConfiguration
from redrive.engine.slice import Slice
from redrive.messages import Headers, OutputRecord, Records, TopicPartition
from redrive.streaming.emission import Emission, EmissionOrder
from redrive.streaming.lifecycle import Emitted
from redrive.streaming.rows import arrow_batch

FIRST, SECOND = TopicPartition("DLQ", 0), TopicPartition("DLQ", 1)
OTHER = TopicPartition("OTHER", 0)
Emit = Callable[..., list[list[tuple[TopicPartition, int]]]]


def batch(*rows: tuple[TopicPartition, int], size: int = 1) -> pa.RecordBatch:
    """Rows of some lanes with bodies of so many bytes, as the job's sources make them."""
    batches = [arrow_batch(FIRST, Records([], [], [], [], []))]
    for lane, of_lane in groupby(rows, itemgetter(0)):
        offsets = [offset for _, offset in of_lane]
        count = len(offsets)
        headers: list[Headers] = [[("mqdlh.Reason", b"2051")] for _ in offsets]
        records = Records([b"k"] * count, [bytes(size)] * count, headers, [77] * count, offsets)
        batches.append(arrow_batch(lane, records))
    return pa.concat_batches(batches)


def lane_rows(lane: TopicPartition, count: int, start: int = 0) -> list[tuple[TopicPartition, int]]:
    return [(lane, offset) for offset in range(start, start + count)]


class Recorder:
    """An emitter that commits everything and keeps which rows a slice carried."""

    def __init__(self) -> None:
        self.batches = 0
        self.slices: list[list[tuple[TopicPartition, int]]] = []

    def take_figures(self) -> EmissionFigures:
        return EmissionFigures(transactions=[0.5] * len(self.slices))

    def begin_batch(self) -> None:
        self.batches += 1

    def emit(self, work: Slice) -> Sequence[Slice]:
        OPEN.decided(work)
        self.slices.append(
            [(part.lane, offset) for part in work._parts for offset in part.records.offsets]
        )
        return [work]


def configured(directory: Path, **limits: Any) -> JobConfiguration:
    """Two handlers that discard everything."""
    handlers = (handled(name, "ACTION(DISCARD)\n") for name in ("DLQ", "OTHER"))
    return job_of(*handlers, directory=directory, **limits)


@pytest.fixture
def emit(tmp_path: Path) -> Emit:
    """Emit batches under some limits; which rows each transaction carried."""

    def run(
        batches: Sequence[pa.RecordBatch], emitted: Emitted | None = None, **limits: Any
    ) -> list[list[tuple[TopicPartition, int]]]:
        run_of_the_job = RunIdentity("test", Share(1, 1), 1)
        emission = Emission(EmissionOrder(configured(tmp_path, **limits), run_of_the_job))
        recorder = Recorder()
        emission.emitter = recorder  # type: ignore[assignment]  # as much of one as is used here
        emission.emit(batches, 1_000, emitted or Emitted())
        assert recorder.batches == 1
        return recorder.slices

    return run


def test_batches_within_the_limits_are_one_transaction(emit: Emit) -> None:
    rows = [lane_rows(FIRST, 2), [], lane_rows(FIRST, 3, start=2)]
    assert emit([batch(*some) for some in rows]) == [lane_rows(FIRST, 5)]
    assert emit([]) == emit([batch()]) == []


def test_a_batch_with_too_many_rows_is_cut(emit: Emit) -> None:
    batches = [batch(*lane_rows(FIRST, 7)), batch(*lane_rows(FIRST, 2, start=7))]
    slices = emit(batches, slice_records=3)
    assert [len(rows) for rows in slices] == [3, 3, 3]
    assert list(itertools.chain(*slices)) == lane_rows(FIRST, 9)


def test_a_batch_with_too_many_bytes_is_cut(emit: Emit) -> None:
    slices = emit([batch(*lane_rows(FIRST, 8), size=10_000)], slice_bytes=25_000)
    assert [len(rows) for rows in slices] == [2, 2, 2, 2]


def test_a_row_is_never_cut(emit: Emit) -> None:
    batches = [
        batch(*lane_rows(FIRST, 1)),
        batch(*lane_rows(FIRST, 2, start=1), size=50_000),
        batch(*lane_rows(FIRST, 1, start=3)),
    ]
    slices = emit(batches, slice_bytes=20_000)
    assert slices == [[row] for row in lane_rows(FIRST, 4)]


def test_a_slice_that_takes_too_long_to_fill_is_closed(
    emit: Emit, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = itertools.count(0.0, 4.0)
    clock = SimpleNamespace(monotonic=lambda: next(seconds))
    monkeypatch.setattr("redrive.streaming.emission.time", clock)
    batches = [batch((FIRST, offset)) for offset in range(6)]
    slices = emit(batches, slice_seconds=10.0)
    assert len(slices) > 1
    assert all(len(rows) > 1 for rows in slices[:-1])
    assert list(itertools.chain(*slices)) == lane_rows(FIRST, 6)


def test_rows_of_several_lanes_in_one_batch_keep_their_lanes(emit: Emit) -> None:
    rows = [(FIRST, 5), (FIRST, 6), (SECOND, 0), (OTHER, 9), (FIRST, 7), (SECOND, 1)]
    emitted = Emitted()
    assert emit([batch(*rows)], emitted) == [rows]
    assert emitted.ends == {FIRST: 8, SECOND: 2, OTHER: 10}
    assert emitted.inputs == {("DLQ", 1, "discarded", 0): 5, ("OTHER", 1, "discarded", 0): 1}
    assert emitted.rows == 6
    assert emitted.size > 6
    assert emitted.figures.transactions == [0.5]
    assert {name: age.counts for name, age in emitted.ages.ages.items()} == {
        "DLQ": [0, 5, *[0] * 10],  # attempted at 1,000 ms, written at 77 ms
        "OTHER": [0, 1, *[0] * 10],
    }


@given(
    st.lists(
        st.lists(st.tuples(st.sampled_from([FIRST, SECOND, OTHER]), st.integers(0, 3000))),
        max_size=5,
    ),
    st.integers(1, 5),
    st.integers(1, 8_000),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_row_is_lost_doubled_or_moved_whatever_the_limits(
    emit: Emit, shape: list[list[tuple[TopicPartition, int]]], records: int, size: int
) -> None:
    offsets = itertools.count()
    batches, rows = [], []
    for some in shape:
        placed = [(lane, next(offsets)) for lane, _ in some]
        rows += placed
        read_batch = batch(*placed)
        bodies = pa.array([bytes(length) for _, length in some], pa.binary())
        batches.append(
            read_batch.set_column(read_batch.schema.get_field_index("value"), "value", bodies)
        )
    slices = emit(batches, slice_records=records, slice_bytes=size)
    assert list(itertools.chain(*slices)) == rows
    assert all(0 < len(rows) <= records for rows in slices)


def test_a_topic_made_anew_names_its_messages_otherwise(tmp_path: Path) -> None:
    order = EmissionOrder(configured(tmp_path), RunIdentity("test", Share(1, 1), 1))
    written: list[OutputRecord] = []

    class Keeper(Recorder):
        def emit(self, work: Slice) -> Sequence[Slice]:
            written.extend(record for _, record in OPEN.decided(work))
            return [work]

    for incarnations in ({}, {"DLQ": 2, "OTHER": 1}):
        emission = Emission(replace(order, incarnations=incarnations))
        emission.emitter = Keeper()  # type: ignore[assignment]  # as above
        emission.emit([batch((FIRST, 5), (OTHER, 6))], 1_000, Emitted())
    assert [record.key for record in written] == [
        b"DLQ:0:5", b"OTHER:0:6", b"DLQ~2:0:5", b"OTHER:0:6",
    ]  # fmt: skip
