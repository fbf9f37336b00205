"""Tables over few fields and characters, and all messages that matter to them.

A claim about all messages is tried on every one of these by the naive reading of the
specification, which shares nothing with the product.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from hypothesis import strategies as st
from tests.rules.dialect import reference as dialect
from tests.rules.reference import PlainRule, candidates

from redrive.rules import RulesTable, parse

_LETTERS = "AB "

TEXTS = [
    value
    for size in range(5)
    for value in map("".join, itertools.product(f"{_LETTERS}X", repeat=size))
    if not value.endswith(" ")
]
"""Every short value; X stands for the characters that no pattern names."""

_LONG = [start + "X" * (size - 2) + end for size in (7, 8, 9) for start in "AX" for end in "BX"]
"""Values that fill a field of eight characters, so that nothing pads them."""

_NUMBERS = (0, 1, 2)

MESSAGES: list[dict[str, str | int]] = [
    {"FORMAT": text, "REASON": reason, "PERSIST": persist}
    for text in (*TEXTS[:85], *_LONG)
    for reason in _NUMBERS
    for persist in _NUMBERS
]


def text_patterns() -> st.SearchStrategy[str]:
    """Patterns of few characters, most with wildcards."""
    return st.text(f"{_LETTERS}*?*?", min_size=1, max_size=5)


def rules_lists(
    actions: Sequence[str] = ("DISCARD", "IGNORE", "RETRY"),
) -> st.SearchStrategy[list[PlainRule]]:
    """Rules that are often in each other's way."""
    patterns = st.fixed_dictionaries(
        {},
        optional={
            "FORMAT": text_patterns(),
            "REASON": st.sampled_from([0, 1, "*"]),
            "PERSIST": st.sampled_from([0, 1]),
        },
    )
    rule = st.builds(
        PlainRule, patterns=patterns, action=st.sampled_from(actions), retry=st.integers(1, 3)
    )
    return st.lists(rule, min_size=1, max_size=6)


def table_of(rules: Sequence[PlainRule]) -> RulesTable:
    """The table that holds these rules, one on each line."""
    lines = [
        " ".join(f"{name}('{value}')" for name, value in rule.patterns.items())
        + f" ACTION({rule.action})"
        + (f" RETRY({rule.retry})" if rule.action == "RETRY" else "")
        for rule in rules
    ]
    return parse("\n".join(lines)).required()


AnyRule = TypeVar("AnyRule", bound=PlainRule | dialect.PlainRule)

EDITS = st.sampled_from(["none", "drop", "swap", "action", "add", "double"])


def edited(
    rules: Sequence[AnyRule], edit: str, place: int, other: Sequence[AnyRule]
) -> list[AnyRule]:
    """A table after an edit at a place; ``other`` has what is added, and is what no rule is."""
    changed = list(rules)
    match edit:
        case "drop":
            del changed[place]
        case "swap":
            changed.insert(0, changed.pop(place))
        case "action":
            changed[place] = replace(changed[place], action="DISCARD")
        case "add":
            changed[place:place] = other[:2]
        case "double":
            changed.insert(place, changed[place])
    return changed or list(other)


def first_rules(rules: Sequence[PlainRule], message: dict[str, str | int]) -> list[int]:
    """The rules that get their turn on a message if every attempt that can fail does."""
    turns = []
    matched = candidates(rules, message)
    for index, rule in enumerate(rules):
        if matched >> index & 1:
            turns.append(index)
            if rule.action != "RETRY":
                break
    return turns
