"""Findings in a rules table: where, what, what was expected, what to do.

A comment ``* redrive: allow CODE`` above a rule or within it allows a warning, so that every legal
table can be free of findings, with the reason in a comment.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Final

from redrive.diagnostics import Diagnostic, Severity, SourceLocation
from redrive.rules.source import Entry, entries_of, is_comment_or_blank

_ALLOWANCE: Final = re.compile(r"\s*\*\s*redrive:\s*allow\s+([A-Z_]+(?:[\s,]+[A-Z_]+)*)")
_WHOLE_TABLE: Final = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryDiagnostic(Diagnostic):
    """A finding in a rules table: its location, and its entry."""

    entry_line: int = 0
    """First physical line of the entry; 0 when the finding belongs to the whole table."""


@dataclass(slots=True)
class Reporter:
    """Collects the findings of one table."""

    name: str
    lines: Sequence[str]
    findings: list[EntryDiagnostic] = field(default_factory=list)

    def error(
        self,
        entry: Entry,
        offset: int,
        message: str,
        expected: str,
        hint: str = "",
        *,
        code: str,
        subject: str = "",
        length: int = 1,
    ) -> None:
        """Report an error of a class such as ``BAD_VALUE`` at a place in an entry.

        The message is one sentence without a full stop; ``expected`` is what would be valid, and
        the subject is the keyword.
        """
        finding = entry.location(offset, length).finding(
            Severity.ERROR, code, message, expected=expected, hint=hint, subject=subject
        )
        self._add(finding, entry.line)

    def error_in_table(self, code: str, message: str, expected: str, hint: str) -> None:
        """Report an error that belongs to no line."""
        table = SourceLocation(self.name)
        self._add(table.finding(Severity.ERROR, code, message, expected=expected, hint=hint), 0)

    def warning(
        self,
        code: str,
        message: str,
        where: SourceLocation | int,
        *,
        entry_line: int = 0,
        subject: str = "",
        hint: str = "",
    ) -> None:
        """Report something legal but suspicious.

        A whole line is given by its number, the whole table by 0. The entry is the one that begins
        at ``where`` unless ``entry_line`` is given.
        """
        if isinstance(where, int):
            line = self.lines[where - 1] if where else ""
            where = SourceLocation(self.name, where, source_line=line)
        finding = where.finding(Severity.WARNING, code, message, hint=hint, subject=subject)
        self._add(finding, entry_line or where.line)

    def _add(self, finding: Diagnostic, entry_line: int) -> None:
        members = {member.name: getattr(finding, member.name) for member in fields(finding)}
        self.findings.append(EntryDiagnostic(**members, entry_line=entry_line))


def one_of(words: Sequence[str]) -> str:
    """The expectation of one of some words: ``one of YES, NO``."""
    return words[0] if len(words) == 1 else f"one of {', '.join(words)}"


def without_allowed(
    findings: Iterable[EntryDiagnostic], lines: Sequence[str]
) -> Iterator[EntryDiagnostic]:
    """The findings that no comment of the table allows, in order.

    A comment applies to the entry below or around it, and to findings about the whole table. Errors
    cannot be allowed.
    """
    allowed = _allowed_codes(lines)
    for finding in findings:
        if finding.severity is Severity.ERROR or finding.code not in allowed[finding.entry_line]:
            yield finding


def _allowed_codes(lines: Sequence[str]) -> Mapping[int, set[str]]:
    allowed: dict[int, set[str]] = defaultdict(set)
    starts: list[int] = []
    waiting: set[str] = set()
    for number, line in enumerate(lines, start=1):
        if is_comment_or_blank(line):
            allowance = _ALLOWANCE.match(line)
            waiting.update(re.split(r"[\s,]+", allowance[1]) if allowance else ())
        elif waiting:
            starts = starts or [_WHOLE_TABLE, *(entry.line for entry in entries_of(lines, ""))]
            allowed[starts[bisect_right(starts, number) - 1]] |= waiting
            allowed[_WHOLE_TABLE] |= waiting
            waiting = set()
    allowed[_WHOLE_TABLE] |= waiting
    return allowed
