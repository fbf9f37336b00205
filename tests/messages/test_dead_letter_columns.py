"""Headers by the column: the same as the codec for one header."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.messages.samples import (
    ASCII_LITTLE,
    REPRESENTATIONS,
    SAMPLE,
    ccsids,
    headers_of_names,
    message_values,
)

from redrive.messages import (
    DeadLetterHeader,
    Representation,
    decode_header,
    decode_headers,
    encode_header,
    encode_headers,
)

columns = st.lists(message_values, max_size=12)


@given(columns, ccsids, st.integers(0, 2))
def test_same_as_row_by_row(values: list[bytes | None], ccsid: int, start: int) -> None:
    """Each row has the fields that the codec for one header finds, or is null."""
    batch = decode_headers(pa.array(values, pa.binary()).slice(start), ccsid)
    for row, value in zip(batch.to_pylist(), values[start:], strict=True):
        header = decode_header(value or b"", ccsid)
        if isinstance(header, str):
            assert set(row.values()) == {None}
        else:
            expected = {"Version": 1, **header.fields(), "Source": header.source}
            assert row == expected


@given(columns, ccsids)
def test_decoded_columns_encode_to_the_same_bytes(values: list[bytes | None], ccsid: int) -> None:
    """Encoding decoded columns gives the headers byte for byte; null where there was none."""
    batch = decode_headers(pa.array(values, pa.binary()), ccsid)
    written = encode_headers(batch, Representation("little", ccsid)).to_pylist()
    assert written == [
        None if isinstance(decode_header(value or b"", ccsid), str) else (value or b"")[:172]
        for value in values
    ]


@given(st.lists(headers_of_names, max_size=8), st.sampled_from(REPRESENTATIONS))
def test_written_as_row_by_row(
    headers: list[DeadLetterHeader], representation: Representation
) -> None:
    """Columns without a source are written as the codec for one header writes them."""
    rows = [header.fields() for header in headers]
    schema = decode_headers(pa.array([], pa.binary())).schema.remove(11)
    written = encode_headers(pa.RecordBatch.from_pylist(rows, schema), representation)
    assert written.to_pylist() == [
        encode_header(replace(header, representation=representation)) for header in headers
    ]


def test_changed_column_keeps_other_bytes() -> None:
    """With a source, a changed column changes its own bytes only, padding elsewhere stays."""
    padded = ASCII_LITTLE[:60] + b"QM1\0junk".ljust(48) + ASCII_LITTLE[108:]
    batch = decode_headers(pa.array([padded], pa.binary()), 819)
    reasons = pc.add(batch.column("Reason"), 1)
    changed = batch.set_column(1, "Reason", reasons)
    expected = padded[:8] + (2054).to_bytes(4, "little") + padded[12:]
    assert encode_headers(changed).to_pylist() == [expected]


def test_text_that_does_not_fit() -> None:
    """A text that is longer than its field is refused, not cut."""
    fields = replace(SAMPLE, dest_q_name="Q" * 49).fields()
    schema = decode_headers(pa.array([], pa.binary())).schema.remove(11)
    with pytest.raises(ValueError, match="DestQName"):
        encode_headers(pa.RecordBatch.from_pylist([fields], schema))
