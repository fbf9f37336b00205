"""Patterns: conditions of a rule on one field of a message.

IBM's patterns are texts with wildcards and numbers: see "Patterns" in docs/rules-language.md.
DIALECT(KAFKA) adds regular expressions, comparisons, lists, and NOT; its fields have the names of
their patterns, and missing fields are left out. Text is UTF-8; bytes that are not UTF-8 become
U+FFFD.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import lru_cache
from operator import attrgetter, eq, ge, gt, le, lt
from typing import Any, ClassVar, Final, TypeAlias

import orjson
import re2

from redrive.messages.fields import Headers
from redrive.messages.json_patch import JsonPath
from redrive.messages.schemes.scheme import NO_SCHEME, DeadLetterView
from redrive.rules.keywords import pattern_keyword, split_field

FieldValue: TypeAlias = str | int
"""A match field: text without trailing blanks and NUL, or a number."""

ABSENT: Final = -1
"""The value of a missing number: no comparison holds for it."""

PADDING: Final = "\0"
"""Stands for the blanks that pad a value to the length of its field. No value contains it, because
the first NUL ends a value, so "behind the last non-blank" is one character class."""
_NOT_PLAIN: Final = frozenset(f"*? {PADDING}")
"""Characters of a pattern that do not stand for themselves alone."""

_REGEX_MEMORY: Final = 1 << 20
"""Maximum bytes for the states of one expression."""
_LARGE_REGEX: Final = 1_000
"""Maximum instructions of an expression whose states certainly fit."""


class Pattern(ABC):
    """A condition on one field."""

    __slots__ = ()

    default: ClassVar[FieldValue] = ""

    @property
    def matches_anything(self) -> bool:
        """Whether the pattern certainly matches every value."""
        return False

    @property
    @abstractmethod
    def meaning(self) -> object:
        """Input of a table's hash: equal for patterns that mean the same."""

    @abstractmethod
    def matches(self, value: FieldValue) -> bool:
        """Whether a field with this value matches."""


def members_of(pattern: Pattern) -> Sequence[Pattern]:
    """The alternatives of a list, or the pattern itself."""
    return pattern.members if isinstance(pattern, ListPattern) else (pattern,)


def intervals_of(pattern: Pattern) -> Sequence[Interval]:
    """The numbers that a pattern matches; empty for IBM's ``*`` and for texts."""
    return pattern.intervals if isinstance(pattern, NumberPattern | RangePattern) else ()


