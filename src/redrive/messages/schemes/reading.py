"""Reading dead letters of any scheme: the schemes of a message, and the content of the outermost.

Nearly all messages of a topic have the same header names in the same order. Their schemes and the
meaning of their headers are determined once for such a layout; then a message only needs a look at
the headers that matter.

The two forms of IBM MQ's dead-letter header are read here too: an MQDLH in front of the body, and
our own headers ``mqdlh.<Field>``, which have the fields of an MQDLH as text.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final, NamedTuple, Protocol, TypeAlias

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
from redrive.messages.schemes.known import SCHEMES, SPRING_CLOUD_STREAM_EMBEDDED
from redrive.messages.schemes.scheme import (
    NO_SCHEME,
    DeadLetterView,
    DecisiveHeader,
    LastHeaders,
    Message,
    Newest,
    Origin,
    Scheme,
    SchemeLines,
    pop_origin,
)

DLH_PREFIX: Final = "mqdlh."
"""Prefix of the headers."""
_DIGITS: Final = (14, 16)
"""Digits of a date with a time to the second, or to 1/100 s."""
_EBCDIC_ZERO: Final = b"\xf0"
"""The least digit in EBCDIC; no digit of ASCII is above it."""


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


@lru_cache(maxsize=4096)
def read_moment(raw: bytes) -> int | None:
    """Milliseconds since 1970 of PutDate and PutTime, in ASCII or EBCDIC; None if they are none."""
    is_ebcdic = raw[:1] >= _EBCDIC_ZERO
    return _moment(raw.decode("cp500" if is_ebcdic else "ascii", "replace").rstrip(" \0"))


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


AnyScheme: TypeAlias = Scheme | MQForm

SCHEME_NAMES: Final = (*(scheme.name for scheme in SCHEMES), REDRIVE.name, BINARY.name)
"""The names of all built-in schemes."""

GROUP_SCHEMES: Final = frozenset(
    scheme.name for scheme in SCHEMES if {"group", "connector"} & scheme.parts.keys()
)
"""The names of schemes whose dead letters can name the consumer group that failed."""

BARE: Final = Scheme(name="bare", parts={}, is_assumed=True)
"""A message of no other scheme on a topic whose dead letters have a known origin."""

_LAYOUTS: Final = 256
"""Maximum layouts of header names to cache."""


class SchemeResult(NamedTuple):
    """What was found in one message."""

    scheme: AnyScheme | None
    """The outermost readable scheme; None if there is none."""
    view: DeadLetterView
    header: DeadLetterHeader | None
    """MQ's dead-letter header, if the scheme is one of MQ's forms."""
    problem: str
    """Why MQ's forms do not apply; empty if the message has no trace of them."""


class _Place(NamedTuple):
    """Where a layout has the leading headers of a scheme."""

    newest: int
    """A rank: the index of the newest header, if headers are appended."""
    oldest: int
    hops: int
    scheme: AnyScheme

    def in_front_of(self, appended: int) -> _Place:
        """The ranks of a scheme that adds its headers in front of existing ones.

        Headers behind it may be older or newer, and count as newer. Of several schemes that add in
        front, the first is the newest. Behind appended headers it can only be newer than they are.
        """
        newest, oldest = (
            -1 - index if index < appended else index for index in (self.newest, self.oldest)
        )
        return self._replace(newest=newest, oldest=oldest)


