"""Arrow batches as records, and headers of records as columns."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.messages.samples import HEADERS_TYPE, message_headers, record_batch

from redrive.messages import Headers, Records

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
    later = Records.from_arrow(batch.slice(start, length), reads_few=True)
    assert [*later.headers] == records.headers
    assert (later.grid is None) == (records.grid is None)


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


@given(headers=st.lists(message_headers, min_size=1), repeat=st.booleans())
def test_grid_is_the_headers_by_name(headers: list[Headers], *, repeat: bool) -> None:
    headers = headers[:1] * 3 if repeat else headers
    layouts = {tuple(name for name, _ in pairs) for pairs in headers}
    batch = record_batch([b"x"] * len(headers), [*headers])
    for records in (Records.from_arrow(batch), Records.from_arrow(batch, reads_few=True)):
        grid = records.grid
        assert (grid is None) == (len(layouts) > 1)
        if grid is not None:
            assert {grid.layout} == layouts
            columns = [[*grid.column(index)] for index in range(len(grid.layout))]
            assert columns == [
                [pairs[index][1] for pairs in headers] for index in range(len(grid.layout))
            ]
            assert records.grid is grid


def test_null_header_name() -> None:
    """A null header name, which Kafka has not but Arrow can, is read as an empty one."""
    batch = record_batch([b"x"], [[]])
    column = pa.array([[{"key": None, "value": b"v"}, {"key": "k", "value": None}]], HEADERS_TYPE)
    batch = batch.set_column(batch.schema.get_field_index("headers"), "headers", column)
    assert Records.from_arrow(batch).headers == [[("", b"v"), ("k", None)]]
