"""Where rules put messages in a topology: failing targets and loops."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

from redrive.diagnostics import Diagnostic, Severity
from redrive.engine.facts import NO_LIMIT, TopicFacts
from redrive.operations.put import NewMessage
from redrive.operations.put_trace import PutTracer
from redrive.rules import Action, RetryTo, Rule, RulesTable
from redrive.rules.analysis import Message, Search, Undecided, bits_of, write_message
from redrive.rules.backoff import format_seconds
from redrive.rules.diagnosis import EntryDiagnostic, without_allowed
from redrive.rules.patterns import StringPattern
from redrive.rules.rule import inserts, known_names
from redrive.rules.source import physical_lines
from redrive.topology.names import Names


class _Problem(NamedTuple):
    code: str
    message: str


def check_targets(
    table: RulesTable, text: str, tracer: PutTracer, queue: Names, *, name: str
) -> tuple[Diagnostic, ...]:
    """Trace the puts of rules whose target the table itself names.

    The table has no errors; ``queue`` is the dead-letter queue, without a name if it is not known.
    There are no findings about queue managers that the tracer does not know.

    Returns:
        A warning for each rule whose puts fail or return to the dead-letter queue over other
        definitions, with an example message.
    """
    if not tracer.takes_puts(queue.queue_manager):
        return ()
    lines = physical_lines(text)
    search = Search(table.rules)
    diagnostics = []
    for index, rule in enumerate(table.rules):
        problem = _problem(rule, tracer, queue)
        witness = _witness(table, search, index) if problem else None
        if problem and witness:
            hint = f"redrive resolve --at {queue.queue_manager} traces the put"
            finding = _finding(problem, rule, lines, name)
            diagnostics.append(replace(finding, hint=hint, witness=write_message(witness)))
    return tuple(without_allowed(diagnostics, lines))


def known_topics(table: RulesTable) -> frozenset[str]:
    """The topics that rules themselves name as targets, where queues are topics of that name."""
    return frozenset(filter(None, map(_known_topic, table.rules)))


def check_lives(
    table: RulesTable, text: str, topics: Mapping[str, TopicFacts], *, keeps: bool, name: str
) -> tuple[Diagnostic, ...]:
    """Find rules whose puts may be deleted soon, or hide newer records, on their topics.

    Args:
        table: The table, which has no errors.
        text: Its text.
        topics: The facts of topics; others are not checked.
        keeps: Whether puts always keep their own timestamps.
        name: The name of the text in findings.
    """
    lines = physical_lines(text)
    diagnostics = []
    for rule in table.rules:
        topic = _known_topic(rule)
        facts = topics.get(topic or "")
        problems = () if facts is None else _life_problems(topic or "", facts, keeps=keeps)
        diagnostics += [_finding(problem, rule, lines, name) for problem in problems]
    return tuple(without_allowed(diagnostics, lines))


def _finding(problem: _Problem, rule: Rule, lines: Sequence[str], name: str) -> EntryDiagnostic:
    """A warning about a rule's target, at the keyword that names it."""
    is_forward = rule.action is Action.FWD
    return EntryDiagnostic(
        name,
        rule.line,
        source_line=lines[rule.line - 1],
        severity=Severity.WARNING,
        code=problem.code,
        message=problem.message,
        subject="FWDT" if rule.forward_topic else "FWDQ" if is_forward else "ACTION",
        entry_line=rule.line,
    )


def _life_problems(topic: str, facts: TopicFacts, *, keeps: bool) -> Iterator[_Problem]:
    if facts.wants_keys:
        text = f"{topic} is compacted: an old value may hide a newer one of its key"
        yield _Problem("HIDES_NEWER", text)
    if keeps and facts.retention < NO_LIMIT and not facts.stamps_records:
        kept = format_seconds(facts.retention // 1000)
        text = f"{topic} keeps records for {kept}, and puts keep their own timestamps"
        yield _Problem("DIES_YOUNG", text)


def _known_topic(rule: Rule) -> str | None:
    if not rule.action.can_fail or rule.to is RetryTo.GROUP or rule.forward_cluster:
        return None
    if rule.forward_topic:
        return None if inserts(rule) else rule.forward_topic
    topic = rule.patterns.get("TOPIC")
    if rule.action is Action.RETRY and isinstance(topic, StringPattern) and topic.is_literal:
        return topic.normal
    return known_names(rule)[0] or None


def _witness(table: RulesTable, search: Search, index: int) -> Message | None:
    """A message to which a rule applies, possibly after failures of other rules."""
    keepers = (i for i, rule in enumerate(table.rules[:index]) if not rule.action.can_fail)
    with suppress(Undecided):
        return search.find(1 << index, bits_of(keepers))
    return None


def _problem(rule: Rule, tracer: PutTracer, queue: Names) -> _Problem | None:
    target, manager = known_names(rule) if rule.action.can_fail else ("", None)
    if not target or manager is None:
        return None
    message = NewMessage(queue=target, queue_manager=manager)
    trace = tracer.trace(queue.queue_manager, message)
    shown = f"{target}@{manager}".removesuffix("@")
    if not trace.is_good:
        problem = trace.problem
        why = ""
        if problem is not None:
            reason = f"{problem.code or ''} {problem.name}".strip()
            why = ": " + ", ".join(part for part in (reason, problem.detail) if part)
        return _Problem("TARGET_FAILS", f"puts to {shown} fail{why}")
    is_direct = target == queue.queue  # reported as an error already
    if queue.queue and not is_direct and trace.final == f"{queue.queue}@{queue.queue_manager}":
        text = f"puts to {shown} return to {trace.final}, the dead-letter queue"
        return _Problem("COMES_BACK", text)
    return None
