"""Warnings: legal but probably unintended text in a rules table.

Every table gets warnings about its lines; only a table without errors gets warnings about its
rules. ``redrive.rules.analysis`` finds how rules interact.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

from redrive.diagnostics import did_you_mean
from redrive.messages.schemes import GROUP_SCHEMES, SCHEME_NAMES
from redrive.rules.canonical import LINE_LENGTH, write_clause
from redrive.rules.diagnosis import Reporter
from redrive.rules.keywords import Dialect, Value
from redrive.rules.patterns import NotPattern, StringPattern, members_of
from redrive.rules.rule import Action, Control, RetryTo, Rule
from redrive.rules.source import BLANKS, Entry, entries_of, is_comment_or_blank
from redrive.rules.syntax import Clause
from redrive.rules.table import RulesTable
from redrive.rules.targets import inserts, known_names

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
