"""One outcome record is one row, whatever the record is."""

from __future__ import annotations

from base64 import b64decode
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.outcomes.samples import START, outcome

from redrive.engine.outcome import ADDED, COLUMNS, FIELDS, LAST_TIME
from redrive.outcomes.rows import TEXT_LIMIT, Row, moment, row_of


@given(st.integers(0, 10_000))
def test_every_member_of_an_outcome_is_in_its_row(number: int) -> None:
    """Members become columns, fields become ``field_...``, and nothing is left out."""
    record = outcome(number)
    row = row_of(orjson.dumps(record), START, 1, 2)
    members = {column.member: getattr(row, column.name) for column in COLUMNS if column.member}
    flat = {name: value for name, value in record.items() if name != "fields"}
    flat |= {f"fields.{name}": record["fields"].get(name) for name in FIELDS}
    flat["time"] = moment(record["time"])
    flat["key"] = None if record["key"] is None else b64decode(record["key"])
    added = {column.member: None for column in ADDED if column.member}
    # An outcome of an earlier version says the incarnation in the name of its record only.
    assert members == {**added, "incarnation": 1, **flat}
    assert row.day == moment(record["time"]).date()
    assert row.message_offset == int(record["message"].split(":")[2])
    assert (row.outcomes_partition, row.outcomes_offset) == (1, 2)
    assert row.malformed is None


def test_a_member_that_nobody_knows_changes_nothing() -> None:
    known, more = outcome(1), outcome(1, surprise={"deep": [1, 2]})
    assert row_of(orjson.dumps(known), 0, 0, 0) == row_of(orjson.dumps(more), 0, 0, 0)


MALFORMED: dict[str, bytes | None] = {
    "null": None,
    "empty": b"",
    "text": b"no outcome",
    "cut off": orjson.dumps(outcome(1))[:-9],
    "invalid UTF-8": b'{"outcome":"\xff\xfe"}',
    "a list": b"[1, 2]",
    "a number": b"7",
    "another object": b'{"hello": "world"}',
    "no result": orjson.dumps({k: v for k, v in outcome(1).items() if k != "result"}),
    "no time": orjson.dumps(outcome(1, time=None)),
    "time as text": orjson.dumps(outcome(1, time="2026-01-31")),
    "time before 1970": orjson.dumps(outcome(1, time=-1)),
    "time beyond belief": orjson.dumps(outcome(1, time=LAST_TIME)),
    "offset as text": orjson.dumps(outcome(1, offset="x")),
    "reason too large": orjson.dumps(outcome(1, reason=2**31)),
    "fields as list": orjson.dumps(outcome(1, fields=[1])),
    "field of another type": orjson.dumps(outcome(1, fields={"REASON": "x"})),
    "very long": b"x" * (TEXT_LIMIT + 1),
}


@pytest.mark.parametrize("value", MALFORMED.values(), ids=MALFORMED)
def test_a_record_that_is_no_outcome_is_a_row_with_its_text(value: bytes | None) -> None:
    row = row_of(value, START, 3, 4)
    columns: dict[str, Any] = {
        name: value for name, value in row._asdict().items() if value is not None
    }
    assert columns == {
        "time": moment(START),
        "day": moment(START).date(),
        "outcomes_partition": 3,
        "outcomes_offset": 4,
        "malformed": (value or b"").decode(errors="replace")[:TEXT_LIMIT],
    }


@given(st.binary(max_size=200))
def test_no_bytes_at_all_break_it(value: bytes) -> None:
    assert row_of(value, START, 0, 0).outcomes_offset == 0


def test_a_row_has_the_columns_of_the_ledger_in_their_order() -> None:
    assert Row._fields == tuple(column.name for column in COLUMNS)
