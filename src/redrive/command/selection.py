"""Options that say which dead letters are meant, the same for every command that lists them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import wraps
from pathlib import Path
from typing import Any

import click

from redrive.errors import UsageError
from redrive.messages.constants import FAMILIES
from redrive.operations.durations import parse_since
from redrive.outcomes.inventory import Selection, State

__all__ = [
    "config_option", "none_in_words", "notes_about_unread", "parse_key", "parse_reason",
    "parse_time", "reserve", "selection_options",
]  # fmt: skip

config_option = click.option(
    "--config",
    "-c",
    type=click.Path(path_type=Path, dir_okay=False),
    default="redrive.toml",
    show_default=True,
    help="The job's settings.",
)

_OPTIONS = (
    click.option(
        "--status",
        type=click.Choice([state.value for state in State]),
        default=State.OPEN.value,
        show_default=True,
        help="Where they stand; open is parked or remaining.",
    ),
    click.option("--reason", help="Only this reason, such as 2053 or MQRC_Q_FULL."),
    click.option("--destq", metavar="QUEUE", help="Only messages that were for this queue."),
    click.option("--rule", type=int, metavar="LINE", help="Only where this rule was last."),
    click.option("--handler", metavar="NAME", help="Only of this handler."),
    click.option("--key", help="Only records with this key: text, or 0x and hex digits."),
    click.option("--since", metavar="TIME", help="Last outcome from: 10m, 2h, 1d, or a date."),
    click.option("--older-than", metavar="TIME", help="Last outcome before: 10m, 2h, 1d, a date."),
    click.option("--where", default="", metavar="SQL", help="A condition on the ledger's columns."),
)


def selection_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options; the command gets them as ``selection``."""

    @wraps(command)
    def selecting(
        *,
        status: str,
        reason: str | None,
        destq: str | None,
        rule: int | None,
        handler: str | None,
        key: str | None,
        since: str | None,
        older_than: str | None,
        where: str,
        **others: Any,  # noqa: ANN401 - the command's own
    ) -> Any:  # noqa: ANN401 - the command's own
        selection = Selection(
            state=State(status),
            reason=None if reason is None else parse_reason(reason),
            destination=destq,
            rule=rule,
            handler=handler,
            key=None if key is None else parse_key(key),
            since=None if since is None else parse_time("--since", since),
            before=None if older_than is None else parse_time("--older-than", older_than),
            where=where,
        )
        return command(selection=selection, **others)

    for option in reversed(_OPTIONS):
        selecting = option(selecting)
    return selecting


def reserve(*, is_complete: bool) -> str:
    """What stands behind a number of dead letters that may be too low; empty if it is not."""
    return "" if is_complete else ", as far as could be read"


def none_in_words(selection: Selection, *, is_complete: bool) -> str:
    """The answer of a list in which there is nothing.

    Args:
        selection: What was asked for.
        is_complete: Whether everything was read.
    """
    if selection.is_narrowed:
        found = "No dead letter fits these filters"
    elif selection.state is State.OPEN:
        found = "Nothing is parked, and nothing remains"
    else:
        found = "There is no such dead letter"
    return f"{found}{reserve(is_complete=is_complete)}."


def notes_about_unread(unread: int | None) -> Iterator[str]:
    """What a list of dead letters leaves out, as the job has not decided about them.

    Args:
        unread: How many records it has not read, at most; None if that is not known.
    """
    if unread:
        yield (
            f"up to {unread:,} messages are not in this list: the job has not read them yet;"
            " redrive status shows whether it runs"
        )


def parse_key(text: str) -> bytes:
    """A record key from text, or 0x and hex digits; ``--key`` of several commands."""
    if not text.startswith("0x"):
        return text.encode()
    try:
        return bytes.fromhex(text[2:])
    except ValueError as error:
        raise UsageError(f"--key {text} is no even number of hex digits after 0x") from error


def parse_reason(text: str) -> int:
    """A reason code from a number or a name; ``--reason`` of several commands."""
    if text.isdecimal():
        return int(text)
    name = text.upper()
    for family in ("MQRC", "MQFB"):
        for known in (name, f"{family}_{name}"):
            if known in FAMILIES[family]:
                return FAMILIES[family][known]
    raise UsageError(
        f"--reason {text} is no reason code", hint="give a number or a name such as MQRC_Q_FULL"
    )


def parse_time(option: str, text: str) -> datetime:
    """A time as the user wrote it for an option, such as 2h for two hours ago."""
    try:
        return parse_since(text, datetime.now(UTC))
    except ValueError as error:
        raise UsageError(
            f"{option} {text} is no time", hint="give 10m, 2h, 1d, or 2026-01-31T12:00"
        ) from error
