"""A scheme: the headers that identify it, and the place of each attribute."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, fields
from enum import Enum, StrEnum
from typing import Final, TypeAlias

from redrive.messages.constants import FAMILIES
from redrive.messages.dead_letter_header import DeadLetterHeader
from redrive.messages.fields import Headers, trim
from redrive.messages.schemes.encodings import Reader, text
from redrive.messages.schemes.view import DeadLetterView, Origin

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
