"""What a rule asks of one field of a message.

A pattern answers two questions: does a value match, and does it accept everything that another
pattern accepts. The first follows rules-table specification 5.3.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from redrive.rules.dialect.patterns import ListPattern, RangePattern, RegexPattern

__all__ = ["FieldValue", "NumberPattern", "Pattern", "StringPattern"]

FieldValue: TypeAlias = str | int
"""A match field: text without trailing blanks and NUL, or a number."""

# Stands for the blanks that pad a value to the length of its field. No value contains it, because
# the first NUL ends a value (question Q-12), so "behind the last non-blank" is one character class.
_PADDING = "\0"


@dataclass(frozen=True, slots=True)
class StringPattern:
    """A text pattern: ``?`` stands for one character, ``*`` for any number of them.

    Trailing blanks mean nothing, neither in the pattern nor in the value (convention 13).
    """

    text: str = field(compare=False)
    """The value as the table gives it, folded and without quotes."""
    length: int
    """Characters of the field, to which values are padded with blanks."""
    normal: str = field(init=False)
    """The text without what makes no difference: trailing blanks, repeated asterisks."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "normal", re.sub(r"\*+", "*", self.text.rstrip(" ")))

    @property
    def matches_anything(self) -> bool:
        """Whether the pattern is as good as none."""
        return self.normal == "*"

    @property
    def is_literal(self) -> bool:
        """Whether exactly one value matches."""
        return "*" not in self.normal and "?" not in self.normal

    @property
    def head(self) -> str:
        """The text before the first wildcard, with which every matching value starts."""
        return re.split(r"[*?]", self.normal, maxsplit=1)[0]

    @property
    def default(self) -> FieldValue:
        """The value of a field that a message does not have."""
        return ""

    def matches(self, value: FieldValue) -> bool:
        """Whether a field with this value, padded to its length, matches (specification 5.3)."""
        value = str(value).rstrip(" ")
        if self.is_literal:
            return value == self.normal
        padded = value.ljust(self.length, _PADDING)
        return _compiled(self.normal).fullmatch(padded) is not None

    def accepts_all_of(self, other: Pattern) -> bool:
        """Whether every value that matches ``other`` is known to match this pattern too.

        The test reads the other pattern as a text: an asterisk here may stand for any part of
        it. It is exact when the other pattern has no wildcards and errs to False otherwise.
        """
        if not isinstance(other, StringPattern):
            return self.matches_anything
        if other.is_literal:
            return self.matches(other.normal)
        return self.length == other.length and _covers(self.normal, other.normal)


@dataclass(frozen=True, slots=True)
class NumberPattern:
    """A number pattern: equality, or ``*`` for any number."""

    value: int | None
    """The number to equal; None for ``*``."""

    @property
    def matches_anything(self) -> bool:
        """Whether the pattern is as good as none."""
        return self.value is None

    @property
    def default(self) -> FieldValue:
        """The value of a field that a message does not have."""
        return 0

    def matches(self, value: FieldValue) -> bool:
        """Whether a field with this value matches."""
        return self.value is None or self.value == value

    def accepts_all_of(self, other: Pattern) -> bool:
        """Whether every value that matches ``other`` matches this pattern too."""
        return self.value is None or self == other


Pattern: TypeAlias = "StringPattern | NumberPattern | RegexPattern | ListPattern | RangePattern"


@lru_cache(maxsize=100_000)
def _compiled(normal: str) -> re.Pattern[str]:
    """A pattern as a regular expression over the padded value.

    Each asterisk but the last takes as little as it can and never gives back (an atomic group):
    what follows it may as well start early, because the next asterisk takes up the rest. So the
    cost grows with value times pattern, never with a power of the number of asterisks.
    """
    first, *rest = ["".join(map(_expression, part)) for part in normal.split("*")]
    middle = "".join(f"(?>.*?{part})" for part in rest[:-1])
    last = f".*{rest[-1]}" if rest else ""
    return re.compile(f"{first}{middle}{last}{_PADDING}*", re.DOTALL)


def _expression(character: str) -> str:
    if character == "?":
        return f"[^{_PADDING}]"
    if character == " ":
        return f"[ {_PADDING}]"
    if character == _PADDING:
        return "(?!)"
    return re.escape(character)


def _covers(cover: str, text: str) -> bool:
    """Match the pattern ``cover`` against the pattern ``text``, taken as a row of characters."""
    reached = {0}
    for character in cover:
        reached = _step(character, text, reached)
        if not reached:
            return False
    return len(text) in reached


def _step(character: str, text: str, starts: set[int]) -> set[int]:
    if character == "*":
        return set(range(min(starts), len(text) + 1))
    return {start + 1 for start in starts if start < len(text) and _fits(character, text, start)}


def _fits(character: str, text: str, index: int) -> bool:
    there = text[index]
    if character != "?":
        return there == character
    # A blank of the other pattern may lie behind the last non-blank, where ? does not match,
    # unless something that is not blank must follow.
    return there != "*" and (there != " " or any(other not in " *" for other in text[index:]))