class Reading:
    """How to read messages of one layout of header names."""

    def __init__(
        self,
        layout: Sequence[str],
        schemes: Sequence[Scheme],
        in_value: Sequence[Scheme] = (),
        fallbacks: Sequence[Scheme] = (),
        origin_topic: str = "",
    ) -> None:
        """Find the schemes of a layout.

        Args:
            layout: The header names, in order.
            schemes: Schemes recognised by headers, each only if its header is among the names;
                besides them, Redrive's own headers are searched.
            in_value: Schemes of settings that a value identifies, to try first, in order.
            fallbacks: Schemes to try on a message without others, in order.
            origin_topic: The topic where messages failed that do not name it; empty if unknown.
        """
        places: dict[str, list[int]] = {}
        for index, name in enumerate(layout):
            places.setdefault(name, []).append(index)
        here: list[_Place] = []
        in_front: list[_Place] = []
        for scheme in schemes:
            led = [places[name] for name in scheme.leading if name in places]
            first, last = min(indices[0] for indices in led), max(indices[-1] for indices in led)
            if scheme.newest is Newest.LAST:
                here.append(_Place(last, first, max(map(len, led)), scheme))
            else:
                in_front.append(_Place(first, last, max(map(len, led)), scheme))
        if own := places.get(REDRIVE.leading[0]):
            here.append(_Place(own[-1], own[0], len(own), REDRIVE))
        appended = min((place.newest for place in here), default=len(layout))
        here += [place.in_front_of(appended) for place in in_front]
        # A scheme of settings is certain, whatever was added after it, except by Redrive itself.
        forwarded = own[-1] if own else -1
        here.sort(
            key=lambda place: (_is_own(place.scheme) and place.newest > forwarded, place.newest),
            reverse=True,
        )
        self.schemes: tuple[AnyScheme, ...] = tuple(place.scheme for place in here)
        """The schemes recognised by headers, the outermost first."""
        self._by_age = tuple(place.scheme for place in sorted(here, key=lambda place: place.oldest))
        """The same, the one that the message had first in front."""
        self.hop = sum(place.hops for place in here) or 1
        """How often a message was dead-lettered, according to its headers."""
        self._lines = {
            id(scheme): SchemeLines(scheme, places)
            for scheme in (*self.schemes, *in_value, *fallbacks)
            if isinstance(scheme, Scheme)
        }
        self._in_value = tuple(in_value)
        self._fallbacks = tuple(fallbacks)
        self._origin_topic = origin_topic
        self._deep = [lines for lines in self._lines.values() if lines.looks_into_records]
        begins = [lines.scheme.begins for lines in self._deep]
        # A quick check is enough for most values, unless a scheme needs more.
        self._begins = tuple(begins) if all(begins) else ()

    @property
    def signature(self) -> Hashable:
        """Equal for layouts with the same schemes, in the same order and number."""
        return tuple(map(id, self.schemes)), tuple(map(id, self._by_age)), self.hop

    @property
    def looks_into_records(self) -> bool:
        """Whether key and value determine more than the presence of an MQDLH."""
        return bool(self._deep)

    def find(
        self, key: bytes | None, value: bytes | None, headers: Headers, *, shared: bool = False
    ) -> SchemeResult:
        """Find the outermost scheme of a message and read it.

        Returns:
            What was found. No content of a message makes this raise.
        """
        last: Mapping[str, bytes] | None = None
        problem = ""
        for scheme in self._candidates(value):
            if isinstance(scheme, Scheme):
                view = self._view(scheme, key, value, headers, shared=shared)
                return SchemeResult(scheme, view, None, problem)
            if last is None:
                last = {name: raw for name, raw in dict(headers).items() if raw is not None}
            header = scheme.decode(value, last)
            if isinstance(header, DeadLetterHeader):
                first = self._first_origin(headers, hop=self.hop, shared=shared)
                view = view_of_header(
                    scheme.name, header, first_origin=first, hop=self.hop, shared=shared
                )
                return SchemeResult(scheme, view, header, problem)
            problem = problem or header
        return SchemeResult(None, NO_SCHEME, None, problem)

    def columns(self) -> Iterator[DecisiveHeader]:
        """The headers that determine what messages share, besides those of MQ's forms."""
        for lines in self._lines.values():
            yield from lines.columns()

    def decisive(self, key: bytes | None, value: bytes | None) -> Hashable:
        """The part of a record's key and value that determines what messages share."""
        if self._begins and (value is None or not value.startswith(self._begins)):
            return None
        return tuple([part for lines in self._deep for part in lines.decisive(key, value)])

    def origins(self, headers: Headers) -> Iterator[str]:
        """The topics where a message failed, from its headers, the first failure first."""
        for scheme in self._by_age:
            if lines := self._lines.get(id(scheme)):
                yield from lines.topics(headers)

    def unreadable(self, key: bytes | None, value: bytes | None, headers: Headers) -> Iterator[str]:
        """Sentences about unreadable attributes of the outermost scheme."""
        scheme = self.find(key, value, headers, shared=True).scheme
        if lines := self._lines.get(id(scheme)):
            yield from lines.unreadable(key, value, headers)

    def _candidates(self, value: bytes | None) -> Iterator[AnyScheme]:
        # Redrive's headers are newer than an envelope below them; others may be copies.
        in_value = [scheme for scheme in self._in_value if _is_in_value(scheme, value)]
        if REDRIVE in self.schemes:
            yield from self.schemes
        else:
            yield from in_value
            yield from self.schemes
            yield REDRIVE
        # Programs that add headers do not change the body: a binary header below them is part of
        # it. Both of MQ's forms are tried even without a trace of them, as they say what is
        # missing.
        yield BINARY
        if REDRIVE in self.schemes:
            yield from in_value
        yield from (scheme for scheme in self._fallbacks if _is_in_value(scheme, value))

    def _view(
        self,
        scheme: Scheme,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        *,
        shared: bool,
    ) -> DeadLetterView:
        attributes = self._lines[id(scheme)].attributes_of(key, value, headers, shared=shared)
        origin = pop_origin(attributes)
        if origin.topic is None and self._origin_topic:
            origin = replace(origin, topic=self._origin_topic)
        first_topic = attributes.pop("first_origin_topic", None)
        first = None if first_topic is None else Origin(first_topic)
        if "error_class" in attributes:
            attributes.setdefault("error_root_class", attributes["error_class"])
        # The headers beside an envelope are those of an earlier failure.
        is_beside = bool(self.schemes) and scheme not in self.schemes
        hop = self.hop + is_beside
        return DeadLetterView(
            scheme=scheme.name,
            origin=origin,
            first_origin=self._first_origin(headers, hop=hop, shared=shared) or first or origin,
            hop=hop,
            pointer=scheme.lacks_payload(key, value),
            **attributes,
        )

    def _first_origin(self, headers: Headers, *, hop: int, shared: bool) -> Origin | None:
        """Where a message first failed; None if that is where it last failed."""
        if hop <= 1:
            return None
        for scheme in self._by_age:
            if lines := self._lines.get(id(scheme)):
                origin = lines.first_origin(headers, shared=shared)
                if origin.topic is not None:
                    return origin
        return None


