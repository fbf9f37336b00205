"""Why two tables treat a message differently, clause by clause."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from redrive.masking import Mask
from redrive.rules import (
    ClauseVerdict,
    FieldValue,
    RetryTo,
    RulesTable,
    RuleVerdict,
    explain,
    explain_rule,
    write_clause,
    write_rule,
)
from redrive.rules.analysis import Decision, hidden_field, write_field
from redrive.what_if.equal_messages import Verdict


def reasons(
    old: tuple[RulesTable, Verdict],
    new: tuple[RulesTable, Verdict],
    fields: Mapping[str, FieldValue],
    mask: Mask,
) -> Iterator[str]:
    """Why two tables treat a message differently, line by line."""
    yield from _applies("old", old, fields, mask)
    yield from _applies("new", new, fields, mask)
    yield from _old_rule_in(new, old, fields, mask)


def course_text(verdict: Verdict) -> str:
    """The result of a message as text: ``RETRY to billing 3 times, then remains``."""
    if not verdict.line:
        return f"remains: {verdict.detail}" if verdict.detail else "remains"
    return ", then ".join(_steps(verdict.course))


def _steps(course: Decision) -> Iterable[str]:
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


def _applies(
    name: str, which: tuple[RulesTable, Verdict], fields: Mapping[str, FieldValue], mask: Mask
) -> Iterator[str]:
    table, verdict = which
    index = _index_of(table, verdict.line)
    if index is None:
        yield f"{name} table: {mask.text(verdict.detail)}"
        return
    matched = [_clause_text(clause, mask) for clause in explain_rule(table, index, fields).clauses]
    yield f"{name} table, line {verdict.line}: {'; '.join(matched) or 'it matches any message'}"
    if verdict.reason:
        detail = mask.text(verdict.detail)
        yield f"{name} table, line {verdict.line}: the put would fail now: {detail}"


def _old_rule_in(
    new: tuple[RulesTable, Verdict],
    old: tuple[RulesTable, Verdict],
    fields: Mapping[str, FieldValue],
    mask: Mask,
) -> Iterator[str]:
    (table, verdict), (before, decided) = new, old
    index = _index_of(before, decided.line)
    if index is not None:
        rule = before.rules[index]
        same = next((one for one in table.rules if one == rule), None)
        if same is not None and same.line != verdict.line:
            yield f"the rule of the old table is at line {same.line} of the new one"
        elif same is None:
            yield f"the new table does not have the old rule: {write_rule(rule)}"
    if not verdict.line and (closest := _closest(table, fields)) is not None:
        failing = [_clause_text(clause, mask) for clause in closest.clauses if not clause.matches]
        if failing:
            yield f"closest in the new table is line {closest.rule.line}: {'; '.join(failing)}"


def _closest(table: RulesTable, fields: Mapping[str, FieldValue]) -> RuleVerdict | None:
    return min(
        explain(table, fields).verdicts,
        key=lambda it: sum(not clause.matches for clause in it.clauses),
        default=None,
    )


def _clause_text(clause: ClauseVerdict, mask: Mask) -> str:
    is_blank = clause.value == ""
    value = (
        f"{clause.keyword} is blank"
        if is_blank
        else write_field(clause.keyword, hidden_field(mask, clause.keyword, clause.value))
    )
    verb = "matches" if clause.matches else "does not match"
    return f"{write_clause(clause.keyword, clause.pattern)} {verb}, {value}"


def _index_of(table: RulesTable, line: int) -> int | None:
    if not line:
        return None
    return next((index for index, rule in enumerate(table.rules) if rule.line == line), None)
