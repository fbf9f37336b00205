"""What one table does with a message, and why two tables differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from redrive.engine.context import SliceContext
from redrive.engine.decision import Decision, Wait
from redrive.engine.put_record import risks_of
from redrive.engine.rules_decider import RulesDecider
from redrive.masking import Mask
from redrive.rules import (
    ClauseVerdict,
    FieldValue,
    RetryTo,
    RulesTable,
    explain,
    explain_rule,
    rules_of,
    write_clause,
    write_rule,
)
from redrive.rules.analysis import TableDecision, hidden_field, write_field
from redrive.rules.analysis import decide as course_of


class Disposition(StrEnum):
    """What a table does next with a message."""

    DISCARD = "DISCARD"
    RETRY = "RETRY"
    FWD = "FWD"
    IGNORE = "IGNORE"
    QUARANTINE = "QUARANTINE"
    REMAINS = "REMAINS"
    """No rule applies: none matches, or all attempts of those that do are used up."""


@dataclass(frozen=True, slots=True)
class TableEffect:
    """What one table does with equal messages."""

    table: RulesTable
    action: Disposition
    line: int
    """Line of the rule; 0 if none applies."""
    target: str
    """The queue that they are put to; empty for none."""
    course: TableDecision
    """Their further results, if every attempt fails."""
    reason: int
    """Why the attempt would fail now; 0 if it would not."""
    detail: str
    """The reason as text; without a rule, why none applies."""
    risks: tuple[str, ...]
    candidates: int
    """The rules that match them, as bits."""

    @classmethod
    def of(
        cls, decider: RulesDecider, context: SliceContext, mask: Mask, decision: Decision
    ) -> TableEffect:
        """The part of a decision that is compared between tables, with masked texts."""
        if isinstance(decision, Wait):
            decision = decision.attempt_now
        rule, profile = decision.rule, decision.profile
        candidates = decider.profiles.candidates_of(profile) if profile.is_dead_letter else 0
        return cls(
            decider.table,
            Disposition.REMAINS if rule is None else Disposition(rule.action.value),
            0 if rule is None else rule.line,
            mask.text(str(decision.target)),
            _course(decider, decision, candidates),
            decision.reason,
            mask.text(decision.detail) if rule is None or decision.reason else "",
            tuple(mask.text(risk) for risk in risks_of(decision, context)),
            candidates,
        )

    @property
    def text(self) -> str:
        """The result in words: ``put to billing 3 times, then remains``."""
        if not self.line:
            return f"remains: {self.detail}" if self.detail else "remains"
        return ", then ".join(_steps(self.course))


def _course(decider: RulesDecider, decision: Decision, candidates: int) -> TableDecision:
    rule = decision.rule
    if rule is None or (rule.action.can_fail and not decision.attempt):
        return TableDecision((), discarded=False, quarantined=decision.attempts.is_quarantined)
    failed = _failed_before(decider, decision, candidates)
    course, _ = course_of(decider.table, candidates, decision.profile.fields, failed)
    return course


def _failed_before(decider: RulesDecider, decision: Decision, candidates: int) -> dict[int, int]:
    rules, attempts = decider.table.rules, decision.attempts
    number = decision.attempt - 1 if decision.attempt else attempts.failures
    if decider.profiles.is_kafka:
        failed = dict(attempts.by_rule)
        if attempts.failures > number:  # the decision includes the failure of its own attempt
            failed[next(index for index, rule in enumerate(rules) if rule is decision.rule)] -= 1
        return failed
    failed = {}
    for index in rules_of(candidates):
        failed[index] = min(number, rules[index].retry)
        number -= failed[index]
    return failed


def _steps(course: TableDecision) -> Iterator[str]:
    for put, number in course.steps:
        manager = f"@{put.queue_manager}" if put.queue_manager else ""
        header = ", with its header" if put.header else ""
        times = f" {number} times" if number > 1 else ""
        group = " for the group that failed" if put.to is RetryTo.GROUP else ""
        yield f"put to {put.queue or 'a blank queue'}{manager}{group}{times}{header}"
    if course.discarded:
        yield "DISCARD"
    else:
        yield "QUARANTINE" if course.quarantined else "remains"


def reasons(
    old: TableEffect, new: TableEffect, fields: Mapping[str, FieldValue], mask: Mask
) -> Iterator[str]:
    """Why two tables treat a message differently, line by line."""
    yield from _applies("old", old, fields, mask)
    yield from _applies("new", new, fields, mask)
    index = _index_of(old)
    if index is not None:
        rule = old.table.rules[index]
        same = next((other for other in new.table.rules if other == rule), None)
        if same is None:
            yield f"the new table does not have the old rule: {write_rule(rule)}"
        elif same.line != new.line:
            yield f"the rule of the old table is at line {same.line} of the new one"
    if not new.line:
        yield from _closest(new.table, fields, mask)


def _applies(
    name: str, verdict: TableEffect, fields: Mapping[str, FieldValue], mask: Mask
) -> Iterator[str]:
    index = _index_of(verdict)
    if index is None:
        yield f"{name} table: {verdict.detail}"
        return
    clauses = explain_rule(verdict.table, index, fields).clauses
    matched = "; ".join(_clause_text(clause, mask) for clause in clauses)
    yield f"{name} table, line {verdict.line}: {matched or 'it matches any message'}"
    if verdict.reason:
        yield f"{name} table, line {verdict.line}: the put would fail now: {verdict.detail}"


def _closest(table: RulesTable, fields: Mapping[str, FieldValue], mask: Mask) -> Iterator[str]:
    """The rule with the fewest clauses that do not match, and these clauses."""
    failing = [
        (rule, [clause for clause in rule.clauses if not clause.matches])
        for rule in explain(table, fields).verdicts
    ]
    closest, clauses = min(failing, key=lambda pair: len(pair[1]), default=(None, []))
    if closest is not None and clauses:
        texts = "; ".join(_clause_text(clause, mask) for clause in clauses)
        yield f"closest in the new table is line {closest.rule.line}: {texts}"


def _clause_text(clause: ClauseVerdict, mask: Mask) -> str:
    keyword, value = clause.keyword, f"{clause.keyword} is blank"
    if clause.value != "":
        value = write_field(keyword, hidden_field(mask, keyword, clause.value))
    verb = "matches" if clause.matches else "does not match"
    return f"{write_clause(keyword, clause.pattern)} {verb}, {value}"


def _index_of(verdict: TableEffect) -> int | None:
    rules = enumerate(verdict.table.rules)
    return next((index for index, rule in rules if rule.line == verdict.line), None)
