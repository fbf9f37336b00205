"""Arrow batches as records, and records as Arrow columns."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.messages.samples import HEADERS_TYPE, message_headers, record_batch

from redrive.messages import Headers, Records
from redrive.messages.records import HeaderColumn

rows = st.lists(st.tuples(st.none() | st.binary(max_size=4), st.none() | message_headers))


@given(rows, st.integers(0, 3), st.integers(0, 10))
def test_batch_to_records(
    rows: list[tuple[bytes | None, Headers | None]], start: int, length: int
) -> None:
    """Any slice of a batch gives its rows; null headers are no headers."""
    batch = record_batch([value for value, _ in rows], [headers for _, headers in rows])
    part = rows[start : start + length]
    records = Records.from_arrow(batch.slice(start, length))
    assert len(records) == len(part)
    assert records.values == [value for value, _ in part]
    assert records.headers == [headers or [] for _, headers in part]
    assert records.offsets == list(range(len(rows)))[start : start + length]


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pa.array([1_700_000_000_123_456], pa.timestamp("us", tz="UTC")), 1_700_000_000_123),
        (pa.array([1_700_000_000_123], pa.timestamp("ms")), 1_700_000_000_123),
        (pa.array([-1_000], pa.timestamp("us", tz="Europe/Vienna")), -1),
        (pa.array([1_700_000_000_123], pa.int64()), 1_700_000_000_123),
    ],
)
def test_timestamps_are_milliseconds(column: pa.Array, expected: int) -> None:
    """Timestamps of any unit and zone become milliseconds since 1970."""
    batch = record_batch([b"x"], [[]])
    batch = batch.set_column(batch.schema.get_field_index("timestamp"), "timestamp", column)
    assert Records.from_arrow(batch).timestamps == [expected]


def test_missing_column() -> None:
    """A batch without one of the columns is an error of the program, named by Arrow."""
    with pytest.raises(KeyError, match="headers"):
        Records.from_arrow(record_batch([b"x"], [[]]).drop_columns(["headers"]))


@given(st.lists(message_headers))
def test_header_column_round_trip(headers: list[Headers]) -> None:
    """Headers laid end to end and taken apart again are the same, from lists and from Arrow."""
    assert HeaderColumn.from_lists(headers).to_lists() == headers
    assert HeaderColumn.from_arrow(pa.array(headers, HEADERS_TYPE)).to_lists() == headers


def test_null_header_name() -> None:
    """A null header name, which Kafka has not but Arrow can, is read as an empty one."""
    column = pa.array([[{"key": None, "value": b"v"}, {"key": "k", "value": None}]], HEADERS_TYPE)
    assert HeaderColumn.from_arrow(column).to_lists() == [[("", b"v"), ("k", None)]]
