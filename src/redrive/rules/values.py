"""From the text of a value to what it means: class, range and length (specification 5.2).

Each check reports at most one error for a value, in the order class, range, length.
"""

from __future__ import annotations

import re
from typing import Final

from redrive.messages.constants import (
    MQ_VERSION,
    constant_family,
    constant_names,
    constant_value,
)
from redrive.rules.diagnosis import Reporter, did_you_mean, one_of
from redrive.rules.keywords import LARGEST_NUMBER, Keyword, Value
from redrive.rules.patterns import NumberPattern, Pattern, StringPattern
from redrive.rules.source import Entry
from redrive.rules.syntax import Clause

__all__ = ["ValueReader"]

_DIGITS: Final = re.compile(r"[0-9]+")
_WILDCARD: Final = re.compile(r"[*?]")
_OBSOLETE_REFERENCE: Final = "="


class ValueReader:
    """Turns the values of one entry into patterns, names, numbers and words.

    Every method returns None when it has reported an error instead.
    """

    def __init__(self, entry: Entry, report: Reporter) -> None:
        self._entry = entry
        self._report = report

    def pattern(self, clause: Clause) -> Pattern | None:
        """The value of a pattern keyword."""
        if clause.value is None:
            return None
        if clause.keyword.value is Value.NUMBER:
            return self._number_pattern(clause, clause.value)
        return self._string_pattern(clause, clause.value)

    def setting(self, clause: Clause) -> str | int | None:
        """The value of a control or action keyword: a name, a number or a word.

        A blank name is an empty text; references such as ``&DESTQ`` are in upper case.
        """
        if clause.value is None or self._has_wildcard(clause, clause.value):
            return None
        if clause.keyword.value is Value.NAME:
            return self._name(clause, clause.value)
        if clause.keyword.value is Value.WORD:
            return self._word(clause, clause.value)
        return self._count(clause, clause.value)

    def _string_pattern(self, clause: Clause, value: str) -> StringPattern | None:
        length = clause.keyword.length
        used = len(value) - value.count("*")
        if used > length:
            self._error(
                "TOO_LONG",
                f"{clause.keyword.name} looks at a field of {length} characters, "
                f"this value has {used} besides asterisks",
                clause,
                expected=f"at most {length} characters, asterisks not counted",
            )
            return None
        return StringPattern(value, length)

    def _number_pattern(self, clause: Clause, value: str) -> NumberPattern | None:
        if value == "*":
            return NumberPattern(None)
        if _DIGITS.fullmatch(value):
            number = self._in_range(clause, value)
        elif _WILDCARD.search(value):
            self._error(
                "BAD_VALUE",
                f"{clause.keyword.name} is a number: * can only stand for all of it",
                clause,
                offset=_position(clause, _WILDCARD),
                expected=self._number_expected(clause.keyword),
            )
            number = None
        else:
            number = self._symbol(clause, value.upper())
        return None if number is None else NumberPattern(number)

    def _symbol(self, clause: Clause, name: str) -> int | None:
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
            prefixed = [f"{family}_{name}" for family in keyword.families]
            hint = hint or did_you_mean(prefixed[0], known)
        expected = self._number_expected(keyword)
        self._error("BAD_VALUE", message, clause, expected=expected, hint=hint)
        return None

    @staticmethod
    def _number_expected(keyword: Keyword) -> str:
        names = " or ".join(f"{family}_..." for family in keyword.families)
        return f"digits, a name {names}, or *"

    def _name(self, clause: Clause, value: str) -> str | None:
        keyword = clause.keyword
        name = value.rstrip(" ")
        is_reference = name.startswith("&") and keyword.references
        if keyword.name == "FWDQ" and not name:
            self._error(
                "BAD_VALUE",
                "FWDQ needs a queue name, blank is none",
                clause,
                expected="a queue name, &DESTQ or &REPLYQ",
                hint="a blank FWDQM stands for the local queue manager, a blank FWDQ for nothing",
            )
        elif is_reference and name.upper() not in keyword.references:
            self._error(
                "BAD_VALUE",
                f"{name} is not a special name of {keyword.name}",
                clause,
                expected=f"{' or '.join(keyword.references)}, or a name",
                hint=did_you_mean(name, keyword.references),
            )
        elif name == _OBSOLETE_REFERENCE and keyword.references:
            self._error(
                "BAD_VALUE",
                "= is an obsolete spelling",
                clause,
                expected=f"{' or '.join(keyword.references)}, or a name",
                hint=f"write {keyword.name}({keyword.references[1]})",
            )
        elif len(value) > keyword.length:
            self._error(
                "TOO_LONG",
                f"{keyword.name} is a name of at most {keyword.length} characters, "
                f"this one has {len(value)}",
                clause,
                expected=f"at most {keyword.length} characters",
            )
        else:
            return name.upper() if is_reference else name
        return None

    def _word(self, clause: Clause, value: str) -> str | None:
        word = value.upper()
        keyword = clause.keyword
        if word in keyword.words:
            return word
        self._error(
            "BAD_VALUE",
            f"{keyword.name}({value}) does not exist",
            clause,
            expected=one_of(keyword.words),
            hint=did_you_mean(word, keyword.words, f"{keyword.name}({{}})"),
        )
        return None

    def _count(self, clause: Clause, value: str) -> str | int | None:
        keyword = clause.keyword
        if value.upper() in keyword.words:
            return value.upper()
        if _DIGITS.fullmatch(value):
            return self._in_range(clause, value)
        words = f" or {one_of(keyword.words)}" if keyword.words else ""
        self._error(
            "BAD_VALUE",
            f"{keyword.name} takes a number{words}, not {value}",
            clause,
            expected=f"digits{words}",
            hint=did_you_mean(value, keyword.words, f"{keyword.name}({{}})"),
        )
        return None

    def _in_range(self, clause: Clause, digits: str) -> int | None:
        minimum = clause.keyword.minimum
        significant = digits.lstrip("0") or "0"
        # The length is looked at first: Python reads no integer of thousands of digits.
        if len(significant) <= len(str(LARGEST_NUMBER)) and int(significant) >= minimum:
            return int(significant)
        self._error(
            "RANGE",
            f"{clause.keyword.name}({significant[:12]}{'...' * (len(significant) > 12)}) "  # noqa: PLR2004
            "is out of range",
            clause,
            expected=f"{minimum} to {LARGEST_NUMBER}",
        )
        return None

    def _has_wildcard(self, clause: Clause, value: str) -> bool:
        if _WILDCARD.search(value) is None:
            return False
        self._error(
            "WILDCARD",
            f"{clause.keyword.name} takes no wildcards",
            clause,
            offset=_position(clause, _WILDCARD),
            expected="a value without * and ?",
            hint="wildcards belong into patterns such as DESTQ; there is no escape for them",
        )
        return True

    def _error(
        self,
        code: str,
        message: str,
        clause: Clause,
        *,
        offset: int | None = None,
        expected: str,
        hint: str = "",
    ) -> None:
        self._report.error(
            code,
            message,
            self._entry,
            clause.value_offset if offset is None else offset,
            len(clause.raw) if offset is None else 1,
            subject=clause.keyword.name,
            expected=expected,
            hint=hint,
        )


def _position(clause: Clause, what: re.Pattern[str]) -> int:
    """Where in the entry the value has what it must not have."""
    found = what.search(clause.raw)
    return clause.value_offset + (found.start() if found else 0)
