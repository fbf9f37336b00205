"""A scheme: the headers that identify it, the place and encoding of each attribute, and their view.

docs/messages.md, "The normalised view", has the parts of the view. Missing or unreadable parts are
None, never blank or 0. The reader of an encoding returns None for unreadable bytes, and never
raises. The scheme determines the reader, never the length of a value, as eight bytes of text are
legal everywhere.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from enum import Enum, StrEnum
from typing import Any, Final, NamedTuple, TypeAlias

from redrive.messages.constants import FAMILIES
from redrive.messages.dead_letter_header import DeadLetterHeader
from redrive.messages.fields import Headers, trim


@dataclass(frozen=True, slots=True)
class Origin:
    """The failed record, as far as a scheme names it."""

    topic: str | None = None
    partition: int | None = None
    offset: int | None = None
    timestamp: int | None = None
    """Milliseconds since 1970."""


UNKNOWN_ORIGIN: Final = Origin()
"""No scheme names the record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterView:
    """One message's failure."""

    scheme: str | None = None
    """Name of the outermost scheme, such as ``connect``; None if the message has none."""
    origin: Origin = UNKNOWN_ORIGIN
    """Where it last failed."""
    first_origin: Origin = UNKNOWN_ORIGIN
    """Where it first failed; equal to ``origin`` if it failed once."""
    group: str | None = None
    """Consumer group that could not process it."""
    connector: str | None = None
    """Kafka Connect's connector."""
    task: str | None = None
    """Task within the connector or the application."""
    stage: str | None = None
    """Step that failed, such as ``VALUE_CONVERTER``, or the handler."""
    error_class: str | None = None
    """Class of the exception, as written."""
    error_root_class: str | None = None
    """Class of the innermost named cause."""
    error_message: str | None = None
    """Message of the exception."""
    error_stack: str | None = None
    """Stack trace. Never matched, never copied into outcomes."""
    attempts: int | None = None
    """How often the failed program tried."""
    first_failed_at: int | None = None
    """When it first failed, in milliseconds since 1970."""
    failed_at: int | None = None
    """When it last failed, in milliseconds since 1970."""
    hop: int | None = None
    """How often it was dead-lettered."""
    disposition: str | None = None
    """What the failed program did with it, if a scheme says so."""
    pointer: bool = False
    """Whether the payload is missing and must be fetched from ``origin``."""

    @property
    def consumer_group(self) -> str:
        """The consumer group that failed, see ``consumer_group``; empty if unknown."""
        return consumer_group(self.group, self.connector)


CONNECT_GROUP: Final = "connect-"
"""Prefix of the consumer groups of sink connectors."""


def consumer_group(group: str | None, connector: str | None) -> str:
    """The consumer group that failed; empty if unknown.

    Dead letters of Connect name only the connector. Its group is ``connect-<connector>``, unless
    its settings override that.
    """
    return group or (f"{CONNECT_GROUP}{connector}" if connector else "")


NO_SCHEME: Final = DeadLetterView()
"""The view of a message that is not a dead letter of any scheme."""


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


Message: TypeAlias = tuple[bytes | None, Headers]
"""Value and headers of a record."""

LastHeaders: TypeAlias = Mapping[str, bytes]
"""Header name -> value of its last occurrence, unless that is null."""

_NO_PARTS: Final = frozenset({"scheme", "origin", "first_origin", "hop", "pointer"})
"""Attributes of the view that no scheme has a part for."""
NAMES: Final = (
    *(f"origin.{attribute.name}" for attribute in fields(Origin)),
    *(
        attribute.name.replace("error_", "error.")
        for attribute in fields(DeadLetterView)
        if attribute.name not in _NO_PARTS
    ),
)
"""The parts that a scheme can have: the attributes of the view."""

VARYING: Final = frozenset(
    {
        *("origin.partition", "origin.offset", "origin.timestamp"),
        *("error.message", "error.stack", "first_failed_at", "failed_at"),
    }
)
"""Parts that profiles leave out: they differ in nearly every message, or only determine the
partition to which it returns."""

