"""User-defined schemes: ``[schemes.NAME]``."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final

from redrive.forms import keys_of
from redrive.messages.dead_letters import NO_VALID_SCHEME
from redrive.messages.schemes import SCHEME_NAMES, OwnScheme, PartPlace, PlaceError
from redrive.messages.schemes.own import payload_reader
from redrive.messages.schemes.scheme import Part
from redrive.settings.findings import Section
from redrive.settings_file import SchemeEntry, SettingsFile

_NAME: Final = re.compile(r"[A-Za-z0-9.-]+")
_TAKEN: Final = frozenset({*SCHEME_NAMES, NO_VALID_SCHEME})
_NO_PARTS: Final = frozenset({"recognise", "assume", "payload", "drops_headers"})
_PLACE_OF_RECORD: Final = frozenset({"origin.topic", "origin.partition", "origin.offset"})


def read_schemes(root: Section[SettingsFile]) -> tuple[OwnScheme, ...]:
    """The schemes of the table ``[schemes]``; errors are reported in the section."""
    schemes = tuple(
        _scheme(root.inner(table, "schemes", name), name)
        for name, table in root.value.schemes.items()
    )
    assumed = [scheme.name for scheme in schemes if scheme.is_assumed]
    for name in assumed[1:]:
        message = f"{assumed[0]} already recognises every message of no other scheme"
        root.findings.error(("schemes", name, "assume"), "DUPLICATE", message)
    return schemes


def _scheme(section: Section[SchemeEntry], name: str) -> OwnScheme:
    entry = section.value
    if name in _TAKEN or not _NAME.fullmatch(name):
        message = f"{name!r} is the name of a known scheme" if name in _TAKEN else f"{name!r}"
        section.findings.error_at_key(
            section.path, "BAD_VALUE", message, expected="a name of letters, digits, dots, hyphens"
        )
    if section.has("recognise") == section.has("assume"):
        message = f"[schemes.{name}] needs either recognise or assume"
        hint = "recognise names a header, or a path in the value, of every such dead letter"
        section.findings.error_at_key(section.path, "MISSING", message, hint=hint)
    _check(section, "recognise", entry.recognise, PartPlace.parse)
    _check(section, "payload", entry.payload, payload_reader)
    parts = dict(_parts(entry, section.findings.document.data["schemes"][name]))
    if entry.drops_headers and not parts.keys() >= _PLACE_OF_RECORD:
        section.error(
            "drops_headers",
            "MISSING",
            "the failed record must be found, and origin does not say where it is",
            expected="origin with topic, partition and offset",
        )
    for part, place in parts.items():
        _check(section, part, place, partial(_read_part, part))
    return OwnScheme(
        name=name,
        recognise=entry.recognise,
        is_assumed=entry.assume is not None,
        payload=entry.payload,
        parts=parts,
        drops_headers=entry.drops_headers,
    )


def _parts(
    table: object, written: Mapping[str, Any], prefix: str = ""
) -> Iterator[tuple[str, str]]:
    """The places of a table that are set, by the names of the parts, in the order of the file."""
    form: Any = type(table)
    keys = keys_of(form)
    for name in filter(keys.__contains__, written):
        value = getattr(table, keys[name].attribute)
        if keys[name].is_table and isinstance(written[name], Mapping):
            yield from _parts(value, written[name], f"{name}.")
        elif isinstance(value, str) and value and name not in _NO_PARTS:
            yield f"{prefix}{name}", value


def _read_part(part: str, words: str) -> Part:
    return PartPlace.parse(words).part(part)


def _check(
    section: Section[SchemeEntry], part: str, place: str, read: Callable[[str], Any]
) -> None:
    try:
        if place:
            read(place)
    except PlaceError as error:
        section.findings.error(
            (*section.path, *part.split(".")), "BAD_VALUE", str(error), expected=error.expected
        )
