"""Checks a user's SQL condition, and explains why the engine rejects it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from redrive.diagnostics import did_you_mean
from redrive.engine.outcome import COLUMNS
from redrive.errors import UsageError

if TYPE_CHECKING:
    from redrive.outcomes.table import LedgerTable

_HINT: Final = (
    "write SQL over the columns of the ledger, such as"
    " \"field_destq LIKE 'orders.%' AND attempt > 2\"; docs/ledger.md lists them"
)
_NAMES: Final = tuple(column.name for column in COLUMNS)
_WRAPPED: Final = re.compile(r'\w+Error\("(?P<text>.+?)"\)?(?:,|\)|$)')
"""The engine's message inside an error value of its language."""
_PLACE: Final = re.compile(r" at Line: (?P<line>[0-9]+), Column: (?P<column>[0-9]+)$")
_END: Final = "found: )"
"""The parser's name for the end of a condition, which is in parentheses."""
_UNKNOWN: Final = re.compile(r'No field named "?(?P<name>[^".]+)')


def enclose(condition: str) -> str:
    """A condition as part of a query: in parentheses, so that a comment in it ends with it."""
    return f"(\n{condition}\n)"


def check_condition(engine: LedgerTable, outcomes: str, condition: str) -> None:
    """Parse the condition alone, so that its errors are separate from the ledger's.

    ``outcomes`` is the start of a query over outcomes; an empty condition is valid.

    Raises:
        UsageError: It is not a valid condition.
    """
    if not condition:
        return
    whole = f"{outcomes} SELECT 1 FROM outcomes WHERE"  # noqa: S608 - it is meant to be SQL
    if problem := engine.problem_with(f"{whole} {enclose(condition)} LIMIT 0"):
        raise condition_error(problem, condition)
    # A condition that closes the enclosing parentheses would disable the other filters.
    if engine.problem_with(f"{whole} CASE WHEN\n{condition}\nTHEN TRUE END LIMIT 0"):
        raise _error("its parentheses do not match", _HINT)


def condition_error(problem: str, condition: str) -> UsageError:
    """The error of a condition, from the engine's message about a query with it."""
    text = _cause(problem)
    if unknown := _UNKNOWN.search(text):
        return _unknown_column(unknown["name"], condition)
    place = _PLACE.search(text)
    if place is None:
        return _error(text, _HINT)
    text = text[: place.start()]
    # The first line of the condition is the second one of the enclosing text.
    line, column = int(place["line"]) - 1, int(place["column"])
    if line > condition.count("\n") + 1:
        return _error(f"{text.replace(_END, 'found: its end')}", _HINT)
    where = f"character {column}" if "\n" not in condition else f"line {line}, character {column}"
    return _error(f"{text} at {where}", _HINT)


def _cause(problem: str) -> str:
    lines = [line.strip() for line in problem.splitlines() if line.strip()] or [""]
    causes = [number for number, line in enumerate(lines) if line == "caused by"]
    first = causes[-1] + 1 if causes else 0
    text = lines[first] if first < len(lines) else lines[0]
    if wrapped := _WRAPPED.search(text):
        return wrapped["text"].replace('\\"', '"')
    return re.sub(r"^(?:[A-Z]\w*(?: \w+)? error|Error during planning): ", "", text)


def _unknown_column(name: str, condition: str) -> UsageError:
    known = next((one for one in (f"field_{name.lower()}", name.lower()) if one in _NAMES), "")
    hint = f"did you mean {known}?" if known else did_you_mean(name, _NAMES)
    if not known and f'"{name}"' in condition:
        hint = f"put text in single quotes: '{name}'"
    return _error(f"there is no column {name}", hint or _HINT)


def _error(what: str, hint: str) -> UsageError:
    return UsageError(f"--where is not a valid condition: {what}", hint=hint)
