"""Header-to-attribute mapping of one scheme, for messages with the same header names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from redrive.messages.fields import Headers
from redrive.messages.schemes.encodings import Reader
from redrive.messages.schemes.scheme import VARYING, Newest, RecordPart, Scheme, SchemePart
from redrive.messages.schemes.view import Origin

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
