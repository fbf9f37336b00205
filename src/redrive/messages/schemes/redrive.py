"""Redrive's own headers ``mqdlh.<Field>``: the fields of an MQDLH, texts and numbers as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from redrive.messages.dead_letter_header import ATTRIBUTES, MQDLH, DeadLetterHeader
from redrive.messages.fields import FieldType, Headers, parse_long, read_text
from redrive.messages.schemes.scheme import LastHeaders, Message

DLH_PREFIX: Final = "mqdlh."
"""The headers begin so."""


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
        """Read the header of a message; see ``MQForm.decode``."""
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
        """Take the outermost set of headers off: of each name the last."""
        last = {name: at for at, (name, _) in enumerate(headers) if name.startswith(DLH_PREFIX)}
        outer = set(last.values())
        return value, [pair for at, pair in enumerate(headers) if at not in outer]


REDRIVE: Final = RedriveHeaders()
"""Redrive's own headers."""
