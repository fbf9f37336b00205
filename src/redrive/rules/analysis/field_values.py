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

_BEGINNINGS: Final = tuple(StringPattern(f"{character}*", 1024) for character in "0123456789-")
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
    demanded, refused = (
        [
            *(pattern for pattern in same if not isinstance(pattern, NotPattern)),
            *(pattern.pattern for pattern in other if isinstance(pattern, NotPattern)),
        ]
        for same, other in ((matching, avoiding), (avoiding, matching))
    )
    if pattern_keyword(name).value in {Value.NUMBER, Value.NUMBERS}:
        return _number(name, demanded, refused)
    if any(_accepts_all_of(general, special) for general in refused for special in demanded):
        return None
    avoided = list(chain.from_iterable(map(members_of, refused)))
    return _text(name, list(map(members_of, demanded)), avoided, effort)


def _accepts_all_of(general: Pattern, special: Pattern) -> bool:
    """Whether a pattern certainly matches all that another one matches, by text and equality."""
    return all(
        any(
            member == case
            or (isinstance(case, StringPattern) and case.is_literal and member.matches(case.normal))
            for member in members_of(general)
        )
        for case in members_of(special)
    )


def _fits(
    value: FieldValue, demanded: Iterable[Iterable[Pattern]], refused: Iterable[Pattern]
) -> bool:
    """Whether one pattern of each list matches a value, and none of others."""
    return all(any(pattern.matches(value) for pattern in members) for members in demanded) and not (
        any(pattern.matches(value) for pattern in refused)
    )


def _number(name: str, matching: Sequence[Pattern], avoiding: Sequence[Pattern]) -> int | None:
    """The number, tried at all places where one must be if there is any.

    The smallest matching number is the smallest of all, the first of an interval that must match,
    or the one after an interval that must not match.
    """
    lows = (interval.low for pattern in matching for interval in intervals_of(pattern))
    highs = (interval.high for pattern in avoiding for interval in intervals_of(pattern))
    numbers = {0, *lows, *(high + 1 for high in highs if high is not None)}
    last: tuple[int, ...] = ()
    if name not in _USUAL:
        numbers.discard(ABSENT)
        last = () if name in _ALWAYS_THERE else (ABSENT,)
    demanded = [[pattern] for pattern in matching]
    tried = (*_USUAL.get(name, ()), *sorted(numbers), *last)
    return next((value for value in tried if _fits(value, demanded, avoiding)), None)


def _text(
    name: str, matching: Sequence[Sequence[Pattern]], avoiding: Sequence[Pattern], effort: Effort
) -> str | None:
    """The text that one member of each list matches, and none of others."""
    numerals = _numerals([*chain(*matching, avoiding)])
    comparisons = [pattern for pattern in avoiding if isinstance(pattern, ComparisonPattern)]
    # Leave out comparisons that no number can satisfy along with the others.
    only_numbers = [
        members
        for members in matching
        if all(isinstance(member, ComparisonPattern) for member in members)
    ]
    left = [numeral for numeral in numerals if _fits(numeral, only_numbers, comparisons)]
    matching = [
        [
            member
            for member in members
            if not isinstance(member, ComparisonPattern) or any(map(member.matches, left))
        ]
        for members in matching
    ]

    def fits(value: str) -> bool:
        return _fits(value, matching, avoiding)

    for members in matching:
        literals = [
            member.normal
            for member in members
            if isinstance(member, StringPattern) and member.is_literal
        ]
        if len(literals) == len(members):
            return next(filter(fits, literals), None)
    readable = next(filter(fits, chain(_readable(name, matching), numerals)), None)
    if readable is not None:
        return readable
    # Without the expressions more values match: if none does, none does with them.
    known = [list(map(_strings, members)) for members in matching]
    demanded = [list(chain.from_iterable(strings)) for strings in known if all(strings)]
    texts = [pattern for pattern in avoiding if isinstance(pattern, StringPattern)]
    text = shortest_text(demanded, texts, effort)
    if text is None or fits(text):
        return text
    raise Undecided


def _strings(pattern: Pattern) -> Sequence[StringPattern]:
    """Texts of which some match if the pattern matches anything; empty if unknown."""
    if isinstance(pattern, StringPattern):
        return (pattern,)
    return _BEGINNINGS if isinstance(pattern, ComparisonPattern) else ()


def _numerals(patterns: Sequence[Pattern]) -> list[str]:
    """Numbers, as texts, between which no comparison of some patterns changes.

    Each is written in several ways, one more than the patterns that could refuse it as text.
    """
    bounds = sorted(
        {Decimal(pattern.number) for pattern in patterns if isinstance(pattern, ComparisonPattern)}
    )
    if not bounds:
        return []
    with localcontext() as context:
        context.prec = 10 + 2 * max(len(str(bound)) for bound in bounds)  # to avoid rounding
        ends = [bounds[-1] + 1, bounds[0] - 1]
        between = [(low + high) / 2 for low, high in pairwise(bounds)]
        plain = [f"{number:f}" for number in (*ends, *bounds, *between)]
    zeros = range(1, 1 + sum(isinstance(pattern, StringPattern) for pattern in patterns))
    others = (
        f"{number}{'' if '.' in number else '.'}{'0' * count}"
        for count in zeros
        for number in plain
    )
    return [*plain, *others]


def _readable(name: str, matching: Sequence[Sequence[Pattern]]) -> Iterator[str]:
    """Values that look like those of a table; they may not match."""
    members = [member for member in chain(*matching) if not member.matches_anything]
    if not members:
        yield str(usual_value(name))
        yield _USUAL_QUEUE
    for pattern in members:
        if isinstance(pattern, RegexPattern):
            for part in (pattern.text, *pattern.text.split("|")):
                text = part
                for expression, sample in _SAMPLES:
                    text = re.sub(expression, sample, text)
                yield text.rstrip(" ")
                yield f"X{text}X"
        elif isinstance(pattern, StringPattern):
            for filling in ("X", "", "Y1"):
                yield pattern.normal.replace("*", filling).replace("?", "X").rstrip(" ")
