"""The table of all schemes, those of a user's own included."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from redrive.messages.schemes.known import SCHEMES, SPRING_CLOUD_STREAM_EMBEDDED
from redrive.messages.schemes.mqdlh import BINARY
from redrive.messages.schemes.reading import Reading
from redrive.messages.schemes.redrive import REDRIVE
from redrive.messages.schemes.scheme import Scheme

SCHEME_NAMES: Final = (*(scheme.name for scheme in SCHEMES), REDRIVE.name, BINARY.name)
"""The names of all schemes that are known without settings."""

GROUP_SCHEMES: Final = frozenset(
    scheme.name for scheme in SCHEMES if {"group", "connector"} & scheme.parts.keys()
)
"""The names of those whose dead letters can name the consumer group that failed."""

_LAYOUTS: Final = 256
"""Layouts of header names that are remembered."""


class SchemeTable:
    """The schemes that messages are asked for."""

    def __init__(self, own: Iterable[Scheme] = ()) -> None:
        """Register the schemes that are known, and some more."""
        own = tuple(own)
        self._by_header = {
            name: scheme
            for scheme in (*SCHEMES, *(it for it in own if it.leading))
            for name in scheme.leading
        }
        self._fallbacks = (
            SPRING_CLOUD_STREAM_EMBEDDED,
            *sorted((it for it in own if not it.leading), key=lambda scheme: scheme.is_assumed),
        )
        self._readings: dict[tuple[str, ...], Reading] = {}

    def reading(self, layout: Sequence[str]) -> Reading:
        """How to read the messages of a layout: header names, in their order."""
        layout = tuple(layout)
        reading = self._readings.get(layout)
        if reading is None:
            if len(self._readings) >= _LAYOUTS:
                self._readings.clear()
            led = {id(it): it for it in map(self._by_header.get, layout) if it is not None}
            fallbacks = () if led else self._fallbacks  # a scheme that a header leads comes first
            reading = self._readings[layout] = Reading(layout, [*led.values()], fallbacks)
        return reading


KNOWN: Final = SchemeTable()
"""The schemes that are known without settings."""
