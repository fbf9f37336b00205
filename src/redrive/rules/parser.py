"""Reading a rules table: text to ``RulesTable``, with every finding at once.

Checks run per entry in the order of rules-table specification 5.2: syntax; duplicates; class,
range and length of values; combination. Then over the table: one control entry and only at the
start, at least one rule. A table with any error is no table (specification 5.2, D-PROC-3).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice

from redrive.diagnostics import has_errors
from redrive.errors import ConfigurationError
from redrive.rules.allowances import without_allowed
from redrive.rules.backoff import PARTITIONS, Backoff
from redrive.rules.diagnosis import EntryDiagnostic, Reporter
from redrive.rules.dialect.keywords import (
    IBM_VOCABULARY,
    KAFKA_VOCABULARY,
    Vocabulary,
    dialect_of,
    field_order,
)
from redrive.rules.dialect.values import ExpressionReader, read_backoff, read_template
from redrive.rules.keywords import Dialect, Role, Value
from redrive.rules.lint import lint_entry, lint_table
from redrive.rules.patterns import Pattern
from redrive.rules.rule import DEFAULT_RETRY_INTERVAL, Action, Authority, Control, Rule, Wait
from redrive.rules.source import Entry, entries_of, physical_lines
from redrive.rules.syntax import Clause, ClauseReader
from redrive.rules.table import RulesTable
from redrive.rules.values import ValueReader

__all__ = ["ParseResult", "parse"]


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
            hint="put every error right; redrive check shows them again",
            diagnostics=self.diagnostics,
        )


def parse(
    text: str, *, name: str = "<input>", strict: bool = True, input_queue: str = ""
) -> ParseResult:
    """Read a rules table.

    Args:
        text: The table, as read from its file; never raises, whatever it holds.
        name: How the user knows the table, for findings.
        strict: Whether clauses must be separated by a blank or comma, as on AIX, Linux, Windows
            and IBM i; z/OS reads them without (question Q-06).
        input_queue: The dead-letter queue if it is known, for the warning about rules that forward
            to it; INPUTQ of the table otherwise.

    Returns:
        The table, or None with at least one error; and every finding.
    """
    lines = physical_lines(text)
    report = Reporter(name, lines)
    entries = entries_of(lines, name)
    first = list(islice(entries, 1))
    dialect = dialect_of(first[0].text) if first else Dialect.IBM
    vocabulary = IBM_VOCABULARY if dialect is Dialect.IBM else KAFKA_VOCABULARY
    reader = _TableReader(report, vocabulary, strict=strict)
    for entry in chain(first, entries):
        reader.read(entry)
    table = reader.finished()
    if table is not None:
        lint_table(table, report, input_queue=input_queue)
    findings = without_allowed(report.findings, lines)
    return ParseResult(table, tuple(sorted(findings, key=_order)), dialect)


def _order(finding: EntryDiagnostic) -> float:
    """The entry a finding belongs to; what belongs to the whole table comes last."""
    return finding.entry_line or float("inf")


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
        """Read one entry: control data or a rule."""
        reader = ClauseReader(entry, self._report, strict=self._strict, vocabulary=self._vocabulary)
        clauses = list(reader.clauses())
        roles = {clause.keyword.role for clause in clauses}
        unique = self._without_duplicates(entry, clauses)
        values = ValueReader(entry, self._report)
        if roles == {Role.CONTROL}:
            self._read_control(entry, unique, values)
        else:
            self._read_rule(entry, unique, values, complete=not reader.lost)
        lint_entry(entry, clauses, self._report, self._vocabulary.dialect)

    def finished(self) -> RulesTable | None:
        """The table, unless there was an error."""
        if not self._rule_entries:
            self._report.error_in_table(
                "NO_RULES",
                "the table has no rule",
                expected="at least one rule",
                hint="ACTION(IGNORE) leaves every message where it is",
            )
        self._check_delays()
        if has_errors(self._report.findings):
            return None
        return RulesTable(self._control, tuple(self._rules))

    def _check_delays(self) -> None:
        """Messages wait apart for each delay, and there is not room for any number of them."""
        delays = {
            delay
            for rule in self._rules
            if rule.backoff is not None
            for delay in rule.backoff.distinct(rule.retry)
        }
        if len(delays) > PARTITIONS:
            self._report.error_in_table(
                "TOO_MANY_DELAYS",
                f"the BACKOFFs of the table have {len(delays)} different delays",
                expected=f"at most {PARTITIONS} between all rules",
                hint="take a larger factor, a shorter longest delay, a smaller RETRY, or the same"
                " BACKOFF for several rules",
            )

    def _without_duplicates(self, entry: Entry, clauses: Sequence[Clause]) -> dict[str, Clause]:
        unique: dict[str, Clause] = {}
        for clause in clauses:
            name = clause.name
            if name not in unique:
                unique[name] = clause
                continue
            self._report.error(
                "DUPLICATE",
                f"{name} is given twice",
                entry,
                clause.offset,
                len(clause.keyword.name),
                subject=clause.keyword.name,
                expected=f"{name} once",
                hint="every rule begins on a new line",
            )
        return unique

    def _read_control(
        self, entry: Entry, clauses: Mapping[str, Clause], values: ValueReader
    ) -> None:
        settings = {name: values.setting(clause) for name, clause in clauses.items()}
        if self._control_entries or self._rule_entries:
            self._misplaced_control(entry, clauses)
        elif None not in settings.values():
            self._control = _control(settings, self._vocabulary.dialect)
        self._control_entries += 1

    def _misplaced_control(self, entry: Entry, clauses: Mapping[str, Clause]) -> None:
        name, clause = next(iter(clauses.items()))
        second = not self._rule_entries
        self._report.error(
            "COMBINATION",
            "there is a second control entry" if second else "control data stand behind a rule",
            entry,
            clause.offset,
            len(name),
            subject=name,
            expected="one control entry, before all rules",
            hint="end the line before with + to go on with the control entry"
            if second
            else "move it to the start of the table",
        )

    def _read_rule(
        self, entry: Entry, clauses: Mapping[str, Clause], values: ValueReader, *, complete: bool
    ) -> None:
        self._rule_entries += 1
        patterns: dict[str, Pattern | None] = {}
        settings: dict[str, str | int | None] = {}
        expressions = ExpressionReader(entry, self._report)
        for name, clause in clauses.items():
            if clause.keyword.role is not Role.PATTERN:
                settings[name] = self._setting(clause, entry, values)
            elif clause.value is not None and clause.alternatives:
                patterns[name] = expressions.pattern(clause)
            else:
                patterns[name] = values.pattern(clause)
        combination = _Combination(entry, clauses, self._report, self._vocabulary)
        combination.check(settings, complete=complete)
        if "ACTION" in settings and None not in (*patterns.values(), *settings.values()):
            self._rules.append(_rule(entry.line, patterns, settings))

    def _setting(self, clause: Clause, entry: Entry, values: ValueReader) -> str | int | None:
        read = _DIALECT_SETTINGS.get(clause.keyword.value)
        if read is not None and clause.value is not None:
            return read(clause, entry, self._report)
        return values.setting(clause)


class _Combination:
    """Which keywords may stand together in a rule (specification 4)."""

    def __init__(
        self,
        entry: Entry,
        clauses: Mapping[str, Clause],
        report: Reporter,
        vocabulary: Vocabulary,
    ) -> None:
        self._entry = entry
        self._clauses = clauses
        self._report = report
        self._vocabulary = vocabulary
        self._actions = vocabulary.keywords["ACTION"].words

    def check(self, settings: Mapping[str, str | int | None], *, complete: bool) -> None:
        """Report what is missing, conflicting or misplaced.

        Args:
            settings: Values of the rule's control and action keywords.
            complete: Whether all of the entry could be read; if not, what seems to be missing may
                stand in the part that was not understood.
        """
        for name, clause in self._clauses.items():
            if clause.keyword.role is Role.CONTROL:
                self._conflict(
                    name,
                    f"{name} is control data and cannot stand in a rule",
                    "control keywords in an entry of their own, before all rules",
                    f"move {name} to the first entry of the table",
                )
        if "ACTION" in settings:
            self._check_forward(settings, complete=complete)
        elif complete:
            self._missing_action()

    def _missing_action(self) -> None:
        bare = "RETRY" in self._clauses
        self._report.error(
            "COMBINATION",
            "the rule has no ACTION",
            self._entry,
            len(self._entry.text) - len(self._entry.text.lstrip(" \t,")),
            len(self._entry.text.strip(" \t,")),
            subject="ACTION",
            expected=f"one of {', '.join(f'ACTION({word})' for word in self._actions)}",
            hint="RETRY(n) is only the number of tries, the action is ACTION(RETRY)"
            if bare
            else "a rule that goes on in the next line ends in + or -",
        )

    def _check_forward(self, settings: Mapping[str, str | int | None], *, complete: bool) -> None:
        action = settings["ACTION"]
        if action is None:
            return
        if action != Action.FWD:
            for name in self._clauses:
                if name in _WITH_FORWARD_ONLY:
                    self._conflict(
                        name,
                        f"{name} goes with ACTION(FWD) only, not with ACTION({action})",
                        "ACTION(FWD)",
                        _CONFLICT_HINTS.get((str(action), name), ""),
                    )
        elif "FWDT" in self._clauses:
            self._check_topic()
        elif "FWDQ" not in self._clauses and complete:
            is_ibm = self._vocabulary.dialect is Dialect.IBM
            clause = self._clauses["ACTION"]
            self._report.error(
                "COMBINATION",
                "ACTION(FWD) needs FWDQ" if is_ibm else "ACTION(FWD) needs FWDT or FWDQ",
                self._entry,
                clause.offset,
                clause.value_offset + len(clause.raw) + 1 - clause.offset,
                subject="FWDQ" if is_ibm else "FWDT",
                expected="FWDQ(queue), FWDQ(&DESTQ) or FWDQ(&REPLYQ)"
                if is_ibm
                else "FWDT('topic') or FWDQ(queue)",
                hint="to put a message to where it was going, write ACTION(RETRY)",
            )

    def _check_topic(self) -> None:
        for name in ("FWDQ", "FWDQM"):
            if name in self._clauses:
                self._conflict(
                    name,
                    f"{name} and FWDT cannot stand together: a message goes to one place",
                    "FWDT(topic), or FWDQ(queue) with or without FWDQM",
                    "FWDT names a topic of Kafka, FWDQ and FWDQM names of a topology",
                )

    def _conflict(self, name: str, message: str, expected: str, hint: str) -> None:
        clause = self._clauses[name]
        self._report.error(
            "COMBINATION",
            message,
            self._entry,
            clause.offset,
            len(name),
            subject=name,
            expected=expected,
            hint=hint,
        )


_DIALECT_SETTINGS = {Value.TOPIC: read_template, Value.BACKOFF: read_backoff}
"""How values of DIALECT(KAFKA) are read that are no patterns."""

_WITH_FORWARD_ONLY = {"FWDQ", "FWDQM", "FWDT", "HEADER"}
_CONFLICT_HINTS = {
    ("RETRY", "HEADER"): "ACTION(RETRY) always removes the header",
    ("RETRY", "FWDQ"): "to try first and then forward, write two rules with the same pattern: "
    "ACTION(RETRY) RETRY(n), then ACTION(FWD) FWDQ(queue)",
}


def _control(settings: Mapping[str, str | int | None], dialect: Dialect) -> Control:
    interval, wait = settings.get("RETRYINT"), settings.get("WAIT")
    return Control(
        input_queue=str(settings.get("INPUTQ", "")),
        input_queue_manager=str(settings.get("INPUTQM", "")),
        written_interval=DEFAULT_RETRY_INTERVAL if interval is None else int(interval),
        wait=Wait() if wait is None else Wait(wait),
        dialect=dialect,
    )


def _rule(
    line: int, patterns: Mapping[str, Pattern | None], settings: Mapping[str, str | int | None]
) -> Rule:
    return Rule(
        line=line,
        patterns={
            name: pattern
            for name in sorted(patterns, key=field_order)
            if (pattern := patterns[name]) is not None
        },
        action=Action(str(settings["ACTION"])),
        forward_queue=str(settings.get("FWDQ", "")),
        forward_queue_manager=str(settings.get("FWDQM", "")),
        forward_topic=str(settings.get("FWDT", "")),
        header=settings.get("HEADER", "YES") == "YES",
        authority=Authority(str(settings.get("PUTAUT", "DEF"))),
        retry=int(settings.get("RETRY") or 1),
        backoff=Backoff.of(str(settings["BACKOFF"])) if "BACKOFF" in settings else None,
    )
