"""User-defined schemes, as settings describe them.

A place is the name of a header, or a path in a JSON value: ``$.error.class``, ``$.causes[0]``,
``$['error-class']`` (the singular queries of RFC 9535). ``as`` names an encoding other than the
part's usual one: ``x-partition as int32be``.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import sha256
from typing import Any, Final, NamedTuple

import orjson

from redrive.messages.json_patch import JsonPath
from redrive.messages.schemes.scheme import (
    ENCODINGS,
    Reader,
    RecordPart,
    Scheme,
    SchemePart,
    decimal,
    text,
    time,
)

NUMBERS: Final = frozenset({"origin.partition", "origin.offset", "attempts"})
"""Parts of the view that are numbers."""
TIMES: Final = frozenset({"origin.timestamp", "first_failed_at", "failed_at"})
"""Parts of the view that are times."""
_TEXTS: Final = frozenset({"text", "class"})
"""Encodings of texts; all others are of numbers."""
_IN_BYTES: Final = frozenset({"int32be", "int64be", "biginteger"})
"""Encodings that do not apply to JSON texts."""
_PAYLOAD: Final = ("json", "base64")


class PlaceError(ValueError):
    """A place that is not valid.

    Attributes:
        expected: What is valid.
    """

    def __init__(self, message: str, expected: str) -> None:
        super().__init__(message)
        self.expected = expected


class PartPlace(NamedTuple):
    """The place of one part of the view, as in settings."""

    header: str
    """Name of the header; empty for a path in the value."""
    path: JsonPath | None
    encoding: str
    """Empty for the part's usual encoding."""

    @classmethod
    def parse(cls, words: str) -> PartPlace:
        """Read a place such as ``x-partition as int32be``.

        Raises:
            PlaceError: It is not a path.
        """
        place, _, encoding = words.partition(" as ")
        place, encoding = place.strip(), encoding.strip()
        return cls("" if place.startswith("$") else place, _path(place), encoding)

    def part(self, name: str) -> SchemePart:
        """The part of a scheme at this place.

        Raises:
            PlaceError: The encoding is unknown, or not for this part.
        """
        read = self._reader(name)
        path = self.path
        if path is None:
            return SchemePart(self.header, read)
        return SchemePart("", lambda value: _read_inside(value, path, read), RecordPart.VALUE)

    def _reader(self, name: str) -> Reader:
        if not self.encoding:
            return decimal if name in NUMBERS else time if name in TIMES else text
        numeric = name in NUMBERS | TIMES
        fitting = [
            encoding
            for encoding in ENCODINGS
            if (encoding not in _TEXTS) is numeric and (self.header or encoding not in _IN_BYTES)
        ]
        if self.encoding not in fitting:
            kind = "a number" if numeric else "a text"
            where = "header" if self.header else "JSON value"
            message = f"{self.encoding!r} is not an encoding of {kind} in a {where}, such as {name}"
            raise PlaceError(message, f"one of {', '.join(fitting)}")
        return ENCODINGS[self.encoding]


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnScheme:
    """A scheme from settings, as a value for every process of a job."""

    name: str
    recognise: str = ""
    """The header, or the path in the value, that every dead letter of the scheme has."""
    is_assumed: bool = False
    """Whether every message of no other scheme is a dead letter of this one."""
    payload: str = ""
    """Path of the original value in the value; empty if the value is the original."""
    parts: Mapping[str, str] = field(default_factory=dict, hash=False)
    """The places of the parts, by their names."""
    # Affects how rounds are counted but not remaining messages: ``schemes_id`` stays.
    drops_headers: bool = field(default=False, repr=False)
    """Whether the writer drops the record's headers."""

    def scheme(self) -> Scheme:
        """The scheme.

        Raises:
            PlaceError: A place is not valid, although settings check each of them.
        """
        places = {name: PartPlace.parse(words) for name, words in self.parts.items()}
        leading = PartPlace.parse(self.recognise) if self.recognise else None
        headers = {place.header for place in places.values()} | {leading.header if leading else ""}
        return Scheme(
            name=self.name,
            leading=(leading.header,) if leading and leading.header else (),
            parts={name: (place.part(name),) for name, place in places.items()},
            names=frozenset(headers - {""}),
            is_in_value=_recogniser(leading.path) if leading and leading.path else None,
            is_own=True,
            is_assumed=self.is_assumed,
            drops_headers=self.drops_headers,
            original_value=payload_reader(self.payload) if self.payload else None,
        )


def schemes_id(schemes: Sequence[OwnScheme], origin_topic: str = "") -> str:
    """An id of how dead letters are read; empty if only built-in schemes count.

    Args:
        schemes: The user-defined schemes, in order.
        origin_topic: The topic where messages failed that do not name it; empty if unknown.
    """
    if not schemes and not origin_topic:
        return ""
    return sha256((repr(tuple(schemes)) + origin_topic).encode()).hexdigest()


def payload_reader(words: str) -> Callable[[bytes], bytes | None]:
    """A function that extracts the original value from an envelope.

    Args:
        words: A path, which ``as base64`` or ``as json`` may follow. A text is the payload itself,
            anything else its JSON.

    Returns:
        A function that raises LookupError if the payload is not there.

    Raises:
        PlaceError: The words are not a path.
    """
    _, path, encoding = PartPlace.parse(words)
    if path is None:
        raise PlaceError(f"{words!r} is not a path in a JSON value", "a path such as $.payload")
    if encoding not in {"", *_PAYLOAD}:
        message = f"{encoding!r} is not an encoding of a payload"
        raise PlaceError(message, f"one of {', '.join(_PAYLOAD)}")

    def read(value: bytes) -> bytes | None:
        payload = path.follow(json_document(value))
        if payload is None:
            return None
        if encoding == "base64":
            try:
                return b64decode(str(payload), validate=True)
            except ValueError as error:
                raise LookupError(str(error)) from error
        if isinstance(payload, str) and encoding != "json":
            return payload.encode()
        return orjson.dumps(payload)

    return read


def _path(place: str) -> JsonPath | None:
    """The path of a place; None for a header.

    Raises:
        PlaceError: It starts like a path, but is not one.
    """
    if not place.startswith("$"):
        return None
    try:
        path = JsonPath.of(place)
    except ValueError as error:
        message = f"the path {place} cannot be read: {error}"
        raise PlaceError(
            message, "members and elements, such as $.error.class or $['a b'][0]"
        ) from error
    if not path.steps:
        raise PlaceError("the path $ is the whole value", "a path such as $.error.class")
    return path


@lru_cache(maxsize=2)
def json_document(value: bytes) -> Any:  # noqa: ANN401 - any JSON
    """The JSON value of some bytes; None if they are none."""
    try:
        return orjson.loads(value)
    except orjson.JSONDecodeError:
        return None


def _read_inside(value: bytes, path: JsonPath, read: Reader) -> str | int | None:
    try:
        member = path.follow(json_document(value))
    except LookupError:
        return None
    if member is None:
        return None
    return read(member.encode() if isinstance(member, str) else orjson.dumps(member))


def _recogniser(path: JsonPath) -> Callable[[bytes], bool]:
    def is_there(value: bytes) -> bool:
        try:
            path.follow(json_document(value))
        except LookupError:
            return False
        return True

    return is_there
