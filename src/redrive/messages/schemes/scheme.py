"""A scheme: the headers by which it is recognised, and the place of each attribute."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Final, TypeAlias

from redrive.messages.constants import FAMILIES
from redrive.messages.dead_letter_header import DeadLetterHeader
from redrive.messages.fields import Headers, trim
from redrive.messages.schemes.encodings import Reader, text
from redrive.messages.schemes.view import DeadLetterView

Message: TypeAlias = tuple[bytes | None, Headers]
"""Value and headers of a record."""

LastHeaders: TypeAlias = Mapping[str, bytes]
"""Header name -> value of its last occurrence, unless that is null."""

NAMES: Final = (
    *("origin.topic", "origin.partition", "origin.offset", "origin.timestamp"),
    *("group", "connector", "task", "stage"),
    *("error.class", "error.root_class", "error.message", "error.stack"),
    *("attempts", "first_failed_at", "failed_at", "disposition"),
)
"""The parts that a scheme can have, as the specification names them."""

VARYING: Final = frozenset(
    {
        *("origin.partition", "origin.offset", "origin.timestamp"),
        *("error.message", "error.stack", "first_failed_at", "failed_at"),
    }
)
"""Parts that profiles leave out: they differ in nearly every message, or say only to which
partition it returns."""

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
"""Exception without its package -> reason code. Ours: no standard maps them."""


def reason_of(view: DeadLetterView) -> int:
    """The reason code for the failure of a dead letter.

    The innermost cause counts before the exception that wraps it, which often says nothing but that
    there was one; what neither names is MQRC_UNEXPECTED_ERROR.
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


class Place(StrEnum):
    """The part of a record that holds an attribute."""

    HEADER = "header"
    KEY = "key"
    VALUE = "value"


@dataclass(frozen=True, slots=True)
class Part:
    """Place and encoding of one attribute of the view."""

    header: str
    """Name of the header; empty if it is in the record's key or value."""
    read: Reader = text
    place: Place = Place.HEADER
    is_wordy: bool = False
    """Whether the header says more than what is read from it, such as a stack trace."""
    is_count: bool = False
    """Whether of all occurrences the largest number counts."""


Parts: TypeAlias = Mapping[str, tuple[Part, ...]]
"""Places by the names of ``NAMES``; of several the first that can be read."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Scheme:
    """One way in which dead letters say why and where they failed."""

    name: str
    """Its name in the normalised view."""
    leading: tuple[str, ...] = ()
    """Headers by any of which it is recognised: its writer always writes one of them."""
    parts: Parts
    names: frozenset[str] = frozenset()
    """Headers that are its own, and are taken off when a message goes back."""
    prefixes: tuple[str, ...] = ()
    """Beginnings of the names of such headers."""
    newest: Newest = Newest.LAST
    can_point: bool = False
    """Whether its writer may leave out key and value."""
    drops_headers: bool = False
    """Whether its writer may leave out the headers that the record had."""
    is_in_value: Callable[[bytes], bool] | None = None
    """Recognises a scheme that no header leads."""
    begins: bytes = b""
    """What every value of such a scheme begins with, where its first bytes identify it."""
    is_assumed: bool = False
    """Whether every message of no other scheme is a dead letter of this one."""
    original_key: Callable[[bytes | None, LastHeaders], bytes | None] | None = None
    """Gives the key back where the scheme puts another in its place."""
    original_value: Callable[[bytes], bytes | None] | None = None
    """Gives the value back where the scheme wraps it; raises LookupError if it is not there."""

    def owns(self, name: str) -> bool:
        """Whether a header is one of the scheme's own."""
        return name in self.names or name.startswith(self.prefixes)

    def read(
        self, name: str, key: bytes | None, value: bytes | None, headers: Headers
    ) -> str | int | None:
        """One part of ``NAMES`` of a message; None if it is missing or can't be read."""
        for part in self.parts.get(name, ()):
            raw = {Place.KEY: key, Place.VALUE: value}.get(part.place)
            if part.place is Place.HEADER:
                raw = self._newest(part.header, headers)
            found = None if raw is None else part.read(raw)
            if found is not None:
                return found
        return None

    def _newest(self, name: str, headers: Headers) -> bytes | None:
        newest_first = headers if self.newest is Newest.FIRST else reversed(headers)
        return next((raw for there, raw in newest_first if there == name), None)

    def lacks_payload(self, key: bytes | None, value: bytes | None) -> bool:
        """Whether a dead letter of the scheme stands for a payload that it does not carry."""
        if self.original_value is None:
            return self.can_point and key is None and value is None
        try:
            self.original_value(value or b"")
        except LookupError:
            return True
        return False

    @property
    def stacks(self) -> frozenset[str]:
        """Headers with stack traces: they never travel on."""
        return frozenset(part.header for part in self.parts.get("error.stack", ()) if part.header)

    def header(self, view: DeadLetterView) -> DeadLetterHeader:
        """What a dead letter says as MQ's dead-letter header: what rules of IBM's language see.

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
