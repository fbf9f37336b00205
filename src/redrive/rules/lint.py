"""Warnings: what is legal in a rules table but probably not meant.

Every table gets warnings about its lines; only a table without errors gets warnings about its
rules. ``redrive.rules.analysis`` finds what rules do to each other.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from redrive.diagnostics import SourceLocation
from redrive.rules.canonical import LINE_LENGTH
from redrive.rules.diagnosis import Reporter
from redrive.rules.keywords import Dialect, Value
from redrive.rules.patterns import StringPattern
from redrive.rules.rule import Action, Control, Rule
from redrive.rules.source import BLANKS, Entry, entries_of
from redrive.rules.syntax import Clause
from redrive.rules.table import RulesTable
from redrive.rules.targets import inserts

__all__ = ["lint_entry", "lint_table"]

# MQ's characters of object names, and those that Kafka adds for topics.
_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9._/%-]")
_LOWER_CASE: Final = re.compile(r"[a-z]")


def lint_entry(entry: Entry, clauses: Sequence[Clause], report: Reporter, dialect: Dialect) -> None:
    """Warn about the writing of one entry.

    Args:
        entry: The entry.
        clauses: Its clauses, as far as they could be read.
        report: Takes the warnings.
        dialect: That of the table; in DIALECT(KAFKA) lines may be long, because IBM's handlers
            do not read it.
    """
    if dialect is Dialect.IBM:
        for line in entry.lines:
            _long_line(line, entry, report)
    if entry.dangling:
        report.warning(
            "DANGLING_CONTINUATION",
            "the table ends in a continuation sign",
            entry.location(len(entry.text)),
            entry_line=entry.line,
            hint="remove the sign, or see whether the last line of the file is missing",
        )
    for clause in clauses:
        _folded(clause, entry, report)
        _name_characters(clause, entry, report)


def lint_table(table: RulesTable, report: Reporter, *, input_queue: str = "") -> None:
    """Warn about rules that do something else than what they say.

    Args:
        table: A table without errors, with the line numbers of the text it was read from.
        report: Takes the warnings.
        input_queue: The dead-letter queue if it is known; INPUTQ of the table otherwise.
    """
    if not table.control.written_interval:
        report.warning(
            "RETRYINT_ZERO",
            "RETRYINT(0) is treated as 1 second",
            _line_of_interval(report),
            entry_line=next(entries_of(report.lines, report.name)).line,
            subject="RETRYINT",
            hint="write the number of seconds between two attempts",
        )
    queue = input_queue or table.control.input_queue
    for rule in table.rules:
        _without_effect(rule, report)
        _blank_names(rule, report)
        _input_queue(rule, queue, table.control, report)


def _long_line(line: SourceLocation, entry: Entry, report: Reporter) -> None:
    length = len(line.source_line.rstrip(BLANKS))
    if length > LINE_LENGTH:
        report.warning(
            "LONG_LINE",
            f"the line has {length} characters, not all platforms read more than {LINE_LENGTH}",
            replace(line, column=LINE_LENGTH + 1, length=length - LINE_LENGTH),
            entry_line=entry.line,
            hint="end the line with + and go on in the next one",
        )


def _folded(clause: Clause, entry: Entry, report: Reporter) -> None:
    is_text = clause.value is not None and clause.keyword.value in {Value.STRING, Value.NAME}
    if is_text and clause.raw[:1] not in "'&" and _LOWER_CASE.search(clause.raw):
        _at_value(
            report,
            "FOLDED_TO_UPPER_CASE",
            f"lower case outside quotes means upper case: this is {clause.value}",
            clause,
            entry,
            hint=f"for lower case write {clause.keyword.name}('{clause.raw}')",
        )


def _name_characters(clause: Clause, entry: Entry, report: Reporter) -> None:
    if clause.keyword.value is not Value.NAME or clause.value is None:
        return
    found = _NOT_IN_NAMES.search(clause.value.rstrip(" ").removeprefix("&"))
    if found is not None:
        _at_value(
            report,
            "NAME_CHARACTERS",
            f"no queue, queue manager or topic has {found.group()!r} in its name",
            clause,
            entry,
            hint="variables of a shell are not replaced here" if found.group() == "$" else "",
        )


def _at_value(
    report: Reporter, code: str, message: str, clause: Clause, entry: Entry, *, hint: str
) -> None:
    report.warning(
        code,
        message,
        entry.location(clause.value_offset, len(clause.raw)),
        entry_line=entry.line,
        subject=clause.keyword.name,
        hint=hint,
    )


def _without_effect(rule: Rule, report: Reporter) -> None:
    for name, default in (("PUTAUT", "DEF"), ("RETRY", 1), ("BACKOFF", None)):
        if not rule.action.can_fail and rule.keywords().get(name) != default:
            report.warning(
                "NO_EFFECT",
                f"{name} has no effect with ACTION({rule.action})",
                rule.line,
                subject=name,
                hint=f"remove {name}",
            )
    if rule.backoff is not None and rule.action.can_fail and rule.retry == 1:
        report.warning(
            "SINGLE_ATTEMPT",
            "the rule has a BACKOFF and tries once: there is one delay, before the next rule",
            rule.line,
            subject="BACKOFF",
            hint="write how often to try: RETRY(10)",
        )


def _blank_names(rule: Rule, report: Reporter) -> None:
    if rule.forward_queue == "&REPLYQ" and _may_be_blank(rule, "REPLYQ"):
        report.warning(
            "BLANK_REPLY_QUEUE",
            "the put fails for messages without a reply queue",
            rule.line,
            subject="FWDQ",
            hint="add REPLYQ(?*) to the pattern",
        )
    for name in inserts(rule):
        if _may_be_blank(rule, name):
            report.warning(
                "BLANK_INSERT",
                f"the put fails for messages that tell no {name}",
                rule.line,
                subject="FWDT",
                hint=f"add {name}(?*) to the pattern",
            )


def _may_be_blank(rule: Rule, name: str) -> bool:
    pattern = rule.patterns.get(name)
    return pattern is None or pattern.matches("")


def _input_queue(rule: Rule, queue: str, control: Control, report: Reporter) -> None:
    if queue and _target(rule) in {(queue, ""), (queue, control.input_queue_manager)}:
        report.warning(
            "TARGET_IS_INPUT_QUEUE",
            f"the rule puts messages back on {queue}, the queue they come from",
            rule.line,
            subject="FWDT" if rule.forward_topic else "FWDQ" if rule.forward_queue else "ACTION",
            hint="IBM's handler would loop for ever; here such an attempt fails",
        )


def _target(rule: Rule) -> tuple[str, str] | None:
    """Queue and queue manager of the rule as far as the table tells, else None."""
    if not rule.action.can_fail:
        return None
    if rule.forward_topic:
        return None if inserts(rule) else (rule.forward_topic, "")
    queue, manager = rule.forward_queue, rule.forward_queue_manager
    if rule.action is Action.RETRY:
        queue, manager = "&DESTQ", "&DESTQM"
    known = _known_name(rule, queue), _known_name(rule, manager)
    return None if known[0] is None else (known[0], known[1] or "")


def _known_name(rule: Rule, name: str) -> str | None:
    """The name that a name or a reference such as ``&DESTQ`` stands for; None if it varies."""
    if not name.startswith("&"):
        return name
    pattern = rule.patterns.get(name[1:])
    if isinstance(pattern, StringPattern) and pattern.is_literal:
        return pattern.normal
    return None


def _line_of_interval(report: Reporter) -> int:
    """The line of RETRYINT; 0 if the keyword is broken over two lines."""
    for number, line in enumerate(report.lines, start=1):
        if "RETRYINT" in line.upper() and not line.lstrip(BLANKS).startswith("*"):
            return number
    return 0
