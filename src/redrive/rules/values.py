"""From the text of a value to what it means: class, range and length (specification 5.2).

Each check reports at most one error for a value, in the order class, range, length; of a list of
alternatives, one for each of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Final, TypeAlias, TypeVar

from redrive.messages.constants import (
    MQ_VERSION,
    constant_family,
    constant_names,
    constant_value,
)
from redrive.messages.json_paths import JsonPath
from redrive.rules.backoff import Backoff
from redrive.rules.diagnosis import Reporter, did_you_mean, one_of
from redrive.rules.keywords import LARGEST_NUMBER, Keyword, Value
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
_NOT_IN_TOPICS: Final = re.compile(r"[^A-Za-z0-9._-]")
_FACTOR: Final = re.compile(r"[0-9]{1,3}(?:\.[0-9]{1,2})?")
_SLOWEST: Final = 1.1
"""The least factor above 1: a smaller one has too many delays before it comes to anything."""
_STEEPEST: Final = 100
_SHOWN_DIGITS: Final = 12


class _WrongValueError(Exception):
    """A value has no meaning, and an error is reported."""


class ValueReader:
    """Turns the values of one entry into patterns, names, numbers and words."""

    def __init__(self, entry: Entry, report: Reporter) -> None:
        self._error = partial(report.error, entry)

    def pattern(self, clause: Clause) -> Pattern | None:
        """The value of a pattern keyword; None when an error was reported instead."""
        if clause.value is None:
            return None
        with suppress(_WrongValueError):
            match clause.keyword.value:
                case Value.NUMBER:
                    return self._number(clause, clause.value)
                case Value.STRING:
                    return self._string(clause, clause.value)
                case Value.NUMBERS:
                    return self._range(clause)
            try:
                self._check_argument(clause)
            finally:  # a wrong argument hides no wrong value
                members = tuple(self._each(self._text, clause))
            pattern = members[0] if len(members) == 1 else ListPattern(members)
            self._check_negation(clause, pattern)
            return NotPattern(pattern) if clause.is_negated else pattern
        return None

    def _range(self, clause: Clause) -> RangePattern:
        written = "|".join(f"{it.operator}{it.text}" for it in clause.alternatives)
        pattern = RangePattern.of(self._each(self._interval, clause), written)
        self._check_negation(clause, pattern)
        if not clause.is_negated:
            return pattern
        is_list = len(clause.alternatives) > 1
        return pattern.complement(f"NOT ({written})" if is_list else f"NOT {written}")

    def _check_negation(self, clause: Clause, pattern: Pattern) -> None:
        if clause.is_negated and pattern.matches_anything:
            name = clause.keyword.name
            hint = f"{name}(NOT >=0)" if clause.keyword.value is Value.NUMBERS else f"{name}(' ')"
            raise self._wrong(
                clause,
                "every message matches this, so none is left behind NOT",
                "a value that not every message has",
                f"for a message that does not have it write {hint}",
            )

    def setting(self, clause: Clause) -> Setting | None:
        """The value of a control or action keyword; None when an error was reported instead.

        A blank name is an empty text; references such as ``&DESTQ`` are in upper case.
        """
        if clause.value is None:
            return None
        readers: Mapping[Value, Callable[[Clause, str], Setting]] = {
            Value.TOPIC: self._topic,
            Value.BACKOFF: self._backoff,
            Value.NAME: self._name,
            Value.WORD: self._word,
        }
        with suppress(_WrongValueError):
            if clause.keyword.value not in {Value.TOPIC, Value.BACKOFF}:
                self._refuse_wildcard(clause, clause.value)
            return readers.get(clause.keyword.value, self._count)(clause, clause.value)
        return None

    def _each(self, read: Callable[[Clause, Alternative], _T], clause: Clause) -> list[_T]:
        """Read all alternatives, so that each of them has its error."""
        found = []
        for one in clause.alternatives:
            with suppress(_WrongValueError):
                found.append(read(clause, one))
        if len(found) < len(clause.alternatives):
            raise _WrongValueError
        return found

    def _string(
        self, clause: Clause, value: str, place: tuple[int, int] | None = None
    ) -> StringPattern:
        length = clause.keyword.length
        used = len(value) - value.count("*")
        if used <= length:
            return StringPattern(value, length)
        raise self._wrong(
            clause,
            f"{clause.keyword.name} looks at a field of {length} characters, "
            f"this value has {used} besides asterisks",
            f"at most {length} characters, asterisks not counted",
            place=place,
            code="TOO_LONG",
        )

    def _number(self, clause: Clause, value: str) -> NumberPattern:
        if value == "*":
            return NumberPattern(None)
        if _DIGITS.fullmatch(value):
            return NumberPattern(self._in_range(clause, value))
        names = " or ".join(f"{family}_..." for family in clause.keyword.families)
        expected = f"digits, a name {names}, or *"
        if _WILDCARD.search(value):
            message = f"{clause.keyword.name} is a number: * can only stand for all of it"
            raise self._wrong(clause, message, expected, place=_wildcard_in(clause))
        return NumberPattern(self._symbol(clause, value.upper(), expected))

    def _symbol(self, clause: Clause, name: str, expected: str) -> int:
        keyword = clause.keyword
        value = constant_value(name)
        if value is not None and constant_family(name) in keyword.families:
            return value
        known = constant_names(*keyword.families)
        hint = did_you_mean(name, known)
        if value is not None:
            families = " or ".join(f"{family}_" for family in keyword.families)
            message = f"{keyword.name} takes {families} names, {name} is none of them"
        elif constant_family(name) in keyword.families:
            message = f"no constant of MQ {MQ_VERSION} is called {name}"
            hint = hint or "a constant of a newer MQ can be written as its number"
        else:
            message = f"{name} is neither a number nor a name of MQ"
            hint = hint or did_you_mean(f"{keyword.families[0]}_{name}", known)
        raise self._wrong(clause, message, expected, hint)

    def _check_argument(self, clause: Clause) -> None:
        if clause.keyword.argument != "path":
            return
        try:
            JsonPath.of(clause.argument)
        except ValueError as problem:
            raise self._wrong(
                clause,
                f"{clause.argument} is no path: {problem}",
                "a path such as $.order.items[0].sku or $['a name']",
                place=(clause.offset, len(clause.keyword.name)),
            ) from problem

    def _text(self, clause: Clause, one: Alternative) -> TextPattern:
        if one.is_regex:
            return self._regex(clause, one)
        if one.operator:
            return self._comparison(clause, one)
        return self._string(clause, one.text, (one.offset, one.length))

    def _comparison(self, clause: Clause, one: Alternative) -> ComparisonPattern:
        if not clause.keyword.argument:
            raise self._wrong(
                clause,
                f"{clause.keyword.name} is a text and cannot be compared by {one.operator}",
                "a text, an expression between slashes, or a list of them",
                f"quote the value if {one.operator} belongs to it",
                place=(one.offset, len(one.operator)),
            )
        found = _DECIMAL.fullmatch(one.text)
        if found is None:
            raise self._wrong(
                clause,
                f"{one.text} is no number to compare with",
                f"digits, with or without a decimal point: {one.operator}99.5",
                f"quote the value if {one.operator} belongs to it",
                place=(one.offset, one.length),
            )
        sign, whole, fraction = found.groups()
        number = f"{whole}.{fraction}" if fraction else whole
        return ComparisonPattern(one.operator, number if number == "0" else sign + number)

    def _regex(self, clause: Clause, one: Alternative) -> RegexPattern:
        try:
            return RegexPattern(_without_quotes(one.text))
        except ValueError as problem:
            has_no_match = re.search("invalid perl operator|escape sequence", str(problem))
            raise self._wrong(
                clause,
                f"the expression cannot be read: {problem}",
                "a regular expression of RE2",
                "RE2 has no look-around and no references back to a group" if has_no_match else "",
                place=(one.offset, one.length),
            ) from problem

    def _interval(self, clause: Clause, one: Alternative) -> Interval:
        keyword, place = clause.keyword, (one.offset, one.length)
        if one.text == "*" and not one.operator and not one.is_regex:
            return Interval(ABSENT, None)
        found = _MEASURE.fullmatch(one.text) if not one.is_regex else None
        factor = _factor(keyword, found[2]) if found else None
        if found is None or factor is None:
            units = f" with or without {_units(keyword)}" if keyword.units else ""
            raise self._wrong(
                clause,
                f"{keyword.name} is a number, {one.text} is none",
                f"digits{units}, a comparison such as >=3, or *",
                ""
                if not found
                else f"the units of {keyword.name} are {_units(keyword)}"
                if units
                else f"{keyword.name} has no units",
                place=place,
            )
        digits = found[1].lstrip("0") or "0"
        if len(digits) > len(str(LARGEST_NUMBER)):
            message = f"{keyword.name}({digits[:_SHOWN_DIGITS]}...) is out of range"
            raise self._wrong(clause, message, f"0 to {LARGEST_NUMBER}", place=place, code="RANGE")
        if keyword.name == "AGE" and one.operator in {"", "="}:
            message = "no message has an age of exactly so many seconds when it is looked at"
            expected = f"a comparison: >{one.text} or <{one.text}"
            raise self._wrong(clause, message, expected, place=place)
        it = int(digits) * factor
        bounds = {">": (it + 1, None), ">=": (it, None), "<": (0, it - 1), "<=": (0, it)}
        return Interval(*bounds.get(one.operator, (it, it)))

    def _name(self, clause: Clause, value: str) -> str:
        keyword = clause.keyword
        name = value.rstrip(" ")
        is_reference = name.startswith("&") and keyword.references
        code, hint = "BAD_VALUE", ""
        expected = f"{' or '.join(keyword.references)}, or a name"
        if keyword.name == "FWDQ" and not name:
            message = "FWDQ needs a queue name, blank is none"
            expected = "a queue name, &DESTQ or &REPLYQ"
            hint = "a blank FWDQM stands for the local queue manager, a blank FWDQ for nothing"
        elif is_reference and name.upper() not in keyword.references:
            message = f"{name} is not a special name of {keyword.name}"
            hint = did_you_mean(name, keyword.references)
        elif name == _OBSOLETE_REFERENCE and keyword.references:
            message = "= is an obsolete spelling"
            hint = f"write {keyword.name}({keyword.references[1]})"
        elif len(value) > keyword.length:
            code = "TOO_LONG"
            expected = f"at most {keyword.length} characters"
            message = f"{keyword.name} is a name of {expected}, this one has {len(value)}"
        else:
            return name.upper() if is_reference else name
        raise self._wrong(clause, message, expected, hint, code=code)

    def _topic(self, clause: Clause, value: str) -> str:
        """A topic's name with inserts, which are in upper case."""
        keyword = clause.keyword
        unknown = next(
            (it[0] for it in _INSERT.finditer(value) if it[0].upper() not in keyword.references), ""
        )
        text = _INSERT.sub("", value)
        wrong = _NOT_IN_TOPICS.search(text)
        code, hint = "BAD_VALUE", ""
        if unknown:
            message = f"{unknown} is not a field of the message that {keyword.name} can insert"
            expected = f"one of {', '.join(keyword.references)}"
            hint = (
                "a letter behind an insert belongs to its name: put a dot or a hyphen between them"
            )
        elif wrong is not None:
            message = f"no topic has {wrong[0]!r} in its name"
            expected = "letters, digits, dot, hyphen, underscore and inserts"
            hint = "FWDT takes no wildcards" if wrong[0] in "*?" else ""
        elif value in {".", ".."}:
            message, expected = f"no topic can be called {value}", "a topic's name"
        elif len(text) > keyword.length:
            code, expected = "TOO_LONG", f"at most {keyword.length} characters"
            message = f"a topic's name has {expected}, this one has {len(text)}"
        else:
            return _INSERT.sub(lambda it: it[0].upper(), value)
        raise self._wrong(clause, message, expected, hint, code=code)

    def _backoff(self, clause: Clause, value: str) -> Backoff:
        parts = [part.strip(" \t") for part in value.split(",")]
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
                return Backoff(initial, factor, cap)
        raise self._wrong(
            clause,
            problem,
            expected,
            "BACKOFF(30s,2,1h) waits 30 s, 1 min, 2 min and so on, and never more than 1 h",
        )

    def _word(self, clause: Clause, value: str) -> str:
        word = value.upper()
        keyword = clause.keyword
        if word in keyword.words:
            return word
        hint = did_you_mean(word, keyword.words, f"{keyword.name}({{}})")
        message = f"{keyword.name}({value}) does not exist"
        raise self._wrong(clause, message, one_of(keyword.words), hint)

    def _count(self, clause: Clause, value: str) -> str | int:
        keyword = clause.keyword
        if value.upper() in keyword.words:
            return value.upper()
        if _DIGITS.fullmatch(value):
            return self._in_range(clause, value)
        words = f" or {one_of(keyword.words)}" if keyword.words else ""
        hint = did_you_mean(value, keyword.words, f"{keyword.name}({{}})")
        message = f"{keyword.name} takes a number{words}, not {value}"
        raise self._wrong(clause, message, f"digits{words}", hint)

    def _in_range(self, clause: Clause, digits: str) -> int:
        minimum = clause.keyword.minimum
        significant = digits.lstrip("0") or "0"
        # The length is looked at first: Python reads no integer of thousands of digits.
        if len(significant) <= len(str(LARGEST_NUMBER)) and int(significant) >= minimum:
            return int(significant)
        shown = significant[:_SHOWN_DIGITS] + "..." * (len(significant) > _SHOWN_DIGITS)
        message = f"{clause.keyword.name}({shown}) is out of range"
        raise self._wrong(clause, message, f"{minimum} to {LARGEST_NUMBER}", code="RANGE")

    def _refuse_wildcard(self, clause: Clause, value: str) -> None:
        if _WILDCARD.search(value) is not None:
            raise self._wrong(
                clause,
                f"{clause.keyword.name} takes no wildcards",
                "a value without * and ?",
                "wildcards belong into patterns such as DESTQ; there is no escape for them",
                place=_wildcard_in(clause),
                code="WILDCARD",
            )

    def _wrong(
        self,
        clause: Clause,
        message: str,
        expected: str,
        hint: str = "",
        place: tuple[int, int] | None = None,
        *,
        code: str = "BAD_VALUE",
    ) -> _WrongValueError:
        """Report an error at an offset and length in the entry, by default those of the value."""
        offset, length = place or (clause.value_offset, len(clause.raw))
        name = clause.keyword.name
        self._error(offset, message, expected, hint, code=code, subject=name, length=length)
        return _WrongValueError()


def read_number(keyword: Keyword, text: str) -> int | None:
    """A number with a unit of its keyword, as ``AGE`` has ``2h``; None if it is none."""
    found = _MEASURE.fullmatch(text)
    if found is None or len(found[1].lstrip("0")) > len(str(LARGEST_NUMBER)):
        return None
    factor = _factor(keyword, found[2])
    return None if factor is None else int(found[1]) * factor


def _wildcard_in(clause: Clause) -> tuple[int, int]:
    found = _WILDCARD.search(clause.raw)
    return clause.value_offset + (found.start() if found else 0), 1


def _without_quotes(expression: str) -> str:
    r"""The same expression with ``\x27`` for each single quote.

    In a line that goes on, one alone would be taken for the beginning of a quoted value.
    """
    if r"\Q" in expression:  # up to \E everything stands for itself
        return expression
    return re.sub(r"\\?'", r"\\x27", expression)


def _factor(keyword: Keyword, unit: str) -> int | None:
    return dict(keyword.units).get(unit.lower()) if unit else 1


def _units(keyword: Keyword) -> str:
    return ", ".join(unit for unit, _ in keyword.units)
