"""Spring Cloud Stream's headers inside the value: read, taken off, and damaged."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from redrive.messages import (
    DeadLetterDecoder,
    Headers,
    Records,
    decode_dead_letter,
    read_view,
    remove_header,
)
from redrive.messages.schemes import KNOWN

TOLD: Mapping[str, Any] = {
    "x-original-topic": "in",
    "x-original-partition": 2,
    "x-original-offset": 5,
    "x-original-timestamp": 1767225600001,
    "x-original-timestamp-type": "CreateTime",
    "x-exception-fqcn": "org.springframework.messaging.MessageHandlingException",
    "x-exception-message": "error occurred",
    "x-exception-stacktrace": "a.B: error occurred\n\tat c\nCaused by: d.E: boom\n\tat f",
}


def embedded(headers: Sequence[tuple[str, Any]], payload: bytes) -> bytes:
    """What ``EmbeddedHeaderUtils.embedHeaders`` writes, by its description."""
    written = b"\xff" + bytes([len(headers)])
    for name, content in headers:
        raw = json.dumps(content).encode()
        written += bytes([len(name)]) + name.encode() + struct.pack(">i", len(raw)) + raw
    return written + payload


def test_what_is_in_the_value_reads_as_the_headers_do() -> None:
    """All parts, from JSON texts and numbers; the stack trace has the root."""
    view = read_view(b"k", embedded([*TOLD.items()], b"x"), [])
    assert view.scheme == "spring-cloud-stream"
    origin = view.origin
    assert (origin.topic, origin.partition, origin.offset) == ("in", 2, 5)
    assert (origin.timestamp, view.error_class) == (1767225600001, TOLD["x-exception-fqcn"])
    assert (view.error_root_class, view.error_message) == ("d.E", "error occurred")
    assert (view.hop, view.pointer) == (1, False)
    reading = KNOWN.reading([])
    assert list(reading.unreadable(b"k", embedded([("x-original-topic", "t")], b""), [])) == []


_names = st.sampled_from(["contentType", "id", *TOLD])
_told = st.lists(st.tuples(_names, st.text(max_size=4) | st.integers()), max_size=6)


@given(_told, st.binary(max_size=9))
def test_going_back_leaves_the_payload_and_the_other_headers(
    more: list[tuple[str, Any]], payload: bytes
) -> None:
    value = embedded([("x-original-topic", "in"), *more], payload)
    profile = decode_dead_letter(value, [])
    kept = {name: content for name, content in more if name not in TOLD}
    expected = embedded([*kept.items()], payload) if kept else payload
    assert remove_header(profile, value, []) == (expected, [])


def test_headers_of_a_record_come_first() -> None:
    headers: Headers = [("__connect.errors.topic", b"orders")]
    value = embedded([*TOLD.items()], b"x")
    assert read_view(None, value, headers).scheme == "connect"
    assert remove_header(decode_dead_letter(value, headers), value, headers) == (value, [])


@given(st.data())
def test_nothing_in_a_value_makes_reading_raise(data: st.DataObject) -> None:
    whole = embedded(data.draw(_told), b"payload")
    values: list[bytes | None] = [None, whole, embedded([*TOLD.items()], b"")]
    for _ in range(5):
        at = data.draw(st.integers(0, len(whole)))
        values.append(whole[:at] + data.draw(st.binary(max_size=3)) + whole[at + 1 :])
        values.append(b"\xff" + data.draw(st.binary(max_size=20)))
    headers: list[Headers] = [[] for _ in values]
    records = Records(
        [None] * len(values), values, headers, [0] * len(values), [*range(len(values))]
    )
    codes, profiles = DeadLetterDecoder().decode(records)
    for code, value in zip(codes, values, strict=True):
        profile = decode_dead_letter(value, [])
        assert profiles[code] == profile
        remove_header(profile, value, [])
