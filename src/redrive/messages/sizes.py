"""The size of a record, for Kafka and for MQ."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from redrive.messages.fields import Headers

_BATCH_OVERHEAD: Final = 61
"""Bytes of a record batch's header (Kafka's message format, version 2)."""
_RECORD_OVERHEAD: Final = 31
"""Maximum bytes of a record besides its content: length 5, attributes 1, deltas of time 10, offset
5, lengths of key and value 5 each."""
_ZSTD: Final = pa.Codec("zstd", compression_level=3)  # librdkafka's own level


def body_length(value: bytes | None) -> int:
    """The length of a message as MQ counts it for MAXMSGL: the data with headers in it.

    A binary dead-letter header that stays on the message is part of the data and counts; fields
    in Kafka headers, a dead-letter header in that form too, do not.
    """
    return len(value) if value is not None else 0


def wire_size(key: bytes | None, value: bytes | None, headers: Headers) -> int:
    """Maximum bytes of a record as a batch of its own, uncompressed.

    A broker compares this with ``max.message.bytes`` and a producer with ``max.request.size``;
    compression can only reduce it.

    Returns:
        An upper bound, at most 31 bytes too high.
    """
    size = _BATCH_OVERHEAD + _RECORD_OVERHEAD + body_length(key) + body_length(value)
    size += _varint_size(len(headers))
    for name, raw in headers:
        name_length, raw_length = len(name.encode()), body_length(raw)
        size += _varint_size(name_length) + name_length + _varint_size(raw_length) + raw_length
    return size


def packed_size(key: bytes | None, value: bytes | None, headers: Headers) -> int:
    """Approximate bytes of a record as a batch of its own, compressed with zstd.

    A producer's result differs by some per cent; only the broker's answer is certain.
    """
    content = [key or b"", value or b""]
    for name, raw in headers:
        content += name.encode(), raw or b""
    return _BATCH_OVERHEAD + len(_ZSTD.compress(b"".join(content), asbytes=True))


def _varint_size(length: int) -> int:
    # Zigzag doubles the number; a varint has seven bits in a byte.
    return max(1, ((2 * length).bit_length() + 6) // 7)
