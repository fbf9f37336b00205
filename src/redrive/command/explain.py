"""``redrive explain``: shows what a rules table does with a message, or with a topic."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import click

from redrive.command.message_file import WrittenRecord, message_fields, parse_field, read_written
from redrive.command.options import (
    EXISTING_FILE,
    bootstrap_option,
    json_option,
    lenient_option,
    optional_config_option,
    repeated_option,
)
from redrive.command.output import print_json
from redrive.errors import UsageError
from redrive.masking import NO_MASK, Mask
from redrive.messages.constants import constant_name
from redrive.messages.schemes import KNOWN, SchemeTable
from redrive.printable import printable
from redrive.rules import (
    GROUP_TOPIC,
    Action,
    FieldValue,
    RetryTo,
    Rule,
    RulesTable,
    Turn,
    decode_source,
    missing_insert,
    parse,
    resolve_target,
    write_action,
    write_clause,
)
from redrive.rules import explain as explain_message
from redrive.rules.analysis import hidden_field
from redrive.rules.backoff import JITTER
from redrive.rules.keywords import Value, pattern_keyword
from redrive.rules.patterns import ABSENT

_SHOWN: Final = 5
"""Attempts of one rule that are listed individually."""
_EFFECTS: Final = {
    Action.DISCARD: "discard the message",
    Action.IGNORE: "leave the message; later rules are skipped",
    Action.QUARANTINE: "keep the message, also under other tables",
}


@click.command()
@click.argument("table", type=EXISTING_FILE)
@click.option(
    "--message",
    metavar="FILE|TOPIC:PARTITION:OFFSET|TOPIC",
    help="The message: JSON with md and dlh, or headers and value; a line of kcat -J; raw bytes"
    " with an MQDLH; the position of a record; or a topic, with --key.",
)
@click.option("--topic", metavar="TOPIC", help="All messages that wait on this dead-letter topic.")
@click.option("--key", help="The newest record of TOPIC with this key: text, or 0x and hex digits.")
@optional_config_option
@bootstrap_option
@repeated_option(
    "--field",
    "assignments",
    metavar="KEYWORD=VALUE",
    help_text="A field that patterns look at, such as REASON=MQRC_Q_FULL; wins over the message.",
)
@lenient_option
@json_option
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
    """Explain what TABLE does with one message, rule by rule.

    With --topic: how many of the waiting messages each rule would take, and where it would put
    them. Nothing is written, and a running job is not disturbed.

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
                "--topic covers all waiting messages",
                hint="leave out --message, --key, --field and --lenient; lenient_rules in"
                " the settings makes a job lenient",
            )
        from redrive.command.opening import settings_file  # noqa: PLC0415 - slow to import
        from redrive.command.plan import try_table  # noqa: PLC0415 - as above

        file = settings_file(config, bootstrap_server)
        try_table(table, topic, config=file, bootstrap_server=bootstrap_server, as_json=as_json)
        return
    if message is None and not assignments:
        raise UsageError(
            "no message to explain",
            hint="give --message FILE, fields such as --field REASON=MQRC_Q_FULL, or --topic TOPIC",
        )
    if key is not None and message is None:
        raise UsageError("--key selects a record of a topic", hint="name the topic with --message")
    text = decode_source(table.read_bytes())
    rules = parse(text, name=str(table), strict=not lenient).required()
    fields: dict[str, FieldValue] = {}
    problem, mask, form = "", NO_MASK, GROUP_TOPIC
    if message is not None:
        written, schemes, mask, form = _read_message(message, key, config, bootstrap_server)
        fields, problem = message_fields(written, schemes, rules)
    fields.update(parse_field(text, dialect=rules.control.dialect) for text in assignments)
    if problem and not assignments:
        if as_json:
            print_json({"problem": problem, "rules": [], "turns": []})
        else:
            click.echo(f"no rule is asked: {printable(problem)}\nthe message remains where it is")
        return
    if as_json:
        print_json(explanation_document(rules, fields, mask, form))
    else:
        click.echo("\n".join(_lines(rules, fields, mask, form)))


def _read_message(
    message: str, key: str | None, config: Path | None, bootstrap_server: str
) -> tuple[WrittenRecord, SchemeTable, Mask, str]:
    """The message of a file or topic, the schemes, the mask, and the names of group topics."""
    path = Path(message)
    if key is None and path.is_file():
        if config is None:
            return read_written(path), KNOWN, NO_MASK, GROUP_TOPIC
        from redrive.settings import read_settings  # noqa: PLC0415 - slow to import

        settings = read_settings(config)
        job = settings.job
        return read_written(path), job.scheme_table, settings.mask, job.group_topic
    if key is None and ":" not in message:
        raise UsageError(
            f"there is no file {message}",
            hint="name a file, a position topic:partition:offset, or a topic with --key",
        )
    # Slow to import, and a message in a file needs no client.
    from redrive.command.opening import TopicSource  # noqa: PLC0415
    from redrive.command.selection import parse_key  # noqa: PLC0415
    from redrive.operations.network import open_cluster  # noqa: PLC0415
    from redrive.operations.record_view import (  # noqa: PLC0415
        find_by_key,
        read_record,
        record_place,
    )

    place = record_place(message) if key is None else None
    connection, schemes, mask, _, form = TopicSource.of(config, bootstrap_server)
    with open_cluster(connection) as cluster:
        if place is not None:
            record = read_record(cluster, *place)
        else:
            record = find_by_key(cluster, message, parse_key(key or ""))
    written = WrittenRecord(record.key, record.value, record.headers, record.timestamp)
    return written, schemes.at(record.lane.topic), mask, form


