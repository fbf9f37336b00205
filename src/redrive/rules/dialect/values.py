"""From the alternatives of a value to a pattern of DIALECT(KAFKA); every mistake is told."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from redrive.messages.json_paths import JsonPath
from redrive.rules.backoff import Backoff
from redrive.rules.dialect.expressions import Alternative, Kind
from redrive.rules.dialect.patterns import (
    ABSENT,
    Interval,
    ListPattern,
    RangePattern,
    RegexPattern,
    TextPattern,
)
from redrive.rules.keywords import LARGEST_NUMBER, Keyword, Value
from redrive.rules.patterns import StringPattern

if TYPE_CHECKING:
    from redrive.rules.diagnosis import Reporter
    from redrive.rules.source import Entry
    from redrive.rules.syntax import Clause

__all__ = ["ExpressionReader", "read_backoff", "read_number", "read_template"]

_NUMBER: Final = re.compile(r"([0-9]+)([A-Za-z]*)")
_INSERT: Final = re.compile(r"&([A-Za-z]*)")
_FACTOR: Final = re.compile(r"[0-9]{1,3}(?:\.[0-9]{1,2})?")
_SLOWEST: Final = 1.1
"""The least factor above 1: a smaller one has too many delays before it comes to anything."""
_STEEPEST: Final = 100
_NOT_IN_TOPICS: Final = re.compile(r"[^A-Za-z0-9._-]")


class ExpressionReader:
    """Turns the values of one entry into patterns.

    Args:
        entry: The entry.
        report: Takes the findings.
    """

    def __init__(self, entry: Entry, report: Reporter) -> None:
        self._entry = entry
        self._report = report

    def pattern(self, clause: Clause) -> TextPattern | ListPattern | RangePattern | None:
        """The value of a pattern keyword; None if a mistake was reported."""
        is_sound = self._check_argument(clause)
        if clause.keyword.value is Value.NUMBERS:
            intervals = [self._interval(clause, one) for one in clause.alternatives]
            found = [one for one in intervals if one is not None]
            written = [f"{it.operator}{it.text}" for it in clause.alternatives]
            complete = is_sound and len(found) == len(intervals)
            return RangePattern.of(found, written) if complete else None
        texts = [self._text(clause, one) for one in clause.alternatives]
        members = tuple(one for one in texts if one is not None)
        if not is_sound or len(members) < len(texts):
            return None
        return members[0] if len(members) == 1 else ListPattern(members)

    def _check_argument(self, clause: Clause) -> bool:
        if clause.keyword.argument != "path":
            return True
        try:
            JsonPath.of(clause.argument)
        except ValueError as problem:
            self._error(
                clause,
                f"{clause.argument} is no path: {problem}",
                clause.offset,
                len(clause.keyword.name),
                expected="a path such as $.order.items[0].sku or $['a name']",
            )
            return False
        return True

    def _text(self, clause: Clause, one: Alternative) -> TextPattern | None:
        name, length = clause.keyword.name, clause.keyword.length
        if one.kind is Kind.REGEX:
            return self._regex(clause, one)
        if one.kind is Kind.COMPARISON:
            self._error(
                clause,
                f"{name} is a text and cannot be compared by {one.operator}",
                one.offset,
                len(one.operator),
                expected="a text, an expression between slashes, or a list of them",
                hint=f"quote the value if {one.operator} belongs to it",
            )
            return None
        used = len(one.text) - one.text.count("*")
        if used > length:
            self._error(
                clause,
                f"{name} takes {length} characters at most, this has {used} besides asterisks",
                one.offset,
                one.length,
                code="TOO_LONG",
                expected=f"at most {length} characters, asterisks not counted",
            )
            return None
        return StringPattern(one.text, length)

    def _regex(self, clause: Clause, one: Alternative) -> RegexPattern | None:
        try:
            return RegexPattern(_without_quotes(one.text))
        except ValueError as problem:
            self._error(
                clause,
                f"the expression cannot be read: {problem}",
                one.offset,
                one.length,
                expected="a regular expression of RE2",
                hint="RE2 has no look-around and no references back to a group"
                if "invalid perl operator" in str(problem) or "escape sequence" in str(problem)
                else "",
            )
            return None

    def _interval(self, clause: Clause, one: Alternative) -> Interval | None:
        keyword = clause.keyword
        if one.kind is Kind.TEXT and one.text == "*":
            return Interval(ABSENT, None)
        found = _NUMBER.fullmatch(one.text) if one.kind is not Kind.REGEX else None
        factor = _factor(keyword, found[2]) if found else None
        if found is None or factor is None:
            self._error(
                clause,
                f"{keyword.name} is a number, {one.text} is none",
                one.offset,
                one.length,
                expected=_number_expected(keyword),
                hint=_unit_hint(keyword) if found else "",
            )
            return None
        digits = found[1].lstrip("0") or "0"
        if len(digits) > len(str(LARGEST_NUMBER)):
            self._error(
                clause,
                f"{keyword.name}({digits[:12]}...) is out of range",
                one.offset,
                one.length,
                code="RANGE",
                expected=f"0 to {LARGEST_NUMBER}",
            )
            return None
        if keyword.name == "AGE" and one.operator in {"", "="}:
            self._error(
                clause,
                "no message has an age of exactly so many seconds when it is looked at",
                one.offset,
                one.length,
                expected=f"a comparison: >{one.text} or <{one.text}",
            )
            return None
        return _interval(one.operator, int(digits) * factor)

    def _error(
        self,
        clause: Clause,
        message: str,
        offset: int,
        length: int,
        *,
        code: str = "BAD_VALUE",
        expected: str,
        hint: str = "",
    ) -> None:
        self._report.error(
            code,
            message,
            self._entry,
            offset,
            length,
            subject=clause.keyword.name,
            expected=expected,
            hint=hint,
        )


def read_template(clause: Clause, entry: Entry, report: Reporter) -> str | None:
    """The value of FWDT: a topic's name with inserts, in upper case; None after an error.

    Args:
        clause: The clause; it has a value.
        entry: Where it stands.
        report: Takes the findings.
    """
    keyword, value = clause.keyword, clause.value or ""

    def error(code: str, message: str, expected: str, hint: str = "") -> None:
        report.error(
            code, message, entry, clause.value_offset, len(clause.raw),
            subject=keyword.name, expected=expected, hint=hint,
        )  # fmt: skip

    unknown = [it[0] for it in _INSERT.finditer(value) if _insert(it[1], keyword) is None]
    text = _INSERT.sub("", value)
    wrong = _NOT_IN_TOPICS.search(text)
    if unknown:
        error(
            "BAD_VALUE",
            f"{unknown[0]} is not a field of the message that {keyword.name} can insert",
            f"one of {', '.join(keyword.references)}",
            "a letter behind an insert belongs to its name: put a dot or a hyphen between them",
        )
    elif wrong is not None:
        error(
            "BAD_VALUE",
            f"no topic has {wrong[0]!r} in its name",
            "letters, digits, dot, hyphen, underscore and inserts",
            "FWDT takes no wildcards" if wrong[0] in "*?" else "",
        )
    elif value in {".", ".."}:
        error("BAD_VALUE", f"no topic can be called {value}", "a topic's name")
    elif len(text) > keyword.length:
        error(
            "TOO_LONG",
            f"a topic's name has at most {keyword.length} characters, this one has {len(text)}",
            f"at most {keyword.length} characters",
        )
    else:
        return _INSERT.sub(lambda it: f"&{_insert(it[1], keyword)}", value)
    return None


def read_backoff(clause: Clause, entry: Entry, report: Reporter) -> str | None:
    """The value of BACKOFF as ``Backoff`` writes it; None after an error.

    Args:
        clause: The clause; it has a value.
        entry: Where it stands.
        report: Takes the findings.
    """
    parts = [part.strip(" \t") for part in (clause.value or "").split(",")]
    problem = expected = ""
    if len(parts) != len(("initial", "factor", "cap")):
        problem = f"BACKOFF has three parts, this has {len(parts)}"
        expected = "first delay, factor, longest delay"
    else:
        initial, cap = (read_number(clause.keyword, parts[number]) for number in (0, 2))
        factor = float(parts[1]) if _FACTOR.fullmatch(parts[1]) else 0.0
        if not initial or not cap:
            problem = f"{parts[2] if initial else parts[0]} is no delay"
            expected = f"a number from 1 on with or without {_units(clause.keyword)}"
        elif factor != 1 and not _SLOWEST <= factor <= _STEEPEST:
            problem = f"{parts[1]} is no factor for delays"
            expected = f"1, or {_SLOWEST} to {_STEEPEST} with two decimal places at most"
        elif cap < initial:
            problem = f"the longest delay {parts[2]} is less than the first one {parts[0]}"
            expected = "a longest delay that is not shorter"
        else:
            return str(Backoff(initial, factor, cap))
    report.error(
        "BAD_VALUE", problem, entry, clause.value_offset, len(clause.raw),
        subject=clause.keyword.name, expected=expected,
        hint="BACKOFF(30s,2,1h) waits 30 s, 1 min, 2 min and so on, and never more than 1 h",
    )  # fmt: skip
    return None


def _without_quotes(expression: str) -> str:
    r"""The same expression with ``\x27`` for each single quote.

    In a line that goes on, one alone would be taken for the beginning of a quoted value.
    """
    if r"\Q" in expression:  # up to \E everything stands for itself
        return expression
    return re.sub(r"\\?'", r"\\x27", expression)


def _insert(name: str, keyword: Keyword) -> str | None:
    """The field that an insert names."""
    return name.upper() if f"&{name.upper()}" in keyword.references else None


def read_number(keyword: Keyword, text: str) -> int | None:
    """A number with a unit of its keyword, as ``AGE`` has ``2h``; None if it is none."""
    found = _NUMBER.fullmatch(text)
    factor = _factor(keyword, found[2]) if found else None
    if found is None or factor is None or len(found[1].lstrip("0")) > len(str(LARGEST_NUMBER)):
        return None
    return int(found[1]) * factor


def _interval(operator: str, number: int) -> Interval:
    bounds: Mapping[str, Interval] = {
        ">": Interval(number + 1, None),
        ">=": Interval(number, None),
        "<": Interval(0, number - 1),
        "<=": Interval(0, number),
    }
    return bounds.get(operator, Interval(number, number))


def _factor(keyword: Keyword, unit: str) -> int | None:
    return dict(keyword.units).get(unit.lower()) if unit else 1


def _number_expected(keyword: Keyword) -> str:
    units = f" with or without {_units(keyword)}" if keyword.units else ""
    return f"digits{units}, a comparison such as >=3, or *"


def _unit_hint(keyword: Keyword) -> str:
    if not keyword.units:
        return f"{keyword.name} has no units"
    return f"the units of {keyword.name} are {_units(keyword)}"


def _units(keyword: Keyword) -> str:
    return ", ".join(unit for unit, _ in keyword.units)
