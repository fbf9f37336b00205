"""A value of one field that some patterns match and others do not, or the proof of none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, count
from typing import Final, TypeVar

from redrive.rules.analysis.text_automata import TooManyStates, shortest_text
from redrive.rules.dialect.keywords import pattern_keyword
from redrive.rules.keywords import Value
from redrive.rules.patterns import FieldValue, NumberPattern, Pattern, StringPattern

__all__ = ["Undecided", "usual_value", "value_of"]

_Kind = TypeVar("_Kind", StringPattern, NumberPattern)

_USUAL: Final[Mapping[str, Sequence[int]]] = {
    "APPLTYPE": (0, 6, 11, 28),
    "FEEDBACK": (0, 258, 259),
    "MSGTYPE": (8, 1, 2, 4),
    "PERSIST": (0, 1),
    "REASON": (2085, 2053, 2051, 2030, 2035, 2087),
}
"""Numbers that a reader knows, tried before others."""
_USUAL_QUEUE: Final = "OTHER"


class Undecided(Exception):
    """Whether there is such a message is not known: the search is too long or a pattern unknown."""


def usual_value(name: str) -> FieldValue:
    """The value of a field on which nothing depends, such as a witness shows it.

    Args:
        name: The pattern keyword.
    """
    if name == "DESTQ":
        return _USUAL_QUEUE
    if pattern_keyword(name).value in {Value.NUMBER, Value.NUMBERS}:
        return _USUAL[name][0] if name == "REASON" else 0
    return ""


def value_of(
    name: str, matching: Sequence[Pattern], avoiding: Sequence[Pattern]
) -> FieldValue | None:
    """A value that all of some patterns match and none of others.

    Args:
        name: The pattern keyword of the field.
        matching: Patterns that match the value.
        avoiding: Patterns that do not.

    Returns:
        The value, one that a reader knows if there is such a one; None if no value will do.

    Raises:
        Undecided: A pattern is of a kind that is not known here, or the search got too long.
    """
    if not matching and not avoiding:
        return usual_value(name)
    # The exact type: a kind derived from one of these may match by other rules.
    kinds = {type(pattern) for pattern in (*matching, *avoiding)}
    if kinds == {NumberPattern}:
        return _number(name, _of(matching, NumberPattern), _of(avoiding, NumberPattern))
    if kinds == {StringPattern}:
        return _text(name, _of(matching, StringPattern), _of(avoiding, StringPattern))
    raise Undecided


def _of(patterns: Sequence[Pattern], kind: type[_Kind]) -> list[_Kind]:
    return [pattern for pattern in patterns if isinstance(pattern, kind)]


def _number(
    name: str, matching: Sequence[NumberPattern], avoiding: Sequence[NumberPattern]
) -> int | None:
    if any(pattern.matches_anything for pattern in avoiding):
        return None
    wanted = {pattern.value for pattern in matching if pattern.value is not None}
    excluded = {pattern.value for pattern in avoiding}
    if len(wanted) > 1 or wanted & excluded:
        return None
    if wanted:
        return wanted.pop()
    return next(it for it in chain(_USUAL.get(name, ()), count()) if it not in excluded)


def _text(
    name: str, matching: Sequence[StringPattern], avoiding: Sequence[StringPattern]
) -> str | None:
    def will_do(value: str) -> bool:
        return all(it.matches(value) for it in matching) and not any(
            it.matches(value) for it in avoiding
        )

    literal = next((it.normal for it in matching if it.is_literal), None)
    if literal is not None:
        return literal if will_do(literal) else None
    readable = next(filter(will_do, _readable(name, matching)), None)
    if readable is not None:
        return readable
    try:
        return shortest_text(matching, avoiding)
    except TooManyStates as error:
        raise Undecided from error


def _readable(name: str, matching: Sequence[StringPattern]) -> Iterator[str]:
    """Values that look like what a table speaks of; whether they match is not sure."""
    if not any(not pattern.matches_anything for pattern in matching):
        yield str(usual_value(name))
        yield _USUAL_QUEUE
    for pattern in matching:
        for filling in ("X", "", "Y1"):
            yield pattern.normal.replace("*", filling).replace("?", "X").rstrip(" ")
