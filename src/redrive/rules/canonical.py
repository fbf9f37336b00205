"""Writing control data and rules back as text, in one canonical layout."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from redrive.messages.constants import constant_name
from redrive.rules.dialect.expressions import BARE
from redrive.rules.dialect.keywords import (
    KAFKA_VOCABULARY,
    field_order,
    pattern_keyword,
    split_field,
)
from redrive.rules.dialect.patterns import ListPattern, RangePattern, RegexPattern
from redrive.rules.keywords import KEYWORDS, LARGEST_NUMBER, Value
from redrive.rules.patterns import NumberPattern, Pattern, StringPattern
from redrive.rules.rule import Action, Control, Rule

__all__ = ["LINE_LENGTH", "write_action", "write_clause", "write_entries", "write_rule"]

LINE_LENGTH: Final = 72
"""Significant characters of a line that every platform reads (convention 7)."""

_INDENT: Final = "  "
_BARE: Final = re.compile(r"[A-Z0-9./_%*?]+")
_ALWAYS_TOLD: Final = {"DIALECT", "ACTION", "FWDQ", "FWDT", "BACKOFF"}
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
        patterns = sorted(rule.patterns, key=field_order)
        clauses = [_pattern_clause(name, rule.patterns[name]) for name in patterns]
        clauses += [_clause(name, value) for name, value in _action_clauses(rule)]
        yield from _entry(clauses)


def write_clause(name: str, pattern: Pattern) -> str:
    """One pattern as a table writes it, such as ``REASON(MQRC_Q_FULL)``."""
    return "".join(_pattern_clause(name, pattern))


def write_action(rule: Rule) -> str:
    """What a rule does as a table writes it, such as ``ACTION(RETRY) RETRY(5)``."""
    return " ".join("".join(_clause(name, value)) for name, value in _action_clauses(rule))


def write_rule(rule: Rule) -> str:
    """A rule in one line, as a table writes it: its patterns, and what it does."""
    patterns = [
        write_clause(name, rule.patterns[name]) for name in sorted(rule.patterns, key=field_order)
    ]
    return " ".join([*patterns, write_action(rule)])


def _pattern_clause(name: str, pattern: Pattern) -> tuple[str, str, str]:
    keyword, argument = split_field(name)
    if pattern_keyword(name).value not in {Value.TEXTS, Value.NUMBERS}:
        return _clause(name, _pattern_text(name, pattern))
    prefix = f"{_quoted(argument)}," if argument else ""
    return f"{keyword}({prefix}{_alternatives(pattern)})", "", ""


def _alternatives(pattern: Pattern) -> str:
    """The value of a pattern as DIALECT(KAFKA) writes it."""
    if isinstance(pattern, RangePattern):
        return "|".join(pattern.written)
    if isinstance(pattern, ListPattern):
        return "|".join(map(_alternatives, pattern.members))
    if isinstance(pattern, RegexPattern):
        return f"/{_slashed(pattern.text)}/"
    if not isinstance(pattern, StringPattern):
        raise TypeError(f"{pattern} is no pattern of DIALECT(KAFKA)")
    text = pattern.text
    return text if BARE.fullmatch(text) and not text.startswith("/") else _quoted(text)


def _quoted(text: str) -> str:
    return "'{}'".format(text.replace("'", "''"))


def _slashed(expression: str) -> str:
    """An expression as it stands between slashes."""
    return re.sub(r"\\.|/", lambda it: r"\/" if it[0] == "/" else it[0], expression)


def _action_clauses(rule: Rule) -> Iterator[tuple[str, str]]:
    members = rule.keywords()
    for name in KAFKA_VOCABULARY.keywords:
        if name in members and _is_told(name, members[name]):
            yield name, str(members[name])


def _is_told(name: str, value: object) -> bool:
    """Whether a value has to be written: ACTION always is, the rest if it is not the default."""
    return name in _ALWAYS_TOLD or value != _DEFAULTS[name]


def _pattern_text(name: str, pattern: Pattern) -> str:
    """The value of one of IBM's patterns."""
    if isinstance(pattern, StringPattern):
        return pattern.text
    if not isinstance(pattern, NumberPattern):
        raise TypeError(f"{name}({pattern}) is no pattern of IBM's language")
    if pattern.value is None:
        return "*"
    names = (constant_name(family, pattern.value) for family in KEYWORDS[name].families)
    symbol = next((symbol for symbol in names if symbol), None)
    if symbol is None and not 0 <= pattern.value <= LARGEST_NUMBER:
        raise ValueError(f"{name}({pattern.value}) cannot be written: neither in range nor named")
    return symbol or str(pattern.value)


def _clause(name: str, value: str) -> tuple[str, str, str]:
    """A clause in three parts: what must stay together at its start, value, end."""
    keyword = KAFKA_VOCABULARY.keywords[name]
    is_reference = value in keyword.references and keyword.value is Value.NAME
    if _BARE.fullmatch(value) or is_reference or keyword.value is Value.BACKOFF:
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
    if not value:
        return _broken_expression(start)
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


def _broken_expression(text: str) -> list[str]:
    """Break a clause of DIALECT(KAFKA) where its next line cannot be taken for a comment."""
    parts = []
    size = LINE_LENGTH - len(_INDENT) - len("-")
    while len(text) > size - 1:  # a blank and a sign may have to follow the last part
        at = min(size, len(text) - 1)
        while at > 1 and text[at:].lstrip(" \t").startswith("*"):
            at -= 1
        parts.append(text[:at])
        text = text[at:]
        size = LINE_LENGTH - len("-")
    return [*parts, text]
