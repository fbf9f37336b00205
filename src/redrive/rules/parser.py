"""Reading a rules table: text to ``RulesTable``, with every finding at once.

Checks run per entry in the order of rules-table specification 5.2: syntax; duplicates; class,
range and length of values; combination. Then over the table: one control entry and only at the
start, at least one rule. A table with any error is no table (specification 5.2, D-PROC-3).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from redrive.diagnostics import has_errors
from redrive.errors import ConfigurationError
from redrive.rules.allowances import without_allowed
from redrive.rules.backoff import PARTITIONS, Backoff
from redrive.rules.diagnosis import EntryDiagnostic, Reporter
from redrive.rules.keywords import IBM, Dialect, Role, Vocabulary, field_order, vocabulary_of
from redrive.rules.lint import lint_entry, lint_table
from redrive.rules.patterns import Pattern
from redrive.rules.rule import DEFAULT_RETRY_INTERVAL, Action, Authority, Control, Rule, Wait
from redrive.rules.source import Entry, entries_of, physical_lines
from redrive.rules.syntax import Clause, ClauseReader
from redrive.rules.table import RulesTable
from redrive.rules.values import Setting, ValueReader


@dataclass(frozen=True, slots=True)
class ParseResult:
    """What came of reading a table."""

    table: RulesTable | None
    """The table; None if there was any error."""
    diagnostics: tuple[EntryDiagnostic, ...]
    """Errors and warnings in the order of the entries they belong to."""
    dialect: Dialect = Dialect.IBM
    """Whose language the table is written in, whether it has errors or not."""

    def required(self) -> RulesTable:
        """The table.

        Raises:
            ConfigurationError: The table has errors; all findings are attached.
        """
        if self.table is not None:
            return self.table
        count = sum(finding.severity == "error" for finding in self.diagnostics)
        name = self.diagnostics[0].file
        raise ConfigurationError(
            f"{name}: {count} error{'s' * (count != 1)} in the rules table, nothing was started",
            hint="fix all errors; redrive check shows them again",
            diagnostics=self.diagnostics,
        )


def parse(
    text: str,
    *,
    name: str = "<input>",
    strict: bool = True,
    input_queue: str = "",
    schemes: Collection[str] | None = (),
) -> ParseResult:
    """Read a rules table.

    Args:
        text: The table, as read from its file; never raises, whatever it holds.
        name: How the user knows the table, for findings.
        strict: Whether clauses must be separated by a blank or comma, as on AIX, Linux, Windows
            and IBM i; z/OS reads them without (question Q-06).
        input_queue: The dead-letter queue if it is known, for the warning about rules that forward
            to it; INPUTQ of the table otherwise.
        schemes: Names of schemes that the settings add, for the warning about an unknown SCHEME;
            None to leave it out because they are not known.

    Returns:
        The table, or None with at least one error; and every finding.
    """
    lines = physical_lines(text)
    report = Reporter(name, lines)
    entries = list(entries_of(lines, name))
    vocabulary = vocabulary_of(entries[0].text) if entries else IBM
    reader = _TableReader(report, vocabulary, strict=strict)
    for entry in entries:
        reader.read(entry)
    table = reader.finished()
    if table is not None:
        lint_table(table, report, input_queue=input_queue, schemes=schemes)
    findings = without_allowed(report.findings, lines)
    # What belongs to the whole table comes last.
    ordered = sorted(findings, key=lambda finding: finding.entry_line or float("inf"))
    return ParseResult(table, tuple(ordered), vocabulary.dialect)


_SECOND_CONTROL: Final = (
    "there is a second control entry",
    "end the line before with + to go on with the control entry",
)
_MISPLACED_CONTROL: Final = (
    "control data stand behind a rule",
    "move it to the start of the table",
)


class _TableReader:
    """Reads entries one after the other and builds the table."""

    def __init__(self, report: Reporter, vocabulary: Vocabulary, *, strict: bool) -> None:
        self._report = report
        self._vocabulary = vocabulary
        self._strict = strict
        self._control = Control(dialect=vocabulary.dialect)
        self._rules: list[Rule] = []
        self._control_entries = 0
        self._rule_entries = 0

    def read(self, entry: Entry) -> None:
        reader = ClauseReader(entry, self._report, self._vocabulary, strict=self._strict)
        clauses = list(reader.clauses())
        unique = self._without_duplicates(entry, clauses)
        values = ValueReader(entry, self._report)
        if {clause.keyword.role for clause in clauses} == {Role.CONTROL}:
            self._read_control(entry, unique, values)
        else:
            self._read_rule(entry, unique, values, complete=not reader.lost)
        lint_entry(entry, clauses, self._report, self._vocabulary.dialect)

    def finished(self) -> RulesTable | None:
        if not self._rule_entries:
            self._report.error_in_table(
                "NO_RULES",
                "the table has no rule",
                expected="at least one rule",
                hint="ACTION(IGNORE) leaves every message where it is",
            )
        backoffs = ((rule.backoff, rule.retry) for rule in self._rules if rule.backoff is not None)
        delays = {delay for backoff, retry in backoffs for delay in backoff.distinct(retry)}
        # Messages wait apart for each delay, and there is not room for any number of them.
        if len(delays) > PARTITIONS:
            self._report.error_in_table(
                "TOO_MANY_DELAYS",
                f"the BACKOFFs of the table have {len(delays)} different delays",
                expected=f"at most {PARTITIONS} between all rules",
                hint="take a larger factor, a shorter longest delay, a smaller RETRY, or the same"
                " BACKOFF for several rules",
            )
        if has_errors(self._report.findings):
            return None
        return RulesTable(self._control, tuple(self._rules))

    def _without_duplicates(self, entry: Entry, clauses: Sequence[Clause]) -> dict[str, Clause]:
        unique: dict[str, Clause] = {}
        for clause in clauses:
            name = clause.name
            if unique.setdefault(name, clause) is not clause:
                self._report.error(
                    entry,
                    clause.offset,
                    f"{name} is given twice",
                    f"{name} once",
                    "every rule begins on a new line",
                    code="DUPLICATE",
                    subject=clause.keyword.name,
                    length=len(clause.keyword.name),
                )
        return unique

    def _read_control(
        self, entry: Entry, clauses: Mapping[str, Clause], values: ValueReader
    ) -> None:
        settings = {name: values.setting(clause) for name, clause in clauses.items()}
        self._control_entries += 1
        if self._control_entries == 1 and not self._rule_entries:
            known = {name: it for name, it in settings.items() if it is not None}
            if len(known) == len(settings):
                self._control = _control(known, self._vocabulary.dialect)
            return
        name, clause = next(iter(clauses.items()))
        message, hint = _MISPLACED_CONTROL if self._rule_entries else _SECOND_CONTROL
        self._report.error(
            entry,
            clause.offset,
            message,
            "one control entry, before all rules",
            hint,
            code="COMBINATION",
            subject=name,
            length=len(name),
        )

    def _read_rule(
        self, entry: Entry, clauses: Mapping[str, Clause], values: ValueReader, *, complete: bool
    ) -> None:
        self._rule_entries += 1
        patterns: dict[str, Pattern] = {}
        settings: dict[str, Setting] = {}
        for name, clause in clauses.items():
            if clause.keyword.role is Role.PATTERN:
                pattern = values.pattern(clause)
                patterns |= {} if pattern is None else {name: pattern}
            else:
                setting = values.setting(clause)
                settings |= {} if setting is None else {name: setting}
        combination = _Combination(entry, clauses, self._report, self._vocabulary)
        combination.check(settings.get("ACTION"), complete=complete)
        if "ACTION" in settings and len(patterns) + len(settings) == len(clauses):
            self._rules.append(_rule(entry.line, patterns, settings))


class _Combination:
    """Which keywords may stand together in a rule (specification 4)."""

    def __init__(
        self,
        entry: Entry,
        clauses: Mapping[str, Clause],
        report: Reporter,
        vocabulary: Vocabulary,
    ) -> None:
        self._text = entry.text
        self._clauses = clauses
        self._error = partial(report.error, entry, code="COMBINATION")
        self._vocabulary = vocabulary

    def check(self, action: Setting | None, *, complete: bool) -> None:
        """Report what is missing, conflicting or misplaced.

        If not all of the entry could be read, what seems to be missing may stand in the part that
        was not understood. The action is None if there is none that could be read.
        """
        for name, clause in self._clauses.items():
            if clause.keyword.role is Role.CONTROL:
                self._conflict(
                    name,
                    f"{name} is control data and cannot stand in a rule",
                    "control keywords in an entry of their own, before all rules",
                    f"move {name} to the first entry of the table",
                )
        if "ACTION" not in self._clauses:
            if complete:
                self._missing_action()
        elif action == Action.FWD:
            self._check_forward(complete=complete)
        elif action is not None:
            for name in filter(_WITH_FORWARD_ONLY.__contains__, self._clauses):
                message = f"{name} goes with ACTION(FWD) only, not with ACTION({action})"
                hint = _CONFLICT_HINTS.get((str(action), name), "")
                self._conflict(name, message, "ACTION(FWD)", hint)

    def _missing_action(self) -> None:
        actions = self._vocabulary.keywords["ACTION"].words
        self._error(
            len(self._text) - len(self._text.lstrip(" \t,")),
            "the rule has no ACTION",
            f"one of {', '.join(f'ACTION({word})' for word in actions)}",
            "RETRY(n) is only the number of tries, the action is ACTION(RETRY)"
            if "RETRY" in self._clauses
            else "a rule that goes on in the next line ends in + or -",
            subject="ACTION",
            length=len(self._text.strip(" \t,")),
        )

    def _check_forward(self, *, complete: bool) -> None:
        if "FWDT" in self._clauses:
            for name in self._clauses:
                if name in {"FWDQ", "FWDQM"}:
                    self._conflict(
                        name,
                        f"{name} and FWDT cannot stand together: a message goes to one place",
                        "FWDT(topic), or FWDQ(queue) with or without FWDQM",
                        "FWDT names a topic of Kafka, FWDQ and FWDQM names of a topology",
                    )
        elif "FWDQ" not in self._clauses and complete:
            message, subject = "ACTION(FWD) needs FWDT or FWDQ", "FWDT"
            expected = "FWDT('topic') or FWDQ(queue)"
            if self._vocabulary is IBM:
                message, subject = "ACTION(FWD) needs FWDQ", "FWDQ"
                expected = "FWDQ(queue), FWDQ(&DESTQ) or FWDQ(&REPLYQ)"
            hint = "to put a message to where it was going, write ACTION(RETRY)"
            clause = self._clauses["ACTION"]
            length = clause.value_offset + len(clause.raw) + 1 - clause.offset
            self._error(clause.offset, message, expected, hint, subject=subject, length=length)

    def _conflict(self, name: str, message: str, expected: str, hint: str) -> None:
        offset = self._clauses[name].offset
        self._error(offset, message, expected, hint, subject=name, length=len(name))


_WITH_FORWARD_ONLY = {"FWDQ", "FWDQM", "FWDT", "HEADER"}
_CONFLICT_HINTS = {
    ("RETRY", "HEADER"): "ACTION(RETRY) always removes the header",
    ("RETRY", "FWDQ"): "to try first and then forward, write two rules with the same pattern: "
    "ACTION(RETRY) RETRY(n), then ACTION(FWD) FWDQ(queue)",
}


def _control(settings: Mapping[str, Setting], dialect: Dialect) -> Control:
    wait = settings.get("WAIT", "YES")
    assert not isinstance(wait, Backoff), "WAIT is a word or seconds"
    return Control(
        input_queue=str(settings.get("INPUTQ", "")),
        input_queue_manager=str(settings.get("INPUTQM", "")),
        written_interval=int(str(settings.get("RETRYINT", DEFAULT_RETRY_INTERVAL))),
        wait=Wait(wait),
        dialect=dialect,
    )


def _rule(line: int, patterns: Mapping[str, Pattern], settings: Mapping[str, Setting]) -> Rule:
    backoff = settings.get("BACKOFF")
    return Rule(
        line=line,
        patterns={name: patterns[name] for name in sorted(patterns, key=field_order)},
        action=Action(str(settings["ACTION"])),
        forward_queue=str(settings.get("FWDQ", "")),
        forward_queue_manager=str(settings.get("FWDQM", "")),
        forward_topic=str(settings.get("FWDT", "")),
        header=settings.get("HEADER", "YES") == "YES",
        authority=Authority(str(settings.get("PUTAUT", "DEF"))),
        retry=int(str(settings.get("RETRY", 1))),
        backoff=backoff if isinstance(backoff, Backoff) else None,
    )
