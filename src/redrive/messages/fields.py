"""The fields of a message: MQ's message descriptor (MQMD) as Kafka headers.

Each field is a header ``JMS_IBM_MQMD_<Field>`` with text. Reading is tolerant, because anyone may
write headers: padding, NULs and odd bytes never raise, and an invalid number counts as the field's
default. The last of repeated headers counts, as with Kafka's ``lastHeader``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from functools import lru_cache
from hashlib import sha256
from typing import Final, TypeAlias

Headers: TypeAlias = list[tuple[str, bytes | None]]
"""The headers of one record in order, including repeated names."""

MQMD_PREFIX: Final = "JMS_IBM_MQMD_"
_LONG: Final = re.compile(rb"[ \t]*([+-]?[0-9]{1,18})[ \t]*")


class FieldType(StrEnum):
    """MQ's elementary types."""

    LONG = "MQLONG"
    """A 4-byte signed integer."""
    CHAR = "MQCHAR"
    """Single-byte characters, padded with blanks."""
    BYTE = "MQBYTE"
    """Bytes that are never converted; text form: hexadecimal digits."""


@dataclass(frozen=True, slots=True)
class Field:
    """One field of an MQ structure."""

    name: str
    type: FieldType
    offset: int
    """Bytes from the start of the structure."""
    length: int
    """Bytes in the structure."""

    @property
    def default(self) -> str | int:
        """The value of a missing field: 0, blank, or zero bytes."""
        match self.type:
            case FieldType.LONG:
                return 0
            case FieldType.CHAR:
                return ""
            case FieldType.BYTE:
                return "00" * self.length

    @property
    def header(self) -> str:
        """The Kafka header of this field of the MQMD."""
        return MQMD_PREFIX + self.name


def layout(*fields: tuple[str, FieldType, int]) -> Mapping[str, Field]:
    """Arrange fields one after another without gaps, as in MQ's structures."""
    table: dict[str, Field] = {}
    offset = 0
    for name, type_, length in fields:
        table[name] = Field(name, type_, offset, length)
        offset += length
    return table


MQMD: Final = layout(
    ("StrucId", FieldType.CHAR, 4),
    ("Version", FieldType.LONG, 4),
    ("Report", FieldType.LONG, 4),
    ("MsgType", FieldType.LONG, 4),
    ("Expiry", FieldType.LONG, 4),
    ("Feedback", FieldType.LONG, 4),
    ("Encoding", FieldType.LONG, 4),
    ("CodedCharSetId", FieldType.LONG, 4),
    ("Format", FieldType.CHAR, 8),
    ("Priority", FieldType.LONG, 4),
    ("Persistence", FieldType.LONG, 4),
    ("MsgId", FieldType.BYTE, 24),
    ("CorrelId", FieldType.BYTE, 24),
    ("BackoutCount", FieldType.LONG, 4),
    ("ReplyToQ", FieldType.CHAR, 48),
    ("ReplyToQMgr", FieldType.CHAR, 48),
    ("UserIdentifier", FieldType.CHAR, 12),
    ("AccountingToken", FieldType.BYTE, 32),
    ("ApplIdentityData", FieldType.CHAR, 32),
    ("PutApplType", FieldType.LONG, 4),
    ("PutApplName", FieldType.CHAR, 28),
    ("PutDate", FieldType.CHAR, 8),
    ("PutTime", FieldType.CHAR, 8),
    ("ApplOriginData", FieldType.CHAR, 4),
    ("GroupId", FieldType.BYTE, 24),
    ("MsgSeqNumber", FieldType.LONG, 4),
    ("Offset", FieldType.LONG, 4),
    ("MsgFlags", FieldType.LONG, 4),
    ("OriginalLength", FieldType.LONG, 4),
)
"""The message descriptor, version 2, by field name."""

EXPIRY: Final = MQMD["Expiry"].header
DEADLINE: Final = "JMSExpiration"
"""Header with the time at which a message expires, in milliseconds since 1970, as in JMS."""
TENTH: Final = 100
"""Milliseconds in a unit of Expiry."""
_MOMENT: Final = re.compile(rb"[0-9]{1,15}")
_DEFAULTS: Final = {field.header: str(field.default).encode() for field in MQMD.values()}


def trim(text: str) -> str:
    """The significant part of a text: up to the first NUL, without trailing blanks.

    MQ pads with blanks; some writers end names with NUL instead.
    """
    return text.partition("\0")[0].rstrip(" ")


def read_text(raw: bytes | None) -> str:
    """The text of a header value; blank for a null, U+FFFD for bytes that are not UTF-8."""
    return trim(raw.decode("utf-8", "replace")) if raw else ""


