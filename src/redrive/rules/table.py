"""A rules table as a value: control data and rules in order."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from redrive.rules.backoff import BackoffPartitions
from redrive.rules.canonical import write_entries
from redrive.rules.rule import Control, RetryTo, Rule, delays_of, inserts
from redrive.rules.source import BLANKS, entries_of, physical_lines


@dataclass(frozen=True)
class RulesTable:
    """Control data and at least one rule, checked."""

    control: Control
    rules: tuple[Rule, ...]

    def canonical(self) -> str:
        """The table in its canonical layout, which reads back as an equal table.

        One rule in each entry, keywords in a fixed order, numbers by their symbolic names, no
        defaults, lines of at most 72 characters.
        """
        return "".join(f"{line}\n" for line in write_entries(self.control, self.rules))

    def formatted(self, text: str) -> str:
        """The canonical layout with the comments of the text that the table was read from.

        Comments stay above their entry; those between the lines of an entry are moved above it.
        Several blank lines become one. Without comments and blank lines it is ``canonical``.
        """
        lines = _without_repeated_blanks(self._lines_with_comments(physical_lines(text)))
        return "".join(f"{line}\n" for line in lines)

    def _lines_with_comments(self, lines: Sequence[str]) -> Iterator[str]:
        rules = {rule.line: rule for rule in self.rules}
        done = 0
        for entry in entries_of(lines, ""):
            data = {location.line for location in entry.lines}
            yield from _comments_and_blanks(lines, range(done + 1, entry.line), data)
            done = max(data)
            yield from filter(None, _comments_and_blanks(lines, range(entry.line + 1, done), data))
            if entry.line in rules:
                yield from write_entries(Control(), (rules[entry.line],))
            else:
                yield from write_entries(self.control, ())
        yield from _comments_and_blanks(lines, range(done + 1, len(lines) + 1), set())

    @cached_property
    def asked(self) -> frozenset[str]:
        """The fields of a message that determine its decision, named as in patterns.

        Fields that no rule uses and patterns that match anything are left out. Fields that a rule
        inserts into a topic's name are included, and the group of TO(GROUP).
        """
        asked = {name for rule in self.rules for name in (*rule.selective, *inserts(rule))}
        return frozenset(asked | {"GROUP"} if self.has_groups else asked)

    @property
    def has_groups(self) -> bool:
        """Whether any rule puts to the topics of groups."""
        return any(rule.to is RetryTo.GROUP for rule in self.rules)

    @property
    def has_backoff(self) -> bool:
        """Whether messages wait by their delays: those of a BACKOFF, or of ORDER(KEY)."""
        return self.control.is_ordered or any(rule.backoff is not None for rule in self.rules)

    @cached_property
    def backoff_partitions(self) -> BackoffPartitions:
        """The partitions of messages whose rule has a BACKOFF."""
        return BackoffPartitions(delays_of(self.rules), is_exact=self.control.is_ordered)

    @property
    def hash(self) -> str:
        """SHA-256 of the table's meaning, as 64 hexadecimal digits.

        Comments, layout, line numbers, the order of keywords and the spelling of values do not
        matter; the order of rules does.
        """
        control = {
            **self.control.keywords(),
            "INPUTQ": self.control.input_queue,
            "INPUTQM": self.control.input_queue_manager,
            "RETRYINT": self.control.retry_interval,
            "WAIT": self.control.seconds_to_wait,
        }
        rules = []
        for rule in self.rules:
            patterns = {name: pattern.meaning for name, pattern in rule.selective.items()}
            rules.append({**rule.keywords(), "line": None, "pattern": patterns})
        text = json.dumps([control, *rules], sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()


def _comments_and_blanks(lines: Sequence[str], numbers: range, data: set[int]) -> Iterator[str]:
    """Comments without trailing blanks, and blank lines; any other line ends an entry."""
    for number in numbers:
        line = lines[number - 1].strip(BLANKS)
        if number not in data and (not line or line.startswith("*")):
            yield line


def _without_repeated_blanks(lines: Iterable[str]) -> Iterator[str]:
    waiting = started = False
    for line in lines:
        if not line:
            waiting = started
            continue
        if waiting:
            yield ""
        waiting, started = False, True
        yield line
