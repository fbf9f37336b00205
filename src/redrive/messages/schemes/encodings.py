"""Encodings of attributes in schemes: one reader for each.

A reader returns None for unreadable bytes, and never raises. The scheme determines the reader,
never the length of a value, as eight bytes of text are legal everywhere.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Final, TypeAlias

Reader: TypeAlias = Callable[[bytes], str | int | None]
"""Reads one value."""

_DECIMAL: Final = re.compile(rb" *([+-]?[0-9]{1,19}) *")
_LONG: Final = 2**63
BITS: Final = 64
"""Length of the longest varint."""
_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")
_CAUSE: Final = b"\nCaused by: "
_END_OF_CLASS: Final = re.compile(r"[:\s]")
_LONGEST_CLASS: Final = 1024
"""Maximum bytes of a class name."""


def text(raw: bytes) -> str:
    """UTF-8, with U+FFFD for undecodable bytes."""
    return raw.decode("utf-8", "replace")


def decimal(raw: bytes) -> int | None:
    """A number of 64 bits as decimal digits."""
    match = _DECIMAL.fullmatch(raw)
    number = int(match[1]) if match else _LONG
    return number if -_LONG <= number < _LONG else None


def int32be(raw: bytes) -> int | None:
    """Exactly four bytes, big-endian, signed: Java's ``ByteBuffer.putInt``."""
    return _INT32.unpack(raw)[0] if len(raw) == _INT32.size else None


def int64be(raw: bytes) -> int | None:
    """Exactly eight bytes, big-endian, signed: Java's ``ByteBuffer.putLong``."""
    return _INT64.unpack(raw)[0] if len(raw) == _INT64.size else None


def minimal_integer(raw: bytes) -> int | None:
    """One to eight bytes, big-endian two's complement: Java's ``BigInteger.toByteArray``."""
    return int.from_bytes(raw, "big", signed=True) if 0 < len(raw) <= _INT64.size else None


def iso8601(raw: bytes) -> int | None:
    """A date and time, in milliseconds since 1970; without an offset it is UTC."""
    try:
        moment = datetime.fromisoformat(raw.decode("ascii").strip())
    except ValueError:
        return None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)


def time(raw: bytes) -> int | None:
    """Milliseconds since 1970 as decimal digits, or a date and time by ISO 8601."""
    number = decimal(raw)
    return iso8601(raw) if number is None else number


def class_name(raw: bytes) -> str | None:
    """The class in the result of Java's ``Throwable.toString``: the text up to the first colon."""
    return text(raw[:_LONGEST_CLASS]).partition(":")[0].strip() or None


def root_cause(raw: bytes) -> str | None:
    """The class in the last ``Caused by:`` of a Java stack trace.

    Causes of suppressed exceptions are indented, so they don't count. If a trace has lost its line
    ends, any position counts.
    """
    lines = raw if b"\n" in raw else raw.replace(_CAUSE[1:], _CAUSE)
    at = lines.rfind(_CAUSE)
    if at < 0:
        return None
    raw, start = lines, at + len(_CAUSE)
    return _END_OF_CLASS.split(text(raw[start : start + _LONGEST_CLASS]), maxsplit=1)[0] or None


def varint(data: bytes, at: int) -> tuple[int, int]:
    """A number as Protobuf writes it, from 0, and the offset after it.

    Raises:
        IndexError: The data ends within the number.
        ValueError: The number is longer than 64 bits.
    """
    number = shift = 0
    while shift < BITS:
        byte = data[at]
        number |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:  # noqa: PLR2004 - the bit that says that more follows
            return number, at
    raise ValueError("a number has at most ten bytes")


ENCODINGS: Final[Mapping[str, Reader]] = {
    "text": text,
    "decimal": decimal,
    "int32be": int32be,
    "int64be": int64be,
    "biginteger": minimal_integer,
    "iso8601": iso8601,
    "class": class_name,
}
"""The encodings for settings."""