def parse_long(raw: bytes | None) -> int | None:
    """The MQLONG in a header value's decimal digits, or None if it has none."""
    match = _LONG.fullmatch(raw.partition(b"\0")[0]) if raw else None
    number = int(match[1]) if match else None
    return number if number is not None and -(2**31) <= number < 2**31 else None


def read_long(raw: bytes | None) -> int:
    """The MQLONG in a header value, or 0, the default."""
    return parse_long(raw) or 0


def mqmd_fields(headers: Headers) -> dict[str, str | int]:
    """The message descriptor of a record: fields of ``MQMD`` by name, except StrucId and Version.

    Missing fields have their defaults. Byte fields are the text of their header.
    """
    present = dict(headers)
    return {
        field.name: _read(field, present.get(field.header))
        for field in MQMD.values()
        if field.name not in {"StrucId", "Version"}
    }


def _read(field: Field, raw: bytes | None) -> str | int:
    return read_long(raw) if field.type is FieldType.LONG else read_text(raw) or field.default


def unique_identifier(queue_manager: str, source: str) -> str:
    """A MsgId or CorrelId as queue managers make them: 48 hex digits (MQMD, field MsgId).

    It has 12 characters of the manager's name. The same ``source`` gives the same identifier.
    """
    beginning = b"AMQ " + queue_manager.encode("ascii", "replace")[:12].ljust(12)
    ending = sha256(source.encode()).digest()[: MQMD["MsgId"].length - len(beginning)]
    return (beginning + ending).hex()


def put_moment(timestamp: int) -> dict[str, str]:
    """PutDate and PutTime of milliseconds since 1970 (MQMD): GMT, to hundredths of a second."""
    date, time = _date_and_time(timestamp // 10)
    return {"PutDate": date, "PutTime": time}


@lru_cache(maxsize=1024)
def _date_and_time(hundredths: int) -> tuple[str, str]:
    moment = datetime.fromtimestamp(hundredths // 100, UTC)
    return f"{moment:%Y%m%d}", f"{moment:%H%M%S}{hundredths % 100:02}"


def deadline_of(headers: Mapping[str, bytes | None], timestamp: int) -> int | None:
    """When a message expires by its own Expiry; None for never.

    ``JMSExpiration`` has the time if Expiry was counted down; else Expiry counts from the record's
    timestamp. All times are milliseconds since 1970.
    """
    expiry = read_long(headers.get(EXPIRY))
    if expiry <= 0:
        return None
    raw = headers.get(DEADLINE)
    if raw is not None and _MOMENT.fullmatch(raw) and int(raw):
        return int(raw)
    return timestamp + expiry * TENTH


def counted_down(headers: Headers, timestamp: int, now: int) -> Headers:
    """The headers with the rest of Expiry at a time (MQMD, field Expiry).

    A queue manager subtracts a message's waiting time from Expiry. The record keeps its timestamp,
    so a reduced Expiry comes with ``JMSExpiration``, the time itself. All times are milliseconds
    since 1970.
    """
    present = dict(headers)
    deadline = deadline_of(present, timestamp)
    if deadline is None:
        return headers
    left = max(1, -(-(deadline - now) // TENTH))
    if left >= read_long(present.get(EXPIRY)):
        return headers
    kept = [pair for pair in headers if pair[0] != DEADLINE]
    kept.append((DEADLINE, str(deadline).encode()))
    return with_mqmd_headers(kept, mqmd_headers({"Expiry": left}))


def mqmd_headers(fields: Mapping[str, str | int]) -> dict[str, bytes]:
    """Headers for fields of the message descriptor: header name -> value, by field names."""
    return {MQMD[name].header: str(value).encode() for name, value in fields.items()}


def is_default(header: str, text: bytes) -> bool:
    """Whether a header of the message descriptor says the same as its absence."""
    return _DEFAULTS[header] == text


def with_mqmd_headers(headers: Headers, wanted: Mapping[str, bytes]) -> Headers:
    """The headers with other fields of the message descriptor, from ``mqmd_headers``.

    A header that already has the value, apart from padding, is unchanged. A header with another
    value is replaced in place, each one if the name is repeated, so that every reader finds the
    same value. A missing header is appended unless its absence means the same.
    """
    changed = list(headers)
    present = [index for index, pair in enumerate(headers) if pair[0] in wanted]
    for index in present:
        name, raw = headers[index]
        text = wanted[name]
        if raw is None or raw.rstrip(b" ") != text:
            changed[index] = (name, text)
    names = {headers[index][0] for index in present}
    changed += [
        pair for pair in wanted.items() if pair[0] not in names and pair[1] != _DEFAULTS[pair[0]]
    ]
    return changed
