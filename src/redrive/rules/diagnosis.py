"""Findings in a rules table: where, what, what was expected, what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from redrive.diagnostics import Diagnostic, Severity
from redrive.rules.source import Entry

__all__ = ["EntryDiagnostic", "Reporter", "did_you_mean", "one_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryDiagnostic(Diagnostic):
    """A finding in a rules table: the place itself, and the entry it belongs to."""

    entry_line: int = 0
    """First physical line of the entry; 0 when the finding belongs to the whole table."""


@dataclass(slots=True)
class Reporter:
    """Collects the findings of one table."""

    name: str
    """Name of the table as the user knows it."""
    lines: Sequence[str]
    """The physical lines."""
    findings: list[EntryDiagnostic] = field(default_factory=list)

    def error(
        self,
        code: str,
        message: str,
        entry: Entry,
        offset: int,
        length: int = 1,
        *,
        subject: str = "",
        expected: str = "",
        hint: str = "",
    ) -> None:
        """Report what must be put right.

        Args:
            code: Class of the error, such as ``BAD_VALUE``.
            message: One sentence without a full stop.
            entry: The entry concerned.
            offset: Where in the text of the entry.
            length: Characters concerned.
            subject: The keyword concerned.
            expected: What would have been right.
            hint: What to do.
        """
        line, column, rest = entry.place(offset)
        self.findings.append(
            EntryDiagnostic(
                severity=Severity.ERROR,
                code=code,
                message=message,
                file=self.name,
                line=line,
                column=column,
                length=max(1, min(length, rest)),
                source_line=self.lines[line - 1],
                expected=expected,
                hint=hint,
                subject=subject,
                entry_line=entry.line,
            )
        )

    def error_in_table(self, code: str, message: str, *, expected: str, hint: str) -> None:
        """Report an error that belongs to no single line."""
        self.findings.append(
            EntryDiagnostic(
                severity=Severity.ERROR,
                code=code,
                message=message,
                file=self.name,
                expected=expected,
                hint=hint,
            )
        )

    def warning(
        self,
        code: str,
        message: str,
        line: int,
        column: int = 0,
        length: int = 1,
        *,
        entry_line: int = 0,
        subject: str = "",
        hint: str = "",
    ) -> None:
        """Report what is legal but suspicious; ``line`` 0 stands for the whole table."""
        self.findings.append(
            EntryDiagnostic(
                severity=Severity.WARNING,
                code=code,
                message=message,
                file=self.name,
                line=line,
                column=column,
                length=length,
                source_line=self.lines[line - 1] if line else "",
                hint=hint,
                subject=subject,
                entry_line=entry_line or line,
            )
        )


def did_you_mean(word: str, known: Iterable[str], form: str = "{}") -> str:
    """A question that names what is spelt alike, or an empty string.

    Args:
        word: What stands in the table.
        known: What could have been meant.
        form: How to show a suggestion, such as ``ACTION({})``.
    """
    similar = difflib.get_close_matches(word.upper(), list(known), n=3, cutoff=0.6)
    if not similar:
        return ""
    return f"did you mean {_alternatives([form.format(one) for one in similar])}?"


def one_of(words: Sequence[str]) -> str:
    """Some words as what was expected: ``one of YES, NO``."""
    return words[0] if len(words) == 1 else f"one of {', '.join(words)}"


def _alternatives(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"