REASONS: Final = {
    "DataException": "MQRC_FORMAT_ERROR",
    "DeserializationException": "MQRC_FORMAT_ERROR",
    "JsonParseException": "MQRC_FORMAT_ERROR",
    "MessageConversionException": "MQRC_FORMAT_ERROR",
    "SerializationException": "MQRC_FORMAT_ERROR",
    "RecordTooLargeException": "MQRC_MSG_TOO_BIG_FOR_Q",
    "AuthorizationException": "MQRC_NOT_AUTHORIZED",
    "TopicAuthorizationException": "MQRC_NOT_AUTHORIZED",
    "TimeoutException": "MQRC_Q_MGR_NOT_AVAILABLE",
    "UnknownTopicOrPartitionException": "MQRC_UNKNOWN_OBJECT_NAME",
}
"""Exception without its package -> reason code, by our own choice: no standard exists."""


def reason_of(view: DeadLetterView) -> int:
    """The reason code for the failure of a dead letter.

    The innermost cause takes precedence over the exception that wraps it, which often only says
    that there was one; otherwise it is MQRC_UNEXPECTED_ERROR.
    """
    for name in (view.error_root_class, view.error_class):
        simple = (name or "").rpartition(".")[2].rpartition("$")[2]
        if simple in REASONS:
            return FAMILIES["MQRC"][REASONS[simple]]
    return FAMILIES["MQRC"]["MQRC_UNEXPECTED_ERROR"]


class Newest(Enum):
    """Which occurrence of a repeated header was added last."""

    FIRST = "first"
    LAST = "last"


class Stamp(StrEnum):
    """The timestamp that a scheme's writer gives a dead letter."""

    FAILURE = "failure"
    """The time of writing."""
    RECORD = "record"
    """That of the record that failed."""
    UNKNOWN = "unknown"
    """One of both, or another one."""


class RecordPart(StrEnum):
    """The part of a record that holds an attribute."""

    HEADER = "header"
    KEY = "key"
    VALUE = "value"


@dataclass(frozen=True, slots=True)
class SchemePart:
    """Place and encoding of one attribute of the view."""

    header: str
    """Name of the header; empty if it is in the record's key or value."""
    read: Reader = text
    place: RecordPart = RecordPart.HEADER
    is_wordy: bool = False
    """Whether only a part of the header is read, as from a stack trace."""
    is_count: bool = False
    """Whether the largest number of all occurrences counts."""


Parts: TypeAlias = Mapping[str, tuple[SchemePart, ...]]
"""Places by the names of ``NAMES``; the first readable one counts."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Scheme:
    """One way in which dead letters describe their failure."""

    name: str
    """Its name in the normalised view."""
    leading: tuple[str, ...] = ()
    """Headers that identify it, one of which its writer always writes."""
    least_headers: int = 1
    """How many of its header names identify it: 2 if other programs use its leading ones too."""
    is_own: bool = False
    """Whether settings describe it; then it takes precedence over all known ones."""
    parts: Parts
    names: frozenset[str] = frozenset()
    """Its own headers, which are removed when a message returns."""
    prefixes: tuple[str, ...] = ()
    """Prefixes of the names of such headers."""
    copies: frozenset[str] = frozenset()
    """Its own headers with a copy of key or value, which are never forwarded."""
    newest: Newest = Newest.LAST
    stamp: Stamp = Stamp.UNKNOWN
    can_point: bool = False
    """Whether its writer may leave out key and value."""
    drops_headers: bool = False
    """Whether its writer may drop the record's headers."""
    is_in_value: Callable[[bytes], bool] | None = None
    """Recognises a scheme without an identifying header."""
    begins: bytes = b""
    """Prefix of every value of such a scheme, if it identifies the scheme."""
    is_assumed: bool = False
    """Whether every message of no other scheme is a dead letter of this one."""
    original_key: Callable[[bytes | None, LastHeaders], bytes | None] | None = None
    """Restores the key if the scheme replaces it."""
    original_value: Callable[[bytes], bytes | None] | None = None
    """Restores the value if the scheme wraps it; raises LookupError if it is missing."""

    def is_in(self, names: Collection[str]) -> bool:
        """Whether a layout of header names, one of which is a leading one, is of the scheme."""
        return self.least_headers <= 1 or sum(map(self.owns, names)) >= self.least_headers

    def owns(self, name: str) -> bool:
        """Whether a header is one of the scheme's own."""
        return name in self.names or name.startswith(self.prefixes)

    def read(
        self, name: str, key: bytes | None, value: bytes | None, headers: Headers
    ) -> str | int | None:
        """One part of ``NAMES`` of a message; None if missing or unreadable."""
        for part in self.parts.get(name, ()):
            raw = {RecordPart.KEY: key, RecordPart.VALUE: value}.get(part.place)
            if part.place is RecordPart.HEADER:
                newest_first = headers if self.newest is Newest.FIRST else reversed(headers)
                raw = next((raw for there, raw in newest_first if there == part.header), None)
            content = None if raw is None else part.read(raw)
            if content is not None:
                return content
        return None

    def lacks_payload(self, key: bytes | None, value: bytes | None) -> bool:
        """Whether a dead letter of the scheme lacks its payload."""
        if self.original_value is None:
            return self.can_point and key is None and value is None
        try:
            self.original_value(value or b"")
        except LookupError:
            return True
        return False

    @property
    def stacks(self) -> frozenset[str]:
        """Headers with stack traces and copies of the payload, which are never forwarded."""
        stacks = (part.header for part in self.parts.get("error.stack", ()) if part.header)
        return self.copies.union(stacks)

    def header(self, view: DeadLetterView) -> DeadLetterHeader:
        """The failure as MQ's dead-letter header, which rules of IBM's language see.

        Returns:
            A header whose queue is the topic the record came from, whose program is the connector
            or consumer group or whatever else failed, and whose reason is that of the exception.
        """
        program = view.connector or view.group or view.task or view.stage or ""
        return DeadLetterHeader(
            reason=reason_of(view),
            dest_q_name=trim(view.origin.topic or ""),
            put_appl_name=trim(program),
        )


