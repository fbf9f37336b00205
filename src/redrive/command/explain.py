"""``redrive explain``: what a rules table does with one message, and when."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import click

from redrive.command.message_file import parse_field, read_message
from redrive.errors import UsageError
from redrive.messages.constants import constant_name
from redrive.messages.dead_letters import decode_dead_letter, read_view
from redrive.messages.fields import Headers
from redrive.rules import (
    Action,
    ClauseVerdict,
    Dialect,
    Explanation,
    FieldReader,
    FieldValue,
    Rule,
    RulesTable,
    RuleVerdict,
    Turn,
    decode_source,
    missing_insert,
    parse,
    resolve_target,
    write_action,
    write_clause,
)
from redrive.rules import (
    explain as explain_message,
)
from redrive.rules.backoff import JITTER
from redrive.rules.dialect.fields import Message
from redrive.rules.dialect.keywords import (
    KAFKA_PATTERNS,
    pattern_keyword,
)
from redrive.rules.dialect.patterns import ABSENT
from redrive.rules.keywords import Value

__all__ = ["explain"]

_SHOWN: Final = 5
"""Attempts of one rule that are listed one by one."""


@click.command()
@click.argument("table", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--message",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="The message: JSON with md and dlh, or headers and value; or raw bytes with an MQDLH.",
)
@click.option(
    "--field",
    "assignments",
    multiple=True,
    metavar="KEYWORD=VALUE",
    help="A field that patterns look at, such as REASON=MQRC_Q_FULL; wins over the message.",
)
@click.option("--lenient", is_flag=True, help="Accept rules whose clauses are not separated.")
@click.option("--json", "as_json", is_flag=True, help="Print the explanation as JSON.")
def explain(
    table: Path,
    message: Path | None,
    assignments: Sequence[str],
    *,
    lenient: bool,
    as_json: bool,
) -> None:
    """Tell rule by rule what TABLE does with one message, and when it is tried again.

    \b
    redrive explain orders.rul --field REASON=MQRC_Q_FULL --field DESTQ=ORDERS
    redrive explain orders.rul --message letter.json
    redrive explain kafka.rul --field TOPIC=orders --field "HEADER(x-tenant)=acme" --field AGE=2h

    Fields that are not given are blank or 0; in DIALECT(KAFKA) a number that is not given is
    missing.
    """  # noqa: D301 - \b keeps click from wrapping the examples
    if message is None and not assignments:
        raise UsageError(
            "there is no message to explain",
            hint="give --message FILE, or fields such as --field REASON=MQRC_Q_FULL",
        )
    text = decode_source(table.read_bytes())
    rules = parse(text, name=str(table), strict=not lenient).required()
    fields, problem = _message_fields(message, rules)
    dialect = rules.control.dialect
    fields.update(parse_field(text, dialect=dialect) for text in assignments)
    if problem and not assignments:
        _show_left(problem, as_json=as_json)
        return
    explanation = explain_message(rules, fields)
    if as_json:
        click.echo(json.dumps(_document(rules, fields, explanation), indent=2))
    else:
        click.echo("\n".join(_lines(rules, fields, explanation)))


def _message_fields(message: Path | None, rules: RulesTable) -> tuple[dict[str, FieldValue], str]:
    """The fields of a message, and why no rule is asked if it has no dead-letter header."""
    if message is None:
        return {}, ""
    value, headers = read_message(message)
    letter = decode_dead_letter(value, headers)
    fields = dict(letter.fields)
    if rules.control.dialect is Dialect.KAFKA:
        fields.update(_kafka_fields(rules, value, headers))
    return fields, letter.problem


def _kafka_fields(
    rules: RulesTable, value: bytes | None, headers: Headers
) -> dict[str, FieldValue]:
    """What DIALECT(KAFKA) adds; without a time in the message it failed at this moment."""
    view = read_view(None, value, headers)
    now = int(time.time() * 1000)
    since = view.failed_at if view.first_failed_at is None else view.first_failed_at
    message = Message(None, value, headers, now, now, view, view.error_message, since)
    plain = {name for name, keyword in KAFKA_PATTERNS.items() if not keyword.argument}
    reader = FieldReader(plain | rules.asked)
    told = zip(reader.names, reader.values(message), strict=True)
    return {name: it for name, it in told if it is not None}


def _show_left(problem: str, *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps({"problem": problem, "rules": [], "turns": []}, indent=2))
    else:
        click.echo(f"no rule is asked: {problem}\nthe message remains where it is")


def _lines(
    table: RulesTable, fields: Mapping[str, FieldValue], explanation: Explanation
) -> Iterator[str]:
    yield "the message: " + ", ".join(
        f"{name} {_shown(name, value)}" for name, value in fields.items() if value not in {"", 0}
    )
    yield ""
    for verdict in explanation.verdicts:
        yield from _rule_lines(verdict)
    yield ""
    if any(verdict.matches for verdict in explanation.verdicts):
        yield "attempts, if each one that can fail does:"
    else:
        yield "no rule matches:"
    for turn in explanation.turns:
        yield from _turn_lines(table, fields, turn)
    used = [table.rules[turn.rule] for turn in explanation.turns if turn.rule is not None]
    if any(rule.backoff is not None for rule in used):
        yield f"jitter: each delay of a BACKOFF is up to {JITTER:.0%} shorter"


def _rule_lines(verdict: RuleVerdict) -> Iterator[str]:
    mark = click.style("matches", fg="green") if verdict.matches else "does not match"
    yield f"rule at line {verdict.rule.line}  {write_action(verdict.rule)}: {mark}"
    if not verdict.clauses:
        yield "    any message"
    for clause in verdict.clauses:
        sign = click.style("+", fg="green") if clause.matches else click.style("-", fg="red")
        pattern = write_clause(clause.keyword, clause.pattern)
        yield f"  {sign} {pattern}: the message has {_shown(clause.keyword, clause.value)}"


def _shown(keyword: str, value: FieldValue) -> str:
    if isinstance(value, str):
        return repr(value) if value else "blank"
    if value == ABSENT and pattern_keyword(keyword).value is Value.NUMBERS:
        return "none"
    names = (constant_name(family, value) for family in pattern_keyword(keyword).families)
    name = next((name for name in names if name), None)
    return f"{value} ({name})" if name else str(value)


def _turn_lines(table: RulesTable, fields: Mapping[str, FieldValue], turn: Turn) -> Iterator[str]:
    if turn.rule is None:
        yield f"{turn.seconds:8} s  the message remains"
        return
    rule = table.rules[turn.rule]
    interval = table.control.retry_interval
    what = f"rule at line {rule.line}: {_deed(rule, fields)}"
    for number in range(min(turn.attempts, _SHOWN)):
        tries = f", attempt {number + 1} of {turn.attempts}" if turn.attempts > 1 else ""
        yield f"{turn.seconds + rule.total_delay(interval, number):8} s  {what}{tries}"
    if turn.attempts > _SHOWN:
        last = turn.seconds + rule.total_delay(interval, turn.attempts - 1)
        pace = f"every {interval} s" if rule.backoff is None else f"BACKOFF({rule.backoff})"
        yield f"       ...  {pace}"
        yield f"{last:8} s  {what}, attempt {turn.attempts} of {turn.attempts}"


def _deed(rule: Rule, fields: Mapping[str, FieldValue]) -> str:
    match rule.action:
        case Action.DISCARD:
            return "discard the message"
        case Action.IGNORE:
            return "leave the message; later rules are not asked"
        case Action.QUARANTINE:
            return "keep the message, whatever table comes"
        case _:
            if missing := missing_insert(rule, fields):
                return f"fail, because the message has nothing for {missing}"
            queue, manager = resolve_target(rule, fields)
            header = "with" if rule.action is Action.FWD and rule.header else "without"
            where = f" on {manager}" if manager else ""
            return f"put to {queue or 'a blank queue'}{where}, {header} dead-letter header"


def _document(
    table: RulesTable, fields: Mapping[str, FieldValue], explanation: Explanation
) -> dict[str, Any]:
    return {
        "table": table.hash,
        "message": dict(fields),
        "rules": [
            {
                **verdict.rule.keywords(),
                "matches": verdict.matches,
                "clauses": [_clause_document(clause) for clause in verdict.clauses],
            }
            for verdict in explanation.verdicts
        ],
        "turns": [_turn_document(table, fields, turn) for turn in explanation.turns],
    }


def _clause_document(clause: ClauseVerdict) -> dict[str, Any]:
    return {
        "keyword": clause.keyword,
        "pattern": write_clause(clause.keyword, clause.pattern),
        "value": clause.value,
        "matches": clause.matches,
    }


def _turn_document(
    table: RulesTable, fields: Mapping[str, FieldValue], turn: Turn
) -> dict[str, Any]:
    if turn.rule is None:
        return {"seconds": turn.seconds, "action": "REMAINS", "attempts": 0}
    rule = table.rules[turn.rule]
    document: dict[str, Any] = {
        "seconds": turn.seconds,
        "line": rule.line,
        "action": rule.action.value,
        "attempts": turn.attempts,
        "interval": table.control.retry_interval,
    }
    if rule.backoff is not None:
        document["backoff"] = str(rule.backoff)
    if rule.action.can_fail:
        document["target"] = resolve_target(rule, fields)._asdict()
    return document
