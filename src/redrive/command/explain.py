"""``redrive explain``: what a rules table does with one message, and when; or with a topic."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import click

from redrive.command.message_fields import message_fields
from redrive.command.message_file import WrittenRecord, parse_field, read_written
from redrive.command.options import config_option
from redrive.errors import UsageError
from redrive.masking import NO_MASK, Mask
from redrive.messages.constants import constant_name
from redrive.messages.schemes import KNOWN, SchemeTable
from redrive.printable import printable
from redrive.rules import (
    Action,
    ClauseVerdict,
    Explanation,
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
from redrive.rules.analysis import hidden_field
from redrive.rules.backoff import JITTER
from redrive.rules.keywords import (
    Value,
    pattern_keyword,
)
from redrive.rules.patterns import ABSENT

__all__ = ["explain"]

_SHOWN: Final = 5
"""Attempts of one rule that are listed one by one."""
_ANSWER_TIMEOUT: Final = 10.0
"""Seconds to wait for one answer of the cluster."""


@click.command()
@click.argument("table", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--message",
    metavar="FILE|TOPIC:PARTITION:OFFSET|TOPIC",
    help="The message: JSON with md and dlh, or headers and value; a line of kcat -J; raw bytes"
    " with an MQDLH; the place of a record; or a topic, with --key.",
)
@click.option(
    "--topic", metavar="TOPIC", help="All that waits on a dead-letter topic, instead of a message."
)
@click.option("--key", help="The newest record of TOPIC with this key: text, or 0x and hex digits.")
@config_option
@click.option("--bootstrap-server", default="", metavar="HOST:PORT", help="A broker, without -c.")
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
    message: str | None,
    assignments: Sequence[str],
    *,
    topic: str | None,
    key: str | None,
    config: Path | None,
    bootstrap_server: str,
    lenient: bool,
    as_json: bool,
) -> None:
    """Tell rule by rule what TABLE does with one message, and when it is tried again.

    With --topic: what it would do with all that waits there now, in numbers by rule and target.
    Nothing is written, and a running job is not disturbed.

    \b
    redrive explain orders.rul --field REASON=MQRC_Q_FULL --field DESTQ=ORDERS
    redrive explain orders.rul --message letter.json
    redrive explain orders.rul --message orders.dlq:0:42
    redrive explain orders.rul --message orders.dlq --key 4711
    redrive explain orders.rul --topic orders.dlq
    redrive explain kafka.rul --field TOPIC=orders --field "HEADER(x-tenant)=acme" --field AGE=2h

    Fields that are not given are blank or 0; in DIALECT(KAFKA) a number that is not given is
    missing.
    """  # noqa: D301 - \b keeps click from wrapping the examples
    if topic is not None:
        if message is not None or key is not None or assignments or lenient:
            raise UsageError(
                "--topic is about all that waits there",
                hint="leave out --message, --key, --field and --lenient; a job is lenient by"
                " lenient_rules of its settings",
            )
        _explain_topic(table, topic, config, bootstrap_server, as_json=as_json)
        return
    if message is None and not assignments:
        raise UsageError(
            "there is no message to explain",
            hint="give --message FILE, fields such as --field REASON=MQRC_Q_FULL, or --topic TOPIC",
        )
    if key is not None and message is None:
        raise UsageError("--key is of a record on a topic", hint="name the topic with --message")
    text = decode_source(table.read_bytes())
    rules = parse(text, name=str(table), strict=not lenient).required()
    fields, problem, mask = _told_by(message, key, config, bootstrap_server, rules)
    dialect = rules.control.dialect
    fields.update(parse_field(text, dialect=dialect) for text in assignments)
    if problem and not assignments:
        _show_left(problem, as_json=as_json)
        return
    explanation = _masked(explain_message(rules, fields), mask)
    fields = {name: hidden_field(mask, name, it) for name, it in fields.items()}
    if as_json:
        click.echo(json.dumps(_document(rules, fields, explanation), indent=2))
    else:
        click.echo("\n".join(_lines(rules, fields, explanation)))


def _explain_topic(
    table: Path, topic: str, config: Path | None, bootstrap_server: str, *, as_json: bool
) -> None:
    # A client takes its time to import; a message in a file needs none.
    from redrive.command.dry_run import try_table  # noqa: PLC0415
    from redrive.command.identify import settings_file  # noqa: PLC0415

    try_table(
        table,
        topic,
        config=settings_file(config, bootstrap_server),
        bootstrap_server=bootstrap_server,
        as_json=as_json,
    )


def _told_by(
    message: str | None,
    key: str | None,
    config: Path | None,
    bootstrap_server: str,
    rules: RulesTable,
) -> tuple[dict[str, FieldValue], str, Mask]:
    """The fields of a message, why no rule is asked if none is, and what is not shown."""
    if message is None:
        return {}, "", NO_MASK
    written, schemes, mask = _written(message, key, config, bootstrap_server)
    return *message_fields(written, schemes, rules), mask


def _masked(explanation: Explanation, mask: Mask) -> Explanation:
    """The same without secrets; what was compared were the values themselves."""
    return replace(
        explanation,
        verdicts=tuple(
            replace(
                verdict,
                clauses=tuple(
                    replace(it, value=hidden_field(mask, it.keyword, it.value))
                    for it in verdict.clauses
                ),
            )
            for verdict in explanation.verdicts
        ),
    )


def _written(
    message: str, key: str | None, config: Path | None, bootstrap_server: str
) -> tuple[WrittenRecord, SchemeTable, Mask]:
    """The message in a file or at a place, the schemes to look for, and what is not shown."""
    path = Path(message)
    if key is None and path.is_file():
        return read_written(path), *_told_by_settings(config)
    if key is None and ":" not in message:
        raise UsageError(
            f"there is no file {message}",
            hint="name a file, a place: topic:partition:offset, or a topic with --key",
        )
    # A client takes its time to import; a message in a file needs none.
    from redrive.command.identify import place_of  # noqa: PLC0415
    from redrive.command.selection import parse_key  # noqa: PLC0415
    from redrive.kafka.cluster import Cluster  # noqa: PLC0415
    from redrive.operations.record_view import (  # noqa: PLC0415
        find_by_key,
        read_record,
        record_place,
    )

    place = record_place(message) if key is None else None
    connection, schemes, mask = place_of(config, bootstrap_server)
    with Cluster.open(connection, timeout=_ANSWER_TIMEOUT) as cluster:
        if place is not None:
            record = read_record(cluster, *place)
        else:
            record = find_by_key(cluster, message, parse_key(key or ""))
    written = WrittenRecord(record.key, record.value, record.headers, record.timestamp)
    return written, schemes, mask


def _told_by_settings(config: Path | None) -> tuple[SchemeTable, Mask]:
    """The schemes of settings, and what they say is not to be shown."""
    if config is None:
        return KNOWN, NO_MASK
    from redrive.settings import read_settings  # noqa: PLC0415 - as the others

    settings = read_settings(config)
    return SchemeTable(one.scheme() for one in settings.job.schemes), settings.mask


def _show_left(problem: str, *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps({"problem": problem, "rules": [], "turns": []}, indent=2))
    else:
        click.echo(f"no rule is asked: {printable(problem)}\nthe message remains where it is")


def _lines(
    table: RulesTable, fields: Mapping[str, FieldValue], explanation: Explanation
) -> Iterator[str]:
    yield "the message: " + ", ".join(
        f"{printable(name)} {_shown(name, value)}"
        for name, value in fields.items()
        if value not in {"", 0}
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
    yield f"rule at line {verdict.rule.line}  {printable(write_action(verdict.rule))}: {mark}"
    if not verdict.clauses:
        yield "    any message"
    for clause in verdict.clauses:
        sign = click.style("+", fg="green") if clause.matches else click.style("-", fg="red")
        pattern = printable(write_clause(clause.keyword, clause.pattern))
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
    what = f"rule at line {rule.line}: {printable(_deed(rule, fields))}"
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
