"""A table in its canonical form with its comments, for tables in version control."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from redrive.rules.canonical import write_entries
from redrive.rules.rule import Control
from redrive.rules.source import BLANKS, entries_of, physical_lines
from redrive.rules.table import RulesTable


def format_table(table: RulesTable, text: str) -> str:
    """The canonical form of a table, with the comments of its source text.

    Comments stay above their entry; those between the lines of an entry are moved above it. Several
    blank lines become one. Without comments and blank lines the result is ``RulesTable.canonical``.
    """
    lines = list(_format_lines(table, physical_lines(text)))
    return "".join(f"{line}\n" for line in _without_repeated_blanks(lines))


def _format_lines(table: RulesTable, lines: Sequence[str]) -> Iterator[str]:
    rules = {rule.line: rule for rule in table.rules}
    done = 0
    for entry in entries_of(lines, ""):
        data = {location.line for location in entry.lines}
        last = max(data)
        yield from _comments_and_blanks(lines, range(done + 1, entry.line), data)
        inside = _comments_and_blanks(lines, range(entry.line + 1, last), data)
        yield from (line for line in inside if line)
        rule = rules.get(entry.line)
        if rule is None:
            yield from write_entries(table.control, ())
        else:
            yield from write_entries(Control(), (rule,))
        done = last
    yield from _comments_and_blanks(lines, range(done + 1, len(lines) + 1), set())


def _comments_and_blanks(lines: Sequence[str], numbers: range, data: set[int]) -> Iterator[str]:
    """Comments without trailing blanks, and blank lines; any other line ends an entry."""
    for number in numbers:
        line = lines[number - 1].strip(BLANKS)
        if number not in data and (not line or line.startswith("*")):
            yield line


def _without_repeated_blanks(lines: Sequence[str]) -> Iterator[str]:
    waiting = started = False
    for line in lines:
        if not line:
            waiting = started
            continue
        if waiting:
            yield ""
        waiting, started = False, True
        yield line