def _is_own(scheme: AnyScheme) -> bool:
    return isinstance(scheme, Scheme) and scheme.is_own


def _is_in_value(scheme: Scheme, value: bytes | None) -> bool:
    return scheme.is_in_value is None or (value is not None and scheme.is_in_value(value))


class SchemeTable:
    """The schemes to look for: the built-in ones and ``own``.

    Args:
        own: The schemes of settings.
        origins: Topics of dead letters, each with the topic where those failed that do not name it.
        origin_topic: The latter for all dead letters of this table; empty if unknown.
    """

    def __init__(
        self,
        own: Iterable[Scheme] = (),
        origins: Iterable[tuple[str, str]] = (),
        origin_topic: str = "",
    ) -> None:
        self._own = own = tuple(own)
        self._origins = dict(origins)
        self._origin_topic = origin_topic
        self._by_origin = {origin_topic: self}
        self._by_header = {
            name: scheme
            for scheme in (*SCHEMES, *(own_scheme for own_scheme in own if own_scheme.leading))
            for name in scheme.leading
        }
        in_values = [scheme for scheme in own if not scheme.leading]
        self._in_value = tuple(scheme for scheme in in_values if not scheme.is_assumed)
        self._fallbacks = (
            SPRING_CLOUD_STREAM_EMBEDDED,
            *(scheme for scheme in in_values if scheme.is_assumed),
            *((BARE,) if origin_topic else ()),
        )
        self._readings: dict[tuple[str, ...], Reading] = {}

    def at(self, topic: str) -> SchemeTable:
        """The same schemes for the dead letters on a topic, which may have an origin of its own."""
        origin_topic = self._origins.get(topic, "")
        table = self._by_origin.get(origin_topic)
        if table is None:
            table = SchemeTable(self._own, self._origins.items(), origin_topic)
            self._by_origin[origin_topic] = table
        return table

    def reading(self, layout: Sequence[str]) -> Reading:
        """How to read the messages of a layout: header names, in their order."""
        layout = tuple(layout)
        reading = self._readings.get(layout)
        if reading is None:
            if len(self._readings) >= _LAYOUTS:
                self._readings.clear()
            led = {
                id(scheme): scheme
                for scheme in map(self._by_header.get, layout)
                if scheme is not None and scheme.is_in(set(layout))
            }
            fallbacks = () if led else self._fallbacks  # schemes recognised by headers come first
            reading = Reading(
                layout, [*led.values()], self._in_value, fallbacks, self._origin_topic
            )
            self._readings[layout] = reading
        return reading


KNOWN: Final = SchemeTable()
"""The built-in schemes."""
