"""A naive reading of rules-table specification 5.3 and 6.1, message by message.

Nothing here is shared with the product: rules are plain values, patterns are compared character by
character, and attempts are counted one by one. It is slow on purpose and the oracle of the
properties.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

LENGTHS = {
    "APPLIDAT": 32,
    "APPLNAME": 28,
    "DESTQ": 48,
    "DESTQM": 48,
    "FORMAT": 8,
    "REPLYQ": 48,
    "REPLYQM": 48,
    "USERID": 12,
}
"""The eight text keywords and the length of their fields (specification 3)."""

NUMBERS = ("APPLTYPE", "FEEDBACK", "MSGTYPE", "PERSIST", "REASON")
"""The five number keywords."""


@dataclass(frozen=True)
class PlainRule:
    """A rule as the specification speaks of it."""

    patterns: Mapping[str, str | int] = field(default_factory=dict)
    """Keyword -> text with wildcards, number, or ``*``."""
    action: str = "DISCARD"
    retry: int = 1


def text_matches(pattern: str, value: str, length: int) -> bool:
    """Specification 5.3, with trailing blanks of the pattern meaning nothing (convention 13)."""
    pattern = pattern.rstrip(" ")
    significant = len(value.rstrip(" "))
    padded = value.ljust(length)

    def match(p: int, i: int) -> bool:
        if p == len(pattern):
            return not padded[i:].strip(" ")
        if pattern[p] == "*":
            return any(match(p + 1, j) for j in range(i, len(padded) + 1))
        if i == len(padded):
            return False
        if pattern[p] == "?":
            return i < significant and match(p + 1, i + 1)
        return padded[i] == pattern[p] and match(p + 1, i + 1)

    return match(0, 0)


def rule_matches(rule: PlainRule, message: Mapping[str, str | int]) -> bool:
    """All patterns given must match; an omitted one matches anything (specification 3)."""
    for keyword, wanted in rule.patterns.items():
        if keyword in LENGTHS:
            if not text_matches(str(wanted), str(message.get(keyword, "")), LENGTHS[keyword]):
                return False
        elif wanted not in {"*", message.get(keyword, 0)}:
            return False
    return True


def candidates(rules: Sequence[PlainRule], message: Mapping[str, str | int]) -> int:
    """The rules that match, as bits."""
    return sum(1 << index for index, rule in enumerate(rules) if rule_matches(rule, message))


def attempts(
    rules: Sequence[PlainRule], message: Mapping[str, str | int], limit: int
) -> list[int | None]:
    """The rules applied one after the other while every attempt fails (specification 6.1).

    The first rule that matches is applied; an attempt that fails is repeated until there were
    RETRY of them; then the next matching rule is sought. IGNORE ends the search for good, and when
    nothing is left IGNORE is assumed.

    Returns:
        For the first ``limit`` failures the index of the rule that applies, None for none.
    """
    applied: list[int | None] = []
    for index, rule in enumerate(rules):
        if not rule_matches(rule, message):
            continue
        if rule.action == "IGNORE":
            return (applied + [index] * limit)[:limit]
        for _ in range(rule.retry):
            applied.append(index)
            if len(applied) == limit:
                return applied
    return (applied + [None] * limit)[:limit]
