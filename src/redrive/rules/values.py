"""From the text of a value to its meaning; it has one error, of its class, range or length."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Final, TypeAlias, TypeVar

from redrive.diagnostics import did_you_mean
from redrive.messages.constants import (
    MQ_VERSION,
    constant_family,
    constant_names,
    constant_value,
)
from redrive.messages.json_patch import JsonPath
from redrive.rules.backoff import Backoff
from redrive.rules.diagnosis import Reporter, one_of
from redrive.rules.keywords import CLUSTER_NAME, LARGEST_NUMBER, Keyword, Value
from redrive.rules.patterns import (
    ABSENT,
    ComparisonPattern,
    Interval,
    ListPattern,
    NotPattern,
    NumberPattern,
    Pattern,
    RangePattern,
    RegexPattern,
    StringPattern,
    TextPattern,
)
from redrive.rules.source import Entry
from redrive.rules.syntax import Alternative, Clause

Setting: TypeAlias = str | int | Backoff
"""The value of a control or action keyword."""
_T = TypeVar("_T")

_DIGITS: Final = re.compile(r"[0-9]+")
_WILDCARD: Final = re.compile(r"[*?]")
_OBSOLETE_REFERENCE: Final = "="
_MEASURE: Final = re.compile(r"([0-9]+)([A-Za-z]*)")
_DECIMAL: Final = re.compile(r"(-?)0*([0-9]+)(?:\.(?=[0-9])([0-9]*?)0*)?")
_INSERT: Final = re.compile(r"&([A-Za-z]*)")
_NOT_IN_LABELS: Final = re.compile(r"[^A-Za-z0-9._-]")
_FACTOR: Final = re.compile(r"[0-9]{1,3}(?:\.[0-9]{1,2})?")
_SLOWEST: Final = 1.1
"""The smallest factor above 1; a smaller one would need too many delays."""
_STEEPEST: Final = 100
_SHOWN_DIGITS: Final = 12


class _WrongValueError(Exception):
    """A value is invalid, and an error was reported."""


class ValueReader:
    """Turns the values of one entry into patterns, names, numbers and words."""

    def __init__(self, entry: Entry, report: Reporter) -> None:
        self._error = partial(report.error, entry)
        self._clause: Clause

    def pattern(self, clause: Clause) -> Pattern | None:
        """The value of a pattern keyword; None if an error was reported."""
        readers: Mapping[Value, Callable[[str], Pattern]] = {
            Value.STRING: self._string,
            Value.NUMBER: self._number,
            Value.TEXTS: self._texts,
            Value.NUMBERS: self._range,
        }
        return self._read(clause, readers[clause.keyword.value])

    def setting(self, clause: Clause) -> Setting | None:
        """The value of a control or action keyword; None if an error was reported.

        A blank name is an empty text; references such as ``&DESTQ`` are in upper case.
        """
        readers: Mapping[Value, Callable[[str], Setting]] = {
            Value.TOPIC: self._topic,
            Value.BACKOFF: self._backoff,
            Value.LABEL: self._label,
            Value.NAME: self._name,
            Value.WORD: self._word,
            Value.COUNT: self._count,
            Value.COUNT_OR_WORD: self._count,
        }
        return self._read(clause, readers[clause.keyword.value])

    def _read(self, clause: Clause, read: Callable[[str], _T]) -> _T | None:
        if clause.value is None:
            return None
        self._clause = clause
        with suppress(_WrongValueError):
            return read(clause.value)
        return None

    @property
    def _keyword(self) -> Keyword:
        return self._clause.keyword

    def _string(self, value: str, place: tuple[int, int] | None = None) -> StringPattern:
        name, length = self._keyword.name, self._keyword.length
        used = len(value) - value.count("*")
        if used <= length:
            return StringPattern(value, length)
        message = f"{name} has {length} characters, this value has {used} without asterisks"
        expected = f"at most {length} characters without asterisks"
        raise self._wrong(message, expected, place=place, code="TOO_LONG")

    def _number(self, value: str) -> NumberPattern:
        if value == "*":
            return NumberPattern(None)
        if _DIGITS.fullmatch(value):
            return NumberPattern(self._in_range(value))
        names = " or ".join(f"{family}_..." for family in self._keyword.families)
        expected = f"digits, a name {names}, or *"
        if _WILDCARD.search(value):
            message = f"{self._keyword.name} is a number: * can only stand for all of it"
            raise self._wrong(message, expected, place=self._wildcard())
        return NumberPattern(self._symbol(value.upper(), expected))

    def _symbol(self, name: str, expected: str) -> int:
        families = self._keyword.families
        value = constant_value(name)
        if value is not None and constant_family(name) in families:
            return value
        known = constant_names(*families)
        hint = did_you_mean(name, known)
        if value is not None:
            taken = " or ".join(f"{family}_" for family in families)
            message = f"{self._keyword.name} takes {taken} names, and {name} is not one"
        elif constant_family(name) in families:
            message = f"no constant of MQ {MQ_VERSION} is called {name}"
            hint = hint or "a constant of a newer MQ can be written as its number"
        else:
            message = f"{name} is neither a number nor a name of MQ"
            hint = hint or did_you_mean(f"{families[0]}_{name}", known)
        raise self._wrong(message, expected, hint)

    def _texts(self, _: str) -> Pattern:
        clause = self._clause
        try:
            if self._keyword.argument == "path":
                JsonPath.of(clause.argument)
        except ValueError as problem:
            message = f"{clause.argument} is not a path: {problem}"
            expected = "a path such as $.order.items[0].sku or $['a name']"
            place = clause.offset, len(self._keyword.name)
            raise self._wrong(message, expected, place=place) from problem
        finally:  # report a wrong value even after a wrong argument
            members = self._each(self._text)
        pattern = members[0] if len(members) == 1 else ListPattern(tuple(members))
        self._check_negation(pattern, f"{self._keyword.name}(' ')")
        return NotPattern(pattern) if clause.is_negated else pattern

    def _range(self, _: str) -> RangePattern:
        alternatives = self._clause.alternatives
        written = "|".join(f"{number.operator}{number.text}" for number in alternatives)
        pattern = RangePattern.of(self._each(self._interval), written)
        self._check_negation(pattern, f"{self._keyword.name}(NOT >=0)")
        if not self._clause.is_negated:
            return pattern
        return pattern.complement(f"NOT ({written})" if len(alternatives) > 1 else f"NOT {written}")

    def _each(self, read: Callable[[Alternative], _T]) -> list[_T]:
        values = []
        for alternative in self._clause.alternatives:
            with suppress(_WrongValueError):
                values.append(read(alternative))
        if len(values) < len(self._clause.alternatives):
            raise _WrongValueError
        return values

    def _check_negation(self, pattern: Pattern, absent: str) -> None:
        if self._clause.is_negated and pattern.matches_anything:
            raise self._wrong(
                "every message matches this, so NOT matches none",
                "a value that not every message has",
                f"for a message that does not have it write {absent}",
            )

    def _text(self, alternative: Alternative) -> TextPattern:
        text, operator = alternative.text, alternative.operator
        if alternative.is_regex:
            return self._regex(alternative)
        if not operator:
            return self._string(text, alternative.place)
        hint = f"quote the value if {operator} belongs to it"
        if not self._keyword.argument:
            message = f"{self._keyword.name} is a text and cannot be compared by {operator}"
            expected = "a text, an expression between slashes, or a list of them"
            raise self._wrong(message, expected, hint, (alternative.offset, len(operator)))
        decimal = _DECIMAL.fullmatch(text)
        if decimal is None:
            message = f"{text} is not a number"
            expected = f"digits, with or without a decimal point: {operator}99.5"
            raise self._wrong(message, expected, hint, alternative.place)
        sign, whole, fraction = decimal.groups()
        number = f"{whole}.{fraction}" if fraction else whole
        return ComparisonPattern(operator, number if number == "0" else sign + number)

    def _regex(self, alternative: Alternative) -> RegexPattern:
        text = alternative.text
        # In a continued line, a single quote would start a quoted value. Between \Q and \E
        # everything is literal.
        expression = text if r"\Q" in text else re.sub(r"\\?'", r"\\x27", text)
        try:
            return RegexPattern(expression)
        except ValueError as problem:
            is_missing = re.search("invalid perl operator|escape sequence", str(problem))
            hint = "RE2 has no look-around and no references back to a group" if is_missing else ""
            message = f"the expression cannot be read: {problem}"
            expected = "a regular expression of RE2"
            raise self._wrong(message, expected, hint, alternative.place) from problem

    def _interval(self, alternative: Alternative) -> Interval:
        keyword, text, operator = self._keyword, alternative.text, alternative.operator
        if text == "*" and not operator and not alternative.is_regex:
            return Interval(ABSENT, None)
        measure = _MEASURE.fullmatch(text) if not alternative.is_regex else None
        factor = _factor(keyword, measure[2]) if measure else None
        if measure is None or factor is None:
            units = _units(keyword)
            known = f"the units of {keyword.name} are {units}"
            hint = (known if units else f"{keyword.name} has no units") if measure else ""
            with_units = f" with or without {units}" if units else ""
            expected = f"digits{with_units}, a comparison such as >=3, or *"
            message = f"{keyword.name} is a number, {text} is not"
            raise self._wrong(message, expected, hint, alternative.place)
        number = self._in_range(measure[1], alternative.place) * factor
        if keyword.grows and operator in {"", "="}:
            message = "a message has an exact age for one second only"
            expected = f"a comparison: >{text} or <{text}"
            raise self._wrong(message, expected, place=alternative.place)
        bounds = {
            ">": (number + 1, None),
            ">=": (number, None),
            "<": (0, number - 1),
            "<=": (0, number),
        }
        return Interval(*bounds.get(operator, (number, number)))

    def _name(self, value: str) -> str:
        self._refuse_wildcard(value)
        keyword = self._keyword
        name = value.rstrip(" ")
        is_reference = name.startswith("&") and keyword.references
        code, hint = "BAD_VALUE", ""
        expected = f"{' or '.join(keyword.references)}, or a name"
        if keyword.name == "FWDQ" and not name:
            message = "FWDQ needs a queue name, not a blank one"
            expected = "a queue name, &DESTQ or &REPLYQ"
            hint = "a blank FWDQM stands for the local queue manager, a blank FWDQ has no meaning"
        elif is_reference and name.upper() not in keyword.references:
            message = f"{name} is not a special name of {keyword.name}"
            hint = did_you_mean(name, keyword.references)
        elif name == _OBSOLETE_REFERENCE and keyword.references:
            message = "= is an obsolete spelling"
            hint = f"write {keyword.name}({keyword.references[1]})"
        elif len(value) > keyword.length:
            code, expected = "TOO_LONG", f"at most {keyword.length} characters"
            message = f"{keyword.name} is a name of {expected}, this one has {len(value)}"
        else:
            return name.upper() if is_reference else name
        raise self._wrong(message, expected, hint, code=code)

    def _topic(self, value: str) -> str:
        """A topic's name with inserts, which are in upper case."""
        keyword = self._keyword
        cluster, colon, topic = value.rpartition(":")
        inserts = (insert[0] for insert in _INSERT.finditer(topic))
        unknown = next((name for name in inserts if name.upper() not in keyword.references), "")
        text = _INSERT.sub("", topic)
        wrong = _NOT_IN_LABELS.search(text)
        code, hint = "BAD_VALUE", ""
        if unknown:
            message = f"{unknown} is not a field of the message that {keyword.name} can insert"
            expected = f"one of {', '.join(keyword.references)}"
            hint = (
                "a letter after an insert belongs to its name: put a dot or a hyphen between them"
            )
        elif colon and not CLUSTER_NAME.fullmatch(cluster):
            message = f"{cluster!r} is not the name of a cluster"
            expected = "up to 48 letters, digits, hyphens, underscores before the colon"
            hint = "the settings have clusters as [clusters.NAME]"
        elif wrong is not None:
            message = f"no topic has {wrong[0]!r} in its name"
            expected = "letters, digits, dot, hyphen, underscore and inserts"
            hint = "FWDT takes no wildcards" if wrong[0] in "*?" else ""
        elif topic in {"", ".", ".."}:
            message, expected = f"{topic!r} is not a valid topic name", "a topic's name"
        elif len(text) > keyword.length:
            code, expected = "TOO_LONG", f"at most {keyword.length} characters"
            message = f"a topic's name has {expected}, this one has {len(text)}"
        else:
            return _INSERT.sub(lambda insert: insert[0].upper(), value)
        raise self._wrong(message, expected, hint, code=code)

    def _label(self, value: str) -> str:
        length = self._keyword.length
        wrong = _NOT_IN_LABELS.search(value)
        if value and wrong is None and len(value) <= length:
            return value
        problem = (
            f"{wrong[0]!r} is not part of such a name" if wrong else f"{value!r} is not a name"
        )
        expected = f"up to {length} letters, digits, dots, hyphens, underscores"
        raise self._wrong(problem, expected, "the settings have it as [transforms.NAME]")

    def _backoff(self, value: str) -> Backoff:
        keyword = self._keyword
        parts = [part.strip(" \t") for part in value.split(",")]
        if len(parts) != len(("initial", "factor", "cap")):
            problem = f"BACKOFF has three parts, this has {len(parts)}"
            expected = "first delay, factor, longest delay"
        else:
            initial, cap = (read_number(keyword, parts[number]) for number in (0, 2))
            factor = float(parts[1]) if _FACTOR.fullmatch(parts[1]) else 0.0
            if not initial or not cap:
                problem = f"{parts[2] if initial else parts[0]} is not a delay"
                expected = f"a number of at least 1 with or without {_units(keyword)}"
            elif factor != 1 and not _SLOWEST <= factor <= _STEEPEST:
                problem = f"{parts[1]} is not a factor for delays"
                expected = f"1, or {_SLOWEST} to {_STEEPEST} with two decimal places at most"
            elif cap < initial:
                problem = f"the longest delay {parts[2]} is less than the first one {parts[0]}"
                expected = "a longest delay that is not shorter"
            else:
                return Backoff(initial, factor, cap)
        hint = "BACKOFF(30s,2,1h) waits 30 s, 1 min, 2 min and so on, and never more than 1 h"
        raise self._wrong(problem, expected, hint)

    def _word(self, value: str) -> str:
        self._refuse_wildcard(value)
        name, words = self._keyword.name, self._keyword.words
        if value.upper() in words:
            return value.upper()
        hint = did_you_mean(value, words)
        raise self._wrong(f"{name}({value}) does not exist", one_of(words), hint)

    def _count(self, value: str) -> str | int:
        self._refuse_wildcard(value)
        keyword = self._keyword
        if value.upper() in keyword.words:
            return value.upper()
        if _DIGITS.fullmatch(value):
            return self._in_range(value)
        words = f" or {one_of(keyword.words)}" if keyword.words else ""
        hint = did_you_mean(value, keyword.words)
        message = f"{keyword.name} takes a number{words}, not {value}"
        raise self._wrong(message, f"digits{words}", hint)

    def _in_range(self, digits: str, place: tuple[int, int] | None = None) -> int:
        minimum = self._keyword.minimum
        significant = digits.lstrip("0") or "0"
        # Check the length first: Python does not parse thousands of digits.
        if len(significant) <= len(str(LARGEST_NUMBER)) and int(significant) >= minimum:
            return int(significant)
        shown = significant[:_SHOWN_DIGITS] + "..." * (len(significant) > _SHOWN_DIGITS)
        message = f"{self._keyword.name}({shown}) is out of range"
        expected = f"{minimum} to {LARGEST_NUMBER}"
        raise self._wrong(message, expected, place=place, code="RANGE")

    def _refuse_wildcard(self, value: str) -> None:
        if _WILDCARD.search(value) is not None:
            message = f"{self._keyword.name} takes no wildcards"
            expected = "a value without * and ?"
            hint = "wildcards belong into patterns such as DESTQ; there is no escape for them"
            raise self._wrong(message, expected, hint, self._wildcard(), code="WILDCARD")

    def _wildcard(self) -> tuple[int, int]:
        wildcard = _WILDCARD.search(self._clause.raw)
        return self._clause.value_offset + (wildcard.start() if wildcard else 0), 1

    def _wrong(
        self,
        message: str,
        expected: str,
        hint: str = "",
        place: tuple[int, int] | None = None,
        *,
        code: str = "BAD_VALUE",
    ) -> _WrongValueError:
        """Report an error at an offset and length in the entry, by default those of the value."""
        offset, length = place or (self._clause.value_offset, len(self._clause.raw))
        about = message, expected, hint
        self._error(offset, *about, code=code, subject=self._keyword.name, length=length)
        return _WrongValueError()


def read_number(keyword: Keyword, text: str) -> int | None:
    """A number with a unit of its keyword, such as ``2h`` for ``AGE``; None if it is not one."""
    measure = _MEASURE.fullmatch(text)
    if measure is None or len(measure[1].lstrip("0")) > len(str(LARGEST_NUMBER)):
        return None
    factor = _factor(keyword, measure[2])
    return None if factor is None else int(measure[1]) * factor


def _factor(keyword: Keyword, unit: str) -> int | None:
    return dict(keyword.units).get(unit.lower()) if unit else 1


def _units(keyword: Keyword) -> str:
    return ", ".join(unit for unit, _ in keyword.units)
