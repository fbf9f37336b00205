"""Reading a rules table: text to ``RulesTable``, with all findings and warnings.

Checks run per entry: syntax; duplicates; class, range and length of values; combination. Then over
the table: one control entry and only at the start, at least one rule. A table with any error is
refused.

Warnings are about legal but probably unintended text. Every table gets them about its lines; only a
table without errors gets them about its rules. ``redrive.rules.analysis`` finds how rules interact.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from redrive.diagnostics import did_you_mean, has_errors
from redrive.errors import ConfigurationError
from redrive.messages.schemes import GROUP_SCHEMES, SCHEME_NAMES
from redrive.printable import counted
from redrive.rules.backoff import HOLDS, PARTITIONS, Backoff
from redrive.rules.canonical import LINE_LENGTH, write_clause
from redrive.rules.diagnosis import EntryDiagnostic, Reporter, without_allowed
from redrive.rules.keywords import (
    IBM,
    Dialect,
    KeywordRole,
    Value,
    Vocabulary,
    field_order,
    vocabulary_of,
)
from redrive.rules.patterns import NotPattern, Pattern, StringPattern, members_of
from redrive.rules.rule import (
    DEFAULT_RETRY_INTERVAL,
    Action,
    Authority,
    Control,
    RetryTo,
    Rule,
    delays_of,
    inserts,
    known_names,
)
from redrive.rules.source import BLANKS, Entry, entries_of, is_comment_or_blank, physical_lines
from redrive.rules.syntax import Clause, ClauseReader
from redrive.rules.table import RulesTable
from redrive.rules.values import Setting, ValueReader


@dataclass(frozen=True, slots=True)
class ParseResult:
    """The result of reading a table."""

    table: RulesTable | None
    diagnostics: tuple[EntryDiagnostic, ...]
    """Errors and warnings in the order of their entries."""
    dialect: Dialect = Dialect.IBM
    """The dialect of the table, whether it has errors or not."""

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
            f"{name}: {counted(count, 'error')} in the rules table, nothing was started",
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
        text: The table, as read from its file; no content makes this raise.
        name: The name of the table in findings.
        strict: Whether clauses must be separated by a blank or comma, as on AIX, Linux, Windows
            and IBM i; z/OS reads them without.
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
    # Findings about the whole table come last.
    ordered = sorted(findings, key=lambda finding: finding.entry_line or float("inf"))
    return ParseResult(table, tuple(ordered), vocabulary.dialect)


_SECOND_CONTROL: Final = (
    "there is a second control entry",
    "one control entry, before all rules",
    "end the previous line with + to continue the control entry",
)
_MISPLACED_CONTROL: Final = (
    "control data after a rule",
    "one control entry, before all rules",
    "move it to the start of the table",
)
_ONLY_WITH: Final = {
    **dict.fromkeys(("FWDQ", "FWDQM", "FWDT", "HEADER"), Action.FWD),
    "TO": Action.RETRY,
}
_CONFLICT_HINTS: Final = {
    ("RETRY", "HEADER"): "ACTION(RETRY) always removes the header",
    ("RETRY", "FWDQ"): "to try first and then forward, write two rules with the same pattern: "
    "ACTION(RETRY) RETRY(n), then ACTION(FWD) FWDQ(queue)",
    ("FWD", "TO"): "FWDT('&TOPIC.&GROUP') names a topic with the group that failed",
}


class _TableReader:
    """Reads entries in order and builds the table."""

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
        unique: dict[str, Clause] = {}
        for clause in clauses:
            if unique.setdefault(clause.name, clause) is not clause:
                hint = "every rule begins on a new line"
                about = f"{clause.name} is given twice", f"{clause.name} once", hint
                self._conflict(entry, clause, *about, code="DUPLICATE")
        values = ValueReader(entry, self._report)
        if {clause.keyword.role for clause in clauses} == {KeywordRole.CONTROL}:
            self._read_control(entry, unique, values)
        else:
            self._read_rule(entry, unique, values, complete=not reader.lost)
        lint_entry(entry, clauses, self._report, self._vocabulary.dialect)

    def finished(self) -> RulesTable | None:
        if not self._rule_entries:
            hint = "ACTION(IGNORE) leaves every message where it is"
            about = "the table has no rule", "at least one rule", hint
            self._report.error_in_table("NO_RULES", *about)
        delays = delays_of(self._rules)
        holds = set(HOLDS) - delays if self._control.is_ordered else set[int]()
        most = PARTITIONS - len(holds)
        # Each delay needs its own partitions, whose number is limited.
        if len(delays) > most:
            self._report.error_in_table(
                "TOO_MANY_DELAYS",
                f"the BACKOFFs of the table have {len(delays)} different delays",
                f"at most {most} between all rules" + " under ORDER(KEY)" * bool(holds),
                "use a larger factor, a shorter longest delay, a smaller RETRY, or the same"
                " BACKOFF for several rules",
            )
        if has_errors(self._report.findings):
            return None
        return RulesTable(self._control, tuple(self._rules))

    def _read_control(
        self, entry: Entry, clauses: Mapping[str, Clause], values: ValueReader
    ) -> None:
        settings = {name: values.setting(clause) for name, clause in clauses.items()}
        self._control_entries += 1
        if self._control_entries > 1 or self._rule_entries:
            about = _MISPLACED_CONTROL if self._rule_entries else _SECOND_CONTROL
            self._conflict(entry, next(iter(clauses.values())), *about)
            return
        known = {name: setting for name, setting in settings.items() if setting is not None}
        if len(known) == len(settings):
            self._control = _control(known, self._vocabulary.dialect)

    def _read_rule(
        self, entry: Entry, clauses: Mapping[str, Clause], values: ValueReader, *, complete: bool
    ) -> None:
        self._rule_entries += 1
        patterns: dict[str, Pattern] = {}
        settings: dict[str, Setting] = {}
        for name, clause in clauses.items():
            if clause.keyword.role is KeywordRole.PATTERN:
                pattern = values.pattern(clause)
                patterns |= {} if pattern is None else {name: pattern}
            else:
                setting = values.setting(clause)
                settings |= {} if setting is None else {name: setting}
        self._check_combination(entry, clauses, settings.get("ACTION"), complete=complete)
        if "ACTION" in settings and len(patterns) + len(settings) == len(clauses):
            self._rules.append(_rule(entry.line, patterns, settings))

    def _check_combination(
        self,
        entry: Entry,
        clauses: Mapping[str, Clause],
        action: Setting | None,
        *,
        complete: bool,
    ) -> None:
        """Report what is missing, conflicting or misplaced.

        If part of the entry could not be read, what seems to be missing may be in that part. The
        action is None if none could be read.
        """
        for name, clause in clauses.items():
            if clause.keyword.role is KeywordRole.CONTROL:
                message = f"{name} is control data and cannot stand in a rule"
                expected = "control keywords in an entry of their own, before all rules"
                hint = f"move {name} to the first entry of the table"
                self._conflict(entry, clause, message, expected, hint)
            elif name == "TRANSFORM" and action is not None and not Action(str(action)).can_fail:
                message = f"TRANSFORM is only for RETRY and FWD, not with ACTION({action})"
                hint = "only a message that is put somewhere can be changed"
                self._conflict(entry, clause, message, "ACTION(RETRY) or ACTION(FWD)", hint)
            elif name not in _ONLY_WITH or action is None:
                continue
            elif action != (needed := _ONLY_WITH[name]):
                message = f"{name} goes with ACTION({needed}) only, not with ACTION({action})"
                hint = _CONFLICT_HINTS.get((str(action), name), "")
                self._conflict(entry, clause, message, f"ACTION({needed})", hint)
            elif name in {"FWDQ", "FWDQM"} and "FWDT" in clauses:
                message = f"{name} and FWDT exclude each other: a message goes to one place"
                expected = "FWDT(topic), or FWDQ(queue) with or without FWDQM"
                hint = "FWDT names a topic of Kafka, FWDQ and FWDQM names of a topology"
                self._conflict(entry, clause, message, expected, hint)
        if complete and "ACTION" not in clauses:
            self._missing_action(entry, has_retry="RETRY" in clauses)
        elif complete and action == Action.FWD and not {"FWDQ", "FWDT"} & clauses.keys():
            message, subject = "ACTION(FWD) needs FWDT or FWDQ", "FWDT"
            expected = "FWDT('topic') or FWDQ(queue)"
            if self._vocabulary is IBM:
                message, subject = "ACTION(FWD) needs FWDQ", "FWDQ"
                expected = "FWDQ(queue), FWDQ(&DESTQ) or FWDQ(&REPLYQ)"
            hint = "to put a message to where it was going, write ACTION(RETRY)"
            clause = clauses["ACTION"]
            length = clause.value_offset + len(clause.raw) + 1 - clause.offset
            about = message, expected, hint
            self._conflict(entry, clause, *about, subject=subject, length=length)

    def _missing_action(self, entry: Entry, *, has_retry: bool) -> None:
        actions = (f"ACTION({word})" for word in self._vocabulary.keywords["ACTION"].words)
        hint = "a line that continues in the next one ends in + or -"
        if has_retry:
            hint = "RETRY(n) is only the number of tries, the action is ACTION(RETRY)"
        self._report.error(
            entry,
            len(entry.text) - len(entry.text.lstrip(" \t,")),
            "the rule has no ACTION",
            f"one of {', '.join(actions)}",
            hint,
            code="COMBINATION",
            subject="ACTION",
            length=len(entry.text.strip(" \t,")),
        )

    def _conflict(
        self,
        entry: Entry,
        clause: Clause,
        *about: str,
        code: str = "COMBINATION",
        subject: str = "",
        length: int = 0,
    ) -> None:
        subject = subject or clause.keyword.name
        length = length or len(subject)
        self._report.error(entry, clause.offset, *about, code=code, subject=subject, length=length)


def _control(settings: Mapping[str, Setting], dialect: Dialect) -> Control:
    wait = settings.get("WAIT", "YES")
    assert not isinstance(wait, Backoff), "WAIT is a word or seconds"
    return Control(
        input_queue=str(settings.get("INPUTQ", "")),
        input_queue_manager=str(settings.get("INPUTQM", "")),
        written_interval=int(str(settings.get("RETRYINT", DEFAULT_RETRY_INTERVAL))),
        wait=wait,
        dialect=dialect,
        is_ordered="ORDER" in settings,
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
        to=RetryTo(str(settings.get("TO", RetryTo.TOPIC))),
        header=settings.get("HEADER", "YES") == "YES",
        authority=Authority(str(settings.get("PUTAUT", "DEF"))),
        retry=int(str(settings.get("RETRY", 1))),
        backoff=backoff if isinstance(backoff, Backoff) else None,
        transform=str(settings.get("TRANSFORM", "")),
    )


# MQ's characters of object names, and those that Kafka adds for topics.
_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9._/%-]")
_CLOSE: Final = 5
"""Seconds of RETRYINT below which rounds are frequent."""
_LOWER_CASE: Final = re.compile(r"[a-z]")


def lint_entry(entry: Entry, clauses: Sequence[Clause], report: Reporter, dialect: Dialect) -> None:
    """Warn about the text of one entry, as far as it could be read.

    Lines may be long in DIALECT(KAFKA), because IBM's handlers do not read it.
    """
    for line in entry.lines if dialect is Dialect.IBM else ():
        length = len(line.source_line.rstrip(BLANKS))
        if length > LINE_LENGTH:
            report.warning(
                "LONG_LINE",
                f"the line has {length} characters, not all platforms read more than {LINE_LENGTH}",
                replace(line, column=LINE_LENGTH + 1, length=length - LINE_LENGTH),
                entry_line=entry.line,
                hint="end the line with + and continue in the next one",
            )
    if entry.dangling:
        report.warning(
            "DANGLING_CONTINUATION",
            "the table ends in a continuation sign",
            entry.location(len(entry.text)),
            entry_line=entry.line,
            hint="remove the sign, or see whether the last line of the file is missing",
        )
    for clause in clauses:
        where = entry.location(clause.value_offset, len(clause.raw))
        subject = clause.keyword.name
        for code, message, hint in _value_warnings(clause):
            report.warning(code, message, where, entry_line=entry.line, subject=subject, hint=hint)


def _value_warnings(clause: Clause) -> Iterator[tuple[str, str, str]]:
    value, raw = clause.value, clause.raw
    if value is None or clause.keyword.value not in {Value.STRING, Value.NAME}:
        return
    if raw[:1] not in "'&" and _LOWER_CASE.search(raw):
        message = f"lower case outside quotes means upper case: this is {value}"
        hint = f"for lower case write {clause.keyword.name}('{raw}')"
        yield "FOLDED_TO_UPPER_CASE", message, hint
    wrong = _NOT_IN_NAMES.search(value.rstrip(" ").removeprefix("&"))
    if clause.keyword.value is Value.NAME and wrong is not None:
        message = f"no queue, queue manager or topic has {wrong[0]!r} in its name"
        hint = "variables of a shell are not replaced here" if wrong[0] == "$" else ""
        yield "NAME_CHARACTERS", message, hint


def lint_table(
    table: RulesTable, report: Reporter, *, input_queue: str, schemes: Collection[str] | None
) -> None:
    """Warn about rules that do something other than they seem to.

    The table has no errors and has the line numbers of the text; its INPUTQ is used if
    ``input_queue`` is unknown. ``schemes`` are those of the settings; None if unknown.
    """
    if not table.control.written_interval:
        lines = (
            number
            for number, line in enumerate(report.lines, start=1)
            if "RETRYINT" in line.upper() and not is_comment_or_blank(line)
        )
        report.warning(
            "RETRYINT_ZERO",
            "RETRYINT(0) is treated as 1 second",
            next(lines, 0),  # the keyword may be split over two lines
            entry_line=next(entries_of(report.lines, report.name)).line,
            subject="RETRYINT",
            hint="write the number of seconds between two attempts",
        )
    queue = input_queue or table.control.input_queue
    known = None if schemes is None else (*SCHEME_NAMES, *schemes)
    for rule in table.rules:
        warnings = [*_rule_warnings(rule, queue, table.control)]
        if known is not None and "SCHEME" in rule.patterns:
            warnings += _scheme_warnings(rule, known, table.control)
        for code, subject, message, hint in warnings:
            report.warning(code, message, rule.line, subject=subject, hint=hint)


_Warnings: TypeAlias = Iterator[tuple[str, str, str, str]]
"""Code, subject, message and hint of each."""


def _rule_warnings(rule: Rule, queue: str, control: Control) -> _Warnings:
    for name, default in (("PUTAUT", "DEF"), ("RETRY", 1), ("BACKOFF", None)):
        if not rule.action.can_fail and rule.keywords().get(name) != default:
            message = f"{name} has no effect with ACTION({rule.action})"
            yield "NO_EFFECT", name, message, f"remove {name}"
    if rule.backoff is not None and rule.action is Action.FWD and rule.retry == 1:
        message = "the rule has a BACKOFF and one attempt: its only delay is before the next rule"
        yield "SINGLE_ATTEMPT", "BACKOFF", message, "write how often to try: RETRY(10)"
    if (
        control.dialect is Dialect.KAFKA
        and rule.action is Action.RETRY
        and rule.backoff is None
        and rule.retry > 1
        and control.retry_interval < _CLOSE
    ):
        readers = "every consumer of its topic" if rule.to is RetryTo.TOPIC else "its group"
        message = (
            f"a message that keeps failing is processed {rule.retry} times,"
            f" {control.retry_interval} s apart, by {readers}"
        )
        yield "CLOSE_ROUNDS", "RETRY", message, "add growing delays: BACKOFF(30s,2,10m)"
    if rule.forward_queue == "&REPLYQ" and _may_be_blank(rule, "REPLYQ"):
        message = "the put fails for messages without a reply queue"
        yield "BLANK_REPLY_QUEUE", "FWDQ", message, "add REPLYQ(?*) to the pattern"
    for name in inserts(rule):
        if _may_be_blank(rule, name):
            message = f"the put fails for messages without {name}"
            yield "BLANK_INSERT", "FWDT", message, f"add {name}(?*) to the pattern"
    target, manager = (rule.forward_topic, "") if rule.forward_topic else known_names(rule)
    is_own = target == queue and (manager or "") in {"", control.input_queue_manager}
    if queue and is_own and rule.action.can_fail:
        subject = "FWDT" if rule.forward_topic else "FWDQ" if rule.forward_queue else "ACTION"
        message = f"the rule puts messages back on {queue}, their own queue"
        hint = "IBM's handler would loop forever; here such an attempt fails"
        yield "TARGET_IS_INPUT_QUEUE", subject, message, hint


def _scheme_warnings(rule: Rule, schemes: Sequence[str], control: Control) -> _Warnings:
    pattern = rule.patterns["SCHEME"]
    for member in members_of(pattern.pattern if isinstance(pattern, NotPattern) else pattern):
        if not any(map(member.matches, ("", *schemes))):
            message = f"no scheme matches {write_clause('SCHEME', member)}"
            name = member.text if isinstance(member, StringPattern) else ""
            hint = did_you_mean(name, schemes) or f"one of {', '.join(schemes)}, or of the settings"
            yield "UNKNOWN_SCHEME", "SCHEME", message, hint
    matching = [name for name in schemes if pattern.matches(name)]
    may_name_group = any(name in GROUP_SCHEMES or name not in SCHEME_NAMES for name in matching)
    if rule.action is not Action.RETRY or not matching or may_name_group:
        return
    names = ", ".join(matching)
    if rule.to is RetryTo.GROUP:
        message = f"every attempt fails: dead letters of {names} name no consumer group"
        yield "NO_GROUP", "TO", message, "write TO(TOPIC), which is the default"
    if control.is_ordered:
        message = (
            "ORDER(KEY) holds other messages of a key for 10 minutes after each round: dead"
            f" letters of {names} name no consumer group that could have passed the message"
        )
        yield "ORDER_NO_GROUP", "RETRY", message, "leave ORDER out if that is too long"


def _may_be_blank(rule: Rule, name: str) -> bool:
    pattern = rule.patterns.get(name)
    return pattern is None or pattern.matches("")
