"""Findings in a text that a user wrote: where, what, what was expected, what to do.

Rules tables, MQSC scripts, topologies and settings all report through these values, so that every
command shows them in the same form. Like ``redrive.errors`` this module imports no package.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from enum import StrEnum
from operator import itemgetter
from typing import Final

from redrive.printable import printable


class Severity(StrEnum):
    """Whether a finding stops the job or is only a hint."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class SourceLocation:
    """A span of a user's text, as far as known."""

    file: str = ""
    """Name of the source for the user; ``<stdin>`` for standard input."""
    line: int = 0
    """1-based physical line; 0 for the whole text."""
    column: int = 0
    """1-based column in characters; 0 for the whole line."""
    length: int = 1
    """Characters to underline, starting at ``column``."""
    source_line: str = ""
    """The physical line itself, without its line end."""

    def __str__(self) -> str:
        """``file:line:column`` as far as known."""
        numbers = [self.line, self.column] if self.column else [self.line]
        return ":".join([self.file or "<input>", *(str(number) for number in numbers if number)])

    def finding(
        self,
        severity: Severity,
        code: str,
        message: str,
        *,
        expected: str = "",
        hint: str = "",
        subject: str = "",
    ) -> Diagnostic:
        """The diagnostic for this span; the arguments are fields of ``Diagnostic``."""
        return Diagnostic(
            self.file,
            self.line,
            self.column,
            self.length,
            self.source_line,
            severity=severity,
            code=code,
            message=message,
            expected=expected,
            hint=hint,
            subject=subject,
        )


UNKNOWN_LOCATION: Final = SourceLocation()
"""No location."""


def location_in(
    pieces: Sequence[tuple[int, SourceLocation]], offset: int, length: int = 1
) -> SourceLocation:
    """The location of a character in a text joined from pieces of several lines.

    Args:
        pieces: For each piece its offset in the joined text, and its location.
        offset: The character in the joined text; the text's length means its end.
        length: Characters to underline, at most to the end of the piece.

    Returns:
        The character, and the rest of its piece.
    """
    start, piece = pieces[max(0, bisect_right(pieces, offset, key=itemgetter(0)) - 1)]
    into = offset - start
    length = max(1, min(length, piece.length - into))
    return replace(piece, column=piece.column + into, length=length)


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnostic(SourceLocation):
    """One finding with its location in a source text."""

    severity: Severity
    code: str
    """Class of the finding, such as ``UNKNOWN_KEYWORD``; stable, for programs."""
    message: str
    """One sentence without a trailing full stop."""
    expected: str = ""
    """What would be valid here, such as ``one of YES, NO``."""
    hint: str = ""
    """What to do about it."""
    subject: str = ""
    """The keyword or object, for programs."""
    witness: str = ""
    """An example message, such as ``REASON=MQRC_Q_FULL``; empty if not needed."""

    def render(self) -> str:
        """The finding as text: location and message, the line with a caret, expectation and hint.

        Control characters in the user's text are shown, not sent to the terminal.
        """
        lines = [f"{self}: {self.severity}: {self.message} [{self.code}]"]
        if self.source_line:
            lines.append(f"    {self.source_line}")
            if self.column:
                lines.append(f"    {self._caret_line()}")
        if self.expected:
            lines.append(f"    expected: {self.expected}")
        if self.witness:
            lines.append(f"    for example: {self.witness}")
        if self.hint:
            lines.append(f"    hint: {self.hint}")
        return "\n".join(map(printable, lines))

    def _caret_line(self) -> str:
        before = self.source_line[: self.column - 1]
        # Tabs stay tabs, so that the caret is under its character in any terminal.
        padding = "".join("\t" if character == "\t" else " " for character in before)
        return padding + "^" + "~" * max(0, self.length - 1)


def has_errors(diagnostics: Iterable[Diagnostic]) -> bool:
    """Whether any finding is an error."""
    return any(finding.severity is Severity.ERROR for finding in diagnostics)


def did_you_mean(name: str, known: Collection[str]) -> str:
    """A hint with the known name that is most similar to ``name``; empty if none is."""
    by_lower_case = {candidate.lower(): candidate for candidate in known}
    close = get_close_matches(name.lower(), list(by_lower_case), n=1, cutoff=0.6)
    return f"did you mean {by_lower_case[close[0]]}?" if close else ""


def in_order(diagnostics: Iterable[Diagnostic]) -> tuple[Diagnostic, ...]:
    """Findings in the order of their text: by line, then by column."""
    return tuple(sorted(diagnostics, key=lambda finding: (finding.line, finding.column)))
