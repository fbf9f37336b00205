"""Reading dead letters of any scheme: the schemes of a message, and the content of the outermost.

Nearly all messages of a topic have the same header names in the same order. Their schemes and the
meaning of their headers are determined once for such a layout; then a message only needs a look at
the headers that matter.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from redrive.messages.dead_letter_header import DeadLetterHeader
from redrive.messages.fields import Headers
from redrive.messages.schemes.known import SCHEMES, SPRING_CLOUD_STREAM_EMBEDDED
from redrive.messages.schemes.mqdlh import BINARY, REDRIVE, MQForm, view_of_header
from redrive.messages.schemes.scheme import (
    NO_SCHEME,
    DeadLetterView,
    DecisiveHeader,
    Newest,
    Origin,
    Scheme,
    SchemeLines,
    pop_origin,
)

AnyScheme: TypeAlias = Scheme | MQForm

SCHEME_NAMES: Final = (*(scheme.name for scheme in SCHEMES), REDRIVE.name, BINARY.name)
"""The names of all built-in schemes."""

GROUP_SCHEMES: Final = frozenset(
    scheme.name for scheme in SCHEMES if {"group", "connector"} & scheme.parts.keys()
)
"""The names of schemes whose dead letters can name the consumer group that failed."""

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


class Reading:
    """How to read messages of one layout of header names."""

    def __init__(
        self,
        layout: Sequence[str],
        schemes: Sequence[Scheme],
        in_value: Sequence[Scheme] = (),
        fallbacks: Sequence[Scheme] = (),
    ) -> None:
        """Find the schemes of a layout.

        Args:
            layout: The header names, in order.
            schemes: Schemes recognised by headers, each only if its header is among the names;
                besides them, Redrive's own headers are searched.
            in_value: Schemes of settings that a value identifies, to try first, in order.
            fallbacks: Schemes to try on a message without others, in order.
        """
        places: dict[str, list[int]] = {}
        for index, name in enumerate(layout):
            places.setdefault(name, []).append(index)
        led = {
            id(scheme): [places[name] for name in scheme.leading if name in places]
            for scheme in schemes
        }
        here: list[tuple[int, int, AnyScheme]] = [
            (
                max(indices[-1] for indices in led[id(scheme)]),
                max(map(len, led[id(scheme)])),
                scheme,
            )
            for scheme in schemes
            if scheme.newest is Newest.LAST
        ]
        if own := places.get(REDRIVE.leading[0]):
            here.append((own[-1], len(own), REDRIVE))
        appended = min((place for place, _, _ in here), default=len(layout))
        for scheme in schemes:
            if scheme.newest is Newest.FIRST:
                first = min(indices[0] for indices in led[id(scheme)])
                here.append((_in_front(first, appended), max(map(len, led[id(scheme)])), scheme))
        # A scheme of settings is certain, whatever was added after it, except by Redrive itself.
        forwarded = own[-1] if own else -1
        here.sort(
            key=lambda rank: (_is_own(rank[2]) and rank[0] > forwarded, rank[0]), reverse=True
        )
        self.schemes: tuple[AnyScheme, ...] = tuple(scheme for _, _, scheme in here)
        """The schemes recognised by headers, the outermost first."""
        self.hop = sum(hops for _, hops, _ in here) or 1
        """How often a message was dead-lettered, according to its headers."""
        self._lines = {
            id(scheme): SchemeLines(scheme, places)
            for scheme in (*self.schemes, *in_value, *fallbacks)
            if isinstance(scheme, Scheme)
        }
        self._in_value = tuple(in_value)
        self._fallbacks = tuple(fallbacks)
        self._deep = [lines for lines in self._lines.values() if lines.looks_into_records]
        begins = [lines.scheme.begins for lines in self._deep]
        # A quick check is enough for most values, unless a scheme needs more.
        self._begins = tuple(begins) if all(begins) else ()

    @property
    def signature(self) -> Hashable:
        """Equal for layouts with the same schemes, in the same order and number."""
        return tuple(map(id, self.schemes)), self.hop

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
        for scheme in reversed(self.schemes):
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
        for scheme in reversed(self.schemes):
            if lines := self._lines.get(id(scheme)):
                origin = lines.first_origin(headers, shared=shared)
                if origin.topic is not None:
                    return origin
        return None


def _is_own(scheme: AnyScheme) -> bool:
    return isinstance(scheme, Scheme) and scheme.is_own


def _is_in_value(scheme: Scheme, value: bytes | None) -> bool:
    return scheme.is_in_value is None or (value is not None and scheme.is_in_value(value))


def _in_front(first: int, appended: int) -> int:
    """The rank of a scheme that adds its headers in front of existing ones.

    Headers behind it may be older or newer, and count as newer. Of several schemes that add in
    front, the first is the newest. Behind appended headers it can only be newer than they are.
    """
    return -1 - first if first < appended else first


class SchemeTable:
    """The schemes to look for: the built-in ones and ``own``."""

    def __init__(self, own: Iterable[Scheme] = ()) -> None:
        own = tuple(own)
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
        )
        self._readings: dict[tuple[str, ...], Reading] = {}

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
            reading = Reading(layout, [*led.values()], self._in_value, fallbacks)
            self._readings[layout] = reading
        return reading


KNOWN: Final = SchemeTable()
"""The built-in schemes."""