_TOPIC: Final = "origin_topic"
_LARGEST_PARTITION: Final = 2**31 - 1


class DecisiveHeader(NamedTuple):
    """A header that determines what many messages have in common."""

    place: int
    """Its index in the layout."""
    part: SchemePart | None
    """Reads the decisive part of a header; None if all of it is decisive."""


class _PartIndices(NamedTuple):
    part: SchemePart
    indices: tuple[int, ...]
    """Indexes of the header in the layout, the newest first; empty for a key or a value."""


class _Line(NamedTuple):
    """One part of the view, and its places, the preferred first."""

    name: str
    """As an attribute: ``origin_topic``, ``error_class``."""
    places: tuple[_PartIndices, ...]
    varies: bool


class SchemeLines:
    """Attributes of one scheme in messages with the same header names in the same order."""

    def __init__(self, scheme: Scheme, places: Mapping[str, Sequence[int]]) -> None:
        self.scheme = scheme
        lines = (
            _Line(name.replace(".", "_"), tuple(_places(scheme, parts, places)), name in VARYING)
            for name, parts in scheme.parts.items()
        )
        self._lines = [line for line in lines if line.places]
        # Nearly every part has one place, whose newest occurrence counts.
        self._quick: list[tuple[str, int, Reader, bool]] = []
        self._other: list[_Line] = []
        for line in self._lines:
            part, indices = line.places[0]
            if len(line.places) > 1 or not indices or part.is_count:
                self._other.append(line)
            else:
                self._quick.append((line.name, indices[0], part.read, line.varies))
        self._deep = [
            (part, name)
            for name, parts in scheme.parts.items()
            for part in parts
            if part.place is not RecordPart.HEADER and name not in VARYING
        ]
        self.looks_into_records = bool(
            self._deep or scheme.can_point or scheme.is_in_value or scheme.original_value
        )
        """Whether a record's key or value is decisive for what messages share."""

    def attributes_of(
        self, key: bytes | None, value: bytes | None, headers: Headers, *, shared: bool
    ) -> dict[str, Any]:
        """Attributes of the view that a message has, by name."""
        attributes: dict[str, Any] = {}
        for name, index, read, varies in self._quick:
            raw = headers[index][1]
            if raw is not None and not (shared and varies):
                attribute = read(raw)
                if attribute is not None:
                    attributes[name] = attribute
        for line in self._other:
            if shared and line.varies:
                continue
            attribute = _first(_read_place(place, key, value, headers) for place in line.places)
            if attribute is not None:
                attributes[line.name] = attribute
        return attributes

    def first_origin(self, headers: Headers, *, shared: bool) -> Origin:
        """The first failure of the message that this scheme names."""
        attributes: dict[str, Any] = {}
        for name, places, varies in self._lines:
            if name.startswith("origin_") and not (shared and varies):
                oldest = ((part, indices[-1]) for part, indices in places if indices)
                attributes[name] = _first(_read(part, headers[index][1]) for part, index in oldest)
        return pop_origin(attributes)

    def topics(self, headers: Headers) -> Iterator[str]:
        """The topics where the message failed, the first failure first."""
        for line in self._lines:
            if line.name == _TOPIC:
                part, indices = line.places[0]
                topics = (_read(part, headers[index][1]) for index in reversed(indices))
                yield from (topic for topic in topics if isinstance(topic, str))

    def columns(self) -> Iterator[DecisiveHeader]:
        """The headers that determine what messages share."""
        for name, places, varies in self._lines:
            if varies:
                continue
            for part, indices in places:
                # Every topic, for the chain of origins; else the newest and the oldest.
                is_whole = name == _TOPIC or part.is_count
                wanted = indices if is_whole else {*indices[:1], *indices[-1:]}
                yield from (
                    DecisiveHeader(index, part if part.is_wordy else None) for index in wanted
                )

    def decisive(self, key: bytes | None, value: bytes | None) -> Iterator[object]:
        """The part of a record's key and value that determines what messages share."""
        if self.scheme.is_in_value is not None:
            is_here = value is not None and self.scheme.is_in_value(value)
            yield is_here
            if not is_here:
                return
        if self.scheme.can_point or self.scheme.original_value is not None:
            yield self.scheme.lacks_payload(key, value)
        for part, _ in self._deep:
            yield _read(part, key if part.place is RecordPart.KEY else value)

    def unreadable(self, key: bytes | None, value: bytes | None, headers: Headers) -> Iterator[str]:
        """Sentences about present but unreadable attributes."""
        for line in self._lines:
            for place in line.places:
                if place.part.place is RecordPart.VALUE:
                    continue  # missing and unreadable are the same there
                raw = _raw(place, key, value, headers)
                if raw is not None and not place.part.is_wordy and place.part.read(raw) is None:
                    where = f"the header {place.part.header}" if place.indices else "the key"
                    yield (
                        f"{where} cannot be read as {line.name.replace('_', '.', 1)}: {raw[:40]!r}"
                    )


