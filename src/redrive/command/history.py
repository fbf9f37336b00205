"""``redrive history`` and ``show``: what happened to one message, and its headers and body."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
from rich.text import Text

from redrive.command import record
from redrive.command.failures import at, exception_and_why, reason_text, shows_mq, why
from redrive.command.options import (
    choice_option,
    config_option,
    mq_option,
    number_option,
    table_options,
)
from redrive.command.output import console, print_json, print_notes, print_table
from redrive.command.selection import key_option, parse_key, parse_reason, parse_time, reason_option
from redrive.engine.outcome import Result
from redrive.errors import NotFoundError, RedriveError, UsageError
from redrive.kafka.records import StoredRecord
from redrive.masking import Mask
from redrive.operations.durations import clock, duration
from redrive.operations.network import open_cluster
from redrive.operations.record_view import RecordView, read_record, record_place
from redrive.operations.schema_registry import SchemaRegistry
from redrive.outcomes.bodies import Lost
from redrive.outcomes.history import Archive, History, NoOutcomeError
from redrive.outcomes.rows import Row
from redrive.outcomes.selection import Criteria
from redrive.printable import counted, printable
from redrive.settings import Settings, read_settings

STYLES: Mapping[str, str] = {
    Result.RETRIED: "green",
    Result.FORWARDED: "green",
    Result.DISCARDED: "dim",
    Result.PARKED: "yellow",
    Result.REMAINS: "red",
    Result.SKIPPED: "dim",
    Result.CANCELLED: "dim",
}


def _checked(
    context: click.Context, parameter: click.Parameter, identity: str | None
) -> str | None:
    """The ID as it is; raises ``UsageError`` if it is empty, as an unset variable makes it."""
    del context, parameter
    if identity == "":
        raise UsageError(
            "the ID is empty", hint="give topic:partition:offset, as redrive ls lists it"
        )
    return identity


@click.command()
@click.argument("identity", metavar="[ID]", required=False, callback=_checked)
@config_option
@key_option
@reason_option
@click.option("--result", type=click.Choice([result.value for result in Result]))
@click.option("--since", help="Only outcomes since: 10m, 2h, 1d, or 2026-01-31T12:00.")
@number_option("--limit", "How many outcomes to list, the newest ones.", default=20)
@mq_option
@table_options
def history(
    *,
    identity: str | None,
    config: Path,
    key: str | None,
    reason: str | None,
    result: str | None,
    since: str | None,
    limit: int,
    mq: bool,
    as_json: bool,
) -> None:
    """Show every outcome of the message ID, and what comes next.

    ID is topic:partition:offset: the identity of a message, or the position of one of its records.
    Without an ID the newest outcomes are listed, narrowed down by the options.

    \b
    redrive history orders.dlq:0:4711
    redrive history --reason MQRC_Q_FULL --since 1h
    """  # noqa: D301 - \b keeps click from wrapping the examples
    criteria = Criteria(
        key=None if key is None else parse_key(key),
        reason=None if reason is None else parse_reason(reason),
        result=result or "",
        since=None if since is None else parse_time("--since", since),
    )
    if identity is not None and criteria != Criteria():
        raise UsageError(
            "the options select among the newest outcomes, and an ID names one message"
        )
    settings = read_settings(config)
    archive, mask = Archive(settings.job), settings.mask
    mq = shows_mq(settings.job, mq=mq)
    if identity is None:
        newest, notes = archive.find(criteria, limit=limit)
        outcomes = [outcome.masked(mask) for outcome in newest]
        _show_newest(outcomes, notes, criteria, mq=mq, as_json=as_json)
        return
    try:
        shown = masked(archive.history(identity), mask)
    except NoOutcomeError as error:
        print_notes(error.notes)
        raise
    if as_json:
        print_json(document_of(shown))
    else:
        print_history(shown, mq=mq)


def masked(answer: History, mask: Mask) -> History:
    """A history that shows no secrets."""
    return replace(answer, outcomes=[row.masked(mask) for row in answer.outcomes])


def print_history(answer: History, *, mq: bool) -> None:
    """Print what a message is, what happened to it, and what comes next."""
    lines = console()
    lines.print(Text(printable(f"message {answer.message}"), style="bold"))
    for line in _description(answer.outcomes[-1], answer.put_on, mq=mq):
        lines.print(Text(printable(f"  {line}")))
    lines.print()
    _print_outcomes(answer.outcomes, mq=mq)
    due = answer.next.due
    when = "" if due is None else f", due {due_text(due)} ({clock(due)})"
    lines.print(Text(printable(f"next: {answer.next.text}{when}"), style="bold"))
    print_notes(answer.notes)


def _show_newest(
    outcomes: Sequence[Row], notes: Sequence[str], criteria: Criteria, *, mq: bool, as_json: bool
) -> None:
    if as_json:
        print_json({"outcomes": [*map(plain, outcomes)], "notes": notes})
        return
    if outcomes:
        _print_outcomes(outcomes, mq=mq, with_message=True)
    else:
        known = ", as far as could be read" if notes else ""
        what = "No outcomes yet" if criteria == Criteria() else "No outcome matches these filters"
        click.echo(f"{what}{known}.")
    print_notes(notes)


def _description(row: Row, put_on: str, *, mq: bool) -> list[str]:
    if put_on:
        target = at(row.field_destq, row.field_destqm)
        lines = [f"message {row.origin}, taken from {put_on} and put to {target}"]
    else:
        queue = at(row.queue, row.queue_manager)
        lines = [f"dead letter {row.origin} of the queue {queue}, handler {row.handler}"]
    if not put_on and row.field_destq is not None:
        target = at(row.field_destq, row.field_destqm)
        reason = reason_text(row.field_reason or 0) or "0"
        group = f" in group {row.consumer_group}" if row.consumer_group else ""
        failure = f"failed on topic {target}{group} with {row.error_class or 'no exception'}"
        lines.append(f"meant for {target}, failed with {reason}" if mq else failure)
    key = "no key" if row.message_key is None else f"key {_text(row.message_key)}"
    lines.append(f"{key}, {row.body_size} bytes, put {counted(row.hop or 0, 'time')} before")
    if row.traceparent:
        lines.append(f"trace {row.traceparent}")
    return lines


def _print_outcomes(outcomes: Sequence[Row], *, mq: bool, with_message: bool = False) -> None:
    rows = [
        {
            "time (UTC)": clock(row.time),
            **({"message": row.message} if with_message else {}),
            "attempt": row.attempt or None,
            "rule": f"line {row.rule_line} of {row.table_hash[:8]}" * bool(row.rule_line),
            "action": row.action,
            "result": Text(row.result, style=STYLES.get(row.result, "")),
            "target": _target(row),
            "why": why(row, mq=mq) if row.origin == before else exception_and_why(row, mq=mq),
        }
        for before, row in zip(["", *(row.origin for row in outcomes)], outcomes, strict=False)
    ]
    print_table(rows, folded=["rule", "target", "why"], whole=["message"])


def _target(row: Row) -> str:
    target = at(row.target_queue, row.target_queue_manager)
    topic = printable(row.target_topic or "")
    return f"{target} (topic {topic})" if topic and topic != target else target


def due_text(due: datetime, now: datetime | None = None) -> str:
    """When the next attempt is made: ``in 4 min 10 s``, or ``now``."""
    seconds = (due - (now or datetime.now(UTC))).total_seconds()
    return f"in {duration(seconds)}" if seconds > 0 else "now"


def _text(key: bytes) -> str:
    text = key.decode("utf-8", "replace")
    return text if text.isprintable() and "\ufffd" not in text else f"0x{key.hex()}"


def document_of(answer: History) -> dict[str, Any]:
    """A history for JSON."""
    return {
        "message": answer.message,
        "put_on": answer.put_on,
        "outcomes": [plain(row) for row in answer.outcomes],
        "next": {
            "text": answer.next.text,
            "due": answer.next.due,
            "rule_line": answer.next.rule_line,
        },
        "notes": answer.notes,
    }


def plain(row: Row) -> dict[str, Any]:
    """A row for JSON."""
    key = row.message_key
    return {**row._asdict(), "message_key": None if key is None else b64encode(key).decode("ascii")}


@click.command()
@click.argument("identity", metavar="ID", callback=_checked)
@config_option
@choice_option(
    "--body",
    "form",
    values=record.FORMS,
    default="auto",
    help_text="How to print the body; auto is by its schema, JSON, text, or else hex.",
)
@click.option("--all", "whole", is_flag=True, help="Print the whole body, however long it is.")
@mq_option
@table_options
def show(*, identity: str, config: Path, form: str, whole: bool, mq: bool, as_json: bool) -> None:
    """Show one dead letter: error, headers, body and history.

    \b
    redrive show orders.dlq:0:4711
    redrive show orders.dlq:0:4711 --body hex --all

    ID is topic:partition:offset, as redrive ls prints it. The body is read from the dead-letter
    topic or, if it was deleted there, from the topic where the message waits. A record without an
    outcome is shown too. Values that [mask] of the settings names are shown as ***.

    Exit codes: 0 shown, also without the body; 1 no such message or an error, 2 usage.
    """  # noqa: D301 - \b keeps click from wrapping the examples
    settings = read_settings(config)
    answer, record_found = find_message(settings, identity)
    if as_json:
        print_json(message_document(settings, answer, record_found))
        return
    lines = console()
    if answer:
        print_history(answer, mq=shows_mq(settings.job, mq=mq))
        lines.print()
    if isinstance(record_found, Lost):
        lines.print(Text(f"body: {record_found.reason}", style="yellow"))
        return
    for line in record.lines(_view(record_found, settings), form, whole=whole):
        lines.print(Text(line), soft_wrap=True)
    if not answer:
        lines.print(Text("no outcome yet: the job has not handled it", style="yellow"))


def find_message(
    settings: Settings, identity: str, *, of_handlers: bool = False
) -> tuple[History | None, StoredRecord | Lost]:
    """The masked history of a message, and its record.

    The history is None if the job has not handled the record. With ``of_handlers``, which a job
    that is restricted to some handlers implies, only topics of these have records without one.

    Raises:
        NotFoundError: There is neither an outcome nor a record.
    """
    archive = Archive(settings.job)
    try:
        answer = archive.history(identity)
        return masked(answer, settings.mask), archive.record(answer.last)
    except NoOutcomeError as error:
        names = (handler.identity for handler in settings.job.handlers)
        topics = {topic for name in names for topic in name.topics}
        is_limited = of_handlers or settings.job.only_handlers is not None
        if is_limited and identity.partition(":")[0] not in topics:
            # Without a hint, which would be about other topics.
            raise NotFoundError(error.message) from None
        with suppress(RedriveError), open_cluster(settings.job.connection) as cluster:
            return None, read_record(cluster, *record_place(identity))
        raise


def message_document(
    settings: Settings, answer: History | None, stored_record: StoredRecord | Lost
) -> dict[str, Any]:
    """What ``redrive show --json`` prints of what ``find_message`` found."""
    content = document_of(answer) if answer else {"outcomes": []}
    return {**content, "record": _in_json(stored_record, settings)}


def _view(stored_record: StoredRecord, settings: Settings) -> RecordView:
    registry = None if settings.registry is None else SchemaRegistry(settings.registry)
    return RecordView.of(stored_record, settings.job.scheme_table, settings.mask, registry)


def _in_json(stored_record: StoredRecord | Lost, settings: Settings) -> dict[str, Any]:
    if isinstance(stored_record, Lost):
        return {"lost": stored_record.reason}
    view = _view(stored_record, settings)
    header = view.profile.header
    return {
        **record.as_json(view),
        "topic": stored_record.lane.topic,
        "partition": stored_record.lane.partition,
        "offset": stored_record.offset,
        "dead_letter": None if header is None else header.fields(),
        "body_hex": None if view.body is None else view.body.hex(),
        "body": None if view.body is None else record.text_or_none(view.body),
    }
