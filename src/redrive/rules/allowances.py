"""Warnings that a comment allows: ``* redrive: allow CODE`` above a rule or within it.

So every legal table can be free of findings, with the reason in a comment.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from redrive.diagnostics import Severity
from redrive.rules.diagnosis import EntryDiagnostic
from redrive.rules.source import entries_of, is_comment_or_blank

_ALLOWANCE: Final = re.compile(r"\s*\*\s*redrive:\s*allow\s+([A-Z_]+(?:[\s,]+[A-Z_]+)*)")
_WHOLE_TABLE: Final = 0


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
    found = ((number, _ALLOWANCE.match(line)) for number, line in enumerate(lines, start=1))
    comments = [(number, set(re.split(r"[\s,]+", it[1]))) for number, it in found if it]
    if not comments:
        return allowed
    starts = [_WHOLE_TABLE, *(entry.line for entry in entries_of(lines, ""))]
    for number, codes in comments:
        following = (
            it
            for it, line in enumerate(lines[number:], start=number + 1)
            if not is_comment_or_blank(line)
        )
        entry = starts[bisect_right(starts, next(following, _WHOLE_TABLE)) - 1]
        allowed[entry] |= codes
        allowed[_WHOLE_TABLE] |= codes
    return allowed
