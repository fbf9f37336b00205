"""uForwarder's dead-letter topics: a protobuf message as the record's key.

Source: uForwarder's ``dlq_metadata.proto``. The record's own key is a field of that message. Only
the header ``original_cluster`` identifies such a record, as nearly any bytes may be a key.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from redrive.messages.schemes.encodings import BITS, Reader, varint
from redrive.messages.schemes.scheme import LastHeaders, Part, Place, Scheme

_ATTEMPTS, _TOPIC, _PARTITION, _OFFSET, _NANOSECONDS, _KEY = range(1, 7)
"""Numbers of the fields."""
_VARINT, _BYTES = 0, 2
"""Protobuf's wire types."""


@lru_cache(maxsize=64)
def _fields(key: bytes) -> dict[int, int | bytes] | None:
    fields: dict[int, int | bytes] = {}
    at = 0
    try:
        while at < len(key):
            tag, at = varint(key, at)
            number, at = varint(key, at)
            if tag & 7 == _VARINT:
                fields[tag >> 3] = number - (1 << BITS) if number >> (BITS - 1) else number
            elif tag & 7 == _BYTES and at + number <= len(key):
                fields[tag >> 3] = key[at : at + number]
                at += number
            else:
                return None
    except (IndexError, ValueError):
        return None
    return fields if isinstance(fields.get(_TOPIC), bytes) else None


def _number(field: int) -> Reader:
    # Protobuf leaves out fields with 0.
    def read(key: bytes) -> int | None:
        fields = _fields(key)
        number = None if fields is None else fields.get(field, 0)
        return number if isinstance(number, int) else None

    return read


def _topic(key: bytes) -> str | None:
    topic = (_fields(key) or {}).get(_TOPIC)
    return topic.decode("utf-8", "replace") if isinstance(topic, bytes) else None


def _timestamp(key: bytes) -> int | None:
    nanoseconds = (_fields(key) or {}).get(_NANOSECONDS)
    return nanoseconds // 1_000_000 if isinstance(nanoseconds, int) else None


def _original_key(key: bytes | None, _headers: LastHeaders) -> bytes | None:
    fields = _fields(key) if key is not None else None
    if fields is None:
        return key
    original = fields.get(_KEY)
    return original if isinstance(original, bytes) and original else None


UFORWARDER: Final = Scheme(
    name="uforwarder",
    leading=("original_cluster",),
    names=frozenset({"original_cluster"}),
    original_key=_original_key,
    parts={
        "origin.topic": (Part("", _topic, Place.KEY),),
        "origin.partition": (Part("", _number(_PARTITION), Place.KEY),),
        "origin.offset": (Part("", _number(_OFFSET), Place.KEY),),
        "origin.timestamp": (Part("", _timestamp, Place.KEY),),
        "attempts": (Part("", _number(_ATTEMPTS), Place.KEY),),
    },
)
"""uForwarder."""