def pop_origin(attributes: dict[str, Any]) -> Origin:
    """Remove and return the attributes of an origin from those of a view."""
    return Origin(
        attributes.pop(_TOPIC, None),
        valid_partition(attributes.pop("origin_partition", None)),
        attributes.pop("origin_offset", None),
        attributes.pop("origin_timestamp", None),
    )


def valid_partition(number: str | int | None) -> int | None:
    """A number if it is a valid partition or -1; else None."""
    if isinstance(number, int) and -1 <= number <= _LARGEST_PARTITION:
        return number
    return None


def _places(
    scheme: Scheme, parts: Sequence[SchemePart], places: Mapping[str, Sequence[int]]
) -> Iterator[_PartIndices]:
    for part in parts:
        if part.place is not RecordPart.HEADER:
            yield _PartIndices(part, ())
        elif part.header in places:
            indices = places[part.header]
            newest_first = indices if scheme.newest is Newest.FIRST else reversed(indices)
            yield _PartIndices(part, tuple(newest_first))


def _first(values: Iterator[str | int | None]) -> str | int | None:
    return next((value for value in values if value is not None), None)


def _read(part: SchemePart, raw: bytes | None) -> str | int | None:
    return None if raw is None else part.read(raw)


def _raw(
    place: _PartIndices, key: bytes | None, value: bytes | None, headers: Headers
) -> bytes | None:
    if place.indices:
        return headers[place.indices[0]][1]
    return key if place.part.place is RecordPart.KEY else value


def _read_place(
    place: _PartIndices, key: bytes | None, value: bytes | None, headers: Headers
) -> str | int | None:
    """The value of one place; the newest occurrence of a header counts, or the largest number."""
    if not place.part.is_count:
        return _read(place.part, _raw(place, key, value, headers))
    counts = (_read(place.part, headers[index][1]) for index in place.indices)
    return max((count for count in counts if isinstance(count, int)), default=None)
