"""The forms in which a dead letter tells why and where it failed, one codec for each.

A message is asked form by form in the order of ``CODECS``; the first that is there is the outermost
and the one that counts:

    mqdlh.*            the fields of an MQDLH as headers (design 5)
    __connect.errors.* what Kafka Connect's sink connectors add (KIP-298)
    kafka_dlt-*        what Spring for Apache Kafka adds (DeadLetterPublishingRecoverer)
    MQDLH              172 bytes in front of the body

Headers come first because whoever adds them leaves the body alone: a binary header below them is
part of the body.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Final, Protocol, TypeAlias

from redrive.messages.constant_tables import MQRC
from redrive.messages.dead_letter_header import (
    ATTRIBUTES,
    INHERITED_CCSID,
    MQDLH,
    MQDLH_LENGTH,
    DeadLetterHeader,
    decode_header,
)
from redrive.messages.fields import (
    MQMD,
    FieldType,
    Headers,
    parse_long,
    read_long,
    read_text,
)

__all__ = ["CODECS", "DLH_PREFIX", "DeadLetterCodec", "Form"]

DLH_PREFIX: Final = "mqdlh."
"""Headers of a dead-letter header in the form of headers begin so."""

LastHeaders: TypeAlias = Mapping[str, bytes]
"""Header name -> value of its last occurrence, unless that is null."""

Message: TypeAlias = tuple[bytes | None, Headers]
"""Value and headers of a record."""


class Form(StrEnum):
    """How a dead-letter header is written."""

    BINARY = "binary"
    """An MQDLH in front of the body."""
    HEADERS = "headers"
    """Headers ``mqdlh.*``."""
    CONNECT = "connect"
    """Kafka Connect's headers ``__connect.errors.*``."""
    SPRING = "spring"
    """Spring's headers ``kafka_dlt-*``."""
    NONE = "none"
    """No valid dead-letter header."""


class DeadLetterCodec(Protocol):
    """Reads and removes dead-letter headers of one form."""

    @property
    def form(self) -> Form:
        """The form."""

    @property
    def headers(self) -> tuple[str, ...]:
        """Names of the record headers that it reads, without the date and time."""

    def decode(self, value: bytes | None, headers: LastHeaders, /) -> DeadLetterHeader | str:
        """Read the header of a message.

        Args:
            value: The record's value.
            headers: The record's headers, the last of each name, without nulls.

        Returns:
            The header; or a sentence why it is not valid; or an empty text if the message has no
            trace of this form.
        """

    def remove(self, value: bytes | None, headers: Headers, /) -> Message:
        """Take the header away, as ``decode`` found it, and change no argument."""

    def replaced(self, header: DeadLetterHeader, /) -> dict[str, str | int]:
        """Fields of the message descriptor that come back when the header is taken away."""


class _HeaderForm:
    """The fields of an MQDLH as headers ``mqdlh.<Field>``, texts and numbers as text."""

    form = Form.HEADERS
    headers = tuple(DLH_PREFIX + name for name in ATTRIBUTES if name not in {"PutDate", "PutTime"})
    _names: Final = {DLH_PREFIX + name: name for name in ATTRIBUTES}

    def decode(self, _value: bytes | None, headers: LastHeaders, /) -> DeadLetterHeader | str:
        if "mqdlh.Reason" not in headers:
            traces = not headers.keys().isdisjoint(self.headers)
            return "the header mqdlh.Reason is missing" if traces else ""
        fields: dict[str, str | int] = {}
        for header, name in self._names.items():
            if header not in headers:
                continue
            value = self._read(name, headers[header])
            if value is None:
                return f"the header {header} is not a number: {read_text(headers[header])[:40]!r}"
            fields[name] = value
        return DeadLetterHeader.from_fields(fields)

    @staticmethod
    def _read(name: str, raw: bytes) -> str | int | None:
        return parse_long(raw) if MQDLH[name].type is FieldType.LONG else read_text(raw)

    def remove(self, value: bytes | None, headers: Headers, /) -> Message:
        return value, _without_last(headers, DLH_PREFIX)

    def replaced(self, header: DeadLetterHeader, /) -> dict[str, str | int]:
        return _description_of_body(header)


