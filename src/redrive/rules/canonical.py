"""Writing control data and rules back as text, in one canonical layout."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from redrive.messages.constants import constant_name
from redrive.rules.keywords import KEYWORDS, LARGEST_NUMBER
from redrive.rules.patterns import NumberPattern, Pattern
from redrive.rules.rule import Action, Control, Rule

__all__ = ["LINE_LENGTH", "write_action", "write_clause", "write_entries"]

LINE_LENGTH: Final = 72
"""Significant characters of a line that every platform reads (convention 7)."""

_INDENT: Final = "  "
_BARE: Final = re.compile(r"[A-Z0-9./_%*?]+")
_DEFAULTS: Final = {**Control().keywords(), **Rule(action=Action.FWD).keywords()}


def write_entries(control: Control, rules: Sequence[Rule]) -> Iterator[str]:
    """The lines of a canonical table.

    Args:
        control: Control data; an entry is written only for what differs from the defaults.
        rules: The rules in order.

    Yields:
        Physical lines without line ends.
    """
    data = [(name, value) for name, value in control.keywords().items() if _is_told(name, value)]
    if data:
        yield from _entry([_clause(name, str(value)) for name, value in data])
    for rule in rules:
        yield from _entry([_clause(name, value) for name, value in _rule_clauses(rule)])


def write_clause(name: str, pattern: Pattern) -> str:
    """One pattern as a table writes it, such as ``REASON(MQRC_Q_FULL)``."""
    return "".join(_clause(name, _pattern_text(name, pattern)))


def write_action(rule: Rule) -> str:
    """What a rule does as a table writes it, such as ``ACTION(RETRY) RETRY(5)``."""
    return " ".join("".join(_clause(name, value)) for name, value in _action_clauses(rule))


def _rule_clauses(rule: Rule) -> Iterator[tuple[str, str]]:
    for name in KEYWORDS:
        if name in rule.patterns:
            yield name, _pattern_text(name, rule.patterns[name])
    yield from _action_clauses(rule)


def _action_clauses(rule: Rule) -> Iterator[tuple[str, str]]:
    members = rule.keywords()
    for name in KEYWORDS:
        if name in members and _is_told(name, members[name]):
            yield name, str(members[name])


def _is_told(name: str, value: object) -> bool:
    """Whether a value has to be written: ACTION always is, the rest if it is not the default."""
    return name in {"ACTION", "FWDQ"} or value != _DEFAULTS[name]


def _pattern_text(name: str, pattern: Pattern) -> str:
    if not isinstance(pattern, NumberPattern):
        return pattern.text
    if pattern.value is None:
        return "*"
    names = (constant_name(family, pattern.value) for family in KEYWORDS[name].families)
    symbol = next((symbol for symbol in names if symbol), None)
    if symbol is None and not 0 <= pattern.value <= LARGEST_NUMBER:
        raise ValueError(f"{name}({pattern.value}) cannot be written: neither in range nor named")
    return symbol or str(pattern.value)


def _clause(name: str, value: str) -> tuple[str, str, str]:
    """A clause in three parts: what must stay together at its start, value, end."""
    if _BARE.fullmatch(value) or value in KEYWORDS[name].references:
        return f"{name}(", value, ")"
    return f"{name}('", value.replace("'", "''"), "')"


def _entry(clauses: Sequence[tuple[str, str, str]]) -> Iterator[str]:
    """Fill lines with clauses; every line but the last ends in a continuation sign."""
    room = LINE_LENGTH - len(" +")
    line = ""
    for clause in clauses:
        text = "".join(clause)
        if line.strip() and len(line) + 1 + len(text) > room:
            yield f"{line} +"
            line = _INDENT
        if len(line) + 1 + len(text) > room and len(_INDENT + text) > room:
            *full, text = _broken(clause)
            yield from (f"{line}{full[0]}-", *(f"{part}-" for part in full[1:]))
            line = text
        else:
            line += text if not line.strip() else f" {text}"
    yield line


def _broken(clause: tuple[str, str, str]) -> list[str]:
    """Break a clause that is longer than a line inside its value.

    The value is quoted, because inside quotes the next line is continued at its start whatever it
    begins with.
    """
    start, value, end = clause
    if not start.endswith("'"):
        start, end = f"{start}'", f"'{end}"
    room = LINE_LENGTH - len(_INDENT) - len(start) - len("-")
    parts = [start + value[:room]]
    rest = value[room:] + end
    size = LINE_LENGTH - len("-")
    while rest:
        parts.append(rest[:size])
        rest = rest[size:]
    return parts
