"""Writing as text: tables in one canonical layout, messages as for ``redrive explain --field``."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from redrive.masking import Mask
from redrive.messages.constants import constant_name
from redrive.rules.keywords import (
    KAFKA,
    LARGEST_NUMBER,
    KeywordRole,
    Value,
    field_order,
    pattern_keyword,
    split_field,
)
from redrive.rules.patterns import (
    ABSENT,
    ComparisonPattern,
    FieldValue,
    NotPattern,
    NumberPattern,
    Pattern,
    RangePattern,
    RegexPattern,
    StringPattern,
    members_of,
)
from redrive.rules.rule import Action, Control, Rule
from redrive.rules.source import is_comment_or_blank
from redrive.rules.syntax import BARE_IN_KAFKA

LINE_LENGTH: Final = 72
"""Significant characters of a line that every platform reads."""

_INDENT: Final = "  "
_BARE: Final = re.compile(r"[A-Z0-9./_%*?]+")
_ALWAYS_WRITTEN: Final = {
    *("DIALECT", "ORDER"),
    *("ACTION", "FWDQ", "FWDT", "TO", "BACKOFF", "TRANSFORM"),
}
_BARE_VALUES: Final = {Value.BACKOFF, Value.LABEL}
"""Kinds of values that are never quoted."""
_DEFAULTS: Final = {**Control().keywords(), **Rule(action=Action.FWD).keywords()}


def write_entries(control: Control, rules: Sequence[Rule]) -> Iterator[str]:
    """The lines of a canonical table; control data only where they differ from the defaults."""
    data = list(_settings(control.keywords()))
    if data:
        yield from _fill_lines(data)
    for rule in rules:
        yield from _fill_lines([*_patterns(rule), *_settings(rule.keywords())])


def write_clause(name: str, pattern: Pattern) -> str:
    """One pattern as a table writes it, such as ``REASON(MQRC_Q_FULL)``."""
    keyword, argument = split_field(name)
    if pattern_keyword(name).value in {Value.TEXTS, Value.NUMBERS}:
        prefix = f"{_quote(argument)}," if argument else ""
        return f"{keyword}({prefix}{_alternatives(pattern)})"
    if isinstance(pattern, StringPattern):
        return _clause(name, _without_repeated(pattern.text))
    if not isinstance(pattern, NumberPattern):
        raise TypeError(f"{name}({pattern}) is not a pattern of IBM's language")
    if pattern.value is None:
        return _clause(name, "*")
    symbol = _symbol(name, pattern.value)
    if not symbol and not 0 <= pattern.value <= LARGEST_NUMBER:
        raise ValueError(f"{name}({pattern.value}) cannot be written: neither in range nor named")
    return _clause(name, symbol or str(pattern.value))


def write_action(rule: Rule) -> str:
    """The action of a rule in a table, such as ``ACTION(RETRY) RETRY(5)``."""
    return " ".join(_settings(rule.keywords()))


def write_rule(rule: Rule) -> str:
    """A rule in one line: its patterns, and its action."""
    return " ".join([*_patterns(rule), write_action(rule)])


def write_message(message: Mapping[str, FieldValue]) -> str:
    """The fields of a message that are neither blank nor 0, such as ``REASON=MQRC_Q_FULL``."""
    written = [write_field(name, value) for name, value in present_fields(message).items()]
    return " ".join(written) or "a message with blank fields"


def present_fields(message: Mapping[str, FieldValue]) -> dict[str, FieldValue]:
    """The fields of a message, in order, without those that are blank, 0 or absent."""
    present = {}
    for name in sorted(message, key=field_order):
        is_range = pattern_keyword(name).value is Value.NUMBERS
        if message[name] != ABSENT if is_range else message[name]:
            present[name] = message[name]
    return present


def write_field(name: str, value: FieldValue) -> str:
    """One field, quoted for a shell; a number by its symbolic name if it has one."""
    if isinstance(value, int):
        return f"{name}={_symbol(name, value) or value}"
    if "(" in name:  # HEADER(name) of DIALECT(KAFKA)
        return shlex.quote(f"{name}={value}")
    return f"{name}={shlex.quote(value)}"


def hidden_field(mask: Mask, name: str, value: FieldValue) -> FieldValue:
    """The masked value of a field."""
    if not isinstance(value, str):
        return value
    keyword, argument = split_field(name)
    if keyword == "HEADER":
        return (mask.header(argument, value.encode()) or b"").decode(errors="replace")
    return mask.text(value)


def _patterns(rule: Rule) -> Iterator[str]:
    for name in sorted(rule.patterns, key=field_order):
        yield write_clause(name, rule.patterns[name])


def _symbol(name: str, value: int) -> str:
    """The symbolic name of a number in a field; empty if it has none."""
    symbols = (constant_name(family, value) for family in pattern_keyword(name).families)
    return next(filter(None, symbols), "")


def _alternatives(pattern: Pattern) -> str:
    if isinstance(pattern, RangePattern):
        return pattern.written
    if isinstance(pattern, NotPattern):
        inner = _alternatives(pattern.pattern)
        return f"NOT ({inner})" if len(members_of(pattern.pattern)) > 1 else f"NOT {inner}"
    return "|".join(map(_alternative, members_of(pattern)))


def _alternative(pattern: Pattern) -> str:
    if isinstance(pattern, RegexPattern):
        # A backslash and the next character stay as they are.
        slashed = re.sub(r"(\\.)|/", lambda match: match[1] or r"\/", pattern.text)
        return f"/{slashed}/"
    if isinstance(pattern, ComparisonPattern):
        return f"{pattern.operator}{pattern.number}"
    if not isinstance(pattern, StringPattern):
        raise TypeError(f"{pattern} is not a pattern of DIALECT(KAFKA)")
    text = _without_repeated(pattern.text)
    return text if BARE_IN_KAFKA.fullmatch(text) and not text.startswith("/") else _quote(text)


def _without_repeated(text: str) -> str:
    """A text with one asterisk for several in a row, which mean the same."""
    return re.sub(r"\*+", "*", text)


def _quote(text: str) -> str:
    return "'{}'".format(text.replace("'", "''"))


def _settings(values: Mapping[str, object]) -> Iterator[str]:
    """The clauses of control data or of an action, without defaults."""
    for name, keyword in KAFKA.keywords.items():
        is_given = name in values and keyword.role is not KeywordRole.PATTERN
        if is_given and (name in _ALWAYS_WRITTEN or values[name] != _DEFAULTS[name]):
            yield _clause(name, str(values[name]))


def _clause(name: str, value: str) -> str:
    keyword = KAFKA.keywords[name]
    is_reference = value in keyword.references and keyword.value is Value.NAME
    is_bare = _BARE.fullmatch(value) or is_reference or keyword.value in _BARE_VALUES
    return f"{name}({value if is_bare else _quote(value)})"


def _fill_lines(clauses: Sequence[str]) -> Iterator[str]:
    room = LINE_LENGTH - len(" +")
    line = ""
    for clause in clauses:
        if line.strip() and len(line) + 1 + len(clause) > room:
            yield f"{line} +"
            line = _INDENT
        if len(line) + 1 + len(clause) > room and len(_INDENT + clause) > room:
            *full, last = _break_clause(clause)
            yield from (f"{line}{full[0]}-", *(f"{part}-" for part in full[1:]))
            line = last
        else:
            line += clause if not line.strip() else f" {clause}"
    yield line


def _break_clause(clause: str) -> list[str]:
    """Break a clause that is longer than a line where its next line is not a comment.

    Without such a place, the line is longer.
    """
    parts = []
    size = LINE_LENGTH - len(_INDENT) - len("-")
    while len(clause) > size - 1:  # a blank and a sign may have to follow the last part
        at = min(size, len(clause) - 1)
        places = (*range(at, 0, -1), *range(at + 1, len(clause)))
        at = next(place for place in places if not is_comment_or_blank(clause[place:]))
        parts.append(clause[:at])
        clause = clause[at:]
        size = LINE_LENGTH - len("-")
    return [*parts, clause]
