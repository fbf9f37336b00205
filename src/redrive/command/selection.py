"""Options that select dead letters, for every command that lists them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

import click

from redrive.command.options import choice_option, handler_option, parsed
from redrive.errors import UsageError
from redrive.messages.constants import FAMILIES
from redrive.operations.durations import parse_since
from redrive.outcomes.conditions import BodyFilter, engine_condition
from redrive.outcomes.inventory import Selection, State
from redrive.outcomes.table import sql_text

key_option = click.option("--key", help="Only records with this key: text, or 0x and hex digits.")
reason_option = click.option("--reason", help="Only this reason, such as 2053 or MQRC_Q_FULL.")
_CODE: Final = re.compile("[0-9]{1,9}")


def parse_selection(
    *,
    status: str,
    reason: str | None,
    exception: str | None,
    error_text: str | None,
    group: str | None,
    topic: str | None,
    partition: int | None,
    destq: str | None,
    rule: int | None,
    handler: str | None,
    key: str | None,
    since: str | None,
    older_than: str | None,
    looked_since: str | None,
    where: str,
    body: str | None = None,
    body_text: str | None = None,
) -> Selection:
    """The selection that options describe; raises ``UsageError``."""
    BodyFilter.of(body or "", body_text or "")  # before anything is read
    conditions = [*_conditions(exception, error_text, group, topic, partition)]
    if where and conditions:
        engine_condition(where)  # alone, so that an error is about what the user wrote
        where = f"({where})"
    return Selection(
        state=State(status),
        reason=None if reason is None else parse_reason(reason),
        destination=destq,
        rule=rule,
        handler=handler,
        key=None if key is None else parse_key(key),
        since=None if since is None else parse_time("--since", since),
        before=None if older_than is None else parse_time("--older-than", older_than),
        looked_since=None if looked_since is None else parse_time("--looked-since", looked_since),
        where=" AND ".join([*conditions, *filter(None, [where])]),
        body=body or "",
        body_text=body_text or "",
    )


def _conditions(
    exception: str | None,
    error_text: str | None,
    group: str | None,
    topic: str | None,
    partition: int | None,
) -> Iterator[str]:
    """What options in Kafka's words say, as conditions on the columns of the ledger."""
    if exception is not None:
        # A name without its package is that of a class in any package.
        is_simple = not {".", "*", "$"} & {*exception}
        names = [exception, *([f"*.{exception}", f"*${exception}"] if is_simple else ())]
        yield f"({' OR '.join(_like('error_class', name) for name in names)})"
    if error_text is not None:
        yield f"contains(lower(error_message), {sql_text(error_text.lower())})"
    if group is not None:
        yield _like("consumer_group", group)
    if topic is not None:
        yield _like("field_destq", topic)
    if partition is not None:
        yield _like("failed_record", f"*:{partition}:*")


def _like(column: str, pattern: str) -> str:
    """The condition that a column is a text, in which ``*`` stands for any characters."""
    if "*" not in pattern:
        return f"{column} = {sql_text(pattern)}"
    escaped = re.sub(r"([\\%_])", r"\\\1", pattern).replace("*", "%")
    return f"{column} LIKE {sql_text(escaped)}"


selection_options = parsed(
    "selection",
    parse_selection,
    choice_option(
        "--status",
        values=State,
        default=State.OPEN,
        help_text="Their state; open is parked or remaining, not quarantined.",
    ),
    click.option(
        "--exception",
        "--root-exception",
        metavar="CLASS",
        help="Only this innermost exception; * stands for any characters.",
    ),
    click.option("--error-text", metavar="TEXT", help="Only errors with this in their message."),
    click.option("--group", metavar="GROUP", help="Only of this consumer group; * as above."),
    click.option("--topic", metavar="TOPIC", help="Only records of this topic; * as above."),
    click.option("--partition", type=int, metavar="N", help="Only records of this partition."),
    reason_option,
    click.option("--destq", metavar="QUEUE", help="Only messages meant for this queue."),
    click.option(
        "--rule", type=int, metavar="LINE", help="Only messages that this rule took last."
    ),
    handler_option,
    key_option,
    click.option("--since", metavar="TIME", help="Failed since: 10m, 2h, 1d, or a date."),
    click.option("--older-than", metavar="TIME", help="Failed before: 10m, 2h, 1d, or a date."),
    click.option(
        "--looked-since", metavar="TIME", help="Last outcome since: 10m, 2h, 1d, or a date."
    ),
    click.option(
        "--body",
        metavar="COMPARISON",
        help="Only waiting ones whose JSON body fulfils it, such as '$.order.id == 17'.",
    ),
    click.option(
        "--body-text",
        metavar="TEXT",
        help="Only waiting ones with this in their body, ignoring case.",
    ),
    click.option("--where", default="", metavar="SQL", help="A condition on the ledger's columns."),
)
"""For every command that lists dead letters: a ``Selection``."""


def reserve(*, is_complete: bool) -> str:
    """The suffix of a number that may be too low."""
    return "" if is_complete else ", as far as could be read"


def none_in_words(selection: Selection, *, is_complete: bool) -> str:
    """The text for an empty list."""
    if selection.is_narrowed:
        text = "No dead letter matches these filters"
    elif selection.state is State.OPEN:
        text = "No dead letters are parked or remain"
    else:
        text = "No such dead letter"
    return f"{text}{reserve(is_complete=is_complete)}."


def selection_text(selection: Selection) -> str:
    """The options that select the same, without ``--status``; empty for everything."""
    return shlex.join(part for pair in options_of(selection).items() for part in pair)


def options_of(selection: Selection) -> dict[str, str]:
    """The options that select the same, without ``--status``, with their values."""
    key = selection.key
    given = {
        "--reason": selection.reason,
        "--destq": selection.destination,
        "--rule": selection.rule,
        "--handler": selection.handler,
        "--key": key if key is None else f"0x{key.hex()}",
        "--since": selection.since and f"{selection.since:%Y-%m-%dT%H:%M:%S}Z",
        "--older-than": selection.before and f"{selection.before:%Y-%m-%dT%H:%M:%S}Z",
        "--looked-since": selection.looked_since and f"{selection.looked_since:%Y-%m-%dT%H:%M:%S}Z",
        "--where": selection.where or None,
        "--body": selection.body or None,
        "--body-text": selection.body_text or None,
    }
    return {name: str(value) for name, value in given.items() if value is not None}


def parse_key(text: str) -> bytes:
    """A record key from text, or 0x and hex digits; for ``--key``."""
    if not text.startswith("0x"):
        return text.encode()
    try:
        return bytes.fromhex(text[2:])
    except ValueError as error:
        raise UsageError(f"--key {text} is not an even number of hex digits after 0x") from error


def parse_reason(text: str) -> int:
    """A reason code from a number or a name; for ``--reason``."""
    if _CODE.fullmatch(text):
        return int(text)
    name = text.upper()
    for family in ("MQRC", "MQFB"):
        for known in (name, f"{family}_{name}"):
            if known in FAMILIES[family]:
                return FAMILIES[family][known]
    raise UsageError(
        f"--reason {text} is not a reason code", hint="give a number or a name such as MQRC_Q_FULL"
    )


def parse_time(option: str, text: str) -> datetime:
    """A time as the user wrote it for an option, such as 2h for two hours ago."""
    try:
        return parse_since(text, datetime.now(UTC))
    except ValueError as error:
        raise UsageError(
            f"{option} {text} is not a time", hint="give 10m, 2h, 1d, or 2026-01-31T12:00"
        ) from error
