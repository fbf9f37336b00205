"""From the lines of a file to the entries of a table: comments, blank lines, continuation.

"Lines and entries" in docs/rules-language.md. An entry remembers the position of each of its
characters, so that every finding has a physical line and column.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from redrive.diagnostics import SourceLocation, location_in

BLANKS = " \t"
"""The characters that count as blank."""

_COMMENT = "*"
_JOIN_AT_FIRST_NON_BLANK = "+"
_JOIN_AT_START = "-"


@dataclass(frozen=True, slots=True)
class Entry:
    """One logical line: control data or a rule."""

    text: str
    """The joined text, without continuation signs."""
    pieces: tuple[tuple[int, SourceLocation], ...]
    """For each physical line the offset of its part of ``text``, and its position."""
    dangling: bool = False
    """Whether the last line ends in a continuation sign with nothing after it."""

    @property
    def line(self) -> int:
        """The number of the first physical line, which identifies the entry."""
        return self.pieces[0][1].line

    @property
    def lines(self) -> tuple[SourceLocation, ...]:
        """Its physical lines."""
        return tuple(location for _, location in self.pieces)

    def location(self, offset: int, length: int = 1) -> SourceLocation:
        """The location of some characters, up to the end of the physical line."""
        return location_in(self.pieces, offset, length)


@dataclass(slots=True)
class _Draft:
    """An entry that is being joined."""

    parts: list[str] = field(default_factory=list)
    pieces: list[tuple[int, SourceLocation]] = field(default_factory=list)
    length: int = 0
    sign: str = ""
    """Continuation sign of the last line, if it has one."""
    in_quotes: bool = False

    def add(self, line: str, file: str, number: int) -> None:
        """Append one physical line, without its continuation sign."""
        text = line.rstrip(BLANKS)
        indent = len(text) - len(text.lstrip(BLANKS))
        start = indent if self.sign == _JOIN_AT_FIRST_NON_BLANK else 0
        self.sign = text[-1:] if text.endswith((_JOIN_AT_FIRST_NON_BLANK, _JOIN_AT_START)) else ""
        body = text[start : len(text) - len(self.sign)]
        if body or not self.pieces:
            location = SourceLocation(file, number, start + 1, len(body), line)
            self.pieces.append((self.length, location))
        self.parts.append(body)
        self.length += len(body)
        self.in_quotes ^= body.count("'") % 2 == 1

    def finished(self) -> Iterator[Entry]:
        """The entry, unless it is blank."""
        text = "".join(self.parts)
        if text.strip(BLANKS):
            yield Entry(text, tuple(self.pieces), dangling=bool(self.sign))


def encoding_of(data: bytes) -> str:
    """The encoding of a table file, as Python names it.

    Tables are UTF-8, with or without a byte order mark, or UTF-16, as some editors of Windows
    write. UTF-16 without a mark is recognised by the first character, which is ASCII in every
    table. Older tables may have comments in any code page; they are read as ISO 8859-1, which is
    right for ASCII.
    """
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    if data[:2].count(0) == 1:
        return "utf-16-be" if data[0] == 0 else "utf-16-le"
    try:
        data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return "iso-8859-1"
    return "utf-8-sig"


def decode_source(data: bytes) -> str:
    """The text of a table file in any of the code pages of ``encoding_of``."""
    return data.decode(encoding_of(data), "replace")


def physical_lines(text: str) -> list[str]:
    """The lines of a text without their ends, LF or CR LF."""
    return [line.removesuffix("\r") for line in text.removeprefix("\ufeff").split("\n")]


def entries_of(lines: Sequence[str], file: str) -> Iterator[Entry]:
    """Join physical lines, without their ends, to entries.

    Comments and blank lines are dropped, also between continued lines, unless a quoted value is
    open: there they are data. A continuation sign on the last line is dropped, and blank entries
    are left out.
    """
    draft = _Draft()
    for number, line in enumerate(lines, start=1):
        if not draft.in_quotes and is_comment_or_blank(line):
            continue
        draft.add(line, file, number)
        if not draft.sign:
            yield from draft.finished()
            draft = _Draft()
    yield from draft.finished()


def is_comment_or_blank(line: str) -> bool:
    """Whether a line outside a continued quoted value belongs to no entry."""
    text = line.lstrip(BLANKS)
    return not text or text.startswith(_COMMENT)