def _lines(
    table: RulesTable, fields: Mapping[str, FieldValue], mask: Mask, form: str
) -> Iterator[str]:
    explanation = explain_message(table, fields)
    fields = {name: hidden_field(mask, name, value) for name, value in fields.items()}
    yield "the message: " + ", ".join(
        f"{printable(name)} {_value_text(name, value)}"
        for name, value in fields.items()
        if value not in {"", 0}
    )
    for warning in explanation.warnings:
        yield click.style("warning", fg="yellow") + f": {printable(warning)}"
    yield ""
    for verdict in explanation.verdicts:
        mark = click.style("matches", fg="green") if verdict.matches else "does not match"
        action = printable(write_action(verdict.rule))
        yield f"rule at line {verdict.rule.line}  {action}: {mark}"
        if not verdict.clauses:
            yield "    any message"
        for clause in verdict.clauses:
            sign = click.style("+", fg="green") if clause.matches else click.style("-", fg="red")
            pattern = printable(write_clause(clause.keyword, clause.pattern))
            value = _value_text(clause.keyword, hidden_field(mask, clause.keyword, clause.value))
            yield f"  {sign} {pattern}: the message has {value}"
    yield ""
    if any(verdict.matches for verdict in explanation.verdicts):
        yield "attempts, if each one that can fail does:"
    else:
        yield "no rule matches:"
    for turn in explanation.turns:
        yield from _turn_lines(table, fields, turn, form)
    used = [table.rules[turn.rule] for turn in explanation.turns if turn.rule is not None]
    if table.control.is_ordered:
        yield "order: it waits longer behind an earlier message of its key"
    elif any(rule.backoff is not None for rule in used):
        yield f"jitter: each delay of a BACKOFF is up to {JITTER:.0%} shorter"


def _value_text(keyword: str, value: FieldValue) -> str:
    if isinstance(value, str):
        return repr(value) if value else "blank"
    if value == ABSENT and pattern_keyword(keyword).value is Value.NUMBERS:
        return "none"
    names = (constant_name(family, value) for family in pattern_keyword(keyword).families)
    name = next((name for name in names if name), None)
    return f"{value} ({name})" if name else str(value)


def _turn_lines(
    table: RulesTable, fields: Mapping[str, FieldValue], turn: Turn, form: str
) -> Iterator[str]:
    if turn.rule is None:
        yield f"{turn.seconds:8} s  the message remains"
        return
    rule = table.rules[turn.rule]
    interval, attempts = table.control.retry_interval, turn.attempts
    what = f"rule at line {rule.line}: {printable(_effect(rule, fields, form))}"
    shown = list(range(min(attempts, _SHOWN)))
    if attempts > _SHOWN:
        shown.append(attempts - 1)
    for number in shown:
        if number >= _SHOWN:
            pace = f"every {interval} s" if rule.backoff is None else f"BACKOFF({rule.backoff})"
            yield f"       ...  {pace}"
        tries = f", attempt {number + 1} of {attempts}" if attempts > 1 else ""
        yield f"{turn.seconds + rule.seconds_to(number, interval):8} s  {what}{tries}"


def _effect(rule: Rule, fields: Mapping[str, FieldValue], form: str) -> str:
    if not rule.action.can_fail:
        return _EFFECTS[rule.action]
    if missing := missing_insert(rule, fields):
        return f"fail, because the message has no value for {missing}"
    queue, manager = resolve_target(rule, fields, form)
    if rule.to is RetryTo.GROUP and not queue:
        return "fail, because the message names no consumer group"
    header = "with" if rule.action is Action.FWD and rule.header else "without"
    where = f" on {manager}" if manager else ""
    return f"put to {queue or 'a blank queue'}{where}, {header} dead-letter header"


def explanation_document(
    table: RulesTable, fields: Mapping[str, FieldValue], mask: Mask, form: str
) -> dict[str, Any]:
    """What ``redrive explain --json`` prints; ``form`` is ``JobConfiguration.group_topic``."""
    explanation = explain_message(table, fields)
    fields = {name: hidden_field(mask, name, value) for name, value in fields.items()}
    return {
        "table": table.hash,
        "order": "key" if table.control.is_ordered else "",
        "message": dict(fields),
        "rules": [
            {
                **verdict.rule.keywords(),
                "matches": verdict.matches,
                "clauses": [
                    {
                        "keyword": clause.keyword,
                        "pattern": write_clause(clause.keyword, clause.pattern),
                        "value": hidden_field(mask, clause.keyword, clause.value),
                        "matches": clause.matches,
                    }
                    for clause in verdict.clauses
                ],
            }
            for verdict in explanation.verdicts
        ],
        "turns": [_turn_document(table, fields, turn, form) for turn in explanation.turns],
    }


def _turn_document(
    table: RulesTable, fields: Mapping[str, FieldValue], turn: Turn, form: str
) -> dict[str, Any]:
    if turn.rule is None:
        return {"seconds": turn.seconds, "action": "REMAINS", "attempts": 0}
    rule = table.rules[turn.rule]
    return {
        "seconds": turn.seconds,
        "line": rule.line,
        "action": rule.action.value,
        "attempts": turn.attempts,
        "interval": table.control.retry_interval,
        **({} if rule.backoff is None else {"backoff": str(rule.backoff)}),
        **(
            {"target": resolve_target(rule, fields, form)._asdict()} if rule.action.can_fail else {}
        ),
    }
