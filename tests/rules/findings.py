"""Short ways to say what a table is read as, and what is found in it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from unittest.mock import patch

from redrive.diagnostics import Severity
from redrive.rules import Matcher, Rule, RulesTable, explain, parse, selection
from redrive.rules.diagnosis import EntryDiagnostic
from redrive.rules.selection import turns


def read(text: str, *, strict: bool = True) -> tuple[Rule, ...]:
    """The rules of a table without errors."""
    return parse(text, strict=strict).required().rules


def rule(text: str) -> dict[str, Any]:
    """The only rule of a table, by keywords."""
    (only,) = read(text)
    return only.keywords()


def control(text: str) -> dict[str, Any]:
    """The control data of a table, by keywords."""
    return {**parse(text).required().control.keywords()}


def pattern(clause: str) -> Any:
    """The value of the only pattern of a rule."""
    (value,) = rule(f"{clause} ACTION(IGNORE)\n")["pattern"].values()
    return value


def findings(text: str, severity: Severity, **options: Any) -> list[EntryDiagnostic]:
    return [
        finding for finding in parse(text, **options).diagnostics if finding.severity is severity
    ]


def errors(text: str) -> list[tuple[str, int, str]]:
    """The errors of a table: class, line of the entry, keyword."""
    return [
        (error.code, error.entry_line, error.subject) for error in findings(text, Severity.ERROR)
    ]


def warnings(text: str, **options: Any) -> list[tuple[str, int]]:
    """The warnings of a table: class and line."""
    return [(warning.code, warning.line) for warning in findings(text, Severity.WARNING, **options)]


def assert_matched(
    table: RulesTable, first_rules: int, expected: Iterable[tuple[dict[str, str | int], int]]
) -> None:
    """The index, its first rule and explanations find the rules that one by one match a message.

    Expected are messages with bits, of which each stands for a rule.
    """
    with patch.object(selection, "FIRST_RULES", first_rules):
        matcher = Matcher(table)
    for message, rules in expected:
        assert matcher.candidates_of(message) == rules
        assert matcher.first_of(message) == ((rules & -rules).bit_length() - 1 if rules else None)
        explanation = explain(table, message)
        assert sum(verdict.matches << verdict.index for verdict in explanation.verdicts) == rules
        assert explanation.turns == tuple(turns(table, rules))


def assert_reads_back(table: RulesTable) -> None:
    """The canonical text is that of an equal table, in lines of 72 characters; once is enough."""
    canonical = table.canonical()
    again = parse(canonical).required()
    assert again == table
    assert again.hash == table.hash
    assert again.canonical() == canonical
    assert max(map(len, canonical.splitlines())) <= 72
