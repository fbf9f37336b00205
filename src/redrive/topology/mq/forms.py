"""The forms of values in MQSC: names, texts, numbers, words (resolution specification C.1, B.1)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

MAX_NAME_LENGTH = 48
"""Longest name of a queue, queue manager, cluster, namelist or topic object."""

_NAME = re.compile(r"[A-Za-z0-9./_%]*")
_MOST_DIGITS = 100
_LIST_ITEM = re.compile(r"'((?:[^']|'')*)'|([^\s,']+)")


class ValueProblem(ValueError):
    """A value that its keyword does not take.

    Attributes:
        code: Code of the finding.
        problem: What is wrong, as the end of a sentence that starts with the value.
        expected: What would be right.
    """

    def __init__(self, code: str, problem: str, expected: str) -> None:
        super().__init__(problem)
        self.code, self.problem, self.expected = code, problem, expected


class Form:
    """How the values of an attribute are read."""

    __slots__ = ()

    def read(self, text: str) -> object:
        """The value of a text; raises ``ValueProblem``."""
        raise NotImplementedError


def quote(text: str) -> str:
    """A text between single quotes, as MQSC reads it; blank text as one blank."""
    return "'" + (text.replace("'", "''") or " ") + "'"


def check_name(text: str, longest: int = MAX_NAME_LENGTH) -> str:
    """A name of an object without its padding; empty for a blank one.

    Raises:
        ValueProblem: It is too long or has a character that no name may have (B.1).
    """
    name = text.rstrip(" ")
    expected = f"up to {longest} of the characters A-Z a-z 0-9 . / _ %"
    if not _NAME.fullmatch(name):
        raise ValueProblem("BAD_NAME", "is no valid name", expected)
    if len(name) > longest:
        raise ValueProblem("TOO_LONG", f"has {len(name)} characters", expected)
    return name


@dataclass(frozen=True, slots=True)
class Name(Form):
    """The name of an object, or blank."""

    def read(self, text: str) -> str:
        """The name without padding."""
        return check_name(text)


@dataclass(frozen=True, slots=True)
class Text(Form):
    """Any text."""

    longest: int | None = None

    def read(self, text: str) -> str:
        """The text without padding."""
        text = text.rstrip(" ")
        if self.longest is not None and len(text) > self.longest:
            expected = f"up to {self.longest} characters"
            raise ValueProblem("TOO_LONG", f"has {len(text)} characters", expected)
        return text


@dataclass(frozen=True, slots=True)
class Number(Form):
    """A whole number within limits, or a word for none."""

    low: int
    high: int
    none: str = ""
    """The word that stands for None, as blank then does; empty if there is none."""

    def read(self, text: str) -> int | None:
        """The number, or None."""
        if self.none and text.upper() in {"", self.none}:
            return None
        is_number = text.isascii() and text.isdigit()
        # Python refuses to read thousands of digits; anything that long is out of range anyway.
        if is_number and len(text) <= _MOST_DIGITS and self.low <= int(text) <= self.high:
            return int(text)
        expected = f"a whole number from {self.low} to {self.high}"
        if is_number:
            raise ValueProblem("RANGE", "is out of range", expected)
        raise ValueProblem("BAD_VALUE", "is no whole number", expected)


@dataclass(frozen=True, slots=True)
class Choice(Form):
    """One word of several."""

    values: Mapping[str, object]

    def read(self, text: str) -> object:
        """The value of a word in any case."""
        try:
            return self.values[text.upper()]
        except KeyError:
            words = ", ".join(word for word in self.values if word)
            raise ValueProblem("BAD_VALUE", "is no value it takes", f"one of {words}") from None


@dataclass(frozen=True, slots=True)
class Flag(Form):
    """No value: the keyword says it, and with NO before it the contrary."""

    def read(self, text: str) -> object:
        """Refuse what stands in the parentheses that should not be."""
        raise ValueProblem("SYNTAX", "is a value where none is taken", f"no value, not {text!r}")


@dataclass(frozen=True, slots=True)
class NameList(Form):
    """Names separated by commas or blanks."""

    def read(self, text: str) -> tuple[str, ...]:
        """The names in the source text between the parentheses."""
        items = [
            plain.upper() or quoted.replace("''", "'") for quoted, plain in _LIST_ITEM.findall(text)
        ]
        return tuple(name for name in map(check_name, items) if name)


def one_of(values: type[StrEnum] | str) -> Choice:
    """The members of an enumeration, or the words of a text, each as it is written."""
    if isinstance(values, str):
        return Choice({word: word for word in values.split()})
    return Choice({member.value: member for member in values})
