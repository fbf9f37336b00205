"""``redrive ls``: the dead letters of a job, and where each of them stands."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import click
import orjson
from rich.text import Text

from redrive.command.history import STYLES, at, plain, reason_text, tell, why
from redrive.command.selection import (
    config_option,
    none_in_words,
    notes_about_unread,
    reserve,
    selection_options,
)
from redrive.command.status import print_uncut, table
from redrive.messages import NO_VALID_SCHEME
from redrive.operations.durations import duration
from redrive.outcomes.history import Archive
from redrive.outcomes.inventory import Listing, Selection
from redrive.outcomes.rows import Row
from redrive.printable import printable
from redrive.settings import read_settings

__all__ = ["ls"]


@click.command()
@config_option
@selection_options
@click.option(
    "--limit",
    type=click.IntRange(min=1, max=1000),
    default=20,
    show_default=True,
    help="How many to list, the newest ones.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def ls(*, config: Path, selection: Selection, limit: int, as_json: bool) -> None:
    """List dead letters: what is parked or remains, or what became of others.

    \b
    redrive ls
    redrive ls --status remaining --reason MQRC_Q_FULL --older-than 1h
    redrive ls --status all --since 1d --where "field_destq LIKE 'orders.%' AND attempt > 2"

    Parked messages wait for their next attempt; remaining ones match no rule, or every rule has
    failed. --where is SQL over the columns of the ledger. Without a broker the newest may be
    missing, and the command says so.

    Exit codes: 0 listed, also if there are none; 1 error, 2 usage.
    """  # noqa: D301 - \b keeps click from wrapping the examples
    settings = read_settings(config)
    archive = Archive(settings.job)
    inventory, notes = archive.inventory()
    with inventory:
        listing = inventory.letters(selection, limit=limit)
    unread = archive.unread()
    listing = replace(listing, letters=[settings.mask.row(row) for row in listing.letters])
    if as_json:
        content = {
            "total": listing.total,
            "complete": not notes,
            "dead_letters": [plain(row) for row in listing.letters],
            "unread": unread,
            "notes": notes,
        }
        click.echo(orjson.dumps(content, option=orjson.OPT_INDENT_2))
        return
    _show(listing, selection, is_complete=not notes)
    tell([*notes, *notes_about_unread(unread)])


def _show(listing: Listing, selection: Selection, *, is_complete: bool) -> None:
    if not listing.letters:
        click.echo(none_in_words(selection, is_complete=is_complete))
        return
    shown = table(
        "message", "result", "last outcome", "for", "reason", "last failure",
        right=("last outcome",), folded=("for", "reason", "last failure"),
    )  # fmt: skip
    moment = datetime.now(UTC)
    for row in reversed(listing.letters):
        shown.add_row(*_cells(row, moment))
    print_uncut(shown)
    if listing.total > len(listing.letters):
        click.echo(
            f"{len(listing.letters)} of {listing.total}{reserve(is_complete=is_complete)};"
            " --limit shows more"
        )


def _cells(row: Row, moment: datetime) -> tuple[str | Text, ...]:
    return (
        printable(row["message"]),
        Text(row["result"], style=STYLES.get(row["result"], "")),
        f"{duration((moment - row['time']).total_seconds())} ago",
        at(row["field_destq"], row["field_destqm"]),
        reason_text(None if row["form"] == NO_VALID_SCHEME else row["field_reason"]),
        why(row),
    )