def _without_last(headers: Headers, prefix: str) -> Headers:
    # A message that was dead-lettered twice has two sets of these headers; the last is the outer.
    last = {name: at for at, (name, _) in enumerate(headers) if name.startswith(prefix)}
    outer = set(last.values())
    return [pair for at, pair in enumerate(headers) if at not in outer]


def _description_of_body(header: DeadLetterHeader) -> dict[str, str | int]:
    # Exactly these three (rules-table specification 4.6). An inherited CCSID is that of the
    # dead-letter header, which is what the message descriptor says already.
    fields: dict[str, str | int] = {"Format": header.format, "Encoding": header.encoding}
    if header.coded_char_set_id != INHERITED_CCSID:
        fields["CodedCharSetId"] = header.coded_char_set_id
    return fields


class _BinaryForm:
    """An MQDLH in front of the body; the message descriptor's CCSID is that of its texts."""

    form = Form.BINARY
    headers = (MQMD["CodedCharSetId"].header,)

    def decode(self, value: bytes | None, headers: LastHeaders, /) -> DeadLetterHeader | str:
        if value is None:
            return "the value is null"
        return decode_header(value, read_long(headers.get(self.headers[0])))

    def remove(self, value: bytes | None, headers: Headers, /) -> Message:
        return (value or b"")[MQDLH_LENGTH:], headers

    def replaced(self, header: DeadLetterHeader, /) -> dict[str, str | int]:
        return _description_of_body(header)


class _TopicForm:
    """Headers of an ecosystem that names the original topic and a Java exception."""

    def __init__(
        self, form: Form, prefix: str, *, topic: str, exceptions: tuple[str, ...], program: str
    ) -> None:
        self.form = form
        self.headers = tuple(prefix + name for name in (topic, *exceptions, program))
        self._prefix = prefix
        self._topic, *self._exceptions, self._program = self.headers

    def decode(self, _value: bytes | None, headers: LastHeaders, /) -> DeadLetterHeader | str:
        if self._topic not in headers:
            return ""
        topic = read_text(headers[self._topic])
        if not topic:
            return f"the header {self._topic} is blank"
        return DeadLetterHeader(
            reason=reason_of(read_text(headers.get(name)) for name in self._exceptions),
            dest_q_name=topic,
            put_appl_name=read_text(headers.get(self._program)),
        )

    def remove(self, value: bytes | None, headers: Headers, /) -> Message:
        return value, [pair for pair in headers if not pair[0].startswith(self._prefix)]

    def replaced(self, _header: DeadLetterHeader, /) -> dict[str, str | int]:
        return {}


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
"""Java exception without its package -> reason code. Ours: no standard maps them."""


def reason_of(exceptions: Iterable[str]) -> int:
    """The reason code for a failure that is known by Java exceptions.

    Args:
        exceptions: Names of classes, the most telling first.

    Returns:
        The reason of the first that has one, else MQRC_UNEXPECTED_ERROR.
    """
    simple = (name.rpartition(".")[2].rpartition("$")[2] for name in exceptions)
    return MQRC[next((REASONS[n] for n in simple if n in REASONS), "MQRC_UNEXPECTED_ERROR")]


CODECS: Final[tuple[DeadLetterCodec, ...]] = (
    _HeaderForm(),
    _TopicForm(
        Form.CONNECT,
        "__connect.errors.",
        topic="topic",
        exceptions=("exception.class.name",),
        program="connector.name",
    ),
    _TopicForm(
        Form.SPRING,
        "kafka_dlt-",
        topic="original-topic",
        # The listener's wrapper says nothing, its cause does.
        exceptions=("exception-cause-fqcn", "exception-fqcn"),
        program="original-consumer-group",
    ),
    _BinaryForm(),
)
"""Every codec, the outermost form first."""
