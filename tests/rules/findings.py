"""Short ways to say what a table is read as, and what is found in it."""

from __future__ import annotations

from typing import Any

from redrive.diagnostics import Severity
from redrive.rules import Rule, RulesTable, parse
from redrive.rules.diagnosis import EntryDiagnostic


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


def assert_reads_back(table: RulesTable) -> None:
    """The canonical text is that of an equal table, in lines of 72 characters; once is enough."""
    canonical = table.canonical()
    again = parse(canonical).required()
    assert again == table
    assert again.hash == table.hash
    assert again.canonical() == canonical
    assert max(map(len, canonical.splitlines())) <= 72
