"""A value of one field that some patterns match and others do not, or proof that there is none."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal, localcontext
from itertools import chain, pairwise
from typing import Final

from redrive.rules.analysis.text_automata import Effort, Undecided, shortest_text
from redrive.rules.keywords import Value, pattern_keyword
from redrive.rules.patterns import (
    ABSENT,
    ComparisonPattern,
    FieldValue,
    NotPattern,
    Pattern,
    RegexPattern,
    StringPattern,
    intervals_of,
    members_of,
)

_USUAL: Final[Mapping[str, Sequence[int]]] = {
    "APPLTYPE": (0, 6, 11, 28),
    "FEEDBACK": (0, 258, 259),
    "MSGTYPE": (8, 1, 2, 4),
    "PERSIST": (0, 1),
    "REASON": (2085, 2053, 2051, 2030, 2035, 2087),
}
"""Familiar numbers, tried before others."""
_USUAL_QUEUE: Final = "OTHER"

_ALWAYS_THERE: Final = {"AGE", "SIZE"}
"""Number fields of DIALECT(KAFKA) that every message has."""

_BEGINNINGS: Final = tuple(StringPattern(f"{it}*", 1024) for it in ("0123456789-"))
"""Texts for any number."""

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
"""Steps that turn an expression into a text that it may match: a heuristic."""


def usual_value(name: str) -> FieldValue:
    """The default value of a field in a witness, on which nothing depends."""
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
    """A value that all of some patterns match and none of others, preferably a familiar one.

    None if there is none. ``Undecided`` is raised if the search takes too long, or if it depends on
    the intersection of regular expressions.
    """
    if not matching and not avoiding:
        return usual_value(name)
    effort.spend(5 * (1 + len(matching) + len(avoiding)))
    matching, avoiding = (
        [
            *(it for it in same if not isinstance(it, NotPattern)),
            *(it.pattern for it in other if isinstance(it, NotPattern)),
        ]
        for same, other in ((matching, avoiding), (avoiding, matching))
    )
    if pattern_keyword(name).value in {Value.NUMBER, Value.NUMBERS}:
        return _number(name, matching, avoiding)
    if any(_accepts_all_of(one, other) for one in avoiding for other in matching):
        return None
    refused = list(chain.from_iterable(map(members_of, avoiding)))
    return _text(name, list(map(members_of, matching)), refused, effort)


def _accepts_all_of(one: Pattern, other: Pattern) -> bool:
    """Whether one pattern certainly matches all that another one matches, by text and equality."""
    return all(
        any(
            mine == it
            or (isinstance(it, StringPattern) and it.is_literal and mine.matches(it.normal))
            for mine in members_of(one)
        )
        for it in members_of(other)
    )


def _number(name: str, matching: Sequence[Pattern], avoiding: Sequence[Pattern]) -> int | None:
    """The number, tried at all places where one must be if there is any.

    The smallest matching number is the smallest of all, the first of an interval that must match,
    or the one after an interval that must not match.
    """
    numbers = {0}
    for pattern in matching:
        numbers.update(one.low for one in intervals_of(pattern))
    for pattern in avoiding:
        numbers.update(one.high + 1 for one in intervals_of(pattern) if one.high is not None)
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


def _text(
    name: str, matching: Sequence[Sequence[Pattern]], avoiding: Sequence[Pattern], effort: Effort
) -> str | None:
    """The text that one member of each list matches, and none of others."""

    def will_do(value: str) -> bool:
        return all(any(it.matches(value) for it in one) for one in matching) and not any(
            it.matches(value) for it in avoiding
        )

    numerals = _numerals(chain(*matching, avoiding))
    matching = list(_without_hopeless(matching, avoiding, numerals))
    for members in matching:
        literals = [it.normal for it in members if isinstance(it, StringPattern) and it.is_literal]
        if len(literals) == len(members):
            return next(filter(will_do, literals), None)
    readable = next(filter(will_do, chain(_readable(name, matching), numerals)), None)
    if readable is not None:
        return readable
    # Without the expressions more values match: if none does, none does with them.
    found = shortest_text(
        [
            list(chain.from_iterable(map(_strings, one)))
            for one in matching
            if all(map(_strings, one))
        ],
        [it for it in avoiding if isinstance(it, StringPattern)],
        effort,
    )
    if found is None or will_do(found):
        return found
    raise Undecided


def _strings(pattern: Pattern) -> Sequence[StringPattern]:
    """Texts of which some match if the pattern matches anything; empty if unknown."""
    if isinstance(pattern, StringPattern):
        return (pattern,)
    return _BEGINNINGS if isinstance(pattern, ComparisonPattern) else ()


def _numerals(patterns: Iterable[Pattern]) -> list[str]:
    """Numbers, as texts, between which no comparison of some patterns changes.

    Each is written in several ways, one more than the patterns that could refuse it as text.
    """
    members = list(patterns)
    bounds = sorted({Decimal(it.number) for it in members if isinstance(it, ComparisonPattern)})
    if not bounds:
        return []
    with localcontext() as context:
        context.prec = 10 + 2 * max(len(str(it)) for it in bounds)  # to avoid rounding
        ends = [bounds[-1] + 1, bounds[0] - 1]
        between = [(one + two) / 2 for one, two in pairwise(bounds)]
        plain = [f"{number:f}" for number in (*ends, *bounds, *between)]
    zeros = range(1, 1 + sum(isinstance(it, StringPattern) for it in members))
    others = [f"{it}{'' if '.' in it else '.'}{'0' * count}" for count in zeros for it in plain]
    return plain + others


def _without_hopeless(
    matching: Sequence[Sequence[Pattern]], avoiding: Sequence[Pattern], numerals: Sequence[str]
) -> Iterator[Sequence[Pattern]]:
    """The lists without comparisons that no number can satisfy along with the others."""

    def is_comparison(pattern: Pattern) -> bool:
        return isinstance(pattern, ComparisonPattern)

    demands = [one for one in matching if all(map(is_comparison, one))]
    refused = list(filter(is_comparison, avoiding))
    left = [
        it
        for it in numerals
        if all(any(one.matches(it) for one in demand) for demand in demands)
        and not any(one.matches(it) for one in refused)
    ]
    for one in matching:
        yield [it for it in one if not is_comparison(it) or any(map(it.matches, left))]


def _readable(name: str, matching: Sequence[Sequence[Pattern]]) -> Iterator[str]:
    """Values that look like those of a table; they may not match."""
    members = [it for one in matching for it in one if not it.matches_anything]
    if not members:
        yield str(usual_value(name))
        yield _USUAL_QUEUE
    for pattern in members:
        if isinstance(pattern, RegexPattern):
            for part in (pattern.text, *pattern.text.split("|")):
                text = part
                for what, by in _SAMPLES:
                    text = re.sub(what, by, text)
                yield text.rstrip(" ")
                yield f"X{text}X"
        elif isinstance(pattern, StringPattern):
            for filling in ("X", "", "Y1"):
                yield pattern.normal.replace("*", filling).replace("?", "X").rstrip(" ")
