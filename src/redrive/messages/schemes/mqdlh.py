"""The two forms of IBM MQ's dead-letter header: an MQDLH in front of the body, and our own headers.

The headers ``mqdlh.<Field>`` have the fields of an MQDLH as text.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final, Protocol

from redrive.messages.constants import reason_name
from redrive.messages.dead_letter_header import (
    ATTRIBUTES,
    INHERITED_CCSID,
    MQDLH,
    MQDLH_LENGTH,
    DeadLetterHeader,
    decode_header,
)
from redrive.messages.fields import MQMD, FieldType, Headers, parse_long, read_long, read_text
from redrive.messages.schemes.scheme import DeadLetterView, LastHeaders, Message, Origin

DLH_PREFIX: Final = "mqdlh."
"""Prefix of the headers."""
_DIGITS: Final = (14, 16)
"""Digits of a date with a time to the second, or to 1/100 s."""


class MQForm(Protocol):
    """One of the two forms of MQ's dead-letter header, which has more fields than the view."""

    @property
    def name(self) -> str:
        """Its name in the normalised view."""

    def decode(self, value: bytes | None, headers: LastHeaders, /) -> DeadLetterHeader | str:
        """Read the header of a message.

        Returns:
            The header; or a sentence why it is not valid; or an empty text if the message has no
            trace of this form.
        """

    def remove(self, value: bytes | None, headers: Headers, /) -> Message:
        """Remove the header found by ``decode``, without changing arguments."""


class BinaryHeader:
    """An MQDLH in front of the body, whose texts have the message descriptor's CCSID."""

    name: Final = "mqdlh"
    headers: Final = (MQMD["CodedCharSetId"].header,)
    """Names of the headers that it reads."""

    def decode(self, value: bytes | None, headers: LastHeaders, /) -> DeadLetterHeader | str:
        """Read the header of a message, or say in a sentence why there is none."""
        if value is None:
            return "the value is null"
        return decode_header(value, read_long(headers.get(self.headers[0])))

    def remove(self, value: bytes | None, headers: Headers, /) -> Message:
        """Remove the header from the body."""
        return (value or b"")[MQDLH_LENGTH:], headers


BINARY: Final = BinaryHeader()
"""A binary MQDLH."""


class RedriveHeaders:
    """The fields of an MQDLH as headers."""

    name: Final = "redrive"
    leading: Final = (f"{DLH_PREFIX}Reason",)
    headers: Final = tuple(
        DLH_PREFIX + name for name in ATTRIBUTES if name not in {"PutDate", "PutTime"}
    )
    """Names of the headers that it reads, without date and time."""
    _names: Final[Mapping[str, str]] = {DLH_PREFIX + name: name for name in ATTRIBUTES}

    def decode(self, _value: bytes | None, headers: LastHeaders, /) -> DeadLetterHeader | str:
        """Read the header of a message, or say in a sentence why there is none."""
        if self.leading[0] not in headers:
            traces = not headers.keys().isdisjoint(self.headers)
            return f"the header {self.leading[0]} is missing" if traces else ""
        fields: dict[str, str | int] = {}
        for header, name in self._names.items():
            if header not in headers:
                continue
            text = read_text(headers[header])
            is_number = MQDLH[name].type is FieldType.LONG
            value = parse_long(headers[header]) if is_number else text
            if value is None:
                return f"the header {header} is not a number: {text[:40]!r}"
            fields[name] = value
        return DeadLetterHeader.from_fields(fields)

    def remove(self, value: bytes | None, headers: Headers, /) -> Message:
        """Remove the outermost set of headers: the last of each name."""
        last = {name: at for at, (name, _) in enumerate(headers) if name.startswith(DLH_PREFIX)}
        outer = set(last.values())
        return value, [pair for at, pair in enumerate(headers) if at not in outer]


REDRIVE: Final = RedriveHeaders()
"""Redrive's own headers."""


def replaced_fields(header: DeadLetterHeader) -> dict[str, str | int]:
    """Fields of the message descriptor that are restored when a header of MQ's is removed.

    Exactly these three. An inherited CCSID is that of the dead-letter header, which the message
    descriptor already has.
    """
    fields: dict[str, str | int] = {"Format": header.format, "Encoding": header.encoding}
    if header.coded_char_set_id != INHERITED_CCSID:
        fields["CodedCharSetId"] = header.coded_char_set_id
    return fields


def view_of_header(
    scheme: str,
    header: DeadLetterHeader,
    *,
    first_origin: Origin | None,
    hop: int,
    shared: bool = False,
) -> DeadLetterView:
    """MQ's dead-letter header as a normalised view."""
    origin = Origin(topic=header.dest_q_name or None)
    name = reason_name(header.reason)
    return DeadLetterView(
        scheme=scheme,
        origin=origin,
        first_origin=first_origin or origin,
        error_class=name,
        error_root_class=name,
        failed_at=None if shared else _moment(header.put_date + header.put_time),
        hop=hop,
    )


def _moment(digits: str) -> int | None:
    """Milliseconds since 1970 of ``YYYYMMDDHHMMSSTH``, which is UTC."""
    if not (digits.isascii() and digits.isdigit() and len(digits) in _DIGITS):
        return None
    month, day, hour, minute, second = (int(digits[at : at + 2]) for at in range(4, 14, 2))
    try:
        moment = datetime(int(digits[:4]), month, day, hour, minute, second, tzinfo=UTC)
    except ValueError:
        return None
    return round(moment.timestamp()) * 1000 + 10 * int(digits[14:] or "0")
