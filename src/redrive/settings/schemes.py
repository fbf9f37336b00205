"""User-defined schemes: ``[schemes.NAME]``."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final

from redrive.messages.dead_letters import NO_VALID_SCHEME
from redrive.messages.schemes import SCHEME_NAMES, OwnScheme, PartPlace, PlaceError
from redrive.messages.schemes.own import payload_reader
from redrive.messages.schemes.scheme import Part
from redrive.settings.findings import Section

_NAME: Final = re.compile(r"[A-Za-z0-9.-]+")
_TAKEN: Final = frozenset({*SCHEME_NAMES, NO_VALID_SCHEME})
_NO_PARTS: Final = frozenset({"recognise", "assume", "payload", "drops_headers"})
_PLACE_OF_RECORD: Final = frozenset({"origin.topic", "origin.partition", "origin.offset"})


def read_schemes(section: Section) -> tuple[OwnScheme, ...]:
    """The schemes of the table ``[schemes]``; errors are reported in the section."""
    schemes = tuple(_scheme(section.section(name), name) for name in section.data)
    assumed = [one.name for one in schemes if one.is_assumed]
    for name in assumed[1:]:
        section.section(name).error(
            "assume",
            "DUPLICATE",
            f"{assumed[0]} already recognises every message of no other scheme",
        )
    return schemes


def _scheme(section: Section, name: str) -> OwnScheme:
    if name in _TAKEN or not _NAME.fullmatch(name):
        message = f"{name!r} is the name of a known scheme" if name in _TAKEN else f"{name!r}"
        section.findings.error_at_key(
            section.path, "BAD_VALUE", message, expected="a name of letters, digits, dots, hyphens"
        )
    if section.has("recognise") == section.has("assume"):
        message = f"[schemes.{name}] needs either recognise or assume"
        hint = "recognise names a header, or a path in the value, of every such dead letter"
        section.findings.error_at_key(section.path, "MISSING", message, hint=hint)
    _check(section, ("recognise",), PartPlace.parse)
    _check(section, ("payload",), payload_reader)
    parts = dict(_parts(section))
    drops_headers = bool(section.data.get("drops_headers"))
    if drops_headers and not parts.keys() >= _PLACE_OF_RECORD:
        section.error(
            "drops_headers",
            "MISSING",
            "the failed record must be found, and origin does not say where it is",
            expected="origin with topic, partition and offset",
        )
    for part in parts:
        _check(section, tuple(part.split(".")), partial(_read_part, part))
    return OwnScheme(
        name=name,
        recognise=section.text("recognise"),
        is_assumed="assume" in section.data,
        payload=section.text("payload"),
        parts=parts,
        drops_headers=drops_headers,
    )


def _parts(section: Section) -> Iterator[tuple[str, str]]:
    for key, place in section.data.items():
        if key in _NO_PARTS:
            continue
        if isinstance(place, Mapping):
            yield from ((f"{key}.{inner}", str(words)) for inner, words in place.items())
        else:
            yield key, str(place)


def _read_part(part: str, words: str) -> Part:
    return PartPlace.parse(words).part(part)


def _check(section: Section, path: tuple[str, ...], read: Callable[[str], Any]) -> None:
    place: Any = section.data
    for key in path:
        place = place.get(key) if isinstance(place, Mapping) else None
    if place is None:
        return
    try:
        read(str(place))
    except PlaceError as error:
        section.findings.error(
            (*section.path, *path), "BAD_VALUE", str(error), expected=error.expected
        )
