"""Headers that Spring Cloud Stream writes into a value: ``headerMode=embeddedHeaders``.

Source: Spring Cloud Stream's ``EmbeddedHeaderUtils``. The value begins with 0xff and the number of
headers. Each header has the length of its name in a byte, its name, the length of its value in four
bytes, and its value as JSON. The payload follows. This was used before Kafka had headers.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple

import orjson

from redrive.messages.schemes.encodings import Reader, text
from redrive.messages.schemes.scheme import Part, Place

MARK: Final = b"\xff"
"""Prefix of a value with embedded headers."""
_SIZE: Final = struct.Struct(">i")
_LONG: Final = 2**63


class _Embedded(NamedTuple):
    headers: Mapping[bytes, bytes]
    """JSON by name; the last of repeated names counts, as in Spring."""
    payload: bytes


@lru_cache(maxsize=2)
def _parse_marked(value: bytes) -> _Embedded | None:
    """A value with the prefix, parsed; None if it has another form after all."""
    headers: dict[bytes, bytes] = {}
    at = len(MARK) + 1
    try:
        for _ in range(value[len(MARK)]):
            end = at + 1 + value[at]
            name = value[at + 1 : end]
            (size,) = _SIZE.unpack_from(value, end)
            at = end + _SIZE.size + size
            if size < 0 or at > len(value):
                return None
            headers[name] = value[at - size : at]
    except (IndexError, struct.error):
        return None
    return _Embedded(headers, value[at:])


def _parse(value: bytes) -> _Embedded | None:
    return _parse_marked(value) if value.startswith(MARK) else None


def has_embedded(value: bytes, names: frozenset[str]) -> bool:
    """Whether any of some headers is embedded in a value."""
    embedded = _parse(value)
    return embedded is not None and any(name.encode() in embedded.headers for name in names)


def embedded_text(name: str, read: Reader = text) -> Part:
    """A part of a scheme in an embedded header with a JSON text."""

    def read_value(value: bytes) -> str | int | None:
        content = _content(value, name)
        return read(content.encode()) if isinstance(content, str) else None

    return Part("", read_value, Place.VALUE)


def embedded_number(name: str) -> Part:
    """A part of a scheme in an embedded header with a JSON number."""

    def read_value(value: bytes) -> int | None:
        number = _content(value, name)
        is_number = isinstance(number, int) and not isinstance(number, bool)
        return number if is_number and -_LONG <= number < _LONG else None

    return Part("", read_value, Place.VALUE)


def _content(value: bytes, name: str) -> Any:  # noqa: ANN401 - any JSON
    embedded = _parse(value)
    raw = None if embedded is None else embedded.headers.get(name.encode())
    try:
        return None if raw is None else orjson.loads(raw)
    except orjson.JSONDecodeError:
        return None


def without_embedded(value: bytes, names: frozenset[str]) -> bytes:
    """A value without some of its embedded headers; the payload alone if none are left.

    Raises:
        LookupError: No header is embedded in it.
    """
    embedded = _parse(value)
    if embedded is None:
        raise LookupError("the value has no embedded headers")
    kept = [
        (name, raw)
        for name, raw in embedded.headers.items()
        if name.decode(errors="replace") not in names
    ]
    if not kept:
        return embedded.payload
    written = [bytes([len(name)]) + name + _SIZE.pack(len(raw)) + raw for name, raw in kept]
    return b"".join([MARK, bytes([len(kept)]), *written, embedded.payload])
