"""The message fields of the patterns of DIALECT(KAFKA).

Fields have the names of their patterns; missing fields are left out. Text is UTF-8; bytes that are
not UTF-8 become U+FFFD.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from operator import attrgetter
from typing import Final, TypeAlias

import orjson

from redrive.messages.fields import Headers
from redrive.messages.json_patch import JsonPath
from redrive.messages.schemes.view import NO_SCHEME, DeadLetterView
from redrive.rules.keywords import pattern_keyword, split_field
from redrive.rules.patterns import FieldValue

_NO_JSON: Final = object()


@dataclass(slots=True)
class RuleInput:
    """The parts of one record that the fields of a rule are read from."""

    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp: int
    """Timestamp of the record, in milliseconds since 1970."""
    now: int
    """Time of the attempt, in milliseconds since 1970."""
    view: DeadLetterView = NO_SCHEME
    """The part of the failure that many messages share."""
    error_message: str | None = None
    """The text of the exception."""
    partition: int | None = None
    """The partition of the record that failed."""
    failed_at: int | None = None
    """When the message first failed, in milliseconds since 1970; None if unknown."""
    document: object = _NO_JSON
    """The value as JSON, once it was parsed; None if it is not JSON."""

    def json(self) -> object:
        """The value as JSON; None if it is not JSON."""
        if self.document is _NO_JSON:
            try:
                self.document = orjson.loads(self.value or b"null")
            except orjson.JSONDecodeError:
                self.document = None
        return self.document

    @property
    def key_text(self) -> str | None:
        """The key as text."""
        return _text(self.key)

    @property
    def size(self) -> int:
        """Bytes of the value."""
        return len(self.value or b"")

    @property
    def age(self) -> int:
        """Whole seconds since the message first failed, else since the record's timestamp."""
        since = self.timestamp if self.failed_at is None else self.failed_at
        return max(0, (self.now - since) // 1000)


_Read: TypeAlias = Callable[[RuleInput], FieldValue | None]


class FieldReader:
    """Reads those fields that DIALECT(KAFKA) adds to IBM's."""

    def __init__(self, names: Iterable[str]) -> None:
        readers = ((name, _reader_of(name)) for name in sorted(set(names)))
        self._readers = [(name, read) for name, read in readers if read is not None]

    @property
    def names(self) -> tuple[str, ...]:
        """The fields that are read, in the order of ``values``."""
        return tuple(name for name, _ in self._readers)

    def values(self, message: RuleInput) -> tuple[FieldValue | None, ...]:
        """The values of ``names``; None for missing ones.

        Texts end at their first NUL, without trailing blanks; the last of several headers of one
        name counts. No message makes this raise.
        """
        values = [read(message) for _, read in self._readers]
        return tuple(
            [
                value.partition("\0")[0].rstrip(" ") if isinstance(value, str) else value
                for value in values
            ]
        )


def _reader_of(name: str) -> _Read | None:
    keyword, argument = split_field(name)
    if keyword == "HEADER":
        return lambda message: _last(message.headers, argument)
    if keyword == "JSON":
        path = JsonPath.of(argument)
        return lambda message: path.find(message.json())
    source = pattern_keyword(keyword).source
    return attrgetter(source) if source else None


def _last(headers: Headers, name: str) -> str | None:
    for header, raw in reversed(headers):
        if header == name:
            return _text(raw)
    return None


def _text(raw: bytes | None) -> str | None:
    return None if raw is None else raw.decode("utf-8", "replace")
