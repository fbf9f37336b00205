"""A value of one field that some patterns match and others do not, or the proof of none."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Final, TypeAlias

from redrive.rules.analysis.effort import Effort, Undecided
from redrive.rules.analysis.text_automata import TooManyStates, shortest_text
from redrive.rules.keywords import Value, pattern_keyword
from redrive.rules.patterns import (
    ABSENT,
    FieldValue,
    Interval,
    ListPattern,
    NumberPattern,
    Pattern,
    RangePattern,
    RegexPattern,
    StringPattern,
    TextPattern,
)

__all__ = ["usual_value", "value_of"]

_Texts: TypeAlias = Sequence[Sequence[TextPattern]]
"""Patterns of a text as lists of alternatives."""

_USUAL: Final[Mapping[str, Sequence[int]]] = {
    "APPLTYPE": (0, 6, 11, 28),
    "FEEDBACK": (0, 258, 259),
    "MSGTYPE": (8, 1, 2, 4),
    "PERSIST": (0, 1),
    "REASON": (2085, 2053, 2051, 2030, 2035, 2087),
}
"""Numbers that a reader knows, tried before others."""
_USUAL_QUEUE: Final = "OTHER"

_ALWAYS_THERE: Final = {"AGE", "SIZE"}
"""Numbers of DIALECT(KAFKA) that every message has."""

_SAMPLES: Final = (
    (r"^\(\?[A-Za-z]+\)", ""),
    (r"\(\?[^:)]*:|\\[bBAzQE]|(?<!\\)[\^$()]", ""),
    (r"\\d", "0"),
    (r"\\w", "a"),
    (r"\\s", " "),
    (r"\[([^\]^\\])[^\]]*\]", r"\1"),
    (r"(?<!\\)[*+?]|\{[0-9,]+\}", ""),
    (r"(?<!\\)\.", "X"),
    (r"\\([^A-Za-z0-9])", r"\1"),
)
"""How an expression becomes a text that it may find, step by step. It is only a guess."""


def usual_value(name: str) -> FieldValue:
    """The value of a field on which nothing depends, such as a witness shows it.

    Args:
        name: The pattern keyword.
    """
    if name == "DESTQ":
        return _USUAL_QUEUE
    match pattern_keyword(name).value:
        case Value.NUMBER:
            return _USUAL[name][0] if name == "REASON" else 0
        case Value.NUMBERS:
            return 0 if name in _ALWAYS_THERE else ABSENT
    return ""


def value_of(
    name: str, matching: Sequence[Pattern], avoiding: Sequence[Pattern], effort: Effort
) -> FieldValue | None:
    """A value that all of some patterns match and none of others.

    Args:
        name: The pattern keyword of the field.
        matching: Patterns that match the value.
        avoiding: Patterns that do not.
        effort: What is left to spend.

    Returns:
        The value, one that a reader knows if there is such a one; None if no value will do.

    Raises:
        Undecided: A pattern is of a kind that is not known here, the search got too long, or it
            depends on regular expressions, of which it is not known what they can find together.
    """
    if not matching and not avoiding:
        return usual_value(name)
    effort.spend(5 * (1 + len(matching) + len(avoiding)))
    # The exact type: a kind derived from one of these may match by other rules.
    kinds = {type(pattern) for pattern in (*matching, *avoiding)}
    if kinds <= {NumberPattern, RangePattern}:
        return _number(name, matching, avoiding)
    if kinds <= {StringPattern, ListPattern, RegexPattern}:
        if any(one.accepts_all_of(other) for one in avoiding for other in matching):
            return None
        refused = chain.from_iterable(map(_members, avoiding))
        return _text(name, list(map(_members, matching)), list(refused), effort)
    raise Undecided


def _members(pattern: Pattern) -> Sequence[TextPattern]:
    if isinstance(pattern, ListPattern):
        return pattern.members
    return (pattern,) if isinstance(pattern, StringPattern | RegexPattern) else ()


def _number(name: str, matching: Sequence[Pattern], avoiding: Sequence[Pattern]) -> int | None:
    """The number, looked for where it has to be if there is one.

    The least number that will do is the least one that there is, the first of an interval that has
    to match, or the one behind an interval that must not.
    """
    numbers = {0}
    for pattern in matching:
        numbers.update(one.low for one in _intervals(pattern))
    for pattern in avoiding:
        numbers.update(one.high + 1 for one in _intervals(pattern) if one.high is not None)
    last: tuple[int, ...] = ()
    if name not in _USUAL:
        numbers.discard(ABSENT)
        last = () if name in _ALWAYS_THERE else (ABSENT,)
    for value in (*_USUAL.get(name, ()), *sorted(numbers), *last):
        if all(it.matches(value) for it in matching) and not any(
            it.matches(value) for it in avoiding
        ):
            return value
    return None


def _intervals(pattern: Pattern) -> Sequence[Interval]:
    if isinstance(pattern, RangePattern):
        return pattern.intervals
    value = pattern.value if isinstance(pattern, NumberPattern) else None
    return () if value is None else (Interval(value, value),)


def _text(
    name: str, matching: _Texts, avoiding: Sequence[TextPattern], effort: Effort
) -> str | None:
    def will_do(value: str) -> bool:
        return all(any(it.matches(value) for it in one) for one in matching) and not any(
            it.matches(value) for it in avoiding
        )

    for members in matching:
        literals = [it.normal for it in members if isinstance(it, StringPattern) and it.is_literal]
        if len(literals) == len(members):
            return next(filter(will_do, literals), None)
    readable = next(filter(will_do, _readable(name, matching)), None)
    if readable is not None:
        return readable
    # Without the expressions more values will do: if none does, none does with them.
    try:
        found = shortest_text(
            [strings for one in matching if len(strings := _strings(one)) == len(one)],
            _strings(avoiding),
            effort,
        )
    except TooManyStates as error:
        raise Undecided from error
    if found is None or will_do(found):
        return found
    raise Undecided


def _strings(members: Sequence[TextPattern]) -> list[StringPattern]:
    return [it for it in members if isinstance(it, StringPattern)]


def _readable(name: str, matching: _Texts) -> Iterator[str]:
    """Values that look like what a table speaks of; whether they match is not sure."""
    members = [it for one in matching for it in one if not it.matches_anything]
    if not members:
        yield str(usual_value(name))
        yield _USUAL_QUEUE
    for pattern in members:
        if isinstance(pattern, RegexPattern):
            yield from _samples(pattern.text)
            continue
        for filling in ("X", "", "Y1"):
            yield pattern.normal.replace("*", filling).replace("?", "X").rstrip(" ")


def _samples(expression: str) -> Iterator[str]:
    """Texts in which an expression may be found: one for each of its alternatives."""
    for part in (expression, *expression.split("|")):
        text = part
        for what, by in _SAMPLES:
            text = re.sub(what, by, text)
        yield text.rstrip(" ")
        yield f"X{text}X"
