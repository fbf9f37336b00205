"""The forms of values in MQSC: names, texts, numbers, words (resolution specification C.1, B.1)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from redrive.topology.mq.objects import MAX_NAME_LENGTH

_NAME = re.compile(r"[A-Za-z0-9./_%]*")
_MOST_DIGITS = 100
_LIST_ITEM = re.compile(r"'((?:[^']|'')*)'|([^\s,']+)")


class ValueProblem(ValueError):
    """A value that its keyword does not take.

    Attributes:
        code: Class of the finding.
        problem: What is wrong, as the end of a sentence that starts with the value.
        expected: What would be right.
    """

    def __init__(self, code: str, problem: str, expected: str) -> None:
        super().__init__(problem)
        self.code = code
        self.problem = problem
        self.expected = expected


class Form(Protocol):
    """The form of an attribute's value."""

    def read(self, text: str) -> object:
        """The value that a text stands for; raises ``ValueProblem``."""

    def write(self, value: object) -> str:
        """The text, quoted if needed, that reads as the value."""


def quote(text: str) -> str:
    """A text between single quotes, as MQSC reads it; blank text as one blank."""
    return "'" + (text.replace("'", "''") or " ") + "'"


def check_name(text: str, longest: int = MAX_NAME_LENGTH) -> str:
    """A name of an object, without its padding.

    Args:
        text: The name, perhaps followed by blanks.
        longest: Most characters it may have.

    Returns:
        The name; empty for a blank one.

    Raises:
        ValueProblem: It is too long or contains a character that no name may have (B.1).
    """
    name = text.rstrip(" ")
    if len(name) <= longest and _NAME.fullmatch(name):
        return name
    expected = f"up to {longest} of the characters A-Z a-z 0-9 . / _ %"
    if not _NAME.fullmatch(name):
        raise ValueProblem("BAD_NAME", "is no valid name", expected)
    raise ValueProblem("TOO_LONG", f"has {len(name)} characters", expected)


@dataclass(frozen=True, slots=True)
class Name:
    """The name of an object, or blank."""

    longest: int = MAX_NAME_LENGTH

    def read(self, text: str) -> str:
        """See ``Form.read``."""
        return check_name(text, self.longest)

    def write(self, value: object) -> str:
        """See ``Form.write``."""
        return quote(str(value))


@dataclass(frozen=True, slots=True)
class Text:
    """Any text."""

    longest: int | None = None
    """Most characters it may have; None for no limit."""

    def read(self, text: str) -> str:
        """See ``Form.read``."""
        text = text.rstrip(" ")
        if self.longest is not None and len(text) > self.longest:
            expected = f"up to {self.longest} characters"
            raise ValueProblem("TOO_LONG", f"has {len(text)} characters", expected)
        return text

    def write(self, value: object) -> str:
        """See ``Form.write``."""
        return quote(str(value))


@dataclass(frozen=True, slots=True)
class Number:
    """A whole number within limits."""

    low: int
    high: int

    def read(self, text: str) -> int:
        """See ``Form.read``."""
        is_number = text.isascii() and text.isdigit()
        # Python refuses to read thousands of digits; anything that long is out of range anyway.
        if is_number and len(text) <= _MOST_DIGITS and self.low <= int(text) <= self.high:
            return int(text)
        expected = f"a whole number from {self.low} to {self.high}"
        if is_number:
            raise ValueProblem("RANGE", "is out of range", expected)
        raise ValueProblem("BAD_VALUE", "is no whole number", expected)

    def write(self, value: object) -> str:
        """See ``Form.write``."""
        return str(value)


@dataclass(frozen=True, slots=True)
class NumberOrNone:
    """A whole number within limits, or a word for none."""

    number: Number
    word: str

    def read(self, text: str) -> int | None:
        """See ``Form.read``."""
        return None if text.upper() in {"", self.word} else self.number.read(text)

    def write(self, value: object) -> str:
        """See ``Form.write``."""
        return self.word if value is None else self.number.write(value)


@dataclass(frozen=True, slots=True)
class Choice:
    """One word of several."""

    values: Mapping[str, object]
    """Word to value."""

    def read(self, text: str) -> object:
        """See ``Form.read``."""
        try:
            return self.values[text.upper()]
        except KeyError:
            words = ", ".join(word for word in self.values if word)
            raise ValueProblem("BAD_VALUE", "is no value it takes", f"one of {words}") from None

    def write(self, value: object) -> str:
        """See ``Form.write``."""
        return next(word for word, meaning in self.values.items() if meaning == value)


@dataclass(frozen=True, slots=True)
class Flag:
    """No value: the keyword says it, and with NO before it the contrary."""

    def read(self, text: str) -> object:
        """See ``Form.read``; ``text`` is what stands in the parentheses that should not be."""
        raise ValueProblem("SYNTAX", "is a value where none is taken", f"no value, not {text!r}")

    def write(self, value: object) -> str:
        """See ``Form.write``."""
        return str(value)


@dataclass(frozen=True, slots=True)
class NameList:
    """Names separated by commas or blanks."""

    def read(self, text: str) -> tuple[str, ...]:
        """See ``Form.read``; ``text`` is the source text between the parentheses."""
        items = [
            plain.upper() or quoted.replace("''", "'") for quoted, plain in _LIST_ITEM.findall(text)
        ]
        return tuple(name for name in map(check_name, items) if name)

    def write(self, value: object) -> str:
        """See ``Form.write``."""
        assert isinstance(value, tuple)  # noqa: S101 - tells the type checker
        return ",".join(quote(name) for name in value) or quote("")
