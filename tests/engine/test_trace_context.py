"""The trace of a message: kept wherever it goes, and named in its outcome."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.engine.samples import dead_letter, handler_of
from tests.engine.test_attempts import outputs_of

from redrive.engine.outcome import TRACEPARENT, read_traceparent
from redrive.engine.sources import SourceKind
from redrive.messages import Headers, OutputRecord, Records

TRACE = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
LATER = b"cc" + TRACE[2:]
NOT_ONE = [
    b"",
    b"ff" + TRACE[2:],
    TRACE.upper(),
    TRACE[:-1],
    TRACE + b"0",
    TRACE + b"-more",
    LATER + b"more",
    b"00-" + b"0" * 32 + b"-00f067aa0ba902b7-01",
    b"00-4bf92f3577b34da6a3ce929d0e0e4736-" + b"0" * 16 + b"-01",
    b'00-"},"result":"retried-00f067aa0ba902b7-01',
    b"\xff" * 55,
]
SAID = st.sampled_from([None, None, TRACE, LATER, LATER + b"-more", *NOT_ONE]) | st.binary()
TABLE = """REASON(1) ACTION(FWD) FWDQ(Q) HEADER(YES)
REASON(2) ACTION(RETRY) RETRY(2)
REASON(3) ACTION(IGNORE)
REASON(4) ACTION(DISCARD)
"""


@pytest.mark.parametrize("raw", [TRACE, LATER, LATER + b"-more"])
def test_a_trace_is_told_as_it_is_written(raw: bytes) -> None:
    assert read_traceparent(raw).encode() == raw[: len(TRACE)]


@pytest.mark.parametrize("raw", [None, *NOT_ONE])
def test_what_is_no_trace_is_none(raw: bytes | None) -> None:
    assert read_traceparent(raw) == ""


@given(st.binary())
def test_whatever_is_told_is_harmless(raw: bytes) -> None:
    """It goes into the JSON of an outcome as it is."""
    assert re.fullmatch(
        r"([0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2})?", read_traceparent(raw)
    )


@st.composite
def messages(draw: st.DrawFn) -> tuple[Records, list[bytes | None]]:
    """Dead letters with what their header says, alike or not; the last of repeated ones counts."""
    is_alike = draw(st.booleans())
    headers: list[Headers] = []
    traces: list[bytes | None] = []
    for _ in range(draw(st.integers(1, 5))):
        trace = draw(SAID)
        some = dead_letter(draw(st.integers(1, 5)), "NO.SUCH")
        if is_alike or trace is not None:
            some += [(TRACEPARENT, b"earlier"), ("x", b"y"), (TRACEPARENT, trace)]
        headers.append(some)
        traces.append(trace)
    number = len(headers)
    values: list[bytes | None] = [b"body"] * number
    return Records([b"k"] * number, values, headers, [5] * number, [*range(number)]), traces


@given(messages())
def test_each_outcome_names_the_trace_of_its_message(
    given_messages: tuple[Records, list[bytes | None]],
) -> None:
    records, traces = given_messages
    for kind in (SourceKind.DEAD_LETTERS, SourceKind.RETRIES, SourceKind.REMAINING):
        written = [record for _, record in outputs_of(records, handler_of(TABLE), kind=kind)]
        outcomes = [json.loads(record.value or b"") for record in written if record.topic == "OUT"]
        assert [outcome.get("traceparent", "") for outcome in outcomes] == [
            *map(read_traceparent, traces)
        ]
        for copy in written:
            if copy.topic != "OUT" and copy.value is not None:
                assert kept(copy) in [traced(header) for header in records.headers]


def traced(headers: Headers) -> list[bytes | None]:
    return [value for name, value in headers if name == TRACEPARENT]


def kept(copy: OutputRecord) -> list[bytes | None]:
    return traced(copy.headers or [])
