"""A naive reading of DIALECT(KAFKA): rules as plain values, asked one after the other.

Nothing is shared with the product; expressions are read by Python's own engine, for which the
strategies write only what both engines read alike.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
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
    number: int | None


Alternative = Text | Expression | Comparison


@dataclass(frozen=True)
class PlainRule:
    """A rule: field -> alternatives, of which one has to hold."""

    patterns: Mapping[str, Sequence[Alternative]] = field(default_factory=dict)
    action: str = "QUARANTINE"


def holds(alternative: Alternative, value: str | int | None) -> bool:
    """Whether one alternative holds for a value; None stands for a field that is not there."""
    if isinstance(alternative, Comparison):
        if alternative.number is None:
            return True
        return isinstance(value, int) and COMPARISONS[alternative.sign](value, alternative.number)
    text = "" if value is None else str(value)
    if isinstance(alternative, Expression):
        return re.search(alternative.text, text) is not None
    length = len(text) + len(alternative.text) + 1
    return reference.text_matches(alternative.text, text, length)


def candidates(rules: Sequence[PlainRule], message: Mapping[str, str | int]) -> int:
    """The rules that match, as bits."""
    return sum(
        1 << index
        for index, rule in enumerate(rules)
        if all(
            any(holds(one, message.get(name)) for one in alternatives)
            for name, alternatives in rule.patterns.items()
        )
    )
