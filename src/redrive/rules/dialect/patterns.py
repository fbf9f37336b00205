"""What a rule of DIALECT(KAFKA) can ask of a field beside IBM's wildcards and numbers."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import re2

from redrive.rules.patterns import FieldValue, StringPattern

if TYPE_CHECKING:
    from redrive.rules.patterns import Pattern

__all__ = ["ABSENT", "Interval", "ListPattern", "RangePattern", "RegexPattern", "TextPattern"]

ABSENT: Final = -1
"""The value of a number that a message does not have: no comparison holds for it."""

_MEMORY: Final = 1 << 20
"""Bytes that one expression may take for its states."""

_LARGE: Final = 1_000
"""Instructions of an expression whose states surely fit into this memory."""


def _options() -> Any:  # noqa: ANN401 - re2 has no types
    options = re2.Options()
    options.never_capture = True
    options.log_errors = False
    options.max_mem = _MEMORY
    return options


def _search_of(source: bytes, compiled: Any) -> Callable[[bytes], object]:  # noqa: ANN401 - as above
    """What finds an expression.

    A set of one expression tells only whether it is there, in half the time. It has no way out
    where its states do not fit into memory, so a large expression is searched for as usual.
    """
    search: Callable[[bytes], object] = compiled.search
    if compiled.programsize <= _LARGE:
        alone = re2.Set.SearchSet(_options())
        alone.Add(source)
        alone.Compile()
        search = alone.Match
    return search


@dataclass(frozen=True, slots=True)
class RegexPattern:
    """A regular expression of RE2, found anywhere in the value.

    RE2 takes time linear in the value whatever the expression is. Values come from outside, and
    so no other kind of expression is offered.

    Raises:
        ValueError: RE2 does not read the expression; the text says why.
    """

    text: str
    """The expression, without its slashes."""
    _search: Callable[[bytes], object] = field(init=False, repr=False, compare=False, hash=False)
    """Finds the expression in a text: None if it is not there."""

    def __post_init__(self) -> None:
        source = self.text.encode("utf-8", "surrogatepass")
        try:
            compiled = re2.compile(source, _options())
        except re2.error as error:
            told = error.args[0] if error.args else b""
            why = told.decode("utf-8", "replace") if isinstance(told, bytes) else str(told)
            raise ValueError(why) from None
        object.__setattr__(self, "_search", _search_of(source, compiled))

    @property
    def matches_anything(self) -> bool:
        """Whether the pattern is as good as none."""
        return not self.text

    @property
    def meaning(self) -> str:
        """The text by which tables are told apart."""
        return f"/{self.text}/"

    @property
    def default(self) -> FieldValue:
        """The value of a field that a message does not have."""
        return ""

    def matches(self, value: FieldValue) -> bool:
        """Whether the expression is found in a field with this value."""
        return self._search(str(value).encode("utf-8", "surrogatepass")) is not None

    def accepts_all_of(self, other: Pattern) -> bool:
        """Whether every value that matches ``other`` is known to match this pattern too."""
        if isinstance(other, StringPattern):
            return other.is_literal and self.matches(other.normal)
        if isinstance(other, ListPattern):
            return all(map(self.accepts_all_of, other.members))
        return self == other


TextPattern: TypeAlias = StringPattern | RegexPattern


@dataclass(frozen=True, slots=True)
class ListPattern:
    """Several texts and expressions, of which one has to match: ``(a|b)``."""

    members: tuple[TextPattern, ...]

    @property
    def matches_anything(self) -> bool:
        """Whether the pattern is as good as none."""
        return any(member.matches_anything for member in self.members)

    @property
    def meaning(self) -> list[str]:
        """The text by which tables are told apart: the order of the members makes no difference."""
        return sorted(
            one.meaning if isinstance(one, RegexPattern) else one.normal for one in self.members
        )

    @property
    def default(self) -> FieldValue:
        """The value of a field that a message does not have."""
        return ""

    def matches(self, value: FieldValue) -> bool:
        """Whether one of the members matches a field with this value."""
        return any(member.matches(value) for member in self.members)

    def accepts_all_of(self, other: Pattern) -> bool:
        """Whether every value that matches ``other`` is known to match this pattern too."""
        others = other.members if isinstance(other, ListPattern) else (other,)
        return all(any(mine.accepts_all_of(one) for mine in self.members) for one in others)


@dataclass(frozen=True, slots=True, order=True)
class Interval:
    """The numbers from ``low`` to ``high``, both of them included."""

    low: int
    high: int | None
    """None: there is no upper bound."""

    def __contains__(self, number: int) -> bool:
        return self.low <= number and (self.high is None or number <= self.high)

    def touches(self, later: Interval) -> bool:
        """Whether no number lies between this interval and one that begins later."""
        return self.high is None or later.low <= self.high + 1


@dataclass(frozen=True, slots=True)
class RangePattern:
    """Numbers and comparisons, of which one has to hold; the value has to be there."""

    intervals: tuple[Interval, ...]
    """In order and apart from each other."""
    written: tuple[str, ...] = field(default=(), compare=False)
    """The alternatives as the table has them."""

    @classmethod
    def of(cls, intervals: Sequence[Interval], written: Sequence[str] = ()) -> RangePattern:
        """The pattern for some intervals in any order, empty and overlapping ones too."""
        joined: list[Interval] = []
        for one in sorted(intervals, key=lambda it: it.low):
            if one.high is not None and one.high < one.low:
                continue
            if joined and joined[-1].touches(one):
                highs = (joined[-1].high, one.high)
                high = None if None in highs else max(it for it in highs if it is not None)
                joined[-1] = Interval(joined[-1].low, high)
            else:
                joined.append(one)
        return cls(tuple(joined), tuple(written))

    @property
    def matches_anything(self) -> bool:
        """Whether the pattern is as good as none: a number that is missing passes too."""
        return bool(self.intervals) and self.intervals[0] == Interval(ABSENT, None)

    @property
    def meaning(self) -> list[list[int | None]]:
        """What tables are told apart by."""
        return [[one.low, one.high] for one in self.intervals]

    @property
    def default(self) -> FieldValue:
        """The value of a field that a message does not have."""
        return ABSENT

    def matches(self, value: FieldValue) -> bool:
        """Whether one of the comparisons holds for a field with this value."""
        if isinstance(value, str):
            return self.matches_anything
        at = bisect_right(self.intervals, value, key=lambda one: one.low)
        return at > 0 and value in self.intervals[at - 1]

    def accepts_all_of(self, other: Pattern) -> bool:
        """Whether every value that matches ``other`` matches this pattern too."""
        if self.matches_anything:
            return True
        if not isinstance(other, RangePattern):
            return False
        return all(any(_within(one, mine) for mine in self.intervals) for one in other.intervals)


def _within(inner: Interval, outer: Interval) -> bool:
    return inner.low in outer and (
        outer.high is None or (inner.high is not None and inner.high <= outer.high)
    )
