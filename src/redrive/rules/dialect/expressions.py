r"""The values of DIALECT(KAFKA) as text: alternatives, and where each of them stands.

value       = "(" ws* alternatives ws* ")" | alternatives
alternatives = alternative { ws* "|" ws* alternative }
alternative = quoted | "/" { any character but / | "\/" } "/" | [ comparison ws* ] bare
comparison  = ">" | ">=" | "<" | "<=" | "="
bare        = any characters but blanks, quotes, parentheses, commas and | & < > =
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

__all__ = ["BARE", "Alternative", "Kind", "Malformed", "Value", "read_argument", "read_value"]

BARE: Final = re.compile(r"[^\s'(),|&<>=]+")
"""A text that needs no quotes, unless it begins with a slash."""

_BLANKS: Final = re.compile(r"[ \t]*")
_QUOTED: Final = re.compile(r"'((?:[^']|'')*)'")
_REGEX: Final = re.compile(r"/((?:[^/\\]|\\.)*)/")
_COMPARISON: Final = re.compile(r">=|<=|>|<|=")
_ARGUMENT: Final = re.compile(r"[ \t]*(?:'((?:[^']|'')*)'|([^\s'(),|]+))[ \t]*,")


class Kind(Enum):
    """What an alternative is."""

    TEXT = auto()
    """A text or a number, with or without quotes."""
    REGEX = auto()
    """An expression between slashes."""
    COMPARISON = auto()
    """A number behind a comparison."""


@dataclass(frozen=True, slots=True)
class Alternative:
    """One of the alternatives of a value."""

    kind: Kind
    text: str
    """The text without quotes, the expression without slashes, the number of a comparison."""
    offset: int
    """Where in the text of the entry it begins."""
    length: int
    """Characters with quotes, slashes and comparison."""
    operator: str = ""
    """The comparison."""


@dataclass(frozen=True, slots=True)
class Value:
    """A value that was read."""

    alternatives: tuple[Alternative, ...]
    end: int
    """Where the text goes on, behind the closing parenthesis of the clause."""


@dataclass(frozen=True, slots=True)
class Malformed:
    """Where a text leaves the grammar of values."""

    code: str
    message: str
    offset: int
    expected: str
    hint: str = ""
    length: int = 1
    is_open: bool = False
    """Whether the value takes all that follows, so that nothing behind it can be read."""


def read_argument(text: str, at: int) -> tuple[str, int] | None:
    """Read an argument and its comma.

    Args:
        text: The text of an entry.
        at: The character behind the opening parenthesis.

    Returns:
        The argument and where the text goes on; None if no argument and comma stand there.
    """
    found = _ARGUMENT.match(text, at)
    if found is None:
        return None
    quoted, bare = found.groups()
    return (bare if quoted is None else quoted.replace("''", "'")), found.end()


def read_value(text: str, at: int) -> Value | Malformed:
    """Read a value up to the closing parenthesis of its clause.

    Args:
        text: The text of an entry.
        at: The character behind the opening parenthesis, or behind an argument's comma.
    """
    return _Reader(text, at).value()


class _Reader:
    """Reads one value."""

    def __init__(self, text: str, at: int) -> None:
        self._text = text
        self._at = at
        self._skip()

    def value(self) -> Value | Malformed:
        is_enclosed = self._takes("(")
        alternatives: list[Alternative] = []
        while True:
            found = self._alternative()
            if isinstance(found, Malformed):
                return found
            alternatives.append(found)
            self._skip()
            if not self._takes("|"):
                break
        for _ in range(1 + is_enclosed):
            if not self._takes(")"):
                return self._not_closed()
        return Value(tuple(alternatives), self._at)

    def _alternative(self) -> Alternative | Malformed:
        self._skip()
        start = self._at
        if self._peek() == "'":
            return self._quoted(start)
        if self._peek() == "/":
            return self._regex(start)
        operator = _COMPARISON.match(self._text, start)
        if operator is not None:
            self._at = operator.end()
            self._skip()
        bare = BARE.match(self._text, self._at)
        if bare is None:
            return self._nothing(start)
        self._at = bare.end()
        kind = Kind.TEXT if operator is None else Kind.COMPARISON
        sign = operator.group() if operator else ""
        return Alternative(kind, bare.group(), start, self._at - start, sign)

    def _quoted(self, start: int) -> Alternative | Malformed:
        found = _QUOTED.match(self._text, start)
        if found is None:
            return Malformed(
                "SYNTAX",
                "the quoted value has no end",
                start,
                "a single quote",
                "close the value with '; a quote inside a value is written twice; "
                "a line that goes on ends in + or -",
                len(self._text) - start,
                is_open=True,
            )
        self._at = found.end()
        if not found.group(1):
            return Malformed(
                "EMPTY_VALUE",
                "there is nothing between the quotes",
                start,
                "at least one character",
                "a blank value is written ' '",
                2,
            )
        text = found.group(1).replace("''", "'")
        return Alternative(Kind.TEXT, text, start, self._at - start)

    def _regex(self, start: int) -> Alternative | Malformed:
        found = _REGEX.match(self._text, start)
        if found is None:
            return Malformed(
                "SYNTAX",
                "the expression has no end",
                start,
                "a slash",
                r"close the expression with /; a slash inside it is written \/; "
                "a text that begins with a slash is quoted",
                len(self._text) - start,
                is_open=True,
            )
        self._at = found.end()
        text = found.group(1).replace(r"\/", "/")
        if not text:
            return Malformed(
                "EMPTY_VALUE",
                "there is nothing between the slashes",
                start,
                "an expression",
                "* matches anything",
                2,
            )
        return Alternative(Kind.REGEX, text, start, self._at - start)

    def _nothing(self, start: int) -> Malformed:
        there = self._text[self._at : self._at + 1]
        if self._at > start:
            message = f"no number follows {self._text[start : self._at].rstrip()}"
            return Malformed("SYNTAX", message, self._at, "a number")
        if there in {"", ")", "|"}:
            return Malformed(
                "EMPTY_VALUE", "there is no value", start, "a text, a number or an expression",
                "a blank value is written ' '",
            )  # fmt: skip
        return Malformed(
            "SYNTAX",
            f"{there!r} cannot start a value",
            start,
            "a text, a number, a comparison or an expression",
            "put a text with such characters in single quotes",
        )

    def _not_closed(self) -> Malformed:
        there = self._peek()
        if not there:
            return Malformed(
                "SYNTAX", "the value is not closed", self._at, ")",
                "write the value between parentheses; a rule that goes on in the next line "
                "ends in + or -",
            )  # fmt: skip
        return Malformed(
            "SYNTAX",
            f"{there!r} cannot stand in or behind a value",
            self._at,
            ") or |",
            "put a text with blanks, commas or parentheses in single quotes",
        )

    def _takes(self, character: str) -> bool:
        self._skip()
        if self._peek() != character:
            return False
        self._at += 1
        return True

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _skip(self) -> None:
        found = _BLANKS.match(self._text, self._at)
        self._at = found.end() if found else self._at
