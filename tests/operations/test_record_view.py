"""A record as a person sees it."""

from __future__ import annotations

from unicodedata import category

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.messages.samples import messages

from redrive.command.record import lines
from redrive.errors import UsageError
from redrive.kafka.records import StoredRecord
from redrive.messages import Headers, TopicPartition
from redrive.messages.schemes import KNOWN
from redrive.operations.record_view import RecordView, body_text, record_place

SPRING: Headers = [
    ("trace", b"1"),
    ("kafka_dlt-original-topic", b"orders"),
    ("kafka_dlt-original-partition", b"\0\0\0\2"),
    ("kafka_dlt-original-offset", b"12345678"),
    ("kafka_dlt-original-timestamp", b"\1"),
    ("kafka_dlt-exception-stacktrace", b"a.B: c\n" + b"\tat x.Y(Z.java:1)\n" * 50),
    ("redrive.hops", b"1"),
]


def view_of(key: bytes | None, value: bytes | None, headers: Headers) -> RecordView:
    return RecordView.of(StoredRecord(TopicPartition("dlq", 0), 7, 0, key, value, headers), KNOWN)


def test_numbers_in_bytes_are_told_as_numbers() -> None:
    shown = view_of(b"k", b'{"a":1}', SPRING)
    assert [header.number for header in shown.headers] == [
        None, None, 2, int.from_bytes(b"12345678", "big"), None, None, None,
    ]  # fmt: skip
    assert [header.scheme for header in shown.headers] == [
        "", *["spring-dlt"] * 5, "redrive",
    ]  # fmt: skip
    assert len(shown.unreadable) == 1
    text = "\n".join(lines(shown))
    assert "kafka_dlt-original-partition: 2 = 0x00000002  (spring-dlt)" in text
    assert "dead letter of spring-dlt" in text
    assert "kafka_dlt-original-timestamp cannot be read" in text
    assert "... 47 more lines" in text
    assert '    "a": 1' in text


@given(messages, st.none() | st.binary(max_size=5))
def test_any_record_can_be_shown(message: tuple[bytes | None, Headers], key: bytes | None) -> None:
    value, headers = message
    text = "\n".join(lines(view_of(key, value, headers)))
    assert f"{len(headers)} headers" in text
    # Blanks of other scripts are no control characters.
    assert all(
        character.isprintable() or character in "\t\n" or category(character) == "Zs"
        for character in text
    )


@pytest.mark.parametrize("place", ["", "orders", "orders:1", "orders:x:1", "or ders:0:1", "a:0:-1"])
def test_what_is_no_place_is_a_usage_error(place: str) -> None:
    with pytest.raises(UsageError) as refused:
        record_place(place)
    assert "topic:partition:offset" in refused.value.hint


def test_a_place_is_topic_partition_and_offset() -> None:
    assert record_place("a.b-c_d:3:42") == (TopicPartition("a.b-c_d", 3), 42)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (b"[1]", "[\n  1\n]"),
        (b"{x", "{x"),
        (b"plain", "plain"),
        (b"\xff", None),
        (b"\x1b[1m", None),
    ],
)
def test_a_body_is_json_text_or_bytes(value: bytes, text: str | None) -> None:
    """JSON with indents; what a terminal should not see is no text."""
    assert body_text(value) == text
