"""From the lines of a file to the entries of a table: comments, blank lines, continuation.

Steps 1 to 4 of rules-table specification 5.2. An entry remembers where each of its characters
stood, so that every finding can point at the physical line and column.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

__all__ = ["BLANKS", "Entry", "decode_source", "entries_of", "physical_lines"]

BLANKS = " \t"
"""The characters that count as blank (question Q-39)."""

_COMMENT = "*"
_JOIN_AT_FIRST_NON_BLANK = "+"
_JOIN_AT_START = "-"


@dataclass(frozen=True, slots=True)
class _Piece:
    """What one physical line adds to an entry."""

    offset: int
    """Where it starts in the text of the entry, from 0."""
    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Entry:
    """One logical line: control data or a rule."""

    text: str
    """The joined text, without continuation signs."""
    pieces: tuple[_Piece, ...]
    dangling: bool = False
    """Whether the last line ends in a continuation sign with nothing to follow."""

    @property
    def line(self) -> int:
        """The number of the first physical line, by which the entry is known (Q-38)."""
        return self.pieces[0].line

    @property
    def lines(self) -> tuple[int, ...]:
        """The numbers of all its physical lines."""
        return tuple(piece.line for piece in self.pieces)

    def place(self, offset: int) -> tuple[int, int, int]:
        """Where a character stood.

        Args:
            offset: Index into ``text``; its length stands for the place just after the end.

        Returns:
            1-based line and column, and how many characters of the entry follow on that line.
        """
        last = len(self.pieces) - 1
        index = bisect_right(self.pieces, offset, key=lambda piece: piece.offset) - 1
        if offset >= len(self.text):
            index = self._last_with_text()
        piece = self.pieces[index]
        end = self.pieces[index + 1].offset if index < last else len(self.text)
        return piece.line, piece.column + offset - piece.offset, end - offset

    def _last_with_text(self) -> int:
        index = len(self.pieces) - 1
        while index and self.pieces[index].offset == len(self.text):
            index -= 1
        return index


@dataclass(slots=True)
class _Draft:
    """An entry that is being joined."""

    parts: list[str] = field(default_factory=list)
    pieces: list[_Piece] = field(default_factory=list)
    length: int = 0
    sign: str = ""
    """Continuation sign of the last line, if it has one."""
    in_quotes: bool = False

    def add(self, line: str, number: int) -> None:
        """Append one physical line, without its continuation sign (step 3)."""
        text = line.rstrip(BLANKS)
        indent = len(text) - len(text.lstrip(BLANKS))
        start = indent if self.sign == _JOIN_AT_FIRST_NON_BLANK else 0
        self.sign = text[-1:] if text.endswith((_JOIN_AT_FIRST_NON_BLANK, _JOIN_AT_START)) else ""
        body = text[start : len(text) - len(self.sign)]
        self.pieces.append(_Piece(self.length, number, start + 1))
        self.parts.append(body)
        self.length += len(body)
        self.in_quotes ^= body.count("'") % 2 == 1

    def finished(self) -> Entry:
        return Entry("".join(self.parts), tuple(self.pieces), dangling=bool(self.sign))


def decode_source(data: bytes) -> str:
    """The text of a table file.

    Tables are UTF-8, with or without a byte order mark. Older ones may hold comments in any code
    page; they are read byte by byte (ISO 8859-1), which is right for all that is ASCII.
    """
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("iso-8859-1")


def physical_lines(text: str) -> list[str]:
    """The lines of a text without their ends, LF or CR LF (step 1)."""
    return [line.removesuffix("\r") for line in text.removeprefix("\ufeff").split("\n")]


def entries_of(lines: Sequence[str]) -> Iterator[Entry]:
    """Join physical lines to entries.

    Comments and blank lines are dropped, also between continued lines, unless a quoted value is
    open: there they are data (questions Q-03 and Q-04). A continuation sign on the last line is
    dropped and what there is stands (step 4).

    Args:
        lines: The physical lines, without line ends.

    Yields:
        The entries in order; one that would hold nothing but blanks is left out.
    """
    draft = _Draft()
    for number, line in enumerate(lines, start=1):
        if not draft.in_quotes and _is_comment_or_blank(line):
            continue
        draft.add(line, number)
        if not draft.sign:
            yield from _unless_blank(draft.finished())
            draft = _Draft()
    if draft.pieces:
        yield from _unless_blank(draft.finished())


def _is_comment_or_blank(line: str) -> bool:
    text = line.lstrip(BLANKS)
    return not text or text.startswith(_COMMENT)


def _unless_blank(entry: Entry) -> Iterator[Entry]:
    if entry.text.strip(BLANKS):
        yield entry
