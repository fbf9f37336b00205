"""Sizes: against records as Kafka's message format really writes them."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatchBuilder
from tests.messages.samples import message_headers

from redrive.messages import Headers, body_length, packed_size, wire_size

sizes = st.none() | st.integers(0, 300) | st.sampled_from([8191, 8192])


@given(sizes, sizes, message_headers | st.just([("n", b"")] * 100))
def test_wire_size(key_size: int | None, value_size: int | None, headers: Headers) -> None:
    """The bound is never below the size of a batch of one record, and at most 31 above."""
    key = None if key_size is None else bytes(key_size)
    value = None if value_size is None else bytes(value_size)
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=1,
        producer_id=1,
        producer_epoch=1,
        base_sequence=1,
        batch_size=2**30,
    )
    builder.append(0, timestamp=0, key=key, value=value, headers=headers)
    true_size = len(builder.build())
    assert true_size <= wire_size(key, value, headers) <= true_size + 31


def test_body_length() -> None:
    """MQ counts the message data: none for a null, a binary header included."""
    assert [body_length(None), body_length(b""), body_length(b"DLH ")] == [0, 0, 4]


def test_packed_size_follows_what_can_be_compressed() -> None:
    noise = Random(1).randbytes
    key, value, headers = noise(1_000), noise(100_000), [("name", noise(1_000))]
    size = wire_size(key, value, list(headers))
    assert 0.99 * size < packed_size(key, value, list(headers)) < 1.01 * size
    assert packed_size(b"k", bytes(1_000_000), [("name", bytes(100_000))]) < 1_000
    assert packed_size(None, None, []) < 100
