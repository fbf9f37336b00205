"""The offsets of keys and values in a TOML text, which ``tomllib`` does not report.

The scanner reads a text that ``tomllib`` has accepted, so it checks nothing: it only follows the
structure of TOML 1.0 to find where keys and values begin and end.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from typing import Final, NamedTuple

from redrive.forms import KeyPath


class Span(NamedTuple):
    """Offsets of the first character and of the one after the last."""

    start: int
    end: int


@dataclass(slots=True)
class Place:
    """The offsets of one key and its value."""

    key: Span
    """The key itself, or the name in a table's header."""
    value: Span
    """The value; for a table its header."""


def find_places(text: str) -> dict[KeyPath, Place]:
    """The place of every key, table and list element of a text that ``tomllib.loads`` accepts.

    A table without its own header, such as ``a`` in ``[a.b]``, has the place of its name.
    """
    scanner = _Scanner(text)
    scanner.scan()
    return scanner.places


_BLANK: Final = re.compile(r"[ \t]*")
_BLANK_LINES: Final = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_BARE_KEY: Final = re.compile(r"[A-Za-z0-9_-]+")
_STRING: Final = re.compile(
    r'"""(?:\\.|[^\\])*?"{3,5}'  # up to two quotes may end the content of a long string
    r"|'''.*?'{3,5}"
    r'|"(?:\\.|[^"\\])*"'
    r"|'[^']*'",
    re.DOTALL,
)
_SCALAR: Final = re.compile(r"[^,\]}#\r\n]*[^,\]}#\r\n \t]")


class _Scanner:
    """One pass over the text; every method starts at ``_at`` and leaves it after what it read."""

    def __init__(self, text: str) -> None:
        self.places: dict[KeyPath, Place] = {}
        self._text = text
        self._at = 0
        self._lengths: dict[KeyPath, int] = {}  # of lists of tables

    def scan(self) -> None:
        table: KeyPath = ()
        while self._skip(_BLANK_LINES) < len(self._text):
            if self._text[self._at] == "[":
                table = self._header()
            else:
                self._entry(table)

    def _header(self) -> KeyPath:
        start = self._at
        is_list = self._text.startswith("[[", start)
        self._at += 2 if is_list else 1
        names = self._keys()
        self._at += 2 if is_list else 1
        path: KeyPath = ()
        for name, span in names[:-1]:
            path = self._current((*path, name))
            self._note(path, span, span)
        name, span = names[-1]
        path = (*path, name)
        header = Span(start, self._at)
        self._note(path, span, header)
        if is_list:
            self._lengths[path] = self._lengths.get(path, -1) + 1
            path = self._current(path)
            self._note(path, span, header)
        self.places[path].value = header  # it may be known from part of another header
        return path

    def _entry(self, table: KeyPath) -> None:
        names = self._keys()
        self._at += 1  # the equals sign
        path = table
        for name, span in names:
            path = (*path, name)
            self._note(path, span, span)
        self._value(path)

    def _keys(self) -> list[tuple[str, Span]]:
        """A key with its dotted parts; stops before ``=`` or ``]``."""
        names = []
        while True:
            start = self._skip(_BLANK)
            names.append(self._key(start))
            if self._text[self._skip(_BLANK)] != ".":
                return names
            self._at += 1

    def _key(self, start: int) -> tuple[str, Span]:
        if self._text[start] in "\"'":
            self._skip(_STRING)
            # The quoted name in the form of a value, for the parser to undo the escapes.
            name = tomllib.loads(f"name = {self._text[start : self._at]}")["name"]
        else:
            self._skip(_BARE_KEY)
            name = self._text[start : self._at]
        return name, Span(start, self._at)

    def _value(self, path: KeyPath) -> None:
        start = self._skip(_BLANK_LINES)
        match self._text[start]:
            case "[":
                self._list(path)
            case "{":
                self._inline_table(path)
            case '"' | "'":
                self._skip(_STRING)
            case _:
                self._skip(_SCALAR)
        self.places[path].value = Span(start, self._at)

    def _list(self, path: KeyPath) -> None:
        self._at += 1
        index = 0
        while self._text[self._skip(_BLANK_LINES)] != "]":
            here = Span(self._at, self._at)
            self._note((*path, index), here, here)
            self._value((*path, index))
            self.places[*path, index].key = self.places[*path, index].value
            index += 1
            self._skip_comma()
        self._at += 1

    def _inline_table(self, path: KeyPath) -> None:
        self._at += 1
        while self._text[self._skip(_BLANK_LINES)] != "}":
            self._entry(path)
            self._skip_comma()
        self._at += 1

    def _skip_comma(self) -> None:
        if self._text[self._skip(_BLANK_LINES)] == ",":
            self._at += 1

    def _current(self, path: KeyPath) -> KeyPath:
        """The path, with the current element's index if it is a list."""
        return (*path, self._lengths[path]) if path in self._lengths else path

    def _note(self, path: KeyPath, key: Span, value: Span) -> None:
        self.places.setdefault(path, Place(key, value))

    def _skip(self, pattern: re.Pattern[str]) -> int:
        match = pattern.match(self._text, self._at)
        self._at = match.end() if match else self._at
        return self._at
