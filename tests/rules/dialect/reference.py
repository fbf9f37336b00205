"""A naive reading of DIALECT(KAFKA): rules as plain values, asked one after the other.

Nothing is shared with the product; expressions are read by Python's own engine, for which the
strategies write only what both engines read alike.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from operator import eq, ge, gt, le, lt

from tests.rules import reference

COMPARISONS = {">": gt, ">=": ge, "<": lt, "<=": le, "=": eq, "": eq}


@dataclass(frozen=True)
class Text:
    """A text with wildcards."""

    text: str


@dataclass(frozen=True)
class Expression:
    """A regular expression."""

    text: str


@dataclass(frozen=True)
class Comparison:
    """A number behind a comparison; without a number any value, also none."""

    sign: str
    number: int | Decimal | None


Alternative = Text | Expression | Comparison


@dataclass(frozen=True)
class Not:
    """None of some alternatives."""

    alternatives: Sequence[Alternative]


PlainPattern = Sequence[Alternative] | Not


@dataclass(frozen=True)
class PlainRule:
    """A rule: field -> alternatives, of which one has to hold, or none."""

    patterns: Mapping[str, PlainPattern] = field(default_factory=dict)
    action: str = "QUARANTINE"


def holds(alternative: Alternative, value: str | int | None) -> bool:
    """Whether one alternative holds for a value; None stands for a field that is not there."""
    if isinstance(alternative, Comparison):
        if alternative.number is None:
            return True
        number = _number(value) if isinstance(value, str) else value
        return number is not None and COMPARISONS[alternative.sign](number, alternative.number)
    text = "" if value is None else str(value)
    if isinstance(alternative, Expression):
        return re.search(alternative.text, text) is not None
    length = len(text) + len(alternative.text) + 1
    return reference.text_matches(alternative.text, text, length)


def _number(text: str) -> int | Decimal | None:
    """A number of JSON, with or without leading zeros; None for other texts."""
    digits = text.removeprefix("-")
    if not digits[:1].isdigit() or digits != digits.strip():
        return None
    sign = "-" if digits != text else ""
    try:
        number = json.loads(sign + re.sub("^0+(?=[0-9])", "", digits), parse_float=Decimal)
    except ValueError:
        return None
    return number if isinstance(number, int | Decimal) else None


def matches(pattern: PlainPattern, value: str | int | None) -> bool:
    """Whether a pattern matches a value; None stands for a field that is not there."""
    if isinstance(pattern, Not):
        return not matches(pattern.alternatives, value)
    return any(holds(alternative, value) for alternative in pattern)


def candidates(rules: Sequence[PlainRule], message: Mapping[str, str | int]) -> int:
    """The rules that match, as bits."""
    return sum(
        1 << index
        for index, rule in enumerate(rules)
        if all(matches(pattern, message.get(name)) for name, pattern in rule.patterns.items())
    )