@dataclass(frozen=True, slots=True)
class StringPattern(Pattern):
    """A text pattern: ``?`` stands for one character, ``*`` for any number of them.

    Trailing blanks are ignored in both the pattern and the value.
    """

    text: str = field(compare=False)
    """The value in the table, folded and without quotes."""
    length: int
    """Characters of the field, to which values are padded with blanks."""
    normal: str = field(init=False)
    """The text without trailing blanks and repeated asterisks, which do not matter."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "normal", re.sub(r"\*+", "*", self.text.rstrip(" ")))

    @property
    def matches_anything(self) -> bool:
        return self.normal == "*"

    @property
    def meaning(self) -> str:
        return self.normal

    @property
    def is_literal(self) -> bool:
        """Whether exactly one value matches."""
        return "*" not in self.normal and "?" not in self.normal

    @property
    def head(self) -> str:
        """The text before the first wildcard, with which every matching value starts."""
        return re.split(r"[*?]", self.normal, maxsplit=1)[0]

    @property
    def tail(self) -> str | None:
        """The text behind the asterisk of a pattern such as ``head*tail``; None for any other.

        A value matches exactly if it begins with the head and ends with the tail behind it. With a
        blank in the tail padding could match too.
        """
        tail = self.normal[len(self.head) + 1 :]
        is_enough = self.normal[len(self.head) :].startswith("*") and _NOT_PLAIN.isdisjoint(tail)
        return tail if is_enough else None

    def matches(self, value: FieldValue) -> bool:
        """Whether a field with this value, padded to its length, matches."""
        value = str(value).rstrip(" ")
        if self.is_literal:
            return value == self.normal
        padded = value.ljust(self.length, PADDING)
        return _compiled(self.normal).fullmatch(padded) is not None


@dataclass(frozen=True, slots=True)
class RegexPattern(Pattern):
    """A regular expression of RE2, found anywhere in the value.

    RE2 takes time linear in the value for any expression. Values come from outside, so there is no
    other kind of expression.

    Raises:
        ValueError: RE2 does not accept the expression; the text says why.
    """

    text: str
    _search: Callable[[bytes], object] = field(init=False, repr=False, compare=False, hash=False)
    """Finds the expression in a text: None if it is not there."""

    def __post_init__(self) -> None:
        source = self.text.encode("utf-8", "surrogatepass")
        try:
            compiled = re2.compile(source, _re2_options())
        except re2.error as error:
            text = error.args[0] if error.args else b""
            why = text.decode("utf-8", "replace") if isinstance(text, bytes) else str(text)
            raise ValueError(why) from None
        search: Callable[[bytes], object] = compiled.search
        # A set of one expression only reports whether it matches, in half the time. It fails if its
        # states do not fit into memory, so large expressions use a search.
        if compiled.programsize <= _LARGE_REGEX:
            alone = re2.Set.SearchSet(_re2_options())
            alone.Add(source)
            alone.Compile()
            search = alone.Match
        object.__setattr__(self, "_search", search)

    @property
    def meaning(self) -> str:
        return f"/{self.text}/"

    def matches(self, value: FieldValue) -> bool:
        return self._search(str(value).encode("utf-8", "surrogatepass")) is not None


def _re2_options() -> Any:  # noqa: ANN401 - re2 has no types
    options = re2.Options()
    options.never_capture = True
    options.log_errors = False
    options.max_mem = _REGEX_MEMORY
    return options


@dataclass(frozen=True, slots=True)
class ComparisonPattern(Pattern):
    """A comparison with a number, such as ``>99.5``; a text that is not a number does not match."""

    operator: str
    """One of ``>``, ``>=``, ``<``, ``<=`` and ``=``."""
    number: str
    """Decimal digits without redundant zeros, so that equal numbers are equal texts."""
    _compare: Callable[[Decimal, Decimal], bool] = field(init=False, repr=False, compare=False)
    _number: Decimal = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_compare", _COMPARISONS[self.operator])
        object.__setattr__(self, "_number", Decimal(self.number))

    @property
    def meaning(self) -> list[str]:
        return [self.operator, self.number]

    def matches(self, value: FieldValue) -> bool:
        """Whether the value is a number as JSON writes it, and the comparison holds for it."""
        value = str(value)
        return _NUMBER.fullmatch(value) is not None and self._compare(Decimal(value), self._number)


_COMPARISONS: Final = {">": gt, ">=": ge, "<": lt, "<=": le, "=": eq}
_NUMBER: Final = re.compile(r"-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{1,4})?")

TextPattern: TypeAlias = StringPattern | RegexPattern | ComparisonPattern


@dataclass(frozen=True, slots=True)
class ListPattern(Pattern):
    """Several alternatives, one of which must match: ``(a|b)``."""

    members: tuple[TextPattern, ...]

    @property
    def matches_anything(self) -> bool:
        return any(member.matches_anything for member in self.members)

    @property
    def meaning(self) -> list[object]:
        """The meanings of the members; their order does not matter."""
        return sorted((member.meaning for member in self.members), key=str)

    def matches(self, value: FieldValue) -> bool:
        return any(member.matches(value) for member in self.members)


@dataclass(frozen=True, slots=True)
class NotPattern(Pattern):
    """Every text that another pattern does not match: ``NOT a``, ``NOT (a|b)``."""

    pattern: TextPattern | ListPattern

    @property
    def meaning(self) -> dict[str, object]:
        return {"NOT": self.pattern.meaning}

    def matches(self, value: FieldValue) -> bool:
        return not self.pattern.matches(value)


@dataclass(frozen=True, slots=True)
class Interval:
    """The numbers from ``low`` to ``high``, inclusive."""

    low: int
    high: int | None
    """None: there is no upper bound."""

    def __contains__(self, number: int) -> bool:
        return self.low <= number and (self.high is None or number <= self.high)

    def covers(self, other: Interval) -> bool:
        """Whether all numbers of another interval are in this one."""
        return other.low in self and (
            self.high is None or (other.high is not None and other.high <= self.high)
        )


@dataclass(frozen=True, slots=True)
class NumberPattern(Pattern):
    """A number pattern: equality, or ``*`` for any number."""

    default: ClassVar[FieldValue] = 0

    value: int | None
    """The number to equal; None for ``*``."""

    @property
    def intervals(self) -> tuple[Interval, ...]:
        """The number as an interval; empty for ``*``."""
        return () if self.value is None else (Interval(self.value, self.value),)

    @property
    def matches_anything(self) -> bool:
        return self.value is None

    @property
    def meaning(self) -> int | None:
        return self.value

    def matches(self, value: FieldValue) -> bool:
        return self.value is None or self.value == value


@dataclass(frozen=True, slots=True)
class RangePattern(Pattern):
    """Numbers and comparisons, one of which must hold.

    A missing number is ``ABSENT``, which ``*`` and NOT match.
    """

    default: ClassVar[FieldValue] = ABSENT

    intervals: tuple[Interval, ...]
    """Sorted and disjoint."""
    written: str = field(default="", compare=False)

    @classmethod
    def of(cls, intervals: Iterable[Interval], written: str = "") -> RangePattern:
        """The pattern for intervals in any order, which may be empty or overlap."""
        joined: list[Interval] = []
        for interval in sorted(intervals, key=attrgetter("low")):
            if interval.high is not None and interval.high < interval.low:
                continue
            last = joined[-1] if joined else None
            if last is None or (last.high is not None and last.high + 1 < interval.low):
                joined.append(interval)
            elif not last.covers(interval):
                joined[-1] = Interval(last.low, interval.high)
        return cls(tuple(joined), written)

    def complement(self, written: str = "") -> RangePattern:
        """The pattern for all numbers that this one does not match."""
        gaps, low = [], ABSENT
        for interval in self.intervals:
            gaps.append(Interval(low, interval.low - 1))
            if interval.high is None:
                break
            low = interval.high + 1
        else:
            gaps.append(Interval(low, None))
        return self.of(gaps, written)

    @property
    def matches_anything(self) -> bool:
        """Whether every number matches, and a missing one."""
        return self.intervals[:1] == (Interval(ABSENT, None),)

    @property
    def meaning(self) -> list[list[int | None]]:
        return [[interval.low, interval.high] for interval in self.intervals]

    def matches(self, value: FieldValue) -> bool:
        if isinstance(value, str):
            return self.matches_anything
        at = bisect_right(self.intervals, value, key=attrgetter("low"))
        return at > 0 and value in self.intervals[at - 1]


@lru_cache(maxsize=100_000)
def _compiled(normal: str) -> re.Pattern[str]:
    """A pattern as a regular expression over the padded value.

    Each asterisk but the last matches as little as it can and never backtracks (an atomic group):
    the text after it may start early, because the next asterisk matches the rest. So the cost grows
    with value times pattern, never with a power of the number of asterisks.
    """
    first, *rest = ["".join(map(_expression, part)) for part in normal.split("*")]
    middle = "".join(f"(?>.*?{part})" for part in rest[:-1])
    last = f".*{rest[-1]}" if rest else ""
    return re.compile(f"{first}{middle}{last}{PADDING}*", re.DOTALL)


def _expression(character: str) -> str:
    if character == "?":
        return f"[^{PADDING}]"
    if character == " ":
        return f"[ {PADDING}]"
    if character == PADDING:
        return "(?!)"
    return re.escape(character)


_NO_JSON: Final = object()


@dataclass(slots=True)
class RuleInput:
    """The parts of one record that the fields of a rule are read from."""

    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp: int
    """Timestamp of the record, in milliseconds since 1970."""
    now: int
    """Time of the attempt, in milliseconds since 1970."""
    view: DeadLetterView = NO_SCHEME
    """The part of the failure that many messages share."""
    error_message: str | None = None
    partition: int | None = None
    failed_at: int | None = None
    """When the message first failed, in milliseconds since 1970; None if unknown."""
    document: object = _NO_JSON
    """The value as JSON, once it was parsed; None if it is not JSON."""

    def json(self) -> object:
        """The value as JSON; None if it is not JSON."""
        if self.document is _NO_JSON:
            try:
                self.document = orjson.loads(self.value or b"null")
            except orjson.JSONDecodeError:
                self.document = None
        return self.document

    @property
    def key_text(self) -> str | None:
        """The key as text."""
        return _text(self.key)

    @property
    def size(self) -> int:
        """Bytes of the value."""
        return len(self.value or b"")

    @property
    def age(self) -> int:
        """Whole seconds since the message first failed, else since the record's timestamp."""
        since = self.timestamp if self.failed_at is None else self.failed_at
        return max(0, (self.now - since) // 1000)


_Read: TypeAlias = Callable[[RuleInput], FieldValue | None]


class FieldReader:
    """Reads those fields that DIALECT(KAFKA) adds to IBM's."""

    def __init__(self, names: Iterable[str]) -> None:
        readers = ((name, _reader_of(name)) for name in sorted(set(names)))
        self._readers = [(name, read) for name, read in readers if read is not None]

    @property
    def names(self) -> tuple[str, ...]:
        """The fields that are read, in the order of ``values``."""
        return tuple(name for name, _ in self._readers)

    def values(self, message: RuleInput) -> tuple[FieldValue | None, ...]:
        """The values of ``names``; None for missing ones.

        Texts end at their first NUL, without trailing blanks; the last of several headers of one
        name counts. No message makes this raise.
        """
        values = [read(message) for _, read in self._readers]
        return tuple(
            [
                value.partition("\0")[0].rstrip(" ") if isinstance(value, str) else value
                for value in values
            ]
        )


def _reader_of(name: str) -> _Read | None:
    keyword, argument = split_field(name)
    if keyword == "HEADER":
        return lambda message: _last(message.headers, argument)
    if keyword == "JSON":
        path = JsonPath.of(argument)
        return lambda message: path.find(message.json())
    source = pattern_keyword(keyword).source
    return attrgetter(source) if source else None


def _last(headers: Headers, name: str) -> str | None:
    for header, raw in reversed(headers):
        if header == name:
            return _text(raw)
    return None


def _text(raw: bytes | None) -> str | None:
    return None if raw is None else raw.decode("utf-8", "replace")
