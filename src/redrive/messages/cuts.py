"""Records too large to copy whole: what is cut, and restored from the original.

A waiting copy or an instruction contains a record and Redrive's own headers, on topics with a
maximum record size. If it would be larger, the value, the headers or the key is cut, the largest
first. The copy has the length and the SHA-256 of each cut part; ``redrive.origin`` names the
original.
"""

from __future__ import annotations

import re
from hashlib import sha256
from typing import Final, NamedTuple

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


CUT_FORM: Final = re.compile(
    rb"(?:(?:value|headers|key):[0-9]{1,15}:[0-9a-f]{64}(?:,(?!$)|$)){1,3}"
)
"""Part, length in bytes and SHA-256 of what is cut, up to three times."""

_ROOM_FOR_OURS: Final = 128 * 1024
"""Bytes reserved for Redrive's own headers of a copy and of an instruction about it."""
_KEPT: Final = 4096
"""Bytes of a cut value that a copy keeps: an MQDLH, and the beginning of the body."""
_PREFIX: Final = "redrive."


class RecordContent(NamedTuple):
    """The content of a record."""

    key: bytes | None
    value: bytes | None
    headers: Headers
    cut: str = ""
    """What is cut from it, in the form ``CUT_FORM``; empty for a whole record."""


def fitted(content: RecordContent, most: int) -> RecordContent:
    """A record's content, cut so that a copy can be written.

    ``most`` is the maximum record size of the copy's topic in bytes; earlier cuts stay as they are.
    """
    sizes = {
        "value": body_length(content.value),
        "headers": wire_size(None, None, _headers_of_others(content.headers)),
        "key": body_length(content.key),
    }
    parts: list[str] = []
    shortened = content
    for part in sorted(sizes, key=sizes.__getitem__, reverse=True):
        if content.cut or wire_size(*shortened[:3]) <= most - _ROOM_FOR_OURS:
            break
        parts.append(part)
        shortened = _without(content, parts)
    return shortened


def restored(cut: RecordContent, original: RecordContent) -> RecordContent | None:
    """The content of a copy with its cut parts restored.

    ``original`` is the current record at the copy's origin. Returns None if that is another record.
    """
    key, value, headers = cut[:3]
    for description in cut.cut.split(","):
        part, _, _ = description.partition(":")
        if description != _describe(part, original):
            return None
        if part == "value":
            value = original.value
        elif part == "key":
            key = original.key
        else:
            headers = [*_headers_of_others(original.headers), *headers]
    return RecordContent(key, value, headers)


def cut_sentence(cut: str, origin: str) -> str:
    """What was cut from a copy, in the form of ``RecordContent.cut``, for users."""
    parts = (description.split(":") for description in cut.split(","))
    text = ", ".join(f"{part} ({length} bytes, SHA-256 {digest})" for part, length, digest in parts)
    return f"cut from the copy: {text}; the original is at {origin}"


def _without(content: RecordContent, parts: list[str]) -> RecordContent:
    key, value, headers = content[:3]
    if "value" in parts:
        value = None if value is None else value[:_KEPT]
    if "headers" in parts:
        headers = [
            (name, raw)
            for name, raw in headers
            if name.startswith(_PREFIX) and body_length(raw) <= _KEPT
        ]
    if "key" in parts:
        key = None
    return RecordContent(key, value, headers, ",".join(_describe(part, content) for part in parts))


def _describe(part: str, content: RecordContent) -> str:
    raw = content.key if part == "key" else content.value
    if part == "headers":
        raw = b"".join(map(_encode_header, _headers_of_others(content.headers)))
    return f"{part}:{body_length(raw)}:{sha256(raw or b'').hexdigest()}"


def _encode_header(header: tuple[str, bytes | None]) -> bytes:
    name, raw = header[0].encode(), header[1]
    length = -1 if raw is None else len(raw)
    return b"%d:%s%d:%s" % (len(name), name, length, raw or b"")


def _headers_of_others(headers: Headers) -> Headers:
    return [header for header in headers if not header[0].startswith(_PREFIX)]
