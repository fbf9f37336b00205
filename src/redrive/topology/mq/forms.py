"""The forms of values in MQSC: names, texts, numbers, words."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import TypeAlias

MAX_NAME_LENGTH = 48
"""Longest name of a queue, queue manager, cluster, namelist or topic object."""

_NAME = re.compile(r"[A-Za-z0-9./_%]*")
_MOST_DIGITS = 100
_LIST_ITEM = re.compile(r"'((?:[^']|'')*)'|([^\s,']+)")


class ValueProblem(ValueError):
    """A value that its keyword does not accept.

    Attributes:
        code: Code of the finding.
        problem: The error, as the end of a sentence that starts with the value.
        expected: What is accepted.
    """

    def __init__(self, code: str, problem: str, expected: str) -> None:
        super().__init__(problem)
        self.code, self.problem, self.expected = code, problem, expected


Form: TypeAlias = Callable[[str], object]
"""Reads a value from its text; raises ``ValueProblem``."""


def check_name(text: str, longest: int = MAX_NAME_LENGTH) -> str:
    """A name of an object without its padding; empty if blank.

    Raises:
        ValueProblem: It is too long or has an invalid character.
    """
    name = text.rstrip(" ")
    expected = f"up to {longest} of the characters A-Z a-z 0-9 . / _ %"
    if not _NAME.fullmatch(name):
        raise ValueProblem("BAD_NAME", "is not a valid name", expected)
    if len(name) > longest:
        raise ValueProblem("TOO_LONG", f"has {len(name)} characters", expected)
    return name


def text(value: str) -> str:
    """Any text, without its padding."""
    return value.rstrip(" ")


def number(low: int, high: int, none: str = "") -> Form:
    """A whole number within limits; the word ``none``, or blank if that is empty, is None."""

    def read(value: str) -> int | None:
        if none and value.upper() in {"", none}:
            return None
        is_number = value.isascii() and value.isdigit()
        # Python refuses to parse thousands of digits; anything that long is out of range anyway.
        if is_number and len(value) <= _MOST_DIGITS and low <= int(value) <= high:
            return int(value)
        expected = f"a whole number from {low} to {high}"
        if is_number:
            raise ValueProblem("RANGE", "is out of range", expected)
        raise ValueProblem("BAD_VALUE", "is not a whole number", expected)

    return read


def choice(values: Mapping[str, object]) -> Form:
    """One word of several, in any case, each with its value."""

    def read(value: str) -> object:
        try:
            return values[value.upper()]
        except KeyError:
            words = ", ".join(word for word in values if word)
            raise ValueProblem("BAD_VALUE", "is not one of its values", f"one of {words}") from None

    return read


def one_of(values: type[StrEnum] | str) -> Form:
    """The members of an enumeration, or the words of a text."""
    if isinstance(values, str):
        return choice({word: word for word in values.split()})
    return choice({member.value: member for member in values})


def name_list(source: str) -> tuple[str, ...]:
    """Names between parentheses, separated by commas or blanks."""
    items = [
        plain.upper() or quoted.replace("''", "'") for quoted, plain in _LIST_ITEM.findall(source)
    ]
    return tuple(name for name in map(check_name, items) if name)
