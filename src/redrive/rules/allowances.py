"""Warnings that a table allows by a comment: ``* redrive: allow CODE`` above a rule or within it.

So every legal table has a form that is clean, and the reason can stand beside it.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from redrive.diagnostics import Severity
from redrive.rules.diagnosis import EntryDiagnostic
from redrive.rules.source import BLANKS, entries_of

__all__ = ["without_allowed"]

_ALLOWANCE: Final = re.compile(r"\s*\*\s*redrive:\s*allow\s+([A-Z_]+(?:[\s,]+[A-Z_]+)*)")
_WHOLE_TABLE: Final = 0


def without_allowed(
    findings: Iterable[EntryDiagnostic], lines: Sequence[str]
) -> Iterator[EntryDiagnostic]:
    """The findings that no comment of the table allows.

    A comment speaks of the entry that it stands above or in; of findings about the table as a
    whole, every comment does. Errors cannot be allowed.

    Args:
        findings: What was found.
        lines: The physical lines of the table.

    Yields:
        The others, in order.
    """
    allowed = _allowed(lines)
    for finding in findings:
        if finding.severity is Severity.ERROR or finding.code not in allowed[finding.entry_line]:
            yield finding


def _allowed(lines: Sequence[str]) -> Mapping[int, set[str]]:
    """Codes by the first line of the entry for which they are allowed."""
    allowed: dict[int, set[str]] = defaultdict(set)
    comments = list(_comments(lines))
    if not comments:
        return allowed
    starts = [entry.line for entry in entries_of(lines, "")]
    for number, codes in comments:
        allowed[_entry_at(_next_line(lines, number), starts)] |= codes
        allowed[_WHOLE_TABLE] |= codes
    return allowed


def _comments(lines: Sequence[str]) -> Iterator[tuple[int, set[str]]]:
    for number, line in enumerate(lines, start=1):
        found = _ALLOWANCE.match(line)
        if found:
            yield number, set(re.split(r"[\s,]+", found[1]))


def _next_line(lines: Sequence[str], number: int) -> int:
    """The first line behind a comment that is neither a comment nor blank."""
    following = range(number + 1, len(lines) + 1)
    texts = ((it, lines[it - 1].lstrip(BLANKS)) for it in following)
    return next((it for it, text in texts if text and not text.startswith("*")), _WHOLE_TABLE)


def _entry_at(line: int, starts: Sequence[int]) -> int:
    """The first line of the entry that a line belongs to."""
    place = bisect_right(starts, line)
    return starts[place - 1] if place else _WHOLE_TABLE
